//! A host under simulation: the real engine, fed with simulated clients and operators.

use std::io;
use std::sync::Arc;

use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::dialect::Request;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::RenderMode;
use mainstay_kernel::action::End;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{HttpDoor, PipeReader, PipeWriter};
use crate::config::{
    Command, Config, EnvelopeMode, IdSource, Pack, Server, ServerLaunch, Shim, ToolListRules,
    Transport, TreeKill,
};
use crate::control::{Control, Replier};
use crate::engine::{Event, Single};
use crate::flag::Flag;
use crate::io::{Sink, Source};
use crate::serve::simulate;
use crate::tasks::TaskRules;
use crate::transport::Client;
use crate::wrap::{Rules, WrapConfig};

/// A running host.
#[derive(Debug)]
pub struct Host {
    events: mpsc::Sender<Event>,
    engine: JoinHandle<()>,
    over: Over,
    crashed: Arc<Flag>,
}

/// The end of a host, for those who wait for it.
#[derive(Clone, Debug, Default)]
pub struct Over(Arc<Flag>);

impl Over {
    /// Waits until the engine has ended, or crashed. A real process exits then, and every pipe breaks.
    pub async fn wait(&self) {
        self.0.is(true).await;
    }
}

/// Says that the engine has ended when it goes, however it ends.
struct Ends(Over);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.0.set(true);
    }
}

/// A server of a file.
#[derive(Debug)]
pub struct ServerPlan {
    /// Its key, which is its prefix, too.
    pub key: String,
    pub command: Command,
    pub rules: Rules,
    /// One process serves all clients.
    pub shared: bool,
}

/// The settings for tasks of a host, by the name of the tool.
pub type TaskSettings = TaskRules;

impl Host {
    /// Starts a host that serves servers of a file to many clients.
    pub fn several(servers: Vec<ServerPlan>, limits: Limits) -> io::Result<Self> {
        let servers = servers.into_iter().map(|server| Server {
            prefix: server.key.clone(),
            name: server.key,
            launch: ServerLaunch::Process {
                command: server.command,
                tree_kill: TreeKill::Subreaper,
            },
            rules: Arc::new(server.rules),
            locked: None,
            limits: limits.clone(),
            shared: Some(server.shared),
        });
        let servers = servers.collect();
        Self::serve_both(Vec::new(), servers, limits, TaskSettings::default())
    }

    /// Starts a host that serves packs to many clients.
    pub fn serve(packs: Vec<Pack>, limits: Limits, tasks: TaskSettings) -> io::Result<Self> {
        Self::serve_both(packs, Vec::new(), limits, tasks)
    }

    fn serve_both(
        packs: Vec<Pack>,
        servers: Vec<Server>,
        limits: Limits,
        tasks: TaskSettings,
    ) -> io::Result<Self> {
        let config = Config {
            server_name: "simulated".to_owned(),
            server_version: "0".to_owned(),
            instructions: None,
            host_name: "simulated".to_owned(),
            control_dir: None,
            limits,
            render: RenderMode::Json,
            packs,
            servers,
            shim: shim()?,
            transport: transport(),
            ready_file: None,
            telemetry: None,
            collector: None,
            ready_details: String::new(),
            tooling_version: "0".to_owned(),
            envelopes: EnvelopeMode::Off,
            envelope_ids: IdSource::Deterministic,
            locked: None,
            read_lock: None,
            reread: None,
            tasks,
            tool_list: ToolListRules::default(),
            quotas: Default::default(),
            state_dir: None,
            cache_dir: None,
            environment: Vec::new(),
            watch: Vec::new(),
            approvals: mainstay_kernel::approvals::Policy::default(),
            audit: None,
            upgrade: None,
        };
        Self::start(Ok(config))
    }

