//! The rules of sharing: who may, which variables a shared server gets, and what `mainstay share check` finds.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::Session;
use mainstay_testkit::process::{NOBODY, Serve, TempDir, binary, is_root};
use rustix::process::Uid;
use serde_json::{Value, json};

use crate::issuer::{FAR, Issuer, RESOURCE};
use crate::shared::{User, echo, has_word, servers_below};
use crate::wrapping::{self, SERVER, eventually};
use crate::{entry, says, serve};

/// The servers below a host with this word in their command.
fn servers_with(host: u32, word: &str) -> Vec<u32> {
    let servers = servers_below(host).into_iter();
    servers.filter(|pid| has_word(*pid, word)).collect()
}

/// The names of the variables of a process.
fn variables(pid: u32) -> anyhow::Result<BTreeSet<String>> {
    let environment = std::fs::read(format!("/proc/{pid}/environ"))?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let names = environment
        .split('\0')
        .filter_map(|pair| pair.split_once('='));
    Ok(names.map(|(name, _)| name.to_owned()).collect())
}

#[test]
fn a_shared_server_of_a_file_gets_the_listed_variables_only() -> anyhow::Result<()> {
    let mut declared = entry("--page 50", json!({ "shared": true }))?;
    declared["env"] = json!({ "OF_ENTRY": "1" });
    let servers = json!({
        "declared": declared,
        "stateless": entry("--era modern --page 51", json!({ "bridge": true }))?,
    });
    let host = Serve::socket()?.env("OF_EDITOR", "1").env("LC_TIME", "C");
    let running = serve(host, &servers)?;
    let clients = [running.connect()?, running.connect()?];
    for client in &clients {
        client.open(&json!({}))?;
        for server in ["declared", "stateless"] {
            says(client, "1", &format!("{server}__echo"), server)?;
        }
    }
    let declared = servers_with(running.pid(), "50");
    ensure!(declared.len() == 1, "{declared:?}");
    let names = variables(declared[0])?;
    ensure!(
        names.contains("OF_ENTRY") && names.contains("LC_TIME"),
        "{names:?}"
    );
    ensure!(!names.contains("OF_EDITOR"), "{names:?}");
    // The first client had a process of its own, before the host knew that the server is stateless.
    let stateless = servers_with(running.pid(), "51").into_iter();
    let stateless = stateless
        .map(variables)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let given = stateless.iter().filter(|names| names.contains("OF_EDITOR"));
    ensure!((stateless.len(), given.count()) == (2, 1), "{stateless:?}");
    running.stop()
}

#[test]
fn holders_of_different_tokens_never_share_a_process() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let issuer = Issuer::new(folder.path())?;
    let tokens = ["ada", "bob"].map(|subject| issuer.token(subject, RESOURCE, FAR));
    let servers = json!({ "ours": entry("--page 50", json!({ "shared": true }))? });
    let running = serve(issuer.trusted_by(Serve::http()?), &servers)?;
    let address = running.address()?;
    let mut sessions = Vec::new();
    for token in [&tokens[0], &tokens[1], &tokens[0]] {
        let session = Session::open_as(address, Some(token))?;
        let answer = session.call("1", "ours__echo", &json!({ "text": "x" }))?;
        ensure!(answer["result"]["content"][0]["text"] == "x", "{answer}");
        sessions.push(session);
    }
    let servers = servers_with(running.pid(), "50");
    ensure!(servers.len() == 2, "{servers:?}");
    running.stop()
}

#[test]
fn a_server_cannot_share_servers() -> anyhow::Result<()> {
    let user = User::new()?;
    let relay = user.relay("", "A")?;
    relay.client.open(&json!({}))?;
    let binary = binary("mainstay")?;
    let words = [
        "tools".as_ref(),
        "--".as_ref(),
        binary.as_os_str(),
        "share".as_ref(),
        "--shared".as_ref(),
        "--".as_ref(),
        "mcp-fixture".as_ref(),
    ];
    let output = user
        .command()?
        .args(words)
        .env("PATH", binary.parent().context("a folder")?)
        .output()?;
    ensure!(!output.status.success(), "{output:?}");
    ensure!(user.servers()?.len() == 1 && user.servers()?[0].1 == 1);
    Ok(())
}

#[test]
fn another_user_cannot_share_servers() -> anyhow::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let user = User::new()?;
    let relay = user.relay("", "A")?;
    relay.client.open(&json!({}))?;
    // Even where the socket is within reach.
    let socket = user.folder.join("run/share.socket");
    let everyone = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    everyone(user.folder.path(), 0o755)?;
    everyone(&user.folder.join("run"), 0o755)?;
    everyone(&socket, 0o666)?;
    let program = binary(SERVER)?;
    let server = json!({ "name": "x", "program": program, "arguments": [], "directory": "/", "environment": {} });
    let request = json!({ "share": { "server": server } });
    // The user of a thread counts at the socket.
    let as_nobody = || -> anyhow::Result<String> {
        rustix::thread::set_thread_res_uid(None, Uid::from_raw(NOBODY), None)?;
        let mut stream = UnixStream::connect(&socket)?;
        writeln!(stream, "{request}")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    let said = std::thread::scope(|scope| scope.spawn(as_nobody).join());
    let said = said.map_err(|_| anyhow::anyhow!("the thread panicked"))??;
    ensure!(said.contains("only the user of this host"), "{said}");
    ensure!(user.servers()?.len() == 1 && user.servers()?[0].1 == 1);
    echo(&relay.client, "1", "served")
}

