//! One client's conversation: which requests are in flight, and whose turn it is.
//!
//! Theory of operation. Requests in free order run at once and only count against the session's
//! limit. Requests in turn stand in one line: the first runs, the others wait, and each is
//! answered before the next begins; refusals stand in the line like everybody else, so answers
//! come in request order. The line is bounded by [`Session::wants_input`], which tells the driver
//! to stop reading.

use std::collections::VecDeque;

use mainstay_contract::dialect::Order;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::limits::Limits;
use mainstay_contract::request_table::RequestTable;
use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    limit: usize,
    backlog: usize,
    backlog_bytes: usize,
    /// Bytes of all requests that have no answer yet.
    bytes: usize,
    /// Requests with an id that have no answer yet.
    ids: RequestTable<CallId>,
    /// How many of them are in free order.
    free: usize,
    /// Requests in turn; the first is the one that runs.
    line: VecDeque<CallId>,
    input: Input,
    pace: Pace,
}

/// True if more requests can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    Open,
    Ended,
}

/// True if a client takes its answers as fast as they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    Even,
    /// Answers pile up: no more of its calls are started.
    Behind,
}

/// The next step of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Now,
    Wait,
}

impl Session {
    /// A session with at most `in_flight` requests in free order and `ordered_backlog` in line.
    pub fn new(limits: &Limits) -> Self {
        Self {
            limit: limits.in_flight,
            backlog: limits.ordered_backlog,
            backlog_bytes: limits.backlog_bytes,
            bytes: 0,
            ids: RequestTable::default(),
            free: 0,
            line: VecDeque::new(),
            input: Input::Open,
            pace: Pace::Even,
        }
    }

    /// Takes a request's id into the table; the error says why it is not admitted.
    pub fn admit(&mut self, id: &RequestId, call: CallId, order: Order) -> Result<(), ErrorKind> {
        if order == Order::Free && self.free >= self.limit {
            return Err(if self.ids.contains(id) {
                ErrorKind::DuplicateId
            } else {
                ErrorKind::Overloaded
            });
        }
        let opened = self.ids.open(id.clone(), call);
        opened.map_err(|_| ErrorKind::DuplicateId)?;
        self.free += usize::from(order == Order::Free);
        Ok(())
    }

    /// Puts a request where its order wants it.
    pub fn take_turn(&mut self, call: CallId, order: Order, bytes: usize) -> Turn {
        self.bytes += bytes;
        match order {
            Order::Free => Turn::Now,
            Order::InTurn => {
                self.line.push_back(call);
                if self.line.len() == 1 {
                    Turn::Now
                } else {
                    Turn::Wait
                }
            }
        }
    }

    /// A request got its answer, or left the line before its turn. Gives the next in line, if
    /// this was the one that ran.
    pub fn finish(&mut self, id: Option<&RequestId>, call: CallId, bytes: usize) -> Option<CallId> {
        self.bytes -= bytes;
        let ran = self.line.front() == Some(&call);
        let place = self.line.iter().position(|waiting| *waiting == call);
        if let Some(place) = place {
            self.line.remove(place);
        }
        if let Some(id) = id
            && self.ids.get(id) == Some(&call)
        {
            self.ids.close(id);
            self.free -= usize::from(place.is_none());
        }
        if ran {
            self.line.front().copied()
        } else {
            None
        }
    }

