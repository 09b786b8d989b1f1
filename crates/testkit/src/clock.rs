//! A clock that stands still until a test moves it.
//!
//! The kernel takes its time from its driver; in tests the driver is the test, and
//! [`VirtualClock`] is where it keeps the time. Deliberately absent: any link to real time.

use mainstay_kernel::time::Time;

/// Hands out kernel times that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualClock {
    now: Time,
}

impl VirtualClock {
    /// A clock at the host's start.
    pub fn new() -> Self {
        Self::default()
    }

    /// The present.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Lets `ms` milliseconds pass and says what time it is then.
    pub fn advance_ms(&mut self, ms: u64) -> Time {
        self.now = self.now.plus_ms(ms);
        self.now
    }

    /// Lets `micros` microseconds pass and says what time it is then.
    pub fn advance_micros(&mut self, micros: u64) -> Time {
        self.now = Time::from_micros(self.now.as_micros().saturating_add(micros));
        self.now
    }

    /// Moves on to `instant`, unless it lies in the past: timers that fire late do not turn the
    /// clock back.
    pub fn advance_to(&mut self, instant: Time) -> Time {
        self.now = self.now.max(instant);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_when_told_and_never_backwards() {
        let mut clock = VirtualClock::new();
        assert_eq!(clock.now(), Time::from_ms(0));
        assert_eq!(clock.advance_ms(3), Time::from_ms(3));
        assert_eq!(clock.advance_to(Time::from_ms(1)), Time::from_ms(3));
        assert_eq!(clock.advance_to(Time::from_ms(9)), Time::from_ms(9));
        assert_eq!(clock.advance_micros(5), Time::from_micros(9005));
        assert_eq!(clock.now(), Time::from_micros(9005));
    }
}
