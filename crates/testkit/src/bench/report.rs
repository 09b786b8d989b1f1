//! What was measured, as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// One figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Stable key in the JSON.
    pub key: String,
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
}

/// All figures of a run, in the order they were measured.
#[derive(Clone, Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    /// What was not measured, and why.
    skipped: Vec<(String, String)>,
}

impl Report {
    /// Says that something was not measured.
    pub(super) fn skip(&mut self, key: &str, why: &str) {
        self.skipped.push((key.to_owned(), why.to_owned()));
    }

    pub(super) fn add(&mut self, key: &str, what: &str, value: f64, unit: &'static str) {
        self.rows.push(Row {
            key: key.to_owned(),
            what: what.to_owned(),
            value,
            unit,
        });
    }

    /// The figure of this key.
    pub fn value(&self, key: &str) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.key == key)
            .map(|row| row.value)
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let digits = if row.value.abs() >= 1000.0 { 0 } else { 2 };
            let _ = writeln!(
                out,
                "{:<58} {:>12.digits$} {}",
                row.what, row.value, row.unit
            );
        }
        for (key, why) in &self.skipped {
            let _ = writeln!(out, "{key}: SKIPPED, {why}");
        }
        out
    }

    /// For programs: key to `{value, unit, what}`, or to `{skipped}`.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let figure = json!({ "value": row.value, "unit": row.unit, "what": row.what });
            (row.key.clone(), figure)
        });
        let skipped = self
            .skipped
            .iter()
            .map(|(key, why)| (key.clone(), json!({ "skipped": why })));
        Value::Object(rows.chain(skipped).collect::<Map<_, _>>())
    }
}
