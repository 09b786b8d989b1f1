//! How Mainstay stays up.
//!
//! The host is thin: it reads bytes, tells the kernel what happened, does what the kernel says
//! and writes bytes. [`serve`] runs one host until it is told to stop. The rooms:
//!
//! * [`config`]: everything a host is told at its start;
//! * `transport`: clients on stdio, on a Unix socket, or in memory; `http`: those that come over
//!   the network;
//! * `drivers`: workers behind one interface; `process`: spawn, kill as a tree, reap; `shim`: the
//!   process that does so even when the host is killed;
//! * `directory`: which tools, resources and prompts exist, who serves them, and the checks
//!   before dispatch and after an answer;
//! * `telemetry`: event lines in a file that several hosts may share;
//! * `envelopes`: ids and checks of the envelopes that are sent;
//! * `engine`: the one loop that puts all events in order around the kernel;
//! * [`wrap`]: somebody else's server, with a loop of its own for each connection.
//!
//! It must never know a tool by name, except its own two.

mod client_roots;
mod clock;
pub mod config;
mod control;
mod directory;
mod drivers;
mod engine;
mod entropy;
mod envelopes;
mod http;
mod io;
mod link_ids;
mod locked;
mod log;
mod outbox;
mod process;
mod ready;
mod serve;
mod shim;
#[cfg(feature = "simulation")]
pub mod sim;
mod system_tools;
mod telemetry;
mod transport;
pub mod wrap;

pub use self::clock::iso_now;
pub use self::control::runtime_dir;
pub use self::http::HttpConfig;
pub use self::http::access::{Issuer, Keys, KeysError};
pub use self::log::{Level, Log};
pub use self::serve::{ServeError, Served, serve};
pub use self::shim::run_shim;
pub use self::telemetry::OtlpConfig;
