//! One server process for several clients: `shared` in a file, and `mainstay share`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::fixture::read_executed;
use mainstay_testkit::foreign::Server as Foreign;
use mainstay_testkit::peer::{Client, Message, request_line};
use mainstay_testkit::process::{Serve, TempDir, binary, kill};
use serde_json::{Value, json};

use crate::wrapping::{self, SERVER, eventually, failure, text};
use crate::{entry, names, serve};

/// Messages of the test for cross-talk; its whole size is a million.
const MESSAGES: u64 = 6_000;
/// The variable that sets another number of them.
const MESSAGES_VARIABLE: &str = "MAINSTAY_CROSSTALK_MESSAGES";
/// Sessions of that test.
const SESSIONS: usize = 16;
/// Calls that each of them has open.
const OPEN: usize = 6;
/// Messages that arrive between two kills, and the shortest pause.
const BETWEEN_KILLS: u64 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// A user with a runtime directory of its own, whose share host ends with it.
pub(crate) struct User {
    pub(crate) folder: TempDir,
}

/// A client behind a relay.
pub(crate) struct Relay {
    pub(crate) child: Child,
    pub(crate) client: Client,
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.mainstay(&["stop", "--name", "share"]);
    }
}

impl User {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        Ok(Self { folder })
    }

    pub(crate) fn command(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(binary("mainstay")?);
        command
            .current_dir(self.folder.path())
            .env("MAINSTAY_RUNTIME_DIR", self.folder.join("run"))
            .env("MAINSTAY_CACHE_DIR", self.folder.join("cache"));
        Ok(command)
    }

    pub(crate) fn mainstay(&self, words: &[&str]) -> anyhow::Result<Output> {
        Ok(self.command()?.args(words).output()?)
    }

    /// A client that shares the fixture, with a variable that only it has.
    pub(crate) fn relay(&self, options: &str, variable: &str) -> anyhow::Result<Relay> {
        self.client(&["--shared"], options, variable)
    }

    /// A client of the fixture with options of `mainstay share`.
    fn client(&self, declared: &[&str], options: &str, variable: &str) -> anyhow::Result<Relay> {
        let mut command = self.command()?;
        command
            .args(["share", "--name", "fixture"])
            .args(declared)
            .arg("--")
            .arg(binary(SERVER)?)
            .args(options.split_whitespace())
            .env(variable, "1");
        client_behind(command)
    }

    /// A client that shares a server of this command.
    pub(crate) fn relay_of(&self, words: &[&OsStr]) -> anyhow::Result<Relay> {
        let mut command = self.command()?;
        command.args(["share", "--shared", "--"]).args(words);
        client_behind(command)
    }

    /// The share host's status.
    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        let output = self.mainstay(&["status", "--json", "--name", "share"])?;
        let hosts: Vec<Value> = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        ensure!(hosts.len() == 1, "{hosts:?}");
        hosts.into_iter().next().context("a host")
    }

    /// The servers of the share host: process, and sessions.
    pub(crate) fn servers(&self) -> anyhow::Result<Vec<(u64, u64)>> {
        let status = self.status()?;
        let workers = status["health"]["workers"].as_array().context("workers")?;
        let fact = |worker: &Value| {
            ensure!(worker["facts"]["shared"] == true, "{worker}");
            let sessions = worker["facts"]["sessions"].as_u64();
            let pid = worker["pid"].as_u64().unwrap_or(0);
            Ok((pid, sessions.context("sessions")?))
        };
        workers.iter().map(fact).collect()
    }

    pub(crate) fn host(&self) -> anyhow::Result<u32> {
        let pid = self.status()?["pid"].as_u64().context("a process id")?;
        Ok(u32::try_from(pid)?)
    }
}

/// The client of a program.
pub(crate) fn client_behind(mut command: Command) -> anyhow::Result<Relay> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("its output")?;
    let input = child.stdin.take().context("its input")?;
    let client = Client::new(output, input);
    Ok(Relay { child, client })
}

