//! The engine of one wrapped connection: one client, one server at a time, one kernel.
//!
//! It is the same loop as that of the packs: everything that happens is an [`Event`], taken one by
//! one, told to the kernel, and the kernel's actions are carried out. The kernel has one session
//! and one slot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_contract::control::{ControlReply, HostStatus, RolledOut};
use mainstay_contract::health::Health;
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::metrics::HostMetrics;
use mainstay_kernel::action::Action;
use mainstay_kernel::call::SlotId;
use mainstay_kernel::time::Time;
use mainstay_kernel::{Conduct, Kernel};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Locked;
use super::asks::Asks;
use super::client::Passed;
use super::lists::{Kind, Seen};
use super::memory;
use super::output::Outputs;
use super::remembered::Remembered;
use super::rules::Rules;
use super::server::Server;
use super::told::Told;
use super::tools::Tools;
use crate::clock::Clock;
use crate::config::{Command, Shim};
use crate::drivers::{What, WorkerEvent};
use crate::entropy;
use crate::log::Log;
use crate::outbox::Outbox;
use crate::telemetry::Recorder;
use crate::transport::{ClientEvent, Gate};

/// Events that may wait for the loop.
const EVENTS: usize = 256;
/// Events taken before the loop looks at the clock again.
const BURST: usize = 64;
/// The only slot.
pub(super) const SLOT: SlotId = SlotId(0);
/// After a replacement that failed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How often memory and idleness are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Everything that can happen.
#[derive(Debug)]
pub(super) enum Event {
    /// The client said a line.
    Line(Vec<u8>),
    /// The client said a line that is too long; its beginning.
    Oversize(Vec<u8>),
    Client(ClientEvent),
    Worker(WorkerEvent),
    Status(oneshot::Sender<HostStatus>),
    Metrics(oneshot::Sender<HostMetrics>),
    Rollout(oneshot::Sender<ControlReply>),
    /// For how long has nothing been done? Nothing is said while something is.
    Idle(oneshot::Sender<Duration>),
    /// Stop the server until it is needed again, if nothing is going on.
    Rest,
    /// The operator has changed the rules.
    Rules(Arc<Rules>),
    /// The host is to stop.
    Stop,
    /// It has waited long enough for the client to take its last answers.
    LeaveClient,
}

impl From<ClientEvent> for Event {
    fn from(event: ClientEvent) -> Self {
        Self::Client(event)
    }
}

impl From<WorkerEvent> for Event {
    fn from(event: WorkerEvent) -> Self {
        Self::Worker(event)
    }
}

/// What every connection of a host has in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) name: String,
    pub(super) command: Arc<Command>,
    pub(super) rules: Arc<Rules>,
    pub(super) locked: Option<Arc<Locked>>,
    pub(super) remembered: Option<Remembered>,
    pub(super) limits: Limits,
    pub(super) shim: Shim,
    pub(super) log: Log,
    pub(super) recorder: Recorder,
    pub(super) host_name: String,
    pub(super) version: String,
    pub(super) mode: &'static str,
    pub(super) started: String,
    /// Servers that run now, of all connections.
    pub(super) running: Arc<AtomicUsize>,
}

