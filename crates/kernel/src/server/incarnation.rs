//! One incarnation of a wrapped server: what it must still be sent before it serves, and whose answers
//! it owes.

use std::collections::{BTreeMap, VecDeque};

use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::json::Json;
use mainstay_contract::method::ListKind;
use mainstay_contract::request_table::RequestTable;
use serde::{Deserialize, Serialize};

use super::activity::Looks;
use super::handover::Catalog;
use super::lists::Seen;
use super::memory::Step;
use super::requests::is_same_token;
use crate::time::Time;

/// Abandoned calls whose late answers are still recognised.
const ABANDONED: usize = 1024;

/// One process of the server, from its spawn to its reaping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Incarnation {
    /// Lines that it must get before it gets requests.
    pub(super) script: VecDeque<Step>,
    /// Requests that it has not answered, by the id that was sent.
    pub(super) awaited: RequestTable<Awaited>,
    /// Ids of abandoned calls, oldest first; their answers may never come.
    abandoned: VecDeque<RequestId>,
    /// Progress tokens of the client's under which it may still report, by the id of their request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tokens: BTreeMap<RequestId, String>,
    /// The client has written an id that a server could respell as another one.
    odd_ids: bool,
    /// Calls whose arguments are checked again before they are sent to it.
    pub(super) rechecking: Vec<CallId>,
    /// It took too much memory and is being replaced.
    pub(super) outgrown: bool,
    pub(super) start: Start,
    /// It got its whole script.
    pub(super) ready: bool,
    pub(super) looks: Looks,
    /// Its tools, read ahead; taken once it serves, dropped when they change.
    pub(super) catalog: Option<Catalog>,
}

/// How far a server is from its first answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Start {
    /// It got no request yet.
    #[default]
    Unasked,
    /// It got its first request then. Once it must open a session only an answer counts, before
    /// that any line.
    Asked {
        since: Time,
        opening: bool,
    },
    Over,
}

impl Start {
    /// A request is sent.
    pub(super) fn asked(self, now: Time, method: &str) -> Self {
        let opening = method == "initialize";
        match self {
            // A server that is still starting, or does not know the method, may never answer it.
            Self::Unasked if method == "server/discover" => self,
            Self::Unasked => Self::Asked {
                since: now,
                opening,
            },
            Self::Asked {
                since,
                opening: was,
            } => Self::Asked {
                since,
                opening: was || opening,
            },
            Self::Over => Self::Over,
        }
    }

    /// A line arrived that is not an answer.
    pub(super) const fn heard(self) -> Self {
        match self {
            Self::Asked { opening: true, .. } => self,
            Self::Asked { .. } | Self::Over => Self::Over,
            Self::Unasked => Self::Unasked,
        }
    }

    fn until(self, patience_ms: u64) -> Option<Time> {
        match self {
            Self::Asked { since, .. } => Some(since.plus_ms(patience_ms)),
            Self::Unasked | Self::Over => None,
        }
    }
}

/// The meaning of an answer that the server owes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Awaited {
    Call(CallId),
    /// The next step of the script may follow.
    Script {
        purpose: Purpose,
        until: Time,
    },
    Ping,
    /// A call of a modern client that waits for the client, by its `requestState`.
    Parked(String),
    /// The handshake of the other era, for a call whose own handshake was refused so.
    OtherEra {
        call: CallId,
        refusal: Json,
    },
    /// A page of its tools, before it is ready.
    Catalog {
        catalog: Catalog,
        until: Time,
    },
    List {
        /// The epoch of the tool knowledge in which the list was begun.
        epoch: u64,
        kind: ListKind,
        seen: Seen,
        until: Time,
    },
}

/// The purpose of a scripted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Purpose {
    /// Opens the session: without a result the server is of no use.
    Open,
    /// Finds out whether the server speaks the modern era.
    Discover,
    /// The same, after the host has gone on without the answer. A server that starts slowly may still give it.
    LateDiscover,
    /// Restores a detail of the session; a refusal is tolerated.
    Restore,
}

impl Incarnation {
    /// When the first of the host's own requests is late.
    pub(super) fn own_deadline(&self, start_ms: u64) -> Option<Time> {
        let until = |awaited: &Awaited| match awaited {
            Awaited::Script { until, .. }
            | Awaited::Catalog { until, .. }
            | Awaited::List { until, .. } => Some(*until),
            Awaited::Call(_) | Awaited::Ping | Awaited::Parked(_) | Awaited::OtherEra { .. } => {
                None
            }
        };
        let awaited = self.awaited.values().filter_map(until);
        awaited.chain(self.start.until(start_ms)).min()
    }

