//! The backend of a wrapped MCP server: one client's session on a server that the host did not write.
//!
//! Theory of operation. A [`Link`] has one kernel slot and one server process at a time. Lines pass
//! byte for byte in both directions with their own ids; of each line only the envelope is read. A
//! client's request becomes a kernel call (`client`), a server's answer ends it (`lines`, `replies`). The
//! link remembers what a successor needs ([`memory`]), keeps the server's own requests apart by generation
//! ([`questions`]), learns the tools from the lists that pass by ([`tools`], [`lists`]), and hands over to a
//! new server without the client's help ([`handover`], `own`). While the first server starts, the host answers
//! from the catalog of an earlier run ([`remembered`], [`recall`]).
//!
//! A link belongs to a client's session, or to the house: REST callers and the command line have no MCP
//! session, so the host opens one for each of them ([`house`]).
//!
//! Where several servers are served together, the host opens the session on each of them, too, and reads
//! their lists to merge them ([`member`]). One process may serve several sessions ([`shared`]).
//!
//! It must never know a descriptor, a clock or a file: everything it wants done is a [`CoreAction`].

mod activity;
mod bridge;
mod client;
mod coalesce;
pub mod edit;
mod handover;
mod house;
mod incarnation;
mod lines;
mod listening;
mod lists;
mod member;
mod memory;
mod outputs;
mod own;
mod param_headers;
mod probe;
mod questions;
mod recall;
mod remembered;
mod replies;
mod requests;
mod reviewed;
mod rules;
mod search;
mod shared;
mod tasks;
mod tools;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mainstay_contract::fault::Fault;
use mainstay_contract::id::{Generation, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::method::ListKind;
use serde::{Deserialize, Serialize};

pub use self::activity::Activity;
use self::bridge::Bridge;
use self::coalesce::Coalescer;
use self::handover::Handover;
pub(crate) use self::house::House;
use self::incarnation::Incarnation;
use self::lists::Lists;
use self::member::Shelf;
pub(crate) use self::member::{Listed, expands_to};
use self::memory::SessionMemory;
use self::outputs::Outputs;
pub(crate) use self::outputs::PREFIX as OUTPUT_PREFIX;
use self::questions::Questions;
use self::recall::Recall;
pub use self::remembered::ServerMemory;
pub(crate) use self::replies::response;
use self::requests::Requests;
use self::reviewed::Reviewed;
pub(crate) use self::rules::fits;
pub use self::rules::{Condition, OnTimeout, ProbeRule, Rules, ToolRules};
use self::shared::Shared;
use self::tasks::OwnTasks;
pub(crate) use self::tasks::{LinkTask, NewCall, TaskRun};
use self::tools::Tools;
pub use self::tools::declared_replay;
use crate::Kernel;
use crate::call::SlotId;
use crate::core::action::{CoreAction, LogLevel};
use crate::core::checks::Checks;
use crate::core::gate::Gates;
use crate::core::readiness::Proof;
use crate::core::spans::Spans;
use crate::locked::Locked;
use crate::time::Time;
use crate::tool_list::{Recent, ToolListRules};

/// How often the memory and the idle time of a server are looked at, in milliseconds.
const LOOK_MS: u64 = 500;
/// How long a replacement for memory is not tried again after it failed, in milliseconds.
const LOOK_AGAIN_MS: u64 = 30_000;

/// The server that a host wraps, as its configuration names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerConfig {
    /// The name in logs and health.
    pub name: String,
    pub rules: Arc<Rules>,
    /// The tools that an operator has reviewed; without a lock no tool is withdrawn.
    pub locked: Option<Arc<Locked>>,
    /// Knowledge of earlier runs about the server; the core takes it out of the configuration.
    #[serde(default)]
    pub memory: ServerMemory,
    /// Version of the host's own tools.
    pub version: String,
    /// Start a server before the first session to find out if it answers.
    pub trial: bool,
    /// The identity under which calls of this server are recorded; without it none is.
    #[serde(default)]
    pub backend: Option<String>,
    /// The prefix of its names beside other servers, empty for none. `None` if it is the only server and
    /// its session passes as it is.
    pub prefix: Option<String>,
    /// Limits of its own: restarts, queue, pool, and time to start.
    pub limits: Option<Limits>,
    /// One process serves all sessions, or each session has its own; `None` if the operator declared neither.
    #[serde(default)]
    pub shared: Option<bool>,
}

