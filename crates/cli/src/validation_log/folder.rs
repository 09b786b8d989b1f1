//! Where validation logs are kept: one file for each run, a link to the latest, the last few.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mainstay_host::files;

/// Logs that are kept.
const KEPT: usize = 5;
/// What their names begin and end with.
const PREFIX: &str = "envelope_validation.";
const SUFFIX: &str = ".jsonl";
const LATEST: &str = "envelope_validation.latest.jsonl";

/// Writes a log of a run that began at `time`, and gives its path.
pub(crate) fn write(dir: &Path, time: &str, text: &str) -> io::Result<PathBuf> {
    let folder = dir.join("mcp_server");
    std::fs::create_dir_all(&folder)?;
    // Sorted by name they are sorted by time.
    let time: String = time.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("{PREFIX}{time}.{}{SUFFIX}", std::process::id());
    let path = folder.join(&name);
    files::replace(&path, text.as_bytes(), 0o644)?;
    // A link is replaced by renaming, so that there is always one.
    let fresh = files::draft_of(&path);
    symlink(&name, &fresh)?;
    std::fs::rename(&fresh, folder.join(LATEST))?;
    remove_old(&folder)?;
    Ok(path)
}

fn remove_old(folder: &Path) -> io::Result<()> {
    let mut logs: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_log = name.starts_with(PREFIX) && name.ends_with(SUFFIX) && name != LATEST;
        if is_log && entry.file_type()?.is_file() {
            logs.push(entry.path());
        }
    }
    logs.sort();
    let surplus = logs.len().saturating_sub(KEPT);
    logs.iter().take(surplus).try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_five_stay_and_the_link_names_the_latest() {
        let dir = std::env::temp_dir().join(format!("mainstay-logs-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        for minute in 10..18 {
            let time = format!("2026-01-01T00:{minute}:00.000Z");
            write(&dir, &time, &format!("{minute}\n")).unwrap();
        }
        let folder = dir.join("mcp_server");
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 5 + 2, "{names:?}");
        assert!(names[0].starts_with("envelope_validation.20260101T001300000Z."));
        assert_eq!(
            std::fs::read_to_string(folder.join(LATEST)).unwrap(),
            "17\n"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
