//! Arbitrary bytes from outside: nothing panics, and the strict scan agrees with
//! `serde_json` on what is JSON.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::fmt;

use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::id::RequestId;
use mainstay_contract::scan::{
    DEFAULT_MAX_DEPTH, Envelope, ScanErrorKind, head_id, member, members, scan, unquote,
};
use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// A top-level object's keys, duplicates included.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, Value>()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// The reading of a line by `serde_json`, in our words. `None` where the two are known to differ:
/// `serde_json` refuses numbers beyond `f64`, which are correct JSON.
fn judged_by_serde(line: &[u8]) -> Option<Result<(), ScanErrorKind>> {
    match serde_json::from_slice::<Value>(line) {
        Err(error) if error.to_string().starts_with("number out of range") => None,
        Err(_) => Some(Err(ScanErrorKind::BadJson)),
        Ok(Value::Object(_)) => {
            let Keys(keys) = serde_json::from_slice(line).unwrap();
            let mut seen = HashSet::new();
            if keys.iter().all(|key| seen.insert(key)) {
                Some(Ok(()))
            } else {
                Some(Err(ScanErrorKind::DuplicateKey))
            }
        }
        Ok(_) => Some(Err(ScanErrorKind::NotAnObject)),
    }
}

fn spans<'a>(envelope: &Envelope<'a>) -> Vec<(&'static str, &'a str)> {
    [
        ("jsonrpc", envelope.jsonrpc),
        ("id", envelope.id),
        ("method", envelope.method),
        ("params", envelope.params),
        ("result", envelope.result),
        ("error", envelope.error),
    ]
    .into_iter()
    .filter_map(|(name, span)| Some((name, span?)))
    .collect()
}

fn lies_within(part: &str, whole: &[u8]) -> bool {
    let (part, whole) = (part.as_bytes().as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

fn agrees(line: &[u8]) -> Result<(), TestCaseError> {
    let Some(expected) = judged_by_serde(line) else {
        return Ok(());
    };
    let scanned = scan(line, DEFAULT_MAX_DEPTH);
    let shown = String::from_utf8_lossy(line);
    prop_assert_eq!(
        scanned.map(|_| ()).map_err(|error| error.kind),
        expected,
        "{}",
        shown
    );
    match scanned {
        Ok(envelope) => {
            prop_assert_eq!(envelope.text.as_bytes(), line);
            let whole: Value = serde_json::from_slice(line).unwrap();
            let spans = spans(&envelope);
            for (name, span) in &spans {
                prop_assert!(lies_within(span, line));
                prop_assert_eq!(span.trim(), *span);
                prop_assert_eq!(&serde_json::from_str::<Value>(span).unwrap(), &whole[*name]);
            }
            let listed: Vec<_> = members(envelope.text).collect();
            prop_assert_eq!(listed.len(), whole.as_object().unwrap().len());
            for (key, value) in &listed {
                prop_assert!(lies_within(value, line));
                prop_assert_eq!(
                    &serde_json::from_str::<Value>(value).unwrap(),
                    &whole[key.as_ref()]
                );
                prop_assert_eq!(member(envelope.text, key), Some(*value));
                let known = spans.iter().find(|(name, _)| name == key);
                prop_assert!(known.is_none_or(|(_, span)| span == value));
            }
        }
        Err(error) => {
            prop_assert!(error.offset <= line.len());
            if let Some(id) = error.id {
                prop_assert!(error.kind != ScanErrorKind::BadJson);
                prop_assert!(lies_within(id, line));
                prop_assert!(RequestId::parse(id).is_ok());
            }
        }
    }
    Ok(())
}

fn everything(bytes: &[u8]) {
    for depth in [0, 3, DEFAULT_MAX_DEPTH] {
        let _ = scan(bytes, depth);
    }
    let facts = head_id(bytes);
    assert!(facts.id.is_none_or(|id| RequestId::parse(id).is_ok()));
    let text = String::from_utf8_lossy(bytes);
    let _ = (members(&text).count(), member(&text, "id"));
    if let Some(content) = unquote(&text) {
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), content);
    }
    if let Ok(id) = RequestId::parse(&text) {
        assert_eq!(id.as_raw(), text);
        let _ = id.lookup_form();
    }
    for limit in [0, 1, 7, 100] {
        let mut reader = FrameReader::new(limit);
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = reader.push(rest);
            rest = &rest[taken..];
            while let Some(frame) = reader.next_frame() {
                within(&frame, limit);
            }
        }
        while let Some(frame) = reader.finish() {
            within(&frame, limit);
        }
    }
}

