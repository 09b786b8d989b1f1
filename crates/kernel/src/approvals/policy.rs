//! The rules of an operator about calls: which run, which a person must approve, which are refused.
//!
//! The first rule that fits a call decides; the rules of a server come before those of the host, and without any that
//! fits the call runs. A rule fits if everything that it names fits. Annotations come from the server. Those of a
//! server that is not trusted may only make a decision stricter: the host decides with them and without them, and takes
//! the stricter decision.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use mainstay_contract::canonical::canonical_json;
use mainstay_contract::json::Json;
use mainstay_contract::tool::Annotations;
use mainstay_contract::words;
use mainstay_schema::Fingerprint;
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::server::fits;

/// Rules of one host or server.
const RULES: usize = 256;
/// Argument patterns of one rule.
const PATTERNS: usize = 16;
/// Bytes of a name, a pointer or a pattern.
const PATTERN_BYTES: usize = 1024;
/// Bytes of a compiled regular expression.
const REGEX_BYTES: usize = 1024 * 1024;
/// Bytes of an argument that patterns are compared with. A longer one counts as what makes the decision stricter.
const ARGUMENT_BYTES: usize = 64 * 1024;

words! {
    /// The decision about a call; the later, the stricter.
    #[derive(Default)]
    pub enum Ruling {
        #[default]
        Allow = "allow",
        Ask = "ask",
        Deny = "deny",
    }
}

words! {
    /// A hint of a server about a tool.
    pub enum Hint {
        ReadOnly = "readOnlyHint",
        Destructive = "destructiveHint",
        Idempotent = "idempotentHint",
        OpenWorld = "openWorldHint",
    }
}

/// The rules of a server, or of a host for all its servers and packs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub rules: Vec<ApprovalRule>,
    /// The decision about calls that no rule fits; without it the rules of the host decide, then `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Ruling>,
    /// The annotations of the server are believed. Those of packs always are.
    pub trust_annotations: bool,
}

/// One rule. What it does not name fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    pub verdict: Ruling,
    /// Name of the server or the pack, `*` for any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Name of the tool, as its server has it, `*` for any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<Hint, bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentPattern>,
}

/// A place in the arguments and the text that must stand there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentPattern {
    /// A JSON pointer into the arguments.
    pub path: String,
    /// The whole text, `*` for any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// A regular expression for the whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    #[serde(skip)]
    compiled: OnceLock<Option<Regex>>,
}

impl PartialEq for ArgumentPattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.glob, &self.regex) == (&other.path, &other.glob, &other.regex)
    }
}

/// A call, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    pub server: &'a str,
    pub tool: &'a str,
    /// The server's own words about the tool.
    pub hints: Hints,
    /// The arguments; `None` if they can be read in two ways, or not at all.
    pub arguments: Option<&'a Value>,
}

/// The annotations of a tool. A missing one has the meaning that MCP gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    declared: [Option<bool>; 4],
}

impl Hints {
    /// The annotations of a definition.
    pub fn of(definition: &Value) -> Self {
        let all = definition.get("annotations");
        let hint = |hint: Hint| all.and_then(|all| all.get(hint.as_str())?.as_bool());
        Self {
            declared: [
                hint(Hint::ReadOnly),
                hint(Hint::Destructive),
                hint(Hint::Idempotent),
                hint(Hint::OpenWorld),
            ],
        }
    }

    /// True if this hint holds.
    pub fn holds(self, hint: Hint) -> bool {
        let [read_only, destructive, idempotent, open_world] = self.declared;
        let reads = read_only.unwrap_or(false);
        match hint {
            Hint::ReadOnly => reads,
            // It has a meaning only for tools that change something.
            Hint::Destructive => destructive.unwrap_or(!reads),
            Hint::Idempotent => idempotent.unwrap_or(false),
            Hint::OpenWorld => open_world.unwrap_or(true),
        }
    }
}

impl From<Annotations> for Hints {
    fn from(of: Annotations) -> Self {
        Self {
            declared: [
                Some(of.read_only_hint),
                Some(of.destructive_hint),
                Some(of.idempotent_hint),
                Some(of.open_world_hint),
            ],
        }
    }
}

/// The decision about a call, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    pub ruling: Ruling,
    /// The rule that decided, as its place in the configuration.
    pub rule: String,
}

