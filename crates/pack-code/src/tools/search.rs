//! `search`.

use std::sync::Arc;
use std::time::Instant;

use mainstay_worker::{Context, ErrorKind, Porcelain, Problem, Reply, render};
use serde_json::{Value, json};

use crate::fresh::repo::Repo;
use crate::limits;
use crate::query::auto::{Chosen, choose};
use crate::query::cursor::Cursor;
use crate::query::filter::{Filter, globs, instant, langs};
use crate::query::pattern::{Pattern, Patterns};
use crate::query::plan::Plan;
use crate::query::{Found, Hit, Relation, exact, feed, path, ranked, symbol};
use crate::store::codec::checksum;
use crate::store::table::KEY_BYTES;
use crate::text::defs::Kind;
use crate::tools::internal;
use crate::tools::search_spec::{Arguments, KindArgument};
use crate::tree::class::classify;
use crate::tree::file::Skip;
use crate::tree::walk::Walk;
use crate::view::View;
use crate::workspace::Workspace;

/// A repository as a search sees it.
struct Seen<'a> {
    number: usize,
    name: &'a str,
    repo: &'a Arc<Repo>,
    view: Option<Arc<View>>,
}

/// Everything that the arguments say, checked.
struct Request<'a> {
    arguments: &'a Arguments,
    patterns: &'a Patterns,
    chosen: Chosen,
    text: String,
    filter: Filter,
    kinds: Vec<Kind>,
    limit: usize,
    max_bytes: usize,
    fingerprint: u32,
    after: Option<Cursor>,
}

pub(crate) fn call(
    workspace: &Workspace,
    arguments: &Arguments,
    context: &Context,
) -> Result<Reply, Problem> {
    let started = Instant::now();
    let mut request = check(arguments, &workspace.patterns)?;
    let members = workspace.several(&arguments.repo)?;
    let mut seen: Vec<Seen<'_>> = Vec::new();
    for (member, repo) in members {
        let number = workspace
            .members
            .iter()
            .position(|known| known.alias == member.alias)
            .unwrap_or(0);
        seen.push(Seen {
            number,
            name: &member.alias,
            repo,
            view: repo.first_view(),
        });
    }
    context.check()?;
    let mut found = match run(&request, &seen, context, started) {
        Err(problem) if problem.kind == ErrorKind::Internal && forget_damaged(&mut seen) => {
            run(&request, &seen, context, started)?
        }
        found => found?,
    };
    // What looked like code may have been prose.
    let auto = arguments.kind == KindArgument::Auto
        && request.after.is_none()
        && arguments.symbol_kind.is_empty();
    let indexed = seen.iter().any(|seen| seen.view.is_some());
    if auto
        && found.hits.is_empty()
        && !found.truncated
        && request.chosen != Chosen::Ranked
        && indexed
    {
        let before = request.chosen;
        for kind in [Chosen::Literal, Chosen::Ranked] {
            if kind == before {
                continue;
            }
            request.chosen = kind;
            arguments.query.trim().clone_into(&mut request.text);
            found = run(&request, &seen, context, started)?;
            if !found.hits.is_empty() {
                found.notes.push(format!(
                    "nothing as {}; this is the {} answer",
                    before.name(),
                    kind.name()
                ));
                break;
            }
        }
    }
    Ok(reply(&request, &seen, found, started))
}

