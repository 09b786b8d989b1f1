//! Hand-over: what a successor offers, read before it gets requests, and what that means for calls that
//! were admitted under its predecessor.
//!
//! A server that takes over may list other tools. The host reads its list as the last step before it is
//! ready. A successor beside a good incumbent (a rollout, a standby) whose list cannot be read never takes
//! over; where no server serves, one with a broken list is better than none. A call is reconsidered
//! before it is sent to a server that it was not admitted for.

use std::collections::VecDeque;

use mainstay_contract::dialect::encode;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::Json;
use mainstay_contract::method::ListKind;
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::{self, Answer};
use mainstay_contract::scan;
use mainstay_schema::check::{Subject, Verdict};
use serde::{Deserialize, Serialize};

use super::incarnation::Awaited;
use super::lists::{PAGE_BYTES, Seen, page_request};
use super::{Cx, Link};
use crate::approvals::policy::Hints;
use crate::core::checks::Purpose;

/// Bytes of a list that is kept until its server takes over.
const CATALOG_BYTES: usize = 16 * 1024 * 1024;
/// How long a server may take for a page of it, in milliseconds.
const PAGE_MS: u64 = 5_000;

/// The state of the hand-over from one server to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handover {
    /// The server that got requests last.
    pub(super) serving: Option<Generation>,
    /// The server whose tools are known.
    pub(super) tools_of: Option<Generation>,
    /// A restart that no result has reported yet.
    pub(super) restarted: Option<Generation>,
    /// Notifications of the client for the next server, each with the last request before it.
    pub(super) deferred: VecDeque<(Option<CallId>, Json)>,
}

/// The tools of a server that does not serve yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Catalog {
    /// The results of its pages.
    pages: Vec<Json>,
    seen: Seen,
}

impl Catalog {
    /// Adds a page; the error says why the list cannot be used.
    fn add(&mut self, result: Option<&str>) -> Result<(), &'static str> {
        let result = result.ok_or("the server refused it")?;
        let tools = scan::member(result, ListKind::Tools.member());
        if !tools.is_some_and(|tools| tools.starts_with('[')) {
            return Err("it is not a list");
        }
        if result.len() > PAGE_BYTES {
            return Err("a page of it is too large");
        }
        if !self.seen.next_page(ListKind::Tools, result) {
            return Err("it does not end");
        }
        self.pages.push(Json::from_scanned(result));
        if self.pages.iter().map(Json::len).sum::<usize>() > CATALOG_BYTES {
            return Err("it is too large");
        }
        Ok(())
    }
}

/// The decision about a call whose server changed after it was admitted.
enum Reconsidered {
    Send,
    Refuse(Problem),
    /// The tool's schema changed: its arguments are checked again.
    Check(Subject),
}

impl Link {
    /// A server got its whole script: it is ready, once its tools are known where they matter.
    pub(super) fn script_over(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        let has_tools = if self.memory.has_session() {
            self.memory.capability("tools").is_some()
        } else {
            self.memory.modern_meta.is_some() && self.tools.any()
        };
        if has_tools && self.handover.tools_of.is_some() {
            self.read_ahead(cx, generation, Catalog::default());
        } else {
            self.ready(cx, generation);
        }
    }

    fn read_ahead(&mut self, cx: &mut Cx<'_>, generation: Generation, catalog: Catalog) {
        let id = self.own_id();
        let meta = self.memory.own_meta();
        let line = page_request(&id, ListKind::Tools, catalog.seen.next(), meta);
        let until = cx.now.plus_ms(PAGE_MS);
        if let Some(server) = self.incarnations.get_mut(&generation) {
            let awaited = Awaited::Catalog { catalog, until };
            let _ = server.awaited.open(id, awaited);
            cx.say(generation, line);
        }
    }

