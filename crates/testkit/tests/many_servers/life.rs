//! Isolation, state and changes: what several servers do not do to each other, and what survives.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::fixture::read_told;
use mainstay_testkit::peer::{Message, request_line};
use mainstay_testkit::process::{Launch, MARKER, Running, Serve, TempDir, binary, kill, tool};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::wrapping::{self, SERVER, call, eventually, failure, stop, text};
use crate::{entry, host, names, open, says, serve, server_of, write};

/// A list that waits for a missing server takes longer: the host waits 10 s for it.
const LIST_WAIT: Duration = Duration::from_secs(9);

fn answer_to(question: &Message, name: &str) -> String {
    let id = question.id().unwrap_or_default();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"name":"{name}"}}}}}}"#
    )
}

/// A valid notification that a client takes.
const NOISE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"noise"}}"#;

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
        "noisy": {"command": "yes", "args": [NOISE]},
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    for name in ["good__echo", "killed__echo"] {
        ensure!(tools.iter().any(|tool| tool == name), "{name}: {tools:?}");
    }
    let victim = || server_of(&running, "--banner");
    client.send(&call("2", "hung__echo", &json!({"text": "x"})))?;
    client.send(&call("3", "good__hang", &json!({})))?;
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
    let mut quickest = Duration::MAX;
    for _ in 0..8 {
        let began = Instant::now();
        names(client, "6", "tools/list")?;
        quickest = quickest.min(began.elapsed());
        // A busy machine may make one of them late, not all.
        if quickest < LIST_WAIT {
            break;
        }
    }
    ensure!(quickest < LIST_WAIT, "{quickest:?}");
    ensure!(longest < Duration::from_secs(60), "{longest:?}");
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)?;
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#)?;
    says(client, "7", "good__echo", "z")?;
    // The client gets some of the notifications; the host drops the rest of the flood.
    client.notification("notifications/message")?;
    running.wait_for_line("reason=notifications_dropped pack=noisy")?;
    stop(running)
}

#[test]
fn a_program_that_is_missing_takes_no_other_server_away() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let program = folder.join("later");
    let patient = json!({"limits": {"restarts": 1_000_000, "restart_period_ms": 1000,
        "backoff_min_ms": 50, "backoff_max_ms": 200}});
    let servers = json!({
        "absent": {"command": program, "mainstay": patient},
        "good": entry("", json!({}))?,
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    let tools = names(client, "1", "tools/list")?;
    ensure!(tools.iter().any(|tool| tool == "good__echo"), "{tools:?}");
    says(client, "2", "good__echo", "x")?;
    let line = running.wait_for_line("pack=absent")?;
    ensure!(
        line.contains("cannot start") || line.contains("No such file"),
        "{line}"
    );
    let missing = failure(&client.call("3", "absent__echo", &json!({"text": "x"}))?)?;
    ensure!(missing["fault"] == "process", "{missing}");
    // Once the program is there, it is served, and the client hears of it.
    std::os::unix::fs::symlink(binary("mcp-fixture")?, &program)?;
    client.notification("notifications/tools/list_changed")?;
    eventually("it is listed", || {
        let listed = names(client, "\"list\"", "tools/list").unwrap_or_default();
        listed.iter().any(|tool| tool == "absent__echo")
    })?;
    says(client, "4", "absent__echo", "y")?;
    stop(running)
}

#[test]
fn a_call_on_the_command_line_starts_only_the_server_of_its_tool() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let other = folder.join("started");
    let servers = json!({
        "good": entry("", json!({}))?,
        "other": {"command": "sh", "args": ["-c", format!("echo > {}; sleep 1000", other.display())]},
    });
    write(folder.path(), &servers)?;
    let output = Command::new(binary("mainstay")?)
        .args([
            "call",
            "--config",
            "servers.json",
            "good__echo",
            "text=hello",
        ])
        .current_dir(folder.path())
        .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(
        String::from_utf8_lossy(&output.stdout).contains("hello"),
        "{output:?}"
    );
    ensure!(!other.exists(), "the other server was started");
    Ok(())
}

#[test]
fn the_list_of_tools_names_the_servers_that_gave_none() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let hasty =
        json!({"limits": {"start_timeout_ms": 500, "backoff_min_ms": 0, "backoff_max_ms": 0}});
    let servers = json!({
        "absent": {"command": folder.join("nowhere")},
        "dead": {"command": "sh", "args": ["-c", "echo no licence >&2; exit 3"]},
        "good": entry("", json!({}))?,
        "hung": entry("--never-ready", hasty)?,
    });
    write(folder.path(), &servers)?;
    let tools = |file: &str| {
        Command::new(binary("mainstay")?)
            .args(["tools", "--config", file])
            .current_dir(folder.path())
            .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
            .output()
            .context("mainstay tools")
    };
    let output = tools("servers.json")?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(listed.contains("good__echo"), "{listed}");
    for (server, reason) in [
        ("absent", "nowhere"),
        ("dead", "no licence"),
        ("hung", "not ready"),
    ] {
        let begins = format!("the tools of the server {server} are missing: ");
        let line = said.lines().find(|line| line.contains(&begins));
        ensure!(
            line.is_some_and(|line| line.contains(reason)),
            "{server}: {said}"
        );
    }
    ensure!(!said.contains("server good"), "{said}");
    // A host that serves them all says nothing.
    let good = json!({ "mcpServers": { "good": entry("", json!({}))? } });
    std::fs::write(folder.join("good.json"), good.to_string())?;
    let output = tools("good.json")?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    Ok(())
}

