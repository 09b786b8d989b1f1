//! The engine's dealings with clients.

use std::time::Duration;

use mainstay_contract::dialect::encode::{self, ProgressOf};
use mainstay_contract::dialect::{Dialect, EchoId, Form, Inbound, Op, Request};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_contract::render::{Bounds, RenderMode};
use mainstay_kernel::action::{Delivery, End, Notice};
use mainstay_kernel::call::{NewRequest, Work};
use mainstay_kernel::defect::{Defect, is_planted};
use mainstay_kernel::session::Pace;
use tokio::sync::oneshot;

use super::envelopes::asked_of;
use super::{Engine, Event, Lifetime, Phase};
use crate::clock::iso_now;
use crate::log::Level;
use crate::outbox::Outbox;
use crate::system_tools;
use crate::transport::{Client, ClientEvent, Gate, read_requests, write_answers};

/// How a session is answered.
#[derive(Debug)]
pub(super) enum Conversation {
    /// In lines, with the gate of its way in.
    Lines { outbox: Outbox, gate: Gate },
    /// With the end of its only request, for whoever has a form of its own for it.
    Once(Option<oneshot::Sender<Box<End>>>),
}

impl Conversation {
    fn close(&self) {
        if let Self::Lines { outbox, .. } = self {
            outbox.close();
        }
    }
}

/// One request that stands alone.
#[derive(Debug)]
pub(crate) struct Single {
    pub(crate) request: Request,
    pub(crate) bytes: usize,
    pub(crate) reply: oneshot::Sender<Box<End>>,
    /// Dropped by the one who asks when the answer is no longer wanted.
    pub(crate) wanted: oneshot::Receiver<()>,
}

impl Engine {
    pub(super) fn connect(&mut self, client: Client) {
        let limits = self.kernel.limits();
        // Sessions over HTTP are counted there.
        if self.conversations.len() >= limits.connections.max(2 * limits.http_sessions) {
            self.log.line("mcp:warning reason=too_many_connections");
            return;
        }
        let session = self.kernel.open_session();
        let outbox = Outbox::with_mark(self.kernel.limits().outbox_bytes);
        let gate = Gate::default();
        let limits = self.kernel.limits().clone();
        let events = self.events();
        tokio::spawn(read_requests(
            session,
            client.source,
            limits,
            gate.clone(),
            events,
        ));
        let writes = outbox.clone();
        tokio::spawn(write_answers(session, client.sink, writes, self.events()));
        self.conversations
            .insert(session, Conversation::Lines { outbox, gate });
        self.log
            .say(Level::Debug, format!("session opened id={session}"));
    }

    /// Runs a request in a session of its own, which ends with it.
    pub(super) fn single(&mut self, single: Single) {
        let session = self.kernel.open_session();
        self.conversations
            .insert(session, Conversation::Once(Some(single.reply)));
        let (events, wanted) = (self.events(), single.wanted);
        tokio::spawn(async move {
            let _ = wanted.await;
            let delivered = false;
            let gone = ClientEvent::OutputEnded { session, delivered };
            let _ = events.send(gone.into()).await;
        });
        self.receive(session, Inbound::Request(single.request), single.bytes);
        self.kernel.handle_input_end(session);
    }

    pub(super) fn receive(&mut self, session: SessionId, inbound: Inbound, bytes: usize) {
        let now = self.clock.now();
        let asked = asked_of(&inbound);
        let request = match inbound {
            Inbound::Ignored => return,
            Inbound::Notice(notice) => return self.client_news(session, notice),
            Inbound::Answer(answer) => return self.client_answer(session, answer),
            Inbound::Cancel(cancel) => {
                return self.kernel.handle_cancel(now, session, &cancel);
            }
            Inbound::Refused(refused) => NewRequest {
                id: refused.id,
                form: refused.form,
                method: "invalid".to_owned(),
                tool: None,
                progress_token: None,
                input_bytes: bytes,
                trace: None,
                work: Work::Refused(refused.problem),
            },
            Inbound::Request(request) => {
                self.hear(session, &request.op);
                NewRequest {
                    id: EchoId::Known(request.id),
                    form: Form {
                        dialect: request.dialect,
                        shape: request.op.shape(),
                    },
                    method: request.op.method().to_owned(),
                    tool: None,
                    progress_token: request.progress_token,
                    input_bytes: bytes,
                    trace: self.recorder.span(request.trace),
                    work: Work::Unrouted(request.op),
                }
            }
        };
        let call = self.kernel.handle_request(now, session, request);
        self.remember(call, asked);
        self.pace(session);
    }

