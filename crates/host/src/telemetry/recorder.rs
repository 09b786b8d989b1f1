//! The engine's side of the event log.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mainstay_contract::dialect::{EchoId, Shape};
use mainstay_contract::envelope::Invocation;
use mainstay_contract::envelope::redact::{MARK, Redactor};
use mainstay_contract::error::{Code, Surface};
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{Generation, RequestId};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::shorten;
use mainstay_contract::telemetry::{
    Event, EventOutcome, HotTools, InvocationEvent, RequestEvent, SchemaMismatch, Telemetry,
    WorkerLoss, WorkerRun, millis,
};
use mainstay_contract::trace::Span;
use mainstay_kernel::action::End;
use serde_json::Value;

use super::file::EventFile;
use super::otlp::{self, Exporter, Finished, OtlpConfig};
use super::queue::Queue;
use super::writer;
use crate::clock::{iso_now, wall};
use crate::link_ids::client_id;
use crate::log::Log;

/// Ended requests between two snapshots of the hot tools.
const SNAPSHOT_EVERY: u64 = 1000;
/// How long the end waits for the last events to be written.
const FLUSH: Duration = Duration::from_millis(1000);

/// Longest ids and names in an event.
const ID_SHOWN: usize = 256;
/// Longest object of a client's own in an event.
const SAID: usize = 4096;

/// A handle to the event log and to a collector; either may be off.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    file: Option<Arc<Open>>,
    spans: Option<Arc<Spans>>,
}

#[derive(Debug)]
struct Spans {
    exporter: Exporter,
    host: String,
    /// `network.transport` and `network.protocol.name`.
    transport: &'static str,
    protocol: &'static str,
    redactor: Redactor,
}

#[derive(Debug)]
struct Open {
    queue: Arc<Queue>,
    host: String,
    log: Log,
    /// Requests that ended since the last snapshot of the hot tools.
    since_snapshot: AtomicU64,
}

impl Recorder {
    /// Nothing is recorded.
    pub(crate) const fn off() -> Self {
        Self {
            file: None,
            spans: None,
        }
    }

    /// Sends spans to a collector, too; `mode` is how clients come.
    pub(crate) fn with_collector(
        mut self,
        config: OtlpConfig,
        mode: &str,
        log: &Log,
    ) -> io::Result<Self> {
        let (transport, protocol) = match mode {
            "socket" => ("unix", ""),
            "http" => ("tcp", "http"),
            _ => ("pipe", ""),
        };
        self.spans = Some(Arc::new(Spans {
            exporter: Exporter::start(config, log)?,
            host: host_id(),
            transport,
            protocol,
            redactor: log.redactor().clone(),
        }));
        Ok(self)
    }

    /// Opens the file, and starts the thread that writes to it. A `resumed` host opens it when there is something to
    /// write: a file that cannot be opened must not end it.
    pub(crate) fn start(
        path: &Path,
        limits: &Limits,
        resumed: bool,
        log: &Log,
    ) -> io::Result<Self> {
        let (max_bytes, files) = (limits.telemetry_file_bytes as u64, limits.telemetry_files);
        let file = match resumed {
            true => EventFile::later(path, max_bytes, files),
            false => EventFile::open(path, max_bytes, files)?,
        };
        let queue = Arc::new(Queue::default());
        let host = host_id();
        let (shown, named) = (path.display().to_string(), host.clone());
        let (events, warnings) = (Arc::clone(&queue), log.clone());
        std::thread::Builder::new()
            .name("telemetry".into())
            .spawn(move || writer::run(&events, file, &shown, &named, &warnings))?;
        let file = Some(Arc::new(Open {
            queue,
            host,
            log: log.clone(),
            since_snapshot: AtomicU64::new(0),
        }));
        Ok(Self { file, spans: None })
    }

    /// A request ended. Whether it is time for a snapshot of the hot tools.
    pub(crate) fn ended(&self, end: &End, output_bytes: usize) -> bool {
        if let (Some(spans), Some(span)) = (&self.spans, end.trace) {
            spans.ended(end, span);
        }
        let Some(open) = &self.file else { return false };
        open.queue.push(Event::Request(RequestEvent {
            output_bytes,
            ..request_event(end, &open.host, open.log.redactor())
        }));
        let ended = open.since_snapshot.fetch_add(1, Ordering::Relaxed) + 1;
        ended >= SNAPSHOT_EVERY
    }

