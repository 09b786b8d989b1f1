//! A kernel with one slot (more can be added), for stories: short calls in, short words out.

use mainstay_contract::dialect::{Cancel, CancelKind, Dialect, EchoId, Form, Shape};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::render::RenderMode;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{self, Answer, Progress};
use mainstay_contract::tool::Pace;
use mainstay_kernel::action::{Action, Delivery, End};
use mainstay_kernel::call::{Late, NewRequest, SlotId, Task, Work};
use mainstay_kernel::time::Time;
use mainstay_kernel::{Conduct, Kernel};

/// Timeout of every call.
pub const TIMEOUT_MS: u64 = 1000;

/// The kernel and its clock.
#[derive(Debug)]
pub struct Desk {
    pub kernel: Kernel,
    pub now: Time,
    /// Size of the next requests.
    pub bytes: usize,
    /// A lost host may have sent the next requests.
    pub unsettled: bool,
    /// Calls of which a worker that the kernel abandons has not got one byte.
    pub waiting: Vec<CallId>,
}

impl Desk {
    /// A desk without pings, which would only be in the way of other stories.
    pub fn new(mut limits: Limits) -> Self {
        limits.ping_interval_ms = 0;
        Self::with_pings(limits)
    }

    pub fn with_pings(limits: Limits) -> Self {
        let mut kernel = Kernel::seeded(limits, 0);
        kernel.add_slot("a", Conduct::Strict, None);
        Self {
            kernel,
            now: Time::from_ms(1),
            bytes: 0,
            unsettled: false,
            waiting: Vec::new(),
        }
    }

    /// A desk whose worker, generation 1, is ready.
    pub fn with_worker(limits: Limits) -> Self {
        let mut desk = Self::new(limits);
        desk.kernel.warm(desk.now, SlotId(0));
        desk.ready(1);
        assert_eq!(desk.did(), ["spawn 1"]);
        desk
    }

    pub fn open(&mut self) -> SessionId {
        self.kernel.open_session()
    }

    pub fn ask(&mut self, from: SessionId, dialect: Dialect, id: &str, replay: Replay) {
        self.request(from, dialect, id, tool(replay));
    }

    pub fn ask_resource(&mut self, from: SessionId, id: &str, replay: Replay) {
        let op = rpc::Op::ListResources {};
        self.request(from, Dialect::Legacy, id, task(SlotId(0), op, replay));
    }

    pub fn ask_in_vain(&mut self, from: SessionId, dialect: Dialect, id: &str) {
        let problem = Problem::of(ErrorKind::InvalidParams);
        self.request(from, dialect, id, Work::Refused(problem));
    }

    /// Asks for something before it is known who answers it.
    pub fn ask_unrouted(&mut self, from: SessionId, dialect: Dialect, id: &str) {
        self.request(from, dialect, id, Work::Unrouted);
    }

    /// It turns out that a worker answers a request.
    pub fn route(&mut self, call: u64, replay: Replay) {
        self.routed(call, tool(replay));
    }

    /// It turns out that the host itself answers a request.
    pub fn route_to_host(&mut self, call: u64) {
        self.routed(call, Work::Host);
    }

    /// It turns out that a request has no backend.
    pub fn route_in_vain(&mut self, call: u64) {
        self.routed(call, Work::Refused(Problem::of(ErrorKind::InvalidParams)));
    }

    fn routed(&mut self, call: u64, work: Work) {
        let tool = Some("t".to_owned());
        self.kernel
            .handle_routed(self.now, CallId::new(call), tool, work);
    }

    pub fn request(&mut self, from: SessionId, dialect: Dialect, id: &str, work: Work) {
        let request = NewRequest {
            id: EchoId::Known(RequestId::parse(id).unwrap()),
            form: Form {
                dialect,
                shape: Shape::Tool,
            },
            method: "tools/call".to_owned(),
            tool: Some("t".to_owned()),
            progress_token: None,
            input_bytes: self.bytes,
            trace: None,
            may_have_run: self.unsettled,
            work,
        };
        self.kernel.handle_request(self.now, from, request);
    }

    pub fn cancel(&mut self, from: SessionId, id: &str, kind: CancelKind) {
        let target = RequestId::parse(id).unwrap();
        let cancel = Cancel { target, kind };
        self.kernel.handle_cancel(self.now, from, &cancel);
    }

    pub fn end_input(&mut self, from: SessionId) {
        self.kernel.handle_input_end(self.now, from);
    }

    pub fn gone(&mut self, from: SessionId) {
        self.kernel.handle_gone(self.now, from);
    }

    pub fn stop(&mut self) {
        self.kernel.handle_stop(self.now);
    }

    pub fn ready(&mut self, generation: u64) {
        self.kernel
            .handle_ready(self.now, Generation::new(generation));
    }

