//! The response envelope: how one run of one tool ended.

use std::collections::BTreeMap;

use super::fields::{self, Field, FieldErrorKind, Fields, Read};
use super::request::parts;
use super::{ENVELOPE_VERSION, is_date_time, shown};
use crate::json::{Json, ObjectWriter};
use crate::outcome::{Outcome, Problem, Success};
use crate::scan;

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct InvocationResponse {
    pub id: String,
    pub version: String,
    pub status: Status,
    pub timestamp: String,
    pub trace_id: Option<String>,
    pub duration_ms: Option<f64>,
    pub output: Option<Json>,
    pub metadata: Option<Json>,
    pub headers: BTreeMap<String, String>,
    pub errors: Vec<ResponseError>,
}

/// `status` of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: StatusCode,
    pub http: Option<u16>,
    pub message: Option<String>,
}

/// How a run ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    Success,
    /// It runs as a task.
    Accepted,
    Retry,
    Error,
}

impl StatusCode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Accepted, Self::Retry, Self::Error];

    /// The word in envelopes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Accepted => "accepted",
            Self::Retry => "retry",
            Self::Error => "error",
        }
    }

    const fn is_failure(self) -> bool {
        matches!(self, Self::Retry | Self::Error)
    }
}

/// One of a response's errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseError {
    pub message: String,
    pub code: Option<String>,
    pub detail: Option<Json>,
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
        let (status, output, errors) = match shown(outcome) {
            Ok(output) => {
                // A tool answers with an answer of its own; members are those of a task.
                let (code, http, message) = match outcome {
                    Ok(Success::Members(_)) => (StatusCode::Accepted, 202, "accepted"),
                    _ => (StatusCode::Success, 200, "ok"),
                };
                let status = Status {
                    code,
                    http: Some(http),
                    message: Some(message.to_owned()),
                };
                (status, Some(output), Vec::new())
            }
            Err(problem) => {
                let status = Status::of(&problem);
                (status, None, vec![ResponseError::new(&problem)])
            }
        };
        Self {
            id,
            version: ENVELOPE_VERSION.to_owned(),
            status,
            timestamp: timings.timestamp,
            trace_id,
            duration_ms: Some(timings.duration_ms),
            output,
            metadata: None,
            headers: BTreeMap::new(),
            errors,
        }
    }

    /// The text, on one line.
    pub fn encode(&self) -> String {
        let output = self.output.as_ref().map_or(0, Json::len);
        let mut response = ObjectWriter::with_capacity(output + 512)
            .string("id", &self.id)
            .string("version", &self.version)
            .raw("status", &self.status.encode())
            .string("timestamp", &self.timestamp);
        if let Some(trace_id) = &self.trace_id {
            response = response.string("trace_id", trace_id);
        }
        if let Some(duration_ms) = self.duration_ms {
            response = response.value("duration_ms", &duration_ms);
        }
        if let Some(output) = &self.output {
            response = response.raw("output", output.as_str());
        }
        if let Some(metadata) = &self.metadata {
            response = response.raw("metadata", metadata.as_str());
        }
        if !self.headers.is_empty() {
            response = response.value("headers", &self.headers);
        }
        if !self.errors.is_empty() {
            let errors: Vec<_> = self.errors.iter().map(ResponseError::encode).collect();
            response = response.raw("errors", &format!("[{}]", errors.join(",")));
        }
        response.finish()
    }

    /// Reads a response as strictly as its schema does.
    pub fn parse(text: &[u8], max_depth: usize) -> Read<Self> {
        let whole = Field::whole(fields::document(text, max_depth)?);
        let fields = Fields::of(
            &whole,
            &[
                "id",
                "version",
                "status",
                "timestamp",
                "trace_id",
                "duration_ms",
                "output",
                "metadata",
                "headers",
                "errors",
            ],
        )?;
        let status_field = fields.required("status")?;
        let status = Status::parse(&status_field)?;
        let errors = match fields.optional("errors") {
            None => Vec::new(),
            Some(errors) => errors
                .elements()?
                .iter()
                .map(ResponseError::parse)
                .collect::<Read<_>>()?,
        };
        let output = fields.optional("output");
        if status.code.is_failure() && errors.is_empty() {
            return status_field.wrong(FieldErrorKind::Contradicts("errors"));
        }
        if !status.code.is_failure() && !errors.is_empty() {
            return status_field.wrong(FieldErrorKind::Contradicts("errors"));
        }
        if let Some(output) = output.as_ref().filter(|_| status.code.is_failure()) {
            return output.wrong(FieldErrorKind::Contradicts("status"));
        }
        let trace_id = fields.optional("trace_id").map(|field| field.text());
        let duration_ms = fields.optional("duration_ms").map(|field| field.amount());
        let metadata = fields.optional("metadata").map(|field| field.object());
        let headers = fields.optional("headers").map(|field| headers(&field));
        Ok(Self {
            id: fields.required("id")?.string()?,
            version: fields
                .required("version")?
                .string_that("a version 1.m.p", |text| {
                    matches!(parts(text), Some(["1", _, _]))
                })?,
            status,
            timestamp: fields
                .required("timestamp")?
                .string_that("a date and time of RFC 3339", is_date_time)?,
            trace_id: trace_id.transpose()?,
            duration_ms: duration_ms.transpose()?,
            output: output.map(|output| output.json()),
            metadata: metadata.transpose()?,
            headers: headers.transpose()?.unwrap_or_default(),
            errors,
        })
    }
}

