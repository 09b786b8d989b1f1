//! Modern requests over HTTP: many requests of one credential on one link.
//!
//! A modern request stands alone: its id means something only to the client that sent it. So each
//! gets an id (see [`crate::link_ids`]) and a progress token of ours on the link, and what comes back
//! gets its own again.
//! A client that leaves before its answer cancels it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mainstay_contract::dialect::{
    Dialect, EchoId, Form, Relayed, RelayedRequest, Shape, encode, relay,
};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::json::ObjectWriter;
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::scan;
use mainstay_kernel::server::edit;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::access::Credential;
use super::body::{Reading, lock};
use super::headers::Mirrored;
use super::link::{Ending, Input, Output, lines};
use super::listen;
use super::streams::{Keep, StreamId, Streams};
use crate::link_ids::{link_id, number_of};

/// One link for all modern requests of a credential.
#[derive(Debug)]
pub(super) struct Shared {
    input: Input,
    /// The number of its link.
    link: u64,
    streams: Arc<Mutex<Streams>>,
    desk: Mutex<Desk>,
    pub(super) ending: Ending,
}

#[derive(Debug)]
struct Desk {
    next: u64,
    pending: BTreeMap<u64, Pending>,
    mirrored: Option<Arc<Mirrored>>,
    used: Instant,
    /// Subscriptions that an upgrade of the host has closed and whose clients have not come back. A list may have
    /// changed meanwhile.
    closed: usize,
}

/// A [`Shared`] without requests in flight, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedShared {
    credential: Credential,
    pub(super) link: u64,
    next: u64,
    closed: usize,
}

/// A request in flight.
#[derive(Debug)]
struct Pending {
    stream: StreamId,
    /// Its id and its progress token, as the client wrote them.
    id: String,
    token: Option<String>,
    wants_log: bool,
    /// It is a subscription, which has no end of its own.
    is_endless: bool,
}

impl Shared {
    pub(super) fn new((link, input): (u64, Input), budget: usize) -> Self {
        Self {
            input,
            link,
            streams: Arc::new(Mutex::new(Streams::new(Keep::Nothing, budget))),
            desk: Mutex::new(Desk {
                next: 0,
                pending: BTreeMap::new(),
                mirrored: None,
                used: Instant::now(),
                closed: 0,
            }),
            ending: Ending::default(),
        }
    }

    /// The link, for a process that continues in this one's place. `None` if it is over.
    pub(super) fn save(&self, credential: &Credential) -> Option<SavedShared> {
        let desk = lock(&self.desk);
        (!self.ending.is_over()).then(|| SavedShared {
            credential: credential.clone(),
            link: self.link,
            next: desk.next,
            closed: desk.closed,
        })
    }

    pub(super) fn restore(saved: SavedShared, input: Input, budget: usize) -> (Credential, Self) {
        let shared = Self::new((saved.link, input), budget);
        {
            let mut desk = lock(&shared.desk);
            (desk.next, desk.closed) = (saved.next, saved.closed);
        }
        (saved.credential, shared)
    }

    /// Ends all answers with an error, but not subscriptions.
    pub(super) fn end_answers(&self) {
        for number in self.numbers(|pending| !pending.is_endless) {
            let pending = lock(&self.desk).pending.get(&number).map(|pending| {
                let id = RequestId::parse(&pending.id).map_or(EchoId::Null, EchoId::Known);
                (pending.stream, id)
            });
            if let Some((stream, id)) = pending {
                let problem = Problem::new(
                    ErrorKind::ShuttingDown,
                    "the host was upgraded before this request ended",
                );
                let form = Form {
                    dialect: Dialect::Modern,
                    shape: Shape::Plain,
                };
                let line = encode::answer(&id, form, &Err(problem));
                lock(&self.streams).push(stream, Bytes::from(line), true);
                self.cancel(number);
            }
        }
    }

    /// Closes all subscriptions; their clients open them again.
    pub(super) fn release(&self) {
        for number in self.numbers(|pending| pending.is_endless) {
            let mut desk = lock(&self.desk);
            desk.closed += 1;
            let stream = desk.pending.get(&number).map(|pending| pending.stream);
            drop(desk);
            self.cancel(number);
            if let Some(stream) = stream {
                lock(&self.streams).end(stream);
            }
        }
    }

    fn numbers(&self, wanted: impl Fn(&Pending) -> bool) -> Vec<u64> {
        let desk = lock(&self.desk);
        let pending = desk.pending.iter().filter(|(_, pending)| wanted(pending));
        pending.map(|(number, _)| *number).collect()
    }

    /// Sorts what the host says, until it says no more.
    pub(super) async fn sort(&self, mut output: Output, depth: usize) {
        let sorting = async {
            while let Some(chunk) = output.recv().await {
                for line in lines(&chunk) {
                    self.deliver(line, depth);
                }
            }
        };
        self.ending.until(sorting).await;
        lock(&self.streams).end_all();
    }

