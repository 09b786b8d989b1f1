//! Required headers of a modern request, which must agree with its body.
//!
//! Machines on the way route and decide by the headers alone; a request whose headers say one
//! thing and whose body says another is refused.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use mainstay_contract::dialect::{RelayedRequest, modern_version};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;
use mainstay_contract::scan;
use serde_json::Value;

/// Headers of the protocol.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Prefix of the headers of mirrored arguments.
const PARAM: &str = "mcp-param-";
/// Nested objects in which a mirrored argument may stand.
const DEPTH: usize = 16;

/// The one value of a header, as text.
pub(super) fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let value = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(value)
}

/// True if a client accepts answers of this type.
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let group = wanted.split('/').next().unwrap_or_default();
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|one| one.split(';').next().unwrap_or_default().trim())
        .any(|one| {
            one.eq_ignore_ascii_case(wanted)
                || one == "*/*"
                || one
                    .strip_suffix("/*")
                    .is_some_and(|one| one.eq_ignore_ascii_case(group))
        })
}

/// True if the client names events before JSON among the forms that it accepts.
pub(super) fn prefers_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let first = accepted.and_then(|accepted| accepted.split([',', ';']).next());
    first.is_some_and(|first| first.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// True if the body of a request is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = value(headers, &CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Checks a modern request, but for the arguments that it mirrors.
pub(super) fn check_modern(
    headers: &HeaderMap,
    request: &RelayedRequest<'_>,
) -> Result<(), Problem> {
    let version = modern_version(request.params)?;
    same(headers, &VERSION, "MCP-Protocol-Version", &version)?;
    same(headers, &METHOD, "Mcp-Method", &request.method)?;
    let named = match request.method.as_ref() {
        "tools/call" | "prompts/get" => request.param("name"),
        "resources/read" => request.param("uri"),
        _ => None,
    };
    if let Some(name) = named.and_then(scan::unquote) {
        let sent = value(headers, &NAME);
        let sent = sent.ok_or_else(|| missing("Mcp-Name"))?;
        let decoded = decoded(sent).ok_or_else(|| malformed("Mcp-Name"))?;
        if decoded != name {
            return Err(differs("Mcp-Name"));
        }
    }
    // Intermediaries route by it; a client that leaves it out is served all the same.
    if let ("tasks/get" | "tasks/update" | "tasks/cancel", Some(sent)) =
        (request.method.as_ref(), value(headers, &NAME))
    {
        let id = request.param("taskId").and_then(scan::unquote);
        if decoded(sent).as_deref() != id.as_deref() {
            return Err(differs("Mcp-Name"));
        }
    }
    Ok(())
}

fn same(
    headers: &HeaderMap,
    header: &HeaderName,
    spelled: &str,
    expected: &str,
) -> Result<(), Problem> {
    let sent = value(headers, header).ok_or_else(|| missing(spelled))?;
    if sent.trim_matches([' ', '\t']) == expected {
        Ok(())
    } else {
        Err(differs(spelled))
    }
}

fn missing(header: &str) -> Problem {
    let said = format!("the header {header} is missing, or there more than once");
    Problem::new(ErrorKind::HeaderMismatch, said)
}

fn malformed(header: &str) -> Problem {
    let said = format!("the header {header} is not well-formed");
    Problem::new(ErrorKind::HeaderMismatch, said)
}

fn differs(header: &str) -> Problem {
    let said = format!("the header {header} differs from the body");
    Problem::new(ErrorKind::HeaderMismatch, said)
}

/// The arguments of each tool that are mirrored into headers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mirrored {
    tools: BTreeMap<String, Vec<Argument>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Argument {
    /// As the tool spells it.
    name: String,
    path: Vec<String>,
}

impl Mirrored {
    /// Reads the result of `tools/list`; pages add up.
    pub(super) fn learn(&mut self, result: &str) {
        // Most lists have none: those are not looked into.
        if !result.contains("x-mcp-header") {
            return;
        }
        let Ok(result) = serde_json::from_str::<Value>(result) else {
            return;
        };
        let tools = result.get("tools").and_then(Value::as_array);
        for tool in tools.into_iter().flatten() {
            let name = tool.get("name").and_then(Value::as_str);
            let schema = tool.get("inputSchema");
            if let (Some(name), Some(schema)) = (name, schema) {
                let mut found = Vec::new();
                find(schema, &mut Vec::new(), &mut found);
                if !found.is_empty() {
                    self.tools.insert(name.to_owned(), found);
                }
            }
        }
    }

    /// Checks the headers of a call.
    pub(super) fn check(
        &self,
        headers: &HeaderMap,
        request: &RelayedRequest<'_>,
    ) -> Result<(), Problem> {
        if request.method != "tools/call" || self.tools.is_empty() {
            return Ok(());
        }
        let name = request.param("name").and_then(scan::unquote);
        let Some(arguments) = name.and_then(|name| self.tools.get(name.as_ref())) else {
            return Ok(());
        };
        for argument in arguments {
            argument.check(headers, request.param("arguments"))?;
        }
        Ok(())
    }
}

impl Argument {
    fn check(&self, headers: &HeaderMap, arguments: Option<&str>) -> Result<(), Problem> {
        let spelled = format!("Mcp-Param-{}", self.name);
        let mut here = arguments;
        for step in &self.path {
            here = here
                .filter(|here| here.starts_with('{'))
                .and_then(|here| scan::member(here, step));
        }
        let Ok(header) = HeaderName::try_from(format!("{PARAM}{}", self.name.to_ascii_lowercase()))
        else {
            return Ok(());
        };
        let sent = headers
            .get_all(&header)
            .iter()
            .collect::<Vec<&HeaderValue>>();
        match (here.filter(|here| *here != "null"), sent.as_slice()) {
            // An argument that is not there has no header to be compared with.
            (None, _) => Ok(()),
            (Some(argument), [sent]) => {
                let sent = sent.to_str().map_err(|_| malformed(&spelled))?;
                let sent = decoded(sent).ok_or_else(|| malformed(&spelled))?;
                if equal(argument, &sent) {
                    Ok(())
                } else {
                    Err(differs(&spelled))
                }
            }
            (Some(_), _) => Err(missing(&spelled)),
        }
    }
}

/// True if a header and an argument are equal; numbers are compared as numbers.
fn equal(argument: &str, sent: &str) -> bool {
    if let Some(text) = scan::unquote(argument) {
        return text == sent;
    }
    match (argument.parse::<f64>(), sent.parse::<f64>()) {
        (Ok(argument), Ok(sent)) => argument.total_cmp(&sent).is_eq(),
        _ => argument == sent,
    }
}

fn find(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Argument>) {
    if path.len() > DEPTH {
        return;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str) {
            found.push(Argument {
                name: header.to_owned(),
                path: path.clone(),
            });
        }
        find(property, path, found);
        path.pop();
    }
}

