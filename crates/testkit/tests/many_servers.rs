//! Several wrapped servers and packs behind one host: names, routes, isolation, and what survives.

mod wrapping;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::fixture::read_told;
use mainstay_testkit::http::{Connection, Request, Session};
use mainstay_testkit::peer::{Client, Message, request_line};
use mainstay_testkit::process::{Launch, Running, Serve, binary, kill, tool};
use rustix::process::Signal;
use serde_json::{Value, json};

use self::wrapping::{SERVER, eventually, failure, stop, text};

/// An entry of a file: the fixture with options and our own keys.
fn entry(options: &str, ours: Value) -> anyhow::Result<Value> {
    let args: Vec<&str> = options.split_whitespace().collect();
    let command = binary("mcp-fixture")?;
    Ok(json!({"command": command, "args": args, "mainstay": ours}))
}

/// A host that serves the servers of a file.
fn host(servers: &Value, arguments: &str) -> anyhow::Result<Launch> {
    let words = [binary("mainstay")?.into_os_string(), "serve".into()];
    let launch = Launch::new(words)?.words(["--config", "servers.json"]);
    let launch = launch.words(arguments.split_whitespace());
    write(launch.folder(), servers)?;
    Ok(launch)
}

fn write(folder: &Path, servers: &Value) -> anyhow::Result<()> {
    let file = json!({ "mcpServers": servers });
    std::fs::write(folder.join("servers.json"), file.to_string()).context("writing servers.json")
}

/// The same, started and with a session.
fn open(servers: &Value, arguments: &str) -> anyhow::Result<Running> {
    let running = host(servers, arguments)?.spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(running)
}

fn names(client: &Client, id: &str, method: &str) -> anyhow::Result<Vec<String>> {
    let answer = client.request(id, method, &json!({}))?;
    let (list, key) = match method {
        "tools/list" => ("tools", "name"),
        "prompts/list" => ("prompts", "name"),
        "resources/list" => ("resources", "uri"),
        _ => ("resourceTemplates", "uriTemplate"),
    };
    let items = answer.at(&format!("/result/{list}"));
    let items = items.as_array().with_context(|| format!("{answer:?}"))?;
    let name = |item: &Value| item[key].as_str().unwrap_or_default().to_owned();
    Ok(items.iter().map(name).collect())
}

fn says(client: &Client, id: &str, tool: &str, said: &str) -> anyhow::Result<()> {
    let answer = client.call(id, tool, &json!({"text": said}))?;
    ensure!(text(&answer) == said, "{tool}: {answer:?}");
    Ok(())
}

