//! The core: everything that a host remembers and decides, as one value without I/O.
//!
//! Theory of operation. The shell calls [`Core::handle`] with an event and the time, then carries out what
//! [`Core::poll`] returns until it returns nothing, and calls again at [`Core::next_timeout`]. Clients are
//! sessions (`sessions`); packs are served by the catalog ([`crate::catalog`], `packs`), a wrapped server by
//! one [`Link`] per session ([`crate::server`], `links`), several servers beside packs by one link per session and
//! server (`merged`). All use one [`Kernel`], which decides about
//! admission, order, deadlines, replay and restarts. A request ends with one [`CoreAction::End`], whichever
//! front asked.
//!
//! The core never computes without a bound. Compiling a schema and checking a value are actions
//! ([`CoreAction::Check`]); the verdict comes back as an event, and other sessions are served meanwhile.
//!
//! The caller promises that time never goes back. The core promises that the same events at the same
//! times give the same actions, and that [`Core::save`] and [`Core::restore`] change nothing.

pub mod action;
mod approvals;
pub(crate) mod checks;
pub(crate) mod gate;
mod gather;
mod links;
mod listeners;
mod merged;
pub(crate) mod mismatches;
mod operators;
mod packs;
pub(crate) mod readiness;
mod roots;
mod sessions;
pub(crate) mod spans;
mod state;
pub mod tasks;
mod tool_lists;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mainstay_contract::control::CallInFlight;
use mainstay_contract::dialect::{Dialect, Op, TaskWish};
use mainstay_contract::envelope::Asked;
use mainstay_contract::health::{Health, Lifecycle, WorkerHealth};
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::metrics::{HostMetrics, PackMetrics};
use mainstay_contract::render::RenderMode;
use mainstay_contract::tool::Catalog;
use mainstay_contract::trace::TraceContext;
use mainstay_schema::check::Definition;
use serde::{Deserialize, Serialize};

use self::action::{CoreAction, CoreEvent, LogLevel};
use self::checks::Checks;
use self::gate::{Gates, Round};
use self::links::Links;
use self::operators::Rollouts;
pub use self::packs::SetupError;
use self::packs::Workers;
use self::readiness::Readiness;
use self::roots::ClientRoots;
use self::sessions::Front;
use self::spans::Spans;
pub use self::state::{STATE_VERSION, StateError};
use self::tasks::{NewTask, TaskRules, Tasks};
use self::tool_lists::ToolLists;
use crate::action::Action as Decision;
use crate::approvals::Policy;
use crate::call::{SlotId, Work};
use crate::catalog::{CatalogError, Offered, PackCatalog};
use crate::defect::{Defect, is_planted};
use crate::locked::Locked;
use crate::quotas::ToolQuotas;
use crate::server::ServerConfig;
use crate::time::Time;
use crate::tool_list::ToolListRules;
use crate::{Conduct, Kernel, system_tools};

/// The configuration of a core.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    pub limits: Limits,
    /// Jitter of restarts: hosts that lose their workers together then do not start them together.
    pub seed: u64,
    /// The first span id, if the host records spans of its own.
    pub span_seed: Option<u64>,
    /// Milliseconds of wall-clock time at which the core's time was zero.
    pub epoch_ms: u64,
    /// Name and version in handshakes.
    pub name: String,
    pub version: String,
    pub instructions: Option<String>,
    /// Version in the definitions of the host's own tools.
    pub tooling_version: String,
    /// Text form of answers when a client does not choose.
    pub render: RenderMode,
    /// The tools of packs that an operator has reviewed.
    pub locked: Option<Arc<Locked>>,
    pub packs: Vec<PackConfig>,
    /// One server that is wrapped alone, or servers with prefixes, which are served together and beside packs.
    pub servers: Vec<ServerConfig>,
    pub lifetime: Lifetime,
    /// The settings for tasks, by tool.
    pub tasks: TaskRules,
    /// The settings of `tools/list`.
    pub tool_list: ToolListRules,
    /// The rules for calls of all servers and packs.
    pub approvals: Policy,
    /// Random, for the ids of approvals.
    pub approval_secret: String,
    /// The host keeps an audit file.
    pub audits: bool,
    /// Quotas of callers, by tool.
    pub quotas: ToolQuotas,
}

/// A pack, as the core knows it.
#[derive(Clone, Debug)]
pub struct PackConfig {
    pub name: String,
    /// Handed to the worker as it starts.
    pub settings: Json,
    /// For built-in packs: the catalog that the worker must announce, and its build.
    pub expected: Option<(Catalog, String)>,
    /// The setting that the roots of the host's only client replace.
    pub follows_roots: Option<String>,
}

