//! Process trees, with real processes on every rung: whatever is killed, nothing is left.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::{Client, PATIENCE};
use mainstay_testkit::process::{MARKER, Running, Serve, binary, leftovers};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Nothing of a tree may be alive this long after its host was killed; the tree itself would live longer.
const GONE_WITHIN: Duration = Duration::from_secs(60);
/// The rungs, and how health calls them.
const RUNGS: [(&str, &str); 2] = [("subreaper", "subreaper"), ("namespace", "pid_namespace")];

/// Runs a test on each rung. Without the rights of an administrator there are no PID namespaces
/// to test; that is said.
fn on_every_rung(test: impl Fn(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for (rung, _) in RUNGS {
        if rung == "namespace" && !rustix::process::geteuid().is_root() {
            let said = "skipped: PID namespaces need the rights of an administrator";
            writeln!(std::io::stderr(), "{said}")?;
            continue;
        }
        test(rung).with_context(|| format!("on the rung {rung}"))?;
    }
    Ok(())
}

fn serve(rung: &str, limits: &str) -> anyhow::Result<Serve> {
    let serve = Serve::stdio()?;
    let config = serve.folder().join("trees.toml");
    fs::write(
        &config,
        format!("tree_kill = \"{rung}\"\n[limits]\n{limits}"),
    )?;
    Ok(serve.argument("--config").argument(config))
}

fn host(rung: &str, mode: &str) -> anyhow::Result<Running> {
    serve(rung, "")?.misbehaving(mode)?.spawn()
}

/// What health says about the only worker.
fn health(client: &Client) -> anyhow::Result<Value> {
    let answer = client.call("\"health\"", "system_health", &json!({}))?;
    Ok(answer.at("/result/structuredContent/workers/0"))
}

/// The worker's process, once it is ready.
fn worker(client: &Client) -> anyhow::Result<u32> {
    eventually("a worker that is ready", || {
        let health = health(client)?;
        let ready = health.get("state").is_some_and(|state| state == "ready");
        let pid = health.get("pid").and_then(Value::as_u64).filter(|_| ready);
        Ok(pid.map(u32::try_from).transpose()?)
    })
}

fn eventually<T>(
    what: &str,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(Instant::now() < until, "there never was {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("a process has a number")?;
    Ok(kill_process(pid, signal)?)
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Those of the family whose command line contains `text`.
fn called(host: &Running, text: &str) -> Vec<u32> {
    let mut family = host.family();
    family.retain(|pid| command_line(*pid).contains(text));
    family
}

/// Makes the worker fork its daemon, and finds it.
fn daemon(host: &Running, client: &Client) -> anyhow::Result<u32> {
    client.call("\"fork\"", "again", &json!({}))?;
    eventually("a daemon", || Ok(called(host, "sleep 1000").pop()))
}

fn gone(pid: u32, within: Duration) -> anyhow::Result<()> {
    let since = Instant::now();
    while fs::exists(format!("/proc/{pid}"))? {
        ensure!(
            since.elapsed() < within,
            "{pid} is alive: {}",
            command_line(pid)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Kills the host and checks that nothing of it is left in time.
fn nothing_survives(mut host: Running) -> anyhow::Result<()> {
    let environment = fs::read(format!("/proc/{}/environ", host.pid()))?;
    let environment = String::from_utf8(environment)?;
    let marker = environment
        .split('\0')
        .find_map(|variable| variable.strip_prefix(MARKER)?.strip_prefix('='))
        .context("the host has a marker")?;
    host.signal(Signal::KILL)?;
    leftovers(MARKER, marker, GONE_WITHIN)?;
    ensure!(host.wait()?.code().is_none(), "the host was not killed");
    Ok(())
}

#[test]
fn health_says_how_trees_are_killed_and_which_process_is_the_worker() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = host(rung, "honest")?;
        let client = host.client()?;
        let pid = worker(client)?;
        let (_, said) = RUNGS
            .iter()
            .find(|(name, _)| *name == rung)
            .context("known")?;
        assert_eq!(health(client)?["tree_kill"], *said);
        let line = command_line(pid);
        assert!(
            line.contains("misbehaving-worker honest") && !line.contains("mainstay-shim"),
            "{line}"
        );
        host.stop()
    })
}

#[test]
fn built_in_worker_runs_unchanged_on_every_rung() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = serve(rung, "")?.pack("asset").spawn()?;
        let client = host.client()?;
        let pid = worker(client)?;
        // Its build is checked against the host's when it becomes ready.
        let health = health(client)?;
        assert!(
            !health["build"]
                .as_str()
                .unwrap_or("unknown")
                .contains("unknown")
        );
        assert!(
            command_line(pid).contains("worker --pack asset"),
            "{}",
            command_line(pid)
        );
        client.call("1", "list_schemas", &json!({}))?;
        host.stop()
    })
}

