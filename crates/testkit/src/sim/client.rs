//! A simulated client: it writes its script, reads what comes, and notes both.

use std::sync::Arc;
use std::time::Duration;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_host::sim::{Over, PipeReader, PipeWriter, Weather};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::book::{Asked, Book, ClientPage, Outcome};
use super::plan::{Backend, ClientPlan, Route, Speech, Step, Tool};

/// Longest line that a client reads.
const LINE: usize = 1 << 20;
/// Bytes of an oversize request.
const OVERSIZE: usize = 6000;
/// Number of the first request after the script.
const AFTERWARDS: u64 = 1000;
/// The longest wait for answers inside a script.
const PATIENCE: Duration = Duration::from_secs(100);

/// The half that writes.
#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    plan: ClientPlan,
    book: Book,
    pipe: Option<PipeWriter>,
    over: Over,
    /// Its session begins with a handshake.
    shakes_hands: bool,
    backend: Backend,
    /// Tells the half that reads to leave.
    leave: Arc<Notify>,
    next: u64,
}

impl Client {
    /// A client and the half of it that reads.
    pub(super) fn new(
        number: usize,
        plan: &ClientPlan,
        book: &Book,
        weather: &Weather,
        (writes, reads): (PipeWriter, PipeReader),
        over: Over,
        backend: Backend,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let leave = Arc::new(Notify::new());
        let client = Self {
            number,
            plan: plan.clone(),
            book: book.clone(),
            pipe: Some(writes),
            over,
            shakes_hands: plan.speech == Speech::Legacy
                && (backend != Backend::Pack || plan.route != Route::Pipe),
            backend,
            leave: Arc::clone(&leave),
            next: 1,
        };
        let reader = Reader {
            number,
            hears_log: client.shakes_hands,
            pauses: plan.pauses.clone(),
            book: book.clone(),
            weather: weather.clone(),
            leave,
        };
        (client, reader.run(reads))
    }

    /// Carries out the script.
    pub(super) async fn script(&mut self) {
        if self.shakes_hands {
            self.shake_hands().await;
        }
        for step in self.plan.steps.clone() {
            self.step(step).await;
        }
    }

