//! Finds the features of the kernel by starting a server with each restriction.

use anyhow::anyhow;
use mainstay_contract::json::Json;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;

use super::finding::Findings;
use crate::adopt::Launch;
use crate::answer::Refused;
use crate::setup::handshake;

/// Descriptors below which a host with several clients runs short.
const DESCRIPTORS: u64 = 1024;
/// The tool in which a host describes itself.
const HEALTH: &str = "system_health";

pub(super) fn look(findings: &mut Findings) {
    tree_kill(findings);
    sandbox(findings);
    descriptors(findings);
}

/// The demo server behind `mainstay wrap` with options.
fn server(options: &[&str]) -> Option<Launch> {
    let program = std::env::current_exe().ok()?.into_os_string();
    let program = program.into_string().ok()?;
    let server = ["--", &program, "demo", "--server", "/"];
    let words = ["wrap"].iter().chain(options).chain(&server);
    Some(Launch {
        arguments: words.map(|word| (*word).to_owned()).collect(),
        program,
        env: Vec::new(),
        cwd: None,
        is_wrapped: true,
    })
}

fn tree_kill(findings: &mut Findings) {
    const AREA: &str = "tree kill";
    let health = |options: &[&str]| {
        let launch = server(options).ok_or("the path of this program is not text")?;
        let asked = handshake::converse(&launch, |client| {
            let answer = client.call(HEALTH, &Json::empty_object())?;
            let rung = answer.json.pointer("/workers/0/tree_kill");
            let rung = rung.and_then(Value::as_str).map(str::to_owned);
            rung.ok_or_else(|| Refused::Other(anyhow!("its health names no rung")))
        });
        asked.map(|(rung, _)| rung)
    };
    match health(&["--system-tools", "--isolate"]) {
        Ok(rung) => findings.good(
            AREA,
            format!("{rung}: the kernel kills everything that a server started"),
        ),
        Err(reason) => match health(&["--system-tools"]) {
            Ok(rung) => findings.note(
                AREA,
                format!("{rung}: the host looks for the processes of a server and kills them; PID namespaces do not work: {reason}"),
                "run as root, or in a container with CAP_SYS_ADMIN, if servers fork faster than they can be found",
            ),
            Err(reason) => findings.problem(
                AREA,
                format!("a server cannot be started at all: {reason}"),
                "see docs/processes.md for what a host needs",
            ),
        },
    }
}

fn sandbox(findings: &mut Findings) {
    const AREA: &str = "sandbox";
    let launch = server(&["--sandbox"]);
    let asked = match launch {
        Some(launch) => handshake::converse(&launch, |client| client.tools().map(|_| ())),
        None => Err("the path of this program is not text".to_owned()),
    };
    match asked {
        Ok(_) => findings.good(AREA, "every restriction of --sandbox works"),
        Err(reason) => findings.note(
            AREA,
            format!("--sandbox does not work here: {reason}"),
            "change the named setting, or use --sandbox=best-effort, which leaves out what the kernel lacks",
        ),
    }
}

fn descriptors(findings: &mut Findings) {
    const AREA: &str = "limits";
    match getrlimit(Resource::Nofile).current {
        Some(most) if most < DESCRIPTORS => findings.note(
            AREA,
            format!("a process may open {most} files; a host with many clients needs more"),
            format!(
                "raise the limit to {DESCRIPTORS} or more: ulimit -n, or LimitNOFILE in a unit"
            ),
        ),
        Some(most) => findings.good(AREA, format!("a process may open {most} files")),
        None => findings.good(AREA, "a process may open any number of files"),
    }
}
