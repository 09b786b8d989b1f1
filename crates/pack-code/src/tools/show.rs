//! `show_file`: a file, some of its lines, one definition, its outline, or the map of a folder.

use std::io::Read as _;
use std::sync::Arc;

use mainstay_worker::{
    Code, Context, ErrorKind, Porcelain, Problem, Reply, RootedError, ToolSpec, render, tool_spec,
};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::fresh::repo::Repo;
use crate::limits;
use crate::query::auto::qualified;
use crate::query::snippet::Lines;
use crate::symbols::{Symbol, extract, signature};
use crate::tools::{count, object, repo_argument, text};
use crate::workspace::Workspace;

#[derive(Debug, Deserialize)]
pub(crate) struct Arguments {
    path: String,
    repo: Option<String>,
    start_line: Option<u64>,
    end_line: Option<u64>,
    symbol: Option<String>,
    #[serde(default)]
    outline: bool,
    max_bytes: Option<usize>,
    expect_sha: Option<String>,
}

pub(crate) fn spec(version: &str) -> ToolSpec {
    let entry = object(
        json!({"name": text(), "owner": text(), "kind": text(), "signature": text(),
            "start_line": count(), "end_line": count()}),
        &["name", "kind", "signature", "start_line", "end_line"],
    );
    tool_spec(
        "show_file",
        "Shows a file, some of its lines, one definition or its outline; for a folder, a map of its \
         files and main definitions.",
    )
    .input(object(
        json!({
            "path": {"type": "string", "format": "path", "minLength": 1, "maxLength": 4096,
                "description": "Relative to the repository; . is its root."},
            "repo": repo_argument(),
            "start_line": {"type": "integer", "minimum": 1},
            "end_line": {"type": "integer", "minimum": 1},
            "symbol": {"type": "string", "minLength": 1, "maxLength": 200,
                "description": "Shows the definition of this name, or of Owner.name."},
            "outline": {"type": "boolean",
                "description": "Lists definitions instead of text."},
            "max_bytes": {"type": "integer", "minimum": 1, "maximum": limits::MAX_SHOW_BYTES,
                "description": "Default 48000."},
            "expect_sha": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$",
                "description": "SHA-256 that the file must have."},
        }),
        &["path"],
    ))
    .output(object(
        json!({
            "path": text(), "text": text(), "outline": {"type": "array", "items": entry}, "map": super::map::schema(),
            "start_line": count(), "end_line": count(), "total_lines": count(), "sha": text(),
            "encoding": {"type": "string", "enum": ["utf-8", "utf-8-bom", "utf-16le", "utf-16be", "unknown-8bit"]},
            "truncated": {"type": "boolean"},
        }),
        &["path", "truncated"],
    ))
    .errors(&[Code::NotFound])
    .schema_version(4)
    .tooling_version(version)
    .coded_rejections()
    .read_only()
}

/// What to do when `expect_sha` does not fit.
const CHANGED: &str = "read the file again; it has changed since";

fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(ErrorKind::InvalidArguments, message)
}

