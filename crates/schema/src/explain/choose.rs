//! Which branch of an alternative was meant.

use std::collections::BTreeSet;

use jsonschema::{JsonTypeSet, ValidationError, error::ValidationErrorKind as Kind};
use serde_json::Value;

use super::finding::{Class, Finding, What, findings, type_of};
use crate::messages;

/// Explains a value that fits no branch.
#[derive(Debug)]
pub(crate) enum Choice {
    /// These, which are about one branch or about several alike.
    Findings(Vec<Finding>),
    /// One sentence about all branches, at a place relative to the value.
    Sentence { path: String, message: String },
}

/// Explains why `value` fits none of `branches`, each given by its findings.
///
/// A branch is out if the value as a whole has another type or is not one of a few
/// fixed values, then if a direct member is not (`kind`, `type`, `op`). If that
/// leaves none, what the branches ask for at that place is the answer, all together.
/// Of several left the one with the fewest findings is meant, then the one whose
/// findings lie deepest; of those still equal, what they have in common is told.
pub(crate) fn choose(value: &Value, branches: Vec<Vec<Finding>>) -> Choice {
    let count = branches.len();
    let (fitting, others): (Vec<_>, Vec<_>) = branches
        .into_iter()
        .partition(|findings| !findings.iter().any(rules_out));
    if fitting.is_empty() {
        return whole(value, &others);
    }
    let (open, closed): (Vec<_>, Vec<_>) = fitting
        .into_iter()
        .partition(|findings| fixed_members(findings).is_empty());
    if !open.is_empty() {
        return best(open, count);
    }
    if closed.len() > 1
        && let Some(choice) = member(&closed)
    {
        return choice;
    }
    best(closed, count)
}

/// The place and the sentence for an error of a meta-schema.
pub(crate) fn first_finding(error: &ValidationError<'_>) -> (String, String) {
    let mut told = unfold(error);
    told.sort_unstable();
    told.into_iter()
        .next()
        .unwrap_or_else(|| (String::new(), messages::NO_MATCH.to_owned()))
}

/// Of an error that carries its branches, the findings about the one meant.
fn unfold(error: &ValidationError<'_>) -> Vec<(String, String)> {
    let base = error.instance_path().as_str();
    match error.kind() {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let branches = context
                .iter()
                .map(|errors| {
                    errors
                        .iter()
                        .flat_map(|error| findings(error, &Value::Null, 1))
                        .map(|mut finding| {
                            finding.path = relative(&finding.path, base);
                            finding
                        })
                        .collect()
                })
                .collect();
            match choose(error.instance(), branches) {
                Choice::Sentence { path, message } => vec![(format!("{base}{path}"), message)],
                Choice::Findings(found) => texts(&found)
                    .into_iter()
                    .map(|(path, message)| (format!("{base}{path}"), message.to_owned()))
                    .collect(),
            }
        }
        // The message of an error of the compiler itself, such as a bad pattern.
        Kind::Custom { .. } => vec![(base.to_owned(), "is not a valid schema".to_owned())],
        kind => messages::describe(kind, None, 1)
            .into_iter()
            .map(|message| (base.to_owned(), message))
            .collect(),
    }
}

fn relative(path: &str, base: &str) -> String {
    path.strip_prefix(base).unwrap_or(path).to_owned()
}

/// The value as a whole is of another kind.
fn rules_out(finding: &Finding) -> bool {
    finding.path.is_empty()
        && matches!(
            &finding.what,
            What::Says {
                class: Class::Types(_) | Class::Constant(_) | Class::Enum(_),
                ..
            }
        )
}

/// For branches that all want another kind of value.
fn whole(value: &Value, branches: &[Vec<Finding>]) -> Choice {
    let classes = || {
        branches
            .iter()
            .flatten()
            .filter(|finding| rules_out(finding))
            .filter_map(|finding| match &finding.what {
                What::Says { class, .. } => Some(class),
                What::Stop(_) => None,
            })
    };
    let of_this_type = |allowed: &[Value]| {
        allowed
            .iter()
            .any(|allowed| type_of(allowed) == type_of(value))
    };
    let fixed = || {
        classes()
            .filter_map(Class::fixed)
            .filter(|allowed| of_this_type(allowed))
    };
    let message = if fixed().next().is_some() {
        messages::one_of(fixed().flatten())
    } else {
        let types = classes().fold(JsonTypeSet::empty(), |types, class| match class {
            Class::Types(more) => types.union(*more),
            class => class
                .fixed()
                .into_iter()
                .flatten()
                .fold(types, |types, value| types.insert(type_of(value))),
        });
        messages::expected(types)
    };
    Choice::Sentence {
        path: String::new(),
        message,
    }
}

/// The direct members that are not one of the values a branch fixes for them.
fn fixed_members(findings: &[Finding]) -> BTreeSet<&str> {
    findings
        .iter()
        .filter(|finding| fixed_at(finding, &finding.path).is_some())
        .map(|finding| finding.path.as_str())
        .filter(|path| depth(path) == 1)
        .collect()
}

fn fixed_at<'a>(finding: &'a Finding, path: &str) -> Option<&'a [Value]> {
    match &finding.what {
        What::Says { class, .. } if finding.path == path => class.fixed(),
        _ => None,
    }
}

/// For branches that all fix the same member to something else.
fn member(branches: &[Vec<Finding>]) -> Option<Choice> {
    let path = branches
        .iter()
        .map(|findings| fixed_members(findings))
        .reduce(|common, next| common.intersection(&next).copied().collect())?
        .first()
        .map(|path| (*path).to_owned())?;
    let allowed = branches
        .iter()
        .flatten()
        .filter_map(|finding| fixed_at(finding, &path))
        .flatten();
    let message = messages::one_of(allowed);
    Some(Choice::Sentence { path, message })
}

/// The branch nearest to the value; `count` is the number of all branches.
fn best(branches: Vec<Vec<Finding>>, count: usize) -> Choice {
    let rank = |findings: &[Finding]| {
        let deepest = findings.iter().map(|finding| depth(&finding.path)).max();
        (findings.len(), usize::MAX - deepest.unwrap_or_default())
    };
    let least = branches.iter().map(|findings| rank(findings)).min();
    let mut nearest: Vec<_> = branches
        .into_iter()
        .filter(|findings| Some(rank(findings)) == least)
        .collect();
    if nearest.len() == 1
        && let Some(only) = nearest.pop()
    {
        return Choice::Findings(only);
    }
    let common = nearest
        .iter()
        .map(|findings| texts(findings))
        .reduce(|common, next| common.intersection(&next).copied().collect())
        .unwrap_or_default();
    if common.is_empty() {
        return Choice::Sentence {
            path: String::new(),
            message: messages::no_form(count),
        };
    }
    let common = common
        .into_iter()
        .map(|(path, message)| Finding {
            path: path.to_owned(),
            what: What::Says {
                message: message.to_owned(),
                class: Class::Other,
            },
        })
        .collect();
    Choice::Findings(common)
}

fn texts(findings: &[Finding]) -> BTreeSet<(&str, &str)> {
    findings
        .iter()
        .filter_map(|finding| match &finding.what {
            What::Says { message, .. } => Some((finding.path.as_str(), message.as_str())),
            What::Stop(_) => None,
        })
        .collect()
}

fn depth(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}
