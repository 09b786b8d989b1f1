//! Directories, sockets, hosts, and files that were left behind.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use mainstay_contract::limits::Limits;
use mainstay_contract::render::count;
use mainstay_host::files;
use mainstay_host::tasks::TaskStore;
use mainstay_pack_code::cache;

use super::finding::Findings;
use crate::environment::{Environment, variable};
use crate::exit::Failure;
use crate::operate;

/// Where hosts say that they are ready, if nothing else is set.
const READY_FILE: &str = "/tmp/mcp.ready";

pub(super) fn look(findings: &mut Findings) -> Result<(), Failure> {
    let environment = Environment::read_for_operator()?;
    let (runtime, state) = (&environment.runtime_dir, environment.state_dir.as_deref());
    directory(findings, "sockets", Some(runtime), "MAINSTAY_RUNTIME_DIR");
    directory(
        findings,
        "cache",
        environment.cache_dir.as_deref(),
        "MAINSTAY_CACHE_DIR",
    );
    directory(findings, "tasks", state, "MAINSTAY_STATE_DIR");
    hosts(findings)?;
    if let Some(dir) = &environment.cache_dir {
        indexes(findings, dir);
    }
    if let Some(dir) = state {
        tasks(findings, dir);
    }
    ready_file(findings);
    Ok(())
}

/// Tries to write a file.
fn directory(
    findings: &mut Findings,
    area: &'static str,
    folder: Option<&Path>,
    variable: &'static str,
) {
    let Some(folder) = folder else {
        return findings.problem(
            area,
            "there is no directory for them: HOME is not set",
            format!("set {variable} to an absolute path"),
        );
    };
    let shown = folder.display();
    let tried = || -> io::Result<()> {
        files::verify_private(folder)?;
        let draft = files::draft_of(&folder.join("doctor"));
        files::replace(&draft, b"", files::PRIVATE)?;
        fs::remove_file(&draft)
    };
    match tried() {
        Ok(()) => findings.good(area, format!("{shown} can be written")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            findings.good(area, format!("{shown} is made when it is needed"));
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied && folder.exists() => findings
            .problem(
                area,
                format!("{shown} cannot be used: {error}"),
                format!(
                    "chmod 700 {shown} as its owner, or set {variable} to a directory of your own"
                ),
            ),
        Err(error) => findings.problem(
            area,
            format!("{shown} cannot be written: {error}"),
            format!("make room there, or set {variable} to another directory"),
        ),
    }
}

fn hosts(findings: &mut Findings) -> Result<(), Failure> {
    const AREA: &str = "hosts";
    let overview = operate::overview()?;
    for path in &overview.stale {
        findings.good(
            AREA,
            format!("{} of a host that was killed is removed", path.display()),
        );
    }
    for foreign in overview.foreign {
        findings.note(
            AREA,
            foreign,
            "remove that directory, or set MAINSTAY_RUNTIME_DIR",
        );
    }
    for (sentence, fix) in overview.silent {
        let fix = fix.unwrap_or_else(|| "see its log".to_owned());
        findings.problem(AREA, format!("a host is {sentence}"), fix);
    }
    let build = mainstay_worker::build_id(crate::VERSION);
    for host in &overview.hosts {
        let (name, pid) = (&host.name, host.pid);
        if let Some(fault) = &host.health.last_fault {
            findings.note(
                AREA,
                format!("{name} (pid {pid}) lost a server: {fault}"),
                "see its log; it was replaced if the state in mainstay status is ready",
            );
        }
        if build != host.build {
            findings.note(
                AREA,
                format!(
                    "{name} (pid {pid}) runs another build than this one: {}",
                    host.build
                ),
                format!("mainstay upgrade --pid {pid}"),
            );
        }
    }
    let running = count(overview.hosts.len(), "host runs", "hosts run");
    findings.good(AREA, running);
    Ok(())
}

fn indexes(findings: &mut Findings, dir: &Path) {
    const AREA: &str = "cache";
    match cache::list(dir) {
        Err(error) => findings.problem(
            AREA,
            format!("{} cannot be read: {error}", dir.display()),
            "mainstay cache clear",
        ),
        Ok(indexes) => {
            for index in indexes {
                if index.root.is_empty() {
                    findings.note(
                        AREA,
                        format!("{} cannot be read as an index", index.folder.display()),
                        "mainstay cache clear; it is built again when it is needed",
                    );
                } else if !Path::new(&index.root).is_dir() {
                    findings.note(
                        AREA,
                        format!("there is an index of {}, which does not exist", index.root),
                        format!("mainstay cache clear --root {}", index.root),
                    );
                }
            }
        }
    }
}

fn tasks(findings: &mut Findings, dir: &Path) {
    if let Err(problem) = TaskStore::new(dir, &Limits::default()).open() {
        let fix = problem.hint.clone();
        findings.problem(
            "tasks",
            format!(
                "the tasks in {} cannot be read: {}",
                dir.display(),
                problem.sentence()
            ),
            fix.unwrap_or_else(|| "move the file away; tasks start anew".into()),
        );
    }
}

/// A ready file of a process that does not run any more.
fn ready_file(findings: &mut Findings) {
    let path = variable("MCP_READY_FILE").unwrap_or_else(|| READY_FILE.to_owned());
    let path = Path::new(&path);
    let Ok(text) = fs::read_to_string(path) else {
        return;
    };
    let pid = text.split_whitespace().next().unwrap_or_default();
    let is_pid = pid.parse::<u32>().is_ok();
    if is_pid && !Path::new("/proc").join(pid).exists() {
        findings.note(
            "ready file",
            format!("{} names process {pid}, which does not run", path.display()),
            format!("rm {}; a host writes it anew", path.display()),
        );
    }
}