fn headers(field: &Field<'_>) -> Read<BTreeMap<String, String>> {
    field.object()?;
    let mut headers = BTreeMap::new();
    for (name, raw) in scan::members(field.raw) {
        let path = format!("{}/{name}", field.path);
        let value = Field { path, raw }.string()?;
        if headers.insert(name.clone().into_owned(), value).is_some() {
            return field.wrong(FieldErrorKind::Twice(name.into_owned()));
        }
    }
    Ok(headers)
}

impl Status {
    fn of(problem: &Problem) -> Self {
        let row = problem.kind.row();
        let code = if row.retryable {
            StatusCode::Retry
        } else {
            StatusCode::Error
        };
        Self {
            code,
            http: Some(row.http),
            message: Some(problem.sentence().to_owned()),
        }
    }

    fn encode(&self) -> String {
        let mut status = ObjectWriter::with_capacity(96).string("code", self.code.as_str());
        if let Some(http) = self.http {
            status = status.value("http", &http);
        }
        if let Some(message) = &self.message {
            status = status.string("message", message);
        }
        status.finish()
    }

    fn parse(field: &Field<'_>) -> Read<Self> {
        let fields = Fields::of(field, &["code", "http", "message"])?;
        let parse = |text: &str| StatusCode::ALL.into_iter().find(|c| c.as_str() == text);
        let code = fields
            .required("code")?
            .word("success, accepted, retry or error", parse)?;
        let message = fields.optional("message").map(|field| field.string());
        let http = match fields.optional("http") {
            None => None,
            Some(field) => {
                let number = u16::try_from(field.count()?).ok();
                match number.filter(|number| (100..=599).contains(number)) {
                    None => return field.wrong(FieldErrorKind::WrongValue("from 100 to 599")),
                    Some(300..=399) => return field.wrong(FieldErrorKind::Contradicts("code")),
                    Some(number) if (number >= 400) != code.is_failure() => {
                        return field.wrong(FieldErrorKind::Contradicts("code"));
                    }
                    number => number,
                }
            }
        };
        Ok(Self {
            code,
            http,
            message: message.transpose()?,
        })
    }
}

impl ResponseError {
    /// The row's public code; whatever else it and the call say stands in the detail.
    pub fn new(problem: &Problem) -> Self {
        Self {
            message: problem.sentence().to_owned(),
            code: Some(problem.kind.row().code.as_str().to_owned()),
            detail: Some(Json::from_scanned(&problem.envelope_details())),
        }
    }

    fn encode(&self) -> String {
        let mut error = ObjectWriter::with_capacity(256).string("message", &self.message);
        if let Some(code) = &self.code {
            error = error.string("code", code);
        }
        if let Some(detail) = &self.detail {
            error = error.raw("detail", detail.as_str());
        }
        error.finish()
    }

    fn parse(field: &Field<'_>) -> Read<Self> {
        let fields = Fields::of(field, &["message", "code", "detail"])?;
        let code = fields.optional("code").map(|field| field.string());
        Ok(Self {
            message: fields.required("message")?.string()?,
            code: code.transpose()?,
            detail: fields.optional("detail").map(|detail| detail.json()),
        })
    }
}
