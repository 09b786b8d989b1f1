//! The effect-ledger oracle: what clients were told, against what really happened.
//!
//! A [`History`] holds, in order of time, what every client asked, what it heard and what it
//! cancelled. [`check`] compares it with the list of effects that an independent witness kept, most
//! often a file to which the tools under test append a line per effect, and gives every
//! [`Breach`] of the promises:
//!
//! * each call has one answer; a silently cancelled one has at most one; nobody else is answered;
//! * no progress after the answer;
//! * an effect belongs to a call, and a successful answer speaks of its own call's effect;
//! * a refusal before dispatch leaves no effect;
//! * never replay: success is one effect, anything else at most one;
//! * probe required: the same, whatever the number of attempts;
//! * convergent: success is at least one effect, and no effect of an answered call comes after
//!   an effect of a later call on the same subject;
//! * while attempts last, a convergent or probed call is not lost.
//!
//! The check is pure. [`Recorder`] is a client that keeps its history while it talks to a real
//! host; [`read_effects`] reads the file of the example ledger. Authors of other packs describe
//! the effects of their own tools with [`Effect`] and read their own witness.
//!
//! Deliberately absent: trust. Nothing here is taken from the host but the bytes it sent.

mod answer;
mod check;
mod history;
mod ledger;
mod recorder;

pub use answer::{Answer, Failure};
pub use check::{Attempts, Breach, Summary, check, verify};
pub use history::{Asked, CancelKind, Effect, Entry, Event, History};
pub use ledger::{Ledger, parse_effects, read_effects};
pub use recorder::{Dialect, Recorder, Speaks};
