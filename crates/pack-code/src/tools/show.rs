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
        "Shows a file of the workspace, or some of its lines, one of its definitions, or its outline; \
         of a folder a map: what is in it, and the definitions that matter most.",
    )
    .input(object(
        json!({
            "path": {"type": "string", "minLength": 1, "maxLength": 4096,
                "description": "Path relative to the root of the repository, with /; . is the root itself."},
            "repo": repo_argument(),
            "start_line": {"type": "integer", "minimum": 1, "description": "First line; 1 by default."},
            "end_line": {"type": "integer", "minimum": 1, "description": "Last line; the end by default."},
            "symbol": {"type": "string", "minLength": 1, "maxLength": 200,
                "description": "Shows the lines that define this name; Owner.name where several do."},
            "outline": {"type": "boolean", "description": "Lists the definitions of the file, or of the lines or symbol given, instead of the text."},
            "max_bytes": {"type": "integer", "minimum": 1, "maximum": limits::MAX_SHOW_BYTES,
                "description": "Bytes of text, 48000 by default."},
            "expect_sha": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$",
                "description": "SHA-256 that the file must have; another one is an error that names it."},
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
    .schema_version(2)
    .errors(&[Code::NotFound])
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
        return super::map::reply(repo, path, max, context);
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
        let file = json!({"path": path, "start_line": start.min(total), "end_line": end, "total_lines": total,
            "sha": sha, "encoding": encoding});
        let max = arguments.max_bytes.unwrap_or(limits::SHOW_BYTES);
        return Ok(outline(path, &lines, (start, end), file, max));
    }
    let max = arguments.max_bytes.unwrap_or(limits::SHOW_BYTES);
    let (shown, last, truncated) = cut(&lines, start, end, max);
    let value = json!({
        "path": path, "text": shown, "start_line": start, "end_line": last, "total_lines": total, "sha": sha,
        "encoding": encoding, "truncated": truncated,
    });
    let path = path.to_owned();
    Ok(Reply::json(&value).porcelain(move || {
        let mut porcelain =
            Porcelain::summary(format!("{path}: lines {start} to {last} of {total}"));
        for (number, line) in (start..).zip(shown.split('\n')) {
            porcelain = porcelain.field(
                &number.to_string(),
                line.trim_end_matches('\r').replace('\t', "    "),
            );
        }
        if shown.contains('\t') {
            porcelain = porcelain
                .note("tabs are shown as four spaces; the structured result has the text as it is");
        }
        match truncated {
            true => porcelain.hint(format!("start_line {} reads on", last + 1)),
            false => porcelain,
        }
    }))
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
        let rest = path.strip_prefix(alias)?.strip_prefix('/')?;
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
        .with_hint("search it with kind regex instead")),
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

/// The definitions that begin within some lines.
fn outline(
    path: &str,
    lines: &Lines<'_>,
    (start, end): (u64, u64),
    file: Value,
    max: usize,
) -> Reply {
    let mut symbols = extract(path, lines.text());
    symbols.retain(|symbol| (start..=end).contains(&symbol.start_line));
    let mut bytes = 0;
    let entries: Vec<Value> = symbols
        .iter()
        .map(|symbol| {
            let mut entry = json!({"name": symbol.name, "kind": symbol.kind.name(), "signature": signature(lines, symbol),
                "start_line": symbol.start_line, "end_line": symbol.end_line});
            if let (false, Some(entry)) = (symbol.owner.is_empty(), entry.as_object_mut()) {
                entry.insert("owner".to_owned(), json!(symbol.owner));
            }
            entry
        })
        .take_while(|entry| {
            bytes += entry.to_string().len() + 1;
            bytes <= max
        })
        .collect();
    let truncated = entries.len() < symbols.len();
    let rows: Vec<String> = symbols
        .iter()
        .take(entries.len())
        .map(|symbol| {
            let owner = match symbol.owner.is_empty() {
                true => String::new(),
                false => format!("{}: ", symbol.owner),
            };
            format!(
                "{}-{} {owner}{}",
                symbol.start_line,
                symbol.end_line,
                signature(lines, symbol)
            )
        })
        .collect();
    let mut value = file;
    if let Some(object) = value.as_object_mut() {
        object.insert("outline".to_owned(), json!(entries));
        object.insert("truncated".to_owned(), json!(truncated));
    }
    let path = path.to_owned();
    let total = lines.count();
    Reply::json(&value).porcelain(move || {
        let porcelain = Porcelain::summary(format!(
            "{path}: {} in {total} lines",
            render::count(rows.len(), "definition", "definitions")
        ))
        .items(rows);
        match truncated {
            true => porcelain
                .hint("not all of them fit: max_bytes shows more, start_line and end_line a part"),
            false => porcelain.hint("show_file with symbol shows one of them"),
        }
    })
}