    /// A page of a list that was read ahead.
    pub(super) fn read_page(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        mut catalog: Catalog,
        result: Option<&str>,
    ) {
        match catalog.add(result) {
            Err(why) => self.unreadable_tools(cx, generation, why),
            Ok(()) if catalog.seen.next().is_some() => self.read_ahead(cx, generation, catalog),
            Ok(()) => {
                if let Some(server) = self.incarnations.get_mut(&generation) {
                    server.catalog = Some(catalog);
                }
                self.ready(cx, generation);
            }
        }
    }

    /// Gives up lists that were read ahead and did not come in time.
    pub(super) fn catalogs_due(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let is_due =
            |awaited: &Awaited| matches!(awaited, Awaited::Catalog { until, .. } if *until <= now);
        let mut late = Vec::new();
        for (generation, server) in &mut self.incarnations {
            if server.awaited.values().any(is_due) {
                server.awaited.retain(|_, awaited| !is_due(awaited));
                late.push(*generation);
            }
        }
        for generation in late {
            self.unreadable_tools(cx, generation, "it did not come in time");
        }
    }

    fn unreadable_tools(&mut self, cx: &mut Cx<'_>, generation: Generation, why: &str) {
        if cx.kernel.is_spare(self.slot, generation) {
            let detail = format!("the successor's list of tools cannot be read: {why}");
            return self.unfit(cx, generation, &detail);
        }
        let name = &self.name;
        cx.log(format!(
            "mcp:warning reason=tools_unreadable pack={name} {why}"
        ));
        self.ready(cx, generation);
    }

    /// A server gets its first call or takes over: its tools replace those of its predecessor.
    pub(super) fn adopt_tools(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        let before = self.handover.tools_of.replace(generation);
        if before.is_none() || before == Some(generation) {
            return;
        }
        let server = self.incarnations.get_mut(&generation);
        let Some(catalog) = server.and_then(|server| server.catalog.take()) else {
            return self.tools.doubt();
        };
        self.tools.forget();
        for (number, page) in catalog.pages.iter().enumerate() {
            self.record_page(cx, ListKind::Tools, number == 0, page.as_str());
            self.learn(cx, page.as_str());
        }
        self.tools_complete(cx, self.tools.epoch());
        self.compared(cx, ListKind::Tools, catalog.seen);
    }

    /// Announces a list that differs from what the client saw.
    pub(super) fn compared(&mut self, cx: &mut Cx<'_>, kind: ListKind, now: Seen) {
        let before = self.lists.fingerprint(kind);
        if before.is_some_and(|before| Some(before) != now.fingerprint()) {
            self.announce(cx, kind);
            self.lists.last_seen.insert(kind, now);
        }
    }

    /// Tells the client that a list changed, in the way it asked for.
    pub(super) fn announce(&mut self, cx: &mut Cx<'_>, kind: ListKind) {
        if let Some(shelf) = &mut self.shelf {
            return shelf.change(kind);
        }
        let is_declared = self.memory.announces(kind.capability()) && !self.serves_modern();
        if is_declared || self.serves_legacy() {
            self.tell_client(cx, encode::notification(kind.changed(), None));
        }
        for call in self.listeners(kind) {
            self.announce_on(cx, call, kind);
        }
    }

    /// True if a change of a list reaches the client.
    pub(super) fn reports_changes(&self, kind: ListKind) -> bool {
        self.shelf.is_some()
            || self.serves_legacy()
            || self.memory.announces(kind.capability())
            || !self.listeners(kind).is_empty()
    }

    /// Sends notifications that the client sent before a call, or all that are deferred.
    pub(super) fn send_deferred(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        before: Option<CallId>,
    ) {
        while let Some((after, _)) = self.handover.deferred.front() {
            if before.is_some_and(|before| after.is_some_and(|after| after >= before)) {
                return;
            }
            if let Some((_, line)) = self.handover.deferred.pop_front() {
                cx.say(generation, line);
            }
        }
    }

