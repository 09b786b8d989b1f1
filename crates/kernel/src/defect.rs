//! Deliberate defects, which prove that the simulation can find real ones.
//!
//! Each is a switch in the code that it breaks, in this crate or in `host`. With the feature
//! `simulation` one of them can be planted in the running thread; without it
//! [`is_planted`] is constantly false, and the compiler removes the switch.

#[cfg(feature = "simulation")]
use std::cell::Cell;

macro_rules! defects {
    ($($(#[doc = $doc:literal])+ $defect:ident = $name:literal;)*) => {
        /// One deliberate defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Defect { $($(#[doc = $doc])+ $defect,)* }

        impl Defect {
            /// The whole catalogue.
            pub const ALL: &'static [Self] = &[$(Self::$defect,)*];

            /// The name on command lines and in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$defect => $name,)* }
            }
        }
    };
}

defects! {
    /// A client that fell behind during a write is never reported as caught up.
    LostWakeUp = "lost-wake-up";
    /// A gate opens without waking its reader.
    SilentGate = "silent-gate";
    /// The gate of a slow client is never closed.
    GateNeverCloses = "gate-never-closes";
    /// A partial write counts as a whole one.
    ShortWrite = "short-write";
    /// Calls that reached a lost worker are reported as unsent.
    SentAsUnsent = "sent-as-unsent";
    /// Calls that never reached a lost worker are reported as sent.
    UnsentAsSent = "unsent-as-sent";
    /// The last line of a client is dropped when it has no newline.
    LastLineLost = "last-line-lost";
    /// Answers that a worker wrote just before its end are dropped.
    LastAnswerLost = "last-answer-lost";
    /// A worker counts as reaped as soon as its first process ends.
    ReapedEarly = "reaped-early";
    /// The ladder stops after TERM.
    NeverKilled = "never-killed";
    /// A `never_replay` call is sent again.
    NeverReplayReplayed = "never-replay-replayed";
    /// A `probe_required` call is sent again without its probe.
    ProbeSkipped = "probe-skipped";
    /// A call is sent again before its lost worker is reaped.
    HoldIgnored = "hold-ignored";
    /// A call that waits for its lost worker to be reaped is never released.
    HoldNeverReleased = "hold-never-released";
    /// Every replay is refused, also while attempts are left.
    ReplayRefused = "replay-refused";
    /// Progress moves a deadline but sets no timer.
    DeadlineLost = "deadline-lost";
    /// A pong does not count as a sign of life.
    PongIgnored = "pong-ignored";
    /// The queue of a worker takes any number of calls.
    QueueUnbounded = "queue-unbounded";
    /// A cancelled request is answered twice.
    CancelTwice = "cancel-twice";
    /// A call that a worker ran more than once is answered twice.
    AnswerTwice = "answer-twice";
    /// An update of a resource of a shared server goes to every session.
    UpdateToAll = "update-to-all";
    /// An answer goes to the oldest session.
    WrongSession = "wrong-session";
    /// The last progress of a call is sent after its answer.
    LateProgress = "late-progress";
    /// A successor of a wrapped server does not get the client's handshake.
    SessionNotRestored = "session-not-restored";
    /// A successor of a wrapped server does not get the client's log level.
    LevelNotRestored = "level-not-restored";
    /// Calls that wait for the tools of a wrapped server to be known are never released.
    HeldForever = "held-forever";
    /// The verdict about a call's arguments or answer is dropped.
    VerdictLost = "verdict-lost";
    /// An operator who waits for a rollout gets no reply.
    RolloutUnreported = "rollout-unreported";
    /// A client that disconnects keeps its session.
    SessionLeak = "session-leak";
    /// A message for an HTTP stream does not wake its reader.
    StreamAsleep = "stream-asleep";
    /// A broken HTTP stream is resumed one message too late.
    ResumeSkips = "resume-skips";
    /// Room in an HTTP session does not wake the task that waits for it.
    RoomUnreported = "room-unreported";
    /// An answer goes to the latest HTTP stream of its session.
    WrongStream = "wrong-stream";
    /// The outcome of a task is not recorded.
    TaskOutcomeLost = "task-outcome-lost";
    /// A caller gets the outcome of a task before it is recorded.
    OutcomeToldEarly = "outcome-told-early";
    /// A task runs although the ledger could not record it.
    UnrecordedTaskRuns = "unrecorded-task-runs";
    /// A `never_replay` task of a lost host runs again.
    NeverReplayResumed = "never-replay-resumed";
    /// A `probe_required` task of a lost host runs again without its probe.
    ResumedWithoutProbe = "resumed-without-probe";
    /// A host takes a task of a lost host over and does nothing with it.
    ClaimedTaskDropped = "claimed-task-dropped";
    /// An upgrade drops output that was not written.
    UnwrittenLost = "unwritten-lost";
    /// An upgrade drops the rest of a line that was written in part.
    RestLost = "rest-lost";
    /// An upgrade drops the beginning of a line that was read in part.
    HalfLineLost = "half-line-lost";
    /// An upgrade drops the streams of HTTP sessions.
    StreamsLost = "streams-lost";
}

#[cfg(feature = "simulation")]
thread_local! {
    static PLANTED: Cell<Option<Defect>> = const { Cell::new(None) };
}

/// Plants a defect in this thread, or removes the one that is there.
#[cfg(feature = "simulation")]
pub fn plant(defect: Option<Defect>) {
    PLANTED.set(defect);
}

/// True if the code must behave as if it had this defect.
#[cfg(feature = "simulation")]
pub fn is_planted(defect: Defect) -> bool {
    PLANTED.get() == Some(defect)
}

/// True if the code must behave as if it had this defect: never.
#[cfg(not(feature = "simulation"))]
pub const fn is_planted(_: Defect) -> bool {
    false
}
