//! `index_build`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mainstay_worker::{
    Annotations, Code, Context, ErrorKind, Porcelain, Problem, Progress, Replay, Reply, ToolSpec,
    render, tool_spec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::build::Request;
use crate::fresh::repo::Repo;
use crate::query::filter::globs;
use crate::store::job::{Job, State};
use crate::tools::{count, object, repo_argument, text};
use crate::workspace::Workspace;

/// The tool's timeout.
const TIMEOUT_MS: u64 = 600_000;
/// Left of the deadline for the answer itself.
const RESERVE: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
pub(crate) struct Arguments {
    repo: Option<String>,
    mode: Option<Mode>,
    #[serde(default)]
    paths: Vec<String>,
    wait_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Incremental,
    Full,
}

pub(crate) fn spec(version: &str) -> ToolSpec {
    tool_spec(
        "index_build",
        "Brings the index of a repository up to date. Searches work without it: call it only to force \
         a rebuild, or to wait until everything is indexed.",
    )
    .input(object(
        json!({
            "repo": repo_argument(),
            "mode": {"type": "string", "enum": ["incremental", "full"],
                "description": "full indexes everything again; default incremental."},
            "paths": {"type": "array", "items": {"type": "string", "format": "path", "minLength": 1}, "maxItems": 100,
                "description": "Globs that limit the work."},
            "wait_ms": {"type": "integer", "minimum": 0, "maximum": TIMEOUT_MS,
                "description": "Longest wait; 0 returns at once, default until done."},
        }),
        &[],
    ))
    .output(object(
        json!({
            "job_id": text(),
            "state": {"type": "string", "enum": ["running", "done", "failed", "cancelled"]},
            "generation": count(), "files_total": count(), "files_done": count(), "bytes_done": count(),
            "added": count(), "changed": count(), "removed": count(),
            "skipped": {"type": "object", "additionalProperties": count()},
            "duration_ms": count(), "error": text(),
            "symbols": {"type": "number", "minimum": 0, "maximum": 1,
                "description": "Share of files whose symbols are extracted; the rest follows behind the calls."},
        }),
        &["job_id", "state", "generation", "files_total", "files_done", "bytes_done", "added",
          "changed", "removed", "skipped", "duration_ms"],
    ))
    .errors(&[Code::NotFound])
    .tooling_version(version)
    .coded_rejections()
    .timeout_ms(TIMEOUT_MS)
    .long_running()
    .schema_version(3)
    .effects(
        Replay::Convergent,
        Annotations {
            read_only_hint: false,
            destructive_hint: false,
            idempotent_hint: true,
            open_world_hint: false,
        },
    )
}

pub(crate) fn call(
    workspace: &Workspace,
    arguments: &Arguments,
    context: &Context,
) -> Result<Reply, Problem> {
    let (member, repo) = workspace.one(arguments.repo.as_deref())?;
    let mut patterns = arguments.paths.clone();
    patterns.sort_unstable();
    patterns.dedup();
    let request = Request {
        full: arguments.mode == Some(Mode::Full),
        globs: globs(&patterns, "paths", None)?,
        patterns,
        changed: None,
    };
    let without_symbols = match repo.keeper.symbols {
        true => repo.symbol_docs().map_or(0, |(covered, all)| all - covered),
        false => 0,
    };
    let progress = repo.keeper.ask(request).ok_or_else(|| {
        Problem::new(
            ErrorKind::Overloaded,
            "too many builds wait for the one that runs",
        )
        .with_hint("repeat the call when index_status says that the job is done")
    })?;
    let most = context.remaining().saturating_sub(RESERVE);
    let time = arguments
        .wait_ms
        .map_or(most, |ms| Duration::from_millis(ms).min(most));
    let deadline = Instant::now() + time;
    let mut meter = Meter::default();
    let job = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let job = repo.wait(&progress, left.min(Duration::from_millis(200)), &|| {
            context.is_cancelled()
        });
        if context.is_cancelled() {
            // The job that this call asked for ends with it, unless others wait for it, too.
            if Arc::strong_count(&progress) <= 3 {
                progress.stop.store(true, Ordering::Relaxed);
            }
            return Err(context
                .check()
                .err()
                .unwrap_or_else(|| Problem::of(ErrorKind::Cancelled)));
        }
        let to_extract = match repo.keeper.symbols {
            true => job.files_total + without_symbols,
            false => 0,
        };
        if job.files_total > 0
            && let Some((done, total)) = meter.reach(job.files_done, job.files_total + to_extract)
        {
            let message = format!("indexed {} of {} files", job.files_done, job.files_total);
            report(context, message, done, total, "index");
        }
        if !repo.keeper.is_pending(&progress) || Instant::now() >= deadline {
            break progress.snapshot();
        }
    };
    if job.state == State::Done {
        wait_for_symbols(repo, &mut meter, deadline, context)?;
    }
    let alias = member.alias.clone();
    let symbols = repo.symbol_docs().map_or(0.0, share);
    let mut value = to_json(&job);
    if let (true, Some(object)) = (repo.keeper.symbols, value.as_object_mut()) {
        object.insert("symbols".to_owned(), json!(symbols));
    }
    let settled = repo.keeper.has_settled_symbols();
    Ok(Reply::json(&value).porcelain(move || {
        let porcelain = porcelain(&alias, &job);
        match job.state == State::Done && !settled {
            true => porcelain.note(format!(
                "symbols cover {:.0} %; the rest follows behind the calls",
                symbols * 100.0
            )),
            false => porcelain,
        }
    }))
}

