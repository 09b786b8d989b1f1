//! Files in places where other users may write.
//!
//! Every command that keeps something private goes through [`create_private`] or [`verify_private`]; every
//! file that is written whole goes through [`replace`]; every file that a user names is read by [`read`]. None
//! of them follows a link that another user planted, and none waits for a FIFO or for a lock.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::entropy;

/// Permissions of a file for its owner alone.
pub const PRIVATE: u32 = 0o600;

/// Creates a directory for its owner alone, or verifies the one that exists.
pub fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    match builder.recursive(true).mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(named(folder, &error)),
        _ => verify_private(folder),
    }
}

/// Adds the path to an error of the system.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// As [`create_private`], for a directory whose name is ours: one that this user made too open is closed.
pub fn create_own(folder: &Path) -> io::Result<()> {
    let Err(error) = create_private(folder) else {
        return Ok(());
    };
    let Ok(facts) = fs::symlink_metadata(folder) else {
        return Err(error);
    };
    if !facts.is_dir() || facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(error);
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Rejects a directory that belongs to another user or that other users may write to.
pub fn verify_private(folder: &Path) -> io::Result<()> {
    let facts = fs::symlink_metadata(folder).map_err(|error| named(folder, &error))?;
    let ours = facts.uid() == rustix::process::geteuid().as_raw();
    if facts.is_dir() && ours && facts.mode() & 0o022 == 0 {
        return Ok(());
    }
    let shown = folder.display();
    let said = format!("{shown} is not a private directory of this user");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, said))
}

/// Replaces the content of a file in one step: readers see the old file or the new one.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, mode, |mut file| file.write_all(content))
}

/// As [`replace`], and the content is on the disk before the name is.
pub fn replace_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, mode, |mut file| {
        file.write_all(content)?;
        file.sync_all()
    })
}

fn replace_with(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let draft = draft_of(path);
    // `create_new` is O_CREAT with O_EXCL, which follows no link either.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)?;
    let replaced = fill(&file).and_then(|()| fs::rename(&draft, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&draft);
    }
    replaced
}

/// A name in the same directory that no other user can predict.
pub fn draft_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{:016x}", entropy::random()));
    path.with_file_name(name)
}

/// Links at the end of a path, for [`read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Follow,
    Reject,
}

/// Reads a regular file of at most `limit` bytes, and what the system says about it.
pub fn read(path: &Path, limit: u64, links: Links) -> io::Result<(Vec<u8>, Metadata)> {
    // Without NONBLOCK opening a FIFO waits for a writer.
    let mut flags = OFlags::NONBLOCK;
    flags.set(OFlags::NOFOLLOW, links == Links::Reject);
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let content = read_at_most(&file, limit)?;
    Ok((content, facts))
}

fn read_at_most(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        let said = format!("it has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, said));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("mainstay-files-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        create_private(&folder).unwrap();
        folder
    }

    #[test]
    fn a_private_directory_is_ours_and_no_one_elses() {
        let folder = folder("private");
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        let inner = folder.join("a/b");
        create_private(&inner).unwrap();
        create_private(&inner).unwrap();
        for mode in [0o770, 0o702] {
            fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).unwrap();
            assert!(verify_private(&inner).is_err(), "{mode:o}");
            assert!(create_private(&inner).is_err(), "{mode:o}");
        }
        create_own(&inner).unwrap();
        verify_private(&inner).unwrap();
        let link = folder.join("link");
        symlink("a", &link).unwrap();
        assert!(create_private(&link).is_err(), "a link");
        assert!(create_own(&link).is_err(), "a link");
        assert!(verify_private(&folder.join("none")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_replacement_follows_no_link_and_leaves_no_draft() {
        let folder = folder("replace");
        let (path, victim) = (folder.join("file"), folder.join("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink("victim", &path).unwrap();
        replace(&path, b"new", PRIVATE).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        let facts = fs::symlink_metadata(&path).unwrap();
        assert!(facts.is_file() && facts.mode() & 0o777 == 0o600);
        assert!(replace(&folder.join("none/file"), b"", PRIVATE).is_err());
        fs::create_dir(folder.join("taken")).unwrap();
        assert!(replace(&folder.join("taken"), b"", PRIVATE).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        assert_ne!(draft_of(&path), draft_of(&path));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let folder = folder("read");
        let (path, fifo, link) = (folder.join("f"), folder.join("p"), folder.join("l"));
        fs::write(&path, "1234").unwrap();
        symlink("f", &link).unwrap();
        let fifo_type = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, fifo_type, mode, 0).unwrap();
        let read = |path: &Path, limit, links| read(path, limit, links).map(|(content, _)| content);
        assert_eq!(read(&path, 4, Links::Reject).unwrap(), b"1234");
        assert!(read(&path, 3, Links::Follow).is_err());
        assert_eq!(read(&link, 4, Links::Follow).unwrap(), b"1234");
        assert!(read(&link, 4, Links::Reject).is_err());
        assert!(read(&fifo, 4, Links::Follow).is_err(), "and does not wait");
        assert!(read(&folder, 4, Links::Follow).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
