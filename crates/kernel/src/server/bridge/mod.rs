//! Clients of one era on a server of the other, where the operator allows it (`bridge`).
//!
//! Theory of operation. A link learns the era of its server from its handshake and keeps the [`Way`] in which it
//! translates. The host does the handshake that the client cannot do, answers the client's own handshake in the client's form,
//! and translates requests, results, questions and notifications. Everything that both eras have in common passes
//! as without a bridge.
//!
//! * [`modern`]: a modern client on a legacy server;
//! * [`legacy`]: a legacy client on a modern server.
//!
//! `docs/eras.md` has a row for every feature; the test `era_table` has a test for every row.

mod legacy;
mod modern;

use std::collections::BTreeMap;

use mainstay_contract::dialect::Dialect;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::Json;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::Forwarded;
use mainstay_contract::rpc::Answer;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};

use self::legacy::Round;
use self::modern::Parked;
use super::incarnation::Purpose;
use super::replies::response;
use super::requests::ClientRequest;
use super::{Client, Cx, Link, edit};

/// The translation of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bridge {
    /// `None` while both sides speak the same era, or the server's is not known.
    way: Option<Way>,
    /// The server speaks the modern era, as its client does.
    is_native: bool,
    /// A server was lost while it was asked for its era: the next one is not asked.
    skips_discovery: bool,
    /// The server's answer to the client's handshake, in the client's form.
    handshake: Option<Json>,
    /// Calls of a modern client whose legacy server waits for an answer, by `requestState`.
    parked: BTreeMap<String, Parked>,
    /// Calls of a legacy client whose modern server waits for answers.
    rounds: BTreeMap<CallId, Round>,
    /// The level of log messages that a legacy client wants, as JSON text.
    level: Option<Json>,
    /// The subscription of the host to changes of a modern server.
    listening: Option<(Generation, RequestId)>,
}

/// Who speaks which era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// A modern client on a legacy server.
    ModernClient,
    /// A legacy client on a modern server.
    LegacyClient,
}

impl Link {
    /// True if the host may do the handshake of the other era.
    pub(super) fn may_bridge(&self) -> bool {
        self.rules().bridge && matches!(self.client, Client::Session(_))
    }

    /// True if the host has found out that the server speaks the modern era.
    pub(super) fn speaks_modern_era(&self) -> bool {
        self.bridge.is_native || matches!(&self.client, Client::House(house) if house.is_modern())
    }

    /// True for a modern client on a legacy server.
    pub(super) fn serves_modern(&self) -> bool {
        self.bridge.way == Some(Way::ModernClient)
    }

    /// True for a legacy client on a modern server.
    pub(super) fn serves_legacy(&self) -> bool {
        self.bridge.way == Some(Way::LegacyClient)
    }

    /// Answers a request that the other era does not have. False if the server must get it.
    pub(super) fn answers_bridged(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
    ) -> bool {
        if self.bridge.way.is_none() {
            return false;
        }
        let Some(request) = self.requests.get(call).cloned() else {
            return false;
        };
        let result = match self.bridge.way {
            Some(Way::ModernClient) if request.dialect == Dialect::Modern => {
                match Method::parse(&request.method) {
                    Some(Method::Discover) => self.shown_bridged(cx),
                    Some(Method::Listen) => {
                        self.acknowledge(cx, call, &request);
                        return true;
                    }
                    _ => return self.resumes(cx, generation, call, &request),
                }
            }
            Some(Way::LegacyClient) => self.answer_legacy(cx, generation, &request),
            _ => None,
        };
        let Some(result) = result else {
            return false;
        };
        self.answer_here(cx, generation, call, &request, result.as_str());
        true
    }

    /// The handshake in the client's form, without instructions that the lock does not have.
    fn shown_bridged(&mut self, cx: &mut Cx<'_>) -> Option<Json> {
        let handshake = self.bridge.handshake.clone()?;
        let shown = self.shown_handshake(cx, handshake.as_str());
        Some(shown.map_or(handshake, |shown| Json::from_scanned(&shown)))
    }

    /// Ends a call of a server with a result of the host.
    fn answer_here(
        &self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        request: &ClientRequest,
        result: &str,
    ) {
        let answer = Answer::Forwarded(Forwarded {
            line: response(&request.id, result),
            is_error: false,
        });
        cx.kernel.handle_answer(cx.now, generation, call, answer);
    }

