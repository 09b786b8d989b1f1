//! The event log of real hosts: what each way to end looks like, several hosts with one file,
//! disks that fail.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_contract::error::Code;
use mainstay_contract::fault::FaultClass;
use mainstay_contract::telemetry::{Event, EventOutcome, RequestEvent};
use mainstay_testkit::process::{Running, Serve, TempDir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The same path in every host's folder.
fn file_of(serve: &Serve) -> PathBuf {
    serve.folder().join("events.jsonl")
}

/// A host that records, with these limits.
fn recording(limits: &str) -> anyhow::Result<(Serve, PathBuf)> {
    let serve = Serve::stdio()?;
    let file = file_of(&serve);
    let serve = with_limits(serve, limits)?
        .argument("--telemetry")
        .argument(&file);
    Ok((serve, file))
}

fn with_limits(serve: Serve, limits: &str) -> anyhow::Result<Serve> {
    let config = serve.folder().join("config.toml");
    fs::write(&config, format!("[limits]\n{limits}\n")).context("writing the configuration")?;
    Ok(serve.argument("--config").argument(config))
}

/// The events of a file; each line must be one.
fn events(file: &Path) -> anyhow::Result<Vec<Event>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    ensure!(text.is_empty() || text.ends_with('\n'), "half a line");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).with_context(|| format!("no event: {line}")))
        .collect()
}

fn requests(events: &[Event]) -> Vec<&RequestEvent> {
    let mut requests = Vec::new();
    for event in events {
        if let Event::Request(request) = event {
            requests.push(request);
        }
    }
    requests
}

/// The event of the request with this id.
fn request<'a>(events: &'a [Event], id: &str) -> anyhow::Result<&'a RequestEvent> {
    let mut found = requests(events).into_iter().filter(|event| {
        event
            .request_id
            .as_ref()
            .is_some_and(|own| own.as_raw() == id)
    });
    let first = found.next().with_context(|| format!("no event of {id}"))?;
    ensure!(found.next().is_none(), "two events of {id}");
    Ok(first)
}

/// The process id of the only worker, once it is there.
fn worker_pid(host: &Running) -> anyhow::Result<Pid> {
    let health = host
        .client()?
        .call("\"pid\"", "system_health", &json!({}))?;
    let pid = health.at("/result/structuredContent/workers/0/pid");
    let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).context("no worker")
}

fn call(id: &str, tool: &str, arguments: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

#[test]
fn success_failure_and_both_kinds_of_cancel_are_one_event_each() -> anyhow::Result<()> {
    let (serve, file) = recording("")?;
    let host = serve.ledger()?.spawn()?;
    let client = host.client()?;
    let line = call("1", "get", &json!({}));
    client.send(&line)?;
    let answer = client.answer("1")?;
    client.call("\"two\"", "get", &json!({"key": "nope"}))?;
    client.send(&call("3", "wait", &json!({"ms": 60_000})))?;
    client.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":3}}"#)?;
    client.answer("3")?;
    client.send(&call("4", "wait", &json!({"ms": 60_000})))?;
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#)?;
    client.call("5", "system_health", &json!({}))?;
    let folder = keep(&file)?;
    host.stop()?;

    let events = folder.events()?;
    assert_eq!(requests(&events).len(), 5);
    let event = request(&events, "1")?;
    assert_eq!(event.outcome, EventOutcome::Ok);
    assert_eq!((event.code, event.fault), (None, None));
    assert_eq!(event.method, "tools/call");
    assert_eq!(event.tool.as_deref(), Some("get"));
    assert_eq!((event.attempt, event.replayed), (1, false));
    assert_eq!(event.generation.map(|generation| generation.get()), Some(1));
    assert_eq!(event.input_bytes, line.len());
    assert_eq!(event.output_bytes, answer.text().len());
    assert!(event.latency_ms > 0.0, "{event:?}");

    let event = request(&events, "\"two\"")?;
    assert_eq!(event.outcome, EventOutcome::Error);
    assert_eq!((event.code, event.fault), (Some(Code::NotFound), None));

    for (id, is_answered) in [("3", true), ("4", false)] {
        let event = request(&events, id)?;
        assert_eq!(event.outcome, EventOutcome::Cancelled);
        assert_eq!((event.code, event.fault), (Some(Code::Cancelled), None));
        assert_eq!(event.output_bytes > 0, is_answered, "{event:?}");
    }

    let event = request(&events, "5")?;
    assert_eq!((event.attempt, event.generation), (0, None));
    Ok(())
}

#[test]
fn timeout_is_an_event_with_its_fault() -> anyhow::Result<()> {
    let (serve, file) = recording("call_timeout_ms = 150\ngrace_ms = 500")?;
    let host = serve.ledger()?.spawn()?;
    let client = host.client()?;
    client.request("0", "tools/list", &json!({}))?;
    client.call("1", "wait", &json!({"ms": 60_000}))?;
    let folder = keep(&file)?;
    host.stop()?;
    let events = folder.events()?;
    let event = request(&events, "1")?;
    assert_eq!(event.outcome, EventOutcome::Error);
    assert_eq!(event.code, Some(Code::ToolTimeout));
    assert_eq!(event.fault, Some(FaultClass::Timeout));
    assert!(event.latency_ms >= 150.0, "{event:?}");
    Ok(())
}

#[test]
fn replayed_call_says_so_and_the_lives_of_its_workers_are_recorded() -> anyhow::Result<()> {
    let (serve, file) = recording("")?;
    let host = serve.misbehaving("die-once")?.spawn()?;
    host.client()?.call("1", "again", &json!({"n": 1}))?;
    let folder = keep(&file)?;
    host.stop()?;
    let events = folder.events()?;
    let event = request(&events, "1")?;
    assert_eq!(event.outcome, EventOutcome::Ok);
    assert_eq!((event.attempt, event.replayed), (2, true));
    assert_eq!(event.generation.map(|generation| generation.get()), Some(2));

    let lives: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::WorkerStarted(run) => Some(format!("started {}", run.generation)),
            Event::WorkerReady(run) => Some(format!("ready {}", run.generation)),
            Event::WorkerLost(loss) => Some(format!("lost {} {}", loss.generation, loss.fault)),
            Event::WorkerReaped(run) => Some(format!("reaped {}", run.generation)),
            Event::Request(_) | Event::Invocation(_) | Event::HotTools(_) | Event::Dropped(_) => {
                None
            }
        })
        .collect();
    let of = |generation: &str| -> Vec<_> {
        let mine = |life: &&String| life.split(' ').nth(1) == Some(generation);
        lives.iter().filter(mine).map(String::as_str).collect()
    };
    assert_eq!(
        of("1"),
        ["started 1", "ready 1", "lost 1 process", "reaped 1"]
    );
    // It was told to end: that is no loss.
    assert_eq!(of("2"), ["started 2", "ready 2", "reaped 2"]);
    Ok(())
}

