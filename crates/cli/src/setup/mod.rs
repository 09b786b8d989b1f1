//! `mainstay setup`: the clients of this machine, with their servers kept alive from now on.
//!
//! [`clients`] knows where each client keeps its servers, `adopt` changes a file and can restore it, [`handshake`] starts a
//! server as its client does. Files of a project are only named: other people share them.

pub(crate) mod clients;
pub(crate) mod handshake;

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use mainstay_contract::render::{Bounds, Porcelain, count, visible};

use self::clients::Found;
use crate::adopt::{self, Launch, Prepared, Start};
use crate::args::Setup;
use crate::exit::{self, Failure, print};

const BOUNDS: Bounds = Bounds {
    lines: 10_000,
    bytes: 1 << 22,
};

/// A file with servers to wrap.
struct Job {
    found: Found,
    prepared: Prepared,
}

/// The configuration files that were found on this machine.
#[derive(Default)]
struct Survey {
    jobs: Vec<Job>,
    /// Rows of the table: client, file, server, what happens to it.
    rows: Vec<[String; 4]>,
    /// Files that cannot be read, with the reason.
    broken: Vec<String>,
}

/// Finds, shows, asks, changes, and checks.
pub(crate) fn run(setup: &Setup) -> Result<ExitCode, Failure> {
    let binary = adopt::choose_binary(setup.binary.as_deref())?;
    let survey = survey(setup, &binary)?;
    let servers: usize = survey.jobs.iter().map(|job| job.prepared.changed()).sum();
    print(&plan_text(&survey, servers, &binary))?;
    let code = match survey.broken.is_empty() {
        true => exit::SUCCESS,
        false => exit::NO,
    };
    if servers == 0 || setup.dry_run {
        return Ok(ExitCode::from(code));
    }
    if !setup.yes && !is_confirmed(survey.jobs.len())? {
        print("Nothing was changed.\n")?;
        return Ok(ExitCode::from(exit::NO));
    }
    let (changed, failures) = change(&survey.jobs)?;
    let checked = match setup.no_check {
        true => true,
        false => check(&changed)?,
    };
    print(&undo_text(&changed))?;
    for failure in &failures {
        exit::report(failure);
    }
    Ok(ExitCode::from(match (failures.is_empty(), checked) {
        (false, _) => exit::INPUT,
        (true, false) => exit::NO,
        (true, true) => code,
    }))
}

fn survey(setup: &Setup, binary: &str) -> Result<Survey, Failure> {
    let mut survey = Survey::default();
    let mut names = Vec::new();
    for found in clients::of_user()? {
        let shown = found.path.display().to_string();
        if let Ok(servers) = adopt::servers_of(&found.path) {
            names.extend(servers.into_iter().map(|server| server.name));
        }
        let prepared = match Prepared::new(&found.path, binary, &setup.only, &setup.except) {
            Ok(Some(prepared)) => prepared,
            Ok(None) => continue,
            Err(failure) => {
                survey.broken.push(format!("{:#}", failure.error));
                continue;
            }
        };
        for line in prepared.lines() {
            let client = found.client.to_owned();
            survey
                .rows
                .push([client, shown.clone(), line.label, line.text]);
        }
        if prepared.changed() > 0 {
            survey.jobs.push(Job { found, prepared });
        }
    }
    let mut chosen = setup.only.iter().chain(&setup.except);
    if let Some(unknown) = chosen.find(|name| !names.contains(name)) {
        names.sort();
        names.dedup();
        let failure = Failure::input(anyhow!(
            "no client of this machine has a server {unknown:?}"
        ));
        return Err(failure.hint(format!("they have: {}", names.join(", "))));
    }
    Ok(survey)
}

fn plan_text(survey: &Survey, servers: usize, binary: &str) -> String {
    let summary = match (servers, survey.rows.is_empty()) {
        (0, true) => "nothing to do: no client of this machine has a server".to_owned(),
        (0, false) => "nothing to do: every server is wrapped, or cannot be".to_owned(),
        _ => format!(
            "{} in {} can be kept alive",
            count(servers, "server", "servers"),
            count(survey.jobs.len(), "file", "files")
        ),
    };
    let rows = survey.rows.iter().cloned();
    let mut page = Porcelain::summary(summary).table(&["client", "file", "server", "what"], rows);
    for broken in &survey.broken {
        page = page.warning(format!("{broken}; this file is left alone"));
    }
    let names: Vec<&str> = clients::CLIENTS.iter().map(|client| client.name).collect();
    if survey.rows.is_empty() {
        page = page.hint(format!(
            "setup looks for {}; for another client use mainstay adopt FILE",
            names.join(", ")
        ));
    }
    for shared in clients::of_project() {
        let path = shared.path.display();
        page = page.note(format!(
            "{path} ({}) belongs to this project and is left alone; mainstay adopt {path} --binary mainstay wraps it for \
             everybody who has mainstay on the search path",
            shared.client
        ));
    }
    if servers > 0 {
        page = page.field("command", binary);
    }
    let mut text = page.finish(BOUNDS);
    text.push('\n');
    for Job { found, prepared } in &survey.jobs {
        let _ = write!(
            text,
            "\n{}\n{}",
            visible(&found.path.display().to_string()),
            prepared.difference
        );
    }
    text
}

