//! Putting us between a client and its server at a URL, and taking us away again.
//!
//! `"url": U` becomes `"command": US, "args": ["wrap", "--name", N, "--url", U]`. The values of headers stay where they are:
//! their table becomes that of the environment. Codex names variables for the bearer token and for headers. Those names become
//! options and the list of variables that Codex passes on; the lines that held them become comments, which undoing reads.

use super::edits::Edit;
use super::rewrite::{is_compact, line_before, line_end, own_line, quoted};
use super::servers::{
    HEADER_ENV, Reached, Server, Started, TOKEN_ENV, URL, URL_TYPE, WRAP, Wrapped,
};
use super::tree::{Document, Member, Span, Syntax};
use crate::environment::HEADER;

const UNUSUAL_HEADERS: &str = "its headers are written in an unusual form; use mainstay wrap --url";

/// The edits that wrap a server, or why it cannot be done.
pub(super) fn wrap(
    document: &Document,
    server: &Server<'_>,
    reached: &Reached<'_>,
    binary: &str,
) -> Result<Vec<Edit>, &'static str> {
    let Reached { url, kind, .. } = reached;
    let key = document.slice(url.key.clone());
    let between = document.slice(url.key.end..url.value.span.start);
    let is_usual = between
        .chars()
        .all(|c| c.is_whitespace() || matches!(c, ':' | '='));
    if key != key_named(document.syntax, "url") || !is_usual {
        return Err("its URL is written in an unusual form; use mainstay wrap --url");
    }
    let (headers, signs_in) = match document.syntax {
        // Not reached: goose's own form is left alone.
        Syntax::Yaml => {
            return Err("its URL is written in an unusual form; use mainstay wrap --url");
        }
        Syntax::Json => (reached.headers, reached.is_of_codex()),
        Syntax::Toml => (reached.http_headers, reached.headers.is_some()),
    };
    if signs_in {
        return Err("its client signs in for it; use mainstay wrap --url with a token");
    }
    let mut items = vec![quoted(WRAP)];
    items.extend(server.options(document).iter().map(|option| quoted(option)));
    let raw = |member: &Member| document.slice(member.value.span.clone()).to_owned();
    items.extend([quoted(URL), raw(url)]);
    let mut edits = Vec::new();
    if let Some(kind) = kind {
        items.extend([quoted(URL_TYPE), raw(kind)]);
        edits.push(Edit::replace(kind.value.span.clone(), quoted("stdio")));
    }
    let mut variables = Vec::new();
    if let Some(token) = reached.token {
        items.extend([quoted(TOKEN_ENV), raw(token)]);
        variables.push(raw(token));
        edits.extend(comment_out(document, server, token)?);
    }
    if let Some(named) = reached.env_headers {
        for header in named.value.members() {
            let variable = header.value.as_text().unwrap_or_default();
            let option = format!("{}={variable}", header.name);
            items.extend([quoted(HEADER_ENV), quoted(&option)]);
            variables.push(raw(header));
        }
        edits.extend(comment_out(document, server, named)?);
    }
    let compact = is_compact(document, &url.value.span);
    let comma = if compact { "," } else { ", " };
    let is_inline = document.slice(server.entry.span.clone()).starts_with('{');
    let separator = match (document.syntax, own_line(&document.text, url.key.start)) {
        (Syntax::Json, Some(line_start)) => format!(",{line_start}"),
        (Syntax::Toml, Some(line_start)) if !is_inline => line_start,
        (Syntax::Toml, None) if !is_inline => {
            return Err("it is written as dotted keys; use mainstay wrap --url");
        }
        _ => comma.to_owned(),
    };
    let command = key_named(document.syntax, "command");
    let args = key_named(document.syntax, "args");
    let list = items.join(comma);
    let mut text = format!(
        "{command}{between}{}{separator}{args}{between}[{list}]",
        quoted(binary)
    );
    if !variables.is_empty() {
        let list = variables.join(", ");
        text = format!("{text}{separator}{ENV_VARS}{between}[{list}]");
    }
    edits.push(Edit::replace(url.key.start..url.value.span.end, text));
    if let Some(headers) = headers {
        let from = headers_of(document.syntax);
        edits.extend(rename_headers(document, headers, (from, "env"), true)?);
    }
    Ok(edits)
}

