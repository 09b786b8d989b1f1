//! Packs that change on disk: rollouts of changed catalogs, executables that are held open, `serve --watch`.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_contract::tool::{Catalog, ToolSpec};
use mainstay_testkit::built::{bytes, catalog, install, tool};
use mainstay_testkit::http::{Connection, Event, Events, Request, Session, modern};
use mainstay_testkit::peer::{Client, Message, PATIENCE};
use mainstay_testkit::process::{Running, Serve, TempDir, binary};
use serde_json::{Value, json};

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// A pack whose builds are replaced on disk.
struct Pack {
    folder: TempDir,
}

impl Pack {
    fn new(first: &Catalog) -> anyhow::Result<Self> {
        let pack = Self {
            folder: TempDir::new()?,
        };
        pack.install(first)?;
        Ok(pack)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("pack")
    }

    fn install(&self, build: &Catalog) -> anyhow::Result<()> {
        install(&self.path(), build)
    }

    /// The pack as an argument of `--pack`.
    fn word(&self) -> String {
        format!("built={} built", self.path().display())
    }

    fn serve(&self) -> anyhow::Result<Serve> {
        Ok(Serve::stdio()?.pack(self.word()))
    }
}

/// `again` in some version and build; `member` must be of this type.
fn again(version: u32, build: &str, kind: &str) -> ToolSpec {
    ToolSpec {
        schema_version: version,
        input_schema: json!({"type": "object", "properties": {"n": {"type": kind}},
            "required": ["n"]}),
        ..tool("again", build)
    }
}

fn operate(host: &Running, arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new(binary("mainstay")?)
        .args(arguments)
        .env("MAINSTAY_RUNTIME_DIR", host.folder().join("run"))
        .output()
        .context("running mainstay")
}

fn text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr];
    both.map(|part| String::from_utf8_lossy(part)).concat()
}

/// Rolls out, and returns what the command printed.
fn rollout(host: &Running, reasons: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let reasons = reasons.iter().flat_map(|reason| ["--reason", reason]);
    let arguments: Vec<&str> = ["rollout"].into_iter().chain(reasons).collect();
    let output = operate(host, &arguments)?;
    Ok((output.status.code(), text(&output)))
}

fn build_of(answer: &Message) -> Value {
    answer.at("/result/structuredContent/build")
}

fn error_of(answer: &Message) -> anyhow::Result<Value> {
    ensure!(answer.at("/result/isError") == true, "{answer:?}");
    let text = answer.at("/result/content/0/text");
    serde_json::from_str(text.as_str().context("a text")?).context("an error")
}

