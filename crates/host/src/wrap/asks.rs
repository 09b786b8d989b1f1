//! What the server asks the client: sampling, elicitation, roots.
//!
//! The first server's questions pass as they are. A successor counts its ids anew, and the client
//! may still be about to answer a question of its predecessor under the same id; so the questions
//! of later servers get ids of our own, and answers to a server that is gone are dropped.

use std::collections::BTreeMap;

use mainstay_contract::id::{Generation, RequestId};

/// Questions that may be open at a time; a server that asks more gets an error.
const OPEN: usize = 256;

/// The open questions, by the id under which the client knows them.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: BTreeMap<RequestId, Ask>,
    /// The server whose ids pass unchanged.
    first: Option<Generation>,
}

#[derive(Debug)]
struct Ask {
    /// Whether a person or a model is asked, which may take long.
    pauses: bool,
    by: Generation,
    /// The id under which the server knows it.
    id: RequestId,
}

/// Too many questions are open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Asks {
    /// A server asks something. Gives the id for the client.
    pub(super) fn ask(
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
        let pauses = matches!(method, "sampling/createMessage" | "elicitation/create");
        self.open.insert(shown.clone(), Ask { pauses, by, id });
        Ok(shown)
    }

    /// The client answered. Gives the server that asked, and its own id.
    pub(super) fn answered(&mut self, id: &RequestId) -> Option<(Generation, RequestId)> {
        let ask = self.open.remove(id)?;
        Some((ask.by, ask.id))
    }

    /// A server withdraws its question. Gives the id that the client knows.
    pub(super) fn withdrawn(&mut self, by: Generation, id: &RequestId) -> Option<RequestId> {
        let shown = self
            .open
            .iter()
            .find(|(_, ask)| ask.by == by && ask.id == *id)
            .map(|(shown, _)| shown.clone())?;
        self.open.remove(&shown);
        Some(shown)
    }

    /// A server is gone, and nobody waits for its answers. Gives what the client may forget.
    pub(super) fn lost(&mut self, by: Generation) -> Vec<RequestId> {
        let (gone, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|(_, ask)| ask.by == by);
        self.open = open;
        gone.into_keys().collect()
    }

    /// Whether a person or a model is asked something.
    pub(super) fn pauses(&self) -> bool {
        self.open.values().any(|ask| ask.pauses)
    }

    /// Whether the client is asked anything.
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
        let mut asks = Asks::default();
        assert_eq!(
            asks.ask(first, id("0"), "roots/list"),
            Ok(id("0")),
            "as it came"
        );
        assert_eq!(asks.lost(first), [id("0")]);
        assert!(!asks.any());
        let shown = asks.ask(second, id("0"), "roots/list").unwrap();
        assert_ne!(shown, id("0"));
        assert_eq!(
            asks.answered(&id("0")),
            None,
            "an answer to the one that is gone"
        );
        assert_eq!(asks.answered(&shown), Some((second, id("0"))));
    }

    #[test]
    fn a_question_can_be_withdrawn() {
        let server = Generation::new(3);
        let mut asks = Asks::default();
        asks.ask(server, id("\"a\""), "roots/list").unwrap();
        assert_eq!(asks.withdrawn(server, &id("\"b\"")), None);
        assert_eq!(asks.withdrawn(server, &id("\"a\"")), Some(id("\"a\"")));
        assert!(!asks.any());
    }

    #[test]
    fn open_questions_are_bounded() {
        let mut asks = Asks::default();
        for number in 0..OPEN {
            asks.ask(Generation::new(1), id(&number.to_string()), "roots/list")
                .unwrap();
        }
        assert_eq!(
            asks.ask(Generation::new(1), id("\"x\""), "roots/list"),
            Err(TooMany)
        );
    }
}
