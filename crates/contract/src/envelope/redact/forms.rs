//! The usual forms of credentials, known without a name beside them.

use std::ops::Range;

/// How tokens of well-known issuers begin, and how many characters follow at least.
const PREFIXES: [(&str, usize); 27] = [
    ("GOCSPX-", 20),
    ("whsec_", 20),
    ("dckr_pat_", 20),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("sk-", 16),
    ("sk_live_", 10),
    ("sk_test_", 10),
    ("rk_live_", 10),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("xapp-", 10),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("npm_", 30),
    ("pypi-", 20),
    ("hf_", 20),
    ("dop_v1_", 20),
];
/// From this length on a token needs no digit to be told from words.
const LONG: usize = 30;
/// Shortest part of a signed token.
const PART: usize = 8;
/// Longest label of a PEM block.
const LABEL: usize = 64;
const WEBHOOK: &str = ".slack.com/services/";
const BEGIN: &str = "-----BEGIN";
const END: &str = "-----END";
const DASHES: &str = "-----";

/// The credential that is, or begins with, the word at this place.
pub(super) fn at(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let name = text.get(word.clone())?;
    if is_issued(name) {
        return Some(word.clone());
    }
    if name.starts_with("eyJ") && name.len() >= PART {
        return signed_token(text, word);
    }
    // Tokens that go on behind a dot, and a URL that is a credential as a whole.
    if name == "ya29" {
        return rest_of_word(text, word.end, ".").map(|end| word.start..end);
    }
    if name == "hooks" {
        let start = word.end + WEBHOOK.len();
        return rest_of_word(text, word.end, WEBHOOK).map(|end| start..end);
    }
    if name.ends_with(BEGIN) {
        return private_key(text, word.end);
    }
    userinfo(text, word)
}

/// The end of a credential that goes on behind `joint`.
fn rest_of_word(text: &str, from: usize, joint: &str) -> Option<usize> {
    let rest = text.get(from..)?.strip_prefix(joint)?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-/".contains(c);
    let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    (length >= PART).then_some(from + joint.len() + length)
}

fn is_issued(word: &str) -> bool {
    PREFIXES.iter().any(|(prefix, least)| {
        let tail = word.strip_prefix(prefix);
        tail.is_some_and(|tail| {
            tail.len() >= *least
                && (tail.len() >= LONG || tail.bytes().any(|byte| byte.is_ascii_digit()))
        })
    })
}

/// Three parts with dots between them; the last one may be missing.
fn signed_token(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let part_after = |at: usize| {
        let rest = text.get(at..)?.strip_prefix('.')?;
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        Some((at + 1 + length, length))
    };
    let (payload_end, length) = part_after(word.end)?;
    if length < PART {
        return None;
    }
    let end = part_after(payload_end).map_or(payload_end, |(end, _)| end);
    Some(word.start..end)
}

/// The lines between the marks of a private key; `from` is behind the first dashes and `BEGIN`.
fn private_key(text: &str, from: usize) -> Option<Range<usize>> {
    let label = label(text.get(from..)?)?;
    let start = from + label.len() + DASHES.len();
    let body = text.get(start..)?;
    let end = start + body.find(END).unwrap_or(body.len());
    (start < end).then_some(start..end)
}

/// The label of a PEM block that holds a private key.
fn label(text: &str) -> Option<&str> {
    let label = text.get(..text.find(DASHES)?)?;
    (label.len() <= LABEL && label.ends_with("PRIVATE KEY")).then_some(label)
}

/// True if a private key begins in a line and goes on in the next.
pub(super) fn opens_private_key(line: &str) -> bool {
    let after = |at: usize| line.get(at + BEGIN.len()..).unwrap_or_default();
    let begins = line.rfind(BEGIN).map(after);
    begins.is_some_and(|rest| label(rest).is_some() && !rest.contains(END))
}

/// True if a private key ends in a line.
pub(super) fn closes_private_key(line: &str) -> bool {
    line.contains(END)
}

/// User and password of a URL, whose scheme is the word. A user alone is shown, except over HTTP, where it is
/// a token.
fn userinfo(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let scheme = text.get(word.clone())?;
    let start = word.end + 3;
    let rest = text.get(word.end..)?.strip_prefix("://")?;
    let ends = |c: char| c.is_whitespace() || "/?#\"'<>\\".contains(c);
    let authority = rest.get(..rest.find(ends).unwrap_or(rest.len()))?;
    let user = authority.get(..authority.rfind('@')?)?;
    let is_http = ["http", "https"]
        .iter()
        .any(|http| scheme.eq_ignore_ascii_case(http));
    let is_secret = user.contains(':') || is_http;
    (is_secret && !user.is_empty()).then_some(start..start + user.len())
}
