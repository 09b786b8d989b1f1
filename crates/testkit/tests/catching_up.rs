//! Clients that fall behind while an answer is being written, and then read everything: their
//! sessions go on, and the host ends with its input.

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Events, Session};
use mainstay_testkit::peer::{Client, PATIENCE, request_line};
use mainstay_testkit::process::{Launch, Serve, binary, wait_for};
use serde_json::{Value, json};

/// Two such answers are more than an outbox holds before its client is behind.
const ANSWER: usize = 700 * 1024;
const JUNK_LINES: usize = 8_000;
/// Long enough for the host to get stuck, if it can; no assertion depends on it.
const SETTLE: Duration = Duration::from_millis(400);

/// Stops a client from reading.
#[derive(Clone, Default)]
struct Valve(Arc<(Mutex<bool>, Condvar)>);

impl Valve {
    fn set_closed(&self, closed: bool) {
        let (state, changed) = &*self.0;
        *state.lock().unwrap_or_else(PoisonError::into_inner) = closed;
        changed.notify_all();
    }
}

struct Valved<R>(R, Valve);

impl<R: Read> Read for Valved<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (state, changed) = &*self.1.0;
        let closed = state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(closed, |closed| *closed));
        self.0.read(buffer)
    }
}

/// A host on stdio and its client.
struct Piped {
    child: Child,
    client: Client,
    valve: Valve,
}

impl Piped {
    fn new(mut command: std::process::Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let valve = Valve::default();
        let output = Valved(child.stdout.take().context("stdout")?, valve.clone());
        let client = Client::new(output, child.stdin.take().context("stdin")?);
        Ok(Self {
            child,
            client,
            valve,
        })
    }

    /// Closes the host's input, which must end it.
    fn end(mut self) -> anyhow::Result<()> {
        self.client.finish()?;
        let status = wait_for(&mut self.child, PATIENCE)?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call(id: &str, tool: &str, arguments: &Value) -> String {
    request_line(
        id,
        "tools/call",
        &json!({"name": tool, "arguments": arguments}),
    )
}

fn echo(id: &str) -> String {
    call(id, "echo", &json!({"text": "x".repeat(ANSWER)}))
}

fn big(id: &str) -> String {
    call(id, "big", &json!({"bytes": ANSWER}))
}

/// Two large answers wait when a ping arrives; then the client reads everything.
fn fall_behind_and_catch_up(
    client: &Client,
    valve: &Valve,
    large: fn(&str) -> String,
) -> anyhow::Result<()> {
    client.request("0", "ping", &json!({}))?;
    valve.set_closed(true);
    // The reader may be in the middle of a read: this answer ends it.
    client.send(&request_line("\"last\"", "ping", &json!({})))?;
    client.send(&large("1"))?;
    client.send(&large("2"))?;
    sleep(SETTLE);
    client.send(&request_line("3", "ping", &json!({})))?;
    sleep(SETTLE);
    valve.set_closed(false);
    for id in ["\"last\"", "1", "2", "3"] {
        client.answer(id)?;
    }
    client.request("4", "ping", &json!({}))?;
    Ok(())
}

#[test]
fn a_client_that_catches_up_on_stdio_is_served_on() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.program("bench", "bench-pack", "")?;
    let host = Piped::new(serve.command()?)?;
    fall_behind_and_catch_up(&host.client, &host.valve, echo)?;
    host.end()
}

#[test]
fn a_client_that_catches_up_on_a_socket_is_served_on() -> anyhow::Result<()> {
    let serve = Serve::socket()?.program("bench", "bench-pack", "")?;
    let path = serve.folder().join("mainstay.sock");
    let host = serve.at(&path).spawn()?;
    let stream = UnixStream::connect(&path)?;
    let valve = Valve::default();
    let client = Client::new(Valved(stream.try_clone()?, valve.clone()), stream);
    fall_behind_and_catch_up(&client, &valve, echo)?;
    drop(client);
    host.stop()
}

#[test]
fn a_client_of_a_wrapped_server_that_catches_up_is_served_on() -> anyhow::Result<()> {
    // Without pings no other event can restart the session by accident.
    let launch = Launch::new([binary("mainstay")?])?;
    let config = launch.folder().join("config.toml");
    fs::write(
        &config,
        "[servers.wrapped.mainstay.limits]\nping_interval_ms = 0\n",
    )?;
    let launch = launch
        .words(["wrap", "--config"])
        .words([config])
        .words(["--".into(), binary("mcp-fixture")?]);
    let host = Piped::new(launch.command()?)?;
    host.client.open(&json!({}))?;
    fall_behind_and_catch_up(&host.client, &host.valve, big)?;
    host.end()
}

#[test]
fn junk_lines_in_one_write_leave_the_session_alive() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?.limits("outbox_bytes = 65536")?;
    let host = Piped::new(serve.command()?)?;
    host.client.request("0", "ping", &json!({}))?;
    host.valve.set_closed(true);
    let mut junk = "junk\n".repeat(JUNK_LINES);
    junk.push_str(&request_line("1", "ping", &json!({})));
    host.client.send(&junk)?;
    sleep(SETTLE);
    host.valve.set_closed(false);
    host.client.answer("1")?;
    host.client.request("2", "ping", &json!({}))?;
    host.end()
}

