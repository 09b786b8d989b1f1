//! The map of a folder: what is in it, how much, in which languages, and the definitions that most
//! files mention.

use std::collections::BTreeMap;
use std::time::Instant;

use mainstay_worker::{Context, ErrorKind, Porcelain, Problem, Reply, render};
use serde_json::{Value, json};

use crate::fresh::repo::Repo;
use crate::limits;
use crate::query::snippet::Lines;
use crate::query::symbol::whole_term;
use crate::symbols::{Symbol, guess, signature};
use crate::text::defs::Kind;
use crate::tools::{count, internal, object, text};
use crate::tree::class::{Class, classify};
use crate::tree::file::Content;
use crate::tree::lang::Lang;
use crate::tree::walk::Walk;
use crate::view::View;

/// Definitions of a map at most.
const DEFINITIONS: usize = 60;
/// Definitions of one file, so that no file takes the whole list.
const OF_ONE_FILE: usize = 4;
/// Bytes of a name that is worth listing.
const NAME_BYTES: usize = 4;

pub(crate) fn schema() -> Value {
    let language = object(
        json!({"lang": text(), "files": count(), "bytes": count()}),
        &["lang", "files", "bytes"],
    );
    let entry = object(
        json!({"path": text(), "files": count(), "bytes": count()}),
        &["path", "bytes"],
    );
    let definition = object(
        json!({"path": text(), "line": count(), "name": text(), "kind": text(), "signature": text(), "mentions": count()}),
        &["path", "line", "name", "kind", "signature", "mentions"],
    );
    object(
        json!({
            "files": count(), "bytes": count(),
            "languages": {"type": "array", "items": language},
            "entries": {"type": "array", "items": entry},
            "definitions": {"type": "array", "items": definition},
        }),
        &["files", "bytes", "languages", "entries", "definitions"],
    )
}

/// Whether a path is a folder within the root, not reached through a link.
pub(crate) fn is_folder(repo: &Repo, path: &str) -> bool {
    let plain = path.trim_end_matches('/');
    if matches!(plain, "" | ".") {
        return true;
    }
    let mut at = repo.place.root.clone();
    for part in plain.split('/') {
        if matches!(part, "" | "." | "..") {
            return false;
        }
        at.push(part);
        if !at
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir())
        {
            return false;
        }
    }
    true
}

/// A definition and how many files mention its name.
struct Mentioned {
    path: String,
    symbol: Symbol,
    signature: String,
    mentions: u64,
}

/// One line of a map.
enum Row {
    Entry(Value),
    Definition(Value),
}

impl Row {
    const fn value(&self) -> &Value {
        match self {
            Self::Entry(value) | Self::Definition(value) => value,
        }
    }

    fn shown(&self) -> String {
        let text = |key: &str| self.value()[key].as_str().unwrap_or_default();
        match self {
            Self::Entry(row) => {
                let size = render::bytes(row["bytes"].as_u64().unwrap_or(0));
                let inside = row["files"].as_u64().map_or_else(String::new, |files| {
                    let files = usize::try_from(files).unwrap_or(usize::MAX);
                    format!("{}, ", render::count(files, "file", "files"))
                });
                format!("{} ({inside}{size})", text("path"))
            }
            Self::Definition(row) => format!(
                "{}:{} {} ({} files)",
                text("path"),
                row["line"],
                text("signature"),
                row["mentions"]
            ),
        }
    }
}

/// The map of a folder, of which an answer has some rows.
struct Map {
    folder: String,
    files: usize,
    bytes: u64,
    languages: Vec<Value>,
    /// The rows that were asked for, and the number of the first one.
    rows: Vec<Row>,
    first: usize,
    total: usize,
}

