//! Connections to one origin: TCP, a proxy, TLS, and HTTP/1.1 over them.
//!
//! Few idle connections are kept, and not for long: a server closes them, too, and a request that meets the
//! close may or may not have been read.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::tls;
use crate::http::Body;
use crate::remote::Remote;

/// Time for a connection: name lookup, TCP, the proxy and TLS.
const CONNECT: Duration = Duration::from_secs(10);
/// Largest head of an answer.
const HEAD_BYTES: usize = 64 * 1024;
/// Most headers of an answer.
const HEADERS: usize = 128;
/// Idle connections that are kept.
const IDLE: usize = 8;
/// How long one is kept. Common servers close theirs after five seconds.
const IDLE_FOR: Duration = Duration::from_secs(3);
/// Silence after which a connection is probed, and the pause between probes; after as many without an answer it
/// is closed.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// It may work later.
    Unreachable(String),
    /// It fails until the configuration changes.
    Setup(String),
}

/// Why a request has no response.
#[derive(Debug)]
pub(super) enum SendError {
    Connect(ConnectError),
    /// The request may have reached the server.
    Broken(String),
    /// Nothing may be sent any more.
    Sealed,
}

/// The way to one origin.
#[derive(Debug)]
pub(super) struct Client {
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    proxy: Option<Proxy>,
    idle: Mutex<Vec<(Instant, SendRequest<Body>)>>,
}

#[derive(Debug)]
struct Proxy {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
}

/// A response, and the connection that it came over.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) response: Response<Incoming>,
    connection: SendRequest<Body>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Client {
    /// Reads certificates; an error names the file.
    pub(super) fn new(remote: &Remote) -> Result<Self, String> {
        let tls = remote.is_https().then(|| tls::config(remote)).transpose()?;
        let proxy = remote.proxy.as_deref().map(Proxy::parse).transpose()?;
        Ok(Self {
            uri: remote.uri(),
            host: remote.host(),
            port: remote.port(),
            tls,
            proxy,
            idle: Mutex::default(),
        })
    }

    /// The URL of the server.
    pub(super) const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// True if a URL has the scheme, host and port of the server, so that it may get its credentials.
    pub(super) fn is_same_origin(&self, other: &Uri) -> bool {
        let standard = |uri: &Uri| {
            if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            }
        };
        let port = |uri: &Uri| uri.port_u16().unwrap_or_else(|| standard(uri));
        let same_host = self.uri.host().zip(other.host());
        self.uri.scheme() == other.scheme()
            && same_host.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
            && port(&self.uri) == port(other)
    }

    /// Sends a request to a path of the origin. `may_send` is asked directly before the first byte leaves.
    pub(super) async fn send(
        &self,
        fresh: bool,
        request: impl Fn() -> Request<Body>,
        may_send: impl Fn() -> bool,
        unsent: impl Fn(),
    ) -> Result<Reply, SendError> {
        let mut kept = if fresh { None } else { self.take_idle() };
        loop {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect().await.map_err(SendError::Connect)?,
            };
            if !may_send() {
                return Err(SendError::Sealed);
            }
            let mut request = request();
            if let (None, Some(proxy)) = (&self.tls, &self.proxy) {
                *request.uri_mut() = self.absolute(request.uri());
                // Without a tunnel every request proves to the proxy who asks.
                if let Some(authorization) = &proxy.authorization {
                    let headers = request.headers_mut();
                    headers.insert(PROXY_AUTHORIZATION, authorization.clone());
                }
            }
            match connection.try_send_request(request).await {
                Ok(response) => {
                    return Ok(Reply {
                        response,
                        connection,
                    });
                }
                // The connection was closed before the request left: an idle one that the server gave up.
                Err(mut error) => match error.take_message() {
                    Some(_) => unsent(),
                    None => return Err(SendError::Broken(describe(&error.into_error()))),
                },
            }
        }
    }

    /// Keeps the connection of a response whose body was read to its end.
    pub(super) fn keep(&self, connection: SendRequest<Body>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE && !connection.is_closed() {
            idle.push((Instant::now(), connection));
        }
    }

    fn take_idle(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, connection)| since.elapsed() < IDLE_FOR && connection.is_ready());
        idle.pop().map(|(_, connection)| connection)
    }

    /// The URL as a proxy wants it.
    fn absolute(&self, path: &Uri) -> Uri {
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = path.path_and_query().cloned();
        Uri::from_parts(parts).unwrap_or_else(|_| path.clone())
    }

    /// The value of `Host`.
    pub(super) fn authority(&self) -> &str {
        self.uri
            .authority()
            .map_or("", |authority| authority.as_str())
    }

    async fn connect(&self) -> Result<SendRequest<Body>, ConnectError> {
        let place = format!("{}:{}", self.host, self.port);
        match tokio::time::timeout(CONNECT, self.connect_now()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(ConnectError::Unreachable(why))) => Err(ConnectError::Unreachable(format!(
                "cannot connect to {place}: {why}"
            ))),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let seconds = CONNECT.as_secs();
                let said = format!("cannot connect to {place} within {seconds} s");
                Err(ConnectError::Unreachable(said))
            }
        }
    }

    async fn connect_now(&self) -> Result<SendRequest<Body>, ConnectError> {
        let stream: Box<dyn Stream> = match &self.proxy {
            None => Box::new(tcp(&self.host, self.port).await?),
            Some(proxy) if self.tls.is_none() => Box::new(tcp(&proxy.host, proxy.port).await?),
            Some(proxy) => self.tunnel(proxy).await?,
        };
        let Some(tls) = &self.tls else {
            return handshake(stream).await;
        };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| ConnectError::Setup(format!("{:?} is not a host name", self.host)))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await;
        let stream = stream.map_err(|error| tls::explain(&self.host, &error))?;
        handshake(Box::new(stream)).await
    }

    /// A tunnel through a proxy.
    async fn tunnel(&self, proxy: &Proxy) -> Result<Box<dyn Stream>, ConnectError> {
        let stream = tcp(&proxy.host, proxy.port).await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ConnectError::Unreachable(describe(&error)))?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        let place = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        let mut request = Request::new(Body::empty());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = place.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(&place) {
            headers.insert(HOST, host);
        }
        if let Some(authorization) = &proxy.authorization {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let failed = |why: String| {
            let said = format!("the proxy {}:{} {why}", proxy.host, proxy.port);
            ConnectError::Unreachable(said)
        };
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| failed(describe(&error)))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let said = format!(
                    "the proxy {}:{} requires a user and a password",
                    proxy.host, proxy.port
                );
                return Err(ConnectError::Setup(said));
            }
            status => return Err(failed(format!("answered {status}"))),
        }
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|error| failed(describe(&error)))?;
        Ok(Box::new(TokioIo::new(upgraded)))
    }
}