fn tools(client: &Client, id: &str) -> anyhow::Result<Vec<String>> {
    let listed = client.request(id, "tools/list", &json!({}))?;
    let listed = listed.at("/result/tools");
    let listed = listed.as_array().context("a list")?;
    let names = listed.iter().filter_map(|tool| tool["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Ends a host whose client may not have read every notification.
fn end(host: Running) -> anyhow::Result<()> {
    host.finish().map(drop)
}

/// Ends the worker and waits until the call that did so is answered.
fn crash(client: &Client, id: &str) -> anyhow::Result<()> {
    let answer = client.call(id, "die", &json!({}))?;
    let error = error_of(&answer)?;
    let fault = error.get("fault").and_then(Value::as_str);
    ensure!(fault == Some("process"), "{answer:?}");
    Ok(())
}

#[test]
fn a_changed_catalog_is_rolled_out_and_announced() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([again(1, "one", "integer")]))?;
    let host = pack.serve()?.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    assert_eq!(
        build_of(&client.call("1", "again", &json!({"n": 1}))?),
        "one"
    );
    pack.install(&catalog([again(2, "two", "string"), tool("new", "two")]))?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "built: generation 2 serves",
        "  again: schemaVersion raised at /schemaVersion: 1 -> 2",
        "  again: type of an argument changed at /inputSchema/properties/n/type: \"integer\" -> \"string\"",
        "  new: tool added: {\"schemaVersion\":1}",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    client.notification(LIST_CHANGED)?;
    assert!(tools(client, "2")?.contains(&"new".to_owned()));
    let refused = client.call("3", "again", &json!({"n": 1}))?;
    assert_eq!(error_of(&refused)?["code"], "INVALID_REQUEST");
    assert_eq!(
        build_of(&client.call("4", "again", &json!({"n": "1"}))?),
        "two"
    );
    host.wait_for_line("mcp:catalog changed pack=built generation=2 new: tool added")?;
    end(host)
}

#[test]
fn a_change_without_a_bump_is_refused_with_its_differences() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([again(1, "one", "integer"), tool("old", "one")]))?;
    let host = pack.serve()?.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    pack.install(&catalog([again(1, "two", "string"), tool("old", "two")]))?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(1), "{said}");
    let change = "again: type of an argument changed at /inputSchema/properties/n/type: \
                  \"integer\" -> \"string\"; to do: raise schemaVersion of again from 1 to 2";
    assert!(said.contains(&format!("\n  {change}\n")), "{said}");
    assert!(said.contains("the workers before it go on"), "{said}");
    host.wait_for_line(&format!(
        "reason=change_refused pack=built generation=2 {change}"
    ))?;
    assert_eq!(
        build_of(&client.call("1", "again", &json!({"n": 1}))?),
        "one"
    );
    // The refused build is on disk; the successor of a crash is still the one that was accepted.
    crash(client, "2")?;
    assert_eq!(
        build_of(&client.call("3", "again", &json!({"n": 1}))?),
        "one"
    );

    // A tool may go only with a reason.
    pack.install(&catalog([again(2, "three", "string")]))?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("old: tool removed"), "{said}");
    let (code, said) = rollout(&host, &["old"])?;
    assert_eq!(code, Some(2), "a reason without a text: {said}");
    let (code, said) = rollout(&host, &["old: nothing used it"])?;
    assert_eq!(code, Some(0), "{said}");
    client.notification(LIST_CHANGED)?;
    assert_eq!(
        build_of(&client.call("4", "again", &json!({"n": "1"}))?),
        "three"
    );
    assert!(!tools(client, "5")?.contains(&"old".to_owned()));
    end(host)
}

#[test]
fn a_rebuild_takes_effect_by_rollout_and_not_by_a_crash() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([tool("again", "one")]))?;
    let host = pack.serve()?.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    pack.install(&catalog([tool("again", "two"), tool("new", "two")]))?;
    for round in ["1", "2"] {
        crash(client, round)?;
        let answer = client.call(&format!("1{round}"), "again", &json!({}))?;
        assert_eq!(build_of(&answer), "one", "{answer:?}");
    }
    // Nor does an upgrade of the host bring the new build.
    let upgraded = operate(&host, &["upgrade"])?;
    assert_eq!(upgraded.status.code(), Some(0), "{}", text(&upgraded));
    crash(client, "5")?;
    assert_eq!(build_of(&client.call("15", "again", &json!({}))?), "one");
    // Neither does a build that does not start, nor one that is gone.
    std::fs::write(pack.path().with_extension("next"), "no program")?;
    std::fs::rename(pack.path().with_extension("next"), pack.path())?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(1), "{said}");
    std::fs::remove_file(pack.path())?;
    crash(client, "3")?;
    assert_eq!(build_of(&client.call("13", "again", &json!({}))?), "one");
    pack.install(&catalog([tool("again", "two"), tool("new", "two")]))?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(0), "{said}");
    crash(client, "4")?;
    assert_eq!(build_of(&client.call("14", "again", &json!({}))?), "two");
    end(host)
}

