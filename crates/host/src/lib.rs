//! How Mainstay stays up.
//!
//! The host is the shell around [`mainstay_kernel::Core`]: it reads bytes, reports events to the core, carries
//! out the core's actions and writes bytes. [`serve`] runs one host until it is told to stop. The rooms:
//!
//! * [`config`]: everything a host is told at its start;
//! * `transport`: clients on stdio or on a Unix socket; `http`: clients over the network; `local`: typed
//!   requests of the process itself; `forwarded`: a wrapped server's answer as a typed outcome;
//! * `drivers`: workers behind one interface; `process`: spawn, kill as a tree, reap; `shim`: the
//!   process that does so even when the host is killed;
//! * `file_watch`: rollouts of packs and servers whose files change;
//! * [`files`]: private directories, and files in places where other users may write;
//! * [`audit`]: a chained file of every decision about a call and of every effect;
//! * `telemetry`: event lines in a file that several hosts may share;
//! * `envelopes`: ids and checks of the envelopes that are sent;
//! * `engine`: the drive loop around the core; `check`: schema checks in disposable processes;
//! * `upgrade`: replaces the host's executable in place;
//! * [`wrap`]: the configuration of a host that wraps an MCP server.
//!
//! It must never know a tool by name, except its own two.

pub mod audit;
mod check;
mod client_roots;
mod clock;
pub mod config;
mod control;
mod drivers;
mod engine;
mod entropy;
mod envelopes;
mod file_watch;
pub mod files;
mod flag;
mod forwarded;
mod http;
mod io;
mod link_ids;
mod local;
mod log;
mod outbox;
mod process;
mod ready;
mod remote;
mod reread;
mod serve;
mod shared_environment;
mod shim;
#[cfg(feature = "simulation")]
pub mod sim;
pub mod tasks;
mod telemetry;
mod transport;
mod upgrade;
mod watchdog;
pub mod wrap;

pub use self::check::run_checker;
pub use self::clock::iso_now;
pub use self::control::runtime_dir;
pub use self::engine::SHARE_HOST_VARIABLES;
pub use self::http::HttpConfig;
pub use self::http::access::{Issuer, Keys, KeysError};
pub use self::local::{AskError, Local, LocalRequests, OnProgress};
pub use self::log::{Level, Log};
pub use self::process::read_secret_command;
pub use self::serve::{ServeError, Served, check_state, check_wrapped_state, serve, serve_wrapped};
pub use self::shared_environment::is_shared_variable;
pub use self::shim::run_shim;
pub use self::telemetry::OtlpConfig;
pub use self::upgrade::{Arrival, CHECK, MARKER, SettingsFile, Start, UpgradeConfig};
