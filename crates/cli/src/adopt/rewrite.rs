//! Putting us before a server's command, and taking us away again: the one undoes the other to
//! the byte.
//!
//! `"command": P, "args": [A]` becomes `"command": US, "args": ["wrap", "--name", N, "--", P, A]`. P
//! and A are moved as they are written, quotes and escapes included. The new items stand before the first of
//! the old ones, in its line or each in a line of its own, as the old ones do; so what is removed
//! later is exactly what was inserted. Only one thing cannot be seen afterwards: whether a list
//! that is now empty was there at all. A backup knows it.

use super::edits::Edit;
use super::jsonc;
use super::servers::{DASHES, Server, Started, Wrapped};
use super::tree::{Document, Node, Span, Syntax};

/// A text as JSON and TOML both write it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        // TOML wants this one escaped, JSON does not mind.
        .replace('\u{7f}', "\\u007f")
}

/// The edits that wrap a server, or why it cannot be done. `words` go between our program and the server's command.
pub(super) fn wrap(
    document: &Document,
    server: &Server<'_>,
    started: &Started<'_>,
    binary: &str,
    words: &[String],
) -> Result<Vec<Edit>, &'static str> {
    let mut new_items: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    new_items.push(quoted(DASHES));
    if let Some(first) = started.in_list {
        new_items.insert(0, quoted(binary));
        let list = &started.command.value.span;
        return Ok(vec![insert_before(document, first, list, &new_items)]);
    }
    let command = &started.command.value.span;
    let raw = document.slice(command.clone());
    if document.syntax == Syntax::Yaml && raw.contains(['[', ']', '{', '}', ',']) && !is_quoted(raw)
    {
        return Err("its command has a character that means more in a list; put it into quotes");
    }
    new_items.push(raw.to_owned());
    let mut edits = vec![Edit::replace(command.clone(), quoted(binary))];
    match (started.args, started.items.first()) {
        (Some(args), Some(first)) => {
            edits.push(insert_before(document, first, &args.value.span, &new_items));
        }
        (Some(args), None) => {
            let between = if is_compact(document, &args.value.span) {
                ","
            } else {
                ", "
            };
            // Behind the bracket.
            let at = args.value.span.start + 1;
            edits.push(Edit::insert(at, new_items.join(between)));
        }
        (None, _) => edits.push(new_args(document, server, started, &new_items)?),
    }
    Ok(edits)
}

fn is_quoted(raw: &str) -> bool {
    raw.starts_with(['"', '\''])
}

/// The edit that puts items before the first one of a list, in its line or each in a line of its own.
fn insert_before(document: &Document, first: &Node, list: &Span, items: &[String]) -> Edit {
    let between = match own_line(&document.text, first.span.start) {
        _ if document.syntax == Syntax::Yaml && !document.slice(list.clone()).starts_with('[') => {
            dashed_line(&document.text, first.span.start)
        }
        Some(line_start) => format!(",{line_start}"),
        None if is_compact(document, list) => ",".to_owned(),
        None => ", ".to_owned(),
    };
    let inserted: String = items
        .iter()
        .flat_map(|item| [item, &between])
        .map(String::as_str)
        .collect();
    Edit::insert(first.span.start, inserted)
}

/// The line break, the white space and the dash before an item of a YAML list.
fn dashed_line(text: &str, at: usize) -> String {
    let (start, newline) = line_before(text, at);
    let newline = newline.unwrap_or_else(|| newline_after(text, at));
    let prefix = text.get(start..at).unwrap_or_default();
    format!("{newline}{prefix}")
}

/// The edit that adds a list of arguments behind the command.
fn new_args(
    document: &Document,
    server: &Server<'_>,
    started: &Started<'_>,
    items: &[String],
) -> Result<Edit, &'static str> {
    let (text, command) = (&document.text, started.command);
    let behind = command.value.span.end;
    let is_inline = |span: &Span| document.slice(span.clone()).starts_with('{');
    if document.syntax == Syntax::Json {
        let compact = is_compact(document, &command.value.span);
        let (comma, colon) = if compact { (",", ":") } else { (", ", ": ") };
        let before = match own_line(text, command.key.start) {
            Some(line_start) => format!(",{line_start}"),
            None => comma.to_owned(),
        };
        let list = items.join(comma);
        return Ok(Edit::insert(
            behind,
            format!("{before}\"args\"{colon}[{list}]"),
        ));
    }
    let list = items.join(", ");
    let equals = match document.syntax {
        Syntax::Yaml => ": ",
        _ => " = ",
    };
    if is_inline(&server.entry.span) {
        return Ok(Edit::insert(behind, format!(", args{equals}[{list}]")));
    }
    if is_inline(&server.container.span) {
        return Err("it is written as dotted keys inside a table in braces; give it args = []");
    }
    // A line of its own, below that of the command and with the same beginning.
    let (line_start, newline) = line_before(text, command.key.start);
    let prefix = text.get(line_start..command.key.start).unwrap_or_default();
    let newline = newline.unwrap_or_else(|| newline_after(text, behind));
    let at = line_end(text, behind);
    Ok(Edit::insert(
        at,
        format!("{newline}{prefix}args{equals}[{list}]"),
    ))
}

