//! The lines that the hits of a page show: each file is opened once, and read no further than to
//! the last of them.
//!
//! A definition in the middle of a header of some megabytes needs neither the rest of it nor a list
//! of where all its lines begin, and a page often has many definitions of one file.

use std::fs::File;
use std::io::Read as _;

use crate::limits;
use crate::query::ranked::Source;
use crate::query::snippet::Lines;
use crate::tree::file::{Content, Reader, Skip, Stamp, stamp_of};

/// Bytes that are read together.
const CHUNK_BYTES: usize = 64 * 1024;
/// Files that are too large to be searched and are read for a page all the same.
const LARGE_FILES: usize = 2;

/// Lines of a file that a hit wants to show.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    /// Which of the sources it is of.
    pub(crate) source: usize,
    pub(crate) path: &'a str,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The lines as they are in the file; fewer where it ends before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    text: Vec<u8>,
    pub(crate) lines: u64,
}

impl Excerpt {
    fn of(text: &[u8]) -> Self {
        let ends = memchr::memchr_iter(b'\n', text).count() as u64;
        let open = !text.is_empty() && text.last() != Some(&b'\n');
        Self {
            text: text.to_vec(),
            lines: ends + u64::from(open),
        }
    }

    pub(crate) fn snippet(&self, max_bytes: usize) -> String {
        Lines::new(&self.text).snippet(1, self.lines, max_bytes)
    }
}

/// Reads what is wanted, in the order of `wanted`; nothing for a file that has gone or is no text.
pub(crate) fn read(sources: &[Source<'_>], wanted: &[Wanted<'_>]) -> Vec<Option<Excerpt>> {
    let mut found = vec![None; wanted.len()];
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let key = |at: &usize| {
        wanted
            .get(*at)
            .map(|one| (one.source, one.path, one.first, one.last))
    };
    order.sort_by_key(key);
    let same = |a: &usize, b: &usize| key(a).map(|a| (a.0, a.1)) == key(b).map(|b| (b.0, b.1));
    let mut files: Vec<&[usize]> = order.chunk_by(same).collect();
    // Of those that are too large, the first of the page are read.
    files.sort_by_key(|file| file.iter().min().copied());
    let mut large = 0;
    for file in files {
        let wants = file.iter().filter_map(|at| wanted.get(*at));
        let ranges: Vec<(u64, u64)> = wants.map(|one| (one.first, one.last)).collect();
        let Some(first) = file.first().and_then(|at| wanted.get(*at)) else {
            continue;
        };
        let Some(source) = sources.get(first.source) else {
            continue;
        };
        let excerpts = of_file(source, first.path, &ranges, &mut large);
        for (at, excerpt) in file.iter().zip(excerpts.into_iter().flatten()) {
            if let Some(place) = found.get_mut(*at) {
                *place = Some(excerpt);
            }
        }
    }
    found
}

fn of_file(
    source: &Source<'_>,
    path: &str,
    ranges: &[(u64, u64)],
    large: &mut usize,
) -> Option<Vec<Excerpt>> {
    if let Some((stamp, is_large)) = known(source, path) {
        *large += usize::from(is_large);
        if is_large && *large > LARGE_FILES {
            return None;
        }
        if let Some(excerpts) = of_known(&source.reader, path, stamp, ranges) {
            return Some(excerpts);
        }
    }
    let mut buffer = Vec::new();
    let (mut content, _) = source.reader.read(path, &mut buffer);
    if matches!(content, Content::Skipped(Skip::TooLarge)) && *large < LARGE_FILES {
        // Its definitions are known although it is too large to be searched.
        *large += 1;
        let reader = source.reader.up_to(limits::DEFINITION_FILE_BYTES);
        content = reader.read(path, &mut buffer).0;
    }
    if !matches!(content, Content::Text) {
        return None;
    }
    let lines = Lines::new(&buffer);
    let of = |(first, last): &(u64, u64)| {
        let text = buffer.get(lines.start(*first)..lines.start(last.saturating_add(1)));
        Excerpt::of(text.unwrap_or_default())
    };
    Some(ranges.iter().map(of).collect())
}

