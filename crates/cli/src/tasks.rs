//! `mainstay tasks`: the tasks of this user, whichever host runs them.

use std::process::ExitCode;

use anyhow::anyhow;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::{self, Bounds, Porcelain};
use mainstay_contract::wall;
use mainstay_host::tasks::{TaskDesk, TaskLine, TaskStore, describe};

use crate::args::TasksCommand;
use crate::environment::Environment;
use crate::exit::{self, Failure, print};

/// Tasks that a listing shows.
const MOST: usize = 1000;
const HOUR_MS: u64 = 3_600_000;

/// Lists, shows, cancels or removes.
pub(crate) fn run(command: &TasksCommand) -> Result<ExitCode, Failure> {
    let environment = Environment::read_for_operator()?;
    let directory = environment.state_dir.ok_or_else(|| {
        Failure::input(anyhow!("there is no directory in which tasks are recorded"))
            .hint("set MAINSTAY_STATE_DIR to an absolute path")
    })?;
    let store = TaskStore::new(&directory, &Limits::default());
    let desk = store.open().map_err(explain)?;
    match command {
        TasksCommand::List => list(desk),
        TasksCommand::Show { id } => show(desk, id),
        TasksCommand::Cancel { id } => cancel(desk, id),
        TasksCommand::Prune { older_than } => prune(desk, *older_than),
    }
}

fn explain(problem: Problem) -> Failure {
    let failure = Failure::input(anyhow!("{}", problem.sentence()));
    match problem.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn status(line: &TaskLine) -> &'static str {
    match &line.view.outcome {
        None if line.is_held => "working",
        None => "waiting",
        Some(Ok(_)) => "completed",
        Some(Err(problem)) if problem.kind == mainstay_contract::error::ErrorKind::Cancelled => {
            "cancelled"
        }
        Some(Err(_)) => "failed",
    }
}

fn list(desk: Option<TaskDesk>) -> Result<ExitCode, Failure> {
    let lines = match desk {
        Some(mut desk) => desk.list(MOST).map_err(explain)?,
        None => Vec::new(),
    };
    let summary = render::count(lines.len(), "task", "tasks");
    let rows = lines.iter().map(|line| {
        [
            line.view.id.clone(),
            status(line).to_owned(),
            line.view.tool.clone(),
            wall::iso(line.view.created_ms),
        ]
    });
    let text = Porcelain::summary(summary).table(&["id", "status", "tool", "created"], rows);
    print(&format!("{}\n", text.finish(Bounds::PORCELAIN)))?;
    Ok(ExitCode::SUCCESS)
}

fn unknown() -> Result<ExitCode, Failure> {
    let mut failure = Failure::input(anyhow!("there is no such task"))
        .hint("mainstay tasks list shows the tasks of this user");
    failure.code = exit::NO;
    Err(failure)
}

fn show(desk: Option<TaskDesk>, id: &str) -> Result<ExitCode, Failure> {
    let line = match desk {
        Some(mut desk) => desk.show(id).map_err(explain)?,
        None => None,
    };
    let Some(line) = line else {
        return unknown();
    };
    print(&format!("{}\n", describe(&line.view)))?;
    Ok(ExitCode::SUCCESS)
}

fn cancel(desk: Option<TaskDesk>, id: &str) -> Result<ExitCode, Failure> {
    let cancelled = match desk {
        Some(mut desk) => desk.cancel(id).map_err(explain)?,
        None => None,
    };
    match cancelled {
        None => unknown(),
        Some(true) => {
            print("cancelled\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Some(false) => {
            print("the task had ended before\n")?;
            Ok(ExitCode::from(exit::NO))
        }
    }
}

fn prune(desk: Option<TaskDesk>, hours: u32) -> Result<ExitCode, Failure> {
    let age_ms = u64::from(hours) * HOUR_MS;
    let removed = match desk {
        Some(mut desk) => desk.prune(age_ms).map_err(explain)?,
        None => 0,
    };
    let removed = usize::try_from(removed).unwrap_or(usize::MAX);
    print(&format!(
        "{} removed\n",
        render::count(removed, "task", "tasks")
    ))?;
    Ok(ExitCode::SUCCESS)
}