    /// Starts a host that wraps a server for many clients.
    pub fn wrap(command: Command, rules: Rules, limits: Limits) -> io::Result<Self> {
        Self::start(Err(WrapConfig {
            name: "simulated".to_owned(),
            launch: ServerLaunch::Process {
                command,
                tree_kill: TreeKill::Subreaper,
            },
            rules: Arc::new(rules),
            tool_list: ToolListRules::default(),
            quotas: Default::default(),
            locked: None,
            read_lock: None,
            limits,
            shim: shim()?,
            transport: transport(),
            ready_file: None,
            telemetry: None,
            collector: None,
            control_dir: None,
            cache_dir: None,
            state_dir: None,
            environment: Vec::new(),
            host_name: "simulated".to_owned(),
            version: "0".to_owned(),
            reread: None,
            upgrade: None,
            envelopes: EnvelopeMode::Off,
            watch: Vec::new(),
            audit: None,
        }))
    }

    fn start(config: Result<Config, WrapConfig>) -> io::Result<Self> {
        let crashed = Arc::new(Flag::default());
        super::set_host(Arc::clone(&crashed));
        let (events, engine) = simulate(config).map_err(io::Error::other)?;
        let over = Over::default();
        let ends = Ends(over.clone());
        let engine = tokio::spawn(async move {
            let _ends = ends;
            engine.run().await;
        });
        Ok(Self {
            events,
            engine,
            over,
            crashed,
        })
    }

    /// A client connects: where the host reads, and where it writes.
    pub async fn connect(&self, reads: PipeReader, writes: PipeWriter) {
        let client = Client {
            source: Source::Simulated(reads),
            sink: Sink::Simulated(writes),
            caller: None,
            link: None,
        };
        let _ = self.events.send(client.into()).await;
    }

    /// Its HTTP front.
    pub fn http(&self, limits: &Limits) -> HttpDoor {
        HttpDoor::new(self.events.clone(), limits)
    }

    /// An operator asks for something. `None` when the host ended without a reply.
    pub async fn control(&self, request: ControlRequest) -> Option<ControlReply> {
        let (reply, wait) = oneshot::channel();
        let reply = Replier::Task(reply);
        let control = Control {
            request,
            is_same_user: false,
            reply,
        };
        self.events.send(control.into()).await.ok()?;
        wait.await.ok()
    }

    /// Sends one request that is answered with its typed end. The caller drops the returned
    /// sender when it does not want the answer any more.
    pub async fn single(
        &self,
        request: Request,
        bytes: usize,
        caller: &str,
    ) -> (
        oneshot::Receiver<Result<Box<End>, Problem>>,
        oneshot::Sender<()>,
    ) {
        super::upgrade::open().await;
        let (reply, end) = oneshot::channel();
        let (want, wanted) = oneshot::channel();
        let single = Single {
            request,
            bytes,
            caller: caller.to_owned(),
            reply,
            wanted,
            steps: None,
        };
        let _ = self.events.send(Box::new(single).into()).await;
        (end, want)
    }

    /// The host receives SIGTERM.
    pub async fn stop(&self) {
        let _ = self.events.send(Event::Stop).await;
    }

    /// Kills the host, or what its crash has left: its processes end as their shims end them.
    pub fn kill(&self) {
        self.engine.abort();
        super::ledger::drop_lease();
        self.crashed.set(true);
    }

    /// True once the engine has ended.
    pub fn is_over(&self) -> bool {
        self.engine.is_finished()
    }

    /// Its end.
    pub fn over(&self) -> Over {
        self.over.clone()
    }

    /// Waits for the engine to end. False if it panicked.
    pub async fn join(self) -> bool {
        drop(self.events);
        self.engine.await.is_ok()
    }
}

/// Clients come as on a socket; nothing is bound.
fn transport() -> Transport {
    Transport::Socket {
        path: "/nowhere".into(),
        mode: 0,
    }
}

/// Simulated programs have no shim; the type wants a descriptor all the same.
fn shim() -> io::Result<Shim> {
    let nothing = std::fs::File::open("/dev/null")?;
    Ok(Shim {
        program: "/dev/null".into(),
        holds: Arc::new(nothing.into()),
        tree_kill: TreeKill::Auto,
        lease: None,
    })
}
