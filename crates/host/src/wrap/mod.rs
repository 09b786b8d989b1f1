//! Somebody else's MCP server, made to survive.
//!
//! A wrapped server is a worker like any other to the kernel: it is supervised, its calls have
//! deadlines and replay contracts, its tree is killed as one. What is different is that nothing it
//! says is ours to change: lines pass byte for byte, in both directions, with their own ids. So
//! each connection has a server of its own and an engine of its own ([`engine`]), which reads of
//! each line only what it must.
//!
//! * [`rules`]: what an operator can say about a server; [`reread`]: and say again;
//! * [`told`]: what a successor must be told again; [`asks`]: what servers ask their client;
//! * [`tools`]: what is known about the tools; [`probe`]: how to find out whether a lost call took
//!   effect;
//! * [`lists`]: lists that we fetch ourselves, to know the tools and to notice changes;
//!   [`successor`]: what a new server lists, before it takes over;
//! * [`activity`]: whether a silent server runs at all; [`memory`]: how much it takes;
//! * [`remembered`]: what a server said about itself when it ran last;
//! * [`output`]: text that is too long for a model; [`edit`]: the few changes to lines;
//! * `client`, `server`, `own`, `answer`: the engine's dealings with either side;
//! * [`serve`]: one engine per connection, and one voice for all of them.

mod activity;
mod answer;
mod asks;
mod client;
pub(crate) mod edit;
mod engine;
mod lists;
mod memory;
mod output;
mod own;
mod probe;
mod remembered;
mod reread;
mod rules;
mod serve;
mod server;
mod successor;
mod told;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;

use mainstay_contract::limits::Limits;

pub use self::reread::{Found, Reread};
pub use self::rules::{Condition, OnTimeout, ProbeRule, Rules, ToolRules};
pub use self::serve::serve_wrapped;
#[cfg(feature = "simulation")]
pub(crate) use self::serve::{HubEvent, simulate};
pub use self::tools::declared_replay;
use crate::config::{Command, EnvelopeMode, Shim, Transport};
pub use crate::locked::Locked;
use crate::telemetry::OtlpConfig;

/// A host that wraps one server.
#[derive(Debug)]
pub struct WrapConfig {
    /// What the server is called in logs and in health.
    pub name: String,
    pub command: Command,
    pub rules: Arc<Rules>,
    /// The tools that somebody has looked at; without it none is withdrawn.
    pub locked: Option<Arc<Locked>>,
    pub limits: Limits,
    pub shim: Shim,
    pub transport: Transport,
    /// Written when the host is ready, removed when it ends.
    pub ready_file: Option<PathBuf>,
    /// Where events are written, if they are.
    pub telemetry: Option<PathBuf>,
    /// Where spans are sent, if they are.
    pub collector: Option<OtlpConfig>,
    /// Folder of the control socket; none for a host that serves one command.
    pub control_dir: Option<PathBuf>,
    /// Where answers to `server/discover` are remembered from one run to the next.
    pub cache_dir: Option<PathBuf>,
    /// What operators call this host.
    pub host_name: String,
    pub version: String,
    /// How the rules are read again at SIGHUP; without it the signal ends the host.
    pub reread: Option<Reread>,
    /// What is done about an envelope of ours that breaks its own schema.
    pub envelopes: EnvelopeMode,
}
