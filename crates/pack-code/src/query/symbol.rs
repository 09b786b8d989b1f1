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

mod mentions;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grep_matcher::Matcher as _;
use mainstay_worker::CancelToken;
use memchr::memmem::Finder;
use serde_json::json;

use crate::query::auto::qualified;
use crate::query::candidates::Candidates;
use crate::query::cursor::{HitCursor, HitKey, Listing, whole_score};
use crate::query::filter::Filter;
use crate::query::pattern::{Case, Pattern};
use crate::query::plan::Plan;
use crate::query::ranked::{Failed, Source};
use crate::query::{Found, Hit, Relation, Total, excerpt, resume, round_score};
use crate::store::StoreError;
use crate::store::chunk::Fields;
use crate::store::codec::take_u32;
use crate::store::segment::Segment;
use crate::store::table::{Scanned, Table};
use crate::symbols::layer::{each_posting, key};
use crate::symbols::names::blocks_with;
use crate::symbols::{extract, guess_named};
use crate::text::defs::Kind;
use crate::text::words::terms;
use crate::tree::class::classify;
use crate::tree::file::Content;
use crate::tree::lang::Lang;

/// Files that are read because the layer does not cover them.
const UNCOVERED_FILES: usize = 400;
/// Time that their parsing may take; after it definitions are known by the look of their lines.
const PARSED_TIME: Duration = Duration::from_millis(15);
/// Largest of them that is parsed.
const PARSED_BYTES: usize = 64 * 1024;
/// Time that those may take that have the name, but not in a line that looks like its definition.
const UNCOVERED_TIME: Duration = Duration::from_millis(100);
/// Blocks of names that a search by a part of them looks through.
const LOOSE_BLOCKS: usize = 62_500;
/// Blocks of names that are read together at most.
const BLOCKS_TOGETHER: usize = 32;
/// Definitions that are put in order.
const MOST: usize = 10_000;
/// Bytes of a name that others may begin with, and that others may have inside.
const PREFIX_BYTES: usize = 2;
const INSIDE_BYTES: usize = 3;
/// Lines of a definition that a snippet shows.
const SHOWN: u64 = 10;
/// How well a name fits that has other capitals.
const SAME_LETTERS: f64 = 0.9;
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
    mentions::weigh(sources, &wanted, &mut matches.found)?;
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
    if !kind_fits || !wanted.query.filter.admits_path(path) {
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
    let finder = Finder::new(&prefix);
    let inside = |key: &[u8]| {
        let lower = key.split(|byte| *byte == 0).next().unwrap_or(key);
        match finder.find(lower) {
            Some(at) if at > 0 => Wants::Take,
            _ => Wants::Pass,
        }
    };
    collect(number, source, Keys::With(&finder), inside, wanted, matches)
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
    /// Those that have this inside.
    With(&'a Finder<'a>),
}

impl Keys<'_> {
    /// The blocks of a table that may have such a key, in order.
    fn blocks(self, table: &Table) -> Box<dyn Iterator<Item = usize>> {
        match self {
            Self::From(from) => Box::new(table.first_block(from)..table.blocks()),
            Self::With(part) => Box::new(blocks_with(table, part.needle(), 0).into_iter()),
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
    let failed = |error| Failed::Store(number, error);
    let mut left = LOOSE_BLOCKS;
    for (at, segment) in source.view.generation.segments.iter().enumerate() {
        for table in &segment.symbols {
            let mut blocks = keys.blocks(table);
            let mut together = 1;
            loop {
                let some: Vec<usize> = blocks.by_ref().take(together.min(left)).collect();
                if some.is_empty() {
                    break;
                }
                left -= some.len();
                together = (together * 2).min(BLOCKS_TOGETHER);
                let (mut stop, mut broken) = (false, None);
                let each = |key: &[u8], found: Scanned<'_>| {
                    let want = wants(key);
                    if want == Wants::Take {
                        match table.scanned_list(found) {
                            Ok(list) => {
                                take_name((number, source, at), key, &list, wanted, matches);
                            }
                            Err(error) => broken = Some(error),
                        }
                    }
                    stop = want == Wants::Stop;
                    !stop && !matches.full && broken.is_none()
                };
                match keys {
                    Keys::From(_) => table.scan_blocks(&some, each),
                    Keys::With(part) => table.scan_blocks_having(&some, part, each),
                }
                .map_err(failed)?;
                if let Some(error) = broken {
                    return Err(failed(error));
                }
                if left == 0 && !stop {
                    matches.full = true;
                }
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

/// Takes the definitions of one key, which are those of a segment of a source.
fn take_name<'a>(
    (number, source, at): (usize, &Source<'a>, usize),
    key: &[u8],
    list: &[u8],
    wanted: &Wanted<'_>,
    matches: &mut Matches<'a>,
) {
    let Some(segment) = source.view.generation.segments.get(at) else {
        return;
    };
    let name = key.splitn(2, |byte| *byte == 0).nth(1).unwrap_or_default();
    let name: Arc<str> = String::from_utf8_lossy(name).into();
    let Some(fit) = wanted.fit(&name) else {
        return;
    };
    // One definition may have been captured as several kinds.
    let mut last = None;
    each_posting(list, |posting| {
        let place = (posting.doc, posting.start_line);
        if !source.view.is_live(at, posting.doc) || last.replace(place) == Some(place) {
            return;
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
    });
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
        if !wanted.query.filter.admits_path(path) {
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

/// The first line that a definition shows.
fn first_line(query: &SymbolQuery<'_>, entry: &Match<'_>) -> u64 {
    entry.start_line.saturating_sub(query.context).max(1)
}

/// The lines that the definitions of a page show.
fn wanted_lines<'a>(query: &SymbolQuery<'_>, shown: &'a [Match<'_>]) -> Vec<excerpt::Wanted<'a>> {
    let one = |entry: &'a Match<'_>| excerpt::Wanted {
        source: entry.source,
        path: entry.path,
        first: first_line(query, entry),
        last: entry
            .end_line
            .min(entry.start_line + SHOWN - 1)
            .saturating_add(query.context),
    };
    shown.iter().take(query.limit).map(one).collect()
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
    let (first, counted) = resume(entries, query.after, |entry| entry.key(), &mut found);
    let shown = entries.get(first..).unwrap_or_default();
    let excerpts = excerpt::read(sources, &wanted_lines(query, shown));
    let mut excerpts = excerpts.into_iter();
    let mut bytes = 0;
    let mut last: Option<&Match<'_>> = None;
    for entry in shown {
        if let Some(last) = last
            && (found.hits.len() >= query.limit || bytes >= query.max_bytes)
        {
            let counted = counted + found.hits.len() as u64;
            found.truncated = true;
            found.cursor = Some(HitCursor::after(query.listing, counted, last.key()).encode());
            break;
        }
        last = Some(entry);
        let excerpt = excerpts.next().flatten();
        let Some(source) = sources.get(entry.source) else {
            continue;
        };
        let mut snippet = String::new();
        let (mut start, mut end) = (entry.start_line, entry.end_line);
        if let Some(excerpt) = excerpt {
            start = first_line(query, entry);
            end = (start + excerpt.lines).saturating_sub(1).max(start);
            snippet = excerpt.snippet(query.max_bytes.saturating_sub(bytes));
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
