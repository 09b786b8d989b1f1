//! A small MCP server over HTTP that fails on demand: it restarts, forgets sessions, rejects tokens, cuts
//! answers, and has replicas that do not know each other's sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

/// How often a stream looks for something to send.
const LOOK: Duration = Duration::from_millis(10);

/// The form of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Json,
    Events,
    /// Events with ids. The first stream of each call is cut before the answer.
    CutEvents,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Status(u16),
    /// The connection is cut before the request is carried out.
    CutBefore,
    /// The request is carried out, and the connection is cut before the answer.
    CutAfter,
}

/// One request, as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) http: String,
    pub(crate) path: String,
    /// Scheme and host before the path, as a proxy gets them.
    pub(crate) origin: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

/// Settings and records.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) form: Form,
    /// The sessions of each replica. Without any the server has no sessions.
    pub(crate) replicas: Vec<BTreeSet<String>>,
    pub(crate) token: Option<String>,
    /// `WWW-Authenticate` of a 401.
    pub(crate) challenge: Option<String>,
    /// The metadata of an OAuth resource.
    pub(crate) metadata: Option<Value>,
    /// The only place of the metadata, if not every one.
    pub(crate) metadata_at: Option<String>,
    pub(crate) redirect: Option<String>,
    /// Faults for the next calls of tools.
    pub(crate) faults: VecDeque<Fault>,
    /// A fault for a call, by its arguments.
    pub(crate) chance: Option<Box<dyn DrawFault + Send>>,
    /// Messages for the stream that the client opens.
    pub(crate) notices: VecDeque<Value>,
    pub(crate) effects: BTreeMap<String, u32>,
    pub(crate) seen: Vec<Seen>,
    /// Events of streams that were cut, by the id before them.
    pub(crate) kept: BTreeMap<String, Value>,
    /// Messages of the older transport, by session.
    pub(crate) outgoing: BTreeMap<String, VecDeque<Value>>,
    /// The pause before a stream is resumed, as the server asks for it.
    pub(crate) retry_ms: u64,
    /// Reject the modern era, or know only the older transport.
    pub(crate) only_sse: bool,
    /// Its rejection of a session has the id of the request.
    pub(crate) echoes_ids: bool,
    /// The only era that is spoken, if it is not both: true for the modern one.
    pub(crate) era: Option<bool>,
    pub(crate) next_id: u64,
    pub(crate) turn: usize,
}

/// Draws a fault for a call.
pub(crate) trait DrawFault: std::fmt::Debug {
    fn draw(&mut self) -> Option<Fault>;
}

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    /// Raised with every restart, which ends all connections.
    epoch: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Upstream {
    pub(crate) fn start(world: World) -> anyhow::Result<Self> {
        Self::start_with(world, None)
    }

    pub(crate) fn start_with(
        world: World,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            epoch: AtomicU64::new(0),
            open: Mutex::default(),
            ended: AtomicBool::new(false),
            tls,
        });
        accept(listener, &shared);
        Ok(Self { shared, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://localhost:{}/mcp", self.address.port())
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.shared.world)
    }

    /// Stops listening, and cuts every connection.
    pub(crate) fn go_down(&self) {
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        // Wakes the listener, which ends.
        let _ = TcpStream::connect(self.address);
        for stream in lock(&self.shared.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again; sessions are forgotten if `forgets`.
    pub(crate) fn come_up(&self, forgets: bool) -> anyhow::Result<()> {
        if forgets {
            self.world().replicas.iter_mut().for_each(BTreeSet::clear);
        }
        for _ in 0..500 {
            if let Ok(listener) = TcpListener::bind(self.address) {
                accept(listener, &self.shared);
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        anyhow::bail!("the address is taken")
    }

    /// Requests with this method of JSON-RPC.
    pub(crate) fn asked(&self, method: &str) -> Vec<Seen> {
        let world = self.world();
        let asked = world
            .seen
            .iter()
            .filter(|seen| seen.body["method"] == method);
        asked.cloned().collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.go_down();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    let epoch = shared.epoch.load(Ordering::SeqCst);
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if shared.epoch.load(Ordering::SeqCst) != epoch {
                return;
            }
            if let Ok(copy) = stream.try_clone() {
                lock(&shared.open).push(copy);
            }
            let _ = stream.set_nodelay(true);
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let end = stream.try_clone();
                let served = match &shared.tls {
                    None => Connection::new(&shared, epoch, stream).serve(),
                    Some(tls) => rustls::ServerConnection::new(Arc::clone(tls))
                        .context("TLS")
                        .and_then(|tls| {
                            let stream = rustls::StreamOwned::new(tls, stream);
                            Connection::new(&shared, epoch, stream).serve()
                        }),
                };
                // A connection that breaks is the client's decision.
                let _ = served;
                if let Ok(end) = end {
                    let _ = end.shutdown(Shutdown::Both);
                }
            });
        }
    });
}

