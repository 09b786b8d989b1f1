//! Path search: files by their names, and by a place in them (`a.rs:237`).

use std::cmp::Reverse;
use std::path::Path;

use mainstay_worker::{Problem, render};
use serde_json::json;

use crate::query::cursor::{HitCursor, HitKey, Listing, whole_score};
use crate::query::filter::{Filter, globs};
use crate::query::pattern::Case;
use crate::query::place::{Place, normal, place};
use crate::query::ranked::Source;
use crate::query::snippet::Lines;
use crate::query::{Confidence, Found, Hit, Relation, Total, resume, round_score};
use crate::tree::class::classify;
use crate::tree::file::Content;
use crate::tree::lang::Lang;

/// One path query.
#[derive(Debug)]
pub(crate) struct PathQuery<'a> {
    pub(crate) text: &'a str,
    pub(crate) case: Case,
    pub(crate) filter: &'a Filter,
    pub(crate) context: u64,
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
    pub(crate) listing: Listing,
    pub(crate) after: Option<&'a HitCursor>,
    pub(crate) explain: bool,
}

/// A file that fits.
#[derive(Debug)]
struct Entry {
    score: f64,
    path: String,
    repo: usize,
    source: usize,
    how: &'static str,
    is_sure: bool,
}

impl Entry {
    fn key(&self) -> HitKey<'_> {
        let score = Reverse(whole_score(self.score));
        (score, &self.path, self.repo, 0, "")
    }
}

/// Runs the query.
pub(crate) fn search(sources: &[Source<'_>], query: &PathQuery<'_>) -> Result<Found, Problem> {
    let (text, lines) = match place(query.text) {
        Some(Place { path, first, last }) => (path, Some((first, last))),
        None => (normal(query.text.trim()), None),
    };
    let text = text.trim_start_matches("./");
    let set = match text.contains(['*', '?', '[', '{']) {
        // A wildcard is meant wherever its folders are.
        true => globs(&[text.to_owned(), format!("**/{text}")], "query", None)?,
        false => None,
    };
    let sensitive = match query.case {
        Case::Sensitive => true,
        Case::Insensitive => false,
        Case::Smart => text.chars().any(char::is_uppercase),
    };
    let fold = |text: &str| {
        if sensitive {
            text.to_owned()
        } else {
            text.to_lowercase()
        }
    };
    let words: Vec<String> = fold(text)
        .split([' ', '\t'])
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let mut found = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let absolute = text.starts_with('/').then(|| {
            let inside = Path::new(text).strip_prefix(source.root);
            inside.map_or_else(|_| fold(text), |inside| fold(&inside.to_string_lossy()))
        });
        let mut consider = |path: &str| {
            if !query.filter.admits_path(path) {
                return;
            }
            let fit = match &set {
                Some(set) => set.is_match(path).then_some((0.9, "glob")),
                None => match &absolute {
                    Some(absolute) => fit_absolute(&fold(path), absolute),
                    None => fit(&fold(path), &words).or_else(|| fit_outer(path, text)),
                },
            };
            if let Some((fit, how)) = fit
                && query.filter.admits_time_of(&source.reader, path)
            {
                let class = f64::from(classify(path).number());
                // Of two that fit alike the shorter path is the likelier.
                let score = fit - 0.02 * class - 0.0002 * path.len().min(400) as f64;
                found.push(Entry {
                    score: round_score(score),
                    path: path.to_owned(),
                    repo: source.repo,
                    source: number,
                    how,
                    is_sure: fit >= SURE,
                });
            }
        };
        for (at, segment) in source.view.generation.segments.iter().enumerate() {
            for doc in segment
                .live_docs()
                .filter(|doc| source.view.is_live(at, *doc))
            {
                consider(segment.docs.path(doc));
            }
        }
        for (_, path, _) in source.view.changed() {
            consider(path);
        }
    }
    found.sort_by(|a, b| a.key().cmp(&b.key()));
    let sure = found.first().is_some_and(|first| first.is_sure);
    let other = [SUBSEQUENCE, LAST_NAMES, LAST_NAME];
    let named = found
        .first()
        .is_some_and(|first| !other.contains(&first.how));
    let (mut found, beyond) = page(sources, query, &found, lines);
    (found.sure, found.named) = (sure, named);
    if let Some(lead) = beyond.filter(|_| sure) {
        found.confidence = Confidence::Near;
        found.lead = Some(lead);
    }
    Ok(found)
}

/// Names at the end of two paths that make them the same file in another folder or on another
/// machine.
const SHARED_NAMES: usize = 2;
/// How a path fits that is only called so at its end.
const LAST_NAME: &str = "the last name of the path";
const LAST_NAMES: &str = "the last names of the path";

/// How well a path fits one that begins at a root, perhaps of another machine: it is the end of
/// it, or their last names are the same.
fn fit_absolute(path: &str, wanted: &str) -> Option<(f64, &'static str)> {
    if path == wanted {
        return Some((1.0, "the path"));
    }
    if wanted.ends_with(&format!("/{path}")) {
        return Some((0.95, "the end of the path"));
    }
    let pairs = path.rsplit('/').zip(wanted.rsplit('/'));
    match pairs.take_while(|(a, b)| a == b).count() {
        0 => None,
        same if same < SHARED_NAMES => Some((0.6, LAST_NAME)),
        same => Some((SURE + 0.001 * same.min(40) as f64, LAST_NAMES)),
    }
}

