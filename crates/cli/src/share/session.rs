//! The client's session as a relay knows it: enough to open it again on another host.
//!
//! The share host keeps sessions through its own upgrades and restarts servers itself. Only if the host itself is killed,
//! the relay opens the session on the next host: it replays the handshake, the log level and the subscriptions under ids of
//! its own, sends requests again that may run twice, and answers all others with an error.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::{EchoId, Form, Relayed, encode, relay};
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
/// Bytes of the longest request that is kept to be sent again.
const KEPT_BYTES: usize = 64 * 1024;

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
    /// Ids of the relay's own requests, whose answers the client does not get.
    own: BTreeSet<String>,
    next: u64,
}

#[derive(Debug)]
struct Pending {
    id: RequestId,
    method: String,
    form: Form,
    params: Option<String>,
    /// The whole line, if it may be sent again.
    line: Option<String>,
}

/// The lines that open a session on another host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) to_host: Vec<String>,
    /// Errors for requests that must not be sent again.
    pub(super) to_client: Vec<String>,
}

impl Session {
    /// Records a line of the client.
    pub(super) fn client_line(&mut self, line: &[u8]) {
        let text = std::str::from_utf8(line).unwrap_or_default();
        match relay(line, DEPTH) {
            Ok(Relayed::Request(request)) => {
                let is_opening = request.method == Method::Initialize.name();
                let may_repeat = method::replay_of(&request.method) == Replay::Convergent;
                let is_kept = is_opening || may_repeat && line.len() <= KEPT_BYTES;
                let is_state = request
                    .params
                    .is_some_and(|params| params.len() <= KEPT_BYTES)
                    && may_repeat
                    || is_opening;
                let pending = Pending {
                    form: request.form(),
                    method: request.method.clone().into_owned(),
                    params: request.params.filter(|_| is_state).map(str::to_owned),
                    line: is_kept.then(|| text.to_owned()),
                    id: request.id.clone(),
                };
                self.pending.insert(request.id.as_raw().to_owned(), pending);
            }
            Ok(Relayed::Notice { method, params }) => {
                if method == Method::Initialized.name() {
                    self.initialized = Some(text.to_owned());
                }
                let target = params.and_then(|params| scan::member(params, "requestId"));
                if let (true, Some(target)) = (method == Method::Cancelled.name(), target) {
                    self.pending.remove(target);
                }
            }
            Ok(Relayed::Answer { .. }) | Err(_) => {}
        }
    }

    /// Records a line of the host. False if the client must not get it.
    pub(super) fn host_line(&mut self, line: &[u8]) -> bool {
        let Ok(Relayed::Answer { id, result, .. }) = relay(line, DEPTH) else {
            return true;
        };
        if self.own.remove(id.as_raw()) {
            return false;
        }
        let Some(answered) = self.pending.remove(id.as_raw()) else {
            return true;
        };
        if result.is_none() {
            return true;
        }
        let params = answered.params;
        let uri = params
            .as_deref()
            .and_then(|params| scan::member(params, "uri"));
        let uri = uri
            .and_then(scan::unquote)
            .map(std::borrow::Cow::into_owned);
        match Method::parse(&answered.method) {
            Some(Method::Initialize) => self.opening = params,
            Some(Method::SetLogLevel) => self.level = params,
            Some(Method::SubscribeResource) if self.subscriptions.len() < SUBSCRIPTIONS => {
                self.subscriptions.extend(uri.zip(params));
            }
            Some(Method::UnsubscribeResource) => {
                uri.map(|uri| self.subscriptions.remove(&uri));
            }
            _ => {}
        }
        true
    }

