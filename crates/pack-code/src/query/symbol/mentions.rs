//! The weight of a definition, by how often the files around it mention it.

use std::cmp::Reverse;

use super::{Failed, Match, Source, Wanted, round_score, take_u32, whole_term};

/// Equal names that are weighed against each other, and files that mention them.
const WEIGHED: usize = 50;
const MENTIONS: usize = 5_000;
/// Gain of the definition that is mentioned most.
const MENTIONED: f64 = 0.025;

/// Of definitions with one name those come first that more of the files around them mention: each
/// file that has the name counts for the definition that shares most of its folders.
pub(super) fn weigh(
    sources: &[Source<'_>],
    wanted: &Wanted<'_>,
    entries: &mut [Match<'_>],
) -> Result<(), Failed> {
    let mut named: Vec<&mut Match<'_>> =
        entries.iter_mut().filter(|entry| entry.is_named).collect();
    if !(2..=WEIGHED).contains(&named.len()) {
        return Ok(());
    }
    let term = whole_term(&wanted.name);
    let mut counts = vec![0_u64; named.len()];
    for (number, source) in sources.iter().enumerate() {
        let failed = |error| Failed::Store(number, error);
        for (at, segment) in source.view.generation.segments.iter().enumerate() {
            let Some(found) = segment.terms.get(&term).map_err(failed)? else {
                continue;
            };
            let list = segment.terms.list(&found).map_err(failed)?;
            let mut rest = list.as_slice();
            let mut doc = 0_u32;
            let mut nearest: Option<(&str, Option<usize>)> = None;
            for _ in 0..MENTIONS {
                let (Some(delta), Some((_, more))) = (take_u32(&mut rest), rest.split_first())
                else {
                    break;
                };
                rest = more;
                doc = doc.wrapping_add(delta);
                if !source.view.is_live(at, doc) {
                    continue;
                }
                let path = segment.docs.path(doc);
                if named
                    .iter()
                    .any(|entry| entry.source == number && entry.path == path)
                {
                    continue;
                }
                // Files of one folder follow each other and have the same neighbour.
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let closest = match nearest {
                    Some((known, at)) if known == folder => at,
                    _ => closest(&named, number, folder),
                };
                nearest = Some((folder, closest));
                if let Some(count) = closest.and_then(|at| counts.get_mut(at)) {
                    *count += 1;
                }
            }
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    for (entry, count) in named.iter_mut().zip(counts) {
        entry.score = round_score(entry.score + MENTIONED * (count as f64 / most).sqrt());
    }
    Ok(())
}

/// The definition that shares most of its folders with one, the first of several.
fn closest(named: &[&mut Match<'_>], source: usize, folder: &str) -> Option<usize> {
    let shared = |entry: &Match<'_>| {
        let both = entry.path.split('/').zip(folder.split('/'));
        both.take_while(|(a, b)| a == b).count()
    };
    let near = named.iter().enumerate();
    let near = near.filter(|(_, entry)| entry.source == source);
    let closest = near.max_by_key(|(at, entry)| (shared(entry), Reverse(*at)));
    closest.map(|(at, _)| at)
}
