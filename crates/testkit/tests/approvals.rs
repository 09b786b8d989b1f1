//! Approvals and audit files with real processes: commands, REST, restarts, upgrades, and a disk that is full.

mod wrapping;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use mainstay_testkit::fixture::read_told;
use mainstay_testkit::http::{Connection, Request};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Launch, Running, TempDir, binary};
use rustix::process::Signal;
use serde_json::{Value, json};

use self::wrapping::{call, configured, eventually, failure, fixture, stop, text};

fn mainstay(runtime: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new(binary("mainstay")?)
        .args(arguments)
        .env("MAINSTAY_RUNTIME_DIR", runtime.join("run"))
        .output()
        .context("running mainstay")
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The only call that waits, as `mainstay approve list` shows it.
fn waiting(runtime: &Path) -> anyhow::Result<Value> {
    let found = std::cell::RefCell::new(Value::Null);
    eventually("a call waits for an approval", || {
        let listed = mainstay(runtime, &["approve", "list", "--json"]);
        let listed = listed
            .ok()
            .and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
        let first = listed.and_then(|listed| listed.get(0).cloned());
        *found.borrow_mut() = first.unwrap_or_default();
        !found.borrow().is_null()
    })?;
    Ok(found.into_inner())
}

fn id_of(approval: &Value) -> anyhow::Result<String> {
    Ok(approval["id"].as_str().context("an id")?.to_owned())
}

/// The result of `mainstay audit verify`: intact or not, and why.
fn verified(arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    let output = mainstay(Path::new("/"), &[&["audit", "verify"], arguments].concat())?;
    let code = output.status.code();
    ensure!(code == Some(0) || code == Some(1), "{}", said(&output));
    Ok((code == Some(0), said(&output)))
}

fn records(file: &Path) -> anyhow::Result<Vec<Value>> {
    let lines = std::fs::read_to_string(file)?;
    let records = lines.lines().map(serde_json::from_str);
    Ok(records.collect::<Result<_, _>>()?)
}

fn events(file: &Path) -> anyhow::Result<Vec<String>> {
    let events = records(file)?;
    let events = events
        .iter()
        .map(|record| record["event"].as_str().unwrap_or_default().to_owned());
    Ok(events.collect())
}

#[test]
fn a_person_answers_at_the_command_line_and_everything_is_in_the_audit_file() -> anyhow::Result<()>
{
    let files = TempDir::new()?;
    let (audit, anchor) = (files.join("audit"), files.join("anchor"));
    let options = format!(
        "--ask put --audit {} --audit-anchor {}",
        audit.display(),
        anchor.display()
    );
    let fixture = fixture(&options, "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let secret = "an-argument-that-is-not-recorded";
    for (number, grant) in [("1", true), ("2", false)] {
        client.send(&call(number, "put", &json!({"key": "k", "value": secret})))?;
        let approval = waiting(running.folder())?;
        let id = id_of(&approval)?;
        ensure!(
            approval["tool"] == "put" && approval["who"] == "user",
            "{approval}"
        );
        let shown = said(&mainstay(running.folder(), &["approve", "show", &id])?);
        ensure!(shown.contains(secret), "{shown}");
        let told = read_told(&state)?
            .iter()
            .filter(|told| told.line.contains(secret))
            .count();
        ensure!(
            told == usize::from(number == "2"),
            "the server has it before it is granted"
        );
        let word = if grant { "grant" } else { "deny" };
        let answered = mainstay(running.folder(), &["approve", word, &id])?;
        ensure!(answered.status.success(), "{}", said(&answered));
        let answer = client.answer(number)?;
        match grant {
            true => ensure!(answer.at("/result/isError") != true, "{answer:?}"),
            false => ensure!(
                failure(&answer)?["message"] == "the call was not approved",
                "{answer:?}"
            ),
        }
        let again = mainstay(running.folder(), &["approve", "grant", &id])?;
        ensure!(again.status.code() == Some(1), "{}", said(&again));
    }
    stop(running)?;
    let names = events(&audit)?;
    let expected = [
        "audit.opened",
        "approval.asked",
        "approval.granted",
        "call.decision",
        "call.ended",
        "approval.asked",
        "approval.denied",
        "call.decision",
        "audit.closed",
    ];
    ensure!(names == expected, "{names:?}");
    ensure!(
        !std::fs::read_to_string(&audit)?.contains(secret),
        "arguments are not recorded"
    );
    let (path, anchor) = (audit.display().to_string(), anchor.display().to_string());
    let (intact, why) = verified(&[&path, "--anchor", &anchor])?;
    ensure!(
        intact && why.contains("lines 1 to 9") && why.contains("the anchor fits line 9"),
        "{why}"
    );
    // Somebody who can write the file cannot hide what happened.
    let whole = std::fs::read_to_string(&audit)?;
    let lines: Vec<&str> = whole.lines().collect();
    let without = |gone: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != gone);
        kept.map(|(_, line)| format!("{line}\n"))
            .collect::<String>()
    };
    let mut attempts: Vec<(String, String)> = (0..lines.len())
        .map(|gone| (format!("without line {}", gone + 1), without(gone)))
        .collect();
    attempts.push((
        "denied turned into granted".to_owned(),
        whole.replacen("approval.denied", "approval.granted", 1),
    ));
    attempts.push((
        "cut inside of a line".to_owned(),
        whole.trim_end().to_owned(),
    ));
    let mut swapped = lines.clone();
    swapped.swap(3, 4);
    attempts.push((
        "reordered".to_owned(),
        swapped.iter().map(|line| format!("{line}\n")).collect(),
    ));
    for (what, content) in attempts {
        std::fs::write(&audit, content)?;
        let (intact, why) = verified(&[&path, "--anchor", &anchor])?;
        ensure!(!intact, "{what}: {why}");
    }
    Ok(())
}

