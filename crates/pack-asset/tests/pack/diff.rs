//! `diff_assets`, by hand and over the public patch tests.

use std::fs;

use mainstay_worker::{ErrorKind, Pack};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::applier::{Doc, apply};
use crate::data::data;
use crate::fixture::{World, answer, call, call_raw, failed};

fn pack() -> Pack {
    World::empty().pack()
}

/// The operations from one document to another, both as they are written.
fn patch(pack: &Pack, base: &str, new: &str) -> Doc {
    let arguments = format!(r#"{{"base":{base},"new":{new}}}"#);
    let given = call_raw(pack, "diff_assets", &arguments).unwrap();
    let Doc::Object(members) = Doc::parse(given.json.as_str()) else {
        panic!("{given:?}");
    };
    members["patch"].clone()
}

fn assert_leads(pack: &Pack, base: &str, new: &str) {
    let patch = patch(pack, base, new);
    let (from, to) = (Doc::parse(base), Doc::parse(new));
    let forth = apply(&from, patch.elements()).unwrap();
    assert_eq!(forth, to, "{base} -> {new}: {patch:?}");
    let back = apply(&from, patch.elements().iter().rev()).unwrap();
    assert_eq!(back, to, "reversed: {base} -> {new}: {patch:?}");
}

// covers: diff_assets.base, diff_assets.new
#[test]
fn both_sides_decide() {
    let pack = pack();
    let (one, two) = (
        json!({"a": 1, "b": [1], "c": 0}),
        json!({"a": 2, "b": [1], "d": null}),
    );
    let forth = call(&pack, "diff_assets", &json!({"base": one, "new": two})).unwrap();
    let expected = json!({"ok": true, "patch": [
        {"op": "replace", "path": "/a", "value": 2},
        {"op": "remove", "path": "/c"},
        {"op": "add", "path": "/d", "value": null},
    ]});
    assert_eq!(forth.value(), expected);
    assert_eq!(
        forth.text,
        "3 changes: 1 add, 1 remove, 1 replace\n- replace /a: 2\n- remove /c\n- add /d: null"
    );
    let back = answer(&pack, "diff_assets", &json!({"base": two, "new": one}));
    assert_eq!(
        back["patch"][1],
        json!({"op": "add", "path": "/c", "value": 0})
    );
    let same = call(&pack, "diff_assets", &json!({"base": one, "new": one})).unwrap();
    assert_eq!(same.value(), json!({"ok": true, "patch": []}));
    assert_eq!(same.text, "no changes");
    let whole = call(&pack, "diff_assets", &json!({"base": [], "new": {}})).unwrap();
    assert_eq!(whole.text, "1 change: 1 replace\n- replace (root): {}");
}

#[test]
fn big_numbers_and_unusual_names_survive() {
    let pack = pack();
    for (base, new) in [
        ("12345678901234567890123", "12345678901234567890124"),
        (r#"{"a":1}"#, r#"{"a":1.0}"#),
        (r#"{"a":100}"#, r#"{"a":1e2}"#),
        (r#"{"a":0}"#, r#"{"a":-0}"#),
        (r#"{"a":true}"#, r#"{"a":1}"#),
        (r#"{"":{"":1}}"#, r#"{"":{"":2},"~":1,"/":2,"~1":3}"#),
        (
            r#"{"\u0000\n\"":1}"#,
            r#"{"\u0000\n\"":2,"é\ud83d\ude00":[]}"#,
        ),
        (r#"{"a":{"b":{}}}"#, r#"{"a":{"b":[]}}"#),
        (r#"{"a":null}"#, "{}"),
        ("null", "false"),
    ] {
        assert_leads(&pack, base, new);
        assert_leads(&pack, new, base);
        assert_eq!(patch(&pack, base, base).elements(), []);
    }
}

#[test]
fn what_cannot_be_compared_says_where() {
    let pack = pack();
    let deep = format!(
        "{}{}",
        "{\"a\":".repeat(101),
        "1".to_owned() + &"}".repeat(101)
    );
    for (arguments, path, part) in [
        (
            r#"{"base":{"x":{"a":1,"a":2}},"new":{}}"#.to_owned(),
            "/base/x",
            "given twice",
        ),
        (
            r#"{"base":{},"new":[{"b":1,"b":1}]}"#.to_owned(),
            "/new/0",
            "given twice",
        ),
        (
            r#"{"base":{"a":1},"new":{"a":[0,1e400]}}"#.to_owned(),
            "/new/a/1",
            "out of range",
        ),
        (
            format!(r#"{{"base":{{}},"new":{deep}}}"#),
            &format!("/new{}", "/a".repeat(100)),
            "levels",
        ),
    ] {
        let problem = call_raw(&pack, "diff_assets", &arguments).unwrap_err();
        assert_eq!(problem.kind, ErrorKind::InvalidArguments);
        let details = problem.details.unwrap().to_value().unwrap();
        let said = details["errors"][0]["msg"].as_str().unwrap().to_owned();
        assert!(said.contains(part), "{said}");
        assert_eq!(details, failed(&[(path, &said)]));
    }
}

#[test]
fn a_patch_over_the_limit_is_a_typed_refusal() {
    let name = "n".repeat(300_000);
    let members = |value: u8| -> Value {
        let members: Value = (0..200).map(|n| (n.to_string(), json!(value))).collect();
        json!({&name: members})
    };
    let arguments = json!({"base": members(1), "new": members(2)});
    let problem = call(&pack(), "diff_assets", &arguments).unwrap_err();
    assert_eq!(problem.kind, ErrorKind::AnswerTooLarge);
    assert!(
        problem.message.contains("8388608 bytes"),
        "{}",
        problem.message
    );
}

/// One public test.
#[derive(serde::Deserialize)]
struct Case<'a> {
    #[serde(default)]
    comment: String,
    #[serde(borrow)]
    doc: &'a RawValue,
    #[serde(borrow)]
    patch: &'a RawValue,
    #[serde(borrow, default)]
    expected: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    disabled: bool,
}

#[test]
fn the_applier_passes_the_public_patch_tests_and_our_patches_lead_between_their_documents() {
    let Some(folder) = data("json-patch-tests") else {
        return;
    };
    let pack = pack();
    let (mut applied, mut led) = (0, 0);
    for file in ["tests.json", "spec_tests.json"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let cases: Vec<Case<'_>> = serde_json::from_str(&text).unwrap();
        for case in cases {
            let about = format!("{file}: {} {}", case.comment, case.patch.get());
            let document = Doc::parse(case.doc.get());
            if !case.disabled {
                let found = apply(&document, Doc::parse(case.patch.get()).elements());
                match (&case.error, case.expected, found) {
                    (Some(_), _, found) => assert!(found.is_err(), "{about}: {found:?}"),
                    (None, Some(expected), found) => {
                        assert_eq!(found, Ok(Doc::parse(expected.get())), "{about}");
                    }
                    (None, None, found) => assert!(found.is_ok(), "{about}: {found:?}"),
                }
                applied += 1;
            }
            if let Some(expected) = case.expected {
                assert_leads(&pack, case.doc.get(), expected.get());
                assert_leads(&pack, expected.get(), case.doc.get());
                led += 1;
            }
        }
    }
    // 112 cases of which four are disabled by the suite itself.
    assert_eq!(applied, 108);
    assert!(led >= 70, "{led} pairs of documents");
}
