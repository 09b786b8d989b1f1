//! The fault battery over the servers of others behind `mainstay wrap`: a call that hangs ends at its
//! deadline, a cancel reaches the server, and nothing outlives the host, however it ends.

#![expect(clippy::print_stdout, reason = "what is skipped is said")]

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use mainstay_testkit::foreign::Server;
use mainstay_testkit::oracle::Failure;
use mainstay_testkit::peer::{Client, PATIENCE};
use mainstay_testkit::process::{Launch, Running, binary, kill};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

macro_rules! tests {
    ($claim:ident: $($name:ident: $server:ident;)*) => {$(
        #[test]
        fn $name() -> anyhow::Result<()> {
            $claim(Server::$server)
        }
    )*};
}

tests! {
    hanging_call_ends_at_its_deadline:
    everything_that_hangs_times_out: Everything;
    filesystem_that_hangs_times_out: Filesystem;
    memory_that_hangs_times_out: Memory;
    git_that_hangs_times_out: Git;
    time_that_hangs_times_out: Time;
}

tests! {
    cancel_reaches_the_server:
    everything_hears_a_cancel: Everything;
    filesystem_hears_a_cancel: Filesystem;
    memory_hears_a_cancel: Memory;
    git_hears_a_cancel: Git;
    time_hears_a_cancel: Time;
}

tests! {
    nothing_outlives_a_killed_host:
    everything_leaves_nothing_behind: Everything;
    filesystem_leaves_nothing_behind: Filesystem;
    memory_leaves_nothing_behind: Memory;
    git_leaves_nothing_behind: Git;
    time_leaves_nothing_behind: Time;
}

/// The timeout of calls in the tests of deadlines.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How late an answer at a deadline may be on a busy machine.
const LATE: Duration = Duration::from_secs(60);
/// Passes what it reads on to a server, and keeps both directions in files.
const RECORDER: &str = r#"heard=$1 said=$2; shift 2; tee -- "$heard" | "$@" | tee -- "$said""#;

/// A session with a wrapped server of others.
struct Session {
    server: Server,
    host: Running,
    client: Client,
    files: PathBuf,
}

impl Session {
    /// Opens it behind `mainstay wrap` with these options; nothing if the server is not installed.
    fn open(server: Server, options: &[&str]) -> anyhow::Result<Option<Self>> {
        Self::start(server, options, false)
    }

    /// The same with both directions recorded, at the server's own pipes.
    fn recorded(server: Server) -> anyhow::Result<Option<Self>> {
        Self::start(server, &[], true)
    }

    fn start(server: Server, options: &[&str], recorded: bool) -> anyhow::Result<Option<Self>> {
        let launch = Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?;
        let files = launch.folder().join("files");
        fs::create_dir(&files).context("creating a folder")?;
        let Some(command) = server.command(&files)? else {
            println!("SKIPPED: {server:?} is not installed (cargo xtask tools installs it)");
            return Ok(None);
        };
        let mut words: Vec<OsString> = options.iter().map(OsString::from).collect();
        words.push("--".into());
        if recorded {
            words.extend(["sh", "-c", RECORDER, "sh"].map(OsString::from));
            words.extend(["heard", "said"].map(|name| files.join(name).into_os_string()));
        }
        words.extend(command);
        let mut host = launch.words(words).spawn()?;
        let client = host.take_client()?;
        let session = Self {
            server,
            host,
            client,
            files,
        };
        let opened = session.client.open(&json!({}));
        opened.with_context(|| format!("standard error: {:#?}", session.host.stderr()))?;
        session.serves("\"first\"")?;
        Ok(Some(session))
    }

    /// A call that is answered at once.
    /// The server answers; a call that misses its deadline on a busy machine is sent again.
    fn serves(&self, id: &str) -> anyhow::Result<()> {
        let (tool, arguments) = self.server.quick_call(&self.files);
        wait_until("the server answers", || {
            let answer = self.client.call(id, tool, &arguments);
            let answer =
                answer.with_context(|| format!("standard error: {:#?}", self.host.stderr()))?;
            match Failure::read(&answer) {
                None => Ok(true),
                Some(Failure::Timeout) => Ok(false),
                Some(_) => bail!("{tool}: {answer:?}"),
            }
        })
    }

