//! The thread that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use mainstay_contract::audit::{AuditEvent, AuditRecord};
use mainstay_contract::render::{shorten, visible};

use super::file::AuditFile;
use super::{Done, Message};
use crate::engine::Event;
use crate::log::Log;

/// Records that reach the disk together.
const BATCH: usize = 256;
/// How long records of calls that only read may wait for others.
const GATHER: Duration = Duration::from_secs(1);
/// Characters of a text in a record.
const TEXT: usize = 512;

pub(super) struct Writer {
    file: AuditFile,
    lost: Arc<AtomicU64>,
    log: Log,
    /// Since when records wait to reach the disk.
    since: Option<Instant>,
    failing: bool,
}

impl Writer {
    pub(super) const fn new(file: AuditFile, lost: Arc<AtomicU64>, log: Log) -> Self {
        Self {
            file,
            lost,
            log,
            since: None,
            failing: false,
        }
    }

    /// Writes what comes until the host ends.
    pub(super) fn run(mut self, incoming: &Receiver<Message>) {
        loop {
            let first = match self.since {
                None => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(since) => {
                    let left = GATHER.saturating_sub(since.elapsed());
                    incoming.recv_timeout(left)
                }
            };
            let first = match first {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.sync();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            };
            let mut waiting = Vec::new();
            let mut next = Some(first);
            for _ in 0..BATCH {
                match next {
                    None => break,
                    Some(Message::Record { record, done }) => {
                        self.take(*record, done, &mut waiting);
                    }
                    Some(Message::Flush(done)) => {
                        self.settle(&mut waiting);
                        self.sync();
                        let _ = done.send(self.file.files().clone());
                    }
                    Some(Message::Close(done)) => {
                        self.settle(&mut waiting);
                        self.sync();
                        let _ = done.send(());
                        return;
                    }
                }
                next = incoming.try_recv().ok();
            }
            if let Some(Message::Record { record, done }) = next {
                self.take(*record, done, &mut waiting);
            }
            self.settle(&mut waiting);
        }
    }

    fn take(&mut self, record: AuditRecord, done: Option<Done>, waiting: &mut Vec<Done>) {
        let written = self
            .note_lost()
            .and_then(|()| self.file.append(self.bounded(record)));
        match (written, done) {
            (Ok(()), Some(done)) => waiting.push(done),
            (Ok(()), None) => {
                self.since.get_or_insert_with(Instant::now);
            }
            (Err(error), done) => {
                self.fail(&error);
                match done {
                    Some(done) => done.send(Err(error.to_string())),
                    None => {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Records that records are missing, before the next one.
    fn note_lost(&mut self) -> std::io::Result<()> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost == 0 {
            return Ok(());
        }
        let record = AuditRecord {
            detail: Some(format!("{lost} records could not be written")),
            ..AuditRecord::new(AuditEvent::Lost)
        };
        let written = self.file.append(record);
        if written.is_err() {
            self.lost.fetch_add(lost, Ordering::Relaxed);
        }
        written
    }

    /// Flushes to disk if a caller waits for it, and answers every waiting caller.
    fn settle(&mut self, waiting: &mut Vec<Done>) {
        if waiting.is_empty() {
            return;
        }
        let synced = self.file.sync();
        self.since = None;
        if let Err(error) = &synced {
            self.fail(error);
        } else {
            self.failing = false;
        }
        for done in waiting.drain(..) {
            let result = synced.as_ref().copied().map_err(ToString::to_string);
            done.send(result);
        }
    }

    fn sync(&mut self) {
        self.since = None;
        if let Err(error) = self.file.sync() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.fail(&error);
        }
    }

    /// Once for each time that it begins to fail.
    fn fail(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            self.log
                .line(&format!("mcp:error reason=audit_failed {error}"));
        }
    }

    /// A record without secrets and with texts of bounded length.
    fn bounded(&self, mut record: AuditRecord) -> AuditRecord {
        let redactor = self.log.redactor();
        let texts = [
            &mut record.who,
            &mut record.server,
            &mut record.tool,
            &mut record.rule,
            &mut record.approval,
            &mut record.by,
            &mut record.outcome,
            &mut record.detail,
        ];
        for text in texts.into_iter().flatten() {
            let shown = shorten(&visible(&redactor.text(text)), TEXT);
            *text = shown;
        }
        record
    }
}

impl Done {
    fn send(self, written: Result<(), String>) {
        let ticket = self.ticket;
        // A loop that has ended waits for nothing.
        let _ = self
            .events
            .blocking_send(Event::Audited { ticket, written });
    }
}
