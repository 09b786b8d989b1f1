//! Symbol search: where something is defined, by its name.
//!
//! Names come from the symbol layer; for files that it does not cover yet, and for changed ones,
//! the definitions are found in the text itself: first in the files of which the index knows that
//! they define the name by the look of a line, then, as long as there is time, in all that have it.
//!
//! A qualified name (`a::b`, `A.b`) prefers definitions whose owner or module is called as the part
//! before the name. Equal names are ordered by importance: code before tests, types before
//! constants, and what more files of its surroundings mention.
//!
//! Looser fits always count beside exact ones, so what there is does not depend on how much of it
//! is asked for: names that begin with the wanted one, from two bytes on, and names that have it
//! inside, from three.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grep_matcher::Matcher as _;
use mainstay_worker::CancelToken;
use serde_json::json;

use crate::limits;
use crate::query::auto::qualified;
use crate::query::candidates::Candidates;
use crate::query::cursor::{HitCursor, HitKey, Listing, whole_score};
use crate::query::filter::Filter;
use crate::query::pattern::{Case, Pattern};
use crate::query::plan::Plan;
use crate::query::ranked::{Failed, Source};
use crate::query::snippet::Lines;
use crate::query::{Found, Hit, Relation, Total, resume, round_score};
use crate::store::StoreError;
use crate::store::chunk::Fields;
use crate::store::codec::take_u32;
use crate::store::segment::Segment;
use crate::store::table::{Found as List, Scanned, Table};
use crate::symbols::layer::{key, postings};
use crate::symbols::names::blocks_with;
use crate::symbols::{extract, guess_named};
use crate::text::defs::Kind;
use crate::text::words::terms;
use crate::tree::class::classify;
use crate::tree::file::{Content, Skip};
use crate::tree::lang::Lang;

/// Files that are read because the layer does not cover them.
const UNCOVERED_FILES: usize = 400;
/// Time that their parsing may take; after it definitions are known by the look of their lines.
const PARSED_TIME: Duration = Duration::from_millis(15);
/// Largest of them that is parsed.
const PARSED_BYTES: usize = 64 * 1024;
/// Time that those may take that have the name, but not in a line that looks like its definition.
const UNCOVERED_TIME: Duration = Duration::from_millis(100);
/// Names that a search by a part of them looks through.
const LOOSE_NAMES: usize = 4_000_000;
/// Definitions that are put in order.
const MOST: usize = 10_000;
/// Bytes of a name that others may begin with, and that others may have inside.
const PREFIX_BYTES: usize = 2;
const INSIDE_BYTES: usize = 3;
/// Lines of a definition that a snippet shows.
const SHOWN: u64 = 10;
/// Files that are too large to be searched and are read for a snippet all the same.
const LARGE_FILES: usize = 2;
/// How well a name fits that has other capitals.
const SAME_LETTERS: f64 = 0.9;
/// Equal names that are weighed against each other, and files that mention them.
const WEIGHED: usize = 50;
const MENTIONS: usize = 5_000;
/// What a definition gains that is mentioned most.
const MENTIONED: f64 = 0.025;
/// What a definition gains whose owner, or whose module, is the part before the name.
const OWNED: f64 = 0.3;
const IN_MODULE: f64 = 0.2;
/// The same where only the letters of the owner fit, or where a module has methods of that name.
const LIKE_OWNED: f64 = 0.25;
const NEAR_MODULE: f64 = 0.1;

/// One symbol query.
#[derive(Debug)]
pub(crate) struct SymbolQuery<'a> {
    pub(crate) text: &'a str,
    pub(crate) kinds: &'a [Kind],
    pub(crate) case: Case,
    pub(crate) filter: &'a Filter,
    pub(crate) context: u64,
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
    pub(crate) listing: Listing,
    pub(crate) after: Option<&'a HitCursor>,
    pub(crate) explain: bool,
}

