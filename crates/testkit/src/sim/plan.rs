//! A scenario: what every peer of a simulated host does. A seed decides it.
//!
//! Generation is a swarm: each seed enables a few kinds of trouble and leaves out the others, so
//! that runs in which little goes wrong, and in which an error therefore has no excuse, are as
//! frequent as storms.

use std::fmt;

use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay;
use mainstay_host::sim::{CheckNoise, LedgerNoise, Noise};

use crate::hostile::Rng;

/// Everything that is decided before a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub limits: Limits,
    pub client_noise: Noise,
    pub worker_noise: Noise,
    pub check_noise: CheckNoise,
    pub backend: Backend,
    /// The pack's catalog is known before its first worker is ready.
    pub built_in: bool,
    /// The core is saved and restored after one in so many events; 0 is never.
    pub swap_one_in: u32,
    /// The whole host is replaced by one that continues its saved state after one in so many events; 0 is never.
    pub upgrade_one_in: u32,
    /// What successive worker processes do; later ones behave.
    pub incarnations: Vec<Incarnation>,
    pub clients: Vec<ClientPlan>,
    pub singles: Vec<SinglePlan>,
    pub operator: Vec<OperatorStep>,
    /// Tasks instead of clients.
    pub tasks: Vec<TaskPlan>,
    /// How the hosts end that run them, one after the other; the last one stays.
    pub host_ends: Vec<HostEnd>,
    pub ledger_noise: LedgerNoise,
}

/// One call that the ledger records.
#[derive(Clone, Copy, Debug)]
pub struct TaskPlan {
    pub at_ms: u64,
    pub tool: Tool,
    pub form: TaskForm,
}

/// How a caller asks for a call that the ledger records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskForm {
    /// For a task, which it reads later.
    Task,
    /// For the outcome, under a key, again and again until it has one.
    Key,
    /// For the outcome. The call becomes a task if it is late.
    Plain,
    /// For a task, which it cancels so many milliseconds later.
    Cancelled(u64),
}

/// How a host ends, and how long there is none then.
#[derive(Clone, Copy, Debug)]
pub struct HostEnd {
    pub kind: HostEndKind,
    pub pause_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEndKind {
    /// It is killed after so many events.
    Crash(u64),
    /// It stops in order after so many milliseconds.
    Stop(u64),
}

/// What the host serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A pack, one worker for all clients.
    Pack,
    /// A wrapped server, one process for each client.
    Server,
    /// Two servers of a file.
    Several {
        /// Those of which one process serves all clients.
        shared: [bool; 2],
        /// They speak the stateless revision, too.
        stateless: bool,
    },
}

/// One worker process.
#[derive(Clone, Debug, Default)]
pub struct Incarnation {
    pub start: Start,
    /// What it does with its n-th call.
    pub deeds: Vec<(usize, Deed)>,
    pub ignores_term: bool,
    /// How long a kill takes to reach its tree.
    pub kill_ms: u64,
}

/// How a worker starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    #[default]
    Normal,
    Slow(u64),
    NotStarted,
    DiesAtOnce,
    NeverReady,
}

/// What a worker does wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    CrashBeforeEffect,
    CrashAfterEffect,
    CrashInsideAnswer,
    AnswerThenCrash,
    /// The answer lacks its newline, and the process exits.
    LastLineOpen,
    /// The process dies; its child makes the effect so many milliseconds later.
    Orphan(u64),
    Hang,
    HangDeaf,
    Late(u64),
    Twice,
    Garbage,
    Stranger,
    Refuse,
    Progress {
        count: u64,
        every_ms: u64,
    },
    /// Progress, then nothing any more.
    ProgressThenHang,
    Flood(u64),
    CloseOutput,
    CloseInput,
    StopReading(u64),
}

/// A tool of the simulated worker; its replay class is its whole character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Get,
    Put,
    Pay,
}

impl Tool {
    pub const ALL: [Self; 3] = [Self::Get, Self::Put, Self::Pay];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Pay => "pay",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub const fn replay(self) -> Replay {
        match self {
            Self::Get => Replay::Convergent,
            Self::Put => Replay::ProbeRequired,
            Self::Pay => Replay::NeverReplay,
        }
    }
}

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    Legacy,
    Modern,
    Direct,
}

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Pipe,
    Http {
        /// Connections break and are resumed.
        breaks: bool,
    },
}

/// One client.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    pub start_ms: u64,
    pub route: Route,
    pub speech: Speech,
    pub steps: Vec<Step>,
    /// After so many bytes the client does not read for so many milliseconds.
    pub pauses: Vec<(usize, u64)>,
}

