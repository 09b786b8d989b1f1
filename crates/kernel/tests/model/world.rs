//! The driver: it plays events, obeys the kernel, and knows what every worker was sent.

use std::collections::{BTreeMap, VecDeque};

use mainstay_contract::dialect::{Cancel, Dialect};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::health::Lifecycle;
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Success;
use mainstay_contract::rpc::{Answer, Progress};
use mainstay_kernel::action::Sight;
use mainstay_kernel::call::{SlotId, Work};
use mainstay_kernel::time::Time;
use mainstay_kernel::{Conduct, Kernel};

use super::crew::{State, Worker, choose};
use super::router::{self, Errand};
use super::script::{Ask, Event, Reply, Routing, Speaks};
use super::{Asked, Gauges, Input, SLOTS, Script, Step, Trace, wire};

/// More sessions are not opened at once.
const SESSIONS: usize = 5;
/// More slots are not open at once.
const OPEN_SLOTS: usize = 3;
/// The simulated driver.
#[derive(Debug)]
pub struct World {
    pub kernel: Kernel,
    pub now: Time,
    pub trace: Trace,
    pub(super) sessions: Vec<Client>,
    pub(super) errands: BTreeMap<CallId, Errand>,
    /// The requests that are routed before anything else happens.
    pub(super) at_once: VecDeque<CallId>,
    /// Workers that the kernel wants to be looked at.
    pub(super) to_look_at: VecDeque<Generation>,
    pub(super) abandoned: VecDeque<Generation>,
    pub(super) serving: Vec<CallId>,
    pub(super) workers: BTreeMap<Generation, Worker>,
    /// Answers that the driver checks.
    pub(super) checking: Vec<(CallId, Answer)>,
    pub(super) slots: Vec<SlotState>,
    conduct: Conduct,
    restarts: u64,
    asked: u64,
    /// The state of workers' processes.
    sight: Sight,
}

/// How far a slot got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    Open,
    Closing,
    Over,
}

/// A simulated client.
#[derive(Debug)]
pub struct Client {
    pub id: SessionId,
    pub speaks: Speaks,
    pub input_ended: bool,
    pub over: bool,
}

impl World {
    /// Plays a script to its end; before event `takeover`, another binary takes the state over.
    pub fn play(script: &Script, takeover: Option<usize>) -> Trace {
        let mut world = Self::new(script.limits.clone(), script.conduct);
        for (index, event) in script.events.iter().enumerate() {
            if takeover == Some(index) {
                let state = serde_json::to_string(&world.kernel).unwrap();
                let restored = serde_json::from_str(&state).unwrap();
                assert_eq!(restored, world.kernel, "nothing is lost in the state");
                world.kernel = restored;
            }
            world.play_event(*event);
        }
        world.finish(script.finale);
        world.trace
    }

    /// A kernel with one MCP and one direct client.
    pub fn new(limits: Limits, conduct: Conduct) -> Self {
        let mut kernel = Kernel::seeded(limits.clone(), 0);
        for name in SLOTS {
            kernel.add_slot(name, conduct, None);
        }
        let mut world = Self {
            kernel,
            now: Time::from_ms(1000),
            trace: Trace {
                limits,
                steps: Vec::new(),
            },
            sessions: Vec::new(),
            errands: BTreeMap::new(),
            at_once: VecDeque::new(),
            to_look_at: VecDeque::new(),
            abandoned: VecDeque::new(),
            serving: Vec::new(),
            workers: BTreeMap::new(),
            checking: Vec::new(),
            slots: vec![SlotState::Open; SLOTS.len()],
            conduct,
            restarts: 0,
            asked: 0,
            sight: Sight::Runs,
        };
        world.play_event(Event::Open(Speaks::Mcp));
        world.play_event(Event::Open(Speaks::Direct));
        world
    }

