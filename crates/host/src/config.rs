//! Everything a host is told at its start. The environment and the command line are read in
//! `cli`; here they are already types.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use mainstay_contract::envelope::redact::is_secret_variable;
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::render::RenderMode;
use mainstay_contract::tool::Catalog;
use mainstay_contract::words;
use mainstay_sandbox::Policy as SandboxPolicy;
use serde::{Deserialize, Serialize};

use crate::audit::AuditConfig;
use crate::http::HttpConfig;
use crate::local::LocalRequests;
pub use crate::remote::{Remote, RemoteTransport, TokenSource};
pub use crate::reread::{Changed, Found, ReadLock, Reread};
use crate::telemetry::OtlpConfig;
use crate::upgrade::UpgradeConfig;
pub use mainstay_kernel::approvals::{ApprovalRule, Policy, Ruling};
use mainstay_kernel::core::tasks::TaskRules;
use mainstay_kernel::locked::Locked;
pub use mainstay_kernel::quotas::{Quota, ToolQuotas};
use mainstay_kernel::server::{Rules, ServerConfig, ServerMemory};
pub use mainstay_kernel::tool_list::ToolListRules;

/// A host's configuration.
#[derive(Debug)]
pub struct Config {
    /// Name and version in handshakes.
    pub server_name: String,
    pub server_version: String,
    pub instructions: Option<String>,
    /// Name of this host in commands of operators.
    pub host_name: String,
    /// Folder of the control socket; none for a host that serves one command.
    pub control_dir: Option<PathBuf>,
    pub limits: Limits,
    /// Text form of answers when a client does not choose.
    pub render: RenderMode,
    pub packs: Vec<Pack>,
    /// Wrapped servers that are served beside the packs.
    pub servers: Vec<Server>,
    pub shim: Shim,
    pub transport: Transport,
    /// Written when the host is ready, removed when it ends.
    pub ready_file: Option<PathBuf>,
    /// Where events are written, if they are.
    pub telemetry: Option<PathBuf>,
    /// Where spans are sent, if they are.
    pub collector: Option<OtlpConfig>,
    /// Details of the ready line beside the transport, e.g. `schemas_dir=...`.
    pub ready_details: String,
    /// Version in the definitions of the host's own tools.
    pub tooling_version: String,
    /// Treatment of an envelope that breaks its own schema.
    pub envelopes: EnvelopeMode,
    /// Where the ids of envelopes come from.
    pub envelope_ids: IdSource,
    /// The tools of packs that a person has reviewed; without it none is withdrawn.
    pub locked: Option<Arc<Locked>>,
    /// Reads that lock again, at SIGHUP and before every rollout.
    pub read_lock: Option<ReadLock>,
    /// Reads the settings of packs again at SIGHUP; a host of one command has none, and the signal ends it.
    pub reread: Option<Reread>,
    /// The operator's rules for tasks, by tool.
    pub tasks: TaskRules,
    /// The settings of `tools/list`.
    pub tool_list: ToolListRules,
    /// Quotas of each caller, by tool.
    pub quotas: ToolQuotas,
    /// The directory in which tasks are recorded, if there is one.
    pub state_dir: Option<PathBuf>,
    /// Where the catalogs of servers are kept from one run to the next, if they are.
    pub cache_dir: Option<PathBuf>,
    /// The environment that servers inherit. Only a keyed digest of it is ever stored.
    pub environment: Vec<(OsString, OsString)>,
    /// The parts for an upgrade in place; a host of one command has none.
    pub upgrade: Option<UpgradeConfig>,
    /// Files whose changes roll out a pack.
    pub watch: Vec<Watched>,
    /// The rules for calls of all servers and packs.
    pub approvals: Policy,
    /// Where decisions and effects are recorded, if they are.
    pub audit: Option<AuditConfig>,
}

/// Files whose changes roll out a pack, or the wrapped server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The pack; a wrapped server has no name here.
    pub pack: Option<String>,
    /// Files, and directories with everything below them.
    pub paths: Vec<PathBuf>,
}

words! {
    /// The check of the envelopes that the host sends against their schemas.
    #[derive(Default)]
    pub enum EnvelopeMode {
        Off = "off",
        /// The host counts a mismatch, keeps it for diagnostics, and sends the answer.
        #[default]
        Shadow = "shadow",
        /// An error envelope is sent in its place.
        Enforce = "enforce",
    }
}

/// Where the ids of envelopes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdSource {
    #[default]
    Random,
    /// They follow from the request, so that two runs can be compared.
    Deterministic,
}

/// A pack and how its worker is started.
#[derive(Debug)]
pub struct Pack {
    pub name: String,
    pub command: Command,
    /// Handed to the worker as it starts: an object.
    pub settings: Json,
    /// For built-in packs: what the worker must announce, and the build that it must be.
    pub expected: Option<Expected>,
    /// For packs that work on what the host's only client works on.
    pub follows_roots: Option<FollowsRoots>,
}

