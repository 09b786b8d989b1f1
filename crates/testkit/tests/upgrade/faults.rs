//! Upgrades while files, signals and clients are not as the host would like them.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request};
use mainstay_testkit::peer::request_line;
use mainstay_testkit::process::{Launch, Running, Serve, TempDir, binary};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    PATIENCE, build, operate, refused, shown, status, text, upgrade, wait_for_upgrades, wrapped,
};

/// Upgrades during which a signal is sent.
const ROUNDS: u64 = 12;

fn fifo(path: &Path) -> anyhow::Result<()> {
    let mode = Mode::from_raw_mode(0o755);
    mknodat(CWD, path, FileType::Fifo, mode, 0).context("making a FIFO")
}

fn wait_until(what: &str, is_so: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn lines_with(host: &Running, text: &str) -> usize {
    let lines = host.stderr();
    lines.iter().filter(|line| line.contains(text)).count()
}

/// Begins an upgrade and waits until the host is about to execute the new program.
fn begin_exec(host: &Running) -> anyhow::Result<()> {
    let before = lines_with(host, "mcp:upgrade from=");
    host.signal(Signal::USR2)?;
    let until = Instant::now() + PATIENCE;
    while lines_with(host, "mcp:upgrade from=") == before {
        ensure!(Instant::now() < until, "{:#?}", host.stderr());
        std::hint::spin_loop();
    }
    Ok(())
}

fn ledger(launch: &Launch) -> anyhow::Result<String> {
    let file = launch.folder().join("ledger.jsonl");
    Ok(format!(
        "ledger={} --file {}",
        shown(&binary("ledger")?),
        shown(&file)
    ))
}

#[test]
fn the_settings_of_the_start_stay_in_force_whatever_became_of_their_files() -> anyhow::Result<()> {
    let words = [shown(&binary("mainstay")?), "serve", "--config"].map(str::to_owned);
    let launch = Launch::new(words)?;
    let (config, token) = (
        launch.folder().join("config.toml"),
        launch.folder().join("token"),
    );
    let write_token = |text: &str| -> anyhow::Result<()> {
        let _ = std::fs::remove_file(&token);
        std::fs::write(&token, text)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        Ok(std::fs::set_permissions(&token, mode)?)
    };
    let good = format!(
        "name = \"first\"\nhttp = \"127.0.0.1:0\"\ntoken_file = {token:?}\nallow_host = [\"one.example\"]\n"
    );
    std::fs::write(&config, &good)?;
    write_token("the-first-token-of-all")?;
    let pack = ledger(&launch)?;
    let host = launch
        .words([shown(&config), "--pack", &pack])
        .spawn_http()?;
    let address = host.address()?;
    let asked = |token: &str, name: &str| -> anyhow::Result<u16> {
        let request = Request::new("GET", "/v1/tools")
            .header("Host", name)
            .header("Authorization", &format!("Bearer {token}"));
        Ok(Connection::open(address)?.ask(&request)?.status())
    };
    ensure!(asked("the-first-token-of-all", "one.example")? == 200);
    write_token("another-token-of-the-file")?;
    for changed in [
        // Half of the file, as an editor leaves it for a moment.
        Some("name = \"fir"),
        // Another host would be started from these.
        Some("name = \"second\"\nallow_host = [\"two.example\"]\ntelemetry = \"/absent/t\"\n"),
        Some("socket = \"/absent/s\"\n"),
        None,
    ] {
        match changed {
            Some(text) => std::fs::write(&config, text)?,
            None => {
                std::fs::remove_file(&config)?;
                std::fs::remove_file(&token)?;
            }
        }
        upgrade(&host, &[])?;
        assert_eq!(status(&host)?.get("name"), Some(&json!("first")));
        assert_eq!(asked("the-first-token-of-all", "one.example")?, 200);
        assert_eq!(asked("another-token-of-the-file", "one.example")?, 401);
        ensure!(asked("the-first-token-of-all", "two.example")? != 200);
    }
    // SIGHUP reads the file as it is now.
    host.signal(Signal::HUP)?;
    host.wait_for_line("config.toml")?;
    std::fs::write(&config, &good)?;
    host.signal(Signal::HUP)?;
    host.wait_for_line("mcp:config reread")?;
    host.stop()
}

#[test]
fn a_telemetry_file_that_cannot_be_opened_does_not_end_the_host() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?;
    let folder = serve.folder().join("events");
    let file = folder.join("events.jsonl");
    std::fs::create_dir(&folder)?;
    let host = serve.argument("--telemetry").argument(&file).spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    std::fs::remove_dir_all(&folder)?;
    upgrade(&host, &[])?;
    client.call("1", "get", &json!({}))?;
    host.wait_for_line("reason=telemetry_failed")?;
    std::fs::create_dir(&folder)?;
    client.call("2", "get", &json!({}))?;
    wait_until("events are written again", || Ok(file.exists()))?;
    host.stop()
}

