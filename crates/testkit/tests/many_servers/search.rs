//! Tool search: long lists of packs, of a wrapped server and of several servers, in both eras.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Running, Serve, TempDir, binary, kill, workspace};
use serde_json::{Value, json};

use crate::wrapping::{self, failure, stop, text};
use crate::{entry, names, open, write};

/// The definitions of public servers, and the fixture's own tools that can be called.
fn definitions(path: &Path, count: usize) -> anyhow::Result<()> {
    let data = workspace()?.join("crates/kernel/tests/data/tools.jsonl");
    let data = std::fs::read_to_string(data)?;
    let real = data.lines().take(count).map(serde_json::from_str);
    let mut tools: Vec<Value> = real.collect::<Result<_, _>>()?;
    let text =
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    tools.push(
        json!({"name": "echo", "description": "Repeats a text.", "inputSchema": text,
        "annotations": {"readOnlyHint": true}}),
    );
    tools.push(json!({"name": "add", "description": "Sum of two numbers."}));
    std::fs::write(path, json!(tools).to_string())?;
    Ok(())
}

fn found(answer: &Message) -> Vec<String> {
    let tools = answer.at("/result/structuredContent/tools");
    let tools = tools.as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    tools.iter().map(name).collect()
}

fn search(client: &Client, id: &str, query: &str) -> anyhow::Result<Vec<String>> {
    let answer = client.call(id, "search_tools", &json!({"query": query}))?;
    ensure!(answer.at("/result/isError") != true, "{answer:?}");
    Ok(found(&answer))
}

fn is_invalid(answer: &Message) -> anyhow::Result<()> {
    let refused = failure(answer)?;
    ensure!(
        refused.get("code") == Some(&json!("INVALID_REQUEST")),
        "{refused}"
    );
    Ok(())
}

/// Searches, calls a hidden tool in both ways, and expects `echo` to be listed then.
fn uses_hidden_tools(client: &Client, prefix: &str) -> anyhow::Result<()> {
    let echo = format!("{prefix}echo");
    let hits = search(client, "11", "repeat a text")?;
    ensure!(hits.contains(&echo), "{hits:?}");
    let arguments = json!({"name": echo, "arguments": {"text": "through"}});
    let answer = client.call("12", "call_tool", &arguments)?;
    ensure!(text(&answer) == "through", "{answer:?}");
    let answer = client.call("13", &echo, &json!({"text": "by name"}))?;
    ensure!(text(&answer) == "by name", "{answer:?}");
    // The schema of the real tool is checked.
    let arguments = json!({"name": echo, "arguments": {"text": 7}});
    is_invalid(&client.call("14", "call_tool", &arguments)?)?;
    for arguments in [json!({}), json!({"name": "search_tools"})] {
        is_invalid(&client.call("15", "call_tool", &arguments)?)?;
    }
    is_invalid(&client.call("16", "search_tools", &json!({"limit": 3}))?)?;
    let tools = names(client, "17", "tools/list")?;
    ensure!(tools.contains(&echo), "used, and so listed: {tools:?}");
    Ok(())
}

#[test]
fn a_long_list_of_several_servers_is_searched() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let tools = folder.join("tools.json");
    definitions(&tools, 100)?;
    let options = format!("--tools {}", tools.display());
    let servers = json!({
        "alpha": entry(&options, json!({"deny": ["add"]}))?,
        "beta": entry(&options, json!({}))?,
    });
    let running = open(&servers, "--search-above 50 --pin beta__add")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    ensure!(
        tools == ["search_tools", "call_tool", "beta__add"],
        "{tools:?}"
    );
    uses_hidden_tools(client, "alpha__")?;
    let hits = search(client, "20", "sum of two numbers")?;
    ensure!(
        hits.first().is_some_and(|hit| hit == "beta__add"),
        "{hits:?}"
    );
    ensure!(
        !hits.iter().any(|hit| hit == "alpha__add"),
        "denied: {hits:?}"
    );
    let arguments = json!({"name": "alpha__add", "arguments": {"a": 1, "b": 2}});
    let denied = failure(&client.call("21", "call_tool", &arguments)?)?;
    ensure!(denied["code"] == "FORBIDDEN", "{denied}");
    stop(running)
}

#[test]
fn a_long_list_of_a_wrapped_server_is_searched_page_by_page() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let tools = folder.join("tools.json");
    definitions(&tools, 120)?;
    let options = format!("--page 30 --tools {}", tools.display());
    // Denied tools do not count: what is left passes as the server lists it.
    let running = wrapping::open("--search-above 50 --deny github__*", &options)?;
    let page = running.client()?.request("1", "tools/list", &json!({}))?;
    ensure!(page.at("/result/nextCursor") != Value::Null, "{page:?}");
    ensure!(page.at("/result/tools") == json!([]), "{page:?}");
    stop(running)?;
    let running = wrapping::open("--search-above 50 --pin add", &options)?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    ensure!(tools == ["search_tools", "call_tool", "add"], "{tools:?}");
    uses_hidden_tools(client, "")?;
    let hits = search(client, "20", "open a bug ticket on github")?;
    ensure!(
        hits.iter().any(|hit| hit == "github__create_issue"),
        "{hits:?}"
    );
    let arguments = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
    let sum = client.call("21", "call_tool", &arguments)?;
    ensure!(text(&sum) == "3", "{sum:?}");
    stop(running)
}