/// One thing that a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Call {
        tool: Tool,
        size: usize,
        token: bool,
    },
    Ping,
    List,
    /// Sets the log level of a legacy session, and waits for the answer.
    SetLevel,
    /// Subscribes to a resource that only this client knows.
    Subscribe,
    /// Cancels one of the requests in flight.
    Cancel {
        answered: bool,
    },
    Junk,
    Oversize,
    /// Sends an id that is in flight a second time.
    Again,
    Pause(u64),
    /// Waits until everything is answered.
    Await,
    /// Sends a request without its newline, then closes its input.
    OpenLine,
    /// Sends half a request, then leaves.
    HalfLine,
    CloseInput,
    Leave,
}

impl Step {
    /// Whether nothing can follow.
    pub const fn is_last(self) -> bool {
        matches!(
            self,
            Self::OpenLine | Self::HalfLine | Self::CloseInput | Self::Leave
        )
    }
}

/// One request over REST.
#[derive(Clone, Copy, Debug)]
pub struct SinglePlan {
    pub at_ms: u64,
    pub tool: Tool,
    pub size: usize,
    /// The caller leaves after so many milliseconds.
    pub leaves_ms: Option<u64>,
}

/// What an operator does, and when.
#[derive(Clone, Copy, Debug)]
pub struct OperatorStep {
    pub at_ms: u64,
    pub what: Operation,
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Status,
    Rollout,
    Stop,
}

/// How often the host of a seed is upgraded. From numbers of its own, so that scenarios are else the same. After every
/// event only in a few seeds, which take long.
fn upgrades(seed: u64) -> u32 {
    let mut rng = Rng::new(seed ^ 0x2b99_17c4_d06e_83f5);
    [0, 0, 0, 0, 0, 1, 3, 3, 20, 20, 80, 80][rng.between(0, 11)]
}

/// How often the core of a seed is replaced by the one that it has saved.
fn swaps(seed: u64, drawn: usize) -> u32 {
    let mut rng = Rng::new(seed ^ 0x6d1f_0a93_57ce_b824);
    match one_in(&mut rng, 12) {
        true => 1,
        false => [0, 0, 5, 30][drawn],
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x51ed_270b_35a3_57c1);
        let rng = &mut rng;
        let backend = if one_in(rng, 3) {
            Backend::Server
        } else {
            Backend::Pack
        };
        let slow = one_in(rng, 2);
        let stalls = one_in(rng, 3);
        let limits = limits(rng);
        let troubles = troubles(rng, slow);
        let incarnations = (0..rng.between(0, 4))
            .map(|_| incarnation(rng, &troubles, slow))
            .collect();
        let mut clients: Vec<ClientPlan> = (0..rng.between(1, 3))
            .map(|_| client(rng, slow, &limits, backend))
            .collect();
        let mut limits = limits;
        over_http(seed, &mut clients, &mut limits);
        let singles = if one_in(rng, 4) {
            (0..rng.between(1, 2)).map(|_| single(rng, slow)).collect()
        } else {
            Vec::new()
        };
        let operator = if one_in(rng, 3) {
            (0..rng.between(1, 2)).map(|_| operation(rng)).collect()
        } else {
            Vec::new()
        };
        let mut scenario = Self {
            seed,
            client_noise: noise(rng, stalls),
            worker_noise: noise(rng, stalls),
            check_noise: check_noise(rng, slow),
            limits,
            backend,
            built_in: one_in(rng, 2),
            swap_one_in: swaps(seed, rng.between(0, 3)),
            upgrade_one_in: upgrades(seed),
            incarnations,
            clients,
            singles,
            operator,
            tasks: Vec::new(),
            host_ends: Vec::new(),
            ledger_noise: LedgerNoise::default(),
        };
        scenario.give_tasks();
        scenario.give_servers();
        scenario
    }

    /// Gives some seeds tasks instead of clients, and hosts that end one after the other.
    fn give_tasks(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x7a3d_5c19_e4b6_0f82);
        let rng = &mut rng;
        if !one_in(rng, 6) {
            return;
        }
        self.clients.clear();
        self.singles.clear();
        self.operator.clear();
        self.limits.task_ms = 20_000;
        self.tasks = (0..rng.between(1, 8)).map(|_| task(rng)).collect();
        self.host_ends = (0..rng.between(0, 4)).map(|_| host_end(rng)).collect();
        self.ledger_noise = LedgerNoise {
            late_ms: [0, 5, 300][rng.between(0, 2)],
            fails_one_in: [0, 0, 4][rng.between(0, 2)],
        };
    }

    /// Whether a call may take long without a fault of the host.
    pub fn can_be_slow(&self) -> bool {
        let deeds = self.incarnations.iter().any(|plan| {
            let start = matches!(plan.start, Start::Slow(_) | Start::NeverReady);
            start || plan.ignores_term || plan.deeds.iter().any(|(_, deed)| deed.is_slow())
        });
        deeds
            || self.check_noise != CheckNoise::default()
            || self.client_noise.stall_one_in > 0
            || self.worker_noise.stall_one_in > 0
            || self.clients.iter().any(|client| !client.pauses.is_empty())
    }

    /// Whether the operator stops the host before the clients are done.
    pub fn stops(&self) -> bool {
        let stops = |step: &OperatorStep| step.what == Operation::Stop;
        self.operator.iter().any(stops)
    }

    /// Parts that can be left out.
    pub fn parts(&self) -> usize {
        let deeds: usize = self.incarnations.iter().map(|plan| plan.deeds.len()).sum();
        let clients = self.clients.iter();
        let steps: usize = clients
            .map(|plan| plan.steps.len() + plan.pauses.len())
            .sum();
        let lists = self.clients.len() + self.singles.len() + self.operator.len();
        let tasks = self.tasks.len() + self.host_ends.len();
        lists + tasks + 2 * self.incarnations.len() + deeds + steps + 6
    }

    /// The same scenario without one of its parts, whole clients first.
    pub fn without(&self, part: usize) -> Self {
        let mut less = self.clone();
        let mut part = part;
        macro_rules! list {
            ($list:expr) => {
                if part < $list.len() {
                    $list.remove(part);
                    return less;
                }
                part -= $list.len();
            };
        }
        list!(less.clients);
        list!(less.singles);
        list!(less.operator);
        // The last task keeps a run with tasks one.
        if less.tasks.len() > 1 {
            list!(less.tasks);
        } else {
            part = part.saturating_sub(less.tasks.len());
        }
        list!(less.host_ends);
        list!(less.incarnations);
        for client in &mut less.clients {
            list!(client.steps);
            list!(client.pauses);
        }
        for plan in &mut less.incarnations {
            list!(plan.deeds);
        }
        if let Some(plan) = less.incarnations.get_mut(part) {
            *plan = Incarnation {
                deeds: std::mem::take(&mut plan.deeds),
                ..Incarnation::default()
            };
            return less;
        }
        part -= less.incarnations.len();
        let calm = Noise::none(64 * 1024);
        match part {
            0 => less.client_noise = calm,
            1 => less.swap_one_in = 0,
            2 => less.check_noise = CheckNoise::default(),
            3 => less.ledger_noise = LedgerNoise::default(),
            4 => less.upgrade_one_in = 0,
            _ => less.worker_noise = calm,
        }
        less
    }
}

