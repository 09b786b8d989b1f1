//! The envelopes that the host sends: their ids, and the check of each against its own schema.
//!
//! [`Envelopes`] is one handle, shared by the engine and by whoever answers over HTTP. What it finds
//! is counted and kept for diagnostics; in [`EnvelopeMode::Enforce`] an envelope that breaks its
//! schema is not sent, an error envelope is. The schemas are compiled with the first envelope, since
//! most hosts never send one.

mod counts;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use mainstay_contract::envelope::redact::redact_text;
use mainstay_contract::envelope::{Asked, Ids, Meta, ResultEnvelope, Transport, tool_name};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::telemetry::{EnvelopeChecks, SchemaMismatch, Side};
use mainstay_schema::{CompileError, SchemaRegistry, Validator, Violation};
use serde_json::Value;

use self::counts::Counts;
use crate::config::{EnvelopeMode, IdSource};

/// Mismatches that are kept, as many as of tools.
const MISMATCHES: usize = 200;

/// A handle to what is known about envelopes.
#[derive(Clone, Debug)]
pub(crate) struct Envelopes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    mode: EnvelopeMode,
    ids: IdSource,
    result: OnceLock<Result<Validator, CompileError>>,
    counts: Counts,
    mismatches: Mutex<VecDeque<SchemaMismatch>>,
}

impl Envelopes {
    pub(crate) fn new(mode: EnvelopeMode, ids: IdSource) -> Self {
        Self(Arc::new(Shared {
            mode,
            ids,
            result: OnceLock::new(),
            counts: Counts::default(),
            mismatches: Mutex::new(VecDeque::new()),
        }))
    }

    /// What an envelope can say of a request before it has an outcome.
    pub(crate) fn meta(&self, asked: &Asked, transport: Transport) -> Meta {
        match self.0.ids {
            IdSource::Random => Meta::new(asked, transport, random_ids(), false),
            IdSource::Deterministic => Meta::new(asked, transport, Ids::deterministic(asked), true),
        }
    }

    /// The result envelope of an outcome, as it may be sent.
    pub(crate) fn result(&self, meta: Meta, outcome: &Outcome) -> String {
        self.sealed(&ResultEnvelope::new(meta, outcome))
    }

    fn sealed(&self, envelope: &ResultEnvelope) -> String {
        let text = envelope.encode();
        let Some(violation) = self.check(envelope, &text) else {
            return text;
        };
        let meta = &envelope.meta;
        self.note(meta.tool_id.as_deref().unwrap_or(&meta.method), &violation);
        match self.0.mode {
            EnvelopeMode::Off | EnvelopeMode::Shadow => text,
            EnvelopeMode::Enforce => replacement(meta, &violation),
        }
    }

    /// The first thing that is wrong with an envelope.
    fn check(&self, envelope: &ResultEnvelope, text: &str) -> Option<Violation> {
        if self.0.mode == EnvelopeMode::Off {
            return None;
        }
        let compiled = self
            .0
            .result
            .get_or_init(|| SchemaRegistry::new().load_envelope());
        let started = Instant::now();
        let value = serde_json::from_str(text).or_else(|_| {
            // A number in the data is beyond what a tree can hold. The schema asks nothing of data.
            let mut rest = envelope.clone();
            rest.result = rest.result.map(|_| Json::empty_object());
            serde_json::from_str::<Value>(&rest.encode())
        });
        let found = match (compiled, value) {
            (Ok(validator), Ok(value)) => validator.check(&value).into_iter().next(),
            (Err(error), _) => Some(violation(error.to_string())),
            (_, Err(error)) => Some(violation(error.to_string())),
        };
        self.0.counts.add(found.is_none(), started.elapsed());
        found
    }

    fn note(&self, what: &str, violation: &Violation) {
        let mut kept = self
            .0
            .mismatches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MISMATCHES {
            kept.pop_front();
        }
        kept.push_back(SchemaMismatch {
            tool: redact_text(what).into_owned(),
            side: Side::Envelope,
            path: redact_text(&violation.path).into_owned(),
            message: redact_text(&violation.message).into_owned(),
        });
    }

