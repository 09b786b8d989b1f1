//! The rules of a ledger, and what becomes of its file when a host is killed, a write is torn, or a disk is full
//! or read-only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where; children are told what to do by a variable"
)]

mod damage;
mod files;
mod retention;
mod rules;
mod scratch;
mod sharing;
