//! One run: a host, its peers, and the steps from the first connection to the end.
//!
//! First comes the storm, in which everybody follows the scenario. Then the weather calms down:
//! pipes and workers behave, clients read. Everything must then be answered, the host must be
//! idle, each client must get one more answer, and the host must end when it is told to.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::dialect::{Dialect, Op, Request};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Success;
use mainstay_host::config::{Command, Expected, Pack};
use mainstay_host::sim::{self, CheckNoise, Host, HttpDoor, Trace, Upgraded, Weather, pipe};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::book::{Asked, Book, ClientPage, Outcome, Violation};
use super::check;
use super::client;
use super::client::Client;
use super::http::Bridge;
use super::machine::Machine;
use super::plan::{Backend, Operation, Route, Scenario, SinglePlan, Speech};
use super::{server, tasks, worker};

/// The longest storm, in virtual time.
const STORM: Duration = Duration::from_secs(900);
/// Time for everything to be answered once the weather is calm.
const SETTLE: Duration = Duration::from_secs(200);
/// Time for one call of an idle host in calm weather.
const PROMPT: Duration = Duration::from_secs(20);
/// Time for an operator's reply.
const REPLY: Duration = Duration::from_secs(60);
/// Between two looks at the queue.
const LOOK: Duration = Duration::from_millis(100);

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Report {
    pub digest: u64,
    pub events: u64,
    pub virtual_ms: u64,
    pub requests: usize,
    /// How often the host was replaced by one that continued its saved state.
    pub upgraded: Upgraded,
    pub violations: Vec<Violation>,
    pub text: Option<String>,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, keep_text: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(simulate(scenario, keep_text)),
        Err(error) => Report {
            digest: 0,
            events: 0,
            virtual_ms: 0,
            requests: 0,
            upgraded: Upgraded::default(),
            violations: vec![Violation {
                rule: "no runtime",
                detail: error.to_string(),
            }],
            text: None,
        },
    }
}

async fn simulate(scenario: &Scenario, keep_text: bool) -> Report {
    let began = Instant::now();
    let (book, weather) = (Book::default(), Weather::default());
    let trace = Trace::start(keep_text);
    let machine = Machine {
        seed: scenario.seed,
        noise: scenario.worker_noise,
        incarnations: scenario.incarnations.clone(),
        book: book.clone(),
        weather: weather.clone(),
        trace: trace.clone(),
        backend: scenario.backend,
        started: AtomicUsize::new(0),
    };
    let world = sim::enter(Arc::new(machine), scenario.seed);
    sim::swap_one_in(scenario.swap_one_in);
    sim::upgrade_one_in(scenario.upgrade_one_in);
    sim::disturb_checks(scenario.check_noise);
    let has_tasks = !scenario.tasks.is_empty();
    let backlog = match (!has_tasks).then(|| start_host(scenario)) {
        None => {
            let run = tasks::TaskRun {
                scenario,
                book: &book,
                weather: &weather,
                trace: &trace,
            };
            run.live().await;
            sim::backlog()
        }
        Some(Ok(host)) => {
            let around = Around {
                scenario,
                book: &book,
                weather: &weather,
                trace: &trace,
                door: Arc::new(host.http(&scenario.limits)),
                host: Arc::new(host),
            };
            around.live().await;
            sim::backlog()
        }
        Some(Err(error)) => {
            book.violation("the host does not start", error.to_string());
            sim::backlog()
        }
    };
    if let Some(complaint) = sim::complaint() {
        book.violation("a seam complains", complaint);
    }
    let upgraded = sim::upgraded();
    book.lock().ended_by_upgrade = upgraded.ended > 0;
    drop(world);
    check::check(scenario, &book, &backlog);
    let pages = book.lock();
    let requests: usize = pages.clients.iter().map(|page| page.requests.len()).sum();
    let requests = requests + scenario.tasks.len();
    Report {
        digest: trace.digest(),
        events: trace.events(),
        virtual_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        requests,
        upgraded,
        violations: pages.violations.clone(),
        text: trace.text(),
    }
}