    /// Finds out who answers a request, once that can be said.
    pub(super) fn route(&mut self, call: CallId, dialect: Dialect, op: Op) {
        if !self.directory.can_route(&op) {
            self.unrouted.insert(call, (dialect, op));
            return;
        }
        let routed = self.directory.route(dialect, &op);
        if matches!(&routed.work, Work::Worker(task) if self.roots.holds(task.slot)) {
            self.unrouted.insert(call, (dialect, op));
            return;
        }
        if let Some(mismatch) = routed.mismatch {
            self.kernel.note_mismatch(mismatch);
        }
        if let Some(alias) = routed.deprecated {
            self.log.line(&format!(
                "mcp:warning reason=deprecated_alias method={alias}"
            ));
        }
        self.kernel
            .handle_routed(self.clock.now(), call, routed.tool, routed.work);
    }

    /// Routes what waited for the last pack or for the client's roots to be known.
    pub(super) fn route_waiting(&mut self) {
        for (call, (dialect, op)) in std::mem::take(&mut self.unrouted) {
            self.route(call, dialect, op);
        }
    }

    pub(super) fn input_ended(&mut self, session: SessionId) {
        self.end_listeners(Some(session));
        self.roots_end(session);
        self.kernel.handle_input_end(session);
    }

    pub(super) fn output_ended(&mut self, session: SessionId, delivered: bool) {
        if self.conversations.remove(&session).is_none() {
            return;
        }
        self.log.say(
            Level::Debug,
            format!("session closed id={session} delivered={delivered}"),
        );
        if !is_planted(Defect::SessionLeak) {
            self.kernel.handle_gone(self.clock.now(), session);
        }
        if self.lifetime == Lifetime::Client {
            self.kernel.handle_stop(self.clock.now());
        }
    }

    /// Everything is answered: what is in the outbox is written, then the connection closes.
    pub(super) fn session_over(&mut self, session: SessionId) {
        match self.conversations.get(&session) {
            Some(Conversation::Once(_)) => self.output_ended(session, true),
            Some(conversation) => conversation.close(),
            None => {}
        }
    }

