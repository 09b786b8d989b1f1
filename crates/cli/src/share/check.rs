//! `mainstay share check`: may clients share one process of a server?
//!
//! The check starts the server as a client would and as the share host would, in two working directories, and compares. It
//! calls only tools that declare that they change nothing and that need no arguments. It finds signs, not proofs: a server
//! that keeps state of its own and hides it cannot be told from one that does not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use mainstay_contract::dialect::MODERN_VERSION;
use mainstay_contract::render::visible;
use serde_json::{Map, Value, json};

use super::probe::{Launch, Server};
use super::server;
use crate::args::ShareCheck;
use crate::environment;
use crate::exit::{self, Failure, print};
use crate::program;

/// Time for each answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for questions that a server asks after its handshake.
const LISTEN: Duration = Duration::from_millis(500);
/// Requests of each session that are open at once.
const OPEN: usize = 8;
/// Tools that are called.
const CALLS: usize = 4;
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
    let (program, arguments) = wanted
        .command
        .split_first()
        .ok_or_else(|| Failure::input(anyhow!("there is no server to check")))?;
    let launch = Launch {
        program: std::path::absolute(program::find(program)?).map_err(Failure::input)?,
        arguments: arguments.to_vec(),
        environment: server::chosen(environment::inherited(), &[])?,
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
    let opened = client.open(stateless, &offers)?;
    let lists = client.lists(&opened)?;
    client.listen(LISTEN);
    // As the share host would, elsewhere: the lists must not depend on the place or on the client.
    let mut shared = launch.start(&folder.0)?;
    let again = shared.open(stateless, &json!({}))?;
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
        let verdict = match self.against.is_empty() {
            true => "The server looks safe to share. Declare it with --shared.",
            false => "The server is not safe to share:",
        };
        lines.push(verdict.to_owned());
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

impl Server {
    /// The first page of each list that the server declares.
    fn lists(&mut self, opened: &Map<String, Value>) -> Result<Vec<Vec<Value>>, Failure> {
        let mut lists = Vec::new();
        for (capability, method) in LISTS {
            let declared = opened.get("capabilities");
            let declared = declared.and_then(|declared| declared.get(capability));
            let mut items = Vec::new();
            if declared.is_some() {
                let answer = self.call(method, &json!({}))?;
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
        let (mut open, mut tokens) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..OPEN {
            for session in ["one", "two"] {
                let tool = tools.get(number % tools.len().max(1));
                let id = match tool {
                    Some(tool) => {
                        let token = format!("token-{session}-{number}");
                        let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": token } });
                        tokens.insert(json!(token).to_string());
                        self.request(session, "tools/call", &params)?
                    }
                    // The stateless revision has no ping.
                    None => self.request(session, "tools/list", &json!({}))?,
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
        if let Some(token) = self.reported.difference(&tokens).next() {
            let shown = visible(token).into_owned();
            let said = format!("it reports progress under {shown}, which no call has");
            report.against.push(said);
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
