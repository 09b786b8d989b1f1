//! Events that the shell reports to the core, and actions that it carries out for it.

use std::sync::Arc;

use mainstay_contract::audit::AuditRecord;
use mainstay_contract::control::RolledOut;
use mainstay_contract::dialect::Request;
use mainstay_contract::envelope::Asked;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::render::RenderMode;
use mainstay_contract::rpc;
use mainstay_schema::check::{Definition, Subject, Verdict};
use serde::{Deserialize, Serialize};

use crate::action::{End, Manner, Notice};
use crate::approvals::Policy;
use crate::call::SlotId;
use crate::core::tasks::{TaskOrder, TaskReply};
use crate::locked::Locked;
use crate::server::{Activity, Rules, ServerConfig, ServerMemory};
use crate::time::Time;

/// Something that happened outside the core.
#[derive(Clone, Debug)]
pub enum CoreEvent {
    /// A client sent a line.
    Line { session: SessionId, line: Vec<u8> },
    /// A client sent a line over the limit; only its beginning was kept.
    Oversize { session: SessionId, head: Vec<u8> },
    /// A client will send nothing more.
    InputEnded { session: SessionId },
    /// A client reads its answers as they come, or lets them pile up.
    Pace { session: SessionId, behind: bool },
    /// A client is gone.
    Gone { session: SessionId },
    /// The only request of a session that takes its typed end.
    Ask {
        session: SessionId,
        request: Box<Request>,
        bytes: usize,
    },
    Worker {
        generation: Generation,
        news: WorkerNews,
    },
    /// A check that the core asked for has a verdict.
    Checked { ticket: u64, verdict: Verdict },
    /// One of the host's own tools was carried out.
    Served { call: CallId, outcome: Outcome },
    /// The directories of a client's roots were looked at.
    RootsFound {
        question: u64,
        found: Result<RootsFound, String>,
    },
    /// An order to the ledger was carried out, or failed.
    Ledger {
        ticket: u64,
        reply: Result<TaskReply, Problem>,
    },
    /// An operator wants fresh workers.
    Rollout {
        waiter: u64,
        pack: Option<String>,
        /// Reasons for changes of tools, each as `TOOL[.ARGUMENT]: TEXT`.
        reasons: Vec<String>,
    },
    /// The lock was read again.
    Lock(Arc<Locked>),
    /// An operator changed the rules of the wrapped server.
    Rules(Arc<Rules>),
    /// An operator changed the rules for calls of all servers and packs.
    Policy(Policy),
    /// A record is on the disk, or could not be written.
    Audited {
        ticket: u64,
        written: Result<(), String>,
    },
    /// An operator changed settings of packs: each pack by its name.
    Settings(Vec<(String, Json)>),
    /// An operator changed the servers that are served together: all of them, and the keys of those that
    /// have another command.
    Servers {
        servers: Vec<ServerConfig>,
        restart: Vec<String>,
    },
    /// The time of [`Core::next_timeout`](crate::Core::next_timeout) has come.
    Timeout,
    /// The host must stop.
    Stop,
}

/// Something that happened to a worker.
#[derive(Clone, Debug)]
pub enum WorkerNews {
    /// Its process runs; `tree_kill` names the way in which its tree is killed.
    Up {
        pid: u32,
        tree_kill: String,
    },
    /// A remote server is used from now on; its URL, without credentials.
    Connected {
        url: String,
    },
    /// The answer to one call will not come; the server goes on. It rejected the call if `sent` is false.
    CallLost {
        call: CallId,
        sent: bool,
        fault: Fault,
    },
    /// It accepts no more calls: a remote server ended the session. Calls under way may still be answered.
    Unfit(Fault),
    /// A pack's worker announced itself; `vetted` is an error if its schemas cannot be compiled.
    Ready {
        ready: Box<rpc::Ready>,
        vetted: Result<(), String>,
    },
    Progress {
        call: CallId,
        progress: rpc::Progress,
    },
    Answer {
        call: CallId,
        answer: Box<rpc::Answer>,
    },
    Pong,
    /// A wrapped server sent a line.
    Line(Vec<u8>),
    /// A wrapped server sent a line over the limit; only its beginning was kept.
    Oversize(Vec<u8>),
    /// It ended, closed its pipe or broke the protocol. Not one byte of `unsent` was handed over.
    Lost {
        fault: Fault,
        unsent: Vec<CallId>,
    },
    /// It cannot be started for want of descriptors or memory, which an idle server may free.
    Shortage,
    /// It and its whole tree are gone.
    Reaped,
    /// It was killed and is still there.
    Stuck(Fault),
    /// It cannot be killed; a host that stops does not wait for it.
    Unkillable,
    /// The last lines of its standard error, for a loss that was reported without them.
    Words(String),
    /// Its processor use.
    Looked {
        at_ping: bool,
        seen: Option<Activity>,
    },
    /// The memory of its whole tree.
    Weighed {
        bytes: u64,
    },
}

