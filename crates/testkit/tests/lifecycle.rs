//! Birth and death of a host: ready file, signals, end of input, standard output.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request, Response, Session};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{
    Launch, Running, Serve, TempDir, binary, give_away, is_root, kill,
};
use rustix::process::Signal;
use serde_json::{Value, json};

fn answered(client: &Client) -> anyhow::Result<()> {
    client.request("\"up\"", "ping", &json!({})).map(|_| ())
}

#[test]
fn ready_file_names_the_process_and_the_time_and_goes_with_the_host() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let path = serve.ready_file();
    let host = serve.spawn()?;
    host.wait_for_line("mcp:ready mode=stdio")?;
    answered(host.client()?)?;
    let text = fs::read_to_string(&path)?;
    let (pid, time) = text.split_once(' ').context("two words")?;
    assert_eq!(pid, host.pid().to_string());
    let time = time.strip_suffix('\n').context("a newline at the end")?;
    assert!(is_iso_8601_utc(time), "{time}");
    host.stop()?;
    assert!(!path.exists());
    Ok(())
}

/// `2026-01-31T23:59:59Z`, with or without a fraction.
fn is_iso_8601_utc(time: &str) -> bool {
    let shape: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let (whole, fraction) = shape.split_at_checked(19).unwrap_or_default();
    let fraction = fraction
        .strip_suffix('Z')
        .map(|rest| rest.trim_start_matches('.'));
    whole == "0000-00-00T00:00:00"
        && fraction.is_some_and(|digits| digits.bytes().all(|byte| byte == b'0'))
}

#[test]
fn ready_file_of_a_living_owner_is_left_alone() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.join("shared");
    let first = Serve::stdio()?.env("MCP_READY_FILE", &path).spawn()?;
    first.wait_for_line("mcp:ready")?;
    let text = fs::read_to_string(&path)?;
    let second = Serve::stdio()?.env("MCP_READY_FILE", &path).spawn()?;
    second.wait_for_line("mcp:ready")?;
    assert_eq!(fs::read_to_string(&path)?, text);
    second.stop()?;
    assert_eq!(fs::read_to_string(&path)?, text);
    first.stop()?;
    assert!(!path.exists());
    Ok(())
}

#[test]
fn ready_file_of_a_dead_owner_is_taken_over() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let path = serve.ready_file();
    fs::write(&path, "4194304 2026-01-01T00:00:00Z\n")?;
    let host = serve.spawn()?;
    host.wait_for_line("mcp:ready")?;
    let text = fs::read_to_string(&path)?;
    assert!(text.starts_with(&format!("{} ", host.pid())), "{text}");
    host.stop()?;
    assert!(!path.exists());
    Ok(())
}

#[test]
fn ready_file_of_another_user_suppresses_nothing() -> anyhow::Result<()> {
    if !is_root() {
        println!("skipped: only root can give a file away");
        return Ok(());
    }
    let serve = Serve::stdio()?;
    let path = serve.ready_file();
    // Process 1 lives as long as the machine does.
    fs::write(&path, "1 2020-01-01T00:00:00Z\n")?;
    give_away(&path)?;
    let host = serve.spawn()?;
    host.wait_for_line("mcp:ready")?;
    let text = fs::read_to_string(&path)?;
    assert!(text.starts_with(&format!("{} ", host.pid())), "{text}");
    host.stop()
}

#[test]
fn host_without_its_ready_file_serves() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let fifo = folder.join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, rustix::fs::Mode::RWXU, 0)?;
    // A directory that is not there, and a full disk.
    let nowhere = folder.join("none/ready");
    let hosts = [
        Serve::stdio()?.env("MCP_READY_FILE", nowhere),
        Serve::stdio()?.file_blocks(0),
    ];
    for serve in hosts {
        let host = serve.spawn()?;
        host.wait_for_line("mcp:warning reason=no_ready_file")?;
        answered(host.client()?)?;
        host.stop()?;
    }
    // Nothing waits for a writer of a FIFO; the file takes its place.
    let host = Serve::stdio()?.env("MCP_READY_FILE", &fifo).spawn()?;
    host.wait_for_line("mcp:ready")?;
    let text = fs::read_to_string(&fifo)?;
    assert!(text.starts_with(&format!("{} ", host.pid())), "{text}");
    host.stop()
}

