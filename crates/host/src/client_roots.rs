//! From a client's answer to `roots/list` to directories.

use std::path::{Path, PathBuf};

use mainstay_contract::json::Json;
use mainstay_contract::render::shorten;
use mainstay_kernel::core::action::RootsFound;
use serde::Deserialize;

/// Roots of one client that are looked at.
const ROOTS_MAX: usize = 64;
/// Characters of a URI in a log line.
const SHOWN: usize = 120;

/// Counts a root that is ignored; the first one is named with the reason.
fn ignore(found: &mut RootsFound, uri: &str, why: &str) {
    found.ignored += 1;
    found
        .first_ignored
        .get_or_insert_with(|| format!("{:?} {why}", shorten(uri, SHOWN)));
}

#[derive(Deserialize)]
struct Listed {
    roots: Vec<Root>,
}

#[derive(Deserialize)]
struct Root {
    uri: String,
}

/// Finds the directories of an answer. Reads the file system, so it may take as long as that does.
pub(crate) fn find(result: &Json, named_only: &[PathBuf]) -> Result<RootsFound, String> {
    let listed: Listed =
        serde_json::from_str(result.as_str()).map_err(|error| error.to_string())?;
    let mut found = RootsFound::default();
    for (index, root) in listed.roots.iter().enumerate() {
        if index >= ROOTS_MAX {
            ignore(&mut found, &root.uri, "comes after as many roots as are looked at");
            continue;
        }
        match directory(&root.uri, named_only) {
            Ok(path) if found.paths.contains(&path) => {}
            Ok(path) => found.paths.push(path),
            Err(why) => ignore(&mut found, &root.uri, why),
        }
    }
    Ok(found)
}

fn directory(uri: &str, named_only: &[PathBuf]) -> Result<PathBuf, &'static str> {
    let path = local_path(uri)?;
    let whole = Path::new(&path)
        .canonicalize()
        .map_err(|_| "cannot be opened")?;
    if !whole.is_dir() {
        return Err("is no directory");
    }
    if whole.to_str().is_none() {
        return Err("has a path that is not UTF-8");
    }
    if whole.parent().is_none() || named_only.contains(&whole) {
        return Err("is used only when an operator names it");
    }
    Ok(whole)
}

/// The path in a `file://` URI of this machine.
fn local_path(uri: &str) -> Result<String, &'static str> {
    let rest = match uri.split_at_checked("file://".len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file://") => rest,
        _ => return Err("is no file:// URI"),
    };
    let path = match rest.split_at_checked("localhost".len()) {
        Some((host, path)) if host.eq_ignore_ascii_case("localhost") => path,
        _ => rest,
    };
    if !path.starts_with('/') {
        return Err("is of another machine");
    }
    percent_decoded(path).ok_or("is not well-formed")
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = if byte == b'%' {
            let (high, low) = (hex(rest.next()?)?, hex(rest.next()?)?);
            high << 4 | low
        } else {
            byte
        };
        if byte == 0 {
            return None;
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(uris: &[&str], named_only: &[PathBuf]) -> RootsFound {
        let roots: Vec<_> = uris.iter().map(|uri| json!({ "uri": uri })).collect();
        find(&json!({ "roots": roots }).into(), named_only).unwrap()
    }

    #[test]
    fn paths_are_percent_decoded_and_local() {
        for (uri, path) in [
            ("file:///a/b", Ok("/a/b")),
            ("FILE://LOCALHOST/a%20b", Ok("/a b")),
            ("file:///%C3%A9%2f", Ok("/é/")),
            ("file:///c#d?e", Ok("/c#d?e")),
            ("file:///a%", Err("is not well-formed")),
            ("file:///a%4", Err("is not well-formed")),
            ("file:///a%zz", Err("is not well-formed")),
            ("file:///a%00b", Err("is not well-formed")),
            ("file:///%ff", Err("is not well-formed")),
            ("file://elsewhere/a", Err("is of another machine")),
            ("file://", Err("is of another machine")),
            ("file:/a", Err("is no file:// URI")),
            ("https://a/b", Err("is no file:// URI")),
            ("", Err("is no file:// URI")),
        ] {
            assert_eq!(local_path(uri), path.map(str::to_owned), "{uri}");
        }
    }

    #[test]
    fn only_existing_directories_that_need_not_be_named_are_used_once_each() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let home = here.join("src/engine");
        let uri = |path: &Path| format!("file://{}", path.display());
        let uris = [
            uri(&here.join("src/http/../http")),
            "file:///".to_owned(),
            "file:///..".to_owned(),
            uri(&home),
            uri(&here.join("Cargo.toml")),
            uri(&here.join("no-such-folder")),
            uri(&here),
            uri(&here.join("src/..")),
        ];
        let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
        let found = found(&uris, &[home]);
        assert_eq!(found.paths, [here.join("src/http"), here]);
        assert_eq!(found.ignored, 5);
        let first = found.first_ignored.unwrap();
        assert_eq!(first, "\"file:///\" is used only when an operator names it");
    }

    #[test]
    fn no_more_than_64_roots_are_looked_at() {
        let mut uris = vec!["none"; ROOTS_MAX];
        let here = format!("file://{}", std::env::current_dir().unwrap().display());
        uris.push(&here);
        let found = found(&uris, &[]);
        assert_eq!((found.paths.len(), found.ignored), (0, ROOTS_MAX + 1));
    }

    #[test]
    fn an_answer_that_is_no_list_of_roots_is_refused() {
        for answer in [json!({}), json!([]), json!({ "roots": [{ "path": "/a" }] })] {
            assert!(find(&answer.clone().into(), &[]).is_err(), "{answer}");
        }
    }
}
