//! The Unix socket: whose it is, who may use it, and that its clients never meet.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Serve, TempDir};
use serde_json::json;

fn health(client: &Client, id: &str) -> anyhow::Result<()> {
    let answer = client.request(id, "system_health", &json!({}))?;
    ensure!(
        answer.at("/result/state").is_string(),
        "no health: {answer:?}"
    );
    Ok(())
}

#[test]
fn clients_with_equal_ids_never_get_each_others_answers() -> anyhow::Result<()> {
    const CALLS: usize = 10_000;
    const IN_FLIGHT: usize = 16;
    let host = Serve::socket()?.misbehaving("honest")?.spawn()?;
    thread::scope(|scope| {
        let clients = ["ada", "bob"].map(|name| {
            let client = host.connect();
            scope.spawn(move || -> anyhow::Result<()> {
                let client = client?;
                let send = |n: usize| {
                    client.send(&format!(
                        r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"again","arguments":{{"who":"{name}","n":{n}}}}}}}"#
                    ))
                };
                (0..IN_FLIGHT).try_for_each(send)?;
                let mut waiting: BTreeSet<usize> = (0..CALLS).collect();
                for next in IN_FLIGHT..CALLS + IN_FLIGHT {
                    let answer = client.next()?;
                    let content = answer.at("/result/structuredContent");
                    let id: usize = answer.id().context("no id")?.parse()?;
                    ensure!(content == json!({"who": name, "n": id}), "{name} got {answer:?}");
                    ensure!(waiting.remove(&id), "{id} was answered twice");
                    if next < CALLS {
                        send(next)?;
                    }
                }
                ensure!(client.finish()?.is_empty(), "something came after all answers");
                Ok(())
            })
        });
        clients
            .into_iter()
            .try_for_each(|client| match client.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    host.stop()
}

#[test]
fn socket_is_private_from_birth_whatever_the_umask() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.join("s");
    let serve = Serve::socket()?.at(&path).umask(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut modes = BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                modes.extend(mode(&path));
            }
            modes
        });
        let host = serve.spawn();
        done.store(true, Ordering::Relaxed);
        let mut seen = watcher.join().expect("the watcher does not panic");
        let host = host?;
        seen.extend(mode(&path));
        assert_eq!(seen, BTreeSet::from([0o600]), "modes seen: {seen:?}");
        assert!(fs::metadata(&path)?.file_type().is_socket());
        host.stop()
    })?;
    assert!(!path.exists(), "the socket is left behind");
    Ok(())
}

fn mode(path: &Path) -> Option<u32> {
    fs::metadata(path)
        .ok()
        .map(|meta| meta.permissions().mode() & 0o777)
}

#[test]
fn live_socket_is_never_stolen() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.join("s");
    let first = Serve::socket()?.at(&path).spawn()?;
    let client = first.connect()?;
    let (code, said) = Serve::socket()?.at(&path).refused()?;
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains(&*path.to_string_lossy()),
        "which socket? {said}"
    );
    health(&client, "1")?;
    health(&first.connect()?, "1")?;
    drop(client);
    first.stop()
}

#[test]
fn stale_socket_is_replaced() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.join("s");
    drop(UnixListener::bind(&path)?);
    assert!(UnixStream::connect(&path).is_err(), "nobody listens");
    let host = Serve::socket()?.at(&path).spawn()?;
    health(&host.connect()?, "1")?;
    host.stop()
}

#[test]
fn plain_file_at_the_socket_path_is_refused_and_kept() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.join("s");
    fs::write(&path, "precious")?;
    let (code, said) = Serve::socket()?.at(&path).refused()?;
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(fs::read_to_string(&path)?, "precious");
    Ok(())
}

#[test]
fn client_that_goes_away_harms_nobody_else() -> anyhow::Result<()> {
    let host = Serve::socket()?.misbehaving("honest")?.spawn()?;
    let stays = host.connect()?;
    for round in 0..50 {
        let goes = host.connect()?;
        goes.send(r#"{"jsonrpc":"2.0","id":1,"method":"again","params":{}}"#)?;
        goes.send_raw(*b"{\"jsonrpc\":\"2.0\",\"id\":2,")?;
        drop(goes);
        health(&stays, &round.to_string())?;
    }
    drop(stays);
    host.stop()
}

#[test]
fn lock_of_another_process_does_not_hold_up_a_host() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let held = fs::File::open(folder.path())?;
    held.lock()?;
    let path = folder.join("s");
    drop(UnixListener::bind(&path)?);
    let host = Serve::socket()?.at(&path).spawn()?;
    health(&host.connect()?, "1")?;
    host.stop()
}

#[test]
fn of_many_hosts_at_one_stale_socket_one_gets_it() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.join("s");
    drop(UnixListener::bind(&path)?);
    let mut hosts = Vec::new();
    for _ in 0..4 {
        let serve = Serve::socket()?.at(&path);
        let child = serve
            .command()?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        hosts.push((child, serve));
    }
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let mut refused = 0;
        for (child, _) in &mut hosts {
            let ended = child.try_wait()?;
            refused += usize::from(ended.is_some_and(|status| status.code() == Some(2)));
        }
        ensure!(refused < 4, "none got it");
        if refused == 3 {
            break;
        }
        ensure!(Instant::now() < until, "{refused} were refused");
        thread::sleep(Duration::from_millis(10));
    }
    let stream = UnixStream::connect(&path)?;
    let client = Client::new(stream.try_clone()?, stream);
    health(&client, "1")?;
    drop(client);
    let left: Vec<_> = fs::read_dir(folder.path())?.flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    for (child, _) in &mut hosts {
        let _ = child.kill();
        child.wait()?;
    }
    Ok(())
}

#[test]
fn idle_client_makes_way_when_descriptors_run_out() -> anyhow::Result<()> {
    let host = Serve::socket()?
        .misbehaving("slow")?
        .descriptors(48)
        .spawn()?;
    let busy = host.connect()?;
    busy.send(r#"{"jsonrpc":"2.0","id":1,"method":"once","params":{"ms":3000}}"#)?;
    busy.notification("notifications/progress")?;
    let idle: Vec<_> = (0..60)
        .map(|_| host.connect())
        .collect::<anyhow::Result<_>>()?;
    health(&host.connect()?, "1")?;
    let answer = busy.answer("1")?;
    ensure!(answer.at("/result/ms") == 3000, "{answer:?}");
    let warned = host.stderr();
    let warned = warned.iter().filter(|line| line.contains("accept_failed"));
    ensure!(warned.count() == 1, "{:?}", host.stderr());
    drop((idle, busy));
    host.stop()
}

#[test]
fn no_more_clients_are_served_than_the_limit_allows() -> anyhow::Result<()> {
    let host = Serve::socket()?.limits("connections = 3")?.spawn()?;
    let served = [host.connect()?, host.connect()?, host.connect()?];
    for client in &served {
        health(client, "1")?;
    }
    let refused = host.connect()?;
    ensure!(health(&refused, "1").is_err(), "it is closed");
    drop(served);
    host.stop()
}
