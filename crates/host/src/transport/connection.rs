//! One client's connection: lines in, with a gate that stops reading when the client asks faster than it
//! reads its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::id::SessionId;
use mainstay_kernel::defect::{Defect, is_planted};
use tokio::sync::{Notify, mpsc};

use super::ClientEvent;
use crate::engine::Event;
use crate::io::{Sink, Source};

/// Requests over this many bytes are handed over one by one.
const LARGE: usize = 16 * 1024;

/// A connection that is not yet a session.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) source: Source,
    pub(crate) sink: Sink,
    /// Names a client over HTTP; all others are the host's own user.
    pub(crate) caller: Option<String>,
}

/// Says whether a connection may be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    shared: Arc<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    /// Lets the reader go on, or not.
    pub(crate) fn set_open(&self, open: bool) {
        self.shared.closed.store(!open, Ordering::Relaxed);
        if open && !is_planted(Defect::SilentGate) {
            self.shared.opened.notify_one();
        }
    }

    /// Whether the reader has been told to wait.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Relaxed)
    }

    pub(crate) async fn pass(&self) {
        while self.is_closed() {
            self.shared.opened.notified().await;
        }
    }
}

/// A client's lines, read while its gate is open.
#[derive(Debug)]
pub(crate) struct Lines {
    source: Source,
    frames: FrameReader,
    gate: Gate,
    ended: bool,
}

impl Lines {
    pub(crate) fn new(source: Source, limit: usize, gate: Gate) -> Self {
        Self {
            source,
            frames: FrameReader::new(limit),
            gate,
            ended: false,
        }
    }

    /// Reads on. Then everything is to be taken; nothing more comes if this says so.
    pub(crate) async fn is_last_read(&mut self) -> bool {
        self.gate.pass().await;
        match self.source.read(self.frames.spare()).await {
            Ok(count) if count > 0 => self.frames.filled(count),
            // A connection that breaks has ended, too; its writer will notice if it is gone.
            _ => self.ended = true,
        }
        self.ended
    }

    /// The next whole line of what was read.
    pub(crate) fn take(&mut self) -> Option<Frame<'_>> {
        if self.ended && !is_planted(Defect::LastLineLost) {
            self.frames.finish()
        } else {
            self.frames.next_frame()
        }
    }

    /// Waits until the next line may be taken.
    pub(crate) async fn pass(&self) {
        self.gate.pass().await;
    }
}

/// Reads a client's lines until its input ends.
pub(crate) async fn read_lines(
    session: SessionId,
    source: Source,
    limit: usize,
    gate: Gate,
    events: mpsc::Sender<Event>,
) {
    let mut lines = Lines::new(source, limit, gate);
    loop {
        let is_last = lines.is_last_read().await;
        while let Some(frame) = lines.take() {
            let (event, bytes) = match frame {
                Frame::Line(line) => {
                    let line = line.to_vec();
                    let bytes = line.len();
                    (Event::Line { session, line }, bytes)
                }
                Frame::Oversize(oversize) => {
                    let head = oversize.head;
                    (Event::Oversize { session, head }, limit)
                }
            };
            if events.send(event).await.is_err() {
                return;
            }
            // The core sees a large request before the next one is read, so that requests on their way
            // count against the session's limit.
            if bytes > LARGE {
                tokio::task::yield_now().await;
            }
            lines.pass().await;
        }
        if is_last {
            let ended = ClientEvent::InputEnded { session };
            let _ = events.send(ended.into()).await;
            return;
        }
    }
}
