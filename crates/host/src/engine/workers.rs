//! The engine's dealings with workers.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::health::Health;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::Json;
use mainstay_contract::rpc::{self, Answer, Ready};
use mainstay_contract::telemetry::Event;
use mainstay_kernel::action::Manner;
use mainstay_kernel::call::SlotId;

use super::{Engine, SetupError};
use crate::directory::Read;
use crate::drivers::{self, What, WorkerEvent, WorkerHandle};
use crate::log::Level;

/// One worker incarnation, as the engine knows it.
#[derive(Debug)]
pub(super) struct Incarnation {
    slot: SlotId,
    handle: WorkerHandle,
    /// Number of its process, and how its tree is killed.
    process: Option<(u32, &'static str)>,
    build: Option<String>,
    facts: Option<Json>,
    /// What it was started with.
    settings: Json,
}

impl Incarnation {
    /// The worker's process, once it is known.
    fn pid(&self) -> u32 {
        self.process.map_or(0, |(pid, _)| pid)
    }
}

impl Engine {
    pub(super) fn spawn(&mut self, slot: SlotId, generation: Generation) {
        let Some(pack) = self.packs.get(slot.0) else {
            return;
        };
        let limits = self.kernel.limits();
        let events = self.events.clone();
        match drivers::start(&self.shim, pack, generation, limits, events, &self.log) {
            Ok(handle) => {
                let worker = Incarnation {
                    slot,
                    handle,
                    process: None,
                    build: None,
                    facts: None,
                    settings: pack.settings.clone(),
                };
                self.workers.insert(generation, worker);
            }
            Err(error) => {
                let detail = format!("cannot start the worker's shim: {error}");
                let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(generation);
                self.lose(slot, generation, &fault, &[]);
                self.kernel.handle_reaped(self.clock.now(), generation);
            }
        }
    }

    pub(super) fn worker(&mut self, WorkerEvent { generation, what }: WorkerEvent) {
        let now = self.clock.now();
        match what {
            What::Up { pid, tree_kill } => self.up(generation, pid, tree_kill),
            What::Ready(ready) => self.ready(generation, *ready),
            What::Progress { call, progress } => {
                self.kernel.handle_progress(now, generation, call, progress);
            }
            What::Answer { call, answer } => self.worker_answer(generation, call, *answer),
            What::Lost(fault) => {
                if let Some(worker) = self.workers.get(&generation) {
                    let (slot, unsent) = (worker.slot, worker.handle.seal());
                    self.lose(slot, generation, &fault, &unsent);
                }
            }
            What::Reaped => {
                if let Some(worker) = self.workers.remove(&generation) {
                    let name = self.directory.pack_name(worker.slot);
                    self.recorder
                        .worker(Event::WorkerReaped, name, generation, worker.pid());
                }
                self.kernel.handle_reaped(now, generation);
            }
            What::Pong => self.kernel.handle_pong(now, generation),
            What::Stuck(fault) => {
                self.log
                    .line(&format!("mcp:warning reason=kill_failed {fault}"));
                self.kernel.handle_kill_failed(generation, fault);
            }
            What::Unkillable if self.kernel.is_stopping() => {
                self.workers.remove(&generation);
                self.kernel.handle_reaped(now, generation);
            }
            // Lines are what wrapped servers speak.
            What::Unkillable | What::Line(_) | What::Oversize(_) | What::CaughtUp => {}
        }
    }

    fn up(&mut self, generation: Generation, pid: u32, tree_kill: &'static str) {
        let Some(worker) = self.workers.get_mut(&generation) else {
            return;
        };
        worker.process = Some((pid, tree_kill));
        let name = self.directory.pack_name(worker.slot);
        let said = format!(
            "worker started pack={name} generation={generation} pid={pid} tree_kill={tree_kill}"
        );
        self.log.say(Level::Debug, said);
        self.recorder
            .worker(Event::WorkerStarted, name, generation, pid);
    }

    fn ready(&mut self, generation: Generation, ready: Ready) {
        let Some(worker) = self.workers.get_mut(&generation) else {
            return;
        };
        let slot = worker.slot;
        let was_complete = self.directory.is_complete();
        let is_first = !self.directory.has_served(slot);
        match self.directory.announce(slot, &ready) {
            Ok(read) => {
                let name = self.directory.pack_name(slot);
                if read == Read::Otherwise && !self.roots.leads(slot) {
                    self.log.line(&format!(
                        "mcp:warning reason=roots_changed pack={name} generation={generation}"
                    ));
                }
                if is_first {
                    for (tool, withdrawn) in self.directory.withdrawn(slot) {
                        let reason = withdrawn.reason();
                        self.log.line(&format!(
                            "mcp:warning reason={reason} pack={name} tool={tool} withdrawn"
                        ));
                    }
                }
                let pid = worker.pid();
                let build = &ready.build;
                let said = format!(
                    "worker ready pack={name} generation={generation} pid={pid} build={build}"
                );
                self.log.say(Level::Info, said);
                self.recorder
                    .worker(Event::WorkerReady, name, generation, pid);
                worker.build = Some(ready.build);
                worker.facts = Some(ready.facts);
                self.kernel.handle_ready(self.clock.now(), generation);
                self.renew(slot);
            }
            Err(reason) => {
                let detail = format!("the worker {reason}");
                let fault = Fault::new(ErrorKind::WorkerProtocol, detail).of(generation);
                self.log
                    .line(&format!("mcp:warning reason=worker_refused {fault}"));
                self.directory.give_up(slot);
                self.kernel
                    .handle_unfit(self.clock.now(), generation, &fault);
            }
        }
        if !was_complete && self.directory.is_complete() {
            self.route_waiting();
        }
    }

