//! Session memory: the state that a successor of a server must get before it serves.
//!
//! A legacy session begins with a handshake; later the client may set a log level and subscribe to
//! resources. [`SessionMemory`] keeps all of it in the client's own bytes.
//! [`SessionMemory::restore_script`] replays it to a new server, under ids of the host, before any request
//! is sent there. A modern request carries its state in itself, so nothing is restored.

use std::collections::BTreeMap;

use mainstay_contract::id::RequestId;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::method::Method;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};

use super::incarnation::Purpose;
use crate::defect::{Defect, is_planted};

/// Most subscriptions that are restored.
pub(super) const SUBSCRIPTIONS: usize = 4096;

/// The state of one client's session, as a server must know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionMemory {
    /// Parameters of the client's `initialize`, once the server has agreed.
    initialize: Option<Json>,
    /// The capabilities that the server declared in return.
    capabilities: Option<Json>,
    /// The client's line that ends the handshake.
    initialized: Option<Json>,
    /// Parameters of the last `logging/setLevel`.
    level: Option<Json>,
    /// Parameters of each `resources/subscribe`, by URI.
    subscriptions: BTreeMap<String, Json>,
    /// The `_meta` of the last modern request, for requests of the host.
    pub(super) modern_meta: Option<Json>,
}

/// One line for a new server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// Wait for the answer before the next one.
    Ask {
        id: RequestId,
        line: Json,
        purpose: Purpose,
    },
    Say(Json),
}

impl SessionMemory {
    /// Records a request that a server answered with a result. True if every server must get it.
    pub(super) fn record_answer(
        &mut self,
        method: &str,
        params: Option<&str>,
        result: &str,
    ) -> bool {
        let kept = || Json::from_scanned(params.unwrap_or("{}"));
        let uri = || {
            let uri = scan::member(params?, "uri")?;
            scan::unquote(uri).map(std::borrow::Cow::into_owned)
        };
        match Method::parse(method) {
            Some(Method::Initialize) => {
                self.initialize = Some(kept());
                self.record_capabilities(result);
            }
            Some(Method::SetLogLevel) => self.level = Some(kept()),
            Some(Method::SubscribeResource) => {
                let has_room = self.subscriptions.len() < SUBSCRIPTIONS;
                let fits = |uri: &String| has_room || self.subscriptions.contains_key(uri);
                if let Some(uri) = uri().filter(fits) {
                    self.subscriptions.insert(uri, kept());
                }
            }
            Some(Method::UnsubscribeResource) => {
                if let Some(uri) = uri() {
                    self.subscriptions.remove(&uri);
                }
            }
            _ => return false,
        }
        true
    }

    /// Records the capabilities that a server declared in its handshake.
    pub(super) fn record_capabilities(&mut self, result: &str) {
        let declared = scan::member(result, "capabilities");
        // A null is restored as nothing, so it must not count as something before.
        let declared = declared.filter(|declared| *declared != "null");
        self.capabilities = declared.map(Json::from_scanned);
    }

    /// Records a notification of the client. True if every server must get it.
    pub(super) fn record_notification(&mut self, method: &str, line: &str) -> bool {
        let ends_handshake = method == Method::Initialized.name();
        if ends_handshake {
            self.initialized = Some(Json::from_scanned(line));
        }
        ends_handshake
    }

    /// The `_meta` that requests of the host must carry: none in a legacy session.
    pub(super) fn own_meta(&self) -> Option<&Json> {
        self.modern_meta.as_ref().filter(|_| !self.has_session())
    }

    /// The client's line that ends the handshake.
    pub(super) const fn initialized(&self) -> Option<&Json> {
        self.initialized.as_ref()
    }

    /// The parameters of the last `logging/setLevel`.
    pub(super) const fn level(&self) -> Option<&Json> {
        self.level.as_ref()
    }

    /// True once a server agreed to the handshake.
    pub(super) const fn has_session(&self) -> bool {
        self.initialize.is_some()
    }

