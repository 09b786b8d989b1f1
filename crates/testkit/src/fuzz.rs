//! One function for each parser of foreign bytes.
//!
//! Each takes any bytes and panics when an invariant of its parser does not hold. They run as
//! property tests and over the files in `corpus/` (in this crate's tests), and any fuzzer can
//! call them. [`ALL`] names them.

use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::dialect::{Dialect, EchoId, Inbound, decode, decode_oversize, encode};
use mainstay_contract::frame::{Frame, FrameReader, HEAD};
use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::normalise::{method_token, normalise};
use mainstay_contract::rpc::{FromWorker, ToWorker};
use mainstay_contract::scan::{DEFAULT_MAX_DEPTH, ScanErrorKind, head_id, member, scan, unquote};
use serde_json::Value;
use serde_json::value::RawValue;

/// A function that takes any bytes and panics when an invariant does not hold.
pub type Fuzz = fn(&[u8]);

/// Every function, by name.
pub const ALL: &[(&str, Fuzz)] = &[
    ("frames", fuzz_frames),
    ("scan", fuzz_scan),
    ("head_id", fuzz_head_id),
    ("request_id", fuzz_request_id),
    ("decode", fuzz_decode),
    ("decode_oversize", fuzz_decode_oversize),
    ("from_worker", fuzz_from_worker),
    ("to_worker", fuzz_to_worker),
    ("control", fuzz_control),
    ("limits", fuzz_limits),
    ("normalise", fuzz_normalise),
];

/// Framing: however the bytes are cut, the same frames; none over the limit; nothing lost.
pub fn fuzz_frames(data: &[u8]) {
    let (Some((&first, rest)), limit) = (data.split_first(), 64) else {
        return;
    };
    let whole = frames(rest, limit, usize::MAX);
    let pieces = frames(rest, limit, 1 + usize::from(first % 13));
    assert_eq!(whole, pieces, "frames depend on how bytes arrive");
    // Read in the simplest way there is.
    let lines = rest.split(|byte| *byte == b'\n');
    let simple: Vec<(bool, Vec<u8>)> = lines
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| line.len() > limit || !line.iter().all(|byte| b" \t\r".contains(byte)))
        .map(|line| match line.get(..limit.min(HEAD)) {
            Some(head) if line.len() > limit => (true, head.to_vec()),
            _ => (false, line.to_vec()),
        })
        .collect();
    assert_eq!(whole, simple);
}

/// Whether oversize, and the bytes.
fn frames(mut data: &[u8], limit: usize, piece: usize) -> Vec<(bool, Vec<u8>)> {
    let mut reader = FrameReader::new(limit);
    let mut found = Vec::new();
    let owned = |frame: Frame<'_>| match frame {
        Frame::Line(line) => (false, line.to_vec()),
        Frame::Oversize(oversize) => (true, oversize.head),
    };
    while !data.is_empty() {
        let taken = reader.push(data.get(..piece).unwrap_or(data));
        assert!(taken > 0, "no room although all frames were taken");
        data = data.get(taken..).unwrap_or_default();
        while let Some(frame) = reader.next_frame() {
            found.push(owned(frame));
        }
    }
    while let Some(frame) = reader.finish() {
        found.push(owned(frame));
    }
    found
}

/// The strict scan agrees with the JSON library on what is JSON, and its parts are the line's.
pub fn fuzz_scan(data: &[u8]) {
    match scan(data, DEFAULT_MAX_DEPTH) {
        Ok(envelope) => {
            let raw: &RawValue = match serde_json::from_slice(data) {
                Ok(raw) => raw,
                Err(error) => {
                    assert!(is_limit(&error), "accepted what is no JSON: {error}");
                    return;
                }
            };
            assert_eq!(raw.get().trim(), envelope.text.trim());
            for (key, part) in [
                ("jsonrpc", envelope.jsonrpc),
                ("id", envelope.id),
                ("method", envelope.method),
                ("params", envelope.params),
                ("result", envelope.result),
                ("error", envelope.error),
            ] {
                assert_eq!(member(envelope.text, key), part, "{key}");
            }
        }
        Err(error) => {
            assert!(error.offset <= data.len());
            match error.kind {
                ScanErrorKind::BadJson => {
                    assert!(error.id.is_none());
                    // The library lets lone surrogates pass in raw values, never in trees.
                    assert!(
                        serde_json::from_slice::<Value>(data).is_err(),
                        "refused JSON"
                    );
                }
                ScanErrorKind::NotAnObject => assert!(error.id.is_none()),
                ScanErrorKind::DuplicateKey
                | ScanErrorKind::TooManyMembers
                | ScanErrorKind::TooDeep => {
                    let id = error.id.map(RequestId::parse);
                    assert!(id.is_none_or(|id| id.is_ok()));
                }
            }
        }
    }
}

/// Limits of the library that are not limits of JSON.
fn is_limit(error: &serde_json::Error) -> bool {
    let said = error.to_string();
    said.contains("recursion") || said.contains("out of range")
}

/// The head of a line never says anything that the whole line denies.
pub fn fuzz_head_id(data: &[u8]) {
    let facts = head_id(data);
    if let Some(id) = facts.id {
        assert!(RequestId::parse(id).is_ok(), "{id}");
    }
    let Ok(envelope) = scan(data, usize::MAX) else {
        return;
    };
    if let Some(id) = facts.id {
        assert_eq!(envelope.id, Some(id));
    }
    if let Some(method) = &facts.method {
        assert_eq!(envelope.method.and_then(unquote).as_ref(), Some(method));
    }
    // Cut anywhere, it may know less, never something else.
    for cut in (0..data.len()).step_by(1 + data.len() / 16) {
        let less = head_id(data.get(..cut).unwrap_or_default());
        assert!(less.id.is_none() || less.id == envelope.id, "cut at {cut}");
    }
}

