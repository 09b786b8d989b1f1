//! Names and routes of several servers, and the rules that count for one of them.

use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::fixture::read_told;
use mainstay_testkit::http::{Connection, Request, Session};
use mainstay_testkit::process::{Serve, TempDir, binary, kill};
use serde_json::{Value, json};

use crate::wrapping::{SERVER, eventually, failure, stop, text};
use crate::{entry, host, names, open, refused, says, serve};

#[test]
fn the_tools_of_packs_and_servers_are_one_list_with_names_of_their_own() -> anyhow::Result<()> {
    let servers = json!({
        "alpha": entry("", json!({}))?,
        "beta": entry("--page 3", json!({"prefix": "b-2"}))?,
        "gamma": {"command": "absent-program", "disabled": true},
    });
    let running = open(&servers, "--pack asset")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    for name in [
        "system_health",
        "validate_asset",
        "alpha__echo",
        "b-2__echo",
        "b-2__exit_clean",
    ] {
        ensure!(tools.iter().any(|tool| tool == name), "{name}: {tools:?}");
    }
    ensure!(!tools.iter().any(|tool| tool == "echo"), "{tools:?}");
    says(client, "2", "alpha__echo", "one")?;
    says(client, "3", "b-2__echo", "two")?;
    let own = client.call("4", "list_schemas", &json!({}))?;
    ensure!(own.at("/result/isError") != true, "{own:?}");
    let wrong = failure(&client.call("5", "alpha__echo", &json!({"text": 1}))?)?;
    ensure!(wrong["code"] == "INVALID_REQUEST", "{wrong}");
    let unknown = client.call("6", "echo", &json!({"text": "x"}))?;
    ensure!(unknown.at("/error/code") == -32602, "{unknown:?}");
    let health = client.call("7", "system_health", &json!({"render": "json"}))?;
    let workers = health.at("/result/structuredContent/workers");
    for name in ["asset", "alpha", "beta"] {
        let known = workers.as_array().context("workers")?;
        ensure!(
            known.iter().any(|worker| worker["name"] == name),
            "{name}: {workers}"
        );
    }
    let telemetry = client.call("8", "system_telemetry", &json!({"render": "json"}))?;
    for name in ["alpha__echo", "b-2__echo"] {
        ensure!(telemetry.text().contains(name), "{name}: {telemetry:?}");
    }
    stop(running)
}

#[test]
fn a_file_that_would_mix_names_is_refused_at_the_start() -> anyhow::Result<()> {
    let plain = || entry("", json!({}));
    let said = refused(&json!({"my files": plain()?}))?;
    ensure!(
        said.contains("my files") && said.contains("prefix"),
        "{said}"
    );
    let same = json!({"a": plain()?, "b": entry("", json!({"prefix": "a"}))?});
    let said = refused(&same)?;
    ensure!(said.contains("both have the prefix a"), "{said}");
    let said = refused(&json!({"a": entry("", json!({"prefix": "a b"}))?}))?;
    ensure!(said.contains("cannot begin names"), "{said}");
    let said = refused(&json!({"a": entry("", json!({"http": "127.0.0.1:1"}))?}))?;
    ensure!(said.contains("only lock belongs here"), "{said}");
    let said = refused(&json!({"asset": plain()?}))?;
    ensure!(said.contains("both called asset"), "{said}");
    let said = refused(&json!({"a": entry("", json!({"tasks": true}))?}))?;
    ensure!(said.contains("mainstay wrap --tasks"), "{said}");
    let said = refused(&json!({"a": {"url": "ftp://example.org"}}))?;
    ensure!(
        said.contains("server a") && said.contains("https://"),
        "{said}"
    );
    Ok(())
}

