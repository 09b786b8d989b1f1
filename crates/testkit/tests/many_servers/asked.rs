//! Approvals on shared servers, and the settings that `mainstay share` keeps: rules, secrets and the sandbox.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request, Session, modern};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Launch, Running, Serve, binary};
use serde_json::{Value, json};

use crate::shared::{Relay, User, echo, servers_below};
use crate::wrapping::{SERVER, eventually, failure, text};
use crate::{entry, serve, write};

const CLIENT: &str = "client-token-0123456789";
const APPROVER: &str = "approver-token-0123456789";
const VALUE: &str = "s3cr3t-Value-0f-this-test";

/// The only call that waits in the hosts of a runtime directory.
fn waiting(folder: &Path) -> anyhow::Result<Value> {
    let listed = || -> Option<Value> {
        let output = mainstay(folder, &["approve", "list", "--json"]).ok()?;
        let listed: Value = serde_json::from_slice(&output.stdout).ok()?;
        listed.get(0).cloned()
    };
    eventually("a call waits for an approval", || listed().is_some())?;
    listed().context("it waits")
}

fn mainstay(folder: &Path, words: &[&str]) -> anyhow::Result<Output> {
    let mut command = std::process::Command::new(binary("mainstay")?);
    let command = command.args(words);
    Ok(command
        .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
        .output()?)
}

fn answer(folder: &Path, verdict: &str) -> anyhow::Result<()> {
    let call = waiting(folder)?;
    let id = call["id"].as_str().context("an id")?;
    let output = mainstay(folder, &["approve", verdict, id])?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

fn put(client: &Client, id: &str, tool: &str) -> anyhow::Result<()> {
    let params = json!({"name": tool, "arguments": {"key": "k", "value": "v"}});
    client.send(&mainstay_testkit::peer::request_line(
        id,
        "tools/call",
        &params,
    ))
}

fn ask_put() -> Value {
    json!({"shared": true, "approvals": {"rules": [{"verdict": "ask", "tool": "put"}]}})
}

fn question(client: &Client) -> anyhow::Result<Message> {
    client.take("a question", |message| {
        message.method().as_deref() == Some("elicitation/create")
    })
}

fn accept(client: &Client, asked: &Message) -> anyhow::Result<()> {
    let result = json!({"action": "accept", "content": {"decision": "run it once"}});
    let answer = json!({"jsonrpc": "2.0", "id": asked.at("/id"), "result": result});
    client.send(&answer.to_string())
}

#[test]
fn a_call_of_a_shared_server_is_approved_for_its_own_session_only() -> anyhow::Result<()> {
    let serve_one = Serve::socket()?;
    let effects = serve_one.folder().join("effects");
    let options = format!("--page 60 --effects {}", effects.display());
    let servers = json!({ "ours": entry(&options, ask_put())? });
    let running = serve(serve_one, &servers)?;
    let (asker, other) = (running.connect()?, running.connect()?);
    asker.open(&json!({"elicitation": {}}))?;
    other.open(&json!({"elicitation": {}}))?;
    for client in [&asker, &other] {
        crate::says(client, "1", "ours__echo", "here")?;
    }
    let servers = servers_below(running.pid());
    ensure!(servers.len() == 1, "they share one process: {servers:?}");
    put(&asker, "2", "ours__put")?;
    let asked = question(&asker)?;
    // The other session cannot answer, and is served meanwhile.
    accept(&other, &asked)?;
    crate::says(&other, "2", "ours__echo", "meanwhile")?;
    let waits = waiting(running.folder())?;
    ensure!(
        waits["tool"] == "put" && waits["server"] == "ours",
        "{waits}"
    );
    accept(&asker, &asked)?;
    let done = asker.answer("2")?;
    ensure!(done.at("/result/isError") != true, "{done:?}");
    // At the command line, granted and denied.
    for (id, verdict) in [("3", "grant"), ("4", "deny")] {
        put(&other, id, "ours__put")?;
        answer(running.folder(), verdict)?;
        let done = other.answer(id)?;
        match verdict {
            "grant" => ensure!(done.at("/result/isError") != true, "{done:?}"),
            _ => ensure!(failure(&done)?["code"] == "FORBIDDEN", "{done:?}"),
        }
    }
    // Of two calls with the same arguments a grant lets one run.
    put(&asker, "5", "ours__put")?;
    put(&other, "5", "ours__put")?;
    let both = || {
        let output = mainstay(running.folder(), &["approve", "list", "--json"]).ok()?;
        let listed: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
        (listed.len() == 2).then_some(listed)
    };
    eventually("two calls wait", || both().is_some())?;
    answer(running.folder(), "grant")?;
    eventually("one call waits", || both().is_none())?;
    answer(running.folder(), "deny")?;
    let ended = [asker.answer("5")?, other.answer("5")?];
    let ran = ended
        .iter()
        .filter(|done| done.at("/result/isError") != true);
    ensure!(ran.count() == 1, "{ended:?}");
    running.stop()
}

fn token(folder: &Path, name: &str, value: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, value)?;
    Ok(std::fs::set_permissions(
        path,
        std::fs::Permissions::from_mode(0o600),
    )?)
}