    fn worker_answer(&mut self, generation: Generation, call: CallId, answer: Answer) {
        let answer = match (self.kernel.sent(generation, call), answer) {
            (Some(rpc::Op::ListResources {}), Answer::Resources(resources)) => {
                let resources = Json::from_serialize(&resources);
                let slot = self
                    .workers
                    .get(&generation)
                    .map_or(SlotId(0), |worker| worker.slot);
                Answer::Members(self.directory.resource_listing(slot, &resources))
            }
            (Some(op), answer) => {
                let (answer, mismatch) = self.directory.check_answer(op, answer);
                if let Some(mismatch) = mismatch {
                    self.kernel.note_mismatch(mismatch);
                }
                answer
            }
            // Nobody waits for it; the kernel frees its place.
            (None, answer) => answer,
        };
        self.kernel
            .handle_answer(self.clock.now(), generation, call, answer);
    }

    fn lose(&mut self, slot: SlotId, generation: Generation, fault: &Fault, unsent: &[CallId]) {
        let expected = self.kernel.is_ending(generation);
        // Then the host ends, and that is its last line.
        let unable = fault.kind == ErrorKind::WorkerSetup;
        let with_roots = unable && self.refuse_roots(slot);
        let refused = unable && !with_roots && !self.directory.has_served(slot);
        if !expected && !refused {
            let name = self.directory.pack_name(slot);
            self.log.line(&format!(
                "mcp:warning reason=worker_lost pack={name} {fault}"
            ));
        }
        let was_complete = self.directory.is_complete();
        self.directory.lost(slot);
        let now = self.clock.now();
        self.kernel.handle_lost(now, generation, fault, unsent);
        if refused {
            self.refuse_setup(slot, fault);
        }
        // One that was ended because it was never ready will not do better next time.
        if expected || self.kernel.is_closed(now, slot) {
            self.directory.give_up(slot);
        }
        if !was_complete && self.directory.is_complete() {
            self.route_waiting();
        }
        if self.kernel.serving(slot).is_none() {
            // What cannot start as it is set up is not started again by itself.
            if with_roots {
                self.kernel.handle_rollout(now, slot);
            }
            // The next one is started with the settings of now.
            self.release(slot);
        }
    }

    /// Whether a worker was started with other settings than its pack has now.
    pub(super) fn is_outdated(&self, generation: Generation) -> bool {
        let pack = |worker: &Incarnation| self.packs.get(worker.slot.0);
        self.workers
            .get(&generation)
            .is_some_and(|worker| pack(worker).is_some_and(|pack| pack.settings != worker.settings))
    }

    /// Whether a worker is on its way that was started with other settings.
    pub(super) fn starts_outdated(&self, slot: SlotId) -> bool {
        self.workers
            .iter()
            .filter(|(generation, worker)| {
                worker.slot == slot && !self.kernel.is_fenced(**generation)
            })
            .any(|(generation, _)| self.is_outdated(*generation))
    }

    /// A host that was set up wrongly ends, with what its pack says about it.
    fn refuse_setup(&mut self, slot: SlotId, fault: &Fault) {
        let said = fault.said.as_deref().unwrap_or(&fault.detail);
        self.setup.get_or_insert_with(|| SetupError {
            pack: self.directory.pack_name(slot).to_owned(),
            said: said.to_owned(),
        });
        self.kernel.handle_stop(self.clock.now());
    }

    pub(super) fn send(&self, generation: Generation, call: rpc::Call) {
        if let Some(worker) = self.workers.get(&generation) {
            worker.handle.send(call);
        }
    }

    pub(super) fn cancel(&self, generation: Generation, call: CallId) {
        if let Some(worker) = self.workers.get(&generation) {
            worker.handle.cancel(call);
        }
    }

    pub(super) fn ping(&self, generation: Generation) {
        if let Some(worker) = self.workers.get(&generation) {
            worker.handle.ping();
        }
    }

    pub(super) fn stop_worker(&self, generation: Generation, how: Manner) {
        if let Some(worker) = self.workers.get(&generation) {
            worker.handle.stop(how);
        }
    }

    /// The kernel's health, with what only the driver knows.
    pub(super) fn health(&self) -> Health {
        let mut health = self.kernel.health(self.clock.now());
        for worker in &mut health.workers {
            if let Some(known) = self.workers.get(&worker.generation) {
                worker.pid = known.process.map(|(pid, _)| pid);
                worker.tree_kill = known.process.map(|(_, rung)| rung.to_owned());
                worker.build.clone_from(&known.build);
                worker.facts.clone_from(&known.facts);
            }
        }
        health
    }
}
