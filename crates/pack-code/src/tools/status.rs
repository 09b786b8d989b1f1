//! `index_status` and `workspace_status`.

use mainstay_worker::{
    Code, Context, ErrorKind, Porcelain, Problem, Reply, ToolSpec, render, tool_spec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::build::skipped;
use crate::fresh::repo::Repo;
use crate::limits;
use crate::query::filter::iso;
use crate::store::table::file_bytes;
use crate::tools::build::{share, to_json};
use crate::tools::{count, object, repo_argument, text};
use crate::tree::git;
use crate::view::View;
use crate::workspace::Workspace;

#[derive(Debug, Deserialize)]
pub(crate) struct Arguments {
    repo: Option<String>,
    job_id: Option<String>,
}

/// A tool without arguments.
#[derive(Debug, Deserialize)]
pub(crate) struct NoArguments {}

pub(crate) fn spec(version: &str) -> ToolSpec {
    let maybe_text = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    let share = json!({"type": "number", "minimum": 0, "maximum": 1});
    tool_spec(
        "index_status",
        "State of a repository's index: freshness, coverage, skipped files, running build.",
    )
    .input(object(
        json!({
            "repo": repo_argument(),
            "job_id": {"type": "string", "minLength": 1,
                "description": "Job of index_build."},
        }),
        &[],
    ))
    .output(object(
        json!({
            "generation": count(), "built_at": maybe_text, "git_head": maybe_text, "head_now": maybe_text,
            "dirty_files": count(),
            "layers": object(json!({"text": share, "rank": share, "symbols": share}), &["text", "rank", "symbols"]),
            "files": count(), "bytes": count(), "index_bytes": count(),
            "skipped": {"type": "object", "additionalProperties": count()},
            "last_error": maybe_text, "fresh": {"type": "boolean"}, "stale_reason": text(),
            "job": {"type": "object"},
        }),
        &["generation", "built_at", "git_head", "head_now", "dirty_files", "layers", "files", "bytes",
          "index_bytes", "skipped", "last_error", "fresh"],
    ))
    .errors(&[Code::NotFound, Code::NoIndex])
    .schema_version(3)
    .tooling_version(version)
    .coded_rejections()
    .read_only()
}

pub(crate) fn call(
    workspace: &Workspace,
    arguments: &Arguments,
    _: &Context,
) -> Result<Reply, Problem> {
    let (member, repo) = workspace.one(arguments.repo.as_deref())?;
    let jobs = repo.keeper.jobs();
    let mut jobs = jobs.iter().map(|progress| progress.snapshot());
    let job = match &arguments.job_id {
        Some(wanted) => jobs.find(|job| &job.job_id == wanted),
        None => jobs.next(),
    };
    let job = job.or_else(|| repo.job());
    if let Some(wanted) = &arguments.job_id
        && job.as_ref().is_none_or(|job| &job.job_id != wanted)
    {
        return Err(Problem::new(
            ErrorKind::NoIndex,
            format!(
                "the job {} is not known; only the last one is kept",
                render::shorten(wanted, 60)
            ),
        )
        .with_hint("leave job_id out to see the last job, or start one with index_build"));
    }
    let view = repo.view();
    let mut value = describe(repo, view.as_deref());
    if let (Some(job), Some(object)) = (&job, value.as_object_mut()) {
        object.insert("job".to_owned(), to_json(job));
    }
    let alias = member.alias.clone();
    let shown = value.clone();
    Ok(Reply::json(&value).porcelain(move || porcelain(&alias, &shown)))
}

fn describe(repo: &Repo, view: Option<&View>) -> Value {
    let last_error = repo.tracker.error().or_else(|| repo.keeper.last_error());
    let head_now = git::head(&repo.place.root);
    let Some(view) = view else {
        return json!({
            "generation": 0, "built_at": null, "git_head": null, "head_now": head_now,
            "dirty_files": 0, "layers": {"text": 0, "rank": 0, "symbols": 0}, "files": 0, "bytes": 0,
            "index_bytes": 0, "skipped": {}, "last_error": last_error, "fresh": false,
            "stale_reason": "there is no index yet; the first search or index_build makes one",
        });
    };
    let manifest = &view.generation.manifest;
    let (files, bytes) = view.totals();
    let behind = view.overlay.len() as u64;
    let covered = if files == 0 {
        1.0
    } else {
        (files.saturating_sub(behind)) as f64 / files as f64
    };
    let covered = (covered * 10_000.0).floor() / 10_000.0;
    let symbols = share(view.generation.symbol_docs());
    let mut value = json!({
        "generation": manifest.generation, "built_at": iso(manifest.built_at),
        "git_head": manifest.git_head, "head_now": head_now, "dirty_files": behind,
        "layers": {"text": covered, "rank": covered, "symbols": symbols},
        "files": files, "bytes": bytes, "index_bytes": index_bytes(repo),
        "skipped": skipped(&view.generation), "last_error": last_error,
        "fresh": view.freshness.is_fresh(),
    });
    if let (Some(reason), Some(object)) = (view.freshness.reason(), value.as_object_mut()) {
        object.insert("stale_reason".to_owned(), json!(reason));
    }
    value
}

/// Bytes that the index takes on disk.
pub(crate) fn index_bytes(repo: &Repo) -> u64 {
    let Ok(entries) = std::fs::read_dir(&repo.place.folder) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| file_bytes(&entry.path()).ok())
        .sum()
}