/// Over HTTP an outbox only fills while its session waits for a stream that is not read.
#[test]
fn an_http_session_goes_on_once_its_stream_is_read() -> anyhow::Result<()> {
    // Less than half of what an outbox holds before its client is behind.
    const URI: usize = 30 * 1024;
    const MOST: usize = 2_000;
    let launch = Launch::new([binary("mainstay")?])?;
    let config = launch.folder().join("config.toml");
    fs::write(
        &config,
        "[servers.wrapped.mainstay.limits]\nping_interval_ms = 0\noutbox_bytes = 65536\n\
         resume_bytes = 4096\n",
    )?;
    let host = launch
        .words(["wrap", "--http", "127.0.0.1:0", "--config"])
        .words([config])
        .words(["--".into(), binary("mcp-fixture")?])
        .spawn_http()?;
    let session = Session::open(host.address()?)?;
    let uri = format!("note:{}", "x".repeat(URI));
    session.request("0", "resources/subscribe", &json!({"uri": uri}))?;
    let mut stream = Connection::open(host.address()?)?;
    stream.send(&session.get().bytes())?;
    let (_, mut framing) = stream.head()?;
    let mut touches = 0;
    let mut touch = || -> anyhow::Result<Connection> {
        touches += 1;
        ensure!(touches < MOST, "the stream never fills");
        let line = call(&touches.to_string(), "touch", &json!({"uri": uri}));
        let mut post = Connection::open(host.address()?)?.with_patience(SETTLE);
        post.send(&session.post(&line).bytes())?;
        Ok(post)
    };
    // The buffers of the connection fill, then one update after the other waits in the host.
    let mut posts = loop {
        let mut post = touch()?;
        if post.response().is_err() {
            break vec![post];
        }
    };
    for _ in 0..40 {
        posts.push(touch()?);
        sleep(SETTLE / 20);
    }
    let (mut events, mut seen) = (Events::default(), 0);
    let until = Instant::now() + PATIENCE;
    while seen < touches {
        ensure!(Instant::now() < until, "{seen} of {touches} updates came");
        let piece = stream.piece(&mut framing)?.context("the stream ended")?;
        let pieces = events.push(&piece);
        seen += pieces.iter().filter(|one| one.data.len() > URI).count();
    }
    for post in posts {
        let status = post.with_patience(PATIENCE).response()?.status();
        ensure!(status == 200, "{status}");
    }
    session.request("\"again\"", "ping", &json!({}))?;
    host.stop()
}
