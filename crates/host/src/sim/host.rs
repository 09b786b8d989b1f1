//! A host under simulation: the real engine, fed with simulated clients and operators.

use std::io;
use std::sync::Arc;

use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::dialect::Request;
use mainstay_contract::limits::Limits;
use mainstay_contract::render::RenderMode;
use mainstay_kernel::action::End;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::{PipeReader, PipeWriter};
use crate::config::{Command, Config, EnvelopeMode, IdSource, Pack, Shim, Transport, TreeKill};
use crate::control::Control;
use crate::engine::{Engine, Event, Lifetime, Single};
use crate::io::{Sink, Source};
use crate::log::Log;
use crate::telemetry::Recorder;
use crate::transport::Client;
use crate::wrap::{self, HubEvent, Rules};

/// A running host.
#[derive(Debug)]
pub struct Host {
    events: Events,
    engine: JoinHandle<()>,
    over: watch::Receiver<bool>,
}

/// Where the events of either engine go.
#[derive(Clone, Debug)]
enum Events {
    Packs(mpsc::Sender<Event>),
    Server(mpsc::Sender<HubEvent>),
}

impl Events {
    async fn send<T>(&self, event: T) -> bool
    where
        Event: From<T>,
        HubEvent: From<T>,
    {
        match self {
            Self::Packs(events) => events.send(event.into()).await.is_ok(),
            Self::Server(events) => events.send(event.into()).await.is_ok(),
        }
    }
}

impl Host {
    /// Starts a host that wraps a server, one for each client.
    pub fn wrap(command: Command, rules: Rules, limits: Limits) -> io::Result<Self> {
        let (events, hub) = wrap::simulate(command, rules, limits, shim()?, Log::silent());
        Ok(Self::start(Events::Server(events), hub))
    }

    fn start(events: Events, engine: impl Future<Output = ()> + Send + 'static) -> Self {
        let (ended, over) = watch::channel(false);
        let engine = tokio::spawn(async move {
            engine.await;
            let _ = ended.send(true);
        });
        Self {
            events,
            engine,
            over,
        }
    }

    /// Starts a host that serves packs to many clients.
    pub fn serve(packs: Vec<Pack>, limits: Limits) -> io::Result<Self> {
        let config = Config {
            server_name: "simulated".to_owned(),
            server_version: "0".to_owned(),
            instructions: None,
            host_name: "simulated".to_owned(),
            control_dir: None,
            limits,
            render: RenderMode::Json,
            packs,
            shim: shim()?,
            transport: Transport::Stdio,
            ready_file: None,
            telemetry: None,
            collector: None,
            ready_details: String::new(),
            tooling_version: "0".to_owned(),
            envelopes: EnvelopeMode::Off,
            envelope_ids: IdSource::Deterministic,
            locked: None,
        };
        let lifetime = Lifetime::Service;
        let engine = Engine::new(config, "socket", lifetime, Log::silent(), Recorder::off())
            .map_err(io::Error::other)?;
        let events = engine.events();
        Ok(Self::start(Events::Packs(events), async move {
            let _ = engine.run().await;
        }))
    }

    /// A client connects: where the host reads, and where it writes.
    pub async fn connect(&self, reads: PipeReader, writes: PipeWriter) {
        let client = Client {
            source: Source::Simulated(reads),
            sink: Sink::Simulated(writes),
        };
        self.events.send(client).await;
    }

    /// An operator asks for something. `None` when the host ended without a reply.
    pub async fn control(&self, request: ControlRequest) -> Option<ControlReply> {
        let (reply, wait) = oneshot::channel();
        let sent = self.events.send(Control { request, reply }).await;
        if sent { wait.await.ok() } else { None }
    }

    /// Sends one request that is answered with its typed end. The caller drops the returned
    /// sender when it does not want the answer any more.
    pub async fn single(
        &self,
        request: Request,
        bytes: usize,
    ) -> (oneshot::Receiver<Box<End>>, oneshot::Sender<()>) {
        let (reply, end) = oneshot::channel();
        let (want, wanted) = oneshot::channel();
        let single = Single {
            request,
            bytes,
            reply,
            wanted,
        };
        if let Events::Packs(events) = &self.events {
            let _ = events.send(Event::Single(Box::new(single))).await;
        }
        (end, want)
    }

    /// The host receives SIGTERM.
    pub async fn stop(&self) {
        let _ = match &self.events {
            Events::Packs(events) => events.send(Event::Stop).await.is_ok(),
            Events::Server(events) => events.send(HubEvent::Stop).await.is_ok(),
        };
    }

    /// Whether the engine has ended.
    pub fn is_over(&self) -> bool {
        self.engine.is_finished()
    }

    /// Becomes true, or loses its sender, when the engine ends. A real process exits then, and
    /// every pipe breaks.
    pub fn over(&self) -> watch::Receiver<bool> {
        self.over.clone()
    }

    /// Waits for the engine to end. False if it panicked.
    pub async fn join(self) -> bool {
        drop(self.events);
        self.engine.await.is_ok()
    }
}

/// Simulated programs have no shim; the type wants a descriptor all the same.
fn shim() -> io::Result<Shim> {
    let nothing = std::fs::File::open("/dev/null")?;
    Ok(Shim {
        program: "/dev/null".into(),
        holds: Arc::new(nothing.into()),
        tree_kill: TreeKill::Auto,
    })
}
