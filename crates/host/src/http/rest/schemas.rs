//! `/schemas/{file}`: the schemas of envelopes, and the tools with theirs.

use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_contract::uri;
use mainstay_schema::PUBLISHED_SCHEMAS;
use serde_json::Value;

use super::super::Front;
use super::super::access::Credential;
use super::super::respond::{self, Answer, Tongue};
use super::ask::{self, Order};

const SCHEMA: &str = "application/schema+json";

pub(super) async fn answer(front: &Front, file: &str, who: &Credential) -> Answer {
    let found = match file.strip_prefix("tools/") {
        None => {
            let mut published = PUBLISHED_SCHEMAS.iter();
            let found = published.find(|(name, _)| *name == file);
            Ok(found.map(|(_, text)| (*text).to_owned()))
        }
        Some(file) => match file.strip_suffix(".json").and_then(uri::decode) {
            Some(tool) => definition(front, &tool, who).await,
            None => Ok(None),
        },
    };
    match found {
        Ok(Some(text)) => respond::typed(SCHEMA, text),
        Ok(None) => respond::refuse(&Problem::of(ErrorKind::UnknownRoute), Tongue::Plain),
        Err(problem) => respond::refuse(&problem, Tongue::Plain),
    }
}

/// The whole definition of a tool.
async fn definition(
    front: &Front,
    tool: &str,
    who: &Credential,
) -> Result<Option<String>, Problem> {
    let Success::Members(listing) = listing(front, who).await? else {
        return Err(Problem::of(ErrorKind::Internal));
    };
    let listing = listing.to_value().unwrap_or_default();
    let mut tools = listing
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    Ok(tools
        .find(|listed| listed.get("name").and_then(Value::as_str) == Some(tool))
        .map(Value::to_string))
}

async fn listing(front: &Front, who: &Credential) -> Outcome {
    let order = Order::own("schemas");
    let op = Op::ListTools { full: true };
    ask::run(front, who, op, order).await.outcome
}