#[test]
fn lock_that_is_not_a_file_is_refused_at_once() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let fifo = folder.join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, rustix::fs::Mode::RWXU, 0)?;
    for option in ["--lock", "--config"] {
        let serve = Serve::stdio()?.argument(option).argument(&fifo);
        let (code, said) = serve.refused()?;
        assert_eq!(code, Some(2), "{option}: {said}");
        assert!(said.contains("not a regular file"), "{option}: {said}");
    }
    Ok(())
}

#[test]
fn hangup_never_ends_a_host() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.misbehaving("honest")?.spawn()?;
    let words = ["wrap".into(), "--".into(), binary("mcp-fixture")?];
    let wrap = Launch::new([binary("mainstay")?])?.words(words).spawn()?;
    wrap.wait_for_line("mcp:ready")?;
    answered(serve.client()?)?;
    for host in [serve, wrap] {
        host.signal(Signal::HUP)?;
        host.wait_for_line("mcp:config reread")?;
        host.terminate()?;
        host.wait_for_line("mcp:shutdown")?;
    }
    Ok(())
}

#[test]
fn settings_that_are_read_again_reach_fresh_workers() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.argument("--config").argument("m.toml");
    let config = serve.folder().join("m.toml");
    let schema = |id: &str| format!("{{\"$id\": \"{id}.schema.json\", \"type\": \"object\"}}");
    for name in ["one", "two"] {
        let folder = serve.folder().join(name);
        fs::create_dir(&folder)?;
        fs::write(folder.join(format!("{name}.schema.json")), schema(name))?;
    }
    let write = |root: &str, more: &str| {
        fs::write(&config, format!("{more}\n[roots]\nschemas = \"{root}\"\n"))
    };
    write("one", "")?;
    let host = serve.pack("asset").spawn()?;
    let client = host.client()?;
    let listed = |id: &str| -> anyhow::Result<String> {
        let answer = client.call(id, "list_schemas", &json!({}))?;
        Ok(answer.at("/result/structuredContent").to_string())
    };
    assert!(listed("1")?.contains("one"));
    write("two", "[limits]\nqueue = 7")?;
    host.signal(Signal::HUP)?;
    host.wait_for_line("reason=needs_restart what=limits")?;
    host.wait_for_line("mcp:config changed pack=asset")?;
    host.wait_for_line("mcp:rollout pack=asset generation=2")?;
    assert!(listed("2")?.contains("two"));
    // Settings with which no worker starts change nothing.
    write("two", "[packs.asset.settings]\nmax_batch = \"many\"")?;
    host.signal(Signal::HUP)?;
    host.wait_for_line("mcp:warning reason=rollout_failed pack=asset")?;
    assert!(listed("3")?.contains("two"));
    write("none", "")?;
    host.signal(Signal::HUP)?;
    host.wait_for_line("mcp:error reason=config_refused")?;
    assert!(listed("4")?.contains("two"));
    host.stop()
}

#[test]
fn draining_host_closes_its_listener_before_its_calls_end() -> anyhow::Result<()> {
    const HOUR: u64 = 3_600_000;
    let limits = format!("drain_ms = {HOUR}");
    let closes = |is_open: &dyn Fn() -> bool| -> anyhow::Result<()> {
        let until = Instant::now() + Duration::from_secs(60);
        while is_open() {
            ensure!(Instant::now() < until, "the listener stays open");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    };
    let mut host = Serve::socket()?
        .misbehaving("slow")?
        .limits(&limits)?
        .spawn()?;
    let client = host.connect()?;
    let call = json!({"name": "once", "arguments": {"ms": HOUR}});
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    client.send(&line.to_string())?;
    client.request("2", "ping", &json!({}))?;
    host.terminate()?;
    let socket = host.folder().join("sock");
    closes(&|| socket.exists())?;
    client.silence(Duration::from_millis(100))?;
    host.signal(Signal::KILL)?;
    host.wait()?;

    let mut host = Serve::http()?
        .misbehaving("slow")?
        .limits(&limits)?
        .spawn()?;
    let address = host.address()?;
    let session = Session::open(address)?;
    let mut connection = Connection::open(address)?;
    connection.send(&session.post(&line.to_string()).bytes())?;
    // The answer becomes a stream after half a second: the call runs.
    let (head, _) = connection.head()?;
    assert!(head.is_stream(), "{head:?}");
    host.terminate()?;
    closes(&|| TcpStream::connect(address).is_ok())?;
    assert!(host.family().contains(&host.pid()), "its call goes on");
    host.signal(Signal::KILL)?;
    host.wait()?;
    Ok(())
}

#[test]
fn termination_finishes_the_call_in_flight_and_exits_with_0() -> anyhow::Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let mut host = Serve::stdio()?.misbehaving("slow")?.spawn()?;
        let client = host.take_client()?;
        client.send(r#"{"jsonrpc":"2.0","id":1,"method":"once","params":{"ms":300}}"#)?;
        // Progress says that the call runs.
        client.notification("notifications/progress")?;
        host.signal(signal)?;
        let answer = client.answer("1")?;
        assert_eq!(answer.at("/result/ms"), 300, "{answer:?}");
        assert_eq!(host.wait()?.code(), Some(0), "{:?}", host.stderr());
        ensure!(
            client.finish()?.is_empty(),
            "something came after the answer"
        );
        ensure!(
            host.stderr()
                .iter()
                .any(|line| line.contains("mcp:shutdown mode=stdio")),
            "{:?}",
            host.stderr()
        );
    }
    Ok(())
}

