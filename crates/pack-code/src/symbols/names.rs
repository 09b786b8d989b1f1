//! Which blocks of a symbol table may have a name with some letters inside.
//!
//! Beside a table of symbols lies a file with one set of trigrams for each block of keys, as bits.
//! A search for a part of a name reads only the blocks that have all trigrams of the part. The file
//! is a help and nothing else: without it, or with a damaged one, every block is read.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::store::codec::{seal, unseal};
use crate::store::table::Table;
use crate::store::{StoreError, create};

/// Bytes of a block's set.
const SET_BYTES: usize = 128;
const MAGIC: &[u8; 8] = b"mstnam01";
/// What the name of the file ends with, behind that of its table.
pub(crate) const ENDING: &str = ".names";

type Set = [u8; SET_BYTES];

/// The file beside a table.
fn beside(table: &Path) -> PathBuf {
    let mut name = table.as_os_str().to_owned();
    name.push(ENDING);
    PathBuf::from(name)
}

/// The bit of a trigram: its byte and its mask.
fn bit(trigram: &[u8]) -> (usize, u8) {
    let hash = trigram.iter().fold(0_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193) ^ hash >> 15
    });
    let at = (hash >> 7) as usize % (SET_BYTES * 8);
    (at / 8, 1 << (at % 8))
}

fn add(set: &mut Set, name: &[u8]) {
    for trigram in name.windows(3) {
        let (byte, mask) = bit(trigram);
        if let Some(byte) = set.get_mut(byte) {
            *byte |= mask;
        }
    }
}

/// Writes the sets of a table that has just been written.
pub(crate) fn write(table: &Path) -> Result<(), StoreError> {
    let opened = Table::open(table)?;
    let mut out = MAGIC.to_vec();
    for block in 0..opened.blocks() {
        let mut set: Set = [0; SET_BYTES];
        opened.scan_block(block, |key, _| {
            let lower = key.split(|byte| *byte == 0).next().unwrap_or(key);
            add(&mut set, lower);
            if lower.contains(&b'_') {
                // A misspelt name is looked for without them.
                let plain: Vec<u8> = lower.iter().copied().filter(|byte| *byte != b'_').collect();
                add(&mut set, &plain);
            }
            true
        })?;
        out.extend_from_slice(&set);
    }
    seal(&mut out);
    let path = beside(table);
    create(&path)?
        .write_all(&out)
        .map_err(|error| StoreError::io(path, error))
}

/// The blocks of a table that may have a name with this part, but for `missing` trigrams of it; all
/// of them where that is not known.
pub(crate) fn blocks_with(table: &Table, part: &[u8], missing: usize) -> Vec<usize> {
    let all = || (0..table.blocks()).collect();
    let Ok(bytes) = fs::read(beside(table.path())) else {
        return all();
    };
    let sets = unseal(&bytes).and_then(|body| body.strip_prefix(MAGIC));
    let Some((sets, [])) = sets.map(<[u8]>::as_chunks::<SET_BYTES>) else {
        return all();
    };
    if sets.len() != table.blocks() {
        return all();
    }
    let wanted: Vec<(usize, u8)> = part.windows(3).map(bit).collect();
    let lacks = |set: &Set| {
        let absent =
            |(byte, mask): &&(usize, u8)| set.get(*byte).is_none_or(|byte| byte & mask == 0);
        wanted.iter().filter(absent).take(missing + 1).count()
    };
    let may_have = |(_, set): &(usize, &Set)| lacks(set) <= missing;
    let found = sets.iter().enumerate().filter(may_have);
    found.map(|(block, _)| block).collect()
}

#[cfg(test)]
mod tests {
    use mainstay_worker::testing::TempDir;

    use super::*;
    use crate::store::table::TableWriter;
    use crate::symbols::layer::key;

    #[test]
    fn no_block_with_a_name_is_left_out_and_most_others_are() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("seg-1.sym");
        let mut names: Vec<String> = (0..5_000_u32)
            .map(|number| format!("{:x}_name_{number}", number.wrapping_mul(2_654_435_761)))
            .collect();
        names.push("register_chrdev_region".to_owned());
        let mut keys: Vec<Vec<u8>> = names.iter().map(|name| key(name)).collect();
        keys.sort();
        let mut writer = TableWriter::create(&path).unwrap();
        for key in &keys {
            writer.add(key, 1, &[0]).unwrap();
        }
        writer.finish().unwrap();
        let table = Table::open(&path).unwrap();
        assert_eq!(
            blocks_with(&table, b"chrdev", 0).len(),
            table.blocks(),
            "not written yet"
        );
        write(&path).unwrap();
        let having = |part: &str, missing| {
            let blocks = blocks_with(&table, part.as_bytes(), missing);
            let mut found = false;
            for block in &blocks {
                table
                    .scan_block(*block, |key, _| {
                        found |= key.starts_with(b"register_chrdev_region\0");
                        true
                    })
                    .unwrap();
            }
            (found, blocks.len())
        };
        let (found, blocks) = having("chrdev", 0);
        assert!(
            found && blocks < table.blocks() / 4,
            "{blocks} of {}",
            table.blocks()
        );
        assert!(having("registerchrdvregion", 3).0, "one letter is missing");
        fs::write(beside(&path), "damaged").unwrap();
        assert_eq!(blocks_with(&table, b"chrdev", 0).len(), table.blocks());
    }
}