/// A host over HTTP of a shared server, with a token for clients and one for a person who approves.
fn http_host(options: &str, mut ours: Value) -> anyhow::Result<Running> {
    ours["bridge"] = json!(true);
    let words = [binary("mainstay")?.into_os_string(), "serve".into()];
    let launch = Launch::new(words)?.words(["--config", "servers.json"]);
    let folder = launch.folder().to_owned();
    token(&folder, "client", CLIENT)?;
    token(&folder, "approver", APPROVER)?;
    let options = format!("{options} --effects {}", folder.join("effects").display());
    let file = json!({
        "mainstay": {"http": "127.0.0.1:0", "token_file": folder.join("client"),
            "approver_token_file": folder.join("approver")},
        "mcpServers": {"ours": entry(&options, ours)?},
    });
    std::fs::write(folder.join("servers.json"), file.to_string())?;
    launch.spawn_http()
}

#[test]
fn calls_of_a_shared_server_are_approved_over_rest_and_in_both_eras() -> anyhow::Result<()> {
    for options in ["", "--era modern"] {
        let host = http_host(options, ask_put())?;
        let address = host.address()?;
        let rest = |method: &str, target: &str, token: &str, body: Value| -> anyhow::Result<_> {
            let bearer = format!("Bearer {token}");
            let request = Request::to(address, method, target).header("authorization", &bearer);
            let request = match body {
                Value::Null => request,
                body => request
                    .header("content-type", "application/json")
                    .body(body.to_string()),
            };
            Connection::open(address)?.ask(&request)
        };
        // A session waits, and the approver answers.
        let session = Session::open_as(address, Some(CLIENT))?;
        let calling = std::thread::spawn(move || {
            session.call("1", "ours__put", &json!({"key": "k", "value": "v"}))
        });
        let id = waiting(host.folder())?["id"]
            .as_str()
            .context("an id")?
            .to_owned();
        let place = format!("/v1/approvals/{id}");
        let grant = json!({"verdict": "grant"});
        let own = rest("POST", &place, CLIENT, grant.clone())?;
        ensure!(own.status() == 403, "{}", own.text());
        let granted = rest("POST", &place, APPROVER, grant.clone())?;
        ensure!(granted.status() == 200, "{}", granted.text());
        let done = calling
            .join()
            .map_err(|_| anyhow::anyhow!("it panicked"))??;
        ensure!(done["result"]["isError"] != true, "{done}");
        // A client of the stateless revision repeats its call.
        let bearer = format!("Bearer {CLIENT}");
        let elicits = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
        let call = |more: Value| -> anyhow::Result<Value> {
            let mut params = json!({"name": "ours__put", "arguments": {"key": "k", "value": "v"}});
            for (name, value) in more.as_object().into_iter().flatten() {
                params[name] = value.clone();
            }
            let mut request = modern(address, "1", "tools/call", &params);
            // The helper declares no capabilities.
            let text = String::from_utf8(request.bytes())?;
            let (_, body) = text.split_once("\r\n\r\n").context("a body")?;
            let mut body: Value = serde_json::from_str(body)?;
            for (name, value) in elicits.as_object().into_iter().flatten() {
                body["params"]["_meta"][name] = value.clone();
            }
            request = request
                .header("authorization", &bearer)
                .body(body.to_string());
            let response = Connection::open(address)?.ask(&request)?;
            let messages = response.messages()?;
            messages.last().cloned().with_context(|| response.text())
        };
        let asked = call(json!({}))?;
        ensure!(asked["result"]["resultType"] == "input_required", "{asked}");
        let mut more = json!({"requestState": asked["result"]["requestState"],
            "inputResponses": {"approval": {"action": "accept", "content": {"decision": "run it once"}}}});
        more["arguments"] = json!({"key": "k", "value": "w"});
        let refused = call(more.clone())?;
        ensure!(refused.to_string().contains("other arguments"), "{refused}");
        more["arguments"] = json!({"key": "k", "value": "v"});
        let done = call(more.clone())?;
        ensure!(done["result"]["isError"] != true, "{done}");
        let again = call(more)?;
        ensure!(
            again["result"]["isError"] == true,
            "a grant is used once: {again}"
        );
        host.stop()?;
    }
    Ok(())
}