impl Reply {
    /// The body, and the connection to keep once it was read.
    pub(super) fn into_parts(self) -> (Incoming, SendRequest<Body>) {
        (self.response.into_body(), self.connection)
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Self, String> {
        let text = match text.contains("://") {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        let unreadable = || "the URL of the proxy cannot be read".to_owned();
        let uri: Uri = text.parse().map_err(|_| unreadable())?;
        if uri.scheme_str() != Some("http") {
            return Err("the URL of the proxy must begin with http://".to_owned());
        }
        let authority = uri.authority().ok_or_else(unreadable)?;
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
        let authorization = user.map(|user| {
            let user = percent_decoded(user);
            let coded = BASE64_STANDARD.encode(user);
            let mut value = HeaderValue::from_str(&format!("Basic {coded}"))
                .unwrap_or_else(|_| HeaderValue::from_static(""));
            value.set_sensitive(true);
            value
        });
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authorization,
        })
    }
}

/// A user and a password in a URL are percent-encoded.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail
            .get(..2)
            .and_then(|code| std::str::from_utf8(code).ok());
        let value = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match (byte, value) {
            (b'%', Some(value)) => {
                decoded.push(value);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                decoded.push(byte);
                rest = tail;
            }
        }
    }
    decoded
}

async fn tcp(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let unreachable = |error: &io::Error| ConnectError::Unreachable(error.to_string());
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|error| unreachable(&error))?;
    let _ = stream.set_nodelay(true);
    // A peer that vanished without a word is noticed; where a setting is unknown, deadlines remain.
    let (idle, pause, probes) = KEEP_ALIVE;
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, idle);
    let _ = rustix::net::sockopt::set_tcp_keepintvl(&stream, pause);
    let _ = rustix::net::sockopt::set_tcp_keepcnt(&stream, probes);
    Ok(stream)
}

async fn handshake(stream: Box<dyn Stream>) -> Result<SendRequest<Body>, ConnectError> {
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ConnectError::Unreachable(describe(&error)))?;
    // It ends with the sender and the body of its last response.
    tokio::spawn(connection);
    Ok(sender)
}

/// An error of hyper with its cause.
pub(super) fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_to_the_same_origin_only() {
        let remote = Remote::new("https://Tools.example.com/mcp").unwrap();
        let client = Client::new(&remote).unwrap();
        let same = |other: &str| client.is_same_origin(&other.parse().unwrap());
        assert!(same("https://tools.example.com:443/other"));
        for other in [
            "http://tools.example.com/mcp",
            "https://tools.example.com:8443/mcp",
            "https://example.com/mcp",
            "https://tools.example.com.evil.com/mcp",
            "/mcp",
        ] {
            assert!(!same(other), "{other}");
        }
    }

    #[test]
    fn a_proxy_is_read_with_its_user() {
        let proxy = Proxy::parse("http://me:p%40ss@proxy.local:3128").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.local", 3128));
        let basic = proxy.authorization.unwrap();
        assert_eq!(
            basic.to_str().unwrap(),
            format!("Basic {}", BASE64_STANDARD.encode("me:p@ss"))
        );
        assert_eq!(Proxy::parse("proxy.local").unwrap().port, 80);
        assert!(Proxy::parse("socks5://proxy.local").is_err());
    }
}
