//! The message for a server that rejects the host's credentials, or wants some: it names what is missing.
//!
//! A server that is protected by OAuth says in `WWW-Authenticate` where its metadata is (RFC 9728), and the
//! metadata names its authorization servers. The host fetches it from the server's own origin only, without credentials.

use std::time::Duration;

use hyper::header::{ACCEPT, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, StatusCode, Uri};
use serde::Deserialize;

use super::body::read_whole;
use super::connect::Client;
use crate::http::Body;
use crate::remote::Remote;

/// Largest metadata document.
const METADATA_BYTES: usize = 64 * 1024;
/// Time to fetch it.
const METADATA: Duration = Duration::from_secs(5);
/// Authorization servers and scopes that are named.
const NAMED: usize = 4;
/// Longest word of the server in the message.
const WORD: usize = 300;

/// A challenge of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    metadata: Option<String>,
    scope: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

impl Challenge {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let mut challenge = Self::default();
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        for value in values.filter_map(|value| value.to_str().ok()) {
            let find = |name: &str| parameter(value, name);
            challenge.metadata = challenge.metadata.or_else(|| find("resource_metadata"));
            challenge.scope = challenge.scope.or_else(|| find("scope"));
            challenge.error = challenge.error.or_else(|| find("error"));
        }
        challenge
    }
}

/// A parameter of a challenge: `name="value"` or `name=value`.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    loop {
        let at = rest.find(name)?;
        let (before, found) = rest.split_at(at);
        let after = found.strip_prefix(name)?;
        rest = after;
        let begins = before.is_empty() || before.ends_with([' ', ',', '\t']);
        let Some(value) = after.trim_start().strip_prefix('=').filter(|_| begins) else {
            continue;
        };
        let value = value.trim_start();
        let value = match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next()?,
            None => value.split([',', ' ']).next()?,
        };
        return Some(value.chars().take(WORD).collect());
    }
}

/// Why the server does not serve us, and what to configure.
pub(super) async fn explain(
    remote: &Remote,
    client: &Client,
    status: StatusCode,
    challenge: &Challenge,
) -> String {
    let url = remote.shown();
    let number = status.as_u16();
    let given = match (
        &remote.token,
        remote.headers.is_empty() && remote.header_file.is_none(),
    ) {
        (Some(source), _) => format!("it rejects the token of {}", source.place()),
        (None, false) => "it rejects the configured headers".to_owned(),
        (None, true) => "no token is configured".to_owned(),
    };
    let mut said = format!("{url} requires authorization (HTTP {number}): {given}");
    if let Some(error) = &challenge.error {
        said.push_str(&format!("; it says {error}"));
    }
    let found = tokio::time::timeout(METADATA, find(client, challenge)).await;
    let (place, metadata) = found.unwrap_or_default();
    // The server may name a place that cannot be read.
    if let Some(place) = place.as_ref().or(challenge.metadata.as_ref()) {
        said.push_str(&format!("; it is protected by OAuth, metadata: {place}"));
    }
    let list = |words: &[String]| {
        words
            .iter()
            .take(NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    if let Some(metadata) = &metadata {
        if !metadata.authorization_servers.is_empty() {
            let servers = list(&metadata.authorization_servers);
            said.push_str(&format!("; authorization server: {servers}"));
        }
        if challenge.scope.is_none() && !metadata.scopes_supported.is_empty() {
            said.push_str(&format!("; scopes: {}", list(&metadata.scopes_supported)));
        }
    }
    if let Some(scope) = &challenge.scope {
        said.push_str(&format!("; scope: {scope}"));
    }
    said.push_str(
        ". Get an access token there and configure one of --token-file, --token-command, --token-env",
    );
    said
}

/// The metadata and its place.
async fn find(client: &Client, challenge: &Challenge) -> (Option<String>, Option<Metadata>) {
    let places = match &challenge.metadata {
        Some(place) => vec![place.clone()],
        None => well_known(client.uri()).to_vec(),
    };
    for place in places {
        if let Some(metadata) = fetch(client, &place).await {
            return (Some(place), Some(metadata));
        }
    }
    (None, None)
}

/// Where the metadata of a URL may be, unless the server says otherwise.
fn well_known(uri: &Uri) -> [String; 2] {
    let scheme = uri.scheme_str().unwrap_or("https");
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let path = uri.path().trim_end_matches('/');
    let root = format!("{scheme}://{authority}/.well-known/oauth-protected-resource");
    [format!("{root}{path}"), root]
}

async fn fetch(client: &Client, place: &str) -> Option<Metadata> {
    let uri: Uri = place.parse().ok()?;
    // Another origin could be anything, also a machine that only this host can reach.
    if !client.is_same_origin(&uri) {
        return None;
    }
    let path = uri.path_and_query()?.clone();
    let request = || {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from(path.clone());
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Ok(host) = HeaderValue::from_str(client.authority()) {
            headers.insert(hyper::header::HOST, host);
        }
        request
    };
    let reply = client.send(true, request, || true, || ()).await.ok()?;
    if reply.response.status() != StatusCode::OK {
        return None;
    }
    let (body, _) = reply.into_parts();
    let whole = read_whole(body, METADATA_BYTES).await.ok()?;
    serde_json::from_slice(&whole.bytes)
        .ok()
        .filter(|_| !whole.oversize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_in_any_spelling() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, value.parse().unwrap());
            Challenge::read(&headers)
        };
        let challenge = read(
            r#"Bearer error="invalid_token", resource_metadata="https://h/.well-known/x", scope="a b""#,
        );
        assert_eq!(
            challenge.metadata.as_deref(),
            Some("https://h/.well-known/x")
        );
        assert_eq!(challenge.scope.as_deref(), Some("a b"));
        assert_eq!(challenge.error.as_deref(), Some("invalid_token"));
        assert_eq!(
            read("Bearer error=expired,realm=x").error.as_deref(),
            Some("expired")
        );
        assert_eq!(read("Basic realm=\"my_error=1\"").error, None);
        let place = well_known(&"https://h:1/mcp/".parse().unwrap());
        let root = "https://h:1/.well-known/oauth-protected-resource";
        assert_eq!(place, [format!("{root}/mcp"), root.to_owned()]);
    }
}
