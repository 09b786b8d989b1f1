//! Pending questions: requests of a server to its client (sampling, elicitation, roots).
//!
//! The first server's questions pass unchanged. A successor counts its ids anew while the client may
//! still answer a question of its predecessor under the same id. So questions of later servers
//! get ids of the host, and answers to a lost server are dropped.

use std::collections::BTreeMap;

use mainstay_contract::id::{Generation, RequestId};
use mainstay_contract::method::Method;
use serde::{Deserialize, Serialize};

/// Questions that may be open at a time; a server that asks more gets an error.
const OPEN: usize = 256;

/// The open questions, by the id under which the client knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Questions {
    open: BTreeMap<RequestId, Question>,
    /// The server whose ids pass unchanged.
    first: Option<Generation>,
    /// Every question gets an id of the host: the client is asked by other servers, too.
    renames: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    /// True if a person or a model answers, which may take long.
    pauses: bool,
    by: Generation,
    /// The id under which the server knows it.
    id: RequestId,
}

impl Questions {
    /// No questions. `renames` gives every question an id of the host.
    pub(super) fn renaming(renames: bool) -> Self {
        Self {
            renames,
            ..Self::default()
        }
    }

    /// Opens a question. Returns the id for the client; `own_id` makes one that no server can choose. `None` if
    /// too many are open.
    pub(super) fn open(
        &mut self,
        by: Generation,
        id: RequestId,
        method: &str,
        own_id: impl FnOnce() -> RequestId,
    ) -> Option<RequestId> {
        if self.open.len() >= OPEN {
            return None;
        }
        let first = *self.first.get_or_insert(by);
        let passes = by == first && !self.renames;
        let shown = if passes { id.clone() } else { own_id() };
        let pauses = Method::parse(method).is_some_and(Method::pauses_deadlines);
        self.open.insert(shown.clone(), Question { pauses, by, id });
        Some(shown)
    }

    /// Closes a question that the client answered. Returns the server that asked, and its own id.
    pub(super) fn close(&mut self, id: &RequestId) -> Option<(Generation, RequestId)> {
        let ask = self.open.remove(id)?;
        Some((ask.by, ask.id))
    }

    /// Closes a question that its server cancelled. Returns the id that the client knows.
    pub(super) fn cancel(&mut self, by: Generation, id: &RequestId) -> Option<RequestId> {
        let shown = self
            .open
            .iter()
            .find(|(_, ask)| ask.by == by && ask.id == *id)
            .map(|(shown, _)| shown.clone())?;
        self.open.remove(&shown);
        Some(shown)
    }

    /// Closes all questions of a lost server. Returns the ids that the client may forget.
    pub(super) fn drop_server(&mut self, by: Generation) -> Vec<RequestId> {
        let (gone, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|(_, ask)| ask.by == by);
        self.open = open;
        gone.into_keys().collect()
    }

    /// True while a person or a model is asked something: deadlines stand still.
    pub(super) fn pauses(&self) -> bool {
        self.open.values().any(|ask| ask.pauses)
    }

