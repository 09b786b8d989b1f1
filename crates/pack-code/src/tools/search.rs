//! `search`.

use std::sync::Arc;
use std::time::Instant;

use mainstay_worker::{Context, ErrorKind, Problem, Reply};
use serde_json::json;

use crate::fresh::repo::Repo;
use crate::limits;
use crate::query::auto::{Accepts, Attempt, Chosen, attempts, qualified};
use crate::query::cursor::{CommitCursor, Cursor, Listing, Reading, not_ours, outdated};
use crate::query::filter::{Filter, globs, instant, langs, repo_of};
use crate::query::pattern::{Case, Pattern, Patterns};
use crate::query::plan::Plan;
use crate::query::{
    Found, Relation, Total, exact, feed, history, path, ranked, references, symbol,
};
use crate::store::codec::checksum;
use crate::store::table::KEY_BYTES;
use crate::text::defs::Kind;
use crate::tools::answer::answer;
use crate::tools::internal;
use crate::tools::search_reply::reply;
use crate::tools::search_spec::{Arguments, KindArgument};
use crate::tree::class::classify;
use crate::tree::walk::Walk;
use crate::view::View;
use crate::workspace::Workspace;

/// A repository as a search sees it.
pub(crate) struct Seen<'a> {
    pub(crate) number: usize,
    pub(crate) name: &'a str,
    pub(crate) repo: &'a Arc<Repo>,
    pub(crate) view: Option<Arc<View>>,
}

/// Everything that the arguments say, checked.
pub(crate) struct Request<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) patterns: &'a Patterns,
    /// The ways to read the query; one, unless `kind` is `auto`.
    pub(crate) attempts: Vec<Attempt>,
    /// What it is searched as.
    pub(crate) chosen: Chosen,
    pub(crate) text: String,
    case: Case,
    pub(crate) filter: Filter,
    kinds: Vec<Kind>,
    pub(crate) limit: usize,
    max_bytes: usize,
    pub(crate) listing: Listing,
    after: Option<Cursor>,
    /// Whether ranked search compares vectors.
    vectors: bool,
    /// Lines that have the words of a ranked query verbatim.
    pub(crate) verbatim: Vec<(usize, String, u64)>,
    /// The words of a ranked query, where a file that has them as written is shown there.
    pub(crate) quoted: Option<String>,
}