#[test]
fn names_that_locks_and_packs_give_away_must_not_collide_at_the_start() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let locked = |file: &str, tool: &str| -> anyhow::Result<Value> {
        let (tools, lock) = (folder.join("tools.json"), folder.join(file));
        std::fs::write(&tools, json!([{ "name": tool }]).to_string())?;
        let written = Command::new(binary("mainstay")?)
            .args(["lock", "write", "--file"])
            .arg(&lock)
            .arg("--")
            .arg(binary("mcp-fixture")?)
            .arg("--tools")
            .arg(&tools)
            .output()?;
        ensure!(written.status.success(), "{written:?}");
        Ok(json!(lock))
    };
    let (one, other) = (
        locked("one.json", "list_schemas")?,
        locked("other.json", "c")?,
    );
    let plain = |lock: &Value| entry("", json!({ "lock": lock, "prefix": "" }));
    let said = refused(&json!({ "x": plain(&one)? }))?;
    ensure!(
        said.contains("asset and x both have the tool list_schemas"),
        "{said}"
    );
    let said = refused(&json!({ "x": plain(&other)?, "y": plain(&other)? }))?;
    ensure!(said.contains("x and y both have the tool c"), "{said}");
    ensure!(said.contains("another prefix"), "{said}");
    // A denied tool does not count; the prompts of both are still equal.
    let mut denied = plain(&other)?;
    denied["mainstay"]["deny"] = json!(["c"]);
    let said = refused(&json!({ "x": plain(&other)?, "y": denied }))?;
    ensure!(said.contains("x and y both have the prompt "), "{said}");
    let servers = json!({ "x": plain(&other)?, "z": entry("", json!({ "lock": other }))? });
    stop(open(&servers, "--pack asset")?)
}

