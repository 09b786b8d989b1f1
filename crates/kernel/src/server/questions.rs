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
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    /// True if a person or a model answers, which may take long.
    pauses: bool,
    by: Generation,
    /// The id under which the server knows it.
    id: RequestId,
}

/// Too many questions are open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Questions {
    /// Opens a question. Returns the id for the client.
    pub(super) fn open(
        &mut self,
        by: Generation,
        id: RequestId,
        method: &str,
    ) -> Result<RequestId, TooMany> {
        if self.open.len() >= OPEN {
            return Err(TooMany);
        }
        let first = *self.first.get_or_insert(by);
        let shown = if by == first {
            id.clone()
        } else {
            rename(by, &id)
        };
        let pauses = Method::parse(method).is_some_and(Method::pauses_deadlines);
        self.open.insert(shown.clone(), Question { pauses, by, id });
        Ok(shown)
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

    /// True while any question is open.
    pub(super) fn any(&self) -> bool {
        !self.open.is_empty()
    }
}

/// An id that no server has chosen.
fn rename(by: Generation, id: &RequestId) -> RequestId {
    // As it was written: the number 1 and the text "1" are two questions.
    let text = format!("mainstay:{by}:{}", id.as_raw());
    let raw = serde_json::Value::from(text).to_string();
    // A very long id may become too long with its prefix; it is then left as it is.
    RequestId::parse(&raw).unwrap_or_else(|_| id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).unwrap()
    }

    #[test]
    fn a_successors_questions_are_not_mistaken_for_its_predecessors() {
        let (first, second) = (Generation::new(1), Generation::new(2));
        let mut questions = Questions::default();
        assert_eq!(
            questions.open(first, id("0"), "roots/list"),
            Ok(id("0")),
            "as it came"
        );
        assert_eq!(questions.drop_server(first), [id("0")]);
        assert!(!questions.any());
        let shown = questions.open(second, id("0"), "roots/list").unwrap();
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
        questions.open(server, id("\"a\""), "roots/list").unwrap();
        assert_eq!(questions.cancel(server, &id("\"b\"")), None);
        assert_eq!(questions.cancel(server, &id("\"a\"")), Some(id("\"a\"")));
        assert!(!questions.any());
    }

    #[test]
    fn open_questions_are_bounded() {
        let mut questions = Questions::default();
        for number in 0..OPEN {
            questions.open(Generation::new(1), id(&number.to_string()), "roots/list")
                .unwrap();
        }
        assert_eq!(
            questions.open(Generation::new(1), id("\"x\""), "roots/list"),
            Err(TooMany)
        );
    }
}