pub(crate) fn echo(client: &Client, id: &str, said: &str) -> anyhow::Result<()> {
    let answer = client.call(id, "echo", &json!({ "text": said }))?;
    ensure!(text(&answer) == said, "{answer:?}");
    Ok(())
}

#[test]
fn clients_with_different_environments_share_one_process() -> anyhow::Result<()> {
    let user = User::new()?;
    let (first, second) = (user.relay("", "TERM_OF_A")?, user.relay("", "EDITOR_OF_B")?);
    for (relay, name) in [(&first, "ada"), (&second, "bob")] {
        let opened = relay.client.open(&json!({ "sampling": {} }))?;
        let info = opened.at("/result/serverInfo/name");
        ensure!(info == "mcp-fixture" || info == "fixture", "{opened:?}");
        ensure!(names(&relay.client, "1", "tools/list")?.contains(&"echo".to_owned()));
        echo(&relay.client, "2", name)?;
    }
    let servers = user.servers()?;
    ensure!(servers.len() == 1 && servers[0].1 == 2, "{servers:?}");
    // Another working directory, argument or listed variable is another server.
    let third = user.relay("--page 7", "X")?;
    third.client.open(&json!({}))?;
    echo(&third.client, "1", "cyd")?;
    ensure!(user.servers()?.len() == 2);
    // A client that leaves ends only its own session.
    drop(second);
    eventually("one session is left", || {
        user.servers().is_ok_and(|servers| servers[0].1 == 1)
    })?;
    echo(&first.client, "3", "still")?;
    ensure!(
        user.servers()?[0].0 == servers[0].0,
        "the server was restarted"
    );
    Ok(())
}

#[test]
fn an_undeclared_server_is_shared_only_if_it_is_stateless() -> anyhow::Result<()> {
    let user = User::new()?;
    for declared in [&[] as &[&str], &["--exclusive"]] {
        let own = user.client(declared, "", "A")?;
        own.client.open(&json!({}))?;
        echo(&own.client, "1", "mine")?;
        ensure!(user.status().is_err(), "a share host runs");
    }
    let exclusive = user.client(&["--exclusive"], "--era both", "A")?;
    exclusive.client.open(&json!({}))?;
    ensure!(user.status().is_err(), "a share host runs");
    // The second client knows the era from a file.
    let clients = [
        user.client(&[], "--era both", "A")?,
        user.client(&[], "--era both", "B")?,
    ];
    for relay in &clients {
        relay.client.open(&json!({}))?;
        echo(&relay.client, "1", "ours")?;
    }
    let servers = user.servers()?;
    ensure!(servers.len() == 1 && servers[0].1 == 2, "{servers:?}");
    Ok(())
}

#[test]
fn clients_that_start_at_once_start_one_host() -> anyhow::Result<()> {
    let user = User::new()?;
    let relays: Vec<Relay> = (0..6)
        .map(|_| user.relay("", "X"))
        .collect::<anyhow::Result<_>>()?;
    for relay in &relays {
        relay.client.open(&json!({}))?;
        echo(&relay.client, "1", "here")?;
    }
    let servers = user.servers()?;
    ensure!(servers.len() == 1 && servers[0].1 == 6, "{servers:?}");
    Ok(())
}

#[test]
fn a_killed_share_host_is_replaced_and_sessions_go_on() -> anyhow::Result<()> {
    let user = User::new()?;
    let (first, second) = (user.relay("", "A")?, user.relay("", "B")?);
    for relay in [&first, &second] {
        relay.client.open(&json!({}))?;
    }
    let uri = json!({ "uri": "fixture:///blob" });
    let subscribed = first.client.request("1", "resources/subscribe", &uri)?;
    ensure!(subscribed.at("/result").is_object(), "{subscribed:?}");
    first
        .client
        .send(&wrapping::call("2", "hang", &json!({})))?;
    echo(&second.client, "1", "before")?;
    let host = user.host()?;
    ensure!(kill(host), "the host runs");
    // The outcome of the open call is not known; everything else goes on.
    let lost = first.client.answer("2")?;
    ensure!(lost.text().contains("outcome"), "{lost:?}");
    echo(&first.client, "3", "after")?;
    echo(&second.client, "2", "after")?;
    ensure!(user.host()? != host);
    ensure!(user.servers()?.len() == 1);
    second.client.call("3", "touch", &uri)?;
    first
        .client
        .notification("notifications/resources/updated")?;
    Ok(())
}

