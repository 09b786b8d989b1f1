//! The one place where the host looks at a clock.

use std::time::{SystemTime, UNIX_EPOCH};

use mainstay_contract::wall;
use mainstay_kernel::time::Time;
use tokio::time::Instant;

/// Time since the host's start, read once for each event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    now: Time,
}

impl Clock {
    /// Starts at zero.
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            now: Time::default(),
        }
    }

    /// Reads the time, for what happens beside the engine's events.
    pub(crate) fn read(&self) -> Time {
        let micros = self.start.elapsed().as_micros();
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Reads the time and keeps it for the event at hand.
    pub(crate) fn tick(&mut self) -> Time {
        self.now = self.read();
        self.now
    }

    /// The time at the last tick, as the kernel counts.
    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    /// The kernel's instant as the runtime counts.
    pub(crate) fn instant(&self, at: Time) -> Instant {
        let offset = std::time::Duration::from_micros(at.as_micros());
        self.start.checked_add(offset).unwrap_or_else(|| {
            // Centuries away: any far instant will do.
            self.start + std::time::Duration::from_secs(86_400 * 365)
        })
    }
}

/// Now, as the world counts.
pub(crate) fn wall() -> SystemTime {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::sim::wall() {
        return simulated;
    }
    SystemTime::now()
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Now in ISO-8601 UTC with milliseconds.
pub fn iso_now() -> String {
    wall::iso(wall_ms())
}