/// When the host ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifetime {
    /// With its only client.
    Client,
    /// On request.
    Service,
    /// After a time without clients.
    Demand,
}

/// The state of a whole host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Core {
    kernel: Kernel,
    identity: Identity,
    clock: Clock,
    catalog: PackCatalog,
    roots: ClientRoots,
    sessions: BTreeMap<SessionId, Front>,
    requests: BTreeMap<CallId, Box<Pending>>,
    links: Links,
    checks: Checks,
    workers: Workers,
    rollouts: Rollouts,
    readiness: Readiness,
    tasks: Tasks,
    #[serde(default)]
    tool_lists: ToolLists,
    #[serde(default)]
    gates: Gates,
    out: VecDeque<CoreAction>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Identity {
    name: String,
    version: String,
    instructions: Option<String>,
    lifetime: Lifetime,
}

/// The time of the event that is handled, and the numbers that depend on when the host started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Clock {
    now: Time,
    epoch_ms: u64,
    spans: Spans,
    /// When a host without clients ends.
    #[serde(default)]
    ends: Option<Time>,
}

/// A request whose operation the host still needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Pending {
    dialect: Dialect,
    op: Op,
    /// The request envelope that the answer refers to.
    asked: Option<Box<Asked>>,
    stage: PendingStage,
    /// The line of a client that several servers serve.
    #[serde(default)]
    line: Option<Json>,
    #[serde(default)]
    progress_token: Option<Json>,
    #[serde(default)]
    trace: Option<TraceContext>,
    /// The lists of servers that decide its route were read.
    #[serde(default)]
    gathered: bool,
    /// The link that serves it, where the host opened its session.
    house: Option<SlotId>,
    /// The client's wish for a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<TaskWish>,
    /// The definition of a pack's tool under which its arguments were checked.
    #[serde(default)]
    admitted: Option<Admitted>,
    /// The work for a pack, while the call is at the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<Box<Work>>,
    /// The client's members about questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round: Option<Box<Round>>,
}

/// A tool's definition at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Admitted {
    definition: Definition,
    /// The number of the tool's last change.
    epoch: u64,
}