pub(crate) fn call(
    workspace: &Workspace,
    arguments: &Arguments,
    context: &Context,
) -> Result<Reply, Problem> {
    let (repo, path) = locate(workspace, arguments)?;
    if arguments.symbol.is_some()
        && (arguments.start_line.is_some() || arguments.end_line.is_some())
    {
        return Err(
            invalid("symbol and line numbers exclude each other").with_hint("give one of them")
        );
    }
    if let (Some(start), Some(end)) = (arguments.start_line, arguments.end_line)
        && start > end
    {
        return Err(
            invalid(format!("start_line {start} is after end_line {end}")).with_hint("swap them"),
        );
    }
    if super::map::is_folder(repo, path) {
        let max = arguments.max_bytes.unwrap_or(limits::MAP_BYTES);
        let rows = (arguments.start_line, arguments.end_line);
        return super::map::reply(repo, path, max, rows, context);
    }
    let bytes = read(repo, path)?;
    context.check()?;
    let sha = hex(&Sha256::digest(&bytes));
    if let Some(expected) = &arguments.expect_sha
        && !expected.eq_ignore_ascii_case(&sha)
    {
        return Err(
            invalid(format!("{path} has another content: its SHA-256 is {sha}"))
                .with_hint(CHANGED)
                .with_details(mainstay_worker::Json::from(json!({
                    "ok": false, "reason": "validation_failed", "code": "INVALID_REQUEST",
                    "message": "the file has another content", "hint": CHANGED, "sha": sha,
                }))),
        );
    }
    let (text, encoding) = decode(&bytes, path)?;
    let lines = Lines::new(text.as_bytes());
    let total = lines.count();
    let (start, end) = range(arguments, path, &text, total)?;
    if arguments.outline {
        let max = arguments.max_bytes.unwrap_or(limits::SHOW_BYTES);
        let outline = Outline {
            path: path.to_owned(),
            entries: entries(path, &lines, (start, end)),
            start: start.min(total),
            end,
            total,
            sha,
            encoding,
        };
        let most = outline.within(max);
        return Ok(Reply::page(
            outline,
            most,
            Outline::json,
            Outline::porcelain,
        ));
    }
    let max = arguments.max_bytes.unwrap_or(limits::SHOW_BYTES);
    let (shown, last, truncated) = cut(&lines, start, end, max);
    let most = usize::try_from(last.saturating_sub(start) + 1).unwrap_or(usize::MAX);
    let shown = Shown {
        path: path.to_owned(),
        text: shown,
        start,
        end,
        total,
        first_bytes: lines.line(start).len(),
        truncated,
        sha,
        encoding,
    };
    Ok(Reply::page(shown, most, Shown::json, Shown::porcelain))
}

/// The lines of a file that an answer may have; it has the first of them.
struct Shown {
    path: String,
    text: String,
    start: u64,
    /// The last line that was asked for.
    end: u64,
    total: u64,
    /// Bytes of the first line, which is the only one that may be cut.
    first_bytes: usize,
    /// Lines that were asked for are missing in `text`.
    truncated: bool,
    sha: String,
    encoding: &'static str,
}

impl Shown {
    fn text(&self, lines: usize) -> &str {
        let end = memchr::memchr_iter(b'\n', self.text.as_bytes()).nth(lines.saturating_sub(1));
        end.and_then(|end| self.text.get(..end))
            .unwrap_or(&self.text)
    }

    fn last(&self, lines: usize) -> u64 {
        self.start + (lines as u64).saturating_sub(1)
    }

    fn is_cut(&self, lines: usize) -> bool {
        self.truncated || self.text(lines).len() < self.text.len()
    }

    fn json(&self, lines: usize) -> Value {
        json!({
            "path": self.path, "text": self.text(lines), "start_line": self.start,
            "end_line": self.last(lines).min(self.end), "total_lines": self.total, "sha": self.sha,
            "encoding": self.encoding, "truncated": self.is_cut(lines),
        })
    }

    fn porcelain(&self, lines: usize) -> Porcelain {
        let Self {
            path, start, total, ..
        } = self;
        let (text, last) = (self.text(lines), self.last(lines).min(self.end));
        let mut porcelain =
            Porcelain::summary(format!("{path}: lines {start} to {last} of {total}"));
        let mut longest = 0;
        for (number, line) in (*start..).zip(text.split('\n')) {
            let number = number.to_string();
            let line = line.trim_end_matches('\r').replace('\t', "    ");
            longest = longest.max(number.len() + 2 + line.chars().count());
            porcelain = porcelain.field(&number, line);
        }
        if text.contains('\t') {
            porcelain = porcelain
                .note("tabs are shown as four spaces; the structured result has the text as it is");
        }
        let cut_inside = lines == 1 && self.text.len() < self.first_bytes && !text.contains('\n');
        if cut_inside {
            porcelain = porcelain.note(format!(
                "line {start} has {} bytes, of which {} are given; max_bytes {} gives all of it",
                self.first_bytes,
                text.len(),
                self.first_bytes.min(limits::MAX_SHOW_BYTES),
            ));
        } else if longest > render::LINE_MAX_CHARS {
            porcelain = porcelain.note(format!(
                "lines are shown up to {} characters; the structured result has them whole",
                render::LINE_MAX_CHARS
            ));
        }
        match self.is_cut(lines) && last < self.end {
            true if self.end < self.total => porcelain.hint(format!(
                "start_line {} with end_line {} reads on",
                last + 1,
                self.end
            )),
            true => porcelain.hint(format!("start_line {} reads on", last + 1)),
            false => porcelain,
        }
    }
}

