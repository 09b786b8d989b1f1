//! Replay contracts: what may run again after a worker was lost.
//!
//! What is *known* about a call ([`Knowledge`]) is kept apart from what is *allowed*
//! ([`Replay`]). [`verdict`] is the one total function from both to what happens next. It knows
//! no clock and no worker; the kernel carries its verdicts out.

use serde::{Deserialize, Serialize};

words! {
    /// The promise of a request surface about running twice.
    pub enum Replay {
        /// Repeated execution converges on the same observable result.
        Convergent = "convergent",
        /// May run again only after a probe proved that the lost attempt had no effect.
        ProbeRequired = "probe_required",
        /// Fails rather than run again.
        NeverReplay = "never_replay",
    }
}

/// The host's knowledge about a call whose worker was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knowledge {
    /// Not one byte of it was handed to a worker.
    NotDispatched,
    /// At least its first byte was sent; an answer has not arrived.
    InFlight,
    /// The answer is here.
    Completed,
    /// A previous host cannot say.
    Unknown,
}

/// How many further attempts a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    Left,
    Spent,
}

/// The decision about a call after its worker was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Deliver the answer that is already here.
    Deliver,
    /// Send it for what is really the first time: no attempt is charged.
    Send,
    /// Send it again, at the cost of one attempt.
    Replay,
    /// Ask the successor whether the effect took place.
    Probe,
    /// Answer that the outcome is unknown.
    RefuseUnknown,
    /// Answer that the attempts are used up.
    RefuseExhausted,
}

/// Maps what is known and what is allowed to what happens.
pub const fn verdict(known: Knowledge, allowed: Replay, attempts: Attempts) -> Verdict {
    match (known, allowed, attempts) {
        (Knowledge::Completed, _, _) => Verdict::Deliver,
        (Knowledge::NotDispatched, _, _) => Verdict::Send,
        (Knowledge::InFlight | Knowledge::Unknown, Replay::NeverReplay, _) => {
            Verdict::RefuseUnknown
        }
        (Knowledge::InFlight | Knowledge::Unknown, Replay::Convergent, Attempts::Left) => {
            Verdict::Replay
        }
        (Knowledge::InFlight | Knowledge::Unknown, Replay::Convergent, Attempts::Spent) => {
            Verdict::RefuseExhausted
        }
        (Knowledge::InFlight | Knowledge::Unknown, Replay::ProbeRequired, Attempts::Left) => {
            Verdict::Probe
        }
        // Exhausted or not, the honest answer to a lost probed call is "unknown".
        (Knowledge::InFlight | Knowledge::Unknown, Replay::ProbeRequired, Attempts::Spent) => {
            Verdict::RefuseUnknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_never_replay_call_is_sent_again_only_if_it_was_never_sent() {
        for attempts in [Attempts::Left, Attempts::Spent] {
            for known in [Knowledge::InFlight, Knowledge::Unknown] {
                assert_eq!(
                    verdict(known, Replay::NeverReplay, attempts),
                    Verdict::RefuseUnknown
                );
            }
            assert_eq!(
                verdict(Knowledge::NotDispatched, Replay::NeverReplay, attempts),
                Verdict::Send
            );
        }
    }

    #[test]
    fn a_convergent_call_is_repeated_while_attempts_are_left() {
        let known = Knowledge::InFlight;
        assert_eq!(
            verdict(known, Replay::Convergent, Attempts::Left),
            Verdict::Replay
        );
        assert_eq!(
            verdict(known, Replay::Convergent, Attempts::Spent),
            Verdict::RefuseExhausted
        );
    }

    #[test]
    fn a_probed_call_is_never_repeated_without_its_probe() {
        for known in [Knowledge::InFlight, Knowledge::Unknown] {
            let left = verdict(known, Replay::ProbeRequired, Attempts::Left);
            assert_eq!(left, Verdict::Probe);
            let spent = verdict(known, Replay::ProbeRequired, Attempts::Spent);
            assert_eq!(spent, Verdict::RefuseUnknown);
        }
    }

    #[test]
    fn an_answer_that_is_here_is_delivered_whatever_the_contract() {
        for allowed in [
            Replay::Convergent,
            Replay::ProbeRequired,
            Replay::NeverReplay,
        ] {
            for attempts in [Attempts::Left, Attempts::Spent] {
                assert_eq!(
                    verdict(Knowledge::Completed, allowed, attempts),
                    Verdict::Deliver
                );
            }
        }
    }
}
