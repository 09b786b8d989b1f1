//! Subprocesses of tools: the one place that starts, stops and reaps them.
//!
//! [`Subprocess`] says what to run; [`Subprocess::run`] runs it to its end within the call:
//! output is captured up to a bound, a cancel or a timeout stops the whole process group (TERM,
//! grace, KILL), and the child is always reaped. [`Trees`] knows every group that lives, so that
//! none outlives a worker whose host has gone.
//!
//! Deliberately absent: streaming, pseudo-terminals, and processes that outlive their call. A
//! descendant that moves itself into another process group is out of reach here; the host's own
//! tree kill gets it with the worker.

mod command;
mod pipes;
mod supervise;
#[cfg(test)]
mod tests;
mod tree;

pub use self::command::{Captured, Output, Subprocess};
pub(crate) use self::tree::Trees;