impl Deed {
    const fn is_slow(self) -> bool {
        matches!(
            self,
            Self::Hang
                | Self::HangDeaf
                | Self::Late(_)
                | Self::ProgressThenHang
                | Self::Progress { .. }
                | Self::Flood(_)
                | Self::CloseInput
                | Self::StopReading(_)
                | Self::Stranger
        )
    }
}

pub(super) fn one_in(rng: &mut Rng, many: u64) -> bool {
    rng.next().is_multiple_of(many)
}

fn ms(rng: &mut Rng, most: usize) -> u64 {
    rng.between(0, most) as u64
}

fn limits(rng: &mut Rng) -> Limits {
    Limits {
        request_frame_bytes: 4096,
        outbox_bytes: 4096,
        worker_frame_bytes: 64 * 1024,
        backlog_bytes: 64 * 1024,
        queue: rng.between(1, 8),
        in_flight: rng.between(4, 16),
        ordered_backlog: 16,
        pool: rng.between(1, 3),
        call_timeout_ms: 2000,
        progress_timeout_ms: 6000,
        start_timeout_ms: 1000,
        drain_ms: 3000,
        grace_ms: 200,
        replays: u32::try_from(rng.between(0, 3)).unwrap_or(1),
        restarts: if one_in(rng, 4) { 2 } else { 1000 },
        restart_period_ms: 10_000,
        backoff_min_ms: 10,
        backoff_max_ms: 100,
        rest_ms: 2000,
        ping_interval_ms: [0, 300, 5000][rng.between(0, 2)],
        ping_timeout_ms: 1500,
        standby: u32::from(one_in(rng, 3)),
        ..Limits::default()
    }
}

fn check_noise(rng: &mut Rng, slow: bool) -> CheckNoise {
    let often = |rng: &mut Rng| {
        if slow && one_in(rng, 3) { 4 } else { 0 }
    };
    CheckNoise {
        late_one_in: often(rng),
        gives_up_one_in: often(rng),
    }
}

