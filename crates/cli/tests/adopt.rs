//! `mainstay adopt` on files as clients have them, and on files as they should not be.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mainstay_testkit::process::TempDir;

/// A folder with a file of a client, an installed mainstay, and the programs of some servers.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let bin = folder.join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_mainstay"), bin.join("mainstay")).unwrap();
        for name in ["npx", "uvx", "node"] {
            fs::write(bin.join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder }
    }

    fn with(name: &str, content: &[u8]) -> (Self, PathBuf) {
        let place = Self::new();
        let file = place.folder.join(name);
        fs::write(&file, content).unwrap();
        (place, file)
    }

    fn mainstay(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command
            .env("PATH", self.folder.join("bin"))
            .env("COLUMNS", "100")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn adopt(&self, arguments: &[&str]) -> Output {
        self.mainstay()
            .arg("adopt")
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Exit code and what was said, without the names of this test's folder.
    fn shown(&self, output: &Output) -> String {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let said = format!(
            "exit {}\n--- stdout\n{}--- stderr\n{}",
            output.status.code().unwrap(),
            text(&output.stdout),
            text(&output.stderr)
        );
        let folder = self.folder.path().canonicalize().unwrap();
        said.replace(folder.to_str().unwrap(), "FOLDER")
    }

    /// What lies in the folder, beside the programs.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "bin")
            .collect();
        names.sort();
        names
    }
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    fs::read(folder.join(name)).unwrap()
}

