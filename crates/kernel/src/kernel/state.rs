//! The kernel's state as bytes, so that a new binary can take over a running host.

use serde::{Deserialize, Serialize};

use super::Kernel;

/// Version of the serialised state. From the first release on, a change of any type inside
/// [`Kernel`] raises it.
pub const STATE_VERSION: u32 = 1;

/// Why a state cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// Written by a host of another version.
    Version { found: u32 },
    /// Not a state at all.
    Unreadable(String),
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version { found } => {
                write!(f, "state version {found} is not {STATE_VERSION}")
            }
            Self::Unreadable(reason) => write!(f, "the state cannot be read: {reason}"),
        }
    }
}

impl std::error::Error for StateError {}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    kernel: &'a Kernel,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

#[derive(Deserialize)]
struct Read {
    kernel: Kernel,
}

impl Kernel {
    /// The whole state, actions that were not polled yet included.
    pub fn save(&self) -> Result<String, StateError> {
        serde_json::to_string(&Written {
            version: STATE_VERSION,
            kernel: self,
        })
        .map_err(|error| StateError::Unreadable(error.to_string()))
    }

    /// The kernel that [`Kernel::save`] wrote.
    pub fn restore(state: &str) -> Result<Self, StateError> {
        let unreadable = |error: serde_json::Error| StateError::Unreadable(error.to_string());
        let VersionOnly { version } = serde_json::from_str(state).map_err(unreadable)?;
        if version != STATE_VERSION {
            return Err(StateError::Version { found: version });
        }
        serde_json::from_str::<Read>(state)
            .map(|read| read.kernel)
            .map_err(unreadable)
    }
}
