//! Tasks of wrapped servers: recorded by the wrapping host, run in a session of their own, and resumed by the next
//! host that wraps the same server.

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::Session;
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Launch, Running, binary};
use serde_json::{Value, json};

use crate::world::{World, ask, kill, until};

/// A host that wraps the ledger pack behind a host of its own.
pub(crate) struct Wrapping<'a> {
    world: &'a World,
    arguments: &'a [&'a str],
    /// A variable of the server.
    variable: &'a str,
    /// The wrapped host lets its tools run as tasks.
    server_has_tasks: bool,
    /// Calls of `wait` have a second, and then run on as tasks.
    detaches: bool,
}

impl Wrapping<'_> {
    fn launch(&self) -> anyhow::Result<Launch> {
        let Self { world, .. } = *self;
        let mut words = vec!["serve".to_owned(), "--pack".to_owned()];
        match self.server_has_tasks {
            true => {
                words.push("ledger".to_owned());
                words.push("--config".to_owned());
                words.push(world.config().display().to_string());
            }
            false => {
                let (ledger, file) = (binary("ledger")?, world.effects_file());
                let command = format!("ledger={} --file {}", ledger.display(), file.display());
                words.push(command);
            }
        }
        let probed = |list: &str, name: &str, equals: &str| {
            let list = format!("/structuredContent/{list}");
            json!({ "replay": "probe_required", "probe": {
                "tool": "get",
                "applied": { "path": format!("{list}/0/{name}"), "equals": equals },
                "not_applied": { "path": list, "equals": [] },
            } })
        };
        let mut rules = json!({ "tools": {
            "get": { "tasks": false },
            "put": probed("values", "key", "k1"),
            "transfer": probed("balances", "account", "a"),
        } });
        if self.detaches {
            rules["tools"]["wait"] = json!({ "timeout_ms": 1000, "on_timeout": "detach" });
        }
        let servers = json!({ "mcpServers": { "ledger": {
            "command": binary("mainstay")?,
            "args": words,
            "cwd": world.effects_file().parent(),
            // The marker of the test differs from host to host, as no variable of a user does.
            "env": { "TESTKIT_RUN": "wrapped", "SERVER_SETTING": self.variable },
            "mainstay": rules,
        } } });
        let launch = Launch::new([binary("mainstay")?])?;
        let file = launch.folder().join("servers.json");
        std::fs::write(&file, servers.to_string())?;
        Ok(launch
            .env("MAINSTAY_STATE_DIR", world.state())
            .words(["wrap", "--config"])
            .words([file])
            .words(self.arguments))
    }

    pub(crate) fn stdio(&self) -> anyhow::Result<(Running, Client)> {
        let mut host = self.launch()?.spawn()?;
        let client = host.take_client()?;
        Ok((host, client))
    }
}

pub(crate) const fn with_tasks(world: &World) -> Wrapping<'_> {
    Wrapping {
        world,
        arguments: &["--tasks"],
        variable: "a",
        server_has_tasks: false,
        detaches: false,
    }
}

fn start_task(client: &Client, id: &str, tool: &str, arguments: &Value) -> anyhow::Result<String> {
    let params = json!({ "name": tool, "arguments": arguments, "task": {} });
    let answer = client.request(id, "tools/call", &params)?;
    let task = answer.at("/result/task/taskId");
    let id = task.as_str().with_context(|| format!("{answer:?}"))?;
    ensure!(id.len() == 32, "{id}");
    Ok(id.to_owned())
}

/// The `execution` of each listed tool.
fn executions(client: &Client) -> anyhow::Result<Vec<(String, Value)>> {
    let listed = client.request("\"list\"", "tools/list", &json!({}))?;
    let tools = listed.at("/result/tools");
    let tools = tools.as_array().context("tools")?.iter();
    Ok(tools
        .map(|tool| {
            let name = tool["name"].as_str().unwrap_or_default();
            (name.to_owned(), tool["execution"].clone())
        })
        .collect())
}