/// A request of the stateless revision.
fn modern(client: &Client, id: &str, method: &str, mut params: Value) -> anyhow::Result<Message> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let members = params.as_object_mut().context("parameters are an object")?;
    members.insert("_meta".to_owned(), meta);
    client.request(id, method, &params)
}

fn searches_in_the_modern_era(
    client: &Client,
    tool: &str,
    arguments: &Value,
) -> anyhow::Result<()> {
    let listed = modern(client, "1", "tools/list", json!({}))?;
    let first = listed.at("/result/tools/0/name");
    ensure!(first == "search_tools", "{listed:?}");
    let query = json!({"name": "search_tools", "arguments": {"query": tool}});
    let hits = found(&modern(client, "2", "tools/call", query)?);
    ensure!(hits.first().is_some_and(|hit| hit == tool), "{hits:?}");
    let call = json!({"name": "call_tool", "arguments": {"name": tool, "arguments": arguments}});
    let answer = modern(client, "3", "tools/call", call)?;
    let is_error = answer.at("/result/isError");
    ensure!(
        is_error != true && answer.at("/result/content") != Value::Null,
        "{answer:?}"
    );
    Ok(())
}

#[test]
fn tool_search_serves_clients_of_the_modern_era() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let tools = folder.join("tools.json");
    definitions(&tools, 100)?;
    let options = format!("--era modern --tools {}", tools.display());
    let running = wrapping::fixture("--search-above 50", &options)?.spawn()?;
    searches_in_the_modern_era(running.client()?, "echo", &json!({"text": "x"}))?;
    stop(running)?;
    let serve = Serve::stdio()?.pack("asset").pack("code");
    let running = serve.argument("--search-above").argument("5").spawn()?;
    searches_in_the_modern_era(running.client()?, "system_health", &json!({}))?;
    stop(running)
}

#[test]
fn a_long_list_of_packs_is_searched() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.pack("asset").pack("code");
    let running = serve.argument("--search-above").argument("5").spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let tools = names(client, "1", "tools/list")?;
    ensure!(tools == ["search_tools", "call_tool"], "{tools:?}");
    let hits = search(client, "2", "compare two assets")?;
    ensure!(hits.iter().any(|hit| hit == "diff_assets"), "{hits:?}");
    let arguments = json!({"name": "diff_assets", "arguments": {"base": 1, "new": 2}});
    let patch = client.call("3", "call_tool", &arguments)?;
    ensure!(
        patch.at("/result/structuredContent/ok") == true,
        "{patch:?}"
    );
    let tools = names(client, "4", "tools/list")?;
    ensure!(
        tools == ["search_tools", "call_tool", "diff_assets"],
        "{tools:?}"
    );
    // The whole list is there for those who ask for it.
    let full = json!({"_meta": {"io.mainstay/definitions": "full"}});
    let full = client.request("5", "tools/list", &full)?;
    let full = full.at("/result/tools");
    ensure!(full.as_array().map_or(0, Vec::len) == 16, "{full}");
    ensure!(full[0]["outputSchema"].is_object(), "{full}");
    stop(running)
}

/// Everything that a client gets of a host for the same requests.
fn transcript(running: Running) -> anyhow::Result<Vec<String>> {
    let client = running.client()?;
    let mut lines = vec![client.open(&json!({}))?.text().to_owned()];
    let mut params = json!({});
    for id in 1..9 {
        let page = client.request(&id.to_string(), "tools/list", &params)?;
        lines.push(page.text().to_owned());
        let next = page.at("/result/nextCursor");
        if next.is_null() {
            break;
        }
        params = json!({"cursor": next});
    }
    for (id, tool) in [("20", "echo"), ("21", "alpha__echo"), ("22", "missing")] {
        let answer = client.call(id, tool, &json!({"text": "x"}))?;
        lines.push(answer.text().to_owned());
    }
    stop(running)?;
    Ok(lines)
}

#[test]
fn not_one_byte_changes_below_the_limit() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let tools = folder.join("tools.json");
    definitions(&tools, 40)?;
    let options = format!("--page 30 --tools {}", tools.display());
    let limit = "--search-above 100 --pin echo";
    let wrapped = |wrap: &str| transcript(wrapping::fixture(wrap, &options)?.spawn()?);
    let (with, without) = (wrapped(limit)?, wrapped("")?);
    ensure!(with == without, "{with:#?}\n{without:#?}");
    ensure!(with.len() == 6, "two pages, and the others: {with:#?}");
    let servers = json!({"alpha": entry(&options, json!({}))?, "beta": entry("", json!({}))?});
    let several = |arguments: &str| transcript(crate::host(&servers, arguments)?.spawn()?);
    let (with, without) = (several(limit)?, several("")?);
    ensure!(with == without, "{with:#?}\n{without:#?}");
    Ok(())
}

