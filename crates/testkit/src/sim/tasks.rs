//! Runs with tasks: callers ask for calls that the ledger records, while hosts crash and stop one after the other.
//!
//! The ledger outlives every host, and nothing else does. After the storm the last host stays, and the judge compares what
//! callers got with the ledger and with the effects: every accepted task has ended, none is forgotten, no effect
//! took place twice or without a record, and an outcome that a caller got is the recorded one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::dialect::{Dialect, Op, Request, TaskAnswer, TaskOp, TaskWish};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::outcome::{Problem, Success};
use mainstay_host::sim::{self, CheckNoise, Host, LedgerNoise, TaskSettings, Trace, Weather};
use mainstay_host::tasks::{OnTimeout, TaskView, ToolTasks};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::book::{Book, Outcome};
use super::client;
use super::plan::{HostEndKind, Scenario, TaskForm, TaskPlan, Tool};
use super::run::{outcome_of, start_host};

/// The longest storm, in virtual time.
const STORM: Duration = Duration::from_secs(60);
/// Time for every task to end once the weather is calm: more than the time of a task.
const SETTLE: Duration = Duration::from_secs(90);
/// Time for a host to stop.
const STOP: Duration = Duration::from_secs(60);
/// Between two requests of a caller, and between two looks at the ledger.
const AGAIN: Duration = Duration::from_millis(500);
/// Requests that one caller sends at most.
const ATTEMPTS: usize = 300;

/// The settings for tasks of the simulated pack.
pub(super) fn settings(has_tasks: bool) -> TaskSettings {
    let tools = Tool::ALL.into_iter().filter(|_| has_tasks);
    let rule = ToolTasks {
        tasks: Some(true),
        on_timeout: OnTimeout::Detach,
    };
    tools.map(|tool| (tool.name().to_owned(), rule)).collect()
}

/// The notes about one caller.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskPage {
    /// The task that the host promised to it.
    pub(super) accepted: Option<String>,
    /// The outcomes that it got.
    pub(super) told: Vec<Outcome>,
    /// It cancelled its task.
    pub(super) cancelled: bool,
}

/// A run with tasks.
pub(super) struct TaskRun<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) book: &'a Book,
    pub(super) weather: &'a Weather,
    pub(super) trace: &'a Trace,
}

/// The host that runs now, if there is one. Callers are woken in the order in which they began to wait; those of a
/// `watch` are not.
#[derive(Clone, Default)]
struct Hosts {
    current: Arc<Mutex<Option<Arc<Host>>>>,
    changed: Arc<Notify>,
}

impl Hosts {
    fn set(&self, host: Option<Arc<Host>>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = host;
        self.changed.notify_waiters();
    }

    /// The host that runs, once there is one.
    async fn get(&self) -> Arc<Host> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let current = self.current.lock();
            let current = current.unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(host) = current {
                return host;
            }
            changed.await;
        }
    }
}

