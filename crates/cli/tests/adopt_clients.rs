//! What is adopted really runs, and the pages about clients say what really happens.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use mainstay_testkit::peer::Client;
use mainstay_testkit::process::TempDir;
use serde_json::{Value, json};

const MAINSTAY: &str = env!("CARGO_BIN_EXE_mainstay");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A folder with an installed mainstay.
fn installed() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let program = folder.join("mainstay");
    symlink(MAINSTAY, &program).unwrap();
    (folder, program)
}

fn adopt(arguments: &[&Path], words: &[&str]) {
    let output = Command::new(MAINSTAY)
        .arg("adopt")
        .args(arguments)
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// Starts a server as clients do: its command from the file, with few variables of their own.
fn start(entry: &Value, folder: &TempDir) -> (Child, Client) {
    let mut child = Command::new(entry["command"].as_str().unwrap())
        .args(
            entry["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| arg.as_str().unwrap()),
        )
        .env_clear()
        .env("PATH", folder.path())
        .env("TMPDIR", folder.path())
        .envs(
            entry["env"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (name, value.as_str().unwrap())),
        )
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let client = Client::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    (child, client)
}

fn status(folder: &TempDir, pid: u32) -> Value {
    // As in a shell: with a runtime folder that the client did not pass on.
    let output = Command::new(MAINSTAY)
        .args(["status", "--json", "--pid", &pid.to_string()])
        .env_remove("MAINSTAY_RUNTIME_DIR")
        .env("XDG_RUNTIME_DIR", folder.join("runtime"))
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let hosts: Value = serde_json::from_slice(&output.stdout).unwrap();
    hosts[0].clone()
}

#[test]
fn an_adopted_server_opens_a_session_and_survives_its_own_death() {
    let (folder, program) = installed();
    let schemas = repository().join("examples/assets/jsonschema");
    let file = folder.join("mcp.json");
    let before = json!({"mcpServers": {"assets": {
        "command": program, "args": ["serve", "--pack", "asset"],
        "env": {"SYN_SCHEMAS_DIR": schemas, "MCP_READY_FILE": folder.join("ready")},
    }}});
    fs::write(&file, format!("{before:#}\n")).unwrap();
    adopt(&[&file, Path::new("--binary"), &program], &[]);
    let after: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let entry = &after["mcpServers"]["assets"];
    assert_eq!(
        entry["args"].as_array().unwrap()[..5],
        [
            json!("wrap"),
            json!("--name"),
            json!("assets"),
            json!("--"),
            json!(program)
        ]
    );

    let (mut child, client) = start(entry, &folder);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let opened = client.request("1", "initialize", &params).unwrap();
    assert!(
        opened.value()["result"]["serverInfo"].is_object(),
        "{opened:?}"
    );
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .unwrap();
    let call = |id: &str| {
        let answer = client.call(id, "list_schemas", &json!({})).unwrap();
        let answer = answer.value();
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["structuredContent"]["schemas"].clone()
    };
    let first = call("2");
    assert_eq!(first[0]["name"], "colour");

    let seen = status(&folder, child.id());
    assert_eq!(seen["name"], "assets", "the name in the client's file");
    assert_eq!(seen["health"]["restart_count"], 0, "{seen}");
    let server = seen["health"]["workers"][0]["pid"].as_u64().unwrap();
    let server = rustix::process::Pid::from_raw(i32::try_from(server).unwrap()).unwrap();
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    assert_eq!(call("3"), first, "in the same session");
    assert_eq!(status(&folder, child.id())["health"]["restart_count"], 1);

    client.close();
    assert!(child.wait().unwrap().success());
    adopt(&[&file], &["--undo"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{before:#}\n"));
}

#[test]
fn variables_that_a_server_is_given_do_not_keep_it_from_being_wrapped() {
    let folder = TempDir::new().unwrap();
    let output = Command::new(MAINSTAY)
        .args(["wrap", "--lazy", "--", "sh"])
        .env("MCP_ENDPOINT", "wss://example.com/mcp")
        .env("SYN_SCHEMAS_DIR", "/nowhere")
        .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// The fenced blocks of a page: what stands behind the fence, and the content.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let content: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((info.to_owned(), content.join("\n") + "\n"));
        }
    }
    blocks
}

fn page(name: &str) -> String {
    fs::read_to_string(repository().join("docs").join(name)).unwrap()
}

#[test]
fn the_pages_of_clients_show_what_adopt_does() {
    /// Where the pages have mainstay.
    const SHOWN: &str = "/usr/local/bin/mainstay";
    let folder = repository().join("docs/clients");
    let mut pages = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let blocks = blocks(&fs::read_to_string(&path).unwrap());
        let mut pairs = 0;
        for (index, (info, before)) in blocks.iter().enumerate() {
            let Some((kind, _)) = info.split_once(" before") else {
                continue;
            };
            let (next, after) = &blocks[index + 1];
            assert_eq!(*next, format!("{kind} after"), "{name}");
            let (folder, program) = installed();
            let ending = if kind == "toml" { "toml" } else { "json" };
            let file = folder.join(&format!("file.{ending}"));
            fs::write(&file, before).unwrap();
            adopt(&[&file, Path::new("--binary"), &program], &[]);
            let adopted = fs::read_to_string(&file).unwrap();
            let program = program.to_str().unwrap();
            assert_eq!(adopted.replace(program, SHOWN), *after, "{name}");
            fs::write(&file, after).unwrap();
            adopt(&[&file], &["--undo"]);
            assert_eq!(fs::read_to_string(&file).unwrap(), *before, "{name}");
            pairs += 1;
        }
        assert!(pairs > 0, "{name} shows no file before and after");
        pages += 1;
    }
    assert_eq!(pages, 5);
}

#[test]
fn the_page_about_wrap_has_every_option_and_every_key() {
    let page = page("wrap.md");
    check_options(&page, &["wrap"]);
    // Unknown keys are refused with all that are known.
    let folder = TempDir::new().unwrap();
    let mut keys = Vec::new();
    for rules in [
        json!({"?": 1}),
        json!({"tools": {"t": {"?": 1}}}),
        json!({"tools": {"t": {"probe": {"?": 1}}}}),
        json!({"tools": {"t": {"probe": {"tool": "p", "applied": {"?": 1}}}}}),
    ] {
        let file = folder.join("a.json");
        let config = json!({"mcpServers": {"a": {"command": "x", "mainstay": rules}}});
        fs::write(&file, config.to_string()).unwrap();
        let output = Command::new(MAINSTAY)
            .args(["wrap", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        keys.extend(expected_keys(&output));
    }
    assert!(keys.len() > 35, "{keys:?}");
    check_keys(&page, &keys);
}

/// Every option in the help of a command must be on its page.
fn check_options(page: &str, command: &[&str]) {
    let help = Command::new(MAINSTAY).args(command).arg("--help").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let options: Vec<&str> = words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .collect();
    assert!(options.len() > 3, "{help}");
    for option in options {
        let shown = ["`", " ", "]"].map(|end| format!("`{option}{end}"));
        let is_shown = shown.iter().any(|option| page.contains(option));
        assert!(
            is_shown,
            "{option} of mainstay {command:?} is not described"
        );
    }
}

/// The known keys in the error about an unknown one.
fn expected_keys(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, known) = said
        .split_once("expected")
        .unwrap_or_else(|| panic!("{said}"));
    known
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn check_keys(page: &str, keys: &[String]) {
    for key in keys {
        assert!(page.contains(&format!("`{key}`")), "{key} is not described");
    }
}

#[test]
fn the_page_about_configuration_has_every_option_and_every_key() {
    let page = page("configuration.md");
    for command in ["serve", "call", "tools", "validate"] {
        check_options(&page, &[command]);
    }
    let folder = TempDir::new().unwrap();
    let mut keys = Vec::new();
    for text in ["x-y = 1", "[roots]\nx-y = 1", "[packs.ledger]\nx-y = 1"] {
        let file = folder.join("mainstay.toml");
        fs::write(&file, text).unwrap();
        let output = Command::new(MAINSTAY)
            .args(["serve", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        keys.extend(expected_keys(&output));
    }
    assert!(keys.len() > 20, "{keys:?}");
    check_keys(&page, &keys);
    for pack in ["asset", "code"] {
        assert!(
            page.contains(&format!("`{pack}`")),
            "{pack} is not described"
        );
    }
}

/// The files on the page are accepted as they are.
#[test]
fn the_files_on_the_page_about_configuration_can_be_used() {
    let blocks = blocks(&page("configuration.md"));
    let files = blocks.iter().filter(|(info, _)| info.starts_with("toml"));
    let folder = TempDir::new().unwrap();
    let mut tried = 0;
    for (_, content) in files {
        // Paths of the page, as they are here.
        let content = content.replace("/srv/", &format!("{}/", folder.path().display()));
        for root in ["schemas", "examples", "checkouts"] {
            fs::create_dir_all(folder.join(root)).unwrap();
        }
        let file = folder.join("mainstay.toml");
        fs::write(&file, content).unwrap();
        let output = Command::new(MAINSTAY)
            .args(["tools", "--pack", "asset", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        tried += 1;
    }
    assert!(tried > 0, "the page shows a file");
}

#[test]
fn the_files_on_the_page_about_wrap_can_be_used() {
    let blocks = blocks(&page("wrap.md"));
    let files: Vec<_> = blocks
        .iter()
        .filter_map(|(info, content)| Some((info.split_once(" file=")?.0, content)))
        .collect();
    assert!(files.len() >= 2, "the page shows files");
    let folder = TempDir::new().unwrap();
    for name in ["npx", "uvx"] {
        fs::write(folder.join(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (kind, content) in files {
        let file = folder.join(&format!("servers.{kind}"));
        fs::write(&file, content).unwrap();
        let servers: Value = match kind {
            "toml" => toml::from_str(content).unwrap(),
            _ => serde_json::from_str(content).unwrap(),
        };
        let servers = ["mcpServers", "servers"]
            .iter()
            .find_map(|key| servers[key].as_object());
        for name in servers.unwrap().keys() {
            // A client that says nothing: all that happens is that the file is read.
            let output = Command::new(MAINSTAY)
                .args(["wrap", "--lazy", "--server", name, "--config"])
                .arg(&file)
                .env("PATH", folder.path())
                .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{name}: {said}");
        }
    }
}
