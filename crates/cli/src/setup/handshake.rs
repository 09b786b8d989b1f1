//! A server, started as its client starts it, and asked for its tools.
//!
//! A server that is not wrapped is started through `mainstay wrap`, so that nothing of it is left behind. The host gets
//! directories of its own: it would otherwise answer with the lists of an earlier run.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use mainstay_contract::render::{shorten, visible};
use mainstay_host::files;
use serde_json::Value;

use crate::adopt::Launch;
use crate::answer::Refused;
use crate::client::Client;
use crate::exit::Failure;

/// Time for a server to answer. Its first start may download its program.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Time for the host to end, after which it is killed.
const GRACE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);
/// Servers that are started at the same time.
const TOGETHER: usize = 4;
/// Characters of a server's last words.
const WORDS: usize = 300;

/// A server that answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) tools: Vec<Value>,
    pub(crate) took: Duration,
}

/// Asks all servers, a few at a time, and returns the answers in the same order.
pub(crate) fn ask_all(launches: &[Launch]) -> Vec<Result<Answered, String>> {
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Option<Result<Answered, String>>>> =
        Mutex::new(launches.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER.min(launches.len()) {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(launch) = launches.get(at)
                {
                    let answer = ask(launch);
                    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(place) = answers.get_mut(at) {
                        *place = Some(answer);
                    }
                }
            });
        }
    });
    let answers = answers.into_inner();
    let answers = answers.unwrap_or_else(PoisonError::into_inner).into_iter();
    answers
        .map(|answer| answer.unwrap_or_else(|| Err("it was not asked".to_owned())))
        .collect()
}

/// Starts a server and asks it for its tools. The error says in one line why there is no answer.
fn ask(launch: &Launch) -> Result<Answered, String> {
    let (tools, took) = converse(launch, |client| Ok(client.tools()?.tools))?;
    Ok(Answered { tools, took })
}

/// Starts a server, opens a session, and asks. The error says in one line why there is no answer.
pub(crate) fn converse<T: Send + 'static>(
    launch: &Launch,
    talk: impl FnOnce(&mut Client) -> Result<T, Refused> + Send + 'static,
) -> Result<(T, Duration), String> {
    let folder = Folder::new().map_err(|error| format!("there is no place for it: {error}"))?;
    let began = Instant::now();
    let (stream, mut host) = start(launch, &folder.0)
        .map_err(|error| format!("{} cannot be started: {error}", visible(&launch.program)))?;
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let asked = Client::open(stream).and_then(|mut client| talk(&mut client));
        let asked = asked.map_err(|refused| format!("{:#}", Failure::from(refused).error));
        let _ = send.send(asked);
    });
    let asked = receive.recv_timeout(PATIENCE);
    let took = began.elapsed();
    end(&mut host);
    match asked {
        Ok(Ok(answer)) => Ok((answer, took)),
        Ok(Err(reason)) => Err(one_line(&reason, &folder.0)),
        Err(_) => {
            let reason = format!("it did not answer within {} s", PATIENCE.as_secs());
            Err(one_line(&reason, &folder.0))
        }
    }
}

/// A reason, with the last line of the server's own where the reason has none.
fn one_line(reason: &str, folder: &Path) -> String {
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let is_own = |line: &&str| !line.trim().is_empty() && !line.contains(" mcp:");
    let last = log.lines().rfind(is_own).map(str::trim);
    let reason = match last {
        Some(last) if !reason.contains(last) => format!("{reason}; its last line: {last}"),
        _ => reason.to_owned(),
    };
    shorten(&visible(&reason), WORDS)
}

fn start(launch: &Launch, folder: &Path) -> std::io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = if launch.is_wrapped {
        Command::new(&launch.program)
    } else {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["wrap", "--"]).arg(&launch.program);
        command
    };
    command
        .args(&launch.arguments)
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .env("MAINSTAY_RUNTIME_DIR", folder)
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"))
        .env("MAINSTAY_STATE_DIR", folder.join("state"))
        .env("MCP_READY_FILE", folder.join("ready"))
        .env_remove("MCP_ENDPOINT")
        .env_remove("MAINSTAY_TELEMETRY")
        .stdin(OwnedFd::from(theirs.try_clone()?))
        .stdout(OwnedFd::from(theirs))
        .stderr(File::create(folder.join("log"))?);
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    Ok((ours, command.spawn()?))
}

/// Ends a host whose client has left.
fn end(host: &mut Child) {
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if !matches!(host.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(STEP);
    }
    // Its shim kills the server.
    let _ = host.kill();
    let _ = host.wait();
}

/// A private directory that ends with the question.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mainstay-check-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        files::create_private(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
