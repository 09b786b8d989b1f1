//! The share host: one per user, started on demand, ended when it had no client for a while.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use mainstay_contract::envelope::redact::Redactor;
use mainstay_contract::render::RenderMode;
use mainstay_host::config::{
    Config, EnvelopeMode, IdSource, Policy, Reread, ToolListRules, Transport, TreeKill,
};
use mainstay_host::{Level, Log, SHARE_HOST_VARIABLES, files};

use super::socket_of;
use crate::VERSION;
use crate::args::ShareHost;
use crate::builtin::Executable;
use crate::environment::{self, Environment};
use crate::exit::Failure;
use crate::serve::{approve, explain};
use crate::{server_file, start};

/// The name of the host for operators.
const NAME: &str = "share";
/// Sessions of all clients together: one for each server of each client.
const SESSIONS: usize = 1024;
/// Servers that run at the same time.
const SERVERS: usize = 128;
/// The log of the host, in the runtime directory.
const LOG: &str = "share.log";
/// Bytes past which a new host begins the log anew.
const LOG_BYTES: u64 = 1024 * 1024;

/// Runs the share host, in a session of its own.
pub(super) fn run(host: &ShareHost, is_check: bool) -> Result<ExitCode, Failure> {
    let environment = Environment::read_for_operator()?;
    let (runtime_dir, cache_dir) = (environment.runtime_dir, environment.cache_dir);
    files::create_private(&runtime_dir).map_err(Failure::input)?;
    if !host.detached && !is_check {
        return detach(host, &runtime_dir, cache_dir.as_deref());
    }
    start::begin();
    let mut limits = server_file::default_limits(false);
    (limits.connections, limits.wrapped_workers) = (SESSIONS, SERVERS);
    if let Some(idle) = host.idle {
        limits.share_idle_ms = crate::values::millis(idle);
    }
    let upgrade = environment::upgrade()?;
    let approval = upgrade.approval();
    let config = Config {
        server_name: "mainstay".to_owned(),
        server_version: VERSION.to_owned(),
        instructions: None,
        host_name: NAME.to_owned(),
        transport: Transport::Share {
            path: socket_of(&runtime_dir),
        },
        control_dir: Some(runtime_dir),
        limits,
        render: RenderMode::default(),
        packs: Vec::new(),
        servers: Vec::new(),
        shim: Executable::open()?.shim(TreeKill::Subreaper),
        ready_file: None,
        telemetry: None,
        collector: None,
        ready_details: String::new(),
        tooling_version: VERSION.to_owned(),
        envelopes: EnvelopeMode::default(),
        envelope_ids: IdSource::Random,
        locked: None,
        read_lock: None,
        reread: Some(Reread::new(|| {
            Err("the share host has no configuration file".to_owned())
        })),
        tasks: std::collections::BTreeMap::new(),
        tool_list: ToolListRules::default(),
        quotas: Default::default(),
        state_dir: None,
        cache_dir,
        environment: Vec::new(),
        upgrade: Some(upgrade),
        watch: Vec::new(),
        approvals: Policy::default(),
        audit: None,
    };
    let log = Log::start(
        Level::default(),
        Redactor::new(environment::secret_values()),
    );
    if is_check {
        mainstay_host::check_state(config, &log).map_err(explain)?;
        return approve(approval);
    }
    mainstay_host::serve(config, &log).map_err(explain)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the host as an orphan in a session of its own: it outlives the client that started it, and no signal to that
/// client's terminal or process group reaches it.
fn detach(
    host: &ShareHost,
    runtime_dir: &Path,
    cache_dir: Option<&Path>,
) -> Result<ExitCode, Failure> {
    // Fails for the leader of a process group, which a shell with job control made of this process.
    let _ = rustix::process::setsid();
    let path = runtime_dir.join(LOG);
    let is_long = path
        .symlink_metadata()
        .is_ok_and(|facts| facts.len() > LOG_BYTES);
    if is_long {
        let _ = std::fs::remove_file(&path);
    }
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .context("cannot open the log of the share host")
        .map_err(Failure::input)?;
    let mut command = Command::new(start::executable());
    command.args(["share", "host", "--detached"]);
    if let Some(idle) = host.idle {
        command.args(["--idle", &format!("{}ms", crate::values::millis(idle))]);
    }
    let directories = [Some(runtime_dir), cache_dir];
    let variables = SHARE_HOST_VARIABLES.into_iter().zip(directories);
    command
        .env_clear()
        .envs(variables.filter_map(|(name, directory)| Some((name, directory?))))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start the share host")
        .map_err(Failure::fault)?;
    Ok(ExitCode::SUCCESS)
}
