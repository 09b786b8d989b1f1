//! Workers: processes of packs and of wrapped servers, as the loop holds them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::rpc::Ready;
use mainstay_contract::telemetry::Event as Recorded;
use mainstay_kernel::action::Manner;
use mainstay_kernel::call::SlotId;
use mainstay_kernel::core::action::{CoreEvent, WorkerNews};
use mainstay_schema::check::{Definition, Verdict};
use serde::{Deserialize, Serialize};

use super::control::clean_fault;
use super::{Engine, Event};
use crate::check::Checked;
use crate::config::{Command, ServerLaunch, Shim};
use crate::drivers::{
    self, SavedServer, SavedWorker, ServerHandle, ServerStderr, Surroundings, What, WorkerEvent,
    WorkerHandle,
};
use crate::log::Level;
use crate::process::programs::Programs;
use crate::serve::is_shortage;
use crate::upgrade::{Incoming, Outgoing};

/// Distinguishes the tickets of catalogs from those of the core.
const VET: u64 = 1 << 63;

/// How workers are started.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) shim: Shim,
    pub(crate) commands: Commands,
    /// Directories that a client's root can only be below of.
    pub(crate) named_only: Vec<PathBuf>,
    /// Workers that announced themselves and whose schemas are being compiled.
    pub(crate) vetting: BTreeMap<u64, (Generation, Box<Ready>)>,
    /// The executables of packs.
    pub(crate) programs: Programs,
}

/// The commands of workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Commands {
    /// Of packs, in the order of their slots.
    pub(crate) packs: Vec<PackCommand>,
    /// Of wrapped servers, by their keys.
    pub(crate) servers: BTreeMap<String, ServerLaunch>,
    /// Variables of this process that a shared server does not get, unless its command sets them.
    #[serde(default)]
    pub(crate) unshared: Vec<String>,
}

/// The command of a pack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PackCommand {
    #[serde(flatten)]
    pub(crate) command: Command,
    /// Its executable is not ours, and is held open.
    #[serde(default)]
    pub(crate) is_held: bool,
}

/// One worker process.
#[derive(Debug)]
pub(super) struct Incarnation {
    pub(super) slot: SlotId,
    pub(super) handle: Handle,
    pub(super) pid: u32,
}

/// The loop's end of a worker.
#[derive(Debug)]
pub(super) enum Handle {
    Pack(WorkerHandle),
    Server(ServerHandle),
}

/// A [`Handle`], as it is saved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SavedHandle {
    Pack(Box<SavedWorker>),
    Server(SavedServer),
}

impl Handle {
    /// True if every task has ended.
    pub(super) fn is_paused(&self) -> bool {
        match self {
            Self::Pack(worker) => worker.0.is_paused(),
            Self::Server(server) => server.is_paused(),
        }
    }

    /// Takes the parts of the tasks that have ended.
    pub(super) async fn collect(&mut self) {
        match self {
            Self::Pack(worker) => worker.0.collect().await,
            Self::Server(server) => server.collect().await,
        }
    }

    /// The state of a paused worker; `None` if it cannot move.
    pub(super) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedHandle> {
        Some(match self {
            Self::Pack(worker) => SavedHandle::Pack(Box::new(worker.0.save(descriptors)?)),
            Self::Server(server) => SavedHandle::Server(server.save(descriptors)?),
        })
    }

    /// Continues after a pause.
    pub(super) fn run(&mut self, around: Surroundings<'_, Event>) {
        match self {
            Self::Pack(worker) => worker.run(around),
            Self::Server(server) => server.run(around),
        }
    }

    /// A worker that another process saved.
    pub(super) fn restore(
        saved: SavedHandle,
        descriptors: &mut Incoming,
        limits: &Limits,
    ) -> io::Result<Self> {
        match saved {
            SavedHandle::Pack(saved) => {
                WorkerHandle::restore(*saved, descriptors, limits).map(Self::Pack)
            }
            SavedHandle::Server(saved) => {
                ServerHandle::restore(saved, descriptors, limits).map(Self::Server)
            }
        }
    }

    pub(super) fn stop(&self, how: Manner) {
        match self {
            Self::Pack(worker) => worker.stop(how),
            Self::Server(server) => server.stop(how),
        }
    }

    /// Stops sending. Returns the calls of which not one byte was sent.
    pub(super) fn seal(&self) -> Vec<CallId> {
        match self {
            Self::Pack(worker) => worker.seal(),
            Self::Server(server) => server.seal(),
        }
    }
}

