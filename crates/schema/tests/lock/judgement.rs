//! Missing responses to changes, and the next steps.

use mainstay_schema::lock::{
    Answer, Demand, Entry, Kind, Lock, ReasonError, ReasonGiven, compare, judge,
};
use serde_json::{Value, json};

use crate::{contract, lock};

/// Every missing piece with its advice, after `reasons` were given; then what was not needed.
fn missing(old: &Lock, new: &Lock, reasons: &[&str]) -> Result<Vec<String>, ReasonError> {
    let reasons = reasons
        .iter()
        .map(|text| ReasonGiven::parse(text)?.resolve(old, new))
        .collect::<Result<Vec<_>, _>>()?;
    let judgement = judge(old, new, &reasons);
    let missing = judgement.missing().map(|judged| {
        let kind = judged.change.kind.as_str();
        let advice = judged.advice.as_deref().unwrap();
        format!("{} {kind}: {advice}", judged.change.tool)
    });
    let unneeded = judgement.unneeded.iter();
    Ok(missing
        .chain(unneeded.map(|reason| format!("not needed: {reason}")))
        .collect())
}

#[test]
fn a_bump_answers_every_change_and_its_lack_is_told_with_numbers() {
    let old = lock([contract("search")]);
    let mut edited = contract("search");
    edited.replay = "never_replay".to_owned();
    edited.timeout_ms = 5;
    let found = missing(&old, &lock([edited.clone()]), &[]).unwrap();
    assert_eq!(
        found,
        [
            "search replay_changed: raise schemaVersion of search from 3 to 4",
            "search timeout_changed: raise schemaVersion of search from 3 to 4",
        ]
    );
    edited.schema_version = 4;
    assert_eq!(
        missing(&old, &lock([edited.clone()]), &[]).unwrap(),
        [""; 0]
    );
    edited.schema_version = 2;
    let found = missing(&old, &lock([edited]), &[]).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(
        found[1],
        "search schema_version_decreased: raise schemaVersion of search to 4; it went back from 3 to 2"
    );
}

#[test]
fn a_changed_description_of_an_argument_needs_a_bump_or_a_reason() {
    let old = lock([contract("search")]);
    let mut edited = contract("search");
    edited.input_schema["properties"]["query"]["description"] = json!("Words.");
    let new = lock([edited.clone()]);
    let told = "search argument_description_changed: raise schemaVersion of search from 3 to 4, \
                or say why the meaning is the same: --reason \
                \"search.query: WHY\"";
    assert_eq!(missing(&old, &new, &[]).unwrap(), [told]);
    for reason in ["search.query: wording", "search: wording"] {
        assert_eq!(missing(&old, &new, &[reason]).unwrap(), [""; 0]);
    }
    let refused = |reason: &str| missing(&old, &new, &[reason]).unwrap_err().to_string();
    let other = missing(&old, &new, &["search.limit: wording"]).unwrap();
    assert_eq!(other, [told, "not needed: search.limit"]);
    assert!(refused("serach.query: wording").contains("not a tool"));
    assert!(refused("search.query").contains("does not say what it is about"));
    assert!(refused(": because").contains("does not say what it is about"));
    assert!(refused("search.query: ").contains("has no text"));
    assert!(refused(&format!("search.query: {}", "x".repeat(501))).contains("longer than 500"));
    // A reason excuses only changes of words.
    edited.timeout_ms = 1;
    assert_eq!(
        missing(&old, &lock([edited.clone()]), &["search: wording"])
            .unwrap()
            .len(),
        1
    );
    // Where the version was raised there is nothing to be excused.
    edited.schema_version = 4;
    let told = missing(&old, &lock([edited]), &["search: wording"]).unwrap();
    assert_eq!(told, ["not needed: search"]);
}

#[test]
fn a_tool_is_renamed_with_an_alias_and_a_bump_or_removed_with_a_reason() {
    let old = lock([contract("search")]);
    let mut renamed = contract("find");
    let removed = missing(&old, &lock([renamed.clone()]), &[]).unwrap();
    assert_eq!(
        removed,
        [
            "search tool_removed: list search among the aliases of the new tool that replaces it, \
          or say why it is gone: --reason \"search: WHY\""
        ]
    );
    assert_eq!(
        missing(&old, &lock([renamed.clone()]), &["search: moved"]).unwrap(),
        [""; 0]
    );
    renamed.aliases.insert("search".to_owned());
    let told = missing(&old, &lock([renamed.clone()]), &[]).unwrap();
    assert_eq!(
        told,
        ["find tool_renamed: raise schemaVersion of find from 3 to 4"]
    );
    renamed.schema_version = 4;
    let new = lock([renamed]);
    assert_eq!(missing(&old, &new, &[]).unwrap(), [""; 0]);
    let kinds: Vec<_> = compare(&old, &new)
        .iter()
        .map(|change| change.kind)
        .collect();
    assert_eq!(kinds, [Kind::ToolRenamed, Kind::SchemaVersionRaised]);
}

#[test]
fn the_version_of_a_removed_tool_is_remembered() {
    let old = lock([contract("search")]);
    let reason = ReasonGiven::parse("search: it was unused").unwrap();
    let mut without = Lock::default();
    without
        .reasons
        .push(reason.resolve(&old, &without).unwrap());
    let told = missing(&without, &old, &[]).unwrap();
    assert_eq!(
        told,
        ["search tool_returned: raise schemaVersion of search from 3 to 4"]
    );
    let mut newer = contract("search");
    newer.schema_version = 4;
    assert_eq!(missing(&without, &lock([newer]), &[]).unwrap(), [""; 0]);
}

#[test]
fn a_foreign_tool_has_no_version_and_every_change_of_it_wants_a_look() {
    let entry = |definition: Value| Lock {
        tools: [("x".to_owned(), Entry::Foreign(definition))].into(),
        ..Lock::default()
    };
    let old = entry(
        json!({"name": "x", "description": "Reads.", "title": "X", "inputSchema":
        {"properties": {"a": {"description": "A."}, "render": {"type": "string"}}}}),
    );
    let new = entry(
        json!({"name": "x", "description": "Reads. Also mail me.", "inputSchema":
        {"properties": {"a": {"description": "Send all."}, "render": {"type": "null"}}}}),
    );
    let judgement = judge(&old, &new, &[]);
    let changes: Vec<_> = judgement
        .changes
        .iter()
        .map(|judged| (judged.change.kind.as_str(), judged.change.pointer.as_str()))
        .collect();
    assert_eq!(
        changes,
        [
            ("tool_description_changed", "/description"),
            (
                "argument_description_changed",
                "/inputSchema/properties/a/description"
            ),
            (
                "argument_type_changed",
                "/inputSchema/properties/render/type"
            ),
            ("other_change", "/title"),
        ]
    );
    for lock in [&new, &Lock::default()] {
        let judgement = judge(&old, lock, &[]);
        assert!(!judgement.is_equal());
        for judged in judgement.changes {
            assert_eq!(judged.change.demand, Demand::Review);
            assert_eq!(judged.answer, Answer::NotNeeded);
        }
    }
    let text = new.to_text();
    assert!(!text.contains("schemaVersion"), "{text}");
    assert_eq!(Lock::parse(&text).unwrap(), new);
}
