//! The one place where the host looks at a clock.

use std::time::{Instant, SystemTime};

use mainstay_kernel::time::Time;
use time::OffsetDateTime;

/// Time since the host's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts at zero.
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Now, as the kernel counts.
    pub(crate) fn now(&self) -> Time {
        let micros = self.start.elapsed().as_micros();
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
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
    SystemTime::now()
}

/// Now in ISO-8601 UTC with milliseconds.
pub fn iso_now() -> String {
    iso(wall())
}

fn iso(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second, millis) = at.to_hms_milli();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn dates_are_right_across_leap_years() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800_007, "2024-02-29T00:00:00.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }
}
