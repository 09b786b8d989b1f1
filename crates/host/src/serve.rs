//! One host, from its start to its end.

mod clients;
mod signals;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_contract::limits::Limits;
use mainstay_contract::render::RenderMode;
use mainstay_contract::trace::Hex;
use mainstay_kernel::approvals::Policy;
use mainstay_kernel::catalog::CatalogError;
pub use mainstay_kernel::catalog::Offered as Served;
use mainstay_kernel::server::ServerConfig;
use mainstay_kernel::{Core, CoreConfig, Lifetime, PackConfig, SetupError};
use thiserror::Error;
use tokio::sync::watch;

pub(crate) use self::clients::is_shortage;
use self::clients::{Clients, Opened, continue_transport, open_transport};
use crate::audit::{AuditConfig, AuditError, AuditLog};
use crate::check::{CheckLimits, Checkers};
use crate::clock::{self, iso_now};
use crate::config::{Config, IdSource, Shim, Transport, Watched};
use crate::control;
use crate::engine::{
    Announcement, Commands, Engine, HostFacts, Launch, Links, PackCommand, Queue, Reports,
    Rereading, Resumed, Setup, Shell, Upgrades,
};
use crate::entropy;
use crate::envelopes::Envelopes;
use crate::file_watch::FileWatch;
use crate::http::{FrontFacts, MIN_TOKEN, Serves};
use crate::log::{Level, Log};
use crate::process::programs::Programs;
use crate::ready::{ReadyFile, Written};
use crate::shared_environment::is_shared_variable;
use crate::tasks::{TaskLedger, TaskStore};
use crate::telemetry::{OtlpConfig, Recorder};
use crate::transport::socket::{BindError, Bound};
use crate::upgrade::{UpgradeConfig, first_loss};
use crate::watchdog::Watchdog;
use crate::wrap::{self, MemoryFiles, WrapConfig};

/// Why a host cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Packs(#[from] CatalogError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Socket(#[from] BindError),
    #[error("cannot listen on {address}")]
    Http {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("{address} can be reached from other machines, and there is no token")]
    NoToken { address: SocketAddr },
    #[error(
        "{address} can be reached from other machines, and the token has fewer than {MIN_TOKEN} characters"
    )]
    ShortToken { address: SocketAddr },
    #[error("cannot write telemetry to {path}")]
    Telemetry { path: String, source: io::Error },
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("cannot continue the host that ran before: {0}")]
    State(String),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
}

/// Serves packs until the client leaves (stdio) or a signal comes.
pub fn serve(config: Config, log: &Log) -> Result<Served, ServeError> {
    let core = run_plan(Plan::packs(config, log)?, log)?;
    if let Some(error) = core.setup_error() {
        return Err(ServeError::Setup(error.clone()));
    }
    Ok(core.offered())
}

/// Wraps a server until the client leaves (stdio) or a signal comes.
pub fn serve_wrapped(config: WrapConfig, log: &Log) -> Result<(), ServeError> {
    run_plan(Plan::wrapped(config, log)?, log).map(drop)
}

/// Reads the state of a running host as its successor would, and changes nothing.
pub fn check_state(config: Config, log: &Log) -> Result<(), ServeError> {
    loses_nothing(config.upgrade.as_ref())?;
    Plan::packs(config, log).map(drop)
}

/// As [`check_state`], for a host that wraps a server.
pub fn check_wrapped_state(config: WrapConfig, log: &Log) -> Result<(), ServeError> {
    loses_nothing(config.upgrade.as_ref())?;
    Plan::wrapped(config, log).map(drop)
}

/// Rejects a state with parts that this program does not know: it would drop them.
fn loses_nothing(upgrade: Option<&UpgradeConfig>) -> Result<(), ServeError> {
    let Some(arrival) = upgrade.and_then(|upgrade| upgrade.arrival.as_ref()) else {
        return Ok(());
    };
    let (_, core, shell) = arrival.read().map_err(ServeError::State)?;
    let unreadable = |error: &dyn std::fmt::Display| ServeError::State(error.to_string());
    let again = Core::restore(&core).and_then(|core| core.save());
    let again = again.map_err(|error| unreadable(&error))?;
    let lost = first_loss(&core, &again);
    let lost = match lost {
        Some(place) => Some(place),
        None => {
            let again: Shell = serde_json::from_str(&shell).map_err(|error| unreadable(&error))?;
            let again = serde_json::to_string(&again).map_err(|error| unreadable(&error))?;
            first_loss(&shell, &again).map(|place| format!("/shell{place}"))
        }
    };
    match lost {
        None => Ok(()),
        Some(place) => Err(ServeError::State(format!(
            "this executable does not know {place} of its state and would lose it; restart the host instead"
        ))),
    }
}