#[test]
fn call_lost_with_its_worker_is_a_process_fault() -> anyhow::Result<()> {
    let (serve, file) = recording("")?;
    let host = serve.ledger()?.spawn()?;
    let client = host.client()?;
    client.request("0", "tools/list", &json!({}))?;
    client.send(&call(
        "1",
        "append",
        &json!({"text": "x", "pause_ms": 60_000}),
    ))?;
    // Health is answered after the call was handed over.
    kill_process(worker_pid(&host)?, Signal::KILL).context("killing the worker")?;
    client.answer("1")?;
    // Every worker that runs it dies of it.
    client.call("2", "wait", &json!({"ms": 0, "fail": "exit"}))?;
    let answer = client.call("3", "system_telemetry", &json!({}))?;
    let folder = keep(&file)?;
    host.stop()?;

    let events = folder.events()?;
    let event = request(&events, "1")?;
    assert_eq!(event.outcome, EventOutcome::Error);
    assert_eq!(event.code, Some(Code::Internal));
    assert_eq!(event.fault, Some(FaultClass::Process));
    assert_eq!((event.attempt, event.replayed), (1, false));
    let event = request(&events, "2")?;
    assert_eq!(event.fault, Some(FaultClass::Replay));
    assert_eq!((event.attempt, event.replayed), (4, true));

    let totals = answer.at("/result/structuredContent/totals");
    assert_eq!(totals["transport_fault_count"], 2, "{totals}");
    assert_eq!(totals["retry_count"], 3, "{totals}");
    let fault = answer.at("/result/structuredContent/last_restart_fault");
    assert_eq!(fault["class"], "process", "{fault}");
    Ok(())
}

#[test]
fn worker_that_is_never_ready_is_recorded_as_lost() -> anyhow::Result<()> {
    let (serve, file) = recording("start_timeout_ms = 100\nrestarts = 0\ngrace_ms = 200")?;
    let host = serve.misbehaving("never-ready")?.spawn()?;
    host.client()?.call("1", "once", &json!({}))?;
    let folder = keep(&file)?;
    host.stop()?;
    let events = folder.events()?;
    let lost = events.iter().any(|event| match event {
        Event::WorkerLost(loss) => loss.pack == "bad" && loss.detail == "not ready in time",
        _ => false,
    });
    assert!(lost, "{events:#?}");
    Ok(())
}

