//! Upgrades in place: the host executes another program and keeps its process, its sessions and its calls.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test that is told by its environment how long to run, and says what came of it"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use mainstay_testkit::hostile::Rng;
use mainstay_testkit::http::{
    Connection, Era, Event, Events, Framing, Request, Session, bridge, modern,
};
use mainstay_testkit::oracle::{
    Attempts, Dialect, History, Ledger, Recorder, Summary, read_effects, verify,
};
use mainstay_testkit::peer::{Client, request_line};
use mainstay_testkit::process::{
    Launch, Running, Serve, TempDir, Transport, binary, descriptors, is_root,
};
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
    let effects: Vec<&str> = effects
        .iter()
        .map(|effect| effect.subject.as_str())
        .collect();
    assert_eq!(effects, ["before", "half", "slow", "after"]);
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
        (shown(&script), "the new executable "),
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
    ] {
        std::fs::write(folder.join("upgrade-check"), script)?;
        let reason = refused(&host, &["/bin/sh"])?;
        ensure!(reason.contains(said), "{script}: {reason}");
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
fn a_configuration_that_the_new_program_cannot_read_changes_nothing() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?.limits("queue = 32")?;
    let config = serve.folder().join("limits.toml");
    let host = serve.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    std::fs::write(&config, "[limits]\nquueue = 1\n")?;
    let reason = refused(&host, &[])?;
    ensure!(reason.contains("quueue"), "{reason}");
    client.call("1", "get", &json!({}))?;
    std::fs::write(&config, "[limits]\nqueue = 16\n")?;
    upgrade(&host, &[])?;
    client.call("2", "get", &json!({}))?;
    host.stop()
}

