//! Messages of the host, read from its pipe.

use std::fs::File;
use std::io::{ErrorKind, Read as _};

use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::rpc::ToWorker;

/// Longest line accepted from the host: the largest request it can be configured to take, and
/// room for what it writes around the arguments.
const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024 + 64 * 1024;

/// Reads one message after the other.
#[derive(Debug)]
pub(super) struct Input {
    file: File,
    frames: FrameReader,
}

/// What came.
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
        }
    }

    /// Blocks until a message is here.
    pub(super) fn next(&mut self) -> Incoming {
        loop {
            match self.frames.next_frame() {
                Some(Frame::Line(line)) => return parse(line),
                Some(Frame::Oversize(_)) => {
                    return Incoming::Broken(format!("a line is over {MAX_FRAME_BYTES} bytes"));
                }
                None => {}
            }
            match self.file.read(self.frames.spare()) {
                Ok(0) => return Incoming::End,
                Ok(count) => self.frames.filled(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Incoming::End,
            }
        }
    }
}

fn parse(line: &[u8]) -> Incoming {
    match serde_json::from_slice(line) {
        Ok(message) => Incoming::Message(message),
        Err(error) => Incoming::Broken(format!("a message cannot be read: {error}")),
    }
}
