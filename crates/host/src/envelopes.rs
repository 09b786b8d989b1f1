//! The envelopes that the host sends: their ids, and the check of each against its own schema.
//!
//! [`Envelopes`] is one handle, shared by the engine and by the HTTP front. Each violation
//! is counted and kept for diagnostics; in [`EnvelopeMode::Enforce`] an envelope that breaks its
//! schema is not sent, an error envelope is. The schemas are compiled with the first envelope, since
//! most hosts never send one.

mod counts;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use mainstay_contract::envelope::{
    Asked, Ids, InvocationError, InvocationResponse, Meta, ResultEnvelope, Timings, Transport,
    tool_name,
};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Forwarded, Outcome, Problem, Success};
use mainstay_contract::render::{shorten, visible};
use mainstay_contract::telemetry::{EnvelopeChecks, SchemaMismatch, Side};
use mainstay_kernel::log_limit::{LogLimit, suppressed};
use mainstay_schema::{CompileError, SchemaRegistry, Validator, Violation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::counts::Counts;
pub(crate) use self::counts::Latencies;
use crate::clock::{Clock, iso_now};
use crate::config::{EnvelopeMode, IdSource};
use crate::log::{Level, Log};

/// Subject of an envelope that names no tool.
const INVOCATION: &str = "invocation";
/// Longest name in a log line.
const SHOWN: usize = 120;

/// A handle to what is known about envelopes.
#[derive(Clone, Debug)]
pub(crate) struct Envelopes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    mode: EnvelopeMode,
    ids: IdSource,
    /// How many mismatches are kept.
    keep: usize,
    result: OnceLock<Result<Validator, CompileError>>,
    response: OnceLock<Result<Validator, CompileError>>,
    counts: Counts,
    mismatches: Mutex<VecDeque<SchemaMismatch>>,
    log: Log,
    log_limit: Mutex<LogLimit>,
    clock: Clock,
}

/// Counts and diagnostics of [`Envelopes`], as they are saved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedEnvelopes {
    counts: Vec<u64>,
    mismatches: Vec<SchemaMismatch>,
}

impl Envelopes {
    pub(crate) fn new(mode: EnvelopeMode, ids: IdSource, keep: usize, log: &Log) -> Self {
        Self(Arc::new(Shared {
            mode,
            ids,
            keep,
            result: OnceLock::new(),
            response: OnceLock::new(),
            counts: Counts::default(),
            mismatches: Mutex::new(VecDeque::new()),
            log: log.clone(),
            log_limit: Mutex::default(),
            clock: Clock::start(),
        }))
    }

    /// Counts and diagnostics, for a process that continues in this one's place.
    pub(crate) fn save(&self) -> SavedEnvelopes {
        SavedEnvelopes {
            counts: self.0.counts.save(),
            mismatches: self.mismatches(),
        }
    }

    pub(crate) fn restore(&self, saved: SavedEnvelopes) {
        self.0.counts.restore(&saved.counts);
        let mut mismatches = self
            .0
            .mismatches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        mismatches.extend(saved.mismatches);
    }

    /// The part of an envelope that is known before its request has an outcome.
    pub(crate) fn meta(&self, asked: &Asked, transport: Transport) -> Meta {
        match self.0.ids {
            IdSource::Random => Meta::new(asked, transport, random_ids(), false),
            IdSource::Deterministic => Meta::new(asked, transport, Ids::deterministic(asked), true),
        }
    }

    /// The result envelope of an outcome, as it may be sent.
    pub(crate) fn result(&self, meta: Meta, outcome: &Outcome) -> Sealed {
        self.seal_result(&ResultEnvelope::new(meta, outcome), kind_of(outcome))
    }