    /// Sends a request; what belongs to it can be read.
    pub(super) async fn ask(self: &Arc<Self>, text: &str, request: &RelayedRequest<'_>) -> Reading {
        let (method, id) = (&request.method, request.id.as_raw());
        listen::name_request(match request.param("name").and_then(scan::unquote) {
            Some(name) => format!("{method} {name:.64} (id {id:.64})"),
            None => format!("{method} (id {id:.64})"),
        });
        let (reading, line) = {
            let mut desk = lock(&self.desk);
            desk.next += 1;
            desk.used = Instant::now();
            let number = desk.next;
            let opened = lock(&self.streams).open();
            let token = request.meta(meta::PROGRESS_TOKEN).map(str::to_owned);
            let id = link_id(number, request.id.as_raw());
            let line = renamed(text, &id, number, token.is_some());
            let pending = Pending {
                stream: opened.0,
                id: request.id.as_raw().to_owned(),
                token,
                wants_log: request.meta(meta::LOG_LEVEL).is_some(),
                is_endless: request.method == Method::Listen.name(),
            };
            desk.pending.insert(number, pending);
            let shared = Arc::clone(self);
            let reading = Reading::new(&self.streams, opened, move |ended| {
                if !ended {
                    shared.cancel(number);
                }
            });
            (reading, line)
        };
        if !self.input.say(line.as_bytes()).await {
            lock(&self.streams).end_all();
        }
        reading
    }

    fn cancel(&self, number: u64) {
        let pending = lock(&self.desk).pending.remove(&number);
        if let Some(pending) = pending {
            let id = link_id(number, &pending.id);
            self.input.say_later(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"the client closed the stream"}}}}"#
            ));
        }
    }

    fn deliver(&self, line: &[u8], depth: usize) {
        let Ok(said) = relay(line, depth) else { return };
        // What was scanned is text.
        let text = std::str::from_utf8(line).unwrap_or_default();
        let mut desk = lock(&self.desk);
        let (stream, line, is_last) = match &said {
            Relayed::Answer { id, result, .. } => {
                let Some(pending) = number_of(id.as_raw()).and_then(|id| desk.pending.remove(&id))
                else {
                    return;
                };
                desk.used = Instant::now();
                let mut line = edit::with_member(text, "id", &pending.id);
                if let Some(result) = result.filter(|result| subscription(result).is_some()) {
                    let result =
                        edit::with_inner(result, "_meta", meta::SUBSCRIPTION_ID, &pending.id);
                    line = edit::with_member(&line, "result", &result);
                }
                (pending.stream, line, true)
            }
            Relayed::Notice { method, params } => {
                if method == "notifications/tools/list_changed" {
                    desk.mirrored = None;
                }
                let params = params.unwrap_or("{}");
                let Some((stream, line)) = desk.notice(text, method, params) else {
                    return;
                };
                if method == Method::Acknowledged.name() && desk.closed > 0 {
                    desk.closed -= 1;
                    let mut streams = lock(&self.streams);
                    streams.push(stream, Bytes::from(line), false);
                    for line in desk.missed(params) {
                        streams.push(stream, Bytes::from(line), false);
                    }
                    return;
                }
                (stream, line, false)
            }
            Relayed::Request(request) => {
                // The modern era has no such requests; a server that sends one must not wait for ever.
                let refusal = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"modern clients are asked with input_required"}}}}"#,
                    request.id.as_raw()
                );
                drop(desk);
                self.input.say_later(&refusal);
                return;
            }
        };
        drop(desk);
        let kept_up = lock(&self.streams).push(stream, Bytes::from(line), is_last);
        if !kept_up {
            let desk = lock(&self.desk);
            let mut pending = desk.pending.iter();
            let number = pending.find(|(_, pending)| pending.stream == stream);
            let number = number.map(|(number, _)| *number);
            drop(desk);
            if let Some(number) = number {
                self.cancel(number);
            }
        }
    }

    /// Facts about arguments that are mirrored into headers.
    pub(super) fn mirrored(&self) -> Option<Arc<Mirrored>> {
        lock(&self.desk).mirrored.clone()
    }

    pub(super) fn set_mirrored(&self, mirrored: Arc<Mirrored>) {
        lock(&self.desk).mirrored = Some(mirrored);
    }

    /// Time since its last use.
    pub(super) fn idle(&self) -> Duration {
        let desk = lock(&self.desk);
        if desk.pending.is_empty() {
            desk.used.elapsed()
        } else {
            Duration::ZERO
        }
    }
}

