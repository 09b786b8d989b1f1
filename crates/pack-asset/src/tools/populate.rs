//! `populate_backend`.

use mainstay_schema::{Verdict, Violations};
use mainstay_worker::{
    Annotations, Context, ErrorKind, Json, Porcelain, Problem, Replay, Reply, ToolSpec, tool_spec,
};
use serde::Deserialize;
use serde_json::json;

use super::contract::{or_verdict, with_required};
use super::verdict::{invalid, not_checked, summary};
use crate::assets::Assets;
use crate::exact::Exact;
use crate::naming;
use crate::schemas::Unusable;

#[derive(Debug, Deserialize)]
pub(super) struct Arguments {
    asset: Json,
    #[serde(default = "yes")]
    validate_first: bool,
}

const fn yes() -> bool {
    true
}

/// Each call adds an asset, even the same one again.
const EFFECT: Annotations = Annotations {
    read_only_hint: false,
    destructive_hint: false,
    idempotent_hint: false,
    open_world_hint: true,
};

pub(super) fn spec(tooling_version: &str) -> ToolSpec {
    tool_spec(
        "populate_backend",
        "Validates an asset against the schema that its schema or $schemaRef names, then sends it to \
         the backend once.",
    )
    .input(with_required(
        &json!(["asset"]),
        &json!({
            "asset": {"type": "object"},
            "validate_first": {"type": "boolean", "default": true,
                "description": "false needs the operator's permission."},
        }),
    ))
    .output(or_verdict(&json!({
        "asset_id": {"type": "string", "minLength": 1},
        "backend_url": {"type": "string"},
    })))
    .schema_version(4)
    .tooling_version(tooling_version)
    .effects(Replay::NeverReplay, EFFECT)
}

pub(super) fn run(
    assets: &Assets,
    arguments: &Arguments,
    context: &Context,
) -> Result<Reply, Problem> {
    let Some(backend) = &assets.backend else {
        return Err(unsupported(
            "backend disabled",
            "the operator enables it with SYN_BACKEND_URL",
        ));
    };
    if arguments.validate_first {
        if let Some(refusal) = refusal(assets, &arguments.asset)? {
            return Ok(refusal);
        }
    } else if !assets.allow_unvalidated {
        return Err(unsupported(
            "validate_first is required",
            "leave validate_first out; the operator allows false with MAINSTAY_ALLOW_UNVALIDATED=1",
        ));
    }
    context.check()?;
    let id = backend.post(&arguments.asset, context.cancel())?;
    let base = backend.base().to_owned();
    let answer = json!({"ok": true, "asset_id": id, "backend_url": base});
    Ok(Reply::json(&answer)
        .porcelain(move || Porcelain::summary(format!("stored as {id}")).field("backend", base)))
}

/// The verdict against the asset, if there is one.
fn refusal(assets: &Assets, asset: &Json) -> Result<Option<Reply>, Problem> {
    let one = |wrong, summary| Ok(Some(invalid(Violations::one(wrong), summary)));
    let document = match Exact::parse(asset.as_str()) {
        Ok(document) => document,
        Err(wrong) => return one(wrong, "not sent: 1 violation".to_owned()),
    };
    let usable = match naming::own_name(&document) {
        Some(name) => assets.schemas.usable(&name),
        None => Err(Unusable::Unnamed),
    };
    let schema = match usable {
        Ok(schema) => schema,
        Err(why) => {
            let summary = format!("not sent: {}", why.message());
            return one(why.violation(), summary);
        }
    };
    match schema.check_exact(&document) {
        Verdict::Valid => Ok(None),
        Verdict::Invalid(violations) => {
            let summary = format!("not sent: {}", summary(&violations, &schema));
            Ok(Some(invalid(violations, summary)))
        }
        Verdict::NotChecked(why) => Err(not_checked(&why, "the asset")),
    }
}

fn unsupported(detail: &str, hint: &str) -> Problem {
    let details = json!({"ok": false, "reason": "unsupported", "detail": detail});
    Problem::new(ErrorKind::Unsupported, detail)
        .with_hint(hint)
        .with_details(Json::from(details))
}
