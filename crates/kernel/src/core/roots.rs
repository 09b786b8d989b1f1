//! The roots of the host's only client, for packs that follow them.
//!
//! A client that declares roots is asked for them once its handshake is over, and again whenever it reports
//! a change. Until the first answer, or until it is overdue, calls of such a pack wait and its worker is
//! not started. A worker that runs with other roots is rolled out: its successor starts beside it.
//!
//! Only legacy clients can be asked: the modern era has no requests from a server to its client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mainstay_contract::dialect::encode;
use mainstay_contract::dialect::{Answer, Notice, Op};
use mainstay_contract::id::SessionId;
use mainstay_contract::json::Json;
use mainstay_contract::method::Method;
use mainstay_contract::render::shorten;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Core;
use super::action::{CoreAction, RootsFound};
use crate::call::SlotId;
use crate::time::Time;

/// How long the host waits for an answer, in milliseconds.
const ANSWER_MS: u64 = 5000;
/// Characters of a client's own words in a log line.
const SHOWN: usize = 120;

/// The settings of packs, and the state of the question for the client's roots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ClientRoots {
    stage: Stage,
    /// The client that can be asked.
    session: Option<SessionId>,
    /// The present settings of every pack.
    settings: BTreeMap<SlotId, Json>,
    /// The packs that follow: the name of the setting, and their settings for a client without roots.
    configured: BTreeMap<SlotId, (String, Json)>,
    /// Settings before a change whose rollout has not ended.
    #[serde(default)]
    before: BTreeMap<SlotId, Json>,
    /// Those of them whose calls wait.
    waiting: BTreeSet<SlotId>,
    /// The first answer arrived, or is overdue.
    settled: bool,
    /// Number of the last question.
    question: u64,
    /// When the answer is overdue.
    until: Option<Time>,
    /// The roots changed again since the client was asked.
    again: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    /// The client has sent nothing yet.
    #[default]
    Unheard,
    /// It can be asked when its handshake is over.
    Declared,
    Asked,
    /// It has answered, and the shell looks at the directories.
    Answered,
    /// There is nothing to wait for.
    Known,
}

impl ClientRoots {
    /// Adds a pack; `follows` is the setting that the client's roots replace.
    pub(super) fn add_pack(&mut self, slot: SlotId, settings: Json, follows: Option<String>) {
        if let Some(setting) = follows {
            self.configured.insert(slot, (setting, settings.clone()));
            self.waiting.insert(slot);
        }
        self.settings.insert(slot, settings);
    }

    /// The slots of all packs.
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.settings.keys().copied()
    }

    /// The present settings of a pack.
    pub(super) fn settings(&self, slot: SlotId) -> Option<&Json> {
        self.settings.get(&slot)
    }

    /// True if the pack follows the client's roots.
    pub(super) fn follows(&self, slot: SlotId) -> bool {
        self.configured.contains_key(&slot)
    }

    /// True while calls of the pack wait.
    pub(super) fn holds(&self, slot: SlotId) -> bool {
        self.waiting.contains(&slot)
    }

    /// When [`Core::roots_overdue`] must be called.
    pub(super) const fn timeout(&self) -> Option<Time> {
        self.until
    }

    /// Gives a pack that cannot start with the client's roots its configured settings. True if that is a
    /// change.
    pub(super) fn refuse(&mut self, slot: SlotId) -> bool {
        let Some((_, configured)) = self.configured.get(&slot) else {
            return false;
        };
        let before = self.settings.insert(slot, configured.clone());
        before.as_ref() != Some(configured)
    }

    /// Takes changed settings of a pack; the client's roots stay. True if that is a change.
    fn change(&mut self, slot: SlotId, changed: Json) -> bool {
        let Some(now) = self.settings.get(&slot).cloned() else {
            return false;
        };
        let settings = match self.configured.get_mut(&slot) {
            Some((setting, configured)) => {
                *configured = changed.clone();
                match now.to_value().unwrap_or_default().get(setting.as_str()) {
                    Some(roots) => with_member(&changed, setting, roots.clone()),
                    None => changed,
                }
            }
            None => changed,
        };
        if settings == now {
            return false;
        }
        self.before.entry(slot).or_insert(now);
        self.settings.insert(slot, settings);
        true
    }

    /// The rollout of a change ended: settings with which no worker starts are given up.
    pub(super) fn settle_change(&mut self, slot: SlotId, works: bool) {
        if let Some(before) = self.before.remove(&slot)
            && !works
        {
            self.settings.insert(slot, before);
        }
    }

    fn id(&self) -> String {
        format!("io.mainstay/roots/{}", self.question)
    }
}