impl Engine {
    /// Starts a worker; `fresh` runs the executable that is on disk now.
    pub(super) fn spawn(
        &mut self,
        slot: SlotId,
        generation: Generation,
        settings: Option<Json>,
        fresh: bool,
    ) {
        let program = self.program(slot, generation, fresh);
        match self.start(slot, generation, settings, program.as_ref()) {
            Ok(handle) => {
                let worker = Incarnation {
                    slot,
                    handle,
                    pid: 0,
                };
                self.workers.insert(generation, worker);
                self.unpaced.extend(self.core.client_of(generation));
            }
            Err((detail, is_shortage)) => {
                if is_shortage {
                    self.news(generation, WorkerNews::Shortage);
                }
                let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(generation);
                let unsent = Vec::new();
                self.launch.programs.forget(generation);
                self.news(generation, WorkerNews::Lost { fault, unsent });
                self.news(generation, WorkerNews::Reaped);
            }
        }
    }

    /// The executable of a pack that is held open, if the worker must run it from there.
    fn program(&mut self, slot: SlotId, generation: Generation, fresh: bool) -> Option<OwnedFd> {
        let Launch {
            commands, programs, ..
        } = &mut self.launch;
        let packs = &commands.packs;
        let pack = packs.get(slot.0).filter(|pack| pack.is_held)?;
        programs.choose(slot, generation, &pack.command.program, fresh)
    }

    /// Starts a worker. An error is the reason, and whether it is a shortage.
    fn start(
        &self,
        slot: SlotId,
        generation: Generation,
        settings: Option<Json>,
        program: Option<&OwnedFd>,
    ) -> Result<Handle, (String, bool)> {
        let shim = &self.launch.shim;
        let around = Surroundings {
            generation,
            limits: self.core.limits(),
            events: self.events(),
            log: &self.reports.log,
            pause: self.upgrade.pauses.watch(),
        };
        let failed = |what: &str, error: &io::Error| {
            let said = format!("cannot start the {what}'s shim: {error}");
            (said, is_shortage(error))
        };
        let commands = &self.launch.commands;
        match self.core.server_of(slot) {
            None => {
                let Some(PackCommand { command, .. }) = commands.packs.get(slot.0) else {
                    return Err(("belongs to no pack".to_owned(), false));
                };
                let settings = settings.unwrap_or_else(Json::empty_object);
                let pack = drivers::PackStart {
                    name: self.core.name_of(slot),
                    command,
                    program,
                    settings,
                };
                drivers::start(shim, pack, around)
                    .map(Handle::Pack)
                    .map_err(|error| failed("worker", &error))
            }
            Some(server) => {
                let (command, tree_kill) = match commands.servers.get(server) {
                    Some(ServerLaunch::Process { command, tree_kill }) => (command, tree_kill),
                    Some(ServerLaunch::Remote(remote)) => {
                        let remote = drivers::start_remote(remote, around);
                        return remote
                            .map(|remote| Handle::Server(ServerHandle::Remote(remote)))
                            .map_err(|why| (why, false));
                    }
                    None => return Err(("belongs to no server".to_owned(), false)),
                };
                let mut command = Cow::Borrowed(command);
                if self.core.is_shared(slot) {
                    let unshared = commands.unshared.iter().cloned();
                    command.to_mut().without_env.extend(unshared);
                }
                let stderr = match self.facts.mode {
                    _ if self.core.is_served_beside_others(slot) => {
                        ServerStderr::Log(self.core.name_of(slot))
                    }
                    "stdio" => ServerStderr::Client,
                    _ => ServerStderr::Host,
                };
                let shim = &Shim {
                    tree_kill: *tree_kill,
                    ..shim.clone()
                };
                drivers::start_server(shim, &command, stderr, around)
                    .map(Handle::Server)
                    .map_err(|error| match &command.cwd {
                        Some(cwd) if !cwd.is_dir() => {
                            let shown = cwd.display();
                            (format!("its cwd {shown} is not a directory"), false)
                        }
                        _ => failed("server", &error),
                    })
            }
        }
    }

    /// Reports news of a worker to the core.
    pub(super) fn news(&mut self, generation: Generation, news: WorkerNews) {
        self.report(CoreEvent::Worker { generation, news });
    }

