//! Operators and running hosts: status, stop, rollout; standby and watchdog with real workers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Launch, Running, Serve, TempDir, binary, give_away, is_root};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process};
use serde_json::{Value, json};

fn operate(runtime: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new(binary("mainstay")?)
        .args(arguments)
        .env("MAINSTAY_RUNTIME_DIR", runtime)
        .output()
        .context("running mainstay")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn health(host: &Running) -> anyhow::Result<Value> {
    let answer = host
        .client()?
        .call("\"health\"", "system_health", &json!({}))?;
    Ok(answer.at("/result/structuredContent"))
}

fn worker_pid(host: &Running) -> anyhow::Result<Pid> {
    let health = health(host)?;
    let pid = health
        .pointer("/workers/0/pid")
        .and_then(Value::as_i64)
        .context("a pid")?;
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("a pid in range")
}

fn limits(folder: &TempDir, content: &str) -> anyhow::Result<String> {
    let path = folder.path().join("mainstay.toml");
    std::fs::write(&path, format!("[limits]\n{content}"))?;
    Ok(path.display().to_string())
}

/// Waits until the health of the only worker is as wanted.
fn until(host: &Running, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let now = health(host)?;
        if wanted(&now) {
            return Ok(now);
        }
        ensure!(Instant::now() < deadline, "still {now:#}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Stops a process and waits until every thread of it stands still.
fn freeze(pid: Pid) -> anyhow::Result<()> {
    kill_process(pid, Signal::STOP)?;
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let mut still = true;
        for task in std::fs::read_dir(format!("/proc/{}/task", Pid::as_raw(Some(pid))))? {
            let stat = std::fs::read_to_string(task?.path().join("stat"))?;
            still &= stat
                .rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'));
        }
        if still {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "it does not freeze");
        std::thread::yield_now();
    }
}

#[test]
fn operators_see_choose_and_stop_their_hosts() -> anyhow::Result<()> {
    let runtime = TempDir::new()?;
    let host = |name: &str| -> anyhow::Result<Running> {
        Serve::socket()?
            .env("MAINSTAY_RUNTIME_DIR", runtime.path())
            .argument("--name")
            .argument(name)
            .spawn()
    };
    let none = operate(runtime.path(), &["status"])?;
    ensure!(none.status.code() == Some(1), "{}", text(&none));
    let (mut first, mut second) = (host("first")?, host("second")?);
    let both = text(&operate(runtime.path(), &["status"])?);
    ensure!(
        both.starts_with("2 hosts") && both.contains("first") && both.contains("second"),
        "{both}"
    );
    let unclear = operate(runtime.path(), &["stop"])?;
    ensure!(unclear.status.code() == Some(2), "{}", text(&unclear));
    ensure!(
        text(&unclear).contains("choose one with --pid or --name"),
        "{}",
        text(&unclear)
    );
    let wrong = operate(runtime.path(), &["stop", "--name", "third"])?;
    ensure!(wrong.status.code() == Some(2), "{}", text(&wrong));
    let stopped = operate(runtime.path(), &["stop", "--name", "first"])?;
    ensure!(stopped.status.success(), "{}", text(&stopped));
    ensure!(first.wait()?.success());
    let pid = second.pid().to_string();
    let stopped = operate(runtime.path(), &["stop", "--pid", &pid])?;
    ensure!(stopped.status.success(), "{}", text(&stopped));
    ensure!(second.wait()?.success());
    let left = std::fs::read_dir(runtime.path())?.count();
    ensure!(left == 0, "{left} files are left");
    Ok(())
}

#[test]
fn a_killed_host_is_forgotten() -> anyhow::Result<()> {
    let runtime = TempDir::new()?;
    let mut host = Serve::socket()?
        .env("MAINSTAY_RUNTIME_DIR", runtime.path())
        .spawn()?;
    host.signal(Signal::KILL)?;
    let _ = host.wait()?;
    let status = operate(runtime.path(), &["status"])?;
    ensure!(text(&status).starts_with("0 hosts"), "{}", text(&status));
    ensure!(
        std::fs::read_dir(runtime.path())?.count() == 0,
        "its socket is removed"
    );
    Ok(())
}

#[test]
fn a_rollout_under_load_loses_no_call_and_repeats_no_effect() -> anyhow::Result<()> {
    let host = Serve::stdio()?.ledger()?.spawn()?;
    let client = host.client()?;
    client.call("0", "get", &json!({}))?;
    let runtime = host.folder().join("run");
    let mut asked = 0_u32;
    for round in 0..3 {
        for _ in 0..8 {
            asked += 1;
            let params = json!({"name": "append", "arguments": {"text": format!("n{asked}"), "pause_ms": 20}});
            client.send(
                &json!({"jsonrpc": "2.0", "id": asked, "method": "tools/call", "params": params})
                    .to_string(),
            )?;
        }
        let rolled = operate(&runtime, &["rollout"])?;
        ensure!(rolled.status.success(), "{}", text(&rolled));
        ensure!(
            text(&rolled).contains(&format!("generation {} serves", round + 2)),
            "{}",
            text(&rolled)
        );
    }
    for id in 1..=asked {
        let answer = client.answer(&id.to_string())?;
        ensure!(answer.at("/result/isError").is_null(), "{answer:?}");
    }
    let log = std::fs::read_to_string(host.folder().join("ledger.jsonl"))?;
    ensure!(
        log.lines().count() == asked as usize,
        "{} effects of {asked}",
        log.lines().count()
    );
    until(&host, |health| health["rollout"] == "stable")?;
    host.stop()
}

#[test]
fn a_rollout_leads_out_of_exhaustion() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let config = limits(&folder, "restarts = 0\nrest_ms = 3600000\n")?;
    let host = Serve::stdio()?
        .ledger()?
        .argument("--config")
        .argument(config)
        .spawn()?;
    host.client()?.call("0", "get", &json!({}))?;
    kill_process(worker_pid(&host)?, Signal::KILL)?;
    until(&host, |health| health["state"] == "failed")?;
    let refused = host.client()?.call("1", "get", &json!({}))?;
    ensure!(refused.at("/result/isError") == true, "{refused:?}");
    let rolled = operate(&host.folder().join("run"), &["rollout", "--pack", "ledger"])?;
    ensure!(rolled.status.success(), "{}", text(&rolled));
    let answer = host.client()?.call("2", "get", &json!({}))?;
    ensure!(answer.at("/result/isError").is_null(), "{answer:?}");
    host.stop()
}

#[test]
fn a_standby_takes_over_without_a_start() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    // With this pause a cold start would be far away.
    let config = limits(
        &folder,
        "standby = 1\nbackoff_min_ms = 60000\nbackoff_max_ms = 60000\n",
    )?;
    let host = Serve::stdio()?
        .ledger()?
        .argument("--config")
        .argument(config)
        .spawn()?;
    host.client()?.call("0", "get", &json!({}))?;
    until(&host, |health| health["generation"] == 2)?;
    host.wait_for_line("generation=2 pid")?;
    let standby = &health(&host)?["workers"][0]["standby"];
    ensure!(
        standby["state"] == "ready" && standby["generation"] == 2,
        "{standby}"
    );
    ensure!(standby["pid"].is_u64(), "{standby}");
    kill_process(worker_pid(&host)?, Signal::KILL)?;
    let answer = host
        .client()?
        .call("1", "put", &json!({"key": "k", "value": "v"}))?;
    ensure!(answer.at("/result/isError").is_null(), "{answer:?}");
    let health = health(&host)?;
    ensure!(health["workers"][0]["generation"] == 2, "{health:#}");
    host.stop()
}