#[test]
fn a_process_that_a_shared_server_detached_cannot_share_servers() -> anyhow::Result<()> {
    let user = User::new()?;
    let (fixture, mainstay) = (binary(SERVER)?, binary("mainstay")?);
    let (said, code) = (user.folder.join("said"), user.folder.join("code"));
    let script = user.folder.join("server.sh");
    // Twice below the server, in a session of its own, and without a parent that lives.
    let text = format!(
        "(setsid sh -c 'MAINSTAY_RUNTIME_DIR={run} {mainstay} share --shared -- {fixture} --page 9 \
         </dev/null >/dev/null 2>{said}; echo $? >{code}.new; mv {code}.new {code}' &)\nexec {fixture}\n",
        run = user.folder.join("run").display(),
        mainstay = mainstay.display(),
        fixture = fixture.display(),
        said = said.display(),
        code = code.display(),
    );
    std::fs::write(&script, text)?;
    let relay = user.relay_of(&["sh".as_ref(), script.as_os_str()])?;
    relay.client.open(&json!({}))?;
    echo(&relay.client, "1", "served")?;
    eventually("the detached process has ended", || code.exists())?;
    let said = std::fs::read_to_string(&said)?;
    ensure!(said.contains("refused this client"), "{said}");
    ensure!(std::fs::read_to_string(&code)?.trim() == "2");
    ensure!(user.servers()?.len() == 1 && user.servers()?[0].1 == 1);
    Ok(())
}

/// The exit code of `mainstay share check` and what it says.
fn check(user: &User, options: &[&str], command: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let mut check = user.command()?;
    check.args(["share", "check"]).args(options).arg("--");
    let output = check.args(command).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.code(), said))
}

#[test]
fn the_check_tells_servers_that_may_be_shared_from_others() -> anyhow::Result<()> {
    let user = User::new()?;
    let fixture = binary(SERVER)?;
    let fixture = fixture.to_str().context("it is UTF-8")?;
    for era in ["legacy", "modern", "both", "locked"] {
        let patience = ["--timeout", "120"];
        let (code, said) = check(&user, &patience, &[fixture, "--era", era])?;
        ensure!(
            code == Some(0) && said.contains("looks safe"),
            "{era}: {code:?} {said}"
        );
        ensure!(
            said.contains("stateless") == (era != "legacy"),
            "{era}: {said}"
        );
    }
    let (code, said) = check(&user, &["--timeout", "1"], &[fixture, "--never-ready"])?;
    ensure!(code == Some(2), "{code:?} {said}");
    Ok(())
}

#[test]
fn the_check_names_every_sign_against_sharing() -> anyhow::Result<()> {
    let user = User::new()?;
    let fixture = binary(SERVER)?;
    let fixture = fixture.to_str().context("it is UTF-8")?;
    // The check runs in this directory, and in an empty one.
    std::fs::write(user.folder.join("here"), "")?;
    let reader: Value = json!([{ "name": "echo", "annotations": { "readOnlyHint": true } }]);
    let tools = user.folder.join("tools.json");
    std::fs::write(&tools, reader.to_string())?;
    let tools = tools.to_str().context("it is UTF-8")?;
    let elsewhere = |option: &str| {
        format!("if [ -e here ]; then exec {fixture}; else exec {fixture} {option}; fi")
    };
    let (lists, capabilities) = (
        elsewhere(&format!("--tools {tools}")),
        elsewhere("--rewrite '\"logging\":{}=>\"logging\":{\"x\":1}'"),
    );
    let signs: [(&[&str], &str); 5] = [
        (
            &[fixture, "--roots-at-start"],
            "it asks its client (roots/list)",
        ),
        (
            &["sh", "-c", &lists],
            "tools/list differs in another working directory",
        ),
        (
            &["sh", "-c", &capabilities],
            "it declares other capabilities",
        ),
        (
            &[
                fixture,
                "--rewrite",
                "\"logging\":{}=>\"logging\":{},\"tasks\":{}",
            ],
            "it declares tasks",
        ),
        (
            &[
                fixture,
                "--tools",
                tools,
                "--rewrite",
                "\"id\":\"two-=>\"id\":\"elsewhere-",
            ],
            "which no session asked",
        ),
    ];
    for (words, wanted) in signs {
        let (code, said) = check(&user, &["--timeout", "120"], words)?;
        ensure!(
            code == Some(1) && said.contains("not safe to share"),
            "{words:?}: {code:?} {said}"
        );
        ensure!(said.contains(wanted), "{words:?}: {said}");
    }
    Ok(())
}

#[test]
fn a_server_that_floods_or_does_not_read_cannot_hold_up_the_check() -> anyhow::Result<()> {
    let user = User::new()?;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    let answer = r#"{"jsonrpc":"2.0","id":"of another","result":{}}"#;
    let question = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
    for line in [notification, answer, question, "no JSON"] {
        let (code, said) = check(&user, &["--timeout", "1"], &["yes", line])?;
        ensure!(code == Some(2), "{line}: {code:?} {said}");
    }
    let endless = ["sh", "-c", "tr '\\0' x < /dev/zero"];
    let (code, said) = check(&user, &["--timeout", "1"], &endless)?;
    ensure!(code == Some(2), "{code:?} {said}");
    Ok(())
}

#[test]
fn a_client_whose_calls_hang_does_not_keep_others_from_the_server() -> anyhow::Result<()> {
    let user = User::new()?;
    let (first, second) = (user.relay("", "A")?, user.relay("", "B")?);
    first.client.open(&json!({}))?;
    second.client.open(&json!({}))?;
    for id in 1..=128 {
        let call = wrapping::call(&id.to_string(), "hang", &json!({}));
        first.client.send(&call)?;
    }
    echo(&second.client, "1", "served")?;
    // None of those calls had to end for it.
    first.client.silence(Duration::ZERO)
}
