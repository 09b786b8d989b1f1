//! Why the ledger could not carry out an order.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// Why an order was not carried out. Nothing of it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LedgerError {
    #[error("the disk of the task ledger {path} is full", path = .0.display())]
    DiskFull(PathBuf),
    #[error("the task ledger {path} has reached its limit of {bytes} bytes", path = .path.display())]
    TooLarge { path: PathBuf, bytes: u64 },
    #[error("the task ledger {path} cannot be written: it is read-only", path = .0.display())]
    ReadOnly(PathBuf),
    #[error("the task ledger {path} is locked by another process", path = .0.display())]
    Busy(PathBuf),
    #[error("the file {path} is not a task ledger, or is damaged: {detail}", path = .path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error("the task ledger {path} was written by a newer mainstay (version {version})", path = .path.display())]
    Newer { path: PathBuf, version: i64 },
    #[error("the task ledger {path} is not private: {detail}", path = .path.display())]
    NotPrivate { path: PathBuf, detail: String },
    #[error("cannot use the task ledger {path}: {detail}", path = .path.display())]
    Io { path: PathBuf, detail: String },
}

impl LedgerError {
    /// The user's next step.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::DiskFull(_) => "free some space on that disk, then try again",
            Self::TooLarge { .. } => {
                "remove finished tasks with `mainstay tasks prune`, or raise limits.ledger_bytes"
            }
            Self::ReadOnly(_) | Self::Io { .. } => {
                "make the directory writable, or name another with MAINSTAY_STATE_DIR"
            }
            Self::NotPrivate { .. } => {
                "let the file and its directory belong to this user alone (chown, chmod go-w), or name another \
                 with MAINSTAY_STATE_DIR"
            }
            Self::Busy(_) => "try again; another host keeps the file locked",
            Self::Damaged { .. } => "move the file away; a new one is made when a task needs it",
            Self::Newer { .. } => "start the newer mainstay, or name another MAINSTAY_STATE_DIR",
        }
    }

    /// True if the same order can succeed later without a change by the user.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::DiskFull(_) | Self::Busy(_) | Self::TooLarge { .. }
        )
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::DiskFull(path)
            }
            std::io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path),
            _ => Self::Io {
                path,
                detail: error.to_string(),
            },
        }
    }

    pub(crate) fn of(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_owned();
        let detail = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull(path),
            Some(ErrorCode::ReadOnly) => Self::ReadOnly(path),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(path),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path, detail }
            }
            _ => Self::Io { path, detail },
        }
    }
}
