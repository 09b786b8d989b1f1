//! The one place where the host looks at a clock.

use std::time::{SystemTime, UNIX_EPOCH};

use mainstay_kernel::time::Time;
use tokio::time::Instant;

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
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::sim::wall() {
        return simulated;
    }
    SystemTime::now()
}

/// Now in ISO-8601 UTC with milliseconds.
pub fn iso_now() -> String {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    iso(since.as_secs(), since.subsec_millis())
}

fn iso(seconds: u64, millis: u32) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Days since 1970-01-01 to a date of the Gregorian calendar, counting years from March so that
/// the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_across_leap_years() {
        assert_eq!(iso(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(iso(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso(1_709_164_800, 7), "2024-02-29T00:00:00.007Z");
        assert_eq!(iso(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
