//! The anchor: the head of the chain, in a file of its own.
//!
//! The file has two slots of one line each, which are written in turn, so that one of them is whole at any time. The
//! slot with the higher number counts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use mainstay_contract::audit::Head;
use serde::{Deserialize, Serialize};

/// Bytes of a slot, with its line end.
const SLOT: usize = 128;

#[derive(Serialize, Deserialize)]
struct Slot {
    seq: u64,
    hash: String,
}

/// The head that an anchor holds. `None` if it holds none yet.
pub fn read(path: &Path) -> io::Result<Option<Head>> {
    read_from(&File::open(path)?)
}

pub(super) fn read_from(file: &File) -> io::Result<Option<Head>> {
    let mut bytes = [0; SLOT * 2];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    let written = bytes.get(..filled).unwrap_or_default();
    let heads = written.chunks(SLOT).filter_map(|slot| {
        let slot: Slot = serde_json::from_slice(slot.trim_ascii()).ok()?;
        Head::parse(slot.seq, &slot.hash)
    });
    let newest = heads.max_by_key(|head| head.seq);
    if newest.is_none() && filled > 0 {
        return Err(io::Error::other(
            "the file is not an anchor of an audit file",
        ));
    }
    Ok(newest)
}

/// Replaces the older slot, durably.
pub(super) fn write(file: &File, head: &Head) -> io::Result<()> {
    let slot = Slot {
        seq: head.seq,
        hash: head.hex(),
    };
    let mut line = serde_json::to_vec(&slot)?;
    line.resize(SLOT - 1, b' ');
    line.push(b'\n');
    file.write_all_at(&line, (head.seq % 2) * SLOT as u64)?;
    file.sync_data()
}
