//! `list_examples`, `get_example`, and both roots as resources.

use mainstay_worker::testing::rpc::{Answer, Op};
use mainstay_worker::testing::{members, perform};
use mainstay_worker::{Completion, CompletionTarget, ErrorKind, Json, Pack, Problem};
use serde_json::{Value, json};

use crate::fixture::{EXAMPLES, SCHEMAS, World, answer, call, failed, refusal};

const LISTED: [(&str, &str); 7] = [
    ("Colour_Example2", "Colour_Example2.json"),
    ("Ghost_Example", "Ghost_Example.json"),
    ("Lamp_Bad", "Lamp_Bad.json"),
    ("Lamp_Example", "Lamp_Example.json"),
    ("Lamp_Example", "deep/er/Lamp_Example.json"),
    ("Odd", "Odd.v2.json"),
    (
        "SynestheticAsset_Example1",
        "SynestheticAsset_Example1.json",
    ),
];

fn rows(listed: &[(&str, &str)]) -> Value {
    let row = |(component, path): &(&str, &str)| json!({"component": component, "path": path});
    json!({"ok": true, "examples": listed.iter().map(row).collect::<Vec<_>>()})
}

// covers: list_examples.component
#[test]
fn examples_are_listed_by_component_and_path() {
    let world = World::new();
    world.write("examples/notes.txt", "no example");
    let pack = world.pack();
    for arguments in [
        json!({}),
        json!({"component": "all"}),
        json!({"component": "*"}),
        json!({"component": ""}),
    ] {
        assert_eq!(answer(&pack, "list_examples", &arguments), rows(&LISTED));
    }
    let lamps = call(
        &pack,
        "list_examples",
        &json!({"component": "Lamp_Example"}),
    )
    .unwrap();
    assert_eq!(lamps.value(), rows(&LISTED[3..5]));
    assert_eq!(
        lamps.text,
        "2 examples\n- Lamp_Example.json\n- deep/er/Lamp_Example.json"
    );
    let none = call(&pack, "list_examples", &json!({"component": "lamp"})).unwrap();
    assert_eq!(none.value(), rows(&[]));
    assert!(none.text.starts_with("0 examples\nhint: "), "{}", none.text);
}

