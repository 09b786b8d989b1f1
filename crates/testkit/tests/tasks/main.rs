//! Durable tasks with real hosts: over stdio, HTTP and REST, through the death of their host, and on the
//! command line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say where"
)]

mod mcp;
mod rest;
mod storm;
mod world;