/// Starts a host of the scenario.
pub(super) fn start_host(scenario: &Scenario) -> std::io::Result<Host> {
    let limits = scenario.limits.clone();
    let has_tasks = !scenario.tasks.is_empty();
    match scenario.backend {
        Backend::Pack => {
            let tasks = tasks::settings(has_tasks);
            Host::serve(vec![pack(scenario)], limits, tasks)
        }
        Backend::Server => Host::wrap(command(), server::rules(has_tasks), limits),
        Backend::Several { shared, .. } => {
            let servers = Backend::KEYS.into_iter().zip(shared);
            let servers = servers.map(|(key, shared)| sim::ServerPlan {
                key: key.to_owned(),
                command: Command {
                    arguments: vec![key.into()],
                    ..command()
                },
                rules: server::rules(false),
                shared,
            });
            Host::several(servers.collect(), limits)
        }
    }
}

fn command() -> Command {
    Command {
        program: "simulated".into(),
        called: None,
        arguments: Vec::new(),
        without_env: Vec::new(),
        env: Vec::new(),
        secrets: Vec::new(),
        cwd: None,
        sandbox: None,
    }
}

fn pack(scenario: &Scenario) -> Pack {
    Pack {
        name: worker::PACK.to_owned(),
        command: command(),
        settings: Json::empty_object(),
        expected: scenario.built_in.then(|| Expected {
            catalog: worker::catalog(),
            build: worker::BUILD.to_owned(),
        }),
        follows_roots: None,
    }
}

struct Around<'a> {
    scenario: &'a Scenario,
    book: &'a Book,
    weather: &'a Weather,
    trace: &'a Trace,
    host: Arc<Host>,
    door: Arc<HttpDoor>,
}