    /// A request envelope was accepted.
    pub(crate) fn invocation(&self, invocation: &Invocation) {
        let Some(open) = &self.file else { return };
        let redactor = open.log.redactor();
        let brief = |text: &str| shorten(&redactor.text(text), ID_SHOWN);
        let said = |object| said(object, redactor);
        open.queue.push(Event::Invocation(InvocationEvent {
            ts: iso_now(),
            host: open.host.clone(),
            id: brief(&invocation.id),
            tool: brief(&invocation.tool),
            trace_id: invocation.trace_id.as_deref().map(brief),
            context: invocation.context.as_ref().map(said),
            metadata: invocation.metadata.as_ref().map(said),
        }));
    }

    /// A step in a worker's life: one of the kinds that have a [`WorkerRun`].
    pub(crate) fn worker(
        &self,
        kind: fn(WorkerRun) -> Event,
        pack: &str,
        generation: Generation,
        pid: u32,
    ) {
        if let Some(open) = &self.file {
            open.queue.push(kind(WorkerRun {
                ts: iso_now(),
                host: open.host.clone(),
                pack: pack.to_owned(),
                generation,
                pid,
            }));
        }
    }

    /// A worker was lost, or is to be replaced.
    pub(crate) fn worker_lost(&self, pack: &str, generation: Generation, fault: &Fault) {
        if let Some(open) = &self.file {
            open.queue.push(Event::WorkerLost(WorkerLoss {
                ts: iso_now(),
                host: open.host.clone(),
                pack: pack.to_owned(),
                generation,
                fault: fault.class,
                code: fault.code(),
                detail: open.log.redactor().text(&fault.detail).into_owned(),
            }));
        }
    }

    /// Waits, not for long, until all events so far are in the file.
    pub(crate) fn flush(&self) {
        if let Some(open) = &self.file {
            open.queue.flush(FLUSH);
        }
    }

    /// True if any request has ended since the last snapshot.
    pub(crate) fn wants_hot_tools(&self) -> bool {
        let open = self.file.as_ref();
        open.is_some_and(|open| open.since_snapshot.load(Ordering::Relaxed) > 0)
    }

    /// Records a snapshot of the hot tools.
    pub(crate) fn hot_tools(&self, telemetry: &Telemetry, is_tool: impl Fn(&str) -> bool) {
        if let Some(open) = &self.file {
            open.since_snapshot.store(0, Ordering::Relaxed);
            let tools = telemetry.methods.iter();
            open.queue.push(Event::HotTools(HotTools::of(
                iso_now(),
                open.host.clone(),
                telemetry.totals.request_count,
                tools.filter(|stats| is_tool(&stats.method)),
            )));
        }
    }

    /// Writes what is left, and waits for that, not for long.
    pub(crate) fn finish(&self) {
        if let Some(open) = &self.file
            && !open.queue.close(FLUSH)
        {
            open.log.line("mcp:warning reason=telemetry_unfinished");
        }
        if let Some(spans) = &self.spans {
            spans.exporter.finish(FLUSH);
        }
    }
}

impl Spans {
    fn ended(&self, end: &End, span: Span) {
        if !span.context.is_sampled() {
            return;
        }
        let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.exporter.push(Finished {
            span,
            method: end.method.clone(),
            tool: clean(end.tool.as_deref(), &self.redactor),
            request_id: match &end.id {
                EchoId::Known(id) => {
                    let id = without_secrets(id, &self.redactor);
                    id.map(|id| id.lookup_form().into_owned())
                }
                EchoId::Null | EchoId::Absent => None,
            },
            session: format!("{}.{}", self.host, end.session),
            transport: self.transport,
            protocol: self.protocol,
            error: error_of(end, &self.redactor),
            attempt: end.attempt,
            end_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            latency_us: end.latency_us,
        });
    }
}

