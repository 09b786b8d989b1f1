//! Results that are too long for a model: their text is cut, with a note that says where the rest
//! is, and that rest is kept for a while as the resource `mainstay://output/ID`.

use std::collections::VecDeque;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::Problem;
use mainstay_contract::render;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};

use super::edit;
use crate::time::Time;

/// Where kept outputs are read.
pub(crate) const PREFIX: &str = "mainstay://output/";
/// Bytes that are kept at most.
const KEPT_BYTES: usize = 64 * 1024 * 1024;
/// How long stored outputs are kept, in milliseconds.
const KEPT_MS: u64 = 600_000;

/// The outputs that are kept, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outputs {
    kept: VecDeque<Kept>,
    bytes: usize,
    next: u64,
    /// The client sees resources although the server has none.
    pub(super) lent: bool,
    /// Between the prefix of their URIs and the number: several servers must not share numbers.
    place: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    number: u64,
    until: Time,
    text: String,
}

/// The fate of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bounded {
    AsItIs,
    Cut(String),
    /// It cannot be cut without becoming something else.
    TooLarge(Box<Problem>),
}

impl Outputs {
    /// No outputs yet. `server` is the key of the server, where it is served beside others.
    pub(super) fn of(server: Option<&str>) -> Self {
        Self {
            place: server
                .map(|server| format!("{server}/"))
                .unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Bounds the text of a tool's result.
    pub(super) fn bound(&mut self, now: Time, result: &str, limit: usize) -> Bounded {
        let content = scan::member(result, "content").unwrap_or("[]");
        let structured = scan::member(result, "structuredContent").map_or(0, str::len);
        if structured > limit {
            let message =
                format!("the structured result has {structured} bytes; {limit} are allowed");
            let problem = Problem::new(ErrorKind::AnswerTooLarge, message)
                .with_hint("ask for less: a filter, a range, a page");
            return Bounded::TooLarge(Box::new(problem));
        }
        if content.len() <= limit {
            return Bounded::AsItIs;
        }
        let mut left = limit;
        let mut blocks = Vec::new();
        // The block that is cut, where it stands, and all text after the cut.
        let mut cut: Option<(usize, String, String)> = None;
        for block in edit::items(content) {
            let text = scan::member(block, "text").and_then(scan::unquote);
            let is_text = scan::member(block, "type") == Some("\"text\"");
            match (text, &mut cut) {
                (Some(text), Some((_, _, rest))) if is_text => {
                    rest.push('\n');
                    rest.push_str(&text);
                }
                (Some(text), None) if is_text && text.len() > left => {
                    let mut end = left;
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    let (shown, rest) = text.split_at(end);
                    cut = Some((blocks.len(), shown.to_owned(), rest.to_owned()));
                    blocks.push(block.to_owned());
                }
                (text, _) => {
                    left -= text
                        .filter(|_| is_text)
                        .map_or(0, |text| text.len().min(left));
                    blocks.push(block.to_owned());
                }
            }
        }
        let Some((at, shown, rest)) = cut else {
            return Bounded::AsItIs;
        };
        let note = render::note(&format!(
            "{} of {} shown; the rest is the resource {PREFIX}{}{}",
            render::bytes(shown.len() as u64),
            render::bytes((shown.len() + rest.len()) as u64),
            self.place.clone(),
            self.keep(now, rest)
        ));
        if let Some(block) = blocks.get_mut(at) {
            let quoted = serde_json::Value::from(format!("{shown}\n{note}")).to_string();
            *block = edit::with_member(block, "text", &quoted);
        }
        let content = edit::array(blocks.iter().map(String::as_str));
        Bounded::Cut(edit::with_member(result, "content", &content))
    }

    fn keep(&mut self, now: Time, text: String) -> u64 {
        self.expire(now);
        self.next += 1;
        self.bytes += text.len();
        self.kept.push_back(Kept {
            number: self.next,
            until: now.plus_ms(KEPT_MS),
            text,
        });
        while self.bytes > KEPT_BYTES && self.kept.len() > 1 {
            self.drop_first();
        }
        self.next
    }

    /// The members of a resource's result, if its URI is one of ours.
    pub(super) fn read(&mut self, now: Time, uri: &str) -> Option<Result<Json, Problem>> {
        let number = uri.strip_prefix(PREFIX)?.strip_prefix(&self.place)?;
        self.expire(now);
        let kept = number
            .parse()
            .ok()
            .and_then(|number: u64| self.kept.iter().find(|kept| kept.number == number));
        let Some(kept) = kept else {
            let problem = Problem::new(
                ErrorKind::ResourceNotFound,
                "this output is not kept any more",
            );
            return Some(Err(
                problem.with_hint("call the tool again, and ask for less")
            ));
        };
        let item = ObjectWriter::with_capacity(kept.text.len() + 64)
            .string("uri", uri)
            .string("mimeType", "text/plain")
            .string("text", &kept.text)
            .finish();
        let members = format!("{{\"contents\":[{item}]}}");
        Some(Ok(Json::from_scanned(&members)))
    }

    fn expire(&mut self, now: Time) {
        while self.kept.front().is_some_and(|kept| kept.until <= now) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.kept.pop_front() {
            self.bytes -= first.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// A block of a result: text, or something else.
    fn block() -> impl Strategy<Value = Value> {
        prop_oneof![
            4 => "[a-zä€\"\\\\\n🦀]{0,200}".prop_map(|text| json!({ "type": "text", "text": text })),
            1 => "[a-z]{0,200}".prop_map(|data| json!({ "type": "image", "data": data })),
        ]
    }

    fn text_of(block: &Value) -> Option<&str> {
        (block["type"] == "text").then(|| block["text"].as_str().unwrap())
    }

    fn read(outputs: &mut Outputs, now: Time, uri: &str) -> Option<String> {
        let read = outputs.read(now, uri).unwrap().ok()?.to_value().unwrap();
        assert_eq!(read["contents"][0]["uri"], uri);
        Some(read["contents"][0]["text"].as_str().unwrap().to_owned())
    }

    proptest! {
        #[test]
        fn the_cut_result_and_the_kept_text_together_are_the_whole(
            blocks in vec(block(), 0..8),
            limit in 1..600_usize,
        ) {
            let mut outputs = Outputs::default();
            let now = Time::from_ms(5);
            let result = json!({ "content": blocks, "other": 1 }).to_string();
            let all: String = blocks.iter().filter_map(text_of).collect();
            let cut = match outputs.bound(now, &result, limit) {
                Bounded::Cut(cut) => cut,
                Bounded::AsItIs => {
                    let is_short = result.len() <= limit + 32;
                    prop_assert!(is_short || all.len() <= limit, "{} bytes", all.len());
                    return Ok(());
                }
                Bounded::TooLarge(problem) => panic!("{problem:?}"),
            };
            let cut: Value = serde_json::from_str(&cut).unwrap();
            prop_assert_eq!(&cut["other"], 1);
            let shown = cut["content"].as_array().unwrap();
            // Everything that is not text is still there, in its order.
            let others = |blocks: &[Value]| -> Vec<Value> {
                blocks.iter().filter(|block| text_of(block).is_none()).cloned().collect()
            };
            prop_assert_eq!(others(shown), others(&blocks));
            let texts: Vec<&str> = blocks.iter().filter_map(text_of).collect();
            let shown: Vec<&str> = shown.iter().filter_map(text_of).collect();
            let (last, whole) = shown.split_last().unwrap();
            prop_assert_eq!(whole, &texts[..whole.len()]);
            let (last, _note) = last.rsplit_once('\n').unwrap();
            let shown_bytes = whole.iter().map(|text| text.len()).sum::<usize>() + last.len();
            prop_assert!(shown_bytes <= limit);
            let kept = read(&mut outputs, now, "mainstay://output/1").unwrap();
            prop_assert_eq!(format!("{last}{kept}"), texts[whole.len()..].join("\n"));
        }

        #[test]
        fn a_kept_text_is_readable_until_it_expires(
            pauses in vec(0..KEPT_MS / 2, 1..12),
        ) {
            let mut outputs = Outputs::default();
            let mut now = Time::from_ms(0);
            let mut kept = Vec::new();
            for (number, pause) in pauses.into_iter().enumerate() {
                now = now.plus_ms(pause);
                let text = format!("text {number}");
                kept.push((outputs.keep(now, text.clone()), now, text));
                for (number, since, text) in &kept {
                    let uri = format!("{PREFIX}{number}");
                    let expected = (now < since.plus_ms(KEPT_MS)).then(|| text.clone());
                    prop_assert_eq!(read(&mut outputs, now, &uri), expected);
                }
                let bytes: usize = outputs.kept.iter().map(|kept| kept.text.len()).sum();
                prop_assert_eq!(outputs.bytes, bytes);
            }
        }
    }

    #[test]
    fn kept_bytes_are_bounded_and_the_oldest_make_room() {
        let mut outputs = Outputs::default();
        let now = Time::from_ms(0);
        let size = KEPT_BYTES / 4;
        for number in 1..=9 {
            assert_eq!(outputs.keep(now, "x".repeat(size)), number);
            assert!(outputs.bytes <= KEPT_BYTES, "{}", outputs.bytes);
        }
        let mut is_kept = |number: u64| {
            let read = outputs.read(now, &format!("{PREFIX}{number}"));
            read.unwrap().is_ok()
        };
        assert!(!is_kept(5));
        assert!(is_kept(6) && is_kept(9));
    }

    #[test]
    fn text_is_cut_with_a_note_and_the_rest_can_be_read_for_a_while() {
        let mut outputs = Outputs::default();
        let text = "ä".repeat(400);
        let result = format!(
            r#"{{"content":[{{"type":"text","text":"short"}},{{"type":"text","text":"{text}","annotations":{{"n":1.00}}}},{{"type":"image","data":"xx"}}],"x":1.0}}"#
        );
        let now = Time::from_ms(5);
        let Bounded::Cut(cut) = outputs.bound(now, &result, 300) else {
            panic!("it is too long");
        };
        assert!(cut.contains(r#""annotations":{"n":1.00}"#), "{cut}");
        assert!(cut.contains("mainstay://output/1"), "{cut}");
        assert!(
            cut.contains(r#"{"type":"image","data":"xx"}],"x":1.0}"#),
            "{cut}"
        );
        assert!(cut.len() < 700, "{}", cut.len());
        let read = outputs.read(now, "mainstay://output/1").unwrap().unwrap();
        // 295 bytes had room beside the first block, which are 147 whole letters.
        assert!(read.as_str().contains(&"ä".repeat(400 - 147)));
        assert!(!read.as_str().contains(&"ä".repeat(400 - 146)));
        assert!(
            outputs
                .read(now.plus_ms(KEPT_MS), "mainstay://output/1")
                .unwrap()
                .is_err()
        );
        assert!(outputs.read(now, "file:///x").is_none());
    }

    #[test]
    fn what_is_short_or_has_no_text_is_left_alone() {
        let mut outputs = Outputs::default();
        let now = Time::from_ms(0);
        let short = r#"{"content":[{"type":"text","text":"x"}]}"#;
        assert_eq!(outputs.bound(now, short, 300), Bounded::AsItIs);
        let image = format!(
            r#"{{"content":[{{"type":"image","data":"{}"}}]}}"#,
            "x".repeat(900)
        );
        assert_eq!(outputs.bound(now, &image, 300), Bounded::AsItIs);
        let structured = format!(r#"{{"structuredContent":{{"a":"{}"}}}}"#, "x".repeat(900));
        assert!(matches!(
            outputs.bound(now, &structured, 300),
            Bounded::TooLarge(_)
        ));
    }
}