impl Pending {
    const fn new(dialect: Dialect, op: Op, asked: Option<Box<Asked>>) -> Self {
        Self {
            dialect,
            op,
            asked,
            stage: PendingStage::Open,
            line: None,
            progress_token: None,
            trace: None,
            gathered: false,
            house: None,
            task: None,
            admitted: None,
            held: None,
            round: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PendingStage {
    /// The kernel has not asked for its route, or its route is known.
    Open,
    /// Its route cannot be known before a pack announces itself or a client's roots are known.
    Unrouted,
    /// It calls one of the host's own tools.
    Own(RenderMode),
    /// It is a subscription, which ends when its client wants no more.
    Listening,
    /// It is recorded as a task before it runs.
    Recording(Box<NewTask>),
}

impl Core {
    /// A core without sessions. Workers of packs are started by the first [`Core::start`].
    pub fn new(config: CoreConfig) -> Result<Self, CatalogError> {
        let own = system_tools::specs(&config.tooling_version);
        let (locked, rules) = (config.locked, config.tasks);
        let mut catalog = PackCatalog::new(own, config.render, &config.limits, locked, rules)?;
        let mut kernel = Kernel::seeded(config.limits, config.seed);
        kernel.set_quotas(config.quotas);
        let mut roots = ClientRoots::default();
        for pack in config.packs {
            let slot = kernel.add_slot(&pack.name, Conduct::Strict, None);
            catalog.add_pack(slot, &pack.name, pack.expected)?;
            let follows = pack
                .follows_roots
                .filter(|_| config.lifetime == Lifetime::Client);
            roots.add_pack(slot, pack.settings, follows);
        }
        Ok(Self {
            kernel,
            identity: Identity {
                name: config.name,
                version: config.version,
                instructions: config.instructions,
                lifetime: config.lifetime,
            },
            clock: Clock {
                now: Time::default(),
                epoch_ms: config.epoch_ms,
                spans: Spans::seeded(config.span_seed),
                ends: None,
            },
            catalog,
            roots,
            sessions: BTreeMap::new(),
            requests: BTreeMap::new(),
            links: Links::new(config.servers),
            checks: Checks::default(),
            workers: Workers::default(),
            rollouts: Rollouts::default(),
            readiness: Readiness::seeded(config.seed),
            tasks: Tasks::new(),
            tool_lists: ToolLists::new(config.tool_list),
            gates: Gates::new(config.approvals, config.approval_secret, config.audits),
            out: VecDeque::new(),
        })
    }

    /// Starts the workers of packs.
    pub fn start(&mut self, now: Time) {
        self.clock.now = now;
        self.report_lock();
        self.watch_clients();
        let slots: Vec<SlotId> = self.roots.slots().collect();
        for slot in slots {
            // The handshake needs the pack's catalog, and only a worker can announce it.
            if !self.roots.follows(slot) || !self.catalog.is_known(slot) {
                self.kernel.warm(now, slot);
            }
        }
        self.start_trial();
    }

    /// Logs what a lock does not cover.
    fn report_lock(&mut self) {
        let of_servers = self.links.configs();
        let mut locked = of_servers
            .filter_map(|server| server.locked.as_ref())
            .chain(self.catalog.locked());
        let is_partial = locked.any(|locked| locked.covers_tools_only());
        drop(locked);
        if is_partial {
            self.log(
                "mcp:warning reason=lock_covers_tools_only instructions, prompts, resources and \
                 templates are not held to it; mainstay lock write adds them"
                    .to_owned(),
            );
        }
    }

    /// Something happened.
    pub fn handle(&mut self, now: Time, event: CoreEvent) {
        self.clock.now = now;
        match event {
            CoreEvent::Line { session, line } => self.client_line(session, &line),
            CoreEvent::Oversize { session, head } => self.client_oversize(session, &head),
            CoreEvent::InputEnded { session } => self.input_ended(session),
            CoreEvent::Pace { session, behind } => self.pace(session, behind),
            CoreEvent::Gone { session } => self.gone(session),
            CoreEvent::Ask {
                session,
                request,
                bytes,
            } => self.ask(session, *request, bytes),
            CoreEvent::Worker { generation, news } => self.worker_news(generation, news),
            CoreEvent::Checked { .. } if is_planted(Defect::VerdictLost) => {}
            CoreEvent::Checked { ticket, verdict } => self.checked(ticket, verdict),
            CoreEvent::Served { call, outcome } => self.kernel.handle_served(now, call, outcome),
            CoreEvent::RootsFound { question, found } => self.roots_found(question, found),
            CoreEvent::Ledger { ticket, reply } => self.ledger_reply(ticket, reply),
            CoreEvent::Rollout {
                waiter,
                pack,
                reasons,
            } => self.rollout(waiter, pack.as_deref(), &reasons),
            CoreEvent::Lock(locked) => self.apply_lock(locked),
            CoreEvent::Rules(rules) => self.apply_rules(&rules),
            CoreEvent::Policy(policy) => self.apply_policy(policy),
            CoreEvent::Audited { ticket, written } => self.audited(ticket, written),
            CoreEvent::Settings(settings) => self.apply_settings(settings),
            CoreEvent::Servers { servers, restart } => self.apply_servers(servers, &restart),
            CoreEvent::Timeout => self.handle_timeout(),
            CoreEvent::Stop => self.stop(),
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<CoreAction> {
        loop {
            if let Some(action) = self.out.pop_front() {
                return Some(action);
            }
            if let Some(decision) = self.kernel.poll_action() {
                self.carry_out(decision);
            } else if let Some(loss) = self.kernel.poll_loss() {
                self.report_loss(loss);
            } else if !self.judge_next() && !self.settle_link() && !self.announce_ready() {
                return None;
            }
        }
    }

    /// When to call [`Core::handle`] with [`CoreEvent::Timeout`].
    pub fn next_timeout(&mut self) -> Option<Time> {
        let kernel = self.kernel.poll_timeout();
        let links = self.links_timeout();
        [
            kernel,
            links,
            self.roots.timeout(),
            self.readiness.timeout(),
            self.tasks.timeout(),
            self.gates.timeout(),
            self.clock.ends,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle_timeout(&mut self) {
        let now = self.clock.now;
        if self.kernel.poll_timeout().is_some_and(|at| at <= now) {
            self.kernel.handle_timeout(now);
            // A standby may have taken over.
            self.links.touch_all();
        }
        self.links_due();
        self.trial_due();
        self.tasks_due();
        self.gates_due();
        if self.roots.timeout().is_some_and(|at| at <= now) {
            self.roots_overdue();
        }
        if self.clock.ends.is_some_and(|at| at <= now) {
            self.clock.ends = None;
            self.kernel.handle_stop(now);
        }
    }

    /// Carries out a decision of the kernel.
    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Route { call } => self.route(call),
            Decision::Serve { call } => self.serve(call),
            Decision::End(end) => self.end_gated(end),
            Decision::Overdue { call } => self.overdue(call),
            Decision::Progress(notice) => self.out.push_back(CoreAction::Progress(notice)),
            Decision::Spawn { slot, generation } => self.spawn(slot, generation),
            Decision::Send { generation, call } => {
                self.order(generation, CoreAction::Call { generation, call });
            }
            Decision::Cancel { generation, call } => {
                self.order(generation, CoreAction::Cancel { generation, call });
            }
            Decision::Ping { generation } => {
                self.order(generation, CoreAction::Ping { generation });
            }
            Decision::Look { generation } => self.out.push_back(CoreAction::Look {
                generation,
                at_ping: false,
            }),
            Decision::RolloutOver { slot, result } => self.rollout_over(slot, &result),
            Decision::Stop { generation, how } => {
                self.out.push_back(CoreAction::Stop { generation, how });
            }
            Decision::Abandon { generation, fault } => {
                self.out
                    .push_back(CoreAction::Abandon { generation, fault });
            }
            Decision::SessionOver { session } => self.session_over_gated(session),
            Decision::SlotOver { slot } => self.links.remove(slot),
        }
    }

    /// True until the host must stop.
    pub fn is_serving(&self) -> bool {
        self.kernel.is_serving()
    }

    /// True if a client waits for nothing: its connection can be closed without losing an answer.
    pub fn is_idle_session(&self, session: SessionId) -> bool {
        let slots = self.slots_of_client(session);
        let mut links = slots.into_iter().filter_map(|slot| self.links.get(slot));
        self.kernel.is_idle_session(session)
            && self.gates.is_settled_for(session)
            && links.all(|link| match link.is_shared() {
                true => !link.has_subscriber(session),
                false => link.is_idle(&self.kernel),
            })
    }

    /// True once every request has its answer after [`CoreEvent::Stop`], and only workers are left to end.
    pub fn is_stopping(&self) -> bool {
        self.kernel.is_stopping() && self.gates.is_settled()
    }

    /// True once everything has ended after [`CoreEvent::Stop`].
    pub fn is_stopped(&self) -> bool {
        self.kernel.is_stopped() && self.gates.is_settled()
    }

    /// True if the shell should read on from this client.
    pub fn wants_input(&self, session: SessionId) -> bool {
        self.kernel.wants_input(session)
    }

    /// The wrapped session that a worker serves.
    pub fn client_of(&self, generation: Generation) -> Option<SessionId> {
        let slot = self.workers.slot_of(generation)?;
        self.links.get(slot)?.session()
    }

    /// The workers that serve this session alone.
    pub fn workers_of(&self, session: SessionId) -> impl Iterator<Item = Generation> {
        let slots = self.slots_of_client(session).into_iter();
        let own = slots.filter(|slot| !self.links.is_shared(*slot));
        own.flat_map(|slot| self.kernel.workers_of(slot))
    }

    fn slots_of_client(&self, session: SessionId) -> Vec<SlotId> {
        match self.sessions.get(&session) {
            Some(Front::Link(slot)) => vec![*slot],
            Some(Front::Packs { .. }) => self.member_slots(session),
            _ => Vec::new(),
        }
    }

    /// True if a client has one server, which may hold it back.
    pub fn has_one_server(&self, session: SessionId) -> bool {
        matches!(self.sessions.get(&session), Some(Front::Link(_)))
    }

    /// True if a worker belongs to one of several servers that are served together.
    pub fn is_served_beside_others(&self, slot: SlotId) -> bool {
        let server = self.server_of(slot);
        server.is_some_and(|server| self.links.served().any(|(key, _)| key == server))
    }

    /// True if several sessions share the server of a slot.
    pub fn is_shared(&self, slot: SlotId) -> bool {
        self.links.is_shared(slot)
    }

    /// The key of a worker's server, if it is one.
    pub fn server_of(&self, slot: SlotId) -> Option<&str> {
        self.links.get(slot).map(crate::server::Link::server)
    }

    /// The name of a worker's pack or server, in logs and health.
    pub fn name_of(&self, slot: SlotId) -> &str {
        self.kernel.slot_name(slot).unwrap_or_default()
    }

    /// True if known secrets must be taken out of what the server of a worker says.
    pub fn redacts_results(&self, generation: Generation) -> bool {
        let slot = self.workers.slot_of(generation);
        let link = slot.and_then(|slot| self.links.get(slot));
        link.is_some_and(crate::server::Link::redacts_results)
    }

    /// True if a worker belongs to a wrapped server.
    pub fn is_server(&self, slot: SlotId) -> bool {
        self.links.get(slot).is_some()
    }

    /// The limits in force.
    pub const fn limits(&self) -> &Limits {
        self.kernel.limits()
    }

    /// Counts of everything that ended.
    pub fn telemetry(&self) -> mainstay_contract::telemetry::Telemetry {
        self.kernel.telemetry()
    }

    /// The numbers behind `/metrics`.
    pub fn metrics(&self, now: Time) -> HostMetrics {
        let mut metrics = self.kernel.metrics(now);
        let packs = &mut metrics.packs;
        for (key, _) in self.links.served() {
            packs.insert(key.to_owned(), PackMetrics::default());
        }
        let slots = self.kernel.slot_ids();
        for (slot, worker) in slots.zip(self.kernel.health(now).workers) {
            let pack = packs.entry(self.pack_of(slot).to_owned()).or_default();
            pack.ready += usize::from(worker.state == Lifecycle::Ready);
            pack.queue_depth += worker.queue_depth;
            pack.in_flight += worker.in_flight;
        }
        for (name, lost) in self.workers.losses() {
            packs.entry(name.clone()).or_default().lost = *lost;
        }
        metrics
    }

    /// The tool calls in flight, the oldest first.
    pub fn calls_in_flight(&self, now: Time) -> Vec<CallInFlight> {
        self.kernel.calls_in_flight(now, |slot| self.pack_of(slot))
    }

    /// Ends a tool call in flight. False if there is none of this number.
    pub fn cancel_call(&mut self, now: Time, call: CallId) -> bool {
        self.clock.now = now;
        self.kernel.cancel_call(now, call)
    }

    /// The name of a slot's pack, or the key of its server.
    fn pack_of(&self, slot: SlotId) -> &str {
        self.server_of(slot).unwrap_or(self.name_of(slot))
    }

    /// Health of the host and of each worker.
    pub fn health(&self, now: Time) -> Health {
        let mut health = self.kernel.health(now);
        health.ready = self.is_ready();
        if health.workers.is_empty() && self.links.wrapped().is_some() && !health.ready {
            health.state = Lifecycle::Cold;
        }
        self.workers.fill(&mut health);
        for (slot, worker) in self.kernel.slot_ids().zip(&mut health.workers) {
            if let Some(facts) = self.sharing_facts(slot) {
                worker.facts = Some(facts);
            }
        }
        for (key, _) in self.links.served() {
            if self.links.slots_of(key).is_empty() {
                health.workers.push(WorkerHealth::cold(key));
            }
        }
        health
    }

    /// True if a tool of a pack, or of the host itself, has this name.
    pub fn has_tool(&self, name: &str) -> bool {
        self.catalog.has_tool(name)
    }

    /// Everything that packs offer.
    pub fn offered(&self) -> Offered {
        let workers = self.kernel.health(self.clock.now).workers;
        let fault_of = |pack: &str| {
            let worker = workers.iter().find(|worker| worker.name == pack);
            worker.and_then(|worker| worker.last_fault.clone())
        };
        Offered {
            instructions: self.identity.instructions.clone(),
            ..self.catalog.summary(fault_of)
        }
    }

    /// The reason why the host cannot start, if a pack gave one before it was ever ready.
    pub fn setup_error(&self) -> Option<&SetupError> {
        self.workers.setup_error()
    }

    /// True if no request is in flight and no verdict is awaited.
    pub fn is_idle(&self) -> bool {
        self.kernel.in_flight() == 0 && self.checks.is_empty() && self.gates.is_settled()
    }

    fn log(&mut self, line: String) {
        self.log_at(LogLevel::Always, line);
    }

    fn log_at(&mut self, level: LogLevel, line: String) {
        self.out.push_back(CoreAction::Log { level, line });
    }
}

/// An instant of the core in milliseconds of wall-clock time: the core counts from its start.
pub(crate) const fn wall_ms(epoch_ms: u64, now: Time) -> u64 {
    epoch_ms.saturating_add(now.as_micros() / 1000)
}