#[test]
fn killed_host_leaves_nothing_not_even_a_daemon() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        for mode in ["fork-daemon", "ignore-term", "honest"] {
            let host = host(rung, mode)?;
            let client = host.client()?;
            worker(client)?;
            if mode == "fork-daemon" {
                for _ in 0..3 {
                    daemon(&host, client)?;
                }
            }
            nothing_survives(host).context(mode)?;
        }
        Ok(())
    })
}

#[test]
fn host_killed_while_its_worker_starts_leaves_nothing() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        for delay in [0, 1, 2, 3, 5, 8] {
            let host = host(rung, "ignore-term")?;
            host.wait_for_line("mcp:ready")?;
            std::thread::sleep(Duration::from_millis(delay));
            nothing_survives(host)?;
        }
        Ok(())
    })
}

#[test]
fn killed_worker_takes_its_daemon_along_and_the_session_lives() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = host(rung, "fork-daemon")?;
        let client = host.client()?;
        let pid = worker(client)?;
        let daemon = daemon(&host, client)?;
        kill(pid, Signal::KILL)?;
        gone(daemon, GONE_WITHIN)?;
        let answer = client.call("2", "again", &json!({"n": 2}))?;
        assert_eq!(answer.at("/result/structuredContent/n"), 2, "{answer:?}");
        let fault = health(client)?["last_fault"].clone();
        assert_eq!(fault["class"], "process", "{fault}");
        let detail = fault["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("killed by signal 9"), "{fault}");
        host.stop()
    })
}

#[test]
fn stopped_host_leaves_nothing() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = host(rung, "fork-daemon")?;
        daemon(&host, host.client()?)?;
        let since = Instant::now();
        host.stop()?;
        ensure!(
            since.elapsed() < GONE_WITHIN,
            "it took {:?}",
            since.elapsed()
        );
        Ok(())
    })
}

#[test]
fn worker_that_ignores_every_request_to_end_is_killed_after_the_grace() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = serve(rung, "grace_ms = 200\ndrain_ms = 600000\n")?
            .misbehaving("ignore-term")?
            .spawn()?;
        worker(host.client()?)?;
        let since = Instant::now();
        host.stop()?;
        let took = since.elapsed();
        // It may leave by itself for one grace, then it has another after TERM.
        ensure!(took >= Duration::from_millis(400), "no grace: {took:?}");
        Ok(())
    })
}

#[test]
fn timeout_leaves_no_process_of_the_worker() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let limits = "call_timeout_ms = 100\ngrace_ms = 100\nbackoff_min_ms = 0\n";
        let host = serve(rung, limits)?.misbehaving("ignore-term")?.spawn()?;
        let client = host.client()?;
        let pid = worker(client)?;
        let answer = client.call("1", "once", &json!({}))?;
        let text = answer.at("/result/content/0/text").to_string();
        assert!(text.contains("TOOL_TIMEOUT"), "{answer:?}");
        gone(pid, GONE_WITHIN)?;
        assert_ne!(worker(client)?, pid);
        host.stop()
    })
}

#[test]
fn killed_shim_leaves_nothing_and_the_session_lives() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = host(rung, "fork-daemon")?;
        let client = host.client()?;
        let stages = if rung == "namespace" { 2 } else { 1 };
        for stage in 0..stages {
            let pid = worker(client)?;
            let daemon = daemon(&host, client)?;
            let shims = called(&host, "mainstay-shim");
            assert_eq!(shims.len(), stages, "{shims:?}");
            kill(*shims.get(stage).context("a shim")?, Signal::KILL)?;
            gone(daemon, GONE_WITHIN)?;
            gone(pid, GONE_WITHIN)?;
            let id = format!("\"after {stage}\"");
            let answer = client.call(&id, "again", &json!({"n": stage}))?;
            assert_eq!(
                answer.at("/result/structuredContent/n"),
                stage,
                "{answer:?}"
            );
        }
        host.stop()
    })
}

