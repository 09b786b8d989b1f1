//! The lock: the definitions of a server at the last review, and the changes since.
//!
//! A [`Lock`] holds the whole definition of each tool with its SHA-256. [`compare`] names every
//! difference between two of them as a [`Change`]; the table of [`Kind`]s, in one place, says what
//! each demands: a higher `schemaVersion`, a recorded [`Reason`], or nothing. [`judge`] holds the
//! changes against what was done about them and says what is missing.
//!
//! A [`Surface`] holds everything else that a model reads: instructions, prompts, resources and templates.
//! A lock of the first version has none and covers only the tools.
//!
//! An [`Entry`] is either the [`Contract`] of a tool that keeps these rules, or the definition of a
//! foreign tool as it came, which has no version: every change of that one wants to be looked at.
//!
//! Deliberately absent: files and processes. Texts and definitions are handed in.

mod change;
mod compare;
mod entry;
mod file;
mod judge;
mod members;
mod reach;
mod reason;
mod rules;
mod surface;
mod text;
mod walk;

pub use change::Change;
pub use compare::{compare, compare_entries};
pub use entry::{Contract, ContractError, Entry};
pub use file::{LOCK_VERSION, Lock, LockError, TOOLS_ONLY_VERSION};
pub use judge::{Answer, Judged, Judgement, judge};
pub use reason::{Reason, ReasonError, ReasonGiven};
pub use rules::{Demand, Kind, markdown};
pub use surface::{LISTS, Surface};
pub use text::{pretty_json, published};
