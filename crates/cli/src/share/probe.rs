//! A process of a server that a command asks directly, without a host.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use mainstay_contract::dialect::{LEGACY_VERSIONS, MODERN_VERSION};
use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::meta;
use mainstay_contract::method::Method;
use rustix::process::{Pid, Signal};
use serde_json::{Map, Value, json};

use crate::exit::Failure;
use crate::server_file::FRAME_BYTES;

/// Time for a server to answer a method that it may not know.
const DISCOVER: Duration = Duration::from_secs(30);
/// Time for a server to end by itself once its input has ended.
const FAREWELL: Duration = Duration::from_secs(2);
/// Pause between two looks if it has.
const LOOK: Duration = Duration::from_millis(10);
/// Lines of a server that wait to be read, and lines for it that wait to be written.
const LINES: usize = 1024;
/// Questions of a server, and tokens of its progress, that are recorded.
const RECORDED: usize = 1024;

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
            std::thread::spawn(move || read_messages(output, &sender));
        }
        let (input, for_input) = sync_channel::<String>(LINES);
        if let Some(mut output) = child.stdin.take() {
            // A server that does not read must not hold up this process.
            std::thread::spawn(move || {
                while let Ok(line) = for_input.recv() {
                    if output.write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Server {
            child,
            input: Some(input),
            lines,
            patience: self.patience,
            next: 0,
            stateless: None,
            asked: BTreeSet::new(),
            reported: BTreeSet::new(),
        })
    }
}

/// Reads messages until the output ends. Lines that are not JSON, or too long, are left out.
fn read_messages(mut output: impl Read, sender: &SyncSender<Value>) {
    let mut reader = FrameReader::new(FRAME_BYTES);
    loop {
        match output.read(reader.spare()) {
            Ok(0) => return,
            Ok(count) => reader.filled(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
        while let Some(frame) = reader.next_frame() {
            let Frame::Line(line) = frame else { continue };
            let Ok(message) = serde_json::from_slice::<Value>(line) else {
                continue;
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    }
}

/// A process of the server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// Lines for it; closed when the server is to end.
    input: Option<SyncSender<String>>,
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
        drop(self.input.take());
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
        let failed = |said| Failure::input(anyhow!("the server {said} during the check"));
        let Some(input) = &self.input else {
            return Err(failed("ended"));
        };
        input
            .try_send(format!("{message}\n"))
            .map_err(|error| match error {
                TrySendError::Full(_) => failed("does not read its input"),
                TrySendError::Disconnected(_) => failed("ended"),
            })
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
        self.answer_until(Instant::now() + self.patience)
    }

    fn answer_until(&mut self, until: Instant) -> Result<(Value, Value), Failure> {
        loop {
            match self.next_message(until) {
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

    /// The next message, before a time that a server that floods cannot put off.
    fn next_message(&self, until: Instant) -> Result<Value, RecvTimeoutError> {
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => self.lines.recv_timeout(left),
            _ => Err(RecvTimeoutError::Timeout),
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
                        if self.asked.len() < RECORDED {
                            self.asked.insert(method.to_owned());
                        }
                        let error = json!({ "code": -32601, "message": "not offered" });
                        json!({ "jsonrpc": "2.0", "id": id, "error": error })
                    }
                };
                self.send(&answer)?;
                Ok(None)
            }
            (None, Some(id)) => Ok(Some((id, message))),
            (_, None) => {
                if method == Some("notifications/progress") && self.reported.len() < RECORDED {
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
        while let Ok(message) = self.next_message(until) {
            let _ = self.read(message);
        }
    }

    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        let id = self.request("check", method, params)?;
        let until = Instant::now() + self.patience;
        loop {
            let (answered, answer) = self.answer_until(until)?;
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
