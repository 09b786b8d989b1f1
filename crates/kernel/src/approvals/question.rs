//! The words in which a person is asked about a call.
//!
//! Text of clients and servers stands in quotes, on one line, and has no characters that look like others or move text:
//! they are escaped as in JSON. So it cannot end its quotes or imitate the words of the host, which come first.

use mainstay_contract::dialect::encode;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::method::Method;
use mainstay_contract::render::visible_json;
use mainstay_contract::scan;
use serde_json::{Value, json};

use super::Bond;

/// Characters of a name in a question.
const NAME_CHARS: usize = 128;
/// Characters of the arguments in a question.
const QUESTION_CHARS: usize = 1500;
/// Characters of the arguments in a listing.
const LISTED_CHARS: usize = 4000;

/// Around a text whose direction must not turn around what is next to it.
const ISOLATE: char = '\u{2067}';
const END: char = '\u{2069}';

/// The member of an answer with the decision.
const DECISION: &str = "decision";
/// Its only value that grants the call.
const RUN: &str = "run it once";
const REFUSE: &str = "do not run it";

/// An answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Grant,
    Deny,
    /// The client cannot ask its user.
    Unasked,
}

/// The arguments of a call, as [`exact_text`](super::exact::exact_text) has them, for a listing.
pub(crate) fn listed(arguments: &str) -> String {
    plain(arguments, LISTED_CHARS)
}

/// The parameters of `elicitation/create`.
pub(crate) fn params(bond: &Bond, arguments: &str, wait_ms: u64) -> String {
    let (server, tool) = (quoted(&bond.server), quoted(&bond.tool));
    let shown = plain(arguments, QUESTION_CHARS);
    let seconds = wait_ms.div_ceil(1000);
    let digest = &bond.arguments;
    let message = format!(
        "Mainstay holds back a call until you decide. Without a decision within {seconds} s it is denied. \
         Text after this sentence comes from the client and the server, except for the four labels.\n\
         Server: {server}\nTool: {tool}\nSHA-256 of the arguments: {digest}\nArguments: {shown}"
    );
    let schema = json!({
        "type": "object",
        "properties": { DECISION: {
            "type": "string",
            "title": "Decision",
            "description": "Run this call once, with these arguments?",
            "enum": [RUN, REFUSE],
        } },
        "required": [DECISION],
    });
    ObjectWriter::with_capacity(message.len() + 512)
        .string("message", &message)
        .value("requestedSchema", &schema)
        .finish()
}

/// The line of a question to a client of the legacy era.
pub(crate) fn line(id: &str, params: &str) -> String {
    let asked = encode::question(id, Method::Elicit.name());
    crate::server::edit::with_member(&asked, "params", params)
}

/// The result of a call whose client, of the modern era, must ask its user and repeat the call.
pub(crate) fn input_required(state: &str, params: &str) -> Json {
    let question = ObjectWriter::with_capacity(params.len() + 64)
        .string("method", Method::Elicit.name())
        .raw("params", params)
        .finish();
    let requests = ObjectWriter::with_capacity(question.len() + 32)
        .raw(QUESTION, &question)
        .finish();
    let result = ObjectWriter::with_capacity(requests.len() + 128)
        .string("resultType", "input_required")
        .raw("inputRequests", &requests)
        .string("requestState", state);
    Json::from_scanned(&result.finish())
}

/// The name of the question in `inputRequests`.
pub(crate) const QUESTION: &str = "approval";

/// A client's answer: the result of `elicitation/create`, or `None` for an error.
pub(crate) fn answered(result: Option<&str>) -> Answered {
    let Some(result) = result.filter(|result| result.starts_with('{')) else {
        return Answered::Unasked;
    };
    let text = |object: &str, key: &str| {
        let raw = scan::member(object, key)?;
        scan::unquote(raw).map(std::borrow::Cow::into_owned)
    };
    let content = scan::member(result, "content").filter(|content| content.starts_with('{'));
    let decision = content.and_then(|content| text(content, DECISION));
    match text(result, "action").as_deref() {
        Some("accept") if decision.as_deref() == Some(RUN) => Answered::Grant,
        _ => Answered::Deny,
    }
}

/// A name in quotes, bounded.
fn quoted(name: &str) -> String {
    plain(&Value::from(name).to_string(), NAME_CHARS)
}

/// JSON text of letters, digits and the signs of ASCII; other characters, which JSON has only inside its strings, are
/// escaped. A text that is too long is cut; no text can imitate the mark of a cut, because it is not ASCII.
fn plain(json: &str, most: usize) -> String {
    let end = json.char_indices().nth(most).map(|(at, _)| at);
    let parts = json.split_at_checked(end.unwrap_or(json.len()));
    let (part, behind) = parts.unwrap_or((json, ""));
    let part = visible_json(part);
    let mut shown = String::with_capacity(part.len());
    let mut rest = &*part;
    while let Some(first) = rest.chars().next() {
        let is_word = first.is_alphanumeric();
        let end = rest.find(|char: char| char.is_alphanumeric() != is_word);
        let parts = rest.split_at_checked(end.unwrap_or(rest.len()));
        let (run, others) = parts.unwrap_or((rest, ""));
        match is_word {
            true => push_word(&mut shown, run),
            false => push_signs(&mut shown, run),
        }
        rest = others;
    }
    match behind.chars().count() {
        0 => {}
        more => shown.push_str(&format!("… ({more} more characters; the digest is of all)")),
    }
    shown
}

fn push_signs(shown: &mut String, signs: &str) {
    for char in signs.chars() {
        match char.is_ascii_graphic() || char == ' ' {
            true => shown.push(char),
            false => push_escaped(shown, char),
        }
    }
}