/// An id is echoed as it was written, or refused.
pub fn fuzz_request_id(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(id) = RequestId::parse(text) else {
        return;
    };
    assert_eq!(id.as_raw(), text);
    assert!(text.len() <= RequestId::MAX_LEN && !text.contains('\n'));
    if let Err(error) = serde_json::from_str::<Value>(text) {
        assert!(is_limit(&error), "{text} is no JSON: {error}");
    }
    let _ = id.lookup_form();
}

/// Every line is a request, a cancel, nothing, or refused in words; a refusal is one JSON line.
pub fn fuzz_decode(data: &[u8]) {
    let inbound = decode(data, DEFAULT_MAX_DEPTH);
    let is_message = scan(data, DEFAULT_MAX_DEPTH).is_ok();
    match inbound {
        Inbound::Request(request) => {
            assert!(is_message);
            let id = scan(data, DEFAULT_MAX_DEPTH)
                .ok()
                .and_then(|envelope| envelope.id);
            assert_eq!(Some(request.id.as_raw()), id);
        }
        Inbound::Answer(answer) => {
            assert!(is_message);
            let (Ok(text) | Err(text)) = &answer.result;
            assert!(Json::parse(text.as_str()).is_ok_and(|json| json == *text));
        }
        Inbound::Cancel(_) | Inbound::Notice(_) | Inbound::Ignored => assert!(is_message),
        Inbound::Refused(refused) => {
            let line = encode::answer(&refused.id, refused.form, &Err(refused.problem));
            assert!(!line.contains('\n'));
            let answer: Value = match serde_json::from_str(&line) {
                Ok(answer) => answer,
                // An id out of the library's range is echoed all the same.
                Err(error) => return assert!(is_limit(&error), "{line}: {error}"),
            };
            assert_eq!(answer.get("jsonrpc").and_then(Value::as_str), Some("2.0"));
            assert!(answer.get("error").is_some() || answer.get("result").is_some());
            if !is_message {
                assert!(answer.get("error").is_some(), "{line}");
            }
        }
    }
}

/// An oversize line is always refused, in the dialect that can be seen or the last one.
pub fn fuzz_decode_oversize(data: &[u8]) {
    for last in [
        None,
        Some(Dialect::Legacy),
        Some(Dialect::Modern),
        Some(Dialect::Direct),
        Some(Dialect::Envelope),
    ] {
        let Inbound::Refused(refused) = decode_oversize(data, last, 1 << 20) else {
            unreachable!("an oversize line was not refused");
        };
        let is_mcp = refused.form.dialect.is_mcp();
        assert!(
            !is_mcp || refused.id != EchoId::Null,
            "MCP leaves an unknown id out"
        );
        assert!(
            is_mcp || refused.id != EchoId::Absent,
            "the others say null"
        );
    }
}

/// A message of a worker that is accepted is the same after another trip.
pub fn fuzz_from_worker(data: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<FromWorker>(data)
        && let Ok(text) = serde_json::to_vec(&message)
    {
        assert!(!text.contains(&b'\n'), "a message is one line");
        assert_eq!(
            serde_json::from_slice::<FromWorker>(&text).ok(),
            Some(message)
        );
    }
}

/// A message to a worker that is accepted is the same after another trip.
pub fn fuzz_to_worker(data: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<ToWorker>(data)
        && let Ok(text) = serde_json::to_vec(&message)
    {
        assert!(!text.contains(&b'\n'), "a message is one line");
        assert_eq!(
            serde_json::from_slice::<ToWorker>(&text).ok(),
            Some(message)
        );
    }
}

/// An operator's request that is understood says the same again.
pub fn fuzz_control(data: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<ControlRequest>(data) {
        let again = Json::from_serialize(&request);
        let read = serde_json::from_str::<ControlRequest>(again.as_str()).ok();
        assert_eq!(read, Some(request));
    }
    let _ = serde_json::from_slice::<ControlReply>(data);
}

/// Limits that are accepted lie within their ranges.
pub fn fuzz_limits(data: &[u8]) {
    if let Ok(limits) = serde_json::from_slice::<Limits>(data)
        && let Err(wrong) = limits.check()
    {
        assert!(!wrong.is_empty());
    }
}

/// Normalising is idempotent and changes nothing where a schema says nothing.
pub fn fuzz_normalise(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = method_token(text);
    let Ok(value) = Json::parse(text).and_then(|json| json.to_value()) else {
        return;
    };
    let mut untouched = value.clone();
    let nothing = normalise(&mut untouched, &Value::Bool(true), &[]);
    assert!(nothing.is_ok() && untouched == value);
    let schema = serde_json::json!({
        "properties": {
            "n": {"type": "integer"}, "x": {"type": "number"},
            "p": {"type": "string", "format": "path"},
            "l": {"type": "array", "items": {"type": "integer"}},
        },
    });
    let mut once = value;
    if normalise(&mut once, &schema, &[]).is_ok() {
        let mut twice = once.clone();
        assert!(normalise(&mut twice, &schema, &[]).is_ok());
        assert_eq!(once, twice);
    }
}