#[test]
fn calls_of_a_killed_share_host_follow_their_class() -> anyhow::Result<()> {
    let user = User::new()?;
    let effects = user.folder.join("effects");
    let options = format!("--effects {}", effects.display());
    let (first, second) = (user.relay(&options, "A")?, user.relay(&options, "B")?);
    first.client.open(&json!({}))?;
    second.client.open(&json!({}))?;
    let endless = |id: &str, tool: &str| {
        let arguments = json!({ "key": id, "text": "t", "pause_after_ms": 600_000 });
        first.client.send(&wrapping::call(id, tool, &arguments))
    };
    for (id, tool) in [("1", "put"), ("2", "append"), ("3", "settle")] {
        endless(id, tool)?;
    }
    let sleep = json!({ "ms": 3000 });
    second.client.send(&wrapping::call("1", "sleep", &sleep))?;
    let count = |key: &str| -> anyhow::Result<usize> {
        let executed = read_executed(&effects)?;
        Ok(executed
            .iter()
            .filter(|executed| executed.key == key)
            .count())
    };
    let all_ran = || {
        ["1", "2", "3"]
            .iter()
            .all(|key| count(key).is_ok_and(|count| count == 1))
    };
    eventually("every call took effect", all_ran)?;
    let host = user.host()?;
    ensure!(kill(host), "the host runs");
    // Both clients go on, the call that may run twice does, and the answer of another one comes.
    for id in ["2", "3"] {
        let lost = failure(&first.client.answer(id)?)?;
        ensure!(
            lost["fault"] == "process" && lost["retryable"] == false,
            "{lost}"
        );
        ensure!(lost["message"].to_string().contains("outcome"), "{lost}");
    }
    eventually("the repeatable call runs again", || {
        count("1").is_ok_and(|count| count == 2)
    })?;
    ensure!(text(&second.client.answer("1")?) == "slept 3000 ms");
    echo(&first.client, "4", "after")?;
    // It is a call like any other: its client can cancel it, or lose the server once more.
    first
        .client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)?;
    echo(&first.client, "5", "cancelled")?;
    ensure!(
        (count("2")?, count("3")?) == (1, 1),
        "an effect was repeated"
    );
    ensure!(user.host()? != host && user.servers()?.len() == 1);
    Ok(())
}

#[test]
fn a_share_host_is_upgraded_in_place() -> anyhow::Result<()> {
    let user = User::new()?;
    let relay = user.relay("", "A")?;
    relay.client.open(&json!({}))?;
    echo(&relay.client, "1", "before")?;
    let (host, servers) = (user.host()?, user.servers()?);
    let upgraded = user.mainstay(&["upgrade", "--name", "share"])?;
    ensure!(upgraded.status.success(), "{upgraded:?}");
    echo(&relay.client, "2", "after")?;
    ensure!(user.host()? == host && user.servers()? == servers);
    let other = user.relay("", "B")?;
    other.client.open(&json!({}))?;
    echo(&other.client, "1", "new")?;
    ensure!(user.servers()?[0] == (servers[0].0, 2));
    Ok(())
}