impl TaskRun<'_> {
    pub(super) async fn live(&self) {
        sim::keep_ledger(self.scenario.ledger_noise);
        let hosts = Hosts::default();
        let callers = self.start_callers(&hosts);
        let (ended, mut storm) = watch::channel(false);
        tokio::spawn(async move {
            for caller in callers {
                let _ = caller.await;
            }
            ended.send_replace(true);
        });
        let until = Instant::now() + STORM;
        for end in &self.scenario.host_ends {
            let host = self.start(&hosts, Some(end.kind));
            let Some(host) = host else { return };
            let over = host.over();
            tokio::select! {
                biased;
                () = over.wait() => self.trace.note("the host ends"),
                () = stop_later(&host, end.kind) => {}
                _ = storm.wait_for(|over| *over) => {}
                () = tokio::time::sleep_until(until) => {}
            }
            hosts.set(None);
            self.end(&host, end.kind).await;
            tokio::time::sleep(Duration::from_millis(end.pause_ms)).await;
        }
        let Some(host) = self.start(&hosts, None) else {
            return;
        };
        let _ = tokio::time::timeout_at(until, storm.wait_for(|over| *over)).await;
        self.weather.calm_down();
        sim::disturb_checks(CheckNoise::default());
        sim::keep_ledger(LedgerNoise::default());
        self.trace.note("calm");
        let storm = tokio::time::timeout(SETTLE, storm.wait_for(|over| *over)).await;
        if storm.is_err() {
            self.book
                .violation("a request is never answered", "of a caller");
        }
        self.settle().await;
        self.judge(&host).await;
        hosts.set(None);
        self.stop(&host).await;
    }

    fn start(&self, hosts: &Hosts, end: Option<HostEndKind>) -> Option<Arc<Host>> {
        sim::crash_after(match end {
            Some(HostEndKind::Crash(events)) => Some(events),
            Some(HostEndKind::Stop(_)) | None => None,
        });
        match start_host(self.scenario) {
            Ok(host) => {
                self.trace.note("a host starts");
                let host = Arc::new(host);
                hosts.set(Some(Arc::clone(&host)));
                Some(host)
            }
            Err(error) => {
                self.book
                    .violation("the host does not start", error.to_string());
                None
            }
        }
    }

    /// Ends a host as its plan says, or kills it if it has not come so far.
    async fn end(&self, host: &Host, kind: HostEndKind) {
        if let HostEndKind::Stop(_) = kind {
            host.stop().await;
            let over = host.over();
            let over = tokio::time::timeout(STOP, over.wait());
            if over.await.is_err() {
                self.book.violation("the host does not end", "after a stop");
            }
        }
        host.kill();
    }

    /// Waits until every task has ended.
    async fn settle(&self) {
        let until = Instant::now() + SETTLE;
        while Instant::now() < until {
            if sim::recorded().iter().all(|task| task.outcome.is_some()) {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
        let open = sim::recorded();
        let open = open.iter().find(|task| task.outcome.is_none());
        let detail = open.map(|task| format!("{} {}", task.tool, key_of(task)));
        let detail = detail.unwrap_or_default();
        self.book.violation("a task never ends", detail);
    }

    async fn stop(&self, host: &Arc<Host>) {
        let status = host.control(ControlRequest::Status {});
        match tokio::time::timeout(STOP, status).await {
            Ok(Some(ControlReply::Status(status))) if status.health.in_flight > 0 => {
                let detail = format!("{} in flight", status.health.in_flight);
                self.book.violation("the host is not idle", detail);
            }
            Ok(Some(_)) => {}
            _ => self.book.violation("an operator gets no reply", "status"),
        }
        self.end(host, HostEndKind::Stop(0)).await;
        // Processes of crashed hosts end as their plans say.
        tokio::time::sleep(STOP).await;
        let alive = self.book.lock().alive;
        if alive > 0 {
            let detail = format!("{alive}");
            self.book.violation("a worker outlives its host", detail);
        }
    }

    fn start_callers(&self, hosts: &Hosts) -> Vec<JoinHandle<()>> {
        let plans = self.scenario.tasks.iter().copied().enumerate();
        let pages = self.scenario.tasks.len();
        self.book.lock().tasks.resize_with(pages, TaskPage::default);
        plans
            .map(|(number, plan)| {
                let caller = Caller {
                    number,
                    plan,
                    book: self.book.clone(),
                    hosts: hosts.clone(),
                };
                tokio::spawn(caller.run())
            })
            .collect()
    }

    /// Compares callers, ledger and effects.
    async fn judge(&self, host: &Host) {
        let recorded = sim::recorded();
        let pages = self.book.lock().tasks.clone();
        for (number, (page, plan)) in pages.iter().zip(&self.scenario.tasks).enumerate() {
            let key = key(number);
            let task = recorded.iter().find(|task| key_of(task) == key);
            let found = self.judge_caller(&key, page, plan, task);
            if let Some((rule, detail)) = found {
                self.book.violation(rule, format!("{plan:?}: {detail}"));
            }
            if let Some(id) = &page.accepted {
                self.read_back(host, number, id).await;
            }
        }
    }

    fn judge_caller(
        &self,
        key: &str,
        page: &TaskPage,
        plan: &TaskPlan,
        task: Option<&TaskView>,
    ) -> Option<(&'static str, String)> {
        let pages = self.book.lock();
        let effects = pages.effects.get(key).map_or(0, Vec::len);
        let Some(task) = task else {
            if let Some(id) = &page.accepted {
                return Some(("a task is forgotten", id.clone()));
            }
            let promised = plan.form != TaskForm::Plain && effects > 0;
            return promised.then(|| ("an effect without a record", String::new()));
        };
        if page.accepted.as_ref().is_some_and(|id| *id != task.id) {
            return Some(("a task is recorded twice", task.id.clone()));
        }
        let outcome = outcome_of(task.outcome.as_ref()?);
        let told = page.told.iter().find(|told| **told != outcome);
        if let Some(told) = told {
            let detail = format!("{told:?} instead of {outcome:?}");
            return Some(("an outcome is not the recorded one", detail));
        }
        let is_done = outcome == Outcome::Done(Some(key.to_owned()));
        if is_done && plan.tool != Tool::Get && effects == 0 {
            return Some(("success without effect", String::new()));
        }
        let deaths = pages.deaths.len();
        let is_excused = match &outcome {
            Outcome::Done(_) => is_done,
            Outcome::Refused => true,
            Outcome::Failed(ErrorKind::Cancelled) => page.cancelled,
            Outcome::Failed(ErrorKind::OutcomeUnknown) => plan.tool != Tool::Get && deaths > 0,
            Outcome::Failed(ErrorKind::ReplayExhausted | ErrorKind::CallKillsWorker) => deaths > 0,
            Outcome::Failed(ErrorKind::Timeout) => true,
            // The host that stopped knows that it never ran, and the next one would not.
            Outcome::Failed(ErrorKind::ShuttingDown) => {
                plan.tool == Tool::Pay && plan.form != TaskForm::Key && effects == 0
            }
            Outcome::Failed(ErrorKind::Internal) => self.scenario.check_noise.gives_up_one_in > 0,
            Outcome::Failed(kind) => {
                // Its pack never came up for a call with a deadline.
                plan.form == TaskForm::Key
                    && matches!(
                        kind,
                        ErrorKind::WorkerUnavailable
                            | ErrorKind::WorkerNotReady
                            | ErrorKind::WorkerSetup
                    )
            }
            Outcome::WrongLevel(_) | Outcome::Odd(_) => false,
        };
        (!is_excused).then(|| ("an error without a reason", format!("{outcome:?}")))
    }

    /// The caller can read its task, and another cannot.
    async fn read_back(&self, host: &Host, number: usize, id: &str) {
        let get = || Op::Task(TaskOp::Get { id: id.to_owned() });
        let read = ask(host, &caller(number), get(), None).await;
        let status = read.as_ref().and_then(|read| read.as_ref().ok());
        let status = status.and_then(|read| read["status"].as_str());
        if status.is_none_or(|status| status == "working") {
            let detail = format!("{id}: {read:?}");
            self.book.violation("a task cannot be read", detail);
        }
        let read = ask(host, "token:other", get(), None).await;
        if !matches!(&read, Some(Err(problem)) if problem.kind == ErrorKind::ResourceNotFound) {
            let detail = format!("{id}: {read:?}");
            self.book.violation("a task is shown to another", detail);
        }
    }
}

async fn stop_later(host: &Host, kind: HostEndKind) {
    match kind {
        HostEndKind::Stop(ms) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            host.stop().await;
        }
        HostEndKind::Crash(_) => std::future::pending().await,
    }
}

