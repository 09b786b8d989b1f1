//! Messages that are passed on: only what a host must know of them is read.
//!
//! [`relay`] looks at one line of a conversation between a client and a server of other authors. It
//! knows requests, notices and answers, in either direction; parameters and results stay text.

use std::borrow::Cow;

use super::decode::{dialect_of, malformed_line};
use super::{Dialect, EchoId, Form, Refused, Shape};
use crate::error::ErrorKind;
use crate::id::RequestId;
use crate::meta::PROTOCOL_VERSION;
use crate::method::Method;
use crate::outcome::Problem;
use crate::scan;

/// One line, as far as a host reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relayed<'a> {
    Request(RelayedRequest<'a>),
    /// A notification.
    Notice {
        method: Cow<'a, str>,
        /// An object, or nothing.
        params: Option<&'a str>,
    },
    /// An answer: exactly one of the two is there.
    Answer {
        id: RequestId,
        result: Option<&'a str>,
        error: Option<&'a str>,
    },
}

/// A request that is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayedRequest<'a> {
    pub id: RequestId,
    pub method: Cow<'a, str>,
    /// An object, or nothing.
    pub params: Option<&'a str>,
    /// Of the two eras of MCP.
    pub dialect: Dialect,
    /// Parsers differ about which member counts: two are named alike, whatever the case of their letters.
    pub ambiguous: bool,
    read: ReadParams<'a>,
}

/// The parameters that nearly every request is asked for, found in one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReadParams<'a> {
    meta: Option<&'a str>,
    task: Option<&'a str>,
    name: Option<&'a str>,
    arguments: Option<&'a str>,
    /// More than one is named `name`, or `arguments`.
    ambiguous: bool,
}

impl<'a> ReadParams<'a> {
    fn of(params: &'a str) -> Self {
        let mut read = Self::default();
        let mut seen = [false; 2];
        for (name, value) in scan::members(params) {
            match name.as_ref() {
                "_meta" => read.meta = Some(value),
                "task" => read.task = Some(value),
                "name" => read.name = Some(value),
                "arguments" => read.arguments = Some(value),
                _ => {}
            }
            for (seen, known) in seen.iter_mut().zip(["name", "arguments"]) {
                if name.eq_ignore_ascii_case(known) {
                    read.ambiguous |= std::mem::replace(seen, true);
                }
            }
        }
        read
    }
}

impl<'a> RelayedRequest<'a> {
    /// A member of its parameters, as JSON text.
    pub fn param(&self, key: &str) -> Option<&'a str> {
        match key {
            "_meta" => self.read.meta,
            "task" => self.read.task,
            "name" => self.read.name,
            "arguments" => self.read.arguments,
            _ => scan::member(self.params?, key),
        }
    }

    /// A member of its `_meta`, as JSON text.
    pub fn meta(&self, key: &str) -> Option<&'a str> {
        scan::member(self.param("_meta")?, key)
    }

    /// The method, if the table of protocol facts has it.
    pub fn known_method(&self) -> Option<Method> {
        Method::parse(&self.method)
    }

    /// The form of an answer that the host gives in the server's place.
    pub fn form(&self) -> Form {
        Form {
            dialect: self.dialect,
            shape: self.known_method().map_or(Shape::Plain, Method::shape),
        }
    }
}