    /// True if it has answered nothing for as long as it may take to start.
    pub(super) fn is_never_ready(&self, now: Time, start_ms: u64) -> bool {
        self.start.until(start_ms).is_some_and(|until| until <= now)
    }

    /// Records that the host no longer waits for a call's answer.
    pub(super) fn abandon(&mut self, call: CallId) {
        if let Some(id) = self.wire_id(call).cloned() {
            self.abandoned.push_back(id);
        }
        if self.abandoned.len() > ABANDONED
            && let Some(oldest) = self.abandoned.pop_front()
        {
            self.awaited.close(&oldest);
            self.tokens.remove(&oldest);
        }
    }

    /// Records that the answer to a call will not come. The call is sent again under another id, so that a
    /// server which still works on the first one confuses nothing.
    pub(super) fn forget(&mut self, call: CallId) {
        self.abandon(call);
        if let Some(id) = self.wire_id(call).cloned() {
            self.awaited.close(&id);
        }
    }

    /// The id under which a call was sent.
    pub(super) fn wire_id(&self, call: CallId) -> Option<&RequestId> {
        let is_it = |awaited: &Awaited| matches!(awaited, Awaited::Call(sent) if *sent == call);
        let mut found = self.awaited.iter().filter(|(_, awaited)| is_it(awaited));
        found.next().map(|(id, _)| id)
    }

    /// Removes the request that an answer belongs to. Some servers turn a number into a string or back.
    pub(super) fn answered(&mut self, id: &RequestId) -> Option<Awaited> {
        let may_be = |known: &RequestId| !self.abandoned.contains(known);
        let known = self.awaited.meant(id, may_be)?;
        // The id may be used again, and then names another call.
        self.abandoned.retain(|abandoned| *abandoned != known);
        self.tokens.remove(&known);
        self.awaited.close(&known)
    }

    /// True if the server could confuse a request of this id with one that it has not answered. Servers may
    /// respell the id of an abandoned call in its late answer.
    pub(super) fn is_taken(&mut self, id: &RequestId) -> bool {
        let like =
            |known: &RequestId| known.same_value(id) || known.lookup_form() == id.lookup_form();
        // Few clients write ids that can be confused with others; only for them is every id compared: the table
        // has [`ABANDONED`] cancelled calls, as servers answer none of them.
        self.odd_ids |= is_odd(id);
        self.awaited.contains(id)
            || self.abandoned.contains(id)
            || self.odd_ids
                && (self.abandoned.iter().any(like)
                    || self.awaited.iter().any(|(known, _)| like(known)))
    }

    /// Records that a request was sent with a progress token of the client's.
    pub(super) fn has_token(&mut self, id: RequestId, token: String) {
        self.tokens.insert(id, token);
    }

    /// True if the server may still report progress of another request under this token.
    pub(super) fn is_token_taken(&self, token: &str) -> bool {
        self.tokens
            .values()
            .any(|known| is_same_token(known, token))
    }

    /// True while it owes the answer to a call.
    pub(super) fn has_calls(&self) -> bool {
        self.calls().next().is_some()
    }

    /// The only call that it works on.
    pub(super) fn only_call(&self) -> Option<CallId> {
        let mut calls = self.calls();
        calls.next().filter(|_| calls.next().is_none())
    }

    /// The calls whose answers it owes.
    pub(super) fn calls(&self) -> impl Iterator<Item = CallId> {
        self.awaited.values().filter_map(|awaited| match awaited {
            Awaited::Call(call) => Some(*call),
            _ => None,
        })
    }

    /// True while it owes the answer to a scripted request of this purpose.
    pub(super) fn awaits(&self, wanted: Purpose) -> bool {
        let mut awaited = self.awaited.values();
        awaited
            .any(|awaited| matches!(awaited, Awaited::Script { purpose, .. } if *purpose == wanted))
    }

    /// True while the host reads this list of it.
    pub(super) fn lists(&self, wanted: ListKind) -> bool {
        self.awaited
            .values()
            .any(|awaited| matches!(awaited, Awaited::List { kind, .. } if *kind == wanted))
    }

    /// Forgets everything that a lost server owes. Returns the calls that were never sent to it.
    pub(super) fn lose(&mut self) -> Vec<CallId> {
        self.awaited.clear();
        self.tokens.clear();
        self.script.clear();
        self.start = Start::Over;
        std::mem::take(&mut self.rechecking)
    }