/// The edits that unwrap a server. `had_args` says whether it had a list of arguments before, where
/// that is known.
pub(super) fn unwrap(
    document: &Document,
    wrapped: &Wrapped<'_>,
    inner: usize,
    had_args: Option<bool>,
) -> Vec<Edit> {
    let Started {
        command,
        args,
        items,
        ..
    } = wrapped.outer;
    let (Some(args), Some(first), Some(program)) = (args, items.first(), items.get(inner)) else {
        return Vec::new();
    };
    if let Some(binary) = wrapped.outer.in_list {
        return vec![Edit::remove(binary.span.start..program.span.start)];
    }
    let raw = document.slice(program.span.clone());
    let mut edits = vec![Edit::replace(command.value.span.clone(), raw)];
    if let Some(next) = items.get(inner + 1) {
        edits.push(Edit::remove(first.span.start..next.span.start));
    } else if had_args == Some(false)
        && let Some(member) = own_member(document, wrapped)
    {
        edits.push(Edit::remove(member));
    } else {
        edits.push(Edit::remove(first.span.start..program.span.end));
        // An empty list has no comma.
        let comma = skip_trivia(document, program.span.end);
        let inside = comma < args.value.span.end;
        if inside && document.text.get(comma..=comma) == Some(",") {
            edits.push(Edit::remove(comma..comma + 1));
        }
    }
    edits
}

/// What to remove to remove the whole member `args`, if it stands where we would have put it.
fn own_member(document: &Document, wrapped: &Wrapped<'_>) -> Option<Span> {
    let (command, args) = (wrapped.outer.command, wrapped.outer.args?);
    let end = args.value.span.end;
    let behind = command.value.span.end;
    let between = document.text.get(behind..args.key.start)?;
    let is_separator = between
        .strip_prefix(',')
        .is_some_and(|rest| rest.chars().all(|c| matches!(c, ' ' | '\t' | '\r' | '\n')));
    if is_separator {
        return Some(behind..end);
    }
    let is_next_line = document.syntax != Syntax::Json && between.matches('\n').count() == 1;
    is_next_line.then(|| line_end(&document.text, behind)..end)
}

fn skip_trivia(document: &Document, mut at: usize) -> usize {
    if document.syntax == Syntax::Json {
        return jsonc::skip_trivia(&document.text, at);
    }
    loop {
        let rest = document.text.get(at..).unwrap_or_default();
        let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        at += rest.len() - trimmed.len();
        if !trimmed.starts_with('#') {
            return at;
        }
        at += trimmed.find('\n').unwrap_or(trimmed.len());
    }
}

/// Whether nothing stands between a JSON value and its colon: then nobody wants spaces.
pub(super) fn is_compact(document: &Document, value: &Span) -> bool {
    document.syntax == Syntax::Json
        && document
            .text
            .get(..value.start)
            .is_some_and(|before| before.ends_with(':'))
}

/// The line break and white space before something that is the first of its line.
pub(super) fn own_line(text: &str, at: usize) -> Option<String> {
    let (start, newline) = line_before(text, at);
    let indent = text.get(start..at)?;
    let is_first = indent.chars().all(|c| matches!(c, ' ' | '\t'));
    newline
        .filter(|_| is_first)
        .map(|newline| format!("{newline}{indent}"))
}

/// Where the line of a byte begins, and the line break before it.
pub(super) fn line_before(text: &str, at: usize) -> (usize, Option<&'static str>) {
    let before = text.get(..at).unwrap_or_default();
    match before.rfind('\n') {
        None => {
            let start = before
                .strip_prefix('\u{feff}')
                .map_or(0, |_| '\u{feff}'.len_utf8());
            (start, None)
        }
        Some(newline) => {
            let crlf = before
                .get(..newline)
                .is_some_and(|line| line.ends_with('\r'));
            (newline + 1, Some(if crlf { "\r\n" } else { "\n" }))
        }
    }
}

/// The line break at the end of a line.
fn newline_after(text: &str, at: usize) -> &'static str {
    let rest = text.get(line_end(text, at)..).unwrap_or_default();
    if rest.starts_with("\r\n") {
        "\r\n"
    } else {
        "\n"
    }
}

/// Where the line of a byte ends, before its line break.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let line = rest
        .find('\n')
        .map_or(rest, |end| rest.get(..end).unwrap_or(rest));
    at + line.strip_suffix('\r').unwrap_or(line).len()
}
