//! `mainstay status`, `stop` and `rollout`: commands to running hosts, over their control sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use mainstay_contract::control::{ControlReply, ControlRequest, HostStatus};
use mainstay_contract::json::Json;
use mainstay_contract::render::{Bounds, Porcelain, count, millis};

use crate::args::{Chosen, RolloutArgs, Status, Stop};
use crate::environment::Environment;
use crate::exit::{self, Failure, print};

/// Longest reply that is read.
const REPLY: u64 = 16 * 1024 * 1024;
/// Time for a host to say how it is.
const STATUS_PATIENCE: Duration = Duration::from_secs(5);
/// Time for a host to stop or to roll out: longer than its own limits by default.
const PATIENCE: Duration = Duration::from_secs(180);

/// A host that answered.
struct Found {
    socket: PathBuf,
    status: HostStatus,
}

/// Shows the hosts that are running.
pub(crate) fn status(arguments: &Status) -> Result<ExitCode, Failure> {
    let hosts = chosen(find_all()?, &arguments.chosen)?;
    let text = if arguments.json {
        let all: Vec<&HostStatus> = hosts.iter().map(|host| &host.status).collect();
        let all = serde_json::to_value(all).map_err(Failure::fault)?;
        format!("{all:#}\n")
    } else {
        table(&hosts)
    };
    print(&text)?;
    Ok(ExitCode::from(if hosts.is_empty() {
        exit::NO
    } else {
        exit::SUCCESS
    }))
}

