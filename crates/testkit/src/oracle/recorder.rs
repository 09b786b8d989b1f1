//! A client that keeps its history while it talks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::ledger::answered_effect;
use super::{Answer, CancelKind, Effect, Event, Failure, History, Ledger};
use crate::peer::{Client, Message};

/// How the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Legacy,
    Direct,
}

/// The client. Its ids are numbers from 1 on.
#[derive(Debug)]
pub struct Recorder {
    client: Client,
    number: usize,
    dialect: Dialect,
    epoch: Instant,
    history: History,
    next_id: u64,
    waiting: BTreeSet<u64>,
    speaks: Speaks,
    /// Methods of notifications that are heard and not noted.
    ignored: Vec<&'static str>,
}

/// What the structured content of a tool's answer says that it did.
pub type Speaks = fn(tool: &str, structured: &Value) -> Option<Effect>;

impl Recorder {
    /// A client with a number of its own. All recorders of a run share `epoch`.
    pub fn new(client: Client, number: usize, dialect: Dialect, epoch: Instant) -> Self {
        Self {
            client,
            number,
            dialect,
            epoch,
            history: History::default(),
            next_id: 1,
            waiting: BTreeSet::new(),
            speaks: answered_effect,
            ignored: Vec::new(),
        }
    }

    /// Reads the answers of other tools than the example ledger's.
    #[must_use]
    pub const fn reading(mut self, speaks: Speaks) -> Self {
        self.speaks = speaks;
        self
    }

    /// Lets notifications of this method pass.
    #[must_use]
    pub fn ignoring(mut self, method: &'static str) -> Self {
        self.ignored.push(method);
        self
    }

    /// Calls whose answer is still to come, oldest first. Silently cancelled ones do not count.
    pub const fn waiting(&self) -> &BTreeSet<u64> {
        &self.waiting
    }

    /// Sends a call of the ledger, with progress, and gives its id.
    pub fn ask(&mut self, call: Ledger) -> anyhow::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let Ledger { asked, arguments } = call;
        let tool = &asked.tool;
        let line = match self.dialect {
            Dialect::Direct => {
                json!({"jsonrpc": "2.0", "id": id, "method": tool, "params": arguments})
            }
            Dialect::Legacy => json!({
                "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {
                    "name": tool, "arguments": arguments, "_meta": {"progressToken": id},
                },
            }),
        };
        self.note(id, Event::Asked(asked));
        self.waiting.insert(id);
        self.client.send(&line.to_string())?;
        Ok(id)
    }

    /// Cancels a call.
    pub fn cancel(&mut self, id: u64, kind: CancelKind) -> anyhow::Result<()> {
        self.note(id, Event::Cancelled(kind));
        let line = match kind {
            CancelKind::Answered => {
                json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}})
            }
            CancelKind::Silent => {
                self.waiting.remove(&id);
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": id}})
            }
        };
        self.client.send(&line.to_string())
    }

    /// Waits for one message and notes it; gives the call that it answers.
    pub fn hear(&mut self) -> anyhow::Result<Option<u64>> {
        let message = self.client.next()?;
        self.take(&message)
    }

    /// Hears until every call that is waited for is answered.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        while !self.waiting.is_empty() {
            self.hear()
                .with_context(|| format!("client {} waits for {:?}", self.number, self.waiting))?;
        }
        Ok(())
    }

    /// Notes whatever still comes within `time`, then gives the history and the client.
    pub fn finish(mut self, time: Duration) -> anyhow::Result<(History, Client)> {
        let until = Instant::now() + time;
        while let Some(message) = self.client.next_until(until)? {
            self.take(&message)?;
        }
        Ok((self.history, self.client))
    }

    fn take(&mut self, message: &Message) -> anyhow::Result<Option<u64>> {
        if message.id().is_none() {
            let method = message.method().unwrap_or_default();
            if self.ignored.contains(&method.as_str()) {
                return Ok(None);
            }
            ensure!(
                method == "notifications/progress",
                "unexpected: {message:?}"
            );
            let key = match self.dialect {
                Dialect::Direct => "/params/id",
                Dialect::Legacy => "/params/progressToken",
            };
            let id = message.at(key);
            let id = id
                .as_u64()
                .with_context(|| format!("progress of no call: {message:?}"))?;
            self.note(id, Event::Progress);
            return Ok(None);
        }
        let id = message.at("/id").as_u64();
        let id = id.with_context(|| format!("an answer to an id nobody used: {message:?}"))?;
        let answer = match Failure::read(message) {
            Some(failure) => Answer::Failed(failure),
            None => Answer::Success(self.spoken_of(id, message)),
        };
        self.note(id, Event::Answered(answer));
        self.waiting.remove(&id);
        Ok(Some(id))
    }

    fn spoken_of(&self, id: u64, message: &Message) -> Option<Effect> {
        let id = id.to_string();
        let tool = self
            .history
            .entries()
            .iter()
            .rev()
            .find_map(|entry| match &entry.event {
                Event::Asked(asked) if entry.id == id => Some(asked.tool.as_str()),
                _ => None,
            })?;
        let result: Value = match self.dialect {
            Dialect::Direct => message.at("/result"),
            Dialect::Legacy => message.at("/result/structuredContent"),
        };
        (self.speaks)(tool, &result)
    }

    fn note(&mut self, id: u64, event: Event) {
        let at = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.history.note(at, self.number, &id.to_string(), event);
    }
}
