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
        "kind": request.chosen.name(), "confidence": found.confidence, "hits": found.hits, "total": found.total, "truncated": found.truncated,
        "generation": generation.unwrap_or(0), "fresh": fresh, "scanned": found.scanned,
        "elapsed_ms": (elapsed * 1000.0).round() / 1000.0,
    });
    if let Some(object) = value.as_object_mut() {
        if let Some(cursor) = &found.cursor {
            object.insert("cursor".to_owned(), json!(cursor));
        }
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
        if request.chosen == Chosen::History {
            object.insert("commits".to_owned(), json!(found.commits));
        }
        if !found.notes.is_empty() {
            object.insert("notes".to_owned(), json!(found.notes));
        }
    }
    let kind = request.chosen;
    let context = request.arguments.context;
    let several = seen.len() > 1;
    let skips = value
        .get("skipped")
        .and_then(|skipped| skipped.get("count"))
        .and_then(Value::as_u64)
        .unwrap_or(0);
    Reply::json(&value).porcelain(move || porcelain(kind, &found, several, context, reason, skips))
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

fn porcelain(
    kind: Chosen,
    found: &Found,
    several: bool,
    context: u64,
    reason: Option<&str>,
    skips: u64,
) -> Porcelain {
    let exact = kind.is_exact();
    let mut porcelain = Porcelain::summary(summary(kind, found));
    let place = |hit: &Hit| match several {
        true => format!("{}/{}", hit.repo, hit.path),
        false => hit.path.clone(),
    };
    if kind == Chosen::References {
        porcelain = references(porcelain, found, place);
    } else if kind == Chosen::History {
        porcelain = porcelain.items(found.commits.iter().map(commit_line));
    } else {
        let mut last = None;
        for hit in &found.hits {
            let named = hit
                .owner
                .as_deref()
                .map_or_else(String::new, |owner| format!("{owner}."));
            let title = match (&hit.symbol, hit.kind) {
                (Some(symbol), Some(kind)) => format!("{}  [{kind} {named}{symbol}]", place(hit)),
                _ => place(hit),
            };
            if last.as_ref() != Some(&title) {
                porcelain = porcelain.section(&title);
                last = Some(title);
            }
            porcelain = lines(porcelain, hit, exact && context == 0);
        }
    }
    // The first note is the first line already, where there is a lead.
    for note in found.notes.iter().skip(usize::from(found.lead.is_some())) {
        porcelain = porcelain.note(note);
    }
    if let Some(reason) = reason {
        porcelain = porcelain.note(format!("not known to be fresh: {reason}"));
    }
    if skips > 0 {
        porcelain = porcelain.note(format!(
            "{} in scope not searched; the structured result names them",
            render::count(
                usize::try_from(skips).unwrap_or(usize::MAX),
                "file",
                "files"
            )
        ));
    }
    match (&found.cursor, found.hits.first()) {
        (Some(cursor), _) => porcelain.hint(format!("more with cursor {cursor}")),
        (None, None) => porcelain.hint(
            "try other words, kind regex, or case insensitive; index_status says what is indexed",
        ),
        (None, Some(hit)) => porcelain.hint(format!("show_file {} reads on", hit.path)),
    }
}

/// The first line: how much of what was found, and how far that is what was asked for.
fn summary(kind: Chosen, found: &Found) -> String {
    let n = usize::try_from(found.total.value).unwrap_or(usize::MAX);
    let shown = found.hits.len();
    if let Some(lead) = &found.lead {
        return match (found.confidence, kind) {
            (Confidence::None | Confidence::Guess, _) => lead.clone(),
            (_, Chosen::Symbol) => {
                format!("{lead}: {}", render::count(n, "definition", "definitions"))
            }
            _ => format!("{lead}: {}", render::count(n, "file", "files")),
        };
    }
    let what = match kind {
        Chosen::Literal | Chosen::Regex => render::count(n, "matching line", "matching lines"),
        Chosen::Symbol => render::count(n, "definition", "definitions"),
        Chosen::Ranked | Chosen::Path => render::count(n, "file", "files"),
        Chosen::References => render::count(n, "line", "lines"),
        Chosen::History => render::count(n, "commit", "commits"),
    };
    let least = match found.total.relation {
        Relation::AtLeast => "at least ",
        Relation::Exact => "",
    };
    let all = shown == n || kind == Chosen::History || kind == Chosen::References;
    match all && found.total.relation == Relation::Exact {
        true => format!("{what} ({})", kind.name()),
        false => format!(
            "{least}{what} ({}), {} shown",
            kind.name(),
            render::count(shown, "hit", "hits")
        ),
    }
}

/// Definitions, then every other place by file, each with what the name does there.
fn references(
    mut porcelain: Porcelain,
    found: &Found,
    place: impl Fn(&Hit) -> String,
) -> Porcelain {
    for hit in &found.definitions {
        let line = hit.snippet.lines().next().unwrap_or_default();
        let title = format!(
            "definition {}:{}",
            place(hit),
            hit.match_lines.first().unwrap_or(&0)
        );
        porcelain = porcelain.field(&title, line.trim());
    }
    let mut last = None;
    for hit in &found.hits {
        let title = place(hit);
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
    porcelain
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
