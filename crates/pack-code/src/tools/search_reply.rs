//! The answer of `search`, for programs and for people.

use std::time::Instant;

use mainstay_worker::{Porcelain, Reply, render};
use serde_json::{Value, json};

use crate::limits;
use crate::query::auto::Chosen;
use crate::query::history::Commit;
use crate::query::{Confidence, Found, Hit, Relation};
use crate::tools::search::{Request, Seen};
use crate::tree::file::Skip;

pub(crate) fn reply(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    unsearched: &[(&str, &str)],
    mut found: Found,
    started: Instant,
) -> Reply {
    let generation = seen
        .iter()
        .filter_map(|seen| seen.view.as_ref())
        .map(|view| view.generation.manifest.generation)
        .max();
    // A scan reads the tree itself: it is fresh unless it was cut.
    let fresh = seen.iter().all(|seen| {
        seen.view
            .as_ref()
            .is_none_or(|view| view.freshness.is_fresh())
    });
    let reason = seen
        .iter()
        .filter_map(|seen| seen.view.as_ref())
        .find_map(|view| view.freshness.reason());
    let exact = request.chosen.is_exact();
    if let Some(lead) = &found.lead {
        found.notes.insert(0, lead.clone());
    }
    if !unsearched.is_empty() {
        let names: Vec<&str> = unsearched.iter().map(|(name, _)| *name).collect();
        found.notes.push(format!(
            "not searched, because it cannot be used: {}; check_status says what to do",
            names.join(", ")
        ));
    }
    let elapsed = started.elapsed().as_secs_f64() * 1000.0;
    let mut value = json!({
        "kind": request.chosen.name(), "confidence": found.confidence, "total": found.total,
        "generation": generation.unwrap_or(0), "fresh": fresh, "scanned": found.scanned,
        "elapsed_ms": (elapsed * 1000.0).round() / 1000.0,
    });
    if let Some(object) = value.as_object_mut() {
        if let Some(reason) = reason {
            object.insert("stale_reason".to_owned(), json!(reason));
        }
        if exact && let Some(skipped) = skipped(request, seen) {
            object.insert("skipped".to_owned(), skipped);
        }
        if !unsearched.is_empty() {
            let named: Vec<Value> = unsearched
                .iter()
                .map(|(repo, reason)| json!({"repo": repo, "reason": reason}))
                .collect();
            object.insert("unsearched".to_owned(), json!(named));
        }
        if !found.definitions.is_empty() {
            object.insert("definitions".to_owned(), json!(found.definitions));
        }
        if !found.notes.is_empty() {
            object.insert("notes".to_owned(), json!(found.notes));
        }
    }
    let answer = Answer {
        kind: request.chosen,
        context: request.arguments.context,
        several: seen.len() > 1,
        reason,
        skips: value
            .get("skipped")
            .and_then(|skipped| skipped.get("count"))
            .and_then(Value::as_u64)
            .unwrap_or(0),
        found,
        value,
    };
    let most = answer.items();
    if answer.found.divisible || answer.kind == Chosen::History && most > 0 {
        return Reply::page(answer, most, Answer::json, Answer::porcelain);
    }
    Reply::json(&answer.json(most)).porcelain(move || answer.porcelain(most))
}

/// Everything that was found, of which an answer has the first hits.
struct Answer {
    kind: Chosen,
    context: u64,
    several: bool,
    reason: Option<&'static str>,
    skips: u64,
    found: Found,
    /// All members but those that depend on the number of hits.
    value: Value,
}

impl Answer {
    /// How many hits were found, or commits.
    fn items(&self) -> usize {
        match self.kind {
            Chosen::History => self.found.commits.len(),
            _ => self.found.hits.len(),
        }
    }

    fn commits(&self, most: usize) -> &[Commit] {
        self.found
            .commits
            .get(..most)
            .unwrap_or(&self.found.commits)
    }

