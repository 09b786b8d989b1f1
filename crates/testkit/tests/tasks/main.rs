//! Durable tasks with real hosts: over stdio, HTTP and REST, through the death of their host, and on the
//! command line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where; the storm is told by its environment how long to run"
)]

mod disks;
#[path = "../issuer/mod.rs"]
mod issuer;
mod mcp;
mod owners;
mod rest;
mod storm;
mod upgrades;
mod world;
mod wrapped;
