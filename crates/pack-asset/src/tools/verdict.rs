//! Verdicts as answers and as text.

use mainstay_schema::Violation;
use mainstay_worker::{ErrorKind, Json, Porcelain, Problem, Reply, render};
use serde_json::{Value, json};

use crate::schemas::{Unusable, Usable};

/// `{"ok": false, "reason": "validation_failed", "errors": [...]}`.
pub(crate) fn failed(violations: &[Violation]) -> Value {
    json!({"ok": false, "reason": "validation_failed", "errors": violations})
}

/// The answer to a call that found an asset invalid, with its first line for reading.
pub(super) fn invalid(violations: Vec<Violation>, summary: String) -> Reply {
    Reply::json(&failed(&violations))
        .porcelain(move || Porcelain::summary(summary).items(lines(&violations)))
}

/// One line per violation.
pub(crate) fn lines(violations: &[Violation]) -> Vec<String> {
    let line = |violation: &Violation| match violation.path.as_str() {
        "" => format!("(root): {}", violation.message),
        path => format!("{path}: {}", violation.message),
    };
    violations.iter().map(line).collect()
}

/// `3 violations against lamp 1.0.0`.
pub(crate) fn summary(violations: &[Violation], schema: &Usable<'_>) -> String {
    let number = render::count(violations.len(), "violation", "violations");
    format!("{number} against {}", schema.title())
}

/// A schema that was asked for by an argument and cannot be used. No asset was judged, so this is
/// not a verdict.
pub(super) fn unusable(why: &Unusable) -> Problem {
    let hint = match why {
        Unusable::NotFound { .. } | Unusable::Unnamed => "use a name that list_schemas gives",
        Unusable::Broken { .. } => "the schema file has to be corrected, then read with a rollout",
    };
    Problem::new(ErrorKind::InvalidArguments, why.message())
        .with_hint(hint)
        .with_details(Json::from(failed(&[why.violation()])))
}