/// A script runs from its path, so a crash may bring another catalog.
#[test]
fn after_a_crash_only_tools_without_their_bump_are_withdrawn() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([again(1, "one", "integer"), tool("other", "one")]))?;
    let script = pack.folder.join("script");
    let run = format!("#!/bin/sh\nexec {} built\n", pack.path().display());
    std::fs::write(&script, run)?;
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let host = Serve::stdio()?
        .pack(format!("built={}", script.display()))
        .spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    pack.install(&catalog([again(1, "two", "string"), tool("other", "two")]))?;
    crash(client, "1")?;
    client.notification(LIST_CHANGED)?;
    host.wait_for_line("reason=tool_unbumped pack=built tool=again withdrawn")?;
    assert_eq!(build_of(&client.call("2", "other", &json!({}))?), "two");
    assert!(!tools(client, "3")?.contains(&"again".to_owned()));
    let refused = error_of(&client.call("4", "again", &json!({"n": "1"}))?)?;
    assert_eq!(refused["code"], "FORBIDDEN", "{refused}");
    // The same once more is the same, and the former definition is as good as the higher version.
    crash(client, "5")?;
    let refused = error_of(&client.call("6", "again", &json!({"n": "1"}))?)?;
    assert_eq!(refused["code"], "FORBIDDEN", "{refused}");
    for (id, build) in [
        ("7", again(1, "three", "integer")),
        ("8", again(2, "four", "string")),
    ] {
        let argument = match build.schema_version {
            1 => json!({"n": 1}),
            _ => json!({"n": "1"}),
        };
        pack.install(&catalog([build.clone(), tool("other", "two")]))?;
        let (code, said) = rollout(&host, &[])?;
        assert_eq!(code, Some(0), "{said}");
        client.notification(LIST_CHANGED)?;
        let answer = client.call(id, "again", &argument)?;
        assert_eq!(build_of(&answer), build.tooling_version, "{answer:?}");
    }
    end(host)
}

#[test]
fn queued_calls_are_checked_again_and_running_ones_end_under_their_own_schema() -> anyhow::Result<()>
{
    let hold = |version, build: &str, output: Value| ToolSpec {
        schema_version: version,
        output_schema: Some(output),
        ..tool("hold", build)
    };
    let build = |kind: &str| json!({"type": "object", "properties": {"build": {"const": kind}}});
    let pack = Pack::new(&catalog([
        again(1, "one", "integer"),
        hold(1, "one", build("one")),
        tool("gone", "one"),
        tool("same", "one"),
    ]))?;
    let host = pack.serve()?.limits("pool = 1")?.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    tools(client, "0")?;
    let go = pack.folder.join("go");
    let call = |id: &str, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        client.send(&line.to_string())
    };
    call("held", "hold", json!({"until": go}))?;
    call("bad", "again", json!({"n": 1}))?;
    call("gone", "gone", json!({}))?;
    call("same", "same", json!({}))?;
    call("held too", "hold", json!({"until": "/"}))?;
    // All five are accepted once a request behind them is answered.
    client.request("1", "ping", &json!({}))?;
    pack.install(&catalog([
        again(2, "two", "string"),
        hold(2, "two", build("two")),
        tool("same", "one"),
    ]))?;
    let (code, said) = rollout(&host, &["gone: a test"])?;
    assert_eq!(code, Some(0), "{said}");
    let bad = error_of(&client.answer("\"bad\"")?)?;
    assert_eq!(bad["code"], "INVALID_REQUEST", "{bad}");
    let gone = client.answer("\"gone\"")?;
    assert!(gone.text().contains("there is no tool gone"), "{gone:?}");
    assert_eq!(build_of(&client.answer("\"same\"")?), "one");
    assert_eq!(build_of(&client.answer("\"held too\"")?), "two");
    // The incumbent still has its call, and its answer fits the schema of its own build.
    std::fs::write(go, "")?;
    let held = client.answer("\"held\"")?;
    assert_eq!(build_of(&held), "one", "{held:?}");
    end(host)
}

