//! `mainstay lock` as a person meets it, and the repository's own locks.
//!
//! A change is made by altering the lock as if the tool had been different before, so the tools
//! are the real ones. What people read is under snapshot.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mainstay_schema::lock::{Contract, Entry, Lock};
use mainstay_testkit::process::{Serve, TempDir, binary};
use serde_json::{Value, json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A folder with a lock of the example pack.
struct Desk {
    folder: TempDir,
    pack: String,
}

impl Desk {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let program = binary("ledger").unwrap();
        let file = folder.path().join("ledger.jsonl");
        let pack = format!("ledger={} --file {}", program.display(), file.display());
        Self { folder, pack }
    }

    /// One whose lock was written.
    fn written() -> Self {
        let desk = Self::new();
        assert_eq!(desk.run("write", &[]).status.code(), Some(0));
        desk
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("mainstay.lock.json")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        for name in ["MAINSTAY_TELEMETRY", "SYN_SCHEMAS_DIR", "SYN_EXAMPLES_DIR"] {
            command.env_remove(name);
        }
        command
            .stdin(Stdio::null())
            .current_dir(self.folder.path())
            .arg("lock");
        command
    }

    fn run(&self, command: &str, more: &[&str]) -> Output {
        let options = ["--pack", &self.pack, "--packs-only"];
        self.command()
            .arg(command)
            .args(options)
            .args(more)
            .output()
            .unwrap()
    }

    /// Exit code, standard output and standard error, without what differs from run to run.
    fn shown(&self, output: &Output) -> String {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let folder = self.folder.path().display().to_string();
        let ledger = binary("ledger").unwrap().display().to_string();
        let code = output.status.code().unwrap();
        format!(
            "exit {code}\n--- stdout\n{}--- stderr\n{}",
            text(&output.stdout),
            text(&output.stderr)
        )
        .replace(&folder, "FOLDER")
        .replace(&ledger, "LEDGER")
    }

    fn told(&self, command: &str, more: &[&str]) -> String {
        self.shown(&self.run(command, more))
    }

    fn lock(&self) -> Lock {
        Lock::parse(&std::fs::read_to_string(self.file()).unwrap()).unwrap()
    }

    /// Alters the lock, as if the tools had been different when it was written.
    fn alter(&self, edit: impl FnOnce(&mut Lock)) {
        let mut lock = self.lock();
        edit(&mut lock);
        std::fs::write(self.file(), lock.to_text()).unwrap();
    }

    fn alter_tool(&self, tool: &str, edit: impl FnOnce(&mut Contract)) {
        self.alter(|lock| edit(contract(lock, tool)));
    }
}

fn contract<'a>(lock: &'a mut Lock, tool: &str) -> &'a mut Contract {
    match lock.tools.get_mut(tool) {
        Some(Entry::Contract(contract)) => contract,
        other => panic!("{tool} is {other:?}"),
    }
}

/// What the tools promise is what the repository says they promise.
fn assert_current(options: &[&str], again: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .stdin(Stdio::null())
        .current_dir(repository())
        .args(["lock", "check"])
        .args(options)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{said}\nThe tools are not what the repository says. {again}"
    );
}

const AGAIN: &str = "Raise the versions that are missing, then run: cargo xtask schemas";

#[test]
fn the_lock_and_the_definitions_in_the_repository_are_those_of_the_tools() {
    assert_current(&["--schemas", "schemas/tools"], AGAIN);
}

#[test]
fn the_lock_of_the_example_pack_is_current() {
    let folder = TempDir::new().unwrap();
    let program = binary("ledger").unwrap();
    let file = folder.path().join("ledger.jsonl");
    let pack = format!("ledger={} --file {}", program.display(), file.display());
    let options = [
        "--pack",
        &pack,
        "--packs-only",
        "--file",
        "examples/ledger/mainstay.lock.json",
        "--schemas",
        "examples/ledger/schemas/tools",
    ];
    assert_current(&options, AGAIN);
}

/// What CI would say to a commit that changes a tool and forgets its version: every tool of the
/// repository's own lock in turn, as if it had taken half the time before.
#[test]
fn a_missing_bump_of_any_tool_fails_the_check_with_the_way_out() {
    let desk = Desk::new();
    let text = std::fs::read_to_string(repository().join("mainstay.lock.json")).unwrap();
    let lock = Lock::parse(&text).unwrap();
    assert!(lock.tools.contains_key("system_health"), "the host's own");
    let check = || desk.command().arg("check").output().unwrap();
    for name in lock.tools.keys() {
        let mut before = lock.clone();
        let contract = contract(&mut before, name);
        contract.timeout_ms /= 2;
        let version = contract.schema_version;
        std::fs::write(desk.file(), before.to_text()).unwrap();
        let told = desk.shown(&check());
        let advice = format!(
            "to do: raise schemaVersion of {name} from {version} to {}",
            version + 1
        );
        assert!(told.starts_with("exit 1\n"), "{told}");
        assert!(told.contains("1 change lacks a bump or a reason"), "{told}");
        assert!(told.contains(&advice), "{told}");
    }
    std::fs::write(desk.file(), text).unwrap();
    assert!(desk.shown(&check()).starts_with("exit 0\n"));
}

