//! Literal and regular expressions: exactly the lines that ripgrep would find.
//!
//! Candidates come from the trigrams of each segment and from the files that have changed since;
//! every one of them is read and searched by ripgrep's own engine. They are taken in the order of
//! hits (class, path), so an answer can stop at its limit and a cursor can go on from there. Of a
//! large file that is still as it was indexed, first only the parts that the trigrams leave are
//! read; the rest of it only if one of them has a match.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use grep_searcher::{Searcher, Sink, SinkMatch};
use mainstay_worker::{CancelToken, ErrorKind, Problem};
use regex_syntax::hir::Look as Anchor;

use crate::limits;
use crate::query::cursor::{LineCursor, Listing};
use crate::query::feed::{Candidate, From, Indexed, Source, count_on, next, read_in_vain};
use crate::query::filter::Filter;
use crate::query::look::{Depth, Look, Looker, searcher};
use crate::query::pattern::Pattern;
use crate::query::ranked::Failed;
use crate::query::snippet::Lines;
use crate::query::{Found, Hit, Relation, Total, round_score};
use crate::tree::file::{Content, Reader};
use crate::tree::lang::Lang;
use crate::tree::walk::threads;

/// One exact query.
#[derive(Debug)]
pub(crate) struct Exact<'a> {
    pub(crate) pattern: &'a Pattern,
    pub(crate) filter: &'a Filter,
    pub(crate) context: u64,
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
    pub(crate) after: Option<LineCursor>,
    pub(crate) listing: Listing,
    pub(crate) explain: bool,
    /// When a scan without an index has to end.
    pub(crate) deadline: Option<std::time::Instant>,
}

/// Runs the query over all sources.
pub(crate) fn search(
    sources: &mut [Source<'_>],
    query: &Exact<'_>,
    cancel: &CancelToken,
) -> Result<Found, Failed> {
    // What is bound to the beginning or the end of the whole text is not searched for in parts.
    let looks = query.pattern.hir.properties().look_set();
    let mut run = Run {
        in_parts: !looks.contains(Anchor::Start) && !looks.contains(Anchor::End),
        query,
        found: Found::default(),
        searcher: searcher(),
        bytes: 0,
        snippet_bytes: 0,
        counted: query.after.as_ref().map_or(0, |cursor| cursor.counted),
        full_after: None,
    };
    run.go(sources, cancel)?;
    let exact =
        run.found.cursor.is_none() && !run.found.truncated || run.full_after == Some(Counted::All);
    run.found.divisible = true;
    run.found.total = Total {
        value: run.counted,
        relation: if exact {
            Relation::Exact
        } else {
            Relation::AtLeast
        },
    };
    Ok(run.found)
}

/// How far counting went after the answer was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Some(usize),
    All,
}

/// Candidates whose turn comes, with what is known about them already.
type Ahead<'a> = VecDeque<(From, Candidate<'a>, Option<Look>)>;

/// Files without a match after which a query counts as a long one.
const AHEAD_AFTER: usize = 64;
/// Most files that a long one looks at together, and the least that a thread is worth starting for.
const AHEAD: usize = 256;
const AHEAD_EACH: usize = 16;
/// Files that a thread takes at a time.
const AHEAD_SHARE: usize = 8;

/// Bytes of a file that costs hardly more to read whole than in part.
const SMALL_BYTES: u64 = 128 * 1024;

fn is_small(indexed: Option<&Indexed>) -> bool {
    let stamp = indexed.and_then(|indexed| indexed.stamp);
    stamp.is_some_and(|stamp| stamp.size <= SMALL_BYTES)
}

struct Run<'a> {
    /// Whether a part of a file may be searched by itself.
    in_parts: bool,
    query: &'a Exact<'a>,
    found: Found,
    searcher: Searcher,
    bytes: u64,
    snippet_bytes: usize,
    counted: u64,
    full_after: Option<Counted>,
}