impl Around<'_> {
    async fn live(self) {
        let clients = self.start_clients();
        let singles = self.start_singles();
        let operator = self.start_operator();
        let sampler = self.start_sampler();
        let mut connected = Vec::new();
        let until = Instant::now() + STORM;
        for (number, client) in clients.into_iter().enumerate() {
            match tokio::time::timeout_at(until, client).await {
                Ok(Ok(client)) => connected.push(client),
                _ => self
                    .book
                    .violation("a client is blocked", format!("client {number}")),
            }
        }
        let _ = tokio::time::timeout_at(until, operator).await;
        self.weather.calm_down();
        sim::disturb_checks(CheckNoise::default());
        self.trace.note("calm");
        self.settle("a request is never answered", SETTLE).await;
        for single in singles {
            if tokio::time::timeout_at(until, single).await.is_err() {
                self.book
                    .violation("a request is never answered", "over REST");
            }
        }
        sampler.abort();
        if !self.scenario.stops() {
            self.afterwards(&mut connected).await;
        }
        self.end(connected).await;
    }

    fn start_clients(&self) -> Vec<JoinHandle<Client>> {
        let plans = self.scenario.clients.iter().enumerate();
        self.book
            .lock()
            .clients
            .resize_with(self.scenario.clients.len(), ClientPage::default);
        plans
            .map(|(number, plan)| {
                let peer = number as u64 + 1;
                let make = |way: u64| {
                    let noise = self.scenario.client_noise;
                    let seed = self.scenario.seed;
                    pipe(4 * peer + way, seed, noise, self.weather, self.trace)
                };
                let (ours, theirs) = (make(0), make(1));
                let (mut client, reader) = {
                    let pipes = (ours.0, theirs.1);
                    let over = self.host.over();
                    let backend = self.scenario.backend;
                    Client::new(number, plan, self.book, self.weather, pipes, over, backend)
                };
                let (host, start_ms) = (Arc::clone(&self.host), plan.start_ms);
                let (host_reads, host_writes) = (ours.1, theirs.0);
                let bridge = match plan.route {
                    Route::Pipe => None,
                    Route::Http { breaks } => Some(self.bridge(number, plan.speech, breaks)),
                };
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(start_ms)).await;
                    match bridge {
                        None => host.connect(host_reads, host_writes).await,
                        Some(bridge) => {
                            tokio::spawn(bridge.carry(host_reads, host_writes));
                        }
                    }
                    tokio::spawn(reader);
                    client.script().await;
                    client
                })
            })
            .collect()
    }

    fn bridge(&self, number: usize, speech: Speech, breaks: bool) -> Bridge {
        Bridge {
            number,
            speech,
            breaks,
            seed: self.scenario.seed,
            door: Arc::clone(&self.door),
            book: self.book.clone(),
            over: self.host.over(),
        }
    }

    fn start_singles(&self) -> Vec<JoinHandle<()>> {
        let first = self.scenario.clients.len();
        let plans = self.scenario.singles.iter().enumerate();
        plans
            .map(|(index, plan)| {
                let number = first + index;
                self.book.lock().clients.push(ClientPage::default());
                let (host, book) = (Arc::clone(&self.host), self.book.clone());
                let name = self.scenario.backend.name_of(plan.tool, 1);
                tokio::spawn(single(number, *plan, name, host, book))
            })
            .collect()
    }

    fn start_operator(&self) -> JoinHandle<()> {
        let mut steps = self.scenario.operator.clone();
        steps.sort_by_key(|step| step.at_ms);
        let (host, book) = (Arc::clone(&self.host), self.book.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            for step in steps {
                tokio::time::sleep_until(began + Duration::from_millis(step.at_ms)).await;
                let request = match step.what {
                    Operation::Status => ControlRequest::Status {},
                    Operation::Rollout => ControlRequest::Rollout {
                        pack: None,
                        reasons: Vec::new(),
                    },
                    Operation::Stop => {
                        book.lock().stopped.get_or_insert_with(Instant::now);
                        host.stop().await;
                        continue;
                    }
                };
                let reply = tokio::time::timeout(REPLY, host.control(request)).await;
                if reply.is_err() {
                    book.violation("an operator gets no reply", format!("{step:?}"));
                }
            }
        })
    }

    /// Looks at the queue now and then.
    fn start_sampler(&self) -> JoinHandle<()> {
        let (host, book) = (Arc::clone(&self.host), self.book.clone());
        let limits = &self.scenario.limits;
        // A wrapped server has a queue for each client.
        let queues = match self.scenario.backend {
            Backend::Pack => 1,
            Backend::Server => self.scenario.clients.len() + self.scenario.singles.len(),
            Backend::Several { .. } => {
                let callers = self.scenario.clients.len() + self.scenario.singles.len();
                Backend::KEYS.len() * callers
            }
        };
        let most = queues * (limits.queue + 2 * limits.pool);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let status = host.control(ControlRequest::Status {}).await;
                let Some(ControlReply::Status(status)) = status else {
                    return;
                };
                let depth = status.health.queue_depth;
                if depth > most {
                    let detail = format!("{depth} calls wait, at most {most} may");
                    return book.violation("a queue is over its limit", detail);
                }
            }
        })
    }

    /// Waits until every request is answered.
    async fn settle(&self, rule: &'static str, within: Duration) {
        let until = Instant::now() + within;
        loop {
            let answered = self.book.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if self.book.lock().open() == 0 {
                return;
            }
            let over = self.host.over();
            tokio::select! {
                biased;
                () = answered => {}
                () = over.wait() => return,
                () = tokio::time::sleep_until(until) => {
                    let detail = self.first_open();
                    return self.book.violation(rule, detail);
                }
            }
        }
    }

    fn first_open(&self) -> String {
        let pages = self.book.lock();
        let mut clients = pages
            .clients
            .iter()
            .enumerate()
            .filter(|(_, page)| !page.left);
        let open = clients.find_map(|(number, page)| {
            let asked = page.requests.iter().find(|asked| asked.is_open())?;
            Some(format!(
                "client {number}, request {} ({:?})",
                asked.id, asked.tool
            ))
        });
        open.unwrap_or_default()
    }

    /// Nothing goes on any more: one call of each client must succeed, and the host be idle.
    async fn afterwards(&self, clients: &mut [Client]) {
        let limits = &self.scenario.limits;
        // A worker whose restarts were used up may start again by then.
        let pause = limits.restart_period_ms + limits.rest_ms + limits.backoff_max_ms;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let is_open = |client: &&Client| client.is_open();
        let piped = clients
            .iter()
            .filter(is_open)
            .filter(|client| client.is_piped())
            .count();
        let most_links = clients
            .iter()
            .filter(|client| client.may_keep_link())
            .count();
        for client in clients.iter_mut().filter(|client| client.is_open()) {
            if tokio::time::timeout(PROMPT, client.last_call())
                .await
                .is_err()
            {
                self.book
                    .violation("a gate stays closed", "a client cannot write");
            }
        }
        self.settle("the last call is not answered", PROMPT).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = self.host.control(ControlRequest::Status {});
        let status = tokio::time::timeout(PROMPT, status).await;
        let Ok(Some(ControlReply::Status(status))) = status else {
            return self
                .book
                .violation("an operator gets no reply", "status at the end");
        };
        let health = &status.health;
        if health.in_flight > 0 || health.queue_depth > 0 {
            let detail = format!(
                "{} in flight, {} queued",
                health.in_flight, health.queue_depth
            );
            self.book.violation("the host is not idle", detail);
        }
        let links = self.door.links().await;
        if health.sessions != piped + links || links > most_links {
            let detail = format!(
                "{} sessions, {piped} clients on pipes, {links} HTTP links of at most {most_links}",
                health.sessions
            );
            self.book.violation("a session is left over", detail);
        }
    }

    /// Clients close their inputs, then the host is told to end.
    async fn end(self, mut clients: Vec<Client>) {
        for client in &mut clients {
            client.close_input();
        }
        let limits = &self.scenario.limits;
        let patience = Duration::from_millis(limits.drain_ms + 4 * limits.grace_ms + 20_000);
        tokio::time::sleep(Duration::from_millis(500)).await;
        {
            let mut pages = self.book.lock();
            let pages = &mut *pages;
            for (number, page) in pages.clients.iter().enumerate() {
                let single = number >= self.scenario.clients.len();
                if !page.ended && !page.left && !single && pages.stopped.is_none() {
                    let detail = format!("client {number}");
                    let rule = "a finished session stays open";
                    pages.violations.push(Violation { rule, detail });
                }
            }
        }
        self.host.stop().await;
        let until = Instant::now() + patience;
        while !self.host.is_over() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if !self.host.is_over() {
            return self.book.violation("the host does not end", "after a stop");
        }
        match Arc::try_unwrap(self.host) {
            Ok(host) => {
                if !host.join().await {
                    self.book.violation("the engine panicked", "");
                }
            }
            Err(_) => self
                .book
                .violation("the host does not end", "it is still in use"),
        }
        let alive = self.book.lock().alive;
        if alive > 0 {
            self.book
                .violation("a worker outlives its host", format!("{alive}"));
        }
    }
}

