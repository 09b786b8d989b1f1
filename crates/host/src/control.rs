//! The control socket: how an operator's commands reach a running host.
//!
//! One line with a request, one line with its reply, then the connection ends. The socket is in
//! the user's runtime directory under the host's process id, private from its birth like any
//! other socket of ours, and gone with the host.
//!
//! Wrapped servers and workers run as the same user, so the file's permissions do not keep them out. The host
//! rejects every process that descends from itself or from a shim of any host.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainstay_contract::audit::{AuditEvent, AuditRecord};
use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::frame::{Frame, FrameReader};
use rustix::net::SendFlags;
use rustix::process::Pid;
use tokio::sync::{mpsc, oneshot};

use crate::audit::AuditLog;
use crate::files;
use crate::io::{Sink, Source};
use crate::log::{Log, Seldom};
use crate::process::is_below_a_host;
use crate::transport::socket::Bound;
use crate::upgrade::Pause;

/// Longest request: that of a client has the arguments and the environment of its server.
const LINE: usize = 1024 * 1024;
/// Time for an operator's command to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time to send a request once the host pauses for an upgrade.
const LAST: Duration = Duration::from_millis(300);

/// Pause after a request could not be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// The reason while no request can be read.
const NO_DESCRIPTORS: &str = "the host is out of file descriptors";

/// The reason for processes that are not operators.
const NOT_AN_OPERATOR: &str = "a process that a host started cannot operate hosts";

/// A request of an operator, and where its reply goes.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) request: ControlRequest,
    /// It comes from a process of the host's own user.
    pub(crate) is_same_user: bool,
    pub(crate) reply: Replier,
}

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum Replier {
    Task(oneshot::Sender<ControlReply>),
    /// The connection of an operator's command.
    Connection(OwnedFd),
}

impl Replier {
    /// Sends the reply.
    pub(crate) fn send(self, reply: ControlReply) {
        match self {
            Self::Task(task) => {
                let _ = task.send(reply);
            }
            Self::Connection(connection) => {
                let mut line = Vec::new();
                let text = serde_json::to_string(&reply).unwrap_or_default();
                mainstay_contract::frame::encode(&mut line, &text);
                // Nearly every reply fits, and then it is sent even if the host ends now.
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = rustix::net::send(&connection, &line, flags).unwrap_or(0);
                if sent < line.len() {
                    tokio::spawn(write_rest(connection, line.split_off(sent)));
                }
            }
        }
    }
}

/// Opens the control socket of this process in `folder`.
pub(crate) fn open(folder: &Path) -> io::Result<Bound> {
    files::create_private(folder)?;
    let path = folder.join(format!("{}.sock", std::process::id()));
    Bound::bind(&path, 0o600).map_err(io::Error::other)
}

/// Takes requests until the engine has gone. `reading` is cloned for each connection whose request is being read.
pub(crate) async fn listen<E: From<Control> + Send + 'static>(
    bound: Arc<Bound>,
    events: mpsc::Sender<E>,
    (log, audit): (Log, AuditLog),
    reading: Arc<()>,
    pause: Pause,
) {
    let mut warning = Seldom::default();
    loop {
        tokio::select! {
            biased;
            () = pause.begun() => pause.over().await,
            accepted = bound.accept_from() => match accepted {
                Ok((fd, ..)) if !has_descriptors(&fd) => {
                    warning.warn(&log, &format!("reason=control_refused {NO_DESCRIPTORS}"));
                    let reason = NO_DESCRIPTORS.to_owned();
                    Replier::Connection(fd).send(ControlReply::Unable { reason });
                }
                Ok((fd, uid, peer)) => {
                    let is_same_user = uid == rustix::process::geteuid().as_raw();
                    // A process that is not visible here is not below this host: namespaces are nested.
                    let is_operator = peer.is_none_or(|peer| !is_below_a_host(peer));
                    if !is_operator {
                        let pid = Pid::as_raw(peer);
                        let said = format!("reason=control_refused pid={pid}");
                        // A process that tries again and again must not fill the file either.
                        if warning.warn(&log, &said) {
                            audit.record(AuditRecord {
                                detail: Some(format!("control socket pid={pid} {NOT_AN_OPERATOR}")),
                                ..AuditRecord::new(AuditEvent::AccessRefused)
                            });
                        }
                    }
                    let (events, reading) = (events.clone(), Arc::clone(&reading));
                    let pause = pause.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = converse(fd, is_operator, is_same_user, events) => {}
                            // Half a request does not move into another program.
                            () = async {
                                pause.begun().await;
                                tokio::time::sleep(LAST).await;
                            } => {}
                        }
                        drop(reading);
                    });
                }
                Err(error) => {
                    warning.warn(&log, &format!("reason=control_refused {error}"));
                    tokio::time::sleep(RETRY).await;
                }
            },
            () = events.closed() => return,
        }
    }
}

/// True if there are descriptors to read a request and to look at the process that sends it.
fn has_descriptors(connection: &OwnedFd) -> bool {
    let both = (connection.try_clone(), connection.try_clone());
    both.0.is_ok() && both.1.is_ok()
}

async fn converse<E: From<Control>>(
    fd: OwnedFd,
    is_operator: bool,
    is_same_user: bool,
    events: mpsc::Sender<E>,
) {
    let Ok(source) = fd.try_clone().and_then(Source::socket) else {
        return;
    };
    let reply = Replier::Connection(fd);
    let reason = match tokio::time::timeout(PATIENCE, read_request(source)).await {
        Ok(_) if !is_operator => NOT_AN_OPERATOR.to_owned(),
        Ok(Ok(request)) => {
            let control = Control {
                request,
                is_same_user,
                reply,
            };
            let _ = events.send(control.into()).await;
            return;
        }
        Ok(Err(reason)) => reason,
        Err(_) => return,
    };
    reply.send(ControlReply::Refused { reason });
}

async fn write_rest(connection: OwnedFd, rest: Vec<u8>) {
    let Ok(mut sink) = Sink::socket(connection) else {
        return;
    };
    let mut rest = rest.as_slice();
    while let Ok(count) = sink.write(rest).await {
        rest = rest.get(count..).unwrap_or_default();
        if rest.is_empty() || count == 0 {
            return;
        }
    }
}

async fn read_request(mut source: Source) -> Result<ControlRequest, String> {
    let mut frames = FrameReader::new(LINE);
    loop {
        match source.read(frames.spare()).await {
            Ok(count) if count > 0 => frames.filled(count),
            _ => return Err("the request ended early".to_owned()),
        }
        match frames.next_frame() {
            None => {}
            Some(Frame::Line(line)) => {
                return serde_json::from_slice(line).map_err(|error| error.to_string());
            }
            Some(Frame::Oversize(_)) => return Err("the request is too long".to_owned()),
        }
    }
}

/// Where the hosts of this user have their control sockets.
pub fn runtime_dir(named: Option<PathBuf>, user: Option<PathBuf>, temporary: &Path) -> PathBuf {
    match (named, user) {
        (Some(named), _) => named,
        (None, Some(user)) => user.join("mainstay"),
        (None, None) => {
            let id = rustix::process::geteuid().as_raw();
            temporary.join(format!("mainstay-{id}"))
        }
    }
}