    /// The cursor of an answer with this many hits, or commits.
    fn cursor(&self, hits: usize) -> Option<&str> {
        if hits == self.items() {
            return self.found.cursor.as_deref();
        }
        if self.kind == Chosen::History {
            let last = self.commits(hits).last();
            return last.map(|commit| commit.after.as_str());
        }
        let last = hits.checked_sub(1).and_then(|at| self.found.hits.get(at));
        last.map(|hit| hit.after.as_str())
    }

    fn hits(&self, hits: usize) -> &[Hit] {
        self.found.hits.get(..hits).unwrap_or(&self.found.hits)
    }

    fn json(&self, hits: usize) -> Value {
        let mut value = self.value.clone();
        if let Some(object) = value.as_object_mut() {
            let truncated = self.found.truncated || hits < self.items();
            if self.kind == Chosen::History {
                object.insert("commits".to_owned(), json!(self.commits(hits)));
            }
            object.insert("hits".to_owned(), json!(self.hits(hits)));
            object.insert("truncated".to_owned(), json!(truncated));
            if let Some(cursor) = self.cursor(hits) {
                object.insert("cursor".to_owned(), json!(cursor));
            }
        }
        value
    }
}

/// Files in scope that were not searched.
fn skipped(request: &Request<'_>, seen: &[Seen<'_>]) -> Option<Value> {
    let mut files: Vec<(Skip, &str, &str)> = Vec::new();
    for seen in seen {
        let Some(view) = &seen.view else { continue };
        let in_scope = view
            .skipped()
            .iter()
            .filter(|(_, path)| request.filter.admits_path(path));
        files.extend(in_scope.map(|(skip, path)| (*skip, seen.name, path.as_str())));
    }
    if files.is_empty() {
        return None;
    }
    files.sort_unstable();
    let named: Vec<Value> = files
        .iter()
        .take(limits::NAMED_SKIPS)
        .map(|(skip, repo, path)| json!({"repo": repo, "path": path, "reason": skip.name()}))
        .collect();
    Some(json!({"count": files.len(), "files": named}))
}

impl Answer {
    fn porcelain(&self, hits: usize) -> Porcelain {
        let Self { kind, found, .. } = self;
        let mut porcelain = Porcelain::summary(self.summary(hits));
        porcelain = match kind {
            Chosen::References => self.references(porcelain, hits),
            Chosen::History => porcelain.items(self.commits(hits).iter().map(commit_line)),
            _ => self.sections(porcelain, hits),
        };
        // The summary already has the lead, which is the first note.
        for note in found.notes.iter().skip(usize::from(found.lead.is_some())) {
            porcelain = porcelain.note(note);
        }
        if let Some(reason) = self.reason {
            porcelain = porcelain.note(format!("not known to be fresh: {reason}"));
        }
        if self.skips > 0 {
            porcelain = porcelain.note(format!(
                "{} in scope not searched; the structured result names them",
                render::count(
                    usize::try_from(self.skips).unwrap_or(usize::MAX),
                    "file",
                    "files"
                )
            ));
        }
        match (self.cursor(hits), found.hits.first()) {
            (Some(cursor), _) => porcelain.hint(format!("more with cursor {cursor}")),
            (None, None) => porcelain.hint(
                "try other words, kind regex, or case insensitive; index_status says what is indexed",
            ),
            (None, Some(hit)) => porcelain.hint(format!("show_file {} reads on", self.place(hit))),
        }
    }

    /// The file of a hit as the text names it.
    fn place(&self, hit: &Hit) -> String {
        match self.several {
            true => format!("{}/{}", hit.repo, hit.path),
            false => hit.path.clone(),
        }
    }

    /// The hits with their lines, under the names of their files and definitions.
    fn sections(&self, mut porcelain: Porcelain, hits: usize) -> Porcelain {
        let plain = self.kind.is_exact() && self.context == 0;
        let mut last = None;
        for hit in self.hits(hits) {
            let place = self.place(hit);
            let owner = hit
                .owner
                .as_deref()
                .map_or_else(String::new, |owner| format!("{owner}."));
            let title = match (&hit.symbol, hit.kind) {
                (Some(symbol), Some(kind)) => format!("{place}  [{kind} {owner}{symbol}]"),
                _ => place,
            };
            if last.as_ref() != Some(&title) {
                porcelain = porcelain.section(&title);
                last = Some(title);
            }
            porcelain = lines(porcelain, hit, plain);
        }
        porcelain
    }
}