impl Desk {
    /// The changes that a client may have missed which subscribes again: of every list that is acknowledged.
    fn missed(&self, acknowledged: &str) -> Vec<String> {
        let number = subscription(acknowledged).and_then(number_of);
        let Some(pending) = number.and_then(|number| self.pending.get(&number)) else {
            return Vec::new();
        };
        let wanted = scan::member(acknowledged, "notifications").unwrap_or("{}");
        let kinds = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
        let kinds = kinds.into_iter();
        let kinds = kinds.filter(|kind| scan::member(wanted, kind.wanted()) == Some("true"));
        let params = edit::with_inner("{}", "_meta", meta::SUBSCRIPTION_ID, &pending.id);
        let lines = kinds.map(|kind| {
            ObjectWriter::with_capacity(160)
                .string("jsonrpc", "2.0")
                .string("method", kind.changed().name())
                .raw("params", &params)
                .finish()
        });
        lines.collect()
    }

    fn notice(&self, text: &str, method: &str, params: &str) -> Option<(StreamId, String)> {
        let with = |params: &str| edit::with_member(text, "params", params);
        if method == "notifications/progress" {
            let token = scan::member(params, meta::PROGRESS_TOKEN).and_then(number_of)?;
            let pending = self.pending.get(&token)?;
            let params = edit::with_member(params, meta::PROGRESS_TOKEN, pending.token.as_ref()?);
            return Some((pending.stream, with(&params)));
        }
        if let Some(number) = subscription(params).and_then(number_of) {
            let pending = self.pending.get(&number)?;
            let params = edit::with_inner(params, "_meta", meta::SUBSCRIPTION_ID, &pending.id);
            return Some((pending.stream, with(&params)));
        }
        if method == "notifications/message" {
            let mut pending = self.pending.values().rev();
            let latest = pending.find(|pending| pending.wants_log)?;
            return Some((latest.stream, text.to_owned()));
        }
        None
    }
}

/// The line with an id of ours, and with a progress token of ours where it has one.
fn renamed(text: &str, id: &str, number: u64, has_token: bool) -> String {
    let line = edit::with_member(text, "id", id);
    if !has_token {
        return line;
    }
    let params = scan::member(&line, "params").unwrap_or("{}");
    let params = edit::with_inner(params, "_meta", meta::PROGRESS_TOKEN, &number.to_string());
    edit::with_member(&line, "params", &params)
}

/// The subscription that an object's `_meta` names.
fn subscription(object: &str) -> Option<&str> {
    scan::member(scan::member(object, "_meta")?, meta::SUBSCRIPTION_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk() -> Desk {
        let pending = |stream, id: &str, token: Option<&str>, wants_log| Pending {
            is_endless: false,
            stream: StreamId(stream),
            id: id.to_owned(),
            token: token.map(str::to_owned),
            wants_log,
        };
        Desk {
            next: 2,
            pending: BTreeMap::from([
                (1, pending(10, "\"a\"", Some("\"t\""), true)),
                (2, pending(20, "\"a\"", None, false)),
            ]),
            mirrored: None,
            used: Instant::now(),
            closed: 0,
        }
    }

    #[test]
    fn a_client_that_subscribes_again_hears_of_every_list_that_it_asked_for() {
        let params = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":2},"notifications":{"toolsListChanged":true,"promptsListChanged":false}}"#;
        let missed = desk().missed(params);
        assert_eq!(
            missed,
            [
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"a"}}}"#
            ]
        );
    }

    #[test]
    fn a_request_gets_an_id_and_a_token_of_ours_and_keeps_the_rest() {
        let text = r#"{"jsonrpc":"2.0","id":"x","method":"m","params":{"_meta":{"progressToken":"t","k":1.0}}}"#;
        assert_eq!(
            renamed(text, "\"i\"", 7, true),
            r#"{"jsonrpc":"2.0","id":"i","method":"m","params":{"_meta":{"progressToken":7,"k":1.0}}}"#
        );
        assert_eq!(
            renamed(text, "\"i\"", 7, false),
            r#"{"jsonrpc":"2.0","id":"i","method":"m","params":{"_meta":{"progressToken":"t","k":1.0}}}"#
        );
    }

    #[test]
    fn notices_find_their_request_and_get_its_words_back() {
        let desk = desk();
        let progress = r#"{"method":"notifications/progress","params":{"progressToken":1}}"#;
        assert_eq!(
            desk.notice(progress, "notifications/progress", r#"{"progressToken":1}"#),
            Some((
                StreamId(10),
                r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#.to_owned()
            ))
        );
        let params = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}"#;
        let changed = format!(r#"{{"method":"n","params":{params}}}"#);
        let (stream, line) = desk.notice(&changed, "n", params).unwrap();
        assert_eq!(stream, StreamId(20));
        assert!(line.contains(r#"subscriptionId":"a""#));
        let log = desk.notice("{}", "notifications/message", "{}").unwrap();
        assert_eq!(log.0, StreamId(10), "the one that asked for it");
        assert_eq!(
            desk.notice("{}", "notifications/tools/list_changed", "{}"),
            None
        );
    }
}