    fn seal_result(&self, envelope: &ResultEnvelope, kind: Option<ErrorKind>) -> Sealed {
        let meta = &envelope.meta;
        let instead = |problem: Problem| {
            // Only that is kept which is ours and cannot be at fault.
            let mut meta = meta.clone();
            meta.tool_id = meta.tool_id.filter(|id| tool_name(id).is_some());
            ResultEnvelope::new(meta, &Err(problem)).encode()
        };
        self.seal(Draft {
            compiled: &self.0.result,
            load: SchemaRegistry::load_envelope,
            about: meta.tool_id.as_deref().unwrap_or(&meta.method),
            request_id: None,
            text: envelope.encode(),
            kind,
            // The schema asks nothing of data.
            without_data: &|| {
                let mut rest = envelope.clone();
                rest.result = rest.result.map(|_| Json::empty_object());
                rest.encode()
            },
            instead: &instead,
        })
    }

    /// The response envelope of an outcome, as it may be sent.
    pub(crate) fn response(
        &self,
        asked: &Responds<'_>,
        outcome: &Outcome,
        timings: &Timings,
    ) -> Sealed {
        let make = |outcome: &Outcome| {
            let trace_id = asked.trace_id.map(str::to_owned);
            InvocationResponse::new(asked.id.to_owned(), trace_id, outcome, timings.clone())
        };
        let response = make(outcome);
        self.seal(Draft {
            compiled: &self.0.response,
            load: SchemaRegistry::load_response,
            about: asked.tool.unwrap_or(INVOCATION),
            request_id: Some(asked.id),
            text: response.encode(),
            kind: kind_of(outcome),
            without_data: &|| {
                let mut rest = response.clone();
                rest.result = rest.result.map(|_| Json::empty_object());
                rest.encode()
            },
            instead: &|problem| make(&Err(problem)).encode(),
        })
    }

    fn seal(&self, draft: Draft<'_>) -> Sealed {
        let Some(violation) = self.check(&draft) else {
            return draft.unchanged();
        };
        self.note(draft.about, draft.request_id, &violation);
        match self.0.mode {
            EnvelopeMode::Off | EnvelopeMode::Shadow => draft.unchanged(),
            EnvelopeMode::Enforce => {
                let said = format!(
                    "the answer's envelope does not fit its schema: {} {}",
                    violation.path, violation.message
                );
                let kind = ErrorKind::InvalidOutput;
                Sealed {
                    text: (draft.instead)(Problem::new(kind, said)),
                    kind: Some(kind),
                }
            }
        }
    }

    /// The first thing that is wrong with an envelope.
    fn check(&self, draft: &Draft<'_>) -> Option<Violation> {
        if self.0.mode == EnvelopeMode::Off {
            return None;
        }
        let compiled = draft
            .compiled
            .get_or_init(|| (draft.load)(&SchemaRegistry::new()));
        let started = Instant::now();
        // A number in the data may be beyond what a tree can hold.
        let value = serde_json::from_str(&draft.text)
            .or_else(|_| serde_json::from_str::<Value>(&(draft.without_data)()));
        let found = match (compiled, value) {
            (Ok(validator), Ok(value)) => validator.check(&value).into_iter().next(),
            (Err(error), _) => Some(Violation::new("", error.to_string())),
            (_, Err(error)) => Some(Violation::new("", error.to_string())),
        };
        self.0.counts.add(found.is_none(), started.elapsed());
        found
    }

    /// Records a client's request envelope that was refused. The counts are those of our own envelopes.
    pub(crate) fn refused(&self, reason: &InvocationError, request_id: Option<&str>) {
        let (path, message) = match reason {
            InvocationError::Field(error) => (error.path.clone(), error.kind.to_string()),
            other => (String::new(), other.to_string()),
        };
        self.note(INVOCATION, request_id, &Violation { path, message });
    }

    fn note(&self, what: &str, request_id: Option<&str>, violation: &Violation) {
        let clean = |text: &str| self.0.log.redactor().text(text).into_owned();
        let mismatch = SchemaMismatch {
            ts: iso_now(),
            request_id: request_id
                .filter(|id| !id.is_empty())
                .and_then(|id| RequestId::parse(&Value::from(id).to_string()).ok()),
            trace_id: None,
            tool: clean(what),
            side: Side::Envelope,
            path: clean(&violation.path),
            message: clean(&violation.message),
        };
        let mut limit = self
            .0
            .log_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = limit.admit(self.0.clock.read()) {
            let line = format!(
                "mcp:warning reason=schema_mismatch side=envelope tool={} path={:?}{} {}",
                shorten(&visible(&mismatch.tool), SHOWN),
                mismatch.path,
                suppressed(more),
                mismatch.message
            );
            self.0.log.say(Level::Warn, line);
        }
        drop(limit);
        let mut kept = self
            .0
            .mismatches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while kept.len() >= self.0.keep.max(1) {
            kept.pop_front();
        }
        kept.push_back(mismatch);
    }

