//! Completions: what an argument of a prompt or of a resource template may become.

use mainstay_contract::json::Json;
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::Completion;
use serde_json::json;

use crate::context::Context;

/// MCP's ceiling for the values of one completion.
const MAX_VALUES: usize = 100;

/// Completes arguments.
pub trait Completions: Send + Sync {
    /// All values that fit what was typed, best first. At most 100 are passed on.
    fn complete(&self, request: &Completion, context: &Context) -> Result<Vec<String>, Problem>;
}

impl<F> Completions for F
where
    F: Fn(&Completion, &Context) -> Result<Vec<String>, Problem> + Send + Sync,
{
    fn complete(&self, request: &Completion, context: &Context) -> Result<Vec<String>, Problem> {
        self(request, context)
    }
}

/// The members of MCP's result.
pub(crate) fn members(values: &[String]) -> Json {
    let shown = values.get(..MAX_VALUES).unwrap_or(values);
    Json::from(json!({"completion": {
        "values": shown, "total": values.len(), "hasMore": shown.len() < values.len(),
    }}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_a_hundred_values_are_passed_on() {
        let values: Vec<String> = (0..150).map(|n| n.to_string()).collect();
        let completion = members(&values).to_value().unwrap()["completion"].clone();
        assert_eq!(completion["values"].as_array().unwrap().len(), 100);
        assert_eq!(
            (&completion["total"], &completion["hasMore"]),
            (&json!(150), &json!(true))
        );
        let none = members(&[]).to_value().unwrap();
        assert_eq!(none["completion"]["hasMore"], false);
    }
}