    /// Plays one event.
    pub fn play_event(&mut self, event: Event) {
        match event {
            Event::Open(speaks) => self.open(speaks),
            Event::Ask {
                session,
                id,
                direct,
                ask,
                routing,
            } => self.ask(session, id, direct, ask, routing),
            Event::Cancel { session, id, kind } => {
                if let Some(session) = self.pick_session(session, |client| !client.over) {
                    let target = wire::request_id(id);
                    let cancel = Cancel {
                        target: target.clone(),
                        kind,
                    };
                    self.kernel.handle_cancel(self.now, session, &cancel);
                    self.step(Input::Cancel {
                        session,
                        target,
                        kind,
                    });
                }
            }
            Event::EndInput(pick) => {
                if let Some(session) = self.pick_session(pick, |client| !client.input_ended) {
                    self.end_input(session);
                }
            }
            Event::Leave(pick) => {
                if let Some(session) = self.pick_session(pick, |client| !client.over) {
                    self.client(session).input_ended = true;
                    self.kernel.handle_gone(self.now, session);
                    self.step(Input::Gone(session));
                }
            }
            Event::Route { pick, stale } => {
                if let Some(call) = self.pick_errand(pick, stale) {
                    self.route(call);
                }
            }
            Event::Clock { pick, timeout_ms } => {
                if let Some(call) = self.pick_errand(pick, false) {
                    self.kernel.start_clock(self.now, call, timeout_ms);
                    self.step(Input::Clocked { call, timeout_ms });
                }
            }
            Event::Serve(pick) => self.serve(pick),
            Event::Ready(pick) => {
                if let Some(generation) = self.pick_worker(pick, |w| w.state == State::Spawned) {
                    self.ready(generation);
                }
            }
            Event::Answer {
                pick,
                reply,
                anything,
                held,
            } => {
                if let Some((generation, at)) = self.pick_sent(pick, anything) {
                    self.answer(generation, at, reply, held);
                }
            }
            Event::Check(pick) => self.check(pick),
            Event::Progress {
                pick,
                done,
                anything,
            } => {
                if let Some((generation, at)) = self.pick_sent(pick, anything) {
                    self.progress(generation, at, done);
                }
            }
            Event::Die {
                pick,
                unsent,
                unready,
            } => {
                if let Some(generation) = self.pick_worker(pick, Worker::lives) {
                    self.die(generation, usize::from(unsent), unready);
                }
            }
            Event::Reap { pick, sudden } => {
                let may_go = |w: &Worker| w.state == State::Dead || w.told_to_end || sudden;
                if let Some(generation) =
                    self.pick_worker(pick, |w| w.state != State::Reaped && may_go(w))
                {
                    self.reap(generation);
                }
            }
            Event::Unfit(pick) => {
                if let Some(generation) = self.pick_worker(pick, Worker::lives) {
                    let fault = Fault::new(ErrorKind::WorkerProtocol, "unfit").of(generation);
                    self.kernel.handle_unfit(self.now, generation, &fault);
                    self.step(Input::Unfit(generation));
                }
            }
            Event::Looks(sight) => self.sight = sight,
            Event::Drift(ms) => {
                self.now = self.now.plus_ms(ms);
                self.step(Input::Drifted);
            }
            Event::Wait(ms) => self.tick(self.now.plus_ms(ms)),
            Event::WaitForTimer => self.tick(self.kernel.poll_timeout().unwrap_or(self.now)),
            Event::Warm(pick) => {
                let slot = self.pick_slot(pick);
                self.kernel.warm(self.now, SlotId(slot));
                self.step(Input::Warmed(slot));
            }
            Event::Reopen(pick) => {
                let slot = self.pick_slot(pick);
                self.kernel.handle_rollout(self.now, SlotId(slot));
                self.step(Input::Reopened(slot));
            }
            Event::AddSlot => {
                let open = self.slots.iter().filter(|slot| **slot == SlotState::Open);
                if open.count() < OPEN_SLOTS {
                    let client = self.sessions.last().map(|client| client.id);
                    let slot = self.kernel.add_slot("more", self.conduct, client);
                    assert_eq!(slot, SlotId(self.slots.len()), "numbers count up");
                    self.slots.push(SlotState::Open);
                    self.step(Input::Added(slot.0));
                }
            }
            Event::CloseSlot(pick) => {
                let slot = self.pick_slot(pick);
                if self.slots[slot] == SlotState::Open {
                    self.slots[slot] = SlotState::Closing;
                }
                self.kernel.close_slot(self.now, SlotId(slot));
                self.step(Input::Closed(slot));
                self.check_closed(SlotId(slot));
            }
            Event::Stop => self.stop(),
        }
    }