    /// The counters.
    pub(crate) fn checks(&self) -> EnvelopeChecks {
        self.0.counts.checks(self.0.mode.as_str())
    }

    /// How long the checks took.
    pub(crate) fn latencies(&self) -> Latencies {
        self.0.counts.latencies()
    }

    /// The last mismatches, oldest first.
    pub(crate) fn mismatches(&self) -> Vec<SchemaMismatch> {
        let kept = self
            .0
            .mismatches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }
}

/// An envelope as it may be sent.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) text: String,
    /// The error kind that the envelope states.
    pub(crate) kind: Option<ErrorKind>,
}

/// The request that a response envelope answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responds<'a> {
    pub(crate) id: &'a str,
    pub(crate) trace_id: Option<&'a str>,
    pub(crate) tool: Option<&'a str>,
}

/// An envelope before its check.
struct Draft<'a> {
    compiled: &'a OnceLock<Result<Validator, CompileError>>,
    load: fn(&SchemaRegistry) -> Result<Validator, CompileError>,
    /// Who is named when it breaks its schema.
    about: &'a str,
    request_id: Option<&'a str>,
    text: String,
    kind: Option<ErrorKind>,
    without_data: &'a dyn Fn() -> String,
    /// The answer in place of one that breaks its schema.
    instead: &'a dyn Fn(Problem) -> String,
}

impl Draft<'_> {
    fn unchanged(self) -> Sealed {
        Sealed {
            text: self.text,
            kind: self.kind,
        }
    }
}

fn kind_of(outcome: &Outcome) -> Option<ErrorKind> {
    match outcome {
        Err(problem) => Some(problem.kind),
        Ok(Success::Forwarded(Forwarded { is_error: true, .. })) => Some(ErrorKind::BackendError),
        Ok(_) => None,
    }
}