#[test]
fn a_name_that_appears_later_is_withdrawn_with_a_warning() -> anyhow::Result<()> {
    let servers = json!({
        "first": entry("", json!({"prefix": ""}))?,
        "second": entry("", json!({"prefix": ""}))?,
        "third": entry("", json!({"prefix": "x".repeat(48)}))?,
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    ensure!(
        tools.iter().filter(|tool| *tool == "echo").count() == 1,
        "{tools:?}"
    );
    says(client, "2", "echo", "x")?;
    let warning = running.wait_for_line("reason=name_taken by=first pack=second tool=echo")?;
    ensure!(warning.ends_with("withdrawn"), "{warning}");
    let uris = names(client, "3", "resources/list")?;
    ensure!(
        uris.iter()
            .filter(|uri| *uri == "fixture:///readme")
            .count()
            == 1,
        "{uris:?}"
    );
    running.wait_for_line("by=first pack=second resource=fixture:///readme")?;
    let calls = running.workers(SERVER);
    ensure!(calls.len() == 3, "{calls:?}");
    ensure!(tools.iter().all(|tool| tool.len() <= 64), "{tools:?}");
    stop(running)
}

#[test]
fn a_name_over_64_characters_is_withdrawn() -> anyhow::Result<()> {
    let long = "n".repeat(20);
    let folder = TempDir::new()?;
    let tools = json!([{"name": "echo"}, {"name": long}]);
    std::fs::write(folder.join("tools.json"), tools.to_string())?;
    let options = format!("--tools {}", folder.join("tools.json").display());
    let servers = json!({"a": entry(&options, json!({"prefix": "p".repeat(48)}))?});
    let running = open(&servers, "")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    ensure!(
        tools.iter().any(|tool| tool.ends_with("__echo")),
        "{tools:?}"
    );
    ensure!(!tools.iter().any(|tool| tool.ends_with(&long)), "{tools:?}");
    let warning = running.wait_for_line("reason=name_too_long")?;
    ensure!(warning.contains("prefix of at most 42"), "{warning}");
    let name = format!("{}__{long}", "p".repeat(48));
    let answer = client.call("2", &name, &json!({}))?;
    ensure!(answer.at("/error/code") == -32602, "{answer:?}");
    stop(running)
}

#[test]
fn prompts_resources_templates_and_completions_reach_their_server() -> anyhow::Result<()> {
    let state = TempDir::new()?;
    let told = |name: &str| state.join(name);
    let options = |name: &str| format!("--state {}", told(name).display());
    let servers = json!({
        "alpha": entry(&options("alpha"), json!({}))?,
        "beta": entry(&options("beta"), json!({}))?,
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let prompts = names(client, "1", "prompts/list")?;
    ensure!(prompts.contains(&"alpha__greet".to_owned()), "{prompts:?}");
    ensure!(prompts.contains(&"beta__greet".to_owned()), "{prompts:?}");
    let greeting = json!({"name": "beta__greet", "arguments": {"name": "Ada"}});
    let answer = client.request("2", "prompts/get", &greeting)?;
    ensure!(answer.text().contains("Greet Ada"), "{answer:?}");
    let argument = json!({"name": "name", "value": "A"});
    let of = json!({"type": "ref/prompt", "name": "beta__greet"});
    let params = json!({"ref": of, "argument": argument});
    let answer = client.request("3", "completion/complete", &params)?;
    ensure!(answer.text().contains("Alan"), "{answer:?}");
    let templates = names(client, "4", "resources/templates/list")?;
    ensure!(templates == ["fixture:///item/{id}"], "{templates:?}");
    let of = json!({"type": "ref/resource", "uri": "fixture:///item/{id}"});
    let params = json!({"ref": of, "argument": {"name": "id", "value": "t"}});
    let answer = client.request("5", "completion/complete", &params)?;
    ensure!(answer.text().contains("three"), "{answer:?}");
    for (id, uri) in [("6", "fixture:///readme"), ("7", "fixture:///item/two")] {
        let answer = client.request(id, "resources/read", &json!({"uri": uri}))?;
        ensure!(answer.at("/result/contents/0/uri") == uri, "{answer:?}");
    }
    let lines = |name: &str| -> anyhow::Result<String> {
        let told = read_told(&told(name))?;
        Ok(told
            .iter()
            .map(|told| told.line.clone())
            .collect::<Vec<_>>()
            .join("\n"))
    };
    let (alpha, beta) = (lines("alpha")?, lines("beta")?);
    ensure!(
        beta.contains("prompts/get") && !alpha.contains("prompts/get"),
        "{alpha}"
    );
    ensure!(
        !beta.contains("beta__") && !alpha.contains("alpha__"),
        "{beta}"
    );
    ensure!(!beta.contains("resources/read"), "{beta}");
    let unknown = client.request("8", "prompts/get", &json!({"name": "greet"}))?;
    ensure!(unknown.at("/error/code") == -32602, "{unknown:?}");
    stop(running)
}

#[test]
fn stored_outputs_of_several_servers_do_not_mix() -> anyhow::Result<()> {
    let rules = || json!({"max_output": 300});
    let servers = json!({
        "alpha": entry("", rules())?,
        "beta": entry("", json!({"max_output": 300, "prefix": "b"}))?,
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    for (id, tool, key) in [("1", "alpha__big", "alpha"), ("2", "b__big", "beta")] {
        let long = client.call(id, tool, &json!({"bytes": 5000}))?;
        let uri = format!("mainstay://output/{key}/1");
        ensure!(long.text().contains(&uri), "{long:?}");
        let read = client.request("3", "resources/read", &json!({ "uri": uri }))?;
        let rest = read.at("/result/contents/0/text");
        ensure!(
            rest.as_str().is_some_and(|rest| rest.len() == 4700),
            "{read:?}"
        );
    }
    stop(running)
}

#[test]
fn allow_deny_and_lock_count_for_one_server() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let lock = folder.join("beta.lock.json");
    let fixture = binary("mcp-fixture")?;
    let tools = folder.join("tools.json");
    std::fs::write(&tools, json!([{"name": "echo"}]).to_string())?;
    let written = Command::new(binary("mainstay")?)
        .args(["lock", "write", "--file"])
        .arg(&lock)
        .arg("--")
        .args([fixture.as_os_str(), "--tools".as_ref(), tools.as_os_str()])
        .output()?;
    ensure!(written.status.success(), "{written:?}");
    let options = format!("--tools {}", tools.display());
    // The tools changed since: echo differs, and add is new.
    std::fs::write(
        &tools,
        json!([{"name": "echo", "description": "evil"}, {"name": "add"}]).to_string(),
    )?;
    let servers = json!({
        "alpha": entry("", json!({"deny": ["add"]}))?,
        "beta": entry(&options, json!({"lock": lock}))?,
        "gamma": entry("", json!({"allow": ["add"]}))?,
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    ensure!(has("alpha__echo") && !has("alpha__add"), "{tools:?}");
    ensure!(!has("beta__echo") && !has("beta__add"), "{tools:?}");
    ensure!(has("gamma__add") && !has("gamma__echo"), "{tools:?}");
    for (id, name) in [
        ("2", "alpha__add"),
        ("3", "beta__echo"),
        ("4", "gamma__echo"),
    ] {
        let denied = failure(&client.call(id, name, &json!({}))?)?;
        ensure!(denied["code"] == "FORBIDDEN", "{name}: {denied}");
    }
    let sum = client.call("5", "gamma__add", &json!({"a": 1, "b": 2}))?;
    ensure!(text(&sum) == "3", "{sum:?}");
    running.wait_for_line("reason=tool_changed pack=beta tool=echo withdrawn")?;
    stop(running)
}

#[test]
fn user_interfaces_and_the_calls_they_make_keep_working() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let tools = folder.join("tools.json");
    let ui = json!({"ui": {"resourceUri": "fixture:///readme", "visibility": ["model", "app"]}});
    let list = json!([{"name": "echo", "inputSchema": {"type": "object"}, "_meta": ui}]);
    std::fs::write(&tools, list.to_string())?;
    let options = format!("--tools {}", tools.display());
    let servers = json!({
        "clock": entry(&options, json!({}))?,
        "plain": entry("", json!({}))?,
    });
    let running = host(&servers, "")?.spawn()?;
    let client = running.client()?;
    let extension =
        json!({"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}});
    client.open(&json!({ "extensions": extension }))?;
    let listed = client.request("1", "tools/list", &json!({}))?;
    let definitions = listed.at("/result/tools");
    let definitions = definitions.as_array().context("tools")?;
    let shown = definitions
        .iter()
        .find(|tool| tool["name"] == "clock__echo");
    let shown = shown.with_context(|| format!("{listed:?}"))?;
    ensure!(shown["_meta"] == ui, "{shown}");
    let page = client.request("2", "resources/read", &json!({"uri": "fixture:///readme"}))?;
    ensure!(
        page.at("/result/contents/0/uri") == "fixture:///readme",
        "{page:?}"
    );
    // The interface knows the server's own name of its tool.
    says(client, "3", "echo", "from the app")?;
    says(client, "4", "clock__echo", "from the model")?;
    let other = client.call("5", "add", &json!({"a": 1, "b": 2}))?;
    ensure!(
        other.at("/error/code") == -32602,
        "no interface calls it: {other:?}"
    );
    stop(running)
}

#[test]
fn rest_and_metrics_tell_servers_apart() -> anyhow::Result<()> {
    let servers = json!({
        "alpha": entry("", json!({}))?,
        "beta": entry("--era both", json!({"prefix": "b"}))?,
    });
    let running = serve(Serve::http()?, &servers)?;
    let address = running.address()?;
    let ask = |method: &str, path: &str, body: Option<&Value>| -> anyhow::Result<String> {
        let mut request = Request::to(address, method, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json");
            request = request.body(body.to_string());
        }
        let answer = Connection::open(address)?.ask(&request)?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    };
    let tools = ask("GET", "/v1/tools", None)?;
    for name in [
        "mcp.tool:alpha__echo",
        "mcp.tool:b__echo",
        "mcp.tool:system_health",
    ] {
        ensure!(tools.contains(name), "{name}: {tools}");
    }
    for tool in ["alpha__echo", "b__echo"] {
        let body = json!({"arguments": {"text": tool}});
        let answer = ask("POST", &format!("/v1/tool/{tool}"), Some(&body))?;
        let envelope: Value = serde_json::from_str(&answer)?;
        ensure!(envelope["data"]["content"][0]["text"] == tool, "{envelope}");
    }
    let session = Session::open(address)?;
    let answer = session.call("1", "b__echo", &json!({"text": "over MCP"}))?;
    ensure!(
        answer["result"]["content"][0]["text"] == "over MCP",
        "{answer}"
    );
    // A shared process does not have the variable that marks those of a test.
    for pid in crate::shared::servers_below(running.pid()) {
        kill(pid);
    }
    let lost = |page: &str, pack: &str| {
        let name = format!("mainstay_pack_lost_total{{pack=\"{pack}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|count| count.parse::<u64>().ok())
    };
    eventually("the losses are counted for each server", || {
        let page = ask("GET", "/metrics", None).unwrap_or_default();
        lost(&page, "alpha") == Some(2) && lost(&page, "beta") == Some(2)
    })?;
    let page = ask("GET", "/metrics", None)?;
    ensure!(
        page.contains("tool=\"b__echo\",outcome=\"success\"} 2"),
        "{page}"
    );
    running.stop()
}

#[test]
fn a_list_beyond_every_measure_is_cut_with_a_warning() -> anyhow::Result<()> {
    const LISTED: usize = 12_000;
    let folder = TempDir::new()?;
    let definitions = folder.join("tools.json");
    let tools: Vec<Value> = (0..LISTED)
        .map(|n| json!({ "name": format!("t{n}") }))
        .collect();
    std::fs::write(&definitions, Value::from(tools).to_string())?;
    let options = format!("--tools {} --page 3000", definitions.display());
    let servers = json!({ "good": entry("", json!({}))?, "huge": entry(&options, json!({}))? });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    let huge = tools
        .iter()
        .filter(|name| name.starts_with("huge__"))
        .count();
    ensure!(huge == 10_000, "{huge}");
    running.wait_for_line("reason=list_too_long pack=huge tools=2000")?;
    says(client, "2", "good__echo", "x")?;
    stop(running)
}
