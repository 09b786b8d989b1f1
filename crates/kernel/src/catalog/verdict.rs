//! From a verdict of the checker to what follows: work, a rejection, or an answer.

use mainstay_contract::dialect::Dialect;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::render::{RenderMode, WHOLE_AS_JSON, bound_with};
use mainstay_contract::rpc::{self, Answer, Probed};
use mainstay_contract::tool::{Rejections, ToolSpec};
use mainstay_schema::Violation;
use mainstay_schema::check::{Definition, Verdict};
use serde_json::json;

use super::{Owner, PackCatalog, Tool};
use crate::call::{Late, SlotId, Task, Work};
use crate::core::checks::gave_up;

/// A tool call whose arguments were checked.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// One of the host's own tools is called.
    Own(RenderMode),
    Work(Work),
    Rejected(Problem, Option<Violation>),
}

impl Tool {
    /// The slot that serves the tool; none for the host's own.
    pub(super) const fn slot(&self) -> Option<SlotId> {
        match self.owner {
            Owner::Host => None,
            Owner::Slot(slot) => Some(slot),
        }
    }
}

impl PackCatalog {
    /// Continues a tool call after its arguments were checked.
    pub(crate) fn prepared(&self, tool: &str, dialect: Dialect, verdict: Verdict) -> Prepared {
        let Some(tool) = self.tools.get(tool) else {
            return Prepared::Rejected(Problem::of(ErrorKind::UnknownTool), None);
        };
        let (arguments, asked) = match verdict {
            Verdict::Prepared { arguments, render } => (arguments, render),
            Verdict::Rejected { violations } => return reject(&tool.spec, &violations),
            Verdict::GaveUp { reason } => return Prepared::Rejected(gave_up(reason), None),
            // A pack's schemas were compiled when it announced itself.
            Verdict::Passed | Verdict::Unchecked { .. } => {
                return Prepared::Rejected(Problem::of(ErrorKind::Internal), None);
            }
        };
        let render = match (asked, dialect.is_mcp()) {
            (Some(RenderMode::Json), _) | (None, false) => RenderMode::Json,
            (Some(RenderMode::Porcelain), false) => {
                let said = Violation::new("/render", "must be \"json\" outside MCP");
                return reject(&tool.spec, &[said]);
            }
            (Some(RenderMode::Porcelain), true) => RenderMode::Porcelain,
            (None, true) => self.render,
        };
        let Some(slot) = tool.slot() else {
            return Prepared::Own(render);
        };
        Prepared::Work(Work::Worker(Task {
            slot,
            op: rpc::Op::Tool {
                name: tool.spec.name.clone(),
                arguments,
                render,
            },
            replay: tool.spec.replay,
            timeout_ms: self.timeout_of(tool),
            late: Late::Ask,
            pace: tool.spec.pace,
        }))
    }

    /// The schemas against which an answer must be checked, with the JSON to check. `admitted` is the
    /// definition under which the call was accepted: a worker that retires answers under it.
    pub(crate) fn reply_check<'a>(
        &self,
        op: &rpc::Op,
        answer: &'a Answer,
        admitted: Option<&Definition>,
    ) -> Option<(Definition, &'a ToolReply)> {
        let (rpc::Op::Tool { name, .. } | rpc::Op::Probe { name, .. }) = op else {
            return None;
        };
        let (Answer::Tool(reply) | Answer::Probed(Probed::Applied(reply))) = answer else {
            return None;
        };
        let present = || self.tools.get(name).map(|tool| &tool.check);
        Some((admitted.or_else(present)?.clone(), reply))
    }

    /// The answer of a worker after it was checked.
    pub(crate) fn checked_answer(answer: Answer, verdict: &Verdict) -> (Answer, Option<Violation>) {
        let problem = match verdict {
            Verdict::Passed | Verdict::Prepared { .. } | Verdict::Unchecked { .. } => {
                return (answer, None);
            }
            Verdict::GaveUp { reason } => (gave_up(*reason), None),
            Verdict::Rejected { violations } => {
                let Some(first) = violations.first() else {
                    return (answer, None);
                };
                let kind = ErrorKind::InvalidOutput;
                let message = format!("{}{}", kind.row().message, said_of(violations));
                (Problem::new(kind, message), Some(first.clone()))
            }
        };
        let (problem, violation) = problem;
        let answer = match answer {
            Answer::Probed(_) => Answer::Probed(Probed::Unknown {}),
            _ => Answer::Failed(problem),
        };
        (answer, violation)
    }

    /// An answer whose text is within the limits. The worker library keeps them; this also covers
    /// tools without text, for which clients get the JSON, and workers on another library.
    pub(crate) fn bounded(&self, op: &rpc::Op, mut answer: Answer) -> Answer {
        if let Answer::Tool(reply) | Answer::Probed(Probed::Applied(reply)) = &mut answer {
            let text = match (op, &reply.text) {
                (_, Some(text)) => text.as_str(),
                (rpc::Op::Tool { render, .. }, None) if *render == RenderMode::Porcelain => {
                    reply.json.as_str()
                }
                (_, None) => return answer,
            };
            if !self.text.hold(text) {
                reply.text = Some(bound_with(text, self.text, WHOLE_AS_JSON).text);
            }
        }
        answer
    }
}

fn reject(spec: &ToolSpec, violations: &[Violation]) -> Prepared {
    let first = violations.first().cloned();
    let kind = ErrorKind::InvalidArguments;
    let message = format!("{}{}", kind.row().message, said_of(violations));
    let problem = Problem::new(kind, message).with_hint("correct the arguments named in details");
    let mut own = json!({ "ok": false, "reason": kind.row().reason, "errors": violations });
    if let (Rejections::Coded, Some(own)) = (spec.rejections, own.as_object_mut()) {
        own.insert("code".to_owned(), json!(kind.row().code.as_str()));
        own.insert("message".to_owned(), json!(problem.sentence()));
        own.extend(
            problem
                .hint
                .iter()
                .map(|hint| ("hint".to_owned(), json!(hint))),
        );
    }
    Prepared::Rejected(problem.with_details(own.into()), first)
}

/// The first violation, as the end of a sentence.
fn said_of(violations: &[Violation]) -> String {
    match violations.first() {
        Some(Violation { path, message }) if path.is_empty() => format!(": {message}"),
        Some(Violation { path, message }) => format!(": {path} {message}"),
        None => String::new(),
    }
}
