//! The response envelope: how one run of one tool ended. The host writes it and never reads one.

use super::{ENVELOPE_VERSION, shown};
use crate::json::{Json, ObjectWriter};
use crate::outcome::{Outcome, Problem, Success};

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct InvocationResponse {
    pub id: String,
    pub trace_id: Option<String>,
    pub result: Result<Json, Problem>,
    /// The output is that of a task that was accepted and has not ended.
    pub is_accepted: bool,
    pub timings: Timings,
}

/// When a response was made, and how long the run took.
#[derive(Clone, Debug, PartialEq)]
pub struct Timings {
    /// ISO-8601, UTC.
    pub timestamp: String,
    pub duration_ms: f64,
}

impl InvocationResponse {
    /// How a run ended, in an envelope.
    pub fn new(id: String, trace_id: Option<String>, outcome: &Outcome, timings: Timings) -> Self {
        Self {
            id,
            trace_id,
            result: shown(outcome).map_err(std::borrow::Cow::into_owned),
            // A tool answers with an answer of its own; members are those of a task.
            is_accepted: matches!(outcome, Ok(Success::Members(_))),
            timings,
        }
    }

    /// The text, on one line.
    pub fn encode(&self) -> String {
        let problem = self.result.as_ref().err();
        let output = self.result.as_ref().ok().map(Json::as_str);
        let (code, http, message) = match problem {
            None if self.is_accepted => ("accepted", 202, "accepted"),
            None => ("success", 200, "ok"),
            Some(problem) => {
                let row = problem.kind.row();
                (row.invocation_status(), row.http, problem.sentence())
            }
        };
        let status = ObjectWriter::with_capacity(96)
            .string("code", code)
            .value("http", &http)
            .string("message", message)
            .finish();
        // The row's public code; whatever else it and the call say stands in the detail.
        let errors = problem.map(|problem| {
            let error = ObjectWriter::with_capacity(256)
                .string("message", problem.sentence())
                .string("code", problem.kind.row().code.as_str())
                .raw("detail", &problem.envelope_details());
            format!("[{}]", error.finish())
        });
        ObjectWriter::with_capacity(output.map_or(0, str::len) + 512)
            .string("id", &self.id)
            .string("version", ENVELOPE_VERSION)
            .raw("status", &status)
            .string("timestamp", &self.timings.timestamp)
            .optional_string("trace_id", self.trace_id.as_deref())
            .value("duration_ms", &self.timings.duration_ms)
            .optional_raw("output", output)
            .optional_raw("errors", errors.as_deref())
            .finish()
    }
}