    async fn shake_hands(&mut self) {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "simulated", "version": "0"},
        });
        self.request("initialize", Some(params), None).await;
        self.wait().await;
        let is_open = self.page(|page| {
            let first = page
                .requests
                .first()
                .and_then(|asked| asked.answers.first());
            first == Some(&EXTRA)
        });
        if is_open {
            self.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
                .await;
        } else {
            // Without a session there is nothing to ask.
            self.leave();
        }
    }

    async fn set_level(&mut self) {
        let levels = ["debug", "info", "notice", "warning"];
        let level = levels[usize::try_from(self.next).unwrap_or(0) % levels.len()];
        let id = self.next.to_string();
        // Calls in flight may be answered under either level.
        self.wait().await;
        self.request("logging/setLevel", Some(json!({ "level": level })), None)
            .await;
        self.wait().await;
        self.page(|page| {
            let asked = page.requests.iter().find(|asked| asked.id == id);
            let answer = asked.and_then(|asked| asked.answers.first());
            match answer {
                Some(Outcome::Done(_)) => level.clone_into(&mut page.level),
                // The server may have taken it.
                _ => UNKNOWN.clone_into(&mut page.level),
            }
        });
    }

    async fn subscribe(&mut self) {
        let scheme = Backend::key_of(self.next);
        let uri = format!("{scheme}:///{}", own_resource(self.number));
        self.request("resources/subscribe", Some(json!({ "uri": uri })), None)
            .await;
    }

    /// One more call, which nothing may hold up.
    pub(super) async fn last_call(&mut self) {
        self.next = self.next.max(AFTERWARDS);
        self.call(Tool::Get, 10, false).await;
    }

    /// Whether it can still ask something.
    pub(super) const fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Whether a pipe connects it with the host.
    pub(super) fn is_piped(&self) -> bool {
        self.plan.route == Route::Pipe
    }

    /// Whether a link for it may be open: that of a modern caller stays until it is idle for long.
    pub(super) fn may_keep_link(&self) -> bool {
        !self.is_piped() && (self.is_open() || self.plan.speech == Speech::Modern)
    }

    /// Sends nothing more.
    pub(super) fn close_input(&mut self) {
        self.pipe = None;
        self.page(|page| page.input_closed = true);
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Call { tool, size, token } => self.call(tool, size, token).await,
            Step::Ping => self.request("ping", None, None).await,
            Step::List => self.list().await,
            Step::SetLevel => self.set_level().await,
            Step::Subscribe => self.subscribe().await,
            Step::Cancel { answered } => self.cancel(answered).await,
            Step::Junk => {
                self.page(|page| page.junk += 1);
                self.write(b"{\"jsonrpc\":\"2.0\",\"id\":\n").await;
            }
            Step::Oversize => {
                let fill = "x".repeat(OVERSIZE);
                let refused = Some(ErrorKind::FrameTooLarge);
                self.request("tools/list", Some(json!({ "fill": fill })), refused)
                    .await;
            }
            Step::Again => self.again().await,
            Step::Pause(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Step::Await => self.wait().await,
            Step::OpenLine => {
                let (number, mut line) = self.prepare(Tool::Get, 10, false);
                line.pop();
                self.send(number, line).await;
                self.close_input();
            }
            Step::HalfLine => {
                let (_, mut line) = self.prepare(Tool::Pay, 10, false);
                line.truncate(line.len() / 2);
                self.write(&line).await;
                self.leave();
            }
            Step::CloseInput => self.close_input(),
            Step::Leave => self.leave(),
        }
    }

    fn leave(&mut self) {
        self.pipe = None;
        self.page(|page| {
            page.left = true;
            page.input_closed = true;
        });
        self.leave.notify_one();
    }

    async fn wait(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answered = self.book.answered.notified();
            tokio::pin!(answered);
            // Registered before the look, so that no answer is missed.
            answered.as_mut().enable();
            let waits = self.page(|page| page.requests.iter().any(Asked::is_open));
            if !waits || tokio::time::timeout_at(until, answered).await.is_err() {
                return;
            }
        }
    }

    async fn call(&mut self, tool: Tool, size: usize, token: bool) {
        let (number, line) = self.prepare(tool, size, token);
        self.send(number, line).await;
    }

    /// Notes a call and makes its line.
    fn prepare(&mut self, tool: Tool, size: usize, token: bool) -> (usize, Vec<u8>) {
        let id = self.next;
        let key = format!("c{}-{id}", self.number);
        let arguments = json!({"key": key, "size": size});
        let (method, mut params) = match self.plan.speech {
            Speech::Direct => (tool.name(), arguments),
            Speech::Legacy | Speech::Modern => {
                let name = self.backend.name_of(tool, id);
                let params = json!({"name": name, "arguments": arguments});
                ("tools/call", params)
            }
        };
        let mut meta = match self.plan.speech {
            Speech::Modern => modern_meta(),
            Speech::Legacy | Speech::Direct => json!({}),
        };
        let token = token && self.plan.speech != Speech::Direct;
        if token {
            meta["progressToken"] = json!(format!("t{id}"));
        }
        if meta.as_object().is_some_and(|meta| !meta.is_empty()) {
            params["_meta"] = meta;
        }
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.note(Some(tool), key, token, None, &line)
    }

    async fn list(&mut self) {
        let params = match self.plan.speech {
            Speech::Modern => Some(json!({"_meta": modern_meta()})),
            Speech::Legacy | Speech::Direct => None,
        };
        self.request("tools/list", params, None).await;
    }

    async fn request(&mut self, method: &str, params: Option<Value>, refused: Option<ErrorKind>) {
        let id = self.next;
        let mut line = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if let Some(params) = params {
            line["params"] = params;
        }
        let (number, line) = self.note(None, String::new(), false, refused, &line);
        self.send(number, line).await;
    }

    fn note(
        &mut self,
        tool: Option<Tool>,
        key: String,
        token: bool,
        refused: Option<ErrorKind>,
        line: &Value,
    ) -> (usize, Vec<u8>) {
        let asked = Asked {
            id: self.next.to_string(),
            tool,
            key,
            token,
            refused,
            at: Instant::now(),
            whole: false,
            cancelled: None,
            level: self.page(|page| page.level.clone()),
            extra: 0,
            answers: Vec::new(),
        };
        self.next += 1;
        let number = self.page(|page| {
            page.requests.push(asked);
            page.requests.len() - 1
        });
        let mut line = line.to_string().into_bytes();
        line.push(b'\n');
        (number, line)
    }

    async fn send(&mut self, number: usize, line: Vec<u8>) {
        // It counts from its first byte: the answer may be faster than the last write's return.
        self.page(|page| {
            if let Some(asked) = page.requests.get_mut(number) {
                asked.whole = true;
                asked.at = Instant::now();
            }
        });
        if !self.write(&line).await {
            self.page(|page| {
                if let Some(asked) = page.requests.get_mut(number) {
                    asked.whole = false;
                }
            });
        }
    }

    /// Sends the id of an open call a second time.
    async fn again(&mut self) {
        let id = self.page(|page| {
            let open = page.requests.iter_mut().rev();
            let asked = open
                .filter(|asked| asked.tool.is_some())
                .find(|asked| asked.is_open())?;
            asked.extra += 1;
            Some(asked.id.clone())
        });
        if let Some(id) = id {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
            self.write(line.as_bytes()).await;
        }
    }

    async fn cancel(&mut self, answered: bool) {
        let id = self.page(|page| {
            let open = page.requests.iter_mut().rev();
            let mut open = open.filter(|asked| asked.tool.is_some() && asked.cancelled.is_none());
            let asked = open.find(|asked| asked.is_open())?;
            asked.cancelled = Some(answered);
            Some(asked.id.clone())
        });
        let Some(id) = id else { return };
        let (method, key) = if answered {
            ("$/cancelRequest", "id")
        } else {
            ("notifications/cancelled", "requestId")
        };
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{{\"{key}\":{id}}}}}\n"
        );
        self.write(line.as_bytes()).await;
    }

    async fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(pipe) = &mut self.pipe else {
            return false;
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let wrote = tokio::select! {
                biased;
                wrote = pipe.write(rest) => wrote,
                () = self.over.wait() => return false,
            };
            match wrote {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(_) => return false,
            }
        }
        true
    }

    fn page<R>(&self, with: impl FnOnce(&mut ClientPage) -> R) -> R {
        let mut pages = self.book.lock();
        while pages.clients.len() <= self.number {
            pages.clients.push(ClientPage::default());
        }
        with(&mut pages.clients[self.number])
    }
}

