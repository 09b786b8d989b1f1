//! Symbol search: where something is defined, by its name.
//!
//! Names come from the symbol layer; for files that it does not cover yet, and for changed ones,
//! the definitions are found in the text itself: first in the files of which the index knows that
//! they define the name by the look of a line, then, as long as there is time, in all that have it.

use std::time::{Duration, Instant};

use mainstay_worker::CancelToken;
use serde_json::json;

use crate::query::candidates::Candidates;
use crate::query::filter::Filter;
use crate::query::pattern::{Case, Pattern};
use crate::query::plan::Plan;
use crate::query::ranked::{Failed, Source};
use crate::query::snippet::Lines;
use crate::query::{Found, Hit, Relation, Total, round_score};
use crate::store::StoreError;
use crate::store::chunk::Fields;
use crate::store::codec::take_u32;
use crate::store::segment::Segment;
use crate::symbols::layer::{key, postings};
use crate::symbols::{Symbol, extract};
use crate::text::defs::Kind;
use crate::text::words::terms;
use crate::tree::class::classify;
use crate::tree::file::Content;
use crate::tree::lang::Lang;

/// Files that are read because the layer does not cover them.
const UNCOVERED_FILES: usize = 400;
/// Time that they may take beyond those that define the name by the look of a line.
const UNCOVERED_TIME: Duration = Duration::from_millis(200);
/// Names that a search by a part of them looks through.
const LOOSE_NAMES: usize = 4_000_000;
/// Definitions that are put in order.
const MOST: usize = 10_000;
/// Lines of a definition that a snippet shows.
const SHOWN: u64 = 10;

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
    pub(crate) offset: usize,
    pub(crate) explain: bool,
}

#[derive(Clone, Debug)]
struct Match {
    source: usize,
    path: String,
    symbol: Symbol,
    score: f64,
    how: &'static str,
}

/// Runs the query.
pub(crate) fn search(
    sources: &[Source<'_>],
    query: &SymbolQuery<'_>,
    cancel: &CancelToken,
) -> Result<Found, Failed> {
    let wanted = Wanted::new(query);
    let mut matches = Vec::new();
    let mut cut = false;
    for (number, source) in sources.iter().enumerate() {
        exact_names(number, source, &wanted, query, &mut matches)?;
        cut |= in_texts(number, source, &wanted, query, &mut matches, cancel)?;
    }
    if matches.len() < query.limit + query.offset && query.case != Case::Sensitive {
        for (number, source) in sources.iter().enumerate() {
            cancel.check()?;
            loose_names(number, source, &wanted, query, &mut matches)?;
        }
    }
    let repo = |found: &Match| sources.get(found.source).map_or(0, |source| source.repo);
    matches.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| {
            (&a.path, repo(a), a.symbol.start_line, &a.symbol.name).cmp(&(
                &b.path,
                repo(b),
                b.symbol.start_line,
                &b.symbol.name,
            ))
        })
    });
    matches.dedup_by(|a, b| {
        a.source == b.source
            && a.path == b.path
            && a.symbol.start_line == b.symbol.start_line
            && a.symbol.name == b.symbol.name
    });
    let mut found = page(sources, query, &matches);
    if cut {
        found.total.relation = Relation::AtLeast;
        found.notes.push(
            "symbols are still being extracted: not every file with this name was looked at; index_status says how far they are".to_owned(),
        );
    }
    Ok(found)
}

/// The name that is looked for.
struct Wanted {
    name: String,
    lower: String,
    case: Case,
    /// What stands before the name: `Foo::bar`, `Foo.bar`.
    container: Option<String>,
}

