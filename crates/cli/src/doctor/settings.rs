//! Variables, configurations, schemas, and the servers that they start.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mainstay_contract::render::{count, shorten};
use mainstay_schema::SchemaRegistry;
use serde_json::Value;

use super::finding::Findings;
use crate::adopt::{self, Launch, Start};
use crate::args::Doctor;
use crate::config_file::ConfigFile;
use crate::environment::{self, Environment};
use crate::exit::Failure;
use crate::setup::{clients as known, handshake};

/// Time for the host of packs and servers to list its tools.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for a schema to be compiled.
const SCHEMA: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(10);
/// How a warning of `mainstay tools` begins.
const WARNING: &str = "mainstay: warning: ";
const ERROR: &str = "mainstay: error: ";
const HINT: &str = "mainstay: hint: ";

pub(super) fn variables(findings: &mut Findings) {
    const AREA: &str = "environment";
    let mut good = true;
    if let Err(failure) = Environment::read() {
        let said = format!("{:#}", failure.error);
        let said = said.strip_prefix("the environment: ").unwrap_or(&said);
        for mistake in said.split("; ").collect::<Vec<_>>().chunks(2) {
            good = false;
            let (what, fix) = match mistake {
                [what, fix] => (*what, *fix),
                _ => (
                    mistake.first().copied().unwrap_or_default(),
                    "see mainstay environment",
                ),
            };
            findings.problem(AREA, what, fix);
        }
    }
    for name in environment::unknown() {
        good = false;
        findings.problem(
            AREA,
            format!("{name} is set, but no such variable is read"),
            "mainstay environment lists the variables; unset this one, or correct its name",
        );
    }
    if good {
        findings.good(AREA, "every variable that is set can be used");
    }
}

/// Reads the configuration, and asks a host of its packs and servers for their tools.
pub(super) fn configuration(findings: &mut Findings, doctor: &Doctor) {
    const AREA: &str = "configuration";
    let file = doctor.config.as_deref();
    if let Some(path) = file {
        match ConfigFile::named(Some(path)) {
            Ok(file) => {
                let servers = count(file.servers.len(), "server", "servers");
                findings.good(AREA, format!("{} can be read: {servers}", path.display()));
            }
            Err(failure) => {
                let fix = "correct the file; docs/configuration.md has every key";
                return findings.failure(AREA, &failure, fix);
            }
        }
    }
    if doctor.no_start {
        return;
    }
    match tools(file) {
        Err(reason) => findings.problem(AREA, reason, "mainstay serve shows it in its log"),
        Ok(Offer { tools, said }) => {
            let mut lines = said.lines().peekable();
            while let Some(line) = lines.next() {
                let wrong = line
                    .strip_prefix(WARNING)
                    .or_else(|| line.strip_prefix(ERROR));
                let Some(wrong) = wrong else { continue };
                let hint = lines.peek().and_then(|next| next.strip_prefix(HINT));
                let fix = hint.unwrap_or("run its command by hand; then mainstay doctor again");
                findings.problem("servers", wrong, fix);
            }
            schemas(findings, "host", &tools);
        }
    }
}

/// The tools of a host, and the lines of its standard error.
struct Offer {
    tools: Vec<Value>,
    said: String,
}