/// Decides about a call by the rules of its server, then those of the host.
pub fn judge(
    own: Option<&Policy>,
    host: &Policy,
    facts: &CallFacts<'_>,
    trusted: bool,
) -> Judgement {
    let with_hints = decide(own, host, facts);
    if trusted {
        return with_hints;
    }
    let without = decide(
        own,
        host,
        &CallFacts {
            hints: Hints::default(),
            ..*facts
        },
    );
    match with_hints.ruling > without.ruling {
        true => with_hints,
        false => without,
    }
}

fn decide(own: Option<&Policy>, host: &Policy, facts: &CallFacts<'_>) -> Judgement {
    let of_server = own.and_then(|own| own.decide(facts, "server "));
    of_server
        .or_else(|| host.decide(facts, ""))
        .unwrap_or_else(|| Judgement {
            ruling: Ruling::Allow,
            rule: "none".to_owned(),
        })
}

impl Policy {
    /// True if every call runs.
    pub fn is_open(&self) -> bool {
        let rules = self.rules.iter().map(|rule| rule.verdict);
        rules
            .chain(self.otherwise)
            .all(|ruling| ruling == Ruling::Allow)
    }

    /// True if a rule makes a decision about named tools stricter: one that is not listed may be such a tool under
    /// another name.
    pub(crate) fn names_tools(&self) -> bool {
        let mut strict = self
            .rules
            .iter()
            .filter(|rule| rule.verdict != Ruling::Allow);
        strict.any(|rule| rule.tool.as_deref().is_some_and(|tool| tool != "*"))
    }

    /// A rule of the command line, which counts before those of a file.
    pub fn ask_for(&mut self, tool: &str) {
        let rule = ApprovalRule {
            verdict: Ruling::Ask,
            server: None,
            tool: Some(tool.to_owned()),
            annotations: BTreeMap::new(),
            arguments: Vec::new(),
        };
        self.rules.insert(0, rule);
    }

    fn decide(&self, facts: &CallFacts<'_>, whose: &str) -> Option<Judgement> {
        let mut rules = self.rules.iter();
        if let Some(at) = rules.position(|rule| rule.fits(facts)) {
            return self.rules.get(at).map(|rule| Judgement {
                ruling: rule.verdict,
                rule: format!("{whose}approvals.rules[{at}]"),
            });
        }
        self.otherwise.map(|ruling| Judgement {
            ruling,
            rule: format!("{whose}approvals.otherwise"),
        })
    }

    /// Mistakes that a type cannot show, each with its place.
    pub fn check(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.rules.len() > RULES {
            mistakes.push(format!("approvals.rules has more than {RULES} rules"));
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let texts = [&rule.server, &rule.tool];
            if texts
                .into_iter()
                .flatten()
                .any(|text| text.len() > PATTERN_BYTES)
            {
                mistakes.push(format!(
                    "approvals.rules[{at}]: a name is longer than {PATTERN_BYTES} bytes"
                ));
            }
            if rule.arguments.len() > PATTERNS {
                mistakes.push(format!(
                    "approvals.rules[{at}]: more than {PATTERNS} arguments"
                ));
            }
            let patterns = rule.arguments.iter().enumerate();
            mistakes.extend(patterns.filter_map(|(number, pattern)| {
                let wrong = pattern.mistake()?;
                Some(format!(
                    "approvals.rules[{at}].arguments[{number}]: {wrong}"
                ))
            }));
        }
        mistakes
    }
}

/// The version of the rules for a server: a grant is for one version alone.
pub fn version(own: Option<&Policy>, host: &Policy) -> String {
    let both = serde_json::to_value((own, host)).unwrap_or_default();
    let digest = Fingerprint::of(&both).to_string();
    digest.chars().take(16).collect()
}

impl ApprovalRule {
    fn fits(&self, facts: &CallFacts<'_>) -> bool {
        let tightens = self.verdict != Ruling::Allow;
        let named = |pattern: &Option<String>, name: &str| {
            pattern.as_deref().is_none_or(|pattern| {
                // A server may take a name in any case for the same tool.
                fits(pattern, name)
                    || tightens && fits(&pattern.to_lowercase(), &name.to_lowercase())
            })
        };
        let hinted = |(hint, wanted): (&Hint, &bool)| facts.hints.holds(*hint) == *wanted;
        named(&self.server, facts.server)
            && named(&self.tool, facts.tool)
            && self.annotations.iter().all(hinted)
            && self.arguments.iter().all(|pattern| {
                // A value that cannot be compared makes the decision stricter.
                pattern.fits(facts.arguments).unwrap_or(tightens)
            })
    }
}

