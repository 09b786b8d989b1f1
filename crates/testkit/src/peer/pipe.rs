//! A pipe inside the process: bounded, blocking, closed by dropping either end.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// As much as a pipe of the kernel holds.
const CAPACITY: usize = 64 * 1024;

/// A reader that hears nothing for this long, and a writer that finds no room, give up.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    has_no_reader: bool,
    has_no_writer: bool,
}

/// The end to read from.
#[derive(Debug)]
pub struct PipeReader(Arc<Shared>);

/// The end to write to.
#[derive(Debug)]
pub struct PipeWriter(Arc<Shared>);

/// A new pipe.
pub fn pipe() -> (PipeReader, PipeWriter) {
    let shared = Arc::new(Shared::default());
    (PipeReader(Arc::clone(&shared)), PipeWriter(shared))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready`, within the longest wait.
    fn wait_until(&self, ready: impl Fn(&State) -> bool) -> io::Result<MutexGuard<'_, State>> {
        let until = Instant::now() + LONGEST_WAIT;
        let mut state = self.lock();
        while !ready(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }
}

impl Read for PipeReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let ready = |state: &State| !state.bytes.is_empty() || state.has_no_writer;
        let count = self.0.wait_until(ready)?.bytes.read(out)?;
        self.0.changed.notify_all();
        Ok(count)
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ready = |state: &State| state.bytes.len() < CAPACITY || state.has_no_reader;
        let mut state = self.0.wait_until(ready)?;
        if state.has_no_reader {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(CAPACITY - state.bytes.len());
        state.bytes.extend(bytes.iter().take(count));
        drop(state);
        self.0.changed.notify_all();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.lock().has_no_reader = true;
        self.0.changed.notify_all();
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.lock().has_no_writer = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_capacity() {
        let (mut reader, mut writer) = pipe();
        let sent: Vec<u8> = (0..3 * CAPACITY).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let writing = std::thread::spawn(move || writer.write_all(&sent));
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        writing.join().unwrap().unwrap();
        assert_eq!(received, expected);
    }

    #[test]
    fn writing_without_a_reader_is_a_broken_pipe() {
        let (reader, mut writer) = pipe();
        drop(reader);
        let error = writer.write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
