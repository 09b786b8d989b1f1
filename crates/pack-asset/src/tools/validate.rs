//! `validate_asset` and `validate_many`.

use mainstay_schema::{Verdict, Violations};
use mainstay_worker::{
    Context, ErrorKind, Json, Porcelain, Problem, REQUIRED_MARKER, Reply, ToolSpec, render,
    tool_spec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::contract::{any_json, closed, or_verdict, verdict};
use super::verdict::{insert, invalid, not_checked, summary, unusable};
use crate::assets::Assets;
use crate::schemas::Schemas;

/// The deprecated name of `validate_asset`.
const ALIAS: &str = "validate";

#[derive(Debug, Deserialize)]
pub(super) struct One {
    asset: Json,
    schema: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Many {
    assets: Vec<Json>,
    schema: String,
}

/// The argument that names the schema, and what is said where it is missing or empty.
fn schema_argument() -> Value {
    json!({
        "type": "string", "minLength": 1,
        REQUIRED_MARKER: "schema param is required",
        "description": "Name from list_schemas.",
    })
}

pub(super) fn one_spec(tooling_version: &str) -> ToolSpec {
    tool_spec(
        "validate_asset",
        "Validates an asset against a schema and lists every violation. Ignores a top-level $schemaRef.",
    )
    .input(closed(&json!({
        "asset": any_json("The asset: any JSON."),
        "schema": schema_argument(),
    })))
    .output(or_verdict(&json!({})))
    .schema_version(4)
    .tooling_version(tooling_version)
    .alias(ALIAS)
    .read_only()
}

pub(super) fn many_spec(tooling_version: &str) -> ToolSpec {
    tool_spec(
        "validate_many",
        "Validates several assets against one schema; one result per asset, in order.",
    )
    .input(closed(&json!({
        "assets": {"type": "array"},
        "schema": schema_argument(),
    })))
    .output(closed(&json!({
        "ok": {"const": true},
        "results": {"type": "array", "items": verdict()},
    })))
    .schema_version(4)
    .tooling_version(tooling_version)
    .read_only()
}

pub(super) fn one(schemas: &Schemas, arguments: &One) -> Result<Reply, Problem> {
    let schema = schemas
        .usable(&arguments.schema)
        .map_err(|why| unusable(&why))?;
    match schema.check(&arguments.asset) {
        Verdict::Valid => {
            let title = schema.title();
            Ok(Reply::json(&json!({"ok": true}))
                .porcelain(move || Porcelain::summary(format!("valid: {title}"))))
        }
        Verdict::Invalid(violations) => {
            let summary = summary(&violations, &schema);
            Ok(invalid(violations, summary))
        }
        Verdict::NotChecked(why) => Err(not_checked(&why, "the asset")),
    }
}

pub(super) fn many(assets: &Assets, arguments: &Many, context: &Context) -> Result<Reply, Problem> {
    let limit = assets.max_batch;
    if arguments.assets.len() > limit {
        return Err(too_many(arguments.assets.len(), limit));
    }
    let schema = assets
        .schemas
        .usable(&arguments.schema)
        .map_err(|why| unusable(&why))?;
    let mut results = Vec::with_capacity(arguments.assets.len());
    let mut lines = Vec::new();
    let (mut valid, mut unchecked) = (0usize, 0usize);
    for (index, asset) in arguments.assets.iter().enumerate() {
        context.check()?;
        let violations = match schema.check(asset) {
            Verdict::Valid => {
                valid += 1;
                results.push(json!({"ok": true}));
                continue;
            }
            Verdict::Invalid(violations) => violations,
            Verdict::NotChecked(why) => {
                unchecked += 1;
                Violations::one(why)
            }
        };
        lines.extend(line(index, &violations));
        let mut result = json!({"ok": false});
        insert(&mut result, &violations);
        results.push(result);
    }
    let unchecked = match unchecked {
        0 => String::new(),
        number => format!(", {number} not checked"),
    };
    let summary = format!(
        "{valid} of {} valid{unchecked}: {}",
        render::count(results.len(), "asset", "assets"),
        schema.title()
    );
    Ok(
        Reply::json(&json!({"ok": true, "results": results})).porcelain(move || {
            let invalid = !lines.is_empty();
            let porcelain = Porcelain::summary(summary).items(lines);
            if invalid {
                porcelain.hint("the structured result lists the violations of each asset")
            } else {
                porcelain
            }
        }),
    )
}

/// The first violation of an asset, and how many there are.
fn line(index: usize, violations: &Violations) -> Option<String> {
    let first = violations.listed.first()?;
    let place = match first.path.as_str() {
        "" => "(root)",
        path => path,
    };
    let more = match violations
        .more
        .map(|more| more + violations.listed.len() - 1)
    {
        Some(0) => String::new(),
        Some(more) => format!(" (and {more} more)"),
        None => " (and others, which were not counted)".to_owned(),
    };
    Some(format!("asset {index}: {place}: {}{more}", first.message))
}

fn too_many(number: usize, limit: usize) -> Problem {
    let details = json!({"ok": false, "reason": "unsupported",
        "detail": "batch_too_large", "limit": limit});
    let message = format!("the batch has {number} assets; the limit is {limit}");
    Problem::new(ErrorKind::Unsupported, message)
        .with_hint(format!("send at most {limit} assets at once"))
        .with_details(Json::from(details))
}
