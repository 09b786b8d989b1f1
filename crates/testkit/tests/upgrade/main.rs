//! Upgrades in place: the host executes another program and keeps its process, its sessions and its calls.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that is told by its environment how long to run, and says what came of it"
)]

mod faults;
mod http;
mod load;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::oracle::read_effects;
use mainstay_testkit::peer::{Client, request_line};
use mainstay_testkit::process::{Launch, Running, Serve, TempDir, binary, descriptors, is_root};
use rustix::process::Signal;
use serde_json::{Value, json};

/// How long a state may take to come about.
const PATIENCE: Duration = Duration::from_secs(120);

fn operate(host: &Running, arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new(binary("mainstay")?)
        .args(arguments)
        .env("MAINSTAY_RUNTIME_DIR", host.folder().join("run"))
        .output()
        .context("running mainstay")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Upgrades a host and checks that it succeeded.
fn upgrade(host: &Running, arguments: &[&str]) -> anyhow::Result<()> {
    let output = operate(host, &[&["upgrade"], arguments].concat())?;
    let said = text(&output);
    let expected = format!("(pid {}) from ", host.pid());
    ensure!(
        output.status.success() && said.contains(&expected),
        "{said}: {:#?}",
        host.stderr()
    );
    Ok(())
}

/// The reason why a host was not upgraded.
fn refused(host: &Running, arguments: &[&str]) -> anyhow::Result<String> {
    let output = operate(host, &[&["upgrade"], arguments].concat())?;
    let said = text(&output);
    ensure!(output.status.code() == Some(1), "{said}");
    ensure!(said.contains("The host serves as before"), "{said}");
    Ok(said)
}

fn status(host: &Running) -> anyhow::Result<Value> {
    let output = operate(host, &["status", "--json"])?;
    let all: Value = serde_json::from_slice(&output.stdout).with_context(|| text(&output))?;
    all.get(0).cloned().context("no host")
}

/// Another build: a copy of the executable. An existing file is replaced, as an installation would.
fn build(path: &Path) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    std::fs::copy(binary("mainstay")?, &fresh)?;
    std::fs::rename(&fresh, path)?;
    Ok(())
}