impl ServerConfig {
    /// The text before each of its names.
    pub(crate) fn name_prefix(&self) -> String {
        match self.prefix.as_deref() {
            None | Some("") => String::new(),
            Some(prefix) => format!("{prefix}{SEPARATOR}"),
        }
    }
}

/// Between the prefix of a server and a name of it.
pub const SEPARATOR: &str = "__";

/// How a server answered `server/discover`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discovered {
    /// A result that anybody may get until then, in milliseconds of wall-clock time.
    Modern { result: Json, expires_ms: u64 },
    /// The server does not know the method.
    Legacy,
}

/// One session on one wrapped server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Link {
    slot: SlotId,
    name: String,
    /// The key of its server.
    server: String,
    client: Client,
    incarnations: BTreeMap<Generation, Incarnation>,
    memory: SessionMemory,
    questions: Questions,
    tools: Tools,
    reviewed: Reviewed,
    lists: Lists,
    requests: Requests,
    handover: Handover,
    outputs: Outputs,
    progress: Coalescer,
    upkeep: Upkeep,
    #[serde(default)]
    own_tasks: OwnTasks,
    /// The lists of a server that is served beside others.
    shelf: Option<Shelf>,
    /// The sessions of a server that several of them share.
    #[serde(default)]
    shared: Option<Shared>,
    start_timeout_ms: Option<u64>,
    /// The tools that the client used last.
    #[serde(default)]
    recent: Recent,
    /// The use of the remembered catalog.
    #[serde(default)]
    recall: Recall,
    /// The translation between the eras of the client and the server.
    #[serde(default)]
    bridge: Bridge,
}

/// Who is served by a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Client {
    /// A client that speaks MCP itself.
    Session(SessionId),
    /// The host, for callers without a session of their own.
    House(House),
}

/// Small facts that keep a link running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Upkeep {
    /// Random, so that no peer chooses ids like ours.
    nonce: u64,
    next_id: u64,
    /// Lines of servers that were not messages.
    junk: u64,
    /// When the client or the server last said something.
    last_work: Time,
    next_look: Time,
}

impl Upkeep {
    /// A fresh id that no peer can have chosen.
    fn own_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId::from_text(&format!("io.mainstay/{:x}/{}", self.nonce, self.next_id))
    }
}

/// The parts of the core that a link works with.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) kernel: &'a mut Kernel,
    pub(crate) out: &'a mut VecDeque<CoreAction>,
    pub(crate) checks: &'a mut Checks,
    /// The host's knowledge about the server before it starts one, for all links.
    pub(crate) memory: &'a mut ServerMemory,
    /// Does the server answer? For all links.
    pub(crate) proof: &'a mut Proof,
    /// Milliseconds of wall-clock time at which the core's time was zero.
    pub(crate) epoch_ms: u64,
    pub(crate) version: &'a str,
    pub(crate) spans: &'a mut Spans,
    /// The settings of `tools/list`.
    pub(crate) tool_list: &'a ToolListRules,
    /// The calls that a person must approve, or that are being recorded.
    pub(crate) gates: &'a mut Gates,
}

impl Cx<'_> {
    /// Sends a line to a server.
    fn say(&mut self, generation: Generation, line: Json) {
        self.out.push_back(CoreAction::Say {
            generation,
            line,
            if_room: false,
        });
    }

    /// Milliseconds of wall-clock time.
    fn wall_ms(&self) -> u64 {
        crate::core::wall_ms(self.epoch_ms, self.now)
    }

    /// Logs and records what the lock withdraws.
    fn withdraw(&mut self, server: &str, line: String) {
        self.out.extend(self.gates.withdrawal(server, &line));
        self.log(line);
    }

    fn log(&mut self, line: String) {
        self.log_at(LogLevel::Always, line);
    }

    pub(crate) fn log_at(&mut self, level: LogLevel, line: String) {
        self.out.push_back(CoreAction::Log { level, line });
    }
}

