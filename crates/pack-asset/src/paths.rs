//! Paths and URIs that clients give, before anything is looked up by them.
//!
//! Nothing here opens a file: what is served was read at start, and the table of what was read is
//! the only thing that a client's path is compared with. A path that is *written* to lead out is
//! refused by name all the same, so that the refusal is not mistaken for a missing file.

use mainstay_worker::{ErrorKind, Json, Problem, uri};
use serde_json::json;

/// Rounds of percent-decoding that are looked through.
const MAX_ROUNDS: usize = 4;

/// True if a path is written to lead out of its root on any platform, plainly or encoded.
pub(crate) fn leaves_root(path: &str) -> bool {
    let mut text = path.to_owned();
    for _ in 0..MAX_ROUNDS {
        if leads_out(&text) {
            return true;
        }
        match uri::decode(&text) {
            Some(next) if next != text => text = next.into_owned(),
            _ => return false,
        }
    }
    // Encoded that often, it can only be meant to deceive.
    true
}

fn leads_out(path: &str) -> bool {
    path.starts_with('/') || path.contains(['\\', '\0']) || path.split('/').any(|part| part == "..")
}

/// The path without `.` and empty components.
pub(crate) fn plain(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}

/// The refusal of such a path, at the argument that held it.
pub(crate) fn invalid(argument: &str, message: &str, hint: &str) -> Problem {
    let details = json!({"ok": false, "reason": "validation_failed",
        "errors": [{"path": format!("/{argument}"), "msg": "invalid_path"}]});
    Problem::new(ErrorKind::InvalidArguments, message)
        .with_hint(hint)
        .with_details(Json::from(details))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_out_is_seen() {
        for path in [
            "..",
            "../a",
            "a/..",
            "a/../b",
            "/a",
            "/",
            "\\a",
            "a\\b",
            "..\\a",
            "C:\\a",
            "a\0",
            "%2e%2e/a",
            "%2E./a",
            "..%2fa",
            "%2fetc/passwd",
            "a%5cb",
            "a%00",
            "%252e%252e%252fa",
            "%25252525252e",
        ] {
            assert!(leaves_root(path), "{path:?}");
        }
    }

    #[test]
    fn what_stays_inside_is_left_alone() {
        for path in [
            "a", "a/b.json", "...", "..a", "a..", "a/...", "./a", "a//b", "é", "100%", "%zz", "%",
        ] {
            assert!(!leaves_root(path), "{path:?}");
        }
        assert_eq!(plain("./a//b/./c.json"), "a/b/c.json");
    }
}
