//! One style for paths: no empty and no `.` segments, no separator at the end.

use std::borrow::Cow;

use crate::uri::has_scheme;

/// Tidies a path without changing what it names.
///
/// `..` stays, because only the file system knows where it leads and the rooted open refuses it.
/// A backslash is a character like any other. The empty string and URIs of any scheme stay whole.
pub(super) fn tidy(path: &str) -> Cow<'_, str> {
    let untidy = |segment: &str| segment.is_empty() || segment == ".";
    let relative = path.strip_prefix('/').unwrap_or(path);
    if relative.is_empty() || path == "." || has_scheme(path) || !relative.split('/').any(untidy) {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    let root = if path.starts_with('/') { "/" } else { "" };
    out.push_str(root);
    for segment in relative.split('/').filter(|segment| !untidy(segment)) {
        if out.len() > root.len() {
            out.push('/');
        }
        out.push_str(segment);
    }
    if out.is_empty() {
        out.push('.');
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn untidy_paths_are_tidied() {
        for (path, tidied) in [
            ("./a//b/", "a/b"),
            ("a/./b", "a/b"),
            ("//a", "/a"),
            ("/./", "/"),
            ("//", "/"),
            ("./", "."),
            ("./.", "."),
            ("/a/", "/a"),
            ("./../a", "../a"),
            ("./file:///a", "file:/a"),
        ] {
            assert_eq!(tidy(path), tidied);
        }
    }

    #[test]
    fn tidy_paths_are_borrowed() {
        for path in [
            "",
            "/",
            ".",
            "..",
            "a",
            "a/..",
            "/a/b",
            "a\\.\\b",
            ".a",
            "http://a//b/",
            " ",
        ] {
            assert!(
                matches!(tidy(path), Cow::Borrowed(same) if same == path),
                "{path:?}"
            );
        }
    }

    fn names(path: &str) -> Vec<&str> {
        path.split('/')
            .filter(|segment| !matches!(*segment, "" | "."))
            .collect()
    }

    proptest! {
        #[test]
        fn tidying_twice_changes_nothing_and_keeps_the_path(path in "[/.a:-]{0,12}") {
            let once = tidy(&path).into_owned();
            prop_assert_eq!(tidy(&once), &*once);
            prop_assert_eq!(names(&once), names(&path));
            prop_assert_eq!(once.starts_with('/'), path.starts_with('/'));
        }
    }
}