#[test]
fn a_host_that_does_not_come_to_rest_continues_where_it_stopped() -> anyhow::Result<()> {
    let serve = Serve::socket()?.ledger()?;
    let file = serve.ledger_file();
    let host = serve.spawn()?;
    let control = host
        .folder()
        .join("run")
        .join(format!("{}.sock", host.pid()));
    let client = host.connect()?;
    client.open(&json!({}))?;
    let slow = json!({"name": "append", "arguments": {"text": "slow", "pause_ms": 5000}});
    client.send(&request_line("\"slow\"", "tools/call", &slow))?;
    let line = request_line(
        "\"half\"",
        "tools/call",
        &json!({"name": "get", "arguments": {}}),
    );
    let (first, rest) = line.split_at(40);
    client.send_raw(first)?;
    // An operator's command that never says what it wants.
    let silent = UnixStream::connect(&control)?;
    let reason = refused(&host, &[])?;
    ensure!(reason.contains("did not come to rest"), "{reason}");
    client.send(rest)?;
    client.answer("\"half\"")?;
    client.answer("\"slow\"")?;
    host.connect()?.call("1", "get", &json!({}))?;
    drop(silent);
    upgrade(&host, &[])?;
    client.call("2", "get", &json!({}))?;
    assert_eq!(read_effects(&file)?.len(), 1);
    drop(client);
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

/// Reads events until one contains `text`.
fn hear(connection: &mut Connection, text: &str) -> anyhow::Result<Vec<Event>> {
    let (head, mut framing) = connection.head()?;
    ensure!(head.is_stream(), "{head:?}");
    let (mut reader, mut seen) = (Events::default(), Vec::new());
    while let Some(piece) = connection.piece(&mut framing)? {
        seen.extend(reader.push(&piece));
        if seen.iter().any(|event: &Event| event.data.contains(text)) {
            return Ok(seen);
        }
    }
    anyhow::bail!("the stream ended after {seen:?}")
}

fn wrapped_http() -> anyhow::Result<Running> {
    let words = [shown(&binary("mainstay")?), "wrap", "--http", "127.0.0.1:0"].map(str::to_owned);
    let server = ["--", shown(&binary("mcp-fixture")?), "--era", "both"].map(str::to_owned);
    Launch::new(words.into_iter().chain(server))?.spawn_http()
}

#[test]
fn sessions_and_connections_over_http_survive() -> anyhow::Result<()> {
    let serve = Serve::http()?.ledger()?;
    let other = serve.folder().join("mainstay");
    let host = serve.spawn()?;
    let address = host.address()?;
    let session = Session::open(address)?;
    // A connection that is used again, and one in the middle of a request.
    let health = Request::to(address, "GET", "/healthz");
    let (mut kept, mut half) = (Connection::open(address)?, Connection::open(address)?);
    ensure!(kept.ask(&health)?.status() == 200);
    let bytes = session
        .post(&request_line(
            "7",
            "tools/call",
            &json!({"name": "get", "arguments": {}}),
        ))
        .bytes();
    let (first, rest) = bytes.split_at(30);
    half.send(first)?;
    // A call that is answered before the host is replaced.
    let slow = thread::spawn({
        let session = session.clone();
        move || session.call("8", "append", &json!({"text": "slow", "pause_ms": 1500}))
    });
    let until = Instant::now() + PATIENCE;
    while kept.ask(&health)?.json()?.get("in_flight") != Some(&json!(1)) {
        ensure!(Instant::now() < until, "the call does not start");
    }
    build(&other)?;
    upgrade(&host, &[shown(&other)])?;
    let answer = slow.join().map_err(|_| anyhow!("it panicked"))??;
    ensure!(
        answer.pointer("/result/isError") != Some(&json!(true)),
        "{answer}"
    );
    ensure!(kept.ask(&health)?.status() == 200, "on the same connection");
    half.send(rest)?;
    let answer = half.response()?;
    ensure!(answer.status() == 200, "{}", answer.text());
    let answer = session.call("9", "append", &json!({"text": "after"}))?;
    ensure!(
        answer.pointer("/result/isError") != Some(&json!(true)),
        "{answer}"
    );
    ensure!(session.ask(&session.delete())?.status() == 204);
    host.stop()
}

#[test]
fn streams_are_closed_at_the_hand_over_and_no_list_change_is_missed() -> anyhow::Result<()> {
    let host = wrapped_http()?;
    let address = host.address()?;
    let session = Session::open(address)?;
    let mut legacy = Connection::open(address)?;
    legacy.send(&session.get().bytes())?;
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = || modern(address, "\"s\"", "subscriptions/listen", &wanted);
    let mut modern_stream = Connection::open(address)?;
    modern_stream.send(&listen().bytes())?;
    hear(&mut modern_stream, "subscriptions/acknowledged")?;
    let (head, _) = legacy.head()?;
    ensure!(head.is_stream(), "{head:?}");
    upgrade(&host, &[])?;
    // The connections are kept for the next request.
    for stream in [&mut legacy, &mut modern_stream] {
        while stream.piece(&mut Framing::Chunks)?.is_some() {}
    }
    // The lists change before the clients are back.
    let changed = session.call("1", "change_tools", &json!({"action": "add"}))?;
    ensure!(changed.get("result").is_some(), "{changed}");
    legacy.send(&session.get().bytes())?;
    hear(&mut legacy, "notifications/tools/list_changed")?;
    modern_stream.send(&listen().bytes())?;
    let seen = hear(&mut modern_stream, "notifications/tools/list_changed")?;
    let said = seen
        .last()
        .map(|event| event.data.clone())
        .unwrap_or_default();
    ensure!(
        said.contains(r#""io.modelcontextprotocol/subscriptionId":"s""#),
        "{said}"
    );
    drop((legacy, modern_stream));
    host.stop()
}

#[test]
fn an_answer_that_does_not_end_refuses_the_upgrade_or_is_ended_by_now() -> anyhow::Result<()> {
    let host = Serve::http()?
        .ledger()?
        .limits("drain_ms = 1000")?
        .spawn()?;
    let address = host.address()?;
    let wait = |id: &str, ms: u64| {
        let arguments = json!({"name": "wait", "arguments": {"ms": ms, "steps": 1}});
        modern(address, id, "tools/call", &arguments)
    };
    let health = Request::to(address, "GET", "/healthz");
    let in_flight = |count: u64| -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let health = Connection::open(address)?.ask(&health)?.json()?;
            if health.get("in_flight") == Some(&json!(count)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{health}");
        }
    };
    let mut open = Connection::open(address)?;
    open.send(&wait("\"long\"", 8000).bytes())?;
    in_flight(1)?;
    let reason = refused(&host, &[])?;
    ensure!(reason.contains("tools/call wait (id \"long\")"), "{reason}");
    let answer = open.response()?;
    ensure!(
        answer
            .messages()?
            .iter()
            .any(|said| said.get("result").is_some()),
        "{answer:?}"
    );
    // Ended with an error that has a code.
    let mut ended = Connection::open(address)?;
    ended.send(&wait("\"now\"", 60_000).bytes())?;
    let mut single = Connection::open(address)?;
    let body = json!({"arguments": {"ms": 60_000, "steps": 1}}).to_string();
    let request = Request::to(address, "POST", "/v1/tool/wait");
    single.send(
        &request
            .header("Content-Type", "application/json")
            .body(body)
            .bytes(),
    )?;
    in_flight(2)?;
    upgrade(&host, &["--now"])?;
    let answer = ended.response()?;
    let said = answer.messages()?;
    let error = said
        .last()
        .and_then(|said| said.pointer("/error/code"))
        .cloned();
    ensure!(error == Some(json!(-31503)), "{said:?}");
    ensure!(
        answer.head.header("connection") == Some("close"),
        "{answer:?}"
    );
    let answer = single.response()?;
    ensure!(answer.status() == 503, "{answer:?}");
    in_flight(0)?;
    host.stop()
}

/// How long the load runs, and the pause between two upgrades.
fn weather() -> (Duration, Duration) {
    let told = std::env::var("MAINSTAY_UPGRADE_SECONDS").ok();
    let seconds = told.and_then(|told| told.parse().ok());
    match seconds {
        Some(seconds) => (Duration::from_secs(seconds), Duration::from_secs(10)),
        None => (Duration::from_secs(12), Duration::from_secs(3)),
    }
}

/// Calls that each client keeps in flight.
const WINDOW: usize = 6;
/// Calls a second of each client.
const RATE: u32 = 60;
/// Time for what comes late to be heard.
const LATE: Duration = Duration::from_millis(500);

#[test]
fn no_call_fails_while_workers_are_rolled_out_and_the_host_is_upgraded() -> anyhow::Result<()> {
    let limits = "pool = 8, restarts = 1000000, restart_period_ms = 1000";
    let kinds = [
        (Transport::Stdio, vec![Dialect::Legacy]),
        (
            Transport::Socket,
            vec![Dialect::Legacy, Dialect::Legacy, Dialect::Direct],
        ),
        (Transport::Http, vec![Dialect::Legacy, Dialect::Legacy]),
    ];
    let results: Vec<anyhow::Result<()>> = thread::scope(|scope| {
        let hosts: Vec<_> = kinds
            .into_iter()
            .map(|(transport, dialects)| {
                scope.spawn(move || -> anyhow::Result<()> {
                    let serve = Serve::new(transport)?.ledger()?.limits(limits)?;
                    let file = serve.ledger_file();
                    let other = serve.folder().join("mainstay");
                    let mut host = serve.spawn()?;
                    let clients = dialects.iter().map(|dialect| {
                        let client = match transport {
                            Transport::Http => bridge(host.address()?, Era::Legacy),
                            _ => host.take_client()?,
                        };
                        let client = client.with_patience(PATIENCE);
                        client.call("\"warm\"", "get", &json!({}))?;
                        Ok((client, *dialect))
                    });
                    let clients: Vec<_> = clients.collect::<anyhow::Result<_>>()?;
                    let (summary, upgrades, rollouts) = run(&host, clients, &file, &other)?;
                    println!(
                        "{transport:?}: {upgrades} upgrades, {rollouts} rollouts: {summary:?}"
                    );
                    if transport != Transport::Stdio {
                        host.terminate()?;
                    }
                    ensure!(host.wait()?.success(), "{:#?}", host.stderr());
                    Ok(())
                })
            })
            .collect();
        let joined = hosts.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|_| Err(anyhow!("a host's thread panicked"))))
            .collect()
    });
    results.into_iter().collect()
}