impl Request<'_> {
    /// Searches for one of the things that the query may mean.
    pub(crate) fn read_as(&mut self, reading: Reading) {
        let attempt = match reading {
            Reading::Attempt(number) => self.attempts.get(usize::from(number)),
            Reading::Word => None,
        };
        let first = self.attempts.first().map_or("", |attempt| &attempt.text);
        (self.chosen, self.text) = match attempt {
            Some(attempt) => (attempt.kind, attempt.text.clone()),
            None => (Chosen::Literal, longest_word(first).to_owned()),
        };
        let verbatim = attempt.is_some_and(|attempt| attempt.accepts == Accepts::Verbatim);
        self.case = match self.arguments.case {
            Case::Smart if verbatim => Case::Sensitive,
            case => case,
        };
        self.listing.reading = reading;
    }

    /// Whether the query may be read in other ways than the first.
    pub(crate) fn is_open(&self) -> bool {
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
    let mut members = workspace.several(&arguments.repo)?;
    if workspace.members.len() > 1 {
        let names: Vec<&str> = members
            .iter()
            .map(|(member, _)| member.alias.as_str())
            .collect();
        if let Some(repo) = repo_of(&arguments.path, &names) {
            members.retain(|(member, _)| member.alias == repo);
        }
    }
    let names: Vec<&str> = members
        .iter()
        .map(|(member, _)| member.alias.as_str())
        .collect();
    let mut request = check(arguments, &workspace.patterns, &names)?;
    request.vectors = !workspace.settings.no_vectors;
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
    let asked = |kind| vec![Attempt::new(kind, query, Accepts::Always)];
    let attempts = match arguments.kind {
        KindArgument::Auto if !kinds.is_empty() => asked(Chosen::Symbol),
        KindArgument::Auto => attempts(&arguments.query),
        KindArgument::Literal => asked(Chosen::Literal),
        KindArgument::Regex => asked(Chosen::Regex),
        KindArgument::Ranked => asked(Chosen::Ranked),
        KindArgument::Symbol => asked(Chosen::Symbol),
        KindArgument::Path => asked(Chosen::Path),
        KindArgument::References => asked(Chosen::References),
        KindArgument::History => asked(Chosen::History),
    };
    let first = attempts.first();
    let chosen = first.map_or(Chosen::Literal, |attempt| attempt.kind);
    let text = first.map_or("", |attempt| &attempt.text);
    if !chosen.is_exact() && text.trim().is_empty() {
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
    if text.len() > KEY_BYTES
        && chosen == Chosen::Symbol
        && first.is_some_and(|first| first.accepts == Accepts::Always)
    {
        return Err(invalid("no symbol has a name that long"));
    }
    let only = match names {
        [only] => Some(*only),
        _ => None,
    };
    let filter = Filter {
        paths: globs(&arguments.path, "path", only)?,
        excluded: globs(&arguments.exclude, "exclude", only)?,
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
        attempts,
        chosen,
        text: String::new(),
        case: arguments.case,
        verbatim: Vec::new(),
        quoted: None,
        vectors: true,
        filter,
        kinds,
        limit: arguments.limit.unwrap_or(20).clamp(1, limits::HITS),
        max_bytes: arguments
            .max_bytes
            .unwrap_or(limits::SNIPPET_BYTES)
            .clamp(1, limits::MAX_SNIPPET_BYTES),
        listing: Listing {
            fingerprint,
            reading: Reading::default(),
        },
        after,
        arguments,
        patterns,
    };
    request.read_as(reading.unwrap_or_default());
    Ok(request)
}

pub(crate) fn run(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    match request.chosen {
        Chosen::Literal => {
            let pattern = request.patterns.literal(&request.text, request.case)?;
            run_exact(request, &pattern, seen, context, started, None)
        }
        Chosen::Regex => {
            let pattern = request.patterns.regex(&request.text, request.case)?;
            run_exact(request, &pattern, seen, context, started, None)
        }
        Chosen::References => run_references(request, seen, context, started),
        Chosen::History => run_history(request, seen, context),
        Chosen::Ranked | Chosen::Symbol | Chosen::Path => run_scored(request, seen, context),
    }
}

/// Every place where a name occurs as a word, with what it does there.
fn run_references(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    let text = request.text.trim().trim_end_matches("()");
    let (owner, name) = match qualified(text) {
        Some((containers, name)) => (containers.last().copied(), name),
        None => (None, text),
    };
    let case = match request.case {
        Case::Smart => Case::Sensitive,
        case => case,
    };
    let pattern = request.patterns.regex(&references::pattern(name), case)?;
    let mut found = run_exact(request, &pattern, seen, context, started, None)?;
    let sources = sources(seen);
    // With the owner, so that its own definitions come first.
    let query = symbol::SymbolQuery {
        text,
        kinds: &[],
        case: Case::Sensitive,
        filter: &Filter::default(),
        context: 0,
        limit: limits::HITS,
        max_bytes: limits::MAX_SNIPPET_BYTES,
        listing: request.listing,
        after: None,
        explain: false,
    };
    let defined = match sources.len() == seen.len() {
        true => {
            symbol::search(&sources, &query, context.cancel())
                .map_err(|failed| problem(failed, seen))?
                .hits
        }
        false => Vec::new(),
    };
    let reader = |repo: &str| {
        let seen = seen.iter().find(|seen| seen.name == repo)?;
        Some(seen.repo.reader())
    };
    references::classify(reader, &mut found, name, references::only_members(&defined));
    // The first page has the definitions, all of them; later ones only what they come across.
    if request.after.is_none() && !defined.is_empty() {
        let named = |role| {
            move |mut hit: crate::query::Hit| {
                hit.kind = Some(role);
                hit
            }
        };
        found.definitions = defined.into_iter().map(named("definition")).collect();
    }
    if let Some(owner) = owner {
        found.notes.push(format!(
            "by the name {name}, whatever it belongs to: types are not resolved, so {owner} does not narrow this"
        ));
    }
    Ok(found)
}

/// Commits of every repository in scope, one repository after the other.
fn run_history(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
) -> Result<Found, Problem> {
    let after = match &request.after {
        None => None,
        Some(Cursor::Commit(after)) => Some(after),
        Some(_) => return Err(not_ours()),
    };
    let before = after.map_or(0, |after| after.counted);
    let given = usize::try_from(before).unwrap_or(usize::MAX);
    let most = given.saturating_add(request.limit).min(limits::COMMITS);
    let mut found = Found::default();
    let mut repos = Vec::new();
    for seen in seen {
        let query = history::History {
            repo: seen.name,
            root: &seen.repo.place.root,
            text: request.text.trim(),
            paths: &request.arguments.path,
            limit: most.saturating_sub(found.commits.len()),
        };
        let mut part = history::search(query, context)?;
        found.commits.append(&mut part.commits);
        found.notes.append(&mut part.notes);
        found.truncated |= part.truncated;
        found.confidence = part.confidence;
        repos.resize(found.commits.len(), seen.number);
        if found.commits.len() > most {
            break;
        }
    }
    if let Some(after) = after {
        let mut places = repos.iter().zip(&found.commits);
        let last = places
            .position(|(repo, commit)| (*repo, &commit.commit) == (after.repo, &after.commit))
            .ok_or_else(outdated)?;
        found.commits.drain(..=last);
        repos.drain(..=last);
    }
    for (counted, (repo, commit)) in (before + 1..).zip(repos.iter().zip(&mut found.commits)) {
        let cursor = CommitCursor {
            listing: request.listing,
            counted,
            repo: *repo,
            commit: commit.commit.clone(),
        };
        commit.after = cursor.encode();
    }
    if found.commits.len() > request.limit {
        found.truncated = true;
        found.commits.truncate(request.limit);
        let last = found.commits.last();
        found.cursor = last
            .filter(|_| most < limits::COMMITS)
            .map(|commit| commit.after.clone());
    }
    found.total = Total {
        value: before + found.commits.len() as u64,
        relation: match found.truncated {
            true => Relation::AtLeast,
            false => Relation::Exact,
        },
    };
    Ok(found)
}

/// Finds lines: a page of them, or with `probe` the first few, whatever page is asked for.
pub(crate) fn run_exact(
    request: &Request<'_>,
    pattern: &Pattern,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
    probe: Option<usize>,
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
        _ if probe.is_some() => None,
        None => None,
        Some(Cursor::Line(after)) => Some(after.clone()),
        Some(_) => return Err(not_ours()),
    };
    let query = exact::Exact {
        pattern,
        filter: &request.filter,
        context: request.arguments.context.min(limits::CONTEXT_LINES as u64),
        limit: probe.unwrap_or(request.limit),
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
            "not every file could be listed in time; the path argument narrows the search"
                .to_owned(),
        );
    }
    if unindexed && probe.is_none() {
        found.notes.push(why_scanned(seen));
    }
    if plan == Plan::Any && !unindexed {
        found.notes.push("the pattern has no three characters in a row that the index could use: files were scanned".to_owned());
    }
    Ok(found)
}

