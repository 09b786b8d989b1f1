//! The asset pack, called the way a worker calls it.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and say what they skip"
)]

mod answers;
mod applier;
mod data;
mod diff;
mod diff_properties;
mod examples;
mod file;
mod fixture;
mod http;
mod https;
mod never_changed;
mod own_world;
mod populate;
mod public_assets;
mod schemas;
mod start;
mod validate;
