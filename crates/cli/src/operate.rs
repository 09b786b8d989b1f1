//! `mainstay status`, `stop`, `rollout` and `upgrade`: commands to running hosts, over their control sockets.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use mainstay_contract::control::{ControlReply, ControlRequest, HostStatus};
use mainstay_contract::json::Json;
use mainstay_contract::render::{Bounds, Porcelain, count, elapsed, visible, visible_json};
use mainstay_host::files;
use rustix::net;
use serde_json::{Value, json};

use crate::args::{Chosen, RolloutArgs, Status, Stop, UpgradeArgs};
use crate::environment::Environment;
use crate::exit::{self, Failure, print};

/// Longest reply that is read.
const REPLY: u64 = 16 * 1024 * 1024;
/// Time for a host to reply with its status; a host that takes longer is not responding.
const STATUS_PATIENCE: Duration = Duration::from_secs(4);
/// Time for a host to stop or to roll out: longer than its own limits by default.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between two looks whether a host has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A host that replied.
struct Found {
    socket: PathBuf,
    status: HostStatus,
}

/// A host whose control socket is open, but that does not reply with its status.
struct Silent {
    pid: u32,
    silence: Silence,
}

/// Why a host does not reply with its status.
enum Silence {
    Late(Duration),
    /// The reason with which it refused the command.
    Refused(String),
    /// The reason why the command did not reach it.
    Unable(String),
}

impl Silent {
    fn at(socket: &Path, silence: Silence) -> Option<Self> {
        let pid = pid_of(socket)?;
        Some(Self { pid, silence })
    }

    /// The sentence for users.
    fn sentence(&self) -> String {
        let pid = self.pid;
        match &self.silence {
            Silence::Late(waited) => {
                let seconds = waited.as_secs();
                format!("not responding for {seconds} s (pid {pid})")
            }
            Silence::Refused(reason) => format!("refusing this command (pid {pid}): {reason}"),
            Silence::Unable(reason) => {
                format!("unable to accept this command (pid {pid}): {reason}")
            }
        }
    }

    fn to_json(&self) -> Value {
        match &self.silence {
            Silence::Late(waited) => {
                let waited = waited.as_millis();
                json!({"pid": self.pid, "state": "not_responding", "not_responding_ms": waited})
            }
            Silence::Refused(reason) => {
                json!({"pid": self.pid, "state": "refused", "reason": reason})
            }
            Silence::Unable(reason) => {
                json!({"pid": self.pid, "state": "unable", "reason": reason})
            }
        }
    }

    fn failure(&self) -> Failure {
        let said = anyhow!("the host is {}", self.sentence());
        match &self.silence {
            Silence::Late(_) => Failure::fault(said).hint(format!(
                "its log names the reason after stuck_ms; kill -KILL {} ends it and its servers",
                self.pid
            )),
            Silence::Refused(_) => Failure::input(said),
            Silence::Unable(_) => {
                Failure::fault(said).hint("end some of its clients, or raise its limit (ulimit -n)")
            }
        }
    }
}

/// All hosts of a user.
#[derive(Default)]
struct Hosts {
    found: Vec<Found>,
    silent: Vec<Silent>,
    /// Directories that other users control, and that were not read.
    foreign: Vec<String>,
    /// Sockets of hosts that were killed.
    stale: Vec<PathBuf>,
}

/// A running host that takes commands.
pub(crate) struct Operated(Found);

impl Operated {
    pub(crate) const fn pid(&self) -> u32 {
        self.0.status.pid
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.status.name
    }

    /// Sends a request that the host answers at once.
    pub(crate) fn ask(&self, request: &ControlRequest) -> Result<ControlReply, Failure> {
        ask(&self.0.socket, request, STATUS_PATIENCE).map_err(Failure::fault)
    }
}

/// The hosts that a command is for; those that do not reply are reported.
pub(crate) fn hosts(chosen_by: &Chosen) -> Result<Vec<Operated>, Failure> {
    let hosts = chosen(find_all()?, chosen_by)?;
    for silent in &hosts.silent {
        exit::eprint_line(&format!(
            "mainstay: warning: a host is {}",
            silent.sentence()
        ));
    }
    Ok(hosts.found.into_iter().map(Operated).collect())
}

