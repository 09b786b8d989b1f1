//! The telemetry payload and the event lines: counts and times, never contents.
//!
//! `docs/telemetry.md` describes every field; its examples are read with these types by a test.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Code;
use crate::fault::{Fault, FaultClass};
use crate::id::{Generation, RequestId};

/// A time in microseconds as the milliseconds of payloads.
#[expect(clippy::cast_precision_loss, reason = "times are far below 2^52 us")]
pub fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// Counts of the whole host or of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that ended, in any way.
    pub request_count: u64,
    pub success_count: u64,
    /// All that did not succeed.
    pub response_error_count: u64,
    /// Those among them that failed because a worker or the client was lost.
    pub transport_fault_count: u64,
    /// Times that a request was sent to a worker again.
    pub retry_count: u64,
}

/// Aggregates of one method or tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MethodStats {
    /// The tool's name for calls of tools, else the method.
    pub method: String,
    #[serde(flatten)]
    pub counts: Counts,
    pub last_latency_ms: f64,
    pub max_latency_ms: f64,
    pub avg_latency_ms: f64,
    pub p50: f64,
    pub p99: f64,
    pub last_error: Option<MethodError>,
}

/// The last error of a method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodError {
    pub code: Code,
    /// The sentence of the error table: the tool's own words were for the client that called it.
    pub message: String,
}

/// The answer of `system_telemetry`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    pub totals: Counts,
    /// Sorted by method.
    pub methods: Vec<MethodStats>,
    pub last_fault: Option<Fault>,
    /// The last fault for which a worker was replaced.
    pub last_restart_fault: Option<Fault>,
    /// The last ones, oldest first; those of envelopes last.
    pub schema_mismatches: Vec<SchemaMismatch>,
    /// Results of the checks of sent envelopes; null where the host never sends one.
    pub envelopes: Option<EnvelopeChecks>,
}

/// The checks of the envelopes that the host sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvelopeChecks {
    /// `off`, `shadow` or `enforce`.
    pub mode: String,
    /// Envelopes that kept their schema.
    pub success_count: u64,
    /// Envelopes that did not.
    pub failure_count: u64,
    /// How long a check took.
    pub avg_latency_ms: f64,
    pub max_latency_ms: f64,
    pub p50: f64,
    pub p99: f64,
}

/// A tool input or output, or an envelope, that did not fit its schema, in brief.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaMismatch {
    /// When it was found.
    pub ts: String,
    /// The client's id of the request as the JSON text that it was; null where none is known.
    pub request_id: Option<RequestId>,
    /// The trace of the request.
    pub trace_id: Option<String>,
    /// The tool's name; for an envelope the tool's identifier, or the method.
    pub tool: String,
    pub side: Side,
    pub path: String,
    pub message: String,
}

words! {
    /// Where a mismatch was found.
    pub enum Side {
        Input = "input",
        Output = "output",
        /// The envelope around an answer.
        Envelope = "envelope",
    }
}

/// One line of the event log. `event` names the kind; every other field is fixed by it.
///
/// An event holds counts, times, names and codes, never arguments, results or anybody's own
/// words: the file may be kept, shipped and read by people who must not see those.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A request ended.
    Request(RequestEvent),
    /// A worker's process was started.
    WorkerStarted(WorkerRun),
    /// A worker announced itself and gets calls.
    WorkerReady(WorkerRun),
    /// A worker died, could not be started, or must be replaced.
    WorkerLost(WorkerLoss),
    /// A worker's process has gone, whatever the cause.
    WorkerReaped(WorkerRun),
    /// A request envelope was accepted.
    Invocation(InvocationEvent),
    /// Which tools are called most, and which are slowest.
    HotTools(HotTools),
    /// Events that could not be written.
    Dropped(Dropped),
}

/// A request that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestEvent {
    /// When it ended: ISO-8601, UTC.
    pub ts: String,
    /// The client's session: the host, a dot, and the number of the session in it.
    pub session: String,
    /// The client's id as the JSON text that it was; null where there was none.
    pub request_id: Option<RequestId>,
    pub method: String,
    /// The tool's own name, where one was found.
    pub tool: Option<String>,
    /// The worker that last had it.
    pub generation: Option<Generation>,
    /// Times that it was sent to a worker.
    pub attempt: u32,
    /// True if it was sent more than once.
    pub replayed: bool,
    /// From its acceptance to its end.
    pub latency_ms: f64,
    pub outcome: EventOutcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<Code>,
    /// The fault, where the host or a worker is to blame.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<FaultClass>,
    /// Bytes of the request's line.
    pub input_bytes: usize,
    /// Bytes of the answer's line; 0 where none was sent.
    pub output_bytes: usize,
}

/// How the request of an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventOutcome {
    Ok,
    Error,
    /// By its client, or because its client went away.
    Cancelled,
}

/// A step in the life of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerRun {
    pub ts: String,
    /// The host: its process id and the second of its start.
    pub host: String,
    pub pack: String,
    pub generation: Generation,
    pub pid: u32,
}

