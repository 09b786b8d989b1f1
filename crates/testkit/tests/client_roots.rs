//! A host with one client searches what that client works on.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Running, Serve, TempDir, binary, kill};
use serde_json::{Value, json};

/// Every wait ends after this time.
const PATIENCE: Duration = Duration::from_secs(120);
/// Nothing comes in this time, so nothing will come.
const SILENCE: Duration = Duration::from_millis(500);
/// How long the host waits for roots.
const OVERDUE: Duration = Duration::from_secs(5);

const FIRST: &str = "\"io.mainstay/roots/1\"";
const SECOND: &str = "\"io.mainstay/roots/2\"";
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A project with one file that has this word.
fn project(folder: &TempDir, name: &str, word: &str) -> anyhow::Result<PathBuf> {
    let root = folder.join(name);
    write(&root, word)?;
    Ok(root.canonicalize()?)
}

fn write(root: &Path, word: &str) -> anyhow::Result<()> {
    fs::create_dir_all(root)?;
    fs::write(root.join("main.rs"), format!("fn {word}() {{}}\n"))?;
    Ok(())
}

/// A host whose working directory has the word `of_the_host`.
fn host(cache: &TempDir) -> anyhow::Result<Serve> {
    let serve = Serve::stdio()?
        .pack("code")
        .env("MAINSTAY_CACHE_DIR", cache.join("cache"));
    write(serve.folder(), "of_the_host")?;
    Ok(serve)
}

/// Opens a session that declares roots, and is asked for them.
fn asked(client: &Client) -> anyhow::Result<()> {
    client.open(&json!({ "roots": { "listChanged": true } }))?;
    question(client, FIRST)
}

fn question(client: &Client, id: &str) -> anyhow::Result<()> {
    let question = client.take("roots/list", |message| message.method().is_some())?;
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
    ensure!(question.text() == expected, "{question:?}");
    Ok(())
}

fn answer(client: &Client, id: &str, uris: &[String]) -> anyhow::Result<()> {
    let roots: Vec<Value> = uris.iter().map(|uri| json!({ "uri": uri })).collect();
    let result = json!({ "roots": roots });
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn search(word: &str) -> Value {
    json!({ "query": word, "kind": "literal" })
}

/// How many lines have the word.
fn hits(client: &Client, word: &str) -> anyhow::Result<Value> {
    let answer = client.call("1", "search", &search(word))?;
    let total = answer.at("/result/structuredContent/total/value");
    ensure!(total.is_number(), "{answer:?}");
    Ok(total)
}

fn expect(client: &Client, found: &str, not_found: &str) -> anyhow::Result<()> {
    let hits = (hits(client, found)?, hits(client, not_found)?);
    ensure!(
        hits == (json!(1), json!(0)),
        "{found}, {not_found}: {hits:?}"
    );
    Ok(())
}

fn wait_for(client: &Client, word: &str) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while hits(client, word)? != json!(1) {
        if Instant::now() >= until {
            bail!("{word} was not found within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn has_line(host: &Running, text: &str) -> bool {
    host.stderr().iter().any(|line| line.contains(text))
}

#[test]
fn the_first_search_sees_the_clients_project_and_not_the_hosts_folder() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let root = project(&folder, "a project 100%", "of_the_client")?;
    let running = host(&folder)?.spawn()?;
    let client = running.client()?;
    asked(client)?;
    let call = json!({ "name": "search", "arguments": search("of_the_client") });
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{call}}}"#
    ))?;
    client.silence(SILENCE)?;
    let pong = client.request("8", "ping", &json!({}))?;
    ensure!(pong.at("/result").is_object(), "{pong:?}");
    let escaped = uri(&root).replace('%', "%25").replace(' ', "%20");
    answer(client, FIRST, &[escaped])?;
    let found = client.answer("7")?;
    let total = found.at("/result/structuredContent/total/value");
    ensure!(total == 1, "{found:?}");
    expect(client, "of_the_client", "of_the_host")?;
    // It was started once, with the right workspace.
    ensure!(!has_line(&running, "mcp:rollout"), "{:?}", running.stderr());
    running.stop()
}