#[test]
fn a_task_of_a_wrapped_server_outlives_its_client_and_its_host() -> anyhow::Result<()> {
    let world = World::new()?;
    let (mut host, client) = with_tasks(&world).stdio()?;
    let opened = client.open(&json!({}))?;
    ensure!(
        opened.at("/result/capabilities/tasks/requests/tools/call") == json!({}),
        "{opened:?}"
    );
    ensure!(opened.at("/result/capabilities/tasks/list") == json!({}));
    for (tool, execution) in executions(&client)? {
        let expected = match tool.as_str() {
            "get" => Value::Null,
            _ => json!({ "taskSupport": "optional" }),
        };
        ensure!(execution == expected, "{tool}: {execution}");
    }
    let id = start_task(
        &client,
        "1",
        "append",
        &json!({ "text": "a", "pause_ms": 500 }),
    )?;
    let got = client.request("2", "tasks/get", &json!({ "taskId": id }))?;
    ensure!(got.at("/result/status") == json!("working"), "{got:?}");
    let refused = json!({ "name": "get", "arguments": {}, "task": {} });
    let refused = client.request("3", "tools/call", &refused)?;
    ensure!(refused.at("/error/code") == json!(-32601), "{refused:?}");
    let plain = client.call("4", "append", &json!({ "text": "plain" }))?;
    ensure!(
        plain.at("/result/structuredContent/text") == json!("plain"),
        "{plain:?}"
    );
    drop(client);
    ensure!(host.wait()?.success(), "the host ends with its task");
    let task = world.show(&id)?;
    ensure!(task["status"] == "completed", "{task:#}");
    ensure!(
        task["result"]["structuredContent"] == json!({ "ok": true, "text": "a" }),
        "{task:#}"
    );
    let (_next, client) = with_tasks(&world).stdio()?;
    client.open(&json!({}))?;
    let result = client.request("1", "tasks/result", &json!({ "taskId": id }))?;
    ensure!(
        result.at("/result/structuredContent/text") == json!("a"),
        "{result:?}"
    );
    ensure!(result.at("/result/_meta/io.modelcontextprotocol~1related-task/taskId") == json!(id));
    let uri = format!("mainstay://task/{id}");
    let read = client.request("2", "resources/read", &json!({ "uri": uri }))?;
    ensure!(read.at("/result/contents/0/uri") == json!(uri), "{read:?}");
    let listed = client.request("3", "tasks/list", &json!({}))?;
    ensure!(
        listed.at("/result/tasks/0/taskId") == json!(id),
        "{listed:?}"
    );
    let unknown = "0".repeat(32);
    let unknown = client.request("4", "tasks/get", &json!({ "taskId": unknown }))?;
    ensure!(unknown.at("/error/code") == json!(-32602), "{unknown:?}");
    ensure!(world.effects()?.len() == 2);
    Ok(())
}

#[test]
fn tasks_of_a_killed_wrapping_host_are_resumed_by_one_with_the_same_server() -> anyhow::Result<()> {
    let world = World::new()?;
    let (mut host, client) = with_tasks(&world).stdio()?;
    client.open(&json!({}))?;
    let never = 600_000;
    let append = json!({ "text": "once", "pause_after_ms": never });
    let append = start_task(&client, "1", "append", &append)?;
    let applied = json!({ "key": "k1", "value": "v", "pause_after_ms": never });
    let applied = start_task(&client, "2", "put", &applied)?;
    until("two effects", || Ok(world.effects()?.len() == 2))?;
    let late = json!({ "id": "t", "from": "a", "to": "b", "amount": 1, "pause_ms": never });
    let late = start_task(&client, "3", "transfer", &late)?;
    let wait = start_task(&client, "4", "wait", &json!({ "ms": 50 }))?;
    ensure!(world.ended(&wait)?["status"] == "completed");
    kill(&mut host)?;
    drop(client);
    let waiting = || -> anyhow::Result<usize> {
        let listed = world.tasks(&["list"])?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        Ok(listed.matches("waiting").count())
    };
    until("its servers are gone", || Ok(waiting()? == 3))?;
    // A server with another environment is another one.
    let other = Wrapping {
        variable: "b",
        ..with_tasks(&world)
    };
    let (other, client) = other.stdio()?;
    client.open(&json!({}))?;
    let ran = start_task(&client, "1", "append", &json!({ "text": "other" }))?;
    ensure!(world.ended(&ran)?["status"] == "completed");
    ensure!(waiting()? == 3, "they wait for their own server");
    drop(client);
    drop(other);
    let (next, client) = with_tasks(&world).stdio()?;
    client.open(&json!({}))?;
    let unknown = world.ended(&append)?;
    ensure!(unknown["status"] == "failed", "{unknown:#}");
    let said = unknown["statusMessage"].as_str().unwrap_or_default();
    ensure!(said.contains("outcome is unknown"), "{unknown:#}");
    let found = world.ended(&applied)?;
    ensure!(
        found["status"] == "completed",
        "its probe finds it: {found:#}"
    );
    until("it runs again", || {
        let task = client.request("\"late\"", "tasks/get", &json!({ "taskId": late }))?;
        Ok(task.at("/result/status") == json!("working") && waiting()? == 0)
    })?;
    let cancelled = client.request("2", "tasks/cancel", &json!({ "taskId": late }))?;
    ensure!(
        cancelled.at("/result/status") == json!("cancelled"),
        "{cancelled:?}"
    );
    drop(client);
    drop(next);
    let subjects: Vec<String> = world
        .effects()?
        .into_iter()
        .map(|one| one.subject)
        .collect();
    ensure!(subjects.len() == 3, "no effect twice: {subjects:?}");
    // Nothing of the environment is in the state directory.
    for entry in std::fs::read_dir(world.state())? {
        let path = entry?.path();
        if path.is_file() {
            let bytes = std::fs::read(&path)?;
            let text = String::from_utf8_lossy(&bytes);
            ensure!(!text.contains("SERVER_SETTING"), "{}", path.display());
        }
    }
    Ok(())
}