/// The repository and the path in it that a call means. With several repositories a path may begin
/// with the name of one, as `search` prints it, or be a path that only one of them has.
fn locate<'a>(
    workspace: &'a Workspace,
    arguments: &'a Arguments,
) -> Result<(&'a Arc<Repo>, &'a str), Problem> {
    let path = arguments.path.trim_start_matches("./");
    let wanted = arguments.repo.as_deref();
    if wanted.is_some() || workspace.members.len() < 2 {
        return Ok((workspace.one(wanted)?.1, path));
    }
    let usable = || {
        let members = workspace.members.iter();
        members.filter_map(|member| Some((member.alias.as_str(), member.repo.as_ref().ok()?)))
    };
    let exists = |repo: &Repo, path: &str| {
        repo.place.rooted.open_file(path).is_ok() || super::map::is_folder(repo, path)
    };
    let named = usable().find_map(|(alias, repo)| {
        let rest = match path.strip_prefix(alias)? {
            "" | "/" => ".",
            rest => rest.strip_prefix('/')?,
        };
        exists(repo, rest).then_some((repo, rest))
    });
    if let Some(found) = named {
        return Ok(found);
    }
    let having: Vec<_> = usable().filter(|(_, repo)| exists(repo, path)).collect();
    match having.as_slice() {
        [(_, repo)] => Ok((repo, path)),
        // Says which repositories there are.
        _ => Ok((workspace.one(None)?.1, path)),
    }
}

