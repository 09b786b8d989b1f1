//! Invocation envelopes over real hosts: what is refused, who may ask, what is written down.

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::Serve;
use serde_json::{Value, json};

use crate::http::{Host, envelope};

fn with(mut envelope: Value, name: &str, value: Value) -> Value {
    if let Some(members) = envelope.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
    envelope
}

#[test]
fn a_request_is_answered_under_its_id_and_its_trace() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let request = with(
        envelope("list_schemas", &json!({})),
        "trace_id",
        json!("t-1"),
    );
    let answer = host.post("/v1/invoke", &request)?;
    assert_eq!(answer.status, 200);
    let response = answer.json()?;
    assert_eq!(response["id"], "one");
    assert_eq!(response["trace_id"], "t-1");
    assert_eq!(response["version"], "1.0.0");
    assert_eq!(response["status"]["code"], "success");
    assert_eq!(response["output"]["ok"], true);
    host.stop()
}

#[test]
fn a_bad_envelope_is_refused_with_a_response_envelope() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let good = envelope("list_schemas", &json!({}));
    let mut without = good.clone();
    without
        .as_object_mut()
        .context("an object")?
        .remove("payload");
    for (request, path) in [
        (without, ""),
        (with(good.clone(), "extra", json!(1)), ""),
        (with(good.clone(), "payload", json!([])), "/payload"),
        (with(good.clone(), "timestamp", json!("noon")), "/timestamp"),
        (with(good.clone(), "tool", json!("a b")), "/tool"),
        (
            with(good.clone(), "auth", json!({"type": "bearer", "x": 1})),
            "/auth",
        ),
    ] {
        let answer = host.post("/v1/invoke", &request)?;
        assert_eq!(answer.status, 400, "{request}");
        let response = answer.json()?;
        assert_eq!(response["status"]["code"], "error");
        assert_eq!(response["id"], "one");
        let detail = &response["errors"][0]["detail"]["details"];
        assert_eq!(detail["errors"][0]["path"], path, "{response}");
    }
    let other = with(good.clone(), "version", json!("2.0.0"));
    let response = host.post("/v1/invoke", &other)?.json()?;
    let supported = &response["errors"][0]["detail"]["details"]["supported"];
    assert_eq!(*supported, json!(["1.0.0"]));
    let newer = with(good, "version", json!("1.7.0"));
    assert_eq!(host.post("/v1/invoke", &newer)?.status, 200);
    let newer = with(newer, "priority", json!(1));
    let response = host.post("/v1/invoke", &newer)?.json()?;
    let said = response["errors"][0]["message"].to_string();
    ensure!(said.contains("priority"), "{said}");
    for (headers, body, status) in [
        (&["Content-Type: application/json"][..], "{", 400),
        (&["Content-Type: text/plain"][..], "{}", 415),
        (&[][..], "{}", 415),
    ] {
        let answer = host.ask("POST", "/v1/invoke", headers, body)?;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.json()?["status"]["http"], status);
    }
    host.stop()
}

#[test]
fn a_token_in_the_envelope_counts_like_the_header_and_must_not_contradict_it() -> anyhow::Result<()>
{
    let serve = Serve::stdio()?
        .pack("asset")
        .env("MAINSTAY_TOKEN", "s3cret");
    let host = Host::start(serve)?;
    let auth = |auth: Value| with(envelope("list_schemas", &json!({})), "auth", auth);
    let ask = |request: &Value, header: Option<&str>| -> anyhow::Result<u16> {
        let mut headers = vec!["Content-Type: application/json"];
        headers.extend(header);
        let answer = host.ask("POST", "/v1/invoke", &headers, &request.to_string())?;
        let response = answer.json()?;
        assert_eq!(response["status"]["http"], answer.status);
        if answer.status == 401 {
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        Ok(answer.status)
    };
    let right = Some("Authorization: Bearer s3cret");
    let bearer = |token: &str| auth(json!({ "type": "bearer", "token": token }));
    assert_eq!(ask(&bearer("s3cret"), None)?, 200);
    assert_eq!(ask(&bearer("s3cret"), right)?, 200);
    assert_eq!(ask(&auth(json!({ "type": "none" })), right)?, 200);
    assert_eq!(ask(&bearer("other"), None)?, 401);
    assert_eq!(ask(&bearer("other"), right)?, 401, "a contradiction");
    let wrong = Some("Authorization: Bearer other");
    assert_eq!(ask(&bearer("s3cret"), wrong)?, 401, "a contradiction");
    assert_eq!(ask(&envelope("list_schemas", &json!({})), None)?, 401);
    assert_eq!(
        ask(&json!({ "id": "x" }), None)?,
        401,
        "not told what is wrong"
    );
    let api_key = auth(json!({ "type": "api_key", "token": "s3cret" }));
    assert_eq!(ask(&api_key, right)?, 401);
    let scoped = json!({ "type": "bearer", "token": "s3cret", "scopes": ["search:read"] });
    assert_eq!(ask(&auth(scoped), None)?, 403);
    let refused = host.call("list_schemas", &json!({}))?;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.json()?["error"]["code"], "UNAUTHORIZED");
    host.stop()
}

#[test]
fn context_and_metadata_are_written_down_without_secrets() -> anyhow::Result<()> {
    const SECRET: &str = "s3cr3t";
    let serve = Serve::stdio()?.pack("asset");
    let folder = mainstay_testkit::process::TempDir::new()?;
    let file = folder.join("events.jsonl");
    let host = Host::start(serve.argument("--telemetry").argument(&file))?;
    let request = with(
        envelope("list_schemas", &json!({ format!("token={SECRET}"): 1 })),
        "context",
        json!({ "task_id": "task-1", "api_key": SECRET }),
    );
    let request = with(
        request,
        "metadata",
        json!({ "note": format!("Bearer {SECRET}") }),
    );
    let request = with(request, "trace_id", json!(format!("token={SECRET}")));
    assert_eq!(host.post("/v1/invoke", &request)?.status, 400);
    let diagnostics = host.get("/v1/diagnostics")?;
    let kept = diagnostics.json()?["schema_mismatches"].clone();
    assert_eq!(kept.as_array().map(Vec::len), Some(1), "{diagnostics:?}");
    assert_eq!(kept[0]["tool"], "list_schemas");
    ensure!(!diagnostics.body.contains(SECRET), "{diagnostics:?}");
    host.stop()?;
    let events = std::fs::read_to_string(&file).context("reading the events")?;
    ensure!(!events.contains(SECRET), "{events}");
    let event = events.lines().find(|line| line.contains("\"invocation\""));
    let event: Value = serde_json::from_str(event.context("no event")?)?;
    assert_eq!(event["context"]["task_id"], "task-1");
    assert_eq!(event["context"]["api_key"], "[redacted]");
    Ok(())
}
