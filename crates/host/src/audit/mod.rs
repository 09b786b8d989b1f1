//! The audit file of a host.
//!
//! A thread of its own writes the records in the order in which they come ([`thread`]), so a slow disk does not stop the
//! loop. The queue to it is bounded. A record with a ticket is acknowledged once it is on the disk; one that cannot be
//! written is refused, and the core then refuses the call. [`file`] knows the file, its chain and its anchor.
//!
//! Everything is off without `--audit`: then nothing is made and nothing is sent.

mod anchor;
mod file;
mod thread;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use mainstay_contract::audit::{AuditEvent, AuditRecord, Key};
use mainstay_contract::trace::Hex;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::mpsc;

pub use self::anchor::read as read_anchor;
use self::file::AuditFile;
use crate::entropy;
use crate::log::Log;
use crate::upgrade::{Incoming, Outgoing, Place};

/// Records that may wait for the disk.
const QUEUE: usize = 1024;
/// Time for everything to be written when the host ends, or hands over.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a host keeps its audit file.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    pub file: PathBuf,
    /// The file with the head of the chain.
    pub anchor: Option<PathBuf>,
    /// The secret of a keyed chain.
    pub key: Option<Key>,
    /// Size at which the file is rotated.
    pub most_bytes: u64,
}

/// An audit file that cannot be used.
#[derive(Debug, Error)]
pub enum AuditError {
    #[error("cannot write the audit file {path}")]
    Io { path: String, source: io::Error },
    #[error("another host writes the audit file {path}; give each host its own")]
    Locked { path: String },
    #[error("the audit file {path} cannot be continued: {why}")]
    Broken { path: String, why: String },
}

/// The audit file of this host, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditLog(Option<Arc<Open>>);

#[derive(Debug)]
struct Open {
    records: SyncSender<Message>,
    /// Records that did not fit into the queue, or could not be written.
    lost: Arc<AtomicU64>,
    digest_key: Key,
    digest_secret: String,
}

/// Messages to the writing thread.
#[derive(Debug)]
enum Message {
    Record {
        record: Box<AuditRecord>,
        /// Takes the result once the record is on the disk.
        done: Option<Done>,
    },
    /// Write everything; then say that it is done, with the files that are open.
    Flush(SyncSender<Files>),
    /// Write everything and end.
    Close(SyncSender<()>),
}

/// Where the result of a record goes: the ticket of the core.
#[derive(Debug)]
struct Done {
    ticket: u64,
    events: mpsc::Sender<crate::engine::Event>,
}

/// The open files of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    file: Arc<File>,
    anchor: Option<Arc<File>>,
    lock: Arc<File>,
}

/// An audit file on its way into another program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedAudit {
    file: Place,
    anchor: Option<Place>,
    lock: Place,
    digest_secret: String,
}