/// A client behind `mainstay share` with these words, whose file is in the user's folder.
fn relay(user: &User, words: &[&str]) -> anyhow::Result<Relay> {
    let mut command = user.command()?;
    command.arg("share").args(words);
    crate::shared::client_behind(command)
}

/// A file with one server that shows its environment, with our own keys.
fn file(user: &User, name: &str, ours: Value) -> anyhow::Result<()> {
    token(user.folder.path(), "values", &format!("key={VALUE}\n"))?;
    let effects = user.folder.join("effects");
    let mut server = entry(&format!("--effects {}", effects.display()), ours)?;
    server["env"] = json!({"API_KEY": "${secret:key}", "PLAIN": "plain"});
    let secrets = json!({"secrets": {"file": user.folder.join("values")}});
    let file = json!({"mainstay": secrets, "mcpServers": {"fixture": server}});
    Ok(std::fs::write(user.folder.join(name), file.to_string())?)
}

#[test]
fn share_keeps_the_rules_and_the_secrets_of_an_entry() -> anyhow::Result<()> {
    let user = User::new()?;
    let rules = json!({"approvals": {"rules": [{"verdict": "ask", "tool": "put"}]}, "deny": ["append"], "shared": true});
    file(&user, "servers.json", rules)?;
    let words = ["--config", "servers.json"];
    let (first, second) = (relay(&user, &words)?, relay(&user, &words)?);
    for relay in [&first, &second] {
        relay.client.open(&json!({}))?;
        echo(&relay.client, "1", "here")?;
        let names = crate::names(&relay.client, "2", "tools/list")?;
        ensure!(!names.contains(&"append".to_owned()), "{names:?}");
    }
    let servers = user.servers()?;
    ensure!(servers.len() == 1 && servers[0].1 == 2, "{servers:?}");
    let environment = std::fs::read(format!("/proc/{}/environ", servers[0].0))?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    ensure!(
        environment.contains(&format!("API_KEY={VALUE}")),
        "the reference is filled in"
    );
    ensure!(environment.contains("PLAIN=plain"), "{environment}");
    put(&first.client, "3", "put")?;
    ensure!(waiting(user.folder.path())?["tool"] == "put");
    answer(user.folder.path(), "grant")?;
    let done = first.client.answer("3")?;
    ensure!(done.at("/result/isError") != true, "{done:?}");
    let denied = first.client.call("4", "append", &json!({"key": "k"}))?;
    ensure!(denied.text().contains("append"), "{denied:?}");
    ensure!(
        denied.at("/result/isError") == true || denied.member("error").is_some(),
        "{denied:?}"
    );
    // A client without the rules does not get the same process, and one with options has its own rules.
    let bare = user.relay("", "X")?;
    bare.client.open(&json!({}))?;
    echo(&bare.client, "1", "bare")?;
    let asked = relay(&user, &[&words[..], &["--ask", "echo"]].concat())?;
    asked.client.open(&json!({}))?;
    asked.client.send(&mainstay_testkit::peer::request_line(
        "1",
        "tools/call",
        &json!({"name": "echo", "arguments": {"text": "here"}}),
    ))?;
    ensure!(waiting(user.folder.path())?["tool"] == "echo");
    answer(user.folder.path(), "grant")?;
    ensure!(text(&asked.client.answer("1")?) == "here");
    ensure!(user.servers()?.len() == 3, "{:?}", user.servers()?);
    // The value is in no log, and outlives an upgrade of the host.
    let upgraded = user.mainstay(&["upgrade", "--name", "share"])?;
    ensure!(upgraded.status.success(), "{upgraded:?}");
    echo(&second.client, "5", "upgraded")?;
    put(&second.client, "6", "put")?;
    answer(user.folder.path(), "deny")?;
    ensure!(failure(&second.client.answer("6")?)?["code"] == "FORBIDDEN");
    let log = std::fs::read_to_string(user.folder.join("run/share.log"))?;
    ensure!(!log.contains(VALUE), "{log}");
    Ok(())
}