#[test]
fn nothing_that_anybody_said_is_in_the_file() -> anyhow::Result<()> {
    let (serve, file) = recording("restarts = 1000\nbackoff_min_ms = 0")?;
    let host = serve.ledger()?.spawn()?;
    let client = host.client()?;
    let put = json!({"key": "s3cret-key", "value": "s3cret-value"});
    client.call("1", "put", &put)?;
    client.call("2", "get", &json!({}))?;
    client.call("3", "get", &json!({"key": "s3cret-absent"}))?;
    client.call("4", "s3cret-tool", &json!({"s3cret-argument": 1}))?;
    client.request("5", "s3cret_method", &json!({}))?;
    client.request("6", "s3cret/method", &json!({}))?;
    client.call("7", "wait", &json!({"ms": 0, "s3cret-argument": 1}))?;
    client.call("8", "wait", &json!({"ms": 0, "fail": "panic"}))?;
    client.call("9", "wait", &json!({"ms": 0, "fail": "exit"}))?;
    let folder = keep(&file)?;
    host.stop()?;
    let events = folder.events()?;
    assert_eq!(requests(&events).len(), 9);
    let text = folder.text()?;
    for word in ["s3cret", "asked to"] {
        let said = text.lines().find(|line| line.contains(word));
        assert_eq!(said, None);
    }
    Ok(())
}

#[test]
fn hot_tools_come_every_thousand_requests_and_at_the_end() -> anyhow::Result<()> {
    let (serve, file) = recording("")?;
    let host = serve.ledger()?.spawn()?;
    let client = host.client()?;
    for id in 0..1000 {
        let method = if id % 10 == 0 { "get" } else { "system_health" };
        client.request(&id.to_string(), method, &json!({}))?;
    }
    client.call("\"last\"", "put", &json!({"key": "a", "value": "b"}))?;
    let folder = keep(&file)?;
    host.stop()?;
    let snapshots: Vec<_> = folder
        .events()?
        .into_iter()
        .filter_map(|event| match event {
            Event::HotTools(hot) => Some(hot),
            _ => None,
        })
        .collect();
    let seen: Vec<_> = snapshots.iter().map(|hot| hot.request_count).collect();
    assert_eq!(seen, [1000, 1001]);
    for hot in &snapshots {
        let calls: Vec<_> = hot
            .most_called
            .iter()
            .map(|hot| (hot.tool.as_str(), hot.request_count))
            .take(2)
            .collect();
        assert_eq!(calls, [("system_health", 900), ("get", 100)]);
        assert!(hot.slowest.is_sorted_by(|a, b| a.p99 >= b.p99));
    }
    Ok(())
}

#[test]
fn several_hosts_share_a_file_and_no_line_is_lost_or_torn() -> anyhow::Result<()> {
    const HOSTS: usize = 4;
    const CALLS: usize = 300;
    let folder = TempDir::new()?;
    let file = folder.join("events.jsonl");
    let run = || -> anyhow::Result<()> {
        let serve = with_limits(
            Serve::stdio()?,
            "telemetry_file_bytes = 8192\ntelemetry_files = 100",
        )?;
        let serve = serve.env("MAINSTAY_TELEMETRY", &file);
        let host = serve.misbehaving("honest")?.spawn()?;
        let client = host.client()?;
        for id in 0..CALLS {
            client.call(&id.to_string(), "again", &json!({"n": id}))?;
        }
        host.stop()
    };
    std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS).map(|_| scope.spawn(run)).collect();
        for host in hosts {
            host.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        }
        anyhow::Ok(())
    })?;

    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut files = 0;
    for entry in fs::read_dir(folder.path()).context("listing the folder")? {
        files += 1;
        for event in requests(&events(&entry?.path())?) {
            let id = event.request_id.as_ref().context("no id")?.as_raw();
            let session = seen.entry(event.session.clone()).or_default();
            session.push(id.parse().context("no number")?);
        }
    }
    assert!((5..=100).contains(&files), "{files} files");
    assert_eq!(seen.len(), HOSTS, "{:?}", seen.keys());
    for (session, mut ids) in seen {
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..CALLS), "{session}");
    }
    Ok(())
}

#[test]
fn vanished_folder_is_a_warning_and_the_loss_is_said_when_it_is_back() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let folder = serve.folder().join("events");
    fs::create_dir(&folder).context("making the folder")?;
    let file = folder.join("events.jsonl");
    let serve = serve.argument("--telemetry").argument(&file);
    let host = serve.misbehaving("honest")?.spawn()?;
    let client = host.client()?;
    client.call("1", "again", &json!({}))?;
    fs::remove_dir_all(&folder).context("removing the folder")?;
    client.call("2", "again", &json!({}))?;
    host.wait_for_line("mcp:warning reason=telemetry_failed")?;
    client.call("3", "again", &json!({}))?;
    fs::create_dir(&folder).context("making the folder again")?;
    client.call("4", "again", &json!({}))?;
    let kept = keep_folder(&folder)?;
    let (_, said) = host.finish()?;

    let events = kept.events()?;
    let dropped: u64 = events
        .iter()
        .map(|event| match event {
            Event::Dropped(dropped) => dropped.count,
            _ => 0,
        })
        .sum();
    assert!(dropped >= 1, "{events:#?}");
    request(&events, "4")?;
    let warnings = said.iter().filter(|line| line.contains("telemetry_failed"));
    assert_eq!(warnings.count(), 1, "{said:#?}");
    Ok(())
}