#[derive(Clone, Debug)]
struct Match<'a> {
    source: usize,
    repo: usize,
    path: &'a str,
    name: Arc<str>,
    kind: Kind,
    start_line: u64,
    end_line: u64,
    owner: Box<str>,
    score: f64,
    how: &'static str,
    /// The name is the wanted one, in either case.
    is_named: bool,
    /// What stands before the wanted name is its owner or module.
    is_owned: bool,
}

impl Match<'_> {
    fn key(&self) -> HitKey<'_> {
        let score = Reverse(whole_score(self.score));
        (score, self.path, self.repo, self.start_line, &self.name)
    }
}

/// What was found, and whether that is all.
#[derive(Debug, Default)]
struct Matches<'a> {
    found: Vec<Match<'a>>,
    /// There are more than can be put in order.
    full: bool,
    /// Files that the symbol layer does not cover were left out.
    cut: bool,
}

/// Runs the query.
pub(crate) fn search(
    sources: &[Source<'_>],
    query: &SymbolQuery<'_>,
    cancel: &CancelToken,
) -> Result<Found, Failed> {
    let wanted = Wanted::new(query);
    let mut matches = Matches::default();
    for (number, source) in sources.iter().enumerate() {
        exact_names(number, source, &wanted, &mut matches)?;
        in_texts(number, source, &wanted, &mut matches, cancel)?;
    }
    if query.case != Case::Sensitive {
        for (number, source) in sources.iter().enumerate() {
            cancel.check()?;
            loose_names(number, source, &wanted, &mut matches)?;
        }
    }
    if query.filter.modified_since.is_some() {
        retain_recent(sources, query, &mut matches.found);
    }
    weigh_mentions(sources, &wanted, &mut matches.found)?;
    let mut entries = matches.found;
    // All but the first page need no order among themselves.
    let shown = query.limit.saturating_add(1);
    if query.after.is_none() && entries.len() > shown {
        entries.select_nth_unstable_by(shown, |a, b| a.key().cmp(&b.key()));
        let (first, _) = entries.split_at_mut(shown);
        first.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
    } else {
        entries.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
    }
    let mut found = page(sources, query, &entries);
    let first = entries.first();
    found.sure =
        first.is_some_and(|first| first.is_named && (!wanted.is_qualified() || first.is_owned));
    found.named = first.is_some_and(|first| first.is_named);
    if matches.full {
        found.total.relation = Relation::AtLeast;
        found.notes.push(format!(
            "there are more definitions than the {MOST} that are put in order; a longer name or a filter leaves fewer"
        ));
    }
    if matches.cut {
        found.total.relation = Relation::AtLeast;
        found.notes.push(
            "symbols are still being extracted: not every file with this name was looked at; index_status says how far they are".to_owned(),
        );
    }
    Ok(found)
}

/// Leaves only what stands in files whose time is in scope.
fn retain_recent(sources: &[Source<'_>], query: &SymbolQuery<'_>, entries: &mut Vec<Match<'_>>) {
    let mut known: BTreeMap<(usize, &str), bool> = BTreeMap::new();
    entries.retain(|entry| {
        let Some(source) = sources.get(entry.source) else {
            return false;
        };
        *known
            .entry((entry.source, entry.path))
            .or_insert_with(|| query.filter.admits_time_of(&source.reader, entry.path))
    });
}

/// The name that is looked for.
struct Wanted<'a> {
    query: &'a SymbolQuery<'a>,
    name: String,
    lower: String,
    /// What stands before the name, plain: `a` and `foo` of `a::Foo::bar`.
    containers: Vec<String>,
}

/// A name without what tells spellings apart.
pub(crate) fn plain(name: &str) -> String {
    name.to_lowercase().replace(['_', '-'], "")
}

impl<'a> Wanted<'a> {
    fn new(query: &'a SymbolQuery<'a>) -> Self {
        let text = query.text.trim();
        let (containers, name) = match qualified(text) {
            Some((containers, name)) => (containers.into_iter().map(plain).collect(), name),
            None => (Vec::new(), text.trim_end_matches("()")),
        };
        Self {
            query,
            name: name.to_owned(),
            lower: name.to_lowercase(),
            containers,
        }
    }

    const fn is_qualified(&self) -> bool {
        !self.containers.is_empty()
    }

    /// What a definition gains because it belongs to what stands before the name, and whether it
    /// really does.
    fn belongs(&self, source: &Source<'_>, path: &str, owner: &str) -> (f64, bool) {
        let Some((last, outer)) = self.containers.split_last() else {
            return (0.0, false);
        };
        let parts: Vec<String> = path
            .split('/')
            .map(|part| plain(part.split('.').next().unwrap_or(part)))
            .collect();
        let outside = || {
            source
                .root
                .iter()
                .map(|part| plain(&part.to_string_lossy()))
        };
        let in_path = |name: &String| parts.contains(name);
        let own = plain(owner);
        let further = outer.iter().filter(|name| in_path(name)).count() as f64 * 0.01;
        let (gain, is_owned) = if own == *last {
            (OWNED, true)
        } else if owner.is_empty() && (in_path(last) || outside().any(|name| name == *last)) {
            (IN_MODULE, true)
        } else if !own.is_empty() && (own.contains(last.as_str()) || last.contains(&own)) {
            (LIKE_OWNED, false)
        } else if in_path(last) {
            (NEAR_MODULE, false)
        } else {
            (0.0, false)
        };
        (gain + further, is_owned)
    }

    /// What the keys of the name begin with, in whatever case it is written.
    fn exact_key(&self) -> Vec<u8> {
        let mut from = key(&self.name);
        let end = from
            .iter()
            .position(|byte| *byte == 0)
            .map_or(from.len(), |at| at + 1);
        from.truncate(end);
        from
    }

    /// How well a name fits, and how that is called.
    fn fit(&self, name: &str) -> Option<(f64, &'static str)> {
        if name == self.name {
            return Some((1.0, "exact"));
        }
        if self.query.case == Case::Sensitive {
            return None;
        }
        let lower = match name.is_ascii() {
            true => name.to_ascii_lowercase(),
            false => name.to_lowercase(),
        };
        if lower == self.lower {
            Some((SAME_LETTERS, "same letters"))
        } else if self.lower.len() < PREFIX_BYTES {
            None
        } else if lower.starts_with(&self.lower) {
            Some((
                0.5 + 0.2 * self.lower.len() as f64 / lower.len() as f64,
                "prefix",
            ))
        } else if self.lower.len() >= INSIDE_BYTES && lower.contains(&self.lower) {
            Some((
                0.3 + 0.2 * self.lower.len() as f64 / lower.len() as f64,
                "part",
            ))
        } else {
            None
        }
    }
}

/// A definition that may be wanted, and the file that it is in.
struct Definition<'a, 'b> {
    number: usize,
    source: &'b Source<'a>,
    path: &'a str,
    class: u8,
    name: &'b Arc<str>,
    kind: Kind,
    start_line: u64,
    end_line: u64,
    owner: Box<str>,
}

fn add<'a>(
    found: Definition<'a, '_>,
    fit: (f64, &'static str),
    wanted: &Wanted<'_>,
    matches: &mut Matches<'a>,
) {
    let Definition { path, kind, .. } = found;
    let kinds = wanted.query.kinds;
    // A method is a function, too.
    let kind_fits = kinds.is_empty()
        || kinds.contains(&kind)
        || kind == Kind::Method && kinds.contains(&Kind::Function);
    if !kind_fits || !wanted.query.filter.admits(path, Lang::of_path(path)) {
        return;
    }
    if matches.found.len() >= MOST {
        matches.full = true;
        return;
    }
    let class = f64::from(found.class);
    let by_kind = match kind {
        kind if kind.is_type() => 0.04,
        Kind::Function | Kind::Macro | Kind::Module => 0.03,
        Kind::Method => 0.02,
        _ => 0.0,
    };
    let (belongs, is_owned) = wanted.belongs(found.source, path, &found.owner);
    let declares = [".pyi", ".d.ts"].iter().any(|end| path.ends_with(end));
    let score = fit.0 - 0.03 * class + by_kind + belongs - if declares { 0.02 } else { 0.0 };
    matches.found.push(Match {
        source: found.number,
        repo: found.source.repo,
        path,
        name: Arc::clone(found.name),
        kind,
        start_line: found.start_line,
        end_line: found.end_line,
        owner: found.owner,
        score: round_score(score),
        how: fit.1,
        is_named: fit.0 >= SAME_LETTERS,
        is_owned,
    });
}

/// Of definitions with one name those come first that more of the files around them mention: each
/// file that has the name counts for the definition that shares most of its folders.
fn weigh_mentions(
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

/// The term of a whole name.
pub(crate) fn whole_term(name: &str) -> Vec<u8> {
    let mut term = Vec::new();
    // The whole comes last.
    terms(name.as_bytes(), &mut Vec::new(), |part| {
        part.clone_into(&mut term);
    });
    term
}

/// Names that are the wanted one, in either case.
fn exact_names<'a>(
    number: usize,
    source: &Source<'a>,
    wanted: &Wanted<'_>,
    matches: &mut Matches<'a>,
) -> Result<(), Failed> {
    let from = wanted.exact_key();
    let wants = |key: &[u8]| match key.starts_with(&from) {
        true => Wants::Take,
        false if key < from.as_slice() => Wants::Pass,
        false => Wants::Stop,
    };
    collect(number, source, Keys::From(&from), wants, wanted, matches)
}

/// Names that only begin with the wanted one, or have it inside.
fn loose_names<'a>(
    number: usize,
    source: &Source<'a>,
    wanted: &Wanted<'_>,
    matches: &mut Matches<'a>,
) -> Result<(), Failed> {
    let prefix = wanted.lower.clone().into_bytes();
    if prefix.len() < PREFIX_BYTES {
        return Ok(());
    }
    let exact = wanted.exact_key();
    let begins = |key: &[u8]| match key.starts_with(&prefix) {
        true if key.starts_with(&exact) => Wants::Pass,
        true => Wants::Take,
        false if key < prefix.as_slice() => Wants::Pass,
        false => Wants::Stop,
    };
    collect(number, source, Keys::From(&prefix), begins, wanted, matches)?;
    if prefix.len() < INSIDE_BYTES {
        return Ok(());
    }
    let finder = memchr::memmem::Finder::new(&prefix);
    let inside = |key: &[u8]| {
        let lower = key.split(|byte| *byte == 0).next().unwrap_or(key);
        match finder.find(lower) {
            Some(at) if at > 0 => Wants::Take,
            _ => Wants::Pass,
        }
    };
    collect(number, source, Keys::With(&prefix), inside, wanted, matches)
}

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Take,
    Pass,
    /// Neither this one nor any after it is wanted.
    Stop,
}