/// The client's side of the connection.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) outbox: Outbox,
    pub(super) gate: Gate,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) common: Common,
    pub(super) kernel: Kernel,
    pub(super) clock: Clock,
    pub(super) session: SessionId,
    /// Gone once the client is.
    pub(super) client: Option<ClientSide>,
    closing: bool,
    pub(super) servers: BTreeMap<Generation, Server>,
    pub(super) told: Told,
    pub(super) asks: Asks,
    pub(super) tools: Tools,
    /// The lists as the client last saw them.
    pub(super) seen: BTreeMap<Kind, Seen>,
    /// Those that a new server may list differently.
    pub(super) comparing: BTreeSet<Kind>,
    pub(super) outputs: Outputs,
    /// What is known about the requests in flight.
    pub(super) passed: BTreeMap<CallId, Passed>,
    /// Calls that wait until the tools are known.
    pub(super) held: Vec<(CallId, Time)>,
    /// When, in the knowledge about tools, the client began its list.
    pub(super) list_begun: u64,
    /// Notices of the client for the next server, each with the last request before it.
    pub(super) later: VecDeque<(CallId, Json)>,
    /// The client's last request.
    pub(super) last_call: CallId,
    /// Progress tokens of calls that were given up.
    pub(super) silenced: VecDeque<String>,
    /// The last modern request's `_meta`, for requests of our own.
    pub(super) meta: Option<Json>,
    /// The server that got requests last.
    pub(super) served_by: Option<Generation>,
    /// The one whose tools are those that count.
    pub(super) met: Option<Generation>,
    /// Whether the client sees resources that only we have.
    pub(super) lends_resources: bool,
    /// A restart of which the client has not been told in a result.
    pub(super) restarted: Option<Generation>,
    /// So that nobody else chooses ids like ours.
    nonce: u64,
    pub(super) next_own: u64,
    /// Lines of servers that were no messages.
    pub(super) junk: u64,
    rollouts: Vec<oneshot::Sender<ControlReply>>,
    last_work: Time,
    next_look: Instant,
    /// How many of the running servers are ours.
    counted: usize,
    pub(super) events: mpsc::Sender<Event>,
    incoming: mpsc::Receiver<Event>,
}

impl Engine {
    /// An engine; its client is connected with [`Engine::connect`].
    pub(super) fn new(common: Common, seed: u64) -> Self {
        let (events, incoming) = mpsc::channel(EVENTS);
        let mut kernel = Kernel::seeded(common.limits.clone(), &[common.name.as_str()], seed)
            .with_conduct(Conduct::Lenient);
        let session = kernel.open_session();
        let tools = Tools::new(Arc::clone(&common.rules), common.locked.clone());
        let clock = Clock::start();
        Self {
            kernel,
            session,
            client: None,
            closing: false,
            servers: BTreeMap::new(),
            told: Told::default(),
            asks: Asks::default(),
            tools,
            seen: BTreeMap::new(),
            comparing: BTreeSet::new(),
            outputs: Outputs::default(),
            passed: BTreeMap::new(),
            held: Vec::new(),
            list_begun: 0,
            nonce: entropy::nonce(),
            later: VecDeque::new(),
            last_call: CallId::new(0),
            silenced: VecDeque::new(),
            meta: None,
            served_by: None,
            met: None,
            lends_resources: false,
            restarted: None,
            next_own: 0,
            junk: 0,
            rollouts: Vec::new(),
            last_work: clock.now(),
            next_look: Instant::now() + LOOK,
            counted: 0,
            clock,
            common,
            events,
            incoming,
        }
    }

