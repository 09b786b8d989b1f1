//! Ranked search: which files answer a question, best first.
//!
//! Three steps. The first scores every file by BM25 over the terms of the query, with the fields of
//! a term (text, definitions, file name, folders) weighed together. The second reads the best of
//! them and looks closer: how much of the query is close together, and whether the file defines
//! the name that the query has. The third, for queries of several words, compares passages, paths
//! and the names of definitions with the query. No step knows a particular repository.

use std::collections::BTreeMap;
use std::path::Path;

use mainstay_worker::{CancelToken, Problem};
use serde_json::json;

use crate::limits;
use crate::query::close::{Closer, Look};
use crate::query::cursor::{Listing, RankedCursor, mark, outdated};
use crate::query::filter::Filter;
use crate::query::passage::{Passage, Shown, passages};
use crate::query::similar::{Alike, FileTokens, Similar};
use crate::query::snippet::Lines;
use crate::query::weights;
use crate::query::words::{QueryTerms, Term};
use crate::query::{Confidence, Found, Hit, Relation, Total, round_score};
use crate::store::StoreError;
use crate::store::chunk::Fields;
use crate::store::codec::take_u32;
use crate::text::defs::Kind;
use crate::tree::class::{Class, classify};
use crate::tree::file::{Content, Reader};
use crate::tree::lang::Lang;
use crate::view::View;

/// One repository to search.
pub(crate) struct Source<'a> {
    pub(crate) repo: usize,
    pub(crate) name: &'a str,
    pub(crate) view: &'a View,
    pub(crate) reader: Reader<'a>,
    pub(crate) root: &'a Path,
}

/// One ranked query.
#[derive(Debug)]
pub(crate) struct Ranked<'a> {
    pub(crate) text: &'a str,
    pub(crate) filter: &'a Filter,
    pub(crate) context: u64,
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
    pub(crate) listing: Listing,
    pub(crate) after: Option<RankedCursor>,
    pub(crate) explain: bool,
    /// Files that have the query verbatim, by repository and path, and the line: they come first.
    pub(crate) verbatim: &'a [(usize, String, u64)],
    /// The words of the query, where a file that has them as written is shown there.
    pub(crate) quoted: Option<&'a str>,
    /// Whether vectors are compared, or only words.
    pub(crate) vectors: bool,
}

/// What a closer look at a file gave.
#[derive(Default)]
struct Closely {
    look: Look,
    tokens: Option<FileTokens>,
    /// How alike the file and the query are, and what that adds to the score.
    alike: Option<(Alike, f64)>,
    /// The score before the third step, between 0 and 1.
    lexical: f64,
}

/// A file with its score.
#[derive(Clone, Debug)]
struct Scored {
    source: usize,
    path: String,
    score: f64,
    /// Terms that it has, one bit each.
    mask: u64,
    class: Class,
}

/// A file of the first step, before its path is looked at.
#[derive(Clone, Copy, Debug)]
struct Rough {
    source: usize,
    place: Place,
    score: f64,
    mask: u64,
}

/// Where a file of the first step stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A document of a segment.
    Indexed(usize, u32),
    /// One of the changed files.
    Changed(usize),
}

/// Files that go into the second step, for pages near the beginning.
const WINDOW: usize = 400;
const NEAR_PAGES: usize = 100;

/// What the penalty of a class is.
const fn class_factor(class: Class) -> f64 {
    match class {
        Class::Code => 1.0,
        Class::Example => 0.5,
        Class::Docs => 0.45,
        Class::Test => 0.4,
        Class::Vendored => 0.5,
        Class::Generated => 0.25,
    }
}

/// What a path says beside its class: declarations stand behind what they declare, and what is kept
/// for old callers behind its successor.
fn path_factor(path: &str) -> f64 {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let header = [".h", ".d.ts", ".pyi", ".hh"]
        .iter()
        .any(|end| name.ends_with(end));
    let stem = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let old = |word: &str| {
        matches!(
            word,
            "deprecated" | "legacy" | "compat" | "compatibility" | "obsolete" | "old"
        )
    };
    let legacy = folders
        .split('/')
        .any(|folder| old(&folder.to_ascii_lowercase()))
        || stem.split(['_', '-']).any(old);
    (if header { weights::HEADER } else { 1.0 }) * (if legacy { weights::LEGACY } else { 1.0 })
}