/// The hosts behind the control sockets of this user.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    pub(crate) hosts: Vec<HostStatus>,
    /// A sentence about each host that does not reply, with what to do.
    pub(crate) silent: Vec<(String, Option<String>)>,
    /// Directories of other users.
    pub(crate) foreign: Vec<String>,
    /// Sockets of hosts that were killed. They were removed.
    pub(crate) stale: Vec<PathBuf>,
}

/// Looks at all hosts of this user.
pub(crate) fn overview() -> Result<Overview, Failure> {
    let hosts = find_all()?;
    let silent = hosts.silent.iter();
    Ok(Overview {
        silent: silent
            .map(|silent| (silent.sentence(), silent.failure().hint))
            .collect(),
        hosts: hosts.found.into_iter().map(|host| host.status).collect(),
        foreign: hosts.foreign,
        stale: hosts.stale,
    })
}

/// Shows the hosts that are running.
pub(crate) fn status(arguments: &Status) -> Result<ExitCode, Failure> {
    let hosts = chosen(find_all()?, &arguments.chosen)?;
    let text = if arguments.json {
        let found = hosts
            .found
            .iter()
            .map(|host| serde_json::to_value(&host.status));
        let mut all: Vec<Value> = found.collect::<Result<_, _>>().map_err(Failure::fault)?;
        all.extend(hosts.silent.iter().map(Silent::to_json));
        for foreign in &hosts.foreign {
            exit::eprint_line(&format!("mainstay: warning: {foreign}"));
        }
        visible_json(&format!("{:#}\n", Value::Array(all))).into_owned()
    } else {
        table(&hosts)
    };
    print(&text)?;
    Ok(ExitCode::from(
        match (hosts.found.is_empty(), hosts.silent.is_empty()) {
            (_, false) => exit::FAULT,
            (true, true) => exit::NO,
            (false, true) => exit::SUCCESS,
        },
    ))
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
        std::thread::sleep(LOOK);
    }
    let name = visible(&host.status.name);
    print(&format!("stopped {name} (pid {})\n", host.status.pid))?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the workers of one host and waits until fresh ones serve.
pub(crate) fn rollout(arguments: RolloutArgs) -> Result<ExitCode, Failure> {
    let host = one(&arguments.chosen)?;
    let request = ControlRequest::Rollout {
        pack: arguments.pack,
        reasons: arguments.reason,
    };
    let packs = match ask(&host.socket, &request, PATIENCE).map_err(Failure::fault)? {
        ControlReply::RolledOut(packs) => packs,
        ControlReply::Refused { reason } => return Err(Failure::input(anyhow!("{reason}"))),
        other => return Err(unexpected(&other)),
    };
    let mut text = String::new();
    let mut code = exit::SUCCESS;
    for pack in packs {
        let line = match pack.result {
            Ok(generation) => format!("{}: generation {generation} serves", pack.pack),
            Err(fault) => {
                code = exit::NO;
                format!("{}: {fault}; the workers before it go on", pack.pack)
            }
        };
        text.push_str(&visible(&line));
        text.push('\n');
        for change in &pack.changes {
            text.push_str("  ");
            text.push_str(&visible(change));
            text.push('\n');
        }
    }
    print(&text)?;
    Ok(ExitCode::from(code))
}