    fn process(&self) -> anyhow::Result<u32> {
        let found = self.server.processes(&self.host);
        ensure!(found.len() == 1, "its processes: {found:?}");
        found.first().copied().context("it does not run")
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.process()?)?).context("no process")?;
        kill_process(pid, signal).context("signalling the server")
    }

    /// Nobody is answered for so long; notices may come.
    fn unanswered(&self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while let Some(message) = self.client.next_until(until)? {
            ensure!(message.id().is_none(), "unasked: {message:?}");
        }
        Ok(())
    }

    fn recording(&self, name: &str) -> anyhow::Result<String> {
        fs::read_to_string(self.files.join(name)).with_context(|| format!("reading {name}"))
    }

    fn close(mut self) -> anyhow::Result<()> {
        self.client.finish()?;
        let status = self.host.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !done()? {
        ensure!(Instant::now() < until, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The whole server stands still, as with a deadlock: the call ends, and so does the server, since
/// it does not answer pings either; the session is served by its successor.
fn hanging_call_ends_at_its_deadline(server: Server) -> anyhow::Result<()> {
    let seconds = TIMEOUT.as_secs().to_string();
    let Some(session) = Session::open(server, &["--timeout", &seconds])? else {
        return Ok(());
    };
    let stopped = session.process()?;
    session.signal(Signal::STOP)?;
    let (tool, arguments) = server.quick_call(&session.files);
    let start = Instant::now();
    let answer = session.client.call("\"hangs\"", tool, &arguments)?;
    let after = start.elapsed();
    ensure!(
        Failure::read(&answer) == Some(Failure::Timeout),
        "{answer:?}"
    );
    ensure!((TIMEOUT..TIMEOUT + LATE).contains(&after), "{after:?}");
    // A call that meets a successor that is still starting has the same deadline.
    let mut tries = 0..;
    wait_until("the session is served again", || {
        let id = format!("\"next-{}\"", tries.next().unwrap_or(0));
        let answer = session.client.call(&id, tool, &arguments)?;
        let failure = Failure::read(&answer);
        // One that it had when it was given up may have run.
        ensure!(
            matches!(
                failure,
                None | Some(Failure::Timeout | Failure::OutcomeUnknown)
            ),
            "{answer:?}"
        );
        Ok(failure.is_none())
    })?;
    wait_until("what stood still has gone", || {
        Ok(!server.processes(&session.host).contains(&stopped))
    })?;
    session.close()
}

/// A tool that takes its time, in a server that lives: the call ends, the server stays.
#[test]
fn server_that_is_only_slow_keeps_its_state_at_a_deadline() -> anyhow::Result<()> {
    let Some(session) = Session::open(Server::Everything, &["--timeout", "10"])? else {
        return Ok(());
    };
    let before = session.process()?;
    let start = Instant::now();
    let arguments = json!({"duration": 120, "steps": 2});
    let tool = "trigger-long-running-operation";
    let answer = session.client.call("\"slow\"", tool, &arguments)?;
    let after = start.elapsed();
    ensure!(
        Failure::read(&answer) == Some(Failure::Timeout),
        "{answer:?}"
    );
    let due = TIMEOUT;
    ensure!((due..due + LATE).contains(&after), "{after:?}");
    session.serves("\"next\"")?;
    // Past the grace in which one that does not react would be given up.
    std::thread::sleep(Duration::from_millis(2500));
    session.serves("\"later\"")?;
    ensure!(session.process()? == before, "it was replaced");
    session.close()
}

/// What the client says to cancel a call arrives at the server's own standard input, after the call.
fn cancel_reaches_the_server(server: Server) -> anyhow::Result<()> {
    let Some(session) = Session::recorded(server)? else {
        return Ok(());
    };
    // So that the call is in flight for certain.
    session.signal(Signal::STOP)?;
    let (tool, arguments) = server.quick_call(&session.files);
    let call = json!({"jsonrpc": "2.0", "id": "given-up", "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}});
    session.client.send(&call.to_string())?;
    wait_until("the call is sent", || {
        Ok(session.recording("heard")?.contains("\"given-up\""))
    })?;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": "given-up", "reason": "no longer needed"}});
    session.client.send(&cancel.to_string())?;
    wait_until("the cancel is sent", || {
        Ok(session
            .recording("heard")?
            .contains("notifications/cancelled"))
    })?;
    let heard = session.recording("heard")?;
    let lines: Vec<&str> = heard.lines().collect();
    let place = |line: String| lines.iter().position(|heard| **heard == line);
    let (call, cancel) = (place(call.to_string()), place(cancel.to_string()));
    ensure!(call.is_some() && cancel > call, "{lines:#?}");
    session.signal(Signal::CONT)?;
    session.serves("\"next\"")?;
    session.unanswered(Duration::from_millis(100))?;
    session.close()
}

/// The server itself gives the work up: it never answers what it would have answered soon.
#[test]
fn cancelled_operation_is_given_up_by_the_server() -> anyhow::Result<()> {
    let Some(session) = Session::recorded(Server::Everything)? else {
        return Ok(());
    };
    let operate = |id: &str| {
        // Long enough for a cancel to arrive on a busy machine.
        let arguments = json!({"duration": 20, "steps": 1});
        let params = json!({"name": "trigger-long-running-operation", "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        session.client.send(&call.to_string())?;
        let named = format!("\"{id}\"");
        wait_until("the call is sent", || {
            Ok(session.recording("heard")?.contains(&named))
        })
    };
    operate("cancelled")?;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": "cancelled"}});
    session.client.send(&cancel.to_string())?;
    // It starts later, so its answer follows that of the first, if there is one.
    operate("kept")?;
    session.client.answer("\"kept\"")?;
    let said = session.recording("said")?;
    ensure!(said.contains("\"kept\""), "nothing was recorded: {said}");
    ensure!(!said.contains("\"cancelled\""), "it was answered: {said}");
    session.close()
}

/// At rest, in the middle of a call, and while it stands still.
fn nothing_outlives_a_killed_host(server: Server) -> anyhow::Result<()> {
    for (moment, recorded) in [("rest", false), ("call", false), ("stopped", true)] {
        let session = Session::start(server, &[], recorded)?;
        let Some(mut session) = session else {
            return Ok(());
        };
        ensure!(session.host.family().len() >= 3, "host, shim and server");
        match moment {
            "call" => {
                let (tool, arguments) = server.quick_call(&session.files);
                let params = json!({"name": tool, "arguments": arguments});
                for id in 0..8 {
                    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                        "params": params});
                    session.client.send(&call.to_string())?;
                }
            }
            "stopped" => session.signal(Signal::STOP)?,
            _ => {}
        }
        ensure!(kill(session.host.pid()), "the host had gone");
        wait_until("everything has gone", || {
            Ok(session.host.family().is_empty())
        })
        .with_context(|| format!("{moment}: left over {:?}", session.host.family()))?;
        session.host.wait()?;
    }
    Ok(())
}
