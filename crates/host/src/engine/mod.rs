//! The one loop that puts all events in order.
//!
//! Everything that happens to a host is an [`Event`]; the engine takes them one by one, tells the
//! kernel, and carries out the kernel's actions. It owns every session and every worker's handle;
//! nothing is shared but outboxes. Reading and writing go on in tasks of their own.

mod clients;
mod control;
mod envelopes;
mod listeners;
mod roots;
mod workers;

use std::collections::BTreeMap;

use mainstay_contract::dialect::{Dialect, Inbound, Op};
use mainstay_contract::envelope::Asked;
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_kernel::Kernel;
use mainstay_kernel::action::Action;
use mainstay_kernel::call::SlotId;
use mainstay_kernel::defect::{Defect, is_planted};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::clients::Conversation;
pub(crate) use self::clients::Single;
use self::control::Waiter;
use self::listeners::Listener;
use self::roots::ClientRoots;
use self::workers::Incarnation;
use crate::client_roots::Found;
use crate::clock::{Clock, iso_now};
use crate::config::{Config, Pack, Shim};
use crate::control::Control;
use crate::directory::{Directory, DirectoryError};
use crate::drivers::WorkerEvent;
use crate::entropy;
use crate::envelopes::Envelopes;
use crate::log::Log;
use crate::serve::Served;
use crate::system_tools;
use crate::telemetry::Recorder;
use crate::transport::{Client, ClientEvent};

/// Events that may wait for the loop.
const EVENTS: usize = 256;
/// Events taken before the loop looks at the clock again.
const BURST: usize = 64;

/// Everything that can happen.
#[derive(Debug)]
pub(crate) enum Event {
    Connected(Client),
    Inbound {
        session: SessionId,
        inbound: Box<Inbound>,
        bytes: usize,
    },
    Client(ClientEvent),
    /// One request that stands alone.
    Single(Box<Single>),
    Worker(WorkerEvent),
    /// The directories of a client's answer were looked at.
    RootsFound {
        question: u64,
        found: Result<Found, String>,
    },
    /// The client's roots are not waited for any longer.
    RootsOverdue {
        wait: u64,
    },
    /// An operator asks for something.
    Control(Control),
    /// The host is to stop.
    Stop,
    /// It has waited long enough for clients to take their last answers.
    LeaveClients,
}

impl From<Client> for Event {
    fn from(client: Client) -> Self {
        Self::Connected(client)
    }
}

impl From<ClientEvent> for Event {
    fn from(event: ClientEvent) -> Self {
        Self::Client(event)
    }
}

impl From<Control> for Event {
    fn from(control: Control) -> Self {
        Self::Control(control)
    }
}

impl TryFrom<Box<Single>> for Event {
    type Error = Box<Single>;

    fn try_from(single: Box<Single>) -> Result<Self, Box<Single>> {
        Ok(Self::Single(single))
    }
}

impl From<WorkerEvent> for Event {
    fn from(event: WorkerEvent) -> Self {
        Self::Worker(event)
    }
}

/// A pack cannot start as it is set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pack {pack} cannot start: {said}")]
pub struct SetupError {
    pub pack: String,
    /// In the pack's own words.
    pub said: String,
}

/// When the host ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// With its only client.
    Client,
    /// When it is told to.
    Service,
}

/// Whether clients may still expect something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Every request is answered; clients take what is in their outboxes.
    Closing,
}