/// Stops one host and waits until it has gone.
pub(crate) fn stop(arguments: &Stop) -> Result<ExitCode, Failure> {
    let host = one(&arguments.chosen)?;
    match ask(&host.socket, &ControlRequest::Stop {}, STATUS_PATIENCE).map_err(Failure::fault)? {
        ControlReply::Stopping {} => {}
        other => return Err(unexpected(&other)),
    }
    let deadline = Instant::now() + PATIENCE;
    while host.socket.exists() {
        if Instant::now() > deadline {
            return Err(Failure::fault(anyhow!(
                "host {} does not end",
                host.status.pid
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    print(&format!(
        "stopped {} (pid {})\n",
        host.status.name, host.status.pid
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the workers of one host and waits until fresh ones serve.
pub(crate) fn rollout(arguments: RolloutArgs) -> Result<ExitCode, Failure> {
    let host = one(&arguments.chosen)?;
    let request = ControlRequest::Rollout {
        pack: arguments.pack,
    };
    let packs = match ask(&host.socket, &request, PATIENCE).map_err(Failure::fault)? {
        ControlReply::RolledOut(packs) => packs,
        ControlReply::Refused { reason } => return Err(Failure::input(anyhow!("{reason}"))),
        other => return Err(unexpected(&other)),
    };
    let mut text = String::new();
    let mut code = exit::SUCCESS;
    for pack in packs {
        text.push_str(&match pack.result {
            Ok(generation) => format!("{}: generation {generation} serves\n", pack.pack),
            Err(fault) => {
                code = exit::NO;
                format!("{}: {fault}; the workers before it go on\n", pack.pack)
            }
        });
    }
    print(&text)?;
    Ok(ExitCode::from(code))
}

fn one(chosen_by: &Chosen) -> Result<Found, Failure> {
    let mut hosts = chosen(find_all()?, chosen_by)?;
    match (hosts.pop(), hosts.len()) {
        (Some(only), 0) => Ok(only),
        (Some(_), more) => {
            let said = anyhow!("{} hosts are running", more + 1);
            Err(Failure::input(said)
                .hint("choose one with --pid or --name; mainstay status lists them"))
        }
        (None, _) => Err(Failure::input(anyhow!("no host is running"))),
    }
}

fn chosen(hosts: Vec<Found>, by: &Chosen) -> Result<Vec<Found>, Failure> {
    let any = by.pid.is_none() && by.name.is_none();
    let fits = |host: &Found| {
        by.pid.is_none_or(|pid| pid == host.status.pid)
            && by
                .name
                .as_ref()
                .is_none_or(|name| *name == host.status.name)
    };
    let hosts: Vec<Found> = hosts.into_iter().filter(fits).collect();
    if hosts.is_empty() && !any {
        let failure = Failure::input(anyhow!("no such host is running"));
        return Err(failure.hint("mainstay status lists those that are"));
    }
    Ok(hosts)
}

/// The hosts of this user, wherever their sockets are.
fn find_all() -> Result<Vec<Found>, Failure> {
    let environment = Environment::read()?;
    let mut hosts = find(&environment.runtime_dir)?;
    for folder in &environment.other_runtime_dirs {
        // Others may write where these are: what is not ours alone is not looked at.
        if is_private(folder) {
            hosts.extend(find(folder)?);
        }
    }
    hosts.sort_by_key(|host| host.status.pid);
    Ok(hosts)
}

fn is_private(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder).is_ok_and(|facts| {
        let ours = facts.uid() == rustix::process::geteuid().as_raw();
        facts.is_dir() && ours && facts.mode() & 0o022 == 0
    })
}

/// All hosts that answer. What a killed host left is removed.
fn find(folder: &Path) -> Result<Vec<Found>, Failure> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let said = format!("cannot look into {}", folder.display());
            return Err(Failure::input(anyhow::Error::new(error).context(said)));
        }
    };
    let mut hosts = Vec::new();
    for entry in entries.flatten() {
        let socket = entry.path();
        let is_socket = socket
            .extension()
            .is_some_and(|extension| extension == "sock");
        if !is_socket {
            continue;
        }
        match ask(&socket, &ControlRequest::Status {}, STATUS_PATIENCE) {
            Ok(ControlReply::Status(status)) => hosts.push(Found {
                socket,
                status: *status,
            }),
            // Nobody listens: a host that was killed left it.
            Err(error) if is_refused(&error) => {
                let _ = std::fs::remove_file(&socket);
            }
            _ => {}
        }
    }
    Ok(hosts)
}

fn is_refused(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

fn ask(
    socket: &Path,
    request: &ControlRequest,
    patience: Duration,
) -> anyhow::Result<ControlReply> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(STATUS_PATIENCE))?;
    stream.write_all(format!("{}\n", Json::from_serialize(request)).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(REPLY))
        .read_line(&mut line)
        .context("the host does not reply")?;
    serde_json::from_str(&line).context("the host's reply cannot be read")
}

fn unexpected(reply: &ControlReply) -> Failure {
    Failure::fault(anyhow!("the host replied something else: {reply:?}"))
}

fn table(hosts: &[Found]) -> String {
    let rows = hosts.iter().map(|Found { status, .. }| {
        let health = &status.health;
        vec![
            status.pid.to_string(),
            status.name.clone(),
            status.mode.clone(),
            Json::from_serialize(&health.state)
                .as_str()
                .trim_matches('"')
                .to_owned(),
            millis(Duration::from_millis(health.uptime_ms)),
            health.sessions.to_string(),
            health.in_flight.to_string(),
            health.restart_count.to_string(),
            status.totals.request_count.to_string(),
        ]
    });
    let headers = [
        "pid",
        "name",
        "mode",
        "state",
        "uptime",
        "sessions",
        "in flight",
        "restarts",
        "requests",
    ];
    let mut page = Porcelain::summary(count(hosts.len(), "host", "hosts")).table(&headers, rows);
    for Found { status, .. } in hosts {
        if let Some(fault) = &status.health.last_fault {
            page = page.warning(format!(
                "{} (pid {}): last fault: {fault}",
                status.name, status.pid
            ));
        }
    }
    let mut text = page.finish(Bounds {
        lines: 10_000,
        bytes: 1 << 22,
    });
    text.push('\n');
    text
}
