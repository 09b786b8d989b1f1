//! The client's session as a relay knows it: enough to open it again on another host.
//!
//! The share host keeps sessions through its own upgrades and restarts servers itself. Only if the host itself is killed,
//! the relay opens the session on the next host: it replays the handshake, the log level and the subscriptions under ids of
//! its own, and sends requests again. The replay class of a tool is known to hosts only: the next host gets the ids of the
//! calls that may have run, sends those again that may run twice, and ends the others. A request that is too long to be
//! kept ends with an error of the relay.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::{EchoId, Form, Relayed, RelayedRequest, encode, relay};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::json::ObjectWriter;
use mainstay_contract::method::{self, Method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::Replay;
use mainstay_contract::scan;

/// Deepest nesting of a line that is read; the host checks its own limit.
const DEPTH: usize = 128;
/// Subscriptions that are restored.
const SUBSCRIPTIONS: usize = 4096;
/// Bytes of the longest request that is kept to be sent again, and of all of them.
const KEPT_BYTES: usize = 64 * 1024;
const ALL_KEPT_BYTES: usize = 4 * 1024 * 1024;
/// Requests that are kept to be sent again, and bytes of the id of each: the next host gets all ids in one line.
const KEPT: usize = 1024;
const ID_BYTES: usize = 256;
/// Hosts that may be lost while they have a request. A request may be what ends them.
const LOSSES: u8 = 3;

/// The state of one client.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Parameters of `initialize`, once the host has answered it.
    opening: Option<String>,
    initialized: Option<String>,
    /// Parameters of the last `logging/setLevel`.
    level: Option<String>,
    /// Parameters of each subscription, by URI.
    subscriptions: BTreeMap<String, String>,
    /// Requests without an answer, by their ids as JSON text.
    pending: BTreeMap<String, Pending>,
    /// Bytes of the lines in `pending`.
    kept_bytes: usize,
    /// Ids of the relay's own requests, whose answers the client does not get.
    own: BTreeSet<String>,
    next: u64,
}

#[derive(Debug)]
struct Pending {
    id: RequestId,
    method: Option<Method>,
    form: Form,
    /// The whole line, if it may be sent again.
    line: Option<String>,
    /// The host has the whole line.
    is_sent: bool,
    /// Hosts that were lost while they had it.
    losses: u8,
}

/// The lines that open a session on another host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Restored {
    /// Lines, each with the id of the client's request in it.
    pub(super) to_host: Vec<(String, Option<String>)>,
    /// The requests among them that the host sends on only if they may run twice.
    pub(super) unsettled: Vec<RequestId>,
    /// Errors for requests that are not sent again.
    pub(super) to_client: Vec<String>,
}

impl Session {
    /// Records a line of the client. Returns the id of the request in it.
    pub(super) fn client_line(&mut self, line: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(line).unwrap_or_default();
        match relay(line, DEPTH) {
            Ok(Relayed::Request(request)) => {
                let key = request.id.as_raw().to_owned();
                let is_kept = self.keeps(&request, line.len());
                let pending = Pending {
                    form: request.form(),
                    method: Method::parse(&request.method),
                    line: is_kept.then(|| text.to_owned()),
                    id: request.id,
                    is_sent: false,
                    losses: 0,
                };
                self.forget(&key);
                self.kept_bytes += pending.bytes();
                self.pending.insert(key.clone(), pending);
                Some(key)
            }
            Ok(Relayed::Notice { method, params }) => {
                if method == Method::Initialized.name() {
                    self.initialized = Some(text.to_owned());
                }
                let target = params.and_then(|params| scan::member(params, "requestId"));
                if let (true, Some(target)) = (method == Method::Cancelled.name(), target) {
                    self.forget(target);
                }
                None
            }
            Ok(Relayed::Answer { .. }) | Err(_) => None,
        }
    }

    /// True for a request that another host may get, too.
    fn keeps(&self, request: &RelayedRequest<'_>, bytes: usize) -> bool {
        let has_room = bytes <= KEPT_BYTES
            && self.kept_bytes + bytes <= ALL_KEPT_BYTES
            && self.pending.len() < KEPT
            && request.id.as_raw().len() <= ID_BYTES;
        // A host decides about calls of tools. A host without the handshake serves nothing else.
        let may_repeat = request.method == Method::CallTool.name()
            || method::replay_of(&request.method) == Replay::Convergent;
        may_repeat && has_room || request.method == Method::Initialize.name()
    }

    /// The host has the whole line of a request.
    pub(super) fn mark_sent(&mut self, request: &str) {
        if let Some(pending) = self.pending.get_mut(request) {
            pending.is_sent = true;
        }
    }