#[test]
fn roots_that_change_roll_the_pack_out_to_the_new_project() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let one = project(&folder, "one", "of_one")?;
    let two = project(&folder, "two", "of_two")?;
    let running = host(&folder)?.spawn()?;
    let client = running.client()?;
    asked(client)?;
    answer(client, FIRST, &[uri(&one)])?;
    expect(client, "of_one", "of_two")?;
    // While a question is open, one more change asks only once more, after it.
    client.send(CHANGED)?;
    question(client, SECOND)?;
    client.send(CHANGED)?;
    client.send(CHANGED)?;
    client.silence(SILENCE)?;
    answer(client, SECOND, &[uri(&two)])?;
    question(client, "\"io.mainstay/roots/3\"")?;
    answer(client, "\"io.mainstay/roots/3\"", &[uri(&two)])?;
    wait_for(client, "of_two")?;
    expect(client, "of_two", "of_one")?;
    client.silence(SILENCE)?;
    let rollouts = running
        .stderr()
        .iter()
        .filter(|line| line.contains("mcp:rollout pack=code"))
        .count();
    ensure!(rollouts == 1, "{:?}", running.stderr());
    ensure!(!has_line(&running, "mcp:warning"), "{:?}", running.stderr());
    // Without roots, the host's folder counts again; an error changes nothing.
    client.send(CHANGED)?;
    question(client, "\"io.mainstay/roots/4\"")?;
    answer(client, "\"io.mainstay/roots/4\"", &[])?;
    wait_for(client, "of_the_host")?;
    client.send(CHANGED)?;
    question(client, "\"io.mainstay/roots/5\"")?;
    client.send(
        r#"{"jsonrpc":"2.0","id":"io.mainstay/roots/5","error":{"code":-32603,"message":"x"}}"#,
    )?;
    running.wait_for_line("mcp:warning reason=no_roots")?;
    expect(client, "of_the_host", "of_two")?;
    running.stop()
}

#[test]
fn calls_also_wait_for_the_successor_of_a_worker_that_had_to_start_before() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let root = project(&folder, "project", "of_the_client")?;
    // What a pack offers that is not built in is known only from its worker.
    let program = binary("mainstay")?;
    let serve = Serve::stdio()?
        .pack(format!("code={} worker --pack code", program.display()))
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"));
    write(serve.folder(), "of_the_host")?;
    let running = serve.spawn()?;
    let client = running.client()?;
    asked(client)?;
    answer(client, FIRST, &[uri(&root)])?;
    expect(client, "of_the_client", "of_the_host")?;
    running.wait_for_line("mcp:rollout pack=code generation=2")?;
    running.stop()
}

#[test]
fn a_pack_that_refuses_the_clients_roots_serves_the_hosts_folder_also_after_a_loss()
-> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let root = project(&folder, "refused", "of_the_client")?;
    let script = folder.join("picky.sh");
    let program = binary("mainstay")?;
    fs::write(
        &script,
        format!(
            "IFS= read -r start\n\
             case \"$start\" in *{}*) echo '{{\"unable\":{{\"detail\":\"not there\"}}}}'; exit 2;; esac\n\
             {{ printf '%s\\n' \"$start\"; cat; }} | {} worker --pack code\n",
            root.display(),
            program.display()
        ),
    )?;
    let serve = Serve::stdio()?
        .pack(format!("code=sh {}", script.display()))
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"));
    write(serve.folder(), "of_the_host")?;
    let running = serve.spawn()?;
    let client = running.client()?;
    asked(client)?;
    answer(client, FIRST, &[uri(&root)])?;
    expect(client, "of_the_host", "of_the_client")?;
    running.wait_for_line("mcp:warning reason=rollout_failed pack=code")?;
    let shells = running.workers("sh");
    ensure!(!shells.is_empty(), "no worker");
    for pid in shells.into_iter().chain(running.workers("mainstay-worker")) {
        kill(pid);
    }
    running.wait_for_line("mcp:warning reason=worker_lost pack=code")?;
    expect(client, "of_the_host", "of_the_client")?;
    running.stop()
}

#[test]
fn a_host_with_a_root_of_its_own_never_asks() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let root = project(&folder, "named", "of_the_operator")?;
    let by_file = folder.join("host.toml");
    let path = root.display();
    fs::write(
        &by_file,
        format!("[[packs.code.settings.roots]]\npath = \"{path}\"\n"),
    )?;
    for (option, value) in [("--root", root), ("--config", by_file)] {
        let running = host(&folder)?.argument(option).argument(value).spawn()?;
        let client = running.client()?;
        client.open(&json!({ "roots": {} }))?;
        client.send(CHANGED)?;
        expect(client, "of_the_operator", "of_the_host")?;
        client.silence(SILENCE)?;
        running.stop()?;
    }
    Ok(())
}

#[test]
fn a_client_that_declares_no_roots_is_never_asked() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    for capabilities in [
        json!({}),
        json!({ "roots": null }),
        json!({ "sampling": {} }),
    ] {
        let running = host(&folder)?.spawn()?;
        let client = running.client()?;
        client.open(&capabilities)?;
        client.send(CHANGED)?;
        expect(client, "of_the_host", "of_the_client")?;
        client.silence(SILENCE)?;
        running.stop()?;
    }
    Ok(())
}