    /// True while a question is open under this id.
    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.open.contains_key(id)
    }

    /// Closes every question. Returns the servers that asked, each with its own id of the question.
    pub(super) fn take_all(&mut self) -> Vec<(Generation, RequestId)> {
        let open = std::mem::take(&mut self.open).into_values();
        open.map(|ask| (ask.by, ask.id)).collect()
    }

    /// Closes every question: no answer can come any more.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// True while any question is open.
    pub(super) fn any(&self) -> bool {
        !self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Ask {
            by: u64,
            id: usize,
        },
        /// The client answers one of the questions that it ever got.
        Answer(usize),
        Withdraw {
            by: u64,
            id: usize,
        },
        Lose(u64),
    }

    /// Ids that the host makes. A random part keeps servers from choosing one of them.
    fn own_ids() -> impl FnMut() -> RequestId {
        let mut next = 0;
        move || {
            next += 1;
            id(&format!("\"io.mainstay/7f/{next}\""))
        }
    }

    /// Ids that servers choose: equal texts of both types, one that looks like ours, a very long one.
    fn chosen(number: usize) -> RequestId {
        let long = format!("\"{}\"", "x".repeat(RequestId::MAX_LEN - 2));
        let ids = ["0", "1", "\"0\"", "\"io.mainstay/0/1\"", long.as_str()];
        id(ids.get(number % ids.len()).unwrap())
    }

    fn step() -> impl Strategy<Value = Step> {
        let asked = || (1..4_u64, 0..5_usize);
        prop_oneof![
            4 => asked().prop_map(|(by, id)| Step::Ask { by, id }),
            3 => any::<usize>().prop_map(Step::Answer),
            1 => asked().prop_map(|(by, id)| Step::Withdraw { by, id }),
            1 => (1..4_u64).prop_map(Step::Lose),
        ]
    }

    proptest! {
        #[test]
        fn each_question_is_closed_once_and_for_the_server_that_asked(
            steps in vec(step(), 0..60),
        ) {
            let mut questions = Questions::default();
            let mut own_id = own_ids();
            // Every question that the client got, and those that are open.
            let mut shown: Vec<(RequestId, u64)> = Vec::new();
            let mut open: BTreeMap<RequestId, (u64, RequestId)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Ask { by, id } => {
                        let id = chosen(id);
                        // A server keeps its own ids apart.
                        if open.values().any(|asked| *asked == (by, id.clone())) {
                            continue;
                        }
                        let by_server = Generation::new(by);
                        let known = questions.open(by_server, id.clone(), "roots/list", &mut own_id);
                        let known = known.unwrap();
                        let of_another = |(other, asker): &(RequestId, u64)| {
                            *other == known && *asker != by
                        };
                        prop_assert!(!shown.iter().any(of_another), "{} is ambiguous", known);
                        prop_assert_eq!(open.insert(known.clone(), (by, id)), None);
                        shown.push((known, by));
                    }
                    Step::Answer(number) if !shown.is_empty() => {
                        let (known, _) = shown.get(number % shown.len()).unwrap();
                        let expected = open.remove(known);
                        let closed = questions.close(known);
                        let expected = expected.map(|(by, id)| (Generation::new(by), id));
                        prop_assert_eq!(closed, expected);
                    }
                    Step::Answer(_) => {}
                    Step::Withdraw { by, id } => {
                        let asked = (by, chosen(id));
                        let known = open.iter().find(|(_, open)| **open == asked);
                        let known = known.map(|(known, _)| known.clone());
                        let closed = questions.cancel(Generation::new(by), &asked.1);
                        prop_assert_eq!(&closed, &known);
                        open.retain(|_, open| *open != asked);
                    }
                    Step::Lose(by) => {
                        let dropped = questions.drop_server(Generation::new(by));
                        let dropped: BTreeSet<RequestId> = dropped.into_iter().collect();
                        let theirs = open.iter().filter(|(_, (asker, _))| *asker == by);
                        prop_assert_eq!(dropped, theirs.map(|(known, _)| known.clone()).collect());
                        open.retain(|_, (asker, _)| *asker != by);
                    }
                }
                prop_assert_eq!(questions.any(), !open.is_empty());
            }
        }
    }

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).unwrap()
    }

    #[test]
    fn a_successors_questions_are_not_mistaken_for_its_predecessors() {
        let (first, second) = (Generation::new(1), Generation::new(2));
        let mut questions = Questions::default();
        assert_eq!(
            questions.open(first, id("0"), "roots/list", own_ids()),
            Some(id("0")),
            "as it came"
        );
        assert_eq!(questions.drop_server(first), [id("0")]);
        assert!(!questions.any());
        let shown = questions
            .open(second, id("0"), "roots/list", own_ids())
            .unwrap();
        assert_ne!(shown, id("0"));
        assert_eq!(
            questions.close(&id("0")),
            None,
            "an answer to the one that is gone"
        );
        assert_eq!(questions.close(&shown), Some((second, id("0"))));
    }

    #[test]
    fn a_question_can_be_withdrawn() {
        let server = Generation::new(3);
        let mut questions = Questions::default();
        questions
            .open(server, id("\"a\""), "roots/list", own_ids())
            .unwrap();
        assert_eq!(questions.cancel(server, &id("\"b\"")), None);
        assert_eq!(questions.cancel(server, &id("\"a\"")), Some(id("\"a\"")));
        assert!(!questions.any());
    }

    #[test]
    fn open_questions_are_bounded() {
        let mut questions = Questions::default();
        for number in 0..OPEN {
            questions
                .open(
                    Generation::new(1),
                    id(&number.to_string()),
                    "roots/list",
                    own_ids(),
                )
                .unwrap();
        }
        assert_eq!(
            questions.open(Generation::new(1), id("\"x\""), "roots/list", own_ids()),
            None
        );
    }
}
