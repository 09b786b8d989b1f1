//! `tree-pack`: a pack whose one tool `grow` starts processes of its own, for tests of what a
//! timeout or a cancel leaves behind.
//!
//! The tool starts a shell that starts another; both append a line to a file every 20 ms, for ever.
//! With `stubborn` it does not listen to cancels, and its processes are not those of the library,
//! so that only the end of the worker's own tree can stop them.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use mainstay_worker::{
    Annotations, Context, ErrorKind, Pack, Problem, Replay, Reply, Subprocess, run, tool_spec,
    typed,
};
use serde::Deserialize;
use serde_json::json;

/// Both shells write until they are killed; the inner one is a grandchild of the worker.
const SCRIPT: &str = r#"
sh -c 'while :; do echo inner >> "$FILE"; sleep 0.02; done' &
while :; do echo outer >> "$FILE"; sleep 0.02; done
"#;

#[derive(Debug, Deserialize)]
struct Grow {
    file: String,
    #[serde(default)]
    stubborn: bool,
}

fn grow(grow: &Grow, context: &Context) -> Result<Reply, Problem> {
    if grow.stubborn {
        Command::new("sh")
            .args(["-c", SCRIPT])
            .env("FILE", &grow.file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| {
                Problem::new(ErrorKind::Internal, format!("cannot start sh: {error}"))
            })?;
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    Subprocess::new("sh")
        .args(["-c", SCRIPT])
        .env("FILE", &grow.file)
        .run(context)?;
    Ok(Reply::json(&json!({ "ok": true })))
}

fn main() -> ExitCode {
    run(env!("CARGO_PKG_VERSION"), |_settings| {
        let spec = tool_spec("grow", "Starts processes that write to a file for ever.")
            .input(json!({
                "type": "object", "additionalProperties": false, "required": ["file"],
                "properties": {"file": {"type": "string"}, "stubborn": {"type": "boolean"}},
            }))
            .effects(Replay::NeverReplay, Annotations::default());
        Ok(Pack::new("tree").tool(spec, typed(|a: Grow, context| grow(&a, context))))
    })
}