#[test]
fn a_share_host_answers_from_the_last_catalog_while_a_server_starts() -> anyhow::Result<()> {
    let user = User::new()?;
    let (gate, fixture) = (user.folder.join("gate"), binary(SERVER)?);
    let script = user.folder.join("server.sh");
    let text_of = "while [ -e gate ]; do sleep 0.1; done\nexec \"$0\"\n"
        .replace("$0", fixture.to_str().context("it is UTF-8")?);
    std::fs::write(&script, text_of)?;
    let words: [&OsStr; 2] = ["sh".as_ref(), script.as_os_str()];
    let relay = user.relay_of(&words)?;
    let first = relay.client.open(&json!({}))?;
    let tools = relay.client.request("1", "tools/list", &json!({}))?;
    let is_kept = || {
        let kept = std::fs::read_dir(user.folder.join("cache/wrapped")).into_iter();
        kept.flatten().flatten().any(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            text.contains("\\\"echo\\\"") || text.contains("\"echo\"")
        })
    };
    eventually("the catalog is kept", is_kept)?;
    drop(relay);
    user.mainstay(&["stop", "--name", "share"])?;
    eventually("the host has ended", || user.status().is_err())?;
    // While the gate is shut the server reads nothing: no answer can be its own.
    std::fs::write(&gate, "")?;
    let relay = user.relay_of(&words)?;
    let second = relay.client.open(&json!({}))?;
    for part in [
        "/result/capabilities",
        "/result/serverInfo",
        "/result/instructions",
    ] {
        ensure!(first.at(part) == second.at(part), "{part}: {second:?}");
    }
    let again = relay.client.request("1", "tools/list", &json!({}))?;
    ensure!(tools.at("/result") == again.at("/result"), "{again:?}");
    let said = json!({ "text": "waited" });
    relay.client.send(&wrapping::call("2", "echo", &said))?;
    std::fs::remove_file(&gate)?;
    ensure!(text(&relay.client.answer("2")?) == "waited");
    Ok(())
}

#[test]
fn a_share_host_outlives_its_starter_and_ends_when_idle() -> anyhow::Result<()> {
    let user = User::new()?;
    let started = user.mainstay(&["share", "host", "--idle", "2s"])?;
    ensure!(started.status.success(), "{started:?}");
    eventually("the host runs", || user.host().is_ok())?;
    let host = user.host()?;
    let relay = user.relay("", "A")?;
    relay.client.open(&json!({}))?;
    std::thread::sleep(Duration::from_secs(4));
    echo(&relay.client, "1", "it stays for its client")?;
    drop(relay);
    let is_gone = || !Path::new(&format!("/proc/{host}")).exists();
    eventually("the host ends", is_gone)
}

/// One message that a session must never get: it belongs to another one.
fn is_foreign(session: usize, message: &Message) -> bool {
    let own = |text: &str| text.starts_with(&format!("s{session}-"));
    match message.method().as_deref() {
        Some("notifications/progress") => {
            let token = message.at("/params/progressToken");
            !token.as_str().is_some_and(own)
        }
        // Sessions with an even number subscribe.
        Some("notifications/resources/updated") => !session.is_multiple_of(2),
        Some("notifications/tools/list_changed" | "notifications/message") => false,
        Some(_) => true,
        None => {
            let id = message.id().unwrap_or_default().trim_matches('"');
            let said = text(message);
            let is_echo = said.starts_with('s') && said.contains("-echo-");
            !own(id) && id != "open" || is_echo && said != format!("{id}-echo-")
        }
    }
}

/// The messages that sessions got, and the calls that they cancelled.
#[derive(Debug, Default)]
struct Tally {
    answers: u64,
    progress: u64,
    updates: u64,
    others: u64,
    cancels: u64,
}

impl Tally {
    fn count(&mut self, message: &Message) {
        let kind = match message.method().as_deref() {
            None => &mut self.answers,
            Some("notifications/progress") => &mut self.progress,
            Some("notifications/resources/updated") => &mut self.updates,
            Some(_) => &mut self.others,
        };
        *kind += 1;
    }

