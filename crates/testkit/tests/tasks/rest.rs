//! Tasks over REST: idempotency keys, asynchronous answers, and who may see a task.

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::Transport;
use serde_json::{Value, json};

use crate::world::{World, ask, kill, until};

const TOKEN: &str = "a-token-of-more-than-thirty-two-characters";

#[test]
fn a_key_runs_a_tool_once_and_gives_the_recorded_outcome() -> anyhow::Result<()> {
    let world = World::new()?;
    let mut host = world.host(Transport::Http)?;
    let append = |text: &str| json!({ "arguments": { "text": text } });
    let run = |host: &mainstay_testkit::process::Running, key: &str, body: &Value| {
        let headers = [("Idempotency-Key", key)];
        ask(
            host.address()?,
            "POST",
            "/v1/tool/append",
            &headers,
            Some(body),
        )
    };
    let first = run(&host, "k1", &append("a"))?;
    ensure!(first.status() == 200, "{}", first.text());
    ensure!(first.json()?["data"]["text"] == "a");
    let again = run(&host, "k1", &append("a"))?;
    ensure!(
        again.status() == 200 && again.json()?["data"]["text"] == "a",
        "{}",
        again.text()
    );
    ensure!(world.effects()?.len() == 1, "it ran once");
    let other = run(&host, "k1", &append("b"))?;
    ensure!(other.status() == 422, "{}", other.text());
    let bad = run(&host, "k2", &json!({ "arguments": {} }))?;
    ensure!(bad.status() == 400, "{}", bad.text());
    let good = run(&host, "k2", &append("c"))?;
    ensure!(
        good.status() == 200,
        "a refusal is not recorded: {}",
        good.text()
    );
    let bad_key = ask(
        host.address()?,
        "POST",
        "/v1/tool/append",
        &[("Idempotency-Key", "")],
        Some(&append("d")),
    )?;
    ensure!(bad_key.status() == 400, "{}", bad_key.text());
    kill(&mut host)?;
    let next = world.host(Transport::Http)?;
    let after = run(&next, "k1", &append("a"))?;
    ensure!(after.json()?["data"]["text"] == "a", "{}", after.text());
    ensure!(world.effects()?.len() == 2, "{:?}", world.effects()?);
    Ok(())
}

#[test]
fn a_second_request_with_a_key_waits_for_the_first() -> anyhow::Result<()> {
    let world = World::new()?;
    let host = world.host(Transport::Http)?;
    let address = host.address()?;
    let body = json!({ "arguments": { "text": "a", "pause_ms": 1000 } });
    let ask_it = || {
        let body = body.clone();
        std::thread::spawn(move || {
            let headers = [("Idempotency-Key", "k")];
            ask(address, "POST", "/v1/tool/append", &headers, Some(&body))
        })
    };
    let both = [ask_it(), ask_it()];
    for answer in both {
        let answer = answer.join().unwrap()?;
        ensure!(answer.status() == 200, "{}", answer.text());
    }
    ensure!(world.effects()?.len() == 1);
    Ok(())
}

#[test]
fn an_asynchronous_run_is_accepted_and_read_where_it_says() -> anyhow::Result<()> {
    let world = World::new()?;
    let host = world.host(Transport::Http)?;
    let address = host.address()?;
    let prefer = [("Prefer", "respond-async")];
    let body = json!({ "arguments": { "text": "a" } });
    let accepted = ask(address, "POST", "/v1/tool/append", &prefer, Some(&body))?;
    ensure!(accepted.status() == 202, "{}", accepted.text());
    ensure!(accepted.head.header("preference-applied") == Some("respond-async"));
    let place = accepted
        .head
        .header("location")
        .context("a place")?
        .to_owned();
    let id = accepted.json()?["data"]["taskId"].clone();
    ensure!(place == format!("/v1/tasks/{}", id.as_str().context("an id")?));
    let read = || ask(address, "GET", &place, &[], None);
    until("it is completed", || {
        Ok(read()?.json()?["status"] == "completed")
    })?;
    let task = read()?.json()?;
    ensure!(
        task["result"] == json!({ "ok": true, "text": "a" }),
        "{task:#}"
    );
    let deleted = ask(address, "DELETE", &place, &[], None)?;
    ensure!(
        deleted.json()?["status"] == "completed",
        "it stays as it is: {}",
        deleted.text()
    );
    let invoke = json!({
        "id": "one", "version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z",
        "tool": "append", "payload": { "text": "b", "pause_ms": 600_000 },
    });
    let invoked = ask(address, "POST", "/v1/invoke", &prefer, Some(&invoke))?;
    ensure!(invoked.status() == 202, "{}", invoked.text());
    let answer = invoked.json()?;
    ensure!(answer["status"]["code"] == "accepted", "{answer:#}");
    let id = answer["output"]["taskId"]
        .as_str()
        .context("an id")?
        .to_owned();
    let place = format!("/v1/tasks/{id}");
    let cancelled = ask(address, "DELETE", &place, &[], None)?;
    ensure!(
        cancelled.json()?["status"] == "cancelled",
        "{}",
        cancelled.text()
    );
    let ignored = ask(address, "POST", "/v1/tool/get", &prefer, Some(&json!({})))?;
    ensure!(
        ignored.status() == 200,
        "this tool may not be a task: {}",
        ignored.text()
    );
    ensure!(ignored.head.header("preference-applied").is_none());
    for (method, path) in [
        ("GET", "/v1/tasks/00000000000000000000000000000000"),
        ("GET", "/v1/tasks/x"),
    ] {
        let unknown = ask(address, method, path, &[], None)?;
        ensure!(unknown.status() == 404, "{}", unknown.text());
    }
    let wrong = ask(address, "POST", &place, &[], Some(&json!({})))?;
    ensure!(wrong.status() == 405, "{}", wrong.text());
    Ok(())
}

#[test]
fn a_task_of_a_credential_is_unknown_to_everybody_else() -> anyhow::Result<()> {
    let world = World::new()?;
    let guarded = world
        .serve(Transport::Http)?
        .env("MAINSTAY_TOKEN", TOKEN)
        .spawn()?;
    let authorization = format!("Bearer {TOKEN}");
    let headers = [
        ("Authorization", authorization.as_str()),
        ("Prefer", "respond-async"),
    ];
    let body = json!({ "arguments": { "text": "a" } });
    let accepted = ask(
        guarded.address()?,
        "POST",
        "/v1/tool/append",
        &headers,
        Some(&body),
    )?;
    ensure!(accepted.status() == 202, "{}", accepted.text());
    let place = accepted
        .head
        .header("location")
        .context("a place")?
        .to_owned();
    let own = ask(guarded.address()?, "GET", &place, &headers[..1], None)?;
    ensure!(own.status() == 200, "{}", own.text());
    let open = world.host(Transport::Http)?;
    let foreign = ask(open.address()?, "GET", &place, &[], None)?;
    ensure!(foreign.status() == 404, "{}", foreign.text());
    let shown = world.tasks(&["show", place.trim_start_matches("/v1/tasks/")])?;
    ensure!(shown.status.code() == Some(1), "{shown:?}");
    Ok(())
}
