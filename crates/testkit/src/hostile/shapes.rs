//! JSON that is no message: -32600, with the id when there is one.

use super::{Expectation, Make, Rng};

pub(super) const KINDS: &[(&str, Make)] = &[
    ("depth bomb of arrays", array_bomb),
    ("depth bomb of objects", object_bomb),
    ("depth bomb before the id", late_id_bomb),
    ("depth bomb at the top", top_bomb),
    ("two ids", two_ids),
    ("the same id twice", same_id_twice),
    ("duplicate known key", duplicate_known),
    ("duplicate unknown key", duplicate_unknown),
    ("duplicate key by escapes", duplicate_escaped),
    ("wrong jsonrpc", wrong_version),
    ("wrong jsonrpc without id", wrong_version_anonymous),
    ("batch", batch),
    ("top-level scalar", scalar),
    ("method of the wrong type", method_type),
    ("no method", no_method),
    ("params of the wrong type", params_type),
    ("id of the wrong type", id_type),
    ("id too long", id_too_long),
    ("control message with an id", control_with_id),
];

/// The limit of the design; containers within each other, the message included.
const DEPTH: usize = 128;

fn deep(rng: &mut Rng, number: u64) -> usize {
    match number % 200 {
        0 => 100_000,
        1 => DEPTH + 1,
        _ => rng.between(DEPTH + 1, 4_000),
    }
}

fn nested(open: &str, inside: &str, close: &str, depth: usize) -> String {
    format!("{}{inside}{}", open.repeat(depth), close.repeat(depth))
}

fn array_bomb(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    // Two levels are the message and its params.
    let bomb = nested("[", "", "]", deep(rng, id) - 2);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":{bomb}}}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn object_bomb(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let bomb = nested("{\"a\":", "1", "}", deep(rng, id) - 1);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{bomb}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn late_id_bomb(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let bomb = nested("[{\"a\":", "null", "}]", deep(rng, id));
    let line = format!(r#"{{"x":{bomb},"jsonrpc":"2.0","method":"m","id":{id}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn top_bomb(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    (
        nested("[", "", "]", deep(rng, id)).into(),
        Expectation::nobodys_fault(),
    )
}

fn two_ids(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let other = rng.pick(&["\"other\"", "null", "{}", "1.0"]);
    let line = match rng.between(0, 1) {
        0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"id":{other},"method":"m"}}"#),
        _ => format!(r#"{{"id":{other},"jsonrpc":"2.0","method":"m","id":{id}}}"#),
    };
    // Nobody can say whom an answer with either would reach.
    (line.into(), Expectation::nobodys_fault())
}

fn same_id_twice(_: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","id":{id}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn duplicate_known(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let extra = rng.pick(&[
        r#""method":"m""#,
        r#""method":"other""#,
        r#""params":{}"#,
        r#""jsonrpc":"2.0""#,
    ]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{}},{extra}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn duplicate_unknown(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let many: String = (0..rng.between(0, 40))
        .map(|n| format!(r#""k{n}":{n},"#))
        .collect();
    let line = format!(r#"{{"jsonrpc":"2.0","x":1,{many}"id":{id},"method":"m","x":1}}"#);
    (line.into(), Expectation::wrong(id))
}

fn duplicate_escaped(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let extra = rng.pick(&[
        r#""\u006dethod":"m""#,
        r#""json\u0072pc":"2.0""#,
        r#""p\u0061rams":{}"#,
        r#""\u0078":1"#,
    ]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{}},"x":0,{extra}}}"#);
    (line.into(), Expectation::wrong(id))
}

const VERSIONS: [&str; 9] = [
    r#""jsonrpc":"1.0","#,
    r#""jsonrpc":2.0,"#,
    r#""jsonrpc":2,"#,
    r#""jsonrpc":null,"#,
    r#""jsonrpc":"2.0 ","#,
    r#""jsonrpc":["2.0"],"#,
    r#""jsonrpc":"","#,
    r#""JSONRPC":"2.0","#,
    "",
];

fn wrong_version(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = format!(
        r#"{{{}"id":{id},"method":"tools/list"}}"#,
        rng.pick(&VERSIONS)
    );
    (line.into(), Expectation::wrong(id))
}

fn wrong_version_anonymous(rng: &mut Rng, _: u64) -> (Vec<u8>, Expectation) {
    let line = format!(r#"{{{}"method":"m"}}"#, rng.pick(&VERSIONS));
    (line.into(), Expectation::nobodys_fault())
}

fn batch(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let one = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
    let line = match rng.between(0, 3) {
        0 => "[]".to_owned(),
        1 => format!("[{one}]"),
        2 => format!("[{one},{one}]"),
        _ => format!(" [ {one} , 1 ] "),
    };
    (line.into(), Expectation::nobodys_fault())
}

fn scalar(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = match rng.between(0, 5) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => format!("{id}"),
        3 => format!("\"{id}\""),
        4 => " \t-1e400 ".to_owned(),
        _ => r#""{\"jsonrpc\":\"2.0\"}""#.to_owned(),
    };
    (line.into(), Expectation::nobodys_fault())
}

fn method_type(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let method = rng.pick(&["1", "null", "true", "[\"m\"]", "{}"]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn no_method(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let rest = rng.pick(&[
        "",
        r#","params":{}"#,
        r#","Method":"m""#,
        r#","result":1,"error":{}"#,
    ]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id}{rest}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn params_type(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let params = rng.pick(&["[]", "[1,2]", "1", "\"{}\"", "true", "null"]);
    let method = rng.pick(&["m", "tools/call", "system_health"]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    (line.into(), Expectation::wrong(id))
}

fn id_type(rng: &mut Rng, _: u64) -> (Vec<u8>, Expectation) {
    let id = rng.pick(&["null", "true", "false", "[1]", "{}", r#"{"id":1}"#]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
    (line.into(), Expectation::nobodys_fault())
}

fn id_too_long(rng: &mut Rng, _: u64) -> (Vec<u8>, Expectation) {
    let length = rng.between(1_025, 5_000);
    let id = match rng.between(0, 1) {
        0 => "7".repeat(length),
        _ => format!("\"{}\"", "i".repeat(length)),
    };
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
    (line.into(), Expectation::nobodys_fault())
}

fn control_with_id(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let method = rng.pick(&[
        "$/cancelRequest",
        "notifications/cancelled",
        "notifications/x",
    ]);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"id":{id},"requestId":{id}}}}}"#
    );
    (line.into(), Expectation::wrong(id))
}