    /// True if a call must not be sent as it is, because the tools changed since it was admitted: it is
    /// refused, or its arguments are checked again first.
    pub(super) fn is_reconsidered(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
    ) -> bool {
        match self.reconsider(cx, call) {
            Reconsidered::Send => false,
            Reconsidered::Refuse(problem) => {
                let answer = Answer::Failed(problem);
                cx.kernel.handle_answer(cx.now, generation, call, answer);
                true
            }
            Reconsidered::Check(subject) => self.recheck(cx, generation, call, subject),
        }
    }

    fn reconsider(&mut self, cx: &Cx<'_>, call: CallId) -> Reconsidered {
        let tools_of = self.handover.tools_of;
        let Some(request) = self.requests.get_mut(call) else {
            return Reconsidered::Send;
        };
        if std::mem::replace(&mut request.admitted, tools_of) == tools_of {
            return Reconsidered::Send;
        }
        let Some(name) = request.tool.clone() else {
            return Reconsidered::Send;
        };
        let refuse = |problem: Option<Problem>| match problem {
            Some(problem) => Reconsidered::Refuse(problem),
            None => Reconsidered::Send,
        };
        if cx.kernel.is_probing(call) {
            let rules = self.rules().tools.get(&name);
            let Some(probe) = rules.and_then(|rules| rules.probe.as_ref()) else {
                return Reconsidered::Send;
            };
            let standing = self.tools.get(&probe.tool).map(|tool| tool.standing);
            let standing = standing.unwrap_or_else(|| self.tools.stranger(&probe.tool));
            return refuse(standing.problem(&probe.tool));
        }
        let Some(tool) = self.tools.get(&name) else {
            let gone = request.listed && self.tools.is_complete();
            return refuse(if gone {
                let said = format!("the tool {name} is no longer offered by the server");
                let problem = Problem::new(ErrorKind::UnknownTool, said);
                Some(problem.with_hint("list the tools again"))
            } else {
                self.tools.stranger(&name).problem(&name)
            });
        };
        if let Some(problem) = tool.refusal(&name) {
            return Reconsidered::Refuse(problem);
        }
        let hints = tool.definition.to_value().map(|tool| Hints::of(&tool));
        if !cx.gates.still_passes(call, hints.unwrap_or_default()) {
            let said = format!(
                "the tool {name} changed, and by the operator's rules this call needs an approval now"
            );
            let problem = Problem::new(ErrorKind::Forbidden, said);
            return Reconsidered::Refuse(problem.with_hint("call it again"));
        }
        let digest = tool.check.digest();
        let is_new = tool.check.input.is_some() && request.checked != Some(digest);
        if !is_new {
            return Reconsidered::Send;
        }
        request.checked = Some(digest);
        let arguments = request.param("arguments").unwrap_or("{}");
        Reconsidered::Check(Subject::Arguments(Json::from_scanned(arguments)))
    }

    fn recheck(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        subject: Subject,
    ) -> bool {
        let request = self.requests.get(call);
        let name = request.and_then(|request| request.tool.as_deref());
        let (Some(tool), Some(server)) = (
            name.and_then(|name| self.tools.get(name)),
            self.incarnations.get_mut(&generation),
        ) else {
            return false;
        };
        server.rechecking.push(call);
        let definition = tool.check.clone();
        let purpose = Purpose::ServerRecheck {
            slot: self.slot,
            generation,
            call,
        };
        let timeout_ms = cx.kernel.limits().call_timeout_ms;
        self.begin_check(cx, purpose, definition, subject, timeout_ms);
        true
    }