    /// True if no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.ids.is_empty() && self.line.is_empty()
    }

    /// The call that a cancel means, as far as exactly one can be meant.
    pub fn find(&self, target: &RequestId) -> Option<CallId> {
        let known = self.ids.meant(target, |_| true)?;
        self.ids.get(&known).copied()
    }

    /// The client takes its answers, or does not. True if that is a change.
    pub fn set_pace(&mut self, pace: Pace) -> bool {
        std::mem::replace(&mut self.pace, pace) != pace
    }

    /// True if answers pile up.
    pub fn is_behind(&self) -> bool {
        self.pace == Pace::Behind
    }

    /// No more requests will come.
    pub fn end_input(&mut self) {
        self.input = Input::Ended;
    }

    /// True if the driver should go on reading.
    pub fn wants_input(&self) -> bool {
        self.input == Input::Open
            && self.line.len() < self.backlog
            && self.bytes < self.backlog_bytes
    }

    /// True if everything that was asked has been answered and nothing more can come.
    pub fn is_over(&self) -> bool {
        self.input == Input::Ended && self.ids.is_empty() && self.line.is_empty()
    }

    /// Requests with an id that have no answer yet.
    pub fn in_flight(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(in_flight: usize, ordered_backlog: usize) -> Session {
        Session::new(&Limits {
            in_flight,
            ordered_backlog,
            backlog_bytes: 1000,
            ..Limits::default()
        })
    }

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).unwrap()
    }

    #[test]
    fn the_number_one_and_the_string_one_are_two_requests() {
        let mut session = session(8, 8);
        assert_eq!(session.admit(&id("1"), CallId::new(1), Order::Free), Ok(()));
        assert_eq!(
            session.admit(&id("\"1\""), CallId::new(2), Order::Free),
            Ok(())
        );
        assert_eq!(
            session.admit(&id("1"), CallId::new(3), Order::Free),
            Err(ErrorKind::DuplicateId)
        );
        assert_eq!(session.find(&id("1")), Some(CallId::new(1)));
        assert_eq!(session.find(&id("\"1\"")), Some(CallId::new(2)));
    }

    #[test]
    fn a_cancel_finds_the_other_spelling_when_only_one_call_has_it() {
        let mut session = session(8, 8);
        session
            .admit(&id("7"), CallId::new(1), Order::Free)
            .unwrap();
        assert_eq!(session.find(&id("\"7\"")), Some(CallId::new(1)));
        assert_eq!(session.find(&id("\"\\u0037\"")), Some(CallId::new(1)));
        session
            .admit(&id("\"\\u0037\""), CallId::new(2), Order::Free)
            .unwrap();
        assert_eq!(
            session.find(&id("\"7\"")),
            None,
            "two match, neither exactly"
        );
    }

    #[test]
    fn requests_in_turn_follow_each_other() {
        let mut session = session(8, 2);
        let order = Order::InTurn;
        assert_eq!(session.take_turn(CallId::new(1), order, 10), Turn::Now);
        assert_eq!(session.take_turn(CallId::new(2), order, 10), Turn::Wait);
        assert!(!session.wants_input(), "the line is as long as it may be");
        assert_eq!(
            session.take_turn(CallId::new(3), Order::Free, 10),
            Turn::Now
        );
        assert_eq!(
            session.finish(None, CallId::new(1), 10),
            Some(CallId::new(2))
        );
        assert!(session.wants_input());
        assert_eq!(session.finish(None, CallId::new(2), 10), None);
    }

    #[test]
    fn a_request_that_leaves_the_line_does_not_hold_up_the_others() {
        let mut session = session(8, 8);
        for call in 1..=3 {
            session.take_turn(CallId::new(call), Order::InTurn, 10);
        }
        assert_eq!(session.finish(None, CallId::new(2), 10), None);
        assert_eq!(
            session.finish(None, CallId::new(1), 10),
            Some(CallId::new(3))
        );
    }

    #[test]
    fn the_limit_is_for_free_order_and_the_line_only_pauses_reading() {
        let mut session = session(1, 8);
        let free = Order::Free;
        assert_eq!(session.admit(&id("1"), CallId::new(1), free), Ok(()));
        for call in 2..=5 {
            let id = id(&call.to_string());
            let call = CallId::new(call);
            assert_eq!(session.admit(&id, call, Order::InTurn), Ok(()));
            session.take_turn(call, Order::InTurn, 10);
        }
        let full = Err(ErrorKind::Overloaded);
        assert_eq!(session.admit(&id("6"), CallId::new(6), free), full);
        session.finish(Some(&id("2")), CallId::new(2), 10);
        assert_eq!(session.admit(&id("6"), CallId::new(6), free), full);
        session.finish(Some(&id("1")), CallId::new(1), 0);
        assert_eq!(session.admit(&id("6"), CallId::new(6), free), Ok(()));
    }

    #[test]
    fn large_requests_pause_reading_until_they_are_answered() {
        let mut session = session(8, 8);
        assert_eq!(
            session.take_turn(CallId::new(1), Order::Free, 999),
            Turn::Now
        );
        assert!(session.wants_input());
        assert_eq!(
            session.take_turn(CallId::new(2), Order::InTurn, 1),
            Turn::Now
        );
        assert!(!session.wants_input());
        session.finish(None, CallId::new(1), 999);
        assert!(session.wants_input());
    }

    #[test]
    fn a_session_is_over_when_all_is_answered_and_input_has_ended() {
        let mut session = session(8, 8);
        session
            .admit(&id("1"), CallId::new(1), Order::Free)
            .unwrap();
        session.end_input();
        assert!(!session.is_over());
        session.finish(Some(&id("1")), CallId::new(1), 0);
        assert!(session.is_over());
    }
}