/// Why the host does not start.
fn refused(servers: &Value) -> anyhow::Result<String> {
    let output = host(servers, "")?.command()?.output()?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The processes of servers, by the last word of their command.
fn server_of(running: &Running, word: &str) -> anyhow::Result<u32> {
    let has_word = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|other| other == word.as_bytes())
    };
    let found = || running.workers(SERVER).into_iter().find(has_word);
    eventually(&format!("a server {word} runs"), || found().is_some())?;
    found().context("it runs")
}

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
    let said = refused(&json!({"a": {"url": "https://example.org"}}))?;
    ensure!(said.contains("server a") && said.contains("HTTP"), "{said}");
    let said = refused(&json!({"a": {"command": "no-such-program"}}))?;
    ensure!(
        said.contains("server a") && said.contains("no-such-program"),
        "{said}"
    );
    Ok(())
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
    let folder = mainstay_testkit::process::TempDir::new()?;
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
    let state = mainstay_testkit::process::TempDir::new()?;
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
fn a_server_that_dies_hangs_or_floods_does_not_move_the_others() -> anyhow::Result<()> {
    let patient = json!({"limits": {"restarts": 1_000_000, "restart_period_ms": 1000,
        "backoff_min_ms": 0, "backoff_max_ms": 0}});
    let servers = json!({
        "dead": {"command": "false"},
        "flood": {"command": "yes"},
        "good": entry("--declare-list-changed", json!({}))?,
        "hung": entry("--never-ready", json!({}))?,
        "killed": entry("--banner", patient)?,
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    for name in ["good__echo", "killed__echo"] {
        ensure!(tools.iter().any(|tool| tool == name), "{name}: {tools:?}");
    }
    let victim = || server_of(&running, "--banner");
    client.send(&wrapping::call("2", "hung__echo", &json!({"text": "x"})))?;
    client.send(&wrapping::call("3", "good__hang", &json!({})))?;
    let mut longest = Duration::ZERO;
    for n in 100..160 {
        if n % 10 == 0 {
            kill(victim()?);
        }
        let began = Instant::now();
        says(client, &n.to_string(), "good__echo", "x")?;
        longest = longest.max(began.elapsed());
    }
    says(client, "4", "killed__echo", "y")?;
    let dead = failure(&client.call("5", "dead__echo", &json!({}))?)?;
    ensure!(dead["fault"] == "process", "{dead}");
    // Lists do not wait for what was missed the last time.
    let began = Instant::now();
    names(client, "6", "tools/list")?;
    ensure!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
    ensure!(longest < Duration::from_secs(60), "{longest:?}");
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)?;
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#)?;
    says(client, "7", "good__echo", "z")?;
    stop(running)
}

#[test]
fn each_server_keeps_its_own_state_of_the_session() -> anyhow::Result<()> {
    let folder = mainstay_testkit::process::TempDir::new()?;
    let state = folder.join("state");
    let options = format!("--state {}", state.display());
    let servers =
        json!({"alpha": entry("--page 7", json!({}))?, "beta": entry(&options, json!({}))?});
    let running = open(&servers, "")?;
    let client = running.client()?;
    client.request("1", "logging/setLevel", &json!({"level": "debug"}))?;
    names(client, "2", "tools/list")?;
    let uris = names(client, "3", "resources/list")?;
    ensure!(uris.contains(&"fixture:///blob".to_owned()), "{uris:?}");
    // Alpha has the resources, since it comes first; beta is asked for one that only it was asked for.
    let subscribed = client.request(
        "4",
        "resources/subscribe",
        &json!({"uri": "fixture:///blob"}),
    )?;
    ensure!(subscribed.at("/result").is_object(), "{subscribed:?}");
    kill(server_of(&running, "7")?);
    kill(server_of(&running, "--state")?);
    says(client, "5", "alpha__echo", "again")?;
    says(client, "6", "beta__echo", "again")?;
    let touch = json!({"uri": "fixture:///blob"});
    client.call("7", "alpha__touch", &touch)?;
    let updated = client.notification("notifications/resources/updated")?;
    ensure!(
        updated.at("/params/uri") == "fixture:///blob",
        "{updated:?}"
    );
    let told = read_told(&state)?;
    let count = |word: &str| told.iter().filter(|told| told.line.contains(word)).count();
    ensure!(count("\"initialize\"") == 2, "{told:?}");
    ensure!(count("logging/setLevel") == 2, "{told:?}");
    ensure!(count("resources/subscribe") == 0, "{told:?}");
    stop(running)
}

fn answer_to(question: &Message, name: &str) -> String {
    let id = question.id().unwrap_or_default();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"name":"{name}"}}}}}}"#
    )
}

