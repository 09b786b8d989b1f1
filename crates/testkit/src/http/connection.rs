//! One connection, read with deadlines.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;

use super::{Events, Head, Request};
use crate::peer::PATIENCE;

/// An answer's head may not be longer.
const LONGEST_HEAD: usize = 64 * 1024;

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Read and not used yet.
    buffer: Vec<u8>,
    patience: Duration,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes are left.
    Length(usize),
    Chunks,
    /// It ends with the connection.
    Rest,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Response {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Response {
    pub const fn status(&self) -> u16 {
        self.head.status
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{}: no JSON: {}", self.status(), self.text()))
    }

    /// The messages in it: one of a JSON body, any number of a stream.
    pub fn messages(&self) -> anyhow::Result<Vec<Value>> {
        if self.head.is_stream() {
            let mut events = Events::default();
            let events = events.push(&self.body);
            let data = events.iter().filter(|event| !event.data.is_empty());
            data.map(|event| serde_json::from_str(&event.data).context("an event's data"))
                .collect()
        } else {
            Ok(vec![self.json()?])
        }
    }
}

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true).context("setting no delay")?;
        stream
            .set_write_timeout(Some(PATIENCE))
            .context("setting a timeout")?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            patience: PATIENCE,
        })
    }

    /// Waits at most this long for anything.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(bytes).context("sending")
    }

    /// Says that nothing more will be sent.
    pub fn half_close(&self) -> anyhow::Result<()> {
        self.stream
            .shutdown(Shutdown::Write)
            .context("half closing")
    }

    /// The stream itself, for whoever wants to close it from elsewhere.
    pub fn stream(&self) -> anyhow::Result<TcpStream> {
        self.stream.try_clone().context("cloning the connection")
    }

    /// Sends a request and reads its whole answer.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Response> {
        self.send(&request.bytes())?;
        self.response()
    }

    /// Reads a whole answer.
    pub fn response(&mut self) -> anyhow::Result<Response> {
        let until = Instant::now() + self.patience;
        let (head, mut framing) = self.head_until(until)?;
        let mut body = Vec::new();
        while let Some(piece) = self.piece_until(&mut framing, until)? {
            body.extend_from_slice(&piece);
        }
        Ok(Response { head, body })
    }

    /// Reads the head of an answer.
    pub fn head(&mut self) -> anyhow::Result<(Head, Framing)> {
        self.head_until(Instant::now() + self.patience)
    }

    fn head_until(&mut self, until: Instant) -> anyhow::Result<(Head, Framing)> {
        loop {
            let end = memchr::memmem::find(&self.buffer, b"\r\n\r\n");
            if let Some(end) = end {
                let rest = self.buffer.split_off(end + 4);
                let mut text = std::mem::replace(&mut self.buffer, rest);
                text.truncate(end);
                let text = String::from_utf8(text).context("the head is no text")?;
                let head = Head::parse(&text)?;
                let framing = framing_of(&head)?;
                return Ok((head, framing));
            }
            ensure!(self.buffer.len() < LONGEST_HEAD, "the head does not end");
            ensure!(
                self.fill(until)? > 0,
                "closed before an answer; read {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        }
    }

    /// The next piece of a body; `None` at its end.
    pub fn piece(&mut self, framing: &mut Framing) -> anyhow::Result<Option<Vec<u8>>> {
        self.piece_until(framing, Instant::now() + self.patience)
    }

    fn piece_until(
        &mut self,
        framing: &mut Framing,
        until: Instant,
    ) -> anyhow::Result<Option<Vec<u8>>> {
        match framing {
            Framing::Length(0) => Ok(None),
            Framing::Length(left) => {
                if self.buffer.is_empty() {
                    ensure!(self.fill(until)? > 0, "closed with {left} bytes missing");
                }
                let count = self.buffer.len().min(*left);
                *left -= count;
                Ok(Some(self.buffer.drain(..count).collect()))
            }
            Framing::Chunks => self.chunk(framing, until),
            Framing::Rest => {
                if self.buffer.is_empty() && self.fill(until)? == 0 {
                    return Ok(None);
                }
                Ok(Some(std::mem::take(&mut self.buffer)))
            }
        }
    }

    fn chunk(&mut self, framing: &mut Framing, until: Instant) -> anyhow::Result<Option<Vec<u8>>> {
        let line = self.line(until)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16)
            .map_err(|_| anyhow!("no size of a chunk: {line:?}"))?;
        while self.buffer.len() < size + 2 {
            ensure!(self.fill(until)? > 0, "closed within a chunk");
        }
        let piece: Vec<u8> = self.buffer.drain(..size).collect();
        let end: Vec<u8> = self.buffer.drain(..2).collect();
        ensure!(end == b"\r\n", "a chunk ends with {end:?}");
        if size == 0 {
            *framing = Framing::Length(0);
            return Ok(None);
        }
        Ok(Some(piece))
    }

    fn line(&mut self, until: Instant) -> anyhow::Result<String> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n") {
                let rest = self.buffer.split_off(end + 2);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.truncate(end);
                return String::from_utf8(line).context("a line is no text");
            }
            ensure!(self.fill(until)? > 0, "closed within a line");
        }
    }

    /// Waits until the peer closes; what it still sent is dropped.
    pub fn closed(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + self.patience;
        self.buffer.clear();
        while self.fill(until)? > 0 {
            self.buffer.clear();
        }
        Ok(())
    }

    /// Reads more; 0 at the end. A reset counts as the end.
    fn fill(&mut self, until: Instant) -> anyhow::Result<usize> {
        let mut bytes = [0; 16 * 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("nothing came within {:?}", self.patience);
            }
            self.stream
                .set_read_timeout(Some(left))
                .context("setting a timeout")?;
            match self.stream.read(&mut bytes) {
                Ok(count) => {
                    self.buffer.extend(bytes.iter().take(count));
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(0),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error).context("reading"),
            }
        }
    }
}

fn framing_of(head: &Head) -> anyhow::Result<Framing> {
    if matches!(head.status, 204 | 304) || (100..200).contains(&head.status) {
        return Ok(Framing::Length(0));
    }
    match (
        head.header("transfer-encoding"),
        head.header("content-length"),
    ) {
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunks),
        (None, Some(length)) => Ok(Framing::Length(length.parse().context("a length")?)),
        (None, None) => Ok(Framing::Rest),
        both => bail!("an answer framed as {both:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    fn served(bytes: &'static [u8]) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for byte in bytes.chunks(3) {
                stream.write_all(byte).unwrap();
            }
        });
        Connection::open(address).unwrap()
    }

    #[test]
    fn answers_are_read_by_length_and_by_chunks_one_after_the_other() {
        let mut connection = served(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nTransfer-Encoding: \
              chunked\r\n\r\n2\r\nde\r\n1;x=y\r\nf\r\n0\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\nrest",
        );
        assert_eq!(connection.response().unwrap().text(), "abc");
        assert_eq!(connection.response().unwrap().text(), "def");
        let last = connection.response().unwrap();
        assert_eq!((last.status(), last.text()), (202, "rest".to_owned()));
    }

    #[test]
    fn answer_that_is_cut_off_is_an_error() {
        assert!(served(b"HTTP/1.1 200 OK\r\nContent-Le").response().is_err());
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab";
        assert!(served(cut).response().is_err());
        let both = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc";
        assert!(served(both).response().is_err());
    }
}
