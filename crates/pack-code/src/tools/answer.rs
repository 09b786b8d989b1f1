//! Which of the things that a query may mean is answered, and how sure the answer is.

use std::time::Instant;

use mainstay_worker::{Context, ErrorKind, Problem, render};

use crate::limits;
use crate::query::auto::{Accepts, Attempt, Chosen, is_question, is_quotation, subject};
use crate::query::cursor::Reading;
use crate::query::nearest::nearest;
use crate::query::pattern::Case;
use crate::query::{Confidence, Found, Hit};
use crate::tools::search::{Request, Seen, problem, run, run_exact, sources};
use crate::tree::class::{Class, classify};
use crate::tree::file::Skip;

/// Searches for what the query looks like, and then for what else it may mean.
pub(crate) fn answer(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Found, Problem> {
    let missing: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.view.is_none()).collect();
    if !missing.is_empty() && request.is_open() {
        // Without an index only lines can be found: by the first attempt that looks for them.
        let accepts =
            |attempt: &Attempt| attempt.kind.is_exact() && attempt.accepts != Accepts::Verbatim;
        match request.attempts.first().is_some_and(accepts) {
            true => return run(request, seen, context, started),
            false => return without_index(request, seen, &missing, context, started),
        }
    }
    if request.chosen.needs_index() && !missing.is_empty() {
        return without_index(request, seen, &missing, context, started);
    }
    if !request.is_open() {
        find_verbatim(request, seen, context, started)?;
        let found = run(request, seen, context, started)?;
        return finish(request, seen, context, started, found);
    }
    let attempts = request.attempts.clone();
    for (number, attempt) in (0_u8..).zip(&attempts) {
        request.read_as(Reading::Attempt(number));
        let mut found = match attempt.accepts {
            Accepts::Verbatim => match run_verbatim(request, seen, context, started)? {
                Some(found) => found,
                None => continue,
            },
            _ => run(request, seen, context, started)?,
        };
        let accepted = match attempt.accepts {
            Accepts::Any => !found.hits.is_empty() || found.truncated,
            Accepts::Filled => !found.hits.is_empty(),
            Accepts::Sure => found.sure,
            Accepts::Verbatim | Accepts::Always | Accepts::Guess => true,
        };
        if !accepted {
            continue;
        }
        if attempt.accepts == Accepts::Any && attempt.kind == Chosen::Symbol && !found.sure {
            found.confidence = Confidence::Near;
            found.keep(limits::GUESSES);
            let wanted = request.arguments.query.trim();
            found.lead = Some(match found.named {
                true => format!("{wanted} is not defined as such; its name is, elsewhere"),
                false => format!("{wanted} is not defined; names that contain its last part"),
            });
        }
        if attempt.accepts == Accepts::Filled {
            found.confidence = Confidence::Near;
            found.lead = Some(format!(
                "{} is not there as written; its words are, around other values",
                render::shorten(request.arguments.query.trim(), 80)
            ));
            return Ok(found);
        }
        if attempt.accepts == Accepts::Guess {
            return guess(request, seen, context, started, found);
        }
        return finish(request, seen, context, started, found);
    }
    Ok(Found::default())
}

/// Answers for a query whose exact meaning was not found: the nearest name, or a few guesses.
fn guess(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
    mut found: Found,
) -> Result<Found, Problem> {
    let query = request.arguments.query.trim();
    if let Some(name) = subject(query) {
        if let Some(found) = defined(request, seen, context, started, &name)? {
            return Ok(found);
        }
        // A piece of code may be nowhere although its name is.
        if !occurs(request, seen, context, started, &name)?
            && let Some(near) = near(request, seen, context, started, &name)?
        {
            return Ok(near);
        }
    }
    found.keep(limits::GUESSES);
    let shown = render::shorten(query, 80);
    let scope = match request.filter.leaves_out() {
        true => " in the files that the filters leave",
        false => "",
    };
    (found.confidence, found.lead) = match found.hits.len() {
        0 => (
            Confidence::None,
            Some(format!("nothing matches {shown}{scope}")),
        ),
        1 => (
            Confidence::Guess,
            Some(format!(
                "nothing matches {shown} exactly{scope}; 1 guess by related words"
            )),
        ),
        n => (
            Confidence::Guess,
            Some(format!(
                "nothing matches {shown} exactly{scope}; {n} guesses by related words"
            )),
        ),
    };
    Ok(found)
}