/// The symbols follow the job: a call that waits for one waits for the other.
fn wait_for_symbols(
    repo: &Repo,
    meter: &mut Meter,
    deadline: Instant,
    context: &Context,
) -> Result<(), Problem> {
    let _awaited = repo.keeper.await_symbols();
    while !repo.keeper.has_settled_symbols() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // It is not the job: it goes on without this call.
        context.check()?;
        repo.keeper.wait(left.min(Duration::from_millis(200)));
        let Some((covered, all)) = repo.symbol_docs() else {
            break;
        };
        if let Some((done, total)) = meter.remain(all - covered) {
            let message = format!("extracted the symbols of {covered} of {all} files");
            report(context, message, done, total, "symbols");
        }
    }
    Ok(())
}

/// One line of progress from the first file to the last symbol. Its total is set once, it never
/// goes back, and it moves only when work was done.
#[derive(Debug, Default)]
struct Meter {
    done: Option<u64>,
    total: u64,
}

impl Meter {
    /// So much is done of so much. Gives what is to be reported, if that is new.
    fn reach(&mut self, done: u64, total: u64) -> Option<(u64, u64)> {
        if self.total == 0 {
            self.total = total;
        }
        let done = done.min(self.total);
        let is_new = self.done.is_none_or(|before| done > before);
        if is_new {
            self.done = Some(done);
        }
        is_new.then_some((done, self.total))
    }

    /// So much is left.
    fn remain(&mut self, left: u64) -> Option<(u64, u64)> {
        self.reach(self.total.max(left) - left, self.total.max(left))
    }
}

/// A share as answers have it: never 1 before it is all.
pub(crate) fn share((covered, all): (u64, u64)) -> f64 {
    match all {
        0 => 1.0,
        _ => (covered as f64 / all as f64 * 10_000.0).floor() / 10_000.0,
    }
}

fn report(context: &Context, message: String, done: u64, total: u64, phase: &str) {
    context.progress(Progress {
        message,
        done: Some(done),
        total: Some(total),
        phase: phase.to_owned(),
        ..Progress::default()
    });
}

pub(crate) fn to_json(job: &Job) -> Value {
    let mut value = json!({
        "job_id": job.job_id, "state": job.state.name(), "generation": job.generation,
        "files_total": job.files_total, "files_done": job.files_done, "bytes_done": job.bytes_done,
        "added": job.added, "changed": job.changed, "removed": job.removed,
        "skipped": job.skipped, "duration_ms": job.duration_ms,
    });
    if let (Some(error), Some(object)) = (&job.error, value.as_object_mut()) {
        object.insert("error".to_owned(), json!(error));
    }
    value
}

fn porcelain(alias: &str, job: &Job) -> Porcelain {
    let files = |n: u64| render::count(usize::try_from(n).unwrap_or(usize::MAX), "file", "files");
    let summary = match job.state {
        State::Running => format!(
            "{alias}: building, {} of {}",
            job.files_done,
            files(job.files_total)
        ),
        // Without the time it took: the same answer reads the same.
        State::Done => format!(
            "{alias}: generation {} is current; {} indexed ({})",
            job.generation,
            files(job.files_done),
            render::bytes(job.bytes_done)
        ),
        State::Failed => format!("{alias}: the build failed"),
        State::Cancelled => {
            format!("{alias}: the build was cancelled; the generation before it stays")
        }
    };
    let mut porcelain = Porcelain::summary(summary)
        .field("added", job.added)
        .field("changed", job.changed)
        .field("removed", job.removed);
    let skipped: Vec<String> = job
        .skipped
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(reason, n)| format!("{reason} {n}"))
        .collect();
    if !skipped.is_empty() {
        porcelain = porcelain.field("skipped", skipped.join(", "));
    }
    if let Some(error) = &job.error {
        porcelain = porcelain.warning(error);
    }
    match job.state {
        State::Running => {
            porcelain.hint("index_status shows how far it is; search answers meanwhile")
        }
        State::Failed => porcelain.hint("check_status says what to do about it"),
        _ => porcelain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_one_total_and_moves_only_with_work() {
        let mut meter = Meter::default();
        assert_eq!(meter.reach(0, 200), Some((0, 200)));
        assert_eq!(meter.reach(0, 200), None, "no step without work");
        assert_eq!(meter.reach(100, 200), Some((100, 200)));
        assert_eq!(
            meter.reach(7155, 400),
            Some((200, 200)),
            "never above its total"
        );
        let mut meter = Meter::default();
        meter.reach(100, 200);
        assert_eq!(meter.remain(100), None);
        assert_eq!(meter.remain(40), Some((160, 200)));
        assert_eq!(meter.remain(60), None, "never back");
        assert_eq!(meter.remain(0), Some((200, 200)));
    }
}
