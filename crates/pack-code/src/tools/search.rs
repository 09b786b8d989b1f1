//! `search`.

use std::sync::Arc;
use std::time::Instant;

use mainstay_worker::{Context, ErrorKind, Problem, Reply};
use serde_json::json;

use crate::fresh::repo::Repo;
use crate::limits;
use crate::query::auto::{Chosen, choose};
use crate::query::cursor::{Cursor, Listing, Reading, not_ours};
use crate::query::filter::{Filter, globs, instant, langs};
use crate::query::pattern::{Pattern, Patterns};
use crate::query::plan::Plan;
use crate::query::{Found, Relation, exact, feed, path, ranked, symbol};
use crate::store::codec::checksum;
use crate::store::table::KEY_BYTES;
use crate::text::defs::Kind;
use crate::tools::internal;
use crate::tools::search_reply::reply;
use crate::tools::search_spec::{Arguments, KindArgument};
use crate::tree::class::classify;
use crate::tree::walk::Walk;
use crate::view::View;
use crate::workspace::Workspace;

/// A repository as a search sees it.
pub(crate) struct Seen<'a> {
    number: usize,
    pub(crate) name: &'a str,
    repo: &'a Arc<Repo>,
    pub(crate) view: Option<Arc<View>>,
}

/// Everything that the arguments say, checked.
pub(crate) struct Request<'a> {
    pub(crate) arguments: &'a Arguments,
    patterns: &'a Patterns,
    /// What the query was asked for, or looks like.
    asked: (Chosen, String),
    /// What it is searched as.
    pub(crate) chosen: Chosen,
    text: String,
    pub(crate) filter: Filter,
    kinds: Vec<Kind>,
    limit: usize,
    max_bytes: usize,
    listing: Listing,
    after: Option<Cursor>,
}

impl Request<'_> {
    /// Searches for something else that the query may mean.
    fn read_as(&mut self, reading: Reading) {
        let whole = self.arguments.query.trim();
        (self.chosen, self.text) = match reading {
            Reading::Asked => self.asked.clone(),
            Reading::Literal => (Chosen::Literal, whole.to_owned()),
            Reading::Ranked => (Chosen::Ranked, whole.to_owned()),
            Reading::Word => (Chosen::Literal, longest_word(&self.asked.1).to_owned()),
        };
        self.listing.reading = reading;
    }

    const fn is_exact(&self) -> bool {
        matches!(self.chosen, Chosen::Literal | Chosen::Regex)
    }

    /// Whether the query may be read in other ways than the first.
    fn is_open(&self) -> bool {
        self.arguments.kind == KindArgument::Auto && self.kinds.is_empty() && self.after.is_none()
    }
}

/// The longest word is the one that says most.
fn longest_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .max_by_key(|word| word.len())
        .filter(|word| !word.is_empty())
        .unwrap_or(text)
}

pub(crate) fn call(
    workspace: &Workspace,
    arguments: &Arguments,
    context: &Context,
) -> Result<Reply, Problem> {
    let started = Instant::now();
    let members = workspace.several(&arguments.repo)?;
    let names: Vec<&str> = members
        .iter()
        .map(|(member, _)| member.alias.as_str())
        .collect();
    let mut request = check(arguments, &workspace.patterns, &names)?;
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
    let mut found = match answer(&mut request, &seen, context, started) {
        Err(problem) if problem.kind == ErrorKind::Internal && forget_damaged(&mut seen) => {
            answer(&mut request, &seen, context, started)?
        }
        found => found?,
    };
    let unsearched = workspace.unusable(&arguments.repo);
    if !unsearched.is_empty() {
        found.truncated = true;
        found.total.relation = Relation::AtLeast;
    }
    Ok(reply(&request, &seen, &unsearched, found, started))
}

/// Searches for what the query looks like, and then for what else it may mean.
fn answer(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    let missing: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.view.is_none()).collect();
    if !request.is_exact() && !missing.is_empty() {
        return without_index(request, seen, &missing, context, started);
    }
    let mut first = run(request, seen, context, started)?;
    if !request.is_open() || !first.hits.is_empty() || first.truncated || !missing.is_empty() {
        return Ok(first);
    }
    // What looked like code may have been prose, and words may have been signs.
    let before = request.chosen;
    let mut tried = Vec::new();
    for (reading, kind) in [
        (Reading::Literal, Chosen::Literal),
        (Reading::Ranked, Chosen::Ranked),
    ] {
        if kind == before {
            continue;
        }
        request.read_as(reading);
        let mut found = run(request, seen, context, started)?;
        if !found.hits.is_empty() || found.truncated {
            found.notes.push(format!(
                "nothing as {}; this is the {} answer",
                before.name(),
                kind.name()
            ));
            return Ok(found);
        }
        tried.push(kind.name());
    }
    request.read_as(Reading::Asked);
    first
        .notes
        .push(format!("nothing as {} either", tried.join(" or ")));
    Ok(first)
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

