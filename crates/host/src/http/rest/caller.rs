//! A client of a wrapped server, for requests that are no MCP: one link for each credential.
//!
//! It speaks the modern era where the server does, else the legacy one, and offers nothing: what the
//! server asks is refused. Whoever goes away before its answer cancels what was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_contract::dialect::{LEGACY_VERSIONS, MODERN_VERSION, Relayed, relay};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Problem;
use mainstay_contract::scan;
use tokio::sync::{Notify, OnceCell, oneshot};

use super::super::Front;
use super::super::access::Credential;
use super::super::body::lock;
use super::super::link::{self, Back, Input, Output, lines};

/// Member of a request's parameters that is about the request itself.
pub(super) const META: &str = "_meta";

/// What a server answered.
#[derive(Debug)]
pub(super) enum Said {
    Result(Json),
    Error(Json),
}

/// Every credential's client.
#[derive(Debug, Default)]
pub(in super::super) struct Callers(Mutex<BTreeMap<Credential, Arc<OnceCell<Caller>>>>);

impl Callers {
    /// The client of a credential, opened if it must be.
    pub(super) async fn of(&self, front: &Front, who: &Credential) -> Result<Handle, Problem> {
        let cell = {
            let mut all = lock(&self.0);
            if all
                .get(who)
                .is_some_and(|cell| cell.get().is_some_and(Caller::is_over))
            {
                all.remove(who);
            }
            if !all.contains_key(who) && !has_room(&mut all, front.limits.http_sessions) {
                return Err(Problem::of(ErrorKind::Overloaded));
            }
            Arc::clone(all.entry(who.clone()).or_default())
        };
        let (back, limits) = (front.back.as_ref(), &front.limits);
        let open = Caller::open(back, limits, &front.version);
        cell.get_or_try_init(|| open).await?;
        Ok(Handle(cell))
    }

    /// Ends what nobody has used for too long.
    pub(in super::super) fn sweep(&self, idle: Duration) {
        lock(&self.0).retain(|_, cell| {
            let over = |caller: &Caller| caller.is_over() || caller.idle() >= idle;
            !cell.get().is_some_and(over)
        });
    }
}

/// The one that has been idle for longest goes if there are too many.
fn has_room(all: &mut BTreeMap<Credential, Arc<OnceCell<Caller>>>, most: usize) -> bool {
    if all.len() < most {
        return true;
    }
    let idle = |cell: &Arc<OnceCell<Caller>>| cell.get().map_or(Duration::ZERO, Caller::idle);
    let idlest = all.iter().max_by_key(|(_, cell)| idle(cell));
    let idlest = idlest.filter(|(_, cell)| !idle(cell).is_zero());
    let Some(key) = idlest.map(|(key, _)| key.clone()) else {
        return false;
    };
    all.remove(&key).is_some()
}

/// An open client.
#[derive(Debug)]
pub(super) struct Handle(Arc<OnceCell<Caller>>);

impl Handle {
    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, method: &str, params: &[(&str, &str)]) -> Result<Said, Problem> {
        match self.0.get() {
            Some(caller) => caller.ask(method, params).await,
            None => Err(gone()),
        }
    }

    /// What the server calls itself, and its version.
    pub(super) fn server(&self) -> Option<(String, String)> {
        self.0.get().and_then(|caller| caller.server.clone())
    }
}

fn gone() -> Problem {
    Problem::of(ErrorKind::WorkerUnavailable)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// A link and what is asked on it.
#[derive(Debug)]
struct Caller {
    line: Arc<Line>,
    era: Era,
    /// The `_meta` of every modern request.
    meta: String,
    server: Option<(String, String)>,
}

#[derive(Debug)]
struct Line {
    input: Input,
    desk: Mutex<Desk>,
    ends: Notify,
}

#[derive(Debug)]
struct Desk {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Said>>,
    used: Instant,
    is_over: bool,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.line.ends.notify_one();
    }
}

impl Caller {
    async fn open(back: &dyn Back, limits: &Limits, version: &str) -> Result<Self, Problem> {
        let (input, output) = link::open(back).await;
        let line = Arc::new(Line {
            input,
            desk: Mutex::new(Desk {
                next: 0,
                waiting: BTreeMap::new(),
                used: Instant::now(),
                is_over: false,
            }),
            ends: Notify::new(),
        });
        let (sorting, depth) = (Arc::clone(&line), limits.json_depth);
        tokio::spawn(async move { sorting.sort(output, depth).await });
        let about = ObjectWriter::with_capacity(64)
            .string("name", "mainstay")
            .string("version", version)
            .finish();
        let meta = ObjectWriter::with_capacity(256)
            .string("io.modelcontextprotocol/protocolVersion", MODERN_VERSION)
            .raw("io.modelcontextprotocol/clientInfo", &about)
            .raw("io.modelcontextprotocol/clientCapabilities", "{}")
            .finish();
        let mut caller = Self {
            line,
            era: Era::Modern,
            meta,
            server: None,
        };
        // A server that is slow to start is waited for; the host answers in its place if it must.
        let patience = Duration::from_millis(limits.start_timeout_ms.saturating_mul(2));
        match tokio::time::timeout(patience, caller.shake_hands(&about)).await {
            Ok(Ok(())) => Ok(caller),
            Ok(Err(problem)) => Err(problem),
            Err(_) => Err(gone()),
        }
    }