#[test]
fn termination_of_an_idle_socket_host_removes_its_socket() -> anyhow::Result<()> {
    let mut host = Serve::socket()?.misbehaving("honest")?.spawn()?;
    let socket = host.folder().join("sock");
    let client = host.connect()?;
    client.call("1", "again", &json!({}))?;
    assert!(socket.exists());
    host.terminate()?;
    assert_eq!(host.wait()?.code(), Some(0), "{:?}", host.stderr());
    assert!(!socket.exists());
    assert!(client.finish()?.is_empty());
    Ok(())
}

#[test]
fn end_of_input_answers_every_accepted_request_and_exits_with_0() -> anyhow::Result<()> {
    const REQUESTS: usize = 40;
    let host = Serve::stdio()?.misbehaving("honest")?.spawn()?;
    let client = host.client()?;
    for id in 0..REQUESTS {
        client.send(&match id % 4 {
            0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"again","params":{{}}}}"#),
            1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#),
            2 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"once","arguments":{{}}}}}}"#
            ),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"nothing"}}"#),
        })?;
    }
    // The last one has no newline: at the end of input a complete object is a frame.
    client.send_raw(*br#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#)?;
    let (answers, _) = host.finish()?;
    for answer in &answers {
        // Accepted before the worker was ready is accepted all the same.
        let id: usize = answer.id().and_then(|id| id.parse().ok()).unwrap_or(1);
        let result = match id % 4 {
            0 => answer.at("/result"),
            2 => answer.at("/result/structuredContent"),
            _ => json!({}),
        };
        assert_eq!(result, json!({}), "{answer:?}");
    }
    let mut ids: Vec<&str> = answers.iter().filter_map(|answer| answer.id()).collect();
    ids.sort_unstable();
    let mut expected: Vec<String> = (0..REQUESTS).map(|id| id.to_string()).collect();
    expected.push("\"last\"".to_owned());
    expected.sort_unstable();
    assert_eq!(ids, expected);
    Ok(())
}