fn read(repo: &Repo, path: &str) -> Result<Vec<u8>, Problem> {
    let shown = render::shorten(path, 120);
    let file = repo
        .place
        .rooted
        .open_file(path)
        .map_err(|error| match error {
            RootedError::Escapes => invalid(format!("{shown} leaves the repository"))
                .with_hint("paths are relative to the root, without .. and links that lead out"),
            RootedError::NotFound => {
                Problem::new(ErrorKind::NotFound, format!("there is no file {shown}"))
                    .with_hint("search with kind path finds files by name")
            }
            RootedError::NotAFile => Problem::new(
                ErrorKind::NotFound,
                format!("{shown} is not a regular file"),
            )
            .with_hint("only regular files and folders are shown"),
            other => Problem::new(
                ErrorKind::NotFound,
                format!("{shown} cannot be read: {other}"),
            )
            .with_hint("check its permissions"),
        })?;
    let mut bytes = Vec::new();
    let read = file
        .take(limits::SHOW_FILE_BYTES + 1)
        .read_to_end(&mut bytes);
    match read {
        Ok(n) if n as u64 > limits::SHOW_FILE_BYTES => Err(invalid(format!(
            "{shown} is larger than {}, the most that is shown",
            render::bytes(limits::SHOW_FILE_BYTES)
        ))
        .with_hint(
            "files of this size are not searched either; look at it with a program of the system, or split it",
        )),
        Ok(_) => Ok(bytes),
        Err(error) => Err(Problem::new(
            ErrorKind::NotFound,
            format!("{shown} cannot be read: {error}"),
        )),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a file, whatever it is encoded in; a binary file is an error.
fn decode(bytes: &[u8], path: &str) -> Result<(String, &'static str), Problem> {
    let wide = |bytes: &[u8], from: fn([u8; 2]) -> u16| {
        let (pairs, _) = bytes.as_chunks::<2>();
        String::from_utf16_lossy(&pairs.iter().map(|pair| from(*pair)).collect::<Vec<u16>>())
    };
    if let Some(rest) = bytes.strip_prefix(&[0xff, 0xfe]) {
        return Ok((wide(rest, u16::from_le_bytes), "utf-16le"));
    }
    if let Some(rest) = bytes.strip_prefix(&[0xfe, 0xff]) {
        return Ok((wide(rest, u16::from_be_bytes), "utf-16be"));
    }
    if memchr::memchr(0, bytes).is_some() {
        return Err(
            invalid(format!("{} is a binary file", render::shorten(path, 120)))
                .with_hint("only text is shown"),
        );
    }
    if let Some(rest) = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]) {
        return Ok((String::from_utf8_lossy(rest).into_owned(), "utf-8-bom"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok((text.to_owned(), "utf-8")),
        Err(_) => Ok((String::from_utf8_lossy(bytes).into_owned(), "unknown-8bit")),
    }
}

fn range(arguments: &Arguments, path: &str, text: &str, total: u64) -> Result<(u64, u64), Problem> {
    if let Some(wanted) = &arguments.symbol {
        let symbols = extract(path, text.as_bytes());
        let (owner, name) = match qualified(wanted) {
            Some((owners, name)) => (owners.last().copied(), name),
            None => (None, wanted.as_str()),
        };
        let owned = |symbol: &Symbol| owner.is_none_or(|owner| symbol.owner == owner);
        let named = |exact: bool| {
            symbols.iter().find(|symbol| {
                owned(symbol)
                    && match exact {
                        true => symbol.name == name,
                        false => symbol.name.eq_ignore_ascii_case(name),
                    }
            })
        };
        let Some(found) = named(true).or_else(|| named(false)) else {
            let names: Vec<&str> = symbols
                .iter()
                .take(20)
                .map(|symbol| symbol.name.as_str())
                .collect();
            return Err(Problem::new(
                ErrorKind::NotFound,
                format!(
                    "{} defines no {}",
                    render::shorten(path, 120),
                    render::shorten(wanted, 80)
                ),
            )
            .with_hint(match names.is_empty() {
                true => "outline lists what a file defines".to_owned(),
                false => format!("it defines: {}", names.join(", ")),
            }));
        };
        // Where the end is not known, up to the next definition.
        let next = symbols
            .iter()
            .map(|symbol| symbol.start_line)
            .find(|line| *line > found.start_line);
        let end = match found.end_line > found.start_line || crate::symbols::has_grammar(path) {
            true => found.end_line,
            false => next.map_or(total, |line| line - 1),
        };
        return Ok((found.start_line, end.max(found.start_line)));
    }
    let start = arguments.start_line.unwrap_or(1);
    if start > total.max(1) {
        return Err(invalid(format!(
            "the file has {total} lines; line {start} is past its end"
        ))
        .with_hint("give a start_line within the file"));
    }
    Ok((
        start,
        arguments
            .end_line
            .unwrap_or(total)
            .min(total)
            .max(start.min(total)),
    ))
}

/// Whole lines within the bytes; the first line is cut if it alone is too long.
fn cut(lines: &Lines<'_>, start: u64, end: u64, max: usize) -> (String, u64, bool) {
    let mut out = String::new();
    let mut last = start;
    for number in start..=end {
        let line = String::from_utf8_lossy(lines.line(number));
        let joined = usize::from(number > start);
        if out.len() + joined + line.len() > max {
            if number == start {
                let at = line.floor_char_boundary(max);
                out.push_str(line.get(..at).unwrap_or_default());
            }
            return (out, last, true);
        }
        if number > start {
            out.push('\n');
        }
        out.push_str(&line);
        last = number;
    }
    (out, last.min(end), false)
}

/// A definition in an outline.
struct Entry {
    symbol: Symbol,
    signature: String,
}

impl Entry {
    fn json(&self) -> Value {
        let Self { symbol, signature } = self;
        let mut entry = json!({"name": symbol.name, "kind": symbol.kind.name(), "signature": signature,
            "start_line": symbol.start_line, "end_line": symbol.end_line});
        if let (false, Some(entry)) = (symbol.owner.is_empty(), entry.as_object_mut()) {
            entry.insert("owner".to_owned(), json!(symbol.owner));
        }
        entry
    }

    fn row(&self) -> String {
        let Self { symbol, signature } = self;
        let owner = match symbol.owner.is_empty() {
            true => String::new(),
            false => format!("{}: ", symbol.owner),
        };
        format!(
            "{}-{} {owner}{signature}",
            symbol.start_line, symbol.end_line
        )
    }
}

/// The definitions that begin within some lines, by line.
fn entries(path: &str, lines: &Lines<'_>, (start, end): (u64, u64)) -> Vec<Entry> {
    let mut symbols = extract(path, lines.text());
    symbols.retain(|symbol| (start..=end).contains(&symbol.start_line));
    symbols.sort_by_key(|symbol| symbol.start_line);
    let entry = |symbol: Symbol| Entry {
        signature: signature(lines, &symbol),
        symbol,
    };
    symbols.into_iter().map(entry).collect()
}

/// The definitions of a file, of which an answer has the first.
struct Outline {
    path: String,
    entries: Vec<Entry>,
    start: u64,
    end: u64,
    total: u64,
    sha: String,
    encoding: &'static str,
}

impl Outline {
    /// How many of the definitions take at most `max` bytes as JSON; at least one.
    fn within(&self, max: usize) -> usize {
        let mut bytes = 0;
        let fitting = self.entries.iter().take_while(|entry| {
            bytes += entry.json().to_string().len() + 1;
            bytes <= max
        });
        fitting.count().max(1).min(self.entries.len())
    }

    /// The first definitions, the line at which the others begin, and how many are missing on the
    /// last line: definitions of one line stay together unless they are too many for an answer.
    fn shown(&self, most: usize) -> (&[Entry], Option<u64>, usize) {
        let begins = |at: usize| self.entries.get(at).map(|entry| entry.symbol.start_line);
        let is_boundary = |at: &usize| begins(*at) != at.checked_sub(1).and_then(begins);
        let at = (1..=most).rev().find(is_boundary).unwrap_or(most);
        let shown = self.entries.get(..at).unwrap_or(&self.entries);
        let line = shown.last().map(|last| last.symbol.start_line);
        let rest = self.entries.get(at..).unwrap_or_default();
        let same = rest.partition_point(|entry| Some(entry.symbol.start_line) == line);
        (shown, begins(at + same), same)
    }

    fn json(&self, most: usize) -> Value {
        let (shown, next, missing) = self.shown(most);
        let entries: Vec<Value> = shown.iter().map(Entry::json).collect();
        json!({
            "path": self.path, "outline": entries, "start_line": self.start,
            "end_line": next.map_or(self.end, |next| next - 1), "total_lines": self.total,
            "sha": self.sha, "encoding": self.encoding, "truncated": next.is_some() || missing > 0,
        })
    }

    fn porcelain(&self, most: usize) -> Porcelain {
        let (shown, next, missing) = self.shown(most);
        let number = render::count(self.entries.len(), "definition", "definitions");
        let some = match shown.len() < self.entries.len() {
            true => format!(", {} shown", shown.len()),
            false => String::new(),
        };
        let Self { path, total, .. } = self;
        let mut porcelain = Porcelain::summary(format!("{path}: {number} in {total} lines{some}"))
            .items(shown.iter().map(Entry::row))
            .hint("show_file with symbol shows one of them");
        if missing > 0 {
            porcelain = porcelain.note(format!(
                "{} of the same line not shown; render \"json\" and max_bytes {} list them",
                render::count(missing, "definition", "definitions"),
                limits::MAX_SHOW_BYTES
            ));
        }
        match next {
            Some(next) if self.end < self.total => porcelain.hint(format!(
                "start_line {next} with end_line {} and outline reads on",
                self.end
            )),
            Some(next) => porcelain.hint(format!("start_line {next} with outline reads on")),
            None => porcelain,
        }
    }
}
