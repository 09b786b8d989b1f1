//! A second opinion about sessions and deadlines, kept as simply as possible.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::Order;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_kernel::action::Action;
use mainstay_kernel::time::Time;

use super::{Asked, Input, Step, Wanted};

/// Who is in flight, as far as a client can know.
#[derive(Debug)]
pub struct Mirror {
    limits: Limits,
    pub live: BTreeMap<CallId, Live>,
    pub stopping: bool,
    done_asking: BTreeSet<SessionId>,
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub struct Live {
    pub asked: Asked,
    /// Its id counts: a cancel finds it, another request with that id is a duplicate.
    pub admitted: bool,
    /// When its turn came.
    pub began: Option<Time>,
    /// Its time begins with its turn, or when a worker turns out to answer it; with progress, the
    /// deadline moves.
    pub deadline: Option<Time>,
    /// The timeout behind the deadline.
    pub timeout_ms: u64,
    last_deadline: Time,
}

impl Mirror {
    pub fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            live: BTreeMap::new(),
            stopping: false,
            done_asking: BTreeSet::new(),
        }
    }

    /// Why a request must be refused without being looked at.
    pub fn refusal(&self, asked: &Asked) -> Option<ErrorKind> {
        let same_session = || self.of(asked.session).filter(|live| live.admitted);
        let free = same_session().filter(|live| live.asked.order == Order::Free);
        if asked.work == Wanted::Refusal && !asked.unrouted {
            Some(ErrorKind::InvalidParams)
        } else if self.stopping {
            Some(ErrorKind::ShuttingDown)
        } else if same_session().any(|live| live.asked.id == asked.id) {
            Some(ErrorKind::DuplicateId)
        } else if asked.order == Order::Free && free.count() >= self.limits.in_flight {
            Some(ErrorKind::Overloaded)
        } else {
            None
        }
    }

    /// The request that a cancel means.
    pub fn target(&self, session: SessionId, id: &RequestId) -> Option<&Live> {
        let all = || self.of(session).filter(|live| live.admitted);
        if let Some(exact) = all().find(|live| live.asked.id == *id) {
            return Some(exact);
        }
        let alike: Vec<_> = all()
            .filter(|live| live.asked.id.lookup_form() == id.lookup_form())
            .collect();
        match alike[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// True if more can be taken from this session.
    pub fn wants_input(&self, session: SessionId) -> bool {
        let line = self
            .of(session)
            .filter(|live| live.asked.order == Order::InTurn);
        let bytes: usize = self.of(session).map(|live| live.asked.bytes).sum();
        !self.done_asking.contains(&session)
            && line.count() < self.limits.ordered_backlog
            && bytes < self.limits.backlog_bytes
    }

    /// Requests of one session.
    pub fn of(&self, session: SessionId) -> impl Iterator<Item = &Live> {
        self.live
            .values()
            .filter(move |live| live.asked.session == session)
    }

    /// Takes a step into account.
    pub fn follow(&mut self, step: &Step) {
        self.notice(step);
        for action in &step.actions {
            if let Action::End(end) = action {
                self.live.remove(&end.call);
                self.begin_next(step.at, end.session);
            }
        }
    }

    fn notice(&mut self, step: &Step) {
        match &step.input {
            Input::Asked(asked) => {
                let live = Live {
                    asked: asked.clone(),
                    admitted: self.refusal(asked).is_none(),
                    began: None,
                    deadline: None,
                    timeout_ms: 0,
                    last_deadline: Time::from_micros(u64::MAX),
                };
                self.live.insert(asked.call, live);
                if asked.order == Order::Free {
                    self.begin(step.at, asked.call);
                } else {
                    self.begin_next(step.at, asked.session);
                }
            }
            Input::Progressed {
                call,
                fenced: false,
                ..
            } => {
                if let Some(live) = self.live.get_mut(call)
                    && let Some(deadline) = live.deadline
                    && let Wanted::Worker { timeout_ms, .. } = live.asked.work
                    && step.at < deadline
                {
                    let moved = step.at.plus_ms(timeout_ms).min(live.last_deadline);
                    live.deadline = Some(moved.max(deadline));
                }
            }
            Input::Routed { call, stale: false } => self.start_clock(step.at, *call),
            Input::Clocked { call, timeout_ms } => self.set_deadline(step.at, *call, *timeout_ms),
            Input::DoneAsking(session) | Input::Gone(session) => {
                self.done_asking.insert(*session);
            }
            Input::Stopped => self.stopping = true,
            _ => {}
        }
    }

    /// The first in a session's line begins.
    fn begin_next(&mut self, now: Time, session: SessionId) {
        let first = self
            .of(session)
            .find(|live| live.asked.order == Order::InTurn);
        if let Some(call) = first
            .filter(|live| live.began.is_none())
            .map(|l| l.asked.call)
        {
            self.begin(now, call);
        }
    }

    fn begin(&mut self, now: Time, call: CallId) {
        let live = self.live.get_mut(&call).unwrap();
        live.began = Some(now);
        if !live.asked.unrouted {
            self.start_clock(now, call);
        }
    }

    fn start_clock(&mut self, now: Time, call: CallId) {
        if let Wanted::Worker { timeout_ms, .. } = self.live[&call].asked.work {
            self.set_deadline(now, call, timeout_ms);
        }
    }

    /// The earliest deadline counts.
    fn set_deadline(&mut self, now: Time, call: CallId, timeout_ms: u64) {
        let longest = now.plus_ms(timeout_ms.max(self.limits.progress_timeout_ms));
        let live = self.live.get_mut(&call).unwrap();
        let deadline = now.plus_ms(timeout_ms);
        if live.deadline.is_none_or(|old| deadline <= old) {
            live.deadline = Some(deadline);
            live.timeout_ms = timeout_ms;
        }
        live.last_deadline = live.last_deadline.min(longest);
    }
}

impl Live {
    /// True if its time is up.
    pub fn is_late(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }
}