#[test]
fn a_chain_goes_on_across_restarts_and_upgrades_and_belongs_to_one_host() -> anyhow::Result<()> {
    let files = TempDir::new()?;
    let (audit, anchor, key) = (files.join("audit"), files.join("anchor"), files.join("key"));
    std::fs::write(&key, "0123456789abcdef0123456789abcdef")?;
    let mut command = Command::new("chmod");
    command.arg("600").arg(&key);
    ensure!(command.status()?.success());
    let options = format!(
        "--ask append --audit {} --audit-anchor {} --audit-key {}",
        audit.display(),
        anchor.display(),
        key.display()
    );
    let host = || -> anyhow::Result<Running> {
        let running = fixture(&options, "")?.spawn()?;
        running.client()?.open(&json!({}))?;
        Ok(running)
    };
    let running = host()?;
    let client = running.client()?;
    let put = json!({"key": "k", "value": "v"});
    client.call("1", "put", &put)?;
    let mut second = fixture(&options, "")?.spawn()?;
    ensure!(second.wait()?.code() == Some(2));
    second.wait_for_line("another host writes the audit file")?;
    // A call waits while the host is replaced.
    client.send(&call("2", "append", &put))?;
    let id = id_of(&waiting(running.folder())?)?;
    let upgraded = mainstay(running.folder(), &["upgrade"])?;
    ensure!(upgraded.status.success(), "{}", said(&upgraded));
    let granted = mainstay(running.folder(), &["approve", "grant", &id])?;
    ensure!(granted.status.success(), "{}", said(&granted));
    let answer = client.answer("2")?;
    ensure!(answer.at("/result/isError") != true, "{answer:?}");
    let mut third = fixture(&options, "")?.spawn()?;
    ensure!(
        third.wait()?.code() == Some(2),
        "the lock outlives the upgrade"
    );
    stop(running)?;
    let running = host()?;
    running.client()?.call("1", "put", &put)?;
    // A host that is killed has every record of an effect on the disk.
    running.signal(Signal::KILL)?;
    drop(running);
    let (path, anchor_path, key_path) = (
        audit.display().to_string(),
        anchor.display().to_string(),
        key.display().to_string(),
    );
    let (intact, why) = verified(&[&path, "--anchor", &anchor_path, "--key", &key_path])?;
    ensure!(intact, "{why}");
    let (intact, why) = verified(&[&path])?;
    ensure!(!intact, "without the key nothing fits: {why}");
    let all = records(&audit)?;
    let ended = all
        .iter()
        .filter(|record| record["event"] == "call.ended")
        .count();
    ensure!(ended == 3, "{all:#?}");
    ensure!(
        all.iter().any(|record| record["outcome"] == "upgrade"),
        "{all:#?}"
    );
    ensure!(
        all.iter()
            .any(|record| record["event"] == "audit.continued"),
        "{all:#?}"
    );
    // Without its tail the chain is whole, and the anchor says that it is not all.
    let whole = std::fs::read_to_string(&audit)?;
    let kept = whole.lines().count() - 1;
    let cut = whole.lines().take(kept).map(|line| format!("{line}\n"));
    std::fs::write(&audit, cut.collect::<String>())?;
    let (intact, why) = verified(&[&path, "--key", &key_path])?;
    ensure!(intact, "{why}");
    let (intact, why) = verified(&[&path, "--anchor", &anchor_path, "--key", &key_path])?;
    ensure!(!intact && why.contains("lines were removed"), "{why}");
    let mut refused = fixture(&options, "")?.spawn()?;
    ensure!(refused.wait()?.code() == Some(2));
    refused.wait_for_line("lines were removed")?;
    Ok(())
}