impl Link {
    /// A link without a server; the caller starts one, or the first request does.
    pub(crate) fn open(
        now: Time,
        config: &ServerConfig,
        slot: SlotId,
        name: String,
        client: Client,
        nonce: u64,
    ) -> Self {
        Self {
            slot,
            name,
            server: config.name.clone(),
            client,
            incarnations: BTreeMap::new(),
            memory: SessionMemory::default(),
            questions: Questions::renaming(config.prefix.is_some()),
            tools: Tools::new(Arc::clone(&config.rules), config.locked.clone()),
            reviewed: Reviewed::new(config.locked.clone()),
            lists: Lists::default(),
            requests: Requests::default(),
            handover: Handover::default(),
            outputs: Outputs::of(config.prefix.as_ref().map(|_| config.name.as_str())),
            progress: Coalescer::default(),
            upkeep: Upkeep {
                nonce,
                next_id: 0,
                junk: 0,
                last_work: now,
                next_look: now.plus_ms(LOOK_MS),
            },
            own_tasks: OwnTasks::default(),
            shelf: config.prefix.is_some().then(|| Shelf::of(config)),
            shared: None,
            start_timeout_ms: config.limits.as_ref().map(|limits| limits.start_timeout_ms),
            recent: Recent::default(),
            recall: Recall::default(),
            bridge: Bridge::default(),
        }
    }

    /// The key of its server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// How long a server may take to answer for the first time.
    fn start_ms(&self, limits: &Limits) -> u64 {
        self.start_timeout_ms.unwrap_or(limits.start_timeout_ms)
    }

    /// The client's session, unless it has none.
    pub(crate) const fn session(&self) -> Option<SessionId> {
        match &self.client {
            Client::Session(session) => Some(*session),
            Client::House(house) => house.session,
        }
    }

    /// True if it belongs to a caller without a session.
    pub(crate) const fn is_house(&self) -> bool {
        matches!(&self.client, Client::House(house) if house.session.is_none())
    }

    /// True if known secrets must be taken out of what the server says.
    pub(crate) fn redacts_results(&self) -> bool {
        self.rules().redact_results
    }

    fn rules(&self) -> &Rules {
        self.tools.rules()
    }

    /// The server that gets requests now.
    fn serving(&self, cx: &Cx<'_>) -> Option<Generation> {
        cx.kernel.serving(self.slot)
    }

    /// A fresh id for a request of the host.
    fn own_id(&mut self) -> RequestId {
        self.upkeep.own_id()
    }

    /// Sends a line to the client, unless its session is over.
    fn tell_client(&self, cx: &mut Cx<'_>, line: String) {
        if let Some(session) = self.session()
            && cx.kernel.has_session(session)
        {
            cx.out.push_back(CoreAction::Tell { session, line });
        }
    }

    /// True while the client does not read what it is sent.
    fn client_is_behind(&self, cx: &Cx<'_>) -> bool {
        self.session()
            .is_some_and(|session| cx.kernel.is_behind(session))
    }

    /// Records that the server is not idle.
    fn touch(&mut self, now: Time) {
        self.upkeep.last_work = now;
    }

    /// True if nothing needs a server.
    pub(crate) fn is_idle(&self, kernel: &Kernel) -> bool {
        !self.memory.has_subscriptions()
            && !self.questions.any()
            && kernel.slot_in_flight(self.slot) == 0
    }

    /// Since when the link has been idle; `None` while it is not, or has no server to stop.
    pub(crate) fn idle_since(&self, kernel: &Kernel) -> Option<Time> {
        let has_server = kernel.has_worker(self.slot);
        (has_server && self.is_idle(kernel)).then_some(self.upkeep.last_work)
    }

    /// When the client or a server last said something.
    pub(crate) const fn last_work(&self) -> Time {
        self.upkeep.last_work
    }

    /// Stops the server until it is needed again.
    pub(crate) fn rest(&mut self, cx: &mut Cx<'_>, why: &str) {
        if self.is_idle(cx.kernel) && cx.kernel.rest(self.slot) {
            let name = &self.name;
            let said =
                format!("mcp:idle pack={name} the server was stopped until it is needed: {why}");
            cx.log_at(LogLevel::Info, said);
        }
    }

