//! How a worker ends, and with which exit code.

use std::process::ExitCode;

/// Why a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The host asked for it and every call was answered.
    Drained,
    /// The input ended, or the output can no longer be written.
    HostGone,
    /// The pack could not start.
    Unable,
    /// The host sent something that is not the protocol.
    Broken,
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Drained | Ended::HostGone => Self::SUCCESS,
            Ended::Unable => Self::from(2),
            Ended::Broken => Self::from(3),
        }
    }
}
