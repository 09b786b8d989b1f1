//! The simulated checker: the real verdict of a schema, which may come late or not at all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_schema::Fingerprint;
use mainstay_schema::check::{Compiled, Definition, GaveUp, Subject, Verdict};
use tokio::time::Instant;

/// The longest that a verdict takes, in milliseconds.
const LATEST_MS: u64 = 2500;

/// How the checkers of a world misbehave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckNoise {
    /// One in so many verdicts is late; 0 is none.
    pub late_one_in: u32,
    /// One in so many checks is given up; 0 is none.
    pub gives_up_one_in: u32,
}

/// A verdict, now or later.
pub(crate) enum Check {
    Now(Verdict),
    Later(Duration, Verdict),
}

thread_local! {
    /// Compiled schemas outlive a run: they are the same in each.
    static COMPILED: RefCell<BTreeMap<Fingerprint, Result<Compiled, String>>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Checks a value; `None` outside a world.
pub(crate) fn check(definition: &Definition, subject: &Subject, until: Instant) -> Option<Check> {
    let noise = super::check_noise()?;
    let draw = |one_in: u32| {
        one_in > 0 && super::entropy().is_some_and(|number| number % u64::from(one_in) == 0)
    };
    let verdict = if draw(noise.gives_up_one_in) {
        let reason = GaveUp::Crashed;
        Verdict::GaveUp { reason }
    } else {
        run(definition, subject)
    };
    if !draw(noise.late_one_in) {
        return Some(Check::Now(verdict));
    }
    let late = Duration::from_millis(1 + super::entropy()? % LATEST_MS);
    let left = until.saturating_duration_since(Instant::now());
    // As the real checkers: at the deadline the check is stopped.
    Some(if late < left {
        Check::Later(late, verdict)
    } else {
        let reason = GaveUp::Deadline;
        Check::Later(left, Verdict::GaveUp { reason })
    })
}

fn run(definition: &Definition, subject: &Subject) -> Verdict {
    COMPILED.with_borrow_mut(|compiled| {
        let compiled = compiled
            .entry(definition.digest())
            .or_insert_with(|| Compiled::compile(definition));
        match compiled {
            Ok(compiled) => compiled.run(subject),
            Err(reason) => Verdict::Unchecked {
                reason: reason.clone(),
            },
        }
    })
}
