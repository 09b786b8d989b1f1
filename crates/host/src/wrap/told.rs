//! What a server was told and its successor must be told again.
//!
//! A legacy session begins with a handshake; later the client may have set a log level and
//! subscribed to resources. All of it is kept as the client wrote it. [`Told::script`] says it to
//! a new server, under ids of our own, before anything else is sent there. Modern requests carry
//! all that in themselves, so there is nothing to tell.

use std::collections::BTreeMap;

use mainstay_contract::id::RequestId;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::scan;

/// Subscriptions that are remembered; what is over is not told again.
const SUBSCRIPTIONS: usize = 4096;

/// The memory of one session.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Parameters of the client's `initialize`, once the server has agreed.
    initialize: Option<Json>,
    /// What the server then said it can do.
    capabilities: Option<Json>,
    /// The client's line that ends the handshake.
    initialized: Option<Json>,
    /// Parameters of the last `logging/setLevel`.
    level: Option<Json>,
    /// Parameters of each `resources/subscribe`, by URI.
    subscriptions: BTreeMap<String, Json>,
}

/// One thing to say to a new server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for the answer before the next one.
    Ask {
        id: RequestId,
        line: Json,
        /// Without a good answer the server is of no use.
        vital: bool,
    },
    Say(Json),
}

impl Told {
    /// A request of the client's was answered with a result. Whether that is something that every
    /// server must be told.
    pub(super) fn answered(&mut self, method: &str, params: Option<&str>, result: &str) -> bool {
        let kept = || Json::from_scanned(params.unwrap_or("{}"));
        let uri = || {
            let uri = scan::member(params?, "uri")?;
            scan::unquote(uri).map(std::borrow::Cow::into_owned)
        };
        match method {
            "initialize" => {
                self.initialize = Some(kept());
                self.capabilities = scan::member(result, "capabilities").map(Json::from_scanned);
            }
            "logging/setLevel" => self.level = Some(kept()),
            "resources/subscribe" => {
                if let Some(uri) = uri().filter(|_| self.subscriptions.len() < SUBSCRIPTIONS) {
                    self.subscriptions.insert(uri, kept());
                }
            }
            "resources/unsubscribe" => {
                if let Some(uri) = uri() {
                    self.subscriptions.remove(&uri);
                }
            }
            _ => return false,
        }
        true
    }

    /// The client said something that asks for nothing. Whether every server must hear it.
    pub(super) fn noticed(&mut self, method: &str, line: &str) -> bool {
        let ends_handshake = method == "notifications/initialized";
        if ends_handshake {
            self.initialized = Some(Json::from_scanned(line));
        }
        ends_handshake
    }

    /// Whether a session was opened.
    pub(super) const fn has_session(&self) -> bool {
        self.initialize.is_some()
    }

    /// Whether the server's silence would cost the client something.
    pub(super) fn has_subscriptions(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// A capability of the server, as JSON text.
    pub(super) fn capability(&self, name: &str) -> Option<&str> {
        scan::member(self.capabilities.as_ref()?.as_str(), name)
    }

    /// Whether the server declared that it announces changes of a list.
    pub(super) fn announces(&self, list: &str) -> bool {
        let declared = self.capability(list);
        declared.and_then(|declared| scan::member(declared, "listChanged")) == Some("true")
    }

    /// Everything that a successor must be told, in order.
    pub(super) fn script(&self, mut next_id: impl FnMut() -> RequestId) -> Vec<Step> {
        let Some(initialize) = &self.initialize else {
            return Vec::new();
        };
        let mut ask = |method: &str, params: &Json, vital| {
            let id = next_id();
            let line = request(&id, method, params.as_str());
            Step::Ask { id, line, vital }
        };
        let mut steps = vec![ask("initialize", initialize, true)];
        steps.extend(self.initialized.clone().map(Step::Say));
        if let Some(level) = &self.level {
            steps.push(ask("logging/setLevel", level, false));
        }
        for params in self.subscriptions.values() {
            steps.push(ask("resources/subscribe", params, false));
        }
        steps
    }
}

/// A request of our own.
pub(super) fn request(id: &RequestId, method: &str, params: &str) -> Json {
    let line = ObjectWriter::with_capacity(params.len() + 96)
        .string("jsonrpc", "2.0")
        .raw("id", id.as_raw())
        .string("method", method)
        .raw("params", params)
        .finish();
    Json::from_scanned(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> impl FnMut() -> RequestId {
        let mut next = 0;
        move || {
            next += 1;
            RequestId::parse(&format!("\"own-{next}\"")).unwrap()
        }
    }

    #[test]
    fn a_successor_is_told_everything_in_order_and_nothing_that_is_over() {
        let mut told = Told::default();
        assert!(told.script(ids()).is_empty(), "nothing was said yet");
        let result = r#"{"capabilities":{"tools":{"listChanged":true},"logging":{}}}"#;
        told.answered(
            "initialize",
            Some(r#"{"protocolVersion": "2025-06-18"}"#),
            result,
        );
        told.noticed(
            "notifications/initialized",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        told.answered("resources/subscribe", Some(r#"{"uri":"a"}"#), "{}");
        told.answered("resources/subscribe", Some(r#"{"uri":"b"}"#), "{}");
        told.answered("resources/unsubscribe", Some(r#"{"uri":"a"}"#), "{}");
        told.answered("logging/setLevel", Some(r#"{"level":"info"}"#), "{}");
        told.answered("logging/setLevel", Some(r#"{"level":"debug"}"#), "{}");
        let said: Vec<String> = told
            .script(ids())
            .iter()
            .map(|step| match step {
                Step::Ask { line, vital, .. } => format!("{vital} {line}"),
                Step::Say(line) => line.to_string(),
            })
            .collect();
        assert_eq!(
            said,
            [
                r#"true {"jsonrpc":"2.0","id":"own-1","method":"initialize","params":{"protocolVersion": "2025-06-18"}}"#,
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                r#"false {"jsonrpc":"2.0","id":"own-2","method":"logging/setLevel","params":{"level":"debug"}}"#,
                r#"false {"jsonrpc":"2.0","id":"own-3","method":"resources/subscribe","params":{"uri":"b"}}"#,
            ]
        );
        assert!(told.announces("tools") && !told.announces("prompts"));
        assert!(told.capability("logging").is_some());
    }
}