/// A map from its row `first` on: the first entries of the folder, then the definitions that matter
/// most, then the other entries.
pub(crate) fn reply(
    repo: &Repo,
    path: &str,
    max: usize,
    (first, last): (Option<u64>, Option<u64>),
    context: &Context,
) -> Result<Reply, Problem> {
    let folder = match path.trim_end_matches('/') {
        "." => "",
        plain => plain,
    };
    let view = repo.first_view();
    let files = files(repo, view.as_deref(), folder);
    context.check()?;
    let mut entries: Vec<Row> = tree(&files, folder)
        .iter()
        .map(|(path, (files, bytes))| match files {
            Some(files) => json!({"path": format!("{path}/"), "files": files, "bytes": bytes}),
            None => json!({"path": path, "bytes": bytes}),
        })
        .map(Row::Entry)
        .collect();
    let mentioned = match &view {
        Some(view) => mentioned(repo, view, &files, context)?,
        None => Vec::new(),
    };
    let definitions = mentioned.iter().map(|found| {
        Row::Definition(json!({"path": found.path, "line": found.symbol.start_line, "name": found.symbol.name,
            "kind": found.symbol.kind.name(), "signature": found.signature, "mentions": found.mentions}))
    });
    let others = entries.split_off(entries.len().min(limits::MAP_ENTRIES));
    let mut rows: Vec<Row> = entries
        .into_iter()
        .chain(definitions)
        .chain(others)
        .collect();
    let number = |line: u64| usize::try_from(line).unwrap_or(usize::MAX);
    let (first, total) = (first.map_or(1, number), rows.len());
    if first > total.max(1) {
        return Err(Problem::new(
            ErrorKind::InvalidArguments,
            format!("the map has {total} rows; row {first} is past its end"),
        )
        .with_hint("give a start_line within the map"));
    }
    rows.truncate(last.map_or(total, number));
    rows.drain(..(first - 1).min(rows.len()));
    let mut used = 0;
    let fits = rows.iter().take_while(|row| {
        used += row.value().to_string().len() + 1;
        used <= max
    });
    let most = fits.count().max(1);
    let map = Map {
        folder: if folder.is_empty() { "." } else { folder }.to_owned(),
        bytes: files.values().sum(),
        languages: languages(&files),
        files: files.len(),
        rows,
        first,
        total,
    };
    if map.rows.is_empty() {
        return Ok(Reply::json(&map.json(0)).porcelain(move || map.porcelain(0)));
    }
    Ok(Reply::page(map, most, Map::json, Map::porcelain))
}

impl Map {
    fn shown(&self, rows: usize) -> &[Row] {
        self.rows.get(..rows).unwrap_or(&self.rows)
    }

    /// The number of the last row of an answer with this many.
    fn last(&self, rows: usize) -> usize {
        self.first + self.shown(rows).len() - 1
    }

    fn json(&self, rows: usize) -> Value {
        let (mut entries, mut definitions) = (Vec::new(), Vec::new());
        for row in self.shown(rows) {
            match row {
                Row::Entry(value) => entries.push(value),
                Row::Definition(value) => definitions.push(value),
            }
        }
        json!({
            "path": self.folder, "truncated": self.last(rows) < self.total,
            "start_line": self.first, "end_line": self.last(rows), "total_lines": self.total,
            "map": {"files": self.files, "bytes": self.bytes, "languages": self.languages,
                "entries": entries, "definitions": definitions},
        })
    }

    fn porcelain(&self, rows: usize) -> Porcelain {
        let mut porcelain = Porcelain::summary(format!(
            "{}: {}, {}",
            self.folder,
            render::count(self.files, "file", "files"),
            render::bytes(self.bytes)
        ));
        let named = |row: &Value| {
            format!(
                "{} {}",
                row["lang"].as_str().unwrap_or_default(),
                row["files"]
            )
        };
        let named: Vec<String> = self.languages.iter().map(named).collect();
        porcelain = porcelain.field("languages", named.join(", "));
        let mut section = "";
        for row in self.shown(rows) {
            let title = match row {
                Row::Entry(_) => "tree",
                Row::Definition(_) => "most mentioned definitions",
            };
            if title != section {
                porcelain = porcelain.section(title);
                section = title;
            }
            porcelain = porcelain.item(row.shown());
        }
        match self.last(rows) < self.total {
            true => porcelain.hint(format!(
                "show_file {} with start_line {} lists more, {} rows in all",
                self.folder,
                self.last(rows) + 1,
                self.total
            )),
            false => porcelain.hint("show_file with a file and outline lists its definitions"),
        }
    }
}

/// The files below a folder with their sizes.
fn files(repo: &Repo, view: Option<&View>, folder: &str) -> BTreeMap<String, u64> {
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let mut files = BTreeMap::new();
    let Some(view) = view else {
        let mut walk = Walk::new(&repo.place.root, repo.place.rules);
        walk.under = folder;
        walk.deadline = Some(Instant::now() + limits::SCAN_TIME);
        let found = walk.run().files;
        return found
            .into_iter()
            .map(|file| (file.path, file.stamp.size))
            .collect();
    };
    for (number, segment) in view.generation.segments.iter().enumerate() {
        for doc in segment.docs.under(&prefix) {
            if view.is_live(number, doc) {
                files.insert(segment.docs.path(doc).to_owned(), segment.stamp(doc).size);
            }
        }
    }
    for (_, path, live) in view.changed() {
        if path.starts_with(&prefix) {
            files.insert(path.to_owned(), live.stamp.size);
        }
    }
    files
}