/// The value of a header that may be written in Base64.
fn decoded(sent: &str) -> Option<Cow<'_, str>> {
    let sent = sent.trim_matches([' ', '\t']);
    let coded = sent
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match coded {
        None => Some(Cow::Borrowed(sent)),
        Some(coded) => {
            let bytes = BASE64_STANDARD.decode(coded).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
    }
}

#[cfg(test)]
mod tests {
    use mainstay_contract::dialect::{Relayed, relay};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::try_from(*name).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn with_request<T>(line: &str, then: impl FnOnce(&RelayedRequest<'_>) -> T) -> T {
        match relay(line.as_bytes(), 64).unwrap() {
            Relayed::Request(request) => then(&request),
            other => panic!("{other:?}"),
        }
    }

    const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"café","arguments":{"region":"eu","n":42,"in":{"deep":true}},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    const GOOD: [(&str, &str); 3] = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?Y2Fmw6k=?="),
    ];

    #[test]
    fn headers_that_say_what_the_body_says_pass() {
        with_request(CALL, |request| {
            assert_eq!(check_modern(&headers(&GOOD), request), Ok(()));
        });
    }

    #[test]
    fn a_header_that_is_missing_wrong_or_twofold_is_refused() {
        for (at, (name, _)) in GOOD.iter().enumerate() {
            for change in [None, Some("other"), Some("=?base64?Y2Fmw6k?=")] {
                let mut pairs = GOOD.to_vec();
                match change {
                    None => drop(pairs.remove(at)),
                    Some(value) => pairs[at].1 = value,
                }
                with_request(CALL, |request| {
                    let refused = check_modern(&headers(&pairs), request).unwrap_err();
                    assert_eq!(refused.kind, ErrorKind::HeaderMismatch, "{name} {change:?}");
                });
            }
            let mut twice = GOOD.to_vec();
            twice.push(GOOD[at]);
            with_request(CALL, |request| {
                assert!(check_modern(&headers(&twice), request).is_err());
            });
        }
    }

    #[test]
    fn a_body_that_carries_too_little_is_a_matter_of_its_params() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#;
        with_request(line, |request| {
            let refused = check_modern(&headers(&GOOD), request).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::InvalidParams);
        });
    }

    #[test]
    fn mirrored_arguments_must_stand_in_their_headers() {
        let mut mirrored = Mirrored::default();
        mirrored.learn(
            r#"{"tools":[{"name":"café","inputSchema":{"properties":{
            "region":{"x-mcp-header":"Region"},"n":{"x-mcp-header":"N"},"gone":{"x-mcp-header":"Gone"},
            "in":{"properties":{"deep":{"x-mcp-header":"Deep"}}}}}}]}"#,
        );
        let good = [
            ("mcp-param-region", "eu"),
            ("mcp-param-n", "42.0"),
            ("mcp-param-deep", "true"),
        ];
        with_request(CALL, |request| {
            assert_eq!(mirrored.check(&headers(&good), request), Ok(()));
            for at in 0..good.len() {
                let mut pairs = good.to_vec();
                pairs[at].1 = "=?base64?ZXU?=";
                assert!(mirrored.check(&headers(&pairs), request).is_err());
                pairs.remove(at);
                assert!(mirrored.check(&headers(&pairs), request).is_err());
            }
        });
    }

    #[test]
    fn base64_is_read_strictly() {
        let read = |coded: &str| decoded(&format!("=?base64?{coded}?=")).map(Cow::into_owned);
        assert_eq!(read("SGVsbG8=").as_deref(), Some("Hello"));
        assert_eq!(read("").as_deref(), Some(""));
        for wrong in [
            "SGVsbG8",
            "SGVsbG9=",
            "SGVs\u{62}G8*",
            "S===",
            "SGVsbG8-",
            "=SGV",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn answers_have_the_forms_that_clients_accept() {
        let accept = |value: &str| headers(&[("accept", value)]);
        let sse = "text/event-stream";
        assert!(accepts(
            &accept("application/json, text/event-stream;q=0.5"),
            sse
        ));
        assert!(accepts(&accept("text/*"), sse));
        assert!(accepts(&accept("*/*"), sse));
        assert!(!accepts(&accept("application/json"), sse));
        assert!(!accepts(&HeaderMap::new(), sse));
    }
}
