//! The three pipes of a child, served without blocking.

use std::io::{self, ErrorKind, Read, Write as _};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::command::Captured;

/// Read at once.
const CHUNK: usize = 16 * 1024;

/// Reads of one stream before the others and the clock get their turn.
const READS_PER_TURN: usize = 16;

/// Serves a child's input and output.
#[derive(Debug)]
pub(super) struct ChildPipes {
    stdin: Option<ChildStdin>,
    to_write: Vec<u8>,
    written: usize,
    stdout: Stream<std::process::ChildStdout>,
    stderr: Stream<std::process::ChildStderr>,
}

#[derive(Debug)]
struct Stream<R> {
    pipe: Option<R>,
    captured: Captured,
    limit: usize,
}

impl ChildPipes {
    pub(super) fn new(child: &mut Child, to_write: Vec<u8>, limit: usize) -> io::Result<Self> {
        // An empty input is closed at once, not at the first turn.
        let stdin = child.stdin.take().filter(|_| !to_write.is_empty());
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        stdin.as_ref().map_or(Ok(()), do_not_block)?;
        stdout.as_ref().map_or(Ok(()), do_not_block)?;
        stderr.as_ref().map_or(Ok(()), do_not_block)?;
        Ok(Self {
            stdin,
            to_write,
            written: 0,
            stdout: Stream {
                pipe: stdout,
                captured: Captured::default(),
                limit,
            },
            stderr: Stream {
                pipe: stderr,
                captured: Captured::default(),
                limit,
            },
        })
    }

    /// Waits up to `time` for something to do.
    pub(super) fn wait(&self, time: Duration) {
        let wanted = [
            (self.stdin.as_ref().map(AsFd::as_fd), PollFlags::OUT),
            (self.stdout.pipe.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.stderr.pipe.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ];
        let mut fds: Vec<_> = wanted
            .into_iter()
            .filter_map(|(fd, flags)| Some(PollFd::from_borrowed_fd(fd?, flags)))
            .collect();
        let time = Timespec::try_from(time).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&time));
    }

    /// Moves what can be moved now.
    pub(super) fn transfer(&mut self) {
        self.feed();
        self.stdout.drain();
        self.stderr.drain();
    }

    /// True if all output has been read to its end.
    pub(super) const fn ended(&self) -> bool {
        self.stdout.pipe.is_none() && self.stderr.pipe.is_none()
    }

    /// Keeps nothing of what still comes.
    pub(super) fn stop_capturing(&mut self) {
        self.stdin = None;
        self.stdout.limit = 0;
        self.stderr.limit = 0;
    }

    pub(super) fn into_captured(self) -> (Captured, Captured) {
        (self.stdout.captured, self.stderr.captured)
    }

    fn feed(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        let rest = self.to_write.get(self.written..).unwrap_or_default();
        match stdin.write(rest) {
            Ok(count) => self.written += count,
            Err(error) if is_transient(&error) => return,
            // The child does not want the rest.
            Err(_) => self.written = self.to_write.len(),
        }
        if self.written >= self.to_write.len() {
            self.stdin = None;
        }
    }
}

impl<R: Read> Stream<R> {
    fn drain(&mut self) {
        let mut chunk = [0; CHUNK];
        for _ in 0..READS_PER_TURN {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.keep(chunk.get(..count).unwrap_or_default()),
                Err(error) if is_transient(&error) => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.captured.bytes.len());
        let kept = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.captured.bytes.extend_from_slice(kept);
        self.captured.truncated |= kept.len() < bytes.len();
    }
}

fn do_not_block(fd: &impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
