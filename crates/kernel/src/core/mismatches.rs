//! Schema mismatches: kept for diagnostics with their time and their request, and logged.

use mainstay_contract::envelope::redact::redact_text;
use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::render;
use mainstay_contract::telemetry::{SchemaMismatch, Side};
use mainstay_contract::trace::Hex;
use mainstay_schema::Violation;
use serde::{Deserialize, Serialize};

use super::Core;
use super::action::{CoreAction, LogLevel};
use crate::Kernel;
use crate::log_limit::suppressed;
use crate::server::Cx;

/// Longest id and name in a log line.
const SHOWN: usize = 120;

/// The request to which a mismatch belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Culprit {
    request_id: Option<RequestId>,
    trace_id: Option<String>,
}

impl Culprit {
    /// A request in flight.
    pub(crate) fn of(kernel: &Kernel, call: CallId) -> Self {
        let trace = kernel.trace_of(call);
        Self {
            request_id: kernel.request_of(call).map(|(_, id)| id.clone()),
            trace_id: trace.map(|context| Hex(&context.trace).to_string()),
        }
    }
}

/// A mismatch before it has its time.
pub(crate) struct Mismatch<'a> {
    pub(crate) culprit: Culprit,
    pub(crate) tool: &'a str,
    pub(crate) side: Side,
    pub(crate) violation: &'a Violation,
}

impl Core {
    pub(super) fn note_mismatch(&mut self, mismatch: Mismatch<'_>) {
        let (epoch_ms, now) = (self.clock.epoch_ms, self.clock.now);
        let line = note(&mut self.kernel, epoch_ms, now, mismatch);
        self.out.extend(line);
    }
}

impl Cx<'_> {
    pub(crate) fn note_mismatch(&mut self, mismatch: Mismatch<'_>) {
        let line = note(self.kernel, self.epoch_ms, self.now, mismatch);
        self.out.extend(line);
    }
}

fn note(
    kernel: &mut Kernel,
    epoch_ms: u64,
    now: crate::time::Time,
    mismatch: Mismatch<'_>,
) -> Option<CoreAction> {
    let Mismatch {
        culprit,
        tool,
        side,
        violation,
    } = mismatch;
    // A client that sends bad arguments can correct them; a bad answer is a defect of its tool.
    let level = match side {
        Side::Input => LogLevel::Info,
        Side::Output | Side::Envelope => LogLevel::Warn,
    };
    let id = culprit.request_id.as_ref();
    let id = id.map(|id| format!(" request={}", render::shorten(id.as_raw(), SHOWN)));
    let trace = culprit.trace_id.as_ref();
    let trace = trace.map(|trace| format!(" trace={trace}"));
    let shown = render::shorten(&render::visible(tool), SHOWN);
    let line = format!(
        "mcp:warning reason=schema_mismatch side={} tool={shown} path={:?}{}{}",
        side.as_str(),
        violation.path,
        id.unwrap_or_default(),
        trace.unwrap_or_default(),
    );
    // Both may repeat names of the client's own members.
    let redacted = |text: &str| redact_text(text).into_owned();
    let kept = SchemaMismatch {
        ts: mainstay_contract::wall::iso(super::wall_ms(epoch_ms, now)),
        request_id: culprit.request_id,
        trace_id: culprit.trace_id,
        tool: tool.to_owned(),
        side,
        path: redacted(&violation.path),
        message: redacted(&violation.message),
    };
    let message = kept.message.clone();
    let more = kernel.note_mismatch(now, kept)?;
    let line = format!("{line}{} {message}", suppressed(more));
    Some(CoreAction::Log { level, line })
}
