//! What the commands say.

use std::path::Path;

use mainstay_contract::render::{Bounds, Porcelain, count};
use mainstay_schema::lock::{Answer, Demand, Judged, Judgement, LISTS, Lock};

use super::definitions::Difference;
use super::present::Present;
use crate::args::Locked;

const PAGE: Bounds = Bounds {
    lines: 10_000,
    bytes: 1 << 22,
};

/// The command that writes the lock of these tools.
pub(crate) fn command(locked: &Locked, schemas: Option<&Path>) -> String {
    let mut words = vec!["mainstay".to_owned(), "lock".to_owned(), "write".to_owned()];
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    for pack in &locked.target.packs.packs {
        option("--pack", pack.clone());
    }
    if let Some(config) = &locked.target.packs.config {
        option("--config", config.display().to_string());
    }
    if locked.file != Path::new(super::FILE) && locked.server.is_none() {
        option("--file", locked.file.display().to_string());
    }
    if let Some(schemas) = schemas {
        option("--schemas", schemas.display().to_string());
    }
    if locked.packs_only {
        words.push("--packs-only".to_owned());
    }
    // Only a zero byte cannot be quoted, and no argument holds one.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

/// The lock says what the tools say.
pub(crate) fn equal(file: &Path, lock: &Lock, present: &Present) -> String {
    let held = contents(lock);
    let page = Porcelain::summary(format!("{} is up to date: {held}", file.display()));
    finish(partial(page, lock, present))
}

/// Summarises a lock: its tools, and the other lists that it covers.
fn contents(lock: &Lock) -> String {
    let mut words = vec![count(lock.tools.len(), "tool", "tools")];
    if let Some(surface) = &lock.surface {
        for kind in LISTS {
            let noun = kind.noun();
            let number = surface.count(kind);
            if number > 0 {
                words.push(count(number, noun, &format!("{noun}s")));
            }
        }
        if surface.instructions.is_some() {
            words.push("instructions".to_owned());
        }
    }
    words.join(", ")
}

/// The lock was written, or did not have to be.
pub(crate) fn written(file: &Path, lock: &Lock, is_new: bool, judgement: &Judgement) -> String {
    let tools = contents(lock);
    let changes = match judgement.changes.len() {
        0 => String::new(),
        number => format!(", {}", count(number, "change", "changes")),
    };
    let file = file.display();
    finish(Porcelain::summary(if is_new {
        format!("wrote {file}: {tools}{changes}")
    } else {
        format!("{file} is up to date: {tools}")
    }))
}

/// Changes that lack what they demand.
pub(crate) fn missing(title: &str, judgement: &Judgement, again: &str) -> String {
    let missing: Vec<&Judged> = judgement.missing().collect();
    let lack = match missing.len() {
        1 => "1 change lacks a bump or a reason".to_owned(),
        number => format!("{number} changes lack a bump or a reason"),
    };
    let page = Porcelain::summary(format!("{title}: {lack}"));
    let page = tools(page, &missing, |judged| judged.change.to_string());
    finish(page.hint(format!("do so, then run {again}")))
}

/// Changes that have all they need, but are not in the lock yet.
pub(crate) fn old(file: &Path, judgement: &Judgement, again: &str) -> String {
    let changes: Vec<&Judged> = judgement.changes.iter().collect();
    let number = count(changes.len(), "change", "changes");
    let page = Porcelain::summary(format!(
        "{} is old: {number}, and no bump is missing",
        file.display()
    ));
    let page = tools(page, &changes, |judged| judged.change.to_string());
    finish(page.hint(format!("run {again}")))
}

/// Every change, with what it demands and what was done.
pub(crate) fn diff(file: &Path, judgement: &Judgement, lock: &Lock, present: &Present) -> String {
    let changes: Vec<&Judged> = judgement.changes.iter().collect();
    let number = count(changes.len(), "change", "changes");
    let page = Porcelain::summary(format!("{number} since {} was written", file.display()));
    let page = tools(page, &changes, |judged| {
        format!("{}{}", judged.change, answer(judged))
    });
    finish(partial(page, lock, present))
}

/// The files of definitions that were written or removed.
pub(crate) fn definitions_written(folder: &Path, done: &[(String, Difference)]) -> String {
    let folder = folder.display();
    if done.is_empty() {
        return finish(Porcelain::summary(format!("{folder} is up to date")));
    }
    let removed = done.iter().filter(|(_, what)| *what == Difference::Stale);
    let removed = removed.count();
    let written = count(done.len() - removed, "definition", "definitions");
    finish(Porcelain::summary(match removed {
        0 => format!("wrote {folder}: {written}"),
        _ => format!("wrote {folder}: {written}, {removed} removed"),
    }))
}

/// Files of definitions that are not what the tools say.
pub(crate) fn definitions_differ(
    folder: &Path,
    differences: &[(String, Difference)],
    again: &str,
) -> String {
    let number = count(differences.len(), "definition is", "definitions are");
    let page = Porcelain::summary(format!("{}: {number} old", folder.display()));
    let page = page.items(
        differences
            .iter()
            .map(|(name, difference)| format!("{name}: {}", difference.words())),
    );
    finish(page.hint(format!("run {again}")))
}

/// One section per tool: its changes, then each piece of advice once.
fn tools(mut page: Porcelain, changes: &[&Judged], show: impl Fn(&Judged) -> String) -> Porcelain {
    for of_tool in changes.chunk_by(|a, b| a.change.tool == b.change.tool) {
        let Some(first) = of_tool.first() else {
            continue;
        };
        page = page.section(&first.change.tool);
        // Where the version must be raised anyway, no reason is asked for.
        let must_bump = of_tool
            .iter()
            .any(|judged| judged.answer == Answer::Missing && judged.change.demand == Demand::Bump);
        let mut advice: Vec<&str> = Vec::new();
        for judged in of_tool {
            page = page.item(show(judged));
            let settled = must_bump && judged.change.demand == Demand::BumpOrReason;
            let more = judged.advice.as_deref().filter(|_| !settled);
            advice.extend(more.filter(|more| !advice.contains(more)));
        }
        for advice in advice {
            page = page.field("to do", advice);
        }
    }
    page
}

fn answer(judged: &Judged) -> String {
    match judged.answer {
        Answer::NotNeeded => String::new(),
        Answer::Bumped => " (bumped)".to_owned(),
        Answer::Reason => " (with a reason)".to_owned(),
        Answer::Missing => format!(" (needs {})", judged.change.demand.words()),
    }
}

/// Says what was not compared.
fn partial(mut page: Porcelain, lock: &Lock, present: &Present) -> Porcelain {
    if present.is_partial {
        page = page.note(
            "a running host lists no other names; those of tools and arguments were not compared",
        );
    }
    let rest = "instructions, prompts, resources and templates";
    match (&lock.surface, &present.lock.surface) {
        (None, _) => page.note(format!(
            "this lock covers only tools; {rest} were not compared, mainstay lock write adds them"
        )),
        (Some(_), None) => page.note(format!("REST lists only tools; {rest} were not compared")),
        (Some(_), Some(_)) => page,
    }
}

fn finish(page: Porcelain) -> String {
    let mut text = page.finish(PAGE);
    text.push('\n');
    text
}
