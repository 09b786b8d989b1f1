//! Spans and durations for a collector, over OTLP in its JSON form.
//!
//! The engine pushes and never waits: what does not fit in the queue is counted as lost. One
//! thread takes what is there, adds it up, and posts it. The conventions are those of
//! OpenTelemetry for MCP: `encode` knows their names.

mod encode;
mod histogram;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay_contract::trace::Span;

use self::histogram::Durations;
use crate::log::{Log, Seldom};

/// Spans that may wait for the collector.
const QUEUE: usize = 4096;
/// Spans of one post.
const BATCH: usize = 512;
/// How long spans wait for others.
const PAUSE: Duration = Duration::from_secs(1);
/// How often durations are posted.
const METRICS_EVERY: Duration = Duration::from_secs(15);
/// Time for a post.
const POST: Duration = Duration::from_secs(5);

/// Where a collector is, and what it is told about us.
#[derive(Clone)]
pub struct OtlpConfig {
    /// URLs for spans and for durations; either may be left out.
    pub traces: Option<String>,
    pub metrics: Option<String>,
    /// Sent with every post.
    pub headers: Vec<(String, String)>,
    pub service: String,
    /// More attributes of the resource.
    pub attributes: Vec<(String, String)>,
    pub version: String,
}

impl std::fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers carry keys.
        f.debug_struct("OtlpConfig")
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// A request that ended.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) span: Span,
    pub(crate) method: String,
    /// Only of tools that there are.
    pub(crate) tool: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) session: String,
    pub(crate) transport: &'static str,
    pub(crate) protocol: &'static str,
    /// The tool said no, or a code of ours.
    pub(crate) error: Option<Error>,
    pub(crate) attempt: u32,
    pub(crate) end_ns: u64,
    pub(crate) latency_us: u64,
}

/// The error of a request.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    /// `error.type`.
    pub(crate) kind: &'static str,
    /// The JSON-RPC code, where the answer is a JSON-RPC error.
    pub(crate) code: Option<i32>,
    pub(crate) message: String,
}

/// The way to a collector.
#[derive(Debug)]
pub(crate) struct Exporter {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Finished>,
    lost: u64,
    closing: bool,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exporter {
    /// Starts the thread.
    pub(crate) fn start(config: OtlpConfig, log: &Log) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (of_thread, log) = (Arc::clone(&shared), log.clone());
        std::thread::Builder::new()
            .name("otlp".into())
            .spawn(move || {
                Sender::new(config, log).run(&of_thread);
                of_thread.lock().closed = true;
                of_thread.changed.notify_all();
            })?;
        Ok(Self { shared })
    }

    /// Takes a request that ended, if there is room.
    pub(crate) fn push(&self, finished: Finished) {
        let mut state = self.shared.lock();
        if state.waiting.len() >= QUEUE {
            state.lost += 1;
            return;
        }
        state.waiting.push_back(finished);
        let wakes = state.waiting.len() == 1 || state.waiting.len() == BATCH;
        drop(state);
        if wakes {
            self.shared.changed.notify_all();
        }
    }

    /// Posts what is left, and waits for that, not for long.
    pub(crate) fn finish(&self, patience: Duration) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.changed.notify_all();
        let until = Instant::now() + patience;
        while !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

struct Sender {
    config: OtlpConfig,
    agent: ureq::Agent,
    durations: Durations,
    next_metrics: Instant,
    warning: Seldom,
    log: Log,
}

impl Sender {
    fn new(config: OtlpConfig, log: Log) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(POST))
            .max_redirects(0)
            .http_status_as_error(true)
            .proxy(None)
            .build()
            .new_agent();
        Self {
            config,
            agent,
            durations: Durations::default(),
            next_metrics: Instant::now() + METRICS_EVERY,
            warning: Seldom::default(),
            log,
        }
    }

    fn run(&mut self, shared: &Shared) {
        loop {
            let (batch, lost, closing) = take(shared, self.next_metrics);
            for finished in &batch {
                self.durations.add(finished);
            }
            if lost > 0 {
                self.complain(&format!("{lost} spans did not fit in the queue"));
            }
            if !batch.is_empty()
                && let Some(url) = &self.config.traces
            {
                let body = encode::spans(&self.config, &batch);
                self.post(&url.clone(), &body);
            }
            let over = closing && batch.len() < BATCH;
            if over || Instant::now() >= self.next_metrics {
                self.next_metrics = Instant::now() + METRICS_EVERY;
                if let (Some(url), false) = (&self.config.metrics, self.durations.is_empty()) {
                    let body = encode::durations(&self.config, &self.durations);
                    self.post(&url.clone(), &body);
                }
            }
            if over {
                return;
            }
        }
    }

    fn post(&mut self, url: &str, body: &str) {
        let mut request = self
            .agent
            .post(url)
            .header("content-type", "application/json");
        for (name, value) in &self.config.headers {
            request = request.header(name, value);
        }
        if let Err(error) = request.send(body) {
            self.complain(&format!("the collector does not take them: {error}"));
        }
    }

    fn complain(&mut self, what: &str) {
        self.warning
            .warn(&self.log, &format!("reason=spans_lost {what}"));
    }
}

/// Waits for spans: for a whole batch, for a while, or for the end.
fn take(shared: &Shared, until: Instant) -> (Vec<Finished>, u64, bool) {
    let mut state = shared.lock();
    let mut since: Option<Instant> = None;
    loop {
        let now = Instant::now();
        if !state.waiting.is_empty() && since.is_none() {
            since = Some(now);
        }
        let deadline = since.map_or(until, |since| until.min(since + PAUSE));
        if state.closing || state.waiting.len() >= BATCH || now >= deadline {
            let count = state.waiting.len().min(BATCH);
            let batch = state.waiting.drain(..count).collect();
            let lost = std::mem::take(&mut state.lost);
            return (batch, lost, state.closing);
        }
        let waited = shared
            .changed
            .wait_timeout(state, deadline.saturating_duration_since(now));
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
