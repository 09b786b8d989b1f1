//! A shared link: one server process for several sessions.
//!
//! Theory of operation. The host opens the server's session itself, as for callers without one
//! ([`super::house`]), and declares neither roots nor sampling nor elicitation: such questions carry no
//! origin. Every request gets a fresh id of the host on the wire, and its progress token is that id, so answers,
//! progress and cancels belong to exactly one call, and the kernel knows the session of a call. [`Shared`]
//! keeps what concerns a session beyond its calls: its subscriptions and its log level. Updates of a
//! resource go to its subscribers. A log line goes to the only session with an open call, else to the
//! host's log.
//!
//! A client that does not read must not hold back the server for the others. The host drops log lines for it
//! and merges its updates until it reads again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::encode;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::json::ObjectWriter;
use mainstay_contract::meta::PROGRESS_TOKEN;
use mainstay_contract::method::Method;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};

use super::incarnation::Awaited;
use super::memory::SUBSCRIPTIONS;
use super::requests::ClientRequest;
use super::{Client, Cx, Link, edit};
use crate::call::Work;
use crate::core::action::{CoreAction, LogLevel};
use crate::defect::{Defect, is_planted};
use crate::log_limit::{LogLimit, suppressed};

/// Log levels of MCP, the most verbose first.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];
/// Characters of a server's log message in the host's log.
const MESSAGE_CHARS: usize = 400;

/// The state of the sessions that share a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shared {
    /// Clients with a session; callers without one are not counted.
    sessions: BTreeSet<SessionId>,
    /// The subscribers of each resource, by URI.
    subscribers: BTreeMap<String, BTreeSet<SessionId>>,
    /// The log level of each session that set one.
    levels: BTreeMap<SessionId, usize>,
    /// Resources that changed while a subscriber did not read.
    late: BTreeMap<SessionId, BTreeSet<String>>,
    /// For log messages of the server that no session gets.
    messages: LogLimit,
}

impl Shared {
    /// The most verbose level that a session wants.
    fn level(&self) -> Option<&'static str> {
        let most = self.levels.values().min()?;
        LEVELS.get(*most).copied()
    }

    /// Sessions that subscribed to a resource, or to one that contains it.
    fn subscribers_of(&self, uri: &str) -> BTreeSet<SessionId> {
        if is_planted(Defect::UpdateToAll) {
            return self.sessions.clone();
        }
        let contains = |known: &str| {
            let rest = uri.strip_prefix(known.trim_end_matches('/'));
            known == uri || rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let subscribed = self.subscribers.iter().filter(|(known, _)| contains(known));
        subscribed
            .flat_map(|(_, sessions)| sessions)
            .copied()
            .collect()
    }

    /// Removes a session. Returns the resources without a subscriber.
    fn remove(&mut self, session: SessionId) -> Vec<String> {
        self.sessions.remove(&session);
        self.levels.remove(&session);
        self.late.remove(&session);
        let mut orphans = Vec::new();
        self.subscribers.retain(|uri, sessions| {
            if sessions.remove(&session) && sessions.is_empty() {
                orphans.push(uri.clone());
            }
            !sessions.is_empty()
        });
        orphans
    }

    /// Ends the subscription of a session. True if others keep theirs.
    fn unsubscribe(&mut self, uri: &str, session: SessionId) -> bool {
        let Some(sessions) = self.subscribers.get_mut(uri) else {
            return false;
        };
        sessions.remove(&session);
        let is_kept = !sessions.is_empty();
        if !is_kept {
            self.subscribers.remove(uri);
        }
        is_kept
    }
}

impl Link {
    /// Lets several sessions use this link, which no client has used yet.
    pub(crate) fn share(&mut self) {
        self.shared = Some(Shared::default());
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// True if the server speaks the modern era, as the host found out.
    pub(crate) const fn is_modern(&self) -> bool {
        matches!(&self.client, Client::House(house) if house.is_modern())
    }

    /// The number of clients with a session on a shared server.
    pub(crate) fn session_count(&self) -> usize {
        match &self.shared {
            Some(shared) => shared.sessions.len(),
            None => usize::from(self.session().is_some()),
        }
    }

    /// A client's session begins to use the shared server.
    pub(crate) fn join(&mut self, now: crate::time::Time, session: SessionId) {
        self.touch(now);
        if let Some(shared) = &mut self.shared {
            shared.sessions.insert(session);
        }
    }

    /// A client's session ends: its subscriptions end, those of other sessions do not.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>, session: SessionId) {
        self.touch(cx.now);
        let Some(shared) = &mut self.shared else {
            return;
        };
        for uri in shared.remove(session) {
            // The server may read another session's request first and agree to it.
            let is_wanted = self.requests.iter().any(|(call, request)| {
                let asker = cx.kernel.request_of(call).map(|(asker, _)| asker);
                request.subscribes_to(&uri) && asker.is_some_and(|asker| asker != session)
            });
            if is_wanted {
                continue;
            }
            let params = uri_params(&uri);
            let method = Method::UnsubscribeResource.name();
            self.memory.record_answer(method, Some(&params), "{}");
            self.update_standbys(cx, None, method, Some(&params));
        }
        self.update_level(cx);
    }