/// The version of a file that is known to be text, where a stamp proves it, and whether it is one
/// that is too large to be searched.
fn known(source: &Source<'_>, path: &str) -> Option<(Stamp, bool)> {
    let (number, doc) = source.view.generation.find(path)?;
    let segment = source.view.generation.segments.get(number)?;
    let is_large = match segment.docs.skip(doc) {
        None => false,
        // It has definitions, so it was read as text.
        Some(Skip::TooLarge) => true,
        Some(_) => return None,
    };
    let is_proof = source.view.is_live(number, doc) && !segment.is_racy(doc);
    is_proof.then(|| (segment.stamp(doc), is_large))
}

/// The lines of the version of a file that has this stamp; `ranges` ascend.
fn of_known(
    reader: &Reader<'_>,
    path: &str,
    stamp: Stamp,
    ranges: &[(u64, u64)],
) -> Option<Vec<Excerpt>> {
    let file = reader.open(path)?;
    let mut window = Window {
        file: &file,
        text: Vec::new(),
        first: 1,
        ends: 0,
        is_all: false,
    };
    let mut excerpts = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        excerpts.push(Excerpt::of(window.lines(*first, *last).ok()?));
    }
    (stamp_of(&file)? == stamp).then_some(excerpts)
}

/// A part of a file that moves on.
struct Window<'a> {
    file: &'a File,
    text: Vec<u8>,
    /// The line that its first byte is of. Only if no line before was asked for may that be in the
    /// middle of the line.
    first: u64,
    /// Line ends in it.
    ends: u64,
    is_all: bool,
}

impl Window<'_> {
    /// Some lines, of which the first is not before those that were asked for last.
    fn lines(&mut self, first: u64, last: u64) -> std::io::Result<&[u8]> {
        while !self.is_all && self.first + self.ends <= last {
            if self.first + self.ends < first {
                self.first += self.ends;
                self.ends = 0;
                self.text.clear();
            }
            let from = self.text.len();
            let read = self
                .file
                .take(CHUNK_BYTES as u64)
                .read_to_end(&mut self.text)?;
            self.is_all = read < CHUNK_BYTES;
            let chunk = self.text.get(from..).unwrap_or_default();
            self.ends += memchr::memchr_iter(b'\n', chunk).count() as u64;
        }
        let before = first.saturating_sub(self.first);
        let start = behind(&self.text, before);
        self.text.drain(..start);
        self.ends = self.ends.saturating_sub(before);
        self.first = first.max(self.first);
        let end = behind(
            &self.text,
            last.saturating_add(1).saturating_sub(self.first),
        );
        Ok(self.text.get(..end).unwrap_or_default())
    }
}

/// The place behind so many line ends; the end of the text if it has fewer.
fn behind(text: &[u8], lines: u64) -> usize {
    let Some(last) = lines.checked_sub(1) else {
        return 0;
    };
    memchr::memchr_iter(b'\n', text)
        .nth(usize::try_from(last).unwrap_or(usize::MAX))
        .map_or(text.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use mainstay_worker::testing::TempDir;

    use super::*;

    #[test]
    fn a_window_gives_the_lines_of_a_file_wherever_its_chunks_end() {
        let dir = TempDir::new().unwrap();
        for (at, length) in [1, 7, 63, 64, 65, 1000].into_iter().enumerate() {
            for closed in [true, false] {
                let lines: Vec<String> = (1..=9_000_u64)
                    .map(|number| format!("{number} {}", "x".repeat(number as usize % length)))
                    .collect();
                let text = lines.join("\n") + if closed { "\n" } else { "" };
                let path = dir.path().join(format!("f{at}{closed}"));
                File::create(&path)
                    .unwrap()
                    .write_all(text.as_bytes())
                    .unwrap();
                let file = File::open(&path).unwrap();
                let mut window = Window {
                    file: &file,
                    text: Vec::new(),
                    first: 1,
                    ends: 0,
                    is_all: false,
                };
                for (first, last) in [
                    (1, 1),
                    (1, 3),
                    (2, 2),
                    (2, 900),
                    (700, 710),
                    (710, 710),
                    (4000, 4400),
                    (8999, 9000),
                    (8999, 9100),
                    (9000, 9000),
                    (9001, 9002),
                ] {
                    let excerpt = Excerpt::of(window.lines(first, last).unwrap());
                    let from = (first - 1).min(9_000) as usize;
                    let wanted = &lines[from..(last as usize).clamp(from, 9_000)];
                    assert_eq!(excerpt.lines as usize, wanted.len(), "{first} to {last}");
                    let text = String::from_utf8(excerpt.text).unwrap();
                    assert_eq!(text.trim_end_matches('\n'), wanted.join("\n"));
                }
            }
        }
    }
}
