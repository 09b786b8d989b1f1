//! File paths as text: relative where they lie inside a root, `/` between segments, and every
//! byte visible.
//!
//! [`display`] is injective for paths it does not make relative: a backslash becomes `\\`, a hidden
//! character its escape, a byte that is not UTF-8 `\xNN`. Deliberately absent: the file system.
//! Nothing is resolved, so a path with `..` behind the root is never called inside.

use std::ffi::OsStr;
use std::path::{Component, Path};

use super::escape::{push_byte, push_visible};

/// Renders `path`, relative to `root` where it lies inside; the root itself is `.`.
#[must_use]
pub fn display(path: &Path, root: Option<&Path>) -> String {
    let inside = root
        .and_then(|root| path.strip_prefix(root).ok())
        .filter(|rest| {
            // `/srv/../etc` has the prefix `/root` and lies outside.
            !rest.components().any(|part| part == Component::ParentDir)
        });
    let mut out = String::new();
    for part in inside.unwrap_or(path).components() {
        match part {
            Component::RootDir => out.push('/'),
            other => {
                if !out.is_empty() && !out.ends_with('/') {
                    out.push('/');
                }
                push_segment(&mut out, other.as_os_str());
            }
        }
    }
    if out.is_empty() {
        out.push('.');
    }
    out
}

fn push_segment(out: &mut String, segment: &OsStr) {
    let bytes = segment.as_encoded_bytes();
    let last = bytes.len().saturating_sub(1);
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for (place, c) in chunk.valid().char_indices() {
            match c {
                '\\' => out.push_str("\\\\"),
                // A line may lose spaces at its ends, and a reader would not see them.
                ' ' if at == 0 || at == last => push_byte(out, u32::from(c)),
                c => push_visible(out, chunk.valid(), place, c),
            }
            at += c.len_utf8();
        }
        for &byte in chunk.invalid() {
            push_byte(out, u32::from(byte));
            at += 1;
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    fn inside(path: &str, root: &str) -> String {
        display(Path::new(path), Some(Path::new(root)))
    }

    #[test]
    fn paths_inside_the_root_are_relative() {
        assert_eq!(inside("/srv/src/lib.rs", "/srv"), "src/lib.rs");
        assert_eq!(inside("/srv//src/./lib.rs", "/srv/"), "src/lib.rs");
        assert_eq!(inside("/srv", "/srv"), ".");
    }

    #[test]
    fn paths_outside_the_root_stay_whole() {
        assert_eq!(inside("/srvice/a", "/srv"), "/srvice/a");
        assert_eq!(inside("/srv/../etc/passwd", "/srv"), "/srv/../etc/passwd");
        assert_eq!(inside("../a", "/srv"), "../a");
        assert_eq!(display(Path::new("/"), None), "/");
    }

    #[test]
    fn hidden_and_invalid_bytes_are_visible() {
        let raw = OsStr::from_bytes(b"a\n\\x\xff\xc3\xa9 b ");
        assert_eq!(display(Path::new(raw), None), "a\\n\\\\x\\xffé b\\x20");
    }

    proptest! {
        #[test]
        fn different_paths_look_different(
            a in proptest::collection::vec(any::<u8>(), 0..6),
            b in proptest::collection::vec(any::<u8>(), 0..6),
        ) {
            let (a, b) = (Path::new(OsStr::from_bytes(&a)), Path::new(OsStr::from_bytes(&b)));
            let same = |p: &Path| p.as_os_str().is_empty() || p == Path::new(".");
            if a != b && !(same(a) && same(b)) {
                prop_assert!(display(a, None) != display(b, None));
            }
            prop_assert!(!display(a, None).chars().any(char::is_control));
        }
    }
}
