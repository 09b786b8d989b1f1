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

use super::Engine;
use crate::drivers::{self, What, WorkerEvent, WorkerHandle};
use crate::log::Level;

/// One worker incarnation, as the engine knows it.
#[derive(Debug)]
pub(super) struct Incarnation {
    slot: SlotId,
    handle: WorkerHandle,
    build: Option<String>,
    facts: Option<Json>,
}

impl Engine {
    pub(super) fn spawn(&mut self, slot: SlotId, generation: Generation) {
        let Some(pack) = self.packs.get(slot.0) else {
            return;
        };
        let limits = self.kernel.limits();
        match drivers::start(pack, generation, limits, self.events.clone(), &self.log) {
            Ok(handle) => {
                let (name, pid) = (&pack.name, handle.pid);
                let said = format!("worker started pack={name} generation={generation} pid={pid}");
                self.log.say(Level::Debug, said);
                self.recorder
                    .worker(Event::WorkerStarted, name, generation, pid);
                let worker = Incarnation {
                    slot,
                    handle,
                    build: None,
                    facts: None,
                };
                self.workers.insert(generation, worker);
            }
            Err(error) => {
                let program = pack.command.program.display();
                let detail = format!("cannot start {program}: {error}");
                let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(generation);
                self.lose(slot, generation, &fault, &[]);
                self.kernel.handle_reaped(self.clock.now(), generation);
            }
        }
    }

    pub(super) fn worker(&mut self, WorkerEvent { generation, what }: WorkerEvent) {
        let now = self.clock.now();
        match what {
            What::Ready(ready) => self.ready(generation, *ready),
            What::Progress { call, progress } => {
                self.kernel.handle_progress(now, generation, call, progress);
            }
            What::Answer { call, answer } => self.worker_answer(generation, call, *answer),
            What::Lost(fault) => {
                if let Some(worker) = self.workers.get(&generation) {
                    let (slot, unsent) = (worker.slot, worker.handle.unsent_calls());
                    self.lose(slot, generation, &fault, &unsent);
                }
            }
            What::Reaped => {
                if let Some(worker) = self.workers.remove(&generation) {
                    let (name, pid) = (self.directory.pack_name(worker.slot), worker.handle.pid);
                    self.recorder
                        .worker(Event::WorkerReaped, name, generation, pid);
                }
                self.kernel.handle_reaped(now, generation);
            }
            What::Pong => self.kernel.handle_pong(now, generation),
            What::Stuck => {
                let said = format!("mcp:warning reason=kill_failed generation={generation}");
                self.log.line(&said);
            }
        }
    }

    fn ready(&mut self, generation: Generation, ready: Ready) {
        let Some(worker) = self.workers.get_mut(&generation) else {
            return;
        };
        let slot = worker.slot;
        let was_complete = self.directory.is_complete();
        match self.directory.announce(slot, &ready) {
            Ok(()) => {
                let name = self.directory.pack_name(slot);
                let said = format!(
                    "worker ready pack={name} generation={generation} pid={} build={}",
                    worker.handle.pid, ready.build
                );
                self.log.say(Level::Info, said);
                let pid = worker.handle.pid;
                self.recorder
                    .worker(Event::WorkerReady, name, generation, pid);
                worker.build = Some(ready.build);
                worker.facts = Some(ready.facts);
                self.kernel.handle_ready(self.clock.now(), generation);
            }
            Err(reason) => {
                let detail = format!("the worker {reason}");
                let fault = Fault::new(ErrorKind::WorkerProtocol, detail).of(generation);
                self.log
                    .line(&format!("mcp:warning reason=worker_refused {fault}"));
                self.directory.lost(slot);
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
        if !expected {
            let name = self.directory.pack_name(slot);
            self.log.line(&format!(
                "mcp:warning reason=worker_lost pack={name} {fault}"
            ));
        }
        let was_complete = self.directory.is_complete();
        self.directory.lost(slot);
        self.kernel
            .handle_lost(self.clock.now(), generation, fault, unsent);
        if !was_complete && self.directory.is_complete() {
            self.route_waiting();
        }
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
                worker.pid = Some(known.handle.pid);
                worker.build.clone_from(&known.build);
                worker.facts.clone_from(&known.facts);
                worker.tree_kill = Some("process_group".to_owned());
            }
        }
        health
    }
}
