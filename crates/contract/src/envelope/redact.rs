//! Secrets taken out of whatever is written down: event lines, diagnostics, the log.
//!
//! A value is a secret if its name says so (authorization, token, password, api key and their
//! kin, in any case and spelling), or if it follows the word `Bearer` or `Basic`. Rather too much
//! is hidden than too little: what is redacted is read by people, not by programs.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use crate::json::Json;

/// What stands in a secret's place.
pub const MARK: &str = "[redacted]";

/// Names, or parts of names, without case and separators.
const ANYWHERE: [&str; 8] = [
    "authorization",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "secret",
    "credential",
    "cookie",
];

/// Whether a member, header or parameter of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    is_secret(name) || is_plural(name)
}

fn is_secret(name: &str) -> bool {
    let flat = flat(name);
    ANYWHERE.iter().any(|part| flat.contains(part))
        || flat.ends_with("token")
        || words(name).any(|word| word.eq_ignore_ascii_case("token"))
}

/// `tokens` may be a list of secrets, or a number of words, which is none.
fn is_plural(name: &str) -> bool {
    flat(name).ends_with("tokens")
}

fn flat(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The words of a name: parted by anything but letters and digits, and before a capital.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .flat_map(|part| {
            let bytes = part.as_bytes();
            let mut cuts: Vec<usize> = (1..bytes.len())
                .filter(|at| {
                    let upper = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_uppercase);
                    let lower = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_lowercase);
                    upper(*at) && (!upper(*at - 1) || lower(*at + 1))
                })
                .collect();
            cuts.push(bytes.len());
            let mut from = 0;
            cuts.into_iter().map(move |to| {
                let word = part.get(from..to).unwrap_or_default();
                from = to;
                word
            })
        })
}

/// A copy of `json` without secrets, at any depth.
pub fn redact_json(json: &Json) -> Json {
    match json.to_value() {
        Ok(mut value) => {
            redact_value(&mut value);
            value.into()
        }
        // A number out of range: not a tree, so nothing of it can be shown safely.
        Err(_) => Json::from_serialize(MARK),
    }
}

