//! From a client's answer to `roots/list` to directories.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use mainstay_contract::json::Json;
use mainstay_contract::render::shorten;
use mainstay_contract::uri::file_path;
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
            ignore(
                &mut found,
                &root.uri,
                "comes after as many roots as are looked at",
            );
            continue;
        }
        match directory(&root.uri, named_only) {
            Ok(path) if found.paths.contains(&path) => {}
            Ok(path) => found.paths.push(path),
            Err(why) => ignore(&mut found, &root.uri, &why),
        }
    }
    Ok(found)
}

fn directory(uri: &str, named_only: &[PathBuf]) -> Result<PathBuf, Cow<'static, str>> {
    let path = file_path(uri)
        .ok_or("is not a file:// URI")?
        .map_err(|problem| format!("is not a local path: {problem}"))?;
    let whole = Path::new(&path)
        .canonicalize()
        .map_err(|_| "cannot be opened")?;
    if !whole.is_dir() {
        return Err("is not a directory".into());
    }
    if whole.to_str().is_none() {
        return Err("has a path that is not UTF-8".into());
    }
    if whole.parent().is_none() || named_only.contains(&whole) {
        return Err("is used only when an operator names it".into());
    }
    Ok(whole)
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
    fn uris_are_read_as_the_shared_cases_demand() {
        let cases = include_str!("../../contract/tests/data/file_uris.json");
        let cases: Vec<(String, Option<String>, Option<String>)> =
            serde_json::from_str(cases).unwrap();
        for (uri, path, problem) in cases {
            let found = found(&[&uri], &[]);
            let expected = match (path, problem) {
                // A path that is well-formed is looked up, and then may not exist.
                (Some(_), _) => continue,
                (None, Some(problem)) => format!("is not a local path: {problem}"),
                (None, None) => "is not a file:// URI".to_owned(),
            };
            let ignored = found.first_ignored.unwrap();
            assert!(ignored.ends_with(&expected), "{ignored}");
        }
        let temp = std::env::temp_dir().display().to_string();
        let spelled = format!("FILE://localhost{}", temp.replace('t', "%74"));
        assert_eq!(found(&[&spelled], &[]).paths.len(), 1);
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