#[test]
fn keys_and_asynchronous_answers_work_in_front_of_a_wrapped_server() -> anyhow::Result<()> {
    let world = World::new()?;
    let http: &[&str] = &["--tasks", "--http", "127.0.0.1:0"];
    let wrapping = |arguments| Wrapping {
        arguments,
        ..with_tasks(&world)
    };
    let host = wrapping(http).launch()?.spawn_http()?;
    let address = host.address()?;
    let body = json!({ "arguments": { "text": "a" } });
    let prefer = [("Prefer", "respond-async")];
    let accepted = ask(address, "POST", "/v1/tool/append", &prefer, Some(&body))?;
    ensure!(accepted.status() == 202, "{}", accepted.text());
    let place = accepted.head.header("location").context("a place")?;
    let place = place.to_owned();
    let read = || ask(address, "GET", &place, &[], None)?.json();
    until("it is completed", || Ok(read()?["status"] == "completed"))?;
    ensure!(read()?["result"]["structuredContent"]["text"] == "a");
    let ignored = ask(address, "POST", "/v1/tool/get", &prefer, Some(&json!({})))?;
    ensure!(ignored.status() == 200, "{}", ignored.text());
    // Without the option a key is recorded, and a preference is ignored.
    let mut plain = wrapping(&["--http", "127.0.0.1:0"])
        .launch()?
        .spawn_http()?;
    let run = |host: &Running, text: &str| {
        let headers = [("Idempotency-Key", "k"), ("Prefer", "respond-async")];
        let body = json!({ "arguments": { "text": text } });
        ask(
            host.address()?,
            "POST",
            "/v1/tool/append",
            &headers,
            Some(&body),
        )
    };
    let first = run(&plain, "b")?;
    ensure!(first.status() == 200, "{}", first.text());
    let again = run(&plain, "b")?;
    ensure!(
        again.json()?["data"] == first.json()?["data"],
        "{}",
        again.text()
    );
    let other = run(&plain, "c")?;
    ensure!(other.status() == 422, "{}", other.text());
    ensure!(world.effects()?.len() == 2, "{:?}", world.effects()?);
    kill(&mut plain)?;
    let next = wrapping(&["--http", "127.0.0.1:0"])
        .launch()?
        .spawn_http()?;
    let after = run(&next, "b")?;
    ensure!(after.json()?["data"]["text"] == "b", "{}", after.text());
    ensure!(world.effects()?.len() == 2, "{:?}", world.effects()?);
    Ok(())
}

#[test]
fn without_the_option_nothing_is_changed() -> anyhow::Result<()> {
    let world = World::new()?;
    let wrapping = Wrapping {
        arguments: &[],
        ..with_tasks(&world)
    };
    let (_host, client) = wrapping.stdio()?;
    let opened = client.open(&json!({}))?;
    ensure!(
        opened.at("/result/capabilities/tasks").is_null(),
        "{opened:?}"
    );
    for (tool, execution) in executions(&client)? {
        ensure!(execution.is_null(), "{tool}: {execution}");
    }
    let refused = client.request("1", "tasks/list", &json!({}))?;
    ensure!(refused.at("/error/code") == json!(-32601), "{refused:?}");
    // The server itself ignores the member.
    let params = json!({ "name": "append", "arguments": { "text": "a" }, "task": {} });
    let answer = client.request("2", "tools/call", &params)?;
    ensure!(
        answer.at("/result/structuredContent/text") == json!("a"),
        "{answer:?}"
    );
    ensure!(!world.state().join("tasks.db").exists());
    Ok(())
}