/// One request over REST: its answer is the kernel's own end.
async fn single(number: usize, plan: SinglePlan, name: String, host: Arc<Host>, book: Book) {
    tokio::time::sleep(Duration::from_millis(plan.at_ms)).await;
    let key = format!("c{number}-1");
    let Ok(id) = RequestId::parse("1") else {
        return;
    };
    let arguments = json!({"key": key, "size": plan.size});
    let request = Request {
        id,
        dialect: Dialect::Rest,
        op: Op::CallTool {
            name,
            arguments: arguments.into(),
        },
        progress_token: None,
        trace: None,
        task: None,
    };
    let asked = Asked {
        id: "1".to_owned(),
        tool: Some(plan.tool),
        key,
        token: false,
        refused: None,
        at: Instant::now(),
        whole: true,
        cancelled: None,
        level: String::new(),
        extra: 0,
        answers: Vec::new(),
    };
    let note = |change: &mut dyn FnMut(&mut ClientPage)| {
        if let Some(page) = book.lock().clients.get_mut(number) {
            change(page);
        }
        book.answered.notify_waiters();
    };
    note(&mut |page| page.requests.push(asked.clone()));
    let (end, want) = host.single(request, 100, &format!("caller {number}")).await;
    drop(host);
    let leaves = plan.leaves_ms.map(Duration::from_millis);
    let what = tokio::select! {
        biased;
        end = end => match end {
            Ok(Err(problem)) => Outcome::Failed(problem.kind),
            Ok(Ok(end)) => outcome_of(&end.outcome),
            Err(_) => return note(&mut |page| page.ended = true),
        },
        () = tokio::time::sleep(leaves.unwrap_or_default()), if leaves.is_some() => {
            return note(&mut |page| page.left = true);
        }
    };
    drop(want);
    note(&mut |page| {
        for asked in &mut page.requests {
            asked.answers.push(what.clone());
        }
    });
}

/// What a typed end says.
pub(super) fn outcome_of(outcome: &mainstay_contract::outcome::Outcome) -> Outcome {
    match outcome {
        Ok(Success::Tool(reply)) => {
            let reply = reply.json.to_value().unwrap_or_default();
            client::done(&reply)
        }
        Ok(Success::Forwarded(response)) => client::read(response.line.as_str()),
        Ok(Success::Members(_)) => Outcome::Odd("members of a tool".to_owned()),
        Err(problem) if problem.kind == ErrorKind::NotFound => Outcome::Refused,
        Err(problem) => Outcome::Failed(problem.kind),
    }
}
