//! `check_status`: each problem with its fix.

use std::fs;
use std::time::Duration;

use mainstay_worker::render::path::display;
use mainstay_worker::{Porcelain, Reply, ToolSpec, tool_spec};
use serde_json::{Value, json};

use crate::store::FORMAT;
use crate::tools::status::limits_json;
use crate::tools::{object, text};
use crate::workspace::Workspace;

/// One thing that was looked at.
struct Check {
    id: String,
    status: &'static str,
    message: String,
    fix: Option<String>,
}

impl Check {
    fn ok(id: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            status: "ok",
            message: message.into(),
            fix: None,
        }
    }

    fn warn(id: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            status: "warn",
            message: message.into(),
            fix: Some(fix.into()),
        }
    }

    fn fail(id: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            status: "fail",
            message: message.into(),
            fix: Some(fix.into()),
        }
    }
}

pub(crate) fn spec(version: &str) -> ToolSpec {
    tool_spec(
        "check_status",
        "Checks the code tools: cache, repositories, indexes, file watch. Each problem has its fix.",
    )
    .output(object(
        json!({
            "ok": {"type": "boolean"},
            "checks": {"type": "array", "items": object(
                json!({"id": text(), "status": {"type": "string", "enum": ["ok", "warn", "fail"]},
                    "message": text(), "fix": text()}),
                &["id", "status", "message"])},
            "versions": {"type": "object"},
            "limits": {"type": "object"},
        }),
        &["ok", "checks", "versions", "limits"],
    ))
    .tooling_version(version)
    .coded_rejections()
    .read_only()
}

pub(crate) fn call(workspace: &Workspace, version: &str) -> Reply {
    let mut checks = vec![cache(workspace), roots(workspace)];
    for member in &workspace.members {
        let id = |what: &str| format!("{}.{what}", member.alias);
        match &member.repo {
            Err(why) => checks.push(Check::fail(
                id("root"),
                why.clone(),
                "correct the path, or take the repository out of the configuration",
            )),
            Ok(repo) => {
                checks.push(Check::ok(
                    id("root"),
                    format!("{} can be read", display(&repo.place.root, None)),
                ));
                let error = repo.tracker.error().or_else(|| repo.keeper.last_error());
                let view = repo.view();
                checks.push(match (&view, error) {
                    (_, Some(error)) => Check::fail(
                        id("index"),
                        error,
                        "run index_build with mode full; if that fails too, mainstay cache clear removes the index",
                    ),
                    (None, None) => Check::warn(
                        id("index"),
                        "there is no index yet",
                        "run index_build, or just search: the first search starts a build",
                    ),
                    (Some(view), None) => match view.freshness.reason() {
                        None => Check::ok(
                            id("index"),
                            format!("generation {} is fresh", view.generation.manifest.generation),
                        ),
                        Some(reason) => Check::warn(
                            id("index"),
                            format!("generation {} may be behind: {reason}", view.generation.manifest.generation),
                            "wait a moment, or run index_build",
                        ),
                    },
                });
                let passed_over = repo.tracker.passed_over();
                if !passed_over.is_empty() {
                    let all: Vec<String> = passed_over.into_iter().collect();
                    checks.push(Check::warn(
                        id("ignore"),
                        format!("ignore files are passed over: {}", all.join("; ")),
                        "make each a regular file of at most 1 MiB, without a link out of the root",
                    ));
                }
                checks.push(match repo.tracker.watch_problem() {
                    None => Check::ok(
                        id("watch"),
                        format!(
                            "{} directories are watched; what no watch tells is found within {}",
                            repo.tracker.watched(),
                            seconds(repo.tracker.sweep_rest())
                        ),
                    ),
                    Some(problem) => Check::warn(
                        id("watch"),
                        format!(
                            "not every change is noticed at once, but within {}: {problem}",
                            seconds(repo.tracker.sweep_rest())
                        ),
                        "run index_build after changes; if watches ran out, raise fs.inotify.max_user_watches",
                    ),
                });
            }
        }
    }
    answer(workspace, version, &checks)
}

/// A time for people, in whole seconds.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_millis().div_ceil(1000))
}

fn cache(workspace: &Workspace) -> Check {
    let fix = "set MAINSTAY_CACHE_DIR to a directory that can be written";
    let Some(cache) = &workspace.cache else {
        return Check::fail("cache", "there is no cache directory", fix);
    };
    let probe = cache.join(format!(".probe-{}", std::process::id()));
    let written = fs::create_dir_all(cache).and_then(|()| fs::write(&probe, b"x"));
    let _ = fs::remove_file(&probe);
    let shown = display(cache, None);
    match written {
        Ok(()) => Check::ok("cache", format!("{shown} can be written")),
        Err(error) => {
            let said = format!("{shown} cannot be written: {error}");
            Check::fail("cache", said, fix)
        }
    }
}

fn roots(workspace: &Workspace) -> Check {
    match workspace.members.len() {
        0 => Check::fail(
            "workspace",
            "no repository is configured",
            "start mainstay in a checkout, or with --root DIR",
        ),
        1 => Check::ok("workspace", "1 repository"),
        n => Check::ok("workspace", format!("{n} repositories")),
    }
}

fn answer(workspace: &Workspace, version: &str, checks: &[Check]) -> Reply {
    let ok = checks.iter().all(|check| check.status != "fail");
    let rows: Vec<Value> = checks
        .iter()
        .map(|check| {
            let mut row = json!({"id": check.id, "status": check.status, "message": check.message});
            if let (Some(fix), Some(row)) = (&check.fix, row.as_object_mut()) {
                row.insert("fix".to_owned(), json!(fix));
            }
            row
        })
        .collect();
    let value = json!({
        "ok": ok, "checks": rows,
        "versions": {"mainstay": version, "index_format": FORMAT},
        "limits": limits_json(workspace),
    });
    let bad = checks.iter().filter(|check| check.status != "ok").count();
    let lines: Vec<String> = checks
        .iter()
        .map(|check| {
            let fix = check
                .fix
                .as_ref()
                .map(|fix| format!(" -> {fix}"))
                .unwrap_or_default();
            format!("{} {}: {}{fix}", check.status, check.id, check.message)
        })
        .collect();
    Reply::json(&value).porcelain(move || {
        let summary = match (ok, bad) {
            (_, 0) => "everything is in order".to_owned(),
            (true, n) => format!(
                "usable, {} to look at",
                mainstay_worker::render::count(n, "thing", "things")
            ),
            (false, n) => format!(
                "{} to fix",
                mainstay_worker::render::count(n, "thing", "things")
            ),
        };
        Porcelain::summary(summary).items(lines)
    })
}
