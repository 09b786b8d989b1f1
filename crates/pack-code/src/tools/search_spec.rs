//! The arguments and the answer of `search`.

use mainstay_worker::{Code, ToolSpec, tool_spec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::limits;
use crate::query::pattern::Case;
use crate::text::defs::Kind;
use crate::tools::{count, object, text};

/// The `kind` argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KindArgument {
    #[default]
    Auto,
    Literal,
    Regex,
    Ranked,
    Symbol,
    Path,
    References,
    History,
}

/// The arguments.
#[derive(Debug, Deserialize)]
pub(crate) struct Arguments {
    pub(crate) query: String,
    #[serde(default)]
    pub(crate) kind: KindArgument,
    #[serde(default)]
    pub(crate) repo: Vec<String>,
    #[serde(default)]
    pub(crate) path: Vec<String>,
    #[serde(default)]
    pub(crate) exclude: Vec<String>,
    #[serde(default)]
    pub(crate) lang: Vec<String>,
    #[serde(default)]
    pub(crate) symbol_kind: Vec<String>,
    #[serde(default)]
    pub(crate) case: Case,
    #[serde(default)]
    pub(crate) context: u64,
    pub(crate) limit: Option<usize>,
    pub(crate) max_bytes: Option<usize>,
    pub(crate) cursor: Option<String>,
    pub(crate) modified_since: Option<String>,
    #[serde(default)]
    pub(crate) explain: bool,
}

fn list(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 100, "description": description})
}

fn paths(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string", "format": "path", "minLength": 1}, "maxItems": 100,
        "description": description})
}

pub(crate) fn spec(version: &str) -> ToolSpec {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    tool_spec(
        "search",
        "Searches the code of the workspace: words or a question for a ranked answer, a name for its \
         definition, exact text or a regular expression for every matching line.",
    )
    .input(object(
        json!({
            "query": {"type": "string", "minLength": 1, "maxLength": limits::QUERY_BYTES},
            "kind": {"type": "string", "enum": ["auto", "literal", "regex", "ranked", "symbol", "path", "references", "history"],
                "description": "auto (default) decides by the query. references: who uses a name. history: commits \
                    with a text in message or diff, or of path:first-last."},
            "repo": list("Aliases; default all."),
            "path": paths("Globs to search: src/**, *.rs, a folder."),
            "exclude": paths("Globs to skip."),
            "lang": list("rust, python, go ..."),
            "symbol_kind": {"type": "array", "items": {"type": "string", "enum": kinds}, "maxItems": kinds.len(),
                "description": "Implies kind symbol."},
            "case": {"type": "string", "enum": ["smart", "sensitive", "insensitive"],
                "description": "smart (default): sensitive if query has capitals."},
            "context": {"type": "integer", "minimum": 0, "maximum": limits::CONTEXT_LINES,
                "description": "Lines around each hit."},
            "limit": {"type": "integer", "minimum": 1, "maximum": limits::HITS,
                "description": "Hits, default 20."},
            "max_bytes": {"type": "integer", "minimum": 100, "maximum": limits::MAX_SNIPPET_BYTES,
                "description": "Bytes of snippets, default 24000."},
            "cursor": {"type": "string", "minLength": 1, "maxLength": 20_000,
                "description": "From the last answer, for more hits."},
            "modified_since": {"type": "string", "minLength": 4, "maxLength": 40,
                "description": "ISO date or time."},
            "explain": {"type": "boolean", "description": "Adds why each hit is there."},
        }),
        &["query"],
    ))
    .output(output())
    .errors(&[Code::NotFound, Code::NoIndex])
    .schema_version(4)
    .tooling_version(version)
    .coded_rejections()
    .read_only()
}

fn output() -> Value {
    let numbers = json!({"type": "array", "items": count()});
    let hit = object(
        json!({
            "repo": text(), "path": text(), "start_line": count(), "end_line": count(), "symbol": text(), "owner": text(),
            "kind": text(), "lang": text(), "score": {"type": "number"}, "snippet": text(),
            "match_lines": numbers, "why": {"type": "object"},
        }),
        &[
            "repo",
            "path",
            "start_line",
            "end_line",
            "lang",
            "score",
            "snippet",
            "match_lines",
        ],
    );
    let skipped = object(
        json!({
            "count": count(),
            "files": {"type": "array", "items": object(
                json!({"repo": text(), "path": text(), "reason": text()}), &["repo", "path", "reason"])},
        }),
        &["count", "files"],
    );
    let unsearched = object(
        json!({"repo": text(), "reason": text()}),
        &["repo", "reason"],
    );
    let commit = object(
        json!({
            "repo": text(), "commit": text(), "date": text(), "author": text(), "subject": text(),
            "matched": {"type": "string", "enum": ["message", "changes", "lines"]},
            "files": {"type": "array", "items": text()},
        }),
        &["repo", "commit", "date", "author", "subject", "matched"],
    );
    object(
        json!({
            "kind": text(),
            "confidence": {"type": "string", "enum": ["exact", "ranked", "near", "guess", "none"]},
            "hits": {"type": "array", "items": hit},
            "definitions": {"type": "array", "items": hit},
            "commits": {"type": "array", "items": commit},
            "total": object(
                json!({"value": count(), "relation": {"type": "string", "enum": ["exact", "at_least"]}}),
                &["value", "relation"]),
            "truncated": {"type": "boolean"}, "cursor": text(),
            "generation": count(), "fresh": {"type": "boolean"}, "stale_reason": text(),
            "scanned": {"type": "boolean"}, "elapsed_ms": {"type": "number", "minimum": 0},
            "skipped": skipped,
            "unsearched": {"type": "array", "items": unsearched},
            "notes": {"type": "array", "items": text()},
        }),
        &[
            "kind",
            "confidence",
            "hits",
            "total",
            "truncated",
            "generation",
            "fresh",
            "scanned",
            "elapsed_ms",
        ],
    )
}
