//! Log lines on standard error, one each, ISO-8601 UTC time first.
//!
//! A client that never drains our stderr must not stop us, so lines go through a bounded queue
//! to a thread of their own; what does not fit is counted and said later. Nothing here ever
//! writes to standard output.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use mainstay_contract::envelope::redact::Redactor;

use crate::clock::iso_now;

/// Lines that may wait for a slow reader.
const QUEUE: usize = 1024;
/// How long the end waits for lines to be written.
const FLUSH: Duration = Duration::from_millis(500);
/// Pause between two lines of one [`Seldom`].
const SELDOM: Duration = Duration::from_secs(60);
/// Longest line.
const LINE: usize = 4096;

/// How much is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing of the host's own: the command that runs it reports failures itself.
    Quiet,
    /// Nothing but errors.
    Error,
    /// Also what an operator should look at.
    Warn,
    /// Also the life of the host and of its workers.
    #[default]
    Info,
    /// Also each connection.
    Debug,
}

/// A handle to the log.
#[derive(Clone, Debug)]
pub struct Log {
    level: Level,
    lines: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
    redactor: Redactor,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    Flush(SyncSender<()>),
}

impl Log {
    /// Starts the thread that writes. Lines lose the secrets that `redactor` knows.
    pub fn start(level: Level, redactor: Redactor) -> Self {
        let (lines, entries) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        // Without the thread lines are dropped and counted; the host works all the same.
        let _ = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write_lines(&entries, &counter));
        Self {
            level,
            lines,
            dropped,
            redactor,
        }
    }

    /// Removes secrets from everything that the host writes down.
    pub(crate) const fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// A log whose lines a test receives.
    #[cfg(test)]
    pub(crate) fn recorded(level: Level) -> (Self, Receiver<String>) {
        let (sender, received) = sync_channel(QUEUE);
        let (lines, entries) = sync_channel(QUEUE);
        let log = Self {
            level,
            lines,
            dropped: Arc::default(),
            redactor: Redactor::default(),
        };
        std::thread::spawn(move || {
            for entry in entries {
                if let Entry::Line(line) = entry
                    && sender.send(line).is_err()
                {
                    return;
                }
            }
        });
        (log, received)
    }

    /// A log that drops everything, without a thread.
    #[cfg(feature = "simulation")]
    pub(crate) fn silent() -> Self {
        let (lines, _) = sync_channel(1);
        Self {
            level: Level::Quiet,
            lines,
            dropped: Arc::default(),
            redactor: Redactor::default(),
        }
    }

    /// Says something at a level.
    pub fn say(&self, level: Level, text: impl AsRef<str>) {
        if level <= self.level {
            self.line(text.as_ref());
        }
    }

    /// Says something that is part of the contract, whatever the level of a host that serves.
    pub fn line(&self, text: &str) {
        if self.level == Level::Quiet {
            return;
        }
        let clean = one_line(&self.redactor.text(text));
        let entry = Entry::Line(format!("{} {clean}\n", iso_now()));
        if let Err(TrySendError::Full(_)) = self.lines.try_send(entry) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes on a warning of a worker, which only the worker can give: a command that is else silent shows it, too.
    pub(crate) fn warn_of_worker(&self, worker: &str, warning: &str) {
        if self.level == Level::Quiet {
            return self.pass_on(&format!("mainstay: warning: {worker}: {warning}"));
        }
        self.say(
            Level::Warn,
            format!("{worker} mcp:warning reason={warning}"),
        );
    }

    /// Passes on a line of a wrapped server's, as it is but for control characters.
    pub(crate) fn pass_on(&self, text: &str) {
        let entry = Entry::Line(format!("{}\n", one_line(text)));
        if let Err(TrySendError::Full(_)) = self.lines.try_send(entry) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits, not for long, until everything said so far is written.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.lines.try_send(Entry::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH);
        }
    }
}

/// A warning that may be caused again and again: logged at most once a minute.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    last: Option<Instant>,
    missed: u64,
}

impl Seldom {
    /// Logs a line. False if it is one too many.
    pub(crate) fn warn(&mut self, log: &Log, text: &str) -> bool {
        if self.last.is_some_and(|last| last.elapsed() < SELDOM) {
            self.missed += 1;
            return false;
        }
        self.last = Some(Instant::now());
        let missed = std::mem::take(&mut self.missed);
        let again = if missed > 0 {
            format!(" repeated={missed}")
        } else {
            String::new()
        };
        log.say(Level::Warn, format!("mcp:warning {text}{again}"));
        true
    }
}

fn write_lines(entries: &Receiver<Entry>, dropped: &AtomicU64) {
    for entry in entries {
        let mut stderr = std::io::stderr().lock();
        // The receiver may be gone; there is no other place to report that.
        match entry {
            Entry::Line(line) => {
                let missed = dropped.swap(0, Ordering::Relaxed);
                if missed > 0 {
                    let note = format!(
                        "{} mcp:warning reason=log_lines_dropped count={missed}\n",
                        iso_now()
                    );
                    let _ = stderr.write_all(note.as_bytes());
                }
                let _ = stderr.write_all(line.as_bytes());
            }
            Entry::Flush(done) => {
                let _ = stderr.flush();
                let _ = done.try_send(());
            }
        }
    }
}

/// One line of bounded length, control characters made harmless.
fn one_line(text: &str) -> String {
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
        .take(LINE)
        .collect();
    line.truncate(line.trim_end().len());
    line
}