/// Leaves out the indexes that turned out to be damaged; says whether there were any.
fn forget_damaged(seen: &mut [Seen<'_>]) -> bool {
    let mut any = false;
    for seen in seen {
        if seen.view.is_some() && seen.repo.tracker.error().is_some() {
            seen.view = None;
            any = true;
        }
    }
    any
}

fn check<'a>(arguments: &'a Arguments, patterns: &'a Patterns) -> Result<Request<'a>, Problem> {
    let invalid = |message: &str| Problem::new(ErrorKind::InvalidArguments, message.to_owned());
    if arguments.query.trim().is_empty() {
        return Err(invalid("the query is empty").with_hint("say what to look for"));
    }
    if arguments.query.len() > limits::QUERY_BYTES {
        return Err(invalid("the query is too long").with_hint("look for a part of it"));
    }
    let kinds = arguments
        .symbol_kind
        .iter()
        .map(|name| {
            Kind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
                .ok_or_else(|| invalid(&format!("there is no symbol_kind {name:?}")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let query = arguments.query.clone();
    let (chosen, text) = match arguments.kind {
        KindArgument::Auto if !kinds.is_empty() => (Chosen::Symbol, query),
        KindArgument::Auto => choose(&arguments.query),
        KindArgument::Literal => (Chosen::Literal, query),
        KindArgument::Regex => (Chosen::Regex, query),
        KindArgument::Ranked => (Chosen::Ranked, query),
        KindArgument::Symbol => (Chosen::Symbol, query),
        KindArgument::Path => (Chosen::Path, query),
    };
    if !kinds.is_empty() && chosen != Chosen::Symbol {
        return Err(
            invalid("symbol_kind goes only with kind symbol").with_hint("leave one of them out")
        );
    }
    if text.len() > KEY_BYTES && chosen == Chosen::Symbol {
        return Err(invalid("no symbol has a name that long"));
    }
    let filter = Filter {
        paths: globs(&arguments.path, "path")?,
        excluded: globs(&arguments.exclude, "exclude")?,
        langs: langs(&arguments.lang)?,
        modified_since: arguments
            .modified_since
            .as_deref()
            .map(instant)
            .transpose()?,
    };
    // What makes another listing: all but how much of it is given at once.
    let identity = json!([
        arguments.query,
        arguments.kind,
        arguments.repo,
        arguments.path,
        arguments.exclude,
        arguments.lang,
        arguments.symbol_kind,
        format!("{:?}", arguments.case),
        arguments.modified_since,
    ]);
    let fingerprint = checksum(identity.to_string().as_bytes());
    let after = arguments
        .cursor
        .as_deref()
        .map(|cursor| Cursor::decode(cursor, fingerprint))
        .transpose()?;
    Ok(Request {
        chosen,
        text,
        filter,
        kinds,
        limit: arguments.limit.unwrap_or(20).clamp(1, limits::HITS),
        max_bytes: arguments
            .max_bytes
            .unwrap_or(limits::SNIPPET_BYTES)
            .clamp(1, limits::MAX_SNIPPET_BYTES),
        fingerprint,
        after,
        arguments,
        patterns,
    })
}

fn run(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    match request.chosen {
        Chosen::Literal => {
            let pattern = request
                .patterns
                .literal(&request.text, request.arguments.case)?;
            run_exact(request, &pattern, seen, context, started)
        }
        Chosen::Regex => {
            let pattern = request
                .patterns
                .regex(&request.text, request.arguments.case)?;
            run_exact(request, &pattern, seen, context, started)
        }
        Chosen::Ranked | Chosen::Symbol | Chosen::Path => {
            run_scored(request, seen, context, started)
        }
    }
}

fn run_exact(
    request: &Request<'_>,
    pattern: &Pattern,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    let plan = Plan::of(&pattern.hir);
    let unindexed = seen.iter().any(|seen| seen.view.is_none());
    let deadline = unindexed.then(|| started + limits::FIRST_BUILD_WAIT + limits::SCAN_TIME);
    let mut listings = Vec::new();
    for seen in seen {
        listings.push(match &seen.view {
            Some(_) => (Vec::new(), false),
            None => list(seen.repo, deadline),
        });
    }
    let query = exact::Exact {
        pattern,
        filter: &request.filter,
        context: request.arguments.context.min(limits::CONTEXT_LINES as u64),
        limit: request.limit,
        max_bytes: request.max_bytes,
        after: request.after.clone(),
        fingerprint: request.fingerprint,
        explain: request.arguments.explain,
        deadline,
    };
    let mut sources = Vec::new();
    for (seen, (files, cut)) in seen.iter().zip(&listings) {
        let feeds = match &seen.view {
            Some(view) => feed::indexed(view, &plan).map_err(|error| damaged(seen.repo, &error))?,
            None => feed::listed(files),
        };
        sources.push(feed::Source {
            repo: seen.number,
            name: seen.name,
            reader: seen.repo.reader(),
            feeds,
            cut: *cut,
        });
    }
    let mut found = exact::search(&mut sources, &query, context.cancel())
        .map_err(|failed| problem(failed, seen))?;
    found.scanned = unindexed || plan == Plan::Any;
    if plan == Plan::Any && !unindexed {
        found.notes.push("the pattern has no three characters in a row that the index could use: files were scanned".to_owned());
    }
    Ok(found)
}

/// The files of a tree that has no index, sorted by class and path, and whether some are missing.
fn list(repo: &Repo, deadline: Option<Instant>) -> (Vec<(u8, String)>, bool) {
    let mut walk = Walk::new(&repo.place.root, repo.place.rules);
    // Listing may take half of the time that is left, so that some files are read, too.
    walk.deadline = deadline.map(|deadline| {
        let now = Instant::now();
        now + deadline.saturating_duration_since(now) / 2
    });
    let listing = walk.run();
    let mut files: Vec<(u8, String)> = listing
        .files
        .into_iter()
        .map(|found| (classify(&found.path).number(), found.path))
        .collect();
    files.sort_unstable();
    (files, listing.cut)
}

/// A damaged index is given up; the keeper builds it anew.
fn damaged(repo: &Arc<Repo>, error: &crate::store::StoreError) -> Problem {
    repo.tracker.give_up(error);
    repo.keeper.ask(crate::build::Request {
        full: true,
        ..crate::build::Request::default()
    });
    internal(error)
}

/// What a caller is told of a query that failed.
fn problem(failed: ranked::Failed, seen: &[Seen<'_>]) -> Problem {
    match failed {
        ranked::Failed::Problem(problem) => problem,
        ranked::Failed::Store(number, error) => match seen.get(number) {
            Some(seen) => damaged(seen.repo, &error),
            None => internal(&error),
        },
    }
}

fn run_scored(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    let missing: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.view.is_none()).collect();
    if !missing.is_empty() {
        return without_index(request, seen, &missing, context, started);
    }
    let sources: Vec<ranked::Source<'_>> = seen
        .iter()
        .filter_map(|seen| {
            Some(ranked::Source {
                repo: seen.number,
                name: seen.name,
                view: seen.view.as_deref()?,
                reader: seen.repo.reader(),
            })
        })
        .collect();
    let arguments = request.arguments;
    let offset = request.after.as_ref().map_or(0, |cursor| {
        usize::try_from(cursor.counted).unwrap_or(usize::MAX)
    });
    let context_lines = arguments.context.min(limits::CONTEXT_LINES as u64);
    let result = match request.chosen {
        Chosen::Path => path::search(
            &sources,
            &path::PathQuery {
                text: &request.text,
                case: arguments.case,
                filter: &request.filter,
                context: context_lines,
                limit: request.limit,
                max_bytes: request.max_bytes,
                offset,
                explain: arguments.explain,
            },
        )
        .map_err(ranked::Failed::Problem),
        Chosen::Symbol => symbol::search(
            &sources,
            &symbol::SymbolQuery {
                text: &request.text,
                kinds: &request.kinds,
                case: arguments.case,
                filter: &request.filter,
                context: context_lines,
                limit: request.limit,
                max_bytes: request.max_bytes,
                offset,
                explain: arguments.explain,
            },
            context.cancel(),
        ),
        _ => ranked::search(
            &sources,
            &ranked::Ranked {
                text: &request.text,
                filter: &request.filter,
                context: context_lines,
                limit: request.limit,
                max_bytes: request.max_bytes,
                offset,
                explain: arguments.explain,
            },
            context.cancel(),
        ),
    };
    let mut found = result.map_err(|failed| problem(failed, seen))?;
    if found.truncated {
        let next = Cursor {
            fingerprint: request.fingerprint,
            counted: (offset + found.hits.len()) as u64,
            class: 0,
            repo: 0,
            path: String::new(),
            line: 0,
        };
        found.cursor = Some(next.encode());
    }
    Ok(found)
}

/// A ranked question before there is an index: `auto` falls back to a scan for its rarest word,
/// what was asked for by name says that it needs the index.
fn without_index(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    missing: &[&Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    let progress = missing
        .iter()
        .filter_map(|seen| seen.repo.keeper.current())
        .map(|progress| progress.snapshot())
        .next();
    let how_far = progress.map(|job| {
        format!(
            "{} of {} files are indexed",
            job.files_done, job.files_total
        )
    });
    if request.arguments.kind != KindArgument::Auto {
        let names: Vec<&str> = missing.iter().map(|seen| seen.name).collect();
        return Err(Problem::new(
            ErrorKind::NoIndex,
            format!(
                "{} search needs the index of {}, which is being built",
                request.chosen.name(),
                names.join(", ")
            ),
        )
        .with_hint(format!(
            "{}; repeat the call in a moment, or search with kind literal or regex meanwhile",
            how_far.unwrap_or_else(|| "the build has just begun".to_owned())
        )));
    }
    // The longest word is the one that says most.
    let word = request
        .text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .max_by_key(|word| word.len())
        .filter(|word| !word.is_empty())
        .unwrap_or(&request.text);
    let pattern = Pattern::literal(word, request.arguments.case)?;
    let mut found = run_exact(request, &pattern, seen, context, started)?;
    found.notes.push(format!(
        "the index is being built ({}): these are lines with {word:?}; repeat the call for a ranked answer",
        how_far.unwrap_or_else(|| "just begun".to_owned())
    ));
    Ok(found)
}

fn reply(request: &Request<'_>, seen: &[Seen<'_>], found: Found, started: Instant) -> Reply {
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
    let elapsed = started.elapsed().as_secs_f64() * 1000.0;
    let mut value = json!({
        "kind": request.chosen.name(), "hits": found.hits, "total": found.total, "truncated": found.truncated,
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
        render::count(found.hits.len(), "hit", "hits")
    );
    let mut porcelain = Porcelain::summary(summary);
    let mut last = None;
    for hit in &found.hits {
        let place = match several {
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
        porcelain = lines(porcelain, hit, exact && context == 0);
    }
    for note in &found.notes {
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