fn wait_for_upgrades(host: &Running, count: usize) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let lines = host.stderr();
        let upgraded = lines
            .iter()
            .filter(|line| line.contains("mcp:upgraded from="));
        if upgraded.count() >= count {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{lines:#?}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

#[test]
fn an_upgrade_keeps_the_process_the_session_the_worker_and_every_call() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?;
    let (file, ready) = (serve.ledger_file(), serve.ready_file());
    let host = serve.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    client.call("1", "append", &json!({"text": "before"}))?;
    let before = status(&host)?;
    let worker = host.workers("ledger");
    // A call that runs, calls that wait for it, and half of a frame.
    let slow = json!({"name": "append", "arguments": {"text": "slow", "pause_ms": 2000}});
    client.send(&request_line("\"slow\"", "tools/call", &slow))?;
    for number in 0..8 {
        let queued = json!({"name": "wait", "arguments": {"ms": 300, "steps": 2}});
        client.send(&request_line(
            &format!("\"q{number}\""),
            "tools/call",
            &queued,
        ))?;
    }
    let half = json!({"name": "append", "arguments": {"text": "half"}});
    let half = format!("{}\n", request_line("\"half\"", "tools/call", &half));
    let (first, rest) = half.split_at(half.len() / 2);
    client.send_raw(first)?;
    let other = host.folder().join("mainstay");
    build(&other)?;
    upgrade(&host, &[shown(&other)])?;
    client.send_raw(rest)?;
    for id in ["\"half\"", "\"slow\"", "\"q0\"", "\"q7\""] {
        let answer = client.answer(id)?;
        ensure!(answer.at("/result/isError") != true, "{answer:?}");
    }
    (1..7).try_for_each(|number| client.answer(&format!("\"q{number}\"")).map(drop))?;
    let after = status(&host)?;
    for key in ["pid", "name", "mode", "started", "version"] {
        assert_eq!(before.get(key), after.get(key), "{key}");
    }
    assert_ne!(before.get("build"), after.get("build"));
    assert_eq!(after.pointer("/health/sessions"), Some(&json!(1)));
    let requests = |status: &Value| {
        status
            .pointer("/totals/request_count")
            .and_then(Value::as_u64)
    };
    assert_eq!(requests(&after), requests(&before).map(|count| count + 10));
    assert_eq!(host.workers("ledger"), worker, "the same worker serves");
    assert!(std::fs::read_to_string(&ready)?.starts_with(&host.pid().to_string()));

    // The path that the host runs from now is that of the other build.
    build(&other)?;
    host.signal(Signal::USR2)?;
    wait_for_upgrades(&host, 2)?;
    let last = status(&host)?;
    assert_ne!(last.get("build"), after.get("build"));
    // The next worker is started by the new executable.
    let rolled = operate(&host, &["rollout"])?;
    ensure!(rolled.status.success(), "{}", text(&rolled));
    client.call("2", "append", &json!({"text": "after"}))?;
    let ready_lines = host.stderr();
    let ready_lines = ready_lines.iter().filter(|line| line.contains("mcp:ready"));
    assert_eq!(ready_lines.count(), 1, "{:#?}", host.stderr());
    let effects = read_effects(&file)?;
    let mut effects: Vec<&str> = effects
        .iter()
        .map(|effect| effect.subject.as_str())
        .collect();
    // On a busy machine the slow call ends before the upgrade does.
    effects.sort_unstable();
    assert_eq!(effects, ["after", "before", "half", "slow"]);
    host.stop()?;
    assert!(!ready.exists());
    Ok(())
}

#[test]
fn a_built_in_pack_continues_and_its_next_worker_is_of_the_new_build() -> anyhow::Result<()> {
    let serve = Serve::socket()?.pack("asset");
    let first = serve.folder().join("mainstay");
    let host = serve.spawn()?;
    let client = host.connect()?;
    client.open(&json!({}))?;
    client.call("1", "list_schemas", &json!({}))?;
    let builds = || -> anyhow::Result<(Value, Value)> {
        let status = status(&host)?;
        let of_worker = status.pointer("/health/workers/0/build").cloned();
        let of_host = status.get("build").cloned();
        of_worker.zip(of_host).context("no build")
    };
    let (worker, old) = builds()?;
    assert_eq!(worker, old);
    build(&first)?;
    upgrade(&host, &[shown(&first)])?;
    let (worker, new) = builds()?;
    assert_eq!((&worker, new != old), (&old, true), "the worker runs on");
    client.call("2", "list_schemas", &json!({}))?;
    let rolled = operate(&host, &["rollout"])?;
    ensure!(rolled.status.success(), "{}", text(&rolled));
    assert_eq!(builds()?, (new.clone(), new));
    client.call("3", "list_schemas", &json!({}))?;
    drop(client);
    host.stop()
}

#[test]
fn clients_on_a_socket_stay_connected_and_others_can_connect() -> anyhow::Result<()> {
    let serve = Serve::socket()?.ledger()?;
    let other = serve.folder().join("mainstay");
    let host = serve.spawn()?;
    let clients: Vec<Client> = (0..20).map(|_| host.connect()).collect::<Result<_, _>>()?;
    for client in &clients {
        client.open(&json!({}))?;
    }
    let open = descriptors(host.pid())?;
    for round in 0..3 {
        build(&other)?;
        upgrade(&host, &[shown(&other)])?;
        for client in &clients {
            let answer = client.call(&round.to_string(), "get", &json!({}))?;
            ensure!(
                answer.at("/result/structuredContent/ok") == true,
                "{answer:?}"
            );
        }
        host.connect()?.call("1", "get", &json!({}))?;
    }
    let until = Instant::now() + PATIENCE;
    while descriptors(host.pid())? > open {
        let now = descriptors(host.pid())?;
        ensure!(
            Instant::now() < until,
            "{open} descriptors before, {now} after"
        );
        thread::sleep(Duration::from_millis(10));
    }
    let status = status(&host)?;
    assert_eq!(status.pointer("/health/sessions"), Some(&json!(20)));
    drop(clients);
    host.stop()
}

fn wrapped(options: &[&str]) -> anyhow::Result<Launch> {
    let words = [shown(&binary("mainstay")?), "wrap"].map(str::to_owned);
    let options = options.iter().map(|word| (*word).to_owned());
    let server = ["--".to_owned(), shown(&binary("mcp-fixture")?).to_owned()];
    Launch::new(words.into_iter().chain(options).chain(server))
}

#[test]
fn a_wrapped_server_and_its_open_question_survive() -> anyhow::Result<()> {
    let host = wrapped(&[])?.spawn()?;
    let client = host.client()?;
    client.open(&json!({"elicitation": {}}))?;
    let server = host.workers("mcp-fixture");
    // The server asks, and the client answers after the upgrade.
    let asks = json!({"name": "ask_user", "arguments": {"question": "who?"}});
    client.send(&request_line("\"asks\"", "tools/call", &asks))?;
    let question = client.take("a question", |message| {
        message.method().as_deref() == Some("elicitation/create")
    })?;
    let sleeps = json!({"name": "sleep", "arguments": {"ms": 1500}});
    client.send(&request_line("\"sleeps\"", "tools/call", &sleeps))?;
    let other = host.folder().join("mainstay");
    build(&other)?;
    upgrade(&host, &[shown(&other)])?;
    let id = question.at("/id");
    let said = json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"name": "Ada"}}});
    client.send(&said.to_string())?;
    let answer = client.answer("\"asks\"")?;
    ensure!(answer.text().contains("Ada"), "{answer:?}");
    let answer = client.answer("\"sleeps\"")?;
    ensure!(answer.text().contains("slept 1500 ms"), "{answer:?}");
    assert_eq!(host.workers("mcp-fixture"), server);
    host.stop()
}