    fn forget(&mut self, request: &str) -> Option<Pending> {
        let pending = self.pending.remove(request)?;
        self.kept_bytes -= pending.bytes();
        Some(pending)
    }

    /// Records a line of the host. False if the client must not get it.
    pub(super) fn host_line(&mut self, line: &[u8]) -> bool {
        let Ok(Relayed::Answer { id, result, .. }) = relay(line, DEPTH) else {
            return true;
        };
        if self.own.remove(id.as_raw()) {
            return false;
        }
        let Some(answered) = self.forget(id.as_raw()) else {
            return true;
        };
        if result.is_some() {
            self.record(&answered);
        }
        true
    }

    /// Records what a request changed that the host agreed to.
    fn record(&mut self, answered: &Pending) {
        let line = answered.line.as_deref();
        let Some(params) = line.and_then(|line| scan::member(line, "params")) else {
            return;
        };
        let uri = scan::member(params, "uri").and_then(scan::unquote);
        match (answered.method, uri) {
            (Some(Method::Initialize), _) => self.opening = Some(params.to_owned()),
            (Some(Method::SetLogLevel), _) => self.level = Some(params.to_owned()),
            (Some(Method::SubscribeResource), Some(uri))
                if self.subscriptions.len() < SUBSCRIPTIONS =>
            {
                self.subscriptions
                    .insert(uri.into_owned(), params.to_owned());
            }
            (Some(Method::UnsubscribeResource), Some(uri)) => {
                self.subscriptions.remove(&*uri);
            }
            _ => {}
        }
    }

    /// True if no request waits for its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// A host was lost: the lines for another one, and the errors for the client. Requests of which the lost host did
    /// not get the whole line are not among them.
    pub(super) fn restore(&mut self) -> Restored {
        self.own.clear();
        let mut restored = Restored::default();
        if let Some(opening) = self.opening.clone() {
            self.send_own(&mut restored, Method::Initialize, &opening);
            let initialized = self.initialized.clone();
            restored
                .to_host
                .extend(initialized.map(|line| (line, None)));
            if let Some(level) = self.level.clone() {
                self.send_own(&mut restored, Method::SetLogLevel, &level);
            }
            let subscriptions: Vec<String> = self.subscriptions.values().cloned().collect();
            for params in subscriptions {
                self.send_own(&mut restored, Method::SubscribeResource, &params);
            }
        }
        let mut lost = Vec::new();
        for (key, pending) in &mut self.pending {
            if !std::mem::take(&mut pending.is_sent) && pending.losses == 0 {
                continue;
            }
            pending.losses += 1;
            match &pending.line {
                Some(line) if pending.losses <= LOSSES => {
                    restored.to_host.push((line.clone(), Some(key.clone())));
                    if pending.method == Some(Method::CallTool) {
                        restored.unsettled.push(pending.id.clone());
                    }
                }
                _ => lost.push(key.clone()),
            }
        }
        let lost = lost.into_iter().filter_map(|key| self.forget(&key));
        restored.to_client = lost.map(|pending| pending.lost()).collect();
        restored
    }

    /// Adds a request of the relay that repeats one of the client.
    fn send_own(&mut self, restored: &mut Restored, method: Method, params: &str) {
        self.next += 1;
        let id = format!("\"io.mainstay/relay/{}\"", self.next);
        let line = ObjectWriter::with_capacity(params.len() + 96)
            .string("jsonrpc", "2.0")
            .raw("id", &id)
            .string("method", method.name())
            .raw("params", params)
            .finish();
        self.own.insert(id);
        restored.to_host.push((line, None));
    }
}

impl Pending {
    fn bytes(&self) -> usize {
        self.line.as_ref().map_or(0, String::len)
    }