/// Takes the secrets out of a tree.
pub fn redact_value(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let hidden = match member {
                    Value::Null => false,
                    Value::Number(_) => is_secret(name),
                    _ => is_secret_name(name),
                };
                if hidden {
                    *member = MARK.into();
                } else {
                    redact_value(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact_value),
        Value::String(text) => {
            if let Cow::Owned(redacted) = redact_text(text) {
                *text = redacted;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Text without secrets: `Name: value` and `name=value` in any quotes, `Bearer value`.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(word) = next_word(text, at) {
        at = word.end;
        let Some(secret) = secret_after(text, &word) else {
            continue;
        };
        out.push_str(text.get(copied..secret.start).unwrap_or_default());
        out.push_str(MARK);
        copied = secret.end;
        at = secret.end.max(at);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// The next run of characters that a name may have.
fn next_word(text: &str, from: usize) -> Option<Range<usize>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let rest = text.get(from..)?;
    let start = from + rest.find(is_name)?;
    let word = text.get(start..)?;
    let mut end = start + word.find(|c| !is_name(c)).unwrap_or(word.len());
    // The one name that is written as two words.
    let after = text.get(end..)?;
    if text.get(start..end)?.eq_ignore_ascii_case("api")
        && after.get(..4)?.eq_ignore_ascii_case(" key")
    {
        end += 4;
    }
    Some(start..end)
}

/// Where the secret is that a word announces.
fn secret_after(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let name = text.get(word.clone())?;
    if is_scheme(name) {
        return scheme_value(text, word.end);
    }
    if !is_secret_name(name) {
        return None;
    }
    let mut at = word.end + closing_quote(text.get(word.end..)?);
    at += spaces(text.get(at..)?);
    let separator = text
        .get(at..)?
        .chars()
        .next()
        .filter(|c| ":=".contains(*c))?;
    at += 1;
    at += spaces(text.get(at..)?);
    let value = text.get(at..)?;
    let length = match value.chars().next()? {
        quote @ ('"' | '\'') => {
            at += 1;
            quoted(value.get(1..)?, quote)
        }
        '\\' if value.starts_with("\\\"") => {
            at += 2;
            let value = value.get(2..)?;
            value.find("\\\"").unwrap_or(value.len())
        }
        // A whole header line, or a container: nothing of it is safe to show.
        _ if separator == ':' && flat(name).contains("authorization") => line(value),
        '{' | '[' if !value.starts_with(MARK) => line(value),
        _ => {
            let run = |c: char| c.is_whitespace() || ",;&}])\"'".contains(c);
            let length = value.find(run).unwrap_or(value.len());
            let length = if value.starts_with(MARK) {
                MARK.len()
            } else {
                length
            };
            match value.get(..length).filter(|first| is_scheme(first)) {
                Some(_) => scheme_value(value, length).map_or(length, |range| range.end),
                None => length,
            }
        }
    };
    (length > 0).then_some(at..at + length)
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// The credentials behind `Bearer` or `Basic`, which end at `from`.
fn scheme_value(text: &str, from: usize) -> Option<Range<usize>> {
    let start = from + spaces(text.get(from..)?);
    if start == from {
        return None;
    }
    let value = text.get(start..)?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "._~+/=-".contains(c);
    let length = value.find(|c| !is_token(c)).unwrap_or(value.len());
    (length > 0).then_some(start..start + length)
}

fn closing_quote(text: &str) -> usize {
    match text.as_bytes() {
        [b'\\', b'"', ..] => 2,
        [b'"' | b'\'', ..] => 1,
        _ => 0,
    }
}

fn spaces(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

fn line(text: &str) -> usize {
    text.find(['\n', '\r']).unwrap_or(text.len())
}

/// The length of what stands before the closing quote.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_known_in_any_spelling() {
        for name in [
            "authorization",
            "Proxy-Authorization",
            "token",
            "TOKEN",
            "accessToken",
            "access_token",
            "x-auth-token",
            "accesstoken",
            "tokenValue",
            "password",
            "userPassword",
            "DB_PASSWORD",
            "apiKey",
            "api_key",
            "api-key",
            "API KEY",
            "X-API-Key",
            "client_secret",
            "Set-Cookie",
            "tokens",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "",
            "tokenizer",
            "key",
            "pass",
            "author",
            "api",
            "name",
            "basics",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn trees_lose_their_secrets_at_any_depth_and_nothing_else() {
        let mut value = json!({
            "user": "ann", "max_tokens": 7, "password": 1234, "token": null,
            "tokens": ["a", "b"],
            "headers": [{"Authorization": "Bearer abc"}, {"note": "sent Bearer a.b-c= twice"}],
            "auth": {"type": "api_key", "apiKey": {"deep": "x"}},
        });
        redact_value(&mut value);
        assert_eq!(
            value,
            json!({
                "user": "ann", "max_tokens": 7, "password": MARK, "token": null,
                "tokens": MARK,
                "headers": [{"Authorization": MARK}, {"note": format!("sent Bearer {MARK} twice")}],
                "auth": {"type": "api_key", "apiKey": MARK},
            })
        );
        let json = Json::parse(r#"{"token":"x","n":1e400}"#).unwrap();
        assert_eq!(redact_json(&json).as_str(), "\"[redacted]\"");
    }

    #[test]
    fn text_loses_its_secrets_in_every_form() {
        for (text, expected) in [
            (
                "Authorization: Digest a=1, b=2\nHost: x",
                "Authorization: [redacted]\nHost: x",
            ),
            (
                "authorization=Bearer abc next=1",
                "authorization=[redacted] next=1",
            ),
            (
                "got Basic dXNlcjpwYXNz= from it",
                "got Basic [redacted] from it",
            ),
            ("bearer  a.b.c", "bearer  [redacted]"),
            ("token=abc&x=1", "token=[redacted]&x=1"),
            ("?api_key=abc;y", "?api_key=[redacted];y"),
            ("api key: abc", "api key: [redacted]"),
            (
                r#"{"password": "a\"b", "x": 1}"#,
                r#"{"password": "[redacted]", "x": 1}"#,
            ),
            (
                r#""{\"token\":\"abc\"}""#,
                r#""{\"token\":\"[redacted]\"}""#,
            ),
            ("password = 'p w' x", "password = '[redacted]' x"),
            ("token: {a: b} c", "token: [redacted]"),
            ("X-Api-Key:", "X-Api-Key:"),
            ("the token is missing", "the token is missing"),
            ("expected string", "expected string"),
            (
                "ünïcode pässword=x token=ÿ z",
                "ünïcode pässword=x token=[redacted] z",
            ),
        ] {
            assert_eq!(redact_text(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn redacting_twice_changes_nothing_more(text in "([a-z]{0,4}|token|Bearer|api|key|[:=\"'\\\\{ \n]|é){0,12}") {
            let once = redact_text(&text).into_owned();
            prop_assert_eq!(redact_text(&once).into_owned(), once);
        }

        #[test]
        fn a_secret_never_survives(
            name in "(X-)?(Authorization|token|PASSWORD|apiKey|api-key|access_token)",
            separator in "( = |=|: |:)",
            quote in "[\"']?",
            secret in "s3cr3t[a-z0-9]{4,12}",
            before in "[a-z ]{0,8}", after in "[a-z ]{0,8}",
        ) {
            let text = format!("{before} {name}{separator}{quote}{secret}{quote} {after}");
            prop_assert!(!redact_text(&text).contains("s3cr3t"), "{text}");
        }
    }
}
