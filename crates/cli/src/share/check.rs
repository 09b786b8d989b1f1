//! `mainstay share check`: may clients share one process of a server?
//!
//! The check starts the server as a client would and as the share host would, in two working directories, and compares. It
//! calls only tools that declare that they change nothing and that need no arguments. It finds signs, not proofs: a server
//! that keeps state of its own and hides it cannot be told from one that does not.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use mainstay_contract::dialect::{LEGACY_VERSIONS, MODERN_VERSION};
use mainstay_contract::render::visible;
use serde_json::{Map, Value, json};

use super::server;
use crate::args::ShareCheck;
use crate::environment;
use crate::exit::{self, Failure, print};
use crate::program;

/// Time for each answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for questions that a server asks after its handshake.
const LISTEN: Duration = Duration::from_millis(500);
/// Time for a server to answer a method that it may not know.
const DISCOVER: Duration = Duration::from_secs(10);
/// Requests of each session that are open at once.
const OPEN: usize = 8;
/// Tools that are called.
const CALLS: usize = 4;
/// Lines of a server that wait to be read.
const LINES: usize = 1024;
/// Lists that are compared.
const LISTS: [(&str, &str); 4] = [
    ("tools", "tools/list"),
    ("prompts", "prompts/list"),
    ("resources", "resources/list"),
    ("resources", "resources/templates/list"),
];

/// The signs that were found.
#[derive(Debug, Default)]
struct Report {
    /// Reasons against sharing.
    against: Vec<String>,
    /// Facts that an operator should know.
    notes: Vec<String>,
}

pub(super) fn run(wanted: &ShareCheck) -> Result<ExitCode, Failure> {
    let patience = wanted.timeout.unwrap_or(PATIENCE);
    let mut report = Report::default();
    let folder = Folder::new()?;
    let here = std::env::current_dir()
        .context("cannot find the working directory")
        .map_err(Failure::input)?;
    let launch = Launch {
        command: &wanted.command,
        patience,
    };
    let stateless = launch.start(&here)?.discovers();
    if stateless {
        report.notes.push(format!(
            "the server speaks the stateless revision {MODERN_VERSION}"
        ));
    }
    // As a client would: the server may ask questions.
    let offers = json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": {} });
    let mut client = launch.start(&here)?;
    let opened = client.open(&offers)?;
    let lists = client.lists(&opened)?;
    client.listen(LISTEN);
    // As the share host would, elsewhere: the lists must not depend on the place or on the client.
    let mut shared = launch.start(&folder.0)?;
    let again = shared.open(&json!({}))?;
    let shared_lists = shared.lists(&again)?;
    for ((_, method), (one, other)) in LISTS.iter().zip(lists.iter().zip(&shared_lists)) {
        if one != other {
            report.against.push(format!(
                "{method} differs in another working directory, or for a client without capabilities"
            ));
        }
    }
    if opened.get("capabilities") != again.get("capabilities") {
        let said = "it declares other capabilities to a client without capabilities";
        report.against.push(said.to_owned());
    }
    let declared = opened.get("capabilities");
    if declared.is_some_and(|declared| declared.get("tasks").is_some()) {
        let said = "it declares tasks, which belong to one session";
        report.against.push(said.to_owned());
    }
    let tools = harmless_tools(lists.first());
    shared.interleave(&tools, &mut report)?;
    shared.listen(LISTEN);
    let asked: BTreeSet<&String> = client.asked.iter().chain(&shared.asked).collect();
    for method in asked {
        let shown = visible(method);
        report.against.push(format!(
            "it asks its client ({shown}); a shared server gets no answer"
        ));
    }
    if tools.is_empty() {
        let said = "it has no read-only tool without required arguments, so no tool was called";
        report.notes.push(said.to_owned());
    } else {
        report.notes.push(format!("called: {}", tools.join(", ")));
    }
    print(&report.text())?;
    Ok(match report.against.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(exit::NO),
    })
}

impl Report {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        match self.against.is_empty() {
            true => {
                lines.push("The server looks safe to share. Declare it with --shared.".to_owned())
            }
            false => lines.push("The server is not safe to share:".to_owned()),
        }
        lines.extend(self.against.iter().map(|reason| format!("  - {reason}")));
        lines.extend(self.notes.iter().map(|note| format!("Note: {note}.")));
        lines.join("\n") + "\n"
    }
}

/// Tools that declare that they change nothing, and need no arguments.
fn harmless_tools(listed: Option<&Vec<Value>>) -> Vec<String> {
    let tools = listed.into_iter().flatten();
    let harmless = tools.filter(|tool| {
        let reads = tool.pointer("/annotations/readOnlyHint") == Some(&Value::Bool(true));
        let required = tool.pointer("/inputSchema/required");
        reads && required.and_then(Value::as_array).is_none_or(Vec::is_empty)
    });
    let names = harmless.filter_map(|tool| tool.get("name")?.as_str().map(str::to_owned));
    names.take(CALLS).collect()
}

