//! The text of HTTP/1.1: requests as they are sent, heads of answers as they are read.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};

/// A request. What it says is sent as it is, so that it can also be wrong.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Whether `Content-Length` is added.
    is_measured: bool,
}

impl Request {
    /// A request without headers.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            is_measured: true,
        }
    }

    /// As a good client at this address sends it: with `Host`.
    pub fn to(address: SocketAddr, method: &str, target: &str) -> Self {
        Self::new(method, target).header("Host", &address.to_string())
    }

    /// A message for `/mcp`, with the headers that both eras want.
    pub fn message(address: SocketAddr, body: &str) -> Self {
        Self::to(address, "POST", "/mcp")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(body)
    }

    /// Adds a header, even one that is there already.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header away.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Leaves `Content-Length` to the test.
    #[must_use]
    pub const fn unmeasured(mut self) -> Self {
        self.is_measured = false;
        self
    }

    /// What goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.is_measured && (!self.body.is_empty() || self.method == "POST") {
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }
}

/// The status and the headers of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Reads the text up to the empty line, without that.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let mut words = first.splitn(3, ' ');
        ensure!(
            words.next() == Some("HTTP/1.1"),
            "no answer of HTTP/1.1: {first:?}"
        );
        let status = words
            .next()
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("no status: {first:?}"))?;
        let headers = lines
            .map(|line| {
                let (name, value) = line
                    .split_once(':')
                    .with_context(|| format!("no header: {line:?}"))?;
                Ok((name.to_owned(), value.trim().to_owned()))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { status, headers })
    }

    /// The value of a header, the first of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The media type without its parameters.
    pub fn media_type(&self) -> &str {
        let value = self.header("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Whether a stream of events follows.
    pub fn is_stream(&self) -> bool {
        self.media_type() == "text/event-stream"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_whatever_the_case_of_their_names() {
        let head = Head::parse("HTTP/1.1 404 Not Found\r\nCONTENT-type: text/event-stream; x=y");
        let head = head.unwrap();
        assert_eq!(head.status, 404);
        assert!(head.is_stream());
        assert!(Head::parse("HTTP/1.0 200 OK").is_err());
        assert!(Head::parse("HTTP/1.1 okay").is_err());
        assert!(Head::parse("HTTP/1.1 200 OK\r\nnonsense").is_err());
    }

    #[test]
    fn requests_are_sent_as_they_are_said() {
        let request = Request::new("POST", "/x").header("A", "1").header("A", "2");
        let sent = request.clone().body("{}").bytes();
        assert_eq!(
            String::from_utf8(sent).unwrap(),
            "POST /x HTTP/1.1\r\nA: 1\r\nA: 2\r\nContent-Length: 2\r\n\r\n{}"
        );
        let bare = request.without("a").unmeasured().bytes();
        assert_eq!(String::from_utf8(bare).unwrap(), "POST /x HTTP/1.1\r\n\r\n");
    }
}
