//! From the typed end of a request to the line that its client gets.

use mainstay_contract::dialect::encode::{self, ProgressOf};
use mainstay_contract::envelope::{Asked, Meta, TOOL_ID_PREFIX, Transport};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::scan;
use mainstay_contract::telemetry::millis;
use mainstay_kernel::action::{End, Notice};

use super::Engine;
use super::workers::Handle;
use crate::clock::iso_now;

impl Engine {
    /// The line that answers a request, in its dialect.
    pub(super) fn line_of(&self, end: &End, asked: Option<&Asked>) -> String {
        let of_the_message = match &end.outcome {
            Err(problem) => encode::is_of_the_message(problem.kind),
            Ok(_) => false,
        };
        match (asked, &end.outcome) {
            (Some(asked), outcome) if !of_the_message => {
                let meta = self.meta_of(end, asked);
                let envelope = self.reports.envelopes.result(meta, outcome);
                encode::enveloped(&end.id, &envelope.text)
            }
            (_, outcome) => encode::answer(&end.id, end.form, outcome),
        }
    }

    /// Adds the server's last words to the problem of a call that a wrapped server did not answer in time.
    pub(super) fn add_last_words(&self, end: &mut End) {
        let Err(problem) = &mut end.outcome else {
            return;
        };
        let late = matches!(problem.kind, ErrorKind::Timeout | ErrorKind::WorkerNotReady);
        let worker = problem.generation.or(end.generation);
        let worker = worker.and_then(|worker| self.workers.get(&worker));
        if let Some(Handle::Server(server)) = worker.map(|worker| &worker.handle)
            && late
            && problem.stderr.is_none()
        {
            let words = mainstay_contract::failure::tail(&server.last_words());
            problem.stderr = Some(words).filter(|words| !words.is_empty());
        }
    }

    fn meta_of(&self, end: &End, asked: &Asked) -> Meta {
        let transport = match self.facts.mode {
            "socket" => Transport::Socket,
            "http" => Transport::Http,
            _ => Transport::Stdio,
        };
        let mut meta = self.reports.envelopes.meta(asked, transport);
        if let Some(span) = &end.trace {
            meta.follow(&span.context);
        }
        meta.duration_ms = millis(end.latency_us);
        meta.attempt = u64::from(end.attempt.saturating_sub(1));
        meta.tool_id = match &end.tool {
            Some(tool) => Some(format!("{TOOL_ID_PREFIX}{tool}")),
            None => asked_tool(asked),
        };
        // A line over the limit was not read, so only its length is known.
        if matches!(&end.outcome, Err(problem) if problem.kind == ErrorKind::FrameTooLarge) {
            meta.input_bytes = end.input_bytes as u64;
        }
        meta
    }
}

/// The notification of a call's progress, if its dialect has one.
pub(super) fn progress(notice: &Notice) -> Option<String> {
    let of = ProgressOf {
        id: &notice.id,
        dialect: notice.form.dialect,
        token: notice.token.as_ref(),
        tool: &notice.tool,
        step: notice.step.step,
        ts: &iso_now(),
    };
    encode::progress(&of, &notice.step.progress)
}

/// The identifier of the tool that an envelope asked for, if it is one.
fn asked_tool(asked: &Asked) -> Option<String> {
    let raw = scan::member(asked.payload.as_str(), "toolId")?;
    let id = scan::unquote(raw)?;
    mainstay_contract::envelope::tool_name(&id)?;
    Some(id.into_owned())
}
