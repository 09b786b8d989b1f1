//! The operator's rules for one wrapped server.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::replay::Replay;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approvals::Policy;

/// Fewest bytes of text that a result can be cut to, its note included.
const LEAST_OUTPUT: u64 = 256;

/// The rules for a server; those of its tools count before its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// True if a tool's own hints may say that it can run again.
    pub trust_hints: bool,
    /// True if arguments are checked before they are sent.
    pub check_input: bool,
    /// True if results are compared with their schemas, and differences told in telemetry.
    pub check_output: bool,
    /// True if the client is told of a restart.
    pub restart_note: bool,
    /// True if the host's own two tools are added.
    pub system_tools: bool,
    /// True if the server is started only when something is asked of it.
    pub lazy: bool,
    /// True if the server's catalog is kept for the next start, and given to clients while the server starts.
    pub remember: bool,
    /// True if clients of one era are served by a server of the other.
    pub bridge: bool,
    /// Seconds without work after which the server is stopped, until it is needed again.
    pub idle_stop: Option<u64>,
    /// Bytes of memory of its whole tree past which it is replaced.
    pub max_memory: Option<u64>,
    /// Calls of clients that ask for it run as tasks of the host, unless the server makes tasks itself.
    pub tasks: bool,
    /// Bytes of text that one result may have.
    pub max_output: Option<usize>,
    /// True if values that the host knows as secrets are taken out of everything that the server says.
    pub redact_results: bool,
    /// Milliseconds for a call.
    pub timeout_ms: Option<u64>,
    pub on_timeout: OnTimeout,
    /// Names of tools that may be used, `*` for any characters; all, if there is none.
    pub allow: Vec<String>,
    /// Names of tools that may not, in any case. With such names a tool that the server does not list is
    /// refused, too: its server may know it under another spelling.
    pub deny: Vec<String>,
    pub tools: BTreeMap<String, ToolRules>,
    /// The rules about calls that need the approval of a person.
    #[serde(skip_serializing_if = "is_default")]
    pub approvals: Policy,
}

fn is_default(policy: &Policy) -> bool {
    *policy == Policy::default()
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            trust_hints: true,
            check_input: true,
            check_output: true,
            restart_note: true,
            system_tools: false,
            lazy: false,
            remember: true,
            bridge: false,
            idle_stop: None,
            max_memory: None,
            tasks: false,
            max_output: None,
            redact_results: false,
            timeout_ms: None,
            on_timeout: OnTimeout::Cancel,
            allow: Vec::new(),
            deny: Vec::new(),
            tools: BTreeMap::new(),
            approvals: Policy::default(),
        }
    }
}

/// The rules for one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolRules {
    pub replay: Option<Replay>,
    pub timeout_ms: Option<u64>,
    pub on_timeout: Option<OnTimeout>,
    pub probe: Option<ProbeRule>,
    /// Calls may run as tasks; without it the rule for the server decides.
    pub tasks: Option<bool>,
}

/// The fate of a call that reaches its deadline, and of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// The host cancels the call. A server that does not end it goes on if it answers a ping.
    #[default]
    Cancel,
    /// The host cancels the call, and replaces a server that does not end it.
    Kill,
    /// The call runs on as a task, whose id is in the error.
    Detach,
}

/// How to find out whether a lost call took effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRule {
    /// A tool of the same server that only reads.
    pub tool: String,
    /// Its arguments: a text that begins with `/` is a pointer into the lost call's arguments.
    #[serde(default)]
    pub arguments: BTreeMap<String, Value>,
    /// Its result proves the effect if this holds.
    pub applied: Condition,
    /// And disproves it if this holds; neither is unknown.
    pub not_applied: Condition,
}

/// A place of a result and what stands there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// A pointer into the result.
    pub path: String,
    pub equals: Value,
}

impl Condition {
    pub(super) fn holds(&self, result: &Value) -> bool {
        result.pointer(&self.path) == Some(&self.equals)
    }
}

impl Rules {
    /// True if the operator lets a tool be used.
    pub fn permits(&self, tool: &str) -> bool {
        let allowed = self.allow.iter().any(|pattern| fits(pattern, tool));
        // A server may take a name in any case for the same tool.
        let folded = tool.to_lowercase();
        let denied = |pattern: &String| fits(&pattern.to_lowercase(), &folded);
        (self.allow.is_empty() || allowed) && !self.deny.iter().any(denied)
    }

