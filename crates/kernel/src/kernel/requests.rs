//! From a request to its end.

use std::borrow::Cow;

use mainstay_contract::dialect::{Cancel, CancelKind, EchoId, Order};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::replay::Replay;

use super::timers::Timer;
use super::{Kernel, Mode};
use crate::action::{Action, Delivery, End};
use crate::call::{Call, Dispatch, Late, NewRequest, Stage, Work};
use crate::defect::{Defect, is_planted};
use crate::progress::{Step, Throttle};
use crate::session::{Pace, Session, Turn};
use crate::slot::Run;
use crate::time::Time;

impl Kernel {
    /// A client asks for something. Gives the number under which that is known from now on.
    pub fn handle_request(
        &mut self,
        now: Time,
        from: SessionId,
        mut request: NewRequest,
    ) -> Option<CallId> {
        let id = CallId::new(self.next_call);
        let session = self.sessions.get_mut(&from)?;
        self.next_call += 1;
        let refused = match (&self.mode, &request.id, &request.work) {
            (_, _, Work::Refused(_)) => None,
            (Mode::Draining { .. } | Mode::Stopping, _, _) => Some(ErrorKind::ShuttingDown),
            (Mode::Serving, EchoId::Known(request_id), _) => {
                session.admit(request_id, id, request.order()).err()
            }
            (Mode::Serving, EchoId::Null | EchoId::Absent, _) => None,
        };
        if let Some(kind) = refused {
            request.work = Work::Refused(Problem::of(kind));
        }
        let turn = session.take_turn(id, request.order(), request.input_bytes);
        let call = Call {
            session: from,
            accepted: now,
            stage: Stage::Waiting,
            attempt: u32::from(request.may_have_run),
            request,
            probes: 0,
            losses: 0,
            generation: None,
            deadline: None,
            timeout_ms: None,
            last_deadline: None,
            detaches: false,
            resumed_until: None,
            charge: None,
            throttle: Throttle::new(self.limits.progress_per_second),
        };
        self.calls.insert(id, Box::new(call));
        match turn {
            Turn::Now => {
                self.run_line(now, id);
                self.close_if_over(from);
                self.stop_if_drained();
            }
            Turn::Wait => {}
        }
        Some(id)
    }

