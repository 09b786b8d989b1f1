//! The files of the workspace, read once.
//!
//! `Tree` maps paths, relative and with `/`, to text; files that are not text
//! are known by name only, which is enough for links to them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Larger files are data, not text to be checked.
const MAX_TEXT_BYTES: u64 = 4 * 1024 * 1024;

/// Folders that hold no file of ours, wherever they are.
const NOT_OURS: [&str; 3] = ["__pycache__", "node_modules", "target"];

/// Of what is hidden only these are ours; the rest belongs to git and editors.
const HIDDEN_BUT_OURS: [&str; 5] = [".cargo", ".ci", ".config", ".github", ".gitignore"];

#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    pub(crate) fn load(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.load_folder(root, "")?;
        Ok(tree)
    }

    /// The end of the recursion is the file system's: links are not followed.
    fn load_folder(&mut self, folder: &Path, prefix: &str) -> anyhow::Result<()> {
        let reading = || format!("reading {}", folder.display());
        for entry in fs::read_dir(folder).with_context(reading)? {
            let entry = entry.with_context(reading)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_ours(&name) {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().with_context(reading)?;
            if kind.is_dir() {
                self.load_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                let size = entry.metadata().with_context(reading)?.len();
                let text = if size <= MAX_TEXT_BYTES {
                    let bytes =
                        fs::read(entry.path()).with_context(|| format!("reading {path}"))?;
                    String::from_utf8(bytes).ok()
                } else {
                    None
                };
                self.files.insert(path, text);
            } else {
                self.files.insert(path, None);
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Every text file, in the order of paths.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// True if a file or a folder has this path; the root is `""`.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(inside.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&inside))
    }

    #[cfg(test)]
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let files = files.map(|(path, text)| (path.to_owned(), Some(text.to_owned())));
        Self {
            files: files.into(),
        }
    }
}

fn is_ours(name: &str) -> bool {
    let hidden = name.starts_with('.') && !HIDDEN_BUT_OURS.contains(&name);
    !hidden && !NOT_OURS.contains(&name)
}

/// The last part of the name after its dot, or nothing.
pub(crate) fn extension(path: &str) -> &str {
    path.rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .map_or("", |(_, end)| end)
}

/// Files that a test feeds to the product.
pub(crate) fn is_fixture(path: &str) -> bool {
    path.split('/').any(|part| part == "fixtures")
}

#[cfg(test)]
mod tests {
    use super::{Tree, extension, is_fixture, is_ours};

    #[test]
    fn files_and_the_folders_above_them_exist() {
        let tree = Tree::of([("docs/a.md", ""), ("docs-old", "")]);
        assert!(tree.exists("docs/a.md"));
        assert!(tree.exists("docs"));
        assert!(tree.exists("docs/"));
        assert!(tree.exists(""));
        assert!(!tree.exists("doc"));
        assert!(!tree.exists("docs/b.md"));
    }

    #[test]
    fn build_output_and_hidden_folders_are_not_ours() {
        assert!(is_ours("src") && is_ours(".ci") && is_ours("targets"));
        assert!(!is_ours("target") && !is_ours(".git") && !is_ours("node_modules"));
    }

    #[test]
    fn an_extension_is_what_follows_the_last_dot_of_the_name() {
        assert_eq!(extension("a.b/c.rs"), "rs");
        assert_eq!(extension("a.b/c"), "");
    }

    #[test]
    fn fixtures_are_known_by_their_folder() {
        assert!(is_fixture("crates/x/tests/fixtures/a.rs"));
        assert!(!is_fixture("crates/x/src/fixtures.rs"));
    }
}