#[test]
fn a_modern_subscription_hears_of_the_lists_that_it_asked_for() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([tool("again", "one")]))?;
    let host = pack.serve()?.spawn()?;
    let client = host.client()?;
    let listen = |id: &str, wanted: Value| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let params = json!({"_meta": meta, "notifications": wanted});
        let method = "subscriptions/listen";
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        client.send(&line.to_string())?;
        client.notification("notifications/subscriptions/acknowledged")
    };
    let granted = listen("hears", json!({"toolsListChanged": true}))?;
    assert_eq!(
        granted.at("/params/notifications"),
        json!({"toolsListChanged": true})
    );
    let granted = listen("other", json!({"promptsListChanged": true}))?;
    assert_eq!(
        granted.at("/params/notifications"),
        json!({"promptsListChanged": true})
    );
    pack.install(&catalog([tool("again", "one"), tool("new", "two")]))?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(0), "{said}");
    let told = client.notification(LIST_CHANGED)?;
    let id = told.at("/params/_meta/io.modelcontextprotocol~1subscriptionId");
    assert_eq!(id, "hears", "{told:?}");
    let (rest, _) = host.finish()?;
    let twice = rest.iter().any(|line| line.text().contains("list_changed"));
    assert!(!twice, "{rest:?}");
    Ok(())
}

/// Waits on a stream of events for a changed list. Sends once the stream is sure to get it.
fn hear(
    address: SocketAddr,
    request: &Request,
    is_ready: impl Fn(&Event) -> bool + Send + 'static,
) -> anyhow::Result<(Receiver<()>, JoinHandle<anyhow::Result<Event>>)> {
    let mut connection = Connection::open(address)?;
    connection.send(&request.bytes())?;
    let (head, mut framing) = connection.head()?;
    ensure!(head.is_stream(), "{head:?}");
    let (ready, waits) = sync_channel(1);
    let heard = spawn(move || {
        let mut reader = Events::default();
        while let Some(piece) = connection.piece(&mut framing)? {
            for event in reader.push(&piece) {
                if is_ready(&event) {
                    ready.send(())?;
                }
                if event.data.contains(LIST_CHANGED) {
                    return Ok(event);
                }
            }
        }
        anyhow::bail!("the stream ended")
    });
    Ok((waits, heard))
}

#[test]
fn sessions_and_subscriptions_over_http_hear_of_a_changed_list() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([tool("again", "one")]))?;
    let host = Serve::http()?.pack(pack.word()).spawn()?;
    let address = host.address()?;
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern(address, "\"s\"", "subscriptions/listen", &wanted);
    let acknowledged = |event: &Event| event.data.contains("subscriptions/acknowledged");
    let (ready, subscription) = hear(address, &listen, acknowledged)?;
    ready.recv_timeout(PATIENCE)?;
    let session = Session::open(address)?;
    let (_, stream) = hear(address, &session.get(), |_| false)?;
    pack.install(&catalog([tool("again", "one"), tool("new", "two")]))?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(0), "{said}");
    for heard in [subscription, stream] {
        let heard = heard.join();
        let heard = heard.map_err(|_| anyhow::anyhow!("a reader panicked"))?;
        heard.context("no list_changed")?;
    }
    let answer = session.call("1", "new", &json!({}))?;
    let build = answer.pointer("/result/structuredContent/build");
    assert_eq!(build, Some(&json!("two")), "{answer}");
    end(host)
}

#[test]
fn a_lock_that_was_written_again_is_in_force_from_the_next_rollout() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([again(1, "one", "integer"), tool("old", "one")]))?;
    let lock = pack.folder.join("lock.json");
    let write = |arguments: &[&str]| -> anyhow::Result<()> {
        let output = Command::new(binary("mainstay")?)
            .args(["lock", "write", "--packs-only", "--pack", &pack.word()])
            .arg("--file")
            .arg(&lock)
            .args(arguments)
            .output()?;
        ensure!(output.status.success(), "{}", text(&output));
        Ok(())
    };
    write(&[])?;
    let host = pack.serve()?.argument("--lock").argument(&lock).spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    pack.install(&catalog([again(2, "two", "string"), tool("old", "two")]))?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(0), "{said}");
    client.notification(LIST_CHANGED)?;
    // It has its bump, and nobody has looked at it.
    host.wait_for_line("reason=tool_changed pack=built tool=again withdrawn")?;
    assert!(!tools(client, "1")?.contains(&"again".to_owned()));
    write(&[])?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(0), "{said}");
    client.notification(LIST_CHANGED)?;
    assert_eq!(
        build_of(&client.call("2", "again", &json!({"n": "1"}))?),
        "two"
    );
    // The lock has the reason, so the rollout needs none.
    pack.install(&catalog([again(2, "three", "string")]))?;
    write(&["--reason", "old: nothing used it"])?;
    let (code, said) = rollout(&host, &[])?;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("old: tool removed"), "{said}");
    assert!(!said.contains("to do"), "{said}");
    assert_eq!(
        build_of(&client.call("3", "again", &json!({"n": "1"}))?),
        "three"
    );
    end(host)
}