    fn add(&mut self, other: &Self) {
        self.answers += other.answers;
        self.progress += other.progress;
        self.updates += other.updates;
        self.others += other.others;
        self.cancels += other.cancels;
    }
}

/// Plays one session until the budget is spent.
fn play(session: usize, client: &Client, left: &AtomicU64) -> anyhow::Result<Tally> {
    let opened = client.open(&json!({}))?;
    ensure!(opened.at("/result").is_object(), "{opened:?}");
    let mut open = BTreeSet::new();
    let mut tally = Tally::default();
    let mut next = 0_u64;
    let send = |next: u64| -> anyhow::Result<Option<String>> {
        let id = format!("s{session}-{next}");
        let quoted = json!(id).to_string();
        let uri = json!({ "uri": "fixture:///blob" });
        let line = match next % 16 {
            0 if session.is_multiple_of(2) => request_line(&quoted, "resources/subscribe", &uri),
            3 => wrapping::call(&quoted, "alpha__touch", &uri),
            5 => {
                let params = json!({ "name": "alpha__sleep", "arguments": { "ms": 20, "steps": 4 },
                    "_meta": { "progressToken": id } });
                request_line(&quoted, "tools/call", &params)
            }
            7 => {
                let slow = json!({ "name": "beta__sleep", "arguments": { "ms": 60_000 } });
                client.send(&request_line(&quoted, "tools/call", &slow))?;
                let params = json!({ "requestId": id });
                let method = "notifications/cancelled";
                client.send(
                    &json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string(),
                )?;
                return Ok(None);
            }
            number => {
                let server = if number % 2 == 0 { "alpha" } else { "beta" };
                let said = json!({ "text": format!("{id}-echo-") });
                wrapping::call(&quoted, &format!("{server}__echo"), &said)
            }
        };
        client.send(&line)?;
        Ok(Some(id))
    };
    loop {
        while open.len() < OPEN && left.load(Ordering::Relaxed) > 0 {
            match send(next)? {
                Some(id) => _ = open.insert(id),
                None => tally.cancels += 1,
            }
            next += 1;
        }
        if open.is_empty() {
            return Ok(tally);
        }
        let message = client.next()?;
        tally.count(&message);
        ensure!(
            !is_foreign(session, &message),
            "session {session}: {message:?}"
        );
        if let Some(id) = message.id() {
            open.remove(id.trim_matches('"'));
        }
        let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(1))
        });
    }
}

#[test]
#[allow(clippy::print_stderr, reason = "a long run reports its size")]
fn no_message_of_a_shared_server_reaches_another_session() -> anyhow::Result<()> {
    let patient = json!({ "shared": true, "limits": { "restarts": 1_000_000, "restart_period_ms": 1000,
        "backoff_min_ms": 0, "backoff_max_ms": 0, "queue": 4000 } });
    let servers = json!({
        "alpha": entry("--banner", patient.clone())?,
        "beta": entry("", patient)?,
    });
    let wanted = std::env::var(MESSAGES_VARIABLE).ok();
    let wanted = wanted
        .and_then(|wanted| wanted.parse().ok())
        .unwrap_or(MESSAGES);
    let running = serve(Serve::socket()?, &servers)?;
    let (left, is_over) = (AtomicU64::new(wanted), AtomicBool::new(false));
    let kills = AtomicU64::new(0);
    let began = Instant::now();
    let tally = std::thread::scope(|scope| -> anyhow::Result<Tally> {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|session| {
                let (running, left) = (&running, &left);
                scope.spawn(move || play(session, &running.connect()?, left))
            })
            .collect();
        // Each server in turn, and only after messages have arrived since the last kill: on a busy machine a server
        // may need longer to start than the pause.
        scope.spawn(|| {
            let mut arrived = wanted;
            for is_alpha in [true, false].into_iter().cycle() {
                while !is_over.load(Ordering::Relaxed)
                    && left.load(Ordering::Relaxed) + BETWEEN_KILLS > arrived
                {
                    std::thread::sleep(PAUSE);
                }
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(PAUSE);
                let mut servers = servers_below(running.pid()).into_iter();
                let victim = servers.find(|pid| has_word(*pid, "--banner") == is_alpha);
                kills.fetch_add(u64::from(victim.is_some_and(kill)), Ordering::Relaxed);
                arrived = left.load(Ordering::Relaxed);
            }
        });
        let played: Vec<anyhow::Result<Tally>> = sessions
            .into_iter()
            .map(|session| session.join().map_err(|_| anyhow::anyhow!("it panicked"))?)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let mut whole = Tally::default();
        for tally in played {
            whole.add(&tally?);
        }
        Ok(whole)
    })?;
    ensure!(left.into_inner() == 0);
    let kills = kills.into_inner();
    ensure!(kills > 0, "no server was killed");
    eprintln!("{tally:?}, {kills} kills, {:.0?}", began.elapsed());
    running.stop()
}