/// `names` are those of the repositories that are searched.
fn check<'a>(
    arguments: &'a Arguments,
    patterns: &'a Patterns,
    names: &[&str],
) -> Result<Request<'a>, Problem> {
    let invalid = |message: &str| Problem::new(ErrorKind::InvalidArguments, message.to_owned());
    if arguments.query.is_empty() {
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
    let by_words = !matches!(chosen, Chosen::Literal | Chosen::Regex);
    if by_words && text.trim().is_empty() {
        return Err(invalid(&format!(
            "a {} search needs more than blanks",
            chosen.name()
        ))
        .with_hint("kind literal finds blanks"));
    }
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
        chosen.name(),
        names,
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
    let reading = after.as_ref().map(|cursor| cursor.listing().reading);
    let mut request = Request {
        asked: (chosen, text.clone()),
        chosen,
        text,
        filter,
        kinds,
        limit: arguments.limit.unwrap_or(20).clamp(1, limits::HITS),
        max_bytes: arguments
            .max_bytes
            .unwrap_or(limits::SNIPPET_BYTES)
            .clamp(1, limits::MAX_SNIPPET_BYTES),
        listing: Listing {
            fingerprint,
            reading: Reading::Asked,
        },
        after,
        arguments,
        patterns,
    };
    request.read_as(reading.unwrap_or_default());
    Ok(request)
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
        Chosen::Ranked | Chosen::Symbol | Chosen::Path => run_scored(request, seen, context),
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
    let after = match &request.after {
        None => None,
        Some(Cursor::Line(after)) => Some(after.clone()),
        Some(_) => return Err(not_ours()),
    };
    let query = exact::Exact {
        pattern,
        filter: &request.filter,
        context: request.arguments.context.min(limits::CONTEXT_LINES as u64),
        limit: request.limit,
        max_bytes: request.max_bytes,
        after,
        listing: request.listing,
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
    if listings.iter().any(|(_, cut)| *cut) {
        // A place among the files that were listed is none among all of them.
        found.cursor = None;
        found.divisible = false;
        found.truncated = true;
        found.total.relation = Relation::AtLeast;
        found.notes.push(
            "not every file could be listed in time; an index is being built, repeat the call for all of them"
                .to_owned(),
        );
    }
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
) -> Result<Found, Problem> {
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
    let listing = request.listing;
    let (after, after_ranked) = match (&request.after, request.chosen) {
        (None, _) => (None, None),
        (Some(Cursor::Hit(after)), Chosen::Symbol | Chosen::Path) => (Some(after), None),
        (Some(Cursor::Ranked(after)), Chosen::Ranked) => (None, Some(*after)),
        _ => return Err(not_ours()),
    };
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
                listing,
                after,
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
                listing,
                after,
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
                listing,
                after: after_ranked,
                explain: arguments.explain,
            },
            context.cancel(),
        ),
    };
    result.map_err(|failed| problem(failed, seen))
}

/// What needs an index before there is one: `auto` falls back to a scan for the lines that have the
/// longest word, and calls them that; what was asked for by name says that it needs the index, and
/// so does the next page of an answer that came from one.
fn without_index(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    missing: &[&Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    let progress = missing
        .iter()
        .filter_map(|seen| seen.repo.keeper.jobs().into_iter().next())
        .map(|progress| progress.snapshot())
        .next();
    let how_far = progress.map(|job| {
        format!(
            "{} of {} files are indexed",
            job.files_done, job.files_total
        )
    });
    if !request.is_open() {
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
    let wanted = request.chosen;
    request.read_as(Reading::Word);
    let mut found = run(request, seen, context, started)?;
    found.notes.push(format!(
        "the index is being built ({}): these are lines with {:?}; repeat the call for a {} answer",
        how_far.unwrap_or_else(|| "just begun".to_owned()),
        request.text,
        wanted.name()
    ));
    Ok(found)
}
