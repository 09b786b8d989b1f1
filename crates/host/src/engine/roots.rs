//! The engine's dealings with the roots of its only client.
//!
//! A pack may follow them ([`crate::config::FollowsRoots`]). A client that declares that it has roots
//! is asked for them once its handshake is over, and again whenever it says that they changed. Until
//! the first answer, or until it is overdue, calls of such a pack wait and its worker is not
//! started. A worker that runs with other roots is rolled out: its successor starts beside it.
//!
//! Only legacy clients can be asked: the modern era has no requests from a server to its client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use mainstay_contract::dialect::encode;
use mainstay_contract::dialect::{Answer, Notice, Op};
use mainstay_contract::id::SessionId;
use mainstay_contract::json::Json;
use mainstay_contract::render::shorten;
use mainstay_kernel::call::SlotId;
use serde_json::{Value, json};

use super::clients::Conversation;
use super::{Engine, Event, Lifetime};
use crate::client_roots::{self, Found};
use crate::config::Pack;

/// How long an answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Characters of a client's own words in a log line.
const SHOWN: usize = 120;

/// What is known about the client's roots.
#[derive(Debug)]
pub(super) struct ClientRoots {
    stage: Stage,
    /// The client that can be asked.
    session: Option<SessionId>,
    /// The packs that follow, with their settings for a client without roots.
    configured: BTreeMap<SlotId, Json>,
    /// Those of them whose calls wait.
    waiting: BTreeSet<SlotId>,
    /// Whether the first answer is there, or overdue.
    settled: bool,
    /// Number of the last question.
    question: u64,
    /// Number of the last wait.
    wait: u64,
    /// Whether they changed again since they were asked for.
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The client has said nothing yet.
    Unheard,
    /// It can be asked when its handshake is over.
    Declared,
    Asked,
    /// It has answered, and the directories are being looked at.
    Answered,
    /// There is nothing to wait for.
    Known,
}

impl ClientRoots {
    pub(super) fn new(packs: &[Pack], lifetime: Lifetime) -> Self {
        let configured: BTreeMap<SlotId, Json> = packs
            .iter()
            .enumerate()
            .filter(|(_, pack)| pack.follows_roots.is_some() && lifetime == Lifetime::Client)
            .map(|(slot, pack)| (SlotId(slot), pack.settings.clone()))
            .collect();
        Self {
            stage: Stage::Unheard,
            session: None,
            waiting: configured.keys().copied().collect(),
            configured,
            settled: false,
            question: 0,
            wait: 0,
            again: false,
        }
    }

    /// Whether the pack follows the client's roots.
    pub(super) fn leads(&self, slot: SlotId) -> bool {
        self.configured.contains_key(&slot)
    }

    /// Whether calls of the pack wait.
    pub(super) fn holds(&self, slot: SlotId) -> bool {
        self.waiting.contains(&slot)
    }

    fn id(&self) -> String {
        format!("io.mainstay/roots/{}", self.question)
    }
}

impl Engine {
    /// A request shows whether the client will be asked.
    pub(super) fn hear(&mut self, session: SessionId, op: &Op) {
        if self.roots.configured.is_empty() {
            return;
        }
        match op {
            Op::Initialize { roots: true, .. } => {
                self.roots.stage = Stage::Declared;
                self.roots.session = Some(session);
                self.roots.waiting = self.roots.configured.keys().copied().collect();
                self.roots.settled = false;
                self.wait_for_roots();
            }
            Op::Initialize { roots: false, .. } => {
                self.roots.session = None;
                self.follow(&[]);
            }
            _ if self.roots.stage == Stage::Unheard => self.keep_roots(),
            _ => {}
        }
    }

    pub(super) fn client_news(&mut self, session: SessionId, notice: Notice) {
        if self.roots.session != Some(session) {
            return;
        }
        match (notice, self.roots.stage) {
            (Notice::Initialized, Stage::Declared) | (Notice::RootsChanged, Stage::Known) => {
                self.ask_for_roots(session);
            }
            (Notice::RootsChanged, Stage::Asked | Stage::Answered) => self.roots.again = true,
            _ => {}
        }
    }

    fn ask_for_roots(&mut self, session: SessionId) {
        let Some(Conversation::Lines { outbox, .. }) = self.conversations.get(&session) else {
            return self.keep_roots();
        };
        self.roots.question += 1;
        self.roots.stage = Stage::Asked;
        outbox.push(&encode::question(&self.roots.id(), "roots/list"));
        self.wait_for_roots();
    }

    fn wait_for_roots(&mut self) {
        self.roots.wait += 1;
        let (events, wait) = (self.events(), self.roots.wait);
        tokio::spawn(async move {
            tokio::time::sleep(ANSWER_WITHIN).await;
            let _ = events.send(Event::RootsOverdue { wait }).await;
        });
    }

