//! Who may ask at all: the place a request names, the page it comes from, the token it carries.
//!
//! A page of a foreign site can make a browser on this machine send requests here, under a name
//! that its own server controls. So the name in `Host` must be one of ours, and `Origin`, where a
//! browser sends one, too; on every route, before anything else is looked at.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::http::request::Parts;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;

use super::access::{Access, Admitted};
use super::refusals::Denied;

/// Names in a query that look like credentials.
const QUERY_SECRETS: [&str; 5] = [
    "token",
    "access_token",
    "api_key",
    "apikey",
    "authorization",
];

/// Checks that precede everything else about a request.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Names under which we may be asked, beside those of the loopback.
    names: Vec<String>,
    pub(super) access: Access,
}

impl Guard {
    pub(crate) fn new(names: &[String], access: Access) -> Self {
        Self {
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            access,
        }
    }

    /// Rejects a request that is meant for another host or comes from a foreign page.
    pub(super) fn check_place(&self, parts: &Parts, local: SocketAddr) -> Result<(), Denied> {
        let headers = &parts.headers;
        let one = |name| {
            let mut all = headers.get_all(name).iter();
            let first = all.next();
            (
                first.and_then(|value| value.to_str().ok()),
                first.is_some(),
                all.next().is_some(),
            )
        };
        let (host, _, twice) = one(HOST);
        let is_ours = |place: &str| self.is_ours(place, local.ip());
        let named = parts.uri.authority().map(|authority| authority.as_str());
        let good = !twice && host.is_some_and(is_ours) && named.is_none_or(is_ours);
        if !good {
            let problem = Problem::new(
                ErrorKind::Forbidden,
                "the Host header does not name this server",
            )
            .with_hint("ask under the address that the server listens on, or allow the name with --allow-host");
            return Err(Denied::new("foreign_host", problem));
        }
        let (origin, present, twice) = one(ORIGIN);
        let good = match origin {
            _ if twice => false,
            None => !present,
            Some(origin) => ["http://", "https://"]
                .iter()
                .find_map(|scheme| origin.strip_prefix(scheme))
                .is_some_and(is_ours),
        };
        if !good {
            let problem = Problem::new(
                ErrorKind::Forbidden,
                "requests from pages of this origin are not served",
            )
            .with_hint("allow its host name with --allow-host");
            return Err(Denied::new("foreign_origin", problem));
        }
        Ok(())
    }

    fn is_ours(&self, place: &str, local: IpAddr) -> bool {
        let Some(host) = host_of(place) else {
            return false;
        };
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return address.is_loopback() || address == local;
        }
        host == "localhost" || self.names.contains(&host)
    }

    /// True if a request carries no credential at all.
    pub(super) fn is_silent(&self, parts: &Parts) -> bool {
        !parts.headers.contains_key(AUTHORIZATION) && !parts.uri.query().is_some_and(has_secret)
    }

    /// On whose behalf the request comes.
    pub(super) fn check_token(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<Admitted, Denied> {
        if query.is_some_and(has_secret) {
            // What stands in a URL ends up in logs and histories.
            let problem = Problem::new(
                ErrorKind::Unauthorized,
                "credentials in the URL are not accepted",
            )
            .with_hint("send the token in the Authorization header");
            return Err(Denied::new("token_in_url", problem));
        }
        self.access.check(headers)
    }
}

fn has_secret(query: &str) -> bool {
    query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or_default())
        .any(|key| {
            QUERY_SECRETS
                .iter()
                .any(|secret| key.eq_ignore_ascii_case(secret))
        })
}

/// The host of `host`, `host:port` or `[v6]:port`; nothing else may stand there.
fn host_of(place: &str) -> Option<&str> {
    let (host, port) = if place.starts_with('[') {
        let end = place.find(']')?;
        (place.get(..=end)?, place.get(end + 1..)?)
    } else {
        match place.find(':') {
            None => (place, ""),
            Some(at) => (place.get(..at)?, place.get(at..)?),
        }
    };
    let port_is_good = match port.strip_prefix(':') {
        None => port.is_empty(),
        Some(digits) => {
            !digits.is_empty()
                && digits.len() <= 5
                && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
    };
    let host_is_good = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
    (port_is_good && host_is_good).then_some(host)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn place(headers: &[(&str, &str)]) -> bool {
        placed(headers, "/mcp", "127.0.0.1:80")
    }

    fn placed(headers: &[(&str, &str)], uri: &str, local: &str) -> bool {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let guard = Guard::new(&["Tools.Example".to_owned()], Access::default());
        guard.check_place(&parts, local.parse().unwrap()).is_ok()
    }

    #[test]
    fn only_our_own_names_are_served() {
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:1",
            "[::1]:80",
            "127.8.9.1",
            "tools.example:443",
        ] {
            assert!(place(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.",
            "10.0.0.1",
            "",
            "a@localhost",
            "localhost:80:90",
            "localhost:x",
            "[::1",
            "localhost/x",
        ] {
            assert!(!place(&[("host", host)]), "{host}");
        }
        assert!(!place(&[]), "no host at all");
        assert!(
            !place(&[("host", "localhost"), ("host", "localhost")]),
            "two hosts"
        );
        assert!(!placed(
            &[("host", "localhost")],
            "http://evil.example/mcp",
            "127.0.0.1:1"
        ));
        assert!(
            placed(&[("host", "10.1.2.3:8")], "/", "10.1.2.3:8"),
            "the address it came to"
        );
    }

    #[test]
    fn foreign_pages_are_refused() {
        let origin = |origin: &str| place(&[("host", "localhost"), ("origin", origin)]);
        assert!(origin("http://localhost:3000"));
        assert!(origin("https://tools.example"));
        for foreign in [
            "http://evil.example",
            "null",
            "",
            "file://",
            "localhost",
            "http://localhost.evil",
        ] {
            assert!(!origin(foreign), "{foreign}");
        }
        let two = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "http://localhost"),
        ];
        assert!(!place(&two));
    }

    #[test]
    fn only_the_token_opens() {
        let guard = Guard::new(&[], Access::new(Some("s3cret"), None, ""));
        let check = |value: Option<&str>, query: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(AUTHORIZATION, value.parse().unwrap());
            }
            guard.check_token(&headers, query).is_ok()
        };
        assert!(check(Some("Bearer s3cret"), None));
        assert!(check(Some("bearer s3cret"), Some("x=1")));
        for wrong in [
            "Bearer s3cre",
            "Bearer s3cret2",
            "Basic s3cret",
            "s3cret",
            "Bearer",
            "",
        ] {
            assert!(!check(Some(wrong), None), "{wrong}");
        }
        assert!(!check(None, None));
        assert!(!check(None, Some("token=s3cret")));
        assert!(!check(
            Some("Bearer s3cret"),
            Some("a=b&Access_Token=s3cret")
        ));
    }
}
