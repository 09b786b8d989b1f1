//! `file://` URIs as paths (RFC 8089), strictly.

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
    #[error("it contains an escaped `/`")]
    EscapedSlash,
    /// A `?` or `#`, which in a URI ends the path.
    #[error("it has a query or fragment; write `?` as %3F and `#` as %23")]
    QueryOrFragment,
    /// Its escapes do not decode to UTF-8.
    #[error("it does not decode to UTF-8")]
    NotUtf8,
}

/// The path a `file://` URI names, always absolute; `None` when `text` is no such URI.
///
/// Only the form with two slashes counts: `file:a` may well be a file of that name.
pub(super) fn file_path(text: &str) -> Option<Result<String, UriProblem>> {
    const SCHEME: &str = "file://";
    let scheme = text.get(..SCHEME.len())?;
    let rest = text.get(SCHEME.len()..)?;
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then(|| local_path(rest))
}

/// Whether `text` begins with a scheme and `://`.
pub(super) fn has_scheme(text: &str) -> bool {
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
    decode(path)
}

fn decode(path: &str) -> Result<String, UriProblem> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => match escape(bytes.next(), bytes.next()).ok_or(UriProblem::BadEscape)? {
                b'/' => return Err(UriProblem::EscapedSlash),
                byte => byte,
            },
            byte => byte,
        };
        if byte == 0 {
            return Err(UriProblem::Nul);
        }
        out.push(byte);
    }
    String::from_utf8(out).map_err(|_| UriProblem::NotUtf8)
}

fn escape(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high?)? * 16 + digit(low?)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn local_uris_become_paths() {
        for (uri, path) in [
            ("file:///a%20b", "/a b"),
            ("file://localhost/a/b", "/a/b"),
            ("FILE://LocalHost/a", "/a"),
            ("file:///%C3%A9é", "/éé"),
            ("file:///a%2520b", "/a%20b"),
            ("file:///", "/"),
        ] {
            assert_eq!(file_path(uri), Some(Ok(path.to_owned())));
        }
    }

    #[test]
    fn uris_that_are_not_local_paths_are_refused() {
        for (uri, problem) in [
            ("file://server/share", UriProblem::ForeignHost),
            ("file://localhost:80/a", UriProblem::ForeignHost),
            ("file://../a", UriProblem::ForeignHost),
            ("file://", UriProblem::NoPath),
            ("file://localhost", UriProblem::NoPath),
            ("file:///a%", UriProblem::BadEscape),
            ("file:///a%2", UriProblem::BadEscape),
            ("file:///a%+1", UriProblem::BadEscape),
            ("file:///a%00", UriProblem::Nul),
            ("file:///a\0", UriProblem::Nul),
            ("file:///a%2Fb", UriProblem::EscapedSlash),
            ("file:///a%2fb", UriProblem::EscapedSlash),
            ("file:///a?b", UriProblem::QueryOrFragment),
            ("file:///a#L3", UriProblem::QueryOrFragment),
            ("file:///%ff", UriProblem::NotUtf8),
        ] {
            assert_eq!(file_path(uri), Some(Err(problem)), "{uri:?}");
        }
    }

    #[test]
    fn other_strings_are_not_file_uris() {
        for text in [
            "",
            "file:",
            "file:/a",
            "file:a",
            "/file:///a",
            "xfile:///a",
            "http://a",
            "é",
        ] {
            assert_eq!(file_path(text), None);
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