/// Asks the person at the terminal.
fn is_confirmed(files: usize) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let failure = Failure::input(anyhow!(
            "nothing was changed: there is no terminal to ask at"
        ));
        return Err(failure.hint("add --yes to change the files, or run it in a terminal"));
    }
    print(&format!(
        "\nChange {}? [y/N] ",
        count(files, "this file", "these files")
    ))?;
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    stdin
        .lock()
        .read_line(&mut answer)
        .map_err(Failure::input)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// A file that was changed, and its backup.
struct Changed<'a> {
    job: &'a Job,
    backup: PathBuf,
}

/// Changes the files. One that cannot be changed does not keep the others from it.
fn change(jobs: &[Job]) -> Result<(Vec<Changed<'_>>, Vec<Failure>), Failure> {
    let (mut changed, mut failures) = (Vec::new(), Vec::new());
    let mut text = String::from("\n");
    for job in jobs {
        match job.prepared.apply() {
            Ok(backup) => {
                let path = job.found.path.display().to_string();
                let servers = count(job.prepared.changed(), "server", "servers");
                let _ = writeln!(text, "changed {}: {servers}", visible(&path));
                changed.push(Changed { job, backup });
            }
            Err(failure) => failures.push(failure),
        }
    }
    print(&text)?;
    Ok((changed, failures))
}

/// Starts every server that was wrapped. False if one does not answer.
fn check(changed: &[Changed<'_>]) -> Result<bool, Failure> {
    let mut named: Vec<(String, &Path)> = Vec::new();
    let mut launches: Vec<Launch> = Vec::new();
    let mut rows: Vec<[String; 3]> = Vec::new();
    for Changed { job, .. } in changed {
        let wrapped: Vec<String> = job
            .prepared
            .lines()
            .into_iter()
            .filter(|line| line.is_changed)
            .map(|line| line.label)
            .collect();
        let client = job.found.client;
        for server in adopt::servers_of(&job.found.path)? {
            if !wrapped.contains(&server.label) {
                continue;
            }
            let label = format!("{client}: {}", server.label);
            let skipped = match server.start {
                Start::Command(launch) if launch.has_reference() => {
                    "its command has a reference that only the client replaces"
                }
                Start::Command(launch) => {
                    launches.push(launch);
                    named.push((label, &job.found.path));
                    continue;
                }
                Start::Other(reason) => reason,
            };
            rows.push([label, "not started".to_owned(), skipped.to_owned()]);
        }
    }
    if !launches.is_empty() {
        print(&format!(
            "starting {} as the clients do, at most {} s each\n",
            count(launches.len(), "server", "servers"),
            handshake::PATIENCE.as_secs()
        ))?;
    }
    let answers = handshake::ask_all(&launches);
    let (mut reasons, mut hints) = (Vec::new(), Vec::new());
    for ((label, path), answer) in named.into_iter().zip(&answers) {
        rows.push(match answer {
            Ok(answered) => {
                let tools = count(answered.tools.len(), "tool", "tools");
                let took = format!("{:.1} s", answered.took.as_secs_f64());
                [
                    label,
                    "answers".to_owned(),
                    format!("{tools}, after {took}"),
                ]
            }
            Err(reason) => {
                reasons.push(format!("{label} does not answer: {reason}"));
                hints.push(path.display().to_string());
                [label, "does not answer".to_owned(), "see below".to_owned()]
            }
        });
    }
    let good = answers.iter().filter(|answer| answer.is_ok()).count();
    let summary = format!("{good} of {} servers answer", answers.len());
    let mut page = Porcelain::summary(summary).table(&["server", "state", "facts"], rows);
    for reason in reasons {
        page = page.warning(reason);
    }
    hints.dedup();
    for path in hints {
        page = page.hint(format!(
            "correct its command in {path}, then run mainstay doctor; mainstay adopt {path} --undo --only NAME unwraps it"
        ));
    }
    print(&format!("{}\n", page.finish(BOUNDS)))?;
    Ok(good == answers.len())
}

fn undo_text(changed: &[Changed<'_>]) -> String {
    if changed.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nRestart the clients. To undo this:\n");
    let quoted = |path: &Path| {
        let path = path.to_string_lossy();
        shlex::try_quote(&path).map_or_else(
            |_| "FILE".to_owned(),
            |quoted| visible(&quoted).into_owned(),
        )
    };
    for Changed { job, backup } in changed {
        let path = quoted(&job.found.path);
        let _ = writeln!(text, "  mainstay adopt {path} --undo");
        let _ = writeln!(text, "  cp {} {path}    (without mainstay)", quoted(backup));
    }
    text
}
