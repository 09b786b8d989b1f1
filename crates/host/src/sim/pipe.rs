//! A pipe in memory: bounded, with partial reads and writes, stalls, and ends that break at any
//! byte.
//!
//! Both ends behave as those of a kernel's pipe. A write takes as much as there is room for, and
//! fails once the reader has gone; a read takes what is there, and gets 0 once the writer has gone
//! and everything is read. [`Noise`] makes both take less than they could, and wait. A seed decides
//! how much.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::Trace;

/// How a pipe misbehaves. Without it, reads and writes take all they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Bytes that fit.
    pub capacity: usize,
    /// The most bytes that one read or write takes.
    pub chunk: usize,
    /// One in so many reads and writes stalls; 0 is none.
    pub stall_one_in: u32,
    /// The longest stall.
    pub stall_ms: u64,
}

impl Noise {
    /// A pipe of this size that behaves.
    pub const fn none(capacity: usize) -> Self {
        Self {
            capacity,
            chunk: capacity,
            stall_one_in: 0,
            stall_ms: 0,
        }
    }
}

/// Decides if the pipes of a world misbehave. Once it is calm, it stays so.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    calm: Arc<AtomicBool>,
}

impl Weather {
    /// From now on every pipe behaves.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// True if every pipe behaves.
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }
}

/// The end that reads.
#[derive(Debug)]
pub struct PipeReader {
    pipe: Arc<Pipe>,
}

/// The end that writes.
#[derive(Debug)]
pub struct PipeWriter {
    pipe: Arc<Pipe>,
}

#[derive(Debug)]
struct Pipe {
    number: u64,
    noise: Noise,
    weather: Weather,
    trace: Trace,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: VecDeque<u8>,
    random: u64,
    /// Readers and writers that are left: both ends can be duplicated, as descriptors can.
    readers: usize,
    writers: usize,
    read_stall: Stall,
    write_stall: Stall,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Readiness of one end for its next read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    Undecided,
    Until(Instant),
    Over,
}

#[derive(Clone, Copy)]
enum Side {
    Reader,
    Writer,
}

/// Makes a pipe. Its number names it in the trace, and with the seed decides its noise.
pub fn pipe(
    number: u64,
    seed: u64,
    noise: Noise,
    weather: &Weather,
    trace: &Trace,
) -> (PipeWriter, PipeReader) {
    let state = State {
        bytes: VecDeque::new(),
        random: seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        readers: 1,
        writers: 1,
        read_stall: Stall::Undecided,
        write_stall: Stall::Undecided,
        reader: None,
        writer: None,
    };
    let pipe = Arc::new(Pipe {
        number,
        noise,
        weather: weather.clone(),
        trace: trace.clone(),
        state: Mutex::new(state),
    });
    let writer = PipeWriter {
        pipe: Arc::clone(&pipe),
    };
    (writer, PipeReader { pipe })
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as this end is stalled.
    async fn stall(&self, side: Side) {
        if self.noise.stall_one_in == 0 || self.weather.is_calm() {
            return;
        }
        let until = {
            let mut state = self.lock();
            let stalls = state
                .random()
                .is_multiple_of(u64::from(self.noise.stall_one_in));
            let pause = Duration::from_millis(1 + state.random() % self.noise.stall_ms.max(1));
            let stall = match side {
                Side::Reader => &mut state.read_stall,
                Side::Writer => &mut state.write_stall,
            };
            if *stall == Stall::Undecided {
                *stall = if stalls {
                    Stall::Until(Instant::now() + pause)
                } else {
                    Stall::Over
                };
            }
            *stall
        };
        if let Stall::Until(until) = until {
            tokio::time::sleep_until(until).await;
            self.set_stall(side, Stall::Over);
        }
    }

    fn set_stall(&self, side: Side, stall: Stall) {
        let mut state = self.lock();
        match side {
            Side::Reader => state.read_stall = stall,
            Side::Writer => state.write_stall = stall,
        }
    }

    /// How many of `most` bytes are taken at once.
    fn portion(&self, state: &mut State, most: usize) -> usize {
        if self.weather.is_calm() || most <= 1 {
            return most;
        }
        let bound = most.min(self.noise.chunk.max(1));
        // Mostly all that fits: otherwise a long line would take thousands of steps.
        if state.random().is_multiple_of(4) {
            1 + usize::try_from(state.random()).unwrap_or(0) % bound
        } else {
            bound
        }
    }

    fn take(&self, state: &mut State, buffer: &mut [u8]) -> usize {
        let most = state.bytes.len().min(buffer.len());
        let count = self.portion(state, most);
        for (to, from) in buffer.iter_mut().zip(state.bytes.drain(..count)) {
            *to = from;
        }
        state.read_stall = Stall::Undecided;
        self.trace.read(self.number, count);
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
        count
    }
}

impl State {
    /// `SplitMix64`.
    const fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 1
    }
}

impl PipeReader {
    /// Reads some bytes; 0 at the end. Nothing is lost when the wait is given up.
    pub async fn read(&mut self, buffer: &mut [u8]) -> usize {
        self.pipe.stall(Side::Reader).await;
        poll_fn(|context| {
            let mut state = self.pipe.lock();
            if state.bytes.is_empty() && state.writers > 0 {
                state.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(self.pipe.take(&mut state, buffer))
        })
        .await
    }

    /// Reads what is there; `None` when there is nothing now.
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let mut state = self.pipe.lock();
        if state.bytes.is_empty() && state.writers > 0 {
            return None;
        }
        Some(self.pipe.take(&mut state, buffer))
    }

    /// This end once more, for a host that continues this one.
    pub(crate) fn duplicate(&self) -> Self {
        self.pipe.lock().readers += 1;
        let pipe = Arc::clone(&self.pipe);
        Self { pipe }
    }

    /// The bytes that wait to be read.
    pub fn unread(&self) -> Vec<u8> {
        self.pipe.lock().bytes.iter().copied().collect()
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut state = self.pipe.lock();
        state.readers -= 1;
        if state.readers > 0 {
            return;
        }
        self.pipe.trace.closed(self.pipe.number, "reader");
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}

impl PipeWriter {
    /// Writes some bytes. Nothing is written when the wait is given up.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.pipe.stall(Side::Writer).await;
        poll_fn(|context| {
            let mut state = self.pipe.lock();
            if state.readers == 0 {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let room = self.pipe.noise.capacity.saturating_sub(state.bytes.len());
            if room == 0 {
                state.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            let count = self.pipe.portion(&mut state, room.min(bytes.len()));
            let written = bytes.get(..count).unwrap_or_default();
            state.bytes.extend(written);
            state.write_stall = Stall::Undecided;
            self.pipe.trace.wrote(self.pipe.number, written);
            if let Some(reader) = state.reader.take() {
                reader.wake();
            }
            Poll::Ready(Ok(count))
        })
        .await
    }

    /// This end once more, for a host that continues this one.
    pub(crate) fn duplicate(&self) -> Self {
        self.pipe.lock().writers += 1;
        let pipe = Arc::clone(&self.pipe);
        Self { pipe }
    }

    /// Waits until the reader has gone.
    pub async fn closed(&self) {
        poll_fn(|context| {
            let mut state = self.pipe.lock();
            if state.readers == 0 {
                return Poll::Ready(());
            }
            state.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let mut state = self.pipe.lock();
        state.writers -= 1;
        if state.writers > 0 {
            return;
        }
        self.pipe.trace.closed(self.pipe.number, "writer");
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}
