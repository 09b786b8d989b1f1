//! Secrets taken out of whatever is written down: event lines, diagnostics, faults, the log.
//!
//! A value is a secret if its name says so (authorization, token, password, api key and their
//! kin, in any case and spelling), if it follows the word `Bearer` or `Basic`, if it has one of the
//! usual forms of credentials ([`forms`]), or if the host knows it as one ([`Redactor`]). Rather too much
//! is hidden than too little: what is redacted is read by people, not by programs. The cost is linear in the
//! text, times the number of known values.

mod forms;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::Json;

/// What stands in a secret's place.
pub const MARK: &str = "[redacted]";

/// Names, or parts of names, without case and separators.
const ANYWHERE: [&str; 10] = [
    "authorization",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "secret",
    "credential",
    "cookie",
    "privatekey",
    "accesskey",
];

/// Shortest value that is known as a secret: a shorter one would hide ordinary words.
const SHORTEST: usize = 8;
/// Most values that are known as secrets.
const VALUES: usize = 256;
/// Lines of a private key without an end.
const KEY_LINES: usize = 200;
/// Last words of variables that hold a secret.
const LAST_WORDS: [&str; 5] = ["key", "pass", "pwd", "pat", "dsn"];
/// Last words of variables that only name the place of one.
const PLACES: [&str; 3] = ["file", "path", "dir"];

/// True for names of environment variables that usually hold secrets.
pub fn is_secret_variable(name: &str) -> bool {
    let last = words(name).last().filter(|last| last.len() < name.len());
    let is_one_of = |known: &[&str]| {
        let mut known = known.iter();
        last.is_some_and(|last| known.any(|known| last.eq_ignore_ascii_case(known)))
    };
    !is_one_of(&PLACES) && (is_secret_name(name) || is_one_of(&LAST_WORDS))
}

/// Takes out the secrets that a host knows, and all that can be recognised.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that no value leaves a part of another.
    values: Arc<[String]>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.values.len())
    }
}

/// A private key that a stream of lines is in the middle of.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct KeyBlock {
    /// Lines that are still taken for a part of it.
    left: usize,
}

