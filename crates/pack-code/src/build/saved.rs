//! Chunks that are kept on disk until their segment is written, so that a build which ends before
//! its time is taken up where it was.
//!
//! A file holds the documents of a chunk and its two runs, and a fingerprint of what it was made
//! from: the rules, the numbers of its first document and part, and the paths and stamps of its
//! files. Only a chunk that would come out the same is used again.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::build::pipeline::Chunk;
use crate::store::codec::{seal, take_array, take_bytes, unseal};
use crate::store::docs::{self, Docs};
use crate::store::manifest::TEMPORARY;
use crate::store::merge::Run;
use crate::store::{FORMAT, StoreError};
use crate::tree::walk::Found;

const MAGIC: [u8; 8] = *b"mstchk01";

/// What a chunk is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice<'a> {
    pub(super) first: u32,
    pub(super) first_part: u32,
    pub(super) files: &'a [Found],
}

impl Slice<'_> {
    fn fingerprint(&self, rules: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(FORMAT.to_le_bytes());
        hash.update(rules.as_bytes());
        hash.update(self.first.to_le_bytes());
        hash.update(self.first_part.to_le_bytes());
        for found in self.files {
            hash.update((found.path.len() as u64).to_le_bytes());
            hash.update(found.path.as_bytes());
            hash.update(found.stamp.size.to_le_bytes());
            hash.update(found.stamp.modified.to_le_bytes());
            hash.update(found.stamp.changed.to_le_bytes());
            hash.update(found.stamp.inode.to_le_bytes());
        }
        hash.finalize().into()
    }
}

/// Writes a chunk; its runs are read from the file from now on.
pub(super) fn save(
    folder: &Path,
    rules: &str,
    slice: &Slice<'_>,
    chunk: Chunk,
) -> Result<Chunk, StoreError> {
    let (Run::Memory(trigrams), Run::Memory(terms)) = (&chunk.trigrams, &chunk.terms) else {
        return Ok(chunk);
    };
    let records = docs::encode(&chunk.docs);
    let mut out = Vec::with_capacity(records.len() + trigrams.len() + terms.len() + 100);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&slice.fingerprint(rules));
    out.extend_from_slice(&slice.first.to_le_bytes());
    out.extend_from_slice(&(slice.files.len() as u32).to_le_bytes());
    for number in [
        chunk.text_bytes,
        records.len() as u64,
        trigrams.len() as u64,
        terms.len() as u64,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&records);
    let trigrams_at = out.len() as u64;
    out.extend_from_slice(trigrams);
    let terms_at = out.len() as u64;
    out.extend_from_slice(terms);
    seal(&mut out);
    let path = folder.join(format!("{TEMPORARY}chunk-{}", slice.first));
    let unfinished = folder.join(format!("{TEMPORARY}unfinished-{}", slice.first));
    fs::write(&unfinished, &out).map_err(|error| StoreError::io(&unfinished, error))?;
    fs::rename(&unfinished, &path).map_err(|error| StoreError::io(&path, error))?;
    let run = |offset, length: usize| Run::File {
        path: path.clone(),
        offset,
        length: length as u64,
    };
    Ok(Chunk {
        trigrams: run(trigrams_at, trigrams.len()),
        terms: run(terms_at, terms.len()),
        ..chunk
    })
}

/// The chunks of an earlier build that fit these files, by their first document. `first_parts` has
/// the number of each file's first part.
pub(super) fn load(
    folder: &Path,
    rules: &str,
    files: &[Found],
    first_parts: &[u32],
) -> Vec<(u32, Chunk)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let beginning = format!("{TEMPORARY}chunk-");
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&beginning))
        .map(|entry| entry.path())
        .collect();
    paths.sort_unstable();
    let mut chunks: Vec<(u32, Chunk)> = paths
        .iter()
        .filter_map(|path| read(path, rules, files, first_parts))
        .collect();
    chunks.sort_unstable_by_key(|(first, _)| *first);
    let mut end = 0;
    chunks.retain(|(first, chunk)| {
        let fits = *first >= end;
        if fits {
            end = first + chunk.docs.len() as u32;
        }
        fits
    });
    chunks
}

/// A chunk, if it is sound and made from these files.
fn read(path: &Path, rules: &str, files: &[Found], first_parts: &[u32]) -> Option<(u32, Chunk)> {
    let bytes = fs::read(path).ok()?;
    let mut rest = unseal(&bytes)?;
    if take_array(&mut rest)? != MAGIC {
        return None;
    }
    let fingerprint: [u8; 32] = take_array(&mut rest)?;
    let first = u32::from_le_bytes(take_array(&mut rest)?);
    let count = u32::from_le_bytes(take_array(&mut rest)?);
    let slice = Slice {
        first,
        first_part: *first_parts.get(first as usize)?,
        files: files.get(first as usize..first.checked_add(count)? as usize)?,
    };
    if count == 0 || slice.fingerprint(rules) != fingerprint {
        return None;
    }
    let mut number = || take_array(&mut rest).map(u64::from_le_bytes);
    let (text_bytes, records, trigrams, terms) = (number()?, number()?, number()?, number()?);
    let records = take_bytes(&mut rest, usize::try_from(records).ok()?)?;
    let offset = (bytes.len() - 4).checked_sub(rest.len())? as u64;
    if rest.len() as u64 != trigrams.checked_add(terms)? {
        return None;
    }
    let docs = Docs::parse(path, records.to_vec()).ok()?;
    let run = |offset, length| Run::File {
        path: path.to_owned(),
        offset,
        length,
    };
    let chunk = Chunk {
        docs: (0..docs.len()).map(|doc| docs.doc(doc)).collect(),
        trigrams: run(offset, trigrams),
        terms: run(offset + trigrams, terms),
        text_bytes,
    };
    (chunk.docs.len() == slice.files.len()).then_some((first, chunk))
}