/// Errors of a ranked search.
#[derive(Debug)]
pub(crate) enum Failed {
    Store(usize, StoreError),
    Problem(Problem),
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Runs the query.
pub(crate) fn search(
    sources: &[Source<'_>],
    query: &Ranked<'_>,
    cancel: &CancelToken,
) -> Result<Found, Failed> {
    let mut terms = QueryTerms::of(query.text);
    weigh(sources, &mut terms)?;
    let mut rough = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        cancel.check()?;
        score(source, number, &terms, query.filter, &mut rough)
            .map_err(|error| Failed::Store(number, error))?;
    }
    let offset = query.after.map_or(0, |after| {
        usize::try_from(after.counted).unwrap_or(usize::MAX)
    });
    let mut scored = match query.filter.modified_since {
        None => best(sources, &mut rough, offset.saturating_add(query.limit)),
        Some(_) => finish(sources, &rough),
    };
    scored.retain(|file| {
        let source = sources.get(file.source);
        source.is_some_and(|source| query.filter.admits_time_of(&source.reader, &file.path))
    });
    let total = match query.filter.modified_since {
        None => rough.len(),
        Some(_) => scored.len(),
    };
    order(&mut scored, sources);
    cancel.check()?;
    let mut looks = BTreeMap::new();
    let mut similar = Similar::new(query.text, &terms, query.vectors);
    let mut closer = Closer::new(&terms);
    look_closer(
        sources,
        &terms,
        &mut closer,
        &mut similar,
        &mut scored,
        &mut looks,
        cancel,
    )?;
    put_first(sources, query.verbatim, &mut scored);
    let (given, rest) = scored.split_at_checked(offset).ok_or_else(outdated)?;
    let given_before = marks(sources, given);
    let same = |after: RankedCursor| {
        let begun = begun_mark(sources, rest.first(), after.passages);
        after.given == given_before.wrapping_add(begun)
    };
    if !query.after.is_none_or(same) {
        return Err(outdated().into());
    }
    let most = passages_per_file(total);
    let (mut found, end, ends) = page(
        sources,
        query,
        &mut closer,
        &mut similar,
        rest,
        &mut looks,
        most,
    );
    let cursor_after = |end: End| {
        let given = marks(sources, rest.get(..end.files).unwrap_or(rest));
        let cursor = RankedCursor {
            listing: query.listing,
            counted: (offset + end.files) as u64,
            passages: end.passages as u64,
            given: given_before.wrapping_add(given).wrapping_add(begun_mark(
                sources,
                rest.get(end.files),
                end.passages as u64,
            )),
        };
        cursor.encode()
    };
    for (hit, end) in found.hits.iter_mut().zip(ends) {
        hit.after = cursor_after(end);
    }
    found.divisible = true;
    found.confidence = Confidence::Ranked;
    found.absent = terms
        .doubtful_names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    found.total = Total {
        value: total as u64,
        relation: Relation::Exact,
    };
    if found.truncated {
        found.cursor = Some(cursor_after(end));
    }
    Ok(found)
}

/// The files that a page up to `to` needs, which are all unless the best are known to be enough.
fn best(sources: &[Source<'_>], rough: &mut [Rough], to: usize) -> Vec<Scored> {
    if to > NEAR_PAGES || rough.len() <= WINDOW {
        return finish(sources, rough);
    }
    rough.select_nth_unstable_by(WINDOW, |a, b| b.score.total_cmp(&a.score));
    let edge = rough.get(WINDOW).map_or(0.0, |file| file.score);
    let window: Vec<Rough> = rough
        .iter()
        .filter(|file| file.score >= edge)
        .copied()
        .collect();
    let scored = finish(sources, &window);
    // A path can only lower a score: what is still above the edge is above all that was left out.
    let sure = scored
        .iter()
        .filter(|file| round_score(file.score) > round_score(edge))
        .count();
    match sure >= to.max(limits::COMPARED_FILES) {
        true => scored,
        false => finish(sources, rough),
    }
}

/// Files with their paths, and with what these say about them.
fn finish(sources: &[Source<'_>], rough: &[Rough]) -> Vec<Scored> {
    rough.iter().map(|file| file.finish(sources)).collect()
}

/// What stands for these files together.
fn marks(sources: &[Source<'_>], files: &[Scored]) -> u64 {
    files.iter().fold(0, |sum, file| {
        let repo = sources.get(file.source).map_or(0, |source| source.repo);
        sum.wrapping_add(mark(repo, &file.path))
    })
}

/// Marks the file of which only the first passages were given; 0 if there is no such file.
fn begun_mark(sources: &[Source<'_>], file: Option<&Scored>, passages: u64) -> u64 {
    match file {
        Some(file) if passages > 0 => marks(sources, std::slice::from_ref(file)).rotate_left(1),
        _ => 0,
    }
}

/// Best first; the path decides between equals.
fn order(scored: &mut [Scored], sources: &[Source<'_>]) {
    let repo = |file: &Scored| sources.get(file.source).map_or(0, |source| source.repo);
    scored.sort_by(|a, b| {
        let by_score = round_score(b.score).total_cmp(&round_score(a.score));
        by_score.then_with(|| (&a.path, repo(a)).cmp(&(&b.path, repo(b))))
    });
}

/// Gives each term its weight from how rare it is over all sources.
fn weigh(sources: &[Source<'_>], terms: &mut QueryTerms) -> Result<(), Failed> {
    let mut docs = 0_u64;
    for source in sources {
        docs += source
            .view
            .generation
            .segments
            .iter()
            .map(|segment| u64::from(segment.docs.len()))
            .sum::<u64>();
        docs += source.view.overlay.len() as u64;
    }
    for term in &mut terms.terms {
        let mut having = 0_u64;
        for (number, source) in sources.iter().enumerate() {
            for segment in &source.view.generation.segments {
                let found = segment
                    .terms
                    .get(&term.bytes)
                    .map_err(|error| Failed::Store(number, error))?;
                having += found.map_or(0, |found| u64::from(found.count));
            }
            for (_, path, live) in source.view.changed() {
                having += u64::from(
                    live.terms(path, &source.reader)
                        .0
                        .contains_key(term.bytes.as_slice()),
                );
            }
        }
        let (docs, having) = (docs.max(1) as f64, having as f64);
        term.idf = (1.0 + (docs - having + 0.5).max(0.5) / (having + 0.5)).ln();
        term.found = having > 0.0;
    }
    Ok(())
}

/// The first step, over the segments and the changed files of a repository.
fn score(
    source: &Source<'_>,
    number: usize,
    terms: &QueryTerms,
    filter: &Filter,
    rough: &mut Vec<Rough>,
) -> Result<(), StoreError> {
    let view = source.view;
    let average = average_length(view);
    for (at, segment) in view.generation.segments.iter().enumerate() {
        let length = segment.docs.len() as usize;
        let mut sums = vec![0.0_f64; length];
        let mut masks = vec![0_u64; length];
        for (bit, term) in terms.terms.iter().enumerate() {
            let Some(found) = segment.terms.get(&term.bytes)? else {
                continue;
            };
            let list = segment.terms.list(&found)?;
            let mut rest = list.as_slice();
            let mut doc = 0_u32;
            while let Some(delta) = take_u32(&mut rest) {
                doc = doc.wrapping_add(delta);
                let Some((fields, more)) = rest.split_first() else {
                    break;
                };
                rest = more;
                if let (Some(sum), Some(mask)) =
                    (sums.get_mut(doc as usize), masks.get_mut(doc as usize))
                {
                    *sum += contribution(
                        term,
                        Fields::unpack(*fields),
                        segment.docs.tokens_of(doc),
                        average,
                    );
                    *mask |= 1 << bit;
                }
            }
        }
        for (doc, (sum, mask)) in (0_u32..).zip(sums.into_iter().zip(masks)) {
            if mask == 0 || !view.is_live(at, doc) {
                continue;
            }
            if filter.is_open() || filter.admits(segment.docs.path(doc), segment.docs.lang(doc)) {
                let class = Class::from_number(segment.docs.class_number(doc));
                rough.push(Rough {
                    source: number,
                    place: Place::Indexed(at, doc),
                    score: sum * class_factor(class),
                    mask,
                });
            }
        }
    }
    for (at, (_, path, live)) in view.changed().into_iter().enumerate() {
        let lang = Lang::of_path(path);
        if live.skip.is_some() || !filter.admits(path, lang) {
            continue;
        }
        let (has, tokens) = live.terms(path, &source.reader);
        let (mut sum, mut mask) = (0.0, 0);
        for (bit, term) in terms.terms.iter().enumerate() {
            if let Some(fields) = has.get(term.bytes.as_slice()) {
                sum += contribution(term, *fields, *tokens, average);
                mask |= 1 << bit;
            }
        }
        if mask != 0 {
            rough.push(Rough {
                source: number,
                place: Place::Changed(at),
                score: sum * class_factor(classify(path)),
                mask,
            });
        }
    }
    Ok(())
}

fn average_length(view: &View) -> f64 {
    let (mut docs, mut tokens) = (0_u64, 0_u64);
    for segment in &view.generation.segments {
        docs += u64::from(segment.docs.len());
        tokens += segment.docs.tokens();
    }
    (tokens as f64 / docs.max(1) as f64).max(1.0)
}

fn contribution(term: &Term, fields: Fields, tokens: u32, average: f64) -> f64 {
    let norm = 1.0 - weights::B + weights::B * f64::from(tokens) / average;
    let frequency = f64::from(fields.count) / norm
        + weights::DEFINITION * f64::from(fields.defs).sqrt()
        + weights::FILE_NAME * f64::from(u8::from(fields.name))
        + weights::FOLDER * f64::from(u8::from(fields.folder));
    term.weight * term.idf * frequency * (weights::K1 + 1.0) / (weights::K1 + frequency)
}

impl Rough {
    /// The file with its path, and with what the path says about it.
    fn finish(&self, sources: &[Source<'_>]) -> Scored {
        let view = sources.get(self.source).map(|source| source.view);
        let path = view.and_then(|view| match self.place {
            Place::Indexed(segment, doc) => {
                let segment = view.generation.segments.get(segment)?;
                Some(segment.docs.path(doc).to_owned())
            }
            Place::Changed(at) => Some(view.changed().get(at)?.1.to_owned()),
        });
        let path = path.unwrap_or_default();
        Scored {
            source: self.source,
            score: self.score * path_factor(&path),
            mask: self.mask,
            class: classify(&path),
            path,
        }
    }
}

/// Files that have the query verbatim go before all others.
fn put_first(sources: &[Source<'_>], verbatim: &[(usize, String, u64)], scored: &mut Vec<Scored>) {
    let best = scored.first().map_or(1.0, |file| file.score);
    for (repo, path, _) in verbatim {
        let Some(source) = sources.iter().position(|source| source.repo == *repo) else {
            continue;
        };
        let known = |file: &&mut Scored| file.source == source && file.path == *path;
        match scored.iter_mut().find(known) {
            Some(file) => file.score += best + 1.0,
            None => scored.push(Scored {
                source,
                path: path.clone(),
                score: best + 1.0,
                mask: 0,
                class: classify(path),
            }),
        }
    }
    if !verbatim.is_empty() {
        order(scored, sources);
    }
}

/// Passages to show of each file: several where few files answer.
const fn passages_per_file(total: usize) -> usize {
    if total <= 2 { limits::FILE_PASSAGES } else { 1 }
}

/// The second and third step: the best files are read, and their order is made anew.
fn look_closer(
    sources: &[Source<'_>],
    terms: &QueryTerms,
    closer: &mut Closer<'_>,
    similar: &mut Similar,
    scored: &mut [Scored],
    looks: &mut BTreeMap<(usize, String), Closely>,
    cancel: &CancelToken,
) -> Result<(), Problem> {
    // A single word says too little for the third step.
    let compares = terms.words.len() > 1;
    let head = match compares {
        true => limits::COMPARED_FILES,
        false => limits::RERANK_FILES,
    };
    let Some((best, _)) = scored.split_at_mut_checked(head.min(scored.len())) else {
        return Ok(());
    };
    let top = best
        .first()
        .map_or(1.0, |file| file.score)
        .max(f64::MIN_POSITIVE);
    let least = best.last().map_or(0.0, |file| file.score);
    let mut buffer = Vec::new();
    let mut read = Vec::new();
    for (at, file) in best.iter_mut().enumerate() {
        cancel.check()?;
        let Some(source) = sources.get(file.source) else {
            continue;
        };
        if !matches!(source.reader.read(&file.path, &mut buffer).0, Content::Text) {
            continue;
        }
        let look = closer.look(&file.path, &buffer);
        let lexical = look.score(file.score / top)
            * class_factor(file.class).powf(weights::SECOND_STEP)
            * path_factor(&file.path).powf(weights::SECOND_STEP);
        // Everything below the head stays below it.
        file.score = least + top * lexical;
        let tokens = compares.then(|| similar.read(&file.path, &buffer));
        read.push((at, look, tokens, lexical));
    }
    let (mut alikes, mut parts) = (Vec::new(), Vec::new());
    if compares {
        let files: Vec<&FileTokens> = read.iter().filter_map(|file| file.2.as_ref()).collect();
        similar.learn(&files);
        alikes = files.iter().map(|file| similar.compare(file)).collect();
        let values: Vec<f64> = read
            .iter()
            .zip(&alikes)
            .map(|((at, ..), alike)| {
                let class = best.get(*at).map_or(Class::Code, |file| file.class);
                alike.value() * background(class)
            })
            .collect();
        let (low, high) = values
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), value| {
                (low.min(*value), high.max(*value))
            });
        let lexical = read
            .iter()
            .map(|file| file.3)
            .fold(f64::MIN_POSITIVE, f64::max);
        let weight = match similar.has_vectors() {
            true => weights::ALIKE,
            false => weights::ALIKE_WORDS,
        };
        for ((at, _, _, own), value) in read.iter().zip(values) {
            let value = (value - low) / (high - low).max(f64::MIN_POSITIVE);
            let part = value * weight;
            parts.push(part);
            if let Some(file) = best.get_mut(*at) {
                file.score = least + top * ((own / lexical).max(0.0).sqrt() + part);
            }
        }
    }
    let mut alikes = alikes.into_iter().zip(parts);
    for (at, look, tokens, lexical) in read {
        let alike = if tokens.is_some() {
            alikes.next()
        } else {
            None
        };
        if let Some(file) = best.get(at) {
            let closely = Closely {
                look,
                tokens,
                alike,
                lexical,
            };
            looks.insert((file.source, file.path.clone()), closely);
        }
    }
    order(best, sources);
    Ok(())
}

/// What files keep of their likeness that are about the code and not the code itself.
const fn background(class: Class) -> f64 {
    match class {
        Class::Code => 1.0,
        _ => weights::BACKGROUND,
    }
}

impl Alike {
    /// All of it together.
    fn value(&self) -> f64 {
        weights::ALIKE_PASSAGE * self.passage
            + weights::ALIKE_SPREAD * self.spread
            + weights::ALIKE_PATH * self.path
            + weights::ALIKE_STEM * self.stem
            + weights::ALIKE_DEFINITION * self.definition
            + weights::ALIKE_DEFINITIONS * self.definitions
    }
}

/// Where a listing continues: after this many files, and this many passages of the next one.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    files: usize,
    passages: usize,
}

/// The hits of a page, where the page ends, and where each of its hits ends.
fn page(
    sources: &[Source<'_>],
    query: &Ranked<'_>,
    closer: &mut Closer<'_>,
    similar: &mut Similar,
    scored: &[Scored],
    looks: &mut BTreeMap<(usize, String), Closely>,
    most: usize,
) -> (Found, End, Vec<End>) {
    let mut found = Found::default();
    let mut end = End::default();
    let mut ends = Vec::new();
    let mut bytes = 0;
    let mut buffer = Vec::new();
    // The page before may have given the first passages of the first file.
    let mut begun = query.after.map_or(0, |after| {
        usize::try_from(after.passages).unwrap_or(usize::MAX)
    });
    'files: for file in scored {
        if found.hits.len() >= query.limit || bytes >= query.max_bytes {
            found.truncated = true;
            break;
        }
        let files = end.files;
        end = End {
            files: files + 1,
            passages: 0,
        };
        let begun = std::mem::take(&mut begun);
        let Some(source) = sources.get(file.source) else {
            continue;
        };
        if !matches!(source.reader.read(&file.path, &mut buffer).0, Content::Text) {
            continue;
        }
        let closely = looks
            .remove(&(file.source, file.path.clone()))
            .unwrap_or_else(|| Closely {
                look: closer.look(&file.path, &buffer),
                ..Closely::default()
            });
        let lines = Lines::new(&buffer);
        let around = |line: u64| Passage {
            first: line.saturating_sub(2).max(1),
            last: (line + 2).min(lines.count()),
            symbol: None,
        };
        let verbatim = query
            .verbatim
            .iter()
            .filter(|(repo, path, _)| *repo == source.repo && *path == file.path);
        let mut shown: Vec<Passage> = verbatim.map(|(_, _, line)| around(*line)).collect();
        if let (true, Some(text)) = (shown.is_empty(), query.quoted) {
            let at = memchr::memmem::find(&buffer, text.as_bytes());
            shown.extend(at.map(|at| around(lines.number_at(at))));
        }
        if shown.is_empty() {
            let file = Shown {
                path: &file.path,
                lines: &lines,
                look: &closely.look,
                tokens: closely.tokens.as_ref(),
                alike: closely.alike.as_ref().map(|(alike, _)| alike),
            };
            shown = passages(similar, closer, &file, most);
        }
        let count = shown.len();
        for (at, passage) in shown.into_iter().enumerate().skip(begun) {
            if found.hits.len() >= query.limit || bytes >= query.max_bytes {
                end = End {
                    files,
                    passages: at,
                };
                found.truncated = true;
                break 'files;
            }
            ends.push(match at + 1 == count {
                true => end,
                false => End {
                    files,
                    passages: at + 1,
                },
            });
            let start = passage.first.saturating_sub(query.context).max(1);
            let last = (passage.last + query.context).min(lines.count()).max(start);
            let snippet = lines.snippet(start, last, query.max_bytes.saturating_sub(bytes));
            bytes += snippet.len();
            let match_lines = closely.look.match_lines();
            // The symbol layer knows better than the look of a line.
            let known = passage.symbol.as_ref();
            let known =
                known.and_then(|(name, _, line)| source.view.symbol_at(&file.path, name, *line));
            let (kind, owner) = match known {
                Some((kind, owner)) => (Some(kind), Some(owner)),
                None => (passage.symbol.as_ref().map(|(_, kind, _)| *kind), None),
            };
            found.hits.push(Hit {
                after: String::new(),
                repo: source.name.to_owned(),
                path: file.path.clone(),
                start_line: start,
                end_line: last,
                symbol: passage.symbol.map(|(name, _, _)| name),
                owner: owner.filter(|owner| !owner.is_empty()).map(String::from),
                kind: kind.map(Kind::name),
                lang: Lang::of_path(&file.path).name(),
                score: round_score(file.score),
                snippet,
                match_lines: match_lines
                    .filter(|line| (start..=last).contains(line))
                    .collect(),
                why: query
                    .explain
                    .then(|| explain(closer.query(), file, &closely, similar.has_vectors())),
            });
        }
    }
    (found, end, ends)
}

fn explain(
    terms: &QueryTerms,
    file: &Scored,
    closely: &Closely,
    vectors: bool,
) -> serde_json::Value {
    let words: Vec<serde_json::Value> = terms
        .terms
        .iter()
        .enumerate()
        .filter(|(bit, _)| file.mask >> bit & 1 == 1)
        .map(|(_, term)| {
            json!({"term": String::from_utf8_lossy(&term.bytes), "weight": round_score(term.weight), "idf": round_score(term.idf)})
        })
        .collect();
    let mut why = json!({
        "terms": words,
        "class": file.class.name(),
        "penalty": class_factor(file.class),
        "boosts": closely.look.boosts(),
        "lexical": round_score(closely.lexical),
    });
    if let (Some((alike, part)), Some(why)) = (closely.alike, why.as_object_mut()) {
        let alike = json!({
            "by": if vectors { "vectors" } else { "words" }, "adds": round_score(part),
            "passage": round_score(alike.passage), "spread": round_score(alike.spread),
            "path": round_score(alike.path), "stem": round_score(alike.stem),
            "definition": round_score(alike.definition), "definitions": round_score(alike.definitions),
        });
        why.insert("alike".to_owned(), alike);
    }
    why
}
