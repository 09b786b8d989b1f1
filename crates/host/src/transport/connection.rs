//! One client's connection: lines in, decoded, with a gate that stops reading when the client
//! asks faster than it takes answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_contract::dialect::{self, Dialect, Inbound};
use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::id::SessionId;
use mainstay_contract::limits::Limits;
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
        if open {
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

/// Reads a client until its input ends.
pub(crate) async fn read_requests(
    session: SessionId,
    mut source: Source,
    limits: Limits,
    gate: Gate,
    events: mpsc::Sender<Event>,
) {
    let mut frames = FrameReader::new(limits.request_frame_bytes);
    let mut decoder = Decoder { limits, last: None };
    loop {
        gate.pass().await;
        let ended = match source.read(frames.spare()).await {
            Ok(count) if count > 0 => {
                frames.filled(count);
                false
            }
            // A connection that breaks has ended, too; its writer will notice if it is gone.
            _ => true,
        };
        loop {
            let frame = if ended {
                frames.finish()
            } else {
                frames.next_frame()
            };
            let Some(frame) = frame else { break };
            let (inbound, bytes) = decoder.decode(frame);
            if inbound != Inbound::Ignored {
                let event = Event::Inbound {
                    session,
                    inbound: Box::new(inbound),
                    bytes,
                };
                if events.send(event).await.is_err() {
                    return;
                }
                // The engine sees a large request before the next one is read, so that what is
                // on its way counts against the session's limit.
                if bytes > LARGE {
                    tokio::task::yield_now().await;
                }
                gate.pass().await;
            }
        }
        if ended {
            let ended = ClientEvent::InputEnded { session };
            let _ = events.send(ended.into()).await;
            return;
        }
    }
}

struct Decoder {
    limits: Limits,
    /// The dialect of the last message that decided one.
    last: Option<Dialect>,
}

impl Decoder {
    fn decode(&mut self, frame: Frame<'_>) -> (Inbound, usize) {
        match frame {
            Frame::Line(line) => {
                let inbound = dialect::decode(line, self.limits.json_depth);
                if let Inbound::Request(request) = &inbound {
                    self.last = Some(request.dialect);
                }
                (inbound, line.len())
            }
            Frame::Oversize(oversize) => {
                let limit = self.limits.request_frame_bytes;
                (
                    dialect::decode_oversize(&oversize.head, self.last, limit),
                    limit,
                )
            }
        }
    }
}