struct Connection<S> {
    shared: Arc<Shared>,
    epoch: u64,
    /// The replica that a balancer chose.
    replica: usize,
    stream: S,
    buffer: Vec<u8>,
}

impl<S: Read + Write> Connection<S> {
    fn new(shared: &Arc<Shared>, epoch: u64, stream: S) -> Self {
        let mut world = lock(&shared.world);
        world.turn += 1;
        let replica = world.turn % world.replicas.len().max(1);
        drop(world);
        Self {
            shared: Arc::clone(shared),
            epoch,
            replica,
            stream,
            buffer: Vec::new(),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.shared.world)
    }

    fn is_over(&self) -> bool {
        self.shared.epoch.load(Ordering::SeqCst) != self.epoch
    }

    fn serve(mut self) -> anyhow::Result<()> {
        while let Some(seen) = self.read()? {
            self.world().seen.push(seen.clone());
            if !self.handle(&seen)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read(&mut self) -> anyhow::Result<Option<Seen>> {
        let mut piece = [0; 4096];
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            let count = self.stream.read(&mut piece)?;
            if count == 0 {
                return Ok(None);
            }
            self.buffer.extend_from_slice(&piece[..count]);
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect())?;
        let mut lines = head.lines();
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (http, target) = (
            first.next().unwrap_or_default(),
            first.next().unwrap_or_default(),
        );
        let begin = target.find("://").map_or(0, |at| at + 3);
        let (origin, path) = target.split_at(begin + target[begin..].find('/').unwrap_or(0));
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length: usize = headers
            .get("content-length")
            .map_or(Ok(0), |text| text.parse())?;
        while self.buffer.len() < length {
            let count = self.stream.read(&mut piece)?;
            anyhow::ensure!(count > 0, "half a body");
            self.buffer.extend_from_slice(&piece[..count]);
        }
        let body: Vec<u8> = self.buffer.drain(..length).collect();
        Ok(Some(Seen {
            http: http.to_owned(),
            path: path.to_owned(),
            origin: origin.to_owned(),
            headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        }))
    }

    /// Answers a request. False if the connection ends.
    fn handle(&mut self, seen: &Seen) -> anyhow::Result<bool> {
        if seen.path.starts_with("/.well-known/") {
            let place = self.world().metadata_at.clone();
            let is_here = place.is_none_or(|place| place == seen.path);
            let metadata = self.world().metadata.clone().filter(|_| is_here);
            return match metadata {
                Some(metadata) => self.answer(200, "", &metadata.to_string()),
                None => self.answer(404, "", "{}"),
            };
        }
        let token = self.world().token.clone();
        let challenge = self.world().challenge.clone();
        if let Some(token) = token
            && seen.headers.get("authorization") != Some(&format!("Bearer {token}"))
        {
            let challenge = challenge.unwrap_or_else(|| "Bearer".to_owned());
            let extra = format!("WWW-Authenticate: {challenge}\r\n");
            return self.answer(401, &extra, "");
        }
        let redirect = self.world().redirect.clone();
        if let Some(place) = redirect
            && seen.path == "/mcp"
        {
            return self.answer(307, &format!("Location: {place}\r\n"), "");
        }
        let only_sse = self.world().only_sse;
        match (seen.http.as_str(), seen.path.split('?').next()) {
            ("GET", Some("/sse")) => self.old_stream(),
            ("POST", Some("/messages")) => self.old_post(seen),
            ("POST", Some("/mcp" | "/moved")) if !only_sse => self.post(seen),
            ("GET", Some("/mcp")) if only_sse => self.old_stream(),
            ("GET", Some("/mcp")) => self.get(seen),
            ("DELETE", Some("/mcp")) => self.answer(200, "", ""),
            _ => self.answer(405, "", ""),
        }
    }

    fn post(&mut self, seen: &Seen) -> anyhow::Result<bool> {
        let method = seen.body["method"].as_str().unwrap_or_default().to_owned();
        let is_modern = seen
            .headers
            .get("mcp-protocol-version")
            .is_some_and(|v| v == "2026-07-28");
        let era = self.world().era;
        if era.is_some_and(|only_modern| only_modern != is_modern) {
            let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32022, "message": "unsupported protocol version"}});
            return self.answer(400, "", &error.to_string());
        }
        let session = seen.headers.get("mcp-session-id").cloned();
        let has_sessions = !self.world().replicas.is_empty();
        if has_sessions && !is_modern && method != "initialize" {
            let replica = self.replica;
            let known = session.is_some_and(|id| self.world().replicas[replica].contains(&id));
            if !known {
                let echoed = seen.body["id"].clone();
                let id = if self.world().echoes_ids {
                    echoed
                } else {
                    Value::Null
                };
                let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32001, "message": "Session not found"}});
                return self.answer(404, "", &error.to_string());
            }
        }
        if seen.body.get("id").is_none() || seen.body.get("method").is_none() {
            return self.answer(202, "", "");
        }
        if is_modern {
            let name = seen.headers.get("mcp-name").map(String::as_str);
            let named = seen.body["params"]["name"].as_str();
            let region = seen.headers.get("mcp-param-region").map(String::as_str);
            let fits = seen.headers.get("mcp-method") == Some(&method)
                && name == named
                && region == seen.body["params"]["arguments"]["region"].as_str();
            if !fits {
                let error = json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": -32020, "message": "headers"}});
                return self.answer(400, "", &error.to_string());
            }
        }
        let fault = {
            let mut world = self.world();
            let next = (method == "tools/call")
                .then(|| world.faults.pop_front())
                .flatten();
            next.or_else(|| world.chance.as_mut().and_then(|chance| chance.draw()))
        };
        match fault {
            Some(Fault::Status(status)) => return self.answer(status, "", ""),
            Some(Fault::CutBefore) => return Ok(false),
            Some(Fault::CutAfter) | None => {}
        }
        let answer = self.carry_out(&seen.body, &method, is_modern);
        if fault == Some(Fault::CutAfter) {
            return Ok(false);
        }
        let mut extra = String::new();
        if method == "initialize" && has_sessions {
            let mut world = self.world();
            world.next_id += 1;
            let id = format!("session-{}", world.next_id);
            let replica = self.replica;
            world.replicas[replica].insert(id.clone());
            extra = format!("Mcp-Session-Id: {id}\r\n");
        }
        let form = if method == "tools/call" {
            self.world().form
        } else {
            Form::Json
        };
        match form {
            Form::Json => self.answer(200, &extra, &answer.to_string()),
            Form::Events => self.events(&extra, &format!("event: message\ndata: {answer}\n\n")),
            Form::CutEvents => {
                let mut world = self.world();
                world.next_id += 1;
                let id = format!("event-{}", world.next_id);
                world.kept.insert(id.clone(), answer);
                let retry = world.retry_ms.max(10);
                drop(world);
                self.events(&extra, &format!("retry: {retry}\nid: {id}\ndata: \n\n"))
            }
        }
    }

    fn carry_out(&self, body: &Value, method: &str, is_modern: bool) -> Value {
        let params = &body["params"];
        let mut result = match method {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "upstream", "version": "1"},
            }),
            "server/discover" if is_modern => json!({
                "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "upstream", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/list" => json!({"tools": [
                {"name": "read", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object",
                    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}},
                {"name": "effect", "inputSchema": {"type": "object"}},
            ]}),
            "tools/call" if params["name"] == "effect" => {
                let key = params["arguments"]["key"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                *self.world().effects.entry(key).or_default() += 1;
                json!({"content": [{"type": "text", "text": "done"}]})
            }
            "tools/call" => {
                if let Some(pause) = params["arguments"]["pause_ms"].as_u64() {
                    thread::sleep(Duration::from_millis(pause));
                }
                json!({"content": [{"type": "text", "text": params["arguments"]["key"]}]})
            }
            "ping" | "logging/setLevel" => json!({}),
            _ => {
                return json!({"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32601, "message": "method not found"}});
            }
        };
        if is_modern {
            result["resultType"] = json!("complete");
        }
        json!({"jsonrpc": "2.0", "id": body["id"], "result": result})
    }

    fn get(&mut self, seen: &Seen) -> anyhow::Result<bool> {
        if let Some(last) = seen.headers.get("last-event-id") {
            let kept = self.world().kept.remove(last);
            if let Some(answer) = kept {
                return self.events("", &format!("id: {last}-answer\ndata: {answer}\n\n"));
            }
        }
        self.begin_events("")?;
        while !self.is_over() {
            let notice = self.world().notices.pop_front();
            match notice {
                Some(notice) => write!(self.stream, "data: {notice}\n\n")?,
                None => {
                    thread::sleep(LOOK);
                    // A client that left is noticed.
                    writeln!(self.stream, ":")?;
                }
            }
            self.stream.flush()?;
        }
        Ok(false)
    }

    fn old_stream(&mut self) -> anyhow::Result<bool> {
        let id = {
            let mut world = self.world();
            world.next_id += 1;
            let id = format!("old-{}", world.next_id);
            world.outgoing.insert(id.clone(), VecDeque::new());
            id
        };
        self.begin_events("")?;
        write!(
            self.stream,
            "event: endpoint\ndata: /messages?session={id}\n\n"
        )?;
        while !self.is_over() {
            let message = self
                .world()
                .outgoing
                .get_mut(&id)
                .and_then(VecDeque::pop_front);
            match message {
                Some(message) => write!(self.stream, "event: message\ndata: {message}\n\n")?,
                None => {
                    thread::sleep(LOOK);
                    writeln!(self.stream, ":")?;
                }
            }
            self.stream.flush()?;
        }
        self.world().outgoing.remove(&id);
        Ok(false)
    }

    fn old_post(&mut self, seen: &Seen) -> anyhow::Result<bool> {
        let id = seen
            .path
            .split_once("session=")
            .map(|(_, id)| id.to_owned());
        let known = id.filter(|id| self.world().outgoing.contains_key(id));
        let Some(id) = known else {
            return self.answer(404, "", "");
        };
        if seen.body.get("id").is_some() && seen.body.get("method").is_some() {
            let method = seen.body["method"].as_str().unwrap_or_default();
            let answer = self.carry_out(&seen.body, method, false);
            if let Some(queue) = self.world().outgoing.get_mut(&id) {
                queue.push_back(answer);
            }
        }
        self.answer(202, "", "")
    }

    fn answer(&mut self, status: u16, extra: &str, body: &str) -> anyhow::Result<bool> {
        let length = body.len();
        write!(
            self.stream,
            "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{extra}\r\n{body}"
        )?;
        self.stream.flush()?;
        Ok(true)
    }

    fn begin_events(&mut self, extra: &str) -> anyhow::Result<()> {
        write!(
            self.stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n{extra}\r\n"
        )?;
        self.stream.flush()?;
        Ok(())
    }

    fn events(&mut self, extra: &str, events: &str) -> anyhow::Result<bool> {
        self.begin_events(extra)?;
        self.stream.write_all(events.as_bytes())?;
        self.stream.flush()?;
        Ok(false)
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