    /// True while the client waits for updates of a resource.
    pub(super) fn has_subscriptions(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// The resources whose updates the client waits for, as JSON texts.
    pub(super) fn subscribed(&self) -> Vec<String> {
        let uris = self.subscriptions.keys();
        uris.map(|uri| serde_json::Value::from(uri.as_str()).to_string())
            .collect()
    }

    /// A capability of the server, as JSON text.
    pub(super) fn capability(&self, name: &str) -> Option<&str> {
        scan::member(self.capabilities.as_ref()?.as_str(), name)
    }

    /// True if the client may hear of changes of a list: the server has the list, and the host declares
    /// `listChanged` for it.
    pub(super) fn announces(&self, list: &str) -> bool {
        self.capability(list)
            .is_some_and(|declared| declared.starts_with('{'))
    }

    /// Everything that a successor must get, in order.
    pub(super) fn restore_script(&self, mut next_id: impl FnMut() -> RequestId) -> Vec<Step> {
        let Some(initialize) = &self.initialize else {
            return Vec::new();
        };
        if is_planted(Defect::SessionNotRestored) {
            return Vec::new();
        }
        let mut ask = |method: &str, params: &Json, purpose| {
            let id = next_id();
            let line = request(&id, method, params.as_str());
            Step::Ask { id, line, purpose }
        };
        let mut steps = vec![ask("initialize", initialize, Purpose::Open)];
        steps.extend(self.initialized.clone().map(Step::Say));
        if let Some(level) = &self.level
            && !is_planted(Defect::LevelNotRestored)
        {
            steps.push(ask("logging/setLevel", level, Purpose::Restore));
        }
        for params in self.subscriptions.values() {
            steps.push(ask("resources/subscribe", params, Purpose::Restore));
        }
        steps
    }
}

/// A request of the host's own.
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
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn ids() -> impl FnMut() -> RequestId {
        let mut next = 0;
        move || {
            next += 1;
            RequestId::parse(&format!("\"own-{next}\"")).unwrap()
        }
    }