impl Core {
    /// A request shows whether the client can be asked.
    pub(super) fn roots_request(&mut self, session: SessionId, op: &Op) {
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

    pub(super) fn roots_notice(&mut self, session: SessionId, notice: Notice) {
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
        if !self.sessions.contains_key(&session) {
            return self.keep_roots();
        }
        self.roots.question += 1;
        self.roots.stage = Stage::Asked;
        let line = encode::question(&self.roots.id(), Method::ListRoots.name());
        self.out.push_back(CoreAction::Tell { session, line });
        self.wait_for_roots();
    }

    fn wait_for_roots(&mut self) {
        self.roots.until = Some(self.clock.now.plus_ms(ANSWER_MS));
    }

    /// An answer to any other question is ignored.
    pub(super) fn roots_answer(&mut self, session: SessionId, answer: Answer) {
        let ours = self.roots.session == Some(session)
            && self.roots.stage == Stage::Asked
            && answer.id.lookup_form() == self.roots.id();
        if !ours {
            return;
        }
        match answer.result {
            Ok(answer) => {
                self.roots.stage = Stage::Answered;
                let question = self.roots.question;
                self.out
                    .push_back(CoreAction::FindRoots { question, answer });
            }
            Err(error) => self.no_roots(error.as_str()),
        }
    }

    pub(super) fn roots_found(&mut self, question: u64, found: Result<RootsFound, String>) {
        if self.roots.stage != Stage::Answered || self.roots.question != question {
            return;
        }
        match found {
            Ok(found) => {
                if let Some(first) = &found.first_ignored {
                    let (ignored, used) = (found.ignored, found.paths.len());
                    self.log(format!(
                        "mcp:warning reason=roots_ignored ignored={ignored} used={used} {first}"
                    ));
                }
                self.follow(&found.paths);
            }
            Err(said) => self.no_roots(&said),
        }
    }

    pub(super) fn roots_overdue(&mut self) {
        self.roots.until = None;
        match self.roots.stage {
            // It may still end its handshake, and is asked then.
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
        self.log(format!("mcp:warning reason=no_roots {said:?}"));
        self.keep_roots();
    }

    /// Gives the packs the client's roots; without any they keep their configured settings.
    fn follow(&mut self, paths: &[PathBuf]) {
        let roots = &mut self.roots;
        for (slot, (setting, configured)) in &roots.configured {
            let settings = if paths.is_empty() {
                configured.clone()
            } else {
                let roots = paths.iter().map(|path| json!({ "path": path })).collect();
                with_member(configured, setting, roots)
            };
            roots.settings.insert(*slot, settings);
        }
        self.keep_roots();
    }

    /// Uses the settings that the packs have now.
    fn keep_roots(&mut self) {
        self.roots.stage = Stage::Known;
        self.roots.settled = true;
        self.roots.until = None;
        let slots: Vec<SlotId> = self.roots.configured.keys().copied().collect();
        for slot in slots {
            self.renew(slot);
        }
        let again = std::mem::take(&mut self.roots.again);
        if let (true, Some(session)) = (again, self.roots.session) {
            self.ask_for_roots(session);
        }
    }

    /// Replaces a pack's worker if it was started with other settings.
    pub(super) fn renew(&mut self, slot: SlotId) {
        if !self.roots.settled || !self.roots.follows(slot) || self.kernel.is_stopping() {
            return;
        }
        let serving = self.kernel.serving(slot);
        let now = self.clock.now;
        if serving.is_some_and(|serving| self.is_outdated(serving)) {
            self.kernel.handle_rollout(now, slot);
        } else if serving.is_some() || !self.starts_outdated(slot) {
            self.kernel.warm(now, slot);
            self.release(slot);
        }
    }

    /// An operator changed the settings of packs: workers with the new ones take over.
    pub(super) fn apply_settings(&mut self, changed: Vec<(String, Json)>) {
        if !self.kernel.is_serving() {
            return;
        }
        for (pack, settings) in changed {
            let slot = self.roots.slots().find(|slot| self.name_of(*slot) == pack);
            if let Some(slot) = slot
                && self.roots.change(slot, settings)
            {
                self.log(format!("mcp:config changed pack={pack}"));
                self.kernel.handle_rollout(self.clock.now, slot);
            }
        }
    }

    /// Releases the calls of a pack that waited for the client's roots.
    pub(super) fn release(&mut self, slot: SlotId) {
        if self.roots.settled && self.roots.waiting.remove(&slot) {
            self.route_waiting();
        }
    }
}

/// Settings with another value of one member.
fn with_member(settings: &Json, name: &str, value: Value) -> Json {
    let mut settings = settings.to_value().unwrap_or_default();
    if let Value::Object(members) = &mut settings {
        members.insert(name.to_owned(), value);
    }
    settings.into()
}
