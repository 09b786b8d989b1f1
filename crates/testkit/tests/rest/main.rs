//! REST over real hosts: the same answers as everywhere else, from packs and from wrapped servers.

#![allow(
    clippy::indexing_slicing,
    reason = "helpers of tests, which clippy does not know as such"
)]

mod http;
mod invoke;
mod pages;
mod parity;
mod telling;
mod url;
mod wrapped;
