//! The one error table.
//!
//! [`ErrorKind`] is the closed list of everything that can go wrong in a way a client sees.
//! [`ErrorKind::row`] gives, for each kind, every form in which a dialect shows it: public
//! code, canonical code, HTTP status, JSON-RPC code, invocation status, `reason` of the direct
//! dialect, fault class, default hint and whether a retry can help. A dialect projects a row; it
//! never chooses a code of its own. Adding a kind is one variant and one row; `docs/errors.md`
//! is generated from the table by [`markdown`].
//!
//! Deliberately absent: texts about a particular call. Those are in [`crate::outcome::Problem`].

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::fault::FaultClass;

words! {
    /// Stable upper-case code for clients (`tool-stability.md` §6).
    pub enum Code {
        InvalidRequest = "INVALID_REQUEST",
        NotFound = "NOT_FOUND",
        NoIndex = "NO_INDEX",
        CapabilityMissing = "CAPABILITY_MISSING",
        QueueOverloaded = "QUEUE_OVERLOADED",
        ToolTimeout = "TOOL_TIMEOUT",
        Cancelled = "CANCELLED",
        Internal = "INTERNAL",
        Unauthorized = "UNAUTHORIZED",
        Forbidden = "FORBIDDEN",
        DownloadVerifyFailed = "DOWNLOAD_VERIFY_FAILED",
        ArchiveUnsafe = "ARCHIVE_UNSAFE",
        ArchiveTooLarge = "ARCHIVE_TOO_LARGE",
    }
}

words! {
    /// Canonical error (`envelope-validation.md`): the coarse code of the result envelope.
    pub enum CanonicalError {
        InvalidInput = "INVALID_INPUT",
        InvalidOutput = "INVALID_OUTPUT",
        NotFound = "NOT_FOUND",
        Unauthorized = "UNAUTHORIZED",
        InternalError = "INTERNAL_ERROR",
    }
}

impl CanonicalError {
    /// The HTTP status of the code where no finer kind is known.
    pub const fn to_http_status(self) -> u16 {
        match self {
            Self::InvalidInput => 400,
            Self::InvalidOutput => 502,
            Self::NotFound => 404,
            Self::Unauthorized => 401,
            Self::InternalError => 500,
        }
    }

    /// The JSON-RPC code where no finer kind is known.
    pub const fn to_jsonrpc_code(self) -> i32 {
        match self {
            Self::InvalidInput => -32602,
            Self::InvalidOutput => -31502,
            Self::NotFound => -31404,
            Self::Unauthorized => -31401,
            Self::InternalError => -32603,
        }
    }

    /// True if repeating the same request can succeed.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::InternalError)
    }

    /// The JSON-RPC `error` member: code, message and the machine-readable `data`.
    pub fn to_jsonrpc_error(self, message: &str) -> serde_json::Value {
        serde_json::json!({
            "code": self.to_jsonrpc_code(),
            "message": message,
            "data": {
                "canonical": self.as_str(),
                "httpStatus": self.to_http_status(),
                "message": message,
                "retryable": self.is_retryable(),
            },
        })
    }
}

/// Where MCP shows an error of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// A JSON-RPC error: the request itself was wrong.
    Protocol,
    /// A tool result with `isError`: the model should read it.
    Tool,
}

/// Everything about one kind of error, in every projection.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub kind: ErrorKind,
    /// Stable snake-case name, used in telemetry and documentation.
    pub name: &'static str,
    pub code: Code,
    pub canonical: CanonicalError,
    pub http: u16,
    pub jsonrpc: i32,
    /// `reason` of the direct dialect.
    pub reason: &'static str,
    pub class: FaultClass,
    pub surface: Surface,
    pub retryable: bool,
    /// Sentence for the client when there is nothing more exact to say.
    pub message: &'static str,
    /// The client's next step.
    pub hint: Option<&'static str>,
}

impl Row {
    /// `status.code` of the invocation envelope.
    pub const fn invocation_status(&self) -> &'static str {
        if self.retryable { "retry" } else { "error" }
    }
}

macro_rules! table {
    ($($kind:ident = $name:literal, $code:ident, $canonical:ident, $http:literal, $rpc:literal,
       $reason:literal, $class:ident, $surface:ident, retry $retry:literal,
       $message:literal, $hint:expr, $doc:literal;)*) => {
        /// The closed list of error kinds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorKind { $(#[doc = $doc] $kind,)* }

        impl ErrorKind {
            /// All kinds, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The row of this kind.
            pub const fn row(self) -> &'static Row {
                match self { $(Self::$kind => const { &Row {
                    kind: Self::$kind,
                    name: $name,
                    code: Code::$code,
                    canonical: CanonicalError::$canonical,
                    http: $http,
                    jsonrpc: $rpc,
                    reason: $reason,
                    class: FaultClass::$class,
                    surface: Surface::$surface,
                    retryable: $retry,
                    message: $message,
                    hint: $hint,
                } },)* }
            }
        }
    };
}

