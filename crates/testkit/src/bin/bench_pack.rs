//! `bench-pack`: the smallest pack there is, one tool `echo`, for the benchmark.

use std::process::ExitCode;

use mainstay_worker::{Pack, Porcelain, Reply, run, tool_spec, typed};
use serde_json::{Value, json};

fn main() -> ExitCode {
    run(env!("CARGO_PKG_VERSION"), |_settings| {
        let text = json!({
            "type": "object", "additionalProperties": false, "required": ["text"],
            "properties": {"text": {"type": "string"}},
        });
        let spec = tool_spec("echo", "Answers with its argument.")
            .input(text)
            .read_only();
        let echo = typed(|arguments: Value, _context| {
            Ok(Reply::json(&arguments).porcelain(|| Porcelain::summary("echoed")))
        });
        Ok(Pack::new("bench").tool(spec, echo))
    })
}