/// The directories of a client's roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootsFound {
    pub paths: Vec<std::path::PathBuf>,
    pub ignored: usize,
    /// The first root that was ignored, and the reason.
    pub first_ignored: Option<String>,
}

/// One thing for the shell to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoreAction {
    /// Send a line to a client.
    Tell {
        session: SessionId,
        line: String,
    },
    /// The one end of a request: encode it and send it.
    End {
        end: Box<End>,
        asked: Option<Box<Asked>>,
    },
    /// Report progress of a pack's call to its client.
    Progress(Box<Notice>),
    /// Everything is answered: close the client's connection once its output is written.
    Close {
        session: SessionId,
    },
    /// Carry out one of the host's own tools, then report [`CoreEvent::Served`].
    OwnTool {
        call: CallId,
        tool: String,
        render: RenderMode,
    },
    /// Start a worker: of a pack with these settings, or of the wrapped server.
    Spawn {
        slot: SlotId,
        generation: Generation,
        settings: Option<Json>,
        /// Run the executable that is on disk now, not the one of the worker before.
        #[serde(default)]
        fresh: bool,
    },
    /// Hand a call to a pack's worker.
    Call {
        generation: Generation,
        call: Box<rpc::Call>,
    },
    /// Hand the line of a call to a wrapped server.
    Forward {
        generation: Generation,
        call: CallId,
        line: Json,
        /// Arguments that an HTTP request repeats as headers, with their values.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        headers: Vec<(String, String)>,
    },
    /// Send another line to a wrapped server; `if_room` drops it if the server does not read.
    Say {
        generation: Generation,
        line: Json,
        if_room: bool,
    },
    /// Ask a pack's worker to stop a call.
    Cancel {
        generation: Generation,
        call: CallId,
    },
    /// Ask a pack's worker for a sign of life.
    Ping {
        generation: Generation,
    },
    /// End a worker.
    Stop {
        generation: Generation,
        how: Manner,
    },
    /// A worker is of no use: send it nothing more, end it, and report it as lost with this fault.
    Abandon {
        generation: Generation,
        fault: Fault,
    },
    /// Read the processor use of a worker's tree.
    Look {
        generation: Generation,
        at_ping: bool,
    },
    /// Measure the memory of a worker's tree.
    Weigh {
        generation: Generation,
    },
    /// Check a value, then report [`CoreEvent::Checked`].
    Check {
        ticket: u64,
        request: Arc<CheckRequest>,
    },
    /// A verdict is no longer wanted.
    ForgetCheck {
        ticket: u64,
    },
    /// Carry out an order of the ledger of tasks, then report [`CoreEvent::Ledger`].
    Ledger {
        ticket: u64,
        order: Box<TaskOrder>,
    },
    /// Append a record to the audit file. With a ticket report [`CoreEvent::Audited`] once it is on the disk.
    Audit {
        ticket: Option<u64>,
        record: Box<AuditRecord>,
    },
    /// Look at the directories of a client's roots, then report [`CoreEvent::RootsFound`].
    FindRoots {
        question: u64,
        answer: Json,
    },
    /// Store what the host learned about a server, for later runs.
    Remember {
        /// The key of the server.
        server: String,
        memory: Box<ServerMemory>,
    },
    Log {
        level: LogLevel,
        line: String,
    },
    /// The host is ready: calls are served from now on. Comes once.
    Ready,
    /// A worker is ready to serve, for telemetry.
    WorkerReady {
        generation: Generation,
    },
    /// A worker was lost after a fault or must be replaced: record it, and report its last words.
    WorkerLost {
        slot: SlotId,
        generation: Generation,
        fault: Fault,
    },
    /// All rollouts that an operator waits for are over.
    RolledOut {
        waiter: u64,
        done: Vec<RolledOut>,
    },
    /// An operator's rollout was rejected.
    RolloutRefused {
        waiter: u64,
        reason: String,
    },
}

/// A value to check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckRequest {
    /// Requests with the same number share the checkers in turn with all others.
    pub fair: u64,
    pub definition: Definition,
    pub subject: Subject,
    pub until: Time,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    /// Logged whatever the level is.
    Always,
}