/// Three fresh ids.
fn random_ids() -> Ids {
    let mut bytes = [0; Ids::RANDOM_BYTES];
    // The kernel gives so few bytes whole, once it has gathered entropy at boot; should it not,
    // ids repeat, which is bad for tracing and for nothing else.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    Ids::random(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use mainstay_contract::envelope::{EnvelopeError, Invocation};
    use mainstay_contract::outcome::ToolReply;

    use super::*;

    const KEEP: usize = 5;

    fn asked() -> Asked {
        Asked::tool("mcp.tool:put", &Json::empty_object())
    }

    fn logged(mode: EnvelopeMode, ids: IdSource) -> (Envelopes, Receiver<String>) {
        let (log, lines) = Log::recorded(Level::Info);
        (Envelopes::new(mode, ids, KEEP, &log), lines)
    }

    fn envelopes(mode: EnvelopeMode) -> Envelopes {
        logged(mode, IdSource::Random).0
    }

    /// An envelope that we would never make: its error has no words.
    fn broken(envelopes: &Envelopes) -> ResultEnvelope {
        let mut envelope = ResultEnvelope::new(
            envelopes.meta(&asked(), Transport::Stdio),
            &Err(Problem::of(ErrorKind::NotFound)),
        );
        if let Err(EnvelopeError { message, .. }) = &mut envelope.result {
            message.clear();
        }
        envelope.meta.tool_id = Some("mcp.tool:not a token=abc".to_owned());
        envelope
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn shadow_sends_what_is_wrong_and_tells_of_it_without_secrets() {
        let (envelopes, lines) = logged(EnvelopeMode::Shadow, IdSource::Random);
        let envelope = broken(&envelopes);
        assert_eq!(
            envelopes.seal_result(&envelope, None).text,
            envelope.encode()
        );
        let checks = envelopes.checks();
        assert_eq!((checks.success_count, checks.failure_count), (0, 1));
        let mismatches = envelopes.mismatches();
        assert_eq!(mismatches.len(), 1);
        assert_eq!(mismatches[0].side, Side::Envelope);
        assert_eq!(mismatches[0].tool, "mcp.tool:not a token=[redacted]");
        assert_eq!(mismatches[0].path, "/error/message");
        let line = lines.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(
            line.contains("reason=schema_mismatch side=envelope"),
            "{line}"
        );
        assert!(!line.contains("abc"), "{line}");
    }

    #[test]
    fn a_bad_request_of_a_client_is_kept_and_is_no_failure_of_ours() {
        let envelopes = envelopes(EnvelopeMode::Shadow);
        let reason = Invocation::parse(b"{}", 64).unwrap_err().reason;
        envelopes.refused(&reason, Some("r-7"));
        let checks = envelopes.checks();
        assert_eq!((checks.success_count, checks.failure_count), (0, 0));
        let kept = envelopes.mismatches().remove(0);
        assert_eq!(kept.request_id.unwrap().as_raw(), "\"r-7\"");
        assert!(kept.ts.ends_with('Z'), "{}", kept.ts);
    }

    #[test]
    fn enforce_sends_an_error_envelope_that_is_valid_itself() {
        let envelopes = envelopes(EnvelopeMode::Enforce);
        let sent = envelopes.seal_result(&broken(&envelopes), None);
        assert_eq!(sent.kind, Some(ErrorKind::InvalidOutput));
        let sent = sent.text;
        let read = ResultEnvelope::read(&sent).unwrap();
        let error = read.result.unwrap_err();
        assert_eq!(error.code.as_str(), "INVALID_OUTPUT");
        assert!(
            error.message.contains("/error/message"),
            "{}",
            error.message
        );
        let validator = SchemaRegistry::new().load_envelope().unwrap();
        assert_eq!(validator.check(&parsed(&sent)), []);
        assert_eq!(envelopes.checks().failure_count, 1);
    }

    #[test]
    fn off_looks_at_nothing() {
        let envelopes = envelopes(EnvelopeMode::Off);
        let envelope = broken(&envelopes);
        assert_eq!(
            envelopes.seal_result(&envelope, None).text,
            envelope.encode()
        );
        let checks = envelopes.checks();
        assert_eq!((checks.success_count, checks.failure_count), (0, 0));
        assert_eq!(checks.mode, "off");
        assert_eq!(envelopes.mismatches(), []);
    }

    #[test]
    fn a_number_that_no_tree_holds_is_sent_unchanged() {
        let envelopes = envelopes(EnvelopeMode::Enforce);
        let reply = ToolReply {
            json: Json::parse(r#"{"n":1e400}"#).unwrap(),
            text: None,
        };
        let meta = envelopes.meta(&asked(), Transport::Stdio);
        let sent = envelopes.result(meta, &Ok(Success::Tool(reply))).text;
        assert!(sent.contains(r#""data":{"n":1e400}"#), "{sent}");
        assert_eq!(envelopes.checks().success_count, 1);
    }

    #[test]
    fn mismatches_are_bounded_and_the_newest_stay() {
        let envelopes = envelopes(EnvelopeMode::Shadow);
        for number in 0..KEEP + 3 {
            envelopes.note(&number.to_string(), None, &Violation::new("", ""));
        }
        let kept = envelopes.mismatches();
        assert_eq!(kept.len(), KEEP);
        assert_eq!(kept.first().unwrap().tool, "3");
    }

    #[test]
    fn ids_are_new_each_time_unless_they_follow_from_the_request() {
        let random = envelopes(EnvelopeMode::Shadow);
        let meta = |envelopes: &Envelopes| envelopes.meta(&asked(), Transport::Cli);
        assert_ne!(meta(&random).ids, meta(&random).ids);
        assert!(!meta(&random).deterministic);
        let fixed = logged(EnvelopeMode::Shadow, IdSource::Deterministic).0;
        assert_eq!(meta(&fixed), meta(&fixed));
        assert!(meta(&fixed).deterministic);
    }
}
