//! One host that wraps one server: an engine for each connection, and one voice for all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mainstay_contract::control::{ControlReply, ControlRequest, HostStatus};
use mainstay_contract::frame::Frame;
use mainstay_contract::id::SessionId;
use mainstay_contract::metrics::HostMetrics;
use tokio::signal::unix::SignalKind;
use tokio::sync::{mpsc, oneshot};

use super::WrapConfig;
use super::engine::{ClientSide, Common, Engine, Event};
use super::remembered::Remembered;
use super::reread::Reread;
use crate::clock::iso_now;
use crate::config::{IdSource, Transport};
use crate::control::{self, Control};
use crate::engine::Single;
use crate::entropy;
use crate::envelopes::Envelopes;
use crate::http::{FrontFacts, Serves};
use crate::io::Source;
use crate::log::{Level, Log};
use crate::outbox::Outbox;
use crate::serve::{
    Opened, ServeError, Sinks, in_runtime, open_transport, watch, watch_signals, write_ready_file,
};
use crate::transport::{Client, ClientEvent, Gate, Lines, write_answers};

/// A host with one client has one server.
const NEVER: Duration = Duration::from_secs(86_400);
/// How often the number of running servers is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Everything that happens to the host as a whole.
#[derive(Debug)]
pub(crate) enum HubEvent {
    Connected(Client),
    Control(Control),
    /// The configuration is to be read again.
    Reread,
    Stop,
    /// An engine has ended; what it had counted.
    Over(u64, Box<HostMetrics>),
}

impl From<Client> for HubEvent {
    fn from(client: Client) -> Self {
        Self::Connected(client)
    }
}

impl TryFrom<Box<Single>> for HubEvent {
    type Error = Box<Single>;

    /// A wrapped server is asked in a session.
    fn try_from(single: Box<Single>) -> Result<Self, Box<Single>> {
        Err(single)
    }
}

impl From<Control> for HubEvent {
    fn from(control: Control) -> Self {
        Self::Control(control)
    }
}

/// Wraps a server until the client leaves (stdio) or a signal comes.
pub fn serve_wrapped(mut config: WrapConfig, log: &Log) -> Result<(), ServeError> {
    let sinks = Sinks {
        file: config.telemetry.take(),
        collector: config.collector.take(),
        mode: config.transport.mode(),
    };
    let recorder = sinks.open(&config.limits, log)?;
    let run = run(config, log.clone(), recorder.clone());
    in_runtime(run, &recorder, log)
}

async fn run(
    config: WrapConfig,
    log: Log,
    recorder: crate::telemetry::Recorder,
) -> Result<(), ServeError> {
    let mode = config.transport.mode();
    let lasting = matches!(
        config.transport,
        Transport::Socket { .. } | Transport::Http(_)
    );
    let limits = config.limits.clone();
    let grace = Duration::from_millis(limits.grace_ms);
    crate::process::adopt();
    let remembered = config.cache_dir.as_deref();
    let remembered = remembered.map(|folder| Remembered::load(folder, &config.command));
    let common = Common {
        remembered,
        name: config.name,
        command: Arc::new(config.command),
        rules: config.rules,
        locked: config.locked,
        limits: config.limits,
        shim: config.shim,
        log: log.clone(),
        recorder,
        host_name: config.host_name,
        version: config.version,
        mode,
        started: iso_now(),
        running: Arc::default(),
    };
    let (events, incoming) = mpsc::channel(64);
    watch_signals(&events, || HubEvent::Stop)?;
    if config.reread.is_some() {
        watch(SignalKind::hangup(), &events, || HubEvent::Reread)?;
    }
    let Opened { place, source } = open_transport(config.transport)?;
    let facts = FrontFacts {
        envelopes: Envelopes::new(config.envelopes, IdSource::Random, limits.diagnostics),
        limits,
        serves: Serves::Wrapped,
        recorder: common.recorder.clone(),
        name: common.name.clone(),
        version: common.version.clone(),
    };
    let front = source.start(events.clone(), facts, &log);
    if let Some(folder) = config.control_dir {
        match control::open(&folder) {
            Ok(bound) => {
                tokio::spawn(control::listen(bound, events.clone()));
            }
            Err(error) => log.line(&format!("mcp:warning reason=no_control_socket {error}")),
        }
    }
    let announces = mode != "memory";
    let ready = write_ready_file(config.ready_file.as_deref(), Level::Debug, &log)?;
    if announces {
        let name = &common.name;
        log.line(format!("mcp:ready mode={mode}{place} pack={name}").trim_end());
    }
    let hub = Hub {
        common,
        engines: BTreeMap::new(),
        next: 0,
        events,
        lasting,
        stopping: false,
        reread: config.reread,
        past: HostMetrics::default(),
    };
    hub.run(incoming).await;
    if let Some(front) = front {
        front.drain(grace).await;
    }
    drop(ready);
    if announces {
        log.line(&format!("mcp:shutdown mode={mode}"));
    }
    Ok(())
}