    /// What was counted.
    pub(crate) fn checks(&self) -> EnvelopeChecks {
        self.0.counts.checks(self.0.mode.as_str())
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

/// What is sent instead of an envelope that breaks its schema. Of what is known about the request
/// only that is kept which is ours and cannot be at fault.
fn replacement(meta: &Meta, violation: &Violation) -> String {
    let said = format!(
        "the answer's envelope does not fit its schema: {} {}",
        violation.path, violation.message
    );
    let problem = Problem::new(ErrorKind::InvalidOutput, said);
    let mut meta = meta.clone();
    meta.tool_id = meta.tool_id.filter(|id| tool_name(id).is_some());
    ResultEnvelope::new(meta, &Err(problem)).encode()
}

fn violation(message: String) -> Violation {
    let path = String::new();
    Violation { path, message }
}

/// Three ids that nobody had before.
fn random_ids() -> Ids {
    let mut bytes = [0; Ids::RANDOM_BYTES];
    // The kernel gives so few bytes whole, once it has gathered entropy at boot; should it not,
    // ids repeat, which is bad for tracing and for nothing else.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    Ids::random(bytes)
}

#[cfg(test)]
mod tests {
    use mainstay_contract::envelope::EnvelopeError;
    use mainstay_contract::outcome::{Success, ToolReply};

    use super::*;

    fn asked() -> Asked {
        Asked::tool("mcp.tool:put", &Json::empty_object())
    }

    fn envelopes(mode: EnvelopeMode) -> Envelopes {
        Envelopes::new(mode, IdSource::Random)
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
        let envelopes = envelopes(EnvelopeMode::Shadow);
        let envelope = broken(&envelopes);
        assert_eq!(envelopes.sealed(&envelope), envelope.encode());
        let checks = envelopes.checks();
        assert_eq!((checks.success_count, checks.failure_count), (0, 1));
        let mismatches = envelopes.mismatches();
        assert_eq!(mismatches.len(), 1);
        assert_eq!(mismatches[0].side, Side::Envelope);
        assert_eq!(mismatches[0].tool, "mcp.tool:not a token=[redacted]");
        assert_eq!(mismatches[0].path, "/error/message");
    }

    #[test]
    fn enforce_sends_an_error_envelope_that_is_valid_itself() {
        let envelopes = envelopes(EnvelopeMode::Enforce);
        let sent = envelopes.sealed(&broken(&envelopes));
        let read = ResultEnvelope::parse(sent.as_bytes(), 64).unwrap();
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
        assert_eq!(envelopes.sealed(&envelope), envelope.encode());
        let checks = envelopes.checks();
        assert_eq!((checks.success_count, checks.failure_count), (0, 0));
        assert_eq!(checks.mode, "off");
        assert_eq!(envelopes.mismatches(), []);
    }

    #[test]
    fn a_number_that_no_tree_holds_is_sent_as_it_is() {
        let envelopes = envelopes(EnvelopeMode::Enforce);
        let reply = ToolReply {
            json: Json::parse(r#"{"n":1e400}"#).unwrap(),
            text: None,
        };
        let meta = envelopes.meta(&asked(), Transport::Stdio);
        let sent = envelopes.result(meta, &Ok(Success::Tool(reply)));
        assert!(sent.contains(r#""data":{"n":1e400}"#), "{sent}");
        assert_eq!(envelopes.checks().success_count, 1);
    }

    #[test]
    fn mismatches_are_bounded_and_the_newest_stay() {
        let envelopes = envelopes(EnvelopeMode::Shadow);
        for number in 0..MISMATCHES + 3 {
            envelopes.note(&number.to_string(), &violation(String::new()));
        }
        let kept = envelopes.mismatches();
        assert_eq!(kept.len(), MISMATCHES);
        assert_eq!(kept.first().unwrap().tool, "3");
    }

    #[test]
    fn ids_are_new_each_time_unless_they_follow_from_the_request() {
        let random = envelopes(EnvelopeMode::Shadow);
        let meta = |envelopes: &Envelopes| envelopes.meta(&asked(), Transport::Cli);
        assert_ne!(meta(&random).ids, meta(&random).ids);
        assert!(!meta(&random).deterministic);
        let fixed = Envelopes::new(EnvelopeMode::Shadow, IdSource::Deterministic);
        assert_eq!(meta(&fixed), meta(&fixed));
        assert!(meta(&fixed).deterministic);
    }
}
