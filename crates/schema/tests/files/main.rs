//! Tests whose cases are files: the official suite, our own sample of it, and assets.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod cases;
mod damage;
mod data;
mod public;
mod suite;
