//! One finding about a value.

use serde::{Deserialize, Serialize};

use crate::Limits;

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

/// Sorts, drops repetitions, and keeps what the limits allow: the first ones.
pub(crate) fn settle(mut violations: Vec<Violation>, limits: &Limits) -> Vec<Violation> {
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
    violations.truncate(kept);
    violations
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
        assert_eq!(settled, [violation("/a", "x"), violation("/a", "y")]);
    }

    #[test]
    fn long_paths_reduce_the_number_of_violations_to_no_less_than_one() {
        let mut limits = Limits::DEFAULT;
        limits.violation_bytes = 10;
        let long = "/".repeat(100);
        let settled = settle(vec![violation(&long, "x"), violation(&long, "y")], &limits);
        assert_eq!(settled, [violation(&long, "x")]);
    }
}
