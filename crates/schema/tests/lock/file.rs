//! The text of a lock, and what is refused.

use mainstay_contract::method::ListKind;
use mainstay_schema::lock::{
    Answer, Contract, Demand, Entry, Lock, LockError, ReasonGiven, Surface, compare, judge,
};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::{contract, lock, spec};

#[test]
fn what_a_running_host_lists_is_the_contract_but_for_the_other_names() {
    let listed = spec("search").definition(120_000);
    let known = contract("search");
    assert_eq!(Contract::listed(&listed, Some(&known)).unwrap(), known);
    let alone = Contract::listed(&listed, None).unwrap();
    assert!(alone.aliases.is_empty() && alone.argument_aliases.is_empty());
    let refused = Contract::listed(&json!({"name": "x"}), None).unwrap_err();
    assert_eq!(refused.to_string(), "tool x has no io.mainstay/contract");
}

fn parse(text: &str) -> String {
    let mut error: &dyn std::error::Error = &Lock::parse(text).unwrap_err();
    let mut told = error.to_string();
    while let Some(source) = error.source() {
        told = format!("{told}: {source}");
        error = source;
    }
    told
}

#[test]
fn a_lock_survives_its_text_and_the_text_is_always_the_same() {
    let mut lock = lock([contract("search"), contract("find")]);
    let reason = ReasonGiven::parse("search.query: clearer words").unwrap();
    lock.reasons.push(reason.resolve(&lock, &lock).unwrap());
    let text = lock.to_text();
    assert_eq!(Lock::parse(&text).unwrap(), lock);
    assert_eq!(Lock::parse(&text).unwrap().to_text(), text);
    assert!(text.ends_with("}\n") && !text.contains("toolingVersion"));
    let again: Value = serde_json::from_str(&text).unwrap();
    let compact = Lock::parse(&again.to_string()).unwrap();
    assert_eq!(compact, lock, "its layout does not matter");
}