#[test]
fn output_that_a_client_has_not_read_is_neither_lost_nor_repeated() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let socket = folder.join("sock");
    let launch = wrapped(&["--socket", shown(&socket)])?;
    let mut host = launch.spawn()?;
    host.wait_for_line("mcp:listening")?;
    let mut stream = UnixStream::connect(&socket)?;
    let bytes = 3_000_000;
    let open = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    writeln!(stream, "{}", request_line("0", "initialize", &open))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    writeln!(
        stream,
        r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#
    )?;
    let big = json!({"name": "big", "arguments": {"bytes": bytes}});
    writeln!(stream, "{}", request_line("1", "tools/call", &big))?;
    // The beginning of the answer: the rest is in the host.
    let mut start = vec![0; 100_000];
    reader.read_exact(&mut start)?;
    let other = host.folder().join("mainstay");
    build(&other)?;
    for _ in 0..2 {
        upgrade(&host, &[shown(&other)])?;
    }
    writeln!(stream, "{}", request_line("2", "ping", &json!({})))?;
    let mut answer = String::from_utf8(start)?;
    reader.read_line(&mut answer)?;
    let answer: Value = serde_json::from_str(&answer)?;
    let text = answer
        .pointer("/result/content/0/text")
        .and_then(Value::as_str);
    assert_eq!(text.map(str::len), Some(bytes));
    line.clear();
    reader.read_line(&mut line)?;
    let pong: Value = serde_json::from_str(&line)?;
    assert_eq!(pong.get("id"), Some(&json!(2)));
    drop((reader, stream));
    host.terminate()?;
    ensure!(host.wait()?.success(), "{:#?}", host.stderr());
    Ok(())
}

#[test]
fn a_binary_that_cannot_continue_the_host_changes_nothing() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?;
    let folder = serve.folder().to_owned();
    let host = serve.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    let before = status(&host)?;
    let torn = folder.join("torn");
    let whole = std::fs::read(binary("mainstay")?)?;
    let (half, _) = whole.split_at(whole.len() / 3);
    std::fs::write(&torn, half)?;
    let mut mode = std::fs::metadata(binary("mainstay")?)?.permissions();
    std::fs::set_permissions(&torn, mode.clone())?;
    let plain = folder.join("plain");
    std::fs::write(&plain, "not a program")?;
    let script = folder.join("script");
    std::fs::write(&script, "#!/bin/sh\nexit 0\n")?;
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&script, mode)?;
    let absent = folder.join("absent");
    for (binary, said) in [
        (shown(&absent), "No such file"),
        (shown(&plain), "it is not an executable file"),
        (shown(&folder), "it is not an executable file"),
        ("/bin/true", "instead of reading the state"),
        (
            "/bin/false",
            "exited with code 1 instead of reading the state",
        ),
        (shown(&torn), "the new executable "),
        (shown(&script), "it is a script"),
    ] {
        let reason = refused(&host, &[binary])?;
        ensure!(reason.contains(said), "{binary}: {reason}");
        let answer = client.call(&json!(binary).to_string(), "get", &json!({}))?;
        ensure!(
            answer.at("/result/structuredContent/ok") == true,
            "{answer:?}"
        );
    }
    // The shell runs the file of this name in the host's directory as it would run a new executable.
    for (script, said) in [
        ("kill -SEGV $$", "was killed by signal 11"),
        (
            "echo mainstay-upgrade 0 0.1.0",
            "exited with code 0 instead of",
        ),
        (
            "echo no room >&2; exit 3",
            "exited with code 3 instead of reading the state: no room",
        ),
        ("exec sleep 1000", "did not read the state within"),
        (
            "sleep 1000 & exec sleep 1000",
            "did not read the state within",
        ),
        (
            "setsid sleep 1000 </dev/null >/dev/null 2>&1 &",
            "exited with code 0 instead of",
        ),
    ] {
        std::fs::write(folder.join("upgrade-check"), script)?;
        let reason = refused(&host, &["/bin/sh"])?;
        ensure!(reason.contains(said), "{script}: {reason}");
        ensure!(
            host.workers("sleep").is_empty(),
            "{script}: a process is left"
        );
        let answer = client.call(&json!(script).to_string(), "get", &json!({}))?;
        ensure!(
            answer.at("/result/structuredContent/ok") == true,
            "{answer:?}"
        );
    }
    let after = status(&host)?;
    assert_eq!(before.get("build"), after.get("build"));
    host.wait_for_line("mcp:warning reason=upgrade_refused")?;
    let other = folder.join("mainstay");
    build(&other)?;
    upgrade(&host, &[shown(&other)])?;
    host.stop()
}