table! {
    ParseError = "parse_error", InvalidRequest, InvalidInput, 400, -32700,
        "validation_failed", Protocol, Protocol, retry false,
        "the line is not valid JSON", Some("send one complete UTF-8 JSON object per line"),
        "Bytes that are not JSON.";
    InvalidMessage = "invalid_message", InvalidRequest, InvalidInput, 400, -32600,
        "validation_failed", Protocol, Protocol, retry false,
        "the message is not a JSON-RPC 2.0 request",
        Some("send {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"...\",\"params\":{...}}"),
        "JSON of the wrong shape.";
    DuplicateId = "duplicate_id", InvalidRequest, InvalidInput, 400, -32600,
        "validation_failed", Protocol, Protocol, retry false,
        "a request with this id is still in flight", Some("use a new id for every request"),
        "An id that is already in flight on the same connection.";
    UnknownMethod = "unknown_method", InvalidRequest, NotFound, 404, -32601,
        "unsupported", Protocol, Protocol, retry false,
        "method not found", Some("list what is offered with tools/list or mainstay tools"),
        "A protocol method that is not offered.";
    InvalidParams = "invalid_params", InvalidRequest, InvalidInput, 400, -32602,
        "validation_failed", Protocol, Protocol, retry false,
        "the params do not fit the method", None,
        "Params of the wrong shape for a protocol method.";
    UnsupportedVersion = "unsupported_version", InvalidRequest, InvalidInput, 400, -32022,
        "unsupported", Protocol, Protocol, retry false,
        "this protocol version is not supported", Some("use one of the versions in data.supported"),
        "A protocol revision that is not served.";
    MissingClientCapability = "missing_client_capability", CapabilityMissing, InvalidInput, 400, -32021,
        "unsupported", Protocol, Protocol, retry false,
        "the client lacks a capability that this needs", None,
        "The request needs a client capability that was not declared.";
    HeaderMismatch = "header_mismatch", InvalidRequest, InvalidInput, 400, -32020,
        "validation_failed", Protocol, Protocol, retry false,
        "the HTTP headers do not fit the message", Some("send MCP-Protocol-Version, Mcp-Method and Mcp-Name as they stand in the body"),
        "Over HTTP: a header that is missing, or says something else than the message.";
    FrameTooLarge = "frame_too_large", InvalidRequest, InvalidInput, 413, -31413,
        "validation_failed", Resource, Protocol, retry false,
        "payload_too_large", Some("send a smaller request; the limit is in limits.request_frame_bytes"),
        "A line or body over the limit, refused before parsing.";
    UnknownTool = "unknown_tool", InvalidRequest, NotFound, 404, -32602,
        "unsupported", Protocol, Protocol, retry false,
        "tool not implemented", Some("list the tools with tools/list or mainstay tools"),
        "A tool name that is not in the catalog.";
    InvalidArguments = "invalid_arguments", InvalidRequest, InvalidInput, 400, -32602,
        "validation_failed", Protocol, Tool, retry false,
        "the arguments do not fit the tool's input schema", Some("correct the arguments that the message names"),
        "Arguments that violate the tool's input schema.";
    NotFound = "not_found", NotFound, NotFound, 404, -31404,
        "not_found", Downstream, Tool, retry false,
        "not found", None,
        "The named thing does not exist.";
    ResourceNotFound = "resource_not_found", NotFound, NotFound, 404, -32002,
        "not_found", Downstream, Protocol, retry false,
        "resource not found", Some("list what exists with resources/list"),
        "A resource URI that nothing serves.";
    Unsupported = "unsupported", InvalidRequest, InvalidInput, 422, -31422,
        "unsupported", Downstream, Tool, retry false,
        "this is not supported here", None,
        "A well-formed call that this configuration does not allow.";
    NoIndex = "no_index", NoIndex, NotFound, 409, -31409,
        "not_found", Downstream, Tool, retry false,
        "there is no index yet", Some("build it with index_build"),
        "A code index is needed and absent.";
    CapabilityMissing = "capability_missing", CapabilityMissing, InternalError, 501, -31501,
        "unsupported", Downstream, Tool, retry false,
        "an optional capability is missing on this machine", None,
        "A dependency or platform feature is missing.";
    BackendError = "backend_error", Internal, InternalError, 502, -31502,
        "backend_error", Downstream, Tool, retry false,
        "the backend answered with an error", None,
        "A configured backend refused or failed.";
    Unauthorized = "unauthorized", Unauthorized, Unauthorized, 401, -31401,
        "unauthorized", Protocol, Protocol, retry false,
        "credentials are missing or wrong", None,
        "No valid credentials.";
    Forbidden = "forbidden", Forbidden, Unauthorized, 403, -31403,
        "forbidden", Protocol, Tool, retry false,
        "this is not allowed", None,
        "Refused by policy.";
    ApprovalDenied = "approval_denied", Forbidden, Unauthorized, 403, -31403,
        "forbidden", Protocol, Tool, retry false,
        "the call was not approved", Some("do not repeat it unless the person who denied it asks for that"),
        "A call that needs an approval and was denied by a person.";
    ApprovalExpired = "approval_expired", Forbidden, Unauthorized, 403, -31403,
        "forbidden", Protocol, Tool, retry false,
        "the call needs an approval, and none was given in time", Some("ask the operator to answer with mainstay approve, then call again; the limit is limits.approval_ms"),
        "A call that needs an approval and got no valid one: no answer in time, a changed policy, or a grant for another call.";
    AuditUnavailable = "audit_unavailable", Internal, InternalError, 503, -31503,
        "unavailable", Resource, Tool, retry false,
        "the audit file cannot be written, so the call was not started", Some("free space on the disk of the audit file, or correct its permissions, then call again"),
        "A call with effects that could not be recorded in the audit file.";
    UnknownSession = "unknown_session", NotFound, NotFound, 404, -31404,
        "not_found", Protocol, Protocol, retry false,
        "there is no such session", Some("open a new one with initialize"),
        "Over HTTP: a session that has ended, never was, or belongs to another credential.";
    UnknownRoute = "unknown_route", NotFound, NotFound, 404, -31404,
        "not_found", Protocol, Protocol, retry false,
        "nothing is served under this path", Some("GET /openapi.json lists what is"),
        "Over HTTP: a path that nothing serves.";
    MethodNotAllowed = "method_not_allowed", InvalidRequest, InvalidInput, 405, -31405,
        "unsupported", Protocol, Protocol, retry false,
        "this path does not take this method", Some("the header Allow names those that it takes"),
        "Over HTTP: a method that the path does not have.";
    NotAcceptable = "not_acceptable", InvalidRequest, InvalidInput, 406, -31406,
        "unsupported", Protocol, Protocol, retry false,
        "the client does not accept the form of the answer", Some("send Accept: application/json, text/event-stream"),
        "Over HTTP: an Accept header without the forms that answers have.";
    RequestTimeout = "request_timeout", InvalidRequest, InvalidInput, 408, -31408,
        "timeout", Timeout, Protocol, retry true,
        "the request did not arrive in time", Some("send the whole body at once"),
        "Over HTTP: a body that took too long.";
    StreamInUse = "stream_in_use", InvalidRequest, InvalidInput, 409, -31409,
        "unsupported", Protocol, Protocol, retry false,
        "the stream of this session is already being read", Some("close the other one first"),
        "Over HTTP: a second stream for messages that belong to no request.";
    UnsupportedMedia = "unsupported_media", InvalidRequest, InvalidInput, 415, -31415,
        "unsupported", Protocol, Protocol, retry false,
        "the Content-Type of the request is not JSON", Some("send Content-Type: application/json"),
        "Over HTTP: a Content-Type other than JSON, or none.";
    DownloadVerifyFailed = "download_verify_failed", DownloadVerifyFailed, InternalError, 502, -31502,
        "backend_error", Downstream, Tool, retry true,
        "a download failed its integrity check", Some("try again; check the network or proxy"),
        "An integrity check of a download failed.";
    ArchiveUnsafe = "archive_unsafe", ArchiveUnsafe, InvalidInput, 422, -31422,
        "unsupported", Downstream, Tool, retry false,
        "the archive is unsafe", Some("use an archive without absolute or escaping paths"),
        "The safety gate for archives was triggered.";
    ArchiveTooLarge = "archive_too_large", ArchiveTooLarge, InvalidInput, 413, -31413,
        "unsupported", Resource, Tool, retry false,
        "the archive is too large", Some("use a smaller archive"),
        "An archive over its limit.";
    Overloaded = "overloaded", QueueOverloaded, InternalError, 429, -31429,
        "overloaded", Resource, Tool, retry true,
        "too many calls are waiting; this one was not started", Some("retry in a moment, or send fewer calls at once"),
        "A bounded queue is full; the call never started.";
    QuotaExceeded = "quota_exceeded", QueueOverloaded, InternalError, 429, -31429,
        "overloaded", Resource, Tool, retry true,
        "the quota of this caller is used up; this call was not started", Some("wait until the period is over; the message says when"),
        "More calls, bytes or time of tools than the operator lets one caller use within a period; the call never started.";
    RepeatedFailure = "repeated_failure", QueueOverloaded, InternalError, 429, -31429,
        "overloaded", Resource, Tool, retry false,
        "this call failed too often with the same error; it was not run again", Some("change the arguments, or wait until the message says"),
        "The same call of the same caller failed as often as limits.repeated_failures says; it was answered without running.";
    Timeout = "timeout", ToolTimeout, InternalError, 504, -31504,
        "timeout", Timeout, Tool, retry false,
        "the tool did not finish before its deadline", Some("narrow the request, or raise the tool's timeout"),
        "The deadline passed; the work was cancelled.";
    Cancelled = "cancelled", Cancelled, InternalError, 499, -31499,
        "cancelled", Transport, Tool, retry false,
        "the request was cancelled", None,
        "The client cancelled the request.";
    ClientGone = "client_gone", Cancelled, InternalError, 499, -31499,
        "cancelled", Transport, Tool, retry false,
        "the client went away before the answer", None,
        "The connection closed before the answer; recorded in telemetry only.";
    OutcomeUnknown = "outcome_unknown", Internal, InternalError, 500, -32603,
        "outcome_unknown", Process, Tool, retry false,
        "the process that ran the call was lost; its outcome is unknown",
        Some("check whether the effect happened before trying again"),
        "A call that must not be repeated was lost with its worker.";
    ReplayExhausted = "replay_exhausted", Internal, InternalError, 503, -31503,
        "unavailable", Replay, Tool, retry true,
        "the process that ran the call was lost repeatedly and the attempts are used up",
        Some("retry later; mainstay status shows the last fault"),
        "Every allowed attempt was lost with its worker.";
    CallKillsWorker = "call_kills_worker", Internal, InternalError, 500, -32603,
        "internal", Replay, Tool, retry false,
        "this call ended every process that ran it",
        Some("change the arguments; mainstay status shows the last fault"),
        "The worker that ran this call alone was lost, as were those before it.";
    WorkerUnavailable = "worker_unavailable", Internal, InternalError, 503, -31503,
        "unavailable", Process, Tool, retry true,
        "the process that serves this is not running", Some("retry later; mainstay status shows the last fault"),
        "The worker could not be started, or its restart budget is spent.";
    WorkerSetup = "worker_setup", Internal, InternalError, 503, -31503,
        "unavailable", Process, Tool, retry false,
        "the process that serves this cannot start", Some("correct what it reports, then run mainstay rollout or start the host again"),
        "The worker said itself that its settings do not let it start.";
    WorkerNotReady = "worker_not_ready", Internal, InternalError, 504, -31504,
        "unavailable", Timeout, Tool, retry true,
        "the server did not become ready in time",
        Some("its last words may say what it waits for; raise --start-timeout (limits.start_timeout_ms) if it needs longer"),
        "The server was started and answered nothing within its start timeout.";
    WorkerProtocol = "worker_protocol", Internal, InternalError, 502, -31502,
        "internal", Protocol, Tool, retry false,
        "the process that serves this broke its protocol", Some("report this with the last fault that mainstay status shows"),
        "A worker answered in a form that cannot be used.";
    AnswerTooLarge = "answer_too_large", Internal, InvalidOutput, 502, -31502,
        "internal", Resource, Tool, retry false,
        "the tool's answer is over the limit", Some("ask for less; the limit is in limits.worker_frame_bytes"),
        "A worker's answer over the frame limit.";
    InvalidOutput = "invalid_output", Internal, InvalidOutput, 502, -31502,
        "internal", Downstream, Tool, retry false,
        "the tool's answer does not fit its output schema", Some("report this: it is a defect of the tool"),
        "A result that violates the tool's output schema.";
    ToolPanicked = "tool_panicked", Internal, InternalError, 500, -32603,
        "internal", Downstream, Tool, retry false,
        "the tool failed unexpectedly", Some("report this: it is a defect of the tool"),
        "A panic inside a tool, caught at its barrier.";
    ToolFailed = "tool_failed", Internal, InternalError, 500, -32603,
        "internal", Downstream, Tool, retry true,
        "the tool failed", Some("retry once; if it fails again, report it to the author of the tool"),
        "A tool reported an internal error of its own.";
    TaskNotRecorded = "task_not_recorded", Internal, InternalError, 503, -31503,
        "unavailable", Resource, Tool, retry true,
        "the task could not be recorded, so it was not started", Some("free some space on the disk of the task ledger, then try again"),
        "The ledger of tasks cannot be written or read; nothing was started.";
    KeyReused = "key_reused", InvalidRequest, InvalidInput, 422, -31422,
        "validation_failed", Protocol, Protocol, retry false,
        "this idempotency key was used with other arguments", Some("use a new key for every new request"),
        "Over REST: an Idempotency-Key that belongs to a call with other arguments.";
    ShuttingDown = "shutting_down", Internal, InternalError, 503, -31503,
        "unavailable", Rollout, Tool, retry true,
        "the host is stopping", Some("retry against the next host"),
        "The host no longer starts calls.";
    Internal = "internal", Internal, InternalError, 500, -32603,
        "internal", Invariant, Tool, retry true,
        "an internal error", Some("report this with the log lines around it"),
        "A broken invariant of Mainstay itself.";
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

/// The page `docs/errors.md`, generated so that it cannot differ from the table.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         Generated by `mainstay errors --markdown`; do not edit. One row per kind; every dialect\n\
         projects the same row, so the answer is the same whichever way it was asked for.\n\n\
         * **code**: `code` in tool errors and in JSON-RPC `data`.\n\
         * **canonical**, **HTTP**: result envelopes and REST.\n\
         * **JSON-RPC**: `error.code`. Kinds shown as *tool* reach MCP clients as a result with\n\
         \x20 `isError: true`, and use this code only where a tool result does not exist.\n\
         * **reason**: `reason` in the direct dialect.\n\
         * **retry**: whether the same request can succeed later (`retry` in invocation envelopes).\n\n\
         | kind | code | canonical | HTTP | JSON-RPC | MCP shows | reason | fault class | retry |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for kind in ErrorKind::ALL {
        let row = kind.row();
        let surface = match row.surface {
            Surface::Protocol => "error",
            Surface::Tool => "tool",
        };
        let retry = if row.retryable { "yes" } else { "no" };
        let _ = writeln!(
            page,
            "| `{}` | `{}` | `{}` | {} | {} | {surface} | `{}` | {} | {retry} |",
            row.name, row.code, row.canonical, row.http, row.jsonrpc, row.reason, row.class,
        );
    }
    page.push_str("\n## What each kind says\n");
    for kind in ErrorKind::ALL {
        let row = kind.row();
        let _ = write!(
            page,
            "\n### {}\n\n{}.\n",
            row.name,
            capitalised(row.message)
        );
        if let Some(hint) = row.hint {
            let _ = write!(page, "\n*What to do:* {hint}.\n");
        }
    }
    page
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_stands_once_under_its_own_name() {
        let names: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.row().name).collect();
        assert_eq!(names.len(), ErrorKind::ALL.len());
        for kind in ErrorKind::ALL {
            assert_eq!(kind.row().kind, *kind);
            let spelled = serde_json::to_value(kind).unwrap();
            assert_eq!(spelled, kind.row().name, "serde and the table agree");
        }
    }

    #[test]
    fn own_jsonrpc_codes_lie_outside_the_reserved_range() {
        const FIXED: [i32; 8] = [
            -32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022,
        ];
        for kind in ErrorKind::ALL {
            let row = kind.row();
            let code = row.jsonrpc;
            let fixed = FIXED.contains(&code) || code == -32002;
            assert!(
                fixed || code == -31000 - i32::from(row.http),
                "{kind}: {code}"
            );
        }
    }

    #[test]
    fn every_fault_class_has_a_row() {
        let classes: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.row().class).collect();
        assert_eq!(classes.len(), FaultClass::ALL.len());
    }

    #[test]
    fn every_public_code_has_a_row() {
        let codes: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.row().code).collect();
        assert_eq!(codes.len(), 13);
    }

    #[test]
    fn canonical_errors_carry_code_status_message_and_retryability() {
        let error = CanonicalError::NotFound.to_jsonrpc_error("no such schema");
        assert_eq!(
            error,
            serde_json::json!({"code": -31404, "message": "no such schema", "data": {
                "canonical": "NOT_FOUND", "httpStatus": 404,
                "message": "no such schema", "retryable": false}})
        );
    }
}