#[test]
fn questions_progress_and_cancels_belong_to_one_server() -> anyhow::Result<()> {
    let folder = mainstay_testkit::process::TempDir::new()?;
    let state = folder.join("state");
    let options = format!("--state {}", state.display());
    let servers = json!({"alpha": entry("", json!({}))?, "beta": entry(&options, json!({}))?});
    let running = host(&servers, "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({"elicitation": {}, "sampling": {}, "roots": {}}))?;
    names(client, "1", "tools/list")?;
    // Both servers count their questions alike.
    client.send(&wrapping::call(
        "2",
        "alpha__ask_user",
        &json!({"question": "first?"}),
    ))?;
    let first = client.take("a question", |message| {
        message.method().as_deref() == Some("elicitation/create")
    })?;
    client.send(&wrapping::call(
        "3",
        "beta__ask_user",
        &json!({"question": "second?"}),
    ))?;
    let second = client.take("a question", |message| {
        message.method().as_deref() == Some("elicitation/create")
    })?;
    ensure!(first.id() != second.id(), "{first:?} {second:?}");
    client.send(&answer_to(&second, "for beta"))?;
    let beta = client.answer("3")?;
    ensure!(beta.text().contains("for beta"), "{beta:?}");
    client.send(&answer_to(&first, "for alpha"))?;
    let alpha = client.answer("2")?;
    ensure!(alpha.text().contains("for alpha"), "{alpha:?}");
    // Equal progress tokens are those of the client; each server reports on its own call.
    let slow = json!({"name": "beta__sleep", "arguments": {"ms": 60_000, "steps": 600},
        "_meta": {"progressToken": "t"}});
    client.send(&request_line("4", "tools/call", &slow))?;
    let progress = client.notification("notifications/progress")?;
    ensure!(progress.at("/params/progressToken") == "t", "{progress:?}");
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#)?;
    wrapping::wait_told(&state, "notifications/cancelled", 1)?;
    says(client, "5", "alpha__echo", "x")?;
    stop(running)
}

#[test]
fn allow_deny_and_lock_count_for_one_server() -> anyhow::Result<()> {
    let folder = mainstay_testkit::process::TempDir::new()?;
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
fn a_file_that_is_read_again_restarts_only_what_changed() -> anyhow::Result<()> {
    let same = || entry("--page 50", json!({}));
    let first = json!({
        "alpha": same()?,
        "beta": entry("--page 51", json!({}))?,
        "gamma": entry("--page 52", json!({}))?,
    });
    let running = open(&first, "")?;
    let client = running.client()?;
    names(client, "1", "tools/list")?;
    let (alpha, beta) = (server_of(&running, "50")?, server_of(&running, "51")?);
    let gone = server_of(&running, "52")?;
    // Alpha stays, beta has a rule and a prefix, gamma is gone, delta is new.
    let second = json!({
        "alpha": same()?,
        "beta": entry("--page 51", json!({"deny": ["add"], "prefix": "bb"}))?,
        "delta": entry("--page 53", json!({}))?,
    });
    write(running.folder(), &second)?;
    running.signal(Signal::HUP)?;
    running.wait_for_line("mcp:config added server=delta")?;
    running.wait_for_line("mcp:config removed server=gamma")?;
    running.wait_for_line("mcp:config changed server=beta")?;
    client.notification("notifications/tools/list_changed")?;
    server_of(&running, "53")?;
    let listed = || names(client, "\"list\"", "tools/list").unwrap_or_default();
    eventually("delta is listed", || {
        listed().iter().any(|tool| tool == "delta__echo")
    })?;
    let tools = listed();
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    ensure!(
        has("alpha__add") && has("bb__echo") && !has("bb__add"),
        "{tools:?}"
    );
    ensure!(!has("beta__echo") && !has("gamma__echo"), "{tools:?}");
    eventually("gamma's process is gone", || {
        !running.workers(SERVER).contains(&gone)
    })?;
    ensure!(server_of(&running, "50")? == alpha && server_of(&running, "51")? == beta);
    // Another command: a successor takes over, and only there.
    let third = json!({
        "alpha": same()?,
        "beta": entry("--page 54", json!({"deny": ["add"], "prefix": "bb"}))?,
        "delta": entry("--page 53", json!({}))?,
    });
    write(running.folder(), &third)?;
    running.signal(Signal::HUP)?;
    running.wait_for_line("mcp:rollout pack=beta")?;
    ensure!(server_of(&running, "54")? != beta);
    says(client, "3", "bb__echo", "new")?;
    ensure!(server_of(&running, "50")? == alpha, "alpha was restarted");
    // A mistake changes nothing.
    std::fs::write(
        running.folder().join("servers.json"),
        "{\"mcpServers\": {\"a b\": {}}}",
    )?;
    running.signal(Signal::HUP)?;
    running.wait_for_line("reason=config_refused")?;
    says(client, "4", "alpha__echo", "still")?;
    ensure!(server_of(&running, "50")? == alpha, "alpha was restarted");
    stop(running)
}

#[test]
fn an_upgrade_keeps_every_server_and_every_call() -> anyhow::Result<()> {
    let servers = json!({
        "alpha": entry("--page 50", json!({}))?,
        "beta": entry("--page 51", json!({}))?,
    });
    let running = open(&servers, "--pack asset")?;
    let client = running.client()?;
    names(client, "1", "tools/list")?;
    let before = (server_of(&running, "50")?, server_of(&running, "51")?);
    client.send(&wrapping::call("2", "beta__sleep", &json!({"ms": 3000})))?;
    let upgraded = Command::new(binary("mainstay")?)
        .args(["upgrade"])
        .env("MAINSTAY_RUNTIME_DIR", running.folder().join("run"))
        .output()?;
    ensure!(
        upgraded.status.success(),
        "{upgraded:?} {:#?}",
        running.stderr()
    );
    let answer = client.answer("2")?;
    ensure!(answer.at("/result/isError") != true, "{answer:?}");
    says(client, "3", "alpha__echo", "x")?;
    says(client, "4", "beta__echo", "y")?;
    let after = (server_of(&running, "50")?, server_of(&running, "51")?);
    ensure!(before == after, "{before:?} {after:?}");
    let tools = names(client, "5", "tools/list")?;
    ensure!(tools.iter().any(|tool| tool == "beta__echo"), "{tools:?}");
    // What is read again after an upgrade is the difference to what ran before it.
    running.signal(Signal::HUP)?;
    running.wait_for_line("mcp:config reread")?;
    says(client, "6", "beta__echo", "z")?;
    ensure!(server_of(&running, "51")? == before.1, "beta was restarted");
    stop(running)
}

#[test]
fn user_interfaces_and_the_calls_they_make_keep_working() -> anyhow::Result<()> {
    let folder = mainstay_testkit::process::TempDir::new()?;
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

/// A host on a socket or over HTTP.
fn serve(serve: Serve, servers: &Value) -> anyhow::Result<Running> {
    write(serve.folder(), servers)?;
    serve.argument("--config").argument("servers.json").spawn()
}

#[test]
fn clients_of_several_servers_never_meet() -> anyhow::Result<()> {
    const CALLS: usize = 400;
    const IN_FLIGHT: usize = 8;
    let patient = json!({"limits": {"restarts": 1_000_000, "restart_period_ms": 1000,
        "backoff_min_ms": 0, "backoff_max_ms": 0, "queue": 1000}});
    let servers = json!({
        "alpha": entry("--banner", patient.clone())?,
        "beta": entry("", patient)?,
    });
    let running = serve(Serve::socket()?, &servers)?;
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients = ["ada", "bob", "cyd", "dan"].map(|name| {
            let (running, done) = (&running, &done);
            scope.spawn(move || -> anyhow::Result<()> {
                let client = running.connect()?;
                client.open(&json!({}))?;
                names(&client, "\"list\"", "tools/list")?;
                let send = |n: usize| {
                    let server = if n % 2 == 0 { "alpha" } else { "beta" };
                    let said = json!({ "text": format!("{name} {server} {n}") });
                    client.send(&wrapping::call(
                        &n.to_string(),
                        &format!("{server}__echo"),
                        &said,
                    ))
                };
                (0..IN_FLIGHT).try_for_each(send)?;
                for next in IN_FLIGHT..CALLS + IN_FLIGHT {
                    let answer = client.take("an answer", |message| {
                        message.id().is_some_and(|id| id.parse::<usize>().is_ok())
                    })?;
                    let id: usize = answer.id().context("an id")?.parse()?;
                    let server = if id % 2 == 0 { "alpha" } else { "beta" };
                    let wanted = format!("{name} {server} {id}");
                    ensure!(text(&answer) == wanted, "{wanted}: {answer:?}");
                    if next < CALLS {
                        send(next)?;
                    }
                }
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            })
        });
        // Echo may be repeated: calls that a killed server had are sent again.
        while !clients
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            for pid in running.workers(SERVER).into_iter().take(2) {
                kill(pid);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| anyhow::anyhow!("it panicked"))?)
    })?;
    ensure!(done.into_inner() == 4);
    running.stop()
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
    for pid in running.workers(SERVER) {
        kill(pid);
    }
    let lost = |page: &str, pack: &str| {
        let name = format!("mainstay_pack_lost_total{{pack=\"{pack}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|count| count.parse::<u64>().ok())
    };
    eventually("the losses are counted for each server", || {
        let page = ask("GET", "/metrics", None).unwrap_or_default();
        lost(&page, "alpha") == Some(1) && lost(&page, "beta") == Some(2)
    })?;
    let page = ask("GET", "/metrics", None)?;
    ensure!(
        page.contains("tool=\"b__echo\",outcome=\"success\"} 2"),
        "{page}"
    );
    running.stop()
}

#[test]
fn servers_of_others_are_served_from_one_file() -> anyhow::Result<()> {
    let folder = mainstay_testkit::process::TempDir::new()?;
    let files = folder.join("files");
    std::fs::create_dir(&files)?;
    std::fs::write(files.join("a.txt"), "hello")?;
    let git = Command::new("git")
        .args(["init", "-q"])
        .arg(&files)
        .status()?;
    ensure!(git.success());
    let node = |package: &str| {
        tool(&format!(
            "node-servers/node_modules/@modelcontextprotocol/server-{package}/dist/index.js"
        ))
    };
    let installed = (
        node("everything")?,
        node("filesystem")?,
        node("memory")?,
        tool("python-servers/bin/python")?,
    );
    let (Some(everything), Some(filesystem), Some(memory), Some(python)) = installed else {
        return Ok(());
    };
    let memory_file = folder.join("memory.json");
    let servers = json!({
        "everything": {"command": "node", "args": [everything, "stdio"]},
        "files": {"command": "node", "args": [filesystem, files]},
        "git": {"command": python, "args": ["-m", "mcp_server_git", "--repository", files]},
        "memory": {"command": "node", "args": [memory], "env": {"MEMORY_FILE_PATH": memory_file}},
        "native": entry("", json!({}))?,
        "time": {"command": python, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let wanted = [
        "everything__echo",
        "files__read_text_file",
        "git__git_status",
        "memory__read_graph",
        "native__echo",
        "time__get_current_time",
    ];
    // A slow machine may start them after the first list; the host then says that it changed.
    let listed = || names(client, "\"list\"", "tools/list").unwrap_or_default();
    eventually("all are listed", || {
        let tools = listed();
        wanted
            .iter()
            .all(|name| tools.iter().any(|tool| tool == name))
    })?;
    let called = |id: &str, name: &str, arguments: Value| -> anyhow::Result<String> {
        let answer = client.call(id, name, &arguments)?;
        ensure!(answer.at("/result/isError") != true, "{name}: {answer:?}");
        Ok(text(&answer))
    };
    let path = files.join("a.txt");
    ensure!(called("1", "everything__echo", json!({"message": "x"}))?.contains('x'));
    ensure!(called("2", "files__read_text_file", json!({"path": path}))? == "hello");
    called("3", "git__git_status", json!({"repo_path": files}))?;
    let entity = json!({"entities": [{"name": "n", "entityType": "t", "observations": []}]});
    called("4", "memory__create_entities", entity)?;
    ensure!(called("5", "memory__read_graph", json!({}))?.contains("\"n\""));
    called("6", "time__get_current_time", json!({"timezone": "UTC"}))?;
    let prompts = names(client, "7", "prompts/list")?;
    ensure!(
        prompts
            .iter()
            .any(|name| name == "everything__simple-prompt"),
        "{prompts:?}"
    );
    let uris = names(client, "8", "resources/list")?;
    let uri = uris.first().context("everything has resources")?;
    let read = client.request("9", "resources/read", &json!({ "uri": uri }))?;
    ensure!(read.at("/result/contents/0/uri") == *uri, "{read:?}");
    stop(running)
}
