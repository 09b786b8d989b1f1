//! Schemas must not be mutated: nothing that any tool can be asked for changes a root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use mainstay_worker::testing::perform;
use mainstay_worker::testing::rpc::Op;
use mainstay_worker::{Completion, CompletionTarget, Json, Pack, RenderMode};
use serde_json::{Value, json};

use crate::fixture::World;
use crate::http::{Server, reply};

/// Everything about a file or directory but when it was last read.
type Facts = (u32, i64, i64, i64, i64, Option<Vec<u8>>);

fn snapshot(root: &Path) -> BTreeMap<String, Facts> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let bytes = meta.is_file().then(|| fs::read(&path).unwrap());
        let facts = (
            meta.mode(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
            bytes,
        );
        if meta.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        found.insert(path.to_string_lossy().into_owned(), facts);
    }
    found
}

/// Takes every right to write away, or gives it back.
fn set_writable(root: &Path, writable: bool) {
    for path in snapshot(root).keys() {
        let path = Path::new(path);
        let is_dir = path.is_dir();
        let mode = match (is_dir, writable) {
            (true, true) => 0o755,
            (true, false) => 0o555,
            (false, true) => 0o644,
            (false, false) => 0o444,
        };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Values that a careless tool might write, follow or run.
fn hostile() -> Vec<Value> {
    vec![
        json!("lamp"),
        json!("../schemas/lamp.schema.json"),
        json!("lamp.schema.json"),
        json!("Lamp_Example.json"),
        json!("lamp.schema.json\0"),
        json!("; rm -rf ."),
        json!("$(touch x)"),
        json!("file:///tmp/x"),
        json!({"$schemaRef": "../schemas/lamp.schema.json", "name": "l"}),
        json!({"$schemaRef": "lamp", "name": "l"}),
        json!({"$id": "https://x.example/lamp.schema.json", "$ref": "#", "schema": "lamp"}),
        json!({"__proto__": {"x": 1}, "constructor": null}),
        json!([[], {}, null, 0, "", true]),
        json!(""),
        json!(null),
        json!(-1),
        json!(false),
        json!(true),
    ]
}

fn call_everything(pack: &Pack) -> usize {
    let mut calls = 0;
    let mut run = |op: &Op| {
        let _ = perform(pack, op);
        calls += 1;
    };
    for tool in pack.catalog().tools {
        let names: Vec<String> = match tool.input_schema["properties"].as_object() {
            Some(properties) => properties.keys().cloned().collect(),
            None => Vec::new(),
        };
        for one in hostile() {
            for two in hostile() {
                let values = [&one, &two].into_iter().cycle();
                let arguments: Value = names.iter().cloned().zip(values.cloned()).collect();
                run(&Op::Tool {
                    name: tool.name.clone(),
                    arguments: Json::from(arguments),
                    render: RenderMode::Porcelain,
                });
            }
        }
    }
    for value in hostile().iter().filter_map(Value::as_str) {
        for family in ["schema:///", "example:///", "file://", ""] {
            run(&Op::ReadResource {
                uri: format!("{family}{value}"),
            });
        }
        for template in ["schema:///{name}", "example:///{+path}"] {
            run(&Op::Complete(Completion {
                of: CompletionTarget::Resource(template.into()),
                argument: "path".into(),
                value: value.into(),
                context: Json::empty_object(),
            }));
        }
    }
    run(&Op::ListResources {});
    calls
}

#[test]
fn no_tool_changes_a_root_whatever_it_is_asked_for() {
    let server = Server::answering(reply(201, r#"{"id":"a"}"#));
    let mut world = World::new();
    world.settings.backend_url = Some(server.url());
    world.settings.allow_unvalidated = true;
    let roots = ["schemas", "examples"].map(|name| world.path(name));
    for root in &roots {
        set_writable(root, false);
    }
    let before = roots.clone().map(|root| snapshot(&root));
    let pack = world.pack();
    assert_eq!(pack.catalog().tools.len(), 8);
    let calls = call_everything(&pack);
    assert!(calls > 2000, "{calls} calls");
    assert!(!server.requests().is_empty(), "some assets were sent");
    let after = roots.clone().map(|root| snapshot(&root));
    for root in &roots {
        set_writable(root, true);
    }
    assert_eq!(before, after);
}