/// A host that is configured and not yet running.
struct Plan {
    core: Core,
    serves: Serves,
    commands: Commands,
    named_only: Vec<PathBuf>,
    shim: Shim,
    transport: Transport,
    ready_file: Option<PathBuf>,
    /// The level of the line about a ready file that another host owns.
    ready_level: Level,
    /// Facts for the ready line, beside the transport.
    ready_details: String,
    control_dir: Option<PathBuf>,
    sinks: Sinks,
    facts: HostFacts,
    envelopes: Envelopes,
    tasks: TaskLedger,
    watch: Vec<Watched>,
    audit: Option<AuditConfig>,
    upgrade: Option<UpgradeConfig>,
    /// The host that this one continues.
    resumed: Option<Resumed>,
}

/// The core and the shell of the host that this process continues, if it does.
fn resume(
    core: Core,
    upgrade: Option<&mut UpgradeConfig>,
    version: &str,
    builds: &[(String, String)],
) -> Result<(Core, Option<Resumed>), ServeError> {
    let Some(mut arrival) = upgrade.and_then(|upgrade| upgrade.arrival.take()) else {
        return Ok((core, None));
    };
    let (header, state, shell) = arrival.read().map_err(ServeError::State)?;
    let unreadable = |error: &dyn std::fmt::Display| ServeError::State(error.to_string());
    let mut core = Core::restore(&state).map_err(|error| unreadable(&error))?;
    core.adopt(version, builds)
        .map_err(|error| unreadable(&error))?;
    let resumed = Resumed {
        from: header.build,
        shell: serde_json::from_str(&shell).map_err(|error| unreadable(&error))?,
        descriptors: arrival.take_descriptors(),
    };
    Ok((core, Some(resumed)))
}

impl Plan {
    fn packs(mut config: Config, log: &Log) -> Result<Self, ServeError> {
        let mode = config.transport.mode();
        let mut builds = Vec::new();
        let mut commands = Vec::new();
        let mut packs = Vec::new();
        let mut named_only = Vec::new();
        for pack in config.packs {
            commands.push(PackCommand {
                command: pack.command,
                is_held: pack.expected.is_none(),
            });
            let follows = pack.follows_roots;
            named_only.extend(
                follows
                    .iter()
                    .flat_map(|follows| follows.named_only.clone()),
            );
            let expected = pack.expected.as_ref();
            builds.extend(expected.map(|expected| (pack.name.clone(), expected.build.clone())));
            packs.push(PackConfig {
                name: pack.name,
                settings: pack.settings,
                expected: pack
                    .expected
                    .map(|expected| (expected.catalog, expected.build)),
                follows_roots: follows.map(|follows| follows.setting),
            });
        }
        let keep = config.limits.diagnostics;
        let store = config.state_dir.as_deref();
        let store = store.map(|directory| TaskStore::new(directory, &config.limits));
        // Over HTTP any call may have an idempotency key; other packs say themselves what they offer.
        let may_run_tasks = matches!(config.transport, Transport::Http(_))
            || !config.tasks.is_empty()
            || packs.iter().any(|pack: &PackConfig| match &pack.expected {
                Some((catalog, _)) => catalog.tools.iter().any(|tool| tool.tasks),
                None => true,
            });
        let tasks = TaskLedger::new(store, may_run_tasks, log);
        let mut shim = config.shim;
        shim.lease = tasks.share_lease();
        let (servers, version) = (&config.servers, &config.server_version);
        let build = build_of(config.upgrade.as_ref(), version);
        let folder = config.cache_dir.as_deref();
        let names = config.environment.iter().map(|(name, _)| name);
        let names = names.filter_map(|name| name.to_str().map(str::to_owned));
        let unshared = names.filter(|name| !is_shared_variable(name)).collect();
        let mut remembered = MemoryFiles::new(folder, config.environment, &build);
        let configs = servers.iter();
        let configs = configs.map(|server| ServerConfig {
            memory: remembered.open(&server.name, &server.launch, log),
            ..server.config(version)
        });
        let configs = configs.collect();
        let core = Core::new(CoreConfig {
            seed: entropy::seed(),
            span_seed: config.collector.as_ref().map(|_| entropy::random()),
            epoch_ms: clock::wall_ms(),
            name: config.server_name,
            version: config.server_version.clone(),
            instructions: config.instructions,
            tooling_version: config.tooling_version,
            render: config.render,
            locked: config.locked,
            packs,
            servers: configs,
            tasks: config.tasks,
            tool_list: config.tool_list,
            approvals: config.approvals,
            approval_secret: secret(),
            audits: config.audit.is_some(),
            quotas: config.quotas,
            lifetime: lifetime(&config.transport),
            limits: with_sessions(config.limits, &config.transport),
        })?;
        let servers = servers.iter();
        let servers = servers.map(|server| (server.name.clone(), server.launch.clone()));
        let servers = servers.collect();
        let (core, resumed) = resume(core, config.upgrade.as_mut(), version, &builds)?;
        Ok(Self {
            core,
            serves: Serves::Packs,
            commands: Commands {
                packs: commands,
                servers,
                unshared,
            },
            named_only,
            shim,
            tasks,
            transport: config.transport,
            ready_file: config.ready_file,
            ready_level: Level::Warn,
            ready_details: config.ready_details,
            control_dir: config.control_dir,
            sinks: Sinks {
                file: config.telemetry,
                collector: config.collector,
                mode,
            },
            facts: HostFacts {
                name: config.host_name,
                version: config.server_version,
                mode,
                started: iso_now(),
                remembered,
                reread: config.reread,
                rereading: Rereading::No,
                read_lock: config.read_lock,
            },
            envelopes: Envelopes::new(config.envelopes, config.envelope_ids, keep, log),
            watch: config.watch,
            audit: config.audit,
            upgrade: config.upgrade,
            resumed,
        })
    }