    /// The driver found out who answers a request.
    pub fn handle_routed(&mut self, now: Time, id: CallId, tool: Option<String>, work: Work) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if call.stage != Stage::Serving || !matches!(call.request.work, Work::Unrouted) {
            return;
        }
        let session = call.session;
        call.request.tool = tool;
        if call.is_late(now) {
            return self.give_up(now, id, ErrorKind::Timeout, Delivery::Send);
        }
        call.request.work = work;
        self.run_line(now, id);
        self.close_if_over(session);
        self.stop_if_drained();
    }

    /// A request that is being routed may run on after its deadline.
    pub fn mark_detachable(&mut self, id: CallId) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.detaches = true;
        }
    }

    /// True, once, for a call that may run on after its deadline.
    pub(super) fn is_overdue(&mut self, id: CallId) -> bool {
        let Some(call) = self.calls.get_mut(&id) else {
            return false;
        };
        let begun = matches!(call.stage, Stage::Queued { .. } | Stage::Running { .. });
        let is_overdue = begun && std::mem::take(&mut call.detaches);
        if is_overdue {
            call.deadline = None;
        }
        is_overdue
    }

    /// The tool of a call that a worker answers, and its contract.
    pub fn tool_of(&self, id: CallId) -> Option<(String, Replay)> {
        let call = self.calls.get(&id)?;
        Some((call.request.tool.clone()?, call.task()?.replay))
    }

    /// Ends a call whose deadline has passed.
    pub fn abort_overdue(&mut self, now: Time, id: CallId) {
        self.give_up(now, id, ErrorKind::Timeout, Delivery::Send);
    }

    /// Ends a client's request with a problem, and moves its call to another session, with a deadline of its own.
    /// False if it ended, or its answer is being checked: then nothing changes.
    pub fn detach(
        &mut self,
        now: Time,
        id: CallId,
        (to, request_id): (SessionId, RequestId),
        limit_ms: u64,
        mut problem: Problem,
    ) -> bool {
        let Some(call) = self.calls.get_mut(&id) else {
            return false;
        };
        if !matches!(call.stage, Stage::Queued { .. } | Stage::Running { .. }) {
            return false;
        }
        let client = call.clone();
        call.session = to;
        call.request.id = EchoId::Known(request_id.clone());
        call.request.progress_token = None;
        call.request.input_bytes = 0;
        call.accepted = now;
        call.deadline = None;
        call.last_deadline = None;
        problem.timeout_ms = client.timeout_ms;
        let from = client.session;
        let (known, bytes) = (
            known(&client.request.id).cloned(),
            client.request.input_bytes,
        );
        if let Some(session) = self.sessions.get_mut(&to) {
            // A session of one call has room for it.
            let _ = session.admit(&request_id, id, Order::Free);
        }
        let end = end_of(id, *client, now, Err(problem), Delivery::Send);
        self.stats.ended(&end);
        self.act(Action::End(Box::new(end)));
        let next = self
            .sessions
            .get_mut(&from)
            .and_then(|session| session.finish(known.as_ref(), id, bytes));
        self.set_deadline(now, id, limit_ms);
        if let Some(next) = next {
            self.run_line(now, next);
        }
        self.close_if_over(from);
        true
    }

    /// Lets a call whose deadline has passed run on with another. Gives the timeout that has passed.
    pub fn run_on(&mut self, now: Time, id: CallId, limit_ms: u64) -> Option<u64> {
        let call = self.calls.get_mut(&id)?;
        let passed_ms = call.timeout_ms;
        (call.deadline, call.last_deadline) = (None, None);
        self.set_deadline(now, id, limit_ms);
        passed_ms
    }

    /// Moves the deadline of a request that the host answers as far as progress could, and `more_ms` beyond that.
    pub fn postpone_deadline(&mut self, id: CallId, more_ms: u64) {
        let call = self.calls.get_mut(&id);
        let Some(call) = call.filter(|call| call.stage == Stage::Serving) else {
            return;
        };
        let Some(last) = call.last_deadline else {
            return;
        };
        let deadline = last.plus_ms(more_ms);
        if let Some(old) = call.deadline.replace(deadline) {
            self.timers.remove(&(old, Timer::Deadline(id)));
        }
        self.timers.insert((deadline, Timer::Deadline(id)));
    }

    /// A request that is being routed may have been sent once by a host that was lost. A probe decides if it is
    /// sent again, until then at the latest.
    pub fn mark_resumed(&mut self, id: CallId, until: Time) {
        let call = self.calls.get_mut(&id);
        if let Some(call) = call.filter(|call| call.stage == Stage::Serving) {
            call.attempt = call.attempt.max(1);
            call.resumed_until = Some(until);
        }
    }

    /// A request that is being routed gets a deadline: `timeout_ms` from now. Routing it later does
    /// not move that deadline back.
    pub fn start_clock(&mut self, now: Time, id: CallId, timeout_ms: u64) {
        let call = self.calls.get(&id);
        if call.is_some_and(|call| {
            call.stage == Stage::Serving && matches!(call.request.work, Work::Unrouted)
        }) {
            self.set_deadline(now, id, timeout_ms);
        }
    }

    /// The host answered a request itself.
    pub fn handle_served(&mut self, now: Time, id: CallId, outcome: Outcome) {
        let is_served = self.calls.get(&id).is_some_and(|call| {
            call.stage == Stage::Serving && matches!(call.request.work, Work::Host)
        });
        if is_served {
            self.end(now, id, outcome, Delivery::Send);
        }
    }

    /// Ends a request that is being routed.
    pub fn end_routing(&mut self, now: Time, id: CallId, tool: Option<String>, outcome: Outcome) {
        let call = self.calls.get_mut(&id);
        let call = call.filter(|call| {
            call.stage == Stage::Serving && matches!(call.request.work, Work::Unrouted)
        });
        if let Some(call) = call {
            call.request.tool = tool;
            self.end(now, id, outcome, Delivery::Send);
        }
    }

    /// A request that is being routed waits for a person: its deadline is lifted, and begins anew when it goes on.
    pub fn stop_clock(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id);
        let call = call.filter(|call| call.stage == Stage::Serving);
        if let Some(call) = call {
            call.last_deadline = None;
            if let Some(deadline) = call.deadline.take() {
                self.timers.remove(&(deadline, Timer::Deadline(id)));
            }
        }
    }

    /// If a request that is cancelled like this is answered.
    pub(super) const fn delivery(kind: CancelKind) -> Delivery {
        match kind {
            CancelKind::Answered => Delivery::Send,
            CancelKind::Silent => Delivery::Withhold,
        }
    }

    /// A client wants a request to stop.
    pub fn handle_cancel(&mut self, now: Time, from: SessionId, cancel: &Cancel) {
        let Some(call) = self
            .sessions
            .get(&from)
            .and_then(|session| session.find(&cancel.target))
        else {
            return;
        };
        let delivery = Self::delivery(cancel.kind);
        // A timeout beats a cancel, even if its timer has not fired yet.
        let late = self
            .calls
            .get(&call)
            .is_some_and(|call| call.is_late(self.paused(call.slot()).unwrap_or(now)));
        let kind = if late {
            ErrorKind::Timeout
        } else {
            ErrorKind::Cancelled
        };
        self.give_up(now, call, kind, delivery);
    }

    /// A client takes its answers as they come, or lets them pile up.
    pub fn handle_pace(&mut self, now: Time, from: SessionId, pace: Pace) {
        let Some(session) = self.sessions.get_mut(&from) else {
            return;
        };
        if session.set_pace(pace) && pace == Pace::Even {
            let slots = self.slots.iter();
            let waiting = slots.filter(|(_, slot)| !slot.queue.is_empty());
            for slot in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.dispatch(now, slot);
            }
        }
    }

    /// A client will send nothing more; what it asked is still answered. A session that it can no
    /// longer use has only the time of a drain to open.
    pub fn handle_input_end(&mut self, now: Time, from: SessionId) {
        let opens = |call: &Call| call.task().is_some_and(|task| task.late == Late::Open);
        let calls = self.calls.iter();
        let opening = calls.filter(|(_, call)| call.session == from && opens(call));
        for id in opening.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.set_deadline(now, id, self.limits.drain_ms);
        }
        if let Some(session) = self.sessions.get_mut(&from) {
            session.end_input();
        }
        self.close_if_over(from);
    }

    /// A client has gone: its requests need no answers.
    pub fn handle_gone(&mut self, now: Time, from: SessionId) {
        let Some(session) = self.sessions.get_mut(&from) else {
            return;
        };
        session.end_input();
        let calls: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| call.session == from)
            .map(|(id, _)| *id)
            .collect();
        // Last first, so that ending one does not begin the next.
        for call in calls.into_iter().rev() {
            self.give_up(now, call, ErrorKind::ClientGone, Delivery::Withhold);
        }
        self.close_if_over(from);
    }

    /// The host is to stop: what is in flight may finish until the drain limit.
    pub fn handle_stop(&mut self, now: Time) {
        if self.mode == Mode::Serving {
            let until = now.plus_ms(self.limits.drain_ms);
            self.mode = Mode::Draining { until };
            self.timers.insert((until, Timer::Drain));
        }
        self.stop_if_drained();
    }

    /// It is this call's turn, and that of those behind it for as long as they are refused. A
    /// loop, because a line of refusals may be as long as the backlog.
    fn run_line(&mut self, now: Time, first: CallId) {
        let mut turn = Some(first);
        while let Some(id) = turn {
            turn = match self.begin(now, id) {
                None => None,
                Some(problem) => self.leave(now, id, Err(problem), Delivery::Send),
            };
        }
    }

    /// Starts a call, or says why it is refused.
    fn begin(&mut self, now: Time, id: CallId) -> Option<Problem> {
        let problem = self.begin_work(now, id)?;
        let call = self.calls.get(&id)?;
        // A refusal now does not mean that nothing happened then.
        Some(match call.is_unsettled() {
            true => Problem::of(ErrorKind::OutcomeUnknown),
            false => problem,
        })
    }

    fn begin_work(&mut self, now: Time, id: CallId) -> Option<Problem> {
        let call = self.calls.get_mut(&id)?;
        match &call.request.work {
            Work::Refused(problem) => Some(problem.clone()),
            Work::Unrouted => {
                call.stage = Stage::Serving;
                self.act(Action::Route { call: id });
                None
            }
            Work::Host => {
                call.stage = Stage::Serving;
                self.act(Action::Serve { call: id });
                None
            }
            Work::Worker(task)
                if call.request.may_have_run && task.replay == Replay::NeverReplay =>
            {
                Some(Problem::of(ErrorKind::OutcomeUnknown))
            }
            Work::Worker(_) if call.charge.is_none() && call.is_tool_call() => {
                match self.charge_caller(now, id) {
                    Some(problem) => Some(problem),
                    None => self.begin_work(now, id),
                }
            }
            Work::Worker(task) => {
                let (slot, timeout_ms, pace) = (task.slot, task.timeout_ms, task.pace);
                // A call that a lost host may have sent is probed first, if its tool has a probe.
                let probes = call.attempt > 0 && task.replay == Replay::ProbeRequired;
                let send = match probes {
                    true => Dispatch::Probe,
                    false => Dispatch::Call,
                };
                let session = call.session;
                let owner = self.slots.get_mut(&slot);
                let open = owner.filter(|owner| !owner.supervisor.is_closed(now));
                let Some(owner) = open else {
                    return Some(self.unavailable(now, slot));
                };
                let calls = &self.calls;
                let is_own = |other: CallId| {
                    let other = calls.get(&other);
                    other.is_some_and(|other| other.session == session)
                };
                if owner.queue_call(id, pace, is_own).is_err() {
                    return Some(Problem::of(ErrorKind::Overloaded));
                }
                let call = self.calls.get_mut(&id)?;
                call.stage = Stage::Queued { send, held: None };
                self.set_deadline(now, id, timeout_ms);
                self.dispatch(now, slot);
                None
            }
        }
    }

    /// Charges a tool call to its caller, or says why it must not run.
    fn charge_caller(&mut self, now: Time, id: CallId) -> Option<Problem> {
        let call = self.calls.get_mut(&id)?;
        let caller = match self.callers.get(&call.session) {
            Some(caller) => Cow::Borrowed(caller.as_str()),
            None => Cow::Owned(own_caller(call.session)),
        };
        let tool = call.request.tool.as_deref().unwrap_or_default();
        let Work::Worker(task) = &call.request.work else {
            return None;
        };
        let asked = (&task.op, call.request.input_bytes);
        match self.quotas.admit(now, &self.limits, &caller, tool, asked) {
            Ok(charge) => {
                call.charge = Some(Box::new(charge));
                None
            }
            Err(problem) => Some(problem),
        }
    }

    /// Gives a call a deadline, unless it has an earlier one. While the client of its slot is asked
    /// something, the deadline is measured by the slot's clock, and has no timer.
    pub(super) fn set_deadline(&mut self, now: Time, id: CallId, timeout_ms: u64) {
        let longest = self.limits.progress_timeout_ms.max(timeout_ms);
        let slot = self.calls.get(&id).and_then(|call| call.slot());
        let paused = self.paused(slot);
        let clock = paused.unwrap_or(now);
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        // An earlier deadline is from before the call had a slot, and is measured by `now`.
        let left = |time: Option<Time>| time.map_or(u64::MAX, |time| time.micros_since(now));
        let (micros, longest) = (
            timeout_ms.saturating_mul(1000),
            longest.saturating_mul(1000),
        );
        if left(call.deadline) >= micros {
            call.timeout_ms = Some(timeout_ms);
        }
        let deadline = clock.plus_micros(left(call.deadline).min(micros));
        let last = clock.plus_micros(left(call.last_deadline).min(longest));
        call.last_deadline = Some(last);
        let old = call.deadline.replace(deadline);
        if old == Some(deadline) && paused.is_none() {
            // Its timer is set.
            return;
        }
        if let Some(old) = old {
            self.timers.remove(&(old, Timer::Deadline(id)));
        }
        if paused.is_none_or(|since| deadline <= since) {
            self.timers.insert((deadline, Timer::Deadline(id)));
        }
    }

    /// Ends a call before its work is done: the worker is told to stop, and what it still says
    /// about the call is dropped.
    pub(super) fn give_up(&mut self, now: Time, id: CallId, kind: ErrorKind, delivery: Delivery) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let opens = call.task().is_some_and(|task| task.late == Late::Open);
        let kind = match kind {
            ErrorKind::Timeout if opens => ErrorKind::WorkerNotReady,
            // The lost host may have done it, and the probe did not answer in time.
            ErrorKind::Timeout
                if call.awaits_probe()
                    && (call.resumed_until.is_some() || call.request.may_have_run) =>
            {
                ErrorKind::OutcomeUnknown
            }
            kind => kind,
        };
        let mut problem = Problem::of(kind);
        match call.stage {
            // Its outcome is decided and waits for its turn: the first cancel counts.
            Stage::Waiting
                if kind == ErrorKind::Cancelled
                    && matches!(call.request.work, Work::Refused(_)) =>
            {
                return;
            }
            // A call in line keeps its place, so that answers stay in request order.
            Stage::Waiting if kind == ErrorKind::Cancelled && delivery == Delivery::Send => {
                call.request.work = Work::Refused(problem);
                return;
            }
            Stage::Waiting | Stage::Serving => {}
            Stage::Queued { .. } => {
                let slot = call.slot();
                if let Some(owner) = slot.and_then(|slot| self.slots.get_mut(&slot)) {
                    owner.queue.remove(id);
                    // None was there that could have been ready.
                    let fault = owner.supervisor.last_fault();
                    if let (ErrorKind::WorkerNotReady, Some(fault)) = (kind, fault) {
                        problem = Problem::from_fault(kind, fault);
                        problem.generation = None;
                    }
                }
            }
            // Its worker has let go of it already.
            Stage::Checking { generation, .. } => problem.generation = Some(generation),
            Stage::Running { generation, .. } => {
                let session = call.session;
                problem.generation = Some(generation);
                let until = now.plus_ms(self.limits.grace_ms);
                let late = call.task().map(|task| task.late).unwrap_or_default();
                if let Some(worker) = self.worker_mut(generation)
                    && let Some(run) = worker.running.get_mut(&id)
                {
                    *run = Run::Abandoned {
                        until,
                        late,
                        session: Some(session),
                    };
                    self.timers.insert((until, Timer::Grace(generation, id)));
                    self.act(Action::Cancel {
                        generation,
                        call: id,
                    });
                }
            }
        }
        if matches!(kind, ErrorKind::Timeout | ErrorKind::WorkerNotReady) {
            problem.timeout_ms = self.calls.get(&id).and_then(|call| call.timeout_ms);
        }
        let generation = problem.generation;
        self.end(now, id, Err(problem), delivery);
        if let Some(generation) = generation {
            self.end_if_idle(generation);
        }
    }

    /// Ends a request; the next in its line begins.
    pub(super) fn end(&mut self, now: Time, id: CallId, outcome: Outcome, delivery: Delivery) {
        let Some(session) = self.calls.get(&id).map(|call| call.session) else {
            return;
        };
        if let Some(next) = self.leave(now, id, outcome, delivery) {
            self.run_line(now, next);
        }
        self.close_if_over(session);
        self.stop_if_drained();
    }

    /// The one place where a request leaves the table. Gives the next in its line.
    fn leave(
        &mut self,
        now: Time,
        id: CallId,
        outcome: Outcome,
        delivery: Delivery,
    ) -> Option<CallId> {
        let call = *self.calls.remove(&id)?;
        let is_late = call.attempt > 0 && is_planted(Defect::LateProgress);
        let late_progress = is_late.then(|| call.clone());
        if let Some(deadline) = call.deadline {
            self.timers.remove(&(deadline, Timer::Deadline(id)));
        }
        if let Some(at) = call.throttle.poll_timeout() {
            self.timers.remove(&(at, Timer::Progress(id)));
        }
        let next = self.sessions.get_mut(&call.session).and_then(|session| {
            session.finish(known(&call.request.id), id, call.request.input_bytes)
        });
        if let Some(charge) = &call.charge {
            let op = call.task().map(|task| &task.op);
            self.quotas.ended(now, &self.limits, charge, op, &outcome);
        }
        let end = end_of(id, call, now, outcome, delivery);
        self.stats.ended(&end);
        let cancelled = matches!(&end.outcome, Err(why) if why.kind == ErrorKind::Cancelled);
        if cancelled && is_planted(Defect::CancelTwice) {
            self.act(Action::End(Box::new(end.clone())));
        }
        self.act(Action::End(Box::new(end)));
        if let Some(late) = late_progress {
            self.calls.insert(id, Box::new(late));
            self.notify(id, Step::default());
            self.calls.remove(&id);
        }
        next
    }

    /// The drain limit has passed: what is still in flight is answered now.
    pub(super) fn end_drain(&mut self, now: Time) {
        // What stands in line is refused in its place, so that answers stay in request order.
        for call in self.calls.values_mut() {
            if call.stage == Stage::Waiting && !matches!(call.request.work, Work::Refused(_)) {
                call.request.work = Work::Refused(Problem::of(ErrorKind::ShuttingDown));
            }
        }
        let begun: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| call.stage != Stage::Waiting)
            .map(|(id, call)| (*id, call.may_have_run()))
            .collect();
        for (id, may_have_run) in begun {
            // Where the effect may have taken place, telling the client to retry would be wrong.
            let kind = if may_have_run {
                ErrorKind::OutcomeUnknown
            } else {
                ErrorKind::ShuttingDown
            };
            self.give_up(now, id, kind, Delivery::Send);
        }
    }

    fn close_if_over(&mut self, session: SessionId) {
        if self.sessions.get(&session).is_some_and(Session::is_over) {
            self.sessions.remove(&session);
            if self.callers.remove(&session).is_none() {
                self.quotas.forget(&own_caller(session));
            }
            self.act(Action::SessionOver { session });
        }
    }
}

fn end_of(id: CallId, call: Call, now: Time, outcome: Outcome, delivery: Delivery) -> End {
    End {
        session: call.session,
        call: id,
        id: call.request.id,
        form: call.request.form,
        outcome,
        delivery,
        method: call.request.method,
        tool: call.request.tool,
        generation: call.generation,
        attempt: call.attempt,
        latency_us: now.micros_since(call.accepted),
        input_bytes: call.request.input_bytes,
        trace: call.request.trace,
    }
}

/// The caller of a session that has no credential.
fn own_caller(session: SessionId) -> String {
    format!("session:{session}")
}

fn known(id: &EchoId) -> Option<&RequestId> {
    match id {
        EchoId::Known(id) => Some(id),
        EchoId::Null | EchoId::Absent => None,
    }
}