    async fn shake_hands(&mut self, about: &str) -> Result<(), Problem> {
        if let Said::Result(result) = self.ask("server/discover", &[]).await?
            && speaks_modern(&result)
        {
            self.server = server_info(&result);
            return Ok(());
        }
        self.era = Era::Legacy;
        let mut versions = LEGACY_VERSIONS.to_vec();
        versions.sort_unstable();
        let newest = format!("{:?}", versions.last().copied().unwrap_or_default());
        let params = [
            ("protocolVersion", newest.as_str()),
            ("capabilities", "{}"),
            ("clientInfo", about),
        ];
        match self.ask("initialize", &params).await? {
            Said::Result(result) => self.server = server_info(&result),
            Said::Error(error) => return Err(super::wrapped::problem_of(&error)),
        }
        let notice = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        if self.line.input.say(notice).await {
            Ok(())
        } else {
            Err(gone())
        }
    }

    async fn ask(&self, method: &str, params: &[(&str, &str)]) -> Result<Said, Problem> {
        let mut object = ObjectWriter::with_capacity(256);
        for (name, value) in params {
            if *name != META {
                object = object.raw(name, value);
            }
        }
        let own = params.iter().find(|(name, _)| *name == META);
        let own = own.map_or("{}", |(_, value)| *value);
        if self.era == Era::Modern {
            let meta = ObjectWriter::with_capacity(self.meta.len() + own.len())
                .members_of(&self.meta)
                .members_of(own);
            object = object.raw(META, &meta.finish());
        } else if own != "{}" {
            object = object.raw(META, own);
        }
        let (asked, answer) = Asked::new(&self.line).ok_or_else(gone)?;
        let line = ObjectWriter::with_capacity(320)
            .string("jsonrpc", "2.0")
            .value("id", &asked.number)
            .string("method", method)
            .raw("params", &object.finish())
            .finish();
        if !self.line.input.say(line.as_bytes()).await {
            return Err(gone());
        }
        answer.await.map_err(|_| gone())
    }

    fn is_over(&self) -> bool {
        lock(&self.line.desk).is_over
    }

    fn idle(&self) -> Duration {
        let desk = lock(&self.line.desk);
        if desk.waiting.is_empty() {
            desk.used.elapsed()
        } else {
            Duration::ZERO
        }
    }
}

/// A request in flight, cancelled when nobody waits for it any more.
struct Asked<'a> {
    line: &'a Line,
    number: u64,
}

impl<'a> Asked<'a> {
    fn new(line: &'a Line) -> Option<(Self, oneshot::Receiver<Said>)> {
        let mut desk = lock(&line.desk);
        if desk.is_over {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        desk.next += 1;
        let number = desk.next;
        desk.waiting.insert(number, reply);
        drop(desk);
        Some((Self { line, number }, answer))
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut desk = lock(&self.line.desk);
        desk.used = Instant::now();
        if desk.waiting.remove(&self.number).is_some() && !desk.is_over {
            let number = self.number;
            self.line.input.say_later(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number},"reason":"the client went away"}}}}"#
            ));
        }
    }
}

impl Line {
    /// Sorts what the server says, until it says no more or nobody asks any more.
    async fn sort(&self, mut output: Output, depth: usize) {
        let sorting = async {
            while let Some(chunk) = output.recv().await {
                for line in lines(&chunk) {
                    self.deliver(line, depth);
                }
            }
        };
        tokio::select! {
            () = sorting => {}
            () = self.ends.notified() => {}
        }
        let mut desk = lock(&self.desk);
        desk.is_over = true;
        desk.waiting.clear();
    }

    fn deliver(&self, line: &[u8], depth: usize) {
        match relay(line, depth) {
            Ok(Relayed::Answer { id, result, error }) => {
                let number = id.as_raw().parse().ok();
                let waiting = number.and_then(|id: u64| lock(&self.desk).waiting.remove(&id));
                let said = match (result, error) {
                    (Some(result), _) => Said::Result(Json::from_scanned(result)),
                    (None, error) => Said::Error(Json::from_scanned(error.unwrap_or("{}"))),
                };
                if let Some(waiting) = waiting {
                    let _ = waiting.send(said);
                }
            }
            Ok(Relayed::Request(request)) => {
                let (id, method) = (request.id.as_raw(), request.method.as_ref());
                let answer = if method == "ping" {
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
                } else {
                    format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"the client offers nothing"}}}}"#
                    )
                };
                self.input.say_later(&answer);
            }
            Ok(Relayed::Notice { .. }) | Err(_) => {}
        }
    }
}

fn speaks_modern(discovered: &Json) -> bool {
    let versions = scan::member(discovered.as_str(), "supportedVersions");
    versions.is_none_or(|versions| {
        let versions: Vec<String> = serde_json::from_str(versions).unwrap_or_default();
        versions.iter().any(|version| version == MODERN_VERSION)
    })
}

fn server_info(result: &Json) -> Option<(String, String)> {
    let result = result.as_str();
    let meta = || {
        scan::member(
            scan::member(result, "_meta")?,
            "io.modelcontextprotocol/serverInfo",
        )
    };
    let info = scan::member(result, "serverInfo").or_else(meta)?;
    let text = |name| scan::unquote(scan::member(info, name)?);
    Some((text("name")?.into_owned(), text("version")?.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_our_revision_is_spoken_to_in_the_older_way() {
        let speaks = |text: &str| speaks_modern(&Json::parse(text).unwrap());
        assert!(speaks(
            r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#
        ));
        assert!(speaks("{}"));
        assert!(!speaks(r#"{"supportedVersions":["2027-01-01"]}"#));
    }

    #[test]
    fn a_server_says_who_it_is_in_either_place() {
        let info = |text: &str| server_info(&Json::parse(text).unwrap());
        let wanted = Some(("a".to_owned(), "1".to_owned()));
        assert_eq!(info(r#"{"serverInfo":{"name":"a","version":"1"}}"#), wanted);
        let modern =
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"a","version":"1"}}}"#;
        assert_eq!(info(modern), wanted);
        assert_eq!(info("{}"), None);
    }
}