impl Wanted {
    fn new(query: &SymbolQuery<'_>) -> Self {
        let text = query.text.trim().trim_end_matches("()");
        let cut = text.rfind([':', '.', '#']).filter(|at| at + 1 < text.len());
        let (container, name) = match cut {
            Some(at) => {
                let before = text.get(..at).unwrap_or_default().trim_end_matches(':');
                let before = before.rsplit([':', '.', '#']).next().unwrap_or(before);
                (Some(before.to_owned()), text.get(at + 1..).unwrap_or(text))
            }
            None => (None, text),
        };
        Self {
            name: name.to_owned(),
            lower: name.to_lowercase(),
            case: query.case,
            container,
        }
    }

    /// How well a name fits, and how that is called.
    fn fit(&self, name: &str) -> Option<(f64, &'static str)> {
        if name == self.name {
            return Some((1.0, "exact"));
        }
        if self.case == Case::Sensitive {
            return None;
        }
        let lower = name.to_lowercase();
        if lower == self.lower {
            Some((0.9, "same letters"))
        } else if self.lower.len() < 2 {
            None
        } else if lower.starts_with(&self.lower) {
            Some((
                0.5 + 0.2 * self.lower.len() as f64 / lower.len() as f64,
                "prefix",
            ))
        } else if lower.contains(&self.lower) {
            Some((
                0.3 + 0.2 * self.lower.len() as f64 / lower.len() as f64,
                "part",
            ))
        } else {
            None
        }
    }
}