/// A host that wraps a simulated server, and where its events go.
#[cfg(feature = "simulation")]
pub(crate) fn simulate(
    command: crate::config::Command,
    rules: super::Rules,
    limits: mainstay_contract::limits::Limits,
    shim: crate::config::Shim,
    log: Log,
) -> (mpsc::Sender<HubEvent>, impl Future<Output = ()> + Send) {
    let common = Common {
        remembered: None,
        name: "simulated".to_owned(),
        command: Arc::new(command),
        rules: Arc::new(rules),
        locked: None,
        limits,
        shim,
        log,
        recorder: crate::telemetry::Recorder::off(),
        host_name: "simulated".to_owned(),
        version: "0".to_owned(),
        mode: "socket",
        started: iso_now(),
        running: Arc::default(),
    };
    let (events, incoming) = mpsc::channel(64);
    let hub = Hub {
        common,
        engines: BTreeMap::new(),
        next: 0,
        events: events.clone(),
        lasting: true,
        stopping: false,
        reread: None,
        past: HostMetrics::default(),
    };
    (events, hub.run(incoming))
}

struct Hub {
    common: Common,
    engines: BTreeMap<u64, mpsc::Sender<Event>>,
    next: u64,
    events: mpsc::Sender<HubEvent>,
    /// It outlives its clients.
    lasting: bool,
    stopping: bool,
    reread: Option<Reread>,
    /// What engines counted that have ended.
    past: HostMetrics,
}

impl Hub {
    async fn run(mut self, mut incoming: mpsc::Receiver<HubEvent>) {
        loop {
            let look = if self.lasting { LOOK } else { NEVER };
            let Ok(event) = tokio::time::timeout(look, incoming.recv()).await else {
                // A server that had been stopped was needed again.
                if self.running() > self.common.limits.wrapped_workers {
                    self.make_way().await;
                }
                continue;
            };
            let Some(event) = event else { return };
            match event {
                HubEvent::Connected(client) => self.connect(client).await,
                HubEvent::Control(control) => self.control(control).await,
                HubEvent::Reread => self.reread().await,
                HubEvent::Stop => self.stop().await,
                HubEvent::Over(number, metrics) => {
                    let keep = self.common.limits.diagnostics;
                    self.past = std::mem::take(&mut self.past).plus(*metrics, keep);
                    self.engines.remove(&number);
                    self.stopping |= !self.lasting;
                }
            }
            if self.stopping && self.engines.is_empty() {
                return;
            }
        }
    }

    fn running(&self) -> usize {
        self.common.running.load(Ordering::Relaxed)
    }

    /// The server that has had nothing to do for longest is stopped. False if all are busy.
    async fn make_way(&self) -> bool {
        let mut idlest: Option<(Duration, &mpsc::Sender<Event>)> = None;
        for engine in self.engines.values() {
            let (reply, wait) = oneshot::channel();
            if engine.send(Event::Idle(reply)).await.is_err() {
                continue;
            }
            if let Ok(idle) = wait.await
                && idlest.as_ref().is_none_or(|(most, _)| idle > *most)
            {
                idlest = Some((idle, engine));
            }
        }
        match idlest {
            Some((_, engine)) => engine.send(Event::Rest).await.is_ok(),
            None => false,
        }
    }

    async fn connect(&mut self, client: Client) {
        let limits = &self.common.limits;
        let (servers, sessions) = (
            limits.wrapped_workers,
            limits.connections.max(2 * limits.http_sessions),
        );
        let has_room = !self.stopping
            && self.engines.len() < sessions
            && (self.running() < servers || self.make_way().await);
        if !has_room {
            self.common
                .log
                .line("mcp:warning reason=too_many_connections");
            return;
        }
        self.next += 1;
        let number = self.next;
        let mut common = self.common.clone();
        if self.lasting {
            common.name = format!("{}#{number}", common.name);
        }
        let seed = entropy::seed() | (number & 0xff);
        let mut engine = Engine::new(common, seed);
        let events = engine.events();
        let (outbox, gate) = (
            Outbox::with_mark(self.common.limits.outbox_bytes),
            Gate::default(),
        );
        let session = engine.session;
        let limit = self.common.limits.request_frame_bytes;
        tokio::spawn(read_lines(
            session,
            client.source,
            limit,
            gate.clone(),
            events.clone(),
        ));
        tokio::spawn(write_answers(
            session,
            client.sink,
            outbox.clone(),
            events.clone(),
        ));
        engine.client = Some(ClientSide { outbox, gate });
        self.engines.insert(number, events);
        let hub = self.events.clone();
        tokio::spawn(async move {
            let metrics = engine.run().await;
            let _ = hub.send(HubEvent::Over(number, Box::new(metrics))).await;
        });
    }