fn tools(file: Option<&Path>) -> Result<Offer, String> {
    let cannot = |error: std::io::Error| format!("mainstay tools cannot be run: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.args(["tools", "--json"]);
    if let Some(file) = file {
        command.arg("--config").arg(file);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let pipes = (child.stdout.take(), child.stderr.take());
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let read = |pipe: Option<&mut dyn std::io::Read>| {
            let mut text = Vec::new();
            let _ = pipe.map(|pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        };
        let (mut out, mut error) = pipes;
        std::thread::scope(|scope| {
            let error = scope.spawn(|| read(error.as_mut().map(|pipe| pipe as _)));
            let out = read(out.as_mut().map(|pipe| pipe as _));
            let _ = send.send((out, error.join().unwrap_or_default()));
        });
    });
    let answer = receive.recv_timeout(PATIENCE);
    end(&mut child);
    let seconds = PATIENCE.as_secs();
    let (out, said) = answer.map_err(|_| format!("no list of tools came within {seconds} s"))?;
    let tools = serde_json::from_str(&out).unwrap_or_default();
    Ok(Offer { tools, said })
}

/// Waits a moment for a process that has said everything.
fn end(child: &mut Child) {
    let deadline = Instant::now() + handshake::PATIENCE;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(STEP);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Compiles the schemas of tools.
fn schemas(findings: &mut Findings, server: &str, tools: &[Value]) {
    const AREA: &str = "schemas";
    let mut broken = 0;
    for tool in tools {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or("?");
        for part in ["inputSchema", "outputSchema"] {
            let Some(schema) = tool.get(part).cloned() else {
                continue;
            };
            if let Err(reason) = compiled(schema) {
                broken += 1;
                findings.problem(
                    AREA,
                    format!("{server}: {part} of {name}: {}", shorten(&reason, 200)),
                    "its author must correct it; the host passes the tool on without checking its arguments",
                );
            }
        }
    }
    if broken == 0 && !tools.is_empty() {
        findings.good(
            AREA,
            format!(
                "{server}: the schemas of {} can be used",
                count(tools.len(), "tool", "tools")
            ),
        );
    }
}

/// Compiling a schema of somebody's server may take for ever.
fn compiled(schema: Value) -> Result<(), String> {
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let compiled = SchemaRegistry::new().compile(&schema);
        let _ = send.send(compiled.map(|_| ()).map_err(|error| error.to_string()));
    });
    let seconds = SCHEMA.as_secs();
    match receive.recv_timeout(SCHEMA) {
        Ok(compiled) => compiled,
        Err(_) => Err(format!("it takes longer than {seconds} s to compile")),
    }
}

/// Looks at the files of clients, and starts their servers.
pub(super) fn clients(findings: &mut Findings, no_start: bool) -> Result<(), Failure> {
    const AREA: &str = "clients";
    let mut launches: Vec<Launch> = Vec::new();
    let mut named = Vec::new();
    let mut bare = 0;
    let found = [known::of_user()?, known::of_project()].concat();
    if found.is_empty() {
        findings.good(AREA, "no client has a file here");
    }
    for file in found {
        let (client, path) = (file.client, file.path.display().to_string());
        let servers = match adopt::servers_of(&file.path) {
            Ok(servers) => servers,
            Err(failure) => {
                let fix = "correct the file; its client cannot read it either";
                findings.problem(AREA, format!("{:#}", failure.error), fix);
                continue;
            }
        };
        findings.good(
            AREA,
            format!(
                "{client}: {path} has {}",
                count(servers.len(), "server", "servers")
            ),
        );
        for server in servers {
            let Start::Command(launch) = server.start else {
                continue;
            };
            let is_lost = launch.is_wrapped
                && launch.program.contains('/')
                && !Path::new(&launch.program).is_file();
            if is_lost {
                findings.problem(
                    AREA,
                    format!(
                        "{client}: {} starts {}, which does not exist",
                        server.label, launch.program
                    ),
                    format!("mainstay adopt {path} --undo, then mainstay adopt {path}"),
                );
                continue;
            }
            bare += usize::from(!launch.is_wrapped);
            if !launch.has_reference() {
                named.push(format!("{client}: {}", server.label));
                launches.push(launch);
            }
        }
    }
    if bare > 0 {
        findings.note(
            AREA,
            format!("{} not kept alive", count(bare, "server is", "servers are")),
            "mainstay setup",
        );
    }
    if no_start {
        return Ok(());
    }
    for (label, answer) in named.into_iter().zip(handshake::ask_all(&launches)) {
        match answer {
            Ok(answered) => {
                let tools = count(answered.tools.len(), "tool", "tools");
                findings.good("servers", format!("{label} answers: {tools}"));
                schemas(findings, &label, &answered.tools);
            }
            Err(reason) => findings.problem(
                "servers",
                format!("{label} does not answer: {reason}"),
                "run its command by hand, and correct what it complains about",
            ),
        }
    }
    Ok(())
}
