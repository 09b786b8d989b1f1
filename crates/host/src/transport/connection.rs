//! One client's connection: lines in, with a gate that stops reading when the client asks faster than it
//! reads its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::id::SessionId;
use mainstay_kernel::defect::{Defect, is_planted};
use tokio::sync::{Notify, mpsc};

use super::ClientEvent;
use serde::{Deserialize, Serialize};

use crate::engine::Event;
use crate::io::{SavedEnd, Sink, Source};
use crate::upgrade::{Incoming, Outgoing, Pause, SavedFrames};

/// Requests over this many bytes are handed over one by one.
const LARGE: usize = 16 * 1024;

/// A connection that is not yet a session.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) source: Source,
    pub(crate) sink: Sink,
    /// Names a client over HTTP, or another Unix user at the socket; all others are the host's own user.
    pub(crate) caller: Option<String>,
    /// Its number among the links of the HTTP front.
    pub(crate) link: Option<u64>,
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

    /// True if the reader has to wait.
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

/// [`Lines`], as they are saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedLines {
    source: SavedEnd,
    frames: SavedFrames,
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

    /// Takes everything out of a channel, so that it can be saved.
    pub(crate) fn absorb(&mut self) {
        self.source.absorb();
    }

    /// Saves bytes that are read and not taken, for a process that continues in this one's place.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedLines> {
        Some(SavedLines {
            source: self.source.save(descriptors)?,
            frames: SavedFrames::of(&self.frames),
            ended: self.ended,
        })
    }

    pub(crate) fn restore(
        saved: SavedLines,
        descriptors: &mut Incoming,
        link: Option<mpsc::Receiver<std::io::Result<Vec<u8>>>>,
        limit: usize,
        gate: Gate,
    ) -> std::io::Result<Self> {
        Ok(Self {
            source: Source::restore(saved.source, descriptors, link)?,
            frames: saved.frames.restore(limit),
            gate,
            ended: saved.ended,
        })
    }

    /// Reads on. Then everything is to be taken.
    async fn read(&mut self) {
        self.gate.pass().await;
        match self.source.read(self.frames.spare()).await {
            Ok(count) if count > 0 => self.frames.filled(count),
            // A connection that breaks has ended, too; its writer will notice if it is gone.
            _ => self.ended = true,
        }
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

/// Reads a client's lines until its input ends. Returns them if the host pauses.
pub(crate) async fn read_lines(
    session: SessionId,
    mut lines: Lines,
    limit: usize,
    events: mpsc::Sender<Event>,
    pause: Pause,
) -> Option<Lines> {
    loop {
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
                return None;
            }
            // The core sees a large request before the next one is read, so that requests on their way
            // count against the session's limit.
            if bytes > LARGE {
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                () = lines.pass() => {}
                () = pause.begun() => return Some(lines),
            }
        }
        if lines.ended {
            let ended = ClientEvent::InputEnded { session };
            let _ = events.send(ended.into()).await;
            return None;
        }
        tokio::select! {
            biased;
            // First: a client that floods must not delay the pause.
            () = pause.begun() => return Some(lines),
            () = lines.read() => {}
        }
    }
}