/// Replaces the executable of one host and waits until the new one serves.
pub(crate) fn upgrade(arguments: &UpgradeArgs) -> Result<ExitCode, Failure> {
    let host = one(&arguments.chosen)?;
    let binary = arguments.binary.as_deref().map(absolute).transpose()?;
    let now = arguments.now;
    let request = ControlRequest::Upgrade { binary, now };
    match ask(&host.socket, &request, PATIENCE).map_err(Failure::fault)? {
        ControlReply::Upgraded { from, to } => {
            let (name, pid) = (visible(&host.status.name), host.status.pid);
            let (from, to) = (visible(&from), visible(&to));
            print(&format!(
                "upgraded {name} (pid {pid}) from {from} to {to}\n"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        ControlReply::Refused { reason } => {
            let reason = visible(&reason);
            print(&format!(
                "not upgraded: {reason}\nThe host serves as before.\n"
            ))?;
            Ok(ExitCode::from(exit::NO))
        }
        other => Err(unexpected(&other)),
    }
}

/// Sends a request, which the host answers at once, to the host of a control socket.
pub(crate) fn ask_at(socket: &Path, request: &ControlRequest) -> Result<ControlReply, Failure> {
    ask(socket, request, STATUS_PATIENCE).map_err(Failure::fault)
}

/// The path as a host with another working directory needs it.
fn absolute(path: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(path).context("the path of the new executable");
    let path = path.map_err(Failure::input)?.into_os_string().into_string();
    path.map_err(|_| Failure::input(anyhow!("the path of the new executable is not UTF-8")))
}

fn one(chosen_by: &Chosen) -> Result<Found, Failure> {
    let mut hosts = chosen(find_all()?, chosen_by)?;
    if let Some(silent) = hosts.silent.first() {
        return Err(silent.failure());
    }
    match (hosts.found.pop(), hosts.found.len()) {
        (Some(only), 0) => Ok(only),
        (Some(_), more) => {
            let said = anyhow!("{} hosts are running", more + 1);
            Err(Failure::input(said)
                .hint("choose one with --pid or --name; mainstay status lists them"))
        }
        (None, _) => {
            let failure = Failure::input(anyhow!("no host is running"));
            Err(match hosts.foreign.into_iter().next() {
                Some(foreign) => failure.hint(foreign),
                None => failure,
            })
        }
    }
}

fn chosen(mut hosts: Hosts, by: &Chosen) -> Result<Hosts, Failure> {
    let any = by.pid.is_none() && by.name.is_none();
    let fits = |host: &Found| {
        by.pid.is_none_or(|pid| pid == host.status.pid)
            && by
                .name
                .as_ref()
                .is_none_or(|name| *name == host.status.name)
    };
    hosts.found.retain(fits);
    // A host that does not reply does not give its name either.
    let may_fit = by.name.is_none() || hosts.found.is_empty();
    hosts
        .silent
        .retain(|host| may_fit && by.pid.is_none_or(|pid| pid == host.pid));
    if hosts.found.is_empty() && hosts.silent.is_empty() && !any {
        let failure = Failure::input(anyhow!("no such host is running"));
        return Err(failure.hint("mainstay status lists those that are"));
    }
    Ok(hosts)
}

/// The hosts of this user, wherever their sockets are.
fn find_all() -> Result<Hosts, Failure> {
    let environment = Environment::read_for_operator()?;
    let mut hosts = Hosts::default();
    let mut sockets = Vec::new();
    for folder in [environment.runtime_dir]
        .iter()
        .chain(&environment.other_runtime_dirs)
    {
        // Other users may write to the directories above.
        match files::verify_private(folder) {
            Ok(()) => sockets.extend(self::sockets(folder)?),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => hosts.foreign.push(format!("{error}; it was not read")),
        }
    }
    // All at once: several hosts that do not reply cost the patience for one.
    let replies: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = sockets
            .iter()
            .map(|socket| {
                scope.spawn(|| {
                    let began = Instant::now();
                    let reply = ask(socket, &ControlRequest::Status {}, STATUS_PATIENCE);
                    (reply, began.elapsed())
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().ok()).collect()
    });
    for (socket, reply) in sockets.into_iter().zip(replies) {
        let Some((reply, waited)) = reply else {
            continue;
        };
        match reply {
            Ok(ControlReply::Status(status)) => hosts.found.push(Found {
                socket,
                status: *status,
            }),
            // Nobody listens: a host that was killed left it.
            Err(error) if is_io(&error, &[ErrorKind::ConnectionRefused]) => {
                let _ = std::fs::remove_file(&socket);
                hosts.stale.push(socket);
            }
            Ok(ControlReply::Refused { reason }) => {
                let silence = Silence::Refused(reason);
                hosts.silent.extend(Silent::at(&socket, silence));
            }
            Err(error) if is_io(&error, &[ErrorKind::WouldBlock, ErrorKind::TimedOut]) => {
                let silence = Silence::Late(waited);
                hosts.silent.extend(Silent::at(&socket, silence));
            }
            // A host that has ended removed its socket.
            Err(error) if socket.exists() => {
                let silence = Silence::Unable(format!("{error:#}"));
                hosts.silent.extend(Silent::at(&socket, silence));
            }
            _ => {}
        }
    }
    hosts.found.sort_by_key(|host| host.status.pid);
    hosts.silent.sort_by_key(|host| host.pid);
    Ok(hosts)
}

/// The control sockets in a folder.
fn sockets(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let said = format!("cannot look into {}", folder.display());
            return Err(Failure::input(anyhow::Error::new(error).context(said)));
        }
    };
    let own = rustix::process::geteuid().as_raw();
    let is_ours = |path: &PathBuf| {
        path.symlink_metadata()
            .is_ok_and(|facts| facts.uid() == own)
    };
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(is_socket).filter(is_ours).collect())
}

fn is_io(error: &anyhow::Error, kinds: &[ErrorKind]) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| kinds.contains(&error.kind()))
}

