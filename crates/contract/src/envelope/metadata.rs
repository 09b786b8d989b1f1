//! Facts about the request in an envelope.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ENVELOPE_VERSION, Ids};
use crate::canonical::{canonical_json, canonical_text};
use crate::json::{Json, ObjectWriter};
use crate::trace::{Hex, TraceContext};

words! {
    /// How a request came in.
    pub enum Transport {
        Stdio = "stdio",
        Socket = "socket",
        Http = "http",
        Cli = "cli",
    }
}

words! {
    /// The kind of a request.
    pub enum Route {
        /// The catalog.
        Discover = "discover",
        /// One tool, answered with a result envelope.
        Tool = "tool",
        /// One tool, asked for with a request envelope.
        Invoke = "invoke",
        /// The health of the host.
        Health = "health",
        /// Recent schema mismatches.
        Diagnostics = "diagnostics",
    }
}

/// A request, whichever transport it came by: ids and sizes of its envelope follow from this alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub route: Route,
    pub payload: Json,
}

impl Asked {
    /// The method that gives the catalog.
    pub const DISCOVER: &'static str = "mcp.discover";
    /// The method that runs a tool.
    pub const INVOKE: &'static str = "mcp.tool.invoke";

    /// The method of the envelope dialect, over HTTP too.
    pub const fn method(&self) -> &'static str {
        match self.route {
            Route::Tool | Route::Invoke => Self::INVOKE,
            Route::Discover => Self::DISCOVER,
            Route::Health => "GET /healthz",
            Route::Diagnostics => "GET /v1/diagnostics",
        }
    }

    /// Asks for the catalog.
    pub fn catalog() -> Self {
        Self {
            route: Route::Discover,
            payload: Json::empty_object(),
        }
    }

    /// Asks for one run of a tool.
    pub fn tool(tool_id: &str, arguments: &Json) -> Self {
        let payload = ObjectWriter::with_capacity(tool_id.len() + arguments.len() + 32)
            .string("toolId", tool_id)
            .raw("arguments", arguments.as_str())
            .finish();
        Self {
            route: Route::Tool,
            payload: Json::from_scanned(&payload),
        }
    }

    /// Canonical JSON of `{method, payload, route}`.
    pub(super) fn canonical(&self) -> String {
        match self.payload.to_value() {
            Ok(payload) => canonical_json(&json!({
                "method": self.method(), "payload": payload, "route": self.route.as_str(),
            })),
            // A number out of range: its text stands for it.
            Err(_) => ObjectWriter::with_capacity(self.payload.len() + 64)
                .string("method", self.method())
                .raw("payload", self.payload.as_str())
                .string("route", self.route.as_str())
                .finish(),
        }
    }
}

/// `meta` of the result envelope, but for its status, which the envelope itself knows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    #[serde(flatten)]
    pub ids: Ids,
    pub schema_version: String,
    /// True if the ids follow from the request.
    pub deterministic: bool,
    pub transport: Transport,
    pub route: String,
    pub method: String,
    pub duration_ms: f64,
    /// How often the call was sent again.
    pub attempt: u64,
    pub input_bytes: u64,
    /// Set by the envelope, from its data.
    pub output_bytes: u64,
    /// Canonical identifier of the tool that was called.
    pub tool_id: Option<String>,
}

impl Meta {
    /// The facts that follow from the request alone.
    pub fn new(asked: &Asked, transport: Transport, ids: Ids, deterministic: bool) -> Self {
        Self {
            ids,
            schema_version: ENVELOPE_VERSION.to_owned(),
            deterministic,
            transport,
            route: asked.route.as_str().to_owned(),
            method: asked.method().to_owned(),
            duration_ms: 0.0,
            attempt: 0,
            input_bytes: canonical_text(&asked.payload).len() as u64,
            output_bytes: 0,
            tool_id: None,
        }
    }

    /// Takes the trace of the client that asks, unless the ids follow from the request.
    pub fn follow(&mut self, trace: &TraceContext) {
        if !self.deterministic {
            self.ids.trace = Hex(&trace.trace).to_string();
        }
    }

    pub(super) fn encode(&self, status: &str) -> String {
        ObjectWriter::with_capacity(448)
            .string("requestId", &self.ids.request)
            .string("traceId", &self.ids.trace)
            .string("spanId", &self.ids.span)
            .string("schemaVersion", &self.schema_version)
            .value("deterministic", &self.deterministic)
            .string("transport", self.transport.as_str())
            .string("route", &self.route)
            .string("method", &self.method)
            .value("durationMs", &self.duration_ms)
            .string("status", status)
            .value("attempt", &self.attempt)
            .value("inputBytes", &self.input_bytes)
            .value("outputBytes", &self.output_bytes)
            .optional_string("toolId", self.tool_id.as_deref())
            .finish()
    }
}
