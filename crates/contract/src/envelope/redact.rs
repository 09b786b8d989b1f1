//! Secrets taken out of whatever is written down: event lines, diagnostics, faults, the log.
//!
//! A value is a secret if its name says so (authorization, token, password, api key and their
//! kin, in any case and spelling), if it follows the word `Bearer` or `Basic`, if it has one of the
//! usual forms of credentials ([`forms`]), or if the host knows it as one ([`Redactor`], [`known`]). Rather too much
//! is hidden than too little: what is redacted is read by people, not by programs. The cost is linear in the
//! text, times the number of known values.

mod forms;
mod known;
mod lines;

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::known::Known;
pub use self::known::{SHORTEST, TAIL};
use crate::json::Json;

/// The replacement of a secret.
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

/// Takes out the secrets that a host knows, and all that can be recognised. Clones share what they know.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Known,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} patterns)", self.known.len())
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
        let redactor = Self::default();
        redactor.learn(values);
        redactor
    }

    /// Knows these values, too, in every clone. Values of fewer than [`SHORTEST`] bytes would hide ordinary words, and
    /// are not known.
    pub fn learn(&self, values: impl IntoIterator<Item = String>) {
        self.known.add(values);
    }

    /// Text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.known(text) {
            Cow::Borrowed(text) => redact_text(text),
            Cow::Owned(text) => Cow::Owned(redact_text(&text).into_owned()),
        }
    }

    /// Text without the values that the host knows. Everything else stays as it is.
    pub fn known<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let places = self.known.places(text);
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = String::with_capacity(text.len());
        let mut from = 0;
        for place in places {
            clean.push_str(text.get(from..place.start).unwrap_or_default());
            clean.push_str(MARK);
            from = place.end;
        }
        clean.push_str(text.get(from..).unwrap_or_default());
        Cow::Owned(clean)
    }

    /// The beginning of a text whose rest is missing, without secrets and without what may be the beginning of one.
    pub fn cut<'a>(&self, head: &'a str) -> Cow<'a, str> {
        if self.known.len() == 0 {
            return self.text(head);
        }
        let mut clean = self.text(head).into_owned();
        clean.truncate(clean.floor_char_boundary(clean.len().saturating_sub(TAIL)));
        Cow::Owned(clean)
    }

    /// Takes the secrets out of a tree: values that the host knows, and all that can be recognised.
    pub fn value(&self, value: &mut Value) {
        self.known_in(value);
        redact_value(value);
    }

    /// A copy of `json` without secrets, at any depth.
    pub fn json(&self, json: &Json) -> Json {
        match json.to_value() {
            Ok(mut value) => {
                self.value(&mut value);
                value.into()
            }
            // A number out of range: not a tree, so nothing of it can be shown safely.
            Err(_) => Json::from_serialize(MARK),
        }
    }

    fn known_in(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                let has_secret_name = |name: &&String| matches!(self.known(name), Cow::Owned(_));
                let secret: Vec<String> = members.keys().filter(has_secret_name).cloned().collect();
                for name in secret {
                    if let Some(member) = members.remove(&name) {
                        members.insert(self.known(&name).into_owned(), member);
                    }
                }
                members
                    .values_mut()
                    .for_each(|member| self.known_in(member));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.known_in(item)),
            Value::String(text) => {
                if let Cow::Owned(clean) = self.known(text) {
                    *text = clean;
                }
            }
            Value::Number(number) => {
                if let Cow::Owned(clean) = self.known(&number.to_string()) {
                    *value = clean.into();
                }
            }
            Value::Null | Value::Bool(_) => {}
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

/// True if a member, header or parameter of this name holds a secret.
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
mod tests;
