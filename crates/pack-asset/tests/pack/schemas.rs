//! `list_schemas` and `get_schema`, over a little root of their own.

use std::fs;
use std::os::unix::fs::symlink;

use mainstay_pack_asset::{AssetSettings, pack};
use mainstay_worker::testing::{TempDir, run_tool};
use mainstay_worker::{ErrorKind, Pack, Problem};
use serde_json::{Value, json};

/// Numbers and escapes that a parse and a print would change.
const TONE: &str = "{\n  \"x-schema-version\": \"0.7.3\",\r\n  \"maximum\": 1.00,\n  \"big\": 12345678901234567890123,\n  \"title\": \"\\u0054one\",\n  \"properties\": {\"pitch\": {\"type\": \"number\"}, \"volume\": {\"$ref\": \"#/x\"}},\n  \"required\": [\"pitch\"]\n}\n";

struct Root {
    dir: TempDir,
}

impl Root {
    fn new() -> Self {
        let root = Self {
            dir: TempDir::new().unwrap(),
        };
        root.write("tone.schema.json", TONE);
        root.write(
            "asset.schema.json",
            r#"{"$id":"https://x/asset","version":"2","x-schema-version":"1"}"#,
        );
        root.write("Zebra.schema.json", r#"{"version":7}"#);
        root
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn settings(&self) -> AssetSettings {
        AssetSettings {
            schemas_dir: Some(self.dir.path().to_owned()),
            ..AssetSettings::default()
        }
    }

    fn pack(&self) -> Pack {
        pack(&self.settings(), "1.0.0").unwrap()
    }
}

fn call(pack: &Pack, tool: &str, arguments: &Value) -> Value {
    run_tool(pack, tool, arguments)
        .unwrap()
        .json
        .to_value()
        .unwrap()
}

fn refused(pack: &Pack, name: &str) -> Problem {
    run_tool(pack, "get_schema", &json!({"name": name})).unwrap_err()
}

#[test]
fn schemas_are_listed_by_name_with_version_and_path() {
    let root = Root::new();
    root.write("notes.json", "{}");
    root.write("schema.json", "{}");
    fs::create_dir(root.dir.path().join("sub")).unwrap();
    root.write("sub/deep.schema.json", "{}");
    let expected = json!({"ok": true, "schemas": [
        {"name": "Zebra", "version": "", "path": "Zebra.schema.json"},
        {"name": "asset", "version": "2", "path": "asset.schema.json"},
        {"name": "tone", "version": "0.7.3", "path": "tone.schema.json"},
    ]});
    assert_eq!(call(&root.pack(), "list_schemas", &json!({})), expected);
}

#[test]
fn the_listing_reads_as_a_count_and_a_line_each() {
    let reply = run_tool(&Root::new().pack(), "list_schemas", &json!({})).unwrap();
    let text = "3 schemas\n- Zebra (Zebra.schema.json)\n- asset 2 (asset.schema.json)\n- tone 0.7.3 (tone.schema.json)";
    assert_eq!(reply.text.as_deref(), Some(text));
}

// covers: get_schema.name
#[test]
fn a_schema_comes_back_as_it_is_by_name_and_by_path() {
    let pack = Root::new().pack();
    let reply = run_tool(&pack, "get_schema", &json!({"name": "tone"})).unwrap();
    // One answer is one line; everything else is byte for byte.
    let document = TONE.trim_end().replace(['\n', '\r'], " ");
    let expected = format!(r#"{{"ok":true,"schema":{document},"version":"0.7.3"}}"#);
    assert_eq!(reply.json.as_str(), expected);
    let by_path = run_tool(&pack, "get_schema", &json!({"name": "tone.schema.json"})).unwrap();
    assert_eq!(by_path, reply);
    let asset = call(&pack, "get_schema", &json!({"name": "asset"}));
    assert_eq!(
        (&asset["version"], &asset["schema"]["$id"]),
        (&json!("2"), &json!("https://x/asset"))
    );
}

#[test]
fn a_schema_reads_as_its_members() {
    let reply = run_tool(&Root::new().pack(), "get_schema", &json!({"name": "tone"})).unwrap();
    let text = reply.text.unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "tone 0.7.3 (tone.schema.json)",
            "title: Tone",
            "properties:"
        ]
    );
    assert!(text.contains("pitch   number  required"), "{text}");
    assert!(text.contains("volume  #/x     optional"), "{text}");
    assert!(lines.last().unwrap().starts_with("hint: "), "{text}");
}

#[test]
fn a_schema_that_is_not_there_is_not_found() {
    let pack = Root::new().pack();
    for name in [
        "none",
        "nested-synesthetic-asset",
        "sub/tone",
        "TONE",
        ".",
        "tone.schema",
    ] {
        let problem = refused(&pack, name);
        assert_eq!(problem.kind, ErrorKind::NotFound, "{name}");
        assert_eq!(
            problem.details.unwrap().as_str(),
            r#"{"ok":false,"reason":"not_found"}"#
        );
    }
}

#[test]
fn a_name_that_leads_out_is_an_invalid_path() {
    let pack = Root::new().pack();
    for name in [
        "../tone",
        "..",
        "a/../tone",
        "/etc/passwd",
        "..\\tone",
        "\\x",
        "sub\\tone",
        "tone\0",
        "%2e%2e/tone",
        "..%2ftone",
        "%2fetc%2fpasswd",
        "%252e%252e%252ftone",
    ] {
        let problem = refused(&pack, name);
        assert_eq!(problem.kind, ErrorKind::InvalidArguments, "{name}");
        let details = problem.details.unwrap().to_value().unwrap();
        let expected = json!({"ok": false, "reason": "validation_failed",
            "errors": [{"path": "/name", "msg": "invalid_path"}]});
        assert_eq!(details, expected, "{name}");
    }
}

#[test]
fn without_a_root_listings_are_empty_and_nothing_is_found() {
    let pack = pack(&AssetSettings::default(), "1.0.0").unwrap();
    let reply = run_tool(&pack, "list_schemas", &json!({})).unwrap();
    assert_eq!(reply.json.as_str(), r#"{"ok":true,"schemas":[]}"#);
    assert_eq!(reply.text.as_deref(), Some("0 schemas"));
    assert_eq!(refused(&pack, "tone").kind, ErrorKind::NotFound);
}

#[test]
fn a_root_that_is_no_directory_says_what_to_set() {
    let root = Root::new();
    for name in ["tone.schema.json", "none"] {
        let dir = root.dir.path().join(name);
        let settings = AssetSettings {
            schemas_dir: Some(dir.clone()),
            ..AssetSettings::default()
        };
        let unable = pack(&settings, "1.0.0").unwrap_err();
        assert!(unable.detail.contains(dir.to_str().unwrap()), "{unable}");
        assert!(
            unable.detail.contains("set SYN_SCHEMAS_DIR to a directory"),
            "{unable}"
        );
    }
}

#[test]
fn a_broken_file_does_not_keep_the_rest_from_being_served() {
    let root = Root::new();
    root.write("broken.schema.json", "{\"a\":");
    root.write("list.schema.json", "[]");
    fs::write(root.dir.path().join("binary.schema.json"), b"\xff\xfe").unwrap();
    symlink("/etc/hostname", root.dir.path().join("out.schema.json")).unwrap();
    let pack = root.pack();
    let listed = call(&pack, "list_schemas", &json!({}));
    assert_eq!(listed["schemas"].as_array().unwrap().len(), 3);
    for name in ["broken", "list", "binary", "out"] {
        assert_eq!(refused(&pack, name).kind, ErrorKind::NotFound, "{name}");
    }
}

#[test]
fn two_files_with_one_id_are_refused_by_name() {
    let root = Root::new();
    root.write("twin.schema.json", r#"{"$id":"https://x/asset"}"#);
    let unable = pack(&root.settings(), "1.0.0").unwrap_err();
    for part in ["asset.schema.json", "twin.schema.json", "https://x/asset"] {
        assert!(unable.detail.contains(part), "{unable}");
    }
}

#[test]
fn a_generation_reads_its_root_once() {
    let root = Root::new();
    let pack = root.pack();
    let before = run_tool(&pack, "get_schema", &json!({"name": "tone"})).unwrap();
    root.write("tone.schema.json", "{}");
    root.write("new.schema.json", "{}");
    assert_eq!(
        run_tool(&pack, "get_schema", &json!({"name": "tone"})).unwrap(),
        before
    );
    assert_eq!(refused(&pack, "new").kind, ErrorKind::NotFound);
}