fn key(number: usize) -> String {
    format!("t{number}")
}

fn caller(number: usize) -> String {
    format!("token:{number}")
}

/// The key in the arguments of a recorded call.
fn key_of(task: &TaskView) -> String {
    let arguments = task.work.arguments.to_value().unwrap_or_default();
    arguments["key"].as_str().unwrap_or_default().to_owned()
}

/// Sends one request. `None` if the host ends without an answer.
async fn ask(
    host: &Host,
    caller: &str,
    op: Op,
    task: Option<TaskWish>,
) -> Option<Result<Value, Problem>> {
    let request = Request {
        id: RequestId::parse("1").ok()?,
        dialect: Dialect::Rest,
        op,
        progress_token: None,
        trace: None,
        task,
    };
    let (end, _want) = host.single(request, 100, caller).await;
    match end.await.ok()? {
        Err(problem) => Some(Err(problem)),
        Ok(end) => Some(match &end.outcome {
            Ok(Success::Members(members)) => Ok(members.to_value().unwrap_or_default()),
            Ok(Success::Tool(reply)) => Ok(reply.json.to_value().unwrap_or_default()),
            Ok(Success::Forwarded(response)) => Ok(response.line.to_value().unwrap_or_default()),
            Err(problem) => Err(problem.clone()),
        }),
    }
}

