//! The result envelope, `{ok, data, error, meta}`: success or error, never both.

use serde::Deserialize;

use super::{Meta, shown};
use crate::canonical::canonical_text;
use crate::error::CanonicalError;
use crate::json::{Json, ObjectWriter};
use crate::outcome::{Outcome, Problem};

/// A result envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultEnvelope {
    pub result: Result<Json, EnvelopeError>,
    pub meta: Meta,
}

/// `error` of a result envelope.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EnvelopeError {
    pub code: CanonicalError,
    pub message: String,
    pub details: Option<Json>,
}

impl EnvelopeError {
    /// The row's canonical code; whatever else it and the call say stands in the details.
    pub fn new(problem: &Problem) -> Self {
        Self {
            code: problem.kind.row().canonical,
            message: problem.sentence().to_owned(),
            details: Some(Json::from_scanned(&problem.envelope_details())),
        }
    }

    fn encode(&self) -> String {
        ObjectWriter::with_capacity(self.message.len() + 256)
            .string("code", self.code.as_str())
            .string("message", &self.message)
            .optional_raw("details", self.details.as_ref().map(Json::as_str))
            .finish()
    }
}

impl ResultEnvelope {
    /// How a request ended, in an envelope.
    pub fn new(mut meta: Meta, outcome: &Outcome) -> Self {
        let result = shown(outcome).map_err(|problem| EnvelopeError::new(&problem));
        let data = match &result {
            Ok(data) => canonical_text(data).len(),
            Err(_) => "null".len(),
        };
        meta.output_bytes = data as u64;
        Self { result, meta }
    }

    /// The text, on one line.
    pub fn encode(&self) -> String {
        match &self.result {
            Ok(data) => ObjectWriter::with_capacity(data.len() + 512)
                .raw("ok", "true")
                .raw("data", data.as_str())
                .raw("error", "null")
                .raw("meta", &self.meta.encode("ok"))
                .finish(),
            Err(error) => ObjectWriter::with_capacity(1024)
                .raw("ok", "false")
                .raw("data", "null")
                .raw("error", &error.encode())
                .raw("meta", &self.meta.encode("error"))
                .finish(),
        }
    }

    /// Reads an envelope that its schema accepts. The schema judges an envelope; this only takes it apart.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let Written { data, error, meta } = serde_json::from_str(text)?;
        let result = error.map_or(Ok(data), Err);
        Ok(Self { result, meta })
    }
}

#[derive(Deserialize)]
struct Written {
    data: Json,
    error: Option<EnvelopeError>,
    meta: Meta,
}
