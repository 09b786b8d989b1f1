//! The fuzz functions as property tests, over the corpus, and over hostile frames.

use std::fs;
use std::path::Path;

use mainstay_testkit::fuzz::ALL;
use mainstay_testkit::hostile::hostile;
use proptest::prelude::*;

fn run_all(data: &[u8]) {
    for (_, function) in ALL {
        function(data);
    }
}

#[test]
fn every_file_of_the_corpus_keeps_every_invariant() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let data = fs::read(entry?.path())?;
        // A file is a list of inputs, one a line, and one input as a whole.
        run_all(&data);
        data.split(|byte| *byte == b'\n').for_each(run_all);
        count += 1;
    }
    assert!(count > 0, "the corpus is empty");
    Ok(())
}

#[test]
fn hostile_frames_keep_every_invariant() {
    for frame in hostile(11, 5_000) {
        run_all(&frame.bytes);
    }
}

/// Bytes that look like messages: tokens of JSON in any order.
fn almost_json() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        " ",
        "\n",
        "\r\n",
        "\\u00",
        "\\ud83d\\ude00",
        "1",
        "-0.5e3",
        "null",
        "true",
        "\"id\"",
        "\"jsonrpc\"",
        "\"2.0\"",
        "\"method\"",
        "\"params\"",
        "\"_meta\"",
        "\"tools/call\"",
        "\"io.modelcontextprotocol/protocolVersion\"",
        "\"2026-07-28\"",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":",
        "\"n\":\"12\"",
        "\"p\":\"file:///a%20b\"",
        "{\"answer\":{\"call\":1,\"answer\":",
        "{\"call\":{\"call\":1,\"attempt\":1,",
        "\u{feff}",
        "é",
    ]);
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat().into_bytes())
}

/// Messages with one part broken.
fn broken_message() -> impl Strategy<Value = Vec<u8>> {
    let message = prop::sample::select(vec![
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":"12"}}}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
        r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1.0}}"#,
        r#"{"answer":{"call":7,"answer":{"tool":{"json":{"a":1}}}}}"#,
        r#"{"ready":{"protocol":1,"build":"b","catalog":{"pack":"p","tools":[],"resourceSchemes":[],"resourceTemplates":[],"prompts":[],"completions":false},"facts":{}}}"#,
        r#"{"call":{"call":7,"attempt":1,"timeout_ms":5,"op":{"tool":{"name":"t","arguments":{},"render":"json"}}}}"#,
        r#"{"queue":5,"json_depth":9}"#,
    ]);
    (
        message,
        any::<prop::sample::Index>(),
        any::<Vec<u8>>(),
        0..4_usize,
    )
        .prop_map(|(message, at, bytes, removed)| {
            let mut data = message.as_bytes().to_vec();
            let at = at.index(data.len());
            let end = (at + removed).min(data.len());
            data.splice(at..end, bytes.into_iter().take(6));
            data
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_keep_every_invariant(data: Vec<u8>) {
        run_all(&data);
    }

    #[test]
    fn bytes_that_look_like_messages_keep_every_invariant(data in almost_json()) {
        run_all(&data);
    }

    #[test]
    fn messages_with_a_broken_part_keep_every_invariant(data in broken_message()) {
        run_all(&data);
    }
}
