//! Where the clients of a host come from: standard input, a socket, HTTP, or this process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use mainstay_kernel::core::tasks::PEER;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::ServeError;
use crate::config::Transport;
use crate::control;
use crate::engine::{Event, Links, Resumed};
use crate::http::{self, Front, FrontFacts, HttpConfig, Idle, Listening, SavedFront};
use crate::io::{Sink, Source};
use crate::local::LocalRequests;
use crate::log::{Log, Seldom};
use crate::transport::socket::Bound;
use crate::transport::{Client, stdio};
use crate::upgrade::Pause;

/// Pause between two attempts to accept a client when descriptors have run out.
const RETRY: Duration = Duration::from_millis(20);
/// Attempts to get the second descriptor of an accepted client.
const TRIES: usize = 50;

/// A transport that is open.
pub(super) struct Opened {
    /// The place in the ready line.
    pub(super) place: String,
    pub(super) source: Clients,
}

/// Where clients come from.
pub(super) enum Clients {
    One(Client),
    /// The only client is connected already.
    Known,
    Many(Arc<Bound>),
    /// Clients that each name a server, through requests like those of operators.
    Shared(Arc<Bound>),
    Http(Box<HttpClients>),
    Local(LocalRequests),
}

pub(super) struct HttpClients {
    listener: Arc<TcpListener>,
    bound: SocketAddr,
    config: HttpConfig,
    /// Connections that are open already, and sessions.
    idle: Vec<Idle>,
    saved: Option<SavedFront>,
}

/// Takes over the transport of the host that this process continues.
pub(super) fn continue_transport(
    resumed: &mut Resumed,
    transport: Transport,
) -> io::Result<Clients> {
    let (shell, descriptors) = (&mut resumed.shell, &mut resumed.descriptors);
    if let Some(saved) = shell.listener.take() {
        let bound = Arc::new(Bound::restore(saved, descriptors)?);
        return Ok(match transport {
            Transport::Share { .. } => Clients::Shared(bound),
            _ => Clients::Many(bound),
        });
    }
    let Some(mut saved) = shell.front.take() else {
        return Ok(Clients::Known);
    };
    let (listener, bound, idle) = saved.open(descriptors)?;
    let Transport::Http(config) = transport else {
        return Err(io::Error::other(
            "the configuration is not that of a host on HTTP",
        ));
    };
    Ok(Clients::Http(Box::new(HttpClients {
        listener,
        bound,
        config,
        idle,
        saved: Some(saved),
    })))
}

/// Opens a transport.
pub(super) fn open_transport(transport: Transport) -> Result<Opened, ServeError> {
    match transport {
        Transport::Stdio => {
            let what = "open stdin and stdout";
            let (source, sink) = stdio().map_err(|source| ServeError::Io { what, source })?;
            Ok(Opened {
                place: String::new(),
                source: Clients::One(Client {
                    source,
                    sink,
                    link: None,
                    caller: None,
                }),
            })
        }
        Transport::Local(requests) => Ok(Opened {
            place: String::new(),
            source: Clients::Local(requests),
        }),
        Transport::Socket { path, mode } => Ok(Opened {
            source: Clients::Many(Arc::new(Bound::bind(&path, mode)?)),
            place: format!(" path={}", path.display()),
        }),
        Transport::Share { path } => Ok(Opened {
            source: Clients::Shared(Arc::new(Bound::bind(&path, 0o600)?)),
            place: format!(" path={}", path.display()),
        }),
        Transport::Http(config) => {
            let address = config.address;
            if !address.ip().is_loopback() && !config.asks() {
                return Err(ServeError::NoToken { address });
            }
            if !address.ip().is_loopback() && config.has_short_token() {
                return Err(ServeError::ShortToken { address });
            }
            let failed = |source| ServeError::Http { address, source };
            let listener = http::bind(address).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            if let Some(told) = &config.told {
                let _ = told.try_send(bound);
            }
            Ok(Opened {
                place: format!(" address={bound}"),
                source: Clients::Http(Box::new(HttpClients {
                    listener,
                    bound,
                    config,
                    idle: Vec::new(),
                    saved: None,
                })),
            })
        }
    }
}

