//! The trace of a run: every byte that crosses a pipe, and every event, with its virtual time.
//!
//! A digest is kept of all of it. The text is kept only on demand.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Longest piece of a chunk that the text shows.
const SHOWN: usize = 160;

/// A handle to the trace of one run.
#[derive(Clone, Debug)]
pub struct Trace {
    began: Instant,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    digest: u64,
    events: u64,
    text: Option<String>,
}

impl Trace {
    /// An empty trace that begins now.
    pub fn start(keep_text: bool) -> Self {
        Self {
            began: Instant::now(),
            inner: Arc::new(Mutex::new(Inner {
                digest: 0xcbf2_9ce4_8422_2325,
                events: 0,
                text: keep_text.then(String::new),
            })),
        }
    }

    /// The digest of everything so far.
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.lock().events
    }

    /// The text so far, where it is kept.
    pub fn text(&self) -> Option<String> {
        self.lock().text.clone()
    }

    /// Something happened.
    pub fn note(&self, words: &str) {
        self.add(0, words.as_bytes(), || words.to_owned());
    }

    pub(super) fn wrote(&self, pipe: u64, bytes: &[u8]) {
        self.add(pipe, bytes, || {
            let shown = bytes.get(..bytes.len().min(SHOWN)).unwrap_or_default();
            let shown = String::from_utf8_lossy(shown).replace('\n', "\u{21b5}");
            format!("{} > {:4} {shown}", name(pipe), bytes.len())
        });
    }

    pub(super) fn read(&self, pipe: u64, count: usize) {
        self.add(pipe, &count.to_le_bytes(), || {
            format!("{} < {count:4}", name(pipe))
        });
    }

    pub(super) fn closed(&self, pipe: u64, side: &str) {
        self.add(pipe, side.as_bytes(), || {
            format!("{} {side} gone", name(pipe))
        });
    }

    fn add(&self, pipe: u64, bytes: &[u8], words: impl FnOnce() -> String) {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut inner = self.lock();
        inner.events += 1;
        let head = [micros, pipe, bytes.len() as u64];
        let mut digest = inner.digest;
        for word in head {
            digest = mix(digest, word);
        }
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            digest = mix(digest, u64::from_le_bytes(word));
        }
        inner.digest = digest;
        if let Some(text) = &mut inner.text {
            let (ms, rest) = (micros / 1000, micros % 1000);
            let _ = writeln!(text, "{ms:7}.{rest:03} {}", words());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One step of a 64-bit FNV-like hash over whole words.
const fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    mixed ^ (mixed >> 29)
}

/// A pipe's number in words: peer, then direction.
fn name(pipe: u64) -> String {
    let (peer, way) = (pipe >> 2, pipe & 3);
    let way = match way {
        0 => "in",
        1 => "out",
        _ => "err",
    };
    format!("p{peer}.{way}")
}
