//! What git says a tree's head is, read from its files without running git.

use std::path::{Path, PathBuf};

use crate::tree::ignore_rules::read_regular;

/// Largest file of git that is read here.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The commit that is checked out at `root` or above, in hex.
pub(crate) fn head(root: &Path) -> Option<String> {
    let git = git_dir(root)?;
    let head = text(&git.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return is_hash(head.trim()).then(|| head.trim().to_owned());
    };
    let common =
        text(&git.join("commondir")).map_or_else(|| git.clone(), |dir| git.join(dir.trim()));
    [&git, &common]
        .iter()
        .find_map(|dir| text(&dir.join(name)))
        .map(|hash| hash.trim().to_owned())
        .or_else(|| {
            let packed = text(&common.join("packed-refs"))?;
            packed.lines().find_map(|line| {
                let (hash, packed_name) = line.split_once(' ')?;
                (packed_name == name).then(|| hash.to_owned())
            })
        })
        .filter(|hash| is_hash(hash))
}

/// The file of git's own ignore rules for the tree at `root`, whether it is there or not.
pub(crate) fn exclude_file(root: &Path) -> Option<PathBuf> {
    root.ancestors()
        .find(|dir| dir.join(".git").exists())
        .and_then(exclude_file_of)
}

/// The same of the worktree whose top `top` is.
pub(crate) fn exclude_file_of(top: &Path) -> Option<PathBuf> {
    let git = git_dir_of(top)?;
    let common =
        text(&git.join("commondir")).map_or_else(|| git.clone(), |dir| git.join(dir.trim()));
    Some(common.join("info/exclude"))
}

/// The directory that all worktrees of a repository share.
pub(crate) fn common_dir(root: &Path) -> Option<PathBuf> {
    let git = git_dir(root)?;
    let common =
        text(&git.join("commondir")).map_or_else(|| git.clone(), |dir| git.join(dir.trim()));
    common.canonicalize().ok()
}

fn git_dir(root: &Path) -> Option<PathBuf> {
    Some(worktree(root)?.1)
}

/// The worktree that `root` is in, and its directory of git's.
pub(crate) fn worktree(root: &Path) -> Option<(PathBuf, PathBuf)> {
    let top = root.ancestors().find(|dir| dir.join(".git").exists())?;
    Some((top.to_owned(), git_dir_of(top)?))
}

fn git_dir_of(top: &Path) -> Option<PathBuf> {
    let found = top.join(".git");
    if found.is_dir() {
        return Some(found);
    }
    // A worktree or a submodule has a file that names the directory.
    let link = text(&found)?;
    let target = link.trim().strip_prefix("gitdir: ")?;
    Some(top.join(target))
}

fn text(path: &Path) -> Option<String> {
    String::from_utf8(read_regular(path, MAX_BYTES).ok()??).ok()
}

fn is_hash(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
