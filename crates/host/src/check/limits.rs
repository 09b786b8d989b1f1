//! Every bound of the checkers.

use std::time::Duration;

/// How many checks may wait and run, and how much each may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckLimits {
    /// Checker processes at the same time. One session never occupies all of them unless there is
    /// only one.
    pub(crate) checkers: usize,
    /// Checks that wait for a checker.
    pub(crate) queue: usize,
    /// Bytes of the values that wait. They are shared with the call, which would hold them anyway.
    pub(crate) queue_bytes: usize,
    /// Bytes of memory that a checker may allocate. A tree takes about 20 times its text, and a
    /// message is at most 16 MiB by default.
    pub(crate) memory_bytes: u64,
    /// Peak resident memory after which a checker is replaced: allocators keep what they once had.
    pub(crate) recycle_bytes: u64,
    /// How long an idle checker is kept warm. Memory of an expensive check must be back in 10 s.
    pub(crate) idle: Duration,
    /// Bytes of schemas that one checker process learns before it is replaced.
    pub(crate) learned_bytes: usize,
    /// Compiled definitions that the host keeps.
    pub(crate) cached: usize,
    /// Bytes of their schemas together. A compiled schema takes up to 50 times its text.
    pub(crate) cached_bytes: usize,
    /// Bytes of schemas that one catalog may have compiled at once, about 20 ms of work.
    pub(crate) vet_bytes: usize,
}

impl CheckLimits {
    /// The defaults.
    pub(crate) const DEFAULT: Self = Self {
        checkers: 2,
        queue: 256,
        queue_bytes: 64 << 20,
        memory_bytes: 1 << 30,
        recycle_bytes: 64 << 20,
        idle: Duration::from_secs(5),
        learned_bytes: 8 << 20,
        cached: 1_024,
        cached_bytes: 2 << 20,
        vet_bytes: 256 << 10,
    };
}

/// Longest head of an answer: the violations of one value, with every byte escaped.
pub(super) const ANSWER_HEAD_BYTES: usize = 512 << 10;
/// Growth of arguments by normalisation: each alias may be shorter than the name that replaces it.
pub(super) const ARGUMENT_GROWTH: usize = 64 << 10;
/// Stack of the thread that checks: nesting of a value times nesting of a schema, in debug builds.
pub(super) const STACK_BYTES: usize = 64 << 20;
