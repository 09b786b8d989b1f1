//! The actions that a core asked for, by what a test looks for.

use mainstay_contract::dialect::EchoId;
use mainstay_contract::id::SessionId;
use mainstay_contract::outcome::Outcome;
use mainstay_kernel::action::{Delivery, End};
use mainstay_kernel::core::action::CoreAction;
use serde_json::Value;

use super::Shell;

impl Shell {
    pub fn actions(&self) -> impl Iterator<Item = &CoreAction> {
        self.did.iter().map(|(_, action)| action)
    }

    /// Every end so far.
    pub fn ends(&self) -> impl Iterator<Item = &End> {
        self.actions().filter_map(|action| match action {
            CoreAction::End { end, .. } => Some(&**end),
            _ => None,
        })
    }

    /// The only end of a client's request, by the text of its id.
    pub fn end_of(&self, session: SessionId, id: &str) -> Option<&End> {
        let ends = self.ends().filter(|end| {
            let is_it = matches!(&end.id, EchoId::Known(known) if known.as_raw() == id);
            end.session == session && is_it
        });
        let ends: Vec<&End> = ends.collect();
        assert!(ends.len() <= 1, "{id} ended twice: {ends:?}");
        ends.first().copied()
    }

    /// The only outcome of a client's request that is delivered.
    pub fn outcome(&self, session: SessionId, id: &str) -> Option<&Outcome> {
        let end = self.end_of(session, id)?;
        assert_eq!(end.delivery, Delivery::Send);
        Some(&end.outcome)
    }

    /// The progress token of the only call that a server got.
    pub fn forwarded_token(&self) -> Value {
        let mut lines = self.actions().filter_map(|action| match action {
            CoreAction::Forward { line, .. } => Some(line),
            _ => None,
        });
        let line: Value = serde_json::from_str(lines.next().unwrap().as_str()).unwrap();
        assert!(lines.next().is_none(), "one call");
        line["params"]["_meta"]["progressToken"].clone()
    }

    /// Lines that a client got beside the ends of its requests.
    pub fn told(&self, to: SessionId) -> Vec<Value> {
        let told = self.actions().filter_map(|action| match action {
            CoreAction::Tell { session, line } if *session == to => Some(line),
            _ => None,
        });
        told.map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}
