//! The single terminal result of a request, before a dialect gives it its form.
//!
//! Every way a request can end is one of two: a [`Success`] or a [`Problem`]. A problem names a
//! row of the error table and adds what is particular to this call. Rejections, failures of the
//! tool and faults of our machinery all end here; the row says which of them it was.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ErrorKind;
use crate::fault::{Fault, FaultClass};
use crate::id::Generation;
use crate::json::{Json, ObjectWriter};
use crate::scan;

/// How a request ended.
pub type Outcome = Result<Success, Problem>;

/// The answer of a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Success {
    /// A tool's answer.
    Tool(ToolReply),
    /// The members of a protocol result (a listing, a resource, a prompt, a completion).
    Members(Json),
    Forwarded(Forwarded),
}

/// A wrapped server's whole response, passed on as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarded {
    pub line: Json,
    /// True if the server itself calls it an error.
    pub is_error: bool,
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolReply {
    /// The tool's own JSON: an object.
    pub json: Json,
    /// Porcelain, when it was asked for and the tool has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
}

/// Header of a text answer over REST whose tool answered "no": a text alone does not show it.
pub const VERDICT_HEADER: &str = "mainstay-verdict";
/// The only value of [`VERDICT_HEADER`].
pub const VERDICT_NO: &str = "no";

impl ToolReply {
    /// True when the tool answered "no": `"ok": false`, in its object or in one of its `results`.
    pub fn says_no(&self) -> bool {
        self.json.to_value().is_ok_and(|json| says_no(&json))
    }
}

/// True for the JSON of a tool that answered "no".
pub fn says_no(answer: &Value) -> bool {
    let is_no = |verdict: &Value| verdict.get("ok") == Some(&false.into());
    let results = answer.get("results").and_then(Value::as_array);
    is_no(answer) || results.is_some_and(|results| results.iter().any(is_no))
}

/// Why a request did not succeed, in words and data for the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub kind: ErrorKind,
    /// One sentence for the client.
    pub message: String,
    /// The client's next step; the row's hint unless something more exact is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// The tool's own JSON for this failure. It is the whole answer in the direct dialect and
    /// stands under `details` everywhere else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub details: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// When a retry can succeed at the earliest, where that is known: `Retry-After` of HTTP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generation: Option<Generation>,
    /// The resource that was not found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uri: Option<String>,
    /// Last words of a subprocess or worker, trimmed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stderr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stdout: Option<String>,
}

/// Longest sentence, hint or output of a tool or server in an error, in bytes.
const WORDS_BYTES: usize = 4096;
/// Largest JSON that a tool adds to an error, in bytes.
const DETAILS_BYTES: usize = 256 * 1024;

/// The words of a tool or server, as long as a sentence may be. A cut says how much is missing.
pub fn shorten_words(text: &str) -> String {
    let shown = text.get(..text.floor_char_boundary(WORDS_BYTES));
    match shown.filter(|shown| shown.len() < text.len()) {
        Some(shown) => format!("{shown}… ({} more bytes)", text.len() - shown.len()),
        None => text.to_owned(),
    }
}

impl Problem {
    /// A problem in the words of the table.
    pub fn of(kind: ErrorKind) -> Self {
        Self::new(kind, kind.row().message)
    }

