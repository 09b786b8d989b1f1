//! The few facts of a line that the HTTP transports of MCP need.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mainstay_contract::dialect::{Dialect, Relayed, relay};
use mainstay_contract::id::RequestId;
use mainstay_contract::meta::PROTOCOL_VERSION;
use mainstay_contract::method::Method;
use mainstay_contract::scan;

/// Deepest nesting of a line that the core sends.
const DEPTH: usize = 128;
/// Messages in one array, as the revision 2025-03-26 allows.
const BATCH: usize = 1024;

/// Kind of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Request(OutgoingRequest),
    /// The handshake is over.
    Initialized,
    /// A request is given up.
    Cancelled(Option<RequestId>),
    /// Another notification, or an answer.
    Other,
}

/// A request of the core to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutgoingRequest {
    pub(super) id: RequestId,
    pub(super) method: String,
    /// The revision, if the request carries it itself.
    pub(super) modern: Option<String>,
    /// The tool, prompt or resource that it names.
    pub(super) name: Option<String>,
}

impl Message {
    pub(super) fn read(line: &str) -> Self {
        match relay(line.as_bytes(), DEPTH) {
            Ok(Relayed::Request(request)) => {
                let text = |raw: &str| scan::unquote(raw).map(|text| text.into_owned());
                let named = match &*request.method {
                    "tools/call" | "prompts/get" => request.param("name"),
                    "resources/read" => request.param("uri"),
                    _ => None,
                };
                let modern = (request.dialect == Dialect::Modern)
                    .then(|| request.meta(PROTOCOL_VERSION).and_then(text))
                    .flatten();
                Self::Request(OutgoingRequest {
                    modern,
                    name: named.and_then(text),
                    method: request.method.into_owned(),
                    id: request.id,
                })
            }
            Ok(Relayed::Notice { method, params }) => match Method::parse(&method) {
                Some(Method::Cancelled) => {
                    let id = params.and_then(|params| scan::member(params, "requestId"));
                    Self::Cancelled(id.and_then(|id| RequestId::parse(id).ok()))
                }
                _ if method == "notifications/initialized" => Self::Initialized,
                _ => Self::Other,
            },
            Ok(Relayed::Answer { .. }) | Err(_) => Self::Other,
        }
    }

    pub(super) const fn request(&self) -> Option<&OutgoingRequest> {
        match self {
            Self::Request(request) => Some(request),
            _ => None,
        }
    }

    /// True if the next line must wait until the server has taken this one: a server may get two requests that
    /// travel at the same time in any order.
    pub(super) fn holds_others(&self) -> bool {
        match self {
            Self::Request(request) => request.is_initialize(),
            _ => true,
        }
    }
}

impl OutgoingRequest {
    pub(super) fn is_initialize(&self) -> bool {
        self.method == "initialize"
    }

    /// The revision that an answer to `initialize` agrees on, or nothing.
    pub(super) fn agreed_version(&self, answer: &str) -> Option<String> {
        let result = scan::member(answer, "result").filter(|_| self.is_initialize())?;
        let version = scan::member(result, "protocolVersion")?;
        scan::unquote(version).map(|version| version.into_owned())
    }

    /// The beginning of an answer that is too long, with the id that its own beginning may lack.
    pub(super) fn oversize_head(&self, head: Vec<u8>) -> (Vec<u8>, bool) {
        let is_answer = scan::head_id(&head).method.is_none();
        let id = self.id.as_raw();
        match is_answer {
            true => (
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).into_bytes(),
                true,
            ),
            false => (head, false),
        }
    }

    /// The answer that the host gives in the place of a server that gave none.
    pub(super) fn error_line(&self, code: i64, message: &str) -> String {
        let message = serde_json::to_string(message).unwrap_or_default();
        let id = self.id.as_raw();
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
    }
}

/// True if a line of the server is the answer to a request. Some servers turn a number into a string or back.
pub(super) fn answers(line: &[u8], request: &RequestId) -> bool {
    match relay(line, DEPTH) {
        Ok(Relayed::Answer { id, .. }) => {
            id.same_value(request) || id.lookup_form() == request.lookup_form()
        }
        _ => false,
    }
}

/// The messages of a body: one, or an array of them.
pub(super) fn messages(body: &[u8]) -> Vec<Vec<u8>> {
    // A line end in a JSON text is white space.
    let one_line = |text: &str| {
        let mut bytes = text.trim().as_bytes().to_vec();
        for byte in &mut bytes {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        bytes
    };
    let text = String::from_utf8_lossy(body);
    if text.trim_start().starts_with('[')
        && let Ok(batch) = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(&text)
    {
        let batch = batch.into_iter().take(BATCH);
        return batch.map(|message| one_line(message.get())).collect();
    }
    match text.trim() {
        "" => Vec::new(),
        text => vec![one_line(text)],
    }
}

/// A value of a header, coded where plain text is not allowed.
pub(super) fn header_text(text: &str) -> String {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let looks_coded = text.starts_with("=?base64?");
    if plain && !looks_coded && text.trim() == text {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_by_its_method() {
        let request = |line: &str| Message::read(line).request().cloned().unwrap();
        let call = request(
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"café","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!(call.modern.as_deref(), Some("2026-07-28"));
        assert_eq!(
            header_text(call.name.as_deref().unwrap()),
            "=?base64?Y2Fmw6k=?="
        );
        assert_eq!(header_text("plain name"), "plain name");
        let open = r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}"#;
        assert!(Message::read(open).holds_others());
        let answer = r#"{"jsonrpc":"2.0","id":"a","result":{"protocolVersion":"2025-06-18"}}"#;
        assert_eq!(
            request(open).agreed_version(answer).as_deref(),
            Some("2025-06-18")
        );
        assert!(answers(answer.as_bytes(), &request(open).id));
        assert_eq!(call.agreed_version(answer), None);
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        assert_eq!(Message::read(cancel), Message::Cancelled(Some(call.id)));
        let done = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(Message::read(done), Message::Initialized);
    }

    #[test]
    fn a_body_is_one_message_or_many_and_each_is_one_line() {
        assert_eq!(messages(b" {\"a\":\n1}\n"), [b"{\"a\": 1}".to_vec()]);
        assert_eq!(messages(b"[{\"a\":1},\r\n{\"b\":2}]").len(), 2);
        assert!(messages(b" \n").is_empty());
    }
}
