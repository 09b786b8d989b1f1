//! History: commits whose message or changes have a text, and the last commits of some lines.
//!
//! Runs `git` with everything off by which a repository's own configuration could start a program:
//! hooks, fsmonitor, external and textual converters, pagers, signatures, fetching of what a partial
//! clone left out. Time, memory and output are bounded; what was not reached is said.

use std::path::Path;
use std::time::{Duration, Instant};

use mainstay_worker::{Context, ErrorKind, Problem, Subprocess};
use serde::Serialize;

use crate::query::place::{Place, place};
use crate::query::{Confidence, Found};

/// Time of one search.
const TIME: Duration = Duration::from_secs(8);
/// Commits whose changes are read together, and at most.
const BATCH: usize = 400;
const MOST: usize = 20_000;
/// Bytes of output that are kept.
const OUTPUT: usize = 4 * 1024 * 1024;
/// Files that are named of one commit.
const FILES: usize = 5;

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Commit {
    pub(crate) repo: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) author: String,
    pub(crate) subject: String,
    /// Where the text was found: `message`, `changes` or `lines`.
    pub(crate) matched: Matched,
    /// Files whose changes have it; the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<String>,
    /// The cursor of a page that ends with it.
    #[serde(skip)]
    pub(crate) after: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Matched {
    Message,
    Changes,
    Lines,
}

impl Matched {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Changes => "changes",
            Self::Lines => "lines",
        }
    }
}

/// One query of one repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History<'a> {
    pub(crate) repo: &'a str,
    pub(crate) root: &'a Path,
    pub(crate) text: &'a str,
    /// Globs that limit it to some files.
    pub(crate) paths: &'a [String],
    pub(crate) limit: usize,
}

/// Settings that could start a program, reach the network or read another file, each with a value
/// that does not.
const SAFE: &[&str] = &[
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.askPass=false",
    "core.untrackedCache=false",
    "diff.external=",
    "diff.submodule=short",
    "diff.ignoreSubmodules=all",
    "log.showSignature=false",
    "gpg.program=false",
    "protocol.allow=never",
    "log.mailmap=false",
    "log.follow=false",
    "diff.orderFile=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "i18n.logOutputEncoding=UTF-8",
    // Packs are mapped in small parts, so that large ones do with the memory there is.
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=512m",
];

/// Limits the memory of the shell, in KiB, and becomes git.
const LIMITED: &str = "ulimit -v \"$1\" && shift && exec git \"$@\"";
/// Memory that git may map.
const MEMORY_KIB: u64 = 4 * 1024 * 1024;

const FORMAT: &str = "--format=%x01%h%x00%as%x00%an%x00%s%x00";

fn git(root: &Path, until: Instant) -> Subprocess {
    let mut arguments: Vec<String> = ["-c", LIMITED, "git"].map(str::to_owned).to_vec();
    arguments.push(MEMORY_KIB.to_string());
    arguments.extend(["--no-pager", "--no-optional-locks"].map(str::to_owned));
    for setting in SAFE {
        arguments.extend(["-c".to_owned(), (*setting).to_owned()]);
    }
    Subprocess::new("/bin/sh")
        .args(arguments)
        .current_dir(root)
        .env("LC_ALL", "C.UTF-8")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        .timeout(until.saturating_duration_since(Instant::now()))
        .capture_bytes(OUTPUT)
}

/// Runs the query: one commit more than the limit where there are more, and possibly others.
pub(crate) fn search(query: History<'_>, context: &Context) -> Result<Found, Problem> {
    let until = Instant::now() + TIME;
    if query.text.contains('\0') {
        let message = "the query has a NUL, which no message and no change can have";
        return Err(Problem::new(ErrorKind::InvalidArguments, message)
            .with_hint("look for the text without it"));
    }
    let mut found = Found {
        confidence: Confidence::Exact,
        ..Found::default()
    };
    // A message may quote a place among other words.
    let is_word = !query.text.contains(char::is_whitespace);
    match place(query.text).filter(|_| is_word) {
        Some(Place { path, first, last }) => {
            let relative = Path::new(&path).strip_prefix(query.root);
            let path = relative.map_or(path.as_str().into(), Path::to_string_lossy);
            let range = format!("-L{first},{last}:{path}");
            let arguments = log(query.limit, &[&range, "--no-patch"]);
            let output = run(git(query.root, until).args(arguments), context)?;
            found.commits = commits(query.repo, &output, Matched::Lines);
        }
        None => by_text(query, until, context, &mut found)?,
    }
    Ok(found)
}

