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
fn a_request_that_is_refused_before_it_runs_does_not_use_up_its_key() -> anyhow::Result<()> {
    let world = World::with("", "[limits]\ntasks = 1\n")?;
    let host = world
        .serve(Transport::Http)?
        .env("MAINSTAY_TOKEN", TOKEN)
        .spawn()?;
    let authorization = format!("Bearer {TOKEN}");
    let authorization = ("Authorization", authorization.as_str());
    let append = |headers: &[(&str, &str)], pause_ms: u64| {
        let body = json!({ "arguments": { "text": "a", "pause_ms": pause_ms } });
        let path = "/v1/tool/append";
        ask(host.address()?, "POST", path, headers, Some(&body))
    };
    let key = ("Idempotency-Key", "k");
    let nobody = append(&[key], 0)?;
    ensure!(nobody.status() == 401, "{}", nobody.text());
    let only = append(&[authorization, ("Prefer", "respond-async")], 600_000)?;
    ensure!(only.status() == 202, "{}", only.text());
    let full = append(&[authorization, key], 0)?;
    ensure!(full.status() == 429, "{}", full.text());
    let place = only.head.header("location").context("a place")?;
    let ended = ask(host.address()?, "DELETE", place, &[authorization], None)?;
    ensure!(ended.json()?["status"] == "cancelled", "{}", ended.text());
    until("there is room", || {
        let answer = append(&[authorization, key], 0)?;
        ensure!([200, 429].contains(&answer.status()), "{}", answer.text());
        Ok(answer.status() == 200)
    })?;
    ensure!(world.effects()?.len() == 1, "{:?}", world.effects()?);
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
    let cancelled = ask(open.address()?, "DELETE", &place, &[], None)?;
    ensure!(cancelled.status() == 404, "{}", cancelled.text());
    let id = place.trim_start_matches("/v1/tasks/");
    let shown = world.tasks(&["show", id])?;
    ensure!(shown.status.code() == Some(1), "{shown:?}");
    let listed = world.tasks(&["list"])?;
    ensure!(listed.stdout.starts_with(b"0 tasks"), "{listed:?}");
    // Over MCP, too, and with the words for an id that never was.
    let host = world.host(Transport::Stdio)?;
    let client = host.client()?;
    client.open(&json!({}))?;
    for (number, id) in [id, "0".repeat(32).as_str()].into_iter().enumerate() {
        for (method, params) in [
            ("tasks/get", json!({ "taskId": id })),
            ("tasks/result", json!({ "taskId": id })),
            ("tasks/cancel", json!({ "taskId": id })),
        ] {
            let answer = client.request(&format!("\"{method}{number}\""), method, &params)?;
            ensure!(answer.at("/error/code") == json!(-32602), "{answer:?}");
            ensure!(answer.at("/error/message") == json!("there is no such task"));
        }
        let uri = json!({ "uri": format!("mainstay://task/{id}") });
        let read = client.request(&format!("\"read{number}\""), "resources/read", &uri)?;
        ensure!(read.at("/error/code") == json!(-32002), "{read:?}");
    }
    let own = ask(guarded.address()?, "GET", &place, &headers[..1], None)?;
    ensure!(own.json()?["status"] != "cancelled", "{}", own.text());
    Ok(())
}

#[test]
fn a_key_belongs_to_one_tool_on_both_routes() -> anyhow::Result<()> {
    let world = World::new()?;
    let host = world.host(Transport::Http)?;
    let key = [("Idempotency-Key", "k")];
    let post = |path: &str, body: &Value| ask(host.address()?, "POST", path, &key, Some(body));
    let body = json!({ "arguments": { "text": "a" } });
    let first = post("/v1/tool/append", &body)?;
    ensure!(first.status() == 200, "{}", first.text());
    let invoke = json!({
        "id": "one", "version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z",
        "tool": "append", "payload": { "text": "a" },
    });
    let invoked = post("/v1/invoke", &invoke)?;
    ensure!(
        invoked.json()?["output"]["text"] == "a",
        "{}",
        invoked.text()
    );
    ensure!(world.effects()?.len() == 1, "it ran once");
    let put = json!({ "arguments": { "key": "x", "value": "y" } });
    let other = post("/v1/tool/put", &put)?;
    ensure!(other.status() == 200, "{}", other.text());
    ensure!(
        world.effects()?.len() == 2,
        "the key of another tool is another key"
    );
    Ok(())
}

#[test]
fn a_call_that_outlives_its_deadline_is_readable_by_its_id() -> anyhow::Result<()> {
    let world = World::with(
        "on_timeout = \"detach\"",
        "[limits]\ncall_timeout_ms = 300\n",
    )?;
    let host = world.host(Transport::Http)?;
    let address = host.address()?;
    let body = json!({ "arguments": { "text": "a", "pause_ms": 1500 } });
    let late = ask(address, "POST", "/v1/tool/append", &[], Some(&body))?;
    ensure!(late.status() == 504, "{}", late.text());
    let text = late.text();
    let (_, id) = text.split_once("mainstay://task/").context("an id")?;
    let id = id.get(..32).context("an id")?.to_owned();
    ensure!(text.matches(&id).count() >= 2, "in details, too: {text}");
    let place = format!("/v1/tasks/{id}");
    until("it is completed", || {
        Ok(ask(address, "GET", &place, &[], None)?.json()?["status"] == "completed")
    })?;
    ensure!(world.effects()?.len() == 1);
    let mut host = world.host(Transport::Stdio)?;
    let client = host.take_client()?;
    client.open(&json!({}))?;
    let arguments = json!({ "text": "b", "pause_ms": 1500 });
    let late = client.call("1", "append", &arguments)?;
    let text = late.at("/result/content/0/text");
    let text: Value = serde_json::from_str(text.as_str().context("a text")?)?;
    ensure!(text["code"] == "TOOL_TIMEOUT", "{text:#}");
    let id = text["details"]["taskId"]
        .as_str()
        .context("an id")?
        .to_owned();
    ensure!(world.show(&id)?["status"] == "working");
    let uri = json!({ "uri": format!("mainstay://task/{id}") });
    let read = client.request("2", "resources/read", &uri)?;
    ensure!(
        read.at("/result/contents/0/mimeType") == json!("application/json"),
        "{read:?}"
    );
    let listed = client.request("3", "resources/list", &json!({}))?;
    ensure!(!format!("{listed:?}").contains("mainstay://task/"));
    ensure!(world.ended(&id)?["status"] == "completed");
    ensure!(world.effects()?.len() == 2, "each ran once");
    drop(client);
    host.wait()?;
    Ok(())
}

#[test]
fn a_living_host_takes_over_the_tasks_of_a_host_that_is_killed() -> anyhow::Result<()> {
    let world = World::new()?;
    let mut lost = world.host(Transport::Http)?;
    let living = world.host(Transport::Http)?;
    let body = json!({ "arguments": { "key": "a", "value": "b", "pause_ms": 2000 } });
    let prefer = [("Prefer", "respond-async")];
    let put = "/v1/tool/put";
    let accepted = ask(lost.address()?, "POST", put, &prefer, Some(&body))?;
    let place = accepted.head.header("location").context("a place")?;
    kill(&mut lost)?;
    until("it is completed", || {
        let task = ask(living.address()?, "GET", place, &[], None)?.json()?;
        Ok(task["status"] == "completed")
    })
}
