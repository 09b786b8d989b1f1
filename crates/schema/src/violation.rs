//! Violations: the mistakes in a value.

use serde::{Deserialize, Serialize};

use crate::{Limits, messages};

/// Where a value breaks its schema, and how. Sorts by path, then by message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Violation {
    /// RFC 6901 pointer from the root of the value; the root itself is `""`. A
    /// missing or unknown member is reported at the object it is missing from or in.
    pub path: String,
    /// One short sentence that never repeats the value.
    #[serde(rename = "msg")]
    pub message: String,
}

impl Violation {
    /// A violation at this place of a value.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// The violations of one value: the first ones, and the number of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// Sorted by path, then by message, and bounded by [`Limits::violations`].
    pub listed: Vec<Violation>,
    /// How many more there are; `None` if they were not counted because the value is too large.
    pub more: Option<usize>,
}

impl Violations {
    /// One violation, the only one.
    pub fn one(violation: Violation) -> Self {
        Self {
            listed: vec![violation],
            more: Some(0),
        }
    }

    /// True if every violation is listed.
    pub fn is_complete(&self) -> bool {
        self.more == Some(0)
    }

    /// The unlisted rest, in a sentence; `None` if nothing is missing.
    pub fn rest(&self) -> Option<String> {
        match self.more {
            Some(0) => None,
            Some(1) => Some("1 more violation is not listed".to_owned()),
            Some(more) => Some(format!("{more} more violations are not listed")),
            None => Some(messages::ONLY_FIRST.to_owned()),
        }
    }

    /// The list, with the sentence about the rest as its last entry.
    pub fn into_list(self) -> Vec<Violation> {
        let rest = self.rest().map(|rest| Violation {
            path: String::new(),
            message: format!("{rest}; correct these first"),
        });
        self.listed.into_iter().chain(rest).collect()
    }
}

/// Sorts, drops repetitions, and keeps what the limits allow: the first ones. The others are counted.
pub(crate) fn settle(mut violations: Vec<Violation>, limits: &Limits) -> Violations {
    violations.sort_unstable();
    violations.dedup();
    let mut bytes = 0usize;
    let kept = violations
        .iter()
        .take(limits.violations)
        .take_while(|violation| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(violation.path.len() + violation.message.len());
            first || bytes <= limits.violation_bytes
        })
        .count();
    let more = violations.len() - kept;
    violations.truncate(kept);
    Violations {
        listed: violations,
        more: Some(more),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn violation(path: &str, message: &str) -> Violation {
        Violation {
            path: path.into(),
            message: message.into(),
        }
    }

    #[test]
    fn violation_is_written_as_path_and_msg() {
        assert_eq!(
            serde_json::to_value(violation("/a", "expected number")).unwrap(),
            json!({"path": "/a", "msg": "expected number"})
        );
    }

    #[test]
    fn violations_are_sorted_unique_and_bounded() {
        let mut limits = Limits::DEFAULT;
        limits.violations = 2;
        let settled = settle(
            vec![
                violation("/b", "x"),
                violation("/a", "y"),
                violation("/a", "x"),
                violation("/a", "y"),
            ],
            &limits,
        );
        assert_eq!(settled.listed, [violation("/a", "x"), violation("/a", "y")]);
        assert_eq!(settled.more, Some(1));
        let list = settled.into_list();
        let said = "1 more violation is not listed; correct these first";
        assert_eq!(list[2], violation("", said));
    }

    #[test]
    fn long_paths_reduce_the_number_of_violations_to_no_less_than_one() {
        let mut limits = Limits::DEFAULT;
        limits.violation_bytes = 10;
        let long = "/".repeat(100);
        let settled = settle(vec![violation(&long, "x"), violation(&long, "y")], &limits);
        assert_eq!(settled.listed, [violation(&long, "x")]);
        assert_eq!(settled.more, Some(1));
    }
}