impl Run<'_> {
    fn go(&mut self, sources: &mut [Source<'_>], cancel: &CancelToken) -> Result<(), Failed> {
        let mut buffer = Vec::new();
        let mut lines = Vec::new();
        let mut looked_at = 0_u32;
        let (mut in_vain, mut with_match) = (0, 0);
        let mut ahead = VecDeque::new();
        loop {
            if ahead.is_empty() && in_vain >= AHEAD_AFTER && self.full_after.is_none() {
                // So what is looked at beyond the last hit is little beside what was before.
                ahead = self.look_ahead(sources, (in_vain / 2).min(AHEAD));
            }
            let following = ahead
                .pop_front()
                .or_else(|| next(sources).map(|(from, candidate)| (from, candidate, None)));
            let Some((from, candidate, seen)) = following else {
                if sources.iter().any(|source| source.cut) {
                    self.found.truncated = true;
                }
                if self.full_after.is_some() {
                    self.full_after = Some(Counted::All);
                }
                return Ok(());
            };
            let Some(source) = sources.get(from.source) else {
                return Ok(());
            };
            let Candidate {
                class,
                path,
                indexed,
            } = candidate;
            if !self.query.filter.admits_path(path) {
                continue;
            }
            let mut after_line = 0;
            if let Some(after) = &self.query.after {
                match (class, path, source.repo).cmp(&(
                    after.class,
                    after.path.as_str(),
                    after.repo,
                )) {
                    std::cmp::Ordering::Less => continue,
                    std::cmp::Ordering::Equal if after.line == u64::MAX => continue,
                    std::cmp::Ordering::Equal => after_line = after.line,
                    std::cmp::Ordering::Greater => {}
                }
            }
            looked_at = looked_at.wrapping_add(1);
            if looked_at & 0x3f == 0 {
                cancel.check()?;
            }
            if self.is_spent(class, source.repo, path, after_line) {
                return Ok(());
            }
            if let Some(Counted::Some(files)) = self.full_after {
                self.full_after = Some(Counted::Some(files + 1));
            }
            let seen = match seen {
                Some(seen) => seen,
                // Where most files have a match, looking at parts first is one look too many.
                None if with_match > in_vain && is_small(indexed.as_ref()) => Look::Read,
                None => {
                    let (seen, bytes) = self.looker().look(
                        &source.reader,
                        path,
                        indexed.as_ref(),
                        Depth::Parts,
                        &mut buffer,
                    );
                    self.bytes += bytes;
                    seen
                }
            };
            if seen == Look::Nothing {
                in_vain += 1;
                read_in_vain(sources, from)?;
                continue;
            }
            let known = indexed.and_then(|indexed| indexed.stamp);
            let (content, stamp) = source.reader.read_known(path, known, &mut buffer);
            self.bytes += buffer.len() as u64;
            if !matches!(content, Content::Text) || !self.query.filter.admits_time(stamp.modified) {
                continue;
            }
            self.matching(&buffer, &mut lines)?;
            if lines.is_empty() {
                in_vain += 1;
                read_in_vain(sources, from)?;
                continue;
            }
            with_match += 1;
            lines.retain(|line| *line > after_line);
            if lines.is_empty() {
                continue;
            }
            if self.full_after.is_some() {
                self.counted += lines.len() as u64;
                continue;
            }
            self.take(source, class, path, &buffer, &lines);
            if self.full_after.is_some() {
                count_on(sources)?;
            }
        }
    }

    fn looker(&mut self) -> Looker<'_> {
        Looker {
            in_parts: self.in_parts,
            matcher: &self.query.pattern.matcher,
            searcher: &mut self.searcher,
        }
    }

    /// Takes the next candidates and looks at them on several threads: where many files have to be
    /// read for a few hits, each of the cores can do its share. What was found is used in order, so
    /// the answer is the same.
    fn look_ahead<'b>(&mut self, sources: &mut [Source<'b>], most: usize) -> Ahead<'b> {
        let mut ahead = Ahead::new();
        while ahead.len() < most {
            let Some((from, candidate)) = next(sources) else {
                break;
            };
            if self.query.filter.admits_path(candidate.path) {
                ahead.push_back((from, candidate, None));
            }
        }
        let threads = threads().min(ahead.len() / AHEAD_EACH);
        if threads < 2 {
            return ahead;
        }
        let readers: Vec<&Reader<'_>> = sources.iter().map(|source| &source.reader).collect();
        let (in_parts, query) = (self.in_parts, self.query);
        let room = limits::VERIFY_BYTES.saturating_sub(self.bytes);
        let spent = AtomicU64::new(0);
        let shares = Mutex::new(ahead.make_contiguous().chunks_mut(AHEAD_SHARE));
        let next_share = || shares.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            // A copy has its own memory; sharing one would be contended.
            let matcher = query.pattern.matcher.clone();
            let mut searcher = searcher();
            let mut looker = Looker {
                in_parts,
                matcher: &matcher,
                searcher: &mut searcher,
            };
            let mut buffer = Vec::new();
            while let Some(share) = next_share() {
                for (from, candidate, seen) in share {
                    let late = query
                        .deadline
                        .is_some_and(|deadline| std::time::Instant::now() >= deadline);
                    // What is left over is looked at in its turn, if at all.
                    if late || spent.load(Ordering::Relaxed) > room {
                        return;
                    }
                    let Some(reader) = readers.get(from.source) else {
                        return;
                    };
                    let (look, bytes) = looker.look(
                        reader,
                        candidate.path,
                        candidate.indexed.as_ref(),
                        Depth::Whole,
                        &mut buffer,
                    );
                    spent.fetch_add(bytes, Ordering::Relaxed);
                    *seen = Some(look);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        self.bytes += spent.into_inner();
        ahead
    }

    /// Ends the answer before this file if a budget is used up.
    fn is_spent(&mut self, class: u8, repo: usize, path: &str, after_line: u64) -> bool {
        match self.full_after {
            Some(Counted::Some(files)) => {
                return files >= limits::COUNT_ON_FILES;
            }
            Some(Counted::All) => return true,
            None => {}
        }
        let late = self
            .query
            .deadline
            .is_some_and(|deadline| std::time::Instant::now() >= deadline);
        if !late && self.bytes <= limits::VERIFY_BYTES {
            return false;
        }
        self.found.truncated = true;
        self.found.notes.push(if late {
            "the scan of the files ran out of time; the cursor goes on from there".to_owned()
        } else {
            "the search read as much as one call may; the cursor goes on from there".to_owned()
        });
        // The file at hand was not looked at: the cursor stands just before it.
        let before = LineCursor {
            listing: self.query.listing,
            counted: self.counted,
            class,
            repo,
            path: path.to_owned(),
            line: after_line,
        };
        self.found.cursor = Some(before.encode());
        true
    }

    fn matching(&mut self, text: &[u8], lines: &mut Vec<u64>) -> Result<(), Problem> {
        lines.clear();
        self.searcher
            .search_slice(&self.query.pattern.matcher, text, Numbers(lines))
            .map_err(|error| failed(&error))
    }

    /// Turns the matching lines of a file into hits, until the answer is full.
    fn take(&mut self, source: &Source<'_>, class: u8, path: &str, text: &[u8], numbers: &[u64]) {
        let lines = Lines::new(text);
        let context = self.query.context;
        let mut rest = numbers;
        while let Some(first) = rest.first().copied() {
            let mut length = 1;
            for pair in rest.windows(2) {
                let [a, b] = pair else { break };
                if b - a > 2 * context + 1 || b - first >= limits::HIT_LINES {
                    break;
                }
                length += 1;
            }
            let (group, after) = rest.split_at(length);
            let last = group.last().copied().unwrap_or(first);
            let start = first.saturating_sub(context).max(1);
            let end = (last + context).min(lines.count()).max(last);
            let room = self.query.max_bytes.saturating_sub(self.snippet_bytes);
            let whole = lines.snippet(start, end, usize::MAX);
            let full = self.found.hits.len() >= self.query.limit;
            // One hit is always given, cut if need be: else a cursor would never move.
            if full || whole.len() > room && !self.found.hits.is_empty() {
                self.fill_up(source, class, path, numbers, rest);
                return;
            }
            let snippet = match whole.len() > room {
                true => lines.snippet(start, end, room),
                false => whole,
            };
            self.snippet_bytes += snippet.len();
            self.counted += group.len() as u64;
            let score = round_score(1.0 - f64::from(class) / 10.0);
            let after_hit = LineCursor {
                listing: self.query.listing,
                counted: self.counted,
                class,
                repo: source.repo,
                path: path.to_owned(),
                line: last,
            };
            self.found.hits.push(Hit {
                after: after_hit.encode(),
                repo: source.name.to_owned(),
                path: path.to_owned(),
                start_line: start,
                end_line: end,
                symbol: None,
                owner: None,
                kind: None,
                lang: Lang::of_path(path).name(),
                score,
                snippet,
                match_lines: group.to_vec(),
                why: self.query.explain.then(|| {
                    serde_json::json!({
                        "class": crate::tree::class::classify(path).name(),
                        "case": if self.query.pattern.insensitive { "insensitive" } else { "sensitive" },
                    })
                }),
            });
            rest = after;
        }
    }

    /// The answer is full inside a file whose lines `rest` are left.
    fn fill_up(
        &mut self,
        source: &Source<'_>,
        class: u8,
        path: &str,
        numbers: &[u64],
        rest: &[u64],
    ) {
        let given = numbers.len() - rest.len();
        let line = given.checked_sub(1).and_then(|at| numbers.get(at)).copied();
        let (class, repo, path, line) = match line {
            Some(line) => (class, source.repo, path.to_owned(), line),
            // Nothing of this file was given; a cursor at its beginning is the same place.
            None => (
                class,
                source.repo,
                path.to_owned(),
                self.query
                    .after
                    .as_ref()
                    .filter(|after| {
                        after.path == path && after.repo == source.repo && after.line != u64::MAX
                    })
                    .map_or(0, |after| after.line),
            ),
        };
        self.found.truncated = true;
        let cursor = LineCursor {
            listing: self.query.listing,
            counted: self.counted,
            class,
            repo,
            path,
            line,
        };
        self.found.cursor = Some(cursor.encode());
        self.counted += rest.len() as u64;
        self.full_after = Some(Counted::Some(0));
    }
}

fn failed(error: &std::io::Error) -> Problem {
    Problem::new(ErrorKind::Internal, format!("the search failed: {error}"))
}

/// Collects the numbers of matching lines.
struct Numbers<'a>(&'a mut Vec<u64>);

impl Sink for Numbers<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, std::io::Error> {
        self.0.extend(found.line_number());
        Ok(true)
    }
}