#[test]
fn secrets_survive_and_are_not_in_the_new_environment() -> anyhow::Result<()> {
    let words = [shown(&binary("mainstay")?), "serve", "--pack", "asset"].map(str::to_owned);
    let launch = Launch::new(words)?.env(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=hunter2-hunter2-hunter2",
    );
    let (socket, ready) = (launch.folder().join("sock"), launch.folder().join("ready"));
    let launch = launch.env("MCP_READY_FILE", ready);
    let launch = launch.words(["--socket", shown(&socket)]);
    let launch = if is_root() {
        launch.as_nobody()?
    } else {
        launch
    };
    let mut host = launch.spawn()?;
    host.wait_for_line("mcp:ready")?;
    for upgrades in 1..=2 {
        host.signal(Signal::USR2)?;
        wait_for_upgrades(&host, upgrades)?;
    }
    let environment = format!("/proc/{}/environ", host.pid());
    let block = std::fs::read(&environment)?;
    ensure!(
        !String::from_utf8_lossy(&block).contains("hunter2"),
        "in the environment"
    );
    // The files of a process that is not dumpable belong to root, whoever runs it.
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&environment)?);
    assert_eq!(owner, 0, "the new process is dumpable");
    for process in host.family() {
        let block = std::fs::read(format!("/proc/{process}/environ"))?;
        let block = String::from_utf8_lossy(&block);
        let is_host = process == host.pid();
        ensure!(is_host || !block.contains("MAINSTAY_UPGRADE"), "{block}");
        ensure!(!block.contains("hunter2"), "{block}");
    }
    host.terminate()?;
    ensure!(host.wait()?.success(), "{:#?}", host.stderr());
    Ok(())
}

#[test]
fn signals_in_quick_succession_neither_end_the_host_nor_lose_a_call() -> anyhow::Result<()> {
    let host = Serve::stdio()?.ledger()?.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    for round in 0..400 {
        host.signal(Signal::USR2)?;
        host.signal(Signal::HUP)?;
        if round % 20 == 0 {
            let get = json!({"name": "get", "arguments": {}});
            client.send(&request_line(&round.to_string(), "tools/call", &get))?;
        }
        thread::sleep(Duration::from_millis(3));
    }
    for round in (0..400).step_by(20) {
        client.answer(&round.to_string())?;
    }
    wait_for_upgrades(&host, 2)?;
    // Settings that were read again may still be rolled out.
    client.call("\"last\"", "get", &json!({}))?;
    host.stop()
}

#[test]
fn a_terminal_or_a_file_cannot_be_handed_over() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?;
    let input = serve.folder().join("input");
    std::fs::write(
        &input,
        format!("{}\n", request_line("1", "get", &json!({}))),
    )?;
    let mut command = serve.command()?;
    let output = std::fs::File::create(serve.folder().join("output"))?;
    // The reading end stays open, so that the host runs until it is stopped.
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(output)
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let until = Instant::now() + PATIENCE;
    let runtime = serve.folder().join("run");
    let said = loop {
        let said = Command::new(binary("mainstay")?)
            .args(["upgrade", "--pid", &child.id().to_string()])
            .env("MAINSTAY_RUNTIME_DIR", &runtime)
            .output()?;
        if said.status.code() == Some(1) {
            break text(&said);
        }
        ensure!(Instant::now() < until, "{}", text(&said));
        thread::sleep(Duration::from_millis(20));
    };
    ensure!(said.contains("cannot be handed over"), "{said}");
    drop(child.stdin.take());
    ensure!(child.wait()?.success());
    Ok(())
}