    fn wrapped(mut config: WrapConfig, log: &Log) -> Result<Self, ServeError> {
        let mode = config.transport.mode();
        let keep = config.limits.diagnostics;
        // Over HTTP any call may have an idempotency key.
        let is_http = matches!(config.transport, Transport::Http(_));
        if config.state_dir.is_none() && config.rules.keeps_tasks() {
            let said = "there is no directory for them; set MAINSTAY_STATE_DIR to an absolute path";
            log.say(
                Level::Warn,
                format!("mcp:warning reason=tasks_not_recorded {said}"),
            );
        }
        let directory = config.state_dir.as_deref();
        let directory = directory.filter(|_| is_http || config.rules.keeps_tasks());
        let store = directory.map(|directory| TaskStore::new(directory, &config.limits));
        let backend = directory.and_then(|directory| {
            let identity = wrap::identity(directory, &config.launch, &config.environment);
            let failed = |error: &io::Error| {
                let level = match config.rules.keeps_tasks() {
                    true => Level::Warn,
                    false => Level::Debug,
                };
                log.say(
                    level,
                    format!("mcp:warning reason=tasks_not_recorded {error}"),
                );
            };
            identity.inspect_err(failed).ok()
        });
        #[cfg(feature = "simulation")]
        let backend = backend.or_else(crate::sim::backend);
        let build = build_of(config.upgrade.as_ref(), &config.version);
        let folder = config.cache_dir.as_deref();
        let mut remembered = MemoryFiles::new(folder, config.environment, &build);
        let memory = remembered.open(&config.name, &config.launch, log);
        let tasks = TaskLedger::new(store, true, log);
        let mut shim = config.shim;
        shim.lease = tasks.share_lease();
        let core = Core::new(CoreConfig {
            seed: entropy::seed(),
            span_seed: config.collector.as_ref().map(|_| entropy::random()),
            epoch_ms: clock::wall_ms(),
            name: config.name.clone(),
            version: config.version.clone(),
            instructions: None,
            tooling_version: config.version.clone(),
            render: RenderMode::default(),
            locked: None,
            packs: Vec::new(),
            servers: vec![ServerConfig {
                name: config.name.clone(),
                rules: config.rules,
                locked: config.locked,
                memory,
                version: config.version.clone(),
                trial: matches!(
                    config.transport,
                    Transport::Socket { .. } | Transport::Http(_)
                ),
                backend,
                prefix: None,
                limits: None,
                shared: None,
            }],
            tasks: BTreeMap::new(),
            tool_list: config.tool_list,
            approvals: Policy::default(),
            approval_secret: secret(),
            audits: config.audit.is_some(),
            quotas: config.quotas,
            lifetime: lifetime(&config.transport),
            limits: with_sessions(config.limits, &config.transport),
        })?;
        let (core, resumed) = resume(core, config.upgrade.as_mut(), &config.version, &[])?;
        Ok(Self {
            core,
            serves: Serves::Wrapped,
            commands: Commands {
                packs: Vec::new(),
                servers: [(config.name.clone(), config.launch)].into(),
                unshared: Vec::new(),
            },
            named_only: Vec::new(),
            shim,
            tasks,
            transport: config.transport,
            ready_file: config.ready_file,
            ready_level: Level::Debug,
            ready_details: format!("pack={}", config.name),
            control_dir: config.control_dir,
            sinks: Sinks {
                file: config.telemetry,
                collector: config.collector,
                mode,
            },
            facts: HostFacts {
                name: config.host_name,
                version: config.version.clone(),
                mode,
                started: iso_now(),
                remembered,
                reread: config.reread,
                rereading: Rereading::No,
                read_lock: config.read_lock,
            },
            envelopes: Envelopes::new(config.envelopes, IdSource::Random, keep, log),
            watch: config.watch,
            audit: config.audit,
            upgrade: config.upgrade,
            resumed,
        })
    }
}

