//! Running a command as an ordinary user, which has no right over processes and files of others.

use std::ffi::OsString;
use std::os::unix::fs::chown;
use std::path::Path;

use anyhow::Context as _;

/// An account without rights on every Linux: `nobody`.
pub const NOBODY: u32 = 65_534;

/// True if the tests run as root, and can give files to other users.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The words before a command that runs it as an ordinary user, who also gets `folder`. None are needed if the
/// tests themselves run as one.
pub fn as_nobody(folder: &Path) -> anyhow::Result<Vec<OsString>> {
    if !is_root() {
        return Ok(Vec::new());
    }
    give_away(folder)?;
    let id = NOBODY.to_string();
    let words = [
        "setpriv",
        "--reuid",
        &id,
        "--regid",
        &id,
        "--clear-groups",
        "--",
    ];
    Ok(words.map(OsString::from).to_vec())
}

/// Makes a file or folder another user's; only root can.
pub fn give_away(path: &Path) -> anyhow::Result<()> {
    chown(path, Some(NOBODY), Some(NOBODY))
        .with_context(|| format!("giving {} to another user", path.display()))
}