fn noise(rng: &mut Rng, stalls: bool) -> Noise {
    let capacity = [128, 1024, 4096, 65_536][rng.between(0, 3)];
    Noise {
        capacity,
        chunk: [64, 512, capacity][rng.between(0, 2)],
        stall_one_in: if stalls { 12 } else { 0 },
        stall_ms: 20,
    }
}

/// The kinds of trouble that this seed has.
fn troubles(rng: &mut Rng, slow: bool) -> Vec<Deed> {
    let fast = [
        Deed::CrashBeforeEffect,
        Deed::CrashAfterEffect,
        Deed::CrashInsideAnswer,
        Deed::AnswerThenCrash,
        Deed::LastLineOpen,
        Deed::Orphan(ms(rng, 40)),
        Deed::Twice,
        Deed::Garbage,
        Deed::Refuse,
        Deed::CloseOutput,
    ];
    let long = [
        Deed::Hang,
        Deed::HangDeaf,
        Deed::Late(ms(rng, 3000)),
        Deed::Progress {
            count: 1 + ms(rng, 6),
            every_ms: 1 + ms(rng, 400),
        },
        Deed::ProgressThenHang,
        Deed::Flood(1 + ms(rng, 300)),
        Deed::CloseInput,
        Deed::StopReading(ms(rng, 3000)),
        Deed::Stranger,
    ];
    let all: Vec<Deed> = if slow {
        fast.iter().chain(&long).copied().collect()
    } else {
        fast.to_vec()
    };
    // A seed with one kind of trouble has it often.
    let kinds = if one_in(rng, 3) { 1 } else { 4 };
    (0..rng.between(1, kinds))
        .map(|_| all[rng.between(0, all.len() - 1)])
        .collect()
}

fn incarnation(rng: &mut Rng, troubles: &[Deed], slow: bool) -> Incarnation {
    let start = match rng.between(0, 11) {
        0 => Start::NotStarted,
        1 => Start::DiesAtOnce,
        2 if slow => Start::NeverReady,
        3 | 4 if slow => Start::Slow(ms(rng, 900)),
        _ => Start::Normal,
    };
    let deeds = (0..rng.between(0, 3))
        .map(|_| {
            (
                rng.between(0, 4),
                troubles[rng.between(0, troubles.len() - 1)],
            )
        })
        .collect();
    Incarnation {
        start,
        deeds,
        ignores_term: slow && one_in(rng, 4),
        kill_ms: ms(rng, 40),
    }
}

fn client(rng: &mut Rng, slow: bool, limits: &Limits, backend: Backend) -> ClientPlan {
    let last = if backend == Backend::Pack { 2 } else { 1 };
    let speech = [Speech::Legacy, Speech::Modern, Speech::Direct][rng.between(0, last)];
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..rng.between(1, 12) {
        let next = match step(rng, limits) {
            // Only a wrapped server has a log level.
            Step::List if backend == Backend::Server && speech == Speech::Legacy => Step::SetLevel,
            next => next,
        };
        steps.push(next);
        if next.is_last() {
            break;
        }
    }
    if slow && one_in(rng, 8) {
        // Asks for much, and reads nothing for long.
        let size = limits.outbox_bytes;
        let greedy = Step::Call {
            tool: Tool::Get,
            size,
            token: false,
        };
        return ClientPlan {
            start_ms: ms(rng, 60),
            route: Route::Pipe,
            speech,
            steps: vec![greedy; 24],
            pauses: vec![(0, 5000)],
        };
    }
    let pauses = if slow && one_in(rng, 2) {
        (0..rng.between(1, 2))
            .map(|_| (rng.between(0, 9000), ms(rng, 4000)))
            .collect()
    } else {
        Vec::new()
    };
    ClientPlan {
        start_ms: ms(rng, 60),
        route: Route::Pipe,
        speech,
        steps,
        pauses,
    }
}

/// Connects some clients over HTTP. Lines that are not messages never get past hyper, and there every
/// request is a whole one.
fn over_http(seed: u64, clients: &mut [ClientPlan], limits: &mut Limits) {
    let mut rng = Rng::new(seed ^ 0x2f1b_93d6_ac08_7e45);
    let rng = &mut rng;
    if !one_in(rng, 4) {
        return;
    }
    // With little room, events of a broken stream may be gone when it is resumed.
    let is_roomy = one_in(rng, 2);
    if !is_roomy {
        limits.resume_bytes = limits.outbox_bytes;
    }
    for client in clients {
        if client.speech == Speech::Direct || one_in(rng, 4) {
            continue;
        }
        let breaks = is_roomy && one_in(rng, 2);
        client.route = Route::Http { breaks };
        let is_modern = client.speech == Speech::Modern;
        for step in &mut client.steps {
            *step = match *step {
                Step::Junk | Step::Oversize | Step::Again => Step::Ping,
                Step::OpenLine => Step::CloseInput,
                Step::HalfLine => Step::Leave,
                Step::Cancel { .. } if is_modern => Step::Cancel { answered: false },
                other => other,
            };
        }
    }
}