fn porcelain(alias: &str, value: &Value) -> Porcelain {
    let number = |key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
    let fresh = value.get("fresh").and_then(Value::as_bool).unwrap_or(false);
    let summary = match number("generation") {
        0 => format!("{alias}: no index yet"),
        generation => format!(
            "{alias}: generation {generation}, {} ({}), {}",
            render::count(
                usize::try_from(number("files")).unwrap_or(usize::MAX),
                "file",
                "files"
            ),
            render::bytes(number("bytes")),
            if fresh {
                "fresh"
            } else {
                "not known to be fresh"
            }
        ),
    };
    let mut porcelain = Porcelain::summary(summary);
    for key in [
        "built_at",
        "git_head",
        "head_now",
        "dirty_files",
        "index_bytes",
    ] {
        match value.get(key) {
            Some(Value::String(text)) => porcelain = porcelain.field(key, text),
            Some(Value::Number(number)) => porcelain = porcelain.field(key, number),
            _ => {}
        }
    }
    let layers = value.get("layers").and_then(Value::as_object);
    let share = |(name, share): (&String, &Value)| {
        format!("{name} {:.0} %", share.as_f64().unwrap_or(0.0) * 100.0)
    };
    let layers: Vec<String> = layers.into_iter().flatten().map(share).collect();
    porcelain = porcelain.field("layers", layers.join(", "));
    let skipped = value.get("skipped").and_then(Value::as_object);
    let skipped: Vec<String> = skipped
        .into_iter()
        .flatten()
        .filter(|(_, n)| n.as_u64() != Some(0))
        .map(|(reason, n)| format!("{reason} {n}"))
        .collect();
    if !skipped.is_empty() {
        porcelain = porcelain.field("skipped", skipped.join(", "));
    }
    if let Some(job) = value.get("job") {
        let text = |key: &str| {
            job.get(key)
                .map(|value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                })
                .unwrap_or_default()
        };
        porcelain = porcelain.field(
            "last job",
            format!(
                "{} {}, {} of {} files",
                text("job_id"),
                text("state"),
                text("files_done"),
                text("files_total")
            ),
        );
    }
    if let Some(reason) = value.get("stale_reason").and_then(Value::as_str) {
        porcelain = porcelain.note(reason);
    }
    if let Some(error) = value.get("last_error").and_then(Value::as_str) {
        porcelain = porcelain
            .warning(error)
            .hint("check_status says what to do about it");
    }
    porcelain
}