impl Plan {
    /// A part of the host cannot be started. A host that continues another one has sessions to lose, and serves them
    /// without that part.
    fn without<T>(
        &self,
        reason: &str,
        error: ServeError,
        log: &Log,
        none: T,
    ) -> Result<T, ServeError> {
        if self.resumed.is_none() {
            return Err(error);
        }
        let source = std::error::Error::source(&error);
        let source = source.map_or_else(String::new, |source| format!(": {source}"));
        log.line(&format!("mcp:warning reason={reason} {error}{source}"));
        Ok(none)
    }
}

/// The build of this host. A host of one command has only a version.
fn build_of(upgrade: Option<&UpgradeConfig>, version: &str) -> String {
    upgrade.map_or_else(|| version.to_owned(), |upgrade| upgrade.build.clone())
}

/// A host with one client ends with it.
const fn lifetime(transport: &Transport) -> Lifetime {
    match transport {
        Transport::Stdio => Lifetime::Client,
        Transport::Share { .. } => Lifetime::Demand,
        Transport::Socket { .. } | Transport::Http(_) | Transport::Local(_) => Lifetime::Service,
    }
}

/// Over HTTP a connection of the core is a session or the link of a credential, each bounded by `http_sessions`.
fn with_sessions(mut limits: Limits, transport: &Transport) -> Limits {
    if matches!(transport, Transport::Http(_)) {
        limits.connections = limits.http_sessions.saturating_mul(2);
    }
    limits
}

fn run_plan(mut plan: Plan, log: &Log) -> Result<Core, ServeError> {
    let sinks = std::mem::take(&mut plan.sinks);
    let opened = sinks.open(plan.core.limits(), plan.resumed.is_some(), log);
    let recorder =
        opened.or_else(|error| plan.without("no_telemetry", error, log, Recorder::off()))?;
    let audit = open_audit(&mut plan, log)?;
    plan.core.set_audits(audit.is_on());
    let host = run(plan, log.clone(), recorder.clone(), audit.clone());
    let served = in_runtime(host, &recorder, log);
    audit.finish();
    log.flush();
    served
}

/// Opens the audit file, or takes it over.
fn open_audit(plan: &mut Plan, log: &Log) -> Result<AuditLog, ServeError> {
    let Some(config) = plan.audit.take() else {
        return Ok(AuditLog::off());
    };
    if let Some(resumed) = &mut plan.resumed
        && let Some(saved) = resumed.shell.audit.take()
    {
        let taken = AuditLog::resume(config, saved, &mut resumed.descriptors, log);
        return taken.map_err(|error| ServeError::State(error.to_string()));
    }
    Ok(AuditLog::open(config, &plan.facts.name, log)?)
}

/// A text that cannot be guessed.
fn secret() -> String {
    Hex(&entropy::random_id()).to_string()
}