    /// Every request is answered: clients get what is in their outboxes, and some time to take
    /// it.
    pub(super) fn close_conversations(&mut self) {
        self.phase = Phase::Closing;
        for conversation in self.conversations.values() {
            conversation.close();
        }
        let (events, grace) = (self.events(), self.kernel.limits().grace_ms);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(grace)).await;
            let _ = events.send(Event::LeaveClients).await;
        });
    }

    /// A client that does not take its answers gets no new ones made, and is not read; one whose
    /// line is too long is not read.
    pub(super) fn pace(&mut self, session: SessionId) {
        let Some(Conversation::Lines { outbox, gate }) = self.conversations.get(&session) else {
            return;
        };
        let behind = outbox.watch_behind() && !is_planted(Defect::GateNeverCloses);
        let pace = if behind { Pace::Behind } else { Pace::Even };
        self.kernel.handle_pace(self.clock.now(), session, pace);
        let open = !behind && self.kernel.wants_input(session);
        if gate.is_closed() == open {
            gate.set_open(open);
        }
    }

    pub(super) fn answer(&mut self, end: Box<End>) {
        // Cancelled before anybody knew who would have answered it.
        self.unrouted.remove(&end.call);
        self.listeners.remove(&end.call);
        let asked = self.asked.remove(&end.call);
        let mut output_bytes = 0;
        let mut reply = None;
        if end.delivery == Delivery::Send {
            let to = match self.conversations.keys().next() {
                Some(oldest) if is_planted(Defect::WrongSession) => *oldest,
                _ => end.session,
            };
            match self.conversations.get_mut(&to) {
                Some(Conversation::Lines { outbox, .. }) => {
                    let outbox = outbox.clone();
                    let line = self.line_of(&end, asked.as_ref());
                    output_bytes = line.len();
                    outbox.push(&line);
                    if end.attempt > 1 && is_planted(Defect::AnswerTwice) {
                        outbox.push(&line);
                    }
                }
                Some(Conversation::Once(waiting)) => {
                    output_bytes = said(&end.outcome);
                    reply = waiting.take();
                }
                None => {}
            }
        }
        if self.recorder.ended(&end, output_bytes) {
            self.record_hot_tools();
        }
        self.pace(end.session);
        if let Some(reply) = reply {
            let _ = reply.send(end);
        }
    }

    pub(super) fn notify(&self, notice: &Notice) {
        let Some(Conversation::Lines { outbox, .. }) = self.conversations.get(&notice.session)
        else {
            return;
        };
        let of = ProgressOf {
            id: &notice.id,
            dialect: notice.form.dialect,
            token: notice.token.as_ref(),
            tool: &notice.tool,
            step: notice.step.step,
            ts: &iso_now(),
        };
        if let Some(line) = encode::progress(&of, &notice.step.progress) {
            outbox.push(&line);
        }
    }

    /// Answers a request from the host's own knowledge.
    pub(super) fn serve(&mut self, call: CallId, op: &Op) {
        if matches!(op, Op::Listen {}) {
            return self.listen(call);
        }
        let outcome = self.own_answer(op);
        self.kernel.handle_served(self.clock.now(), call, outcome);
    }

    fn own_answer(&self, op: &Op) -> Outcome {
        let facts = || {
            let identity = &self.identity;
            let about = identity.instructions.as_deref();
            self.directory
                .facts(&identity.name, &identity.version, about)
        };
        let members = match op {
            Op::Initialize { version, .. } => facts().initialized(version),
            Op::Discover {} => facts().discovered(),
            Op::Catalog {} => {
                let identity = &self.identity;
                self.directory.catalog(&identity.name, &identity.version)
            }
            Op::Ping {} => Json::empty_object(),
            Op::CallTool { name, arguments } => return self.own_tool(name, arguments),
            listing => self
                .directory
                .listing(listing)
                .ok_or_else(|| Problem::of(ErrorKind::UnknownMethod))?,
        };
        Ok(Success::Members(members))
    }

    fn own_tool(&self, name: &str, arguments: &Json) -> Outcome {
        let render = if arguments.as_str().contains("porcelain") {
            RenderMode::Porcelain
        } else {
            RenderMode::Json
        };
        let limits = self.kernel.limits();
        let bounds = Bounds {
            lines: limits.porcelain_lines,
            bytes: limits.porcelain_bytes,
        };
        match name {
            system_tools::HEALTH => {
                let health = self.health();
                Ok(Success::Tool(system_tools::health(&health, render, bounds)))
            }
            system_tools::TELEMETRY => {
                let telemetry = self.telemetry();
                Ok(Success::Tool(system_tools::telemetry(
                    &telemetry, render, bounds,
                )))
            }
            _ => Err(Problem::of(ErrorKind::UnknownTool)),
        }
    }
}

/// How much an outcome says, before anybody gives it a form.
fn said(outcome: &Outcome) -> usize {
    match outcome {
        Ok(Success::Tool(reply)) => reply.json.len(),
        Ok(Success::Members(members)) => members.len(),
        Ok(Success::Forwarded(response)) => response.line.len(),
        Err(problem) => problem.message.len(),
    }
}
