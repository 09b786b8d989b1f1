//! Coalesced progress: of a server's notifications about a call its client gets at most so many a second.
//!
//! Theory of operation. [`Coalescer::report`] takes each notification of an open call. It returns the
//! notification if there is room for it in this second, otherwise it keeps it in place of an earlier one that
//! waits, and [`Coalescer::due`] returns it when there is room. A few notifications in a row so pass as they
//! come, which is what most servers send. [`Coalescer::finish`] returns the one that waits
//! when the call is answered: the client gets the last notification before the answer, and none after it.

use std::collections::BTreeMap;

use mainstay_contract::id::CallId;
use serde::{Deserialize, Serialize};

use crate::progress::Pace;
use crate::time::Time;

/// The window of the configured rate, in milliseconds.
const SECOND_MS: u64 = 1000;

/// The machine, for all calls of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Coalescer {
    by_call: BTreeMap<CallId, Pace<String>>,
}

impl Coalescer {
    /// Takes a notification. Returns it if the client may get it now.
    pub(super) fn report(
        &mut self,
        now: Time,
        call: CallId,
        line: &str,
        per_second: u32,
    ) -> Option<String> {
        let pace = self.by_call.entry(call);
        pace.or_insert_with(|| Pace::new(per_second as usize, SECOND_MS))
            .handle(now, line.to_owned())
    }

    /// When to call [`Coalescer::due`], if a notification waits.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.by_call.values().filter_map(Pace::poll_timeout).min()
    }

    /// Returns the notifications for which there is room, each with its call.
    pub(super) fn due(&mut self, now: Time) -> Vec<(CallId, String)> {
        let all = self.by_call.iter_mut();
        all.filter_map(|(call, pace)| Some((*call, pace.handle_timeout(now)?)))
            .collect()
    }

    /// A call ends. Returns its last notification if the client has not got it.
    pub(super) fn finish(&mut self, call: CallId) -> Option<String> {
        self.by_call.remove(&call)?.finish()
    }

    /// A server was lost: the notifications of its calls do not count any more.
    pub(super) fn clear(&mut self) {
        self.by_call.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const PER_SECOND: u32 = 4;

    #[derive(Clone, Debug)]
    enum Event {
        Report(u64),
        Finish(u64),
        /// Time passes; whatever is due is passed on at its time.
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => (0..3_u64).prop_map(Event::Report),
            1 => (0..3_u64).prop_map(Event::Finish),
            4 => (0..600_u64).prop_map(Event::Wait),
        ]
    }

    /// The notifications of one call: all of them, and those that its client got, with their times.
    #[derive(Debug, Default)]
    struct Seen {
        reported: Vec<String>,
        got: Vec<(u64, String)>,
        is_over: bool,
    }

    impl Seen {
        fn pass(&mut self, at: u64, line: String) {
            assert!(!self.is_over, "{line} came after the end");
            self.got.push((at, line));
        }
    }

    proptest! {
        #[test]
        fn a_client_gets_few_in_order_the_last_one_and_none_after_the_end(
            events in vec(event(), 0..200),
        ) {
            let mut coalescer = Coalescer::default();
            let mut calls: BTreeMap<u64, Seen> = BTreeMap::new();
            // A number is used again after its call has ended, under a new call id.
            let (mut rounds, mut now) = ([0_u64; 3], 0_u64);
            let id = |call: u64, rounds: &[u64; 3]| call + 3 * rounds[call as usize];
            for (number, event) in events.into_iter().enumerate() {
                match event {
                    Event::Report(call) => {
                        let call = id(call, &rounds);
                        let line = format!("{call} {number}");
                        let seen = calls.entry(call).or_default();
                        seen.reported.push(line.clone());
                        let at = Time::from_ms(now);
                        let passed = coalescer.report(at, CallId::new(call), &line, PER_SECOND);
                        if let Some(passed) = passed {
                            seen.pass(now, passed);
                        }
                    }
                    Event::Finish(call) => {
                        let over = id(call, &rounds);
                        rounds[call as usize] += 1;
                        let last = coalescer.finish(CallId::new(over));
                        let seen = calls.entry(over).or_default();
                        if let Some(last) = last {
                            seen.got.push((now, last));
                        }
                        seen.is_over = true;
                        let last = seen.got.last().map(|(_, line)| line);
                        prop_assert_eq!(last, seen.reported.last(), "the last one was kept");
                        // The last one may come early; of the others no second has more.
                        let times: Vec<u64> = seen.got.iter().map(|(at, _)| *at).collect();
                        let paced = times.len().saturating_sub(1);
                        for few in times[..paced].windows(PER_SECOND as usize + 1) {
                            let took = few[few.len() - 1] - few[0];
                            prop_assert!(took >= SECOND_MS, "{:?}", times);
                        }
                    }
                    Event::Wait(ms) => {
                        let until = now + ms;
                        while let Some(at) = coalescer.next_timeout() {
                            let at_ms = at.as_micros() / 1000;
                            if at_ms > until {
                                break;
                            }
                            for (_, line) in coalescer.due(at) {
                                let call: u64 = line.split(' ').next().unwrap().parse().unwrap();
                                calls.get_mut(&call).unwrap().pass(at_ms, line);
                            }
                        }
                        now = until;
                    }
                }
            }
            for seen in calls.values() {
                // In order, and each at most once.
                let mut reported = seen.reported.iter();
                for (_, line) in &seen.got {
                    prop_assert!(reported.any(|other| other == line), "{:?}", seen);
                }
            }
        }
    }
}
