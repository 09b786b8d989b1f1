//! The result envelope, `{ok, data, error, meta}`: success or error, never both.

use super::fields::{self, Field, FieldErrorKind, Fields, Read};
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

    fn parse(field: &Field<'_>) -> Read<Self> {
        let fields = Fields::of(field, &["code", "message", "details"])?;
        Ok(Self {
            code: fields
                .required("code")?
                .word("one of the canonical codes", CanonicalError::parse)?,
            message: fields.required("message")?.text()?,
            details: fields.optional("details").map(|details| details.json()),
        })
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

    /// Reads an envelope as strictly as its schema does.
    pub fn parse(text: &[u8], max_depth: usize) -> Read<Self> {
        let whole = Field::whole(fields::document(text, max_depth)?);
        let fields = Fields::of(&whole, &["ok", "data", "error", "meta"])?;
        let ok = fields.required("ok")?.boolean()?;
        let (data, error) = (fields.required("data")?, fields.required("error")?);
        let meta = fields.required("meta")?;
        let (read, status) = Meta::parse(&meta)?;
        let expected = if ok { "ok" } else { "error" };
        if status != expected {
            let path = format!("{}/status", meta.path);
            let raw = meta.raw;
            return Field { path, raw }.wrong(FieldErrorKind::Contradicts("ok"));
        }
        let result = if ok {
            if !error.is_null() {
                return error.wrong(FieldErrorKind::Contradicts("ok"));
            }
            Ok(data.json())
        } else {
            if !data.is_null() {
                return data.wrong(FieldErrorKind::Contradicts("ok"));
            }
            Err(EnvelopeError::parse(&error)?)
        };
        Ok(Self { result, meta: read })
    }
}