#[test]
fn a_frozen_worker_is_replaced_and_its_convergent_call_answered() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let config = limits(
        &folder,
        "ping_interval_ms = 100\nping_timeout_ms = 200\ngrace_ms = 100\n",
    )?;
    let host = Serve::stdio()?
        .ledger()?
        .argument("--config")
        .argument(config)
        .spawn()?;
    host.client()?.call("0", "get", &json!({}))?;
    let frozen = worker_pid(&host)?;
    freeze(frozen)?;
    let answer = host
        .client()?
        .call("1", "put", &json!({"key": "k", "value": "v"}))?;
    ensure!(answer.at("/result/isError").is_null(), "{answer:?}");
    ensure!(worker_pid(&host)? != frozen, "a successor serves");
    let fault = &health(&host)?["last_fault"];
    let detail = fault["detail"].to_string();
    ensure!(detail.contains("does not answer pings"), "{fault}");
    ensure!(fault["class"] == "timeout", "{fault}");
    ensure!(
        !fault["hint"]
            .to_string()
            .contains("raise the tool's timeout"),
        "{fault}"
    );
    // The log has the same reason, not the signal with which the host ended the worker.
    host.wait_for_line(
        "reason=worker_lost pack=ledger timeout fault in generation 1: the worker does",
    )?;
    let lines = host.stderr();
    ensure!(
        !lines.iter().any(|line| line.contains("signal 9")),
        "{lines:?}"
    );
    host.stop()
}

