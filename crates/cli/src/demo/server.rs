//! The server of the demonstration: an MCP server on standard input and output that knows nothing of Mainstay.
//!
//! Three of its tools wait for a file in its folder before they answer, so that the demonstration decides what happens
//! while a call is running, whatever the speed of the machine.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::exit::Failure;

/// A tool that only reads; says nothing special.
pub(super) const COUNT: &str = "count_words";
/// A tool that only reads. Its first call waits in vain.
pub(super) const READ: &str = "read_page";
/// A tool with an effect: it appends a line to [`LETTERS`], then waits in vain.
pub(super) const SEND: &str = "send_letter";
/// A tool that waits until [`GO`] exists.
pub(super) const REPORT: &str = "write_report";

/// Exists once [`READ`] runs.
pub(super) const READING: &str = "reading";
/// The letters that were sent, one per line.
pub(super) const LETTERS: &str = "letters";
/// Exists once [`REPORT`] runs.
pub(super) const WRITING: &str = "writing";
/// Lets [`REPORT`] answer.
pub(super) const GO: &str = "go";

/// Longest wait of a tool: a demonstration that ends early leaves no process behind.
const MOST: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);

/// Serves until standard input ends.
pub(super) fn serve(folder: &Path) -> Result<ExitCode, Failure> {
    for line in io::stdin().lock().lines() {
        let line = line.map_err(Failure::input)?;
        let message: Value = serde_json::from_str(&line).map_err(Failure::input)?;
        let Some(id) = message.get("id") else {
            continue;
        };
        let method = message.get("method").and_then(Value::as_str);
        let params = message.get("params").cloned().unwrap_or_default();
        let answer = match method.unwrap_or_default() {
            "initialize" => Ok(json!({
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "demo", "version": "1.0.0"},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": tools() })),
            "tools/call" => call(folder, &params),
            other => Err(json!({"code": -32601, "message": format!("no method {other}")})),
        };
        let (member, value) = match answer {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        let reply = json!({"jsonrpc": "2.0", "id": id, member: value});
        let mut stdout = io::stdout().lock();
        let sent = writeln!(stdout, "{reply}").and_then(|()| stdout.flush());
        sent.map_err(Failure::input)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tools() -> Value {
    let tool = |name: &str, description: &str, argument: &str, annotations: Value| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
            },
            "annotations": annotations,
        })
    };
    let reads = || json!({"readOnlyHint": true});
    json!([
        tool(COUNT, "Counts the words of a text", "text", reads()),
        tool(READ, "Reads a page of a book", "page", reads()),
        tool(REPORT, "Writes a report about a topic", "topic", reads()),
        tool(
            SEND,
            "Sends a letter",
            "to",
            json!({"readOnlyHint": false, "idempotentHint": false})
        ),
    ])
}

fn call(folder: &Path, params: &Value) -> Result<Value, Value> {
    let name = params.get("name").and_then(Value::as_str);
    let arguments = params.get("arguments").and_then(Value::as_object);
    let argument = arguments.and_then(|all| all.values().next()?.as_str());
    let argument = argument.unwrap_or_default();
    let text = match name.unwrap_or_default() {
        COUNT => format!("{} words", argument.split_whitespace().count()),
        READ => {
            if begins(folder, READING) {
                wait_for(|| false);
            }
            format!("page {argument}: It was a bright cold day in April.")
        }
        SEND => {
            let letters = folder.join(LETTERS);
            let file = OpenOptions::new().append(true).create(true).open(letters);
            let sent = file.and_then(|mut file| writeln!(file, "to {argument}"));
            sent.map_err(|error| json!({"code": -32603, "message": error.to_string()}))?;
            wait_for(|| false);
            format!("sent to {argument}")
        }
        REPORT => {
            begins(folder, WRITING);
            wait_for(|| folder.join(GO).exists());
            format!("the report about {argument}")
        }
        other => return Err(json!({"code": -32602, "message": format!("no tool {other}")})),
    };
    Ok(json!({"content": [{"type": "text", "text": text}]}))
}

/// Creates a file that says that a call runs. False if it exists.
fn begins(folder: &Path, file: &str) -> bool {
    fs::File::create_new(folder.join(file)).is_ok()
}

fn wait_for(mut is_over: impl FnMut() -> bool) {
    let deadline = Instant::now() + MOST;
    while !is_over() && Instant::now() < deadline {
        std::thread::sleep(STEP);
    }
}
