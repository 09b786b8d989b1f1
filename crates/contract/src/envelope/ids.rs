//! The names of a request, its trace and its span in envelopes.

use serde::Deserialize;
use uuid::{Builder, Uuid};

use super::Asked;

/// The namespace of our deterministic ids: UUIDv5 of `https://mainstay.dev/schemas/v1/` in the
/// namespace of URLs.
pub const NAMESPACE: Uuid = Uuid::from_u128(0x6bc53668_4bc15553_a072a7ea_db6535ff);

/// The ids of one request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ids {
    #[serde(rename = "requestId")]
    pub request: String,
    #[serde(rename = "traceId")]
    pub trace: String,
    #[serde(rename = "spanId")]
    pub span: String,
}

impl Ids {
    /// Bytes that [`Ids::random`] takes.
    pub const RANDOM_BYTES: usize = 48;

    /// Ids that follow from what is asked: the same request gets the same ones again, whichever
    /// way it came.
    pub fn deterministic(asked: &Asked) -> Self {
        let name = asked.canonical();
        let id = |prefix: &str| {
            let name = format!("{prefix}:{name}");
            Uuid::new_v5(&NAMESPACE, name.as_bytes()).to_string()
        };
        Self {
            request: id("req"),
            trace: id("trace"),
            span: id("span"),
        }
    }

    /// Ids that are unique if the bytes are random.
    pub fn random(bytes: [u8; Self::RANDOM_BYTES]) -> Self {
        let mut chunks = bytes.as_chunks::<16>().0.iter();
        let mut id = || {
            // There are exactly three.
            let bytes = chunks.next().copied().unwrap_or_default();
            Builder::from_random_bytes(bytes).into_uuid().to_string()
        };
        Self {
            request: id(),
            trace: id(),
            span: id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Route;
    use crate::json::Json;

    fn asked(payload: &str) -> Asked {
        Asked {
            route: Route::Tool,
            payload: Json::parse(payload).unwrap(),
        }
    }

    #[test]
    fn the_namespace_is_the_one_that_is_documented() {
        let url = b"https://mainstay.dev/schemas/v1/";
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_URL, url));
    }

    #[test]
    fn equal_requests_have_equal_ids_and_others_have_others() {
        let one = Ids::deterministic(&asked(r#"{"toolId":"mcp.tool:a","arguments":{}}"#));
        let same = Ids::deterministic(&asked(r#"{"arguments": {}, "toolId": "mcp.tool:a"}"#));
        let other = Ids::deterministic(&asked(r#"{"toolId":"mcp.tool:b","arguments":{}}"#));
        assert_eq!(one, same);
        assert_ne!(one.request, other.request);
        let name = r#"{"method":"mcp.tool.invoke","payload":{"arguments":{},"toolId":"mcp.tool:a"},"route":"tool"}"#;
        let expected = |prefix: &str| {
            let name = format!("{prefix}{name}");
            Uuid::new_v5(&NAMESPACE, name.as_bytes()).to_string()
        };
        assert_eq!(one.request, expected("req:"));
        assert_eq!(one.trace, expected("trace:"));
        assert_eq!(one.span, expected("span:"));
    }

    #[test]
    fn random_ids_are_three_of_version_four() {
        let mut bytes = [7; Ids::RANDOM_BYTES];
        bytes[20] = 9;
        let ids = Ids::random(bytes);
        assert_ne!(ids.request, ids.trace);
        for id in [&ids.request, &ids.trace, &ids.span] {
            assert_eq!(Uuid::parse_str(id).unwrap().get_version_num(), 4, "{id}");
        }
    }
}