#[test]
fn the_locks_of_all_servers_of_a_file_are_written_and_checked_at_once() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let tools = folder.join("tools.json");
    definitions(&tools, 3)?;
    let options = format!("--tools {}", tools.display());
    let lock = |name: &str| folder.join(name);
    let servers = json!({
        "alpha": entry(&options, json!({"lock": lock("alpha.lock.json"), "deny": ["add"]}))?,
        "beta": entry("", json!({"lock": lock("beta.lock.json"), "prefix": "b"}))?,
        "gamma": entry("", json!({}))?,
    });
    write(folder.path(), &servers)?;
    let run = |verb: &str| -> anyhow::Result<(Option<i32>, String)> {
        let output = Command::new(binary("mainstay")?)
            .args(["lock", verb, "--config", "servers.json"])
            .current_dir(folder.path())
            .env("MAINSTAY_RUNTIME_DIR", folder.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code(), said))
    };
    let (code, said) = run("write")?;
    ensure!(
        code == Some(0) && said.contains("alpha.lock.json"),
        "{said}"
    );
    let written = std::fs::read_to_string(lock("alpha.lock.json"))?;
    ensure!(
        written.contains("\"add\"") && written.contains("github__"),
        "own names, all tools"
    );
    ensure!(lock("beta.lock.json").exists() && !folder.join("mainstay.lock.json").exists());
    let (code, said) = run("check")?;
    ensure!(code == Some(0), "{said}");
    definitions(&tools, 4)?;
    let (code, said) = run("check")?;
    ensure!(
        code == Some(1) && said.contains("alpha.lock.json"),
        "{said}"
    );
    ensure!(said.contains("beta.lock.json is up to date"), "{said}");
    write(folder.path(), &json!({ "gamma": servers["gamma"] }))?;
    let (code, said) = run("write")?;
    ensure!(
        code == Some(2) && said.contains("no server of the file has a lock"),
        "{said}"
    );
    write(folder.path(), &servers)?;
    // The host holds each server to its lock.
    let running = open(&servers, "")?;
    let listed = names(running.client()?, "1", "tools/list")?;
    let fourth = std::fs::read_to_string(&tools)?;
    let fourth: Value = serde_json::from_str(&fourth)?;
    let fourth = fourth[3]["name"].as_str().context("it has a name")?;
    ensure!(!listed.contains(&format!("alpha__{fourth}")), "{listed:?}");
    ensure!(listed.iter().any(|name| name == "b__echo"), "{listed:?}");
    stop(running)?;
    // A search finds no tool that the lock withdraws, and none is called through it.
    let running = open(&servers, "--search-above 1")?;
    let client = running.client()?;
    let name = format!("alpha__{fourth}");
    let hits = search(client, "1", &fourth.replace('_', " "))?;
    ensure!(!hits.is_empty() && !hits.contains(&name), "{hits:?}");
    let arguments = json!({"name": name, "arguments": {}});
    let refused = failure(&client.call("2", "call_tool", &arguments)?)?;
    ensure!(refused["code"] == "FORBIDDEN", "{refused}");
    stop(running)
}

#[test]
fn a_call_through_the_search_has_the_replay_class_of_its_tool() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let effects = folder.join("effects");
    let options = format!("--effects {}", effects.display());
    let rules =
        json!({"tools": {"append": {"replay": "never_replay"}, "sleep": {"replay": "convergent"}}});
    let servers = json!({"alpha": entry(&options, rules)?});
    let running = open(&servers, "--search-above 1")?;
    let client = running.client()?;
    names(client, "1", "tools/list")?;
    let call = |id: &str, tool: &str, arguments: Value| {
        let call = json!({"name": format!("alpha__{tool}"), "arguments": arguments});
        client.send(&wrapping::call(id, "call_tool", &call))
    };
    // The effect takes place, and then the server is lost before it answers.
    call(
        "2",
        "append",
        json!({"key": "k", "value": "v", "pause_after_ms": 600_000}),
    )?;
    wrapping::eventually("the effect", || {
        std::fs::read_to_string(&effects).is_ok_and(|text| text.contains("\"k\""))
    })?;
    call("3", "sleep", json!({"ms": 500}))?;
    kill(crate::server_of(&running, "--effects")?);
    let lost = failure(&client.answer("2")?)?;
    ensure!(lost.to_string().contains("outcome is unknown"), "{lost}");
    let slept = client.answer("3")?;
    ensure!(slept.at("/result/isError") != true, "sent again: {slept:?}");
    let text = std::fs::read_to_string(&effects)?;
    ensure!(text.lines().count() == 1, "{text}");
    stop(running)
}