    /// Mostly an open slot, sometimes any that ever was.
    fn pick_slot(&self, pick: u8) -> usize {
        let all = 0..self.slots.len();
        let open = |slot: &usize| pick >= 224 || self.slots[*slot] == SlotState::Open;
        let picked = choose(all.filter(open).collect(), pick.into());
        picked.unwrap_or(usize::from(pick) % self.slots.len())
    }

    /// The kernel's serialised state, to look inside.
    pub fn state(&self) -> serde_json::Value {
        serde_json::to_value(&self.kernel).unwrap()
    }

    fn open(&mut self, speaks: Speaks) {
        if self.sessions.iter().filter(|client| !client.over).count() < SESSIONS {
            let id = self.kernel.open_session();
            self.sessions.push(Client {
                id,
                speaks,
                input_ended: false,
                over: false,
            });
            self.step(Input::Opened(id));
        }
    }

    fn ask(&mut self, session: u8, id: u8, direct: bool, ask: Ask, routing: Routing) {
        let Some(session) = self.pick_session(session, |client| !client.input_ended) else {
            return;
        };
        let dialect = match self.client(session).speaks {
            Speaks::Direct => Dialect::Direct,
            Speaks::Both if direct => Dialect::Direct,
            Speaks::Both | Speaks::Mcp => Dialect::Legacy,
        };
        if !self.kernel.wants_input(session) {
            return;
        }
        self.asked += 1;
        let id = wire::request_id(id);
        let (mut work, wanted) = wire::work(ask, |pick| self.pick_slot(pick));
        let asked = Asked {
            call: CallId::new(self.asked),
            session,
            id: id.clone(),
            order: dialect.order(),
            // No two requests are of the same size.
            bytes: usize::try_from(self.asked).unwrap(),
            unrouted: routing != Routing::Known,
            work: wanted,
        };
        if asked.unrouted {
            let errand = Errand {
                work: std::mem::replace(&mut work, Work::Unrouted),
                routing,
                state: router::State::Unasked,
            };
            self.errands.insert(asked.call, errand);
        }
        let request = wire::request(id, dialect, asked.bytes, work);
        self.kernel.handle_request(self.now, session, request);
        self.step(Input::Asked(asked));
    }

    pub(super) fn end_input(&mut self, session: SessionId) {
        self.client(session).input_ended = true;
        self.kernel.handle_input_end(self.now, session);
        self.step(Input::DoneAsking(session));
    }

    pub(super) fn serve(&mut self, pick: u8) {
        if !self.serving.is_empty() {
            let call = self.serving.remove(usize::from(pick) % self.serving.len());
            let outcome = Ok(Success::Members(Json::empty_object()));
            self.kernel.handle_served(self.now, call, outcome);
            self.step(Input::Served(call));
        }
    }

    pub(super) fn ready(&mut self, generation: Generation) {
        self.worker(generation).state = State::Ready;
        self.kernel.handle_ready(self.now, generation);
        self.step(Input::Ready(generation));
    }

    pub(super) fn answer(&mut self, generation: Generation, at: usize, reply: Reply, held: bool) {
        let fenced = self.is_fenced(generation, at);
        let sent = &mut self.worker(generation).sent[at];
        sent.heard = true;
        sent.answered = true;
        let (call, is_probe) = (sent.call, sent.is_probe);
        let answer = wire::answer(is_probe, reply);
        let before = fenced.then(|| self.kernel.clone());
        if held {
            let counts = self.kernel.hold_answer(self.now, generation, call);
            assert!(!(counts && fenced), "a fenced answer does not count");
            if counts {
                self.checking.push((call, answer.clone()));
            }
        } else {
            self.kernel
                .handle_answer(self.now, generation, call, answer.clone());
        }
        if let Some(before) = before {
            assert_eq!(self.kernel, before, "a fenced answer changes nothing");
        }
        self.step(if held {
            Input::Held {
                generation,
                call,
                fenced,
            }
        } else {
            Input::Answered {
                generation,
                call,
                answer,
                fenced,
            }
        });
    }