#[test]
fn killing_that_fails_is_told_once_and_stands_in_health() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = serve(rung, "grace_ms = 100\n")?
            .misbehaving("fork-daemon")?
            .spawn()?;
        let client = host.client()?;
        let pid = worker(client)?;
        let daemon = daemon(&host, client)?;
        // A shim that does nothing any more: neither kills nor reaps.
        for shim in called(&host, "mainstay-shim") {
            kill(shim, Signal::STOP)?;
        }
        kill(pid, Signal::KILL)?;
        let line = host.wait_for_line("reason=kill_failed")?;
        assert!(line.contains("process fault in generation 1"), "{line}");
        let fault = eventually("a fault in health", || {
            let fault = health(client)?["last_fault"].clone();
            let detail = fault["detail"].as_str().unwrap_or_default();
            Ok(detail.contains("is still there").then_some(fault))
        })?;
        assert_eq!(fault["class"], "process", "{fault}");
        // Then the host does without the shim.
        gone(daemon, PATIENCE)?;
        let answer = client.call("2", "again", &json!({}))?;
        assert!(
            answer.at("/result/structuredContent").is_object(),
            "{answer:?}"
        );
        let (_, stderr) = host.finish()?;
        let told = stderr.iter().filter(|line| line.contains("kill_failed"));
        assert_eq!(told.count(), 1, "{stderr:?}");
        Ok(())
    })
}

#[test]
fn worker_that_forks_all_the_time_is_killed_as_a_whole() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        // Eight daemons that fork children which fork, for as long as they live.
        let worker_program = binary("misbehaving-worker")?;
        let serve = serve(rung, "")?;
        let script = serve.folder().join("storm.sh");
        let daemon = "setsid sh -c 'while :; do (sleep 0.05 & sleep 0.01) & wait; done' \
                      </dev/null >/dev/null 2>&1 &";
        let lines: String = std::iter::repeat_n(format!("{daemon}\n"), 8).collect();
        fs::write(
            &script,
            format!("{lines}exec {} honest\n", worker_program.display()),
        )?;
        let host = serve.pack(format!("bad=sh {}", script.display())).spawn()?;
        let client = host.client()?;
        let pid = worker(client)?;
        eventually("a storm", || Ok((host.family().len() > 20).then_some(())))?;
        kill(pid, Signal::KILL)?;
        client.call("1", "again", &json!({}))?;
        nothing_survives(host)
    })
}

#[test]
fn no_zombie_is_kept_while_the_worker_lives() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let serve = serve(rung, "")?;
        let script = serve.folder().join("orphans.sh");
        let worker_program = binary("misbehaving-worker")?;
        let orphans = "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'exit 3' &); done";
        fs::write(
            &script,
            format!("{orphans}\nexec {} honest\n", worker_program.display()),
        )?;
        let host = serve.pack(format!("bad=sh {}", script.display())).spawn()?;
        worker(host.client()?)?;
        let shims = called(&host, "mainstay-shim");
        eventually("a moment without zombies", || {
            let zombies = fs::read_dir("/proc")?.flatten().filter(|entry| {
                let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                let rest = stat.rsplit_once(") Z ").map(|(_, rest)| rest.to_owned());
                let parent = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
                parent.is_some_and(|parent: u32| shims.contains(&parent))
            });
            Ok((zombies.count() == 0).then_some(()))
        })?;
        host.stop()
    })
}

#[test]
fn worker_that_cannot_be_started_is_a_fault_that_names_it() -> anyhow::Result<()> {
    on_every_rung(|rung| {
        let host = serve(rung, "")?.pack("bad=./absent-program").spawn()?;
        let line = host.wait_for_line("reason=worker_lost")?;
        assert!(
            line.contains("./absent-program") && line.contains("os error 2"),
            "{line}"
        );
        host.stop()
    })
}