#[test]
fn a_lock_is_written_once_and_then_up_to_date() {
    let desk = Desk::new();
    insta::assert_snapshot!("no_lock", desk.told("check", &[]));
    insta::assert_snapshot!("first_write", desk.told("write", &[]));
    let text = std::fs::read_to_string(desk.file()).unwrap();
    insta::assert_snapshot!("second_write", desk.told("write", &[]));
    insta::assert_snapshot!("check_equal", desk.told("check", &[]));
    insta::assert_snapshot!("diff_equal", desk.told("diff", &[]));
    assert_eq!(std::fs::read_to_string(desk.file()).unwrap(), text);
    let names: Vec<_> = std::fs::read_dir(desk.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "a lock and a ledger: {names:?}");
}

/// Several tools, each with changes of several kinds, none of them bumped.
fn neglect(lock: &mut Lock) {
    let append = contract(lock, "append");
    append.replay = "convergent".to_owned();
    append.description = "Adds.".to_owned();
    append.errors.insert("NO_INDEX".to_owned());
    let properties = &mut append.input_schema["properties"];
    properties["text"]["description"] =
        json!("The text of the entry, which is put behind all that are there already.");
    properties["pause_ms"]["maximum"] = json!(5);
    properties["colour"] = json!({"enum": ["red", "green"]});
    let get = contract(lock, "get");
    get.input_schema["properties"]["key"]["description"] = json!("A key.");
    get.aliases.insert("read".to_owned());
    let wait = contract(lock, "wait");
    wait.schema_version = 9;
    let other = Contract {
        name: "undo".to_owned(),
        ..contract(lock, "put").clone()
    };
    lock.tools.insert("undo".to_owned(), other.into());
}

#[test]
fn what_is_missing_is_told_by_check_and_refused_by_write() {
    let desk = Desk::written();
    desk.alter(neglect);
    let before = std::fs::read_to_string(desk.file()).unwrap();
    insta::assert_snapshot!("check_missing", desk.told("check", &[]));
    let refused = desk.told("write", &[]);
    assert_eq!(refused, desk.told("check", &[]));
    assert_eq!(std::fs::read_to_string(desk.file()).unwrap(), before);
    insta::assert_snapshot!("diff_missing", desk.told("diff", &[]));
    let output = desk.run("diff", &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["equal"], false);
    let changes = report["changes"].as_array().unwrap();
    insta::assert_snapshot!("diff_json", format!("{:#}", changes[0]));
    let shown = String::from_utf8(desk.run("diff", &[]).stdout).unwrap();
    let lines = shown.lines().filter(|line| line.starts_with("  - "));
    assert_eq!(changes.len(), lines.count());
}

#[test]
fn a_lock_behind_its_bumps_is_old_and_can_be_written() {
    let desk = Desk::written();
    desk.alter_tool("append", |append| {
        append.schema_version = 0;
        append.replay = "convergent".to_owned();
        append.input_schema["properties"]["text"]["description"] = json!("A text.");
    });
    insta::assert_snapshot!("check_old", desk.told("check", &[]));
    insta::assert_snapshot!("diff_bumped", desk.told("diff", &[]));
    insta::assert_snapshot!("write_bumped", desk.told("write", &[]));
    assert_eq!(desk.run("check", &[]).status.code(), Some(0));
}

