//! MCP over HTTP, as small as tests need it.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Connection, Request, Response};
use crate::peer::request_line;

/// The revision of legacy sessions.
const LEGACY: &str = "2025-11-25";
/// The revision of single requests.
const MODERN: &str = "2026-07-28";

/// A session of the legacy era. Each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct Session {
    address: SocketAddr,
    id: String,
    token: Option<String>,
}

/// The request that opens a session.
pub fn initialize(address: SocketAddr) -> Request {
    let params = json!({
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "testkit", "version": "1.0.0"},
    });
    Request::message(address, &request_line("\"open\"", "initialize", &params))
}

/// A request of the modern era with all its headers.
pub fn modern(address: SocketAddr, id: &str, method: &str, params: &Value) -> Request {
    let mut params = params.clone();
    if let Some(members) = params.as_object_mut() {
        let meta = members.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            let key = |name: &str| format!("io.modelcontextprotocol/{name}");
            meta.insert(key("protocolVersion"), json!(MODERN));
            meta.insert(key("clientCapabilities"), json!({}));
        }
    }
    let name = params.get("name").or_else(|| params.get("uri"));
    let name = name.and_then(Value::as_str).map(str::to_owned);
    let request = Request::message(address, &request_line(id, method, &params))
        .header("MCP-Protocol-Version", MODERN)
        .header("Mcp-Method", method);
    match name {
        Some(name) => request.header("Mcp-Name", &name),
        None => request,
    }
}

impl Session {
    /// Opens a session.
    pub fn open(address: SocketAddr) -> anyhow::Result<Self> {
        Self::open_as(address, None)
    }

    /// Opens a session with a token.
    pub fn open_as(address: SocketAddr, token: Option<&str>) -> anyhow::Result<Self> {
        let mut request = initialize(address);
        if let Some(token) = token {
            request = request.header("Authorization", &format!("Bearer {token}"));
        }
        let answer = Connection::open(address)?.ask(&request)?;
        ensure!(
            answer.status() == 200,
            "initialize: {} {}",
            answer.status(),
            answer.text()
        );
        let id = answer.head.header("mcp-session-id");
        let session = Self {
            address,
            id: id.context("initialize gave no session id")?.to_owned(),
            token: token.map(str::to_owned),
        };
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let answer = session.ask(&session.post(note))?;
        ensure!(
            answer.status() == 202 && answer.body.is_empty(),
            "initialized: {} {}",
            answer.status(),
            answer.text()
        );
        Ok(session)
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A message of this session.
    pub fn post(&self, message: &str) -> Request {
        self.marked(Request::message(self.address, message))
    }

    /// A stream of this session.
    pub fn get(&self) -> Request {
        let request = Request::to(self.address, "GET", "/mcp");
        self.marked(request.header("Accept", "text/event-stream"))
    }

    /// The end of this session.
    pub fn delete(&self) -> Request {
        self.marked(Request::to(self.address, "DELETE", "/mcp"))
    }

    fn marked(&self, request: Request) -> Request {
        let request = request
            .header("Mcp-Session-Id", &self.id)
            .header("MCP-Protocol-Version", LEGACY);
        match &self.token {
            Some(token) => request.header("Authorization", &format!("Bearer {token}")),
            None => request,
        }
    }

    /// Sends a request on a connection of its own.
    pub fn ask(&self, request: &Request) -> anyhow::Result<Response> {
        Connection::open(self.address)?.ask(request)
    }

    /// Asks something and gives the answer's message.
    pub fn request(&self, id: &str, method: &str, params: &Value) -> anyhow::Result<Value> {
        let answer = self.ask(&self.post(&request_line(id, method, params)))?;
        ensure!(
            answer.status() == 200,
            "{method}: {} {}",
            answer.status(),
            answer.text()
        );
        let wanted: Value = serde_json::from_str(id).context("an id")?;
        answer
            .messages()?
            .into_iter()
            .find(|message| message.get("id") == Some(&wanted))
            .with_context(|| format!("{method} has no answer"))
    }

    /// Calls a tool.
    pub fn call(&self, id: &str, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        let params = json!({"name": tool, "arguments": arguments});
        self.request(id, "tools/call", &params)
    }
}
