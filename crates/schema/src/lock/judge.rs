//! Changes held against what was done about them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::change::Change;
use super::compare::compare;
use super::entry::Entry;
use super::file::Lock;
use super::reason::Reason;
use super::rules::{Demand, Kind};

/// The author's response to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing had to be done.
    NotNeeded,
    /// The version was raised.
    Bumped,
    /// A reason was recorded.
    Reason,
    /// The demanded response is missing.
    Missing,
}

/// A change and what was done about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    #[serde(flatten)]
    pub change: Change,
    pub answer: Answer,
    /// The next step, where something is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// The change of a tool in a line, with what is left to do.
impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.change.tool, self.change)?;
        match &self.advice {
            Some(advice) => write!(f, "; to do: {advice}"),
            None => Ok(()),
        }
    }
}

/// All changes between two locks, judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// In the order of [`compare`].
    pub changes: Vec<Judged>,
    /// Reasons that no change asks for.
    pub unneeded: Vec<Reason>,
}

impl Judgement {
    /// True if the locks say the same about every tool.
    pub fn is_equal(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes that lack what they demand.
    pub fn missing(&self) -> impl Iterator<Item = &Judged> {
        let changes = self.changes.iter();
        changes.filter(|judged| judged.answer == Answer::Missing)
    }
}

/// Judges every change from `old` to `new`. `reasons` are those that were given since `old`.
pub fn judge(old: &Lock, new: &Lock, reasons: &[Reason]) -> Judgement {
    let changes = compare(old, new);
    let former = former_names(&changes);
    let mut used = vec![false; reasons.len()];
    let mut judged = Vec::with_capacity(changes.len());
    for change in &changes {
        let tool = change.tool.as_str();
        let versions = versions(old, new, former.get(tool).copied(), tool);
        let is_bumped = matches!(versions, (Some(old), Some(new)) if new > old);
        let asks = match change.demand {
            Demand::Reason => true,
            Demand::BumpOrReason => !is_bumped,
            _ => false,
        };
        let mut is_excused = false;
        if asks {
            for (reason, used) in reasons.iter().zip(&mut used) {
                if reason.covers(change) {
                    (is_excused, *used) = (true, true);
                }
            }
        }
        let answer = match change.demand {
            Demand::Nothing | Demand::Review => Answer::NotNeeded,
            Demand::Bump | Demand::BumpOrReason if is_bumped => Answer::Bumped,
            Demand::Reason | Demand::BumpOrReason if is_excused => Answer::Reason,
            _ => Answer::Missing,
        };
        judged.push(Judged {
            change: change.clone(),
            answer,
            advice: (answer == Answer::Missing).then(|| advice(change, versions)),
        });
    }
    let unneeded = reasons.iter().zip(&used).filter(|(_, used)| !**used);
    Judgement {
        changes: judged,
        unneeded: unneeded.map(|(reason, _)| reason.clone()).collect(),
    }
}

type Versions = (Option<u32>, Option<u32>);

/// The versions of a tool, before and after.
fn versions(old: &Lock, new: &Lock, former: Option<&str>, tool: &str) -> Versions {
    let of = |lock: &Lock, name: &str| lock.tools.get(name).and_then(Entry::schema_version);
    let before = of(old, former.unwrap_or(tool));
    (before.or_else(|| old.last_version(tool)), of(new, tool))
}

/// The former names of renamed tools, by their present ones.
fn former_names(changes: &[Change]) -> BTreeMap<&str, &str> {
    let renames = changes
        .iter()
        .filter(|change| change.kind == Kind::ToolRenamed);
    renames
        .filter_map(|change| Some((change.tool.as_str(), change.before.as_ref()?.as_str()?)))
        .collect()
}

fn advice(change: &Change, versions: Versions) -> String {
    let tool = &change.tool;
    let reason = |target: &str| format!("--reason \"{target}: WHY\"");
    let bump = match versions {
        (Some(old), Some(new)) if new < old => {
            let next = old.saturating_add(1);
            format!("raise schemaVersion of {tool} to {next}; it went back from {old} to {new}")
        }
        (Some(old), _) => {
            let next = old.saturating_add(1);
            format!("raise schemaVersion of {tool} from {old} to {next}")
        }
        (None, _) => format!("{tool} has no schemaVersion that could be raised; rename it"),
    };
    match change.demand {
        Demand::Reason => format!(
            "list {tool} among the aliases of the new tool that replaces it, or say why it is gone: {}",
            reason(tool)
        ),
        Demand::BumpOrReason => {
            let target = match change.argument() {
                Some(argument) => format!("{tool}.{argument}"),
                None => tool.clone(),
            };
            format!(
                "{bump}, or say why the meaning is the same: {}",
                reason(&target)
            )
        }
        _ => bump,
    }
}