#[test]
fn a_reason_lets_words_change_and_stays_on_record() {
    let desk = Desk::written();
    let unaltered = desk.lock();
    desk.alter_tool("put", |put| {
        put.input_schema["properties"]["key"]["description"] = json!("What it is called.");
    });
    let older = desk.folder.path().join("older.json");
    std::fs::copy(desk.file(), &older).unwrap();
    insta::assert_snapshot!("reason_needed", desk.told("write", &[]));
    for (name, reason) in [
        ("reason_elsewhere", "put.value: clearer"),
        ("reason_of_no_tool", "pot.key: clearer"),
        ("reason_without_text", "put.key:"),
    ] {
        insta::assert_snapshot!(name, desk.told("write", &["--reason", reason]));
    }
    insta::assert_snapshot!(
        "reason_given",
        desk.told("write", &["--reason", "put.key: clearer words"])
    );
    let lock = desk.lock();
    assert_eq!(lock.tools, unaltered.tools);
    let entry = &lock.tools["put"];
    assert_eq!(lock.reasons.len(), 1);
    assert_eq!(lock.reasons[0].to_string(), "put.key");
    assert_eq!(
        lock.reasons[0].sha256,
        Some(entry.fingerprint().to_string())
    );
    assert_eq!(desk.run("check", &[]).status.code(), Some(0));
    // Whoever looks at both locks finds the reason, and misses it where it was taken out.
    let since = |desk: &Desk| desk.told("check", &["--since", "older.json"]);
    assert!(since(&desk).starts_with("exit 0\n"), "{}", since(&desk));
    desk.alter(|lock| lock.reasons.clear());
    assert_eq!(desk.run("check", &[]).status.code(), Some(0));
    insta::assert_snapshot!("since_without_reason", since(&desk));
}

#[test]
fn a_removed_tool_needs_a_reason_that_remembers_its_version() {
    let desk = Desk::written();
    desk.alter(|lock| {
        let mut undo = contract(lock, "put").clone();
        undo.name = "undo".to_owned();
        lock.tools.insert("undo".to_owned(), undo.into());
    });
    insta::assert_snapshot!("tool_removed", desk.told("check", &[]));
    let told = desk.told("write", &["--reason", "undo: nobody used it"]);
    assert!(told.starts_with("exit 0\n"), "{told}");
    assert_eq!(desk.lock().reasons[0].schema_version, Some(1));
}

#[test]
fn a_renamed_tool_keeps_its_old_name_and_needs_a_bump() {
    let desk = Desk::new();
    let run = |command: &str| desk.shown(&desk.command().arg(command).output().unwrap());
    assert!(run("write").starts_with("exit 0\n"));
    // As if `validate_asset` had been called by its deprecated name.
    let rename = |version: fn(u32) -> u32| {
        desk.alter(|lock| {
            let mut before = match lock.tools.remove("validate_asset") {
                Some(Entry::Contract(contract)) => *contract,
                other => panic!("{other:?}"),
            };
            before.name = "validate".to_owned();
            assert!(before.aliases.remove("validate"));
            before.schema_version = version(before.schema_version);
            lock.tools.insert("validate".to_owned(), before.into());
        });
    };
    rename(|version| version);
    insta::assert_snapshot!("tool_renamed", run("check"));
    std::fs::remove_file(desk.file()).unwrap();
    assert!(run("write").starts_with("exit 0\n"));
    rename(|version| version - 1);
    insta::assert_snapshot!("tool_renamed_and_bumped", run("diff"));
    assert!(run("write").starts_with("exit 0\n"));
    assert!(run("check").starts_with("exit 0\n"));
}

#[test]
fn what_is_no_lock_is_refused_and_left_as_it_is() {
    let desk = Desk::written();
    let good = std::fs::read_to_string(desk.file()).unwrap();
    let edited = good.replacen("never_replay", "convergent", 1);
    let unknown = good.replacen("\"reasons\": []", "\"reasons\": [],\n  \"notes\": 1", 1);
    for (name, text) in [
        ("lock_edited", edited.as_str()),
        ("lock_unknown_key", &unknown),
        ("lock_not_json", "tools = []\n"),
        ("lock_other_json", "{\"name\": \"package\"}\n"),
        (
            "lock_of_the_future",
            "{\"lockVersion\": 3, \"tools\": []}\n",
        ),
    ] {
        std::fs::write(desk.file(), text).unwrap();
        for command in ["check", "diff", "write"] {
            let told = desk.told(command, &[]);
            insta::allow_duplicates! { insta::assert_snapshot!(name, told); }
        }
        assert_eq!(std::fs::read_to_string(desk.file()).unwrap(), text);
    }
    let told = desk.told("check", &["--file", "."]);
    assert!(
        told.starts_with("exit 2\n") && told.contains("cannot read ."),
        "{told}"
    );
    let told = desk.told("write", &["--file", "none/x.json"]);
    assert!(
        told.starts_with("exit 2\n") && told.contains("cannot write none/x.json"),
        "{told}"
    );
}