/// Where events go, as a configuration names it.
#[derive(Default)]
struct Sinks {
    file: Option<PathBuf>,
    collector: Option<OtlpConfig>,
    mode: &'static str,
}

impl Sinks {
    fn open(self, limits: &Limits, resumed: bool, log: &Log) -> Result<Recorder, ServeError> {
        let recorder = match self.file {
            None => Recorder::off(),
            Some(path) => Recorder::start(&path, limits, resumed, log).map_err(|source| {
                let path = path.display().to_string();
                ServeError::Telemetry { path, source }
            })?,
        };
        match self.collector {
            None => Ok(recorder),
            Some(collector) => {
                recorder
                    .with_collector(collector, self.mode, log)
                    .map_err(|source| ServeError::Io {
                        what: "start the thread that sends spans",
                        source,
                    })
            }
        }
    }
}

/// Runs a host on a runtime of its own.
fn in_runtime<T: Send + 'static>(
    host: impl Future<Output = Result<T, ServeError>> + Send + 'static,
    recorder: &Recorder,
    log: &Log,
) -> Result<T, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| ServeError::Io {
            what: "start the runtime",
            source,
        })?;
    // As a task: a future that is blocked on is polled only after the runtime has looked for I/O,
    // which would cost every call two more system calls.
    let served = match runtime.block_on(runtime.spawn(host)) {
        Ok(served) => served,
        Err(error) => Err(ServeError::Io {
            what: "go on",
            source: error.into(),
        }),
    };
    // Threads that read a terminal cannot be interrupted; they end with the process.
    runtime.shutdown_background();
    recorder.finish();
    log.flush();
    served
}

async fn run(
    mut plan: Plan,
    log: Log,
    recorder: Recorder,
    audit: AuditLog,
) -> Result<Core, ServeError> {
    let mode = plan.facts.mode;
    crate::process::adopt();
    let limits = plan.core.limits().clone();
    let grace = Duration::from_millis(limits.grace_ms);
    let queue = Queue::new();
    let events = queue.sender();
    let mut upgrades = Upgrades::default();
    match plan.upgrade.take() {
        Some(config) => {
            upgrades = Upgrades::new(config.words, config.start, config.build);
            signals::watch_blocked(config.signals, &events, upgrades.pauses.watch())?;
        }
        None => signals::watch_ends(&events)?,
    }
    let failed = |error: io::Error| ServeError::State(error.to_string());
    if !plan.watch.is_empty() {
        let (inherited, marks) = match &mut plan.resumed {
            Some(resumed) => (
                resumed.take_inotify(),
                std::mem::take(&mut resumed.shell.marks),
            ),
            None => (None, Vec::new()),
        };
        // Before any worker reads its files, so that no change falls between.
        let watched = std::mem::take(&mut plan.watch);
        let started = FileWatch::start(watched, &marks, inherited, events.clone(), &log);
        let started = started.map(Some).map_err(|source| ServeError::Io {
            what: "watch files for changes",
            source,
        });
        let started = started.or_else(|error| plan.without("not_watching", error, &log, None))?;
        if let Some((inotify, marks)) = started {
            upgrades.inotify = Some(inotify);
            upgrades.marks = marks;
        }
    }
    let mut control = None;
    let Opened { place, source } = match &mut plan.resumed {
        None => open_transport(plan.transport)?,
        Some(resumed) => {
            if let Some(saved) = resumed.shell.control.take() {
                control = Some(Bound::restore(saved, &mut resumed.descriptors).map_err(failed)?);
            }
            Opened {
                place: String::new(),
                source: continue_transport(resumed, plan.transport).map_err(failed)?,
            }
        }
    };
    if let Clients::Many(bound) | Clients::Shared(bound) = &source {
        upgrades.listener = Arc::downgrade(bound);
    }
    let facts = FrontFacts {
        limits: limits.clone(),
        serves: plan.serves,
        envelopes: plan.envelopes.clone(),
        recorder: recorder.clone(),
        audit: audit.clone(),
        log: log.clone(),
    };
    let checkers = Checkers::new(&plan.shim, CheckLimits::DEFAULT, events.clone());
    let details = plan.ready_details;
    let line = format!("mcp:ready mode={mode}{place} {details}");
    let (closing, closed) = watch::channel(false);
    if control.is_none()
        && let Some(folder) = plan.control_dir
    {
        match control::open(&folder) {
            Ok(bound) => control = Some(bound),
            // The host serves its clients all the same.
            Err(error) => log.line(&format!("mcp:warning reason=no_control_socket {error}")),
        }
    }
    let pauses = upgrades.pauses.clone();
    if let Some(bound) = control {
        let (bound, reading) = (Arc::new(bound), Arc::clone(&upgrades.reading));
        upgrades.control = Arc::downgrade(&bound);
        let (events, log) = (events.clone(), log.clone());
        let audit = audit.clone();
        tokio::spawn(control::listen(
            bound,
            events,
            (log, audit),
            reading,
            pauses.watch(),
        ));
    }
    let mut engine = Engine::new(Setup {
        core: plan.core,
        launch: Launch {
            shim: plan.shim,
            commands: plan.commands,
            named_only: plan.named_only,
            vetting: BTreeMap::new(),
            programs: Programs::default(),
        },
        upgrade: upgrades,
        reports: Reports {
            log: log.clone(),
            recorder,
            audit,
            envelopes: plan.envelopes,
            watchdog: Watchdog::start(limits.stuck_ms, &log),
        },
        facts: plan.facts,
        announcement: Announcement {
            ready_file: plan.ready_file,
            level: plan.ready_level,
            line: (mode != "memory").then(|| line.trim_end().to_owned()),
        },
        checkers,
        queue,
        closing,
        tasks: plan.tasks,
    });
    let links = match plan.resumed {
        Some(resumed) => engine.resume(resumed).map_err(failed)?,
        None => Links::new(),
    };
    let reading = Arc::clone(&engine.upgrade_mut().sharing);
    let front = source.start(
        events.clone(),
        facts,
        links,
        closed,
        reading,
        pauses.watch(),
    );
    let front = front.map(|(front, listening)| {
        engine.set_front(front);
        listening
    });
    // The engine has its own sender; the loop ends when all others are gone.
    drop(events);
    if !place.is_empty() {
        log.line(&format!("mcp:listening mode={mode}{place}"));
    }
    let core = engine.run().await;
    if let Some(front) = front {
        front.drain(grace).await;
    }
    if mode != "memory" {
        log.line(&format!("mcp:shutdown mode={mode}"));
    }
    Ok(core)
}

