//! The one place where the host looks at a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mainstay_contract::wall;
use mainstay_kernel::time::Time;
use serde::{Deserialize, Serialize};
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

    /// The time, and that of a clock which goes on while this process executes another program.
    pub(crate) fn save(&mut self) -> SavedClock {
        SavedClock {
            elapsed_us: self.tick().as_micros(),
            monotonic_ns: monotonic_ns(),
        }
    }

    /// Continues the clock of another program.
    pub(crate) fn restore(saved: &SavedClock) -> Self {
        let since = Duration::from_nanos(monotonic_ns().saturating_sub(saved.monotonic_ns));
        let elapsed = Duration::from_micros(saved.elapsed_us) + since;
        let now = Instant::now();
        let mut clock = Self {
            start: now.checked_sub(elapsed).unwrap_or(now),
            now: Time::default(),
        };
        clock.tick();
        clock
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
        let offset = Duration::from_micros(at.as_micros());
        self.start.checked_add(offset).unwrap_or_else(|| {
            // Centuries away: any far instant will do.
            self.start + Duration::from_secs(86_400 * 365)
        })
    }
}

/// A [`Clock`], as it is saved.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SavedClock {
    elapsed_us: u64,
    monotonic_ns: u64,
}

fn monotonic_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::sim::wall() {
        let since = simulated.duration_since(UNIX_EPOCH).unwrap_or_default();
        return u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
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