impl Clients {
    /// Delivers clients until `closed`. What listens for HTTP must be drained in the end.
    pub(super) fn start(
        self,
        events: mpsc::Sender<Event>,
        facts: FrontFacts,
        mut links: Links,
        closed: watch::Receiver<bool>,
        reading: Arc<()>,
        pause: Pause,
    ) -> Option<(Arc<Front>, Listening)> {
        match self {
            Self::Known => None,
            Self::One(client) => {
                tokio::spawn(async move {
                    let _ = events.send(client.into()).await;
                });
                None
            }
            Self::Many(bound) => {
                let deliver = Self::deliver(bound, events, facts.log, closed, reading, pause);
                tokio::spawn(deliver);
                None
            }
            Self::Shared(bound) => {
                let reports = (facts.log, facts.audit);
                tokio::spawn(control::listen(bound, events, reports, reading, pause));
                None
            }
            Self::Local(requests) => {
                tokio::spawn(requests.deliver(events));
                None
            }
            Self::Http(http) => {
                let HttpClients {
                    listener,
                    bound,
                    config,
                    idle,
                    saved,
                } = *http;
                let front = Front::new(&config, &listener, bound, events, facts);
                if let Some(saved) = saved {
                    front.restore(saved, &mut links);
                }
                let listening = http::start(listener, Arc::clone(&front), idle, closed, pause);
                Some((front, listening))
            }
        }
    }

    /// Delivers clients until the host drains; then the socket's file goes, too. `reading` is cloned for a client that
    /// was accepted and is not delivered yet.
    async fn deliver(
        bound: Arc<Bound>,
        events: mpsc::Sender<Event>,
        log: Log,
        mut closed: watch::Receiver<bool>,
        reading: Arc<()>,
        pause: Pause,
    ) {
        let mut warning = Seldom::default();
        loop {
            let accepted = tokio::select! {
                biased;
                // Clients wait in the backlog.
                () = pause.begun() => None,
                accepted = bound.accept() => Some(accepted),
                _ = closed.wait_for(|closed| *closed) => return,
            };
            let Some(accepted) = accepted else {
                pause.over().await;
                continue;
            };
            let _reading = Arc::clone(&reading);
            let opened = match accepted {
                Ok((fd, uid)) => {
                    let short = |error: &io::Error| warn(&mut warning, &log, error);
                    both_ways(fd, &events, short).await.map(|ends| (ends, uid))
                }
                Err(error) => Err(error),
            };
            match opened {
                Ok(((source, sink), uid)) => {
                    let is_other = uid != rustix::process::geteuid().as_raw();
                    let _ = events
                        .send(
                            Client {
                                source,
                                sink,
                                link: None,
                                caller: is_other.then(|| format!("{PEER}{uid}")),
                            }
                            .into(),
                        )
                        .await;
                }
                Err(error) => {
                    warn(&mut warning, &log, &error);
                    if is_shortage(&error) {
                        let _ = events.send(Event::Shed).await;
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

fn warn(warning: &mut Seldom, log: &Log, error: &io::Error) {
    warning.warn(log, &format!("reason=accept_failed {error}"));
}

/// The two ends of a connection. The second descriptor may need that an idle client leaves, which `short` logs.
async fn both_ways(
    fd: OwnedFd,
    events: &mpsc::Sender<Event>,
    mut short: impl FnMut(&io::Error),
) -> io::Result<(Source, Sink)> {
    let mut tries = TRIES;
    let other = loop {
        match fd.try_clone() {
            Err(error) if is_shortage(&error) && tries > 0 => {
                tries -= 1;
                short(&error);
                let _ = events.send(Event::Shed).await;
                tokio::time::sleep(RETRY).await;
            }
            cloned => break cloned?,
        }
    };
    Ok((Source::socket(fd)?, Sink::socket(other)?))
}

/// True if the process or the machine has no descriptor or no memory for another connection.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    let code = error.raw_os_error();
    shortages
        .iter()
        .any(|errno| Some(errno.raw_os_error()) == code)
}
