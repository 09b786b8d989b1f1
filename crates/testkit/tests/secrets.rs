//! Secrets that a configuration names: who gets them, where they never appear, and what renews them.

#![allow(
    clippy::indexing_slicing,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Launch, Running, binary, program};
use rustix::process::Signal;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);
/// Processes of the server that print the secret and crash with it.
const CRASHES: usize = 50;
const VALUE: &str = "s3cr3t/Value+of=odd&signs";
const OTHER: &str = "0ne.more:With_some@marks";

/// A server in a shell: `show` answers with the secret, `crash` ends with it, and everything prints it.
const SERVER: &str = r#"
leak() { cat "$LEAKS" >&2; }
say() { printf '%s\n' "$1"; }
leak
while IFS= read -r line; do
  case "$line" in *'"id":'*) ;; *) continue ;; esac
  id=${line#*'"id":'}; id=${id%%[,\}]*}
  case "$line" in
  *'"method":"initialize"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{},\"logging\":{}},\"serverInfo\":{\"name\":\"leaky\",\"version\":\"1\"}}}" ;;
  *'"method":"tools/list"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"tools\":[{\"name\":\"show\",\"inputSchema\":{\"type\":\"object\"}},{\"name\":\"fail\",\"inputSchema\":{\"type\":\"object\"}},{\"name\":\"crash\",\"inputSchema\":{\"type\":\"object\"}}]}}" ;;
  *'"name":"show"'*)
    leak
    say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"error\",\"data\":{\"key\":\"$K\"}}}"
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"is $K and ${ABSENT:-nothing else}\"}],\"structuredContent\":{\"key\":\"$K\"}}}" ;;
  *'"name":"fail"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32001,\"message\":\"refused with $K\",\"data\":\"$K\"}}" ;;
  *'"name":"crash"'*) leak; printf 'fatal: %s\n' "$K" >&2; exit 3 ;;
  *) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{}}" ;;
  esac
done
"#;

/// The secret as careless programs print it.
fn forms(value: &str) -> Vec<String> {
    let percent = |all: bool| {
        let encoded = |byte: u8| match byte.is_ascii_alphanumeric() && !all {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        value.bytes().map(encoded).collect::<String>()
    };
    let quoted = value.replace('/', "\\/");
    let escaped = value.chars().map(|c| format!("\\u{:04x}", u32::from(c)));
    vec![
        value.to_owned(),
        percent(false),
        percent(true),
        quoted,
        escaped.collect(),
        base64(value),
        base64(&format!("user:{value}")),
        base64(&format!("me:{value}!")),
        // In the colours of a terminal.
        format!(
            "\u{1b}[1m{}\u{1b}[0;31m{}\u{1b}[0m",
            &value[..12],
            &value[12..]
        ),
    ]
}

fn base64(text: &str) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let sum = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..=chunk.len() {
            encoded.push(char::from(digits[(sum >> (18 - 6 * at) & 63) as usize]));
        }
    }
    encoded
}

/// Pieces of which none may be shown: the beginning of every form, without what is next to it.
fn pieces(value: &str) -> Vec<String> {
    let forms = forms(value).into_iter();
    let mut pieces: Vec<String> = forms
        .map(|form| form.chars().skip(8).take(10).collect())
        .collect();
    pieces.push(value[..8].to_owned());
    pieces
}

fn write_secret(path: &Path, value: &str) -> anyhow::Result<()> {
    fs::write(path, format!("# of the tests\nkey={value}\n"))?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o600),
    )?)
}