#[test]
fn a_full_disk_stops_calls_with_effects_and_no_others() -> anyhow::Result<()> {
    let files = TempDir::new()?;
    let audit = files.join("audit");
    let rules = json!({"approvals": {"trust_annotations": true}, "remember": false});
    let fixture = configured(&rules, "")?;
    let words: Vec<std::ffi::OsString> = vec![
        "sh".into(),
        "-c".into(),
        "ulimit -f 8; exec \"$0\" \"$@\"".into(),
        binary("mainstay")?.into(),
        "wrap".into(),
        "--audit".into(),
        audit.clone().into(),
        "--config".into(),
        fixture.path("servers.json").into(),
        "--".into(),
    ];
    // The files of the server are limited, too, and grow by less.
    let running = mainstay_testkit::wrapped::Fixture::after(words)?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let mut refused = None;
    for number in 1..200 {
        let answer = client.call(
            &number.to_string(),
            "put",
            &json!({"key": "k", "value": "v"}),
        )?;
        if answer.at("/result/isError") == true {
            refused = Some(failure(&answer)?);
            break;
        }
    }
    let refused = refused.context("no call was refused")?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains("audit file"), "{refused}");
    // A tool that only reads goes on.
    let answer = client.call("\"r\"", "echo", &json!({"text": "here"}))?;
    ensure!(text(&answer) == "here", "{answer:?}");
    running.wait_for_line("reason=audit_failed")?;
    let answer = client.call("\"w\"", "put", &json!({"key": "k", "value": "v"}))?;
    ensure!(failure(&answer)?["code"] == "INTERNAL", "{answer:?}");
    stop(running)?;
    let (intact, why) = verified(&[&audit.display().to_string()])?;
    ensure!(intact, "no half line is left: {why}");
    Ok(())
}

/// A host over HTTP with a token for clients and one for a person who approves.
fn http_host(files: &TempDir) -> anyhow::Result<(Running, PathBuf)> {
    for (name, token) in [
        ("client", "client-token-0123456789"),
        ("approver", "approver-token-0123456789"),
    ] {
        std::fs::write(files.join(name), token)?;
        let mut command = Command::new("chmod");
        command.arg("600").arg(files.join(name));
        ensure!(command.status()?.success());
    }
    let audit = files.join("audit");
    let mainstay = json!({
        "http": "127.0.0.1:0", "token_file": files.join("client"),
        "approver_token_file": files.join("approver"), "audit": audit,
        "approvals": {"rules": [{"verdict": "ask", "tool": "put"}]},
    });
    let file = json!({"mcpServers": {"fixture": {"command": binary("mcp-fixture")?, "args": ["--effects", files.join("effects")], "mainstay": mainstay}}});
    let path = files.join("servers.json");
    std::fs::write(&path, file.to_string())?;
    let words: [std::ffi::OsString; 4] = [
        binary("mainstay")?.into(),
        "wrap".into(),
        "--config".into(),
        path.into(),
    ];
    Ok((Launch::new(words)?.spawn_http()?, audit))
}

