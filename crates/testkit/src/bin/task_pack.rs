//! `task-pack`: the tools that the conformance suite's scenarios for tasks ask for by name.

use std::process::ExitCode;
use std::time::Duration;

use mainstay_worker::{
    Annotations, Context, ErrorKind, Pack, Porcelain, Problem, Replay, Reply, SpecBuilder, run,
    tool_spec, typed,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
struct Greet {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Compute {
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    label: String,
}

#[derive(Debug, Deserialize)]
struct Any {}

fn spec(name: &str, description: &str) -> SpecBuilder {
    tool_spec(name, description).input(json!({ "type": "object" }))
}

fn compute(compute: &Compute, context: &Context) -> Result<Reply, Problem> {
    context.sleep(Duration::from_secs_f64(compute.seconds.clamp(0.0, 60.0)))?;
    Ok(Reply::json(&json!({ "ok": true, "label": compute.label })))
}

fn main() -> ExitCode {
    run(env!("CARGO_PKG_VERSION"), |_settings| {
        let effects = |spec: SpecBuilder| spec.effects(Replay::NeverReplay, Annotations::default());
        Ok(Pack::new("tasks")
            .tool(
                effects(spec("greet", "Greets at once.")),
                typed(|greet: Greet, _: &Context| {
                    let text = format!("Hello, {}!", greet.name);
                    let reply = Reply::json(&json!({ "ok": true, "text": text }));
                    Ok(reply.porcelain(move || Porcelain::summary(text)))
                }),
            )
            .tool(
                effects(spec("slow_compute", "Takes some seconds.").tasks()),
                typed(|arguments: Compute, context: &Context| compute(&arguments, context)),
            )
            .tool(
                // Packs ask their client nothing: it ends at once.
                effects(spec("confirm_delete", "Deletes nothing.").tasks()),
                typed(|_: Any, _: &Context| Ok(Reply::json(&json!({ "ok": true })))),
            )
            .tool(
                effects(spec("failing_job", "Fails.").tasks()),
                typed(|_: Any, _: &Context| {
                    Err::<Reply, _>(Problem::new(ErrorKind::BackendError, "the job failed"))
                }),
            )
            .tool(
                effects(spec("protocol_error_job", "Ends with a protocol error.").tasks()),
                typed(|_: Any, _: &Context| {
                    Err::<Reply, _>(Problem::new(ErrorKind::InvalidParams, "not like this"))
                }),
            ))
    })
}
