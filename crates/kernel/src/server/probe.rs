//! Did a lost call take effect? The operator names a tool that knows, and what its answer means.

use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::ToolReply;
use mainstay_contract::rpc::Probed;
use serde_json::{Map, Value, json};

use super::memory::request;
use super::rules::ProbeRule;

/// The line that asks about a call with these arguments.
pub(super) fn line(
    rule: &ProbeRule,
    id: &RequestId,
    arguments: Option<&str>,
    meta: Option<&str>,
) -> Json {
    let lost: Value = arguments
        .and_then(|arguments| serde_json::from_str(arguments).ok())
        .unwrap_or_default();
    let asked: Map<String, Value> = rule
        .arguments
        .iter()
        .map(|(name, value)| {
            let pointed = value
                .as_str()
                .filter(|pointer| pointer.starts_with('/'))
                .and_then(|pointer| lost.pointer(pointer));
            (name.clone(), pointed.unwrap_or(value).clone())
        })
        .collect();
    let mut params = json!({"name": rule.tool, "arguments": asked});
    // A modern request carries its client's version and abilities; the probe's are the same.
    let meta = meta.and_then(|meta| serde_json::from_str::<Value>(meta).ok());
    if let (Some(Value::Object(mut meta)), Some(params)) = (meta, params.as_object_mut()) {
        meta.remove("progressToken");
        params.insert("_meta".to_owned(), Value::Object(meta));
    }
    request(id, "tools/call", &params.to_string())
}

/// The meaning of the probe's answer.
pub(super) fn judge(rule: &ProbeRule, result: Option<&str>) -> Probed {
    let result: Value = result
        .and_then(|result| serde_json::from_str(result).ok())
        .unwrap_or_default();
    let failed = result.get("isError") == Some(&Value::Bool(true));
    match (rule.applied.holds(&result), rule.not_applied.holds(&result)) {
        _ if failed => Probed::Unknown {},
        (true, false) => {
            let said = "the call took effect before its server was lost; its own answer is lost \
                        with the server, and it does not run again";
            Probed::Applied(ToolReply {
                json: Json::from(json!({"applied": true, "message": said, "probe": result})),
                text: Some(said.to_owned()),
            })
        }
        (false, true) => Probed::NotApplied {},
        _ => Probed::Unknown {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> ProbeRule {
        serde_json::from_value(json!({
            "tool": "lookup", "arguments": {"key": "/item/key", "deep": true},
            "applied": {"path": "/structuredContent/found", "equals": true},
            "not_applied": {"path": "/structuredContent/found", "equals": false},
        }))
        .unwrap()
    }

    #[test]
    fn arguments_point_into_the_lost_call() {
        let id = RequestId::parse("\"p\"").unwrap();
        let line = line(&rule(), &id, Some(r#"{"item":{"key":"k7"}}"#), None);
        let line = line.to_value().unwrap();
        assert_eq!(line["params"]["name"], "lookup");
        assert_eq!(
            line["params"]["arguments"],
            json!({"deep": true, "key": "k7"})
        );
    }

    #[test]
    fn only_a_clear_answer_is_an_answer() {
        let of = |result: &str| judge(&rule(), Some(result));
        assert!(matches!(
            of(r#"{"structuredContent":{"found":true}}"#),
            Probed::Applied(_)
        ));
        assert_eq!(
            of(r#"{"structuredContent":{"found":false}}"#),
            Probed::NotApplied {}
        );
        for unclear in [
            "{}",
            r#"{"structuredContent":{"found":"yes"}}"#,
            r#"{"isError":true,"structuredContent":{"found":false}}"#,
        ] {
            assert_eq!(of(unclear), Probed::Unknown {}, "{unclear}");
        }
        assert_eq!(judge(&rule(), None), Probed::Unknown {});
    }
}