/// The keys of a table that are looked at.
#[derive(Clone, Copy, Debug)]
enum Keys<'a> {
    /// All that are not below this one.
    From(&'a [u8]),
    /// Those of the blocks that may have this inside.
    With(&'a [u8]),
}

impl Keys<'_> {
    /// The blocks of a table that may have such a key, in order.
    fn blocks(self, table: &Table) -> Box<dyn Iterator<Item = usize>> {
        match self {
            Self::From(from) => Box::new(table.first_block(from)..table.blocks()),
            Self::With(part) => Box::new(blocks_with(table, part, 0).into_iter()),
        }
    }
}

/// Takes all postings of the keys that are wanted, until there are too many.
fn collect<'a>(
    number: usize,
    source: &Source<'a>,
    keys: Keys<'_>,
    wants: impl Fn(&[u8]) -> Wants,
    wanted: &Wanted<'_>,
    matches: &mut Matches<'a>,
) -> Result<(), Failed> {
    let view = source.view;
    let failed = |error| Failed::Store(number, error);
    let mut left = LOOSE_NAMES;
    let mut taken: Vec<(Vec<u8>, List)> = Vec::new();
    for (at, segment) in view.generation.segments.iter().enumerate() {
        for table in &segment.symbols {
            for block in keys.blocks(table) {
                let mut stop = false;
                taken.clear();
                let each = |key: &[u8], found: Scanned<'_>| {
                    left = left.saturating_sub(1);
                    let want = wants(key);
                    if want == Wants::Take {
                        taken.push((key.to_vec(), found.to_found()));
                    }
                    stop = want == Wants::Stop;
                    !stop && left > 0
                };
                table.scan_block(block, each).map_err(failed)?;
                for (key, found) in &taken {
                    let name = key.splitn(2, |byte| *byte == 0).nth(1).unwrap_or_default();
                    let name: Arc<str> = String::from_utf8_lossy(name).into();
                    let Some(fit) = wanted.fit(&name) else {
                        continue;
                    };
                    // One definition may have been captured as several kinds.
                    let mut last = None;
                    for posting in postings(table, found).map_err(failed)? {
                        let place = (posting.doc, posting.start_line);
                        if !view.is_live(at, posting.doc) || last.replace(place) == Some(place) {
                            continue;
                        }
                        let definition = Definition {
                            number,
                            source,
                            path: segment.docs.path(posting.doc),
                            class: segment.docs.class_number(posting.doc),
                            name: &name,
                            kind: posting.kind,
                            start_line: posting.start_line,
                            end_line: posting.end_line,
                            owner: posting.owner,
                        };
                        add(definition, fit, wanted, matches);
                    }
                }
                matches.full |= left == 0;
                if matches.full {
                    return Ok(());
                }
                if stop {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Documents that the layer does not cover and that define a name by the look of a line.
fn defining(segment: &Segment, name: &str) -> Result<Vec<u32>, StoreError> {
    let mut docs = Vec::new();
    if let Some(found) = segment.terms.get(&whole_term(name))? {
        let list = segment.terms.list(&found)?;
        let mut rest = list.as_slice();
        let mut doc = 0_u32;
        while let Some(delta) = take_u32(&mut rest) {
            doc = doc.wrapping_add(delta);
            let Some((fields, more)) = rest.split_first() else {
                break;
            };
            rest = more;
            if !segment.has_symbols(doc) && Fields::unpack(*fields).defs > 0 {
                docs.push(doc);
            }
        }
    }
    Ok(docs)
}

/// Definitions in files that the layer does not cover.
fn in_texts<'a>(
    number: usize,
    source: &Source<'a>,
    wanted: &Wanted<'_>,
    matches: &mut Matches<'a>,
    cancel: &CancelToken,
) -> Result<(), Failed> {
    let view = source.view;
    let failed = |error| Failed::Store(number, error);
    let case = if wanted.query.case == Case::Sensitive {
        Case::Sensitive
    } else {
        Case::Insensitive
    };
    let pattern = Pattern::literal(&wanted.name, case)?;
    let plan = Plan::of(&pattern.hir);
    let (mut paths, mut later): (Vec<&str>, Vec<&str>) = Default::default();
    for (at, segment) in view.generation.segments.iter().enumerate() {
        if segment.without_symbols() == 0 {
            continue;
        }
        let counts = |doc: &u32| {
            !segment.has_symbols(*doc) && view.is_live(at, *doc) && segment.docs.is_text(*doc)
        };
        let defining = defining(segment, &wanted.name).map_err(failed)?;
        let mut first = defining.iter().filter(|doc| counts(doc));
        paths.extend(
            first
                .by_ref()
                .take(UNCOVERED_FILES)
                .map(|doc| segment.docs.path(*doc)),
        );
        matches.cut |= first.next().is_some();
        let found = Candidates::new(segment, &plan).and_then(Candidates::docs);
        let docs = match found.map_err(failed)? {
            Some(docs) => docs,
            None => (0..segment.docs.len()).collect(),
        };
        let mut rest = docs
            .into_iter()
            .filter(|doc| counts(doc) && defining.binary_search(doc).is_err());
        later.extend(
            rest.by_ref()
                .take(UNCOVERED_FILES)
                .map(|doc| segment.docs.path(doc)),
        );
        matches.cut |= rest.next().is_some();
    }
    paths.extend(
        view.changed()
            .into_iter()
            .filter(|(_, _, live)| live.skip.is_none())
            .map(|(_, path, _)| path),
    );
    let mut buffer = Vec::new();
    let began = Instant::now();
    let must = paths.len();
    for (at, path) in paths.into_iter().chain(later).enumerate() {
        cancel.check()?;
        if at >= must && began.elapsed() >= UNCOVERED_TIME + PARSED_TIME {
            matches.cut = true;
            return Ok(());
        }
        if !wanted.query.filter.admits(path, Lang::of_path(path)) {
            continue;
        }
        if !matches!(source.reader.read(path, &mut buffer).0, Content::Text)
            || !pattern.matcher.is_match(&buffer).unwrap_or(true)
        {
            continue;
        }
        let is_quick = buffer.len() <= PARSED_BYTES && began.elapsed() < PARSED_TIME;
        let mut symbols = match is_quick {
            true => extract(path, &buffer),
            false => guess_named(path, &buffer, &pattern),
        };
        symbols.dedup_by(|later, kept| {
            (later.start_line, &later.name) == (kept.start_line, &kept.name)
        });
        for symbol in symbols {
            if let Some(fit) = wanted.fit(&symbol.name) {
                let definition = Definition {
                    number,
                    source,
                    path,
                    class: classify(path).number(),
                    name: &symbol.name.into(),
                    kind: symbol.kind,
                    start_line: symbol.start_line,
                    end_line: symbol.end_line,
                    owner: symbol.owner.into(),
                };
                add(definition, fit, wanted, matches);
            }
        }
    }
    Ok(())
}

fn page(sources: &[Source<'_>], query: &SymbolQuery<'_>, entries: &[Match<'_>]) -> Found {
    let mut found = Found {
        total: Total {
            value: entries.len() as u64,
            relation: Relation::Exact,
        },
        divisible: true,
        ..Found::default()
    };
    let (mut bytes, mut large) = (0, 0);
    let mut buffer = Vec::new();
    let (first, counted) = resume(entries, query.after, |entry| entry.key(), &mut found);
    let mut last: Option<&Match<'_>> = None;
    for entry in entries.iter().skip(first) {
        if let Some(last) = last
            && (found.hits.len() >= query.limit || bytes >= query.max_bytes)
        {
            let counted = counted + found.hits.len() as u64;
            found.truncated = true;
            found.cursor = Some(HitCursor::after(query.listing, counted, last.key()).encode());
            break;
        }
        last = Some(entry);
        let Some(source) = sources.get(entry.source) else {
            continue;
        };
        let (mut content, _) = source.reader.read(entry.path, &mut buffer);
        if matches!(content, Content::Skipped(Skip::TooLarge)) && large < LARGE_FILES {
            // Its definitions are known although it is too large to be searched.
            large += 1;
            let reader = source.reader.up_to(limits::DEFINITION_FILE_BYTES);
            content = reader.read(entry.path, &mut buffer).0;
        }
        let mut snippet = String::new();
        let (mut start, mut end) = (entry.start_line, entry.end_line);
        if matches!(content, Content::Text) {
            let lines = Lines::new(&buffer);
            start = start.saturating_sub(query.context).max(1);
            end = end
                .min(entry.start_line + SHOWN - 1)
                .saturating_add(query.context)
                .min(lines.count())
                .max(start);
            snippet = lines.snippet(start, end, query.max_bytes.saturating_sub(bytes));
        }
        bytes += snippet.len();
        let counted = counted + found.hits.len() as u64 + 1;
        found.hits.push(Hit {
            after: HitCursor::after(query.listing, counted, entry.key()).encode(),
            repo: source.name.to_owned(),
            path: entry.path.to_owned(),
            start_line: start,
            end_line: end,
            symbol: Some(entry.name.to_string()),
            owner: Some(entry.owner.to_string()).filter(|owner| !owner.is_empty()),
            kind: Some(entry.kind.name()),
            lang: Lang::of_path(entry.path).name(),
            score: entry.score,
            snippet,
            match_lines: vec![entry.start_line],
            why: query.explain.then(|| {
                json!({"match": entry.how, "class": classify(entry.path).name(), "kind": entry.kind.name()})
            }),
        });
    }
    found
}