    /// What cannot be read leaves everything as it was.
    async fn reread(&mut self) {
        let Some(reread) = &self.reread else { return };
        let log = &self.common.log;
        let found = match reread.read() {
            Ok(found) => found,
            Err(why) => {
                let why = why.replace('\n', " ");
                return log.line(&format!("mcp:error reason=config_refused {why}"));
            }
        };
        for what in &found.later {
            log.line(&format!("mcp:warning reason=needs_restart what={what}"));
        }
        log.line(&format!("mcp:config reread pack={}", self.common.name));
        self.common.rules = Arc::clone(&found.rules);
        for engine in self.engines.values() {
            let _ = engine.send(Event::Rules(Arc::clone(&found.rules))).await;
        }
    }

    async fn stop(&mut self) {
        self.stopping = true;
        for engine in self.engines.values() {
            let _ = engine.send(Event::Stop).await;
        }
    }

    async fn control(&mut self, Control { request, reply }: Control) {
        let answer = match request {
            ControlRequest::Status {} => ControlReply::Status(Box::new(self.status().await)),
            ControlRequest::Metrics {} => ControlReply::Metrics(Box::new(self.metrics().await)),
            ControlRequest::Stop {} => {
                self.stop().await;
                ControlReply::Stopping {}
            }
            ControlRequest::Rollout { pack } => {
                let engines: Vec<_> = self.engines.values().cloned().collect();
                let known = self.common.name.clone();
                // A rollout takes as long as the server's start: nobody else waits for it.
                tokio::spawn(async move {
                    let _ = reply.send(rollout(&engines, pack.as_deref(), &known).await);
                });
                return;
            }
        };
        let _ = reply.send(answer);
    }

    /// What all engines have counted.
    async fn metrics(&self) -> HostMetrics {
        let mut whole = self.past.clone();
        for engine in self.engines.values() {
            let (reply, wait) = oneshot::channel();
            if engine.send(Event::Metrics(reply)).await.is_ok()
                && let Ok(metrics) = wait.await
            {
                whole = whole.plus(metrics, self.common.limits.diagnostics);
            }
        }
        whole
    }

    /// All engines as one host.
    async fn status(&self) -> HostStatus {
        let mut whole: Option<HostStatus> = None;
        for engine in self.engines.values() {
            let (reply, wait) = oneshot::channel();
            if engine.send(Event::Status(reply)).await.is_err() {
                continue;
            }
            let Ok(one) = wait.await else { continue };
            whole = Some(match whole {
                None => one,
                Some(whole) => join(whole, one),
            });
        }
        whole.unwrap_or_else(|| HostStatus {
            pid: std::process::id(),
            name: self.common.host_name.clone(),
            version: self.common.version.clone(),
            mode: self.common.mode.to_owned(),
            started: self.common.started.clone(),
            health: mainstay_kernel::Kernel::new(self.common.limits.clone(), &[])
                .health(mainstay_kernel::time::Time::default()),
            totals: mainstay_contract::telemetry::Counts::default(),
        })
    }
}

async fn rollout(engines: &[mpsc::Sender<Event>], pack: Option<&str>, known: &str) -> ControlReply {
    if let Some(pack) = pack.filter(|pack| *pack != known) {
        let reason = format!("there is no pack {pack:.64}; served: {known}");
        return ControlReply::Refused { reason };
    }
    let mut done = Vec::new();
    for engine in engines {
        let (reply, wait) = oneshot::channel();
        if engine.send(Event::Rollout(reply)).await.is_ok()
            && let Ok(ControlReply::RolledOut(over)) = wait.await
        {
            done.extend(over);
        }
    }
    ControlReply::RolledOut(done)
}

fn join(mut whole: HostStatus, one: HostStatus) -> HostStatus {
    whole.health = whole.health.join(one.health);
    whole.totals = whole.totals.plus(one.totals);
    whole
}

/// Reads a client's lines until its input ends.
async fn read_lines(
    session: SessionId,
    source: Source,
    limit: usize,
    gate: Gate,
    events: mpsc::Sender<Event>,
) {
    let mut lines = Lines::new(source, limit, gate);
    loop {
        let is_last = lines.is_last_read().await;
        while let Some(frame) = lines.take() {
            let event = match frame {
                Frame::Line(line) => Event::Line(line.to_vec()),
                Frame::Oversize(oversize) => Event::Oversize(oversize.head),
            };
            if events.send(event).await.is_err() {
                return;
            }
            lines.pass().await;
        }
        if is_last {
            let ended = ClientEvent::InputEnded { session };
            let _ = events.send(ended.into()).await;
            return;
        }
    }
}
