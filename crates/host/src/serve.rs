//! One host, from its start to its end.

use std::io;

use mainstay_contract::fault::Fault;
use mainstay_contract::tool::ToolSpec;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::{Config, Transport};
use crate::control;
use crate::directory::DirectoryError;
use crate::engine::{Engine, Event, Lifetime};
use crate::io::{Sink, Source};
use crate::log::{Level, Log};
use crate::ready::{ReadyFile, Written};
use crate::telemetry::Recorder;
use crate::transport::socket::{BindError, Bound};
use crate::transport::{Client, stdio};

/// Why a host cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Packs(#[from] DirectoryError),
    #[error(transparent)]
    Socket(#[from] BindError),
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
    let recorder = match config.telemetry.take() {
        Some(path) => Recorder::start(&path, &config.limits, log).map_err(|source| {
            let path = path.display().to_string();
            ServeError::Telemetry { path, source }
        })?,
        None => Recorder::off(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| ServeError::Io {
            what: "start the runtime",
            source,
        })?;
    // As a task: a future that is blocked on is polled only after the runtime has looked for I/O,
    // which would cost every call two more system calls.
    let host = runtime.spawn(run(config, log.clone(), recorder.clone()));
    let served = match runtime.block_on(host) {
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
        Transport::Socket { .. } => Lifetime::Service,
    };
    crate::process::adopt();
    let control_dir = config.control_dir.take();
    let engine = Engine::new(config, mode, lifetime, log.clone(), recorder)?;
    let events = engine.events();
    watch_signals(&events)?;
    let mut place = String::new();
    match transport {
        Transport::Stdio => {
            let (source, sink) = stdio().map_err(|source| ServeError::Io {
                what: "open stdin and stdout",
                source,
            })?;
            connect(&events, source, sink).await;
        }
        Transport::Connected(fd) => {
            let both = || -> io::Result<(Source, Sink)> {
                let other = fd.try_clone()?;
                Ok((Source::socket(fd)?, Sink::socket(other)?))
            };
            let (source, sink) = both().map_err(|source| ServeError::Io {
                what: "use the connection",
                source,
            })?;
            connect(&events, source, sink).await;
        }
        Transport::Socket { path, mode } => {
            let bound = Bound::bind(&path, mode)?;
            place = format!(" path={}", path.display());
            tokio::spawn(accept(bound, events.clone(), log.clone()));
        }
    }
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
    let ready = write_ready_file(ready_file.as_deref(), &log)?;
    if announces {
        log.line(format!("mcp:ready mode={mode}{place} {details}").trim_end());
    }
    let served = engine.run().await;
    drop(ready);
    if announces {
        log.line(&format!("mcp:shutdown mode={mode}"));
    }
    Ok(served)
}

fn write_ready_file(
    path: Option<&std::path::Path>,
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
            log.say(Level::Warn, said);
            Ok(None)
        }
        Err(source) => Err(ServeError::ReadyFile {
            path: path.display().to_string(),
            source,
        }),
    }
}

async fn connect(events: &mpsc::Sender<Event>, source: Source, sink: Sink) {
    let _ = events.send(Event::Connected(Client { source, sink })).await;
}

/// Accepts clients until the engine has gone; then the socket's file goes, too.
async fn accept(bound: Bound, events: mpsc::Sender<Event>, log: Log) {
    loop {
        let accepted = tokio::select! {
            accepted = bound.accept() => accepted,
            () = events.closed() => return,
        };
        let both = accepted.and_then(|fd| {
            let other = fd.try_clone()?;
            Ok((Source::socket(fd)?, Sink::socket(other)?))
        });
        match both {
            Ok((source, sink)) => connect(&events, source, sink).await,
            Err(error) => {
                // Too many descriptors, most likely: existing clients go on, new ones wait.
                log.say(
                    Level::Warn,
                    format!("mcp:warning reason=accept_failed {error}"),
                );
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn watch_signals(events: &mpsc::Sender<Event>) -> Result<(), ServeError> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).map_err(|source| ServeError::Io {
            what: "watch for signals",
            source,
        })?;
        let events = events.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if events.send(Event::Stop).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}