/// How well a path fits one that begins above the root.
fn fit_outer(path: &str, wanted: &str) -> Option<(f64, &'static str)> {
    let is_end = path.contains('/') && wanted.ends_with(&format!("/{path}"));
    is_end.then_some((0.93, "the end of the path"))
}

/// How a path fits that has only the letters of the query.
const SUBSEQUENCE: &str = "the letters in order";
/// How well a path fits whose end, or whose name, is the wanted one.
const SURE: f64 = 0.9;
/// Lines before a wanted line that are shown with it, and after it.
const BEFORE: u64 = 3;
const AFTER: u64 = 6;

/// How well a path fits: all words must be in it, best in the name of the file.
fn fit(path: &str, words: &[String]) -> Option<(f64, &'static str)> {
    if words.is_empty() {
        return None;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name);
    if let [word] = words {
        if path == word {
            return Some((1.0, "the path"));
        }
        if name == word || path.ends_with(&format!("/{word}")) {
            return Some((0.95, "the name"));
        }
        if stem == word {
            return Some((0.9, "the name without its ending"));
        }
        if name.starts_with(word.as_str()) {
            return Some((0.8, "the beginning of the name"));
        }
        if name.contains(word.as_str()) {
            return Some((0.7, "in the name"));
        }
        if path.contains(word.as_str()) {
            return Some((0.6, "in the path"));
        }
    } else if words.iter().all(|word| path.contains(word.as_str())) {
        let inside = words
            .iter()
            .filter(|word| name.contains(word.as_str()))
            .count();
        return Some((0.5 + 0.3 * inside as f64 / words.len() as f64, "all words"));
    }
    let letters: String = words.concat();
    let letters: Vec<char> = letters
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == '/')
        .collect();
    is_subsequence(path, &letters).then_some((0.2, SUBSEQUENCE))
}

fn is_subsequence(path: &str, letters: &[char]) -> bool {
    let mut wanted = letters.iter();
    let mut next = wanted.next();
    if letters.len() < 3 {
        return false;
    }
    for letter in path.chars() {
        match next {
            Some(expected) if *expected == letter => next = wanted.next(),
            Some(_) => {}
            None => break,
        }
    }
    next.is_none()
}

/// The hits of one page, and what to say if the wanted line is beyond the end of the first file.
fn page(
    sources: &[Source<'_>],
    query: &PathQuery<'_>,
    entries: &[Entry],
    wanted: Option<(u64, u64)>,
) -> (Found, Option<String>) {
    let mut beyond = None;
    let mut found = Found {
        total: Total {
            value: entries.len() as u64,
            relation: Relation::Exact,
        },
        divisible: true,
        ..Found::default()
    };
    let (first, counted) = resume(entries, query.after, Entry::key, &mut found);
    let mut bytes = 0;
    let mut buffer = Vec::new();
    let mut last: Option<&Entry> = None;
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
        let Entry { path, how, .. } = entry;
        let Some(source) = sources.get(entry.source) else {
            continue;
        };
        let (content, _) = source.reader.read(path, &mut buffer);
        let mut snippet = String::new();
        let (mut start, mut end) = (1, 1);
        let mut match_lines = Vec::new();
        if matches!(content, Content::Text) {
            let lines = Lines::new(&buffer);
            if let Some((line, _)) = wanted
                && line > lines.count()
                && found.hits.is_empty()
            {
                let all = render::count(lines.count() as usize, "line", "lines");
                beyond = Some(format!("{path} has {all}; line {line} is beyond its end"));
            }
            (start, end) = match wanted {
                Some((first, last)) => (
                    first.saturating_sub(BEFORE.max(query.context)).max(1),
                    last.saturating_add(AFTER.max(query.context)),
                ),
                None => (1, 1 + query.context),
            };
            start = start.min(lines.count()).max(1);
            end = end.min(lines.count()).max(start);
            let inside = |line: &u64| (start..=end).contains(line);
            let wanted = wanted.map(|(first, last)| first..=last.min(end));
            match_lines = wanted.into_iter().flatten().filter(inside).collect();
            snippet = lines.snippet(start, end, query.max_bytes.saturating_sub(bytes));
        }
        bytes += snippet.len();
        let counted = counted + found.hits.len() as u64 + 1;
        found.hits.push(Hit {
            after: HitCursor::after(query.listing, counted, entry.key()).encode(),
            repo: source.name.to_owned(),
            path: path.clone(),
            start_line: start,
            end_line: end,
            symbol: None,
            owner: None,
            kind: None,
            lang: Lang::of_path(path).name(),
            score: entry.score,
            snippet,
            match_lines,
            why: query
                .explain
                .then(|| json!({"match": how, "class": classify(path).name()})),
        });
    }
    (found, beyond)
}