#[test]
fn standard_output_carries_frames_only_whatever_a_worker_says() -> anyhow::Result<()> {
    for mode in ["honest", "babble", "exit-at-start"] {
        let host = Serve::stdio()?.misbehaving(mode)?.spawn()?;
        let client = host.client()?;
        client.send(r#"{"jsonrpc":"2.0","id":1,"method":"system_health"}"#)?;
        // Every line is parsed on the way; one that is no message is an error.
        client.answer("1").with_context(|| mode.to_owned())?;
        let (rest, stderr) = host.finish().with_context(|| mode.to_owned())?;
        assert!(rest.is_empty(), "{mode}: {rest:?}");
        assert!(
            stderr.iter().all(|line| !line.contains("\"jsonrpc\"")),
            "{mode}: {stderr:?}"
        );
    }
    Ok(())
}

#[test]
fn worker_that_is_set_up_wrongly_ends_the_host_with_its_words() -> anyhow::Result<()> {
    let mut host = Serve::stdio()?.misbehaving("unable")?.spawn()?;
    let client = host.take_client()?;
    assert_eq!(host.wait()?.code(), Some(2));
    assert!(client.finish()?.is_empty());
    let stderr = host.stderr();
    let last = stderr.last().map(String::as_str).unwrap_or_default();
    assert_eq!(
        last,
        "mainstay: error: the pack bad cannot start: told to be unable"
    );
    Ok(())
}

#[test]
fn successor_that_finds_other_schemas_is_told_to_the_operator() -> anyhow::Result<()> {
    let roots = TempDir::new()?;
    let schema = roots.join("lamp.schema.json");
    fs::write(&schema, r#"{"type": "object"}"#)?;
    let host = Serve::stdio()?
        .pack("asset")
        .env("SYN_SCHEMAS_DIR", roots.path())
        .spawn()?;
    let client = host.client()?;
    let get = r#"{"jsonrpc":"2.0","id":1,"method":"get_schema","params":{"name":"lamp"}}"#;
    client.send(get)?;
    assert_eq!(client.answer("1")?.at("/result/schema/type"), "object");
    fs::write(&schema, r#"{"type": "array"}"#)?;
    client.send(get)?;
    assert_eq!(
        client.answer("1")?.at("/result/schema/type"),
        "object",
        "read once"
    );
    for worker in host.workers("mainstay-worker") {
        kill(worker);
    }
    client.send(get)?;
    assert_eq!(client.answer("1")?.at("/result/schema/type"), "array");
    host.wait_for_line("mcp:warning reason=roots_changed pack=asset")?;
    host.stop()
}

#[test]
fn worker_runs_in_a_process_of_its_own() -> anyhow::Result<()> {
    let host = Serve::stdio()?.misbehaving("honest")?.spawn()?;
    host.client()?.call("1", "again", &json!({}))?;
    let family = host.family();
    assert!(
        family.len() >= 2 && family.contains(&host.pid()),
        "{family:?}"
    );
    host.stop()
}

/// A fixture behind `mainstay wrap --http`, with a ready file; nothing waits until it is ready.
fn wrapped_http(options: &[&str]) -> anyhow::Result<(Running, SocketAddr)> {
    let launch = Launch::new([binary("mainstay")?])?
        .words([
            "wrap",
            "--http",
            "127.0.0.1:0",
            "--start-timeout",
            "600",
            "--",
        ])
        .words([binary("mcp-fixture")?])
        .words(options)
        .env("MCP_READY_FILE", "ready");
    let running = launch.spawn_listening()?;
    let address = running.address()?;
    Ok((running, address))
}

fn ask(address: SocketAddr, path: &str) -> anyhow::Result<Response> {
    Connection::open(address)?.ask(&Request::to(address, "GET", path))
}

fn status(address: SocketAddr, path: &str) -> anyhow::Result<u16> {
    Ok(ask(address, path)?.head.status)
}

#[test]
fn a_wrapped_server_is_ready_when_it_has_answered_its_handshake() -> anyhow::Result<()> {
    let (running, address) = wrapped_http(&[])?;
    running.wait_for_line("mcp:ready mode=http address=")?;
    ensure!(running.folder().join("ready").exists());
    ensure!(status(address, "/readyz")? == 200);
    running.stop()?;

    // It reads everything and answers nothing.
    let (running, address) = wrapped_http(&["--never-ready"])?;
    running.wait_for_workers("mcp-fixture", 1)?;
    for _ in 0..20 {
        ensure!(status(address, "/readyz")? == 503);
        std::thread::sleep(Duration::from_millis(10));
    }
    let health = ask(address, "/healthz")?.json()?;
    ensure!(
        health["ready"] == false && health["state"] == "starting",
        "{health:#}"
    );
    ensure!(!running.folder().join("ready").exists());
    let lines = running.stderr();
    ensure!(
        !lines.iter().any(|line| line.contains("mcp:ready")),
        "{lines:?}"
    );
    running.stop()
}

#[test]
fn a_host_whose_server_comes_up_late_becomes_ready_by_itself() -> anyhow::Result<()> {
    let options = ["--exit-at-start", "--counter", "starts", "--times", "2"];
    // The other one ends whenever it is asked for its era, as some older servers do.
    for options in [&options[..], &["--crash-on", "server/discover"]] {
        let (running, address) = wrapped_http(options)?;
        running.wait_for_line("reason=worker_lost")?;
        running.wait_for_line("mcp:ready mode=http address=")?;
        ensure!(status(address, "/readyz")? == 200);
        running.stop()?;
    }
    Ok(())
}

#[test]
fn a_host_on_stdio_is_ready_with_the_answer_to_the_handshake() -> anyhow::Result<()> {
    let running = Launch::new([binary("mainstay")?])?
        .words(["wrap", "--"])
        .words([binary("mcp-fixture")?])
        .spawn()?;
    running.wait_for_workers("mcp-fixture", 1)?;
    let is_ready = |running: &Running| {
        let lines = running.stderr();
        lines.iter().any(|line| line.contains("mcp:ready"))
    };
    ensure!(!is_ready(&running), "{:?}", running.stderr());
    running.client()?.open(&json!({}))?;
    running.wait_for_line("mcp:ready mode=stdio")?;
    running.stop()
}

#[test]
fn packs_are_ready_when_they_have_read_their_files() -> anyhow::Result<()> {
    let serve = Serve::http()?;
    let examples = serve.folder().join("examples");
    fs::create_dir(&examples)?;
    for number in 0..400 {
        let name = format!("Thing{number}_Example.json");
        fs::write(
            examples.join(name),
            json!({"x": "y".repeat(20_000)}).to_string(),
        )?;
    }
    let path = serve.ready_file();
    let host = serve.env("SYN_EXAMPLES_DIR", &examples).spawn()?;
    let lines = host.stderr();
    let at = |text: &str| lines.iter().position(|line| line.contains(text));
    let (ready, worker) = (at("mcp:ready"), at("worker ready pack=asset"));
    ensure!(worker.is_some() && worker < ready, "{lines:?}");
    ensure!(path.exists());
    ensure!(status(host.address()?, "/readyz")? == 200);
    host.stop()
}

#[test]
fn numbers_of_a_wrapping_host_outlive_its_sessions() -> anyhow::Result<()> {
    let (running, address) = wrapped_http(&["--era", "legacy"])?;
    running.wait_for_line("mcp:ready")?;
    let session = Session::open(address)?;
    session.call("1", "crash", &json!({"how": "kill"}))?;
    session.call("2", "echo", &json!({"text": "here"}))?;
    let health = |address| -> anyhow::Result<Value> { ask(address, "/healthz")?.json() };
    let during = health(address)?;
    ensure!(during["restart_count"] == 1, "{during:#}");
    session.ask(&session.delete())?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let after = loop {
        let now = health(address)?;
        if now["workers"] == json!([]) {
            break now;
        }
        ensure!(Instant::now() < deadline, "{now:#}");
        std::thread::sleep(Duration::from_millis(10));
    };
    ensure!(after["restart_count"] == 1, "{after:#}");
    ensure!(after["last_fault"] == during["last_fault"], "{after:#}");
    ensure!(after["generation"] == during["generation"], "{after:#}");
    let uptime = |health: &Value| health["uptime_ms"].as_u64().unwrap_or_default();
    ensure!(
        uptime(&after) >= uptime(&during) && uptime(&during) > 0,
        "{after:#}"
    );
    ensure!(
        after["ready"] == true && after["state"] == "ready",
        "{after:#}"
    );
    let metrics = ask(address, "/metrics")?.text();
    ensure!(
        metrics.contains("mainstay_worker_restarts_total 1"),
        "{metrics}"
    );
    running.stop()
}

#[test]
fn only_declared_capabilities_are_answered() -> anyhow::Result<()> {
    let host = Serve::stdio()?.ledger()?.spawn()?;
    let client = host.client()?;
    let opened = client.open(&json!({}))?;
    let declared = opened.at("/result/capabilities");
    let lists = [
        ("prompts", "prompts/list"),
        ("resources", "resources/list"),
        ("resources", "resources/templates/list"),
        ("tools", "tools/list"),
    ];
    for (number, (capability, method)) in lists.into_iter().enumerate() {
        let answer = client.request(&number.to_string(), method, &json!({}))?;
        let is_declared = declared.get(capability).is_some();
        let is_answered = answer.at("/error").is_null();
        ensure!(is_declared == is_answered, "{method}: {answer:?}");
        ensure!(
            is_answered || answer.at("/error/code") == -32601,
            "{answer:?}"
        );
    }
    host.stop()
}

#[test]
fn an_unknown_resource_is_named_in_the_error() -> anyhow::Result<()> {
    let host = Serve::stdio()?.spawn()?;
    let client = host.client()?;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    for (id, uri) in [("1", "schema:///nowhere"), ("2", "unheard://of")] {
        let params = json!({"uri": uri, "_meta": meta});
        let answer = client.request(id, "resources/read", &params)?;
        ensure!(answer.at("/error/code") == -32602, "{answer:?}");
        ensure!(answer.at("/error/data/uri") == uri, "{answer:?}");
    }
    host.stop()
}
