//! Tool knowledge: what the server's tools mean for a call, learned from the lists that pass by or that
//! the host fetches.
//!
//! Definitions pass unchanged. Each is kept with its replay class, its timeout, the schemas that
//! its arguments and results are checked against, and its standing: may it be used at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::meta;
use mainstay_contract::method::ListKind;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::{self, HiddenAt};
use mainstay_contract::replay::Replay;
use mainstay_schema::Fingerprint;
use mainstay_schema::check::Definition;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::edit;
use super::rules::{OnTimeout, Rules};
use crate::locked::{Locked, Withdrawn};

/// Tools that are remembered.
pub(super) const TOOLS: usize = 10_000;

/// The tools of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tools {
    rules: Arc<Rules>,
    locked: Option<Arc<Locked>>,
    known: BTreeMap<String, Tool>,
    /// Definitions for which there was no room.
    #[serde(default)]
    left_out: usize,
    /// The server's error in place of its list.
    refusal: Option<Json>,
    /// True if the whole list was seen since it last changed.
    complete: bool,
    /// Counts the times that what was known was given up.
    epoch: u64,
    /// The operator was told which rules name tools that are not there.
    rules_reported: bool,
}

/// One tool, as calls need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tool {
    pub(super) replay: Replay,
    pub(super) standing: Standing,
    /// Its place in the server's list.
    position: usize,
    /// Its definition has a member twice, and there is a lock.
    ambiguous: bool,
    /// The definition as the server wrote it.
    pub(super) definition: Json,
    /// Its schemas.
    pub(super) check: Definition,
    /// The operator was told that its schemas cannot be compiled.
    unchecked: bool,
}

/// May a tool be used?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    Open,
    /// The operator does not permit it.
    Denied,
    /// The server does not list it, so it cannot be compared with the tools that are denied.
    Unlisted,
    /// The lock does not have it as it is.
    Withdrawn(Withdrawn),
}

/// The facts of one definition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Learned {
    pub(super) name: String,
    pub(super) standing: Standing,
    /// It is withdrawn because its definition has a member twice.
    pub(super) ambiguous: bool,
    /// The places of invisible characters in its definition.
    pub(super) hidden: Vec<HiddenAt>,
}

