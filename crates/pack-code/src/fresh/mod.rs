//! Knowing what has changed: a watch on directories, a sweep that compares everything, and the
//! keeper, a thread per repository that builds behind the calls.

pub(crate) mod keeper;
pub(crate) mod repo;
pub(crate) mod tracker;
pub(crate) mod watch;
