//! While schemas resolve, no socket to anywhere is opened and no file outside the roots is read:
//! shown by tracing the system calls of the host and of its worker.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use mainstay_testkit::process::{TempDir, binary};
use serde_json::{Value, json};

/// System calls that open a file or a way to somewhere else.
const CALLS: &str = "open,openat,openat2,creat,socket,connect,sendto,sendmsg,bind";

/// What every program of this platform reads at its start, and what is no file at all.
const SYSTEM: &[&str] = &[
    "/dev",
    "/proc",
    "/sys",
    "/lib",
    "/usr/lib",
    "/etc/ld.so",
    "/usr/share/locale",
    "pipe:",
];

fn write(folder: &Path, name: &str, schema: &Value) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, schema.to_string()).unwrap();
}

/// Roots whose schemas refer to everything that a reference can name, inside and outside.
fn world(folder: &TempDir) -> (std::path::PathBuf, std::path::PathBuf) {
    let (roots, outside) = (folder.join("roots"), folder.join("outside"));
    fs::create_dir_all(&outside).unwrap();
    let secret = outside.join("secret.schema.json");
    fs::write(&secret, r#"{"type": "string"}"#).unwrap();
    write(
        &roots,
        "part.schema.json",
        &json!({
        "$id": "https://example.com/part", "$defs": {"n": {"$anchor": "number", "type": "number"}}}),
    );
    write(&roots, "below/leaf.json", &json!({"type": "integer"}));
    write(
        &roots,
        "good.schema.json",
        &json!({"type": "object", "properties": {
        "by_id": {"$ref": "https://example.com/part#number"},
        "by_file": {"$ref": "below/leaf.json"},
        "meta": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        "again": {"$ref": "#"}}}),
    );
    for (name, reference) in [
        ("remote", "https://example.org/not-here.json".to_owned()),
        ("local", "http://127.0.0.1:9/schema.json".to_owned()),
        ("up", "../outside/secret.schema.json".to_owned()),
        ("file", format!("file://{}", secret.display())),
        ("system", "file:///etc/hostname".to_owned()),
    ] {
        write(
            &roots,
            &format!("{name}.schema.json"),
            &json!({"$ref": reference}),
        );
    }
    std::os::unix::fs::symlink(&secret, roots.join("link.schema.json")).unwrap();
    (roots, outside)
}

/// The calls of a trace, each whole: a call that another thread or process interrupted stands
/// there in two parts, and only the second says how it ended.
fn whole_calls(traced: &str) -> Vec<String> {
    let mut calls = Vec::new();
    let mut begun: HashMap<&str, &str> = HashMap::new();
    for (process, call) in traced.lines().filter_map(|line| line.split_once(' ')) {
        let call = call.trim_start();
        if let Some(first) = call.strip_suffix("<unfinished ...>") {
            begun.insert(process, first);
        } else if let Some((_, rest)) = call.split_once(" resumed>") {
            calls.push(begun.remove(process).unwrap_or_default().to_owned() + rest);
        } else {
            calls.push(call.to_owned());
        }
    }
    // Those of processes that were killed in the middle.
    calls.extend(begun.into_values().map(str::to_owned));
    calls
}

#[test]
fn interrupted_calls_of_a_trace_are_joined() {
    let traced = "7  openat(1, \"/a\", 0 <unfinished ...>\n8  openat(1, \"/b\", 0) = 3\n\
        7  <... openat resumed>) = -1 ENOENT (No such file)\n8  openat(1, \"/c\" <unfinished ...>\n";
    let joined = "openat(1, \"/a\", 0 ) = -1 ENOENT (No such file)";
    let expected = ["openat(1, \"/b\", 0) = 3", joined, "openat(1, \"/c\" "];
    assert_eq!(whole_calls(traced), expected);
}

#[test]
fn nothing_is_fetched_and_nothing_outside_the_roots_is_read() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: strace is not installed");
        return;
    }
    let folder = TempDir::new().unwrap();
    let (roots, outside) = world(&folder);
    let trace = folder.join("trace");
    let names = [
        "good", "part", "remote", "local", "up", "file", "system", "link",
    ];
    let mut lines: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(id, name)| {
            let asset = json!({"by_id": 1, "by_file": 2, "meta": {}, "again": {"by_file": "x"}});
            let params = json!({"schema": name, "asset": asset});
            json!({"jsonrpc": "2.0", "id": id, "method": "validate_asset", "params": params})
                .to_string()
        })
        .collect();
    lines.push(r#"{"jsonrpc":"2.0","id":"list","method":"list_schemas"}"#.to_owned());
    let input = folder.join("input");
    fs::write(&input, lines.join("\n")).unwrap();
    let program = binary("mainstay").unwrap();
    let output = Command::new("strace")
        .args(["-f", "-qq", "-s", "4096", "-e"])
        .arg(format!("trace={CALLS}"))
        .arg("-o")
        .arg(&trace)
        .arg(&program)
        .args(["serve", "--pack", "asset"])
        .stdin(fs::File::open(&input).unwrap())
        .current_dir(folder.path())
        .env("SYN_SCHEMAS_DIR", &roots)
        .env("MCP_READY_FILE", folder.join("ready"))
        .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
        .env_remove("SYN_EXAMPLES_DIR")
        // What cargo adds would be searched for libraries first.
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let traced = fs::read_to_string(&trace).unwrap_or_default();
    if traced.is_empty() {
        println!("skipped: strace may not trace here");
        return;
    }
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |name: &str| {
        let id = names.iter().position(|known| *known == name).unwrap();
        answers.iter().find(|answer| answer["id"] == id).unwrap()["result"].clone()
    };
    // The good ones were resolved, the others were refused in words.
    assert_eq!(
        of("good")["errors"][0]["path"],
        "/again/by_file",
        "{answers:?}"
    );
    assert_eq!(of("part")["ok"], true);
    for name in ["remote", "local", "up", "file", "system"] {
        let said = of(name)["errors"][0]["msg"].to_string();
        assert!(said.contains("cannot be used"), "{name}: {said}");
    }
    assert_eq!(of("link")["ok"], false);

    let (roots, home) = (
        roots.canonicalize().unwrap(),
        folder.path().canonicalize().unwrap(),
    );
    let mut read_inside = 0;
    for call in whole_calls(&traced) {
        let call = call.as_str();
        assert!(!call.contains("AF_INET"), "a socket to somewhere: {call}");
        if !call.starts_with("open") && !call.starts_with("creat") {
            continue;
        }
        let Some(path) = call.split('"').nth(1) else {
            continue;
        };
        assert!(
            !path.contains("secret") && !path.contains("hostname"),
            "{call}"
        );
        if path.contains(".json") || path.starts_with(roots.to_str().unwrap()) {
            read_inside += 1;
            continue;
        }
        let allowed = SYSTEM.iter().any(|system| path.starts_with(system))
            || path.starts_with(home.to_str().unwrap())
            || path.starts_with(program.to_str().unwrap())
            || !path.starts_with('/')
            || call.contains("ENOENT");
        assert!(allowed, "a file outside the roots: {call}");
        assert!(!path.starts_with(outside.to_str().unwrap()), "{call}");
    }
    assert!(
        read_inside >= 9,
        "the trace shows no reading of schemas: {traced}"
    );
}