    /// True if calls of this tool may run as tasks.
    pub(super) fn may_be_task(&self, tool: &str) -> bool {
        let rule = self.tools.get(tool).and_then(|rules| rules.tasks);
        rule.unwrap_or(self.tasks)
    }

    /// True if calls of any tool may run as tasks.
    pub fn has_tasks(&self) -> bool {
        self.tasks || self.tools.values().any(|rules| rules.tasks == Some(true))
    }

    /// The fate of a call of this tool that reaches its deadline.
    pub(super) fn on_timeout(&self, tool: &str) -> OnTimeout {
        let rule = self.tools.get(tool).and_then(|rules| rules.on_timeout);
        rule.unwrap_or(self.on_timeout)
    }

    /// True if calls may be recorded as tasks, because clients ask for it or because they take too long.
    pub fn keeps_tasks(&self) -> bool {
        let rules = self.tools.values();
        let mut on_timeout = rules.filter_map(|rules| rules.on_timeout);
        self.has_tasks()
            || self.on_timeout == OnTimeout::Detach
            || on_timeout.any(|rule| rule == OnTimeout::Detach)
    }

    /// Every key that they may have.
    pub const KEYS: [&str; 19] = [
        "trust_hints",
        "check_input",
        "check_output",
        "restart_note",
        "system_tools",
        "lazy",
        "remember",
        "bridge",
        "idle_stop",
        "max_memory",
        "tasks",
        "max_output",
        "redact_results",
        "timeout_ms",
        "on_timeout",
        "allow",
        "deny",
        "tools",
        "approvals",
    ];

    /// The names of tools in them, each once and in order; patterns are none.
    pub(super) fn names(&self) -> Vec<&str> {
        let listed = self.allow.iter().chain(&self.deny);
        let listed = listed.filter(|name| !name.contains('*'));
        let probes = self.tools.values().filter_map(|tool| tool.probe.as_ref());
        let probes = probes.map(|probe| &probe.tool);
        let all: BTreeSet<&str> = listed
            .chain(self.tools.keys())
            .chain(probes)
            .map(String::as_str)
            .collect();
        all.into_iter().collect()
    }

    /// Mistakes that a type cannot show, each with its place.
    pub fn check(&self) -> Vec<String> {
        let mut mistakes = self.approvals.check();
        for (name, tool) in &self.tools {
            let probed = tool.replay == Some(Replay::ProbeRequired);
            if probed != tool.probe.is_some() {
                mistakes.push(format!(
                    "tools.{name}: replay \"probe_required\" and probe go together"
                ));
            }
        }
        for (key, value, least) in [
            ("idle_stop", self.idle_stop, 1),
            ("max_memory", self.max_memory, 1),
            (
                "max_output",
                self.max_output.map(|bytes| bytes as u64),
                LEAST_OUTPUT,
            ),
            ("timeout_ms", self.timeout_ms, 1),
        ] {
            if value.is_some_and(|value| value < least) {
                mistakes.push(format!("{key} must be at least {least}"));
            }
        }
        mistakes
    }
}

/// True if a name fits a pattern in which `*` stands for any characters.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, expected) in [
            ("read_file", "read_file", true),
            ("read_file", "read_files", false),
            ("read_*", "read_file", true),
            ("*_file", "read_file", true),
            ("*", "anything", true),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXcYYb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_keys_are_those_that_are_read() {
        let error = serde_json::from_str::<Rules>(r#"{"?": 1}"#).unwrap_err();
        let said = error.to_string();
        let read: Vec<&str> = said.split('`').skip(3).step_by(2).collect();
        assert_eq!(read, Rules::KEYS, "{said}");
    }

    #[test]
    fn a_denied_tool_is_denied_even_if_it_is_allowed() {
        let rules = Rules {
            allow: vec!["read_*".into()],
            deny: vec!["read_secret".into()],
            ..Rules::default()
        };
        assert!(rules.permits("read_file"));
        assert!(!rules.permits("read_secret"));
        assert!(!rules.permits("read_SECRET"), "in any case");
        assert!(!rules.permits("READ_file"), "only as it is allowed");
        assert!(!rules.permits("write_file"));
    }

    #[test]
    fn a_probe_without_its_class_is_a_mistake() {
        let rules: Rules = serde_json::from_str(
            r#"{"tools": {"x": {"replay": "probe_required"}}, "idle_stop": 0}"#,
        )
        .unwrap();
        assert_eq!(rules.check().len(), 2, "{:?}", rules.check());
    }
}