/// The half that reads.
struct Reader {
    number: usize,
    hears_log: bool,
    pauses: Vec<(usize, u64)>,
    book: Book,
    weather: Weather,
    leave: Arc<Notify>,
}

impl Reader {
    async fn run(mut self, mut pipe: PipeReader) {
        let mut frames = FrameReader::new(LINE);
        let mut bytes = 0;
        self.pauses.sort_unstable();
        let mut pauses = std::mem::take(&mut self.pauses).into_iter().peekable();
        loop {
            while let Some((_, ms)) = pauses.next_if(|(after, _)| *after <= bytes) {
                if self.weather.is_calm() {
                    continue;
                }
                tokio::select! {
                    biased;
                    () = self.leave.notified() => return,
                    () = tokio::time::sleep(Duration::from_millis(ms)) => {}
                }
            }
            let count = tokio::select! {
                biased;
                () = self.leave.notified() => return,
                count = pipe.read(frames.spare()) => count,
            };
            bytes += count;
            if count == 0 {
                self.end(&mut frames);
                return;
            }
            frames.filled(count);
            let mut lines = Vec::new();
            while let Some(frame) = frames.next_frame() {
                if let Frame::Line(line) = frame {
                    lines.push(line.to_vec());
                }
            }
            for line in lines {
                self.line(&line);
            }
        }
    }

    fn end(&self, frames: &mut FrameReader) {
        let stopped = {
            let mut pages = self.book.lock();
            if let Some(page) = pages.clients.get_mut(self.number) {
                page.ended = true;
            }
            pages.stopped.is_some()
        };
        // A host that stops leaves clients that do not read.
        if let Some(Frame::Line(line)) = frames.finish()
            && !stopped
        {
            let line = String::from_utf8_lossy(line).into_owned();
            self.book.violation("a message is cut", line);
        }
        self.book.answered.notify_waiters();
    }

