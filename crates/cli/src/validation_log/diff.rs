//! What differs between two validation logs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainstay_contract::canonical::canonical_json;
use mainstay_contract::envelope::log::{REQUIRED, settled};
use serde_json::Value;

/// Differences that are shown; the rest are counted.
const SHOWN: usize = 50;

/// A line that is no record, with its number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadRecord {
    line: usize,
    what: String,
}

impl std::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for BadRecord {}

/// Reads a log. Every line must be a whole record.
pub(crate) fn parse(text: &str) -> Result<Vec<Value>, BadRecord> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            let bad = |what: String| BadRecord { line: at + 1, what };
            let record: Value =
                serde_json::from_str(line).map_err(|error| bad(format!("not JSON: {error}")))?;
            let members = record.as_object();
            let members = members.ok_or_else(|| bad("not an object".to_owned()))?;
            if let Some(missing) = REQUIRED.iter().find(|key| !members.contains_key(**key)) {
                return Err(bad(format!("the member {missing} is missing")));
            }
            if let Some(extra) = members.keys().find(|key| !REQUIRED.contains(&key.as_str())) {
                return Err(bad(format!(
                    "the member {extra} does not belong in a record"
                )));
            }
            Ok(record)
        })
        .collect()
}

/// Whether the order of records counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Counts,
    Ignored,
}

/// The differences, in words; nothing if there are none.
pub(crate) fn differences(golden: &[Value], new: &[Value], order: Order) -> Vec<String> {
    match order {
        Order::Counts => in_order(golden, new),
        Order::Ignored => as_sets(golden, new),
    }
}

fn in_order(golden: &[Value], new: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for at in 0..golden.len().max(new.len()) {
        match (golden.get(at), new.get(at)) {
            (Some(golden), Some(new)) => {
                let (golden, new) = (settled(golden), settled(new));
                let mut changes = Vec::new();
                compare("", &golden, &new, &mut changes);
                let name = name(at, &golden);
                found.extend(
                    changes
                        .into_iter()
                        .map(|change| format!("{name}: {change}")),
                );
            }
            (Some(golden), None) => found.push(format!("{}: missing", name(at, golden))),
            (None, Some(new)) => found.push(format!("{}: not in the golden log", name(at, new))),
            (None, None) => {}
        }
    }
    found
}

fn as_sets(golden: &[Value], new: &[Value]) -> Vec<String> {
    let mut counts: BTreeMap<String, (i64, String)> = BTreeMap::new();
    for (records, sign) in [(golden, 1), (new, -1)] {
        for (at, record) in records.iter().enumerate() {
            let key = canonical_json(&settled(record));
            let entry = counts.entry(key).or_insert_with(|| (0, name(at, record)));
            entry.0 += sign;
        }
    }
    let differing = counts.into_values().filter(|(count, _)| *count != 0);
    differing
        .map(|(count, name)| {
            let what = if count > 0 {
                "missing"
            } else {
                "not in the golden log"
            };
            format!("{name}: {what}")
        })
        .collect()
}

fn name(at: usize, record: &Value) -> String {
    let step = record.get("stepId").and_then(Value::as_str).unwrap_or("?");
    format!("record {} ({step})", at + 1)
}

fn compare(path: &str, golden: &Value, new: &Value, found: &mut Vec<String>) {
    if let (Some(old), Some(now)) = (golden.as_object(), new.as_object()) {
        let keys: std::collections::BTreeSet<&String> = old.keys().chain(now.keys()).collect();
        for key in keys {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            let none = Value::Null;
            let (a, b) = (old.get(key), now.get(key));
            compare(&path, a.unwrap_or(&none), b.unwrap_or(&none), found);
        }
    } else if golden != new {
        found.push(format!("{path} was {golden}, is {new}"));
    }
}

/// The differences as a page.
pub(crate) fn page(found: &[String]) -> String {
    let mut page = String::new();
    for line in found.iter().take(SHOWN) {
        // A string takes whatever is written to it.
        let _ = writeln!(page, "{line}");
    }
    if found.len() > SHOWN {
        let _ = writeln!(page, "and {} more", found.len() - SHOWN);
    }
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(step: &str, bytes: u64, ts: &str) -> Value {
        json!({
            "agentId": "a", "attempt": 0, "durationMs": 1.5, "error": null, "inputBytes": bytes,
            "metadata": {"schemaVersion": "1.0.0", "deterministic": true, "runId": ts}, "method": "m", "outputBytes": 3,
            "requestId": ts, "route": "tool", "spanId": ts, "status": "ok", "stepId": step, "taskId": "t",
            "traceId": ts, "transport": "http", "ts": ts,
        })
    }

    #[test]
    fn only_what_means_something_differs() {
        let golden = [record("a", 1, "x"), record("b", 2, "x")];
        let same = [record("a", 1, "y"), record("b", 2, "z")];
        assert_eq!(differences(&golden, &same, Order::Counts), [] as [&str; 0]);
        let other = [record("a", 1, "y"), record("b", 3, "z")];
        assert_eq!(
            differences(&golden, &other, Order::Counts),
            ["record 2 (b): inputBytes was 2, is 3"]
        );
    }

    #[test]
    fn order_counts_unless_it_is_said_not_to() {
        let golden = [record("a", 1, "x"), record("b", 2, "x")];
        let turned = [record("b", 2, "x"), record("a", 1, "x")];
        assert!(!differences(&golden, &turned, Order::Counts).is_empty());
        assert_eq!(
            differences(&golden, &turned, Order::Ignored),
            [] as [&str; 0]
        );
        let twice = [record("a", 1, "x"), record("a", 1, "x")];
        assert_eq!(
            differences(&golden, &twice, Order::Ignored),
            [
                "record 1 (a): not in the golden log",
                "record 2 (b): missing"
            ]
        );
    }

    #[test]
    fn a_record_too_few_or_too_many_is_a_difference() {
        let one = [record("a", 1, "x")];
        let two = [record("a", 1, "x"), record("b", 2, "x")];
        assert_eq!(
            differences(&two, &one, Order::Counts),
            ["record 2 (b): missing"]
        );
        assert_eq!(
            differences(&one, &two, Order::Counts),
            ["record 2 (b): not in the golden log"]
        );
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        let mut short = record("a", 1, "x");
        short.as_object_mut().unwrap().remove("error");
        let text = format!("{}\n\n{short}\n", record("a", 1, "x"));
        assert_eq!(
            parse(&text).unwrap_err().to_string(),
            "line 3: the member error is missing"
        );
        assert!(
            parse("{")
                .unwrap_err()
                .to_string()
                .starts_with("line 1: not JSON")
        );
        let mut long = record("a", 1, "x");
        long["surprise"] = json!(1);
        assert!(parse(&long.to_string()).is_err());
    }
}
