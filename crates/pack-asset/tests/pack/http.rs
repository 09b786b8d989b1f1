//! A real HTTP server on this machine, one thread, in the hands of a test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|header| {
            let (key, value) = header.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// Listens until the test ends.
pub(crate) struct Server {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers every request with these bytes and closes.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |mut stream| {
            // Some tests are about peers that hang up early.
            let _ = stream.write_all(&answer);
        })
    }

    /// Hands every connection to `serve`, after its request was read.
    pub(crate) fn new(serve: impl Fn(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                stream
                    .set_read_timeout(Some(Duration::from_secs(120)))
                    .unwrap();
                if let Some(request) = request(&stream) {
                    seen.lock().unwrap().push(request);
                }
                serve(stream);
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn request(stream: &TcpStream) -> Option<Request> {
    let mut input = BufReader::new(stream);
    let mut next = || {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    };
    let line = next()?;
    let mut headers = Vec::new();
    loop {
        match next()? {
            end if end.is_empty() => break,
            header => headers.push(header),
        }
    }
    let mut request = Request {
        line,
        headers,
        body: String::new(),
    };
    let length: usize = request.header("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).ok()?;
    Some(request)
}

/// An answer with a JSON body.
pub(crate) fn reply(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// A port without a listener.
pub(crate) fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    format!("http://{address}")
}
