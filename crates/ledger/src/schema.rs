//! The tables of the file, and the way from a file of any age to a connection.

use std::fs::{DirBuilder, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::Access;

use crate::error::LedgerError;
use crate::sqlite::{Flush, Settings};

/// How long a statement waits for another process that writes.
const BUSY: Duration = Duration::from_secs(10);
/// Pause between two attempts to switch a file to a log.
const RETRY: Duration = Duration::from_millis(5);
/// The version of the tables.
const VERSION: i64 = 2;
/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Pages in the log at which SQLite copies them into the file; fewer for a small ledger.
const CHECKPOINT: u64 = 1000;
/// Marks the file as ours: "main" in ASCII.
const APPLICATION: i64 = 0x6d61_696e;

const TABLES: &str = "
CREATE TABLE task (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    backend TEXT NOT NULL,
    tool TEXT NOT NULL,
    work TEXT NOT NULL,
    replay TEXT NOT NULL,
    origin TEXT NOT NULL,
    limit_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    holder TEXT NOT NULL,
    holders INTEGER NOT NULL,
    key TEXT,
    arguments TEXT,
    status TEXT NOT NULL,
    ended_ms INTEGER,
    outcome TEXT,
    keep_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX task_by_key ON task (owner, tool, key, backend) WHERE key IS NOT NULL;
CREATE INDEX unfinished_task ON task (backend) WHERE ended_ms IS NULL;
CREATE INDEX task_by_owner ON task (owner, created_ms, id);
CREATE INDEX task_by_end ON task (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX task_by_expiry ON task (ended_ms + keep_ms) WHERE ended_ms IS NOT NULL;
";

/// Carries a file of version 1: its keys did not belong to a backend, and its tasks had no retention of their own.
const FROM_1: &str = "
ALTER TABLE task ADD COLUMN keep_ms INTEGER NOT NULL DEFAULT 604800000;
DROP INDEX IF EXISTS task_by_key;
CREATE UNIQUE INDEX task_by_key ON task (owner, tool, key, backend) WHERE key IS NOT NULL;
CREATE INDEX task_by_expiry ON task (ended_ms + keep_ms) WHERE ended_ms IS NOT NULL;
";

/// The device and the inode of a file.
pub(crate) type Identity = (u64, u64);

/// True if the path still names this file.
pub(crate) fn is_at(path: &Path, identity: Identity) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|facts| (facts.dev(), facts.ino()) == identity)
}

/// Opens the file, and makes it if it is missing. The caller's user alone can read it.
pub(crate) fn open(
    path: &Path,
    settings: &Settings,
) -> Result<(Connection, Identity), LedgerError> {
    let (real, identity) = private_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = prepare(&real, flags, settings);
    let db = db.map_err(|error| match error {
        Failure::Sqlite(error) => LedgerError::of(path, &error),
        Failure::Newer(version) => LedgerError::Newer {
            path: path.to_owned(),
            version,
        },
        Failure::Foreign => LedgerError::Damaged {
            path: path.to_owned(),
            detail: "it is a database of another program".to_owned(),
        },
    })?;
    Ok((db, identity))
}

/// Makes the file if it is missing and closes it to other users. Gives its path without links: links on the way
/// to the directory are the user's own, a link in place of the file is rejected.
fn private_file(path: &Path) -> Result<(PathBuf, Identity), LedgerError> {
    let io = |error: io::Error| LedgerError::io(path, &error);
    let not_private = |place: &Path, detail: &str| LedgerError::NotPrivate {
        path: path.to_owned(),
        detail: format!("{} {detail}", place.display()),
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(directory);
    made.map_err(io)?;
    let directory = directory.canonicalize().map_err(io)?;
    let is_ours = |facts: &Metadata| facts.uid() == rustix::process::geteuid().as_raw();
    let facts = directory.metadata().map_err(io)?;
    if !is_ours(&facts) || facts.mode() & 0o022 != 0 {
        return Err(not_private(
            &directory,
            "belongs to another user, or other users may write to it",
        ));
    }
    let real = directory.join(path.file_name().unwrap_or_default());
    // Creates and never opens: closing a descriptor would free the locks of this process on the file.
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&real);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(io(error));
    }
    let facts = real.symlink_metadata().map_err(io)?;
    if !facts.is_file() || !is_ours(&facts) {
        return Err(not_private(
            &real,
            "is not a regular file of this user (a link, for example)",
        ));
    }
    rustix::fs::access(&real, Access::WRITE_OK).map_err(|error| io(error.into()))?;
    // SQLite gives its other files the mode of the first when it makes them.
    for suffix in ["", "-wal", "-shm"] {
        let mut file = real.clone().into_os_string();
        file.push(suffix);
        let file = PathBuf::from(file);
        let is_open = file
            .symlink_metadata()
            .is_ok_and(|facts| facts.is_file() && facts.mode() & 0o077 != 0);
        if is_open {
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).map_err(io)?;
        }
    }
    Ok((real, (facts.dev(), facts.ino())))
}

enum Failure {
    Sqlite(rusqlite::Error),
    Newer(i64),
    Foreign,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Switches the file to a write-ahead log. Two processes that do so at once upgrade their locks against each other; SQLite then
/// reports one of them as busy at once, without the wait that [`BUSY`] allows.
fn use_log(db: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + BUSY;
    loop {
        match db.pragma_update(None, "journal_mode", "wal") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                thread::sleep(RETRY);
            }
            done => return done,
        }
    }
}

fn prepare(path: &Path, flags: OpenFlags, settings: &Settings) -> Result<Connection, Failure> {
    let mut db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "page_size", PAGE)?;
    use_log(&db)?;
    let flush = match settings.flush {
        Flush::Every => "full",
        Flush::Checkpoints => "normal",
    };
    db.pragma_update(None, "synchronous", flush)?;
    let checkpoint = (settings.bytes / PAGE / 4).clamp(1, CHECKPOINT);
    db.pragma_update(None, "wal_autocheckpoint", checkpoint)?;
    db.pragma_update(None, "journal_size_limit", checkpoint * PAGE)?;
    let made = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let number = |name: &str| made.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (version, application) = (number("user_version")?, number("application_id")?);
    let tables: i64 = made.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (version, application) {
        (VERSION, APPLICATION) => {}
        (0, 0) if tables == 0 => {
            made.execute_batch(TABLES)?;
            made.pragma_update(None, "user_version", VERSION)?;
            made.pragma_update(None, "application_id", APPLICATION)?;
        }
        (1, APPLICATION) => {
            made.execute_batch(FROM_1)?;
            made.pragma_update(None, "user_version", VERSION)?;
        }
        (newer, APPLICATION) => return Err(Failure::Newer(newer)),
        _ => return Err(Failure::Foreign),
    }
    made.commit()?;
    Ok(db)
}