// covers: get_example.path
#[test]
fn an_example_comes_back_as_it_is_with_the_schema_that_was_used() {
    let pack = World::new().pack();
    let given = call(&pack, "get_example", &json!({"path": "Lamp_Example.json"})).unwrap();
    // One answer is one line; everything else is byte for byte.
    let document = EXAMPLES[0].1.trim_end().replace(['\n', '\r'], " ");
    let expected =
        format!(r#"{{"ok":true,"example":{document},"schema":"lamp","validated":true}}"#);
    assert_eq!(given.json.as_str(), expected);
    let lines: Vec<&str> = given.text.lines().collect();
    assert_eq!(lines[0], "Lamp_Example.json, valid: lamp 2.0");
    assert!(
        given.text.contains("colour      1 member"),
        "{}",
        given.text
    );
    for (path, schema) in [
        ("Colour_Example2.json", "colour"),
        ("SynestheticAsset_Example1.json", "synesthetic-asset"),
        ("deep/er/Lamp_Example.json", "lamp"),
        ("./deep//er/Lamp_Example.json", "lamp"),
    ] {
        let given = answer(&pack, "get_example", &json!({"path": path}));
        assert_eq!(
            (&given["ok"], &given["schema"]),
            (&json!(true), &json!(schema)),
            "{path}"
        );
    }
}

#[test]
fn an_invalid_example_is_a_verdict_without_the_body() {
    let pack = World::new().pack();
    let bad = call(&pack, "get_example", &json!({"path": "Lamp_Bad.json"})).unwrap();
    let value = bad.value();
    assert_eq!(value["reason"], "validation_failed");
    let asset: Value = serde_json::from_str(EXAMPLES[5].1).unwrap();
    let alone = answer(
        &pack,
        "validate_asset",
        &json!({"asset": asset, "schema": "lamp"}),
    );
    assert_eq!(value, alone);
    assert!(!bad.json.as_str().contains("\"example\""));
    assert!(
        bad.text
            .starts_with("Lamp_Bad.json is not given: 2 violations against lamp 2.0\n- "),
        "{}",
        bad.text
    );
    // Its own word counts before its file's name, also when it is wrong.
    let odd = answer(&pack, "get_example", &json!({"path": "Odd.v2.json"}));
    assert_eq!(odd["errors"][0]["path"], "");
    let ghost = answer(&pack, "get_example", &json!({"path": "Ghost_Example.json"}));
    assert_eq!(ghost, failed(&[("/schema", "schema_not_found")]));
}

#[test]
fn no_path_leads_out_of_the_examples() {
    let pack = World::new().pack();
    for path in [
        "../schemas/lamp.schema.json",
        "..",
        "deep/../Lamp_Example.json",
        "/etc/passwd",
        "\\etc",
        "deep\\er",
        "..\\x",
        "a\0",
        "%2e%2e/schemas/lamp.schema.json",
        "..%2Fschemas%2Flamp.schema.json",
        "%252e%252e/x",
    ] {
        let (kind, details) = refusal(&pack, "get_example", &json!({"path": path}));
        assert_eq!(kind, ErrorKind::InvalidArguments, "{path:?}");
        assert_eq!(details, failed(&[("/path", "invalid_path")]), "{path:?}");
    }
    for path in [
        "none.json",
        "deep",
        "Lamp_Example",
        "lamp_example.json",
        ".",
        "file:x",
    ] {
        let (kind, details) = refusal(&pack, "get_example", &json!({"path": path}));
        assert_eq!(kind, ErrorKind::NotFound, "{path}");
        assert_eq!(details, json!({"ok": false, "reason": "not_found"}));
    }
}

fn read(pack: &Pack, uri: &str) -> Result<Value, Problem> {
    let read = members(pack, &Op::ReadResource { uri: uri.into() })?;
    Ok(read["contents"][0].clone())
}

#[test]
fn both_roots_are_resources_with_their_exact_bytes() {
    let world = World::new();
    world.write(
        "examples/a b/{x}é.json",
        r#"{"$schemaRef": "lamp", "name": "l"}"#,
    );
    let pack = world.pack();
    let Answer::Resources(list) = perform(&pack, &Op::ListResources {}) else {
        panic!("expected a listing");
    };
    let uris: Vec<_> = list.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(
        uris[..3],
        [
            "schema:///colour",
            "schema:///lamp",
            "schema:///synesthetic-asset"
        ]
    );
    assert_eq!(uris.len(), 3 + 8);
    assert!(uris.contains(&"example:///deep/er/Lamp_Example.json"));
    assert!(uris.contains(&"example:///a%20b/%7Bx%7D%C3%A9.json"));
    for resource in &list {
        let Ok(text) = read(&pack, &resource.uri) else {
            // Those that are not valid are not given.
            assert!(
                ["Lamp_Bad", "Ghost", "Odd"]
                    .iter()
                    .any(|name| resource.name.starts_with(name))
            );
            continue;
        };
        let folder = if resource.uri.starts_with("schema") {
            format!("schemas/{}.schema.json", resource.name)
        } else {
            format!("examples/{}", resource.name)
        };
        let file = std::fs::read_to_string(world.path(&folder)).unwrap();
        assert_eq!(text["text"], file, "{}", resource.uri);
        assert_eq!(text["uri"], resource.uri);
        assert_eq!(text["mimeType"].as_str(), resource.mime_type.as_deref());
    }
    assert_eq!(read(&pack, "schema:///lamp").unwrap()["text"], SCHEMAS[1].1);
}

#[test]
fn no_uri_leads_out_and_an_invalid_example_is_not_given() {
    let pack = World::new().pack();
    for uri in [
        "schema:///../lamp",
        "schema:////etc/passwd",
        "schema:///%2e%2e/lamp",
        "example:///../schemas/lamp.schema.json",
        "example:///..%2fschemas%2flamp.schema.json",
        "example:///%252e%252e/x",
        "example:///a%00",
        "example:///a%5Cb",
        "example:///%ff",
    ] {
        let problem = read(&pack, uri).unwrap_err();
        assert_eq!(problem.kind, ErrorKind::InvalidParams, "{uri}");
        let details = problem.details.unwrap().to_value().unwrap();
        assert_eq!(details, failed(&[("/uri", "invalid_path")]), "{uri}");
    }
    for uri in [
        "schema:///none",
        "example:///none.json",
        "example:///",
        "schema:",
        "other:///x",
    ] {
        let problem = read(&pack, uri).unwrap_err();
        assert_eq!(problem.kind, ErrorKind::ResourceNotFound, "{uri}");
    }
    let invalid = read(&pack, "example:///Lamp_Bad.json").unwrap_err();
    assert_eq!(invalid.kind, ErrorKind::Unsupported);
    let details = invalid.details.unwrap().to_value().unwrap();
    assert_eq!(
        details,
        answer(&pack, "get_example", &json!({"path": "Lamp_Bad.json"}))
    );
}

#[test]
fn names_and_paths_complete_in_their_templates() {
    let pack = World::new().pack();
    let complete = |template: &str, argument: &str, value: &str| {
        let request = Completion {
            of: CompletionTarget::Resource(template.into()),
            argument: argument.into(),
            value: value.into(),
            context: Json::empty_object(),
        };
        members(&pack, &Op::Complete(request)).unwrap()["completion"]["values"].clone()
    };
    assert_eq!(complete("schema:///{name}", "name", "l"), json!(["lamp"]));
    assert_eq!(
        complete("schema:///{name}", "name", ""),
        json!(["colour", "lamp", "synesthetic-asset"])
    );
    assert_eq!(
        complete("example:///{+path}", "path", "Lamp"),
        json!(["Lamp_Bad.json", "Lamp_Example.json"])
    );
    assert_eq!(
        complete("example:///{+path}", "path", "deep/"),
        json!(["deep/er/Lamp_Example.json"])
    );
    assert_eq!(complete("example:///{+path}", "name", ""), json!([]));
    assert_eq!(complete("other:///{name}", "name", ""), json!([]));
    let templates: Vec<String> = pack
        .catalog()
        .resource_templates
        .into_iter()
        .map(|template| template.uri_template)
        .collect();
    assert_eq!(templates, ["schema:///{name}", "example:///{+path}"]);
}