impl Tools {
    pub(super) fn new(rules: Arc<Rules>, locked: Option<Arc<Locked>>) -> Self {
        Self {
            rules,
            locked,
            known: BTreeMap::new(),
            left_out: 0,
            refusal: None,
            complete: false,
            epoch: 0,
            rules_reported: false,
        }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn shared_rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules)
    }

    /// The lock that the tools are held to.
    pub(super) fn lock(&self) -> Option<&Locked> {
        self.locked.as_deref()
    }

    /// The list has changed: nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.left_out = 0;
        self.refusal = None;
        self.complete = false;
        self.epoch += 1;
    }

    /// The server answered the request for its list with an error.
    pub(super) fn refuse(&mut self, line: Json) {
        self.refusal = Some(line);
    }

    /// The server's error in place of its list.
    pub(super) const fn refusal(&self) -> Option<&Json> {
        self.refusal.as_ref()
    }

    /// Applies changed rules: every tool must be learned again.
    pub(super) fn apply_rules(&mut self, rules: Arc<Rules>) {
        self.rules = rules;
        self.rules_reported = false;
        self.forget();
    }

    /// Holds the tools to another lock: every tool must be learned again.
    pub(super) fn apply_lock(&mut self, locked: Option<Arc<Locked>>) {
        self.locked = locked;
        self.forget();
    }

    /// Another server may have other tools. Without a lock what was known serves until its list
    /// is here; with one nothing is believed.
    pub(super) fn doubt(&mut self) {
        self.complete = false;
        self.epoch += 1;
        if self.locked.is_some() {
            self.known.clear();
        }
    }

    /// True if anything was ever known.
    pub(super) fn any(&self) -> bool {
        !self.known.is_empty()
    }

    /// True if the whole list is known.
    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The present epoch, for [`Tools::completed`].
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The whole of a list has been seen that was begun in this epoch.
    pub(super) fn completed(&mut self, begun: u64) {
        self.complete |= begun == self.epoch;
    }

    /// Names in the rules that no tool has, once, when all tools are known.
    pub(super) fn strange_names(&mut self) -> Vec<String> {
        if !self.complete || std::mem::replace(&mut self.rules_reported, true) {
            return Vec::new();
        }
        let mut names = self.rules.names();
        names.retain(|name| !self.known.contains_key(*name));
        names.into_iter().map(str::to_owned).collect()
    }

    /// Why a tool that is not known may not be called, if it may not.
    pub(super) fn stranger(&self, name: &str) -> Standing {
        if !self.rules.permits(name) {
            Standing::Denied
        } else if !self.rules.deny.is_empty() || self.rules.approvals.names_tools() {
            Standing::Unlisted
        } else if self.locked.is_some() {
            Standing::Withdrawn(Withdrawn::New)
        } else {
            Standing::Open
        }
    }

    /// True if a definition may be shown.
    pub(super) fn shows(&self, definition: &str) -> bool {
        let value: Option<Value> = serde_json::from_str(definition).ok();
        let name = value.as_ref().and_then(|value| value.get("name")?.as_str());
        match (value.as_ref(), name) {
            (Some(value), Some(name)) => {
                let known = self
                    .known
                    .get(name)
                    .is_none_or(|tool| tool.standing == Standing::Open && !tool.ambiguous);
                let clear = !self.is_ambiguous(definition);
                known && clear && self.standing(name, value) == Standing::Open
            }
            // What cannot be read cannot have been looked at either.
            _ => self.locked.is_none() && self.rules.allow.is_empty() && self.rules.deny.is_empty(),
        }
    }

    /// True if a call of this tool can be decided about.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.complete || self.known.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.known.get(name)
    }

    /// The definitions that a client may see, in the server's order.
    pub(super) fn visible(&self) -> impl Iterator<Item = &Json> {
        let open = |tool: &&Tool| tool.standing == Standing::Open && !tool.ambiguous;
        let mut tools: Vec<&Tool> = self.known.values().filter(open).collect();
        tools.sort_by_key(|tool| tool.position);
        tools.into_iter().map(|tool| &tool.definition)
    }

    /// All definitions, in the server's order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Json> {
        let mut tools: Vec<&Tool> = self.known.values().collect();
        tools.sort_by_key(|tool| tool.position);
        tools.into_iter().map(|tool| &tool.definition)
    }

    /// Records that a tool's schemas cannot be compiled. True the first time.
    pub(super) fn mark_unchecked(&mut self, name: &str) -> bool {
        let tool = self.known.get_mut(name);
        tool.is_some_and(|tool| !std::mem::replace(&mut tool.unchecked, true))
    }

    /// Takes in one definition.
    pub(super) fn learn(&mut self, definition: &str) -> Option<Learned> {
        let value: Value = serde_json::from_str(definition).ok()?;
        let name = value.get("name")?.as_str()?.to_owned();
        let mut standing = self.standing(&name, &value);
        // Of two definitions under one name the worse counts.
        if let Some(other) = self.known.get(&name).filter(|_| standing == Standing::Open) {
            standing = other.standing;
        }
        let before = self.known.get(&name);
        let ambiguous = self.is_ambiguous(definition) || before.is_some_and(|tool| tool.ambiguous);
        let tool = Tool {
            replay: self.replay(&name, &value),
            ambiguous,
            standing,
            position: before.map_or(self.known.len(), |tool| tool.position),
            definition: Json::from_scanned(definition),
            check: Definition::of_server(
                &name,
                &value,
                self.rules.check_input,
                self.rules.check_output,
            ),
            unchecked: false,
        };
        if self.known.len() < TOOLS || self.known.contains_key(&name) {
            self.known.insert(name.clone(), tool);
        } else {
            self.left_out += 1;
        }
        Some(Learned {
            name,
            standing,
            ambiguous,
            hidden: render::hidden_in(&value),
        })
    }

    /// The number of definitions for which there was no room since the last time.
    pub(super) const fn take_left_out(&mut self) -> usize {
        std::mem::replace(&mut self.left_out, 0)
    }

    /// True if readers may differ about a reviewed definition.
    fn is_ambiguous(&self, definition: &str) -> bool {
        self.locked.is_some() && edit::has_twice(definition)
    }

    fn standing(&self, name: &str, definition: &Value) -> Standing {
        if !self.rules.permits(name) {
            return Standing::Denied;
        }
        let Some(locked) = &self.locked else {
            return Standing::Open;
        };
        match locked.compare(ListKind::Tools, name, &Fingerprint::of(definition)) {
            None => Standing::Open,
            Some(withdrawn) => Standing::Withdrawn(withdrawn),
        }
    }

    /// The class that the operator gives a tool.
    pub(super) fn configured_replay(&self, name: &str) -> Option<Replay> {
        self.rules.tools.get(name).and_then(|rules| rules.replay)
    }

    fn replay(&self, name: &str, definition: &Value) -> Replay {
        if let Some(replay) = self.configured_replay(name) {
            return replay;
        }
        if !self.rules.trust_hints {
            return Replay::NeverReplay;
        }
        declared_replay(definition)
    }

    /// The timeout of a tool's calls and whether a server that exceeds it must go.
    pub(super) fn patience(&self, name: &str, default_ms: u64) -> (u64, bool) {
        let tool = self.rules.tools.get(name);
        let timeout = tool.and_then(|tool| tool.timeout_ms);
        (
            timeout.unwrap_or(default_ms),
            self.rules.on_timeout(name) == OnTimeout::Kill,
        )
    }
}