fn log(limit: usize, more: &[&str]) -> Vec<String> {
    let mut arguments = vec![
        "log".to_owned(),
        FORMAT.to_owned(),
        "--no-ext-diff".to_owned(),
        "--no-textconv".to_owned(),
        "--no-color".to_owned(),
        "--no-show-signature".to_owned(),
        format!("--max-count={}", limit + 1),
    ];
    arguments.extend(more.iter().map(|text| (*text).to_owned()));
    arguments
}

/// Commits by their messages, then by their changes, newest first.
fn by_text(
    query: History<'_>,
    until: Instant,
    context: &Context,
    found: &mut Found,
) -> Result<(), Problem> {
    let wanted = format!("--grep={}", query.text);
    let flags = [
        "--fixed-strings",
        "--regexp-ignore-case",
        &wanted,
        "--no-patch",
    ];
    let mut arguments = log(query.limit, &flags);
    arguments.extend(pathspec(query.paths));
    let output = run(git(query.root, until).args(arguments), context)?;
    found.commits = commits(query.repo, &output, Matched::Message);
    let mut arguments = vec![
        "rev-list".to_owned(),
        format!("--max-count={MOST}"),
        "HEAD".to_owned(),
    ];
    arguments.extend(pathspec(query.paths));
    let output = run(git(query.root, until).args(arguments), context)?;
    let all: Vec<&str> = output.lines().collect();
    let mut read = 0;
    let pickaxe = format!("-S{}", query.text);
    for batch in all.chunks(BATCH) {
        if found.commits.len() > query.limit || Instant::now() >= until {
            break;
        }
        let flags = ["--no-walk=unsorted", "--stdin", &pickaxe, "--name-only"];
        let mut arguments = log(query.limit, &flags);
        // Paths behind it would be read from the input, too.
        arguments.retain(|argument| !argument.starts_with("--max-count"));
        arguments.extend(pathspec(query.paths));
        let process = git(query.root, until)
            .args(arguments)
            .stdin(batch.join("\n"));
        let output = match run(process, context) {
            Ok(output) => output,
            Err(problem) if problem.kind == ErrorKind::Timeout => break,
            Err(problem) => return Err(problem),
        };
        read += batch.len();
        for commit in commits(query.repo, &output, Matched::Changes) {
            let same = |known: &&mut Commit| known.commit == commit.commit;
            match found.commits.iter_mut().find(same) {
                Some(known) => known.files = commit.files,
                None => found.commits.push(commit),
            }
        }
    }
    let full = found.commits.len() > query.limit;
    if !full && (read < all.len() || all.len() >= MOST) {
        found.truncated = true;
        found.notes.push(format!(
            "the changes of the {read} newest commits were searched, the messages of all; a path limits the search"
        ));
    }
    Ok(())
}

fn pathspec(paths: &[String]) -> Vec<String> {
    let mut spec = Vec::new();
    if !paths.is_empty() {
        spec.push("--".to_owned());
    }
    for path in paths {
        let plain = path.trim_start_matches("./").trim_end_matches('/');
        let anywhere = !plain.contains('/');
        let prefix = if anywhere { "**/" } else { "" };
        spec.push(format!(":(glob){prefix}{plain}"));
        spec.push(format!(":(glob){prefix}{plain}/**"));
    }
    spec
}

fn run(process: Subprocess, context: &Context) -> Result<String, Problem> {
    let output = process.run(context)?;
    if output.status.success() {
        return Ok(output.stdout.text());
    }
    let said = output.stderr.text();
    let said = said
        .lines()
        .find(|line| line.contains("fatal"))
        .unwrap_or("it gave no reason");
    let said = said.trim_start_matches("fatal: ");
    Err(
        Problem::new(ErrorKind::NotFound, format!("git cannot answer: {said}")).with_hint(
            "kind history needs a git repository with commits; lines are given as path:first-last",
        ),
    )
}

/// The commits of an output of `git log`.
fn commits(repo: &str, output: &str, matched: Matched) -> Vec<Commit> {
    let one = |text: &str| {
        let mut fields = text.splitn(5, '\0');
        let mut next = || fields.next().map(str::to_owned);
        Some(Commit {
            repo: repo.to_owned(),
            commit: next()?,
            date: next()?,
            author: next()?,
            subject: next()?,
            matched,
            after: String::new(),
            files: next()?
                .lines()
                .filter(|line| !line.is_empty())
                .take(FILES)
                .map(str::to_owned)
                .collect(),
        })
    };
    output.split('\u{1}').skip(1).filter_map(one).collect()
}
