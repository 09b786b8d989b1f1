//! A process of a server that a command asks directly, without a host.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use mainstay_contract::dialect::{LEGACY_VERSIONS, MODERN_VERSION};
use mainstay_contract::meta;
use mainstay_contract::method::Method;
use rustix::process::{Pid, Signal};
use serde_json::{Map, Value, json};

use crate::exit::Failure;

/// Time for a server to answer a method that it may not know.
const DISCOVER: Duration = Duration::from_secs(30);
/// Time for a server to end by itself once its input has ended.
const FAREWELL: Duration = Duration::from_secs(2);
/// Pause between two looks if it has.
const LOOK: Duration = Duration::from_millis(10);
/// Lines of a server that wait to be read.
const LINES: usize = 1024;

/// The way to start a server.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    /// The whole environment.
    pub(super) environment: BTreeMap<String, String>,
    /// Time for each answer.
    pub(super) patience: Duration,
}

impl Launch {
    /// Starts the server.
    pub(super) fn start(&self, directory: &Path) -> Result<Server, Failure> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            .process_group(0)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))
            .map_err(Failure::input)?;
        let (sender, lines) = sync_channel(LINES);
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    let Ok(line) = line else { return };
                    let Ok(message) = serde_json::from_str::<Value>(&line) else {
                        continue;
                    };
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Server {
            child,
            lines,
            patience: self.patience,
            next: 0,
            stateless: None,
            asked: BTreeSet::new(),
            reported: BTreeSet::new(),
        })
    }
}

/// A process of the server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    lines: Receiver<Value>,
    patience: Duration,
    next: u64,
    /// The client's capabilities, which each request of the stateless revision carries.
    stateless: Option<Value>,
    /// Methods of its questions.
    pub(super) asked: BTreeSet<String>,
    /// Tokens that it reported progress under.
    pub(super) reported: BTreeSet<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let until = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        // A starter such as npx leaves its server behind.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}

impl Server {
    fn send(&mut self, message: &Value) -> Result<(), Failure> {
        let lost = || Failure::input(anyhow!("the server ended during the check"));
        let input = self.child.stdin.as_mut().ok_or_else(lost)?;
        let sent = writeln!(input, "{message}").and_then(|()| input.flush());
        sent.map_err(|_| lost())
    }

    pub(super) fn request(
        &mut self,
        session: &str,
        method: &str,
        params: &Value,
    ) -> Result<String, Failure> {
        self.next += 1;
        let id = format!("{session}-{}", self.next);
        let mut params = params.clone();
        if let (Some(capabilities), Some(members)) = (&self.stateless, params.as_object_mut()) {
            let own = members.entry("_meta").or_insert_with(|| json!({}));
            if let Some(own) = own.as_object_mut() {
                own.extend(stateless_meta(capabilities));
            }
        }
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&request)?;
        Ok(id)
    }

    /// The next answer, by its id. Questions are recorded and refused.
    pub(super) fn answer(&mut self) -> Result<(Value, Value), Failure> {
        let until = Instant::now() + self.patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(message) => {
                    if let Some(answered) = self.read(message)? {
                        return Ok(answered);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = self.patience.as_secs();
                    let said = anyhow!("the server did not answer within {seconds} s");
                    return Err(Failure::input(said).hint("give it more time with --timeout"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::input(anyhow!("the server ended during the check")));
                }
            }
        }
    }

    fn read(&mut self, message: Value) -> Result<Option<(Value, Value)>, Failure> {
        let method = message.get("method").and_then(Value::as_str);
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        match (method, id) {
            (Some(method), Some(id)) => {
                let answer = match method {
                    "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
                    _ => {
                        self.asked.insert(method.to_owned());
                        let error = json!({ "code": -32601, "message": "not offered" });
                        json!({ "jsonrpc": "2.0", "id": id, "error": error })
                    }
                };
                self.send(&answer)?;
                Ok(None)
            }
            (None, Some(id)) => Ok(Some((id, message))),
            (_, None) => {
                if method == Some("notifications/progress") {
                    let token = message.pointer("/params/progressToken");
                    self.reported.extend(token.map(ToString::to_string));
                }
                Ok(None)
            }
        }
    }

    /// Records questions for a while.
    pub(super) fn listen(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(message) = self.lines.recv_timeout(left) else {
                return;
            };
            let _ = self.read(message);
        }
    }

    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        let id = self.request("check", method, params)?;
        loop {
            let (answered, answer) = self.answer()?;
            if answered == id {
                return Ok(answer);
            }
        }
    }

    /// True if the server speaks the stateless revision.
    pub(super) fn discovers(mut self) -> bool {
        self.patience = self.patience.min(DISCOVER);
        self.stateless = Some(json!({}));
        let answer = self.call(Method::Discover.name(), &json!({}));
        answer.is_ok_and(|answer| {
            let versions = answer.pointer("/result/supportedVersions");
            let versions = versions.and_then(Value::as_array);
            versions.is_some_and(|versions| versions.contains(&json!(MODERN_VERSION)))
        })
    }

    /// Opens a session, or describes a stateless server. Returns the server's introduction.
    pub(super) fn open(
        &mut self,
        is_stateless: bool,
        capabilities: &Value,
    ) -> Result<Map<String, Value>, Failure> {
        self.stateless = is_stateless.then(|| capabilities.clone());
        let [newest, ..] = LEGACY_VERSIONS;
        let (method, params) = match is_stateless {
            true => (Method::Discover, json!({})),
            false => {
                let client = json!({ "name": "mainstay", "version": crate::VERSION });
                let params = json!({
                    "protocolVersion": newest, "capabilities": capabilities, "clientInfo": client,
                });
                (Method::Initialize, params)
            }
        };
        let answer = self.call(method.name(), &params)?;
        let Some(Value::Object(result)) = answer.get("result").cloned() else {
            let said = anyhow!("the server refused to open a session: {answer}");
            return Err(Failure::input(said));
        };
        if !is_stateless {
            self.send(&json!({ "jsonrpc": "2.0", "method": Method::Initialized.name() }))?;
        }
        Ok(result)
    }
}

/// The `_meta` members of each request of the stateless revision.
fn stateless_meta(capabilities: &Value) -> [(String, Value); 3] {
    let client = json!({ "name": "mainstay", "version": crate::VERSION });
    [
        (meta::PROTOCOL_VERSION.to_owned(), json!(MODERN_VERSION)),
        (meta::CLIENT_CAPABILITIES.to_owned(), capabilities.clone()),
        (meta::CLIENT_INFO.to_owned(), client),
    ]
}