#[test]
fn a_stuck_host_is_told_from_an_absent_one() -> anyhow::Result<()> {
    let runtime = TempDir::new()?;
    let host = Serve::socket()?
        .env("MAINSTAY_RUNTIME_DIR", runtime.path())
        .argument("--name")
        .argument("stuck")
        .spawn()?;
    let number = host.pid().to_string();
    let pid = i32::try_from(host.pid()).ok().and_then(Pid::from_raw);
    let pid = pid.context("a pid in range")?;
    freeze(pid)?;
    let sentence = format!(" s (pid {number})");
    for words in [
        vec!["status"],
        vec!["status", "--pid", &number],
        vec!["status", "--name", "stuck"],
        vec!["stop"],
    ] {
        let output = operate(runtime.path(), &words)?;
        ensure!(output.status.code() == Some(3), "{}", text(&output));
        let said = text(&output);
        let waits = said.contains("not responding for ") && said.contains(&sentence);
        ensure!(waits, "{said}");
    }
    let json = operate(runtime.path(), &["status", "--json"])?;
    let all: Value = serde_json::from_slice(&json.stdout)?;
    ensure!(all[0]["state"] == "not_responding", "{all}");
    ensure!(all[0]["pid"] == host.pid(), "{all}");
    let other = operate(runtime.path(), &["status", "--pid", "1"])?;
    ensure!(other.status.code() == Some(2), "{}", text(&other));
    ensure!(text(&other).contains("no such host is running"));
    kill_process(pid, Signal::CONT)?;
    let output = operate(runtime.path(), &["status"])?;
    ensure!(output.status.code() == Some(0), "{}", text(&output));
    host.stop()?;
    let none = operate(runtime.path(), &["status"])?;
    ensure!(none.status.code() == Some(1), "{}", text(&none));
    Ok(())
}

#[test]
fn a_host_without_descriptors_is_named_as_such() -> anyhow::Result<()> {
    let host = Serve::stdio()?.spawn()?;
    host.wait_for_line("mcp:ready")?;
    let runtime = host.folder().join("run");
    let number = host.pid().to_string();
    let pid = i32::try_from(host.pid()).ok().and_then(Pid::from_raw);
    let mut open = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{number}/fd"))? {
        open.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u64>().ok()),
        );
    }
    // One is left: for the connection, and not for the rest.
    let free = (0..).find(|fd| !open.contains(fd)).context("a number")?;
    let few = Rlimit {
        current: Some(free + 1),
        maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
    };
    let before = rustix::process::prlimit(pid, Resource::Nofile, few)?;
    for words in [["status", "--pid", &number], ["upgrade", "--pid", &number]] {
        let output = operate(&runtime, &words)?;
        let said = text(&output);
        ensure!(output.status.code() == Some(3), "{said}");
        ensure!(
            said.contains("the host is out of file descriptors"),
            "{said}"
        );
    }
    host.wait_for_line("reason=control_refused the host is out of file descriptors")?;
    rustix::process::prlimit(pid, Resource::Nofile, before)?;
    let output = operate(&runtime, &["status", "--pid", &number])?;
    ensure!(output.status.code() == Some(0), "{}", text(&output));
    host.stop()?;
    Ok(())
}

#[test]
fn a_host_that_is_stuck_logs_its_activity() -> anyhow::Result<()> {
    let launch = Launch::new([binary("mainstay")?])?;
    let (config, tools) = (
        launch.folder().join("config.toml"),
        launch.folder().join("tools.json"),
    );
    std::fs::write(
        &config,
        "[servers.wrapped.mainstay.limits]\nstuck_ms = 10\n",
    )?;
    let patterns: Vec<Value> = (0..20)
        .map(|number| json!({"pattern": format!("(?=a)a*bz|a{{{number}}}$")}))
        .collect();
    let schema = json!({
        "type": "object",
        "properties": {"text": {"type": "string"}, "all": {"items": {"allOf": patterns}}},
    });
    let echo = json!([{"name": "echo", "description": "Echoes.", "inputSchema": schema}]);
    std::fs::write(&tools, echo.to_string())?;
    let host = launch
        .words(["wrap", "--config"])
        .words([config])
        .words(["--".into(), binary("mcp-fixture")?])
        .words(["--tools"])
        .words([tools])
        .spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    client.request("1", "tools/list", &json!({}))?;
    let texts = vec!["a".repeat(40); 10_000];
    client.call("2", "echo", &json!({"text": "x", "all": texts}))?;
    host.wait_for_line("mcp:warning reason=stuck doing=request session=")?;
    host.wait_for_line("mcp:unstuck doing=request session=")?;
    host.stop()
}

