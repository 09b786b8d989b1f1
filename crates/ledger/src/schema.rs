//! The tables of the file, and the way from a file of any age to a connection.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::LedgerError;
use crate::sqlite::{Flush, Settings};

/// How long a statement waits for another process that writes.
const BUSY: Duration = Duration::from_secs(10);
/// The version of the tables.
const VERSION: i64 = 1;
/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
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
    outcome TEXT
) STRICT;
CREATE UNIQUE INDEX task_by_key ON task (owner, tool, key) WHERE key IS NOT NULL;
CREATE INDEX unfinished_task ON task (backend) WHERE ended_ms IS NULL;
CREATE INDEX task_by_owner ON task (owner, created_ms, id);
CREATE INDEX task_by_end ON task (ended_ms) WHERE ended_ms IS NOT NULL;
";

/// Opens the file, and makes it if it is missing. The caller's user alone can read it.
pub(crate) fn open(path: &Path, settings: &Settings) -> Result<Connection, LedgerError> {
    let io = |error: std::io::Error| LedgerError::io(path, &error);
    if let Some(directory) = path.parent() {
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(io)?;
    }
    // SQLite gives its other files the mode of this one.
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(io)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    prepare(path, flags, settings).map_err(|error| match error {
        Failure::Sqlite(error) => LedgerError::of(path, &error),
        Failure::Newer(version) => LedgerError::Newer {
            path: path.to_owned(),
            version,
        },
        Failure::Foreign => LedgerError::Damaged {
            path: path.to_owned(),
            detail: "it is a database of another program".to_owned(),
        },
    })
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

fn prepare(path: &Path, flags: OpenFlags, settings: &Settings) -> Result<Connection, Failure> {
    let mut db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "page_size", PAGE)?;
    db.pragma_update(None, "journal_mode", "wal")?;
    let flush = match settings.flush {
        Flush::Every => "full",
        Flush::Checkpoints => "normal",
    };
    db.pragma_update(None, "synchronous", flush)?;
    db.pragma_update(None, "max_page_count", settings.bytes / PAGE)?;
    db.pragma_update(None, "journal_size_limit", settings.bytes)?;
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
        (newer, APPLICATION) => return Err(Failure::Newer(newer)),
        _ => return Err(Failure::Foreign),
    }
    made.commit()?;
    Ok(db)
}