    /// The arguments of a call were checked again: it is sent, or refused.
    pub(crate) fn rechecked(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        verdict: &Verdict,
    ) {
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        server.rechecking.retain(|waiting| *waiting != call);
        let line = match cx.kernel.sent(generation, call) {
            Some(rpc::Op::Forward(forward)) => forward.line.clone(),
            _ => return,
        };
        let name = self
            .requests
            .get(call)
            .and_then(|request| request.tool.clone());
        match self.objection_of(cx, call, &name.unwrap_or_default(), verdict) {
            None => self.forward(cx, generation, call, &line),
            Some(problem) => {
                let answer = Answer::Failed(problem);
                cx.kernel.handle_answer(cx.now, generation, call, answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mainstay_contract::dialect::{Relayed, relay};
    use mainstay_contract::limits::Limits;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::core::action::CoreAction;
    use crate::core::checks::Checks;
    use crate::core::spans::Spans;
    use crate::server::requests::ClientRequest;
    use crate::server::{Client, Rules, ServerConfig, ServerMemory};
    use crate::time::Time;
    use crate::{Conduct, Kernel};

    /// A link, and the parts of a core around it.
    struct Bench {
        link: Link,
        kernel: Kernel,
        out: VecDeque<CoreAction>,
    }

    impl Bench {
        fn new(rules: &str) -> Self {
            let mut kernel = Kernel::seeded(Limits::default(), 0);
            let session = kernel.open_session();
            let slot = kernel.add_slot("demo", Conduct::Lenient, Some(session));
            let rules: Rules = serde_json::from_str(rules).unwrap();
            let config = ServerConfig {
                name: "demo".to_owned(),
                rules: Arc::new(rules),
                locked: None,
                memory: ServerMemory::default(),
                version: "1".to_owned(),
                trial: false,
                prefix: None,
                limits: None,
                backend: None,
                shared: None,
            };
            let mut out = VecDeque::new();
            let link = within(&mut kernel, &mut out, |cx| {
                let client = Client::Session(session);
                cx.kernel.warm(cx.now, slot);
                Link::open(cx.now, &config, slot, "demo".to_owned(), client, 7)
            });
            Self { link, kernel, out }
        }

        fn with<T>(&mut self, work: impl FnOnce(&mut Link, &mut Cx<'_>) -> T) -> T {
            let link = &mut self.link;
            within(&mut self.kernel, &mut self.out, |cx| work(link, cx))
        }
    }

    fn within<T>(
        kernel: &mut Kernel,
        out: &mut VecDeque<CoreAction>,
        work: impl FnOnce(&mut Cx<'_>) -> T,
    ) -> T {
        work(&mut Cx {
            now: Time::from_ms(0),
            kernel,
            out,
            checks: &mut Checks::default(),
            memory: &mut ServerMemory::default(),
            proof: &mut crate::core::readiness::Proof::default(),
            epoch_ms: 0,
            version: "1",
            spans: &mut Spans::seeded(None),
            tool_list: &crate::tool_list::ToolListRules::default(),
            gates: &mut crate::core::gate::Gates::default(),
        })
    }

    /// A call of the tool `t`.
    fn call() -> ClientRequest {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}"#;
        let Ok(Relayed::Request(request)) = relay(text.as_bytes(), 64) else {
            panic!("it is a request");
        };
        ClientRequest::new(text, &request, None)
    }

    /// Something that a client sends while no server serves.
    #[derive(Clone, Debug)]
    enum Sent {
        Notification,
        /// A call; one that ends before a server is ready never gets there.
        Call {
            ends_early: bool,
        },
    }

    fn sent() -> impl Strategy<Value = Sent> {
        prop_oneof![
            Just(Sent::Notification),
            any::<bool>().prop_map(|ends_early| Sent::Call { ends_early }),
        ]
    }

    proptest! {
        #[test]
        fn deferred_notifications_keep_their_place_and_are_sent_once(sent in vec(sent(), 0..20)) {
            let mut bench = Bench::new("{}");
            let server = Generation::new(1);
            let (mut last, mut calls, mut expected) = (None, Vec::new(), Vec::new());
            for (number, sent) in sent.iter().enumerate() {
                match sent {
                    Sent::Notification => {
                        let line = Json::from(serde_json::json!({ "n": number }));
                        expected.push(line.to_string());
                        bench.link.handover.deferred.push_back((last, line));
                    }
                    Sent::Call { ends_early } => {
                        let call = CallId::new(number as u64);
                        last = Some(call);
                        if !ends_early {
                            calls.push(call);
                            expected.push(call.to_string());
                        }
                    }
                }
            }
            let mut got = Vec::new();
            let mut said = |bench: &mut Bench, before| {
                bench.with(|link, cx| link.send_deferred(cx, server, before));
                for action in bench.out.drain(..) {
                    match action {
                        CoreAction::Say { generation, line, .. } if generation == server => {
                            got.push(line.to_string());
                        }
                        other => panic!("{other:?}"),
                    }
                }
                got.extend(before.map(|call| call.to_string()));
            };
            for call in calls {
                said(&mut bench, Some(call));
            }
            said(&mut bench, None);
            said(&mut bench, None);
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn a_call_is_reconsidered_once_and_only_if_the_tools_are_of_another_server(
            admitted in 1..3_u64,
            tools_of in 1..3_u64,
            definition in prop_oneof![
                Just(None),
                Just(Some(r#"{"name":"t"}"#)),
                Just(Some(r#"{"name":"t","inputSchema":{"type":"object"}}"#)),
            ],
            is_denied in any::<bool>(),
            is_complete in any::<bool>(),
            was_listed in any::<bool>(),
            was_checked in any::<bool>(),
        ) {
            let rules = if is_denied { r#"{"deny":["t"]}"# } else { "{}" };
            let mut bench = Bench::new(rules);
            let id = CallId::new(1);
            bench.link.handover.tools_of = Some(Generation::new(tools_of));
            bench.link.tools.learn(definition.unwrap_or(r#"{"name":"other"}"#));
            if is_complete {
                let epoch = bench.link.tools.epoch();
                bench.link.tools.completed(epoch);
            }
            let mut request = call();
            request.admitted = Some(Generation::new(admitted));
            request.listed = was_listed;
            let known = bench.link.tools.get("t");
            let digest = known.map(|tool| tool.check.digest());
            request.checked = digest.filter(|_| was_checked);
            bench.link.requests.insert(id, request);
            let has_schema = definition.is_some_and(|text| text.contains("inputSchema"));
            let expected = match definition {
                _ if admitted == tools_of => "send",
                None if was_listed && is_complete => "unknown_tool",
                _ if is_denied => "forbidden",
                Some(_) if has_schema && !was_checked => "check",
                _ => "send",
            };
            let decided = |reconsidered| match reconsidered {
                Reconsidered::Send => "send",
                Reconsidered::Check(_) => "check",
                Reconsidered::Refuse(problem) => match problem.kind {
                    ErrorKind::UnknownTool => "unknown_tool",
                    ErrorKind::Forbidden => "forbidden",
                    other => panic!("{other:?}"),
                },
            };
            let first = bench.with(|link, cx| link.reconsider(cx, id));
            prop_assert_eq!(decided(first), expected);
            let again = bench.with(|link, cx| link.reconsider(cx, id));
            prop_assert_eq!(decided(again), "send", "the same server");
        }
    }

    #[test]
    fn a_list_that_is_malformed_or_does_not_end_cannot_be_read() {
        let page = r#"{"tools":[{"name":"a"}],"nextCursor":"2"}"#;
        let mut catalog = Catalog::default();
        for _ in 0..super::super::lists::PAGES {
            assert_eq!(catalog.add(Some(page)), Ok(()));
        }
        assert_eq!(catalog.add(Some(page)), Err("it does not end"));
        for (result, why) in [
            (None, "the server refused it"),
            (Some("{}"), "it is not a list"),
            (Some(r#"{"tools":{}}"#), "it is not a list"),
        ] {
            assert_eq!(Catalog::default().add(result), Err(why));
        }
    }
}