/// An empty directory that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let path =
            std::env::temp_dir().join(format!("mainstay-share-check-{}", std::process::id()));
        mainstay_host::files::create_private(&path).map_err(Failure::input)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Launch<'a> {
    command: &'a [OsString],
    patience: Duration,
}

impl Launch<'_> {
    /// Starts the server with the environment of a shared one.
    fn start(&self, directory: &Path) -> Result<Server, Failure> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| Failure::input(anyhow!("there is no server to check")))?;
        let environment = server::chosen(environment::inherited(), &[])?;
        let program = std::path::absolute(program::find(program)?).map_err(Failure::input)?;
        let mut child = Command::new(&program)
            .args(arguments)
            .env_clear()
            .envs(environment)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))
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
            asked: BTreeSet::new(),
        })
    }
}

/// A process of the server.
struct Server {
    child: Child,
    lines: Receiver<Value>,
    patience: Duration,
    next: u64,
    /// Methods of its questions.
    asked: BTreeSet<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
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

    fn request(&mut self, session: &str, method: &str, params: Value) -> Result<String, Failure> {
        self.next += 1;
        let id = format!("{session}-{}", self.next);
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&request)?;
        Ok(id)
    }

    /// The next answer, by its id. Questions are recorded and refused.
    fn answer(&mut self) -> Result<(Value, Value), Failure> {
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
            (_, None) => Ok(None),
        }
    }

    /// Records questions for a while.
    fn listen(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(message) = self.lines.recv_timeout(left) else {
                return;
            };
            let _ = self.read(message);
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value, Failure> {
        let id = self.request("check", method, params)?;
        loop {
            let (answered, answer) = self.answer()?;
            if answered == id {
                return Ok(answer);
            }
        }
    }

    /// True if the server speaks the stateless revision.
    fn discovers(mut self) -> bool {
        self.patience = self.patience.min(DISCOVER);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "mainstay", "version": crate::VERSION },
        });
        let answer = self.call("server/discover", json!({ "_meta": meta }));
        answer.is_ok_and(|answer| {
            let versions = answer.pointer("/result/supportedVersions");
            let versions = versions.and_then(Value::as_array);
            versions.is_some_and(|versions| versions.contains(&json!(MODERN_VERSION)))
        })
    }

    /// Opens a session. Returns the server's handshake.
    fn open(&mut self, capabilities: &Value) -> Result<Map<String, Value>, Failure> {
        let [newest, ..] = LEGACY_VERSIONS;
        let params = json!({
            "protocolVersion": newest,
            "capabilities": capabilities,
            "clientInfo": { "name": "mainstay", "version": crate::VERSION },
        });
        let answer = self.call("initialize", params)?;
        let Some(Value::Object(result)) = answer.get("result").cloned() else {
            let said = anyhow!("the server refused to open a session: {answer}");
            return Err(Failure::input(said));
        };
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(result)
    }

    /// The first page of each list that the server declares.
    fn lists(&mut self, opened: &Map<String, Value>) -> Result<Vec<Vec<Value>>, Failure> {
        let mut lists = Vec::new();
        for (capability, method) in LISTS {
            let declared = opened.get("capabilities");
            let declared = declared.and_then(|declared| declared.get(capability));
            let mut items = Vec::new();
            if declared.is_some() {
                let answer = self.call(method, json!({}))?;
                let result = answer.get("result").and_then(Value::as_object);
                let list = result.and_then(|result| result.values().find_map(Value::as_array));
                items = list.cloned().unwrap_or_default();
            }
            lists.push(items);
        }
        Ok(lists)
    }

    /// Two sessions ask at the same time; each answer must belong to one open request.
    fn interleave(&mut self, tools: &[String], report: &mut Report) -> Result<(), Failure> {
        let mut open = BTreeSet::new();
        for number in 0..OPEN {
            for session in ["one", "two"] {
                let tool = tools.get(number % tools.len().max(1));
                let id = match tool {
                    Some(tool) => {
                        let token = format!("token-{session}-{number}");
                        let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": token } });
                        self.request(session, "tools/call", params)?
                    }
                    None => self.request(session, "ping", json!({}))?,
                };
                open.insert(id);
            }
        }
        while !open.is_empty() {
            let (id, _) = self.answer()?;
            if !id.as_str().is_some_and(|id| open.remove(id)) {
                let said = format!("it answered {id}, which no session asked, or twice");
                report.against.push(said);
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tools_that_change_nothing_and_need_nothing_are_called() {
        let tools = vec![
            json!({ "name": "read", "annotations": { "readOnlyHint": true }, "inputSchema": {} }),
            json!({ "name": "write" }),
            json!({ "name": "find", "annotations": { "readOnlyHint": true },
                "inputSchema": { "required": ["text"] } }),
        ];
        assert_eq!(harmless_tools(Some(&tools)), ["read"]);
    }
}
