//! The cache directory: which indexes it has, and removing them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::store::lock::WriterLock;
use crate::store::manifest::{self, Manifest};
use crate::store::table::file_bytes;

/// The folder of all indexes in a cache directory.
pub const FOLDER: &str = "code";

/// One index in the cache.
#[derive(Clone, Debug)]
pub struct CachedIndex {
    pub folder: PathBuf,
    /// The root it is of; empty when the manifest cannot be read.
    pub root: String,
    pub bytes: u64,
    pub generation: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

/// The indexes of a cache directory, sorted by root.
pub fn list(cache_dir: &Path) -> io::Result<Vec<CachedIndex>> {
    let entries = match fs::read_dir(cache_dir.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        let read = Manifest::read(&folder).ok().flatten();
        let files = fs::read_dir(&folder)?.filter_map(Result::ok);
        let bytes = files.filter_map(|file| file_bytes(&file.path()).ok()).sum();
        let modified = fs::metadata(folder.join(manifest::FILE))
            .or_else(|_| fs::metadata(&folder))
            .and_then(|metadata| metadata.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH);
        found.push(CachedIndex {
            root: read
                .as_ref()
                .map(|manifest| manifest.root.clone())
                .unwrap_or_default(),
            generation: read.map_or(0, |manifest| manifest.generation),
            folder,
            bytes,
            modified,
        });
    }
    found.sort_by(|a, b| (&a.root, &a.folder).cmp(&(&b.root, &b.folder)));
    Ok(found)
}

/// Removes the indexes that were written longest ago until all together are within `max_bytes`.
/// The one in `keep` stays, and so does what cannot be removed now.
pub(crate) fn trim(keep: &Path, max_bytes: u64) {
    let Some(cache_dir) = keep.parent().and_then(Path::parent) else {
        return;
    };
    let Ok(mut indexes) = list(cache_dir) else {
        return;
    };
    let mut bytes: u64 = indexes.iter().map(|index| index.bytes).sum();
    indexes.sort_by_key(|index| index.modified);
    for index in indexes.iter().filter(|index| index.folder != keep) {
        if bytes <= max_bytes {
            return;
        }
        if clear(index).is_ok_and(|cleared| cleared) {
            bytes -= index.bytes;
        }
    }
}

/// Removes an index, unless somebody is writing it; says whether it did.
pub fn clear(index: &CachedIndex) -> io::Result<bool> {
    match WriterLock::take(&index.folder) {
        Ok(Some(_lock)) => crate::build::remove(&index.folder).map(|()| true),
        Ok(None) => Ok(false),
        Err(_) => crate::build::remove(&index.folder).map(|()| true),
    }
}