#[test]
fn clients_of_a_file_share_the_servers_that_it_declares() -> anyhow::Result<()> {
    let servers = json!({
        "mine": entry("--page 50", json!({}))?,
        "ours": entry("--page 51", json!({ "shared": true }))?,
    });
    let running = serve(Serve::socket()?, &servers)?;
    let clients = [running.connect()?, running.connect()?, running.connect()?];
    for client in &clients {
        client.open(&json!({}))?;
        for server in ["mine", "ours"] {
            crate::says(client, "1", &format!("{server}__echo"), server)?;
        }
    }
    let of = |word: &str| {
        let servers = servers_below(running.pid()).into_iter();
        servers.filter(|pid| has_word(*pid, word)).count()
    };
    ensure!((of("50"), of("51")) == (3, 1));
    running.stop()
}

/// Clients of the servers of others; with [`MEASURE`] eight of them, beside eight with servers of their own.
const CLIENTS: usize = 2;
const MEASURE: &str = "MAINSTAY_SHARE_MEASURE";

/// The variables that a terminal, an editor, ssh and a desktop give to the clients that they start, beside those of
/// the user. Each value differs from client to client.
const SURROUNDINGS: [&[&str]; 4] = [
    &[
        "TERM",
        "COLORTERM",
        "WINDOWID",
        "TERM_SESSION_ID",
        "TMUX_PANE",
    ],
    &[
        "VSCODE_PID",
        "VSCODE_IPC_HOOK",
        "TERM_PROGRAM",
        "ELECTRON_RUN_AS_NODE_PARENT",
    ],
    &["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_AUTH_SOCK"],
    &[
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "DBUS_SESSION_BUS_ADDRESS",
        "XDG_SESSION_ID",
    ],
];

/// The memory of a process and all below it, in KiB: each page that several share counts in parts.
fn memory(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    pids.iter().filter_map(of).sum()
}

/// The processes with a variable of this value.
fn started(marker: &str) -> Vec<u32> {
    mainstay_testkit::process::marked("MAINSTAY_SHARE_TEST", marker)
}

/// A client of a server of others.
fn client_of(mut command: Command) -> anyhow::Result<Relay> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().context("its output")?;
    let input = child.stdin.take().context("its input")?;
    let client = Client::new(output, input).with_patience(Duration::from_secs(600));
    client.open(&json!({}))?;
    Ok(Relay { child, client })
}

