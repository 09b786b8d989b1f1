//! The configuration of a remote server: its URL, the credentials for it, and the way to it.
//!
//! Credentials never come from a visible argument: a header or a token is read from a file, a command or the
//! environment. [`Remote::shown`] is the URL for logs, health and messages: without query and user.

use std::fmt;
use std::path::PathBuf;

use hyper::Uri;
use mainstay_contract::words;
use serde::{Deserialize, Serialize};

/// Longest URL.
const URL_BYTES: usize = 8 * 1024;

/// A server that is reached over HTTP.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    pub(crate) url: String,
    pub transport: RemoteTransport,
    /// Sent with every request, in this order.
    pub headers: Vec<(String, String)>,
    /// The values of secrets that are a part of headers.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// More headers, a line each, read again when the server answers 401.
    pub header_file: Option<PathBuf>,
    pub token: Option<TokenSource>,
    /// Certificates to trust beside those of the system.
    pub ca_file: Option<PathBuf>,
    /// The bundle of the system, if the environment names it.
    pub system_ca: Option<PathBuf>,
    /// The proxy to use for this URL.
    pub proxy: Option<String>,
}

words! {
    /// The HTTP transport of MCP that a remote server speaks.
    #[derive(Default)]
    pub enum RemoteTransport {
        /// Streamable HTTP, or the older one if the server knows only that.
        #[default]
        Auto = "auto",
        /// Streamable HTTP (2025-03-26 and later).
        Http = "http",
        /// HTTP with server-sent events (2024-11-05).
        Sse = "sse",
    }
}

/// Where the bearer token comes from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    File(PathBuf),
    /// A program and its arguments; the token is the first line of its output.
    Command(Vec<String>),
    /// The value of a variable, and its name.
    Variable {
        name: String,
        value: String,
    },
}

impl TokenSource {
    /// The place, for messages.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::File(path) => format!("the file {}", path.display()),
            Self::Command(words) => {
                let program = words.first().map_or("", String::as_str);
                format!("the command {program}")
            }
            Self::Variable { name, .. } => format!("the variable {name}"),
        }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Remote")
            .field("url", &self.shown())
            .field("transport", &self.transport)
            .field("headers", &names)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// A server at a URL, without credentials. An error says what is wrong with the URL.
    pub fn new(url: &str) -> Result<Self, String> {
        if url.len() > URL_BYTES {
            return Err(format!("the URL is longer than {URL_BYTES} bytes"));
        }
        let url = url.split('#').next().unwrap_or_default();
        let parsed: Uri = url
            .parse()
            .map_err(|error| format!("the URL cannot be read: {error}"))?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) {
            return Err("the URL must begin with https:// or http://".to_owned());
        }
        let authority = parsed
            .authority()
            .map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(
                "the URL holds a user or a password, which every list of processes shows; \
                 use a token or a header from a file"
                    .to_owned(),
            );
        }
        if parsed.host().is_none_or(str::is_empty) {
            return Err("the URL has no host".to_owned());
        }
        Ok(Self {
            url: url.to_owned(),
            transport: RemoteTransport::default(),
            headers: Vec::new(),
            secrets: Vec::new(),
            header_file: None,
            token: None,
            ca_file: None,
            system_ca: None,
            proxy: None,
        })
    }

    /// The URL itself; its query may hold a credential.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL for people: without its query.
    pub fn shown(&self) -> String {
        self.url.split('?').next().unwrap_or_default().to_owned()
    }

    /// The host, without a port.
    pub fn host(&self) -> String {
        let host = self.uri().host().map(str::to_owned);
        let host = host.unwrap_or_default();
        host.trim_matches(['[', ']']).to_owned()
    }

    /// The port, also where the scheme says it.
    pub fn port(&self) -> u16 {
        let standard = if self.is_https() { 443 } else { 80 };
        self.uri().port_u16().unwrap_or(standard)
    }

    /// True for `https`.
    pub fn is_https(&self) -> bool {
        self.uri().scheme_str() == Some("https")
    }

    /// The URL in its parts; [`Remote::new`] has checked it.
    pub(crate) fn uri(&self) -> Uri {
        self.url.parse().unwrap_or_default()
    }

    /// Every word that distinguishes this server from another one.
    pub(crate) fn words(&self) -> Vec<String> {
        let headers = self.headers.iter();
        let mut words = vec![self.url.clone(), self.transport.as_str().to_owned()];
        words.extend(headers.flat_map(|(name, value)| [name.clone(), value.clone()]));
        let path = |path: &PathBuf| path.display().to_string();
        words.push(self.header_file.as_ref().map(path).unwrap_or_default());
        match &self.token {
            Some(TokenSource::Variable { value, .. }) => words.push(value.clone()),
            Some(TokenSource::Command(command)) => words.extend(command.iter().cloned()),
            Some(TokenSource::File(file)) => words.push(path(file)),
            None => {}
        }
        words
    }

    /// The values that logs and faults must not show.
    pub fn secrets(&self) -> Vec<String> {
        let headers = self
            .headers
            .iter()
            .flat_map(|(_, value)| credentials_in(value));
        let token = match &self.token {
            Some(TokenSource::Variable { value, .. }) => Some(value.clone()),
            _ => None,
        };
        let query = self.uri().query().map(str::to_owned);
        let references = self.secrets.iter().cloned();
        headers
            .chain(token)
            .chain(query)
            .chain(references)
            .collect()
    }
}

/// The value of a header, and what follows the name of a scheme in it.
pub(crate) fn credentials_in(value: &str) -> impl Iterator<Item = String> {
    let behind = value.split_once(' ').map(|(_, behind)| behind.trim());
    std::iter::once(value).chain(behind).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_credentials_is_rejected_and_a_query_is_never_shown() {
        let remote = Remote::new("https://tools.example.com/mcp?key=s3cret#x").unwrap();
        assert_eq!(remote.shown(), "https://tools.example.com/mcp");
        assert_eq!(remote.url(), "https://tools.example.com/mcp?key=s3cret");
        assert!(!format!("{remote:?}").contains("s3cret"));
        assert_eq!(
            (remote.host().as_str(), remote.port()),
            ("tools.example.com", 443)
        );
        let local = Remote::new("http://[::1]:8080/sse").unwrap();
        assert_eq!((local.host().as_str(), local.port()), ("::1", 8080));
        for (url, why) in [
            ("https://user:pass@host/mcp", "user or a password"),
            ("ftp://host/", "must begin with"),
            ("/mcp", "must begin with"),
            ("https://", "cannot be read"),
        ] {
            let said = Remote::new(url).unwrap_err();
            assert!(said.contains(why), "{url}: {said}");
        }
    }
}
