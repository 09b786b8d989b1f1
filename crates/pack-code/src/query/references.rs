//! References: every place where a name occurs as a word, and what it does there.
//!
//! The lines come from an exact search, so none is missing. Grammars say what each occurrence is; in
//! a file without one it is a mention. Names are not resolved to types: two methods of one name are
//! told apart only by what surrounds them.

use std::ops::Range;

use crate::query::cursor::LineCursor;
use crate::query::snippet::Lines;
use crate::query::{Found, Hit};
use crate::symbols::roles::{Occurrence, Role, roles};
use crate::text::words::is_word;
use crate::tree::file::{Content, Reader};
use crate::tree::lang::Lang;

/// The expression that finds a name as a word.
pub(crate) fn pattern(name: &str) -> String {
    let edge = |c: Option<char>| match c {
        Some(c) if c.is_alphanumeric() || c == '_' => r"\b",
        _ => "",
    };
    format!(
        "{}{}{}",
        edge(name.chars().next()),
        regex_syntax::escape(name),
        edge(name.chars().next_back())
    )
}

/// Turns the lines of an exact search into references, definitions apart. `only_members` says that
/// the name is defined as a member of something and nowhere else.
pub(crate) fn classify<'a>(
    reader: impl Fn(&str) -> Option<Reader<'a>>,
    found: &mut Found,
    name: &str,
    only_members: bool,
) {
    let hits = std::mem::take(&mut found.hits);
    let mut rest = hits.as_slice();
    let mut buffer = Vec::new();
    while let Some(first) = rest.first() {
        let same = |hit: &&Hit| hit.repo == first.repo && hit.path == first.path;
        let count = rest.iter().take_while(same).count();
        let (group, after) = rest.split_at(count);
        rest = after;
        let read = reader(&first.repo)
            .map(|reader| matches!(reader.read(&first.path, &mut buffer).0, Content::Text));
        if read != Some(true) {
            continue;
        }
        let numbers: Vec<u64> = group
            .iter()
            .flat_map(|hit| hit.match_lines.clone())
            .collect();
        for (number, line, occurrence) in
            in_file(&first.path, &buffer, name, &numbers, only_members)
        {
            let within = occurrence.within;
            let hit = Hit {
                after: cursor_after(group, number),
                start_line: number,
                end_line: number,
                snippet: line,
                match_lines: vec![number],
                kind: Some(occurrence.role.name()),
                symbol: within.as_ref().map(|symbol| symbol.name.clone()),
                owner: within
                    .map(|symbol| symbol.owner)
                    .filter(|owner| !owner.is_empty()),
                ..first.clone()
            };
            match occurrence.role {
                Role::Definition => found.definitions.push(hit),
                _ => found.hits.push(hit),
            }
        }
    }
}

/// The cursor after a line of an exact search's hits.
fn cursor_after(hits: &[Hit], line: u64) -> String {
    let cursor = hits.iter().find_map(|hit| {
        let at = hit
            .match_lines
            .iter()
            .position(|match_line| *match_line == line)?;
        let left = hit.match_lines.len() - at - 1;
        LineCursor::moved_back(&hit.after, line, left as u64)
    });
    cursor.unwrap_or_default()
}

/// The references of one file by their lines; of several on a line the one that says most.
fn in_file(
    path: &str,
    text: &[u8],
    name: &str,
    numbers: &[u64],
    only_members: bool,
) -> Vec<(u64, String, Occurrence)> {
    let lines = Lines::new(text);
    let mut places: Vec<(u64, Range<usize>)> = Vec::new();
    for number in numbers {
        let line = lines.line(*number);
        let start = lines.start(*number);
        let finder = memchr::memmem::find_iter(line, name.as_bytes());
        places.extend(
            finder
                .filter(|at| is_whole(line, *at, name))
                .map(|at| (*number, start + at..start + at + name.len())),
        );
    }
    let mut found: Vec<(u64, String, Occurrence)> = Vec::new();
    let needs_owner = only_members && names_members(Lang::of_path(path));
    for ((number, _), mut occurrence) in places.iter().zip(roles(path, text, name, &places)) {
        let is_reference = matches!(occurrence.role, Role::Use | Role::Call);
        if needs_owner && is_reference && !occurrence.is_member {
            occurrence.role = Role::Mention;
        }
        match found.last_mut() {
            Some((last, _, known)) if last == number => {
                if occurrence.role < known.role {
                    *known = occurrence;
                }
            }
            _ => found.push((
                *number,
                lines.snippet(*number, *number, usize::MAX),
                occurrence,
            )),
        }
    }
    found
}

/// Languages in which a member is always named with what it belongs to.
fn names_members(lang: Lang) -> bool {
    matches!(
        lang,
        Lang::PYTHON | Lang::JAVASCRIPT | Lang::TYPESCRIPT | Lang::GO | Lang::RUST | Lang::PHP
    )
}

fn is_whole(line: &[u8], at: usize, name: &str) -> bool {
    let outside = |at: Option<usize>| {
        at.and_then(|at| line.get(at))
            .is_none_or(|byte| !is_word(*byte))
    };
    outside(at.checked_sub(1)) && outside(Some(at + name.len()))
}

/// Whether a name is defined as a member of something and nowhere else.
pub(crate) fn only_members(definitions: &[Hit]) -> bool {
    let is_member = |hit: &Hit| hit.owner.is_some() && matches!(hit.kind, Some("method" | "field"));
    !definitions.is_empty() && definitions.iter().all(is_member)
}
