//! The event log: one JSON line for each request that ended and each step of a worker's life.
//!
//! Theory of operation. The engine hands events to a bounded queue and never waits: a slow or
//! full disk costs events, which are counted, not calls. A thread of its own takes what has
//! gathered after a short pause, so that the engine wakes it some fifty times a second at most
//! and not for every call, makes lines of it and appends them in one write ([`file`]). The end
//! waits for the thread, not for long.
//!
//! A collector, where one is configured, gets a span of each request besides ([`otlp`]).
//!
//! Principal types: [`Recorder`], the engine's handle; [`queue::Queue`], what they share;
//! [`file::EventFile`], the file with its rotation.
//!
//! Deliberately absent: arguments, results and anybody's own words. See `docs/telemetry.md`.

mod file;
mod otlp;
mod queue;
mod recorder;
mod writer;

pub use self::otlp::OtlpConfig;

pub(crate) use self::recorder::{Recorder, show_mismatches};