#[test]
fn a_lock_is_read_strictly() {
    let text = lock([contract("search")]).to_text();
    assert!(parse("{").starts_with("not a lock: it is not JSON: "));
    assert_eq!(parse("{}"), "not a lock: it has no lockVersion");
    assert_eq!(parse("[1]"), "not a lock: it has no lockVersion");
    assert_eq!(
        parse(r#"{"lockVersion": 3, "new": 1}"#),
        "a lock of version 3; this program reads versions 1 and 2"
    );
    assert_eq!(
        parse(&text.replacen("\"reasons\"", "\"raesons\"", 1)),
        "a lock that cannot be read: unknown field `raesons`, expected one of `lockVersion`, \
         `tools`, `reasons` at line 3 column 11"
    );
    let edited = text.replacen("convergent", "never_replay", 1);
    assert_eq!(
        parse(&edited),
        "edited by hand: the sha256 of search is not that of its definition"
    );
    let renamed = text.replacen("    \"search\": {", "    \"find\": {", 1);
    assert_eq!(
        parse(&renamed),
        "edited by hand: the entry of find has the name of something else"
    );
    let version = "      \"schemaVersion\": 3,\n      \"sha256\"";
    assert!(text.contains(version), "{text}");
    assert_eq!(
        parse(&text.replacen(version, &version.replace('3', "4"), 1)),
        "edited by hand: the entry of search has the schemaVersion of something else"
    );
    let mut whole: Value = serde_json::from_str(&text).unwrap();
    whole["tools"]["search"]["note"] = json!("x");
    assert!(parse(&whole.to_string()).contains("unknown field `note`"));
    let twice = text.replacen("\"tools\": {", "\"tools\": {\"search\": ENTRY,", 1);
    let entry = serde_json::from_str::<Value>(&text).unwrap()["tools"]["search"].to_string();
    assert!(parse(&twice.replace("ENTRY", &entry)).contains("`search` stands here twice"));
}

#[test]
fn an_entry_that_claims_a_version_must_be_a_contract() {
    let foreign = Lock {
        tools: [("x".to_owned(), Entry::Foreign(json!({"name": "x"})))].into(),
        ..Lock::default()
    };
    let mut whole: Value = serde_json::from_str(&foreign.to_text()).unwrap();
    whole["tools"]["x"]["schemaVersion"] = json!(1);
    let refused = Lock::parse(&whole.to_string()).unwrap_err();
    assert!(matches!(refused, LockError::NoContract { .. }), "{refused}");
}

/// A surface with one of each.
fn surface() -> Surface {
    let mut surface = Surface::with_instructions(Some("be kind".to_owned()));
    surface.add(
        ListKind::Prompts,
        json!({"name": "p", "description": "asks"}),
    );
    surface.add(ListKind::Resources, json!({"uri": "a://x", "name": "x"}));
    let template = json!({"uriTemplate": "a://{x}", "name": "all"});
    surface.add(ListKind::Templates, template);
    surface
}

#[test]
fn everything_that_a_model_reads_is_recorded_and_read_back() {
    let whole = Lock {
        surface: Some(surface()),
        ..lock([contract("search")])
    };
    let text = whole.to_text();
    assert!(text.contains("\"lockVersion\": 2"), "{text}");
    assert_eq!(Lock::parse(&text).unwrap(), whole);
    let empty = Lock {
        surface: Some(Surface::default()),
        ..Lock::default()
    };
    assert_eq!(Lock::parse(&empty.to_text()).unwrap(), empty);
    for (what, edited) in [
        ("the instructions", text.replacen("be kind", "obey", 1)),
        ("the prompt p", text.replacen("asks", "obeys", 1)),
        (
            "the template a://{x}",
            text.replacen("\"all\"", "\"any\"", 1),
        ),
    ] {
        let said = format!("edited by hand: the sha256 of {what} is not that of its definition");
        assert_eq!(parse(&edited), said);
    }
    let twice = text.replacen("\"prompts\": {", "\"prompts\": {\"p\": ITEM,", 1);
    let item = serde_json::from_str::<Value>(&text).unwrap()["prompts"]["p"].to_string();
    assert!(parse(&twice.replace("ITEM", &item)).contains("`p` stands here twice"));
}

#[test]
fn a_lock_of_tools_alone_is_read_and_says_nothing_about_the_rest() {
    let old = lock([contract("search")]);
    let text = old.to_text();
    assert!(text.contains("\"lockVersion\": 1"), "{text}");
    assert_eq!(Lock::parse(&text).unwrap(), old);
    let now = Lock {
        surface: Some(surface()),
        ..old.clone()
    };
    assert_eq!(compare(&old, &now), []);
    assert_eq!(
        parse(&text.replacen("\"lockVersion\": 1", "\"lockVersion\": 3", 1)),
        "a lock of version 3; this program reads versions 1 and 2"
    );
}

#[test]
fn every_change_of_what_a_model_reads_wants_a_look() {
    let with = |surface| Lock {
        surface: Some(surface),
        ..Lock::default()
    };
    let mut new = Surface::with_instructions(Some("obey".to_owned()));
    new.add(
        ListKind::Prompts,
        json!({"name": "p", "description": "obeys"}),
    );
    new.add(
        ListKind::Templates,
        json!({"uriTemplate": "b://{x}", "name": "all"}),
    );
    let judgement = judge(&with(surface()), &with(new), &[]);
    let found: Vec<_> = judgement
        .changes
        .iter()
        .map(|judged| {
            assert_eq!(judged.change.demand, Demand::Review);
            assert_eq!(judged.answer, Answer::NotNeeded);
            let change = &judged.change;
            (
                change.tool.as_str(),
                change.kind.as_str(),
                change.pointer.as_str(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("instructions", "instructions_changed", ""),
            ("prompt p", "prompt_changed", "/description"),
            ("resource a://x", "resource_removed", ""),
            ("template a://{x}", "template_removed", ""),
            ("template b://{x}", "template_added", ""),
        ]
    );
}

#[test]
fn nesting_without_end_is_refused() {
    for open in ["[", "{\"a\":", "{\"lockVersion\": 1, \"tools\": {\"x\": "] {
        assert!(parse(&open.repeat(100_000)).starts_with("not a lock: it is not JSON: "));
    }
}

proptest! {
    /// Whatever is done to a lock, reading it ends in the lock or in an error, and a lock that is
    /// read although a byte of it was changed says the same as before.
    #[test]
    fn a_damaged_lock_is_refused_or_unharmed(at in any::<Index>(), byte in any::<u8>()) {
        let lock = lock([contract("search")]);
        let mut bytes = lock.to_text().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(text) = std::str::from_utf8(&bytes)
            && let Ok(read) = Lock::parse(text)
        {
            prop_assert_eq!(read, lock);
        }
    }
}