    /// The answer to a request whose host was lost and that no other host gets.
    fn lost(self) -> String {
        let said = "the share host ended while this request was open; its outcome is not known";
        let problem = Problem::new(ErrorKind::OutcomeUnknown, said)
            .with_hint("find out if it took effect before you repeat it");
        encode::answer(&EchoId::Known(self.id), self.form, &Err(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(session: &mut Session, id: u32, method: &str, params: &str) {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let request = session.client_line(line.as_bytes()).unwrap();
        session.mark_sent(&request);
    }

    fn answer(session: &mut Session, id: &str) -> bool {
        session.host_line(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).as_bytes())
    }

    fn open() -> Session {
        let mut session = Session::default();
        let version = r#"{"protocolVersion":"2025-06-18"}"#;
        ask(&mut session, 1, "initialize", version);
        assert!(answer(&mut session, "1"));
        session
    }

    /// The methods of lines for a host.
    fn methods(restored: &Restored) -> Vec<&str> {
        let lines = restored.to_host.iter();
        lines
            .map(|(line, _)| scan::member(line, "method").unwrap().trim_matches('"'))
            .collect()
    }

    #[test]
    fn a_session_is_opened_again_with_everything_that_the_host_agreed_to() {
        let mut session = open();
        let greeting = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        session.client_line(greeting.as_bytes());
        for (id, uri) in [(2, "a"), (3, "b")] {
            let params = format!(r#"{{"uri":"{uri}"}}"#);
            ask(&mut session, id, "resources/subscribe", &params);
            assert!(answer(&mut session, &id.to_string()));
        }
        ask(&mut session, 4, "resources/unsubscribe", r#"{"uri":"a"}"#);
        assert!(answer(&mut session, "4"));
        ask(&mut session, 5, "logging/setLevel", r#"{"level":"info"}"#);
        assert!(answer(&mut session, "5"));
        assert!(session.is_idle());
        ask(&mut session, 6, "tools/list", "{}");
        let restored = session.restore();
        assert_eq!(
            methods(&restored),
            [
                "initialize",
                "notifications/initialized",
                "logging/setLevel",
                "resources/subscribe",
                "tools/list",
            ]
        );
        assert!(restored.to_host[3].0.contains(r#""uri":"b""#));
        // The client does not get answers to the relay's own requests.
        for number in 1..=3 {
            let id = format!("\"io.mainstay/relay/{number}\"");
            assert!(!answer(&mut session, &id));
        }
        assert!(answer(&mut session, "6") && session.is_idle());
    }

    #[test]
    fn a_handshake_without_an_answer_is_sent_again_as_it_was() {
        let mut session = Session::default();
        ask(&mut session, 1, "initialize", "{}");
        let restored = session.restore();
        assert_eq!(restored.to_host.len(), 1);
        assert_eq!(restored.to_host[0].1.as_deref(), Some("1"));
    }

    #[test]
    fn the_next_host_decides_about_calls_that_may_have_run() {
        let mut session = open();
        ask(&mut session, 2, "tools/call", r#"{"name":"write"}"#);
        ask(&mut session, 3, "tools/list", "{}");
        let restored = session.restore();
        let requests = ["initialize", "tools/call", "tools/list"];
        assert_eq!(methods(&restored), requests);
        assert_eq!(restored.unsettled, [RequestId::parse("2").unwrap()]);
        // The next host is lost before it gets the call, which has run nevertheless.
        let restored = session.restore();
        assert_eq!(methods(&restored), requests);
        assert_eq!(restored.unsettled.len(), 1);
    }

    #[test]
    fn a_call_that_the_lost_host_did_not_get_stays_in_line() {
        let mut session = open();
        let call = br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write"}}"#;
        assert_eq!(session.client_line(call).as_deref(), Some("2"));
        let restored = session.restore();
        assert_eq!(methods(&restored), ["initialize"]);
        assert!(restored.unsettled.is_empty() && restored.to_client.is_empty());
    }

    #[test]
    fn requests_that_cannot_be_repeated_end_with_an_error() {
        let mut session = open();
        let long = format!(r#"{{"name":"write","text":"{}"}}"#, "x".repeat(KEPT_BYTES));
        ask(&mut session, 2, "tools/call", &long);
        ask(&mut session, 3, "vendor/unknown", "{}");
        let restored = session.restore();
        assert_eq!(methods(&restored), ["initialize"]);
        assert_eq!(restored.to_client.len(), 2);
        let lost = &restored.to_client;
        assert!(
            lost.iter()
                .all(|line| line.contains("its outcome is not known")),
            "{lost:?}"
        );
        assert!(session.is_idle() && session.kept_bytes == 0);
        // A request that ends one host after the other is given up.
        ask(&mut session, 4, "tools/call", r#"{"name":"write"}"#);
        for _ in 0..LOSSES {
            assert!(session.restore().to_client.is_empty());
            session.mark_sent("4");
        }
        assert_eq!(session.restore().to_client.len(), 1);
    }

    #[test]
    fn what_is_kept_of_requests_is_bounded() {
        let mut session = open();
        let half = format!(r#"{{"name":"{}"}}"#, "x".repeat(KEPT_BYTES / 2));
        for id in 2..1000 {
            ask(&mut session, id, "tools/call", &half);
        }
        assert!(
            session.kept_bytes <= ALL_KEPT_BYTES,
            "{}",
            session.kept_bytes
        );
        let restored = session.restore();
        assert_eq!(restored.unsettled.len() + restored.to_client.len(), 998);
    }

    #[test]
    fn a_cancelled_request_is_not_sent_again() {
        let mut session = Session::default();
        ask(&mut session, 1, "tools/list", "{}");
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        session.client_line(cancel.as_bytes());
        assert_eq!(session.restore(), Restored::default());
    }
}