#[test]
fn full_disk_is_a_warning_and_leaves_whole_lines() -> anyhow::Result<()> {
    let (serve, file) = recording("")?;
    // Sixteen blocks of 512 or 1024 bytes, as the shell counts.
    let host = serve.file_blocks(16).misbehaving("honest")?.spawn()?;
    let client = host.client()?;
    let until = Instant::now() + Duration::from_secs(120);
    let mut calls = 0;
    while !host
        .stderr()
        .iter()
        .any(|line| line.contains("reason=telemetry_failed"))
    {
        ensure!(Instant::now() < until, "{:#?}", host.stderr());
        client.call(&calls.to_string(), "again", &json!({"n": calls}))?;
        calls += 1;
    }
    let answer = client.call("\"after\"", "again", &json!({"n": 1}))?;
    assert_eq!(answer.at("/result/structuredContent/n"), 1);
    let folder = keep(&file)?;
    let (_, said) = host.finish()?;
    let events = folder.events()?;
    let written = requests(&events).len();
    assert!(written < calls, "{written} of {calls}");
    // Whatever is not in the file is counted, in it or at the end in the log.
    let mut accounted = 0;
    for event in &events {
        accounted += match event {
            Event::Dropped(dropped) => usize::try_from(dropped.count)?,
            _ => 1,
        };
    }
    for line in &said {
        if let Some((_, rest)) = line.split_once("reason=telemetry_dropped count=") {
            let count = rest.split(' ').next().unwrap_or_default();
            accounted += count.parse::<usize>().context("no count")?;
        }
    }
    let requests = calls + 1;
    let (lives_of_workers, snapshots) = (3, requests.div_ceil(1000));
    assert_eq!(accounted, requests + lives_of_workers + snapshots);
    Ok(())
}

#[test]
fn file_that_cannot_be_written_is_told_at_the_start() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let absent = serve.folder().join("absent").join("events.jsonl");
    let refused = serve.argument("--telemetry").argument(&absent).refused()?;
    assert_eq!(refused.0, Some(2), "{}", refused.1);
    for part in [
        "cannot write telemetry to",
        "absent/events.jsonl",
        "set --telemetry, MAINSTAY_TELEMETRY",
    ] {
        assert!(refused.1.contains(part), "{part}: {}", refused.1);
    }
    let (code, said) = Serve::stdio()?
        .env("MAINSTAY_TELEMETRY", "/dev/full")
        .refused()?;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("not a regular file"), "{said}");
    Ok(())
}

#[test]
fn command_line_wins_over_the_environment_and_that_over_the_file() -> anyhow::Result<()> {
    for (name, with_option, with_variable) in [
        ("option", true, true),
        ("variable", false, true),
        ("key", false, false),
    ] {
        let folder = TempDir::new()?;
        let path = |name: &str| folder.join(&format!("{name}.jsonl"));
        let config = folder.join("config.toml");
        let text = format!("telemetry = {:?}\n", path("key").display().to_string());
        fs::write(&config, text).context("writing the configuration")?;
        let mut serve = Serve::stdio()?.argument("--config").argument(&config);
        if with_option {
            serve = serve.argument("--telemetry").argument(path("option"));
        }
        if with_variable {
            serve = serve.env("MAINSTAY_TELEMETRY", path("variable"));
        }
        let host = serve.misbehaving("honest")?.spawn()?;
        host.client()?.request("1", "ping", &json!({}))?;
        host.stop()?;
        for other in ["option", "variable", "key"] {
            assert_eq!(path(other).exists(), other == name, "{name}: {other}");
        }
        request(&events(&path(name))?, "1")?;
    }
    Ok(())
}

/// What outlives a host's folder: a second name of its event file.
struct Kept {
    folder: TempDir,
}

fn keep(file: &Path) -> anyhow::Result<Kept> {
    let folder = TempDir::new()?;
    let until = Instant::now() + Duration::from_secs(120);
    while fs::hard_link(file, folder.join("events.jsonl")).is_err() {
        ensure!(Instant::now() < until, "there is no {}", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Kept { folder })
}

fn keep_folder(folder: &Path) -> anyhow::Result<Kept> {
    keep(&folder.join("events.jsonl"))
}

impl Kept {
    fn text(&self) -> anyhow::Result<String> {
        fs::read_to_string(self.folder.join("events.jsonl")).context("reading the events")
    }

    fn events(&self) -> anyhow::Result<Vec<Event>> {
        events(&self.folder.join("events.jsonl"))
    }
}