    pub fn answer(&mut self, generation: u64, call: u64, answer: Answer) {
        let (generation, call) = (Generation::new(generation), CallId::new(call));
        self.kernel
            .handle_answer(self.now, generation, call, answer);
    }

    /// A worker answers a call, and the answer is to be checked.
    pub fn hold(&mut self, generation: u64, call: u64) -> bool {
        let (generation, call) = (Generation::new(generation), CallId::new(call));
        self.kernel.hold_answer(self.now, generation, call)
    }

    /// The answer to a call was checked.
    pub fn checked(&mut self, call: u64, answer: Answer) {
        self.kernel
            .handle_checked(self.now, CallId::new(call), answer);
    }

    pub fn progress(&mut self, generation: u64, call: u64) {
        let (generation, call) = (Generation::new(generation), CallId::new(call));
        self.kernel
            .handle_progress(self.now, generation, call, Progress::default());
    }

    pub fn lose(&mut self, generation: u64, unsent: &[u64]) {
        self.lose_as(generation, ErrorKind::WorkerUnavailable, unsent);
    }

    pub fn lose_as(&mut self, generation: u64, kind: ErrorKind, unsent: &[u64]) {
        let generation = Generation::new(generation);
        let fault = Fault::new(kind, "killed").of(generation);
        let unsent: Vec<_> = unsent.iter().copied().map(CallId::new).collect();
        self.kernel
            .handle_lost(self.now, generation, &fault, &unsent);
    }

    pub fn unfit(&mut self, generation: u64) {
        let generation = Generation::new(generation);
        let fault = Fault::new(ErrorKind::WorkerProtocol, "unfit").of(generation);
        self.kernel.handle_unfit(self.now, generation, &fault);
    }

    pub fn reap(&mut self, generation: u64) {
        self.kernel
            .handle_reaped(self.now, Generation::new(generation));
    }

    /// Time passes and the kernel is told.
    pub fn wait(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.kernel.handle_timeout(self.now);
    }

    /// The kernel's actions since the last look, without progress.
    pub fn did(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(action) = self.kernel.poll_action() {
            said.extend(words(&action));
            if let Action::Abandon { generation, fault } = action {
                self.kernel
                    .handle_lost(self.now, generation, &fault, &self.waiting);
            }
        }
        said
    }
}

/// A tool's good answer.
pub fn tool_answer() -> Answer {
    Answer::Tool(ToolReply {
        json: Json::empty_object(),
        text: None,
    })
}

pub fn tool(replay: Replay) -> Work {
    tool_of(SlotId(0), replay)
}

/// A tool of a certain slot.
pub fn tool_of(slot: SlotId, replay: Replay) -> Work {
    let op = rpc::Op::Tool {
        name: "t".to_owned(),
        arguments: Json::empty_object(),
        render: RenderMode::Json,
    };
    task(slot, op, replay)
}

fn task(slot: SlotId, op: rpc::Op, replay: Replay) -> Work {
    Work::Worker(Task {
        slot,
        op,
        replay,
        timeout_ms: TIMEOUT_MS,
        late: Late::Ask,
        pace: Pace::Short,
    })
}

fn words(action: &Action) -> Option<String> {
    Some(match action {
        Action::Route { call } => format!("route {call}"),
        Action::Serve { call } => format!("serve {call}"),
        Action::Overdue { call } => format!("overdue {call}"),
        Action::End(end) => end_words(end),
        Action::Progress(_) => return None,
        Action::Spawn { generation, .. } => format!("spawn {generation}"),
        Action::Send { generation, call } => match (&call.op, call.attempt) {
            (rpc::Op::Probe { .. }, _) => format!("probe {} at {generation}", call.call),
            (_, 1) => format!("send {} to {generation}", call.call),
            (_, attempt) => format!("send {} to {generation}, attempt {attempt}", call.call),
        },
        Action::Cancel { generation, call } => format!("cancel {call} at {generation}"),
        Action::Stop { generation, how } => format!("stop {generation} {how:?}"),
        Action::Abandon { generation, .. } => format!("abandon {generation}"),
        Action::SessionOver { session } => format!("session {session} over"),
        Action::SlotOver { slot } => format!("slot {} over", slot.0),
        Action::Ping { generation } => format!("ping {generation}"),
        Action::Look { generation } => format!("look {generation}"),
        Action::RolloutOver { result, .. } => match result {
            Ok(generation) => format!("rolled out {generation}"),
            Err(fault) => format!("rollout failed: {}", fault.detail),
        },
    })
}

fn end_words(end: &End) -> String {
    let mut words = match &end.outcome {
        Ok(_) => format!("end {} ok", end.call),
        Err(problem) => format!("end {} {:?}", end.call, problem.kind),
    };
    if let Some(ms) = end.outcome.as_ref().err().and_then(|p| p.timeout_ms) {
        words.push_str(&format!(" after {ms} ms"));
    }
    if end.delivery == Delivery::Withhold {
        words.push_str(" withheld");
    }
    words
}
