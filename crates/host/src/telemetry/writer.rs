//! The thread that writes.

use mainstay_contract::telemetry::{Dropped, Event};

use super::file::EventFile;
use super::queue::{Batch, Queue};
use crate::clock::iso_now;
use crate::log::Log;

/// Bytes that are appended in one write, about.
const WRITE: usize = 256 * 1024;

/// Writes what comes until the queue is closed.
pub(super) fn run(queue: &Queue, file: EventFile, shown: &str, host: &str, log: &Log) {
    let mut writer = Writer {
        file,
        host,
        shown,
        log,
        unwritten: 0,
        failing: false,
    };
    while let Some(batch) = queue.take() {
        writer.write(&batch);
    }
    if writer.unwritten > 0 {
        let count = writer.unwritten;
        log.line(&format!(
            "mcp:warning reason=telemetry_dropped count={count} path={shown}"
        ));
    }
    queue.end();
}

struct Writer<'a> {
    file: EventFile,
    host: &'a str,
    shown: &'a str,
    log: &'a Log,
    /// Events that are lost and not yet said to be.
    unwritten: u64,
    failing: bool,
}

impl Writer<'_> {
    fn write(&mut self, batch: &Batch) {
        self.unwritten += batch.dropped;
        let mut lines = Vec::with_capacity(WRITE + 4096);
        let mut count = 0;
        for event in &batch.events {
            push(&mut lines, event);
            count += 1;
            if lines.len() >= WRITE {
                self.append(&lines, count);
                lines.clear();
                count = 0;
            }
        }
        if count > 0 || self.unwritten > 0 {
            self.append(&lines, count);
        }
    }

    /// Appends lines of `count` events; what was lost before is said first.
    fn append(&mut self, lines: &[u8], count: u64) {
        let mut all = Vec::new();
        if self.unwritten > 0 {
            let dropped = Dropped {
                ts: iso_now(),
                host: self.host.to_owned(),
                count: self.unwritten,
            };
            push(&mut all, &Event::Dropped(dropped));
            all.extend_from_slice(lines);
        }
        let all = if all.is_empty() { lines } else { &all };
        match self.file.append(all) {
            Ok(()) => {
                self.unwritten = 0;
                self.failing = false;
            }
            Err(error) => {
                self.unwritten += count;
                // Once for each time that it begins to fail.
                if !std::mem::replace(&mut self.failing, true) {
                    let shown = self.shown;
                    self.log.line(&format!(
                        "mcp:warning reason=telemetry_failed path={shown} error={error}"
                    ));
                }
            }
        }
    }
}

fn push(lines: &mut Vec<u8>, event: &Event) {
    let length = lines.len();
    // Numbers, names and codes: there is nothing in an event that cannot be written.
    if serde_json::to_writer(&mut *lines, event).is_ok() {
        lines.push(b'\n');
    } else {
        lines.truncate(length);
    }
}