fn run(
    host: &Running,
    clients: Vec<(Client, Dialect)>,
    file: &Path,
    other: &PathBuf,
) -> anyhow::Result<(Summary, u32, u32)> {
    let (time, between) = weather();
    let (epoch, sessions, is_over) = (Instant::now(), clients.len(), AtomicBool::new(false));
    let (histories, upgrades, rollouts, singles) = thread::scope(|scope| {
        let loads: Vec<_> = clients
            .into_iter()
            .zip(0..)
            .map(|((client, dialect), number)| {
                let recorder = Recorder::new(client, number, dialect, epoch);
                scope.spawn(move || load(recorder, number, epoch + time))
            })
            .collect();
        let is_over = &is_over;
        let every = move |pause: Duration, work: &dyn Fn() -> anyhow::Result<()>| {
            let mut count = 0;
            let mut next = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                next += pause;
                while Instant::now() < next && !is_over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(20));
                }
                work()?;
                count += 1;
            }
            anyhow::Ok(count)
        };
        let singles = scope.spawn(move || match host.address() {
            Ok(address) => single_calls(address, is_over),
            Err(_) => Ok(Vec::new()),
        });
        let upgrading = scope.spawn(move || {
            every(between, &|| {
                build(other)?;
                upgrade(host, &[shown(other)])
            })
        });
        let rolling = scope.spawn(move || {
            every(Duration::from_secs(1), &|| {
                let output = operate(host, &["rollout"])?;
                ensure!(output.status.success(), "{}", text(&output));
                Ok(())
            })
        });
        let histories: Vec<_> = loads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        (histories, upgrading.join(), rolling.join(), singles.join())
    });
    let singles = singles.map_err(|_| anyhow!("the single calls panicked"))??;
    let upgrades = upgrades.map_err(|_| anyhow!("the upgrades panicked"))??;
    let rollouts = rollouts.map_err(|_| anyhow!("the rollouts panicked"))??;
    let mut whole = History::default();
    let mut clients = Vec::new();
    for history in histories {
        let (history, client) = history.map_err(|_| anyhow!("a client panicked"))??;
        whole.merge(history);
        clients.push(client);
    }
    for client in &clients {
        let health = client.call("\"health\"", "system_health", &json!({}))?;
        // Over HTTP, modern clients have a session for all of them together.
        if host.address().is_err() {
            assert_eq!(
                health.at("/result/structuredContent/sessions"),
                sessions,
                "{health:?}"
            );
        }
    }
    for client in clients {
        let rest = client.finish()?;
        ensure!(rest.is_empty(), "said without being asked: {rest:?}");
    }
    let (of_singles, effects): (Vec<_>, Vec<_>) = read_effects(file)?
        .into_iter()
        .partition(|effect| effect.subject.starts_with("single."));
    let of_singles: Vec<String> = of_singles
        .into_iter()
        .map(|effect| effect.subject)
        .collect();
    assert_eq!(of_singles, singles, "each single call has its one effect");
    let summary = verify(&whole, &effects, Attempts::Last)?;
    let failed = summary.unavailable + summary.refused + summary.tool_failures + summary.timeouts;
    ensure!(failed == 0 && summary.unknown == 0, "{summary:?}");
    ensure!(
        upgrades >= 2 && rollouts >= 2,
        "{upgrades} upgrades, {rollouts} rollouts"
    );
    Ok((summary, upgrades, rollouts))
}

