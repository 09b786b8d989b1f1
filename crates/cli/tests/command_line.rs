//! The binary as a person meets it: help, answers, mistakes and exit codes.
//!
//! What people read is under snapshot; `INSTA_UPDATE=always cargo test -p mainstay` writes it anew.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use mainstay_testkit::process::{TempDir, binary};

fn mainstay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    let ours = [
        "MCP_ENDPOINT",
        "MCP_READY_FILE",
        "MCP_SOCKET_PATH",
        "MCP_SOCKET_MODE",
        "MAINSTAY_TELEMETRY",
        "SYN_SCHEMAS_DIR",
        "SYN_EXAMPLES_DIR",
        "SYN_BACKEND_URL",
    ];
    for name in ours {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).env("COLUMNS", "100");
    command
}

fn run(arguments: &[&str]) -> Output {
    mainstay().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit code, standard output and standard error, in one snapshot.
fn shown(output: &Output) -> String {
    format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr)
    )
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn with_schemas() -> Command {
    let mut command = mainstay();
    command.env(
        "SYN_SCHEMAS_DIR",
        repository().join("examples/assets/jsonschema"),
    );
    command
}

fn ledger(folder: &Path) -> String {
    let program = binary("ledger").unwrap();
    format!(
        "ledger={} --file {}",
        program.display(),
        folder.join("ledger.jsonl").display()
    )
}

#[test]
fn help_is_what_it_was() {
    for command in [
        "",
        "serve",
        "adopt",
        "call",
        "tools",
        "validate",
        "wrap",
        "share",
        "share check",
        "lock",
        "lock write",
        "lock check",
        "lock diff",
        "status",
        "stop",
        "rollout",
        "upgrade",
        "errors",
        "environment",
        "worker",
    ] {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0));
        let name = if command.is_empty() {
            "help".to_owned()
        } else {
            command.replace(" ", "_")
        };
        insta::assert_snapshot!(format!("help_{name}"), text(&output.stdout));
    }
}

#[test]
fn the_version_is_semver_with_a_commit_or_alone() {
    let version = text(&run(&["--version"]).stdout);
    let version = version.strip_prefix("mainstay ").unwrap().trim_end();
    let (numbers, commit) = version.split_once('+').unwrap_or((version, "abc"));
    assert_eq!(numbers, env!("CARGO_PKG_VERSION"));
    assert!(commit.chars().all(|c| c.is_ascii_hexdigit()), "{version}");
}

#[test]
fn the_error_page_is_in_the_docs() {
    let page = std::fs::read_to_string(repository().join("docs/errors.md")).unwrap();
    assert_eq!(text(&run(&["errors", "--markdown"]).stdout), page);
    let rows: Vec<serde_json::Value> =
        serde_json::from_slice(&run(&["errors", "--json"]).stdout).unwrap();
    assert!(
        rows.iter()
            .any(|row| row["kind"] == "outcome_unknown" && row["retryable"] == false)
    );
    insta::assert_snapshot!("errors", text(&run(&["errors"]).stdout));
}

#[test]
fn the_page_of_variables_is_in_the_docs() {
    let page = std::fs::read_to_string(repository().join("docs/environment.md")).unwrap();
    assert_eq!(text(&run(&["environment", "--markdown"]).stdout), page);
    let output = mainstay()
        .env("SYN_BACKEND_URL", "http://user:secret@localhost")
        .arg("environment")
        .output()
        .unwrap();
    insta::assert_snapshot!("environment", shown(&output));
}

/// The words after `before` in every source of the workspace's crates.
fn words_after(before: &str, folder: &Path, words: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            words_after(before, &path, words);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(path).unwrap();
            for rest in source.split(before).skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
                words.push(rest[..end.unwrap_or(rest.len())].to_owned());
            }
        }
    }
}