/// The process that a control socket is named after.
fn pid_of(socket: &Path) -> Option<u32> {
    socket.file_stem()?.to_str()?.parse().ok()
}

/// Connects within the patience, also to a host with a full backlog that accepts nothing.
fn connect(socket: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let fd = net::socket_with(
        net::AddressFamily::UNIX,
        net::SocketType::STREAM,
        net::SocketFlags::CLOEXEC,
        None,
    )?;
    net::sockopt::set_socket_timeout(&fd, net::sockopt::Timeout::Send, Some(patience))?;
    net::connect(&fd, &net::SocketAddrUnix::new(socket)?)?;
    Ok(UnixStream::from(fd))
}

fn ask(
    socket: &Path,
    request: &ControlRequest,
    patience: Duration,
) -> anyhow::Result<ControlReply> {
    let mut stream = connect(socket, STATUS_PATIENCE)
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(STATUS_PATIENCE))?;
    // A host that cannot read the request says why and closes the connection.
    let sent = stream.write_all(format!("{}\n", Json::from_serialize(request)).as_bytes());
    let is_closed = |error: &std::io::Error| error.kind() == ErrorKind::BrokenPipe;
    if let Err(error) = sent
        && !is_closed(&error)
    {
        return Err(error.into());
    }
    let mut line = String::new();
    BufReader::new(stream.take(REPLY))
        .read_line(&mut line)
        .context("the host does not reply")?;
    ensure!(
        !line.is_empty(),
        "the host closed the connection without a reply"
    );
    match serde_json::from_str(&line).context("the host's reply cannot be read")? {
        ControlReply::Unable { reason } => Err(anyhow!("{reason}")),
        reply => Ok(reply),
    }
}

pub(crate) fn unexpected(reply: &ControlReply) -> Failure {
    Failure::fault(anyhow!("the host replied something else: {reply:?}"))
}

fn table(hosts: &Hosts) -> String {
    let rows = hosts.found.iter().map(|Found { status, .. }| {
        let health = &status.health;
        vec![
            status.pid.to_string(),
            status.name.clone(),
            status.mode.clone(),
            Json::from_serialize(&health.state)
                .as_str()
                .trim_matches('"')
                .to_owned(),
            elapsed(Duration::from_millis(health.uptime_ms)),
            health.sessions.to_string(),
            health.in_flight.to_string(),
            health.restart_count.to_string(),
            status.totals.request_count.to_string(),
            status.build.clone(),
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
        "build",
    ];
    let all = hosts.found.len() + hosts.silent.len();
    let mut page = Porcelain::summary(count(all, "host", "hosts")).table(&headers, rows);
    for silent in &hosts.silent {
        page = page.warning(silent.sentence());
    }
    for foreign in &hosts.foreign {
        page = page.warning(foreign);
    }
    for Found { status, .. } in &hosts.found {
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