fn load(
    mut recorder: Recorder,
    number: usize,
    until: Instant,
) -> anyhow::Result<(History, Client)> {
    let mut rng = Rng::new(number as u64 + 1);
    let (mut count, mut next) = (0, Instant::now());
    while Instant::now() < until {
        while recorder.waiting().len() < WINDOW {
            next += Duration::from_secs(1) / RATE;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            count += 1;
            let unique = format!("c{number}.{count}");
            let (before, after) = (rng.between(0, 60) as u64, rng.between(0, 20) as u64);
            let call = match rng.between(0, 9) {
                0..3 => Ledger::append(&unique).pausing(before, after),
                3..6 => Ledger::put(&format!("k{number}"), &unique).pausing(before, after),
                6..8 => Ledger::transfer(&unique, "x", "y").pausing(before, after),
                8 => Ledger::get(),
                _ => Ledger::wait(rng.between(0, 400) as u64, 4),
            };
            recorder.ask(call)?;
        }
        recorder.hear()?;
    }
    recorder.settle()?;
    recorder.finish(LATE)
}

/// Modern and REST calls in turn on connections that are used again, until the time is over. Returns the texts
/// that were appended.
fn single_calls(address: SocketAddr, is_over: &AtomicBool) -> anyhow::Result<Vec<String>> {
    let mut connection = Connection::open(address)?;
    let mut texts = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let text = format!("single.{}", texts.len());
        let arguments = json!({"text": text, "pause_ms": 5});
        let request = if texts.len() % 2 == 0 {
            let params = json!({"name": "append", "arguments": arguments});
            modern(address, "1", "tools/call", &params)
        } else {
            Request::to(address, "POST", "/v1/tool/append")
                .header("Content-Type", "application/json")
                .body(json!({"arguments": arguments}).to_string())
        };
        let answer = connection.ask(&request).with_context(|| text.clone())?;
        ensure!(answer.status() == 200, "{text}: {}", answer.text());
        texts.push(text);
        if answer.head.header("connection") == Some("close") {
            connection = Connection::open(address)?;
        }
    }
    Ok(texts)
}
