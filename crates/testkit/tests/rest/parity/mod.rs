//! Errors are the same in every way in which a tool can be called.

mod made_by_hosts;
mod rows;
mod ways;