    /// True if no request waits for its answer.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// The lines for another host, and the errors for the client.
    pub(super) fn restore(&mut self) -> Restored {
        self.own.clear();
        let mut restored = Restored::default();
        let mut replayed = Vec::new();
        if let Some(opening) = &self.opening {
            replayed.push((Method::Initialize, opening.clone()));
        }
        let state = self.level.iter().map(|level| (Method::SetLogLevel, level));
        let subscribed = self.subscriptions.values();
        let state = state.chain(subscribed.map(|params| (Method::SubscribeResource, params)));
        let state: Vec<(Method, String)> = state
            .map(|(method, params)| (method, params.clone()))
            .collect();
        let has_session = !replayed.is_empty();
        for (method, params) in replayed {
            restored.to_host.push(self.own_request(method, &params));
        }
        if has_session {
            restored.to_host.extend(self.initialized.clone());
            for (method, params) in state {
                restored.to_host.push(self.own_request(method, &params));
            }
        }
        let (again, lost): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|(_, pending)| pending.line.is_some());
        restored
            .to_host
            .extend(again.iter().filter_map(|(_, pending)| pending.line.clone()));
        self.pending = again.into_iter().collect();
        let answer = |(_, pending): (String, Pending)| {
            let said = "the share host ended while this request was open; its outcome is not known";
            let problem = Problem::new(ErrorKind::OutcomeUnknown, said);
            encode::answer(&EchoId::Known(pending.id), pending.form, &Err(problem))
        };
        restored.to_client = lost.into_iter().map(answer).collect();
        restored
    }

    fn own_request(&mut self, method: Method, params: &str) -> String {
        self.next += 1;
        let id = format!("\"io.mainstay/relay/{}\"", self.next);
        let line = ObjectWriter::with_capacity(params.len() + 96)
            .string("jsonrpc", "2.0")
            .raw("id", &id)
            .string("method", method.name())
            .raw("params", params)
            .finish();
        self.own.insert(id);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(session: &mut Session, id: u32, method: &str, params: &str) {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        session.client_line(line.as_bytes());
    }

    fn answer(session: &mut Session, id: &str) -> bool {
        session.host_line(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).as_bytes())
    }

    #[test]
    fn a_session_is_opened_again_with_everything_that_the_host_agreed_to() {
        let mut session = Session::default();
        ask(
            &mut session,
            1,
            "initialize",
            r#"{"protocolVersion":"2025-06-18"}"#,
        );
        assert_eq!(
            session.restore().to_host.len(),
            1,
            "its own line is sent again"
        );
        assert!(answer(&mut session, "1"));
        let greeting = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        session.client_line(greeting.as_bytes());
        for (id, uri) in [(2, "a"), (3, "b")] {
            ask(
                &mut session,
                id,
                "resources/subscribe",
                &format!(r#"{{"uri":"{uri}"}}"#),
            );
            assert!(answer(&mut session, &id.to_string()));
        }
        ask(&mut session, 4, "resources/unsubscribe", r#"{"uri":"a"}"#);
        assert!(answer(&mut session, "4"));
        ask(&mut session, 5, "logging/setLevel", r#"{"level":"info"}"#);
        assert!(answer(&mut session, "5"));
        assert!(session.is_idle());
        ask(&mut session, 6, "tools/call", r#"{"name":"write"}"#);
        ask(&mut session, 7, "tools/list", "{}");
        let restored = session.restore();
        let methods: Vec<&str> = restored
            .to_host
            .iter()
            .map(|line| scan::member(line, "method").unwrap())
            .collect();
        assert_eq!(
            methods,
            [
                "\"initialize\"",
                "\"notifications/initialized\"",
                "\"logging/setLevel\"",
                "\"resources/subscribe\"",
                "\"tools/list\"",
            ]
        );
        assert!(restored.to_host[3].contains(r#""uri":"b""#));
        assert_eq!(restored.to_client.len(), 1);
        assert!(restored.to_client[0].contains("\"id\":6"), "{restored:?}");
        // The client does not get answers to the relay's own requests.
        for number in 2..=4 {
            assert!(!answer(
                &mut session,
                &format!("\"io.mainstay/relay/{number}\"")
            ));
        }
        assert!(answer(&mut session, "7") && session.is_idle());
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
