//! The catalogue of deliberate defects, each with the number of seeds that must suffice to find it.

use mainstay_kernel::defect::{self, Defect};

use super::plan::Scenario;
use super::run::run;

/// Every defect, and the number of seeds within which it must be found: some three times what it takes today.
pub const CATALOGUE: &[(Defect, u64)] = &[
    (Defect::LostWakeUp, 200),
    (Defect::SilentGate, 200),
    (Defect::GateNeverCloses, 200),
    (Defect::ShortWrite, 10),
    (Defect::SentAsUnsent, 60),
    (Defect::UnsentAsSent, 500),
    (Defect::LastLineLost, 20),
    (Defect::LastAnswerLost, 2000),
    (Defect::ReapedEarly, 10),
    (Defect::NeverKilled, 150),
    (Defect::NeverReplayReplayed, 200),
    (Defect::ProbeSkipped, 200),
    (Defect::HoldIgnored, 1100),
    (Defect::HoldNeverReleased, 50),
    (Defect::ReplayRefused, 150),
    (Defect::DeadlineLost, 1200),
    (Defect::PongIgnored, 10),
    (Defect::QueueUnbounded, 200),
    (Defect::CancelTwice, 20),
    (Defect::AnswerTwice, 50),
    (Defect::UpdateToAll, 300),
    (Defect::WrongSession, 10),
    (Defect::LateProgress, 20),
    (Defect::SessionNotRestored, 400),
    (Defect::LevelNotRestored, 1300),
    (Defect::HeldForever, 10),
    (Defect::VerdictLost, 10),
    (Defect::RolloutUnreported, 20),
    (Defect::SessionLeak, 900),
    (Defect::StreamAsleep, 100),
    (Defect::ResumeSkips, 400),
    (Defect::RoomUnreported, 800),
    (Defect::WrongStream, 200),
    (Defect::TaskOutcomeLost, 10),
    (Defect::OutcomeToldEarly, 900),
    (Defect::UnrecordedTaskRuns, 100),
    (Defect::NeverReplayResumed, 40),
    (Defect::ResumedWithoutProbe, 100),
    (Defect::ClaimedTaskDropped, 10),
    (Defect::UnwrittenLost, 60),
    (Defect::RestLost, 60),
    (Defect::HalfLineLost, 90),
    (Defect::StreamsLost, 130),
];

/// A defect that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Seeds that were run, the last one included.
    pub seeds: u64,
    pub seed: u64,
    pub rule: &'static str,
    pub detail: String,
}

/// Looks for a defect, from `first` on, in at most `most` seeds.
pub fn find(defect: Defect, first: u64, most: u64) -> Option<Found> {
    defect::plant(Some(defect));
    let found = (0..most).find_map(|index| {
        let seed = first.wrapping_add(index);
        let report = run(&Scenario::of(seed), false);
        let broken = report.violations.into_iter().next()?;
        Some(Found {
            seeds: index + 1,
            seed,
            rule: broken.rule,
            detail: broken.detail,
        })
    });
    defect::plant(None);
    found
}
