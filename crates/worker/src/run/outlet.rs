//! The way out: whole lines to the host, one write each.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Mutex;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::{Answer, FromWorker};

use super::encode;
use crate::sync::lock;

/// The output pipe, shared by all threads.
#[derive(Debug)]
pub(crate) struct Outlet {
    file: Mutex<File>,
    /// Longest line the host accepts.
    frame_bytes: usize,
}

impl Outlet {
    pub(crate) const fn new(file: File, frame_bytes: usize) -> Self {
        Self {
            file: Mutex::new(file),
            frame_bytes,
        }
    }

    /// Writes one message. Messages over the host's limit are answers only, see
    /// [`Self::answer`]; the others are bounded where they are made.
    pub(crate) fn send(&self, message: &FromWorker) -> io::Result<()> {
        self.write(encode::message(message)?)
    }

    /// Writes the one answer of a call, or, where that is too long, the problem in its place.
    pub(crate) fn answer(&self, call: CallId, answer: Answer) -> io::Result<()> {
        let line = encode::answer(call, answer)?;
        if line.len() <= self.frame_bytes {
            return self.write(line);
        }
        let message = format!(
            "the tool's answer has {} bytes; the limit is {}",
            line.len(),
            self.frame_bytes
        );
        drop(line);
        let problem = Problem::new(ErrorKind::AnswerTooLarge, message);
        self.write(encode::answer(call, Answer::Failed(problem))?)
    }

    fn write(&self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        lock(&self.file).write_all(&line)
    }
}