#[test]
fn every_warning_of_the_log_is_in_the_docs() {
    let mut words = vec!["tool_changed".to_owned(), "tool_not_in_lock".to_owned()];
    for crate_folder in std::fs::read_dir(repository().join("crates")).unwrap() {
        let sources = crate_folder.unwrap().path().join("src");
        if !sources.ends_with("testkit/src") && sources.is_dir() {
            words_after("mcp:warning reason=", &sources, &mut words);
        }
    }
    words.retain(|word| !word.is_empty());
    assert!(words.len() > 20, "{words:?}");
    let page = std::fs::read_to_string(repository().join("docs/configuration.md")).unwrap();
    for word in words {
        assert!(page.contains(&format!("`{word}`")), "{word}");
    }
}

fn example(name: &str) -> String {
    let folder = repository().join("examples/assets/examples");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn validating_a_file_says_yes_no_or_that_it_is_none() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let good = write("lamp.json", &example("Lamp_Example.json"));
    let bad = write("Lamp_Example2.json", r#"{"brightness": "much"}"#);
    let torn = write("torn.json", "{\"name\":");
    let unknown = write("ghost.json", "{}");
    let validate = |words: &[&std::ffi::OsStr]| {
        let output = with_schemas().args(words).output().unwrap();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    for form in ["validate", "--validate"] {
        let form = std::ffi::OsStr::new(form);
        let (code, said, _) = validate(&[form, good.as_os_str()]);
        assert_eq!((code, said.as_str()), (Some(0), "{\"ok\":true}\n"));
        let (code, said, _) = validate(&[form, bad.as_os_str()]);
        assert_eq!(code, Some(1));
        let verdict: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(verdict["reason"], "validation_failed");
        assert!(
            verdict["errors"]
                .as_array()
                .is_some_and(|errors| !errors.is_empty())
        );
        let (code, said, _) = validate(&[form, unknown.as_os_str()]);
        assert_eq!(code, Some(1));
        assert!(
            said.contains(r#"{"path":"/schema","msg":"schema_not_found"}"#),
            "{said}"
        );
        for (path, why) in [
            (torn.as_path(), "is not JSON"),
            (folder.path(), "cannot read"),
        ] {
            let (code, said, error) = validate(&[form, path.as_os_str()]);
            assert_eq!((code, said.as_str()), (Some(2), ""));
            assert!(error.contains(why), "{error}");
        }
    }
    let schema = ["--schema", "colour", "--render", "porcelain"].map(std::ffi::OsStr::new);
    let mut words = vec![std::ffi::OsStr::new("validate"), good.as_os_str()];
    words.extend(schema);
    let (code, said, _) = validate(&words);
    assert_eq!(code, Some(1));
    assert!(said.contains("against colour"), "{said}");
}

#[test]
fn a_call_by_a_deprecated_name_is_answered_with_a_warning() {
    let call = |tool| {
        let asset = r#"asset={"a":1}"#;
        let output = with_schemas()
            .args(["call", tool, "schema=desk", asset])
            .output()
            .unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    let (present, old) = (call("validate_asset"), call("validate"));
    assert_eq!(present.0, old.0);
    assert_eq!(present.1, "");
    assert_eq!(
        old.1,
        "mainstay: warning: validate is a deprecated name; call validate_asset instead\n"
    );
}

#[test]
fn a_pack_that_cannot_start_ends_the_host_with_its_own_words() {
    let folder = TempDir::new().unwrap();
    for name in ["a", "b"] {
        let path = folder.path().join(format!("{name}.schema.json"));
        std::fs::write(path, r#"{"$id": "https://example.com/same"}"#).unwrap();
    }
    let mut host = mainstay()
        .arg("serve")
        .env("SYN_SCHEMAS_DIR", folder.path())
        .env("MCP_READY_FILE", folder.path().join("ready"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Held open: the host ends by itself.
    let input = host.stdin.take();
    let output = host.wait_with_output().unwrap();
    drop(input);
    assert_eq!(output.status.code(), Some(2));
    let last = text(&output.stderr);
    assert!(!last.contains("mcp:ready"), "it was never ready: {last}");
    assert_eq!(
        last.lines().last().unwrap(),
        "mainstay: error: the pack asset cannot start: the schema files a.schema.json and \
         b.schema.json have the same $id https://example.com/same; remove one"
    );
    let called = mainstay()
        .env("SYN_SCHEMAS_DIR", folder.path())
        .args(["call", "list_schemas"])
        .output()
        .unwrap();
    insta::assert_snapshot!("setup_error", shown(&called));
}

#[test]
fn a_call_prints_porcelain_or_json() {
    let output = with_schemas()
        .args(["call", "list_schemas"])
        .output()
        .unwrap();
    insta::assert_snapshot!("call_list_schemas", shown(&output));
    let output = with_schemas()
        .args(["call", "list_schemas", "--render", "json"])
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["ok"], true);
    assert_eq!(answer["schemas"][0]["name"], "colour");
    // covers: get_schema.name
    let output = with_schemas()
        .args(["call", "get_schema", "lamp"])
        .output()
        .unwrap();
    insta::assert_snapshot!("call_get_schema", shown(&output));
}

#[test]
fn exit_codes_say_whose_turn_it_is() {
    let call = |words: &[&str]| with_schemas().arg("call").args(words).output().unwrap();
    assert_eq!(call(&["get_schema", "lamp"]).status.code(), Some(0));
    insta::assert_snapshot!("call_not_found", shown(&call(&["get_schema", "nope"])));
    insta::assert_snapshot!(
        "call_traversal",
        shown(&call(&["get_schema", "../etc/passwd"]))
    );
    insta::assert_snapshot!("call_missing_argument", shown(&call(&["get_schema"])));
    insta::assert_snapshot!(
        "call_unknown_argument",
        shown(&call(&["list_schemas", "x=1"]))
    );
    insta::assert_snapshot!("call_unknown_tool", shown(&call(&["get_shema", "lamp"])));
    insta::assert_snapshot!(
        "call_bad_json",
        shown(&call(&["get_schema", "{name: lamp}"]))
    );
}

#[test]
fn an_answer_that_is_no_is_exit_code_1() {
    let call = |words: &[&str]| {
        let mut command = with_schemas();
        command.env(
            "SYN_EXAMPLES_DIR",
            repository().join("examples/assets/examples"),
        );
        // Nothing invalid is sent there.
        command.env("SYN_BACKEND_URL", "http://127.0.0.1:9");
        command.arg("call").args(words).output().unwrap()
    };
    for words in [
        &["validate_asset", "asset={}", "schema=lamp"][..],
        &["validate_many", "assets=[{}]", "schema=lamp"],
        &["get_example", "path=broken/Cue_Invalid_Example.json"],
        &["populate_backend", r#"asset={"schema":"lamp"}"#],
    ] {
        let output = call(words);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    }
    let colour = r##"asset="#aabbcc""##;
    let valid = call(&["validate_asset", colour, "schema=colour"]);
    assert_eq!(valid.status.code(), Some(0), "{}", shown(&valid));
    let huge = call(&["validate_asset", r#"asset={"a":1e400}"#, "schema=lamp"]);
    assert_eq!(huge.status.code(), Some(1), "{}", shown(&huge));
    let said = text(&huge.stdout);
    assert!(said.contains("/a: number is out of range"), "{said}");
    let elsewhere = call(&["get_schema", "lamp", "version=1e400"]);
    assert_eq!(elsewhere.status.code(), Some(2), "{}", shown(&elsewhere));
}

#[test]
fn a_pack_that_cannot_start_is_named_with_its_reason() {
    let output = run(&["tools", "--pack", "x=/nonexistent/pack"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = text(&output.stderr);
    let warning = "mainstay: warning: the pack x cannot start, so its tools are missing: ";
    assert!(said.contains(warning), "{said}");
    let output = run(&["call", "record", "--pack", "x=/nonexistent/pack"]);
    let payload: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = payload["message"].as_str().unwrap();
    assert!(
        message.contains("the pack x, which may have it, cannot start"),
        "{message}"
    );
    assert_eq!(payload["retryable"], true);
}

#[test]
fn an_internal_fault_is_exit_code_3() {
    let folder = TempDir::new().unwrap();
    let pack = ledger(folder.path());
    let output = run(&["call", "wait", "ms=0", "fail=panic", "--pack", &pack]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let payload: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(payload["code"], "INTERNAL");
}

#[test]
fn files_are_watched_by_a_key_of_the_configuration() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let packs = file("packs.toml", "watch = true\n");
    let server = file(
        "server.toml",
        "[servers.x]\ncommand = \"sh\"\n[servers.x.mainstay]\nwatch = [\"/absent/source\"]\n",
    );
    for (words, said) in [
        (
            ["serve", "--pack", "code", "--config", &packs],
            "none of the packs has files",
        ),
        (
            ["wrap", "--server", "x", "--config", &server],
            "/absent/source",
        ),
    ] {
        let output = run(&words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(said), "{output:?}");
    }
}

#[test]
fn a_server_that_does_not_start_is_told_once_with_its_own_words() {
    let server = "echo 'the key is missing' >&2; exit 4";
    for command in [&["tools"][..], &["call", "echo", "text=hi"]] {
        let output = run(&[command, &["--", "sh", "-c", server]].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("the server exited with code 4"), "{said}");
        assert!(said.contains("the key is missing"), "{said}");
        assert!(!said.contains("mcp:warning"), "{said}");
        let tries = said.lines().filter(|line| *line == "the key is missing");
        assert!(tries.count() <= 3, "{said}");
    }
}

#[test]
fn mistakes_on_the_command_line_are_told_with_a_way_out() {
    insta::assert_snapshot!("unknown_option", shown(&run(&["serve", "--sokcet", "x"])));
    insta::assert_snapshot!("unknown_command", shown(&run(&["sreve"])));
    insta::assert_snapshot!(
        "server_without_wrap",
        shown(&run(&["npx", "-y", "some server"]))
    );
    insta::assert_snapshot!(
        "server_without_dashes",
        shown(&run(&["tools", "npx", "-y", "foo"]))
    );
    for (name, words) in [
        ("server_of_serve", &["serve", "npx", "-y", "foo"][..]),
        ("server_of_share", &["share", "--shared", "npx", "foo"]),
        ("bad_pid", &["stop", "--pid", "team"]),
        ("bad_count", &["serve", "--search-above", "many"]),
        ("small_output", &["wrap", "--max-output", "10", "--", "cat"]),
        ("packs_in_one_option", &["tools", "--pack", "asset,code"]),
        ("lock_as_word", &["lock", "write", "my.lock", "--", "cat"]),
        (
            "lock_as_option",
            &["lock", "check", "--lock", "x", "--", "cat"],
        ),
        ("lock_option_for_command", &["lock", "--write"]),
        ("json_of_call", &["call", "--json", "list_schemas"]),
        ("verbose", &["-v"]),
        ("host_by_name", &["rollout", "team"]),
        ("host_by_pid", &["stop", "123"]),
        ("unknown_subcommand", &["cache", "rm"]),
        ("nothing_to_adopt", &["adopt"]),
        ("nothing_to_call", &["call"]),
        ("nothing_to_share", &["share"]),
        ("nothing_to_check", &["share", "check"]),
        ("no_task_id", &["tasks", "show"]),
        ("no_file_to_validate", &["validate", "/nowhere/x.json"]),
        ("quoted_home", &["adopt", "~/.nowhere.json"]),
    ] {
        insta::assert_snapshot!(name, shown(&run(words)));
    }
    insta::assert_snapshot!(
        "http_without_address",
        shown(&run(&["serve", "--http", ":8080"]))
    );
    insta::assert_snapshot!("http_only_port", shown(&run(&["serve", "--http", "8080"])));
    insta::assert_snapshot!(
        "bad_timeout",
        shown(&run(&["wrap", "--timeout", "5 years", "--", "cat"]))
    );
    insta::assert_snapshot!(
        "two_bare_words",
        shown(&run(&["call", "search", "foo", "bar"]))
    );
    insta::assert_snapshot!("unknown_pack", shown(&run(&["tools", "--pack", "assets"])));
    insta::assert_snapshot!("bad_pack_name", shown(&run(&["tools", "--pack", "a b=ls"])));
    insta::assert_snapshot!("open_quote", shown(&run(&["tools", "--pack", "a='ls"])));
    insta::assert_snapshot!("no_command", shown(&run(&["tools", "--pack", "a="])));
    insta::assert_snapshot!(
        "no_such_socket",
        shown(&run(&["tools", "--socket", "/nowhere/x.sock"]))
    );
    insta::assert_snapshot!(
        "no_such_config",
        shown(&run(&["serve", "--config", "/nowhere/x.toml"]))
    );
    insta::assert_snapshot!(
        "worker_of_no_pack",
        shown(&run(&["worker", "--pack", "none"]))
    );
}

/// The first word that is not an option begins the server's command.
#[test]
fn a_server_is_wrapped_without_dashes_and_with_units() {
    let server = "echo options: $*; exit 4";
    for dashes in [&["--"][..], &[]] {
        let options = ["wrap", "--timeout", "5s", "--start-timeout", "1m"];
        let command = ["sh", "-c", server, "sh", "-y", "--lazy", "--", "x"];
        let output = mainstay()
            .args([&options[..], dashes, &command].concat())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains("no program"), "{said}");
    }
    let output = run(&["wrap", "--lazzy", "--", "cat"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--lazy"),
        "{}",
        shown(&output)
    );
    let output = run(&["wrap", "no-such-server", "-y"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("there is no program no-such-server"),
        "{}",
        shown(&output)
    );
}

#[test]
fn mistakes_in_the_environment_are_all_told() {
    let output = mainstay()
        .env("MCP_ENDPOINT", "sokcet")
        .env("MCP_SOCKET_MODE", "9999")
        .env("SYN_SCHEMAS_DIR", "/nowhere")
        .output()
        .unwrap();
    insta::assert_snapshot!("bad_environment", shown(&output));
}

#[test]
fn mistakes_in_a_configuration_are_told_with_their_place() {
    let folder = TempDir::new().unwrap();
    let told = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let output = mainstay()
            .args(["tools", "--config"])
            .arg(&path)
            .output()
            .unwrap();
        shown(&output).replace(&folder.path().display().to_string(), "FOLDER")
    };
    insta::assert_snapshot!(
        "config_unknown_key",
        told("a.toml", "[limits]\nqueue = 3\nqueu = 4\n")
    );
    insta::assert_snapshot!(
        "config_wrong_type",
        told("b.toml", "[limits]\nqueue = \"many\"\n")
    );
    insta::assert_snapshot!(
        "config_out_of_range",
        told("c.toml", "[limits]\nqueue = 0\npool = 99\n")
    );
    insta::assert_snapshot!(
        "config_json_place",
        told("d.json", "{\"mainstay\": {\n  \"limit\": {}}}")
    );
    insta::assert_snapshot!(
        "config_address",
        told("f.toml", "log = \"info\"\nhttp = \":80\"\n")
    );
    insta::assert_snapshot!(
        "config_two_transports",
        told(
            "g.toml",
            "http = \"localhost:0\"\nsocket = \"/x\"\nissuer = \"https://x\"\n"
        )
    );
    insta::assert_snapshot!(
        "config_servers",
        told("e.json", "{\"mcpServers\": {\"a\": {}}}")
    );
    insta::assert_snapshot!("config_of_a_list", told("h.json", "[]"));
    insta::assert_snapshot!("config_no_table", told("i.toml", "limits = 5\n"));
    let strange = "[servers.a]\ncommand = \"cat\"\nargs = \"x\"\n";
    insta::assert_snapshot!("config_server_member", told("j.toml", strange));
    let path = folder.path().join("k.json");
    std::fs::write(&path, "{\"mcpServers\": {}}").unwrap();
    let output = mainstay().args(["wrap", "--config"]).arg(&path).output();
    let said = shown(&output.unwrap()).replace(&folder.path().display().to_string(), "FOLDER");
    insta::assert_snapshot!("config_without_servers", said);
}

#[test]
fn a_configuration_adds_packs_and_sets_limits() {
    let folder = TempDir::new().unwrap();
    let program = binary("ledger").unwrap();
    let file = folder.path().join("ledger.jsonl");
    let config = folder.path().join("mainstay.toml");
    let content = format!(
        "[limits]\ncall_timeout_ms = 4000\n[packs.ledger]\ncommand = [{program:?}]\nsettings = {{ file = {file:?} }}\n"
    );
    std::fs::write(&config, content).unwrap();
    let call = |words: &[&str]| {
        mainstay()
            .arg("call")
            .args(words)
            .arg("--config")
            .arg(&config)
            .output()
            .unwrap()
    };
    let output = call(&["append", "hello"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(std::fs::read_to_string(&file).unwrap().contains("hello"));
    let output = call(&["wait", "ms=600000"]);
    let payload: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(payload["code"], "TOOL_TIMEOUT");
    assert_eq!(payload["timeoutMs"], 4000);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_configuration_leaves_out_a_built_in_pack() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("mainstay.toml");
    std::fs::write(&config, "[packs.code]\nenabled = false\n").unwrap();
    let tools = |more: &[&str]| {
        let mut command = mainstay();
        let command = command.args(["tools", "--config"]).arg(&config).args(more);
        text(&command.output().unwrap().stdout)
    };
    let listed = tools(&[]);
    assert!(listed.contains("list_schemas"), "{listed}");
    assert!(!listed.contains("show_file"), "{listed}");
    let listed = tools(&["--pack", "code"]);
    assert!(
        listed.contains("show_file"),
        "the command line counts first: {listed}"
    );
}

#[test]
fn two_packs_with_one_tool_name_are_refused() {
    let folder = TempDir::new().unwrap();
    let first = ledger(folder.path());
    let second = first.replacen("ledger=", "other=", 1);
    let output = run(&["tools", "--pack", &first, "--pack", &second]);
    // The first to be ready keeps its tools; the other is refused, and named.
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot start, so its tools are missing: the worker announced a catalog that cannot be served: pack"),
        "{said}"
    );
    assert_eq!(text(&output.stdout).matches("append").count(), 1);
    let output = run(&["tools", "--pack", "asset", "--pack", "asset"]);
    insta::assert_snapshot!("pack_twice", shown(&output));
}

#[test]
fn an_index_gets_its_symbols_from_commands_alone() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("tree");
    std::fs::create_dir(&root).unwrap();
    for number in 0..40 {
        let text = format!("def func_{number}():\n    return {number}\n");
        std::fs::write(root.join(format!("f{number}.py")), text).unwrap();
    }
    let call = |cache: &str, words: &[&str]| -> serde_json::Value {
        let output = mainstay()
            .env("MAINSTAY_CACHE_DIR", folder.path().join(cache))
            .current_dir(&root)
            .args(["call", "--render", "json"])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", shown(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let built = call("built", &["index_build"]);
    assert_eq!(built["symbols"], 1.0, "{built}");
    let status = call("built", &["index_status"]);
    assert_eq!(status["layers"]["symbols"], 1.0, "{status}");
    // A first search stays for its build and a later one for the symbols; neither says so.
    let first = call("searched", &["search", "func_7", "kind=literal"]);
    assert_eq!(first["total"]["value"], 1, "{first}");
    // Symbols are found in the background, which gets little time on a busy machine.
    let until = Instant::now() + Duration::from_secs(900);
    while Instant::now() < until {
        call("searched", &["search", "func_7"]);
        let status = call("searched", &["index_status"]);
        if status["layers"]["symbols"] == 1.0 {
            return;
        }
    }
    panic!("the searches did not get to the symbols");
}