#[test]
fn a_server_and_watched_files_that_are_gone_do_not_end_the_host() -> anyhow::Result<()> {
    let words = [shown(&binary("mainstay")?), "wrap", "--watch"].map(str::to_owned);
    let launch = Launch::new(words)?;
    let (program, watched) = (
        launch.folder().join("server"),
        launch.folder().join("watched"),
    );
    std::fs::copy(binary("mcp-fixture")?, &program)?;
    std::fs::write(&watched, "1")?;
    let host = launch
        .words([shown(&watched), "--", shown(&program)])
        .spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    std::fs::remove_file(&program)?;
    std::fs::remove_file(&watched)?;
    upgrade(&host, &[])?;
    client.call("1", "echo", &json!({"text": "x"}))?;
    std::fs::copy(binary("mcp-fixture")?, &program)?;
    std::fs::write(&watched, "two")?;
    host.wait_for_line("mcp:watch changed")?;
    host.finish().map(drop)
}

#[test]
fn a_fifo_in_the_place_of_a_program_is_not_waited_for() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let (program, effects) = (serve.folder().join("pack"), serve.ledger_file());
    std::fs::copy(binary("ledger")?, &program)?;
    let pack = format!("ledger={} --file {}", shown(&program), shown(&effects));
    let host = serve.pack(pack).spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    client.call("0", "get", &json!({}))?;
    let binary = host.folder().join("fifo");
    fifo(&binary)?;
    let reason = refused(&host, &[shown(&binary)])?;
    ensure!(reason.contains("it is not an executable file"), "{reason}");
    client.call("1", "get", &json!({}))?;
    std::fs::remove_file(&program)?;
    fifo(&program)?;
    let rolled = operate(&host, &["rollout"])?;
    ensure!(!rolled.status.success(), "{}", text(&rolled));
    client.call("2", "get", &json!({}))?;
    host.stop()
}

#[test]
fn a_signal_at_the_moment_of_the_exec_ends_the_host_well() -> anyhow::Result<()> {
    for round in 0..ROUNDS {
        let mut host = Serve::socket()?.ledger()?.spawn()?;
        let client = host.connect()?;
        client.open(&json!({}))?;
        let wait = json!({"name": "wait", "arguments": {"ms": 300, "steps": 1}});
        client.send(&request_line("\"w\"", "tools/call", &wait))?;
        begin_exec(&host)?;
        thread::sleep(Duration::from_micros(round * 400));
        host.terminate()?;
        let answer = client.answer("\"w\"")?;
        ensure!(answer.at("/result/isError") != true, "{answer:?}");
        drop(client);
        let ended = host.wait()?;
        ensure!(
            ended.success(),
            "round {round}: {ended}: {:#?}",
            host.stderr()
        );
        host.wait_for_line("mcp:shutdown")?;
        ensure!(
            lines_with(&host, "mcp:shutdown") == 1,
            "{:#?}",
            host.stderr()
        );
    }
    Ok(())
}

#[test]
fn a_hangup_at_the_moment_of_the_exec_is_not_lost() -> anyhow::Result<()> {
    let host = Serve::stdio()?.ledger()?.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    for round in 0..ROUNDS {
        let before = lines_with(&host, "mcp:config reread");
        begin_exec(&host)?;
        thread::sleep(Duration::from_millis(round));
        host.signal(Signal::HUP)?;
        let is_read = || Ok(lines_with(&host, "mcp:config reread") > before);
        wait_until("the configuration is read again", is_read)?;
        let count = usize::try_from(round)? + 1;
        wait_for_upgrades(&host, count)?;
    }
    host.stop()
}

/// The signals that a process blocks, as the kernel shows them.
fn blocked(pid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    line.map(|line| line.trim().to_owned())
}