/// A wrapped server that is served beside packs and other servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its key in the configuration, and its name in logs and health.
    pub name: String,
    /// The prefix of its names, without the separator; empty for none.
    pub prefix: String,
    pub launch: ServerLaunch,
    pub rules: Arc<Rules>,
    /// The definitions that an operator has reviewed; without a lock none is withdrawn.
    pub locked: Option<Arc<Locked>>,
    /// Restarts, queue, pool and time to start.
    pub limits: Limits,
    /// One process serves all sessions, or each has its own; `None` if the operator declared neither.
    pub shared: Option<bool>,
}

/// How a wrapped server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerLaunch {
    /// A process that the host starts.
    Process {
        command: Command,
        /// How its process tree is killed.
        tree_kill: TreeKill,
    },
    /// A server on another machine.
    Remote(Arc<Remote>),
}

impl ServerLaunch {
    /// The values that logs and faults must not show.
    pub fn secrets(&self) -> Vec<String> {
        match self {
            Self::Process { command, .. } => {
                let named = command.env.iter().filter_map(|(name, value)| {
                    let is_secret = name.to_str().is_some_and(is_secret_variable);
                    value.to_str().filter(|_| is_secret).map(str::to_owned)
                });
                named.chain(command.secrets.iter().cloned()).collect()
            }
            Self::Remote(remote) => remote.secrets(),
        }
    }
}

impl Server {
    /// The server, as the core knows it.
    pub(crate) fn config(&self, version: &str) -> ServerConfig {
        ServerConfig {
            name: self.name.clone(),
            rules: Arc::clone(&self.rules),
            locked: self.locked.clone(),
            memory: ServerMemory::default(),
            version: version.to_owned(),
            trial: false,
            backend: None,
            prefix: Some(self.prefix.clone()),
            limits: Some(self.limits.clone()),
            shared: self.shared,
        }
    }
}

/// How the roots of a host's only client become a setting of a pack.
#[derive(Clone, Debug)]
pub struct FollowsRoots {
    /// The setting: a list of objects with a `path`.
    pub setting: String,
    /// Directories that no client can name, without links in their paths; beside `/`.
    pub named_only: Vec<PathBuf>,
}

/// Facts about a pack that are known before its worker runs.
#[derive(Clone, Debug)]
pub struct Expected {
    pub catalog: Catalog,
    pub build: String,
}

/// A program and its arguments, as its shim starts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub program: PathBuf,
    /// Name of the process, where that differs from `program`.
    pub called: Option<String>,
    pub arguments: Vec<OsString>,
    /// Variables that are not passed on.
    pub without_env: Vec<String>,
    /// Variables that are set.
    pub env: Vec<(OsString, OsString)>,
    /// The values of secrets that are a part of what is set.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Where it runs, if not where the host does.
    pub cwd: Option<PathBuf>,
    /// The restrictions of its process and of all processes that it starts.
    pub sandbox: Option<Box<Sandbox>>,
}

/// The sandbox of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub policy: SandboxPolicy,
    /// Variables that it gets beside those of [`mainstay_sandbox::ENVIRONMENT`].
    pub env: Vec<String>,
    /// Variables that are set, unless the server's own settings do.
    pub variables: Vec<(String, String)>,
}

impl Sandbox {
    /// True if the worker inherits a variable of the host.
    pub fn passes(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else {
            return false;
        };
        let is_known = mainstay_sandbox::ENVIRONMENT.contains(&name) || name.starts_with("LC_");
        is_known || self.env.iter().any(|named| named == name)
    }
}

/// How shims are started, which start and keep the workers (`docs/processes.md`).
#[derive(Clone, Debug)]
pub struct Shim {
    /// An executable that calls [`crate::run_shim`].
    pub program: PathBuf,
    /// The descriptor that `program` names: open as long as this is.
    pub holds: Arc<OwnedFd>,
    pub tree_kill: TreeKill,
    /// The lease of the host's tasks: a shim holds it as long as its worker's tree may work.
    pub lease: Option<Arc<OwnedFd>>,
}

words! {
    /// By what means the tree of a worker is killed.
    #[derive(Default)]
    pub enum TreeKill {
        /// The strongest that works here.
        #[default]
        Auto = "auto",
        /// A PID namespace, or nothing is started.
        Namespace = "namespace",
        /// A subreaper that sweeps `/proc`.
        Subreaper = "subreaper",
    }
}

/// How clients reach the host.
#[derive(Debug)]
pub enum Transport {
    /// One client on standard input and output; the host ends with it.
    Stdio,
    /// Many clients on a Unix socket.
    Socket { path: PathBuf, mode: u32 },
    /// Clients of this user that each name a server, on a private Unix socket. The host ends when it had none for a
    /// while.
    Share { path: PathBuf },
    /// Many clients over HTTP.
    Http(HttpConfig),
    /// The process that runs the host, through [`Local`](crate::Local).
    Local(LocalRequests),
}

impl Transport {
    /// `mode=` in log lines.
    pub(crate) const fn mode(&self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Socket { .. } => "socket",
            Self::Share { .. } => "share",
            Self::Http(_) => "http",
            Self::Local(_) => "memory",
        }
    }
}
