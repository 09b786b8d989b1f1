//! One HTTP request, bounded in time and size.

use std::io::{self, Read as _};
use std::time::Duration;

use mainstay_worker::Json;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

/// Time for everything: finding the address, connecting, sending, and the whole answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of an answer's body that are read.
pub(super) const MAX_BODY_BYTES: u64 = 256 * 1024;

/// Bytes of an answer's status line and headers.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Knows where to send, and how. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Client {
    endpoint: String,
    agent: Agent,
}

/// The backend's answer.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// True if there was more than is read.
    pub(super) cut: bool,
}

/// The reason for a missing answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The time is up. The asset may have arrived.
    Timeout,
    /// The request was not accepted.
    Unreachable { cause: String },
    /// The request was taken, and no whole answer came. The asset may have arrived.
    Broken { cause: String },
}

impl Client {
    /// Believes the authorities given, else those of a built-in list.
    pub(super) fn new(endpoint: String, trusted: Option<RootCerts>) -> Self {
        let tls = TlsConfig::builder().root_certs(trusted.unwrap_or(RootCerts::WebPki));
        let config = Agent::config_builder()
            // The builder's default is whatever the environment says.
            .proxy(None)
            .tls_config(tls.build())
            .timeout_global(Some(TIMEOUT))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_response_header_size(MAX_HEAD_BYTES)
            // A kept connection may have died meanwhile, and nothing is sent twice.
            .max_idle_connections(0)
            .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .accept("application/json")
            .build();
        Self {
            endpoint,
            agent: config.into(),
        }
    }

    pub(super) fn post(&self, asset: &Json) -> Result<Answered, Unanswered> {
        let mut response = self
            .agent
            .post(&self.endpoint)
            .content_type("application/json")
            .send(asset.as_str())
            .map_err(unanswered)?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        response
            .body_mut()
            .as_reader()
            .take(MAX_BODY_BYTES + 1)
            .read_to_end(&mut body)
            .map_err(|error| unanswered(error.into()))?;
        let cut = body.len() as u64 > MAX_BODY_BYTES;
        Ok(Answered { status, body, cut })
    }
}

fn unanswered(error: ureq::Error) -> Unanswered {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let cause = error.to_string();
    match error {
        ureq::Error::Timeout(_) => Unanswered::Timeout,
        ureq::Error::Io(error) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Unanswered::Timeout,
            ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof => {
                Unanswered::Broken { cause }
            }
            _ => Unanswered::Unreachable { cause },
        },
        ureq::Error::Protocol(_)
        | ureq::Error::Http(_)
        | ureq::Error::LargeResponseHeader(..)
        | ureq::Error::BodyStalled => Unanswered::Broken { cause },
        _ => Unanswered::Unreachable { cause },
    }
}