#[test]
fn a_watched_pack_is_rolled_out_when_its_build_is_whole() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([tool("again", "one")]))?;
    let host = pack.serve()?.argument("--watch").spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    assert_eq!(build_of(&client.call("1", "again", &json!({}))?), "one");
    pack.install(&catalog([tool("again", "two")]))?;
    host.wait_for_line("mcp:rollout pack=built generation=2")?;
    assert_eq!(build_of(&client.call("2", "again", &json!({}))?), "two");

    // A build that does not start does no harm.
    std::fs::remove_file(pack.path())?;
    write_program(&pack.path())?.write_all(b"\x7fELF and nothing more")?;
    host.wait_for_line("reason=rollout_failed pack=built")?;
    assert_eq!(build_of(&client.call("3", "again", &json!({}))?), "two");

    // Neither does one that is still being written, and it serves once it is whole.
    std::fs::remove_file(pack.path())?;
    let whole = bytes(&catalog([tool("again", "three")]))?;
    let (half, rest) = whole.split_at(whole.len() / 2);
    let mut file = write_program(&pack.path())?;
    let failures = failures_of(&host);
    file.write_all(half)?;
    failed_again(&host, failures)?;
    assert_eq!(build_of(&client.call("4", "again", &json!({}))?), "two");
    // It is whole, and cannot run while the linker has it open.
    let failures = failures_of(&host);
    file.write_all(rest)?;
    file.flush()?;
    let deadline = Instant::now() + PATIENCE;
    while failures_of(&host) == failures && !rolled_out(&host, "built", 3) {
        ensure!(Instant::now() < deadline, "{:?}", host.stderr());
        sleep(Duration::from_millis(20));
    }
    drop(file);
    until_build(client, "three")?;
    end(host)
}

/// True once the pack has this generation or a later one by rollouts.
fn rolled_out(host: &Running, pack: &str, generation: u64) -> bool {
    let before = format!("mcp:rollout pack={pack} generation=");
    let generations = host.stderr().into_iter().filter_map(|line| {
        let (_, number) = line.split_once(&before)?;
        number.trim().parse::<u64>().ok()
    });
    generations.max().is_some_and(|last| last >= generation)
}

/// `cargo clean`, then `cargo build`.
#[test]
fn a_watched_pack_is_rolled_out_after_its_directory_was_made_again() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let target = folder.join("target");
    let build = |name: &str| -> anyhow::Result<()> {
        std::fs::create_dir_all(target.join("debug"))?;
        install(&target.join("debug/mine"), &catalog([tool("again", name)]))
    };
    build("one")?;
    let program = target.join("debug/mine");
    let host = Serve::stdio()?
        .pack(format!("built={} built", program.display()))
        .argument("--watch")
        .spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    assert_eq!(build_of(&client.call("1", "again", &json!({}))?), "one");
    std::fs::remove_dir_all(&target)?;
    // Longer than the host waits for quiet: it looks once while nothing is there.
    sleep(Duration::from_secs(1));
    build("two")?;
    until_build(client, "two")?;
    std::fs::rename(&target, folder.join("old"))?;
    build("three")?;
    until_build(client, "three")?;
    build("four")?;
    until_build(client, "four")?;
    end(host)
}