pub(crate) fn workspace_spec(version: &str) -> ToolSpec {
    let maybe_text = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    tool_spec(
        "workspace_status",
        "Lists the repositories of the workspace and the state of their indexes.",
    )
    .output(object(
        json!({
            "repos": {"type": "array", "items": object(
                json!({"id": text(), "root": text(), "alias": text(), "fresh": {"type": "boolean"},
                    "files": count(), "generation": count(), "last_error": maybe_text}),
                &["id", "root", "alias", "fresh", "files", "generation"])},
            "totals": object(json!({"repos": count(), "files": count(), "bytes": count(), "index_bytes": count()}),
                &["repos", "files", "bytes", "index_bytes"]),
            "limits": {"type": "object"},
        }),
        &["repos", "totals", "limits"],
    ))
    .schema_version(2)
    .tooling_version(version)
    .coded_rejections()
    .read_only()
}

pub(crate) fn workspace_call(workspace: &Workspace) -> Reply {
    let mut rows = Vec::new();
    let (mut files_all, mut bytes_all, mut index_all) = (0, 0, 0);
    for member in &workspace.members {
        let root = member.root.display().to_string();
        match &member.repo {
            Err(why) => rows.push(
                json!({"id": "", "root": root, "alias": member.alias, "fresh": false,
                "files": 0, "generation": 0, "last_error": why}),
            ),
            Ok(repo) => {
                let view = repo.view();
                let (files, bytes) = view.as_ref().map_or((0, 0), |view| view.totals());
                files_all += files;
                bytes_all += bytes;
                index_all += index_bytes(repo);
                let mut row = json!({"id": repo.id, "root": repo.place.root.display().to_string(),
                    "alias": member.alias,
                    "fresh": view.as_ref().is_some_and(|view| view.freshness.is_fresh()), "files": files,
                    "generation": view.as_ref().map_or(0, |view| view.generation.manifest.generation)});
                let error = repo.tracker.error().or_else(|| repo.keeper.last_error());
                if let (Some(error), Some(row)) = (error, row.as_object_mut()) {
                    row.insert("last_error".to_owned(), json!(error));
                }
                rows.push(row);
            }
        }
    }
    let totals = json!({"repos": rows.len(), "files": files_all, "bytes": bytes_all, "index_bytes": index_all});
    let value = json!({"repos": rows, "totals": totals, "limits": limits_json(workspace)});
    Reply::json(&value).porcelain(move || {
        let summary = format!(
            "{}, {}",
            render::count(rows.len(), "repository", "repositories"),
            render::count(
                usize::try_from(files_all).unwrap_or(usize::MAX),
                "file",
                "files"
            )
        );
        let cell = |row: &Value, key: &str| match row.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let lines: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                [
                    "alias",
                    "files",
                    "generation",
                    "fresh",
                    "root",
                    "last_error",
                ]
                .iter()
                .map(|key| cell(row, key))
                .collect()
            })
            .collect();
        Porcelain::summary(summary).table(
            &[
                "alias",
                "files",
                "generation",
                "fresh",
                "root",
                "last_error",
            ],
            lines,
        )
    })
}

/// The limits that a caller may run into.
pub(crate) fn limits_json(workspace: &Workspace) -> Value {
    json!({
        "max_file_bytes": workspace.settings.max_file_bytes.unwrap_or(limits::FILE_BYTES),
        "hits": limits::HITS,
        "context_lines": limits::CONTEXT_LINES,
        "snippet_bytes": limits::MAX_SNIPPET_BYTES,
        "show_bytes": limits::MAX_SHOW_BYTES,
        "verified_bytes_per_query": limits::VERIFY_BYTES,
        "watched_directories": limits::WATCHED_DIRECTORIES,
        "cache_bytes": workspace.settings.cache_bytes.unwrap_or(limits::CACHE_BYTES),
    })
}
