//! Joining segments: when there are many, or when much of one has gone.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use crate::build::Place;
use crate::limits;
use crate::store::StoreError;
use crate::store::docs;
use crate::store::lock::WriterLock;
use crate::store::manifest::{Manifest, SegmentEntry};
use crate::store::merge::{Shape, join_tables};
use crate::store::segment::Segment;
use crate::store::side::DocSet;
use crate::store::table::Table;
use crate::symbols::names;
use crate::tree::git_index::GitIndex;

/// Share of dead documents in percent, of a segment and of the whole index, past which they are
/// dropped. Until then a file that has its old text again needs no indexing.
pub(super) const DEAD_PERCENT: u64 = 30;

/// Joins segments if that is due; says whether it did.
pub(crate) fn compact(place: &Place, stop: &AtomicBool) -> Result<bool, StoreError> {
    let Some(manifest) = Manifest::read(&place.folder)? else {
        return Ok(false);
    };
    if choose(place, &manifest)?.is_empty() {
        return Ok(false);
    }
    let Some(_lock) = WriterLock::take(&place.folder)? else {
        return Ok(false);
    };
    let Some(mut manifest) = Manifest::read(&place.folder)? else {
        return Ok(false);
    };
    let chosen = choose(place, &manifest)?;
    if chosen.is_empty() {
        return Ok(false);
    }
    let joined = join(place, &manifest, &chosen, stop)?;
    manifest.next_segment += 1;
    manifest.generation += 1;
    manifest
        .segments
        .retain(|entry| !chosen.contains(&entry.id));
    manifest.segments.push(joined);
    manifest.publish(&place.folder)?;
    manifest.remove_strangers(&place.folder);
    Ok(true)
}

/// The segments to join: the small ones when there are many, and the largest with them only when
/// much of it has gone.
fn choose(place: &Place, manifest: &Manifest) -> Result<BTreeSet<u64>, StoreError> {
    let covered = manifest
        .segments
        .iter()
        .all(|entry| entry.symbols_to >= entry.docs);
    let mut chosen = BTreeSet::new();
    let largest = manifest
        .segments
        .iter()
        .max_by_key(|entry| entry.docs)
        .map(|entry| entry.id);
    let mut dead = 0;
    let all: u64 = manifest
        .segments
        .iter()
        .map(|entry| u64::from(entry.docs))
        .sum();
    for entry in manifest
        .segments
        .iter()
        .filter(|entry| entry.dead.is_some())
    {
        let gone = u64::from(Segment::open(&place.folder, entry)?.dead.len());
        if gone * 100 > u64::from(entry.docs) * DEAD_PERCENT && covered && entry.docs > 64 {
            chosen.insert(entry.id);
        }
        dead += gone;
    }
    if manifest.segments.len() > limits::SEGMENTS
        && (covered || manifest.segments.len() > limits::SEGMENTS * 4)
    {
        chosen.extend(
            manifest
                .segments
                .iter()
                .map(|entry| entry.id)
                .filter(|id| Some(*id) != largest),
        );
    } else if dead * 100 <= all * DEAD_PERCENT {
        chosen.clear();
    }
    Ok(chosen)
}

fn join(
    place: &Place,
    manifest: &Manifest,
    chosen: &BTreeSet<u64>,
    stop: &AtomicBool,
) -> Result<SegmentEntry, StoreError> {
    let entries: Vec<&SegmentEntry> = manifest
        .segments
        .iter()
        .filter(|entry| chosen.contains(&entry.id))
        .collect();
    let mut segments = Vec::new();
    let borrowed = entries.iter().any(|entry| entry.borrowed);
    let index = match borrowed {
        true => GitIndex::read(&place.root),
        false => GitIndex::default(),
    };
    for entry in &entries {
        let mut segment = Segment::open(&place.folder, entry)?;
        if entry.borrowed {
            segment.take_stamps(&index);
        }
        segments.push(segment);
    }
    // All living documents in the order of hits, and from there the new numbers.
    let mut order = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        order.extend(segment.live_docs().map(|doc| (number, doc)));
    }
    order.sort_by(|a, b| {
        let key = |at: &(usize, u32)| segments.get(at.0).map(|segment| segment.docs.key(at.1));
        key(a).cmp(&key(b))
    });
    let mut maps: Vec<Vec<Option<u32>>> = segments
        .iter()
        .map(|segment| vec![None; segment.docs.len() as usize])
        .collect();
    let mut part_maps: Vec<Vec<Option<u32>>> = segments
        .iter()
        .map(|segment| vec![None; segment.docs.parts() as usize])
        .collect();
    let mut parts = 0;
    let mut records = Vec::with_capacity(order.len());
    for (new, (number, doc)) in order.iter().enumerate() {
        let Some(segment) = segments.get(*number) else {
            continue;
        };
        if let Some(place) = maps
            .get_mut(*number)
            .and_then(|map| map.get_mut(*doc as usize))
        {
            *place = Some(new as u32);
        }
        if let Some(map) = part_maps.get_mut(*number) {
            for part in segment.docs.first_part(*doc)..segment.docs.first_part(doc + 1) {
                if let Some(place) = map.get_mut(part as usize) {
                    *place = Some(parts);
                }
                parts += 1;
            }
        }
        let mut record = segment.docs.doc(*doc);
        record.stamp = segment.stamp(*doc);
        record.racy = segment.is_racy(*doc);
        records.push(record);
    }
    let mut joined = SegmentEntry {
        id: manifest.next_segment,
        docs: records.len() as u32,
        borrowed,
        text_bytes: entries.iter().map(|entry| entry.text_bytes).sum(),
        ..SegmentEntry::default()
    };
    let file = |ending: &str| place.folder.join(format!("{}.{ending}", joined.name()));
    docs::write(&file("docs"), &records)?;
    for (ending, shape, maps) in [
        ("tri", Shape::Plain, &part_maps),
        ("term", Shape::WithByte, &maps),
    ] {
        let mut tables = Vec::new();
        for (entry, map) in entries.iter().zip(maps) {
            let path = place.folder.join(format!("{}.{ending}", entry.name()));
            tables.push((Table::open(&path)?, map.as_slice()));
        }
        join_tables(tables, shape, &file(ending), stop)?;
    }
    names::write(&file("term"))?;
    if entries.iter().all(|entry| entry.symbols_to >= entry.docs) {
        let mut tables = Vec::new();
        for (entry, map) in entries.iter().zip(&maps) {
            for name in &entry.symbols {
                tables.push((Table::open(&place.folder.join(name))?, map.as_slice()));
            }
        }
        let name = format!("{}.sym", joined.name());
        join_tables(tables, Shape::Symbol, &place.folder.join(&name), stop)?;
        names::write(&place.folder.join(&name))?;
        joined.symbols = vec![name];
        joined.symbols_to = joined.docs;
        let mut missed = DocSet::default();
        for (segment, map) in segments.iter().zip(&maps) {
            for doc in segment.live_missed() {
                if let Some(Some(new)) = map.get(doc as usize) {
                    missed.insert(*new);
                }
            }
        }
        if !missed.is_empty() {
            let name = format!("{}.missed", joined.name());
            missed.write(&place.folder.join(&name))?;
            joined.missed = Some(name);
        }
    }
    Ok(joined)
}