impl ArgumentPattern {
    /// True if the text fits; `None` if that cannot be known.
    fn fits(&self, arguments: Option<&Value>) -> Option<bool> {
        let Some(value) = arguments?.pointer(&self.path) else {
            return Some(false);
        };
        let text = match value {
            Value::String(text) => text.clone(),
            other => canonical_json(other),
        };
        if text.len() > ARGUMENT_BYTES {
            return None;
        }
        if let Some(glob) = &self.glob {
            return Some(fits(glob, &text));
        }
        let compiled = self.compiled.get_or_init(|| self.compile().ok()).as_ref()?;
        Some(compiled.is_match(&text))
    }

    fn compile(&self) -> Result<Regex, regex::Error> {
        let whole = format!(r"\A(?:{})\z", self.regex.as_deref().unwrap_or_default());
        RegexBuilder::new(&whole)
            // A line break must not hide what follows it.
            .dot_matches_new_line(true)
            .size_limit(REGEX_BYTES)
            .dfa_size_limit(REGEX_BYTES)
            .build()
    }

    fn mistake(&self) -> Option<String> {
        let texts = [Some(&self.path), self.glob.as_ref(), self.regex.as_ref()];
        if texts
            .into_iter()
            .flatten()
            .any(|text| text.len() > PATTERN_BYTES)
        {
            return Some(format!("a text is longer than {PATTERN_BYTES} bytes"));
        }
        if !self.path.is_empty() && !self.path.starts_with('/') {
            return Some("path must be a JSON pointer, such as /path".to_owned());
        }
        match (&self.glob, &self.regex) {
            (Some(_), None) => None,
            (None, Some(_)) => self.compile().err().map(|error| {
                let said = error.to_string();
                let last = said.lines().last().unwrap_or_default().trim();
                format!("regex: {last}")
            }),
            _ => Some("write glob or regex, one of both".to_owned()),
        }
    }
}

