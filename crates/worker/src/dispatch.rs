//! From an operation to its answer, behind the panic barrier.
//!
//! [`dispatch`] always gives one answer: what the pack said, a problem, or `ToolPanicked`. What a
//! panic said goes to standard error through the panic hook (see [`crate::run`]), never to the
//! client.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::RenderMode;
use mainstay_contract::rpc::{Answer, Completion, Op, Probed};

use crate::completion;
use crate::context::Context;
use crate::pack::Pack;
use crate::prompt::PromptArguments;
use crate::tool::{Probe, Tool};

/// Runs `op` and gives its one answer.
pub(crate) fn dispatch(pack: &Pack, op: &Op, context: &Context) -> Answer {
    // A pack that panicked may have left its own state torn; that is the author's to guard. Ours
    // is not reachable from inside.
    match catch_unwind(AssertUnwindSafe(|| perform(pack, op, context))) {
        Ok(Ok(answer)) => answer,
        Ok(Err(problem)) => {
            if let Op::Tool { name, .. } = op {
                pack.check_failure(name, &problem);
            }
            Answer::Failed(problem)
        }
        Err(payload) => {
            // Dropping a payload runs its author's code, which may panic in turn.
            std::mem::forget(payload);
            Answer::Failed(Problem::of(ErrorKind::ToolPanicked))
        }
    }
}

fn perform(pack: &Pack, op: &Op, context: &Context) -> Result<Answer, Problem> {
    match op {
        Op::Tool {
            name,
            arguments,
            render,
        } => {
            let arguments = pack.prepare(name, arguments);
            let reply = tool(pack, name)?.call(&arguments, context)?;
            let text = context.surroundings.text;
            reply.render(*render, text).map(Answer::Tool)
        }
        Op::Probe { name, arguments } => {
            let arguments = pack.prepare(name, arguments);
            let probed = match tool(pack, name)?.probe(&arguments, context)? {
                Probe::NotApplied => Probed::NotApplied {},
                Probe::Unknown => Probed::Unknown {},
                // Which form the lost attempt was asked for is not known here: both are given.
                Probe::Applied(reply) => {
                    let text = context.surroundings.text;
                    Probed::Applied(reply.render(RenderMode::Porcelain, text)?)
                }
            };
            Ok(Answer::Probed(probed))
        }
        Op::ListResources {} => match pack.find_resources() {
            Some(resources) => resources.list(context).map(Answer::Resources),
            None => Ok(Answer::Resources(Vec::new())),
        },
        Op::ReadResource { uri } => read_resource(pack, uri, context),
        Op::Prompt { name, arguments } => prompt(pack, name, arguments, context),
        Op::Complete(request) => complete(pack, request, context),
        // For wrapped servers only.
        Op::Forward(_) => Err(Problem::of(ErrorKind::UnknownMethod)),
    }
}

fn tool<'a>(pack: &'a Pack, name: &str) -> Result<&'a dyn Tool, Problem> {
    pack.find_tool(name)
        .ok_or_else(|| Problem::of(ErrorKind::UnknownTool))
}

fn read_resource(pack: &Pack, uri: &str, context: &Context) -> Result<Answer, Problem> {
    let resources = pack
        .find_resources()
        .ok_or_else(|| Problem::of(ErrorKind::ResourceNotFound))?;
    let contents = resources.read(uri, context)?;
    let members = ObjectWriter::with_capacity(contents.text.len() + 128)
        .value("contents", &[contents])
        .finish();
    Ok(Answer::Members(Json::from_scanned(&members)))
}

fn prompt(pack: &Pack, name: &str, given: &Json, context: &Context) -> Result<Answer, Problem> {
    let unknown = || {
        Problem::new(
            ErrorKind::InvalidParams,
            format!("this pack does not have a prompt {name}"),
        )
    };
    let prompts = pack.find_prompts().ok_or_else(unknown)?;
    let spec = prompts
        .specs()
        .into_iter()
        .find(|spec| spec.name == name)
        .ok_or_else(unknown)?;
    let arguments = PromptArguments::read(&spec, given)?;
    let reply = prompts.prompt(name, &arguments, context)?;
    Ok(Answer::Members(reply.members()))
}

fn complete(pack: &Pack, request: &Completion, context: &Context) -> Result<Answer, Problem> {
    let values = match pack.find_completions() {
        Some(completions) => completions.complete(request, context)?,
        None => Vec::new(),
    };
    Ok(Answer::Members(completion::members(&values)))
}
