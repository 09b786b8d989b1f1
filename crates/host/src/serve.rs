//! One host, from its start to its end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_contract::fault::Fault;
use mainstay_contract::limits::Limits;
use mainstay_contract::tool::ToolSpec;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::{Config, Transport};
use crate::control;
use crate::directory::DirectoryError;
use crate::engine::{Engine, Event, Lifetime, SetupError};
use crate::http::{self, Front, FrontFacts, Happens, HttpConfig, Listening, Serves};
use crate::io::{Sink, Source};
use crate::log::{Level, Log};
use crate::ready::{ReadyFile, Written};
use crate::telemetry::{OtlpConfig, Recorder};
use crate::transport::socket::{BindError, Bound};
use crate::transport::{Client, stdio};

/// Why a host cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Packs(#[from] DirectoryError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Socket(#[from] BindError),
    #[error("cannot listen on {address}")]
    Http {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("{address} can be reached from other machines, and there is no token")]
    NoToken { address: SocketAddr },
    #[error("cannot write the ready file {path}")]
    ReadyFile { path: String, source: io::Error },
    #[error("cannot write telemetry to {path}")]
    Telemetry { path: String, source: io::Error },
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
}

/// What a host had on offer when it ended.
#[derive(Debug, Default)]
pub struct Served {
    /// The host's own tools.
    pub own: Vec<ToolSpec>,
    /// The tools of all packs, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// Packs that never said what they offer, and the last thing that went wrong with each.
    pub unknown: Vec<(String, Option<Fault>)>,
    /// Time for a call of a tool that sets none itself.
    pub call_timeout_ms: u64,
}

/// Serves until the client leaves (stdio) or a signal comes.
pub fn serve(mut config: Config, log: &Log) -> Result<Served, ServeError> {
    let sinks = Sinks {
        file: config.telemetry.take(),
        collector: config.collector.take(),
        mode: config.transport.mode(),
    };
    let recorder = sinks.open(&config.limits, log)?;
    in_runtime(run(config, log.clone(), recorder.clone()), &recorder, log)
}

/// Where events go, as a configuration names it.
pub(crate) struct Sinks {
    pub(crate) file: Option<PathBuf>,
    pub(crate) collector: Option<OtlpConfig>,
    pub(crate) mode: &'static str,
}

impl Sinks {
    pub(crate) fn open(self, limits: &Limits, log: &Log) -> Result<Recorder, ServeError> {
        let recorder = match self.file {
            None => Recorder::off(),
            Some(path) => Recorder::start(&path, limits, log).map_err(|source| {
                let path = path.display().to_string();
                ServeError::Telemetry { path, source }
            })?,
        };
        match self.collector {
            None => Ok(recorder),
            Some(collector) => {
                recorder
                    .with_collector(collector, self.mode, log)
                    .map_err(|source| ServeError::Io {
                        what: "start the thread that sends spans",
                        source,
                    })
            }
        }
    }
}

/// Runs a host on a runtime of its own.
pub(crate) fn in_runtime<T: Send + 'static>(
    host: impl Future<Output = Result<T, ServeError>> + Send + 'static,
    recorder: &Recorder,
    log: &Log,
) -> Result<T, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| ServeError::Io {
            what: "start the runtime",
            source,
        })?;
    // As a task: a future that is blocked on is polled only after the runtime has looked for I/O,
    // which would cost every call two more system calls.
    let served = match runtime.block_on(runtime.spawn(host)) {
        Ok(served) => served,
        Err(error) => Err(ServeError::Io {
            what: "go on",
            source: error.into(),
        }),
    };
    // Threads that read a terminal cannot be interrupted; they end with the process.
    runtime.shutdown_background();
    recorder.finish();
    log.flush();
    served
}

async fn run(mut config: Config, log: Log, recorder: Recorder) -> Result<Served, ServeError> {
    let mode = config.transport.mode();
    let transport = std::mem::replace(&mut config.transport, Transport::Stdio);
    let ready_file = config.ready_file.take();
    let details = std::mem::take(&mut config.ready_details);
    let lifetime = match transport {
        Transport::Stdio | Transport::Connected(_) => Lifetime::Client,
        Transport::Socket { .. } | Transport::Http(_) => Lifetime::Service,
    };
    crate::process::adopt();
    let control_dir = config.control_dir.take();
    let limits = config.limits.clone();
    let grace = Duration::from_millis(limits.grace_ms);
    let (name, version) = (config.server_name.clone(), config.server_version.clone());
    let engine = Engine::new(config, mode, lifetime, log.clone(), recorder.clone())?;
    let events = engine.events();
    watch_signals(&events, || Event::Stop)?;
    let Opened { place, source } = open_transport(transport)?;
    let facts = FrontFacts {
        limits,
        serves: Serves::Packs,
        envelopes: engine.envelopes(),
        recorder,
        name,
        version,
    };
    let front = source.start(events.clone(), facts, &log);
    if let Some(folder) = control_dir {
        match control::open(&folder) {
            Ok(bound) => {
                tokio::spawn(control::listen(bound, events.clone()));
            }
            // The host serves its clients all the same.
            Err(error) => log.line(&format!("mcp:warning reason=no_control_socket {error}")),
        }
    }
    let announces = !matches!(mode, "memory");
    let ready = write_ready_file(ready_file.as_deref(), Level::Warn, &log)?;
    if announces {
        log.line(format!("mcp:ready mode={mode}{place} {details}").trim_end());
    }
    let served = engine.run().await;
    if let Some(front) = front {
        front.drain(grace).await;
    }
    drop(ready);
    if announces {
        log.line(&format!("mcp:shutdown mode={mode}"));
    }
    served.map_err(ServeError::Setup)
}

