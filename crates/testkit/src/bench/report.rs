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
}

impl Report {
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
        out
    }

    /// For programs: key to `{value, unit}`.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let figure = json!({ "value": row.value, "unit": row.unit, "what": row.what });
            (row.key.clone(), figure)
        });
        Value::Object(rows.collect::<Map<_, _>>())
    }
}