#[test]
fn a_modern_or_direct_client_is_never_asked() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "roots": {} },
    });
    let modern = json!({ "name": "search", "arguments": search("of_the_host"), "_meta": meta });
    for (method, params, total) in [
        (
            "tools/call",
            modern,
            "/result/structuredContent/total/value",
        ),
        ("search", search("of_the_host"), "/result/total/value"),
    ] {
        let running = host(&folder)?.spawn()?;
        let client = running.client()?;
        let found = client.request("1", method, &params)?;
        ensure!(found.at(total) == 1, "{method}: {found:?}");
        client.silence(SILENCE)?;
        running.stop()?;
    }
    Ok(())
}

#[test]
fn clients_of_a_socket_share_the_operators_workspace_and_are_not_asked() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let serve = Serve::socket()?
        .pack("code")
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"));
    write(serve.folder(), "of_the_host")?;
    let running = serve.spawn()?;
    let client = running.connect()?;
    client.open(&json!({ "roots": { "listChanged": true } }))?;
    client.send(CHANGED)?;
    expect(&client, "of_the_host", "of_the_client")?;
    client.silence(SILENCE)?;
    running.stop()
}

#[test]
fn without_an_answer_the_hosts_folder_counts_after_five_seconds() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let root = project(&folder, "late", "of_the_client")?;
    let running = host(&folder)?.spawn()?;
    let client = running.client()?;
    let start = Instant::now();
    asked(client)?;
    // Not answers to the question.
    answer(client, "1", &[uri(&root)])?;
    answer(client, "\"io.mainstay/roots/0\"", &[uri(&root)])?;
    expect(client, "of_the_host", "of_the_client")?;
    let waited = start.elapsed();
    ensure!(waited >= OVERDUE, "{waited:?}");
    running.wait_for_line("mcp:warning reason=no_roots \"no answer in time\"")?;
    // Nobody waits for it any more.
    answer(client, FIRST, &[uri(&root)])?;
    client.silence(SILENCE)?;
    expect(client, "of_the_host", "of_the_client")?;
    running.stop()
}

#[test]
fn a_handshake_that_never_ends_holds_calls_no_longer_than_an_answer_would() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let root = project(&folder, "project", "of_the_client")?;
    let running = host(&folder)?.spawn()?;
    let client = running.client()?;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "roots": {} },
        "clientInfo": { "name": "testkit", "version": "1.0.0" },
    });
    client.request("0", "initialize", &params)?;
    expect(client, "of_the_host", "of_the_client")?;
    // It can end later, and the pack moves then.
    client.send(INITIALIZED)?;
    question(client, FIRST)?;
    answer(client, FIRST, &[uri(&root)])?;
    wait_for(client, "of_the_client")?;
    running.stop()
}

#[test]
fn a_client_that_has_said_everything_is_answered_at_once() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let running = host(&folder)?.spawn()?;
    let client = running.client()?;
    asked(client)?;
    let call = json!({ "name": "search", "arguments": search("of_the_host") });
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{call}}}"#
    ))?;
    let (messages, said) = running.finish()?;
    let waited = said.iter().any(|line| line.contains("no answer in time"));
    ensure!(!waited, "{said:#?}");
    let found = messages.iter().find(|message| message.id() == Some("7"));
    let total = found.map(|found| found.at("/result/structuredContent/total/value"));
    ensure!(total == Some(json!(1)), "{messages:?}");
    Ok(())
}

#[test]
fn the_disk_the_home_directory_and_what_is_no_directory_are_ignored_in_one_line()
-> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let home = project(&folder, "home", "of_the_user")?;
    let root = project(&folder, "home/project", "of_the_client")?;
    let running = host(&folder)?.env("HOME", &home).spawn()?;
    let client = running.client()?;
    asked(client)?;
    let unusable = [
        "file:///".to_owned(),
        uri(&home),
        uri(&root.join("..")),
        uri(&root.join("main.rs")),
        uri(&root.join("no-such-folder")),
        "https://example.org/".to_owned(),
    ];
    answer(client, FIRST, &unusable)?;
    expect(client, "of_the_host", "of_the_client")?;
    running.wait_for_line("mcp:warning reason=roots_ignored ignored=6 used=0 \"file:///\"")?;
    client.send(CHANGED)?;
    question(client, SECOND)?;
    let all: Vec<String> = unusable.iter().cloned().chain([uri(&root)]).collect();
    answer(client, SECOND, &all)?;
    wait_for(client, "of_the_client")?;
    let warnings = running
        .stderr()
        .iter()
        .filter(|line| line.contains("mcp:warning"))
        .count();
    ensure!(warnings == 2, "{:?}", running.stderr());
    running.stop()
}
