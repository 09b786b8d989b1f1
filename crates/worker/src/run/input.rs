//! Messages of the host, read from its pipe.

use std::fs::File;
use std::io::{ErrorKind, Read as _};

use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::rpc::ToWorker;

use super::gate::Seen;

/// Longest line accepted from the host: the largest request it can be configured to take, and
/// room for what it writes around the arguments.
const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024 + 64 * 1024;

/// Reads one message after the other.
#[derive(Debug)]
pub(super) struct Input {
    file: File,
    frames: FrameReader,
    /// Read already, and next.
    ahead: Option<Incoming>,
    /// The pipe was seen empty; it is not read again before a wake-up says that it is not.
    dry: bool,
    /// The pipe has an end, to be read after the last message.
    hung_up: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(ToWorker),
    /// The host has gone.
    End,
    /// Something that this protocol does not have.
    Broken(String),
}

impl Input {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            frames: FrameReader::new(MAX_FRAME_BYTES),
            ahead: None,
            dry: false,
            hung_up: false,
        }
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// The first message, from a pipe that still blocks.
    pub(super) fn first(&mut self) -> Incoming {
        loop {
            if let Some(first) = self.next() {
                return first;
            }
            self.refresh(Seen::Input);
        }
    }

    /// Looks into the pipe again.
    pub(super) fn refresh(&mut self, seen: Seen) {
        self.dry = false;
        self.hung_up |= seen == Seen::HangUp;
    }

    /// True if a message is, or may be, there for which no thread will be woken.
    pub(super) const fn has_more(&self) -> bool {
        self.ahead.is_some() || !self.dry
    }

    /// The next message; `None` when the pipe does not block and is empty.
    pub(super) fn next(&mut self) -> Option<Incoming> {
        let next = match self.ahead.take() {
            Some(ahead) => ahead,
            None => self.read()?,
        };
        // Known before the reader leaves, so that it wakes another one only with reason.
        self.ahead = self.buffered();
        Some(next)
    }

    fn read(&mut self) -> Option<Incoming> {
        loop {
            if let Some(buffered) = self.buffered() {
                return Some(buffered);
            }
            if self.dry {
                return None;
            }
            let spare = self.frames.spare();
            let room = spare.len();
            match self.file.read(spare) {
                Ok(0) => return Some(Incoming::End),
                Ok(count) => {
                    self.frames.filled(count);
                    // A pipe gives all it has: this saves the read that would find nothing.
                    self.dry = count < room && !self.hung_up;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.dry = true,
                Err(_) => return Some(Incoming::End),
            }
        }
    }

    fn buffered(&mut self) -> Option<Incoming> {
        self.frames.next_frame().map(|frame| match frame {
            Frame::Line(line) => match serde_json::from_slice(line) {
                Ok(message) => Incoming::Message(message),
                Err(error) => Incoming::Broken(format!("a message cannot be read: {error}")),
            },
            Frame::Oversize(_) => {
                Incoming::Broken(format!("a line is over {MAX_FRAME_BYTES} bytes"))
            }
        })
    }
}
