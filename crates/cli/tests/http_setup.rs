//! What is refused before a host listens on HTTP, and what to do about it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use mainstay_testkit::http::{Connection, Request};
use mainstay_testkit::process::{Launch, Running, TempDir, binary};

/// A host that must refuse: its exit code and what it says.
fn refused(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(arguments)
        .env("MCP_READY_FILE", folder.path().join("ready"))
        .envs(variables.iter().copied())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    for task in [
        &["serve", "--http", "0.0.0.0:0"][..],
        &["wrap", "--http", "0.0.0.0:0", "--", "/bin/cat"],
    ] {
        let (code, said) = refused(task, &[]);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("0.0.0.0:0 can be reached from other machines"),
            "{said}"
        );
        assert!(said.contains("set MAINSTAY_TOKEN_FILE"), "{said}");
    }
    let (code, said) = refused(
        &[],
        &[("MCP_ENDPOINT", "http"), ("MCP_HTTP_ADDR", "[::]:0")],
    );
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_token_that_others_can_read_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    let serve = ["serve", "--http", "127.0.0.1:0"];
    let shown = file.display().to_string();
    let variables = [("MAINSTAY_TOKEN_FILE", shown.as_str())];
    for (text, mode, wanted) in [
        ("open-sesame\n", 0o644, "others than its owner may use it"),
        ("", 0o600, "it holds no token"),
        ("two words\n", 0o600, "it holds no token"),
    ] {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let (code, said) = refused(&serve, &variables);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(wanted), "{said}");
        assert!(!said.contains("sesame"), "{said}");
    }
    std::fs::remove_file(&file).unwrap();
    let (code, said) = refused(&serve, &variables);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_short_token_opens_nothing_to_other_machines() {
    let short = [("MAINSTAY_TOKEN", "fifteen-letters")];
    let (code, said) = refused(&["serve", "--http", "0.0.0.0:0"], &short);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("fewer than 16 characters"), "{said}");
    assert!(!said.contains("fifteen"), "{said}");
    // With one more it would listen; the address is not one of this machine.
    let long = [("MAINSTAY_TOKEN", "sixteen-letters!")];
    let (code, said) = refused(&["serve", "--http", "192.0.2.1:1"], &long);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("cannot listen on"), "{said}");
}

#[test]
fn a_configuration_that_everybody_can_write_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("m.toml");
    std::fs::write(&file, "[limits]\nqueue = 0\n").unwrap();
    for (mode, warned) in [(0o666, true), (0o664, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let (code, said) = refused(&["serve", "--config", &file.display().to_string()], &[]);
        assert_eq!(code, Some(2), "{said}");
        assert_eq!(
            said.contains("can be written by every user"),
            warned,
            "{said}"
        );
    }
}

#[test]
fn an_issuer_needs_keys_that_can_be_used() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keys.json");
    std::fs::write(&file, r#"{"keys":[]}"#).unwrap();
    let shown = file.display().to_string();
    let serve = ["serve", "--http", "127.0.0.1:0"];
    let alone = [("MAINSTAY_ISSUER", "https://issuer.example")];
    let (code, said) = refused(&serve, &alone);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("set both"), "{said}");
    let both = [alone[0], ("MAINSTAY_ISSUER_KEYS", shown.as_str())];
    let (code, said) = refused(&serve, &both);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no key that can check a signature"), "{said}");
}

/// The status of `GET /v1/tools` with a token and a name of the host.
fn status_of_tools(host: &Running, token: &str, name: &str) -> u16 {
    let address = host.address().unwrap();
    let request = Request::to(address, "GET", "/v1/tools")
        .header("Authorization", &format!("Bearer {token}"))
        .without("Host")
        .header("Host", name);
    Connection::open(address)
        .unwrap()
        .ask(&request)
        .unwrap()
        .status()
}

/// Everything that options and variables can set, from one file: for packs, and for a wrapped server.
#[test]
fn a_host_is_set_up_by_its_configuration_file_alone() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("token"), "a-long-enough-secret-from-a-file\n").unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path("token"), mode).unwrap();
    let keys = format!(
        "name = \"from-file\"\nhttp = \"localhost:0\"\nallow_host = [\"mcp.example\"]\n\
         token_file = {:?}\nready_file = {:?}\ntelemetry = {:?}\nenvelopes = \"enforce\"\n\
         log = \"debug\"\n",
        path("token"),
        path("ready"),
        path("events.jsonl"),
    );
    let serve = format!("render = \"json\"\n{keys}");
    let server = binary("mcp-fixture").unwrap();
    let wrap = format!("[servers.x]\ncommand = {server:?}\n[servers.x.mainstay]\n{keys}");
    for (command, text) in [("serve", serve), ("wrap", wrap)] {
        let config = path(&format!("{command}.toml"));
        std::fs::write(&config, text).unwrap();
        let words = [env!("CARGO_BIN_EXE_mainstay"), command, "--config", &config];
        let host = Launch::new(words).unwrap().spawn_http().unwrap();
        for (token, name, expected) in [
            ("another", "localhost", 401),
            ("a-long-enough-secret-from-a-file", "other.example", 403),
        ] {
            assert_eq!(status_of_tools(&host, token, name), expected, "{command}");
        }
        let token = "a-long-enough-secret-from-a-file";
        assert_eq!(
            status_of_tools(&host, token, "mcp.example"),
            200,
            "{command}"
        );
        host.wait_for_line("pid=").unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_mainstay"))
            .args(["status", "--json", "--name", "from-file"])
            .env("MAINSTAY_RUNTIME_DIR", host.folder().join("run"))
            .output()
            .unwrap();
        assert_eq!(status.status.code(), Some(0), "{command}: {status:?}");
        assert!(std::fs::exists(path("ready")).unwrap(), "{command}");
        assert!(std::fs::exists(path("events.jsonl")).unwrap(), "{command}");
        host.stop().unwrap();
        std::fs::remove_file(path("events.jsonl")).unwrap();
    }
}

#[test]
fn the_command_line_and_the_environment_count_before_the_file() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("mainstay.toml");
    std::fs::write(&config, "http = \"192.0.2.1:1\"\nname = \"file\"\n").unwrap();
    let config = config.display().to_string();
    let words = [env!("CARGO_BIN_EXE_mainstay"), "serve", "--config", &config];
    let host = Launch::new(words).unwrap().words(["--http", "localhost:0"]);
    host.spawn_http().unwrap().stop().unwrap();
    let host = Launch::new(words)
        .unwrap()
        .env("MCP_HTTP_ADDR", "127.0.0.1:0");
    host.spawn_http().unwrap().stop().unwrap();
    let host = Launch::new(words).unwrap().env("MCP_ENDPOINT", "stdio");
    host.spawn().unwrap().stop().unwrap();
}

#[test]
fn a_port_that_is_taken_is_exit_code_2() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = refused(&["serve", "--http", &address], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("choose another address with --http"),
        "{said}"
    );
}
