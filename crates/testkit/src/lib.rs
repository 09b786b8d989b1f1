//! Test support for Mainstay and for packs written by others.
//!
//! | module | what it is |
//! |---|---|
//! | [`clock`] | time for tests of the kernel |
//! | [`peer`] | a client over any pair of streams, and a host for packs without a host |
//! | [`process`] | the real `mainstay` in a process of its own, watched from outside |
//! | [`misbehave`] | workers that break the rules, each in one way |
//! | [`built`] | a pack in several builds, to be replaced on disk |
//! | [`fixture`] | a small MCP server of the kind that others write, good and bad as asked |
//! | [`wrapped`] | servers of others, started bare and behind `mainstay wrap` |
//! | [`conversation`] | a recorded conversation with any server, and the bytes that came back |
//! | [`foreign`] | clients and servers of others, and what drives the one against the other |
//! | [`crash`] | any worker, killed at a chosen point of its conversation with the host |
//! | [`oracle`] | what clients were told, against what really happened |
//! | [`storm`] | the fixture killed at random under load, judged by the oracle |
//! | `sim` | simulated hosts and peers in virtual time, with the feature `simulation` |
//! | [`transcript`] | conversations in files, run unchanged over every transport |
//! | [`hostile`] | frames nobody should send, with the answer that each deserves |
//! | [`fuzz`] | one function for each parser of foreign bytes |
//! | [`http`] | a client of HTTP: raw where it must be, MCP where that helps |
//! | [`judge`] | the official conformance suite, and readers of OpenAPI |
//! | [`bench`] | floors and measurements for `cargo xtask bench` |
//!
//! Every wait in here has a deadline, and what did not happen in time is an error that says what
//! was waited for. This crate must never know the host's internals: it sees the product as a
//! client, a worker or the operating system sees it. The exception is `sim`, which knows the seams
//! that the host opens for it.

pub mod bench;
pub mod built;
pub mod clock;
pub mod conversation;
pub mod crash;
pub mod fixture;
pub mod foreign;
pub mod fuzz;
pub mod hostile;
pub mod hostile_server;
pub mod http;
pub mod judge;
mod mailbox;
pub mod misbehave;
pub mod oracle;
pub mod peer;
pub mod process;
#[cfg(feature = "simulation")]
pub mod sim;
pub mod storm;
pub mod transcript;
pub mod wrapped;