    /// The next time at which [`Link::handle_timeout`] has something to do.
    pub(crate) fn next_timeout(&self, kernel: &Kernel) -> Option<Time> {
        let start_ms = self.start_ms(kernel.limits());
        // Servers are not read, and so not late, while the client does not read.
        let behind = self
            .session()
            .is_some_and(|session| kernel.is_behind(session));
        let own = self
            .incarnations
            .values()
            .filter(|_| !behind)
            .filter_map(|server| server.own_deadline(start_ms));
        let rules = self.rules();
        let looks = rules.idle_stop.is_some() || rules.max_memory.is_some();
        let look = looks.then_some(self.upkeep.next_look);
        own.chain(self.requests.held_until())
            .chain(self.progress.next_timeout())
            .chain(look)
            .min()
    }

    /// Time passed.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.own_requests_due(cx);
        for (call, line) in self.progress.due(cx.now) {
            self.report_progress(cx, call, line);
        }
        if cx.now < self.upkeep.next_look {
            return;
        }
        self.upkeep.next_look = cx.now.plus_ms(LOOK_MS);
        let (idle_stop, max_memory) = (self.rules().idle_stop, self.rules().max_memory);
        if let Some(seconds) = idle_stop
            && cx.now.ms_since(self.upkeep.last_work) >= seconds.saturating_mul(1000)
            && self.serving(cx).is_some()
        {
            self.rest(cx, "it had nothing to do");
        }
        if max_memory.is_some()
            && let Some(generation) = self.serving(cx)
            && let Some(server) = self.incarnations.get(&generation)
            && !server.outgrown
        {
            cx.out.push_back(CoreAction::Weigh { generation });
        }
    }

    /// The memory of a server's whole tree was measured.
    pub(crate) fn weighed(&mut self, cx: &mut Cx<'_>, generation: Generation, bytes: u64) {
        let Some(most) = self.rules().max_memory.filter(|most| bytes > *most) else {
            return;
        };
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        server.outgrown = true;
        let name = &self.name;
        cx.log(format!(
            "mcp:warning reason=too_much_memory pack={name} bytes={bytes} limit={most}"
        ));
        cx.kernel.handle_rollout(cx.now, self.slot);
    }

    /// A rollout ended. After a failure a replacement for memory is not tried again at once.
    pub(crate) fn rollout_over(&mut self, now: Time, result: &Result<Generation, Fault>) {
        if result.is_err() {
            self.upkeep.next_look = now.plus_ms(LOOK_AGAIN_MS);
            for server in self.incarnations.values_mut() {
                server.outgrown = false;
            }
        }
    }

    /// Applies changed rules. Requests that were admitted before keep the old ones.
    pub(crate) fn apply_rules(&mut self, cx: &mut Cx<'_>, rules: &Arc<Rules>) {
        if *self.rules() == **rules {
            return;
        }
        let shown = |rules: &Rules| (rules.allow.clone(), rules.deny.clone(), rules.system_tools);
        if shown(self.rules()) != shown(rules) && self.lists.was_seen(ListKind::Tools) {
            self.announce(cx, ListKind::Tools);
        }
        let knew = self.tools.any();
        self.tools.apply_rules(Arc::clone(rules));
        if knew && self.serving(cx).is_some() {
            self.want_tools(cx);
        }
    }

    /// Holds the server to another lock. Items that were withdrawn stay so until they are listed again.
    pub(crate) fn apply_lock(&mut self, cx: &mut Cx<'_>, locked: Option<&Arc<Locked>>) {
        if !self.reviewed.apply_lock(locked) {
            return;
        }
        if let Some(shelf) = &mut self.shelf {
            shelf.changed.extend(ListKind::ALL);
        } else {
            for kind in ListKind::ALL {
                if self.lists.was_seen(kind) {
                    self.announce(cx, kind);
                }
            }
        }
        let wants = self.shelf.is_some() || self.tools.any();
        self.tools.apply_lock(locked.cloned());
        self.forget_kind();
        if wants && self.serving(cx).is_some() {
            self.want_tools(cx);
        }
    }

    /// Records the server that serves after the kernel's decisions were carried out.
    pub(crate) fn settle(&mut self, cx: &mut Cx<'_>) {
        let serving = self.serving(cx);
        if serving.is_some() && serving != self.handover.serving {
            let before = std::mem::replace(&mut self.handover.serving, serving);
            self.taken_over(cx, before);
        }
        self.deliver_late(cx);
    }
}