    /// An answer that is not to the open question is nobody's.
    pub(super) fn client_answer(&mut self, session: SessionId, answer: Answer) {
        let ours = self.roots.session == Some(session)
            && self.roots.stage == Stage::Asked
            && answer.id.lookup_form() == self.roots.id();
        if !ours {
            return;
        }
        match answer.result {
            Ok(result) => {
                self.roots.stage = Stage::Answered;
                let (events, question) = (self.events(), self.roots.question);
                let named_only: Vec<PathBuf> = self
                    .packs
                    .iter()
                    .filter_map(|pack| pack.follows_roots.as_ref())
                    .flat_map(|follows| follows.named_only.iter().cloned())
                    .collect();
                // A directory of a machine that does not answer must not stop the loop.
                tokio::task::spawn_blocking(move || {
                    let found = client_roots::find(&result, &named_only);
                    let _ = events.blocking_send(Event::RootsFound { question, found });
                });
            }
            Err(error) => self.no_roots(error.as_str()),
        }
    }

    pub(super) fn roots_found(&mut self, question: u64, found: Result<Found, String>) {
        if self.roots.stage != Stage::Answered || self.roots.question != question {
            return;
        }
        match found {
            Ok(found) => {
                if let Some(first) = &found.first_ignored {
                    let (ignored, used) = (found.ignored, found.paths.len());
                    self.log.line(&format!(
                        "mcp:warning reason=roots_ignored ignored={ignored} used={used} {first}"
                    ));
                }
                self.follow(&found.paths);
            }
            Err(said) => self.no_roots(&said),
        }
    }

    pub(super) fn roots_overdue(&mut self, wait: u64) {
        if self.roots.wait != wait {
            return;
        }
        match self.roots.stage {
            // It may still say that its handshake is over, and is asked then.
            Stage::Declared => {
                self.keep_roots();
                self.roots.stage = Stage::Declared;
            }
            Stage::Asked | Stage::Answered => self.no_roots("no answer in time"),
            Stage::Unheard | Stage::Known => {}
        }
    }

    /// A client whose input has ended answers nothing more.
    pub(super) fn roots_end(&mut self, session: SessionId) {
        if self.roots.session == Some(session) {
            self.roots.session = None;
            self.roots.again = false;
            if self.roots.stage != Stage::Known {
                self.keep_roots();
            }
        }
    }

    fn no_roots(&mut self, said: &str) {
        let said = shorten(said, SHOWN);
        self.log
            .line(&format!("mcp:warning reason=no_roots {said:?}"));
        self.keep_roots();
    }

    /// These are the client's roots; without any, packs are set up as they are configured.
    fn follow(&mut self, paths: &[PathBuf]) {
        for (slot, configured) in &self.roots.configured {
            if let Some(pack) = self.packs.get_mut(slot.0) {
                pack.settings = match &pack.follows_roots {
                    Some(follows) if !paths.is_empty() => {
                        with_roots(configured, &follows.setting, paths)
                    }
                    _ => configured.clone(),
                };
            }
        }
        self.keep_roots();
    }

    /// What the packs are set up with is what counts.
    fn keep_roots(&mut self) {
        self.roots.stage = Stage::Known;
        self.roots.settled = true;
        let slots: Vec<SlotId> = self.roots.configured.keys().copied().collect();
        for slot in slots {
            self.renew(slot);
        }
        let again = std::mem::take(&mut self.roots.again);
        if let (true, Some(session)) = (again, self.roots.session) {
            self.ask_for_roots(session);
        }
    }

    /// Sees to it that a pack's worker is one that was started with the pack's settings.
    pub(super) fn renew(&mut self, slot: SlotId) {
        if !self.roots.settled || !self.roots.leads(slot) || self.kernel.is_stopping() {
            return;
        }
        let serving = self.kernel.serving(slot);
        let now = self.clock.now();
        if serving.is_some_and(|serving| self.is_outdated(serving)) {
            self.kernel.handle_rollout(now, slot);
        } else if serving.is_some() || !self.starts_outdated(slot) {
            self.kernel.warm(now, slot);
            self.release(slot);
        }
    }

    /// Lets the calls of a pack go that waited for the client's roots.
    pub(super) fn release(&mut self, slot: SlotId) {
        if self.roots.settled && self.roots.waiting.remove(&slot) {
            self.route_waiting();
        }
    }

    /// A pack that cannot start with the client's roots is set up as it is configured. Whether
    /// that is a change.
    pub(super) fn refuse_roots(&mut self, slot: SlotId) -> bool {
        let (Some(configured), Some(pack)) =
            (self.roots.configured.get(&slot), self.packs.get_mut(slot.0))
        else {
            return false;
        };
        let differs = pack.settings != *configured;
        pack.settings = configured.clone();
        differs
    }
}

fn with_roots(configured: &Json, setting: &str, paths: &[PathBuf]) -> Json {
    let mut settings = configured.to_value().unwrap_or_default();
    let roots: Vec<Value> = paths.iter().map(|path| json!({ "path": path })).collect();
    if let Value::Object(members) = &mut settings {
        members.insert(setting.to_owned(), json!(roots));
    }
    settings.into()
}