/// The arguments of a call as a value. `None` if they can be read in two ways, or not at all.
pub fn readable(arguments: &Json) -> Option<Value> {
    let twice = crate::server::edit::has_twice(arguments.as_str());
    arguments.to_value().ok().filter(|_| !twice)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn policy(rules: &Value) -> Policy {
        let policy: Policy = serde_json::from_value(json!({ "rules": rules })).unwrap();
        assert_eq!(policy.check(), [""; 0]);
        policy
    }

    fn ruling(policy: &Policy, tool: &str, definition: &Value, arguments: &Value) -> Ruling {
        let facts = CallFacts {
            server: "files",
            tool,
            hints: Hints::of(definition),
            arguments: Some(arguments),
        };
        judge(Some(policy), &Policy::default(), &facts, true).ruling
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = policy(&json!([
            { "verdict": "allow", "tool": "write", "arguments": [{ "path": "/path", "glob": "/tmp/*" }] },
            { "verdict": "deny", "tool": "write", "arguments": [{ "path": "/path", "regex": "/etc/.*" }] },
            { "verdict": "ask", "annotations": { "readOnlyHint": false } },
        ]));
        let plain = json!({});
        let at = |path: &str| ruling(&rules, "write", &plain, &json!({ "path": path }));
        assert_eq!(at("/tmp/x"), Ruling::Allow);
        assert_eq!(at("/etc/x\ny"), Ruling::Deny, "a line break hides nothing");
        assert_eq!(
            at("/srv/etc/x"),
            Ruling::Ask,
            "an expression is for the whole text"
        );
        assert_eq!(
            ruling(&rules, "WRITE", &plain, &json!({ "path": "/etc/x" })),
            Ruling::Deny
        );
        assert_eq!(
            ruling(&rules, "WRITE", &plain, &json!({ "path": "/tmp/x" })),
            Ruling::Ask
        );
        let reads = json!({ "annotations": { "readOnlyHint": true } });
        assert_eq!(ruling(&rules, "read", &reads, &plain), Ruling::Allow);
        let number =
            policy(&json!([{ "verdict": "deny", "arguments": [{ "path": "/n", "glob": "7" }] }]));
        assert_eq!(
            ruling(&number, "t", &plain, &json!({ "n": 7 })),
            Ruling::Deny
        );
        assert_eq!(ruling(&number, "t", &plain, &json!({})), Ruling::Allow);
    }

    #[test]
    fn what_cannot_be_compared_makes_a_decision_stricter() {
        let rules = policy(&json!([
            { "verdict": "allow", "arguments": [{ "path": "/a", "glob": "*" }] },
            { "verdict": "ask", "arguments": [{ "path": "/a", "glob": "never" }] },
        ]));
        let long = json!({ "a": "x".repeat(ARGUMENT_BYTES + 1) });
        assert_eq!(ruling(&rules, "t", &json!({}), &long), Ruling::Ask);
        let facts = CallFacts {
            server: "s",
            tool: "t",
            hints: Hints::default(),
            arguments: None,
        };
        assert_eq!(
            judge(Some(&rules), &Policy::default(), &facts, true).ruling,
            Ruling::Ask
        );
        let twice = Json::from_scanned(r#"{"a":1,"\u0061":2}"#);
        assert_eq!(readable(&twice), None);
    }

    #[test]
    fn a_server_decides_before_its_host() {
        let own = policy(&json!([{ "verdict": "allow", "tool": "a" }]));
        let host = policy(&json!([{ "verdict": "deny", "server": "FILES" }]));
        let at = |tool| {
            let facts = CallFacts {
                server: "files",
                tool,
                hints: Hints::default(),
                arguments: None,
            };
            judge(Some(&own), &host, &facts, true)
        };
        assert_eq!(
            (at("a").ruling, at("a").rule.as_str()),
            (Ruling::Allow, "server approvals.rules[0]")
        );
        assert_eq!(
            (at("b").ruling, at("b").rule.as_str()),
            (Ruling::Deny, "approvals.rules[0]")
        );
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let read = |rule: Value| {
            let policy: Policy = serde_json::from_value(json!({ "rules": [rule] })).unwrap();
            policy.check().join("; ")
        };
        let wrong = |pattern: Value| read(json!({ "verdict": "ask", "arguments": [pattern] }));
        assert!(wrong(json!({ "path": "/a" })).contains("arguments[0]: write glob or regex"));
        assert!(wrong(json!({ "path": "a", "glob": "x" })).contains("JSON pointer"));
        assert!(wrong(json!({ "path": "/a", "regex": "(" })).contains("regex: "));
        assert!(
            wrong(json!({ "path": "/a", "regex": "(?:a{1000}){1000}" })).contains("size limit")
        );
        assert!(read(json!({ "verdict": "ask", "tool": "x".repeat(2000) })).contains("longer"));
        let unknown = json!({ "rules": [{ "verdict": "ask", "annotations": { "safe": true } }] });
        assert!(serde_json::from_value::<Policy>(unknown).is_err());
    }

    fn rules() -> impl Strategy<Value = Policy> {
        let hint = proptest::sample::select(Hint::ALL);
        let hints = proptest::collection::btree_map(hint, any::<bool>(), 0..3);
        let ruling = proptest::sample::select(Ruling::ALL);
        let rule = (ruling.clone(), hints).prop_map(|(verdict, annotations)| ApprovalRule {
            verdict,
            server: None,
            tool: None,
            annotations,
            arguments: Vec::new(),
        });
        let rules = proptest::collection::vec(rule, 0..5);
        (rules, proptest::option::of(ruling)).prop_map(|(rules, otherwise)| Policy {
            rules,
            otherwise,
            trust_annotations: false,
        })
    }

    proptest! {
        #[test]
        fn hints_of_an_untrusted_server_only_make_a_decision_stricter(
            own in rules(),
            host in rules(),
            declared in proptest::array::uniform4(proptest::option::of(any::<bool>())),
        ) {
            let facts = |hints| CallFacts { server: "s", tool: "t", hints, arguments: None };
            let silent = judge(Some(&own), &host, &facts(Hints::default()), false);
            let hinted = judge(Some(&own), &host, &facts(Hints { declared }), false);
            prop_assert!(hinted.ruling >= silent.ruling);
            let believed = judge(Some(&own), &host, &facts(Hints { declared }), true);
            prop_assert!(hinted.ruling >= believed.ruling);
        }
    }
}
