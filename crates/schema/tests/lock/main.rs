//! The lock: which changes of a tool are seen, what they demand, and what its text must be.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

mod changes;
mod file;
mod judgement;
mod properties;

use mainstay_contract::error::Code;
use mainstay_contract::replay::Replay;
use mainstay_contract::tool::{Annotations, Pace, Rejections, ToolSpec};
use mainstay_schema::lock::{Contract, Lock, markdown};
use serde_json::json;

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "Searches.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "description": "What to look for."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                "mode": {"enum": ["exact", "fuzzy"]},
                "where": {"type": "object", "properties": {"path": {"$ref": "#/$defs/path"}},
                    "additionalProperties": false},
            },
            "$defs": {"path": {"type": "string", "description": "A path."}},
            "required": ["query"],
            "additionalProperties": false,
        }),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "ok": {"const": true},
                "hits": {"type": "array", "items": {"type": "object", "properties": {
                    "path": {"type": "string", "description": "Where."}}, "required": ["path"]}},
                "note": {"type": "string"},
            },
            "required": ["ok", "hits"],
            "additionalProperties": false,
        })),
        annotations: Annotations::READ_ONLY,
        schema_version: 3,
        tooling_version: "1.2.3+abc".to_owned(),
        replay: Replay::Convergent,
        timeout_ms: None,
        errors: vec![Code::NotFound],
        aliases: vec!["grep".to_owned()],
        argument_aliases: vec![("q".to_owned(), "query".to_owned())],
        rejections: Rejections::Plain,
        pace: Pace::Short,
        tasks: false,
    }
}

fn contract(name: &str) -> Contract {
    Contract::of(&spec(name), 120_000)
}

fn lock(contracts: impl IntoIterator<Item = Contract>) -> Lock {
    let tools = contracts
        .into_iter()
        .map(|contract| (contract.name.clone(), contract.into()));
    Lock {
        tools: tools.collect(),
        ..Lock::default()
    }
}

#[test]
fn the_page_of_contracts_has_every_rule() {
    let page = include_str!("../../../../docs/contracts.md");
    let table = markdown();
    assert!(
        page.contains(&table),
        "the table of rules must be:\n{table}"
    );
}