/// The definitions of a name that occurs in no text that is searched, but in a file too large for
/// that, of which the definitions are known.
fn defined(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
    name: &str,
) -> Result<Option<Found>, Problem> {
    if !any_unsearched(seen) {
        return Ok(None);
    }
    let reading = request.listing.reading;
    (request.chosen, request.text) = (Chosen::Symbol, name.to_owned());
    let limit = std::mem::replace(&mut request.limit, limits::GUESSES);
    let mut found = run(request, seen, context, started)?;
    request.limit = limit;
    // Of a name in the files that are searched, that search has said all there is to say.
    let is_unsearched = |hit: &Hit| {
        let repo = seen.iter().find(|seen| seen.name == hit.repo);
        let view = repo.and_then(|seen| seen.view.as_ref());
        view.is_some_and(|view| view.skipped().iter().any(|(_, path)| *path == hit.path))
    };
    found
        .hits
        .retain(|hit| hit.symbol.as_deref() == Some(name) && is_unsearched(hit));
    if found.hits.is_empty() {
        request.read_as(reading);
        return Ok(None);
    }
    found.keep(limits::GUESSES);
    found.confidence = Confidence::Exact;
    found.lead = Some(format!(
        "{} is defined in a file that is too large for a search of its text",
        render::shorten(name, 80)
    ));
    Ok(Some(found))
}

/// Whether files were skipped that may be text.
fn any_unsearched(seen: &[Seen<'_>]) -> bool {
    let views = seen.iter().filter_map(|seen| seen.view.as_ref());
    let mut skipped = views.flat_map(|view| view.skipped());
    skipped.any(|(skip, _)| *skip != Skip::Binary)
}

/// How far a name is known to be absent.
fn nowhere(request: &Request<'_>, seen: &[Seen<'_>]) -> &'static str {
    match (request.filter.leaves_out(), any_unsearched(seen)) {
        (true, _) => "is not in the files that the filters leave",
        (false, true) => {
            "is not in the files that are searched (index_status names the skipped ones)"
        }
        (false, false) => "occurs nowhere",
    }
}

/// The definitions of the name that is nearest to one that occurs nowhere.
fn near(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
    name: &str,
) -> Result<Option<Found>, Problem> {
    let sources = sources(seen);
    let nearest = nearest(&sources, name).map_err(|failed| problem(failed, seen))?;
    let Some(nearest) = nearest else {
        return Ok(None);
    };
    let reading = request.listing.reading;
    (request.chosen, request.text) = (Chosen::Symbol, nearest.clone());
    let limit = std::mem::replace(&mut request.limit, limits::GUESSES);
    let mut found = run(request, seen, context, started)?;
    request.limit = limit;
    if !found.named {
        request.read_as(reading);
        return Ok(None);
    }
    found
        .hits
        .retain(|hit| hit.symbol.as_deref() == Some(nearest.as_str()));
    found.keep(limits::GUESSES);
    found.confidence = Confidence::Near;
    found.lead = Some(format!(
        "{} {}; the nearest name is {nearest}",
        render::shorten(name, 80),
        nowhere(request, seen)
    ));
    Ok(Some(found))
}

/// Says in an answer how far it is what was asked for.
fn finish(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
    mut found: Found,
) -> Result<Found, Problem> {
    let query = request.arguments.query.trim();
    let shown = render::shorten(query, 80);
    match request.chosen {
        Chosen::Ranked => {
            let mut absent = Vec::new();
            for name in std::mem::take(&mut found.absent) {
                let mut there = occurs(request, seen, context, started, &name)?;
                if !there && name != query && request.is_open() {
                    let reading = request.listing.reading;
                    there = defined(request, seen, context, started, &name)?.is_some();
                    request.read_as(reading);
                }
                if !there {
                    absent.push(name);
                }
            }
            let only = absent.as_slice() == [query] || found.hits.is_empty();
            if request.is_open() && only {
                return guess(request, seen, context, started, found);
            }
            if !absent.is_empty() {
                found.lead = Some(format!("{} {}", absent.join(", "), nowhere(request, seen)));
                found.confidence = Confidence::Guess;
                found.keep(limits::GUESSES);
            }
        }
        Chosen::Symbol if !found.named && !found.hits.is_empty() && found.lead.is_none() => {
            found.confidence = Confidence::Near;
            found.lead = Some(format!("{shown} is not defined; names that contain it"));
        }
        Chosen::Path if !found.named && !found.hits.is_empty() => {
            found.confidence = Confidence::Near;
            found.lead = Some(format!("no file is called {shown}; similar paths"));
        }
        _ => {}
    }
    let empty = found.hits.is_empty() && found.definitions.is_empty() && found.commits.is_empty();
    if empty && !found.truncated {
        found.confidence = Confidence::None;
    }
    Ok(found)
}

