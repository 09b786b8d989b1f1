//! The drive loop: moves bytes and carries out what the core decides.
//!
//! Everything that happens is an [`Event`]. The loop reports it to the [`Core`] and carries out its actions
//! until there are none. Reading and writing go on in tasks of their own, which share nothing with the loop
//! but outboxes and gates. No rule about MCP, tools or replay is here.

mod actions;
mod audit;
mod clients;
mod control;
mod encode;
mod isolate;
mod share;
#[cfg(feature = "simulation")]
mod simulated_upgrade;
mod upgrade;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use mainstay_contract::audit::AuditRecord;
use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::outcome::Problem;
use mainstay_kernel::Core;
use mainstay_kernel::core::action::{CoreEvent, RootsFound};
use mainstay_kernel::core::tasks::TaskReply;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::clients::Conversation;
pub(crate) use self::clients::{Links, Single};
use self::control::Operators;
use self::isolate::Origin;
pub use self::share::SHARE_HOST_VARIABLES;
pub(crate) use self::upgrade::{Resumed, Shell, Upgrades};
use self::workers::Incarnation;
pub(crate) use self::workers::{Commands, Launch, PackCommand};
use crate::audit::{AuditLog, Files};
use crate::check::{Checked, Checkers};
use crate::clock::Clock;
use crate::config::{Found, ReadLock, Reread};
use crate::control::Control;
use crate::drivers::WorkerEvent;
use crate::envelopes::Envelopes;
use crate::log::{Level, Log};
use crate::ready::ReadyFile;
use crate::serve::write_ready_file;
use crate::tasks::TaskLedger;
use crate::telemetry::Recorder;
use crate::transport::{Client, ClientEvent};
use crate::watchdog::{Doing, Watchdog};
use crate::wrap::MemoryFiles;

/// Events that may wait for the loop.
const EVENTS: usize = 256;
/// Events that are handled before the loop looks at the clock again.
const BURST: usize = 64;

/// Everything that can happen to a host.
#[derive(Debug)]
pub(crate) enum Event {
    Connected(Client),
    Line {
        session: SessionId,
        line: Vec<u8>,
    },
    /// A line over the limit; only its beginning was kept.
    Oversize {
        session: SessionId,
        head: Vec<u8>,
    },
    Client(ClientEvent),
    /// A single typed request.
    Single(Box<Single>),
    Worker(WorkerEvent),
    Checked(Checked),
    RootsFound {
        question: u64,
        found: Result<RootsFound, String>,
    },
    /// The ledger of tasks carried out an order, or could not.
    Ledger {
        ticket: u64,
        reply: Result<TaskReply, Problem>,
    },
    /// A record of the core is on the disk, or could not be written.
    Audited {
        ticket: u64,
        written: Result<(), String>,
    },
    Control(Control),
    /// The configuration must be read again.
    Reread,
    /// The configuration was read again, or cannot be used.
    Found(Result<Box<Found>, String>),
    /// The executable must be replaced by the one that is on disk now.
    Upgrade,
    /// The new executable has read the state of the host, and has this build; or why it has not.
    Proved(Result<String, String>),
    /// Descriptors ran out: the connection that has been idle for longest must go.
    Shed,
    Stop,
    /// The grace for clients that do not read their last answers is over.
    LeaveClients,
}

impl Event {
    /// Its kind in reports of the watchdog.
    const fn doing(&self) -> Doing {
        match self {
            Self::Connected(_) | Self::Shed => Doing::Connect,
            Self::Line { .. } | Self::Oversize { .. } => Doing::Request,
            Self::Client(_) => Doing::Client,
            Self::Single(_) => Doing::SingleRequest,
            Self::Worker(_) => Doing::Worker,
            Self::Checked(_) => Doing::Verdict,
            Self::RootsFound { .. } => Doing::ClientRoots,
            Self::Ledger { .. } => Doing::Ledger,
            Self::Audited { .. } => Doing::Audit,
            Self::Control(_) => Doing::Control,
            Self::Reread | Self::Found(_) => Doing::Reread,
            Self::Upgrade | Self::Proved(_) => Doing::Upgrade,
            Self::Stop | Self::LeaveClients => Doing::Stop,
        }
    }