/// The replay class that a server's own definition of a tool stands for.
pub fn declared_replay(definition: &Value) -> Replay {
    let declared = definition
        .get("_meta")
        .and_then(|declared| declared.get(meta::REPLAY));
    // A probe is something only the operator can describe.
    match declared.and_then(Value::as_str) {
        Some("convergent") => return Replay::Convergent,
        Some("probe_required" | "never_replay") => return Replay::NeverReplay,
        _ => {}
    }
    let hint = |key: &str| {
        let hint = definition.get("annotations").and_then(|all| all.get(key));
        hint == Some(&Value::Bool(true))
    };
    if hint("readOnlyHint") || hint("idempotentHint") {
        Replay::Convergent
    } else {
        Replay::NeverReplay
    }
}

impl Tool {
    /// The error of a call that must not be sent at all, whatever its arguments are.
    pub(super) fn refusal(&self, name: &str) -> Option<Problem> {
        if let Some(problem) = self.standing.problem(name) {
            return Some(problem);
        }
        let withdrawn = Withdrawn::Ambiguous;
        self.ambiguous
            .then(|| withdrawn.problem(ListKind::Tools, name))
    }
}

impl Standing {
    /// The error for a call of such a tool.
    pub(super) fn problem(self, name: &str) -> Option<Problem> {
        match self {
            Self::Open => None,
            Self::Denied => {
                let said = format!("the tool {name} is not permitted here");
                let problem = Problem::new(ErrorKind::Forbidden, said);
                Some(problem.with_hint("ask the operator of this server"))
            }
            Self::Unlisted => {
                let said = format!("the server does not list the tool {name}");
                let problem = Problem::new(ErrorKind::Forbidden, said);
                let hint =
                    "some tools are denied here, so only listed ones are called; list the tools";
                Some(problem.with_hint(hint))
            }
            Self::Withdrawn(withdrawn) => Some(withdrawn.problem(ListKind::Tools, name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Definitions of three tools: as they were reviewed, changed, and with a member twice.
    const DEFINITIONS: [&str; 6] = [
        r#"{"name":"a","description":"reads"}"#,
        r#"{"name":"a","description":"reads everything"}"#,
        r#"{"name":"a","description":"evil","description":"reads"}"#,
        r#"{"name":"b","description":"writes"}"#,
        r#"{"name":"denied","description":"reads"}"#,
        r#"{"name":"new","description":"reads"}"#,
    ];

    fn reviewed() -> Arc<Locked> {
        let plain = [(0, "a"), (3, "b"), (4, "denied")];
        let locked = plain.map(|(number, name)| {
            let definition = serde_json::from_str(DEFINITIONS[number]).unwrap();
            (name.to_owned(), Fingerprint::of(&definition))
        });
        Arc::new(Locked::of_tools(locked))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Learn(usize),
        Forget,
        Doubt,
        ApplyRules,
        /// A list ends that was begun so many epochs ago.
        Complete(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..DEFINITIONS.len()).prop_map(Step::Learn),
            1 => Just(Step::Forget),
            1 => Just(Step::Doubt),
            1 => Just(Step::ApplyRules),
            3 => (0..3_u64).prop_map(Step::Complete),
        ]
    }

    proptest! {
        #[test]
        fn a_tool_is_as_good_as_the_worst_definition_of_it_that_was_learned(
            steps in vec(step(), 0..40),
            has_lock in any::<bool>(),
        ) {
            let rules: Arc<Rules> = Arc::new(serde_json::from_str(r#"{"deny":["denied"]}"#).unwrap());
            let mut tools = Tools::new(Arc::clone(&rules), has_lock.then(reviewed));
            let mut learned: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            let mut is_complete = false;
            for step in steps {
                let epoch = tools.epoch();
                match step {
                    Step::Learn(number) => {
                        let names = ["a", "a", "a", "b", "denied", "new"];
                        learned.entry(names[number]).or_default().push(number);
                        tools.learn(DEFINITIONS[number]).unwrap();
                        prop_assert_eq!(tools.epoch(), epoch);
                    }
                    Step::Forget | Step::ApplyRules | Step::Doubt => {
                        match step {
                            Step::Forget => tools.forget(),
                            Step::Doubt => tools.doubt(),
                            _ => tools.apply_rules(Arc::clone(&rules)),
                        }
                        if has_lock || !matches!(step, Step::Doubt) {
                            learned.clear();
                        }
                        is_complete = false;
                        prop_assert!(tools.epoch() > epoch);
                    }
                    Step::Complete(ago) => {
                        tools.completed(epoch.wrapping_sub(ago));
                        is_complete |= ago == 0;
                    }
                }
                prop_assert_eq!(tools.is_complete(), is_complete);
                for name in ["a", "b", "denied", "new"] {
                    let known = learned.get(name).map_or(&[][..], Vec::as_slice);
                    // The lock knows the first definition of a, and b; it does not know new.
                    let is_good = |number: &usize| !has_lock || matches!(number, 0 | 3);
                    let is_open = name != "denied" && known.iter().all(is_good);
                    let refusal = tools.get(name).map(|tool| tool.refusal(name));
                    let expected = (!known.is_empty()).then_some(is_open);
                    prop_assert_eq!(refusal.map(|refusal| refusal.is_none()), expected);
                    prop_assert_eq!(tools.knows(name), is_complete || !known.is_empty());
                }
                // A definition is shown only if a call of its tool is permitted.
                for definition in DEFINITIONS {
                    let value: Value = serde_json::from_str(definition).unwrap();
                    let name = value["name"].as_str().unwrap();
                    let is_refused = tools.get(name).is_some_and(|tool| tool.refusal(name).is_some());
                    prop_assert!(!(tools.shows(definition) && is_refused), "{}", definition);
                }
                let shown = tools.visible().count();
                let open = learned.keys().filter(|name| {
                    tools.get(name).unwrap().refusal(name).is_none()
                });
                prop_assert_eq!(shown, open.count());
            }
        }
    }

    #[test]
    fn tools_are_bounded_and_a_known_one_is_learned_again() {
        let mut tools = tools("{}");
        for number in 0..TOOLS + 5 {
            tools.learn(&format!(r#"{{"name":"t{number}"}}"#)).unwrap();
        }
        assert_eq!(tools.visible().count(), TOOLS);
        assert_eq!((tools.take_left_out(), tools.take_left_out()), (5, 0));
        tools.learn(r#"{"name":"t0","annotations":{"readOnlyHint":true}}"#);
        assert_eq!(tools.get("t0").unwrap().replay, Replay::Convergent);
    }

    fn tools(rules: &str) -> Tools {
        Tools::new(Arc::new(serde_json::from_str(rules).unwrap()), None)
    }

    fn replay(rules: &str, definition: &str) -> Replay {
        let mut tools = tools(rules);
        let name = tools.learn(definition).unwrap().name;
        tools.get(&name).unwrap().replay
    }

    #[test]
    fn the_replay_class_comes_from_the_operator_then_the_server_then_its_hints() {
        let hinted = r#"{"name":"t","annotations":{"idempotentHint":true}}"#;
        let declared = r#"{"name":"t","annotations":{"readOnlyHint":true},"_meta":{"io.mainstay/replay":"never_replay"}}"#;
        assert_eq!(replay("{}", r#"{"name":"t"}"#), Replay::NeverReplay);
        assert_eq!(replay("{}", hinted), Replay::Convergent);
        assert_eq!(replay("{}", declared), Replay::NeverReplay);
        let distrust = r#"{"trust_hints":false}"#;
        assert_eq!(replay(distrust, hinted), Replay::NeverReplay);
        let told = r#"{"trust_hints":false,"tools":{"t":{"replay":"convergent"}}}"#;
        assert_eq!(replay(told, declared), Replay::Convergent);
    }

    #[test]
    fn a_tool_that_differs_from_the_lock_is_withdrawn() {
        let known = r#"{"name":"t","description":"reads"}"#;
        let fingerprint = Fingerprint::of(&serde_json::from_str(known).unwrap());
        let locked = Locked::of_tools([("t".to_owned(), fingerprint)]);
        let mut tools = Tools::new(Arc::default(), Some(Arc::new(locked)));
        assert_eq!(tools.stranger("t"), Standing::Withdrawn(Withdrawn::New));
        assert_eq!(tools.learn(known).unwrap().standing, Standing::Open);
        assert!(tools.shows(known));
        let reordered = r#"{"description":"reads", "name":"t"}"#;
        assert_eq!(tools.learn(reordered).unwrap().standing, Standing::Open);
        let poisoned = r#"{"name":"t","description":"reads everything"}"#;
        assert_eq!(
            tools.learn(poisoned).unwrap().standing,
            Standing::Withdrawn(Withdrawn::Changed)
        );
        assert!(!tools.shows(poisoned));
        assert_eq!(
            tools.learn(known).unwrap().standing,
            Standing::Withdrawn(Withdrawn::Changed),
            "the worse counts"
        );
        assert!(
            !tools.shows(r#"{"name":"t","x":1e400}"#),
            "what cannot be read"
        );
        let problem = tools.get("t").unwrap().refusal("t").unwrap();
        assert_eq!(problem.kind, ErrorKind::Forbidden);
        assert_eq!(
            tools.learn(r#"{"name":"u"}"#).unwrap().standing,
            Standing::Withdrawn(Withdrawn::New)
        );
    }

    #[test]
    fn with_a_lock_a_definition_that_reads_in_two_ways_is_withdrawn() {
        let plain = r#"{"name":"t","description":"reads","inputSchema":{"enum":[{"a":1}]}}"#;
        let fingerprint = Fingerprint::of(&serde_json::from_str(plain).unwrap());
        let locked = Arc::new(Locked::of_tools([("t".to_owned(), fingerprint)]));
        for twice in [
            r#"{"name":"t","description":"evil","description":"reads","inputSchema":{"enum":[{"a":1}]}}"#,
            r#"{"name":"t","description":"reads","inputSchema":{"enum":[{"a":2,"\u0061":1}]}}"#,
        ] {
            let mut tools = Tools::new(Arc::default(), Some(Arc::clone(&locked)));
            assert!(!tools.shows(twice), "{twice}");
            assert!(tools.learn(twice).unwrap().ambiguous, "{twice}");
            let refused = tools.get("t").unwrap().refusal("t").unwrap();
            assert_eq!(refused.kind, ErrorKind::Forbidden);
            assert!(refused.message.contains("twice"), "{}", refused.message);
            tools.learn(plain);
            assert!(!tools.shows(plain), "the worse counts");
            let mut unlocked = Tools::new(Arc::default(), None);
            assert!(!unlocked.learn(twice).unwrap().ambiguous);
            assert!(
                unlocked.shows(twice),
                "what nobody approved passes as it is"
            );
        }
        let mut tools = Tools::new(Arc::default(), Some(locked));
        assert!(!tools.learn(plain).unwrap().ambiguous);
        assert!(tools.shows(plain));
    }

    #[test]
    fn rules_for_tools_that_are_not_there_are_told_once_the_list_is_known() {
        let rules = r#"{"allow":["t","gone","re*"],"deny":["x"],"tools":{"t":{},"serach":{}}}"#;
        let mut tools = tools(rules);
        tools.learn(r#"{"name":"t"}"#);
        assert_eq!(tools.strange_names(), [""; 0], "there may be more");
        tools.completed(tools.epoch());
        assert_eq!(tools.strange_names(), ["gone", "serach", "x"]);
        assert_eq!(tools.strange_names(), [""; 0], "once");
    }
}
