//! The configuration of a host that wraps an MCP server, and the files it keeps between runs.
//!
//! The server itself is a backend of the core ([`mainstay_kernel::server`]); here is only what needs files.
//!
//! * [`identity`]: the name under which calls of the server are recorded as tasks;
//! * [`remembered`]: the server's catalog in an earlier run.

mod identity;
mod remembered;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use mainstay_contract::limits::Limits;
pub use mainstay_kernel::locked::Locked;
pub use mainstay_kernel::server::{
    Condition, OnTimeout, ProbeRule, Rules, SEPARATOR, ToolRules, declared_replay,
};

pub(crate) use self::identity::identity;
pub(crate) use self::remembered::MemoryFiles;
use crate::audit::AuditConfig;
use crate::config::{
    EnvelopeMode, ReadLock, Reread, ServerLaunch, Shim, ToolListRules, ToolQuotas, Transport,
    Watched,
};
use crate::telemetry::OtlpConfig;
use crate::upgrade::UpgradeConfig;

/// A host that wraps one server.
#[derive(Debug)]
pub struct WrapConfig {
    /// The server's name in logs and health.
    pub name: String,
    pub launch: ServerLaunch,
    pub rules: Arc<Rules>,
    /// The settings of `tools/list`.
    pub tool_list: ToolListRules,
    /// Quotas of each caller, by tool.
    pub quotas: ToolQuotas,
    /// The tools that an operator has reviewed; without a lock no tool is withdrawn.
    pub locked: Option<Arc<Locked>>,
    /// Reads that lock again, at SIGHUP and before every rollout.
    pub read_lock: Option<ReadLock>,
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
    /// Where the server's catalog is kept from one run to the next, if it is.
    pub cache_dir: Option<PathBuf>,
    /// The directory in which tasks are recorded, if there is one.
    pub state_dir: Option<PathBuf>,
    /// The environment that the server inherits. Only a keyed digest of it is ever stored.
    pub environment: Vec<(OsString, OsString)>,
    /// The name that operators use for this host.
    pub host_name: String,
    pub version: String,
    /// Reads the rules again at SIGHUP; a host of one command has none, and the signal ends it.
    pub reread: Option<Reread>,
    /// The parts for an upgrade in place; a host of one command has none.
    pub upgrade: Option<UpgradeConfig>,
    /// The reaction to an envelope of the host that breaks its own schema.
    pub envelopes: EnvelopeMode,
    /// Files whose changes roll out the server.
    pub watch: Vec<Watched>,
    /// Where decisions and effects are recorded, if they are.
    pub audit: Option<AuditConfig>,
}
