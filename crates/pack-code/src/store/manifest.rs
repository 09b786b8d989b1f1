//! The manifest: what one generation of an index consists of.
//!
//! It is one line of JSON and one line with its checksum, replaced as a whole by rename.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::store::codec::checksum;
use crate::store::{FORMAT, StoreError};
use crate::symbols::names::ENDING;

/// Name of the manifest in an index's folder.
pub(crate) const FILE: &str = "manifest";
/// Names beginning so are being written and belong to nobody else.
pub(crate) const TEMPORARY: &str = "tmp-";

/// One generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// The root this index is of, so that a folder can be told from its inside.
    pub(crate) root: String,
    pub(crate) generation: u64,
    /// Milliseconds since 1970.
    pub(crate) built_at: u64,
    pub(crate) git_head: Option<String>,
    /// The directory that the worktrees of its repository share.
    #[serde(default)]
    pub(crate) git_common: Option<String>,
    /// The rules by which files were chosen; others need a full build.
    pub(crate) rules: String,
    pub(crate) next_segment: u64,
    pub(crate) segments: Vec<SegmentEntry>,
    /// Entries left out by ignore rules, as of the last full walk.
    pub(crate) ignored: u64,
    /// Files that cannot be read or named.
    pub(crate) unreadable: BTreeSet<String>,
}

/// One segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentEntry {
    pub(crate) id: u64,
    pub(crate) docs: u32,
    pub(crate) text_bytes: u64,
    #[serde(default)]
    pub(crate) dead: Option<String>,
    #[serde(default)]
    pub(crate) stamps: Option<String>,
    #[serde(default)]
    pub(crate) symbols: Vec<String>,
    #[serde(default)]
    pub(crate) symbols_to: u32,
    /// Documents below that number whose text was not there to be read.
    #[serde(default)]
    pub(crate) missed: Option<String>,
    /// It was written for another tree: the stamps of its documents are of files there.
    #[serde(default)]
    pub(crate) borrowed: bool,
}

impl SegmentEntry {
    /// The beginning of its files' names.
    pub(crate) fn name(&self) -> String {
        format!("seg-{}", self.id)
    }

    /// All its files.
    pub(crate) fn files(&self) -> Vec<String> {
        let own = ["docs", "tri", "term"].map(|ending| format!("{}.{ending}", self.name()));
        let term_names = format!("{}.term{ENDING}", self.name());
        own.into_iter()
            .chain([term_names])
            .chain(self.dead.clone())
            .chain(self.stamps.clone())
            .chain(self.missed.clone())
            .chain(self.symbols.iter().cloned())
            .chain(self.symbols.iter().map(|name| format!("{name}{ENDING}")))
            .collect()
    }
}

impl Manifest {
    /// Reads the manifest; `None` when there is none, or one of another format.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, StoreError> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(StoreError::corrupt(path, "it is not text"));
            }
            Err(error) => return Err(StoreError::io(path, error)),
        };
        let broken = |what| StoreError::corrupt(&path, what);
        let (body, sum) = text.split_once('\n').ok_or_else(|| broken("it is cut"))?;
        if sum.trim() != format!("{:08x}", checksum(body.as_bytes())) {
            return Err(broken("wrong checksum"));
        }
        let manifest: Self =
            serde_json::from_str(body).map_err(|_| broken("it is not a manifest"))?;
        Ok((manifest.format == FORMAT).then_some(manifest))
    }

    /// Publishes the manifest as the current generation.
    pub(crate) fn publish(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(FILE);
        let body = serde_json::to_string(self)
            .map_err(|error| StoreError::io(&path, std::io::Error::other(error)))?;
        let text = format!("{body}\n{:08x}\n", checksum(body.as_bytes()));
        let temporary = folder.join(format!("{TEMPORARY}{FILE}"));
        fs::write(&temporary, text).map_err(|error| StoreError::io(&temporary, error))?;
        fs::rename(&temporary, &path).map_err(|error| StoreError::io(&path, error))
    }

    /// Every file that this generation needs.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        self.segments.iter().flat_map(SegmentEntry::files).collect()
    }

    /// Removes what no generation needs. Only the writer may do that.
    pub(crate) fn remove_strangers(&self, folder: &Path) {
        let needed = self.files();
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let ours = name.starts_with("seg-") || name.starts_with(TEMPORARY);
            if ours && !needed.contains(name) {
                // Left for the next time if it cannot be removed now.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mainstay_worker::testing::TempDir;

    use super::*;

    #[test]
    fn a_manifest_comes_back_and_damage_is_noticed() {
        let dir = TempDir::new().unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), None);
        let mut manifest = Manifest {
            format: FORMAT,
            generation: 7,
            ..Manifest::default()
        };
        manifest.publish(dir.path()).unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), Some(manifest.clone()));
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"generation\":7", "\"generation\":8")).unwrap();
        assert!(matches!(
            Manifest::read(dir.path()),
            Err(StoreError::Corrupt { .. })
        ));
        manifest.format = FORMAT + 1;
        manifest.publish(dir.path()).unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), None);
    }
}
