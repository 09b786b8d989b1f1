//! The promises of Mainstay, as types.
//!
//! Only types of this crate cross a process boundary or a socket. It holds the request
//! identities, the framing, the strict scan of a message, the codecs of the dialects, the
//! envelopes, the error table, replay contracts, faults, payloads, tool specs, render and
//! normalisation primitives, and every limit. It must never know a clock, a file, the environment
//! or a runtime.

#[macro_use]
mod words;

pub mod audit;
pub mod canonical;
pub mod control;
pub mod dialect;
pub mod envelope;
pub mod error;
pub mod failure;
pub mod fault;
pub mod frame;
pub mod health;
pub mod id;
pub mod json;
pub mod limits;
pub mod meta;
pub mod method;
pub mod metrics;
pub mod normalise;
pub mod outcome;
pub mod render;
pub mod replay;
pub mod request_table;
pub mod rpc;
pub mod scan;
pub mod telemetry;
pub mod tool;
pub mod trace;
pub mod uri;
pub mod wall;
