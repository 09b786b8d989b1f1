//! URIs: percent-encoding (RFC 3986), and `file://` URIs as paths (RFC 8089), strictly.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All characters but the unreserved ones.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const PATH: AsciiSet = SEGMENT.remove(b'/');
const POINTER: AsciiSet = PATH.remove(b'$');

/// Encodes one segment of a path: `/` is escaped.
pub fn encode_segment(text: &str) -> String {
    utf8_percent_encode(text, &SEGMENT).to_string()
}

/// Encodes a whole path: `/` stays.
pub fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, &PATH).to_string()
}

/// Encodes a JSON pointer as a fragment: `/` and `$` stay.
pub fn encode_pointer(text: &str) -> String {
    utf8_percent_encode(text, &POINTER).to_string()
}

/// Decodes once. `None` if a `%` lacks its two hexadecimal digits or the result is not UTF-8.
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    let well_formed = escapes(text).all(|escape| escape.is_some());
    well_formed
        .then(|| percent_decode_str(text).decode_utf8().ok())
        .flatten()
}

/// Decodes once. Malformed escapes stay as they are written, and bytes that are not UTF-8 become
/// U+FFFD.
pub fn decode_lossy(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// The two digits of every escape; `None` for a malformed one.
fn escapes(text: &str) -> impl Iterator<Item = Option<&str>> {
    let digits = |rest: &str| rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    text.split('%')
        .skip(1)
        .map(move |rest| rest.get(..2).filter(|_| digits(rest)))
}

/// Why a `file://` URI names no local path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriProblem {
    /// Its host is neither empty nor `localhost`.
    #[error("it names another host")]
    ForeignHost,
    /// There is nothing after the host.
    #[error("it has no path")]
    NoPath,
    /// A `%` without two hexadecimal digits.
    #[error("it has a bad percent escape")]
    BadEscape,
    /// `%00` or a NUL character.
    #[error("it contains a NUL")]
    Nul,
    /// `%2F`, which would make one segment look like two.
    #[error("it contains an escaped slash (%2F); write the slash itself")]
    EscapedSlash,
    /// A `?` or `#`, which in a URI ends the path.
    #[error("it has a query or fragment; write `?` as %3F and `#` as %23")]
    QueryOrFragment,
    /// Its escapes do not decode to UTF-8.
    #[error("it does not decode to UTF-8")]
    NotUtf8,
}

/// The path that a `file://` URI names, always absolute; `None` if `text` is not a `file://` URI.
///
/// Only the form with two slashes counts: `file:a` may well be a file of that name.
pub fn file_path(text: &str) -> Option<Result<String, UriProblem>> {
    const SCHEME: &str = "file://";
    let scheme = text.get(..SCHEME.len())?;
    let rest = text.get(SCHEME.len()..)?;
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then(|| local_path(rest))
}

/// True if `text` begins with a scheme and `://`.
pub fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

fn local_path(rest: &str) -> Result<String, UriProblem> {
    let (host, path) = rest
        .split_at_checked(rest.find('/').unwrap_or(rest.len()))
        .unwrap_or((rest, ""));
    if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
        return Err(UriProblem::ForeignHost);
    }
    if path.is_empty() {
        return Err(UriProblem::NoPath);
    }
    if path.contains(['?', '#']) {
        return Err(UriProblem::QueryOrFragment);
    }
    for escape in escapes(path) {
        match escape {
            None => return Err(UriProblem::BadEscape),
            Some(digits) if digits.eq_ignore_ascii_case("2f") => {
                return Err(UriProblem::EscapedSlash);
            }
            Some(_) => {}
        }
    }
    let path = decode(path).ok_or(UriProblem::NotUtf8)?;
    if path.contains('\0') {
        return Err(UriProblem::Nul);
    }
    Ok(path.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn encoding_keeps_what_each_part_allows_and_is_undone_once() {
        let text = "a/b c.d~-_$%2Fé";
        for (encoded, expected) in [
            (encode_segment(text), "a%2Fb%20c.d~-_%24%252F%C3%A9"),
            (encode_path(text), "a/b%20c.d~-_%24%252F%C3%A9"),
            (encode_pointer(text), "a/b%20c.d~-_$%252F%C3%A9"),
        ] {
            assert_eq!(encoded, expected);
            assert_eq!(decode(&encoded).as_deref(), Some(text));
            assert_eq!(decode_lossy(&encoded), text);
        }
        for bad in ["%", "a%2", "%+1", "%é0", "%ff", "%%20"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert_eq!(decode_lossy("100%+%41%ff"), "100%+A\u{fffd}");
    }

    /// Cases that every reader of `file://` URIs is tested with: the URI, its path, the problem.
    const CASES: &str = include_str!("../tests/data/file_uris.json");

    #[test]
    fn the_shared_cases_hold() {
        let cases: Vec<(String, Option<String>, Option<String>)> =
            serde_json::from_str(CASES).unwrap();
        for (uri, path, problem) in cases {
            let expected = path.map(Ok).or(problem.map(Err));
            let found = file_path(&uri).map(|found| found.map_err(|problem| problem.to_string()));
            assert_eq!(found, expected, "{uri:?}");
        }
        assert!(has_scheme("http://a") && !has_scheme("a/b://c") && !has_scheme("://a"));
    }

    proptest! {
        #[test]
        fn decoded_paths_are_absolute_and_undo_encoding(path in "(/[a-zé %.]{0,6}){1,4}") {
            let encoded: String = path
                .bytes()
                .map(|b| if b == b'/' { "/".to_owned() } else { format!("%{b:02X}") })
                .collect();
            prop_assert_eq!(file_path(&format!("file://{encoded}")), Some(Ok(path)));
        }

        #[test]
        fn arbitrary_uris_never_panic(rest in "([/%a-f0-9?#\\x00é]|.){0,20}") {
            if let Some(Ok(path)) = file_path(&format!("file://{rest}")) {
                prop_assert!(path.starts_with('/') && !path.contains('\0'));
            }
        }
    }
}