    pub(super) fn worker(
        &mut self,
        WorkerEvent {
            generation,
            mut what,
        }: WorkerEvent,
    ) {
        // Faults quote servers, and reach clients.
        let redactor = self.reports.log.redactor();
        if let What::CallLost { fault, .. }
        | What::Unfit(fault)
        | What::Lost(fault)
        | What::Stuck(fault) = &mut what
        {
            clean_fault(fault, redactor);
        }
        let news = match what {
            What::Up { pid, tree_kill } => {
                self.started(generation, pid, tree_kill);
                let tree_kill = tree_kill.to_owned();
                WorkerNews::Up { pid, tree_kill }
            }
            What::Connected { url } => {
                self.connected(generation, &url);
                WorkerNews::Connected { url }
            }
            What::CallLost { call, sent, fault } => WorkerNews::CallLost { call, sent, fault },
            What::Unfit(fault) => WorkerNews::Unfit(fault),
            What::Ready(ready) => return self.vet(generation, ready),
            What::Progress { call, progress } => WorkerNews::Progress { call, progress },
            What::Answer { call, answer } => WorkerNews::Answer { call, answer },
            What::Line(line) => WorkerNews::Line(self.passed_on(generation, line)),
            What::Oversize(head) => WorkerNews::Oversize(head),
            What::Pong => WorkerNews::Pong,
            What::CaughtUp => {
                self.unpaced.extend(self.core.client_of(generation));
                return;
            }
            What::Lost(fault) => {
                let Some(worker) = self.workers.get(&generation) else {
                    return;
                };
                let unsent = worker.handle.seal();
                // A sealed outbox no longer holds the client back.
                self.unpaced.extend(self.core.client_of(generation));
                WorkerNews::Lost { fault, unsent }
            }
            What::Reaped => {
                self.unpaced.extend(self.core.client_of(generation));
                self.launch.programs.forget(generation);
                if let Some(worker) = self.workers.remove(&generation) {
                    let name = self.core.name_of(worker.slot);
                    let recorder = &self.reports.recorder;
                    recorder.worker(Recorded::WorkerReaped, name, generation, worker.pid);
                }
                WorkerNews::Reaped
            }
            What::Stuck(fault) => WorkerNews::Stuck(fault),
            What::Unkillable => {
                if self.core.is_stopping() {
                    self.workers.remove(&generation);
                }
                WorkerNews::Unkillable
            }
        };
        self.news(generation, news);
    }

    /// A line of a server, without the values that the host knows as secrets if its rules say so.
    fn passed_on(&self, generation: Generation, line: Vec<u8>) -> Vec<u8> {
        if !self.core.redacts_results(generation) {
            return line;
        }
        let clean = match std::str::from_utf8(&line) {
            Ok(text) => match self.reports.log.redactor().json_line(text) {
                Cow::Owned(clean) => Some(clean),
                Cow::Borrowed(_) => None,
            },
            // The core rejects it.
            Err(_) => None,
        };
        clean.map_or(line, String::into_bytes)
    }

    fn started(&mut self, generation: Generation, pid: u32, tree_kill: &str) {
        let Some(worker) = self.workers.get_mut(&generation) else {
            return;
        };
        worker.pid = pid;
        let what = match worker.handle {
            Handle::Pack(_) => "worker",
            Handle::Server(_) => "server",
        };
        let name = self.core.name_of(worker.slot);
        let said = format!(
            "{what} started pack={name} generation={generation} pid={pid} tree_kill={tree_kill}"
        );
        self.reports.log.say(Level::Debug, said);
        let recorder = &self.reports.recorder;
        recorder.worker(Recorded::WorkerStarted, name, generation, pid);
    }

    fn connected(&self, generation: Generation, url: &str) {
        let Some(worker) = self.workers.get(&generation) else {
            return;
        };
        let name = self.core.name_of(worker.slot);
        let said = format!("server used pack={name} generation={generation} url={url}");
        self.reports.log.say(Level::Debug, said);
        let recorder = &self.reports.recorder;
        recorder.worker(Recorded::WorkerStarted, name, generation, worker.pid);
    }

    /// Compiles the schemas of a worker that announced itself, before the core accepts it.
    pub(super) fn vet(&mut self, generation: Generation, ready: Box<Ready>) {
        #[cfg(feature = "simulation")]
        if crate::sim::is_entered() {
            return self.vetted(generation, ready, &Verdict::Passed, None);
        }
        let definitions = ready
            .catalog
            .tools
            .iter()
            .map(Definition::of_pack)
            .collect();
        let ticket = VET | generation.get();
        let within = std::time::Duration::from_millis(self.core.limits().start_timeout_ms);
        let until = tokio::time::Instant::now() + within;
        match self.checkers.vet(ticket, definitions, until) {
            Some(verdict) => self.vetted(generation, ready, &verdict, None),
            None => {
                self.launch.vetting.insert(ticket, (generation, ready));
            }
        }
    }

    fn vetted(
        &mut self,
        generation: Generation,
        ready: Box<Ready>,
        verdict: &Verdict,
        tool: Option<&str>,
    ) {
        let vetted = match verdict {
            Verdict::Rejected { violations } => {
                let first = violations.first();
                Err(first.map_or_else(String::new, |first| {
                    format!(
                        "announced a tool that cannot be served: {}: {}",
                        first.path, first.message
                    )
                }))
            }
            Verdict::GaveUp { .. } => Err(format!(
                "announced schemas that take too long to compile, first the tool {}",
                tool.unwrap_or("?")
            )),
            Verdict::Passed | Verdict::Prepared { .. } | Verdict::Unchecked { .. } => Ok(()),
        };
        self.news(generation, WorkerNews::Ready { ready, vetted });
    }

    /// A checker has a verdict.
    pub(super) fn checked(&mut self, checked: Checked) {
        let Checked {
            ticket,
            verdict,
            tool,
        } = checked;
        if let Some((generation, ready)) = self.launch.vetting.remove(&ticket) {
            return self.vetted(generation, ready, &verdict, tool.as_deref());
        }
        self.report(CoreEvent::Checked { ticket, verdict });
    }
}