    /// True until it has its whole script and has opened the session.
    pub(super) fn is_scripted(&self) -> bool {
        !self.script.is_empty() || self.awaits(Purpose::Open)
    }

    /// Queues a line behind the script. Returns it if the script is over and it may be sent now.
    pub(super) fn after_script(&mut self, line: Json) -> Option<Json> {
        if !self.is_scripted() {
            return Some(line);
        }
        self.script.push_back(Step::Say(line));
        None
    }
}

/// True for a number with a point, a sign or an exponent, and for a string that has an escape or reads as a number.
fn is_odd(id: &RequestId) -> bool {
    let raw = id.as_raw();
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match raw.strip_prefix('"') {
        None => !digits(raw),
        Some(rest) => {
            rest.starts_with(|first: char| matches!(first, '0'..='9' | '-')) || rest.contains('\\')
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Ids that a client uses, each with other spellings that servers answer with: the same number, or
    /// the same text as a string, a number, or with escapes.
    const IDS: [&[&str]; 4] = [
        &["1", "1.0", "1e0", "10e-1", "\"1\""],
        &["100", "1e2", "100.00", "\"100\""],
        &["\"1\"", "\"\\u0031\"", "1"],
        &["\"a\"", "\"\\u0061\""],
    ];

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).unwrap()
    }

    fn spelling(of: usize, number: usize) -> RequestId {
        let spellings = IDS[of];
        id(spellings[number % spellings.len()])
    }

    #[derive(Clone, Debug)]
    enum Event {
        /// The client asks something, under an id that none of its open requests has.
        Send(usize),
        /// The server answers one of the requests that it owes, and spells the id as it likes.
        Answer {
            owed: usize,
            spelled: usize,
        },
        Abandon(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        let answer = (any::<usize>(), any::<usize>());
        prop_oneof![
            4 => (0..IDS.len()).prop_map(Event::Send),
            4 => answer.prop_map(|(owed, spelled)| Event::Answer { owed, spelled }),
            2 => any::<usize>().prop_map(Event::Abandon),
        ]
    }

    /// A request that the server owes an answer to.
    #[derive(Clone, Debug)]
    struct Owed {
        call: CallId,
        wire: RequestId,
        of: usize,
        is_abandoned: bool,
    }

    /// One server, and every request that it owes an answer to.
    #[derive(Debug, Default)]
    struct Model {
        server: Incarnation,
        owed: Vec<Owed>,
        sent: u64,
    }

    impl Model {
        fn open(&self) -> Vec<CallId> {
            let open = self.owed.iter().filter(|owed| !owed.is_abandoned);
            open.map(|owed| owed.call).collect()
        }

        fn send(&mut self, of: usize) {
            let mut open = self.owed.iter().filter(|owed| !owed.is_abandoned);
            if open.any(|owed| owed.of == of) {
                return;
            }
            self.sent += 1;
            let call = CallId::new(self.sent);
            let given = spelling(of, 0);
            // As `Link::forward` does: an id that may still be answered is not used again.
            let wire = match self.server.awaited.contains(&given) {
                true => id(&format!("\"own/{}\"", self.sent)),
                false => given,
            };
            let awaited = Awaited::Call(call);
            self.server.awaited.open(wire.clone(), awaited).unwrap();
            self.owed.push(Owed {
                call,
                wire,
                of,
                is_abandoned: false,
            });
        }

        /// The only request for which this holds, if there is one.
        fn only(&self, is_it: impl Fn(&Owed) -> bool) -> Option<CallId> {
            let all: Vec<&Owed> = self.owed.iter().filter(|owed| is_it(owed)).collect();
            match all.as_slice() {
                [only] => Some(only.call),
                _ => None,
            }
        }

        fn answer(&mut self, owed: usize, spelled: usize) {
            let answered = self.owed[owed % self.owed.len()].clone();
            let is_own = answered.wire.as_raw().starts_with("\"own/");
            let said = match is_own {
                true => answered.wire.clone(),
                false => spelling(answered.of, spelled),
            };
            let same_text = |owed: &Owed| owed.wire.lookup_form() == said.lookup_form();
            let meant = self
                .only(|owed| owed.wire == said)
                .or_else(|| self.only(|owed| !owed.is_abandoned && owed.wire.same_value(&said)))
                .or_else(|| self.only(|owed| !owed.is_abandoned && same_text(owed)));
            let is_exact = said == answered.wire;
            assert!(!is_exact || meant == Some(answered.call), "{said}");
            let ended = self.server.answered(&said);
            assert_eq!(ended, meant.map(Awaited::Call), "{said}");
            self.owed.retain(|owed| Some(owed.call) != meant);
        }

        fn abandon(&mut self, number: usize) {
            let open = self.open();
            let call = open[number % open.len()];
            self.server.abandon(call);
            for owed in &mut self.owed {
                owed.is_abandoned |= owed.call == call;
            }
        }
    }

    #[test]
    fn an_id_that_a_server_could_confuse_with_an_open_one_is_taken() {
        let id = |raw: &str| RequestId::parse(raw).unwrap();
        let mut server = Incarnation::default();
        let call = Awaited::Call(CallId::new(1));
        server.awaited.open(id("8"), call).unwrap();
        assert!(!server.is_taken(&id("9")));
        for other in ["8", "8.0", "80e-1", "\"8\"", "\"\\u0038\""] {
            assert!(server.is_taken(&id(other)), "{other}");
        }
        assert!(!server.is_taken(&id("\"a\"")));
    }

    proptest! {
    #[test]
        fn an_answer_ends_exactly_the_call_that_it_was_sent_for(events in vec(event(), 0..60)) {
            let mut model = Model::default();
            for event in events {
                match event {
                    Event::Send(of) => model.send(of),
                    Event::Answer { owed, spelled } if !model.owed.is_empty() => {
                        model.answer(owed, spelled);
                    }
                    Event::Abandon(number) if !model.open().is_empty() => model.abandon(number),
                    Event::Answer { .. } | Event::Abandon(_) => {}
                }
                let server = &model.server;
                prop_assert_eq!(server.awaited.len(), model.owed.len());
                let abandoned = model.owed.iter().filter(|owed| owed.is_abandoned);
                let abandoned: Vec<&RequestId> = abandoned.map(|owed| &owed.wire).collect();
                prop_assert_eq!(server.abandoned.len(), abandoned.len());
                for owed in &model.owed {
                    prop_assert_eq!(server.wire_id(owed.call), Some(&owed.wire));
                    let is_abandoned = server.abandoned.contains(&owed.wire);
                    prop_assert_eq!(is_abandoned, owed.is_abandoned);
                }
            }
        }

        #[test]
        fn a_number_ends_its_call_however_it_is_spelled(spelled in 0..4_usize, others in 2..9_u64) {
            let mut server = Incarnation::default();
            server.awaited.open(id("1"), Awaited::Call(CallId::new(1))).unwrap();
            for other in 2..others {
                let awaited = Awaited::Call(CallId::new(other));
                server.awaited.open(id(&other.to_string()), awaited).unwrap();
            }
            let ended = server.answered(&spelling(0, spelled));
            prop_assert_eq!(ended, Some(Awaited::Call(CallId::new(1))));
        }
    }

    #[test]
    fn abandoned_calls_are_bounded_and_never_take_an_open_one_with_them() {
        let mut server = Incarnation::default();
        let send = |server: &mut Incarnation, raw: &str, call: u64| {
            let awaited = Awaited::Call(CallId::new(call));
            server.awaited.open(id(raw), awaited).unwrap();
        };
        send(&mut server, "7", 1);
        server.abandon(CallId::new(1));
        assert!(server.answered(&id("7")).is_some(), "a late answer");
        send(&mut server, "7", 2);
        for call in 0..2 * ABANDONED as u64 {
            send(&mut server, &format!("\"{call}\""), 10 + call);
            server.abandon(CallId::new(10 + call));
        }
        assert_eq!(server.abandoned.len(), ABANDONED);
        assert_eq!(server.awaited.len(), ABANDONED + 1);
        let ended = server.answered(&id("7"));
        assert_eq!(ended, Some(Awaited::Call(CallId::new(2))));
    }

    #[test]
    fn lines_that_wait_for_the_script_keep_their_order() {
        let mut server = Incarnation::default();
        let line = |text: &str| Json::from_scanned(text);
        assert_eq!(server.after_script(line("1")), Some(line("1")));
        server.script.push_back(Step::Say(line("2")));
        assert_eq!(server.after_script(line("3")), None);
        assert_eq!(server.after_script(line("4")), None);
        let said = [line("2"), line("3"), line("4")].map(Step::Say);
        assert_eq!(server.script, said);
    }
}