    /// A client's line as a server of the other era must get it.
    pub(super) fn bridged_line(&mut self, cx: &mut Cx<'_>, call: CallId, line: &Json) -> Json {
        match self.bridge.way {
            None => line.clone(),
            Some(Way::ModernClient) => {
                self.follow_log_level(cx, call);
                modern::plain_line(line)
            }
            Some(Way::LegacyClient) => self.with_own_meta(line),
        }
    }

    /// The result of a server as a client of the other era must get it, if that differs.
    pub(super) fn bridged_result(&self, request: &ClientRequest, result: &str) -> Option<String> {
        let is_object = result.starts_with('{');
        let is_modern = request.dialect == Dialect::Modern;
        let is_recalled = self.recall.is_active && self.recall.is_bridged;
        if is_modern && (self.memory.has_session() || is_recalled) && is_object {
            return modern::completed(&request.method, result);
        }
        let is_plain = !self.memory.has_session() && self.memory.modern_meta.is_some();
        let takes_less = request.dialect == Dialect::Legacy && is_plain && is_object;
        takes_less.then(|| edit::filtered(result, |name| !legacy::MODERN_MEMBERS.contains(&name)))
    }

    /// A server was lost: its calls wait for nothing any more.
    pub(super) fn bridge_lost(&mut self, generation: Generation, was_asked: bool) {
        self.bridge.skips_discovery |= was_asked;
        self.bridge
            .parked
            .retain(|_, parked| !parked.is_of(generation));
        self.bridge
            .rounds
            .retain(|_, round| !round.is_of(generation));
        if self
            .bridge
            .listening
            .as_ref()
            .is_some_and(|(of, _)| *of == generation)
        {
            self.bridge.listening = None;
        }
    }

    /// A server's handshake in the form of its client, if that speaks the other era.
    pub(super) fn translated_handshake(&self, result: &str) -> Option<Json> {
        let is_legacy = scan::member(result, "protocolVersion").is_some();
        match &self.recall.opening {
            _ if !self.may_bridge() => None,
            Some(opening) if !is_legacy => {
                let offered = scan::member(opening.as_str(), "protocolVersion");
                let offered = offered.and_then(scan::unquote).unwrap_or_default();
                Some(legacy::opened(result, &offered))
            }
            None if is_legacy => Some(modern::discovery(result)),
            _ => None,
        }
    }

    /// The client is introduced from the catalog of a server that spoke the other era: its first process is opened in
    /// that era. False if the eras of client and server are the same.
    pub(super) fn opens_bridged(&mut self, request: &ClientRequest, handshake: &str) -> bool {
        let is_bridged = self.recall.is_bridged && self.may_bridge();
        if is_bridged {
            self.memory.modern_meta = Some(legacy::modern_meta(request));
            self.bridge.way = Some(Way::LegacyClient);
            self.bridge.handshake = Some(Json::from_scanned(handshake));
        }
        is_bridged
    }

    /// A server refused the handshake of the era that it spoke in its last run: it is asked in the other one. False if
    /// no era was assumed.
    pub(super) fn tries_other_era(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        refused: Purpose,
    ) -> bool {
        let script = match refused {
            Purpose::Restore => self.legacy_after_all(),
            Purpose::Open => self.modern_after_all(cx),
            Purpose::Discover | Purpose::LateDiscover => None,
        };
        let (Some(script), Some(server)) = (script, self.incarnations.get_mut(&generation)) else {
            return false;
        };
        server.script = script.into();
        true
    }

    /// A request has ended.
    pub(super) fn bridge_ended(&mut self, call: CallId) {
        self.bridge.rounds.remove(&call);
    }
}

/// The capabilities of a server with `listChanged` for every list that it has, without tasks: each era has its own.
fn common_capabilities(declared: &str) -> String {
    let mut capabilities = edit::filtered(declared, |name| name != "tasks");
    for kind in ListKind::ALL {
        let capability = kind.capability();
        if scan::member(&capabilities, capability).is_some_and(|list| list.starts_with('{')) {
            capabilities = edit::with_inner(&capabilities, capability, "listChanged", "true");
        }
    }
    capabilities
}
