//! Which blocks of a table of names may have a name with some letters inside.
//!
//! Beside a table of symbols, and of terms, lies a file with one row of bits for each of
//! [`ROWS`] classes of trigrams: the blocks of keys that have a trigram of the class. A search for a
//! part of a name reads the rows of its trigrams and then only the blocks that are in all of them.
//! The file is a help and nothing else: without it, or with a damaged one, every block is read. A
//! small table has none.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::store::codec::{seal, unseal};
use crate::store::table::Table;
use crate::store::{StoreError, create};

/// Classes of trigrams.
const ROWS: usize = 2048;
const MAGIC: &[u8; 8] = b"mstnam02";
const SUM_BYTES: usize = 4;
/// Blocks of a table below which all of them are read.
const FEW_BLOCKS: usize = 128;
/// What the name of the file ends with, behind that of its table.
pub(crate) const ENDING: &str = ".names";

/// The file beside a table.
fn beside(table: &Path) -> PathBuf {
    let mut name = table.as_os_str().to_owned();
    name.push(ENDING);
    PathBuf::from(name)
}

/// The row of a trigram.
fn row_of(trigram: &[u8]) -> usize {
    let hash = trigram.iter().fold(0_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193) ^ hash >> 15
    });
    (hash >> 7) as usize % ROWS
}

/// Words of 64 blocks in a row.
const fn row_words(blocks: usize) -> usize {
    blocks.div_ceil(64)
}

/// Writes the rows of a table that has just been written.
pub(crate) fn write(table: &Path) -> Result<(), StoreError> {
    let opened = Table::open(table)?;
    if opened.blocks() < FEW_BLOCKS {
        return Ok(());
    }
    let words = row_words(opened.blocks());
    let mut rows = vec![0_u64; words * ROWS];
    let mut plain = Vec::new();
    for block in 0..opened.blocks() {
        let mut add = |name: &[u8]| {
            for trigram in name.windows(3) {
                if let Some(word) = rows.get_mut(row_of(trigram) * words + block / 64) {
                    *word |= 1 << (block % 64);
                }
            }
        };
        opened.scan_block(block, |key, _| {
            let lower = key.split(|byte| *byte == 0).next().unwrap_or(key);
            add(lower);
            if lower.contains(&b'_') {
                // A misspelt name is looked for without them.
                plain.clear();
                plain.extend(lower.iter().filter(|byte| **byte != b'_'));
                add(&plain);
            }
            true
        })?;
    }
    let mut out = Vec::with_capacity(MAGIC.len() + ROWS * (words * 8 + SUM_BYTES));
    out.extend_from_slice(MAGIC);
    for number in 0..ROWS {
        let row = rows.get(number * words..(number + 1) * words);
        let mut sealed: Vec<u8> = row
            .unwrap_or_default()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        seal(&mut sealed);
        out.append(&mut sealed);
    }
    let path = beside(table);
    create(&path)?
        .write_all(&out)
        .map_err(|error| StoreError::io(path, error))
}

/// The rows of some trigrams, each once.
fn read_rows<'a>(table: &Table, trigrams: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Vec<u64>>> {
    let file = File::open(beside(table.path())).ok()?;
    let length = row_words(table.blocks()) * 8 + SUM_BYTES;
    let whole = (MAGIC.len() + ROWS * length) as u64;
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0).ok()?;
    if magic != *MAGIC || file.metadata().ok()?.len() != whole {
        return None;
    }
    let mut numbers: Vec<usize> = trigrams.map(row_of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut bytes = vec![0; length];
    let mut read = |number: usize| {
        let at = MAGIC.len() + number * length;
        file.read_exact_at(&mut bytes, at as u64).ok()?;
        let (words, _) = unseal(&bytes)?.as_chunks::<8>();
        Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    };
    numbers.into_iter().map(&mut read).collect()
}

/// The blocks of a table that may have a name with these trigrams, but for `missing` of them;
/// `None` where that is not known.
pub(crate) fn known_blocks_with<'a>(
    table: &Table,
    trigrams: impl Iterator<Item = &'a [u8]>,
    missing: usize,
) -> Option<Vec<usize>> {
    if table.blocks() < FEW_BLOCKS {
        return Some((0..table.blocks()).collect());
    }
    let rows = read_rows(table, trigrams)?;
    // Bits of the blocks that lack at most 0, 1, 2 ... trigrams.
    let all = vec![!0_u64; row_words(table.blocks())];
    let mut lacking = vec![all; missing.min(rows.len()) + 1];
    for row in &rows {
        for at in 0..row.len() {
            let mut fewer = 0;
            for bits in &mut lacking {
                let (Some(word), Some(has)) = (bits.get_mut(at), row.get(at)) else {
                    continue;
                };
                // A block lacks at most n if it lacked so many before and has this one, or fewer.
                let before = *word;
                *word = before & has | fewer;
                fewer = before;
            }
        }
    }
    let words = lacking.pop()?;
    let mut blocks = Vec::new();
    for (at, word) in words.into_iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            let block = at * 64 + rest.trailing_zeros() as usize;
            if block < table.blocks() {
                blocks.push(block);
            }
            rest &= rest - 1;
        }
    }
    Some(blocks)
}

/// The blocks of a table that may have a name with this part, but for `missing` trigrams of it; all
/// of them where that is not known.
pub(crate) fn blocks_with(table: &Table, part: &[u8], missing: usize) -> Vec<usize> {
    known_blocks_with(table, part.windows(3), missing)
        .unwrap_or_else(|| (0..table.blocks()).collect())
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
        let mut names: Vec<String> = (0..20_000_u32)
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
        assert!(known_blocks_with(&table, b"chrdev".windows(3), 0).is_some());
        let (found, blocks) = having("chrdev", 0);
        assert!(
            found && blocks < table.blocks() / 4,
            "{blocks} of {}",
            table.blocks()
        );
        assert!(having("registerchrdvregion", 3).0, "one letter is missing");
        let sound = std::fs::read(beside(&path)).unwrap();
        let mut flipped = sound.clone();
        flipped
            .iter_mut()
            .skip(MAGIC.len())
            .for_each(|byte| *byte ^= 1);
        for damaged in [b"damaged".to_vec(), flipped, sound[1..].to_vec()] {
            std::fs::write(beside(&path), damaged).unwrap();
            assert_eq!(known_blocks_with(&table, b"chrdev".windows(3), 0), None);
        }
    }
}