    /// True if the session waits for updates of a resource.
    pub(crate) fn has_subscriber(&self, session: SessionId) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| {
            let mut all = shared.subscribers.values();
            all.any(|sessions| sessions.contains(&session))
        })
    }

    /// A session that shares the server sets its log level.
    pub(super) fn set_shared_level(&mut self, cx: &mut Cx<'_>, session: SessionId, params: &str) {
        let level = scan::member(params, "level").and_then(scan::unquote);
        let level = level.and_then(|level| LEVELS.iter().position(|known| *known == level));
        if let (Some(shared), Some(level)) = (&mut self.shared, level) {
            shared.levels.insert(session, level);
        }
        self.update_level(cx);
    }

    /// Gives the server the most verbose level that a session wants.
    fn update_level(&mut self, cx: &mut Cx<'_>) {
        let level = self.shared.as_ref().and_then(Shared::level);
        let params = level.map(|level| {
            let params = ObjectWriter::with_capacity(32).string("level", level);
            params.finish()
        });
        let Some(params) = params else { return };
        if self
            .memory
            .level()
            .is_none_or(|known| known.as_str() != params)
        {
            let method = Method::SetLogLevel.name();
            self.memory.record_answer(method, Some(&params), "{}");
            self.update_standbys(cx, None, method, Some(&params));
        }
    }

    /// The call that a shared server reports progress of.
    pub(super) fn call_of_token(&self, generation: Generation, token: &str) -> Option<CallId> {
        let id = RequestId::parse(token).ok()?;
        let server = self.incarnations.get(&generation)?;
        match server.awaited.get(&id) {
            Some(Awaited::Call(call)) => Some(*call),
            _ => None,
        }
    }

    /// True if the caller of a call has no session and takes typed progress.
    pub(super) fn is_typed(&self, cx: &Cx<'_>, call: Option<CallId>) -> bool {
        let Some(shared) = &self.shared else {
            return self.is_house();
        };
        let asker = call.and_then(|call| cx.kernel.request_of(call));
        !asker.is_some_and(|(session, _)| shared.sessions.contains(&session))
    }

    /// A progress notification with the token that the client chose.
    pub(super) fn with_client_token<'a>(
        &self,
        call: CallId,
        text: &'a str,
        params: Option<&str>,
    ) -> Cow<'a, str> {
        let request = self.requests.get(call);
        let request = request.filter(|request| request.wire_token.is_some());
        match (request.and_then(|request| request.token.as_deref()), params) {
            (Some(token), Some(params)) => {
                let params = edit::with_member(params, PROGRESS_TOKEN, token);
                Cow::Owned(edit::with_member(text, "params", &params))
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Sends progress of a call to its client. A client of a shared server that does not read gets none.
    pub(super) fn report_progress(&self, cx: &mut Cx<'_>, call: CallId, line: String) {
        if self.shared.is_none() {
            return self.tell_client(cx, line);
        }
        let session = cx.kernel.request_of(call).map(|(session, _)| session);
        let has_token = self
            .requests
            .get(call)
            .is_some_and(|request| request.token.is_some());
        if let Some(session) = session.filter(|session| !cx.kernel.is_behind(*session))
            && has_token
        {
            cx.out.push_back(CoreAction::Tell { session, line });
        }
    }

    /// The work for a request about a subscription that other sessions have a part in. `None` for all others,
    /// which the server gets.
    pub(super) fn shared_work(
        &mut self,
        cx: &Cx<'_>,
        call: CallId,
        request: &ClientRequest,
    ) -> Option<Work> {
        let shared = self.shared.as_mut()?;
        let method = Method::parse(&request.method);
        let uri = scan::unquote(request.param("uri")?)?;
        let (session, _) = cx.kernel.request_of(call)?;
        match method {
            Some(Method::SubscribeResource) => {
                let is_full = shared.subscribers.len() >= SUBSCRIPTIONS
                    && !shared.subscribers.contains_key(&*uri);
                let said =
                    format!("the sessions of this server have {SUBSCRIPTIONS} subscriptions");
                is_full.then(|| Work::Refused(Problem::new(ErrorKind::Overloaded, said)))
            }
            Some(Method::UnsubscribeResource) => {
                let is_kept = shared.unsubscribe(&uri, session);
                let mut open = self.requests.values();
                (is_kept || open.any(|other| other.subscribes_to(&uri))).then_some(Work::Host)
            }
            _ => None,
        }
    }

    /// Records the subscriber of a resource once the server has agreed.
    pub(super) fn record_subscription(&mut self, cx: &mut Cx<'_>, call: CallId, method: &str) {
        let request = self.requests.get(call);
        let uri = request.and_then(|request| request.param("uri"));
        let uri = uri.and_then(scan::unquote).map(Cow::into_owned);
        let session = cx.kernel.request_of(call).map(|(session, _)| session);
        let (Some(shared), Some(uri), Some(session)) = (&mut self.shared, uri, session) else {
            return;
        };
        match Method::parse(method) {
            Some(Method::SubscribeResource) if shared.sessions.contains(&session) => {
                shared.subscribers.entry(uri).or_default().insert(session);
            }
            // Another session subscribed meanwhile, and the server may have read both in this order.
            Some(Method::UnsubscribeResource) if shared.subscribers.contains_key(&uri) => {
                let (method, params) = (Method::SubscribeResource.name(), uri_params(&uri));
                self.memory.record_answer(method, Some(&params), "{}");
                self.update_standbys(cx, None, method, Some(&params));
            }
            _ => {}
        }
    }

    /// Delivers a notification of a shared server that belongs to some of its sessions. False for all others.
    pub(super) fn shared_notification(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        text: &str,
        method: &str,
        params: Option<&str>,
    ) -> bool {
        let Some(shared) = &mut self.shared else {
            return false;
        };
        let params = params.unwrap_or("{}");
        match Method::parse(method) {
            Some(Method::ResourceUpdated) => {
                let uri = scan::member(params, "uri").and_then(scan::unquote);
                let uri = uri.unwrap_or_default();
                for session in shared.subscribers_of(&uri) {
                    if cx.kernel.is_behind(session) {
                        let late = shared.late.entry(session).or_default();
                        if late.len() < SUBSCRIPTIONS {
                            late.insert(uri.clone().into_owned());
                        }
                    } else if cx.kernel.has_session(session) {
                        let line = text.to_owned();
                        cx.out.push_back(CoreAction::Tell { session, line });
                    }
                }
                true
            }
            Some(Method::LogMessage) => {
                self.deliver_log(cx, generation, text, params);
                true
            }
            _ => false,
        }
    }

    /// Sends a log message to the only session with an open call, else to the host's log.
    fn deliver_log(&mut self, cx: &mut Cx<'_>, generation: Generation, text: &str, params: &str) {
        let server = self.incarnations.get(&generation);
        let calls = server.into_iter().flat_map(|server| server.calls());
        let sessions = calls.filter_map(|call| Some(cx.kernel.request_of(call)?.0));
        let sessions: BTreeSet<SessionId> = sessions.collect();
        let Some(shared) = &mut self.shared else {
            return;
        };
        let level = scan::member(params, "level").and_then(scan::unquote);
        let level = level.as_deref().unwrap_or("info");
        let rank = LEVELS.iter().position(|known| *known == level);
        if let (Some(session), 1) = (sessions.first(), sessions.len())
            && shared.sessions.contains(session)
        {
            let wanted = shared.levels.get(session).copied().unwrap_or(0);
            if rank.is_none_or(|rank| rank >= wanted) && !cx.kernel.is_behind(*session) {
                let (session, line) = (*session, text.to_owned());
                cx.out.push_back(CoreAction::Tell { session, line });
            }
        } else if let Some(more) = shared.messages.admit(cx.now) {
            let data = scan::member(params, "data").unwrap_or("null");
            let data = render::visible(&render::shorten(data, MESSAGE_CHARS)).into_owned();
            let (name, more) = (&self.name, suppressed(more));
            let level = render::visible(&render::shorten(level, 16)).into_owned();
            let line = format!("mcp:server pack={name} level={level}{more} {data}");
            cx.log_at(LogLevel::Info, line);
        }
    }

    /// Sends updates that waited for a subscriber that did not read.
    pub(super) fn deliver_late(&mut self, cx: &mut Cx<'_>) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let late = std::mem::take(&mut shared.late);
        for (session, uris) in late {
            if cx.kernel.is_behind(session) {
                shared.late.insert(session, uris);
                continue;
            }
            for uri in uris.iter().filter(|_| cx.kernel.has_session(session)) {
                let params = uri_params(uri);
                let line = encode::notification(Method::ResourceUpdated, Some(&params));
                cx.out.push_back(CoreAction::Tell { session, line });
            }
        }
    }
}

/// A request whose progress token, if it has one, is the id under which the host sends it.
pub(super) fn with_own_token(line: &str, own: &RequestId) -> String {
    let params = scan::member(line, "params").unwrap_or("{}");
    let meta = scan::member(params, "_meta").unwrap_or("{}");
    if scan::member(meta, PROGRESS_TOKEN).is_none() {
        return line.to_owned();
    }
    let params = edit::with_inner(params, "_meta", PROGRESS_TOKEN, own.as_raw());
    edit::with_member(line, "params", &params)
}

fn uri_params(uri: &str) -> String {
    let params = ObjectWriter::with_capacity(uri.len() + 16);
    params.string("uri", uri).finish()
}