/// Definitions that the text of a references answer lists above the other places.
const LISTED_DEFINITIONS: usize = 10;

impl Answer {
    /// The first line: how much was found, how far that is what was asked for, and how much is shown.
    fn summary(&self, hits: usize) -> String {
        let Self { kind, found, .. } = self;
        let n = usize::try_from(found.total.value).unwrap_or(usize::MAX);
        let what = match kind {
            Chosen::Literal | Chosen::Regex => render::count(n, "matching line", "matching lines"),
            Chosen::Symbol => render::count(n, "definition", "definitions"),
            Chosen::Ranked | Chosen::Path => render::count(n, "file", "files"),
            Chosen::References => render::count(n, "line", "lines"),
            Chosen::History => render::count(n, "commit", "commits"),
        };
        let is_cut = hits < self.items();
        let shown = match kind {
            Chosen::History => format!(", {hits} shown"),
            _ => format!(", {} shown", render::count(hits, "hit", "hits")),
        };
        if let Some(lead) = &found.lead {
            let guessed = matches!(found.confidence, Confidence::None | Confidence::Guess);
            return match (guessed, is_cut || hits < n) {
                (true, _) if is_cut => format!("{lead}{shown}"),
                (true, _) => lead.clone(),
                (false, true) => format!("{lead}: {what}{shown}"),
                (false, false) => format!("{lead}: {what}"),
            };
        }
        let least = match found.total.relation {
            Relation::AtLeast => "at least ",
            Relation::Exact => "",
        };
        let all = match kind {
            // The lines of definitions count but are not among the hits.
            Chosen::References | Chosen::History => !is_cut,
            _ => hits == n,
        };
        match all && found.total.relation == Relation::Exact {
            true => format!("{what} ({})", kind.name()),
            false => format!("{least}{what} ({}){shown}", kind.name()),
        }
    }

    /// Definitions, then every other place by file, each with what the name does there.
    fn references(&self, mut porcelain: Porcelain, hits: usize) -> Porcelain {
        let definitions = &self.found.definitions;
        for hit in definitions.iter().take(LISTED_DEFINITIONS) {
            let line = hit.snippet.lines().next().unwrap_or_default();
            let title = format!(
                "definition {}:{}",
                self.place(hit),
                hit.match_lines.first().unwrap_or(&0)
            );
            porcelain = porcelain.field(&title, line.trim());
        }
        let mut last = None;
        for hit in self.hits(hits) {
            let title = self.place(hit);
            if last.as_ref() != Some(&title) {
                porcelain = porcelain.section(&title);
                last = Some(title);
            }
            let within = hit
                .symbol
                .as_deref()
                .map_or_else(String::new, |name| format!(" in {name}"));
            let key = format!(
                "{} {}{within}",
                hit.start_line,
                hit.kind.unwrap_or("mention")
            );
            porcelain = porcelain.field(&key, hit.snippet.trim());
        }
        match definitions.len().saturating_sub(LISTED_DEFINITIONS) {
            0 => porcelain,
            more => porcelain.note(format!(
                "{} not listed here; the structured result has them",
                render::count(more, "more definition", "more definitions")
            )),
        }
    }
}

fn commit_line(commit: &Commit) -> String {
    let files = match commit.files.is_empty() {
        true => String::new(),
        false => format!(" ({})", commit.files.join(", ")),
    };
    format!(
        "{} {} {}: {} [{}]{files}",
        commit.commit,
        commit.date,
        commit.author,
        commit.subject,
        commit.matched.name()
    )
}

fn lines(mut porcelain: Porcelain, hit: &Hit, plain: bool) -> Porcelain {
    for (number, line) in (hit.start_line..).zip(hit.snippet.split('\n')) {
        let marked = if plain || !hit.match_lines.contains(&number) {
            ""
        } else {
            "*"
        };
        porcelain = porcelain.field(&format!("{number}{marked}"), line.replace('\t', "    "));
    }
    porcelain
}