#[test]
fn workers_and_servers_have_no_blocked_signals() -> anyhow::Result<()> {
    let packs = Serve::stdio()?.ledger()?.pack("asset").spawn()?;
    let hosts = [packs, wrapped(&[])?.spawn()?];
    for host in &hosts {
        host.client()?.open(&json!({}))?;
        for round in 0..2 {
            wait_until("a child has blocked signals", || {
                let mut children = host.family();
                children.retain(|pid| *pid != host.pid());
                let mut masks = children.iter().filter_map(|pid| blocked(*pid));
                Ok(!children.is_empty() && masks.all(|mask| mask.trim_matches('0').is_empty()))
            })?;
            // HUP, INT, USR2 and TERM.
            assert_eq!(blocked(host.pid()).as_deref(), Some("0000000000004803"));
            if round == 0 {
                upgrade(host, &[])?;
                let rolled = operate(host, &["rollout"])?;
                ensure!(rolled.status.success(), "{}", text(&rolled));
            }
        }
    }
    // A server that was replaced is reported to its client.
    hosts
        .into_iter()
        .try_for_each(|host| host.finish().map(drop))
}

#[test]
fn a_host_whose_exec_fails_continues_and_hears_signals() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?;
    let folder = serve.folder().to_owned();
    let host = serve.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    let half = request_line(
        "\"half\"",
        "tools/call",
        &json!({"name": "get", "arguments": {}}),
    );
    let (first, rest) = half.split_at(40);
    client.send_raw(first)?;
    // A shell as the new executable: it runs this file, which lets the real one prove what it can.
    let shell = folder.join("shell");
    std::fs::copy("/bin/sh", &shell)?;
    let mainstay = binary("mainstay")?;
    let prove = format!("exec {} upgrade-check \"$@\"\n", shown(&mainstay));
    for (at_the_second, said) in [
        ("exit 3", "exited with code 3"),
        ("chmod 644 shell", "the new executable cannot be executed"),
    ] {
        let script = format!("if [ -e proved ]; then {at_the_second}; fi\n: > proved\n{prove}");
        std::fs::write(folder.join("upgrade-check"), script)?;
        let reason = refused(&host, &[shown(&shell)])?;
        ensure!(reason.contains(said), "{reason}");
        std::fs::remove_file(folder.join("proved"))?;
    }
    client.send(rest)?;
    client.answer("\"half\"")?;
    host.signal(Signal::HUP)?;
    host.wait_for_line("mcp:config reread")?;
    host.signal(Signal::USR2)?;
    wait_for_upgrades(&host, 1)?;
    client.call("1", "get", &json!({}))?;
    host.stop()
}

#[test]
fn half_a_request_of_an_operator_does_not_refuse_the_upgrade() -> anyhow::Result<()> {
    let host = Serve::stdio()?.ledger()?.spawn()?;
    host.client()?.open(&json!({}))?;
    let name = format!("{}.sock", host.pid());
    let mut half = UnixStream::connect(host.folder().join("run").join(name))?;
    half.write_all(b"{\"par")?;
    upgrade(&host, &[])?;
    host.client()?.call("1", "get", &json!({}))?;
    host.stop()
}

#[test]
fn the_link_through_which_a_host_was_started_is_followed_anew() -> anyhow::Result<()> {
    let launch = Launch::new(Vec::<String>::new())?;
    let folder = launch.folder().to_owned();
    for version in ["1", "2"] {
        std::fs::create_dir(folder.join(version))?;
        build(&folder.join(version).join("mainstay"))?;
    }
    symlink("1/mainstay", folder.join("link"))?;
    let pack = ledger(&launch)?;
    let host = launch.words(["./link", "serve", "--pack", &pack]).spawn()?;
    host.client()?.open(&json!({}))?;
    symlink("2/mainstay", folder.join("next"))?;
    std::fs::rename(folder.join("next"), folder.join("link"))?;
    let runs = || std::fs::read_link(format!("/proc/{}/exe", host.pid()));
    upgrade(&host, &[])?;
    assert_eq!(runs()?, folder.join("2/mainstay"));
    std::fs::remove_dir_all(folder.join("1"))?;
    upgrade(&host, &[])?;
    // A file that is really called so.
    let odd = folder.join("mainstay (deleted)");
    build(&odd)?;
    upgrade(&host, &[shown(&odd)])?;
    upgrade(&host, &[])?;
    assert_eq!(runs()?, odd);
    host.client()?.call("1", "get", &json!({}))?;
    host.stop()
}