#[test]
fn a_credential_with_the_scope_answers_over_rest_and_never_its_own_call() -> anyhow::Result<()> {
    let files = TempDir::new()?;
    let (host, audit) = http_host(&files)?;
    let address = host.address()?;
    let ask = |method: &str,
               target: &str,
               token: &str,
               body: Option<Value>|
     -> anyhow::Result<(u16, Value)> {
        let bearer = format!("Bearer {token}");
        let request = Request::to(address, method, target).header("authorization", &bearer);
        let request = match body {
            Some(body) => request
                .header("content-type", "application/json")
                .body(body.to_string()),
            None => request,
        };
        let answer = Connection::open(address)?.ask(&request)?;
        Ok((answer.status(), answer.json().unwrap_or_default()))
    };
    let (client, approver) = ("client-token-0123456789", "approver-token-0123456789");
    let put = json!({"arguments": {"key": "k", "value": "v"}});
    let grant = json!({"verdict": "grant"});
    for (caller, allowed) in [(client, true), (approver, false)] {
        let (body, token) = (put.clone(), caller.to_owned());
        let calling = std::thread::spawn(move || -> anyhow::Result<u16> {
            let bearer = format!("Bearer {token}");
            let request = Request::to(address, "POST", "/v1/tool/put")
                .header("authorization", &bearer)
                .header("content-type", "application/json")
                .body(body.to_string());
            Ok(Connection::open(address)?.ask(&request)?.status())
        });
        let id = id_of(&waiting(host.folder())?)?;
        let place = format!("/v1/approvals/{id}");
        let (status, _) = ask("GET", "/v1/approvals", client, None)?;
        ensure!(status == 403, "{status}");
        let (status, _) = ask("POST", &place, client, Some(grant.clone()))?;
        ensure!(status == 403, "a credential without the scope: {status}");
        let (status, listed) = ask("GET", "/v1/approvals", approver, None)?;
        ensure!(
            status == 200 && listed["approvals"][0]["id"] == id.as_str(),
            "{status} {listed}"
        );
        let who = listed["approvals"][0]["who"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        ensure!(who.starts_with("caller:") && who.len() == 39, "{who}");
        let (status, answered) = ask("POST", &place, approver, Some(grant.clone()))?;
        if allowed {
            ensure!(
                status == 200 && answered["granted"] == true,
                "{status} {answered}"
            );
            let status = calling
                .join()
                .map_err(|_| anyhow::anyhow!("it panicked"))??;
            ensure!(status == 200, "{status}");
        } else {
            ensure!(status == 403, "its own call: {status} {answered}");
            let denied = mainstay(host.folder(), &["approve", "deny", &id])?;
            ensure!(denied.status.success(), "{}", said(&denied));
            let status = calling
                .join()
                .map_err(|_| anyhow::anyhow!("it panicked"))??;
            ensure!(status == 403, "{status}");
        }
        let (status, _) = ask("POST", &place, approver, Some(grant.clone()))?;
        ensure!(status == 404, "twice: {status}");
    }
    let (status, _) = ask("GET", "/v1/tools", "wrong", None)?;
    ensure!(status == 401);
    host.stop()?;
    let names = events(&audit)?;
    for name in [
        "approval.refused",
        "approval.granted",
        "approval.denied",
        "access.refused",
        "operator.command",
    ] {
        ensure!(names.iter().any(|event| event == name), "{name}: {names:?}");
    }
    let text = std::fs::read_to_string(&audit)?;
    ensure!(
        !text.contains(client) && !text.contains(approver),
        "no token is recorded"
    );
    Ok(())
}

/// A request of a client of the stateless revision that can ask its user.
fn modern(client: &Client, id: &str, tool: &str, more: &Value) -> anyhow::Result<Message> {
    let mut params = json!({"name": tool, "arguments": {"key": "k", "value": "v"}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }});
    if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
        params.extend(more.clone());
    }
    client.request(id, "tools/call", &params)
}

/// The members with which such a client repeats a call after `asked`.
fn answered(asked: &Message, name: &str, content: &Value) -> Value {
    json!({"requestState": asked.at("/result/requestState"),
        "inputResponses": {name: {"action": "accept", "content": content}}})
}

fn run_once() -> Value {
    json!({"decision": "run it once"})
}