/// Why an answer was read from the files themselves.
pub(crate) fn why_scanned(seen: &[Seen<'_>]) -> String {
    let unbuilt = seen
        .iter()
        .filter(|seen| seen.view.is_none())
        .find_map(|seen| seen.repo.unbuilt());
    match unbuilt {
        Some(error) => format!(
            "the index cannot be written ({error}): this answer was read from the files; check_status says what to do"
        ),
        None => "the index is being built: this answer was read from the files".to_owned(),
    }
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
pub(crate) fn problem(failed: ranked::Failed, seen: &[Seen<'_>]) -> Problem {
    match failed {
        ranked::Failed::Problem(problem) => problem,
        ranked::Failed::Store(number, error) => match seen.get(number) {
            Some(seen) => damaged(seen.repo, &error),
            None => internal(&error),
        },
    }
}

/// The repositories whose index can be searched.
pub(crate) fn sources<'a>(seen: &'a [Seen<'_>]) -> Vec<ranked::Source<'a>> {
    seen.iter()
        .filter_map(|seen| {
            Some(ranked::Source {
                repo: seen.number,
                name: seen.name,
                view: seen.view.as_deref()?,
                reader: seen.repo.reader(),
                root: &seen.repo.place.root,
            })
        })
        .collect()
}

fn run_scored(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
) -> Result<Found, Problem> {
    let sources = sources(seen);
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
                verbatim: &request.verbatim,
                quoted: request.quoted.as_deref(),
                vectors: request.vectors,
            },
            context.cancel(),
        ),
    };
    result.map_err(|failed| problem(failed, seen))
}