/// Writes the ready file, unless another living host owns it; `level` is that of saying so.
pub(crate) fn write_ready_file(
    path: Option<&std::path::Path>,
    level: Level,
    log: &Log,
) -> Result<Option<ReadyFile>, ServeError> {
    let Some(path) = path else { return Ok(None) };
    match ReadyFile::write(path) {
        Ok(Written::Ours(file)) => Ok(Some(file)),
        Ok(Written::LeftAlone { owner }) => {
            let said = format!(
                "mcp:warning reason=ready_file_in_use path={} owner={owner}",
                path.display()
            );
            log.say(level, said);
            Ok(None)
        }
        Err(source) => Err(ServeError::ReadyFile {
            path: path.display().to_string(),
            source,
        }),
    }
}

/// A transport that is open.
pub(crate) struct Opened {
    /// What the ready line says about where it is.
    pub(crate) place: String,
    pub(crate) source: Clients,
}

/// Where clients come from.
pub(crate) enum Clients {
    One(Client),
    Many(Bound),
    Http(TcpListener, SocketAddr, HttpConfig),
}

/// Opens a transport.
pub(crate) fn open_transport(transport: Transport) -> Result<Opened, ServeError> {
    let one = |what, opened: io::Result<(Source, Sink)>| {
        let (source, sink) = opened.map_err(|source| ServeError::Io { what, source })?;
        Ok(Opened {
            place: String::new(),
            source: Clients::One(Client { source, sink }),
        })
    };
    match transport {
        Transport::Stdio => one("open stdin and stdout", stdio()),
        Transport::Connected(fd) => one("use the connection", both_ways(fd)),
        Transport::Socket { path, mode } => Ok(Opened {
            source: Clients::Many(Bound::bind(&path, mode)?),
            place: format!(" path={}", path.display()),
        }),
        Transport::Http(config) => {
            let address = config.address;
            if !address.ip().is_loopback() && !config.asks() {
                return Err(ServeError::NoToken { address });
            }
            let failed = |source| ServeError::Http { address, source };
            let listener = http::bind(address).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            if let Some(told) = &config.told {
                let _ = told.try_send(bound);
            }
            Ok(Opened {
                place: format!(" address={bound}"),
                source: Clients::Http(listener, bound, config),
            })
        }
    }
}

fn both_ways(fd: std::os::fd::OwnedFd) -> io::Result<(Source, Sink)> {
    let other = fd.try_clone()?;
    Ok((Source::socket(fd)?, Sink::socket(other)?))
}

impl Clients {
    /// Delivers clients from here on. What listens for HTTP must be drained in the end.
    pub(crate) fn start<E: Happens>(
        self,
        events: mpsc::Sender<E>,
        facts: FrontFacts,
        log: &Log,
    ) -> Option<Listening> {
        match self {
            Self::One(client) => {
                tokio::spawn(async move {
                    let _ = events.send(client.into()).await;
                });
                None
            }
            Self::Many(bound) => {
                tokio::spawn(Self::deliver(bound, events, log.clone()));
                None
            }
            Self::Http(listener, bound, config) => {
                let front = Front::new(&config, bound, Box::new(events), facts);
                Some(http::start(listener, front))
            }
        }
    }

    /// Delivers clients until nobody takes them; then the socket's file goes, too.
    async fn deliver<E: From<Client>>(bound: Bound, events: mpsc::Sender<E>, log: Log) {
        loop {
            let accepted = tokio::select! {
                accepted = bound.accept() => accepted,
                () = events.closed() => return,
            };
            match accepted.and_then(both_ways) {
                Ok((source, sink)) => {
                    let _ = events.send(Client { source, sink }.into()).await;
                }
                Err(error) => {
                    // Too many descriptors, most likely: existing clients go on, new ones wait.
                    log.say(
                        Level::Warn,
                        format!("mcp:warning reason=accept_failed {error}"),
                    );
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

pub(crate) fn watch_signals<E: Send + 'static>(
    events: &mpsc::Sender<E>,
    stop: fn() -> E,
) -> Result<(), ServeError> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        watch(kind, events, stop)?;
    }
    Ok(())
}

/// Makes an event of each signal of a kind.
pub(crate) fn watch<E: Send + 'static>(
    kind: SignalKind,
    events: &mpsc::Sender<E>,
    event: fn() -> E,
) -> Result<(), ServeError> {
    let mut signals = signal(kind).map_err(|source| ServeError::Io {
        what: "watch for signals",
        source,
    })?;
    let events = events.clone();
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            if events.send(event()).await.is_err() {
                return;
            }
        }
    });
    Ok(())
}