/// One caller.
struct Caller {
    number: usize,
    plan: TaskPlan,
    book: Book,
    hosts: Hosts,
}

impl Caller {
    async fn run(self) {
        tokio::time::sleep(Duration::from_millis(self.plan.at_ms)).await;
        match self.plan.form {
            TaskForm::Task => self.submit().await,
            TaskForm::Cancelled(ms) => {
                self.submit().await;
                tokio::time::sleep(Duration::from_millis(ms)).await;
                self.cancel().await;
            }
            TaskForm::Key => self.ask_until_told().await,
            TaskForm::Plain => self.call().await,
        }
    }

    fn note(&self, change: impl FnOnce(&mut TaskPage)) {
        if let Some(page) = self.book.lock().tasks.get_mut(self.number) {
            change(page);
        }
    }

    async fn ask(&self, wish: Option<TaskWish>) -> Option<Result<Value, Problem>> {
        let arguments = json!({ "key": key(self.number), "size": 10 });
        let op = Op::CallTool {
            name: self.plan.tool.name().to_owned(),
            arguments: arguments.into(),
        };
        let host = self.hosts.get().await;
        ask(&host, &caller(self.number), op, wish).await
    }

    /// Asks for a task, once: a caller that gets no answer does not know if there is one.
    async fn submit(&self) {
        let wish = TaskWish::default();
        if let Some(Ok(task)) = self.ask(Some(wish)).await {
            let id = task["taskId"].as_str().unwrap_or_default().to_owned();
            self.note(|page| page.accepted = Some(id));
        }
    }

    async fn cancel(&self) {
        let accepted = self.book.lock().tasks.get(self.number).cloned();
        let Some(id) = accepted.and_then(|page| page.accepted) else {
            return;
        };
        for _ in 0..ATTEMPTS {
            let host = self.hosts.get().await;
            // Without an answer it may have been cancelled.
            self.note(|page| page.cancelled = true);
            let op = Op::Task(TaskOp::Cancel { id: id.clone() });
            if let Some(Ok(_)) = ask(&host, &caller(self.number), op, None).await {
                return;
            }
            drop(host);
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Asks under one key until it has an outcome, then once more.
    async fn ask_until_told(&self) {
        let mut told = 0;
        for _ in 0..ATTEMPTS {
            let wish = TaskWish {
                answer: TaskAnswer::Outcome,
                key: Some("k".to_owned()),
                ..TaskWish::default()
            };
            let answer = self.ask(Some(wish)).await;
            match answer.and_then(|answer| final_outcome(&answer)) {
                // That of the call, or that of a request that was not recorded.
                Some(Outcome::Failed(
                    ErrorKind::Timeout
                    | ErrorKind::Internal
                    | ErrorKind::WorkerUnavailable
                    | ErrorKind::WorkerNotReady
                    | ErrorKind::WorkerSetup,
                )) => told += 1,
                Some(outcome) => {
                    self.note(|page| page.told.push(outcome));
                    told += 1;
                }
                None => {}
            }
            if told == 2 {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.book
            .violation("a key gives no outcome", key(self.number));
    }

    /// Calls once; a late call becomes a task.
    async fn call(&self) {
        let answer = self.ask(None).await;
        if let Some(Err(problem)) = answer
            && let Some(id) = task_in(&problem)
        {
            self.note(|page| page.accepted = Some(id));
        }
    }
}

/// The task that a late call has become.
fn task_in(problem: &Problem) -> Option<String> {
    let details = problem.details.as_ref()?.to_value().ok()?;
    details["taskId"].as_str().map(str::to_owned)
}

/// The outcome of a call with a key, if the answer is more than a refusal for now.
fn final_outcome(answer: &Result<Value, Problem>) -> Option<Outcome> {
    match answer {
        Ok(line) if line.get("jsonrpc").is_some() => Some(client::read(&line.to_string())),
        Ok(reply) => Some(client::done(reply)),
        Err(problem) if problem.kind == ErrorKind::NotFound => Some(Outcome::Refused),
        Err(problem) => {
            let is_passing = matches!(
                problem.kind,
                ErrorKind::Overloaded | ErrorKind::ShuttingDown | ErrorKind::TaskNotRecorded
            );
            let runs_on = task_in(problem).is_some();
            (!is_passing && !runs_on).then_some(Outcome::Failed(problem.kind))
        }
    }
}