/// The loop of a simulated host, and where its events go.
#[cfg(feature = "simulation")]
pub(crate) fn simulate(
    config: Result<Config, WrapConfig>,
) -> Result<(tokio::sync::mpsc::Sender<crate::engine::Event>, Engine), ServeError> {
    let log = Log::silent();
    let plan = match config {
        Ok(config) => Plan::packs(config, &log)?,
        Err(config) => Plan::wrapped(config, &log)?,
    };
    let queue = Queue::new();
    let events = queue.sender();
    let engine = Engine::new(Setup {
        core: plan.core,
        checkers: Checkers::new(&plan.shim, CheckLimits::DEFAULT, events.clone()),
        launch: Launch {
            shim: plan.shim,
            commands: plan.commands,
            named_only: plan.named_only,
            vetting: BTreeMap::new(),
            programs: Programs::default(),
        },
        reports: Reports {
            log,
            recorder: Recorder::off(),
            audit: AuditLog::off(),
            envelopes: plan.envelopes,
            watchdog: Watchdog::off(),
        },
        facts: plan.facts,
        announcement: Announcement::default(),
        upgrade: Upgrades::default(),
        queue,
        closing: watch::channel(false).0,
        tasks: plan.tasks,
    });
    Ok((events, engine))
}

/// Writes the ready file, unless another living host owns it; `level` is that of saying so. A host without its
/// ready file serves its clients all the same.
pub(crate) fn write_ready_file(
    path: Option<&std::path::Path>,
    level: Level,
    log: &Log,
) -> Option<ReadyFile> {
    let path = path?;
    let shown = path.display();
    match ReadyFile::write(path) {
        Ok(Written::Ours(file)) => return Some(file),
        Ok(Written::LeftAlone { owner }) => {
            let said = format!("mcp:warning reason=ready_file_in_use path={shown} owner={owner}");
            log.say(level, said);
        }
        Err(error) => {
            log.line(&format!(
                "mcp:warning reason=no_ready_file path={shown} {error}"
            ));
        }
    }
    None
}