/// The engine.
#[derive(Debug)]
pub(crate) struct Engine {
    kernel: Kernel,
    directory: Directory,
    packs: Vec<Pack>,
    shim: Shim,
    identity: Identity,
    clock: Clock,
    log: Log,
    recorder: Recorder,
    lifetime: Lifetime,
    phase: Phase,
    conversations: BTreeMap<SessionId, Conversation>,
    workers: BTreeMap<Generation, Incarnation>,
    /// Why the host cannot start: a pack said so before it was ever ready.
    setup: Option<SetupError>,
    /// Operators who wait for a rollout.
    waiters: Vec<Waiter>,
    /// Requests whose turn came before every pack was known.
    unrouted: BTreeMap<CallId, (Dialect, Op)>,
    roots: ClientRoots,
    envelopes: Envelopes,
    /// What the envelopes will be about that are not sent yet.
    asked: BTreeMap<CallId, Asked>,
    /// Subscriptions, which end when their clients want no more.
    listeners: BTreeMap<CallId, Listener>,
    events: mpsc::Sender<Event>,
    incoming: mpsc::Receiver<Event>,
}

#[derive(Debug)]
struct Identity {
    name: String,
    version: String,
    instructions: Option<String>,
    /// What operators call this host.
    host_name: String,
    mode: &'static str,
    started: String,
}

impl Engine {
    /// An engine for a configuration; its transport is not opened here.
    pub(crate) fn new(
        config: Config,
        mode: &'static str,
        lifetime: Lifetime,
        log: Log,
        recorder: Recorder,
    ) -> Result<Self, DirectoryError> {
        let own = system_tools::specs(&config.tooling_version);
        let directory = Directory::new(
            &config.packs,
            own,
            config.render,
            &config.limits,
            config.locked,
        )?;
        let names: Vec<&str> = config.packs.iter().map(|pack| pack.name.as_str()).collect();
        let seed = entropy::seed();
        let keep = config.limits.diagnostics;
        let kernel = Kernel::seeded(config.limits.clone(), &names, seed);
        let (events, incoming) = mpsc::channel(EVENTS);
        Ok(Self {
            kernel,
            directory,
            roots: ClientRoots::new(&config.packs, lifetime),
            packs: config.packs,
            shim: config.shim,
            identity: Identity {
                name: config.server_name,
                version: config.server_version,
                instructions: config.instructions,
                host_name: config.host_name,
                mode,
                started: iso_now(),
            },
            clock: Clock::start(),
            log,
            recorder,
            lifetime,
            phase: Phase::Open,
            conversations: BTreeMap::new(),
            workers: BTreeMap::new(),
            setup: None,
            waiters: Vec::new(),
            unrouted: BTreeMap::new(),
            envelopes: Envelopes::new(config.envelopes, config.envelope_ids, keep),
            asked: BTreeMap::new(),
            listeners: BTreeMap::new(),
            events,
            incoming,
        })
    }

