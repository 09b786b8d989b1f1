//! A limit for log lines that a peer can cause as often as it likes.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Lines of one kind within a period.
const LINES: u32 = 10;
/// The period, in milliseconds.
const PERIOD_MS: u64 = 10_000;

/// Admits a few lines of one kind per period and counts the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimit {
    until: Time,
    admitted: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Decides about a line. `Some` admits it, with the number of lines that were suppressed since the
    /// last one.
    pub fn admit(&mut self, now: Time) -> Option<u64> {
        if now >= self.until {
            self.until = now.plus_ms(PERIOD_MS);
            self.admitted = 0;
        }
        if self.admitted >= LINES {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.admitted += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// The end of a log line that tells how many lines like it were suppressed.
pub fn suppressed(count: u64) -> String {
    match count {
        0 => String::new(),
        count => format!(" suppressed={count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_pass_in_a_period_and_the_next_one_tells_of_the_others() {
        let mut limit = LogLimit::default();
        let admitted = |limit: &mut LogLimit, ms| limit.admit(Time::from_ms(ms));
        let passed = (0..500).filter_map(|ms| admitted(&mut limit, ms)).count();
        assert_eq!(passed, LINES as usize);
        assert_eq!(admitted(&mut limit, PERIOD_MS - 1), None);
        assert_eq!(
            admitted(&mut limit, PERIOD_MS),
            Some(500 - u64::from(LINES) + 1)
        );
        assert_eq!(admitted(&mut limit, PERIOD_MS + 1), Some(0));
    }
}
