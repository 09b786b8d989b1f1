//! The way down: what is sent to a tree that must end, and when.

use std::time::Duration;

use mainstay_kernel::defect::{Defect, is_planted};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Order;

/// How long a killed tree may take to disappear before that is reported.
const STUCK: Duration = Duration::from_secs(3);

/// TERM, grace, KILL, and a report when even that did not help.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    grace: Duration,
    rung: Rung,
    until: Instant,
}

/// A [`Ladder`], as it is saved: times count from now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SavedLadder {
    grace: Duration,
    rung: Rung,
    left: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rung {
    Leave,
    Terminate,
    Kill,
}

/// The next step when the time of a rung is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Climb {
    Send(Order),
    /// It was killed and is still there.
    Stuck,
}

impl Ladder {
    pub(crate) fn save(&self, now: Instant) -> SavedLadder {
        SavedLadder {
            grace: self.grace,
            rung: self.rung,
            left: self.until.saturating_duration_since(now),
        }
    }

    pub(crate) fn restore(saved: SavedLadder, now: Instant) -> Self {
        Self {
            grace: saved.grace,
            rung: saved.rung,
            until: now + saved.left,
        }
    }

    /// First let the worker leave by itself.
    pub(crate) fn dismiss(now: Instant, grace: Duration) -> Self {
        Self {
            grace,
            rung: Rung::Leave,
            until: now + grace,
        }
    }

    /// First send TERM, at once.
    pub(crate) fn terminate(now: Instant, grace: Duration) -> Self {
        Self {
            grace,
            rung: Rung::Leave,
            until: now,
        }
    }

    /// Send KILL, at once.
    pub(crate) fn kill(now: Instant) -> Self {
        Self {
            grace: Duration::ZERO,
            rung: Rung::Terminate,
            until: now,
        }
    }

    /// No time to leave by itself: what has not been sent TERM is sent it now.
    pub(crate) fn hurry(&mut self, now: Instant) {
        if self.rung == Rung::Leave {
            self.until = now;
        }
    }

    /// When to call [`Ladder::climb`].
    pub(crate) const fn until(&self) -> Instant {
        self.until
    }

    /// The time of this rung is over.
    pub(crate) fn climb(&mut self, now: Instant) -> Climb {
        let (rung, wait, climb) = match self.rung {
            Rung::Leave => (Rung::Terminate, self.grace, Climb::Send(Order::Terminate)),
            Rung::Terminate if is_planted(Defect::NeverKilled) => {
                (Rung::Kill, STUCK, Climb::Send(Order::Terminate))
            }
            Rung::Terminate => (Rung::Kill, STUCK, Climb::Send(Order::Kill)),
            Rung::Kill => (Rung::Kill, STUCK, Climb::Stuck),
        };
        self.rung = rung;
        self.until = now + wait;
        climb
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_millis(20);

    #[test]
    fn a_tree_is_asked_before_it_is_killed() {
        let now = Instant::now();
        let mut ladder = Ladder::terminate(now, GRACE);
        assert_eq!(ladder.until(), now);
        assert_eq!(ladder.climb(now), Climb::Send(Order::Terminate));
        assert_eq!(ladder.until(), now + GRACE);
        assert_eq!(ladder.climb(now + GRACE), Climb::Send(Order::Kill));
        assert_eq!(ladder.climb(now + GRACE + STUCK), Climb::Stuck);
    }

    #[test]
    fn a_dismissed_worker_has_a_grace_to_leave() {
        let now = Instant::now();
        let mut ladder = Ladder::dismiss(now, GRACE);
        assert_eq!(ladder.until(), now + GRACE);
        assert_eq!(ladder.climb(now + GRACE), Climb::Send(Order::Terminate));
    }

    #[test]
    fn what_a_dismissed_worker_leaves_behind_is_terminated_at_once_and_has_its_grace() {
        let now = Instant::now();
        let mut ladder = Ladder::dismiss(now, GRACE);
        ladder.hurry(now);
        assert_eq!(ladder.until(), now);
        assert_eq!(ladder.climb(now), Climb::Send(Order::Terminate));
        ladder.hurry(now);
        assert_eq!(ladder.until(), now + GRACE);
    }

    #[test]
    fn what_outlives_an_unexpected_end_is_killed_without_grace() {
        let now = Instant::now();
        let mut ladder = Ladder::kill(now);
        assert_eq!(ladder.until(), now);
        assert_eq!(ladder.climb(now), Climb::Send(Order::Kill));
        assert_eq!(ladder.climb(now + STUCK), Climb::Stuck);
    }
}
