//! The control socket: how an operator's commands reach a running host.
//!
//! One line with a request, one line with its reply, then the connection ends. The socket is in
//! the user's runtime directory under the host's process id, private from its birth like any
//! other socket of ours, and gone with the host.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::frame::{Frame, FrameReader};
use tokio::sync::{mpsc, oneshot};

use crate::io::{Sink, Source};
use crate::transport::socket::Bound;

/// Longest request.
const LINE: usize = 4096;
/// Time for an operator's command to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request of an operator, and where its reply goes.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) request: ControlRequest,
    pub(crate) reply: oneshot::Sender<ControlReply>,
}

/// Opens the control socket of this process in `folder`.
pub(crate) fn open(folder: &Path) -> io::Result<Bound> {
    make_private(folder)?;
    let path = folder.join(format!("{}.sock", std::process::id()));
    Bound::bind(&path, 0o600).map_err(io::Error::other)
}

/// The folder must be ours alone: it stands in a place where others may write.
fn make_private(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
    {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let facts = std::fs::symlink_metadata(folder)?;
    let ours = facts.uid() == rustix::process::geteuid().as_raw();
    if !facts.is_dir() || !ours || facts.mode() & 0o022 != 0 {
        let said = format!(
            "{} is not a private directory of this user",
            folder.display()
        );
        return Err(io::Error::other(said));
    }
    Ok(())
}

/// Takes requests until the engine has gone.
pub(crate) async fn listen<E: From<Control> + Send + 'static>(
    bound: Bound,
    events: mpsc::Sender<E>,
) {
    loop {
        tokio::select! {
            accepted = bound.accept() => match accepted {
                Ok(fd) => {
                    tokio::spawn(converse(fd, events.clone()));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            () = events.closed() => return,
        }
    }
}

async fn converse<E: From<Control>>(fd: std::os::fd::OwnedFd, events: mpsc::Sender<E>) {
    let open = || -> io::Result<(Source, Sink)> {
        let other = fd.try_clone()?;
        Ok((Source::socket(fd)?, Sink::socket(other)?))
    };
    let Ok((source, mut sink)) = open() else {
        return;
    };
    let reply = match tokio::time::timeout(PATIENCE, read_request(source)).await {
        Ok(Ok(request)) => ask(request, &events).await,
        Ok(Err(reason)) => ControlReply::Refused { reason },
        Err(_) => return,
    };
    let mut line = Vec::new();
    let text = serde_json::to_string(&reply).unwrap_or_default();
    mainstay_contract::frame::encode(&mut line, &text);
    let mut rest: &[u8] = &line;
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

async fn ask<E: From<Control>>(request: ControlRequest, events: &mpsc::Sender<E>) -> ControlReply {
    let (reply, wait) = oneshot::channel();
    let gone = || ControlReply::Refused {
        reason: "the host is ending".to_owned(),
    };
    if events
        .send(Control { request, reply }.into())
        .await
        .is_err()
    {
        return gone();
    }
    wait.await.unwrap_or_else(|_| gone())
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
