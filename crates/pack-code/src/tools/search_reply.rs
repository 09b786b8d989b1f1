//! The answer of `search`, for programs and for people.

use std::time::Instant;

use mainstay_worker::{Porcelain, Reply, render};
use serde_json::{Value, json};

use crate::limits;
use crate::query::auto::Chosen;
use crate::query::{Found, Hit, Relation};
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
    let exact = matches!(request.chosen, Chosen::Literal | Chosen::Regex);
    if !unsearched.is_empty() {
        let names: Vec<&str> = unsearched.iter().map(|(name, _)| *name).collect();
        found.notes.push(format!(
            "not searched, because it cannot be used: {}; check_status says what to do",
            names.join(", ")
        ));
    }
    let elapsed = started.elapsed().as_secs_f64() * 1000.0;
    let mut value = json!({
        "kind": request.chosen.name(), "total": found.total,
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
    if answer.found.divisible {
        let most = answer.found.hits.len();
        return Reply::page(answer, most, Answer::json, Answer::porcelain);
    }
    let hits = answer.found.hits.len();
    Reply::json(&answer.json(hits)).porcelain(move || answer.porcelain(hits))
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
    /// The cursor of an answer with this many hits.
    fn cursor(&self, hits: usize) -> Option<&str> {
        if hits == self.found.hits.len() {
            return self.found.cursor.as_deref();
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
            let truncated = self.found.truncated || hits < self.found.hits.len();
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
        let in_scope = view.skipped().iter().filter(|(_, path)| {
            request
                .filter
                .admits(path, crate::tree::lang::Lang::of_path(path))
        });
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
        let exact = matches!(kind, Chosen::Literal | Chosen::Regex);
        let n = usize::try_from(found.total.value).unwrap_or(usize::MAX);
        let what = match kind {
            Chosen::Literal | Chosen::Regex => render::count(n, "matching line", "matching lines"),
            Chosen::Symbol => render::count(n, "definition", "definitions"),
            Chosen::Ranked | Chosen::Path => render::count(n, "file", "files"),
        };
        let least = if found.total.relation == Relation::AtLeast {
            "at least "
        } else {
            ""
        };
        let summary = format!(
            "{least}{what} ({}), {} shown",
            kind.name(),
            render::count(hits, "hit", "hits")
        );
        let mut porcelain = Porcelain::summary(summary);
        let mut last = None;
        for hit in self.hits(hits) {
            let place = match self.several {
                true => format!("{}/{}", hit.repo, hit.path),
                false => hit.path.clone(),
            };
            let title = match (&hit.symbol, hit.kind) {
                (Some(symbol), Some(kind)) => format!("{place}  [{kind} {symbol}]"),
                _ => place.clone(),
            };
            if last.as_ref() != Some(&title) {
                porcelain = porcelain.section(&title);
                last = Some(title);
            }
            porcelain = lines(porcelain, hit, exact && self.context == 0);
        }
        for note in &found.notes {
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
            (None, Some(hit)) => porcelain.hint(format!("show_file {} reads on", hit.path)),
        }
    }
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
