//! Verdicts as answers and as text.

use mainstay_schema::{Violation, Violations};
use mainstay_worker::{ErrorKind, Json, Porcelain, Problem, Reply, render};
use serde_json::{Value, json};

use crate::schemas::{Unusable, Usable};

/// The hint about violations that are not listed.
pub(crate) const MORE: &str = "correct these first, or raise limits.violations";

/// `{"ok": false, "reason": "validation_failed", "errors": [...]}`, with `complete` and `more` where
/// violations are missing.
pub(crate) fn failed(violations: &Violations) -> Value {
    let mut failed = json!({"ok": false, "reason": "validation_failed"});
    insert(&mut failed, violations);
    failed
}

/// Adds the members of a verdict that name its violations.
pub(super) fn insert(verdict: &mut Value, violations: &Violations) {
    let Some(members) = verdict.as_object_mut() else {
        return;
    };
    members.insert("errors".to_owned(), json!(violations.listed));
    if !violations.is_complete() {
        members.insert("complete".to_owned(), json!(false));
    }
    if let Some(more) = violations.more.filter(|more| *more > 0) {
        members.insert("more".to_owned(), json!(more));
    }
}

/// The answer to a call that found an asset invalid, with its first line for reading.
pub(super) fn invalid(violations: Violations, summary: String) -> Reply {
    Reply::json(&failed(&violations)).porcelain(move || page(summary, &violations))
}

/// A verdict for reading: one line per violation, and how many are missing.
pub(crate) fn page(summary: String, violations: &Violations) -> Porcelain {
    let page = Porcelain::summary(summary).items(lines(&violations.listed));
    match violations.rest() {
        Some(rest) => page.note(rest).hint(MORE),
        None => page,
    }
}

/// One line per violation.
fn lines(violations: &[Violation]) -> impl Iterator<Item = String> {
    violations
        .iter()
        .map(|violation| match violation.path.as_str() {
            "" => format!("(root): {}", violation.message),
            path => format!("{path}: {}", violation.message),
        })
}

/// How many violations there are, as far as they were counted.
pub(super) fn number(violations: &Violations) -> String {
    let listed = violations.listed.len();
    let number = |number| render::count(number, "violation", "violations");
    match violations.more {
        Some(more) => number(listed + more),
        None => format!("at least {}", number(listed)),
    }
}

/// `3 violations against lamp 1.0.0`.
pub(crate) fn summary(violations: &Violations, schema: &Usable<'_>) -> String {
    format!("{} against {}", number(violations), schema.title())
}

/// An asset without a verdict.
pub(super) fn not_checked(why: &Violation, asset: &str) -> Problem {
    let place = match why.path.as_str() {
        "" => asset.to_owned(),
        path => format!("{path} of {asset}"),
    };
    let message = format!("{place} {}", why.message);
    Problem::new(ErrorKind::Unsupported, message)
        .with_hint(NOT_CHECKED_HINT)
        .with_details(Json::from(not_checked_details(why)))
}

/// The next step for an author whose text was not checked.
pub(crate) const NOT_CHECKED_HINT: &str =
    "shorten the text, or give the schema a pattern without look-around";

/// The members of an answer about an asset without a verdict.
pub(crate) fn not_checked_details(why: &Violation) -> Value {
    json!({"ok": false, "reason": "unsupported", "detail": "not_checked", "errors": [why]})
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
        .with_details(Json::from(failed(&Violations::one(why.violation()))))
}