#[test]
fn a_server_has_its_own_timeout_and_standby() -> anyhow::Result<()> {
    let servers = json!({
        "brief": entry("--page 50", json!({"limits": {"call_timeout_ms": 300}}))?,
        "ready": entry("--page 51", json!({"limits": {"standby": 1}}))?,
        "usual": entry("--page 52", json!({}))?,
    });
    let running = open(&servers, "")?;
    let client = running.client()?;
    names(client, "1", "tools/list")?;
    let late = failure(&client.call("2", "brief__hang", &json!({}))?)?;
    ensure!(
        late["code"] == "TOOL_TIMEOUT" && late["timeoutMs"] == 300,
        "{late}"
    );
    // One process each, and the standby.
    running.wait_for_workers(SERVER, 4)?;
    let first = server_of(&running, "51")?;
    kill(first);
    says(client, "3", "ready__echo", "x")?;
    stop(running)
}

#[test]
fn each_server_keeps_its_own_state_of_the_session() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
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

#[test]
fn questions_progress_and_cancels_belong_to_one_server() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let state = folder.join("state");
    let options = format!("--state {}", state.display());
    let servers = json!({"alpha": entry("", json!({}))?, "beta": entry(&options, json!({}))?});
    let running = host(&servers, "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({"elicitation": {}, "sampling": {}, "roots": {}}))?;
    names(client, "1", "tools/list")?;
    // Both servers count their questions alike.
    client.send(&call(
        "2",
        "alpha__ask_user",
        &json!({"question": "first?"}),
    ))?;
    let first = client.take("a question", |message| {
        message.method().as_deref() == Some("elicitation/create")
    })?;
    client.send(&call(
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
    client.send(&call("2", "beta__sleep", &json!({"ms": 3000})))?;
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
                    let server = if n.is_multiple_of(2) { "alpha" } else { "beta" };
                    let said = json!({ "text": format!("{name} {server} {n}") });
                    client.send(&call(&n.to_string(), &format!("{server}__echo"), &said))
                };
                (0..IN_FLIGHT).try_for_each(send)?;
                for next in IN_FLIGHT..CALLS + IN_FLIGHT {
                    let answer = client.take("an answer", |message| {
                        message.id().is_some_and(|id| id.parse::<usize>().is_ok())
                    })?;
                    let id: usize = answer.id().context("an id")?.parse()?;
                    let server = if id.is_multiple_of(2) {
                        "alpha"
                    } else {
                        "beta"
                    };
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
fn servers_of_others_are_served_from_one_file() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
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

#[test]
fn servers_that_start_slowly_are_listed_at_once_the_second_time() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let gate = folder.join("gate");
    let script = format!(
        "while [ -e {} ]; do sleep 0.1; done; exec {}",
        gate.display(),
        binary("mcp-fixture")?.display()
    );
    let entry = json!({"command": "sh", "args": ["-c", script], "cwd": folder.path()});
    let servers = json!({"a": entry, "b": entry});
    let start = || -> anyhow::Result<Running> {
        // The same environment in both runs.
        let launch = Launch::new(["env", "-u", MARKER])?
            .words([binary("mainstay")?])
            .words(["serve", "--config"])
            .words([folder.join("servers.json")]);
        launch
            .env("MAINSTAY_CACHE_DIR", folder.join("cache"))
            .spawn()
    };
    write(folder.path(), &servers)?;
    let running = start()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let first = names(client, "1", "tools/list")?;
    stop(running)?;
    std::fs::write(&gate, "")?;
    let running = start()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    assert_eq!(names(client, "1", "tools/list")?, first);
    client.send(&call("2", "b__echo", &json!({"text": "waited"})))?;
    std::fs::remove_file(&gate)?;
    assert_eq!(text(&client.answer("2")?), "waited");
    stop(running)
}

#[test]
fn clients_of_either_era_reach_servers_of_either_era() -> anyhow::Result<()> {
    let ours = json!({"bridge": true});
    let servers = json!({"old": entry("", ours.clone())?, "new": entry("--era modern", ours)?});
    let running = open(&servers, "")?;
    let client = running.client()?;
    for (id, tool) in [("1", "old__echo"), ("2", "new__echo")] {
        says(client, id, tool, "legacy client")?;
    }
    let list = client.request("3", "tools/list", &json!({}))?;
    assert!(list.text().contains("new__echo") && !list.text().contains("resultType"));
    stop(running)?;
    let running = host(&servers, "")?.spawn()?;
    let client = running.client()?;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let found = client.request("1", "server/discover", &json!({"_meta": meta}))?;
    let instructions = found.at("/result/instructions");
    let instructions = instructions.as_str().unwrap_or_default();
    assert!(
        instructions.contains("Server old") && instructions.contains("Server new"),
        "{found:?}"
    );
    for (id, tool) in [("2", "old__echo"), ("3", "new__echo")] {
        let params = json!({"name": tool, "arguments": {"text": "modern client"}, "_meta": meta});
        let answer = client.request(id, "tools/call", &params)?;
        assert_eq!(text(&answer), "modern client");
        assert_eq!(answer.at("/result/resultType"), "complete", "{tool}");
    }
    stop(running)
}