    /// Where transports and drivers send what happens.
    pub(super) fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }

    /// Runs until client and servers have gone.
    pub(super) async fn run(mut self) -> HostMetrics {
        self.go_on().await;
        self.kernel.metrics(self.clock.now())
    }

    async fn go_on(&mut self) {
        if !self.common.rules.lazy {
            self.kernel.warm(self.clock.now(), SLOT);
        }
        self.act();
        let sleep = tokio::time::sleep_until(Instant::now() + LOOK);
        tokio::pin!(sleep);
        while !self.is_done() {
            let at = self.wake_at();
            // Only ever earlier: moving the alarm for every call would cost each of them.
            if at < sleep.deadline() || sleep.is_elapsed() {
                sleep.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                event = self.incoming.recv() => {
                    let Some(event) = event else { return };
                    self.handle(event);
                    for _ in 0..BURST {
                        let Ok(event) = self.incoming.try_recv() else { break };
                        self.handle(event);
                    }
                }
                () = &mut sleep => {}
            }
            let now = self.clock.now();
            if self.kernel.poll_timeout().is_some_and(|at| at <= now) {
                self.kernel.handle_timeout(now);
                self.act();
            }
            self.time_passed(now);
            if self.kernel.is_stopping() && !self.closing {
                self.close_client();
            }
        }
    }

    fn is_done(&self) -> bool {
        self.kernel.is_stopped() && self.client.is_none() && self.servers.is_empty()
    }

    fn wake_at(&self) -> Instant {
        let start_ms = self.kernel.limits().start_timeout_ms;
        let servers = self.servers.values();
        let own = servers.filter_map(|server| server.own_deadline(start_ms));
        let kernel = self.kernel.poll_timeout();
        let held = self.held.iter().map(|(_, until)| *until);
        let first = own.chain(kernel).chain(held).min();
        let far = Instant::now() + Duration::from_secs(3600);
        let rules = &self.common.rules;
        let looks = rules.idle_stop.is_some() || rules.max_memory.is_some();
        let look = if looks { self.next_look } else { far };
        first.map_or(look, |at| self.clock.instant(at).min(look))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Line(line) => self.client_line(&line),
            Event::Oversize(head) => self.client_oversize(&head),
            Event::Client(ClientEvent::InputEnded { .. }) => self.input_ended(),
            Event::Client(ClientEvent::OutputTaken { .. }) => self.pace(),
            Event::Client(ClientEvent::OutputEnded { .. }) => self.client_gone(),
            Event::Worker(event) => {
                // A server that is gone holds the client back no longer.
                let unblocks = matches!(event.what, What::CaughtUp | What::Lost(_) | What::Reaped);
                self.worker(event);
                if unblocks {
                    self.pace();
                }
            }
            Event::Status(reply) => {
                let _ = reply.send(self.status());
            }
            Event::Metrics(reply) => {
                let _ = reply.send(self.kernel.metrics(self.clock.now()));
            }
            Event::Rollout(reply) => {
                self.rollouts.push(reply);
                self.kernel.handle_rollout(self.clock.now(), SLOT);
            }
            Event::Idle(reply) => {
                if self.is_idle() && !self.servers.is_empty() {
                    let ms = self.clock.now().ms_since(self.last_work);
                    let _ = reply.send(Duration::from_millis(ms));
                }
            }
            Event::Rest => {
                if self.is_idle() {
                    self.rest("others need the place");
                }
            }
            Event::Rules(rules) => self.obey(&rules),
            Event::Stop => {
                self.cancel_endless();
                self.kernel.handle_stop(self.clock.now());
            }
            Event::LeaveClient => self.client = None,
        }
        self.act();
    }

    /// Carries out what the kernel decided.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.kernel.poll_action() {
            match action {
                Action::Route { call, .. } => self.hold(call),
                Action::Serve { call, .. } => self.serve_own(call),
                Action::End(end) => self.answer(&end),
                // Servers report progress in their own words.
                Action::Progress(_) => {}
                Action::Spawn { generation, .. } => self.spawn(generation),
                Action::Send { generation, call } => self.send(generation, &call),
                Action::Cancel { generation, call } => self.cancel(generation, call),
                Action::Ping { generation } => self.ping(generation),
                Action::Look { generation } => self.look(generation),
                Action::RolloutOver { result, .. } => {
                    if result.is_err() {
                        // It is tried again, but not at once.
                        self.next_look = Instant::now() + LOOK_AGAIN;
                        for server in self.servers.values_mut() {
                            server.outgrown = false;
                        }
                    }
                    let pack = self.common.name.clone();
                    for reply in std::mem::take(&mut self.rollouts) {
                        let (pack, result) = (pack.clone(), result.clone());
                        let _ =
                            reply.send(ControlReply::RolledOut(vec![RolledOut { pack, result }]));
                    }
                }
                Action::Stop { generation, how } => {
                    if let Some(server) = self.servers.get(&generation) {
                        server.handle.stop(how);
                    }
                }
                Action::SessionOver { .. } => {
                    if let Some(client) = &self.client {
                        client.outbox.close();
                    }
                }
            }
        }
        while let Some(loss) = self.kernel.poll_loss() {
            if let Some(server) = self.servers.get(&loss.generation) {
                let words = server.handle.last_words();
                self.kernel.handle_words(loss.generation, &words);
            }
            let (name, fault) = (&self.common.name, &loss.fault);
            let line = format!("mcp:warning reason=worker_lost pack={name} {fault}");
            self.common.log.line(&line);
            let recorder = &self.common.recorder;
            recorder.worker_lost(name, loss.generation, fault);
        }
        self.count();
        let serving = self.serving();
        if serving.is_some() && serving != self.served_by {
            let before = std::mem::replace(&mut self.served_by, serving);
            self.taken_over(before);
        }
    }

    /// The server that gets requests now, if there is one.
    pub(super) fn serving(&self) -> Option<Generation> {
        self.kernel.serving(SLOT)
    }

    /// A fresh id for a request of our own. A client that chooses the same would have to guess it.
    pub(super) fn own_id(&mut self) -> RequestId {
        self.next_own += 1;
        let raw = format!("\"io.mainstay/{:x}/{}\"", self.nonce, self.next_own);
        // Short, and a string.
        RequestId::parse(&raw).unwrap_or_else(|_| unreachable_id())
    }

    /// Gives the client a line.
    pub(super) fn tell_client(&self, line: &str) {
        if let Some(client) = &self.client {
            client.outbox.push(line);
        }
    }

    /// Whether the client does not take what it is sent.
    pub(super) fn client_is_behind(&self) -> bool {
        let client = self.client.as_ref();
        client.is_some_and(|client| client.outbox.is_behind())
    }

    /// Something is going on: the server is not idle.
    pub(super) fn worked(&mut self) {
        self.last_work = self.clock.now();
    }

    fn time_passed(&mut self, now: Time) {
        self.own_requests_due(now);
        if Instant::now() < self.next_look {
            return;
        }
        self.next_look = Instant::now() + LOOK;
        self.pace();
        let rules = Arc::clone(&self.common.rules);
        if let Some(seconds) = rules.idle_stop
            && now.ms_since(self.last_work) >= seconds.saturating_mul(1000)
            && self.is_idle()
        {
            self.rest("it had nothing to do");
        }
        if let Some(most) = rules.max_memory {
            self.look_at_memory(most);
        }
    }

    /// Nothing is going on that needs a server.
    fn is_idle(&self) -> bool {
        !self.told.has_subscriptions() && !self.asks.any() && self.kernel.in_flight() == 0
    }

    /// Stops the server until it is needed again.
    fn rest(&mut self, why: &str) {
        if self.kernel.rest(SLOT) {
            let name = &self.common.name;
            let said =
                format!("mcp:idle pack={name} the server was stopped until it is needed: {why}");
            self.common.log.say(crate::log::Level::Info, said);
            self.act();
        }
    }

    /// Keeps the count of all running servers.
    fn count(&mut self) {
        let now = self.servers.len();
        let running = &self.common.running;
        if now > self.counted {
            running.fetch_add(now - self.counted, Ordering::Relaxed);
        } else if now < self.counted {
            running.fetch_sub(self.counted - now, Ordering::Relaxed);
        }
        self.counted = now;
    }

    fn look_at_memory(&mut self, most: u64) {
        let serving = self
            .serving()
            .and_then(|serving| self.servers.get_mut(&serving));
        let Some(server) = serving.filter(|server| !server.outgrown) else {
            return;
        };
        let used = memory::of_tree(server.pid());
        if used > most {
            server.outgrown = true;
            self.common.log.line(&format!(
                "mcp:warning reason=too_much_memory pack={} bytes={used} limit={most}",
                self.common.name
            ));
            self.kernel.handle_rollout(self.clock.now(), SLOT);
            self.act();
        }
    }

    /// Every request is answered: the client gets what is in its outbox, and some time to take it.
    fn close_client(&mut self) {
        self.closing = true;
        if let Some(client) = &self.client {
            client.outbox.close();
        }
        let (events, grace) = (self.events(), self.kernel.limits().grace_ms);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(grace)).await;
            let _ = events.send(Event::LeaveClient).await;
        });
    }

    /// The kernel's health, with what only the drivers know.
    pub(super) fn health(&self) -> Health {
        let mut health = self.kernel.health(self.clock.now());
        for worker in &mut health.workers {
            if let Some(server) = self.servers.get(&worker.generation) {
                worker.pid = server.process.map(|(pid, _)| pid);
                worker.tree_kill = server.process.map(|(_, rung)| rung.to_owned());
            }
        }
        health
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            pid: std::process::id(),
            name: self.common.host_name.clone(),
            version: self.common.version.clone(),
            mode: self.common.mode.to_owned(),
            started: self.common.started.clone(),
            health: self.health(),
            totals: self.kernel.telemetry().totals,
        }
    }
}

#[expect(clippy::unreachable, reason = "a short string is always an id")]
fn unreachable_id() -> RequestId {
    unreachable!("a short string is always an id")
}