#[test]
fn a_client_that_does_not_send_or_read_is_named_and_ended_by_now() -> anyhow::Result<()> {
    let words = [shown(&binary("mainstay")?), "wrap", "--config"].map(str::to_owned);
    let launch = Launch::new(words)?;
    let config = launch.folder().join("server.toml");
    let fixture = binary("mcp-fixture")?;
    std::fs::write(
        &config,
        format!(
            "[servers.f]\ncommand = {fixture:?}\n[servers.f.mainstay.limits]\ndrain_ms = 1000\n"
        ),
    )?;
    let host = launch
        .words([shown(&config), "--http", "127.0.0.1:0"])
        .spawn_http()?;
    let address = host.address()?;
    let call = |tool: &str, arguments: &Value| {
        Request::to(address, "POST", &format!("/v1/tool/{tool}"))
            .header("Content-Type", "application/json")
            .body(json!({"arguments": arguments}).to_string())
            .bytes()
    };
    let half = call("sleep", &json!({"ms": 10}));
    let (half, _) = half.split_at(half.len() - 5);
    let big = call("big", &json!({"bytes": 15_000_000}));
    let sleep = call("sleep", &json!({"ms": 120_000}));
    for (request, named) in [
        (half, "POST /v1/tool/sleep from 127.0.0.1:"),
        (&big[..], "POST /v1/tool/big: tool big from 127.0.0.1:"),
        (
            &sleep[..],
            "POST /v1/tool/sleep: tool sleep from 127.0.0.1:",
        ),
    ] {
        let mut client = Connection::open(address)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(client.stream()?, 4096)?;
        client.send(request)?;
        // The host has read the request once it is refused for it.
        wait_until(named, || {
            let output = operate(&host, &["upgrade"])?;
            let said = text(&output);
            Ok(output.status.code() == Some(1) && said.contains(named))
        })?;
        // A host that reads a large result may be late with its status on a busy machine.
        wait_until("the upgrade", || {
            Ok(operate(&host, &["upgrade", "--now"])?.status.success())
        })?;
        drop(client);
    }
    let health = Request::to(address, "GET", "/healthz");
    ensure!(Connection::open(address)?.ask(&health)?.status() == 200);
    host.stop()
}

/// The mark before the versions of the state in an executable.
const MARK: &[u8] = b"mainstay-state-\0";

/// Writes executables that differ from the real one in one version each, with the name of that version.
fn other_versions(folder: &Path) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let mut bytes = std::fs::read(binary("mainstay")?)?;
    let marks: Vec<usize> = memchr::memmem::find_iter(&bytes, MARK).collect();
    let [mark] = marks.as_slice() else {
        anyhow::bail!("{} marks", marks.len());
    };
    let names = ["shell state", "core state", "worker protocol"];
    let written = (0..).zip(names).map(|(index, name)| {
        let at = mark + MARK.len() + 8 * index;
        let number = bytes.get_mut(at).context("no version")?;
        *number += 1;
        let path = folder.join(format!("version-{index}"));
        std::fs::write(&path, &bytes)?;
        if let Some(number) = bytes.get_mut(at) {
            *number -= 1;
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode)?;
        Ok((name, path))
    });
    written.collect()
}

#[test]
fn builds_with_another_state_version_are_refused_by_name_and_nothing_is_lost() -> anyhow::Result<()>
{
    let folder = TempDir::new()?;
    let others = other_versions(folder.path())?;
    let real = folder.path().join("mainstay");
    build(&real)?;
    let wait = json!({"name": "wait", "arguments": {"ms": 3000, "steps": 1}});
    // The real one meets others, and another meets the real one.
    let mut meetings: Vec<(&Path, Vec<(&str, &Path)>)> = Vec::new();
    for (name, other) in &others {
        meetings.push((other, vec![(*name, &real)]));
    }
    let all = others.iter().map(|(name, other)| (*name, other.as_path()));
    meetings.push((&real, all.collect()));
    for (program, others) in meetings {
        let launch = Launch::new([shown(program), "serve", "--pack"])?;
        let pack = ledger(&launch)?;
        let host = launch.words([pack]).spawn()?;
        let client = host.client()?;
        client.open(&json!({}))?;
        client.send(&request_line("\"running\"", "tools/call", &wait))?;
        for (name, other) in others {
            let reason = refused(&host, &[shown(other)])?;
            ensure!(reason.contains(&format!("{name} version")), "{reason}");
            ensure!(reason.contains("restart the host instead"), "{reason}");
            client.call(&format!("\"{name}\""), "get", &json!({}))?;
        }
        // A build with its own version is carried.
        upgrade(&host, &[])?;
        let answer = client.answer("\"running\"")?;
        ensure!(answer.at("/result/isError") != true, "{answer:?}");
        client.call("1", "get", &json!({}))?;
        host.stop()?;
    }
    Ok(())
}

/// Lets the real program read a state with a part that it does not know, as a newer build might save it.
const FORGE: &str = r#"
import fcntl, json, os, socket, subprocess, sys
program, part, *words = sys.argv[1:]
first, (state,), _, _ = socket.recv_fds(socket.socket(fileno=0), 64, 1)
os.lseek(state, 0, os.SEEK_SET)
header, core, shell, _ = open(state, "rb").read().split(b"\n")
core, shell = json.loads(core), json.loads(shell)
if part == "core":
    core["core"]["tasks"]["promises"] = [1]