    /// Where transports and drivers send what happens.
    pub(crate) fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }

    /// What is known about envelopes, for whoever sends them, too.
    pub(crate) fn envelopes(&self) -> Envelopes {
        self.envelopes.clone()
    }

    /// Runs until everything has ended.
    pub(crate) async fn run(mut self) -> Result<Served, SetupError> {
        self.go_on().await;
        self.record_hot_tools();
        if let Some(refused) = self.setup.take() {
            return Err(refused);
        }
        let mut served = self.directory.served();
        let workers = self.kernel.health(self.clock.now()).workers;
        for (name, fault) in &mut served.unknown {
            let worker = workers.iter().find(|worker| worker.name == *name);
            *fault = worker.and_then(|worker| worker.last_fault.clone());
        }
        Ok(served)
    }

    async fn go_on(&mut self) {
        let now = self.clock.now();
        for slot in (0..self.packs.len()).map(SlotId) {
            // What a pack offers must be known for the handshake, and only a worker can say it.
            if !self.roots.leads(slot) || !self.directory.is_known(slot) {
                self.kernel.warm(now, slot);
            }
        }
        self.act();
        let sleep = tokio::time::sleep_until(far_away(Instant::now()));
        tokio::pin!(sleep);
        while !self.is_done() {
            if let Some(at) = self.kernel.poll_timeout() {
                let at = self.clock.instant(at);
                // Only ever earlier: a timer that was removed costs one early look at the clock,
                // while moving the alarm for every call would cost each of them.
                if at < sleep.deadline() || sleep.is_elapsed() {
                    sleep.as_mut().reset(at);
                }
            } else if sleep.is_elapsed() {
                sleep.as_mut().reset(far_away(Instant::now()));
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
            // After every burst, so that no flood of events holds up a deadline.
            let now = self.clock.now();
            if self.kernel.poll_timeout().is_some_and(|at| at <= now) {
                self.kernel.handle_timeout(now);
                self.act();
            }
            if self.kernel.is_stopping() && self.phase == Phase::Open {
                self.close_conversations();
            }
        }
    }

    fn is_done(&self) -> bool {
        self.kernel.is_stopped() && self.conversations.is_empty() && self.workers.is_empty()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(client) => self.connect(client),
            Event::Inbound {
                session,
                inbound,
                bytes,
            } => self.receive(session, *inbound, bytes),
            Event::Client(ClientEvent::InputEnded { session }) => self.input_ended(session),
            Event::Client(ClientEvent::OutputTaken { session }) => self.pace(session),
            Event::Client(ClientEvent::OutputEnded { session, delivered }) => {
                self.output_ended(session, delivered);
            }
            Event::Single(single) => self.single(*single),
            Event::Worker(event) => self.worker(event),
            Event::RootsFound { question, found } => self.roots_found(question, found),
            Event::RootsOverdue { wait } => self.roots_overdue(wait),
            Event::Control(control) => self.control(control),
            Event::Stop => self.stop(),
            Event::LeaveClients => self.conversations.clear(),
        }
        #[cfg(feature = "simulation")]
        self.swap();
        self.act();
    }

    /// Replaces the kernel by the one that its own saved state describes.
    #[cfg(feature = "simulation")]
    fn swap(&mut self) {
        if !crate::sim::swaps_now() {
            return;
        }
        let restored = self.kernel.save().and_then(|text| Kernel::restore(&text));
        match restored {
            Ok(kernel) if kernel == self.kernel => self.kernel = kernel,
            other => {
                crate::sim::complain(&format!("the kernel is not restored: {:?}", other.err()))
            }
        }
    }

    /// Carries out what the kernel decided.
    fn act(&mut self) {
        while let Some(action) = self.kernel.poll_action() {
            match action {
                Action::Route { call, dialect, op } => self.route(call, dialect, op),
                Action::Serve { call, op } => self.serve(call, &op),
                Action::End(end) => self.answer(end),
                Action::Progress(notice) => self.notify(&notice),
                Action::Spawn { slot, generation } => self.spawn(slot, generation),
                Action::Send { generation, call } => self.send(generation, call),
                Action::Cancel { generation, call } => self.cancel(generation, call),
                Action::Ping { generation } => self.ping(generation),
                // Packs answer pings.
                Action::Look { .. } => {}
                Action::RolloutOver { .. } if is_planted(Defect::RolloutUnreported) => {}
                Action::RolloutOver { slot, result } => self.rollout_over(slot, &result),
                Action::Stop { generation, how } => self.stop_worker(generation, how),
                Action::SessionOver { session } => self.session_over(session),
            }
        }
        while let Some(loss) = self.kernel.poll_loss() {
            let pack = self.directory.pack_name(loss.slot);
            self.recorder
                .worker_lost(pack, loss.generation, &loss.fault);
        }
    }

    /// The tools most called and the slowest ones, for the event log.
    fn record_hot_tools(&self) {
        if self.recorder.wants_hot_tools() {
            let telemetry = self.kernel.telemetry();
            let is_tool = |name: &str| self.directory.has_tool(name);
            self.recorder.hot_tools(&telemetry, is_tool);
        }
    }
}

/// A deadline for "no deadline": the timer wheel wants an instant.
fn far_away(now: Instant) -> Instant {
    now + std::time::Duration::from_secs(3600)
}