/// The loss of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerLoss {
    pub ts: String,
    pub host: String,
    pub pack: String,
    pub generation: Generation,
    pub fault: FaultClass,
    pub code: Code,
    /// One sentence in our words; the worker's own are in health and in the log.
    pub detail: String,
}

/// The sender's own members of a request envelope, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InvocationEvent {
    pub ts: String,
    pub host: String,
    /// The envelope's id; the request's event has it as `request_id`.
    pub id: String,
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<String>,
    /// Of `context` and `metadata`: the object, or the number of its bytes where it is too long.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<Value>,
}

/// The tools worth a look, since the host's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotTools {
    pub ts: String,
    pub host: String,
    /// Requests of every kind that have ended.
    pub request_count: u64,
    /// By calls, most first.
    pub most_called: Vec<HotTool>,
    /// By `p99`, slowest first.
    pub slowest: Vec<HotTool>,
}

/// A tool worth a look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotTool {
    pub tool: String,
    pub request_count: u64,
    pub response_error_count: u64,
    /// Latency in milliseconds.
    pub p50: f64,
    pub p99: f64,
}

/// Events that could not be written: the disk was too slow, full or not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    pub ts: String,
    pub host: String,
    pub count: u64,
}

impl HotTools {
    /// Tools in each list.
    pub const TOP: usize = 5;

    /// The hot ones among `methods` that are tools. Equals are in the order of their names.
    pub fn of<'a>(
        ts: String,
        host: String,
        request_count: u64,
        tools: impl Iterator<Item = &'a MethodStats>,
    ) -> Self {
        let mut tools: Vec<_> = tools.collect();
        let top = |tools: &[&MethodStats]| {
            let hot = |stats: &&MethodStats| HotTool {
                tool: stats.method.clone(),
                request_count: stats.counts.request_count,
                response_error_count: stats.counts.response_error_count,
                p50: stats.p50,
                p99: stats.p99,
            };
            tools.iter().take(Self::TOP).map(hot).collect()
        };
        tools.sort_by(|a, b| a.method.cmp(&b.method));
        tools.sort_by_key(|stats| Reverse(stats.counts.request_count));
        let most_called = top(&tools);
        tools.sort_by(|a, b| a.method.cmp(&b.method));
        tools.sort_by(|a, b| b.p99.total_cmp(&a.p99));
        let slowest = top(&tools);
        Self {
            ts,
            host,
            request_count,
            most_called,
            slowest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(method: &str, calls: u64, p99: f64) -> MethodStats {
        MethodStats {
            method: method.to_owned(),
            counts: Counts {
                request_count: calls,
                ..Counts::default()
            },
            last_latency_ms: p99,
            max_latency_ms: p99,
            avg_latency_ms: p99,
            p50: p99,
            p99,
            last_error: None,
        }
    }

    #[test]
    fn hot_tools_are_the_first_five_by_calls_and_by_latency() {
        let all: Vec<_> = (0..8_u32)
            .map(|n| stats(&format!("tool{n}"), u64::from(n / 2), f64::from(8 - n)))
            .collect();
        let hot = HotTools::of(String::new(), String::new(), 12, all.iter());
        let names = |tools: &[HotTool]| {
            let names: Vec<_> = tools.iter().map(|tool| tool.tool.clone()).collect();
            names.join(" ")
        };
        assert_eq!(names(&hot.most_called), "tool6 tool7 tool4 tool5 tool2");
        assert_eq!(names(&hot.slowest), "tool0 tool1 tool2 tool3 tool4");
    }

    #[test]
    fn the_fields_of_a_request_are_those_of_the_contract_in_their_order() {
        let event = Event::Request(RequestEvent {
            ts: "2026-01-01T00:00:00.000Z".to_owned(),
            session: "7-5f.1".to_owned(),
            request_id: None,
            method: "tools/call".to_owned(),
            tool: Some("put".to_owned()),
            generation: Some(Generation::new(2)),
            attempt: 2,
            replayed: true,
            latency_ms: 1.5,
            outcome: EventOutcome::Error,
            code: Some(Code::Internal),
            fault: Some(FaultClass::Process),
            input_bytes: 3,
            output_bytes: 4,
        });
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            concat!(
                r#"{"event":"request","ts":"2026-01-01T00:00:00.000Z","session":"7-5f.1","#,
                r#""request_id":null,"method":"tools/call","tool":"put","generation":2,"attempt":2,"#,
                r#""replayed":true,"latency_ms":1.5,"outcome":"error","code":"INTERNAL","#,
                r#""fault":"process","input_bytes":3,"output_bytes":4}"#,
            )
        );
        for wrong in [
            r#"{"event":"dropped","ts":"","host":"","count":1,"why":"x"}"#,
            r#"{"event":"droped","ts":"","host":"","count":1}"#,
        ] {
            assert!(serde_json::from_str::<Event>(wrong).is_err(), "{wrong}");
        }
    }
}