    /// A problem with a more exact sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: kind.row().hint.map(str::to_owned),
            details: None,
            timeout_ms: None,
            retry_after_ms: None,
            generation: None,
            uri: None,
            stderr: None,
            stdout: None,
        }
    }

    /// A request of more than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::of(ErrorKind::FrameTooLarge)
            .with_hint(format!("send a request of at most {limit} bytes"))
    }

    /// The problem for a call that was hit by `fault`. The fault's detail is for operators; the
    /// client gets the row's sentence and the cause in brackets.
    pub fn from_fault(kind: ErrorKind, fault: &Fault) -> Self {
        let mut problem = Self::new(kind, format!("{} ({})", kind.row().message, fault.cause()));
        problem.generation = fault.generation;
        problem.stderr.clone_from(&fault.stderr);
        problem
    }

    /// Translates an error of a wrapped server: the nearest row, in the server's words, with the
    /// whole error in the details.
    pub fn of_server(error: &str) -> Self {
        let code = scan::member(error, "code").and_then(|code| code.parse().ok());
        let message = scan::member(error, "message").and_then(scan::unquote);
        let message = message.unwrap_or_default();
        let kind = match code.unwrap_or_default() {
            -32601 => ErrorKind::UnknownMethod,
            -32602 => ErrorKind::InvalidParams,
            -32002 => ErrorKind::ResourceNotFound,
            -32021 => ErrorKind::MissingClientCapability,
            _ => ErrorKind::BackendError,
        };
        let mut problem = Self::of(kind).with_details(Json::from_scanned(error));
        if !message.is_empty() {
            problem.message = shorten_words(&message);
        }
        problem
    }

    /// The problem as a worker reported it, with every text within its limit. A cut says how much is
    /// missing.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let texts = [&mut self.hint, &mut self.stderr, &mut self.stdout];
        for text in texts.into_iter().flatten().chain([&mut self.message]) {
            if text.len() > WORDS_BYTES {
                *text = shorten_words(text);
            }
        }
        if let Some(details) = self
            .details
            .take_if(|details| details.len() > DETAILS_BYTES)
        {
            let size = crate::render::bytes(details.len() as u64);
            self.message
                .push_str(&format!(" ({size} of details left out)"));
        }
        self
    }

    /// Replaces the hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the tool's own JSON.
    #[must_use]
    pub fn with_details(mut self, details: Json) -> Self {
        self.details = Some(details);
        self
    }

    /// Names the resource that was asked for, where none was found.
    #[must_use]
    pub fn with_uri(mut self, uri: &str) -> Self {
        if self.kind == ErrorKind::ResourceNotFound {
            self.uri = Some(uri.to_owned());
        }
        self
    }

    /// Adds the timeout that passed.
    #[must_use]
    pub const fn with_timeout(mut self, timeout_ms: u64) -> Self {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    /// The fault class to show, where our machinery is to blame.
    pub const fn fault_class(&self) -> Option<FaultClass> {
        // A client that changes its mind breaks nothing.
        if matches!(self.kind, ErrorKind::Cancelled) {
            return None;
        }
        match self.kind.row().class {
            class @ (FaultClass::Transport
            | FaultClass::Process
            | FaultClass::Timeout
            | FaultClass::Resource
            | FaultClass::Replay
            | FaultClass::Rollout
            | FaultClass::Invariant) => Some(class),
            FaultClass::Protocol | FaultClass::Downstream => None,
        }
    }

    /// The problem's own sentence, or the row's where it has none: no form of it is silent.
    pub fn sentence(&self) -> &str {
        match self.message.as_str() {
            "" => self.kind.row().message,
            own => own,
        }
    }

    /// The error payload of `tool-stability.md` §5.2, as JSON.
    pub fn payload(&self) -> String {
        let row = self.kind.row();
        let object = ObjectWriter::with_capacity(192)
            .string("message", self.sentence())
            .string("code", row.code.as_str())
            .optional_string("hint", self.hint.as_deref())
            .value("retryable", &row.retryable);
        self.particulars(object).finish()
    }

    /// Details of an error in an envelope, beside its sentence: every projection of the row that
    /// has no member of its own there, and what is particular to this call.
    pub fn envelope_details(&self) -> String {
        let row = self.kind.row();
        let object = ObjectWriter::with_capacity(192)
            .string("kind", row.name)
            .string("canonical", row.canonical.as_str())
            .string("code", row.code.as_str())
            .value("httpStatus", &row.http)
            .value("retryable", &row.retryable)
            .optional_string("hint", self.hint.as_deref());
        self.particulars(object).finish()
    }

    /// The `data` member of a JSON-RPC error (`shapes.md`).
    pub fn jsonrpc_data(&self) -> String {
        let row = self.kind.row();
        let object = ObjectWriter::with_capacity(192)
            .string("canonical", row.canonical.as_str())
            .string("code", row.code.as_str())
            .value("httpStatus", &row.http)
            .string("message", self.sentence())
            .value("retryable", &row.retryable)
            .optional_string("hint", self.hint.as_deref());
        self.particulars(object).finish()
    }

    /// The end of every form of an error: facts about this call alone.
    fn particulars(&self, object: ObjectWriter) -> ObjectWriter {
        object
            .optional_string("fault", self.fault_class().map(FaultClass::as_str))
            .optional_value("timeoutMs", self.timeout_ms)
            .optional_string("uri", self.uri.as_deref())
            .optional_raw("details", self.details.as_ref().map(Json::as_str))
            .optional_string("stderr", self.stderr.as_deref())
            .optional_string("stdout", self.stdout.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_payload_has_message_and_code_and_only_what_is_known() {
        let problem = Problem::of(ErrorKind::Timeout).with_timeout(1500);
        let payload: Value = serde_json::from_str(&problem.payload()).unwrap();
        assert_eq!(
            payload,
            serde_json::json!({
                "message": "the tool did not finish before its deadline", "code": "TOOL_TIMEOUT",
                "hint": "narrow the request, or raise the tool's timeout",
                "retryable": false, "fault": "timeout", "timeoutMs": 1500,
            })
        );
    }

    #[test]
    fn words_at_the_limit_pass_and_longer_ones_say_how_much_is_missing() {
        let whole = "é".repeat(WORDS_BYTES / 2);
        let same = Problem::new(ErrorKind::NotFound, whole.clone()).with_hint(whole.clone());
        assert_eq!(same.clone().bounded(), same);
        let long = format!("{whole}{}", "x".repeat(1_900_000));
        let mut problem = Problem::new(ErrorKind::NotFound, long.clone()).with_hint(long);
        problem.details = Some(Json::from_serialize(&"x".repeat(DETAILS_BYTES)));
        let bounded = problem.bounded();
        let cut = format!("{whole}… (1900000 more bytes)");
        assert_eq!(bounded.hint.as_deref(), Some(cut.as_str()));
        let said = format!("{cut} (262.1 kB of details left out)");
        assert_eq!((bounded.message, bounded.details), (said, None));
    }

    #[test]
    fn a_cancelled_request_blames_nothing() {
        let cancelled = Problem::of(ErrorKind::Cancelled);
        assert_eq!(cancelled.fault_class(), None);
        assert!(!cancelled.payload().contains("fault"));
        let gone = Problem::of(ErrorKind::ClientGone);
        assert_eq!(gone.fault_class(), Some(FaultClass::Transport));
    }

    #[test]
    fn only_a_resource_that_was_not_found_is_named() {
        let named = Problem::of(ErrorKind::ResourceNotFound).with_uri("a://b");
        assert!(named.jsonrpc_data().contains(r#""uri":"a://b""#));
        let other = Problem::of(ErrorKind::Timeout).with_uri("a://b");
        assert!(!other.jsonrpc_data().contains("a://b"));
    }

    #[test]
    fn a_lost_call_says_what_is_unknown_and_names_the_cause() {
        let fault = Fault::new(ErrorKind::WorkerUnavailable, "killed by signal 9")
            .of(Generation::new(3))
            .with_stderr("out of cheese\n");
        let problem = Problem::from_fault(ErrorKind::OutcomeUnknown, &fault);
        assert!(problem.message.contains("outcome is unknown"));
        assert!(problem.message.ends_with("(killed by signal 9)"));
        assert_eq!(problem.fault_class(), Some(FaultClass::Process));
        assert_eq!(problem.generation, Some(Generation::new(3)));
        assert_eq!(problem.stderr.as_deref(), Some("out of cheese"));
    }
}