fn succeeded(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn the_files_of_every_client_are_adopted_and_given_back() {
    for name in [
        "claude_desktop_config.json",
        "mcp.json",
        "claude.json",
        "cursor.json",
        "vscode.json",
        "vscode_settings.json",
        "codex.toml",
        "goose.yaml",
        "opencode.jsonc",
        "zed.json",
        "gemini.json",
    ] {
        let before = fixture(name);
        let (place, file) = Place::with(name, &before);
        let plan = place.adopt(&[name, "--dry-run"]);
        insta::assert_snapshot!(format!("plan_{name}"), place.shown(&plan));
        assert_eq!(fs::read(&file).unwrap(), before, "a plan changes nothing");
        assert_eq!(place.files(), [name]);

        succeeded(&place.adopt(&[name]));
        let adopted = fs::read(&file).unwrap();
        assert_ne!(adopted, before);
        let backup = format!("{name}.mainstay-backup");
        assert_eq!(fs::read(place.folder.join(&backup)).unwrap(), before);

        succeeded(&place.adopt(&[name]));
        assert_eq!(fs::read(&file).unwrap(), adopted, "twice is once");
        succeeded(&place.adopt(&[name, "--undo"]));
        assert_eq!(fs::read(&file).unwrap(), before, "given back to the byte");
        succeeded(&place.adopt(&[name, "--undo"]));
        assert_eq!(fs::read(&file).unwrap(), before);
        assert_eq!(place.files(), [name.to_owned(), backup]);
    }
}

#[test]
fn a_person_is_told_what_was_done_and_what_to_do() {
    let name = "claude_desktop_config.json";
    let (place, _) = Place::with(name, &fixture(name));
    for (snapshot, arguments) in [
        ("told_adopt", &[name, "--except", "notes"][..]),
        ("told_adopt_again", &[name, "--only", "clock"]),
        ("told_undo_one", &[name, "--undo", "--only", "clock"]),
        ("told_undo", &[name, "--undo"]),
        ("told_undo_again", &[name, "--undo"]),
        ("told_unknown_name", &[name, "--only", "clok"]),
    ] {
        let output = place.adopt(arguments);
        insta::assert_snapshot!(snapshot, place.shown(&output));
    }
}

#[test]
fn marks_and_line_ends_stay_as_they_are() {
    let json = "\u{feff}{\r\n  \"mcpServers\": {\r\n    \"a\": {\r\n      \"command\": \"npx\"\r\n    }\r\n  }\r\n}";
    let toml = "\u{feff}[mcp_servers.a]\r\ncommand = \"npx\"\r\nargs = [\r\n  \"x\",\r\n]";
    for (name, before) in [("a.json", json), ("a.toml", toml)] {
        let (place, file) = Place::with(name, before.as_bytes());
        succeeded(&place.adopt(&[name]));
        let adopted = fs::read_to_string(&file).unwrap();
        assert!(adopted.starts_with('\u{feff}') && adopted.contains("\"wrap\""));
        let lone = adopted.replace("\r\n", "");
        assert!(!lone.contains('\n'), "{adopted:?}");
        succeeded(&place.adopt(&[name, "--undo"]));
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
    }
}

#[test]
fn what_cannot_be_read_is_not_touched() {
    let huge = format!(
        "{{\"mcpServers\": {{}}, \"x\": \"{}\"}}",
        "x".repeat(4 << 20)
    );
    let mut not_text = b"{\"mcpServers\": {\n\"\xff\": {}}}".to_vec();
    not_text.push(b'\n');
    for (snapshot, name, content) in [
        ("refused_empty", "a.json", &b""[..]),
        (
            "refused_json",
            "a.json",
            b"{\"mcpServers\": {\n  \"a\": {\"command\": \"x\" \"args\": []}}}",
        ),
        (
            "refused_toml",
            "a.toml",
            b"[mcp_servers.a]\ncommand = npx\n",
        ),
        ("refused_not_text", "a.json", &not_text),
        ("refused_form", "a.json", b"{\"tool_servers\": {}}"),
        (
            "refused_toml_form",
            "a.toml",
            b"[servers.a]\ncommand = 'x'\n",
        ),
        ("refused_huge", "a.json", huge.as_bytes()),
    ] {
        let (place, file) = Place::with(name, content);
        let output = place.adopt(&[name]);
        insta::assert_snapshot!(snapshot, place.shown(&output));
        let undo = place.adopt(&[name, "--undo"]);
        assert_eq!(undo.status.code(), Some(2));
        assert_eq!(fs::read(&file).unwrap(), content);
        assert_eq!(place.files(), [name]);
    }
    let place = Place::new();
    insta::assert_snapshot!("refused_absent", place.shown(&place.adopt(&["none.json"])));
    insta::assert_snapshot!("refused_folder", place.shown(&place.adopt(&["bin"])));
}

#[test]
fn nothing_is_written_that_could_not_be_read_again() {
    let limit = 4 << 20;
    let start = r#"{"mcpServers": {"a": {"command": "npx"}}, "x": ""#;
    let full = format!("{start}{}\"}}", "x".repeat(limit - start.len() - 2));
    assert_eq!(full.len(), limit);
    let (place, file) = Place::with("a.json", full.as_bytes());
    let output = place.adopt(&["a.json"]);
    let said = place.shown(&output);
    assert!(
        said.contains("would have") && said.starts_with("exit 2"),
        "{said}"
    );
    assert_eq!(fs::metadata(&file).unwrap().len(), limit as u64);
    assert_eq!(place.files(), ["a.json"]);
    // It can be read, and with nothing to do it is fine.
    succeeded(&place.adopt(&["a.json", "--undo"]));
}

#[test]
fn a_file_broken_after_its_adoption_has_a_backup_to_turn_to() {
    let (place, file) = Place::with("a.json", br#"{"mcpServers": {"a": {"command": "npx"}}}"#);
    succeeded(&place.adopt(&["a.json"]));
    fs::write(&file, "{").unwrap();
    let output = place.adopt(&["a.json", "--undo"]);
    insta::assert_snapshot!("refused_broken_since", place.shown(&output));
    assert_eq!(fs::read(&file).unwrap(), b"{");
}

#[test]
fn a_file_that_may_not_be_written_stays() {
    let before = fixture("cursor.json");
    let (place, file) = Place::with("a.json", &before);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let output = place.adopt(&["a.json"]);
    insta::assert_snapshot!("refused_read_only", place.shown(&output));
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(place.files(), ["a.json"]);
}

#[test]
fn a_link_stays_a_link_and_its_file_is_changed() {
    let (place, link) = Place::with("x", b"");
    fs::remove_file(&link).unwrap();
    let real = place.folder.join("real");
    fs::create_dir(&real).unwrap();
    let before = fixture("cursor.json");
    fs::write(real.join("mcp.json"), &before).unwrap();
    symlink("real/mcp.json", &link).unwrap();
    succeeded(&place.adopt(&["x"]));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_ne!(fs::read(real.join("mcp.json")).unwrap(), before);
    let backup = real.join("mcp.json.mainstay-backup");
    assert_eq!(fs::read(backup).unwrap(), before);
    succeeded(&place.adopt(&["real/mcp.json", "--undo"]));
    assert_eq!(fs::read(&link).unwrap(), before);
    assert_eq!(place.files(), ["real", "x"]);
}

#[test]
fn permissions_and_owner_stay_and_the_backup_has_them_too() {
    let (place, file) = Place::with("a.json", &fixture("cursor.json"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let owner = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(12345), Some(23456)).unwrap();
        (12345, 23456)
    } else {
        println!("skipped: only root can give a file to somebody else");
        let facts = fs::metadata(&file).unwrap();
        (facts.uid(), facts.gid())
    };
    succeeded(&place.adopt(&["a.json"]));
    for path in [file, place.folder.join("a.json.mainstay-backup")] {
        let facts = fs::metadata(&path).unwrap();
        assert_eq!(facts.mode() & 0o7777, 0o640, "{}", path.display());
        assert_eq!((facts.uid(), facts.gid()), owner);
    }
}

#[test]
fn no_backup_is_ever_written_over() {
    let first = br#"{"mcpServers": {"a": {"command": "npx"}}}"#;
    let second = br#"{"mcpServers": {"b": {"command": "uvx"}}}"#;
    let (place, file) = Place::with("a.json", first);
    let backup = |number: &str| {
        fs::read(
            place
                .folder
                .join(&format!("a.json.mainstay-backup{number}")),
        )
    };
    fs::write(place.folder.join("a.json.mainstay-backup"), "somebody's").unwrap();
    succeeded(&place.adopt(&["a.json"]));
    assert_eq!(backup("").unwrap(), b"somebody's");
    assert_eq!(backup(".1").unwrap(), first);
    // The same content needs no second one.
    succeeded(&place.adopt(&["a.json", "--undo"]));
    assert_eq!(fs::read(&file).unwrap(), first);
    succeeded(&place.adopt(&["a.json"]));
    assert_eq!(place.files().len(), 3);
    fs::write(&file, second).unwrap();
    succeeded(&place.adopt(&["a.json"]));
    assert_eq!(backup(".2").unwrap(), second);
}

#[test]
fn options_that_undo_takes_away_are_kept_in_a_backup() {
    let (place, file) = Place::with("a.json", br#"{"mcpServers": {"a": {"command": "npx"}}}"#);
    succeeded(&place.adopt(&["a.json"]));
    let tuned = fs::read_to_string(&file).unwrap();
    let tuned = tuned.replace("\"--\"", "\"--timeout\", \"9\", \"--\"");
    fs::write(&file, &tuned).unwrap();
    let output = place.adopt(&["a.json", "--undo"]);
    insta::assert_snapshot!("told_undo_options", place.shown(&output));
    let kept = fs::read_to_string(place.folder.join("a.json.mainstay-backup.1")).unwrap();
    assert_eq!(kept, tuned);
    let undone = fs::read_to_string(&file).unwrap();
    assert_eq!(undone, r#"{"mcpServers": {"a": {"command": "npx"}}}"#);
}

#[test]
fn the_command_is_the_installed_program_by_its_own_name() {
    let text = r#"{"mcpServers": {"a": {"command": "npx"}}}"#;
    let command = |place: &Place, file: &Path| {
        let value: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let command = value["mcpServers"]["a"]["command"].as_str().unwrap();
        let folder = place.folder.path().to_str().unwrap();
        command.replace(folder, "FOLDER")
    };
    // What the search path has, not what is behind the link.
    let (place, file) = Place::with("a.json", text.as_bytes());
    succeeded(&place.adopt(&["a.json"]));
    assert_eq!(command(&place, &file), "FOLDER/bin/mainstay");
    // Named: made absolute, or left to the client where it is a bare name.
    let (place, file) = Place::with("a.json", text.as_bytes());
    succeeded(&place.adopt(&["a.json", "--binary", "./bin/mainstay"]));
    assert_eq!(command(&place, &file), "FOLDER/bin/mainstay");
    let (place, file) = Place::with("a.json", text.as_bytes());
    succeeded(&place.adopt(&["a.json", "--binary", "mainstay"]));
    assert_eq!(command(&place, &file), "mainstay");
    for (snapshot, named) in [
        ("refused_binary_absent", "bin/mainstay-2"),
        ("refused_binary_other", "bin/npx"),
        ("refused_binary_unknown", "mainstay-2"),
    ] {
        let (place, file) = Place::with("a.json", text.as_bytes());
        let output = place.adopt(&["a.json", "--binary", named]);
        insta::assert_snapshot!(snapshot, place.shown(&output));
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
}

#[test]
fn a_program_in_a_build_folder_is_not_written_into_a_file() {
    let (place, file) = Place::with("a.json", &fixture("cursor.json"));
    fs::remove_file(place.folder.join("bin/mainstay")).unwrap();
    let output = place.adopt(&["a.json"]);
    let built = Path::new(env!("CARGO_BIN_EXE_mainstay"))
        .canonicalize()
        .unwrap();
    let shown = place
        .shown(&output)
        .replace(built.to_str().unwrap(), "BUILT");
    insta::assert_snapshot!("refused_build_folder", shown);
    assert_eq!(fs::read(file).unwrap(), fixture("cursor.json"));
}

#[test]
fn a_wrapping_with_options_that_nobody_saw_being_adopted_is_somebodys_own() {
    let own = r#"{"mcpServers": {"a": {"command": "mainstay", "args": ["wrap", "--timeout", "5", "--", "node", "x"]}}}"#;
    let (place, file) = Place::with("mcp.json", own.as_bytes());
    let name = file.to_str().unwrap();
    let output = place.adopt(&[name, "--undo"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), own, "{output:?}");
    let output = place.adopt(&[name, "--undo", "--only", "a"]);
    let undone = fs::read_to_string(&file).unwrap();
    assert!(!undone.contains("wrap"), "{output:?}");
}