impl Redactor {
    /// Knows these values.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values
            .into_iter()
            .map(|value| value.trim().to_owned())
            .filter(|value| value.len() >= SHORTEST)
            .collect();
        values.sort_by(|one, other| (other.len(), one).cmp(&(one.len(), other)));
        values.dedup();
        values.truncate(VALUES);
        let values = values.into();
        Self { values }
    }

    /// Text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut known = Cow::Borrowed(text);
        for value in self.values.iter() {
            if known.contains(value.as_str()) {
                known = Cow::Owned(known.replace(value.as_str(), MARK));
            }
        }
        match known {
            Cow::Borrowed(text) => redact_text(text),
            Cow::Owned(text) => Cow::Owned(redact_text(&text).into_owned()),
        }
    }

    /// One line of a stream without secrets; a private key may go over many lines.
    pub fn line<'a>(&self, line: &'a str, block: &mut KeyBlock) -> Cow<'a, str> {
        if block.left > 0 {
            block.left -= 1;
            if forms::closes_private_key(line) {
                block.left = 0;
            }
            return Cow::Borrowed(MARK);
        }
        if forms::opens_private_key(line) {
            block.left = KEY_LINES;
        }
        self.text(line)
    }
}

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
        let secret = secret_after(text, &word).or_else(|| forms::at(text, &word));
        let Some(secret) = secret else {
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
    let after = text.get(end..end + 4);
    if text.get(start..end)?.eq_ignore_ascii_case("api")
        && after.is_some_and(|after| after.eq_ignore_ascii_case(" key"))
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
    let mut at = word.end + closing_quote(text.get(word.end..)?);
    at += spaces(text.get(at..)?);
    let behind = text.get(at..)?.chars().next()?;
    // An option and its value, in a shell's words or in a list of arguments.
    let is_option = name.starts_with("--") && at > word.end && behind != '-';
    let separator = Some(behind).filter(|c| ":=".contains(*c));
    // Last, since few words have a separator behind them and this costs more.
    if (separator.is_none() && !is_option) || !is_secret_name(name) {
        return None;
    }
    if separator.is_some() || behind == ',' {
        at += 1;
        at += spaces(text.get(at..)?);
    }
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
        _ if separator == Some(':') && flat(name).contains("authorization") => line(value),
        '{' | '[' if !value.starts_with(MARK) => line(value),
        _ => {
            let run = |c: char| c.is_whitespace() || ",;&}])\"'".contains(c);
            let length = value.find(run).unwrap_or(value.len());
            let length = if value.starts_with(MARK) {
                MARK.len()
            } else {
                length
            };
            let names_scheme = |first: &&str| {
                let is_word = first.bytes().all(|byte| byte.is_ascii_alphabetic());
                is_scheme(first) || (is_word && flat(name).contains("authorization"))
            };
            match value.get(..length).filter(names_scheme) {
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

/// The length of leading blanks and of the escape sequences that colour a terminal.
fn spaces(text: &str) -> usize {
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t']);
        let escape = trimmed.strip_prefix("\u{1b}[");
        let coloured = escape.and_then(|escape| escape.get(escape.find('m')? + 1..));
        match coloured {
            Some(behind) => rest = behind,
            None => return text.len() - trimmed.len(),
        }
    }
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
            (
                "authorization=Token abc0123 next=1",
                "authorization=[redacted] next=1",
            ),
            ("run --password abc -v", "run --password [redacted] -v"),
            ("run --token --verbose", "run --token --verbose"),
            (
                r#"["--api-key", "abc", "x"]"#,
                r#"["--api-key", "[redacted]", "x"]"#,
            ),
            (
                "\u{1b}[31mAPI_KEY\u{1b}[0m=abc x",
                "\u{1b}[31mAPI_KEY\u{1b}[0m=[redacted] x",
            ),
            ("X-Api-Key:", "X-Api-Key:"),
            ("the token is missing", "the token is missing"),
            ("expected string", "expected string"),
            ("api ééé token=abc", "api ééé token=[redacted]"),
            ("an api", "an api"),
            (
                "ünïcode pässword=x token=ÿ z",
                "ünïcode pässword=x token=[redacted] z",
            ),
        ] {
            assert_eq!(redact_text(text), expected, "{text}");
        }
    }

    /// Made up, and split so that no scanner takes them for real ones.
    const ISSUED: [&str; 9] = [
        concat!("ya", "29.a0AfH6SMBxyzABCDEFGH"),
        concat!("GO", "CSPX-aB3dE5gH7jK9mN1pQ3s5"),
        concat!("gh", "p_abcdefghij0123456789klmn"),
        concat!("sk", "-proj-abc123def456ghi789"),
        concat!("AK", "IAABCDEFGHIJ234567"),
        concat!("gl", "pat-abcdefgh12345678"),
        concat!("xo", "xb-1234567890-abcdef"),
        concat!(
            "ey",
            "JhbGciOiJub25lIn0.ey",
            "JzdWIiOiJhZGEifQ.c2lnbmF0dXJl"
        ),
        concat!("ey", "JhbGciOiJub25lIn0.ey", "JzdWIiOiJhZGEifQ"),
    ];

    #[test]
    fn credentials_of_the_usual_forms_are_known_without_a_name() {
        for token in ISSUED {
            for (before, after) in [("", ""), ("using ", " now"), ("(", ")."), ("\"", "\",")] {
                let shown = redact_text(&format!("{before}{token}{after}")).into_owned();
                assert_eq!(shown, format!("{before}{MARK}{after}"), "{token}");
            }
        }
        for plain in [
            "sk-learn-and-numpy",
            "ghp_short",
            "AKIA is a prefix",
            "eyJ.a.b",
            "task-force-1234567890123456",
            "ssh://git@example.com/x",
            "http://example.com/a@b",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
        for (url, expected) in [
            ("postgres://ann:pw@db/x", "postgres://[redacted]@db/x"),
            (
                "https://t0ken@example.com",
                "https://[redacted]@example.com",
            ),
            ("http://a:b@c@d:80?q", "http://[redacted]@d:80?q"),
            (
                "post to https://hooks.slack.com/services/T0/B0/xyz now",
                "post to https://hooks.slack.com/services/[redacted] now",
            ),
        ] {
            assert_eq!(redact_text(url), expected);
        }
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY----- x";
        let shown = "-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY----- x";
        assert_eq!(redact_text(key), shown);
        let certificate = "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----";
        assert_eq!(redact_text(certificate), certificate);
    }

    #[test]
    fn a_private_key_is_hidden_line_by_line_and_its_end_is_found() {
        let (redactor, mut block) = (Redactor::default(), KeyBlock::default());
        let shown: Vec<_> = [
            "before",
            "-----BEGIN PRIVATE KEY-----",
            "MIIEvQIBADANBg",
            "-----END PRIVATE KEY-----",
            "after",
        ]
        .into_iter()
        .map(|line| redactor.line(line, &mut block).into_owned())
        .collect();
        let begin = "-----BEGIN PRIVATE KEY-----";
        assert_eq!(shown, ["before", begin, MARK, MARK, "after"]);
        redactor.line(begin, &mut block);
        let hidden = (0..1000).filter(|_| redactor.line("x", &mut block) == MARK);
        assert_eq!(hidden.count(), KEY_LINES, "a key without an end");
    }

    #[test]
    fn known_values_are_hidden_wherever_they_are() {
        let values = ["hunter2hunter2", "hunter2hunter2-long", "short", "  "];
        let redactor = Redactor::new(values.map(str::to_owned));
        assert_eq!(redactor.text("a hunter2hunter2-long b"), "a [redacted] b");
        assert_eq!(redactor.text("xhunter2hunter2x"), "x[redacted]x");
        assert_eq!(redactor.text("a short word"), "a short word");
        assert_eq!(redactor.text("token=hunter2hunter2"), "token=[redacted]");
        assert!(!format!("{redactor:?}").contains("hunter"));
        for name in [
            "STRIPE_KEY",
            "DB_PASS",
            "GITHUB_PAT",
            "SENTRY_DSN",
            "API_TOKEN",
        ] {
            assert!(is_secret_variable(name), "{name}");
        }
        let plain = ["KEY", "PWD", "OLDPWD", "PATH", "HOME", "KEYBOARD", "LANG"];
        for name in plain.into_iter().chain(["API_TOKEN_FILE", "KEY_DIR"]) {
            assert!(!is_secret_variable(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn redacting_twice_changes_nothing_more(text in "([a-z]{0,4}|token|Bearer|api|key|https://|eyJhbGciOi\\.|@|-----BEGIN|[:=\"'\\\\{ \n]|é){0,12}") {
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