#[test]
fn share_restores_rules_and_secrets_on_another_host() -> anyhow::Result<()> {
    let user = User::new()?;
    let rules =
        json!({"approvals": {"rules": [{"verdict": "deny", "tool": "put"}]}, "shared": true});
    file(&user, "servers.json", rules)?;
    let relay = relay(&user, &["--config", "servers.json"])?;
    relay.client.open(&json!({}))?;
    echo(&relay.client, "1", "here")?;
    let host = user.host()?;
    mainstay_testkit::process::kill(host);
    echo(&relay.client, "2", "again")?;
    ensure!(user.host()? != host);
    let denied = relay.client.call("3", "put", &json!({"key": "k"}))?;
    ensure!(failure(&denied)?["code"] == "FORBIDDEN", "{denied:?}");
    let environment = std::fs::read(format!("/proc/{}/environ", user.servers()?[0].0))?;
    ensure!(String::from_utf8_lossy(&environment).contains(VALUE));
    Ok(())
}

#[test]
fn share_keeps_the_sandbox_of_an_entry_and_does_not_ask_a_server_outside_it() -> anyhow::Result<()>
{
    let user = User::new()?;
    let outside = user.folder.join("outside");
    std::fs::write(&outside, "outside")?;
    let program = binary(SERVER)?;
    let script = user.folder.join("server.sh");
    // Each start outside of the sandbox leaves a mark.
    let text = format!(
        "echo started 2>/dev/null >> {}\nexec {} \"$@\"\n",
        outside.display(),
        program.display()
    );
    std::fs::write(&script, text)?;
    let write_file = |shared: Option<bool>| -> anyhow::Result<()> {
        let mut ours = json!({"sandbox": {"read": [script, program.parent()]}});
        if let Some(shared) = shared {
            ours["shared"] = json!(shared);
        }
        let server = json!({"command": "sh", "args": [script, "--era", "both"], "mainstay": ours});
        write(user.folder.path(), &json!({"boxed": server}))
    };
    for shared in [None, Some(true)] {
        write_file(shared)?;
        let client = relay(&user, &["--config", "servers.json"])?;
        client.client.open(&json!({}))?;
        echo(&client.client, "1", "here")?;
        ensure!(
            user.status().is_ok() == shared.is_some(),
            "a share host runs only if declared"
        );
    }
    ensure!(
        std::fs::read_to_string(&outside)? == "outside",
        "it ran outside the sandbox"
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", user.servers()?[0].0))?;
    ensure!(status.contains("NoNewPrivs:\t1"), "{status}");
    Ok(())
}

#[test]
fn share_refuses_settings_that_it_cannot_keep() -> anyhow::Result<()> {
    let user = User::new()?;
    for (ours, what) in [
        (json!({"audit": "audit.jsonl"}), "audit"),
        (json!({"lock": "mainstay.lock.json"}), "lock"),
        (json!({"quotas": {"*": {"calls": 1}}}), "quotas"),
        (json!({"tasks": true}), "tasks"),
        (
            json!({"approvals": {"rules": [{"verdict": "deny", "server": "fixture"}]}}),
            "names a server",
        ),
    ] {
        file(&user, "servers.json", ours)?;
        let words: [&OsStr; 4] = ["share", "--shared", "--config", "servers.json"].map(OsStr::new);
        let output = user.command()?.args(words).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(2), "{said}");
        ensure!(
            said.contains("cannot keep") && said.contains(what),
            "{said}"
        );
        ensure!(
            said.contains("mainstay wrap --config"),
            "it says what to do: {said}"
        );
        ensure!(!said.contains(VALUE), "{said}");
    }
    ensure!(user.status().is_err(), "no host was started");
    Ok(())
}