/// A word, without characters that pass for others. Letters that are written from right to left would turn around what
/// stands between two words of them, so each run of them is isolated from the rest.
fn push_word(shown: &mut String, word: &str) {
    let mixed = has_two_alphabets(word);
    let mut is_isolated = false;
    for char in word.chars() {
        if is_leftward(char) != is_isolated {
            shown.push(if is_isolated { END } else { ISOLATE });
            is_isolated = !is_isolated;
        }
        match is_copy(char) || mixed && !is_latin(char) {
            true => push_escaped(shown, char),
            false => shown.push(char),
        }
    }
    shown.extend(is_isolated.then_some(END));
}

fn push_escaped(shown: &mut String, char: char) {
    for unit in char.encode_utf16(&mut [0; 2]) {
        shown.push_str(&format!("\\u{unit:04x}"));
    }
}

/// True for a word such as `pаypal` with a letter of another alphabet.
fn has_two_alphabets(word: &str) -> bool {
    let has_ascii = word.contains(|char: char| char.is_ascii_alphabetic());
    has_ascii && !word.chars().all(is_latin)
}

const fn is_latin(char: char) -> bool {
    char.is_ascii() || matches!(char, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}

/// True for letters and digits that Unicode has once more in another style: superscript, enclosed, mathematical, full width.
const fn is_copy(char: char) -> bool {
    matches!(char, '\u{aa}' | '\u{b2}' | '\u{b3}' | '\u{b9}'..='\u{be}' | '\u{2070}'..='\u{218f}'
        | '\u{2460}'..='\u{24ff}' | '\u{ff00}'..='\u{ff65}' | '\u{1d400}'..='\u{1d7ff}' | '\u{1f100}'..='\u{1f1ff}'
        | '\u{1fbf0}'..='\u{1fbf9}')
}

/// True for letters that are written from right to left.
const fn is_leftward(char: char) -> bool {
    matches!(char, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bond(server: &str, tool: &str) -> Bond {
        Bond {
            caller: "user".to_owned(),
            server: server.to_owned(),
            tool: tool.to_owned(),
            arguments: "00".to_owned(),
            policy: "1".to_owned(),
        }
    }

    fn message(server: &str, tool: &str, arguments: &Value) -> String {
        let text = crate::approvals::exact::exact_text(&Json::from(arguments.clone()));
        let params = params(&bond(server, tool), &text, 300_000);
        let params: Value = serde_json::from_str(&params).unwrap();
        params["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn only_an_accepted_decision_grants() {
        let granted = r#"{"action":"accept","content":{"decision":"run it once"}}"#;
        assert_eq!(answered(Some(granted)), Answered::Grant);
        for other in [
            r#"{"action":"accept"}"#,
            r#"{"action":"accept","content":{}}"#,
            r#"{"action":"accept","content":{"decision":"do not run it"}}"#,
            r#"{"action":"accept","content":{"decision":true}}"#,
            r#"{"action":"decline","content":{"decision":"run it once"}}"#,
            r#"{"action":"cancel"}"#,
            "{}",
        ] {
            assert_eq!(answered(Some(other)), Answered::Deny, "{other}");
        }
        assert_eq!(answered(None), Answered::Unasked);
    }

    #[test]
    fn the_message_is_as_it_is_documented() {
        let said = message(
            "files",
            "write",
            &json!({ "path": "/tmp/é", "a": "x\n\u{202e}y\"" }),
        );
        let lines: Vec<&str> = said.lines().skip(1).collect();
        let expected = [
            "Server: \"files\"",
            "Tool: \"write\"",
            "SHA-256 of the arguments: 00",
            "Arguments: {\"a\":\"x\\n\\u202ey\\\"\",\"path\":\"/tmp/é\"}",
        ];
        assert_eq!(lines, expected);
        let long = message("files", "write", &json!({ "a": "x".repeat(5000) }));
        assert!(
            long.ends_with("… (3508 more characters; the digest is of all)"),
            "{long}"
        );
    }

    #[test]
    fn characters_that_pass_for_others_or_move_text_are_not_shown_as_they_are() {
        let shown = |text: &str| plain(&Value::from(text).to_string(), QUESTION_CHARS);
        // A filler that is a letter to Unicode and has no shape.
        assert_eq!(shown("a\u{3164}b\u{ffa0}"), "\"a\\u3164b\\uffa0\"");
        assert_eq!(shown("/srv/\u{430}pp"), "\"/srv/\\u0430pp\"");
        assert_eq!(
            shown("\u{1d41a}\u{ff41}\u{b2}"),
            "\"\\ud835\\udc1a\\uff41\\u00b2\""
        );
        for kept in ["été à Łódź", "привет, мир", "東京 2020", "नमस"] {
            assert_eq!(shown(kept), format!("\"{kept}\""));
        }
        let amounts = shown("שלום 1,2 שלום");
        assert_eq!(amounts, "\"\u{2067}שלום\u{2069} 1,2 \u{2067}שלום\u{2069}\"");
        assert_eq!(
            plain("\"שלוםשלום\"", 5),
            "\"\u{2067}שלום\u{2069}… (5 more characters; the digest is of all)"
        );
    }

    proptest! {
        #[test]
        fn foreign_text_cannot_add_a_line_or_a_label(
            server in ".{0,40}",
            tool in "(?s).{0,200}",
            key in "(?s).{0,20}",
            text in "(?s)(\nServer: \"|\u{2028}Tool|.|…){0,60}",
        ) {
            let said = message(&server, &tool, &json!({ key: text }));
            prop_assert_eq!(said.lines().count(), 5);
            let odd = |char: char| !(char.is_ascii_graphic() || " \n…\u{2067}\u{2069}".contains(char) || char.is_alphanumeric());
            prop_assert!(!said.contains(odd), "{}", said);
            prop_assert!(said.chars().count() < 2500);
        }
    }
}