else:
    shell["operators"]["promises"] = None
forged = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
with open(forged, "wb", closefd=False) as file:
    for line in (header, json.dumps(core).encode(), json.dumps(shell).encode()):
        file.write(line + b"\n")
fcntl.fcntl(forged, 1033, 15)
ours, theirs = socket.socketpair()
socket.send_fds(ours, [first], [forged])
sys.exit(subprocess.run([program, "upgrade-check", *words], stdin=theirs).returncode)
"#;

#[test]
fn a_build_that_would_drop_a_part_of_the_state_is_refused() -> anyhow::Result<()> {
    let python = Command::new("python3").arg("--version").output();
    if python.is_err() {
        println!("skipped: python3 is not installed");
        return Ok(());
    }
    let serve = Serve::stdio()?.ledger()?;
    let folder = serve.folder().to_owned();
    let host = serve.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    std::fs::write(folder.join("forge.py"), FORGE)?;
    let mainstay = binary("mainstay")?;
    for (part, named) in [
        ("core", "/core/tasks/promises"),
        ("shell", "/shell/operators/promises"),
    ] {
        // The shell runs the file of this name as it would run a new executable.
        let mainstay = shown(&mainstay);
        let script = format!("exec python3 forge.py {mainstay} {part} \"$@\"\n");
        std::fs::write(folder.join("upgrade-check"), script)?;
        let reason = refused(&host, &["/bin/sh"])?;
        ensure!(reason.contains(named), "{part}: {reason}");
        ensure!(reason.contains("restart the host instead"), "{reason}");
        client.call(&format!("\"{part}\""), "get", &json!({}))?;
    }
    upgrade(&host, &[])?;
    client.call("1", "get", &json!({}))?;
    host.stop()
}

/// The parent of a process and its state, as `/proc` shows them.
fn parent_and_state(pid: Pid) -> Option<(String, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit(')').next()?.split_whitespace();
    let state = rest.next()?.to_owned();
    Some((rest.next()?.to_owned(), state))
}

/// The process in which a new executable reads the state of a host, if one runs.
fn reader(host: &Running) -> Option<Pid> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let host = host.pid().to_string();
    let is_reader = |pid: &Pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent_and_state(*pid).is_some_and(|(parent, _)| parent == host)
            && words
                .split(|byte| *byte == 0)
                .any(|word| word == b"upgrade-check")
    };
    pids.filter_map(Pid::from_raw).find(is_reader)
}

/// Stops a process. False if it has ended.
fn is_stopped(pid: Pid) -> bool {
    if kill_process(pid, Signal::STOP).is_err() {
        return false;
    }
    loop {
        match parent_and_state(pid) {
            Some((_, state)) if state == "T" => return true,
            Some((_, state)) if state != "Z" => thread::yield_now(),
            _ => return false,
        }
    }
}

#[test]
fn an_answer_that_came_in_the_pause_is_not_late() -> anyhow::Result<()> {
    let limits = "call_timeout_ms = 5000";
    let host = Serve::socket()?.ledger()?.limits(limits)?.spawn()?;
    let client = host.connect()?;
    client.open(&json!({}))?;
    // A round counts if the host is seen in its pause before the deadline of the call.
    for round in 0..40 {
        let id = round.to_string();
        let slow = json!({"name": "append", "arguments": {"text": id, "pause_ms": 2000}});
        let began = Instant::now();
        client.send(&request_line(&id, "tools/call", &slow))?;
        host.signal(Signal::USR2)?;
        let (mut first, mut second) = (None, None);
        while second.is_none() && began.elapsed() < Duration::from_secs(4) {
            let seen = reader(&host);
            first = first.or(seen);
            // It reads what is handed over.
            second = seen.filter(|reader| Some(*reader) != first);
        }
        let paused = second.filter(|reader| is_stopped(*reader));
        if let Some(reader) = paused {
            thread::sleep(Duration::from_secs(6).saturating_sub(began.elapsed()));
            kill_process(reader, Signal::CONT)?;
        }
        let answer = client.answer(&id)?;
        if paused.is_some() {
            ensure!(answer.at("/result/isError") != true, "{answer:?}");
            return host.stop();
        }
        wait_until("an upgrade ends", || {
            let ended = ["mcp:upgraded from=", "reason=upgrade_refused"];
            let ended: usize = ended.iter().map(|text| lines_with(&host, text)).sum();
            Ok(ended > round)
        })?;
    }
    anyhow::bail!("the host was never seen in its pause")
}
