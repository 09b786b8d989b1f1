//! Tests whose cases are files: the official suite, our own sample of it, assets, and the
//! published definitions of our own tools.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests fail by panicking, and say what they skip"
)]

mod cases;
mod damage;
mod data;
mod public;
mod suite;
mod tools;
