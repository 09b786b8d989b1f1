//! Lines that are not JSON: each deserves -32700 with id null.

use super::{Expectation, Make, Rng};

pub(super) const KINDS: &[(&str, Make)] = &[
    ("half escape", half_escape),
    ("bad escape", bad_escape),
    ("lone surrogate", lone_surrogate),
    ("lone surrogate in a key", surrogate_key),
    ("NUL in a string", nul_in_string),
    ("NUL between tokens", nul_between),
    ("control character in a string", control),
    ("byte order mark", bom),
    ("bad UTF-8 in a string", bad_utf8),
    ("bad UTF-8 at the end", bad_utf8_end),
    ("truncated", truncated),
    ("trailing garbage", trailing),
    ("two objects", two_objects),
    ("relaxed JSON", relaxed),
    ("bad number", bad_number),
    ("noise", noise),
    ("unclosed depth bomb", unclosed_bomb),
    ("mismatched brackets", mismatched),
];

fn no_json(line: impl Into<Vec<u8>>) -> (Vec<u8>, Expectation) {
    (line.into(), Expectation::parse_error())
}

/// A request with `inside` where a string value goes on.
fn in_string(id: u64, inside: &[u8]) -> Vec<u8> {
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":"b"#);
    [head.as_bytes(), inside, br#"z"}}"#].concat()
}

fn half_escape(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    no_json(in_string(
        id,
        rng.pick(&[r"\u", r"\u1", r"\u12", r"\u123", r"\u12 "])
            .as_bytes(),
    ))
}

fn bad_escape(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let escape = rng.pick(&[
        r"\x41", r"\a", r"\0", r"\'", r"\U0041", r"\u00g0", r"\ ", r"\u+123",
    ]);
    no_json(in_string(id, escape.as_bytes()))
}

fn lone_surrogate(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let high = 0xd800 + rng.between(0, 0x3ff);
    let low = 0xdc00 + rng.between(0, 0x3ff);
    let escape = match rng.between(0, 4) {
        0 => format!(r"\u{high:04x}"),
        1 => format!(r"\u{low:04x}"),
        2 => format!(r"\u{high:04X}\u{high:04X}"),
        3 => format!(r"\u{low:04x}\u{high:04x}x"),
        _ => format!(r"\u{high:04x}\n\u{low:04x}"),
    };
    no_json(in_string(id, escape.as_bytes()))
}

fn surrogate_key(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let high = 0xd800 + rng.between(0, 0x3ff);
    no_json(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"m","\u{high:04x}":1}}"#
    ))
}

fn nul_in_string(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    no_json(in_string(id, &vec![0; rng.between(1, 9)]))
}

fn nul_between(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}").into_bytes();
    let places = [0, 1, 10, line.len() - 1, line.len()];
    let at = places[rng.between(0, places.len() - 1)];
    no_json([&line[..at], b"\0", &line[at..]].concat())
}

fn control(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let byte = match rng.byte() % 0x20 {
        b'\n' => b'\t',
        byte => byte,
    };
    no_json(in_string(id, &[byte]))
}

fn bom(_: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    no_json(format!(
        "\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}"
    ))
}

/// Sequences that no decoder may accept: overlong, surrogates, past the last character, broken.
const BAD: [&[u8]; 9] = [
    b"\xff",
    b"\x80",
    b"\xc0\xaf",
    b"\xe0\x80\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
];

fn bad_utf8(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    no_json(in_string(id, rng.pick(&BAD)))
}

fn bad_utf8_end(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}");
    no_json([line.as_bytes(), rng.pick(&BAD)].concat())
}

fn truncated(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = in_string(id, b"");
    let cut = rng.between(1, line.len() - 1);
    no_json(&line[..cut])
}

fn trailing(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let rest = rng.pick(&["x", "}", "]", ",", "1", " null", "\"", "//", ";"]);
    no_json(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}{rest}"#
    ))
}

fn two_objects(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let one = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
    let between = rng.pick(&["", " ", ","]);
    no_json(format!("{one}{between}{one}"))
}

fn relaxed(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    no_json(match rng.between(0, 7) {
        0 => format!("{{'jsonrpc':'2.0','id':{id},'method':'m'}}"),
        1 => format!("{{jsonrpc:\"2.0\",id:{id},method:\"m\"}}"),
        2 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m",}}"#),
        3 => format!(r#"{{"jsonrpc":"2.0","id":{id},/*c*/"method":"m"}}"#),
        4 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":[1,]}}}}"#),
        5 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":NaN}}}}"#),
        6 => format!(r#"{{"jsonrpc":"2.0" "id":{id},"method":"m"}}"#),
        _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":True}}}}"#),
    })
}

fn bad_number(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let number = rng.pick(&[
        "01", "-", "+1", ".5", "1.", "1e", "1e+", "0x10", "1_000", "--1", "1.e3",
    ]);
    no_json(match rng.between(0, 1) {
        0 => format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"m"}}"#),
        _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":{number}}}}}"#),
    })
}

fn noise(rng: &mut Rng, _: u64) -> (Vec<u8>, Expectation) {
    // The first byte starts no JSON value and is no white space.
    let mut line = vec![*rng.pick(&[&b'x', &b'}', &0x80, &0xff, &b'=', &0])];
    for _ in 0..rng.between(0, 300) {
        match rng.byte() {
            b'\n' => {}
            byte => line.push(byte),
        }
    }
    no_json(line)
}

fn unclosed_bomb(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let depth = match id % 200 {
        0 => 500_000,
        _ => rng.between(100, 4_000),
    };
    let open = rng.pick(&["[", "{\"a\":", "[{\"a\":"]);
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":"#);
    no_json(head + &open.repeat(depth.min(900_000 / open.len())))
}

fn mismatched(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let depth = rng.between(1, 300);
    let inside = format!("{}{}", "[".repeat(depth), "}".repeat(depth));
    no_json(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":{inside}}}}}"#
    ))
}