#[test]
fn a_server_that_makes_tasks_itself_keeps_them() -> anyhow::Result<()> {
    for arguments in [&["--tasks"][..], &[]] {
        let world = World::new()?;
        let wrapping = Wrapping {
            arguments,
            server_has_tasks: true,
            ..with_tasks(&world)
        };
        let (_host, client) = wrapping.stdio()?;
        client.open(&json!({}))?;
        let id = start_task(&client, "1", "append", &json!({ "text": "a" }))?;
        let result = client.request("2", "tasks/result", &json!({ "taskId": id }))?;
        ensure!(
            result.at("/result/structuredContent/text") == json!("a"),
            "{result:?}"
        );
        // One task, and it belongs to the pack of the wrapped host.
        let listed = client.request("3", "tasks/list", &json!({}))?;
        ensure!(listed.at("/result/tasks/1").is_null(), "{listed:?}");
        ensure!(
            world.show(&id)?["result"]["text"] == "a",
            "it is recorded as the wrapped host saw it"
        );
    }
    Ok(())
}

#[test]
fn a_late_call_of_a_wrapped_server_becomes_a_task_and_outlives_its_client() -> anyhow::Result<()> {
    let world = World::new()?;
    let wrapping = Wrapping {
        arguments: &[],
        detaches: true,
        ..with_tasks(&world)
    };
    let (mut host, client) = wrapping.stdio()?;
    client.open(&json!({}))?;
    let mut id = String::new();
    // A call whose server was not ready in time has not begun, and does not run on.
    until("a call runs on", || {
        let late = client.call("1", "wait", &json!({ "ms": 4000, "steps": 1 }))?;
        let text = late.at("/result/content/0/text");
        let text = text.as_str().with_context(|| format!("{late:?}"))?;
        let error: Value = serde_json::from_str(text).with_context(|| text.to_owned())?;
        ensure!(error["code"] == "TOOL_TIMEOUT", "{error}");
        id = error["details"]["taskId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(!id.is_empty())
    })?;
    let uri = json!({ "uri": format!("mainstay://task/{id}") });
    let read = client.request("2", "resources/read", &uri)?;
    let read = read.at("/result/contents/0/text");
    ensure!(
        read.as_str().is_some_and(|text| text.contains("working")),
        "{read}"
    );
    // Other calls of the session go on, also under the same id.
    let plain = client.call("1", "append", &json!({ "text": "plain" }))?;
    ensure!(
        plain.at("/result/structuredContent/text") == json!("plain"),
        "{plain:?}"
    );
    drop(client);
    ensure!(host.wait()?.success(), "the host ends with its task");
    let task = world.show(&id)?;
    ensure!(task["status"] == "completed", "{task:#}");
    Ok(())
}

#[test]
fn a_late_call_of_a_wrapped_server_over_http_outlives_its_session_and_its_host()
-> anyhow::Result<()> {
    let world = World::new()?;
    let wrapping = Wrapping {
        arguments: &["--http", "127.0.0.1:0"],
        detaches: true,
        ..with_tasks(&world)
    };
    let mut host = wrapping.launch()?.spawn_http()?;
    let session = Session::open(host.address()?)?;
    let long = json!({ "ms": 600_000, "steps": 1 });
    let mut id = String::new();
    until("a call runs on", || {
        let late = session.call("1", "wait", &long)?;
        let text = late["result"]["content"][0]["text"].as_str();
        let error: Value = serde_json::from_str(text.with_context(|| late.to_string())?)?;
        id = error["details"]["taskId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(!id.is_empty())
    })?;
    let place = format!("/v1/tasks/{id}");
    let status = |host: &Running| -> anyhow::Result<Value> {
        let read = ask(host.address()?, "GET", &place, &[], None)?;
        Ok(read.json()?["status"].clone())
    };
    ensure!(session.ask(&session.delete())?.status() == 204);
    ensure!(status(&host)? == "working", "its session has ended");
    let body = json!({ "arguments": long });
    until("a call over REST runs on", || {
        let late = ask(host.address()?, "POST", "/v1/tool/wait", &[], Some(&body))?;
        ensure!(late.status() == 504, "{}", late.text());
        Ok(late.json()?["error"]["details"]["details"]["taskId"].is_string())
    })?;
    kill(&mut host)?;
    let next = wrapping.launch()?.spawn_http()?;
    until("the next host runs it", || Ok(status(&next)? == "working"))?;
    let cancelled = ask(next.address()?, "DELETE", &place, &[], None)?;
    ensure!(
        cancelled.json()?["status"] == "cancelled",
        "{}",
        cancelled.text()
    );
    Ok(())
}