fn step(rng: &mut Rng, limits: &Limits) -> Step {
    match rng.between(0, 39) {
        0 | 1 => Step::Ping,
        2 | 22 => Step::List,
        3..=5 => Step::Cancel {
            answered: one_in(rng, 2),
        },
        6 => Step::Junk,
        7 => Step::Oversize,
        8 => Step::Again,
        9..=14 => Step::Pause(ms(rng, 300)),
        15..=17 => Step::Await,
        18 => Step::OpenLine,
        19 => Step::HalfLine,
        20 => Step::CloseInput,
        21 => Step::Leave,
        _ => Step::Call {
            tool: Tool::ALL[rng.between(0, 2)],
            // A third of the answers alone is more than a client may leave unread.
            size: [10, 200, limits.outbox_bytes + 500][rng.between(0, 2)],
            token: one_in(rng, 2),
        },
    }
}

fn single(rng: &mut Rng, slow: bool) -> SinglePlan {
    SinglePlan {
        at_ms: ms(rng, 400),
        tool: Tool::ALL[rng.between(0, 2)],
        size: rng.between(1, 5000),
        leaves_ms: (slow && one_in(rng, 3)).then(|| ms(rng, 300)),
    }
}

fn task(rng: &mut Rng) -> TaskPlan {
    TaskPlan {
        at_ms: ms(rng, 1500),
        tool: Tool::ALL[rng.between(0, 2)],
        form: match rng.between(0, 9) {
            0..=3 => TaskForm::Task,
            4..=6 => TaskForm::Key,
            7 => TaskForm::Cancelled(ms(rng, 200)),
            _ => TaskForm::Plain,
        },
    }
}

fn host_end(rng: &mut Rng) -> HostEnd {
    HostEnd {
        kind: match one_in(rng, 5) {
            true => HostEndKind::Stop(ms(rng, 1500)),
            false => HostEndKind::Crash(ms(rng, 60)),
        },
        pause_ms: ms(rng, 300),
    }
}

fn operation(rng: &mut Rng) -> OperatorStep {
    OperatorStep {
        at_ms: ms(rng, 1500),
        what: match rng.between(0, 7) {
            0 | 1 => Operation::Stop,
            2..=4 => Operation::Rollout,
            _ => Operation::Status,
        },
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = &self.limits;
        writeln!(f, "seed {}", self.seed)?;
        writeln!(
            f,
            "  limits queue={} in_flight={} pool={} replays={} restarts={} ping={} standby={}",
            limits.queue,
            limits.in_flight,
            limits.pool,
            limits.replays,
            limits.restarts,
            limits.ping_interval_ms,
            limits.standby,
        )?;
        writeln!(f, "  client pipes {:?}", self.client_noise)?;
        writeln!(f, "  worker pipes {:?}", self.worker_noise)?;
        writeln!(f, "  {:?}", self.check_noise)?;
        let (backend, swap) = (self.backend, self.swap_one_in);
        writeln!(
            f,
            "  {backend:?}, built in: {}, swap: {swap}, upgrade: {}",
            self.built_in, self.upgrade_one_in
        )?;
        for (number, plan) in self.incarnations.iter().enumerate() {
            writeln!(f, "  worker {number}: {plan:?}")?;
        }
        for (number, plan) in self.clients.iter().enumerate() {
            let ClientPlan {
                start_ms,
                speech,
                pauses,
                ..
            } = plan;
            writeln!(
                f,
                "  client {number}: {speech:?} at {start_ms} ms, pauses {pauses:?}"
            )?;
            for step in &plan.steps {
                writeln!(f, "    {step:?}")?;
            }
        }
        for plan in &self.singles {
            writeln!(f, "  {plan:?}")?;
        }
        for step in &self.operator {
            writeln!(f, "  {step:?}")?;
        }
        if !self.tasks.is_empty() {
            writeln!(f, "  {:?}", self.ledger_noise)?;
        }
        for plan in &self.tasks {
            writeln!(f, "  {plan:?}")?;
        }
        for end in &self.host_ends {
            writeln!(f, "  {end:?}")?;
        }
        Ok(())
    }
}