    pub(super) fn check(&mut self, pick: u8) {
        if !self.checking.is_empty() {
            let at = usize::from(pick) % self.checking.len();
            let (call, answer) = self.checking.remove(at);
            self.kernel.handle_checked(self.now, call, answer.clone());
            self.step(Input::Checked { call, answer });
        }
    }

    fn progress(&mut self, generation: Generation, at: usize, done: Option<u64>) {
        let fenced = self.is_fenced(generation, at);
        let sent = &mut self.worker(generation).sent[at];
        sent.heard = true;
        let call = sent.call;
        let progress = Progress {
            done,
            ..Progress::default()
        };
        let before = fenced.then(|| self.kernel.clone());
        self.kernel
            .handle_progress(self.now, generation, call, progress);
        if let Some(before) = before {
            assert_eq!(self.kernel, before, "fenced progress changes nothing");
        }
        self.step(Input::Progressed {
            generation,
            call,
            fenced,
        });
    }

    fn die(&mut self, generation: Generation, unsent: usize, unready: bool) {
        let worker = self.worker(generation);
        worker.state = State::Dead;
        // Calls are written in order, so what was not handed over is what was sent last.
        let unsent: Vec<_> = worker
            .sent
            .iter()
            .rev()
            .take_while(|sent| !sent.heard)
            .take(unsent)
            .map(|sent| sent.call)
            .collect();
        let kind = if unready {
            ErrorKind::WorkerNotReady
        } else {
            ErrorKind::WorkerUnavailable
        };
        let fault = Fault::new(kind, "killed").of(generation);
        self.kernel
            .handle_lost(self.now, generation, &fault, &unsent);
        self.step(Input::Lost {
            generation,
            unsent,
            unready,
        });
    }

    pub(super) fn reap(&mut self, generation: Generation) {
        self.worker(generation).state = State::Reaped;
        self.kernel.handle_reaped(self.now, generation);
        self.step(Input::Reaped(generation));
    }

    pub(super) fn tick(&mut self, to: Time) {
        self.now = self.now.max(to);
        self.kernel.handle_timeout(self.now);
        self.step(Input::Ticked);
    }

    pub(super) fn stop(&mut self) {
        self.kernel.handle_stop(self.now);
        self.step(Input::Stopped);
    }

    /// Takes the actions that follow an event, and obeys them.
    pub(super) fn step(&mut self, input: Input) {
        let mut actions = Vec::new();
        while let Some(action) = self.kernel.poll_action() {
            self.obey(&action);
            actions.push(action);
        }
        self.check_slots();
        let health = self.kernel.health(self.now);
        assert!(
            health.restart_count >= self.restarts,
            "counts never decrease"
        );
        self.restarts = health.restart_count;
        assert_eq!(self.kernel.metrics(self.now).restart_count, self.restarts);
        let mut slots: Vec<_> = (0..self.slots.len())
            .map(|slot| (0, self.kernel.is_closed(self.now, SlotId(slot))))
            .collect();
        for (slot, worker) in self.kernel.slot_ids().zip(&health.workers) {
            slots[slot.0].0 = worker.queue_depth;
            slots[slot.0].1 |= worker.state == Lifecycle::Failed;
        }
        let reading = self.sessions.iter().map(|client| client.id);
        let gauges = Gauges {
            calls: health.in_flight,
            sessions: health.sessions,
            reading: reading.filter(|id| self.kernel.wants_input(*id)).collect(),
            slots,
        };
        self.trace.steps.push(Step {
            at: self.now,
            input,
            actions,
            gauges,
        });
        while let Some(call) = self.at_once.pop_front() {
            self.route(call);
        }
        while let Some(generation) = self.abandoned.pop_front() {
            if self.worker(generation).lives() {
                self.die(generation, 1, false);
            }
        }
        while let Some(generation) = self.to_look_at.pop_front() {
            let lives = self.worker(generation).lives();
            if lives && self.kernel.is_hopeless(generation, self.sight) {
                self.die(generation, 1, false);
            }
        }
    }
}