impl AuditLog {
    /// No audit file.
    pub(crate) const fn off() -> Self {
        Self(None)
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Opens the file of a host that starts, and records that.
    pub(crate) fn open(config: AuditConfig, host: &str, log: &Log) -> Result<Self, AuditError> {
        let mut file = AuditFile::open(config)?;
        let opened = AuditRecord {
            detail: Some(format!("host {host} pid {}", std::process::id())),
            ..AuditRecord::new(match file.is_new() {
                true => AuditEvent::Opened,
                false => AuditEvent::Continued,
            })
        };
        file.append_durably(opened)?;
        let secret = Hex(&entropy::random_id()).to_string();
        Ok(Self::start(file, secret, log))
    }

    /// Continues the file of the program that ran before.
    pub(crate) fn resume(
        config: AuditConfig,
        saved: SavedAudit,
        descriptors: &mut Incoming,
        log: &Log,
    ) -> io::Result<Self> {
        let files = Files {
            file: Arc::new(File::from(descriptors.take(saved.file)?)),
            anchor: match saved.anchor {
                Some(place) => Some(Arc::new(File::from(descriptors.take(place)?))),
                None => None,
            },
            lock: Arc::new(File::from(descriptors.take(saved.lock)?)),
        };
        let file = AuditFile::resume(config, files).map_err(io::Error::other)?;
        Ok(Self::start(file, saved.digest_secret, log))
    }

    fn start(file: AuditFile, digest_secret: String, log: &Log) -> Self {
        let (records, incoming): (SyncSender<Message>, Receiver<Message>) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let digest_key = match file.key() {
            // With a key digests can be compared by those who have it, also across hosts.
            Some(key) => {
                let derived = key.sign(&[b"mainstay audit arguments"]);
                Key::new(Hex(&derived).to_string().as_bytes())
            }
            None => Key::new(digest_secret.as_bytes()),
        };
        let (counted, log) = (Arc::clone(&lost), log.clone());
        let writer = thread::Writer::new(file, counted, log);
        // Without a thread nothing is written, and the first record says so.
        let _ = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&incoming));
        match digest_key {
            Ok(digest_key) => Self(Some(Arc::new(Open {
                records,
                lost,
                digest_key,
                digest_secret,
            }))),
            Err(_) => Self(None),
        }
    }

    /// Appends a record. One that does not fit into the queue is counted.
    pub(crate) fn record(&self, record: AuditRecord) {
        if let Some(open) = &self.0 {
            let record = Box::new(open.keyed(record));
            let done = None;
            if open
                .records
                .try_send(Message::Record { record, done })
                .is_err()
            {
                open.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Appends a record; the loop gets an event once it is on the disk. The error says why it never will be.
    pub(crate) fn record_first(
        &self,
        record: AuditRecord,
        ticket: u64,
        events: mpsc::Sender<crate::engine::Event>,
    ) -> Result<(), String> {
        let Some(open) = &self.0 else {
            return Err("there is no audit file".to_owned());
        };
        let record = Box::new(open.keyed(record));
        let done = Some(Done { ticket, events });
        let sent = open.records.try_send(Message::Record { record, done });
        sent.map_err(|error| match error {
            TrySendError::Full(_) => format!("{QUEUE} records wait for the disk"),
            TrySendError::Disconnected(_) => "its thread has ended".to_owned(),
        })
    }

    /// Writes everything, and gives the files for another program. `None` if that takes too long.
    pub(crate) fn flush(&self) -> Option<Files> {
        let open = self.0.as_ref()?;
        let (done, written) = sync_channel(1);
        open.records.try_send(Message::Flush(done)).ok()?;
        written.recv_timeout(PATIENCE).ok()
    }

    /// Records the end of the host, and writes everything.
    pub(crate) fn finish(&self) {
        let Some(open) = &self.0 else {
            return;
        };
        self.record(AuditRecord::new(AuditEvent::Closed));
        let (done, written) = sync_channel(1);
        if open.records.try_send(Message::Close(done)).is_ok() {
            let _ = written.recv_timeout(PATIENCE);
        }
    }

    /// The file, for another program, with the descriptors of [`Self::flush`].
    pub(crate) fn save<'a>(
        &self,
        files: &'a Files,
        descriptors: &mut Outgoing<'a>,
    ) -> Option<SavedAudit> {
        let open = self.0.as_ref()?;
        let anchor = files.anchor.as_ref();
        Some(SavedAudit {
            file: descriptors.add(files.file.as_fd()),
            anchor: anchor.map(|anchor| descriptors.add(anchor.as_fd())),
            lock: descriptors.add(files.lock.as_fd()),
            digest_secret: open.digest_secret.clone(),
        })
    }
}

impl Open {
    /// The digests of arguments under a key: without it few arguments could be found out by trying them all.
    fn keyed(&self, mut record: AuditRecord) -> AuditRecord {
        if let Some(digest) = &mut record.arguments {
            let signed = self.digest_key.sign(&[digest.as_bytes()]);
            *digest = Hex(&signed).to_string();
        }
        record
    }
}