fn languages(files: &BTreeMap<String, u64>) -> Vec<Value> {
    let mut found: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (path, bytes) in files {
        let entry = found.entry(Lang::of_path(path).name()).or_default();
        *entry = (entry.0 + 1, entry.1 + bytes);
    }
    let mut rows: Vec<_> = found.into_iter().collect();
    rows.sort_by_key(|(lang, (_, bytes))| (std::cmp::Reverse(*bytes), *lang));
    rows.iter()
        .map(|(lang, (files, bytes))| json!({"lang": lang, "files": files, "bytes": bytes}))
        .collect()
}

/// What is directly in a folder: folders with the number of their files, and files.
fn tree(files: &BTreeMap<String, u64>, folder: &str) -> BTreeMap<String, (Option<u64>, u64)> {
    let skip = if folder.is_empty() {
        0
    } else {
        folder.len() + 1
    };
    let mut found: BTreeMap<String, (Option<u64>, u64)> = BTreeMap::new();
    for (path, bytes) in files {
        let rest = path.get(skip..).unwrap_or_default();
        let (name, nested) = match rest.split_once('/') {
            Some((child, _)) => (child, true),
            None => (rest, false),
        };
        let entry = found
            .entry(format!("{}{name}", path.get(..skip).unwrap_or_default()))
            .or_default();
        entry.1 += bytes;
        if nested {
            entry.0 = Some(entry.0.unwrap_or(0) + 1);
        }
    }
    found
}

/// The definitions of a folder's code that most files of the repository mention.
fn mentioned(
    repo: &Repo,
    view: &View,
    files: &BTreeMap<String, u64>,
    context: &Context,
) -> Result<Vec<Mentioned>, Problem> {
    let reader = repo.reader();
    let mut buffer = Vec::new();
    let mut found = Vec::new();
    let until = Instant::now() + limits::MAP_TIME;
    let mut read = 0;
    let code = files
        .keys()
        .filter(|path| classify(path) == Class::Code && Lang::of_path(path).is_code());
    for path in code.take(limits::MAP_FILES) {
        context.check()?;
        if Instant::now() >= until || read >= limits::MAP_FILE_BYTES {
            break;
        }
        if !matches!(reader.read(path, &mut buffer).0, Content::Text) {
            continue;
        }
        read += buffer.len() as u64;
        let lines = Lines::new(&buffer);
        let mut own: Vec<Mentioned> = Vec::new();
        for symbol in guess(path, &buffer) {
            let matters =
                symbol.kind.is_type() || matches!(symbol.kind, Kind::Function | Kind::Macro);
            if !matters
                || symbol.name.len() < NAME_BYTES
                || own.iter().any(|known| known.symbol.name == symbol.name)
            {
                continue;
            }
            own.push(Mentioned {
                mentions: mentions(view, &symbol.name).map_err(|error| internal(&error))?,
                signature: signature(&lines, &symbol),
                path: path.clone(),
                symbol,
            });
        }
        own.sort_by(|a, b| a.rank().cmp(&b.rank()));
        own.truncate(OF_ONE_FILE);
        found.append(&mut own);
    }
    found.sort_by(|a, b| a.rank().cmp(&b.rank()));
    found.truncate(DEFINITIONS);
    Ok(found)
}

impl Mentioned {
    /// The order of definitions: types count double.
    fn rank(&self) -> (std::cmp::Reverse<u64>, &str, u64) {
        let weight = if self.symbol.kind.is_type() { 2 } else { 1 };
        (
            std::cmp::Reverse(weight * self.mentions),
            &self.path,
            self.symbol.start_line,
        )
    }
}

/// How many files have a name.
fn mentions(view: &View, name: &str) -> Result<u64, crate::store::StoreError> {
    let term = whole_term(name);
    let mut count = 0;
    for segment in &view.generation.segments {
        count += segment
            .terms
            .get(&term)?
            .map_or(0, |found| u64::from(found.count));
    }
    Ok(count)
}