/// A host of the leaky server, and of another one that does not name the secret.
fn launch(words: &[&str], settings: &Value) -> anyhow::Result<Launch> {
    let launch = Launch::new([binary("mainstay")?])?.words(words);
    let folder = launch.folder().to_owned();
    fs::write(folder.join("server.sh"), SERVER)?;
    // The last one is cut in the middle of the value.
    let mut leaks = forms(VALUE);
    leaks.extend(forms(OTHER));
    let at_the_cut = (4060..4096).map(|length| format!("{}{VALUE}", "-".repeat(length)));
    leaks.extend(at_the_cut);
    fs::write(folder.join("leaks"), leaks.join("\n") + "\n")?;
    write_secret(&folder.join("values"), VALUE)?;
    let patient = json!({"restarts": 1_000_000, "restart_period_ms": 1000, "backoff_min_ms": 0,
        "backoff_max_ms": 0, "repeated_failures": 0});
    let mut ours = json!({"limits": patient});
    for (key, value) in settings.as_object().into_iter().flatten() {
        ours[key] = value.clone();
    }
    let server =
        |env: Value| json!({"command": "sh", "args": ["server.sh"], "env": env, "mainstay": ours});
    let leaks = folder.join("leaks");
    let file = json!({
        "mainstay": {"secrets": {"file": folder.join("values")}},
        "mcpServers": {
            "leaky": server(json!({"K": "${secret:key}", "LEAKS": leaks})),
            "other": server(json!({"LEAKS": "/dev/null"})),
        },
    });
    fs::write(folder.join("servers.json"), file.to_string())?;
    Ok(launch)
}

fn shown(client: &Client, id: &str, tool: &str) -> anyhow::Result<String> {
    Ok(client.call(id, tool, &json!({}))?.text().to_owned())
}

fn ensure_hidden(what: &str, text: &str, value: &str) -> anyhow::Result<()> {
    for piece in pieces(value) {
        let at = text.find(&piece);
        let around = at.map(|at| text.get(at.saturating_sub(200)..at + 60));
        ensure!(at.is_none(), "{what} shows {piece:?}: {around:?}");
    }
    Ok(())
}

#[test]
fn a_server_that_prints_a_secret_and_crashes_with_it_never_shows_it() -> anyhow::Result<()> {
    let options = "--telemetry events --log debug --audit audit --audit-anchor anchor";
    let wrap = format!("wrap --config servers.json --server leaky {options}");
    let serve = format!("serve --config servers.json {options}");
    for (words, prefix) in [(&wrap, ""), (&serve, "leaky__")] {
        let words: Vec<&str> = words.split(' ').collect();
        let settings = match prefix {
            "" => json!({"system_tools": true}),
            _ => json!({}),
        };
        let running = launch(&words, &settings)?.spawn()?;
        let folder = running.folder().to_owned();
        let client = running.client()?;
        client.open(&json!({}))?;
        client.request("\"list\"", "tools/list", &json!({}))?;
        let mut seen = String::new();
        for number in 0..CRASHES {
            seen += &shown(client, &format!("1{number}"), &format!("{prefix}crash"))?;
            // A client may name the value, too: as a tool, and in arguments.
            let named = json!({"name": format!("{prefix}{VALUE}"), "arguments": {"key": VALUE}});
            client.request(&format!("4{number}"), "tools/call", &named)?;
            let argument = json!({"key": VALUE});
            client.call(&format!("5{number}"), &format!("{prefix}show"), &argument)?;
            for (kind, tool) in [("2", "system_health"), ("3", "system_telemetry")] {
                seen += &shown(client, &format!("{kind}{number}"), tool)?;
            }
        }
        ensure!(
            seen.contains("[redacted]"),
            "faults quote the server: {seen}"
        );
        let status = Command::new(binary("mainstay")?)
            .args(["status", "--json"])
            .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
            .output()?;
        seen += &String::from_utf8_lossy(&status.stdout);
        ensure_hidden("health, a fault or the status", &seen, VALUE)?;
        let events = fs::read_to_string(folder.join("events"))?;
        ensure!(events.contains("worker_lost"), "{events}");
        ensure_hidden("telemetry", &events, VALUE)?;
        let cache = Command::new("grep")
            .arg("-rF")
            .arg(&VALUE[..12])
            .arg(folder.join("cache"))
            .output()?;
        ensure!(cache.stdout.is_empty(), "the cache has it: {cache:?}");
        let audit = fs::read_to_string(folder.join("audit"))?;
        let ended = audit.lines().filter(|line| line.contains("call.ended"));
        ensure!(ended.count() >= 2 * CRASHES, "{audit}");
        ensure_hidden("the audit file", &audit, VALUE)?;
        let anchor = fs::read_to_string(folder.join("anchor"))?;
        ensure_hidden("the anchor", &anchor, VALUE)?;
        let (messages, stderr) = running.finish()?;
        drop(messages);
        let log = stderr.join("\n");
        ensure!(log.contains("[redacted]"), "{log}");
        ensure_hidden("the log", &log, VALUE)?;
    }
    Ok(())
}