fn within(frame: &Frame<'_>, limit: usize) {
    match frame {
        Frame::Line(line) => assert!(!line.is_empty() && line.len() <= limit),
        Frame::Oversize(oversize) => assert!(oversize.head.len() <= limit),
    }
}

/// JSON text in many spellings, duplicate keys included.
fn json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
        string(),
    ];
    scalar.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), space())
                .prop_map(|(items, gap)| format!("[{gap}{}{gap}]", items.join(&format!("{gap},")))),
            object(inner),
        ]
    })
}

fn object(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let key = prop_oneof![
        prop::sample::select(vec![
            r#""jsonrpc""#,
            r#""id""#,
            r#""\u0069d""#,
            r#""method""#,
            r#""params""#,
            r#""result""#,
            r#""error""#,
            r#""a""#,
            r#""\u0061""#,
        ])
        .prop_map(str::to_owned),
        string(),
    ];
    (prop::collection::vec((key, inner), 0..6), space()).prop_map(|(entries, gap)| {
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, value)| format!("{key}{gap}:{gap}{value}"))
            .collect();
        format!("{gap}{{{}{gap}}}", entries.join(&format!("{gap},{gap}")))
    })
}

fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z0-9 {}\\[\\],:]{1,40}",
        1 => "[^\"\\\\\\x00-\\x1f]{1,6}",
        1 => r#"\\["\\/bfnrt]"#,
        1 => r"\\u[0-9a-fA-F]{4}",
        1 => r"\\u[dD][89aAbB][0-9a-f]{2}\\u[dD][c-fC-F][0-9a-f]{2}",
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "[ \\t\\r\\n]{1,3}"]
}

/// Bytes that matter to JSON, rather than any.
fn telling_byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        4 => prop::sample::select(b"{}[]\",:\\ntfu0123456789-+.eE \t\r\n\0dD".to_vec()),
        1 => any::<u8>(),
    ]
}

/// A line with some bytes replaced, put in or taken out.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), telling_byte(), 0..3_u8);
    (object(json()), prop::collection::vec(change, 1..4)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (place, byte, how) in changes {
            let place = place.index(bytes.len() + 1);
            match (how, bytes.get_mut(place)) {
                (0, Some(old)) => *old = byte,
                (1, Some(_)) => {
                    bytes.remove(place);
                }
                _ => bytes.insert(place, byte),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn scan_agrees_with_serde_json_on_json(line in prop_oneof![3 => object(json()).boxed(), 1 => json().boxed()]) {
        agrees(line.as_bytes())?;
    }

    #[test]
    fn scan_agrees_with_serde_json_on_damaged_json(line in mutated()) {
        agrees(&line)?;
    }

    #[test]
    fn scan_agrees_with_serde_json_on_soup(line in prop::collection::vec(telling_byte(), 0..12)) {
        agrees(&line)?;
    }

    #[test]
    fn nothing_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        everything(&bytes);
    }

    #[test]
    fn nothing_panics_on_damaged_json(bytes in mutated()) {
        everything(&bytes);
    }

    #[test]
    fn head_of_any_length_reports_only_what_the_whole_line_says(
        line in object(json()),
        cut in any::<prop::sample::Index>(),
    ) {
        if let Ok(envelope) = scan(line.as_bytes(), DEFAULT_MAX_DEPTH) {
            let facts = head_id(&line.as_bytes()[..cut.index(line.len() + 1)]);
            prop_assert!(facts.id.is_none() || facts.id == envelope.id);
            prop_assert!(facts.method.is_none() || facts.method == envelope.method.and_then(unquote));
        }
    }
}
