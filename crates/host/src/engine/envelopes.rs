//! The engine's part in envelopes: what each is about is remembered until its request ends.

use mainstay_contract::dialect::encode;
use mainstay_contract::dialect::{Dialect, Inbound, Op, Shape};
use mainstay_contract::envelope::{Asked, Meta, Route, TOOL_ID_PREFIX, Transport};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::json::Json;
use mainstay_contract::scan;
use mainstay_contract::telemetry::Telemetry;
use mainstay_kernel::action::End;

use super::Engine;

/// What a message asks for, if its answer is an envelope.
pub(super) fn asked_of(inbound: &Inbound) -> Option<Asked> {
    match inbound {
        Inbound::Request(request) if request.dialect == Dialect::Envelope => match &request.op {
            Op::CallTool { name, arguments } => {
                Some(Asked::tool(&format!("{TOOL_ID_PREFIX}{name}"), arguments))
            }
            _ => Some(Asked::catalog()),
        },
        Inbound::Refused(refused) if refused.form.dialect == Dialect::Envelope => {
            let (route, method) = match refused.form.shape {
                Shape::Tool => (Route::Tool, Asked::INVOKE),
                Shape::Cacheable | Shape::Plain => (Route::Discover, Asked::DISCOVER),
            };
            Some(Asked {
                route,
                method,
                payload: refused.payload.clone().unwrap_or_else(Json::null),
            })
        }
        _ => None,
    }
}

impl Engine {
    /// Keeps what an answer will be about.
    pub(super) fn remember(&mut self, call: Option<CallId>, asked: Option<Asked>) {
        if let (Some(call), Some(asked)) = (call, asked) {
            self.asked.insert(call, asked);
        }
    }

    /// The line that answers a request, in its dialect.
    pub(super) fn line_of(&self, end: &End, asked: Option<&Asked>) -> String {
        let of_the_message = match &end.outcome {
            Err(problem) => encode::is_of_the_message(problem.kind),
            Ok(_) => false,
        };
        match asked {
            Some(asked) if !of_the_message => {
                let meta = self.meta_of(end, asked);
                let envelope = self.envelopes.result(meta, &end.outcome);
                encode::enveloped(&end.id, &envelope.text)
            }
            _ => encode::answer(&end.id, end.form, &end.outcome),
        }
    }

    fn meta_of(&self, end: &End, asked: &Asked) -> Meta {
        let transport = match self.identity.mode {
            "socket" => Transport::Socket,
            "http" => Transport::Http,
            "memory" => Transport::Cli,
            _ => Transport::Stdio,
        };
        let mut meta = self.envelopes.meta(asked, transport);
        if let Some(span) = &end.trace {
            meta.follow(&span.context);
        }
        meta.duration_ms = millis(end.latency_us);
        meta.attempt = u64::from(end.attempt.saturating_sub(1));
        meta.tool_id = match &end.tool {
            Some(tool) => Some(format!("{TOOL_ID_PREFIX}{tool}")),
            None => asked_tool(asked),
        };
        // Of a line that was too long nothing is known but that.
        if matches!(&end.outcome, Err(problem) if problem.kind == ErrorKind::FrameTooLarge) {
            meta.input_bytes = end.input_bytes as u64;
        }
        meta
    }

    /// Everything that was counted.
    pub(super) fn telemetry(&self) -> Telemetry {
        let mut telemetry = self.kernel.telemetry();
        telemetry.envelopes = Some(self.envelopes.checks());
        telemetry
            .schema_mismatches
            .extend(self.envelopes.mismatches());
        telemetry
    }
}

/// The identifier of the tool that was asked for, if it is one.
fn asked_tool(asked: &Asked) -> Option<String> {
    let raw = scan::member(asked.payload.as_str(), "toolId")?;
    let id = scan::unquote(raw)?;
    mainstay_contract::envelope::tool_name(&id)?;
    Some(id.into_owned())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "latencies are far below 2^52 us"
)]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
