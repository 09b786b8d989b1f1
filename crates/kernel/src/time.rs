//! Time as the kernel sees it: a number that the driver passes in.

use serde::{Deserialize, Serialize};

/// Microseconds since the host started.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The instant `micros` after the host's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The instant `ms` after the host's start.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// Microseconds since the host's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The instant `ms` later.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// The instant `micros` later.
    #[must_use]
    pub const fn plus_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to here; 0 if it is not earlier.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole milliseconds from `earlier` to here.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.micros_since(earlier) / 1000
    }
}