/// Whether a name occurs anywhere in scope, in either case.
fn occurs(
    request: &Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
    name: &str,
) -> Result<bool, Problem> {
    let pattern = request.patterns.literal(name, Case::Insensitive)?;
    let found = run_exact(request, &pattern, seen, context, started, Some(1))?;
    Ok(!found.hits.is_empty() || found.truncated)
}

/// Words that occur as they are written: the lines, if they can only be a quotation. Otherwise the
/// ranked search that follows puts the files first that have them, if these are few.
fn run_verbatim(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<Option<Found>, Problem> {
    if is_quotation(&request.text) {
        let found = run(request, seen, context, started)?;
        return Ok((!found.hits.is_empty()).then_some(found));
    }
    find_verbatim(request, seen, context, started)?;
    Ok(None)
}

/// Looks for the lines that have a short text verbatim, for the ranked search.
fn find_verbatim(
    request: &mut Request<'_>,
    seen: &[Seen<'_>],
    context: &Context,
    started: Instant,
) -> Result<(), Problem> {
    let attempt = request
        .attempts
        .iter()
        .find(|attempt| attempt.accepts == Accepts::Verbatim && !is_quotation(&attempt.text));
    let Some(text) = attempt.map(|attempt| attempt.text.clone()) else {
        return Ok(());
    };
    // Two plain words are rather a subject: they must be rare to be a quotation.
    let plain = |c: char| c.is_lowercase() || c.is_whitespace();
    let is_subject = text.split_whitespace().count() < 3 && text.chars().all(plain);
    if !is_subject && !is_question(&text) {
        request.quoted = Some(text.clone());
    }
    let pattern = request.patterns.literal(&text, Case::Sensitive)?;
    let most = limits::VERBATIM_LINES;
    let mut found = run_exact(request, &pattern, seen, context, started, Some(most))?;
    if is_question(&text) {
        // A page that has the same question is not its answer.
        found.hits.retain(|hit| classify(&hit.path) != Class::Docs);
    }
    let mut files: Vec<(&str, &str)> = Vec::new();
    for hit in &found.hits {
        let file = (hit.repo.as_str(), hit.path.as_str());
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let lines: usize = found.hits.iter().map(|hit| hit.match_lines.len()).sum();
    let few = files.len() <= limits::VERBATIM_FILES
        && (!is_subject || lines <= limits::VERBATIM_FILES)
        && (!found.truncated || files.len() == 1);
    if !few {
        return Ok(());
    }
    let repo = |name: &str| seen.iter().find(|seen| seen.name == name);
    // The first line of each file.
    let mut known: Vec<(&str, &str)> = Vec::new();
    request.verbatim = found
        .hits
        .iter()
        .filter(|hit| {
            let file = (hit.repo.as_str(), hit.path.as_str());
            let is_new = !known.contains(&file);
            known.push(file);
            is_new
        })
        .filter_map(|hit| {
            let line = hit.match_lines.first().copied()?;
            Some((repo(&hit.repo)?.number, hit.path.clone(), line))
        })
        .collect();
    Ok(())
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
    let unbuilt = missing.iter().find_map(|seen| seen.repo.unbuilt());
    if !request.is_open() {
        let names: Vec<&str> = missing.iter().map(|seen| seen.name).collect();
        let needs = format!(
            "{} search needs the index of {}",
            request.chosen.name(),
            names.join(", ")
        );
        let (message, hint) = match unbuilt {
            Some(error) => (
                format!("{needs}, which cannot be built: {error}"),
                "check_status says what to do; kind literal and regex read the files themselves"
                    .to_owned(),
            ),
            None => (
                format!("{needs}, which is being built"),
                format!(
                    "{}; repeat the call in a moment, or search with kind literal or regex meanwhile",
                    how_far.unwrap_or_else(|| "the build has just begun".to_owned())
                ),
            ),
        };
        return Err(Problem::new(ErrorKind::NoIndex, message).with_hint(hint));
    }
    let wanted = request.chosen;
    request.read_as(Reading::Word);
    let mut found = run(request, seen, context, started)?;
    let lead = match unbuilt {
        Some(_) => format!(
            "without an index only lines with {:?} are found",
            request.text
        ),
        None => format!(
            "the index is being built ({}): these are lines with {:?}; repeat the call for a {} answer",
            how_far.unwrap_or_else(|| "just begun".to_owned()),
            request.text,
            wanted.name()
        ),
    };
    found.notes.insert(0, lead);
    Ok(found)
}