/// The error of a request, by the conventions: `tool_error` where the client sees a result that says no.
fn error_of(end: &End, redactor: &Redactor) -> Option<otlp::Error> {
    let problem = match &end.outcome {
        Err(problem) => problem,
        Ok(_) if end.said_no() => {
            return Some(otlp::Error {
                kind: "tool_error",
                code: None,
                message: String::new(),
            });
        }
        Ok(_) => return None,
    };
    let row = problem.kind.row();
    let is_tool = row.surface == Surface::Tool && end.form.shape == Shape::Tool;
    Some(otlp::Error {
        kind: if is_tool { "tool_error" } else { row.name },
        code: (!is_tool).then_some(row.jsonrpc),
        message: redactor.text(&problem.message).into_owned(),
    })
}

/// The client's own words about its request, without secrets, if they are brief.
fn said(object: &Json, redactor: &Redactor) -> Value {
    if object.len() > SAID {
        return object.len().into();
    }
    redactor.json(object).to_value().unwrap_or_default()
}

fn request_event(end: &End, host: &str, redactor: &Redactor) -> RequestEvent {
    let problem = end.outcome.as_ref().err();
    let code = problem.map(|problem| problem.kind.row().code);
    RequestEvent {
        ts: iso_now(),
        session: format!("{host}.{}", end.session),
        request_id: match &end.id {
            EchoId::Known(id) => without_secrets(id, redactor),
            EchoId::Null | EchoId::Absent => None,
        },
        method: end.method.clone(),
        tool: clean(end.tool.as_deref(), redactor),
        generation: end.generation,
        attempt: end.attempt,
        replayed: end.attempt > 1,
        latency_ms: millis(end.latency_us),
        outcome: match code {
            None if end.said_no() => EventOutcome::Error,
            None => EventOutcome::Ok,
            Some(Code::Cancelled) => EventOutcome::Cancelled,
            Some(_) => EventOutcome::Error,
        },
        code,
        fault: problem.and_then(Problem::fault_class),
        input_bytes: end.input_bytes,
        output_bytes: 0,
    }
}

/// The name of a tool, which its server chose.
fn clean(name: Option<&str>, redactor: &Redactor) -> Option<String> {
    name.map(|name| redactor.known(name).into_owned())
}

/// Gives mismatches the ids of their requests as clients wrote them, and takes secrets out of all they say.
pub(crate) fn show_mismatches(mismatches: &mut [SchemaMismatch], redactor: &Redactor) {
    for mismatch in mismatches {
        let id = mismatch.request_id.as_ref();
        mismatch.request_id = id.and_then(|id| without_secrets(id, redactor));
        for text in [
            &mut mismatch.tool,
            &mut mismatch.path,
            &mut mismatch.message,
        ] {
            if let Cow::Owned(clean) = redactor.text(text) {
                *text = clean;
            }
        }
    }
}

/// The client's own words, but for secrets.
fn without_secrets(id: &RequestId, redactor: &Redactor) -> Option<RequestId> {
    let id = client_id(id);
    match redactor.text(id.as_raw()) {
        Cow::Borrowed(_) => Some(id.clone()),
        // A text that lost its closing quote is not an id.
        Cow::Owned(text) => RequestId::parse(&text)
            .or_else(|_| RequestId::parse(&format!("\"{MARK}\"")))
            .ok(),
    }
}

/// Tells hosts apart that share a file: process ids come again, and are the same in containers.
fn host_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    format!("{}-{seconds:x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_recorded_as_it_is_but_for_secrets() {
        let recorded = |raw: &str| {
            let redactor = Redactor::new(["known-value".to_owned()]);
            let id = without_secrets(&RequestId::parse(raw).unwrap(), &redactor).unwrap();
            id.as_raw().to_owned()
        };
        assert_eq!(recorded("1.0"), "1.0");
        assert_eq!(recorded(r#""a-7""#), r#""a-7""#);
        assert_eq!(recorded(r#""Bearer abc 7""#), r#""Bearer [redacted] 7""#);
        assert_eq!(recorded(r#""token=abc""#), r#""token=[redacted]""#);
        assert_eq!(recorded(r#""a known-value""#), r#""a [redacted]""#);
        assert_eq!(recorded(r#""Authorization: abc""#), r#""[redacted]""#);
    }
}