    const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Line { session, .. }
            | Self::Oversize { session, .. }
            | Self::Client(
                ClientEvent::InputEnded { session }
                | ClientEvent::OutputTaken { session }
                | ClientEvent::OutputEnded { session, .. },
            ) => Some(*session),
            _ => None,
        }
    }
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

impl From<Box<Single>> for Event {
    fn from(single: Box<Single>) -> Self {
        Self::Single(single)
    }
}

impl From<WorkerEvent> for Event {
    fn from(event: WorkerEvent) -> Self {
        Self::Worker(event)
    }
}

impl From<Checked> for Event {
    fn from(checked: Checked) -> Self {
        Self::Checked(checked)
    }
}

/// The stage of a host's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Every request is answered; clients read what is in their outboxes.
    Closing,
}

/// The parts that a loop is made of.
pub(crate) struct Setup {
    pub(crate) core: Core,
    pub(crate) launch: Launch,
    pub(crate) reports: Reports,
    pub(crate) facts: HostFacts,
    pub(crate) announcement: Announcement,
    pub(crate) checkers: Checkers<Event>,
    pub(crate) queue: Queue,
    /// True as soon as the host drains: listeners close.
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) tasks: TaskLedger,
    pub(crate) upgrade: Upgrades,
}

/// How a host announces that it is ready.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    pub(crate) ready_file: Option<PathBuf>,
    /// The level at which a ready file of another host is logged.
    pub(crate) level: Level,
    pub(crate) line: Option<String>,
}

/// Where a host reports what it does.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    pub(crate) log: Log,
    pub(crate) recorder: Recorder,
    pub(crate) audit: AuditLog,
    pub(crate) envelopes: Envelopes,
    pub(crate) watchdog: Watchdog,
}

/// Facts of a host for its operators, and its files.
#[derive(Debug)]
pub(crate) struct HostFacts {
    /// The name that operators use.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) mode: &'static str,
    pub(crate) started: String,
    /// The files with what earlier runs learned about servers, by the keys of the servers.
    pub(crate) remembered: MemoryFiles,
    /// Reads the configuration again.
    pub(crate) reread: Option<Reread>,
    pub(crate) rereading: Rereading,
    /// Reads the lock of the packs again.
    pub(crate) read_lock: Option<ReadLock>,
}

/// State of reading the configuration again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rereading {
    #[default]
    No,
    Once,
    /// It must be read once more after that.
    Again,
}

/// The loop's own queue of events.
#[derive(Debug)]
pub(crate) struct Queue {
    events: mpsc::Sender<Event>,
    incoming: mpsc::Receiver<Event>,
}

impl Queue {
    pub(crate) fn new() -> Self {
        let (events, incoming) = mpsc::channel(EVENTS);
        Self { events, incoming }
    }

    /// Where transports, drivers and checkers send events.
    pub(crate) fn sender(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }
}

/// The loop.
pub(crate) struct Engine {
    core: Core,
    clock: Clock,
    launch: Launch,
    reports: Reports,
    facts: HostFacts,
    announcement: Announcement,
    /// The ready file, while the loop runs.
    ready_file: Option<ReadyFile>,
    checkers: Checkers<Event>,
    conversations: BTreeMap<SessionId, Conversation>,
    workers: BTreeMap<Generation, Incarnation>,
    operators: Operators,
    upgrade: Upgrades,
    /// Sessions whose gates may have to be moved.
    unpaced: BTreeSet<SessionId>,
    /// Counts uses of connections, to know which one was used last.
    uses: u64,
    closing: watch::Sender<bool>,
    phase: Phase,
    /// The peer whose event is being handled.
    handling: Origin,
    /// Records of the core that the disk does not have yet.
    unrecorded: usize,
    /// The files of the audit log, while they are handed over.
    audit_files: Option<Files>,
    queue: Queue,
    /// After the queue: its thread must not wait for a queue that is not read any more.
    tasks: TaskLedger,
}