#[test]
fn published_definitions_are_written_checked_and_cleared_away() {
    let desk = Desk::new();
    let schemas = ["--schemas", "defs"];
    insta::assert_snapshot!("definitions_written", desk.told("write", &schemas));
    let path = |name: &str| desk.folder.path().join("defs").join(name);
    let put: Value =
        serde_json::from_str(&std::fs::read_to_string(path("put.json")).unwrap()).unwrap();
    assert_eq!(put["name"], "put");
    assert!(put["inputSchema"]["properties"]["render"].is_object());
    assert!(!put.to_string().contains("toolingVersion"));
    assert!(desk.told("check", &schemas).starts_with("exit 0\n"));
    // One old, one missing, one of a tool that is gone, and one of somebody else's.
    std::fs::write(path("put.json"), "{}\n").unwrap();
    std::fs::remove_file(path("get.json")).unwrap();
    std::fs::write(path("gone.json"), r#"{"name": "gone", "inputSchema": {}}"#).unwrap();
    std::fs::write(path("mine.json"), "{\"name\": \"mine\"}\n").unwrap();
    insta::assert_snapshot!("definitions_differ", desk.told("check", &schemas));
    insta::assert_snapshot!("definitions_mended", desk.told("write", &schemas));
    assert!(!path("gone.json").exists() && path("mine.json").exists());
    assert!(desk.told("check", &schemas).starts_with("exit 0\n"));
}

#[test]
fn a_running_host_is_checked_but_for_names_it_does_not_list() {
    let desk = Desk::new();
    let serve = Serve::socket().unwrap().pack(desk.pack.clone());
    let host = serve.spawn().unwrap();
    let socket = host.folder().join("sock").display().to_string();
    let asked = |command: &str| {
        let output = desk.command().args([command, "--socket", &socket]).output();
        desk.shown(&output.unwrap())
    };
    insta::assert_snapshot!("socket_write", asked("write"));
    let options = ["write", "--pack", &desk.pack];
    assert!(desk.command().args(options).status().unwrap().success());
    insta::assert_snapshot!("socket_check", asked("check"));
    desk.alter_tool("put", |put| {
        put.aliases.insert("set".to_owned());
        put.timeout_ms = 7;
    });
    insta::assert_snapshot!("socket_diff", asked("diff"));
    host.stop().unwrap();
}

#[test]
fn a_host_with_a_lock_withdraws_what_differs_from_it_and_serves_the_rest() {
    let desk = Desk::written();
    desk.alter_tool("put", |put| put.timeout_ms = 7);
    desk.alter(|lock| drop(lock.tools.remove("append")));
    let serve = Serve::stdio().unwrap().pack(desk.pack.clone());
    let host = serve.argument("--lock").argument(desk.file());
    let host = host.spawn().unwrap();
    let client = host.client().unwrap();
    client.open(&json!({})).unwrap();
    let listed = client.request("1", "tools/list", &json!({})).unwrap();
    let listed = listed.at("/result/tools");
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"get") && names.contains(&"system_health"),
        "{names:?}"
    );
    assert!(
        !names.contains(&"put") && !names.contains(&"append"),
        "{names:?}"
    );
    for (id, tool, why) in [
        ("2", "put", "differs from the lock"),
        ("3", "append", "not in the lock"),
    ] {
        let refused = client.call(id, tool, &json!({})).unwrap();
        let text = refused.at("/result/content/0/text");
        let payload: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        assert_eq!(payload["code"], "FORBIDDEN");
        assert!(
            payload["message"].as_str().unwrap().contains(why),
            "{payload}"
        );
    }
    host.wait_for_line("reason=tool_changed pack=ledger tool=put withdrawn")
        .unwrap();
    host.wait_for_line("reason=tool_not_in_lock pack=ledger tool=append withdrawn")
        .unwrap();
    host.stop().unwrap();
}

#[test]
fn a_lock_of_somebody_elses_server_is_none_for_packs() {
    let desk = Desk::new();
    let fixture = binary("mcp-fixture").unwrap();
    let written = desk.command().args(["write", "--"]).arg(fixture).status();
    assert!(written.unwrap().success());
    let serve = Serve::stdio()
        .unwrap()
        .argument("--lock")
        .argument(desk.file());
    let (code, said) = serve.refused().unwrap();
    assert_eq!(code, Some(2));
    assert!(said.contains("somebody else's server"), "{said}");
}

#[test]
fn a_pack_that_cannot_start_is_not_taken_for_an_empty_one() {
    let desk = Desk::written();
    let before = std::fs::read_to_string(desk.file()).unwrap();
    let program = binary("ledger").unwrap().display().to_string();
    let pack = format!("ledger={program}");
    for command in ["write", "check", "diff"] {
        let output = desk.command().args([command, "--pack", &pack]).output();
        let told = desk.shown(&output.unwrap());
        assert!(
            told.starts_with("exit 2\n--- stdout\n--- stderr\n"),
            "{told}"
        );
        let why = "the pack ledger cannot start: no ledger file; give --file PATH";
        assert!(told.contains(why), "{told}");
    }
    assert_eq!(std::fs::read_to_string(desk.file()).unwrap(), before);
}