#[test]
fn a_watched_pack_is_rolled_out_when_a_link_on_its_way_leads_elsewhere() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let link = |release: &str| -> anyhow::Result<()> {
        std::os::unix::fs::symlink(release, folder.join("next"))?;
        Ok(std::fs::rename(
            folder.join("next"),
            folder.join("current"),
        )?)
    };
    for release in ["one", "two"] {
        let bin = folder.join(release).join("bin");
        std::fs::create_dir_all(&bin)?;
        install(&bin.join("mine"), &catalog([tool("again", release)]))?;
    }
    link("one")?;
    let program = folder.join("current/bin/mine");
    let host = Serve::stdio()?
        .pack(format!("built={} built", program.display()))
        .argument("--watch")
        .spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    assert_eq!(build_of(&client.call("1", "again", &json!({}))?), "one");
    link("two")?;
    until_build(client, "two")?;
    end(host)
}

#[test]
fn a_build_that_lands_during_an_upgrade_is_rolled_out_after_it() -> anyhow::Result<()> {
    let pack = Pack::new(&catalog([tool("again", "one")]))?;
    let host = pack.serve()?.argument("--watch").spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    assert_eq!(build_of(&client.call("1", "again", &json!({}))?), "one");
    pack.install(&catalog([tool("again", "two")]))?;
    // Events without a change keep the host from a rollout until the other program has taken over.
    let is_over = AtomicBool::new(false);
    let upgraded = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(OpenOptions::new().append(true).open(pack.path()));
                sleep(Duration::from_millis(20));
            }
        });
        let upgraded = operate(&host, &["upgrade"]);
        is_over.store(true, Ordering::Relaxed);
        upgraded
    })?;
    assert_eq!(upgraded.status.code(), Some(0), "{}", text(&upgraded));
    until_build(client, "two")?;
    end(host)
}

fn failures_of(host: &Running) -> usize {
    let lines = host.stderr();
    let failed = |line: &&String| line.contains("reason=rollout_failed pack=built");
    lines.iter().filter(failed).count()
}

/// Waits until one more rollout has failed.
fn failed_again(host: &Running, before: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while failures_of(host) == before {
        ensure!(Instant::now() < deadline, "{:?}", host.stderr());
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Opens a program for writing, as a linker does.
fn write_program(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o755);
    options.open(path).context("creating a program")
}

/// Calls until this build answers.
fn until_build(client: &Client, build: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for id in 100.. {
        let answer = client.call(&id.to_string(), "again", &json!({}))?;
        if build_of(&answer) == build {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{answer:?}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn watched_assets_are_read_again_when_they_change() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let schema = |name: &str| {
        let text = json!({"$id": format!("https://example.com/{name}"), "type": "object"});
        // Names that begin with a dot are not watched.
        std::fs::write(folder.join(".next"), text.to_string())?;
        let path = folder.join(&format!("{name}.schema.json"));
        std::fs::rename(folder.join(".next"), path)
    };
    schema("first")?;
    let host = Serve::stdio()?
        .pack("asset")
        .env("SYN_SCHEMAS_DIR", folder.path())
        .argument("--watch")
        .spawn()?;
    let client = host.client()?;
    let opened = client.open(&json!({}))?;
    let declared = opened.at("/result/capabilities/resources/listChanged");
    assert_eq!(declared, true, "{opened:?}");
    host.wait_for_line("mcp:ready")?;
    schema("second")?;
    client.notification("notifications/resources/list_changed")?;
    host.wait_for_line("mcp:rollout pack=asset generation=2")?;
    let listed = client.call("1", "list_schemas", &json!({}))?;
    assert!(listed.text().contains("second"), "{listed:?}");
    // A file that cannot be used keeps no other from being read.
    std::fs::create_dir(folder.join("below"))?;
    std::fs::write(folder.join("below/broken.schema.json"), "{")?;
    host.wait_for_line("mcp:rollout pack=asset generation=3")?;
    let listed = client.call("2", "list_schemas", &json!({}))?;
    assert!(listed.text().contains("second"), "{listed:?}");
    end(host)
}

#[test]
fn a_watch_without_files_is_refused() -> anyhow::Result<()> {
    let (code, said) = Serve::stdio()?.pack("code").argument("--watch").refused()?;
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("none of the packs has files to watch"),
        "{said}"
    );
    Ok(())
}