fn add(
    number: usize,
    path: &str,
    symbol: Symbol,
    fit: (f64, &'static str),
    wanted: &Wanted,
    query: &SymbolQuery<'_>,
    matches: &mut Vec<Match>,
) {
    let lang = Lang::of_path(path);
    let kind_fits = query.kinds.is_empty() || query.kinds.contains(&symbol.kind);
    if !kind_fits || matches.len() >= MOST || !query.filter.admits(path, lang) {
        return;
    }
    let class = f64::from(classify(path).number());
    let kind = match symbol.kind {
        kind if kind.is_type() => 0.04,
        Kind::Function | Kind::Macro | Kind::Module => 0.03,
        Kind::Method => 0.02,
        _ => 0.0,
    };
    // `Foo::bar` is more likely in a file that is called after Foo.
    let container = wanted.container.as_ref().is_some_and(|container| {
        let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
        plain(path).contains(&plain(container))
    });
    let score = fit.0 - 0.03 * class + kind + if container { 0.05 } else { 0.0 };
    matches.push(Match {
        source: number,
        path: path.to_owned(),
        symbol,
        score: round_score(score),
        how: fit.1,
    });
}

/// Names that are the wanted one, in either case.
fn exact_names(
    number: usize,
    source: &Source<'_>,
    wanted: &Wanted,
    query: &SymbolQuery<'_>,
    matches: &mut Vec<Match>,
) -> Result<(), Failed> {
    let mut from = key(&wanted.name);
    let end = from
        .iter()
        .position(|byte| *byte == 0)
        .map_or(from.len(), |at| at + 1);
    from.truncate(end);
    collect(
        number,
        source,
        &from.clone(),
        |key| key.starts_with(&from),
        wanted,
        query,
        matches,
    )
}

/// Names that only begin with the wanted one, or have it inside.
fn loose_names(
    number: usize,
    source: &Source<'_>,
    wanted: &Wanted,
    query: &SymbolQuery<'_>,
    matches: &mut Vec<Match>,
) -> Result<(), Failed> {
    let prefix = wanted.lower.clone().into_bytes();
    if prefix.len() < 2 {
        return Ok(());
    }
    collect(
        number,
        source,
        &prefix,
        |key| key.starts_with(&prefix),
        wanted,
        query,
        matches,
    )?;
    if matches.len() < query.limit + query.offset && prefix.len() >= 3 {
        let mut left = LOOSE_NAMES;
        let finder = memchr::memmem::Finder::new(&prefix);
        let mut inside = Vec::new();
        for segment in &source.view.generation.segments {
            for table in &segment.symbols {
                table
                    .scan(b"", |key, _| {
                        left = left.saturating_sub(1);
                        let lower = key.split(|byte| *byte == 0).next().unwrap_or(key);
                        if finder.find(lower).is_some_and(|at| at > 0) && inside.len() < MOST {
                            inside.push(key.to_vec());
                        }
                        left > 0
                    })
                    .map_err(|error| Failed::Store(number, error))?;
            }
        }
        inside.sort_unstable();
        inside.dedup();
        for found in inside.iter().take(query.limit + query.offset) {
            collect(
                number,
                source,
                found,
                |key| key == found.as_slice(),
                wanted,
                query,
                matches,
            )?;
        }
    }
    Ok(())
}

/// Takes all postings of the keys from `from` on for which `wants` holds.
fn collect(
    number: usize,
    source: &Source<'_>,
    from: &[u8],
    wants: impl Fn(&[u8]) -> bool,
    wanted: &Wanted,
    query: &SymbolQuery<'_>,
    matches: &mut Vec<Match>,
) -> Result<(), Failed> {
    let view = source.view;
    for (at, segment) in view.generation.segments.iter().enumerate() {
        for table in &segment.symbols {
            let mut keys = Vec::new();
            table
                .scan(from, |key, found| {
                    let go_on = wants(key) && keys.len() < MOST;
                    if go_on {
                        keys.push((key.to_vec(), found));
                    }
                    go_on
                })
                .map_err(|error| Failed::Store(number, error))?;
            for (key, found) in keys {
                let name = key.splitn(2, |byte| *byte == 0).nth(1).unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                let Some(fit) = wanted.fit(&name) else {
                    continue;
                };
                for posting in
                    postings(table, &found).map_err(|error| Failed::Store(number, error))?
                {
                    if view.is_live(at, posting.doc) {
                        let symbol = Symbol {
                            start_line: posting.start_line,
                            end_line: posting.end_line,
                            name: name.clone(),
                            kind: posting.kind,
                        };
                        add(
                            number,
                            segment.docs.path(posting.doc),
                            symbol,
                            fit,
                            wanted,
                            query,
                            matches,
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

/// Documents that the layer does not cover and that define a name by the look of a line.
fn defining(segment: &Segment, name: &str) -> Result<Vec<u32>, StoreError> {
    let mut term = Vec::new();
    // The whole comes last.
    terms(name.as_bytes(), &mut Vec::new(), |part| {
        part.clone_into(&mut term);
    });
    let mut docs = Vec::new();
    if let Some(found) = segment.terms.get(&term)? {
        let list = segment.terms.list(&found)?;
        let mut rest = list.as_slice();
        let mut doc = 0_u32;
        while let Some(delta) = take_u32(&mut rest) {
            doc = doc.wrapping_add(delta);
            let Some((fields, more)) = rest.split_first() else {
                break;
            };
            rest = more;
            if doc >= segment.symbols_to && Fields::unpack(*fields).defs > 0 {
                docs.push(doc);
            }
        }
    }
    Ok(docs)
}

/// Definitions in files that the layer does not cover; says whether some were not looked at.
fn in_texts(
    number: usize,
    source: &Source<'_>,
    wanted: &Wanted,
    query: &SymbolQuery<'_>,
    matches: &mut Vec<Match>,
    cancel: &CancelToken,
) -> Result<bool, Failed> {
    let view = source.view;
    let failed = |error| Failed::Store(number, error);
    let case = if query.case == Case::Sensitive {
        Case::Sensitive
    } else {
        Case::Insensitive
    };
    let pattern = Pattern::literal(&wanted.name, case)?;
    let plan = Plan::of(&pattern.hir);
    let (mut paths, mut later): (Vec<&str>, Vec<&str>) = Default::default();
    let mut cut = false;
    for (at, segment) in view.generation.segments.iter().enumerate() {
        if segment.symbols_to >= segment.docs.len() {
            continue;
        }
        let counts = |doc: &u32| {
            *doc >= segment.symbols_to && view.is_live(at, *doc) && segment.docs.is_text(*doc)
        };
        let defining = defining(segment, &wanted.name).map_err(failed)?;
        paths.extend(
            defining
                .iter()
                .filter(|doc| counts(doc))
                .take(UNCOVERED_FILES)
                .map(|doc| segment.docs.path(*doc)),
        );
        let found = Candidates::new(segment, &plan).and_then(Candidates::docs);
        let docs = match found.map_err(failed)? {
            Some(docs) => docs,
            None => (segment.symbols_to..segment.docs.len()).collect(),
        };
        let mut rest = docs
            .into_iter()
            .filter(|doc| counts(doc) && defining.binary_search(doc).is_err());
        later.extend(
            rest.by_ref()
                .take(UNCOVERED_FILES)
                .map(|doc| segment.docs.path(doc)),
        );
        cut |= rest.next().is_some();
    }
    paths.extend(
        view.changed()
            .into_iter()
            .filter(|(_, _, live)| live.skip.is_none())
            .map(|(_, path, _)| path),
    );
    let finder = memchr::memmem::Finder::new(wanted.name.as_bytes());
    let mut buffer = Vec::new();
    let until = Instant::now() + UNCOVERED_TIME;
    let must = paths.len();
    for (at, path) in paths.into_iter().chain(later).enumerate() {
        cancel.check()?;
        if at >= must && Instant::now() >= until {
            return Ok(true);
        }
        if !query.filter.admits(path, Lang::of_path(path)) {
            continue;
        }
        if !matches!(source.reader.read(path, &mut buffer).0, Content::Text) {
            continue;
        }
        if query.case == Case::Sensitive && finder.find(&buffer).is_none() {
            continue;
        }
        for symbol in extract(path, &buffer) {
            if let Some(fit) = wanted.fit(&symbol.name) {
                add(number, path, symbol, fit, wanted, query, matches);
            }
        }
    }
    Ok(cut)
}

fn page(sources: &[Source<'_>], query: &SymbolQuery<'_>, matches: &[Match]) -> Found {
    let relation = if matches.len() >= MOST {
        Relation::AtLeast
    } else {
        Relation::Exact
    };
    let mut found = Found {
        total: Total {
            value: matches.len() as u64,
            relation,
        },
        ..Found::default()
    };
    let mut bytes = 0;
    let mut buffer = Vec::new();
    for entry in matches.iter().skip(query.offset) {
        if found.hits.len() >= query.limit || bytes >= query.max_bytes {
            found.truncated = true;
            break;
        }
        let Some(source) = sources.get(entry.source) else {
            continue;
        };
        let (content, stamp) = source.reader.read(&entry.path, &mut buffer);
        let mut snippet = String::new();
        let (mut start, mut end) = (entry.symbol.start_line, entry.symbol.end_line);
        if matches!(content, Content::Text) {
            let lines = Lines::new(&buffer);
            start = start.saturating_sub(query.context).max(1);
            end = end
                .min(entry.symbol.start_line + SHOWN - 1)
                .saturating_add(query.context)
                .min(lines.count())
                .max(start);
            snippet = lines.snippet(start, end, query.max_bytes.saturating_sub(bytes));
        }
        if !query.filter.admits_time(stamp.modified) {
            continue;
        }
        bytes += snippet.len();
        found.hits.push(Hit {
            repo: source.name.to_owned(),
            path: entry.path.clone(),
            start_line: start,
            end_line: end,
            symbol: Some(entry.symbol.name.clone()),
            kind: Some(entry.symbol.kind.name()),
            lang: Lang::of_path(&entry.path).name(),
            score: entry.score,
            snippet,
            match_lines: vec![entry.symbol.start_line],
            why: query.explain.then(|| {
                json!({"match": entry.how, "class": classify(&entry.path).name(), "kind": entry.symbol.kind.name()})
            }),
        });
    }
    found
}