#[test]
#[allow(clippy::print_stderr, reason = "a measurement reports to its terminal")]
fn clients_share_servers_of_others() -> anyhow::Result<()> {
    let is_measured = std::env::var_os(MEASURE).is_some();
    let count = if is_measured { 8 } else { CLIENTS };
    let user = User::new()?;
    let files = user.folder.join("files");
    std::fs::create_dir(&files)?;
    let mut servers = Vec::new();
    for server in Foreign::FOREIGN {
        match server.command(&files)? {
            Some(command) => servers.push((server, command)),
            None => eprintln!("{server:?} is not installed (cargo xtask tools installs it)"),
        }
    }
    let mut relays = Vec::new();
    let mut ready = Vec::new();
    for number in 0..count {
        for (server, words) in &servers {
            let began = Instant::now();
            let mut command = user.command()?;
            for variable in SURROUNDINGS[number % SURROUNDINGS.len()] {
                command.env(variable, number.to_string());
            }
            command.args(["share", "--shared", "--name", &format!("{server:?}"), "--"]);
            command.args(words);
            let relay = client_of(command)?;
            if number > 0 {
                ready.push(began.elapsed());
            }
            let (tool, arguments) = server.quick_call(&files);
            let answer = relay.client.call("1", tool, &arguments)?;
            ensure!(answer.at("/result/content").is_array(), "{answer:?}");
            relays.push(relay);
        }
    }
    let shared = user.servers()?;
    ensure!(shared.len() == servers.len(), "{shared:?}");
    let has_all = |(_, sessions): &(u64, u64)| *sessions == count as u64;
    ensure!(shared.iter().all(has_all), "{shared:?}");
    if !is_measured || servers.is_empty() {
        return Ok(());
    }
    for worker in user.status()?["health"]["workers"]
        .as_array()
        .context("workers")?
    {
        eprintln!("{}: {}", worker["name"], worker["facts"]);
    }
    for (server, words) in &servers {
        let mut command = user.command()?;
        command.args(["share", "--"]).args(words);
        let output = command.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = said.lines().find(|line| line.contains("of its own"));
        eprintln!("{server:?}, not declared: {}", why.unwrap_or("shared"));
        let mut command = user.command()?;
        command.args(["share", "check", "--"]).args(words);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
        eprintln!("check {server:?}: {:?} {said}", output.status.code());
    }
    // Children of the host: a shim for each server, and the server.
    let host = user.host()?;
    let mut family = vec![host];
    family.extend(relays.iter().map(|relay| relay.child.id()));
    family.extend(
        shared
            .iter()
            .filter_map(|(pid, _)| u32::try_from(*pid).ok()),
    );
    family.extend(children_of(host));
    family.sort_unstable();
    family.dedup();
    let together = memory(&family);
    let processes = family.len();
    drop(relays);
    let marker = format!("{}", std::process::id());
    let mut separate = Vec::new();
    for _ in 0..count {
        for (_, words) in &servers {
            let (program, arguments) = words.split_first().context("a command")?;
            let mut command = Command::new(program);
            command.args(arguments).env("MAINSTAY_SHARE_TEST", &marker);
            separate.push(client_of(command)?);
        }
    }
    let alone = started(&marker);
    let apart = memory(&alone);
    ready.sort_unstable();
    let median = ready[ready.len() / 2];
    eprintln!(
        "{count} clients x {} servers: shared {processes} processes {} MiB, separate {} processes {} MiB, \
         ratio {:.3}; later clients ready within {median:?} (median), {:?} (fastest), {:?} (slowest)",
        servers.len(),
        together / 1024,
        alone.len(),
        apart / 1024,
        together as f64 / apart as f64,
        ready[0],
        ready[ready.len() - 1],
    );
    Ok(())
}

/// The servers among the processes below this one. Shared ones do not have the variables that mark those of a test.
pub(crate) fn servers_below(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = vec![parent];
    while let Some(pid) = next.pop() {
        let children = children_of(pid);
        next.extend(&children);
        found.extend(children.into_iter().filter(|pid| {
            let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            program.file_name().is_some_and(|name| name == SERVER)
        }));
    }
    found
}

/// True if a process was started with this argument.
pub(crate) fn has_word(pid: u32, word: &str) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0);
    words.any(|other| other == word.as_bytes())
}

/// The processes whose parent is this one.
fn children_of(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        after.split_whitespace().nth(1) == Some(&parent.to_string())
    })
    .collect()
}
