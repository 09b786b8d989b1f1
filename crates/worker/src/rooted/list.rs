//! Listing files under a root.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rustix::fs::{Dir, FileType, OFlags, fstat};

use super::open::open_beneath;
use super::{RootedDir, RootedError};

/// Entries looked at in one listing, directories and skipped ones included.
const MAX_ENTRIES: u64 = 100_000;

/// Nested directories in one listing.
const MAX_DEPTH: usize = 32;

/// The result of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Sorted by path byte by byte.
    pub files: Vec<Entry>,
    /// Directories that were not looked into because they lie too deep.
    pub too_deep: usize,
    /// Links that cannot be read as files inside the root, sorted.
    pub unusable_links: Vec<String>,
    /// Regular files that this process may not open, sorted.
    pub unreadable_files: Vec<String>,
    /// Directories below the first that this process may not list, sorted.
    pub unreadable_dirs: Vec<String>,
}

/// One regular file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Size in bytes when it was listed.
    pub bytes: u64,
}

impl RootedDir {
    /// The regular files under `relative`, sorted by path byte by byte.
    ///
    /// A link to a file inside the root counts as that file; links to directories are not
    /// followed. Names that are not UTF-8, directories deeper than 32 and what vanishes meanwhile
    /// are left out.
    pub fn list(
        &self,
        relative: impl AsRef<Path>,
        recursive: bool,
    ) -> Result<Vec<Entry>, RootedError> {
        self.survey(relative, recursive).map(|survey| survey.files)
    }

    /// As [`Self::list`], and says what was left out for its depth, for where it leads, or because it
    /// may not be read.
    pub fn survey(
        &self,
        relative: impl AsRef<Path>,
        recursive: bool,
    ) -> Result<Survey, RootedError> {
        let relative = relative.as_ref();
        let first = relative
            .to_str()
            .ok_or(RootedError::NotFound)?
            .trim_matches('/');
        let first = if first == "." { "" } else { first };
        // An absolute path must fail before its slashes are taken for granted.
        self.open_dir(relative)?;
        let mut found = BTreeMap::new();
        let mut too_deep = 0;
        let mut unusable_links = Vec::new();
        let (mut unreadable_files, mut unreadable_dirs) = (Vec::new(), Vec::new());
        let mut seen = 0;
        let mut open = vec![(first.to_owned(), 0)];
        while let Some((dir, depth)) = open.pop() {
            let names = match self.names(&dir, depth, &mut seen) {
                Err(RootedError::Io { source, .. })
                    if depth > 0 && source.kind() == io::ErrorKind::PermissionDenied =>
                {
                    unreadable_dirs.push(dir);
                    continue;
                }
                names => names?,
            };
            for (name, kind) in names {
                let path = if dir.is_empty() {
                    name
                } else {
                    format!("{dir}/{name}")
                };
                match kind {
                    FileType::Directory if recursive && depth < MAX_DEPTH => {
                        open.push((path, depth + 1));
                    }
                    FileType::Directory if recursive => too_deep += 1,
                    FileType::RegularFile | FileType::Symlink | FileType::Unknown => {
                        match self.regular_size(&path) {
                            Ok(Some(bytes)) => drop(found.insert(path, bytes)),
                            _ if kind == FileType::Symlink => unusable_links.push(path),
                            Err(RootedError::Io { source, .. })
                                if source.kind() == io::ErrorKind::PermissionDenied =>
                            {
                                unreadable_files.push(path);
                            }
                            Ok(None) | Err(_) => {}
                        }
                    }
                    _ => {}
                }
            }
        }
        let files = found
            .into_iter()
            .map(|(path, bytes)| Entry { path, bytes })
            .collect();
        unusable_links.sort();
        unreadable_files.sort();
        unreadable_dirs.sort();
        Ok(Survey {
            files,
            too_deep,
            unusable_links,
            unreadable_files,
            unreadable_dirs,
        })
    }

    fn names(
        &self,
        dir: &str,
        depth: usize,
        seen: &mut u64,
    ) -> Result<Vec<(String, FileType)>, RootedError> {
        let opened = match self.open_dir(Path::new(dir)) {
            // Gone or replaced since its parent was listed.
            Err(RootedError::NotFound | RootedError::Escapes) if depth > 0 => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in opened {
            let entry = entry.map_err(|error| self.io(dir, error.into()))?;
            *seen += 1;
            if *seen > MAX_ENTRIES {
                return Err(RootedError::TooLarge { limit: MAX_ENTRIES });
            }
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push((name.to_owned(), entry.file_type())),
            }
        }
        Ok(names)
    }

    fn open_dir(&self, dir: &Path) -> Result<Dir, RootedError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd =
            open_beneath(&self.fd, dir, flags).map_err(|error| error.at(self.path().join(dir)))?;
        Dir::new(fd).map_err(|error| self.io(&dir.to_string_lossy(), error.into()))
    }

    /// The size of a regular file; `None` for everything else.
    fn regular_size(&self, path: &str) -> Result<Option<u64>, RootedError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let fd = open_beneath(&self.fd, Path::new(path), flags)
            .map_err(|error| error.at(self.path().join(path)))?;
        let stat = fstat(&fd).map_err(|error| self.io(path, error.into()))?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(regular.then(|| u64::try_from(stat.st_size).unwrap_or(0)))
    }

    fn io(&self, dir: &str, source: io::Error) -> RootedError {
        RootedError::Io {
            path: self.path().join(dir),
            source,
        }
    }
}