    fn line(&self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            let line = String::from_utf8_lossy(line)
                .chars()
                .take(200)
                .collect::<String>();
            return self.book.violation("a line is not JSON", line);
        };
        if message.get("method").is_some() {
            self.notification(&message);
        } else {
            self.answer(&message);
        }
        self.book.answered.notify_waiters();
    }

    fn notification(&self, message: &Value) {
        // A client that shook hands gets log messages.
        if message["method"] == "notifications/message" && self.hears_log {
            return;
        }
        // A pack that starts late brings its tools.
        let method = message["method"].as_str().unwrap_or_default();
        if self.hears_log && method.ends_with("/list_changed") {
            return;
        }
        if method == "notifications/resources/updated" && self.hears_log {
            let uri = message["params"]["uri"].as_str().unwrap_or_default();
            if !uri.ends_with(&format!("/{}", own_resource(self.number))) {
                let detail = format!("client {}: {message}", self.number);
                self.book.violation("an update of another session", detail);
            }
            return;
        }
        if message["method"] != "notifications/progress" {
            let text = message.to_string();
            return self.book.violation("a message that nobody asked for", text);
        }
        let params = &message["params"];
        // Some servers name the call in the message.
        let call = params["message"]
            .as_str()
            .filter(|call| call.starts_with('c'));
        if call.is_some_and(|call| !call.starts_with(&format!("c{}-", self.number))) {
            let detail = format!("client {}: {message}", self.number);
            return self.book.violation("progress of another session", detail);
        }
        let id = match params["progressToken"].as_str() {
            Some(token) => token.trim_start_matches('t').to_owned(),
            None => params["id"].to_string(),
        };
        let has_token = params.get("progressToken").is_some();
        let pages = self.book.lock();
        let page = pages.clients.get(self.number);
        let asked = page.and_then(|page| page.requests.iter().find(|asked| asked.id == id));
        let verdict = match asked {
            None => Some("progress for an unknown call"),
            Some(asked) if has_token != asked.token => Some("progress that nobody asked for"),
            Some(asked) if asked.extra == 0 && !asked.answers.is_empty() => {
                Some("progress after the answer")
            }
            Some(_) => None,
        };
        drop(pages);
        if let Some(rule) = verdict {
            self.book.violation(rule, message.to_string());
        }
    }

    fn answer(&self, message: &Value) {
        let what = outcome(message);
        let mut pages = self.book.lock();
        let Some(page) = pages.clients.get_mut(self.number) else {
            return;
        };
        let id = &message["id"];
        if id.is_null() {
            page.junk_answers += 1;
            return;
        }
        let id = id.to_string();
        let number = page.requests.iter().position(|asked| asked.id == id);
        let Some(number) = number else {
            drop(pages);
            let text: String = message.to_string().chars().take(200).collect();
            return self.book.violation("an answer that nobody waits for", text);
        };
        page.order.push(number);
        if let Some(asked) = page.requests.get_mut(number) {
            let level = message["result"]["structuredContent"]["level"].as_str();
            let is_certain =
                asked.level != UNKNOWN && asked.cancelled.is_none() && asked.extra == 0;
            let is_right = |level: &&str| *level == asked.level || !is_certain;
            let what = match level.filter(|level| !is_right(level)) {
                Some(level) => Outcome::WrongLevel(level.to_owned()),
                None => what,
            };
            asked.answers.push(what);
        }
    }
}

/// The resource that a client subscribes to.
fn own_resource(number: usize) -> String {
    format!("of-client-{number}")
}

/// A log level that may be one or the other.
const UNKNOWN: &str = "?";

fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// The answer of a ping.
const EXTRA: Outcome = Outcome::Done(None);

/// Reads the line of an answer.
pub(super) fn read(line: &str) -> Outcome {
    match serde_json::from_str(line) {
        Ok(message) => outcome(&message),
        Err(error) => Outcome::Odd(error.to_string()),
    }
}

/// Reads an answer in any dialect.
fn outcome(message: &Value) -> Outcome {
    if let Some(error) = message.get("error") {
        return failure(error["message"].as_str());
    }
    let result = &message["result"];
    if result["isError"] == true || result["ok"] == false {
        let text = result["content"][0]["text"].as_str();
        let payload = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let payload = payload.as_ref().unwrap_or(result);
        let words = payload["message"].as_str().or(payload["detail"].as_str());
        let oversize = payload["errors"][0]["msg"].as_str();
        return failure(words.or(oversize));
    }
    done(result.get("structuredContent").unwrap_or(result))
}

/// Reads the structured content of a success.
pub(super) fn done(structured: &Value) -> Outcome {
    // The answer of a probe stands for that of the lost call.
    let structured = structured
        .pointer("/probe/structuredContent")
        .unwrap_or(structured);
    Outcome::Done(structured["key"].as_str().map(str::to_owned))
}

fn failure(words: Option<&str>) -> Outcome {
    let words = words.unwrap_or_default();
    // A pack that is not known may have the tool.
    if words.contains("which may have it, cannot start") {
        return Outcome::Failed(ErrorKind::WorkerUnavailable);
    }
    // Some kinds have sentences of their own.
    let own = [
        ("there is no tool", ErrorKind::UnknownTool),
        ("the host was upgraded before", ErrorKind::ShuttingDown),
        ("the process that checks", ErrorKind::Internal),
        ("the value could not be checked", ErrorKind::Timeout),
    ];
    if let Some((_, kind)) = own.iter().find(|(start, _)| words.starts_with(start)) {
        return Outcome::Failed(*kind);
    }
    let of = |kind: &&ErrorKind| words.starts_with(kind.row().message);
    let longest = ErrorKind::ALL.iter().filter(of);
    match longest.max_by_key(|kind| kind.row().message.len()) {
        Some(ErrorKind::NotFound) => Outcome::Refused,
        Some(kind) => Outcome::Failed(*kind),
        None => Outcome::Odd(words.to_owned()),
    }
}