impl Engine {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            core: setup.core,
            clock: Clock::start(),
            launch: setup.launch,
            reports: setup.reports,
            facts: setup.facts,
            announcement: setup.announcement,
            ready_file: None,
            checkers: setup.checkers,
            conversations: BTreeMap::new(),
            workers: BTreeMap::new(),
            operators: Operators::default(),
            upgrade: setup.upgrade,
            unpaced: BTreeSet::new(),
            uses: 0,
            closing: setup.closing,
            phase: Phase::Open,
            handling: Origin::Host,
            unrecorded: 0,
            audit_files: None,
            queue: setup.queue,
            tasks: setup.tasks,
        }
    }

    /// The state of upgrades, for the parts that a pause must wait for.
    pub(crate) const fn upgrade_mut(&mut self) -> &mut Upgrades {
        &mut self.upgrade
    }

    /// Where transports and drivers send events.
    pub(crate) fn events(&self) -> mpsc::Sender<Event> {
        self.queue.sender()
    }

    /// Runs until everything has ended.
    pub(crate) async fn run(mut self) -> Core {
        if !self.upgrade.resumed {
            self.core.start(self.clock.tick());
        }
        self.act();
        if self.upgrade.resumed {
            self.catch_up().await;
            self.follow_stop();
        }
        let sleep = tokio::time::sleep_until(far_away());
        tokio::pin!(sleep);
        while !self.is_done() {
            // Events were handled meanwhile: the host may be done, or stop.
            if self.upgrade.is_proved() {
                self.hand_over().await;
                self.follow_stop();
                continue;
            }
            #[cfg(feature = "simulation")]
            if crate::sim::is_upgrade_due() && self.core.is_serving() {
                self = self.upgraded().await;
                self.follow_stop();
                continue;
            }
            // After every burst, so that no flood of events delays a deadline.
            let next = self.core.next_timeout();
            if next.is_some_and(|at| at <= self.clock.now()) {
                self.handle_timeout();
            } else {
                let at = next.map_or_else(far_away, |at| self.clock.instant(at));
                // Only ever earlier: moving the alarm for every call would cost each of them.
                if at < sleep.deadline() || sleep.is_elapsed() {
                    sleep.as_mut().reset(at);
                }
                tokio::select! {
                    biased;
                    event = self.queue.incoming.recv() => {
                        let Some(event) = event else { break };
                        self.handle(event);
                        for _ in 0..BURST {
                            #[cfg(feature = "simulation")]
                            if crate::sim::is_upgrade_due() {
                                break;
                            }
                            let Ok(event) = self.queue.incoming.try_recv() else { break };
                            self.handle(event);
                        }
                    }
                    () = &mut sleep => {
                        self.clock.tick();
                    }
                }
            }
            self.follow_stop();
        }
        self.record_hot_tools();
        self.operators.refuse_all();
        self.core
    }

    /// Closes listeners when the core serves no more, and conversations when it stops.
    fn follow_stop(&mut self) {
        if !self.core.is_serving() {
            self.closing
                .send_if_modified(|closing| !std::mem::replace(closing, true));
        }
        if self.core.is_stopping() && self.phase == Phase::Open {
            self.close_conversations();
        }
    }

    fn is_done(&self) -> bool {
        self.core.is_stopped() && self.conversations.is_empty() && self.workers.is_empty()
    }

    fn handle(&mut self, event: Event) {
        #[cfg(feature = "simulation")]
        crate::sim::turn(event.doing().as_str());
        self.clock.tick();
        self.reports.watchdog.enter(event.doing(), event.session());
        match event {
            Event::Connected(client) => self.connect(client),
            Event::Line { session, line } => {
                self.unpaced.insert(session);
                self.report(CoreEvent::Line { session, line });
            }
            Event::Oversize { session, head } => {
                self.unpaced.insert(session);
                self.report(CoreEvent::Oversize { session, head });
            }
            Event::Client(ClientEvent::InputEnded { session }) => {
                self.report(CoreEvent::InputEnded { session });
            }
            Event::Client(ClientEvent::OutputTaken { session }) => {
                self.unpaced.insert(session);
            }
            Event::Client(ClientEvent::OutputEnded { session, delivered }) => {
                self.output_ended(session, delivered);
            }
            Event::Single(single) => self.single(*single),
            Event::Worker(event) => self.worker(event),
            Event::Checked(checked) => self.checked(checked),
            Event::RootsFound { question, found } => {
                self.upgrade.lookups -= 1;
                self.report(CoreEvent::RootsFound { question, found });
            }
            Event::Ledger { ticket, reply } => {
                self.tasks.count_reply();
                self.report(CoreEvent::Ledger { ticket, reply });
            }
            Event::Audited { ticket, written } => self.audited(ticket, written),
            Event::Control(control) => self.control(control),
            Event::Reread => self.reread(),
            Event::Found(found) => self.apply_found(found),
            Event::Upgrade => self.begin_upgrade(None, None, false),
            Event::Proved(proved) => self.proved(proved),
            Event::Shed => self.shed(),
            Event::Stop => {
                let detail = Some("a signal".to_owned());
                let record = AuditRecord::operator("stop", detail);
                self.reports.audit.record(record);
                self.report(CoreEvent::Stop);
            }
            Event::LeaveClients => self.conversations.clear(),
        }
        #[cfg(feature = "simulation")]
        self.swap();
        self.act();
        self.reports.watchdog.leave();
    }

    fn handle_timeout(&mut self) {
        #[cfg(feature = "simulation")]
        crate::sim::turn(Doing::Timer.as_str());
        self.reports.watchdog.enter(Doing::Timer, None);
        self.report(CoreEvent::Timeout);
        self.act();
        self.reports.watchdog.leave();
    }

    /// Replaces the core by the one that its own saved state describes.
    #[cfg(feature = "simulation")]
    fn swap(&mut self) {
        if !crate::sim::swaps_now() {
            return;
        }
        match self.core.save().and_then(|text| Core::restore(&text)) {
            Ok(core) if core == self.core => self.core = core,
            Ok(core) => {
                let (was, is) = (format!("{:?}", self.core), format!("{core:?}"));
                let same = was
                    .bytes()
                    .zip(is.bytes())
                    .take_while(|(a, b)| a == b)
                    .count();
                let from = same.saturating_sub(120);
                let (was, is) = (was.get(from..same + 80), is.get(from..same + 80));
                crate::sim::complain(&format!("was {was:?}, is {is:?}"));
            }
            Err(error) => crate::sim::complain(&error.to_string()),
        }
    }

    /// Reports an event to the core.
    fn report(&mut self, event: CoreEvent) {
        let now = self.clock.now();
        self.handling = Origin::of(&event);
        self.guarded(|core| core.handle(now, event));
    }

    /// Carries out what the core decided, until it has nothing more.
    fn act(&mut self) {
        loop {
            while let Some(action) = self.guarded(Core::poll).flatten() {
                self.carry_out(action);
            }
            let Some(session) = self.unpaced.pop_first() else {
                return;
            };
            self.pace(session);
        }
    }

    /// Announces that calls are served from now on.
    fn announce(&mut self) {
        let Announcement {
            ready_file,
            level,
            line,
        } = std::mem::take(&mut self.announcement);
        let log = &self.reports.log;
        self.ready_file = write_ready_file(ready_file.as_deref(), level, log);
        if let Some(line) = line {
            log.line(&line);
        }
    }

    /// The tools most called and the slowest ones, for the event file.
    fn record_hot_tools(&self) {
        let recorder = &self.reports.recorder;
        if recorder.wants_hot_tools() {
            let is_tool = |name: &str| self.core.has_tool(name);
            recorder.hot_tools(&self.core.telemetry(), is_tool);
        }
    }
}

/// An instant for "no deadline": the timer needs one.
fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