/// The edits that undo [`wrap`].
pub(super) fn unwrap(
    document: &Document,
    server: &Server<'_>,
    wrapped: &Wrapped<'_>,
    url: usize,
) -> Result<Vec<Edit>, &'static str> {
    let Started {
        command,
        args,
        items,
        ..
    } = wrapped.outer;
    let moved = "it was changed since it was adopted; edit it by hand";
    let (Some(args), Some(raw)) = (args, items.get(url)) else {
        return Err(moved);
    };
    if args.key.start < command.value.span.end {
        return Err(moved);
    }
    let kept = kept_lines(document, server);
    let mut end = args.value.span.end;
    if let Some(variables) = server.entry.get(ENV_VARS).filter(|_| !kept.is_empty()) {
        if variables.key.start < end || !document.slice(end..variables.key.start).trim().is_empty()
        {
            return Err(moved);
        }
        end = variables.value.span.end;
    }
    let between = document.slice(command.key.end..command.value.span.start);
    let raw = document.slice(raw.span.clone());
    let text = format!("{}{between}{raw}", key_named(document.syntax, "url"));
    let mut edits = vec![Edit::replace(command.key.start..end, text)];
    edits.extend(kept.into_iter().map(Edit::remove));
    let option = items.get(url + 1).and_then(|option| option.as_text());
    let kind = items.get(url + 2).filter(|_| option == Some(URL_TYPE));
    if let (Some(kind), Some(member)) = (kind, server.entry.get("type")) {
        let raw = document.slice(kind.span.clone());
        edits.push(Edit::replace(member.value.span.clone(), raw));
    }
    let env = server.entry.get("env");
    if let Some(env) = env.filter(|env| env.value.is_table()) {
        let is_header = |member: &Member| member.name.starts_with(HEADER);
        if env.value.members().iter().any(is_header) || env.value.members().is_empty() {
            let to = headers_of(document.syntax);
            edits.extend(rename_headers(document, env, ("env", to), false)?);
        }
    }
    Ok(edits)
}

/// The list of variables that Codex passes on to a server that it starts.
const ENV_VARS: &str = "env_vars";

/// The member with headers, as the clients of a syntax write it.
const fn headers_of(syntax: Syntax) -> &'static str {
    match syntax {
        Syntax::Json | Syntax::Yaml => "headers",
        Syntax::Toml => "http_headers",
    }
}

/// Begins a line that adopting turned into a comment.
fn mark(server: &Server<'_>) -> String {
    format!("#mainstay {}: ", quoted(server.name))
}

/// The marks of the lines of a server that adopting turned into comments.
pub(super) fn kept_lines(document: &Document, server: &Server<'_>) -> Vec<Span> {
    let mark = mark(server);
    let mut at = 0;
    let mut kept = Vec::new();
    for line in document.text.split_inclusive('\n') {
        if document.syntax == Syntax::Toml && line.starts_with(&mark) {
            kept.push(at..at + mark.len());
        }
        at += line.len();
    }
    kept
}

/// The edits that turn the lines of a member into comments.
fn comment_out(
    document: &Document,
    server: &Server<'_>,
    member: &Member,
) -> Result<Vec<Edit>, &'static str> {
    let text = &document.text;
    let behind = text.get(member.key.end..).unwrap_or_default().trim_start();
    let is_own_line = own_line(text, member.key.start).is_some();
    let is_header = behind.starts_with(']');
    if !(is_header || is_own_line && behind.starts_with('=')) {
        return Err("its variables are written in an unusual form; use mainstay wrap --url");
    }
    let inner = member.value.members().iter();
    let ends = inner.map(|inner| inner.value.span.end);
    let last = ends.chain([member.key.end]).max().unwrap_or_default();
    let last = if is_header {
        last
    } else {
        last.max(member.value.span.end)
    };
    let mark = mark(server);
    let mut at = line_before(text, member.key.start).0;
    let mut edits = Vec::new();
    while at < last {
        edits.push(Edit::insert(at, mark.clone()));
        let end = line_end(text, at);
        let next = text.get(end..).and_then(|rest| rest.find('\n'));
        let Some(next) = next else { break };
        at = end + next + 1;
    }
    Ok(edits)
}

/// Gives a table another name, and adds the mark of headers to the names in it or removes it. The values keep their bytes.
fn rename_headers(
    document: &Document,
    table: &Member,
    (from, to): (&str, &str),
    adds: bool,
) -> Result<Vec<Edit>, &'static str> {
    let behind = document.text.get(table.key.end..).unwrap_or_default();
    if behind.trim_start().starts_with('.') {
        return Err(UNUSUAL_HEADERS);
    }
    let mut edits = vec![Edit::replace(bare(document, &table.key, from)?, to)];
    for member in table.value.members() {
        let name = bare(document, &member.key, &member.name)?;
        edits.push(match adds {
            true => Edit::insert(name.start, HEADER),
            false if member.name.starts_with(HEADER) => {
                Edit::remove(name.start..name.start + HEADER.len())
            }
            false => return Err("its env holds more than headers; edit it by hand"),
        });
    }
    Ok(edits)
}

/// The place of a name without its quotes, if it is written without escapes.
fn bare(document: &Document, key: &Span, name: &str) -> Result<Span, &'static str> {
    let raw = document.slice(key.clone());
    let quotes = raw.len().checked_sub(name.len());
    let place = match quotes {
        Some(0) => key.clone(),
        Some(2) => key.start + 1..key.end - 1,
        _ => return Err(UNUSUAL_HEADERS),
    };
    match document.slice(place.clone()) == name {
        true => Ok(place),
        false => Err(UNUSUAL_HEADERS),
    }
}

/// The key of a member, as adopting writes it.
fn key_named(syntax: Syntax, name: &str) -> String {
    match syntax {
        Syntax::Json => quoted(name),
        Syntax::Toml | Syntax::Yaml => name.to_owned(),
    }
}