/// Reads one line.
pub fn relay<'a>(line: &'a [u8], max_depth: usize) -> Result<Relayed<'a>, Refused> {
    let envelope =
        scan::scan_passing(line, max_depth).map_err(|error| malformed_line(&error, max_depth))?;
    let id = match envelope.id.map(RequestId::parse) {
        None => None,
        Some(Ok(id)) => Some(id),
        // Some servers answer what they cannot read with a null id.
        Some(Err(reason)) => {
            return Err(refused(None, reason.to_string()));
        }
    };
    if envelope.jsonrpc.and_then(scan::unquote).as_deref() != Some("2.0") {
        return Err(refused(id, "the member jsonrpc must be \"2.0\"".to_owned()));
    }
    // Some write a null for what is not there.
    let there = |member: Option<&'a str>| member.filter(|member| *member != "null");
    let Some(method) = envelope.method else {
        return match (id, envelope.result, there(envelope.error)) {
            (Some(id), result @ Some(_), None) => Ok(Relayed::Answer {
                id,
                result,
                error: None,
            }),
            (Some(id), None, error @ Some(_)) => Ok(Relayed::Answer {
                id,
                result: None,
                error,
            }),
            (id, _, _) => Err(refused(id, "the message has no method".to_owned())),
        };
    };
    let Some(method) = scan::unquote(method) else {
        return Err(refused(id, "the method is not a string".to_owned()));
    };
    let params = there(envelope.params);
    if params.is_some_and(|params| !params.starts_with('{')) {
        return Err(refused(id, "the params are not an object".to_owned()));
    }
    let Some(id) = id else {
        return Ok(Relayed::Notice { method, params });
    };
    let read = params.map(ReadParams::of).unwrap_or_default();
    let version = read
        .meta
        .and_then(|meta| scan::member(meta, PROTOCOL_VERSION));
    let has_version = version.is_some();
    let dialect = match dialect_of(&method, has_version) {
        Dialect::Modern => Dialect::Modern,
        // A method of neither form is an extension.
        Dialect::Legacy | Dialect::Direct | Dialect::Envelope | Dialect::Rest => Dialect::Legacy,
    };
    let is_call = method == Method::CallTool.name();
    Ok(Relayed::Request(RelayedRequest {
        id,
        method,
        params,
        dialect,
        ambiguous: envelope.lookalike || is_call && read.ambiguous,
        read,
    }))
}

fn refused(id: Option<RequestId>, said: String) -> Refused {
    Refused {
        id: id.map_or(EchoId::Null, EchoId::Known),
        form: Dialect::Legacy.plain(),
        problem: Problem::new(ErrorKind::InvalidMessage, said),
        payload: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Relayed<'_> {
        relay(line.as_bytes(), 16).unwrap()
    }

    #[test]
    fn requests_of_both_eras_notices_and_answers_are_told_apart() {
        let Relayed::Request(request) = read(
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","_meta":{"progressToken":7}}}"#,
        ) else {
            panic!("a request");
        };
        assert_eq!(request.dialect, Dialect::Legacy);
        assert_eq!(request.form().shape, Shape::Tool);
        assert_eq!(request.param("name"), Some("\"x\""));
        assert_eq!(request.meta("progressToken"), Some("7"));
        let modern = r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert!(
            matches!(read(modern), Relayed::Request(request) if request.dialect == Dialect::Modern)
        );
        let odd = r#"{"jsonrpc":"2.0","id":1,"method":"frobnicate"}"#;
        assert!(
            matches!(read(odd), Relayed::Request(request) if request.dialect == Dialect::Legacy)
        );
        let envelope = r#"{"jsonrpc":"2.0","id":1,"method":"mcp.tool.invoke","params":{}}"#;
        assert!(
            matches!(read(envelope), Relayed::Request(request) if request.dialect == Dialect::Legacy),
            "a wrapped server's own business"
        );
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","method":"n/x"}"#),
            Relayed::Notice { params: None, .. }
        ));
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#),
            Relayed::Answer { error: Some(_), .. }
        ));
    }

    #[test]
    fn nulls_for_what_is_not_there_and_halves_of_pairs_pass() {
        let halved = r#"{"jsonrpc":"2.0","result":{"t":"\ud83d"},"error":null,"id":7}"#;
        let Relayed::Answer { id, result, error } = read(halved) else {
            panic!("an answer");
        };
        assert_eq!((id.as_raw(), error), ("7", None));
        assert_eq!(result, Some(r#"{"t":"\ud83d"}"#));
        let bare = r#"{"jsonrpc":"2.0","id":1,"method":"x/y","params":null}"#;
        assert!(matches!(read(bare), Relayed::Request(request) if request.params.is_none()));
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id() {
        for (line, id) in [
            ("nonsense", EchoId::Null),
            ("[]", EchoId::Null),
            (
                r#"{"jsonrpc":"1.0","id":3,"method":"x"}"#,
                EchoId::Known(RequestId::parse("3").unwrap()),
            ),
            (
                r#"{"jsonrpc":"2.0","id":3}"#,
                EchoId::Known(RequestId::parse("3").unwrap()),
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"result":1,"error":{}}"#,
                EchoId::Known(RequestId::parse("3").unwrap()),
            ),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, EchoId::Null),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"x","params":[]}"#,
                EchoId::Known(RequestId::parse("3").unwrap()),
            ),
        ] {
            assert_eq!(relay(line.as_bytes(), 16).unwrap_err().id, id, "{line}");
        }
    }
}
