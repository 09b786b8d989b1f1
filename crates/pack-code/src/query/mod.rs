//! Queries: from the arguments of `search` to hits.

pub(crate) mod auto;
pub(crate) mod candidates;
pub(crate) mod close;
pub(crate) mod cursor;
pub(crate) mod exact;
pub(crate) mod excerpt;
pub(crate) mod feed;
pub(crate) mod filter;
pub(crate) mod history;
pub(crate) mod look;
pub(crate) mod matcher;
pub(crate) mod nearest;
pub(crate) mod passage;
pub(crate) mod path;
pub(crate) mod pattern;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod ranked;
pub(crate) mod references;
pub(crate) mod similar;
pub(crate) mod snippet;
pub(crate) mod symbol;
pub(crate) mod vectors;
pub(crate) mod weights;
pub(crate) mod word;
pub(crate) mod words;

use serde::Serialize;

use crate::query::cursor::{HitCursor, HitKey};

/// One hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Hit {
    pub(crate) repo: String,
    pub(crate) path: String,
    pub(crate) start_line: u64,
    pub(crate) end_line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) symbol: Option<String>,
    /// The type, module or function that the symbol belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    pub(crate) lang: &'static str,
    pub(crate) score: f64,
    pub(crate) snippet: String,
    /// Absolute numbers of the lines that match.
    pub(crate) match_lines: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<serde_json::Value>,
    /// The cursor that continues after this hit.
    #[serde(skip)]
    pub(crate) after: String,
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Total {
    pub(crate) value: u64,
    pub(crate) relation: Relation,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Relation {
    #[default]
    Exact,
    AtLeast,
}

/// How far an answer is what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Confidence {
    /// The text, name or path occurs as it was written.
    #[default]
    Exact,
    /// Files in the order of how well they answer.
    Ranked,
    /// Something with nearly the same name.
    Near,
    /// Nothing matches; these may be related.
    Guess,
    /// Nothing at all.
    None,
}

/// What a query found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) hits: Vec<Hit>,
    /// Of a search for references: where the name is defined.
    pub(crate) definitions: Vec<Hit>,
    /// Of a search of the history.
    pub(crate) commits: Vec<history::Commit>,
    pub(crate) total: Total,
    /// There is more; the cursor says where it goes on, if it can.
    pub(crate) truncated: bool,
    /// The answer may have fewer hits than were found, and then continues after its last one.
    pub(crate) divisible: bool,
    pub(crate) cursor: Option<String>,
    /// Files were read without the help of the index.
    pub(crate) scanned: bool,
    /// The first hit is the very thing that was asked for.
    pub(crate) sure: bool,
    /// The first hit has the wanted name, if not in the wanted place.
    pub(crate) named: bool,
    /// Names of a ranked query that occur nowhere.
    pub(crate) absent: Vec<String>,
    pub(crate) confidence: Confidence,
    /// What the first line says before anything else.
    pub(crate) lead: Option<String>,
    /// What a reader should know about this answer.
    pub(crate) notes: Vec<String>,
}

impl Found {
    /// Keeps the first hits of an answer that is not what was asked for; it has no further page.
    pub(crate) fn keep(&mut self, most: usize) {
        self.hits.truncate(most);
        self.cursor = None;
        self.divisible = false;
        self.truncated = false;
        self.total = Total {
            value: self.hits.len() as u64,
            relation: Relation::Exact,
        };
    }
}

/// Scores are rounded, so that the last bit of a sum never decides an order.
pub(crate) fn round_score(score: f64) -> f64 {
    (score * 10_000.0).round() / 10_000.0
}

/// Where a page of a listing begins, and how many hits the pages before gave. Says in the answer if
/// there are now more before it.
pub(crate) fn resume<T>(
    entries: &[T],
    after: Option<&HitCursor>,
    key: impl for<'a> Fn(&'a T) -> HitKey<'a>,
    found: &mut Found,
) -> (usize, u64) {
    let Some(after) = after else {
        return (0, 0);
    };
    let first = entries.partition_point(|entry| key(entry) <= after.key());
    let new = (first as u64).saturating_sub(after.counted);
    if new > 0 {
        found.notes.push(format!(
            "since the first page {} come up before this one; leave the cursor out to see all",
            match new {
                1 => "1 hit has".to_owned(),
                new => format!("{new} hits have"),
            }
        ));
    }
    (first, after.counted)
}