    #[test]
    fn a_successor_gets_everything_in_order_and_nothing_that_is_over() {
        let mut memory = SessionMemory::default();
        assert!(
            memory.restore_script(ids()).is_empty(),
            "nothing was said yet"
        );
        let result = r#"{"capabilities":{"tools":{"listChanged":true},"logging":{}}}"#;
        memory.record_answer(
            "initialize",
            Some(r#"{"protocolVersion": "2025-06-18"}"#),
            result,
        );
        memory.record_notification(
            "notifications/initialized",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        memory.record_answer("resources/subscribe", Some(r#"{"uri":"a"}"#), "{}");
        memory.record_answer("resources/subscribe", Some(r#"{"uri":"b"}"#), "{}");
        memory.record_answer("resources/unsubscribe", Some(r#"{"uri":"a"}"#), "{}");
        memory.record_answer("logging/setLevel", Some(r#"{"level":"info"}"#), "{}");
        memory.record_answer("logging/setLevel", Some(r#"{"level":"debug"}"#), "{}");
        let said: Vec<String> = memory
            .restore_script(ids())
            .iter()
            .map(|step| match step {
                Step::Ask { line, purpose, .. } => format!("{purpose:?} {line}"),
                Step::Say(line) => line.to_string(),
            })
            .collect();
        assert_eq!(
            said,
            [
                r#"Open {"jsonrpc":"2.0","id":"own-1","method":"initialize","params":{"protocolVersion": "2025-06-18"}}"#,
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                r#"Restore {"jsonrpc":"2.0","id":"own-2","method":"logging/setLevel","params":{"level":"debug"}}"#,
                r#"Restore {"jsonrpc":"2.0","id":"own-3","method":"resources/subscribe","params":{"uri":"b"}}"#,
            ]
        );
        assert!(memory.announces("tools") && !memory.announces("prompts"));
        assert!(memory.capability("logging").is_some());
    }

    /// Something that changes, or does not change, the state of a session.
    #[derive(Clone, Debug)]
    enum Said {
        Initialize(u8),
        Initialized(u8),
        Level(u8),
        Subscribe { uri: u8, detail: u8 },
        Unsubscribe(u8),
        Other,
    }

    fn said() -> impl Strategy<Value = Said> {
        prop_oneof![
            any::<u8>().prop_map(Said::Initialize),
            any::<u8>().prop_map(Said::Initialized),
            any::<u8>().prop_map(Said::Level),
            (0..4_u8, any::<u8>()).prop_map(|(uri, detail)| Said::Subscribe { uri, detail }),
            (0..4_u8).prop_map(Said::Unsubscribe),
            Just(Said::Other),
        ]
    }

    /// The state that a server must have at the end, kept in the simplest way.
    #[derive(Debug, Default)]
    struct Model {
        initialize: Option<String>,
        initialized: Option<String>,
        level: Option<String>,
        subscriptions: BTreeMap<String, String>,
    }

    impl Model {
        fn hear(&mut self, memory: &mut SessionMemory, said: &Said) {
            let (method, params) = match said {
                Said::Initialized(number) => {
                    let line = format!(r#"{{"method":"notifications/initialized","n":{number}}}"#);
                    let method = "notifications/initialized";
                    assert!(memory.record_notification(method, &line));
                    assert!(!memory.record_notification("notifications/other", "{}"));
                    self.initialized = Some(line);
                    return;
                }
                Said::Initialize(number) => ("initialize", format!(r#"{{"n":{number}.0}}"#)),
                Said::Level(number) => ("logging/setLevel", format!(r#"{{"level":{number}}}"#)),
                Said::Subscribe { uri, detail } => {
                    let params = format!(r#"{{"uri":"r:{uri}","detail":{detail}}}"#);
                    ("resources/subscribe", params)
                }
                Said::Unsubscribe(uri) => {
                    ("resources/unsubscribe", format!(r#"{{"uri":"r:{uri}"}}"#))
                }
                Said::Other => ("tools/call", r#"{"name":"t"}"#.to_owned()),
            };
            let counts = memory.record_answer(method, Some(&params), "{}");
            assert_eq!(counts, !matches!(said, Said::Other));
            match said {
                Said::Initialize(_) => self.initialize = Some(params),
                Said::Level(_) => self.level = Some(params),
                Said::Subscribe { uri, .. } => {
                    self.subscriptions.insert(format!("r:{uri}"), params);
                }
                Said::Unsubscribe(uri) => {
                    self.subscriptions.remove(&format!("r:{uri}"));
                }
                Said::Initialized(_) | Said::Other => {}
            }
        }

        /// Method and parameters of each step; the handshake's last line as it is.
        fn script(&self) -> Vec<(String, String)> {
            let Some(initialize) = &self.initialize else {
                return Vec::new();
            };
            let step = |method: &str, params: &String| (method.to_owned(), params.clone());
            let mut script = vec![step("initialize", initialize)];
            script.extend(self.initialized.iter().map(|line| step("", line)));
            script.extend(
                self.level
                    .iter()
                    .map(|level| step("logging/setLevel", level)),
            );
            let subscriptions = self.subscriptions.values();
            script.extend(subscriptions.map(|params| step("resources/subscribe", params)));
            script
        }
    }

    proptest! {
        #[test]
        fn the_script_restores_the_last_state_of_any_session(heard in vec(said(), 0..40)) {
            let (mut memory, mut model) = (SessionMemory::default(), Model::default());
            for said in &heard {
                model.hear(&mut memory, said);
            }
            let mut used = BTreeSet::new();
            let mut script = Vec::new();
            for step in memory.restore_script(ids()) {
                match step {
                    Step::Say(line) => script.push((String::new(), line.to_string())),
                    Step::Ask { id, line, purpose } => {
                        let member = |key| scan::member(line.as_str(), key).unwrap();
                        prop_assert_eq!(member("id"), id.as_raw());
                        prop_assert!(used.insert(id.clone()), "{} is used twice", id);
                        let method = scan::unquote(member("method")).unwrap().into_owned();
                        let opens = method == "initialize";
                        prop_assert_eq!(purpose == Purpose::Open, opens);
                        script.push((method, member("params").to_owned()));
                    }
                }
            }
            prop_assert_eq!(script, model.script());
            prop_assert_eq!(memory.has_session(), model.initialize.is_some());
            prop_assert_eq!(memory.has_subscriptions(), !model.subscriptions.is_empty());
        }
    }

    #[test]
    fn subscriptions_are_bounded_and_a_renewed_one_needs_no_room() {
        let mut memory = SessionMemory::default();
        memory.record_answer("initialize", None, "{}");
        let subscribe = |memory: &mut SessionMemory, uri: usize, detail: &str| {
            let params = format!(r#"{{"uri":"{uri:05}","detail":"{detail}"}}"#);
            memory.record_answer("resources/subscribe", Some(&params), "{}");
        };
        for uri in 0..SUBSCRIPTIONS + 10 {
            subscribe(&mut memory, uri, "old");
        }
        subscribe(&mut memory, 0, "new");
        let script = memory.restore_script(ids());
        assert_eq!(script.len(), 1 + SUBSCRIPTIONS);
        let Some(Step::Ask { line, .. }) = script.get(1) else {
            panic!("the first subscription is asked for");
        };
        assert!(line.as_str().contains("new"), "{line}");
    }
}
