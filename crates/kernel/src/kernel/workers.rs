//! From the spawn of a worker to its reaping.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::outcome::{Problem, Success};
use mainstay_contract::rpc::{self, Answer, Probed, Progress};

use super::timers::Timer;
use super::{Conduct, Kernel, Mode};
use crate::action::{Action, Delivery, Manner, Notice};
use crate::call::{Call, Send, SlotId, Stage};
use crate::defect::{Defect, is_planted};
use crate::session::Session;
use crate::slot::{Phase, Rollout, Run, Spare, Worker};
use crate::supervisor::Directive;
use crate::time::Time;

impl Kernel {
    /// Starts a slot's worker before anybody asks for it.
    pub fn warm(&mut self, now: Time, slot: SlotId) {
        self.demand(now, slot);
    }

    /// A worker announced that it is ready, and its build and catalog are as they must be.
    pub fn handle_ready(&mut self, now: Time, generation: Generation) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        if self.spare_ready(now, slot, generation) {
            return;
        }
        if self.slot_mut(slot).supervisor.ready(now, generation) {
            if let Some(worker) = self.slot_mut(slot).workers.get_mut(&generation) {
                worker.phase = Phase::Serving;
            }
            self.watch(now, generation);
            self.rearm(slot);
            self.rollout_over(slot, Ok(generation));
            self.dispatch(now, slot);
            self.keep_spare(now, slot);
        }
    }

    /// A worker reported progress of a call.
    pub fn handle_progress(&mut self, now: Time, from: Generation, id: CallId, progress: Progress) {
        if self.sent(from, id).is_none() {
            return;
        }
        if !self.extend(now, id) {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let held = call.throttle.poll_timeout();
        let step = call.throttle.handle(now, progress);
        if let Some(at) = held {
            self.timers.remove(&(at, Timer::Progress(id)));
        }
        if let Some(at) = call.throttle.poll_timeout() {
            self.timers.insert((at, Timer::Progress(id)));
        }
        if let Some(step) = step {
            self.notify(id, step);
        }
    }

    /// A wrapped server reported progress of a call in its own words, which are passed on as they
    /// are. Whether the call still counts.
    pub fn handle_own_progress(&mut self, now: Time, from: Generation, id: CallId) -> bool {
        self.sent(from, id).is_some() && self.extend(now, id)
    }

    /// Moves a call's deadline, because there is progress. A call whose time is up is not given
    /// more, even if its timer has not fired yet.
    fn extend(&mut self, now: Time, id: CallId) -> bool {
        let asking = self.is_asking();
        let call = self.calls.get_mut(&id);
        let Some(call) = call.filter(|call| asking || !call.is_late(now)) else {
            return false;
        };
        if let (Some(old), Some(last), Some(task), false) =
            (call.deadline, call.last_deadline, call.task(), asking)
        {
            let moved = now.plus_ms(task.timeout_ms).min(last).max(old);
            call.deadline = Some(moved);
            self.timers.remove(&(old, Timer::Deadline(id)));
            if !is_planted(Defect::DeadlineLost) {
                self.timers.insert((moved, Timer::Deadline(id)));
            }
        }
        true
    }

    /// Lets a slot's worker go because nobody needs it now; the next call starts another. False
    /// if it is needed.
    pub fn rest(&mut self, slot: SlotId) -> bool {
        let owner = self.slot(slot);
        let Some(generation) = owner.supervisor.ready_generation() else {
            return false;
        };
        let needed = !owner.queue.is_empty() || owner.running() > 0;
        if needed || self.mode != Mode::Serving || owner.rollout == Rollout::Pending {
            return false;
        }
        self.drop_spare(slot);
        self.slot_mut(slot).supervisor.rest();
        self.rearm(slot);
        self.dismiss(generation);
        true
    }

    pub(super) fn notify(&mut self, id: CallId, step: crate::progress::Step) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let mainstay_contract::dialect::EchoId::Known(request_id) = &call.request.id else {
            return;
        };
        let notice = Notice {
            session: call.session,
            call: id,
            id: request_id.clone(),
            form: call.request.form,
            token: call.request.progress_token.clone(),
            tool: call.request.tool.clone().unwrap_or_default(),
            step,
        };
        self.act(Action::Progress(Box::new(notice)));
    }

    /// A worker answered something: its slot is not one that never worked.
    pub fn handle_proof(&mut self, from: Generation) {
        if let Some(slot) = self.slot_of(from) {
            let slot = self.slot_mut(slot);
            slot.proven = true;
            slot.in_vain = 0;
        }
    }

    /// A worker answered a call. Answers that nobody waits for, and answers of a worker that was
    /// told to end, are dropped here.
    pub fn handle_answer(&mut self, now: Time, from: Generation, id: CallId, answer: Answer) {
        let Some(slot) = self.slot_of(from) else {
            return;
        };
        let Some(worker) = self.slot_mut(slot).workers.get_mut(&from) else {
            return;
        };
        if !worker.is_heard() && !is_planted(Defect::FencedAnswer) {
            return;
        }
        match worker.running.remove(&id) {
            None if is_planted(Defect::FencedAnswer) => self.conclude(now, slot, id, answer),
            None => return,
            Some(Run::Abandoned { until, .. }) => {
                self.timers.remove(&(until, Timer::Grace(from, id)));
            }
            Some(Run::Live) => self.conclude(now, slot, id, answer),
        }
        self.handle_pong(now, from);
        self.handle_proof(from);
        self.end_if_idle(from);
        // A probe of a retiring worker may have put its call back into the queue of a slot that
        // is exhausted by now.
        self.fail_queue_if_closed(now, slot);
        self.dispatch(now, slot);
    }

    fn conclude(&mut self, now: Time, slot: SlotId, id: CallId, answer: Answer) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let probing = matches!(
            call.stage,
            Stage::Running {
                send: Send::Probe,
                ..
            }
        );
        let outcome = match (probing, answer) {
            (false, Answer::Tool(reply)) => Ok(Success::Tool(reply)),
            (false, Answer::Members(members)) => Ok(Success::Members(members)),
            (false, Answer::Forwarded(response)) => Ok(Success::Forwarded(response)),
            (false, Answer::Resources(resources)) => {
                let listing = serde_json::json!({ "resources": resources });
                Ok(Success::Members(listing.into()))
            }
            (false, Answer::Failed(mut problem)) => {
                problem.generation = call.generation;
                // A tool may notice first that its time is up; what the client is told is the same.
                if problem.kind == ErrorKind::Timeout {
                    problem.timeout_ms = call.task().map(|task| task.timeout_ms);
                }
                Err(problem)
            }
            (true, Answer::Probed(Probed::NotApplied {})) => {
                call.stage = Stage::Queued {
                    send: Send::Call,
                    held: None,
                };
                self.slot_mut(slot).queue.put_back(id);
                return;
            }
            (true, Answer::Probed(Probed::Applied(reply))) => Ok(Success::Tool(reply)),
            (true, Answer::Probed(Probed::Unknown {}) | Answer::Failed(_)) => {
                Err(Problem::of(ErrorKind::OutcomeUnknown))
            }
            (false, Answer::Probed(_))
            | (
                true,
                Answer::Tool(_) | Answer::Members(_) | Answer::Resources(_) | Answer::Forwarded(_),
            ) => Err(Problem::of(ErrorKind::WorkerProtocol)),
        };
        self.end(now, id, outcome, Delivery::Send);
    }

    /// Sends what can be sent.
    pub(super) fn dispatch(&mut self, now: Time, slot: SlotId) {
        loop {
            if self.slot(slot).queue.is_empty() {
                return;
            }
            let Some(generation) = self.slot(slot).supervisor.ready_generation() else {
                return self.demand(now, slot);
            };
            let pool = self.limits.pool;
            let Self {
                slots,
                calls,
                sessions,
                ..
            } = self;
            let Some(Slotted { queue, worker }) = slotted(slots, slot, generation) else {
                return;
            };
            if worker.running.len() >= pool {
                return;
            }
            let is_behind =
                |call: &Call| sessions.get(&call.session).is_some_and(Session::is_behind);
            let free = |id: CallId| {
                calls.get(&id).is_some_and(|call| {
                    matches!(call.stage, Stage::Queued { held: None, .. }) && !is_behind(call)
                })
            };
            let Some(id) = queue.take_first(free) else {
                return;
            };
            worker.running.insert(id, Run::Live);
            self.send(now, generation, id);
        }
    }

    fn send(&mut self, now: Time, generation: Generation, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let (Stage::Queued { send, .. }, Some(task)) = (call.stage, call.task()) else {
            return;
        };
        let op = match (send, &task.op) {
            (
                Send::Probe,
                rpc::Op::Tool {
                    name, arguments, ..
                },
            ) => rpc::Op::Probe {
                name: name.clone(),
                arguments: arguments.clone(),
            },
            (
                Send::Probe,
                rpc::Op::Forward(rpc::Forward {
                    probe: Some(line), ..
                }),
            ) => rpc::Op::Forward(rpc::Forward {
                line: line.clone(),
                probe: None,
            }),
            (_, op) => op.clone(),
        };
        match send {
            Send::Call => call.attempt += 1,
            Send::Probe => call.probes += 1,
        }
        call.stage = Stage::Running { generation, send };
        call.generation = Some(generation);
        let timeout_ms = call.deadline.map_or(0, |deadline| deadline.ms_since(now));
        let sent = rpc::Call {
            call: id,
            attempt: call.attempt.max(1),
            timeout_ms,
            trace: call.request.trace.map(|span| span.context),
            op,
        };
        self.act(Action::Send {
            generation,
            call: sent,
        });
    }

    pub(super) fn demand(&mut self, now: Time, slot: SlotId) {
        if self.mode == Mode::Stopping {
            return;
        }
        let directive = self.slot_mut(slot).supervisor.demand(now);
        self.follow(now, slot, directive);
    }

    pub(super) fn follow(&mut self, now: Time, slot: SlotId, directive: Directive) {
        match directive {
            Directive::Rest => {}
            Directive::Start => {
                self.last_generation = self.last_generation.next();
                let generation = self.last_generation;
                let owner = self.slot_mut(slot);
                owner.supervisor.started(now, generation);
                owner.workers.insert(generation, Worker::new());
                self.act(Action::Spawn { slot, generation });
            }
            Directive::TooLate(generation) => {
                let kind = match self.conduct {
                    Conduct::Strict => ErrorKind::WorkerUnavailable,
                    Conduct::Lenient => ErrorKind::WorkerNotReady,
                };
                let fault = Fault::new(kind, "not ready in time").of(generation);
                self.retire(now, generation, &fault);
            }
        }
        self.rearm(slot);
    }

    /// A worker gets no more calls; when nobody waits for what it runs, it is ended.
    pub(super) fn retire(&mut self, now: Time, generation: Generation, fault: &Fault) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        let Some(worker) = self.slot_mut(slot).workers.get_mut(&generation) else {
            return;
        };
        match worker.phase {
            // It runs nothing that anybody could wait for.
            Phase::Starting | Phase::Standby => {
                worker.phase = Phase::Ending;
                self.unwatch(generation);
                self.act(Action::Stop {
                    generation,
                    how: Manner::Terminate,
                });
            }
            Phase::Serving => worker.phase = Phase::Retiring,
            // It was to be let go after a rollout; now it must go.
            Phase::Retiring => {
                worker.leave = Manner::Terminate;
                return;
            }
            Phase::Ending | Phase::Lost => return,
        }
        if self.spare_lost(now, slot, generation, fault) {
            self.stats.fault(fault);
        } else {
            self.stats.restart(slot, generation, fault);
            self.supervised_lost(now, slot, generation, fault);
        }
        self.end_if_idle(generation);
        self.fail_queue_if_closed(now, slot);
        self.take_over(now, slot);
        self.dispatch(now, slot);
    }

    /// The driver found that a worker must not be used: wrong build, wrong catalog, bad frames.
    pub fn handle_unfit(&mut self, now: Time, generation: Generation, fault: &Fault) {
        self.retire(now, generation, fault);
    }

    /// Ends a retiring worker that nobody waits for.
    pub(super) fn end_if_idle(&mut self, generation: Generation) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        let Some(worker) = self.slot_mut(slot).workers.get_mut(&generation) else {
            return;
        };
        if worker.phase == Phase::Retiring && !worker.has_live_calls() {
            worker.phase = Phase::Ending;
            let abandoned = std::mem::take(&mut worker.running);
            // One that would not let go of a call is not asked politely.
            let how = if abandoned.is_empty() {
                worker.leave
            } else {
                Manner::Terminate
            };
            for (call, run) in abandoned {
                if let Run::Abandoned { until, .. } = run {
                    self.timers.remove(&(until, Timer::Grace(generation, call)));
                }
            }
            self.unwatch(generation);
            self.act(Action::Stop { generation, how });
        }
    }

    pub(super) fn stop_if_drained(&mut self) {
        let draining = matches!(self.mode, Mode::Draining { .. });
        if !draining || !self.calls.is_empty() {
            return;
        }
        self.mode = Mode::Stopping;
        self.timers.clear();
        for index in (0..self.slots.len()).rev() {
            let slot = SlotId(index);
            self.slot_mut(slot).supervisor.stop();
            self.slot_mut(slot).timer = None;
            self.slot_mut(slot).spare = Spare::None;
            let fault = Fault::new(ErrorKind::ShuttingDown, "the host is stopping");
            self.rollout_over(slot, Err(fault));
            let mut ending = Vec::new();
            for (generation, worker) in &mut self.slot_mut(slot).workers {
                if !matches!(worker.phase, Phase::Ending | Phase::Lost) {
                    // A worker that still runs something abandoned is not asked politely.
                    let how = if worker.running.is_empty() {
                        Manner::Dismiss
                    } else {
                        Manner::Terminate
                    };
                    worker.phase = Phase::Ending;
                    worker.running.clear();
                    ending.push((*generation, how));
                }
            }
            for (generation, how) in ending {
                self.act(Action::Stop { generation, how });
            }
        }
    }
}

struct Slotted<'a> {
    queue: &'a mut crate::queue::Queue,
    worker: &'a mut Worker,
}

fn slotted(
    slots: &mut [crate::slot::Slot],
    slot: SlotId,
    generation: Generation,
) -> Option<Slotted<'_>> {
    let slot = slots.get_mut(slot.0)?;
    let worker = slot.workers.get_mut(&generation)?;
    Some(Slotted {
        queue: &mut slot.queue,
        worker,
    })
}
