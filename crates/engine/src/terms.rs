//! The promise under which a call runs.

use std::time::Duration;

use crate::limits;

/// The repetitions that a call allows. It follows from the replay class of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// It may run again whenever a node is lost.
    Freely,
    /// It may run again after a probe has shown that the lost attempt had no effect. The node probes.
    Probed,
    /// It runs at most once.
    Never,
}

/// The terms of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub repeats: Repeats,
    /// The time for which the engine believes in a node that it does not hear of.
    pub lease: Duration,
    /// The time for a node to take the call.
    pub start_within: Duration,
    /// The time for the call, all attempts and all waiting included.
    pub limit: Duration,
}

impl Terms {
    /// The terms of a call for which a client waits `timeout`, and at most `limit` while it reports progress.
    pub fn of(repeats: Repeats, timeout: Duration, limit: Duration) -> Self {
        let lease = match repeats {
            Repeats::Freely | Repeats::Probed => limits::LEASE,
            Repeats::Never => limits::ONCE_LEASE,
        };
        Self {
            repeats,
            lease,
            start_within: limits::start_within(timeout),
            limit: limit.max(timeout),
        }
    }
}