/// How often the server was told to call this tool.
fn calls(state: &Path, tool: &str) -> anyhow::Result<usize> {
    let name = format!(r#""name":"{tool}""#);
    let told = read_told(state)?;
    let of_tool = |line: &str| line.contains("tools/call") && line.contains(&name);
    Ok(told.iter().filter(|told| of_tool(&told.line)).count())
}

#[test]
fn a_client_of_the_stateless_revision_approves_a_call_of_a_server_with_sessions()
-> anyhow::Result<()> {
    let fixture = fixture("--bridge --ask put", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    let asked = modern(client, "1", "put", &json!({}))?;
    ensure!(
        asked.at("/result/resultType") == "input_required",
        "{asked:?}"
    );
    let question = asked.at("/result/inputRequests/approval");
    ensure!(question["method"] == "elicitation/create", "{asked:?}");
    let granted = answered(&asked, "approval", &run_once());
    ensure!(calls(&state, "put")? == 0);
    // Other arguments do not get the grant.
    let mut other = granted.clone();
    other["arguments"] = json!({"key": "k", "value": "w"});
    let refused = modern(client, "2", "put", &other)?;
    ensure!(refused.text().contains("other arguments"), "{refused:?}");
    let done = modern(client, "3", "put", &granted)?;
    ensure!(
        done.at("/result/isError") != true && calls(&state, "put")? == 1,
        "{done:?}"
    );
    let again = modern(client, "4", "put", &granted)?;
    ensure!(
        failure(&again)?["message"]
            .to_string()
            .contains("not approved"),
        "{again:?}"
    );
    // An operator grants what the client then repeats.
    let asked = modern(client, "5", "put", &json!({}))?;
    let id = id_of(&waiting(running.folder())?)?;
    let granted = mainstay(running.folder(), &["approve", "grant", &id])?;
    ensure!(granted.status.success(), "{}", said(&granted));
    let repeated = json!({"requestState": asked.at("/result/requestState")});
    let done = modern(client, "6", "put", &repeated)?;
    ensure!(
        done.at("/result/isError") != true && calls(&state, "put")? == 2,
        "{done:?}"
    );
    let asked = modern(client, "7", "put", &json!({}))?;
    let mut denied = answered(&asked, "approval", &json!({}));
    denied["inputResponses"]["approval"]["action"] = json!("decline");
    let denied = modern(client, "8", "put", &denied)?;
    ensure!(failure(&denied)?["code"] == "FORBIDDEN", "{denied:?}");
    ensure!(calls(&state, "put")? == 2);
    stop(running)
}

#[test]
fn a_client_with_a_session_approves_a_call_of_a_stateless_server() -> anyhow::Result<()> {
    let fixture = fixture("--bridge --ask put", "--era modern")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({"elicitation": {}}))?;
    for (id, grant) in [("1", true), ("2", false)] {
        client.send(&call(id, "put", &json!({"key": "k", "value": "v"})))?;
        let asked = client.take("a question", |message| {
            message.method().as_deref() == Some("elicitation/create")
        })?;
        ensure!(calls(&state, "put")? == usize::from(!grant));
        let action = if grant { "accept" } else { "decline" };
        let answer = json!({"jsonrpc": "2.0", "id": asked.at("/id"),
            "result": {"action": action, "content": run_once()}});
        client.send(&answer.to_string())?;
        let done = client.answer(id)?;
        ensure!((done.at("/result/isError") != true) == grant, "{done:?}");
    }
    client.send(&call("3", "put", &json!({"key": "k", "value": "v"})))?;
    let id = id_of(&waiting(running.folder())?)?;
    let granted = mainstay(running.folder(), &["approve", "grant", &id])?;
    ensure!(granted.status.success(), "{}", said(&granted));
    let done = client.answer("3")?;
    ensure!(
        done.at("/result/isError") != true && calls(&state, "put")? == 2,
        "{done:?}"
    );
    // The client need not answer the question any more, and hears that.
    client.notification("notifications/cancelled")?;
    running.finish()?;
    Ok(())
}

#[test]
fn a_call_that_asks_its_client_keeps_the_answers_while_a_person_approves_each_round()
-> anyhow::Result<()> {
    for (bridge, options) in [("--bridge", ""), ("", "--era modern")] {
        let fixture = fixture(&format!("{bridge} --ask ask_user"), options)?;
        let state = fixture.state();
        let running = fixture.spawn()?;
        let client = running.client()?;
        let tool = "ask_user";
        let asked = modern(client, "1", tool, &json!({"arguments": {}}))?;
        let mut more = answered(&asked, "approval", &run_once());
        more["arguments"] = json!({});
        let asked = modern(client, "2", tool, &more)?;
        ensure!(
            asked.at("/result/resultType") == "input_required",
            "{asked:?}"
        );
        let requests = asked.at("/result/inputRequests");
        let name = requests
            .as_object()
            .and_then(|all| all.keys().next().cloned());
        let name = name.with_context(|| format!("{asked:?}"))?;
        ensure!(name != "approval", "the server asks: {asked:?}");
        let mut more = answered(&asked, &name, &json!({"name": "Ada"}));
        more["arguments"] = json!({});
        let asked = modern(client, "3", tool, &more)?;
        let question = asked.at("/result/inputRequests/approval/method");
        ensure!(
            question == "elicitation/create",
            "each round is asked about: {asked:?}"
        );
        let mut more = answered(&asked, "approval", &run_once());
        more["arguments"] = json!({});
        let done = modern(client, "4", tool, &more)?;
        ensure!(done.text().contains("Ada"), "{done:?}");
        let told = read_told(&state)?;
        let ours = told
            .iter()
            .filter(|told| told.line.contains("io.mainstay/approval"));
        ensure!(
            ours.count() == 0,
            "the server sees nothing of approvals: {told:?}"
        );
        stop(running)?;
    }
    Ok(())
}
