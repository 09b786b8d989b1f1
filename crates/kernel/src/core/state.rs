//! The core as bytes, so that a new binary can take over a running host.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Core;

/// Version of the serialised state. A change of any type inside [`Core`] raises it: a test compares the shape of saved
/// states with the one that belongs to the version.
pub const STATE_VERSION: u32 = 7;

/// A state that cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// A host of another version wrote it.
    #[error("state version {found} is not {STATE_VERSION}")]
    Version { found: u32 },
    /// It is not a state, or it is damaged.
    #[error("the state cannot be read: {0}")]
    Unreadable(String),
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    core: &'a Core,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

#[derive(Deserialize)]
struct Read {
    core: Core,
}

impl Core {
    /// The whole state, actions that were not polled yet included.
    pub fn save(&self) -> Result<String, StateError> {
        let version = STATE_VERSION;
        serde_json::to_string(&Written {
            version,
            core: self,
        })
        .map_err(|error| StateError::Unreadable(error.to_string()))
    }

    /// The core that [`Core::save`] wrote.
    pub fn restore(state: &str) -> Result<Self, StateError> {
        let unreadable = |error: serde_json::Error| StateError::Unreadable(error.to_string());
        let VersionOnly { version } = serde_json::from_str(state).map_err(unreadable)?;
        if version != STATE_VERSION {
            return Err(StateError::Version { found: version });
        }
        serde_json::from_str::<Read>(state)
            .map(|read| read.core)
            .map_err(unreadable)
    }

    /// Adjusts a restored core to the executable that restored it: `builds` has the build of each built-in pack.
    /// The first worker of another build may announce another catalog. Fails if a built-in pack is not in
    /// `builds`.
    pub fn adopt(&mut self, version: &str, builds: &[(String, String)]) -> Result<(), StateError> {
        version.clone_into(&mut self.identity.version);
        match self.catalog.expect_builds(builds) {
            None => Ok(()),
            Some(pack) => Err(StateError::Unreadable(format!(
                "the pack {pack} is not in the configuration any more"
            ))),
        }
    }

    /// The host keeps an audit file from now on, or does not.
    pub const fn set_audits(&mut self, audits: bool) {
        self.gates.audits = audits;
    }

    /// Asks again for every check under way: a new shell does not know of them.
    pub fn resume_checks(&mut self) {
        self.out.extend(self.checks.again());
    }
}