#[test]
fn only_the_server_that_names_a_secret_gets_it_and_nothing_else_has_it() -> anyhow::Result<()> {
    let running = launch(&["serve", "--config", "servers.json"], &json!({}))?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.request("\"list\"", "tools/list", &json!({}))?;
    let said = shown(client, "1", "leaky__show")?;
    ensure!(said.contains(VALUE), "results are as they are: {said}");
    let said = shown(client, "2", "other__show")?;
    ensure!(!said.contains(VALUE), "{said}");
    let mut have = 0;
    for pid in running.family() {
        let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let has = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains(VALUE);
        ensure!(!has(read("cmdline")), "{pid} has it in its arguments");
        have += usize::from(has(read("environ")));
    }
    // The shim and the server; a shim is not readable for others of its user.
    ensure!((1..=2).contains(&have), "{have} processes have it");
    // What is left are the messages that the servers log to their client.
    running.finish()?;
    Ok(())
}

#[test]
fn servers_with_sources_of_their_own_get_their_own_values() -> anyhow::Result<()> {
    let launch = launch(&["serve", "--config", "servers.json"], &json!({}))?;
    let folder = launch.folder().to_owned();
    write_secret(&folder.join("others"), OTHER)?;
    let file = fs::read_to_string(folder.join("servers.json"))?;
    let mut file: Value = serde_json::from_str(&file)?;
    // The same name in three sources, one of which is that of the file.
    let env = json!({"K": "${secret:key}", "LEAKS": "/dev/null"});
    let with = |source: Option<&str>| {
        let secrets = source.map(|source| json!({"file": folder.join(source)}));
        let ours = secrets.map_or_else(|| json!({}), |secrets| json!({ "secrets": secrets }));
        json!({"command": "sh", "args": ["server.sh"], "env": env, "mainstay": ours})
    };
    file["mcpServers"] =
        json!({"first": with(None), "second": with(Some("others")), "third": with(Some("values"))});
    fs::write(folder.join("servers.json"), file.to_string())?;
    let running = launch.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.request("\"list\"", "tools/list", &json!({}))?;
    for (server, own, other) in [
        ("first", VALUE, OTHER),
        ("second", OTHER, VALUE),
        ("third", VALUE, OTHER),
    ] {
        let said = shown(client, "1", &format!("{server}__show"))?;
        ensure!(
            said.contains(own) && !said.contains(other),
            "{server}: {said}"
        );
    }
    running.finish()?;
    Ok(())
}

