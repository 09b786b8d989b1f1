//! The real `mainstay` in a process of its own, watched from outside.
//!
//! [`Serve`] says how to start it, [`Launch`] how to start anything else, [`Running`] is a started one: its clients, its standard error,
//! its memory and processor time, its exit. Every process it starts inherits a marker variable,
//! by which [`leftovers`] finds what outlived it, even a daemon that left its process group.
//! [`binary`] finds the programs of the workspace, [`TempDir`] a place for their files.
//!
//! A test ends a host with [`Running::stop`] or [`Running::finish`]; killing on drop is only for
//! tests that have failed already.

mod launch;
mod locate;
mod observe;
mod running;
mod serve;
mod temp;
mod user;

pub use launch::Launch;
pub use locate::{binary, program, tool, workspace};
pub use observe::{
    Usage, cpu_time, cpu_time_of_all_threads, descriptors, leftovers, marked, marked_running, usage,
};
pub use running::{Running, kill, wait_for};
pub use serve::{MARKER, Serve, Transport};
pub use temp::TempDir;
pub(crate) use temp::unique;
pub use user::{NOBODY, as_nobody, give_away, is_root};