/// A host of an attacker: it replies to every request with this line.
fn impostor(folder: &Path, reply: &Value) -> anyhow::Result<()> {
    let listener = UnixListener::bind(folder.join("4711.sock"))?;
    let line = format!("{reply}\n");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut asked = String::new();
            let _ = BufReader::new(&stream).read_line(&mut asked);
            let _ = (&stream).write_all(line.as_bytes());
        }
    });
    Ok(())
}

fn status_reply(name: &str) -> Value {
    let health = json!({"state": "ready", "ready": true, "generation": 1, "uptime_ms": 1, "consecutive_failures": 0,
        "restart_count": 0, "rollout": "stable", "last_fault": {"class": "process",
        "kind": "worker_unavailable", "detail": name}, "queue_depth": 0, "in_flight": 0, "sessions": 0, "workers": []});
    let totals = json!({"request_count": 0, "success_count": 0, "response_error_count": 0,
        "transport_fault_count": 0, "retry_count": 0, "last_latency_ms": 0.0, "max_latency_ms": 0.0,
        "avg_latency_ms": 0.0, "last_error": null});
    json!({"status": {"pid": 4711, "name": name, "version": "1", "mode": "stdio",
        "started": "2026-01-01T00:00:00Z", "health": health, "totals": totals}})
}

#[test]
fn folder_of_another_user_is_never_trusted() -> anyhow::Result<()> {
    if !is_root() {
        println!("skipped: only root can give a folder away");
        return Ok(());
    }
    let runtime = TempDir::new()?;
    impostor(runtime.path(), &status_reply("planted"))?;
    give_away(runtime.path())?;
    for command in ["status", "stop", "rollout"] {
        let output = operate(runtime.path(), &[command])?;
        let said = text(&output);
        ensure!(!output.status.success(), "{command}: {said}");
        ensure!(
            said.contains("is not a private directory of this user"),
            "{command}: {said}"
        );
        ensure!(!said.contains("planted"), "{command}: {said}");
    }
    Ok(())
}

#[test]
fn words_of_hosts_are_shown_without_escape_sequences() -> anyhow::Result<()> {
    let runtime = TempDir::new()?;
    std::fs::set_permissions(runtime.path(), std::fs::Permissions::from_mode(0o700))?;
    impostor(runtime.path(), &status_reply("\u{1b}]0;owned\u{7}\u{9b}2J"))?;
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["stop"],
        &["rollout"],
    ] {
        let output = operate(runtime.path(), arguments)?;
        let said = text(&output);
        let hidden = said.chars().find(|c| c.is_control() && *c != '\n');
        ensure!(hidden.is_none(), "{arguments:?}: {said:?}");
    }
    let status = operate(runtime.path(), &["status"])?;
    ensure!(
        text(&status).contains("owned"),
        "it is shown: {}",
        text(&status)
    );
    Ok(())
}

#[test]
fn commands_to_hosts_do_not_depend_on_settings_of_packs() -> anyhow::Result<()> {
    let runtime = TempDir::new()?;
    let run = |arguments: &[&str]| -> anyhow::Result<Output> {
        Command::new(binary("mainstay")?)
            .args(arguments)
            .current_dir(runtime.path())
            .env("MAINSTAY_RUNTIME_DIR", runtime.path())
            .env("MAINSTAY_CACHE_DIR", runtime.path().join("cache"))
            .env("SYN_SCHEMAS_DIR", "/nowhere")
            .env("SYN_BACKEND_URL", "nonsense")
            .env("MCP_MAX_BATCH", "many")
            .env("MCP_ENDPOINT", "pigeon")
            .output()
            .context("running mainstay")
    };
    let status = run(&["status"])?;
    ensure!(status.status.code() == Some(1), "{}", text(&status));
    let listed = run(&["cache", "list"])?;
    ensure!(listed.status.success(), "{}", text(&listed));
    for arguments in [
        &["stop"][..],
        &["rollout"],
        &["tools", "--url", "http://127.0.0.1:9"],
    ] {
        let said = text(&run(arguments)?);
        ensure!(!said.contains("the environment"), "{arguments:?}: {said}");
    }
    let once = run(&["once", "--log-dir", "logs"])?;
    ensure!(once.status.success(), "{}", text(&once));
    Ok(())
}