#[test]
fn redact_results_takes_the_secret_out_of_all_that_the_server_says() -> anyhow::Result<()> {
    let words = ["wrap", "--config", "servers.json", "--server", "leaky"];
    let running = launch(&words, &json!({"redact_results": true}))?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let said = shown(client, "1", "show")?;
    ensure!(said.contains("is [redacted] and nothing else"), "{said}");
    ensure!(
        said.contains(r#""structuredContent":{"key":"[redacted]"}"#),
        "{said}"
    );
    let said = shown(client, "2", "fail")?;
    ensure!(said.contains("refused with [redacted]"), "{said}");
    let (messages, _) = running.finish()?;
    for message in messages {
        ensure_hidden("a message", message.text(), VALUE)?;
    }
    Ok(())
}

fn until_shown(client: &Client, prefix: &str, value: &str) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    for number in 0.. {
        let said = shown(
            client,
            &format!("\"{value}{number}\""),
            &format!("{prefix}show"),
        )?;
        if said.contains(value) {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn upgrade(host: &Running) -> anyhow::Result<()> {
    let output = Command::new(binary("mainstay")?)
        .args(["upgrade", "--name", "keeper"])
        .env("MAINSTAY_RUNTIME_DIR", host.folder().join("run"))
        .output()?;
    ensure!(output.status.success(), "{output:?}: {:#?}", host.stderr());
    Ok(())
}

#[test]
fn a_value_is_read_again_at_sighup_and_survives_an_upgrade() -> anyhow::Result<()> {
    let wrap = "wrap --config servers.json --server leaky --name keeper";
    let serve = "serve --config servers.json --name keeper";
    for (words, prefix) in [(wrap, ""), (serve, "leaky__")] {
        let words: Vec<&str> = words.split(' ').collect();
        let running = launch(&words, &json!({}))?.spawn()?;
        let values = running.folder().join("values");
        let client = running.client()?;
        client.open(&json!({}))?;
        client.request("\"list\"", "tools/list", &json!({}))?;
        ensure!(shown(client, "1", &format!("{prefix}show"))?.contains(VALUE));
        // Without the file: the program that continues the host gets what was read.
        fs::remove_file(&values)?;
        upgrade(&running)?;
        shown(client, "2", &format!("{prefix}crash"))?;
        until_shown(client, prefix, VALUE)?;
        running.signal(Signal::HUP)?;
        let refused = running.wait_for_line("mcp:error reason=config_refused")?;
        ensure!(refused.contains("the secret key"), "{refused}");
        write_secret(&values, OTHER)?;
        running.signal(Signal::HUP)?;
        until_shown(client, prefix, OTHER)?;
        upgrade(&running)?;
        shown(client, "3", &format!("{prefix}crash"))?;
        until_shown(client, prefix, OTHER)?;
        let (_, stderr) = running.finish()?;
        let log = stderr.join("\n");
        ensure_hidden("the log", &log, VALUE)?;
        ensure_hidden(
            "the log",
            &log[log.find("config changed").unwrap_or_default()..],
            OTHER,
        )?;
    }
    Ok(())
}

#[test]
fn the_secret_service_of_a_desktop_is_asked() -> anyhow::Result<()> {
    let none = Path::new("/nonexistent");
    for needed in ["dbus-run-session", "gnome-keyring-daemon", "secret-tool"] {
        if program(needed, none).is_none() {
            println!("skipped: {needed} is not installed");
            return Ok(());
        }
    }
    let script = "printf 'password\\n' | gnome-keyring-daemon --unlock --components=secrets > /dev/null; \
        printf %s \"$STORED\" | secret-tool store --label=key service mainstay name key; \
        exec \"$0\" wrap --config servers.json --server leaky";
    let words = ["dbus-run-session", "--", "sh", "-c", script];
    let launch = launch(&[], &json!({}))?;
    let folder = launch.folder().to_owned();
    let file = fs::read_to_string(folder.join("servers.json"))?;
    let mut file: Value = serde_json::from_str(&file)?;
    file["mainstay"]["secrets"] = json!({"service": true});
    fs::write(folder.join("servers.json"), file.to_string())?;
    let session = Launch::new(words)?.words([binary("mainstay")?]);
    for name in ["servers.json", "server.sh"] {
        fs::copy(folder.join(name), session.folder().join(name))?;
    }
    let home = session.folder().to_owned();
    let session = session
        .env("HOME", &home)
        .env("XDG_RUNTIME_DIR", &home)
        .env("STORED", VALUE);
    let running = session.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    ensure!(shown(client, "1", "show")?.contains(VALUE));
    running.finish()?;
    Ok(())
}

#[test]
fn a_reference_in_an_argument_or_without_a_value_is_refused() -> anyhow::Result<()> {
    for (entry, said) in [
        (
            json!({"command": "sh", "args": ["${secret:key}"]}),
            "visible to every user",
        ),
        (json!({"command": "${secret:key}"}), "visible to every user"),
        (
            json!({"url": "https://h/?k=${secret:key}"}),
            "visible to every user",
        ),
        (
            json!({"command": "sh", "env": {"K": "${secret:none}"}}),
            "the secret none",
        ),
    ] {
        for words in [
            vec!["wrap", "--config", "servers.json"],
            vec!["serve", "--config", "servers.json"],
        ] {
            let launch = launch(&words, &json!({}))?;
            let file = launch.folder().join("servers.json");
            let values = launch.folder().join("values");
            let text =
                json!({"mainstay": {"secrets": {"file": values}}, "mcpServers": {"a": entry}});
            fs::write(&file, text.to_string())?;
            let output = launch
                .command()?
                .stdin(std::process::Stdio::null())
                .output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(
                output.status.code() == Some(2) && stderr.contains(said),
                "{stderr}"
            );
            ensure!(!stderr.contains(VALUE), "{stderr}");
        }
    }
    Ok(())
}
