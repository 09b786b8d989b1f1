//! Clients: connections with their outboxes and gates, and single typed requests.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use mainstay_contract::dialect::Request;
use mainstay_contract::envelope::Asked;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::SessionId;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_kernel::action::{Delivery, End, Notice};
use mainstay_kernel::core::action::CoreEvent;
use mainstay_kernel::defect::{Defect, is_planted};
use mainstay_kernel::progress::Step;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::workers::Handle;
use super::{Engine, Event, Phase};
use crate::entropy;
use crate::http::CHUNKS;
use crate::io::{SavedEnd, Sink};
use crate::log::Level;
use crate::outbox::{Outbox, SavedOutbox};
use crate::transport::{Client, ClientEvent, Gate, Lines, SavedLines, read_lines, write_answers};
use crate::upgrade::{Incoming, Outgoing, Pause};

/// The way in which a session is answered.
#[derive(Debug)]
pub(super) enum Conversation {
    /// In lines.
    Lines {
        outbox: Outbox,
        gate: Gate,
        /// The client did not read its answers at the last look.
        behind: bool,
        /// The number of its last use.
        used: u64,
        tasks: Box<Tasks>,
    },
    /// With the typed end of its only request.
    Once {
        reply: Option<oneshot::Sender<Ended>>,
        steps: Option<mpsc::Sender<Step>>,
    },
}

/// The tasks of a connection, and the parts of those that have ended in a pause.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    reader: Option<JoinHandle<Option<Lines>>>,
    writer: Option<JoinHandle<Option<Sink>>>,
    lines: Option<Lines>,
    sink: Option<Sink>,
    /// Another process could continue them.
    can_move: bool,
    /// Its number among the links of the HTTP front.
    link: Option<u64>,
}

/// A connection, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedClient {
    /// None once its input has ended.
    lines: Option<SavedLines>,
    sink: SavedEnd,
    outbox: SavedOutbox,
    behind: bool,
    used: u64,
    link: Option<u64>,
}

/// The channels of restored links, by their numbers.
pub(crate) type Links = BTreeMap<u64, (mpsc::Sender<io::Result<Vec<u8>>>, mpsc::Receiver<Vec<u8>>)>;

/// The typed end of a request, or the reason why it was not admitted.
pub(crate) type Ended = Result<Box<End>, Problem>;

impl Conversation {
    /// True if another process could continue it.
    pub(super) fn can_move(&self) -> bool {
        matches!(self, Self::Lines { tasks, .. } if tasks.can_move)
    }

    /// True if its tasks have ended.
    pub(super) fn is_paused(&self) -> bool {
        let Self::Lines { tasks, .. } = self else {
            return false;
        };
        tasks.reader.as_ref().is_none_or(JoinHandle::is_finished)
            && tasks.writer.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// True if the front has taken everything that was written to it.
    pub(super) fn is_taken(&self) -> bool {
        match self {
            Self::Lines { tasks, .. } => tasks.sink.as_ref().is_none_or(Sink::is_taken),
            Self::Once { .. } => false,
        }
    }

    /// Ends a single request with an error.
    pub(super) fn end_single(&mut self, kind: ErrorKind) {
        if let Self::Once { reply, .. } = self
            && let Some(reply) = reply.take()
        {
            let _ = reply.send(Err(Problem::of(kind)));
        }
    }

    /// Takes the parts of the tasks that have ended.
    pub(super) async fn collect(&mut self) {
        let Self::Lines { tasks, .. } = self else {
            return;
        };
        if let Some(reader) = tasks.reader.take_if(|task| task.is_finished()) {
            tasks.lines = reader.await.ok().flatten();
        }
        if let Some(lines) = &mut tasks.lines {
            lines.absorb();
        }
        if let Some(writer) = tasks.writer.take_if(|task| task.is_finished()) {
            tasks.sink = writer.await.ok().flatten();
        }
    }

    /// Starts a task for each part that has none.
    pub(super) fn run(
        &mut self,
        session: SessionId,
        limit: usize,
        events: &mpsc::Sender<Event>,
        pause: Pause,
    ) {
        let Self::Lines { outbox, tasks, .. } = self else {
            return;
        };
        if let Some(lines) = tasks.lines.take() {
            let reading = read_lines(session, lines, limit, events.clone(), pause.clone());
            tasks.reader = Some(tokio::spawn(reading));
        }
        if let Some(sink) = tasks.sink.take() {
            let writing = write_answers(session, sink, outbox.clone(), events.clone(), pause);
            tasks.writer = Some(tokio::spawn(writing));
        }
    }

    /// The state of a paused connection, for a process that continues in this one's place.
    pub(super) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedClient> {
        let Self::Lines {
            outbox,
            behind,
            used,
            tasks,
            ..
        } = self
        else {
            return None;
        };
        let lines = match &tasks.lines {
            None => None,
            Some(lines) => Some(lines.save(descriptors)?),
        };
        Some(SavedClient {
            lines,
            sink: tasks.sink.as_ref()?.save(descriptors)?,
            outbox: outbox.save(),
            behind: *behind,
            used: *used,
            link: tasks.link,
        })
    }

    /// A connection that another process saved. [`Self::run`] starts its tasks.
    pub(super) fn restore(
        saved: SavedClient,
        descriptors: &mut Incoming,
        links: &mut Links,
        limits: &Limits,
    ) -> io::Result<Self> {
        let (mut input, mut output) = (None, None);
        if let Some(link) = saved.link {
            let (says, source) = mpsc::channel(CHUNKS);
            let (sink, hears) = mpsc::channel(CHUNKS);
            links.insert(link, (says, hears));
            (input, output) = (Some(source), Some(sink));
        }
        let gate = Gate::default();
        let limit = limits.request_frame_bytes;
        let lines = saved.lines;
        let lines =
            lines.map(|lines| Lines::restore(lines, descriptors, input, limit, gate.clone()));
        let tasks = Tasks {
            lines: lines.transpose()?,
            sink: Some(Sink::restore(&saved.sink, descriptors, output)?),
            can_move: true,
            link: saved.link,
            ..Tasks::default()
        };
        Ok(Self::Lines {
            outbox: Outbox::restore(limits.outbox_bytes, saved.outbox),
            gate,
            behind: saved.behind,
            used: saved.used,
            tasks: Box::new(tasks),
        })
    }

    fn close(&self) {
        if let Self::Lines { outbox, .. } = self {
            outbox.close();
        }
    }
}

/// A single typed request.
#[derive(Debug)]
pub(crate) struct Single {
    pub(crate) request: Request,
    pub(crate) bytes: usize,
    /// Names who asks: callers do not share the session of a wrapped server.
    pub(crate) caller: String,
    pub(crate) reply: oneshot::Sender<Ended>,
    /// Takes the progress of the request. The engine drops steps while it is full.
    pub(crate) steps: Option<mpsc::Sender<Step>>,
    /// Closed by the caller when it no longer wants the answer.
    pub(crate) wanted: oneshot::Receiver<()>,
}

impl Engine {
    pub(super) fn connect(&mut self, client: Client) {
        if let Some(session) = self.core.open(self.clock.now(), entropy::random()) {
            self.converse(session, client);
        }
    }

    /// Reads the lines of a client, and writes its answers.
    pub(super) fn converse(&mut self, session: SessionId, client: Client) {
        if let Some(caller) = &client.caller {
            self.core.set_caller(session, caller);
        }
        let limits = self.core.limits();
        let outbox = Outbox::with_mark(limits.outbox_bytes);
        let gate = Gate::default();
        let limit = limits.request_frame_bytes;
        let Client {
            source, sink, link, ..
        } = client;
        let tasks = Tasks {
            can_move: link.is_some() || source.can_move() && sink.can_move(),
            link,
            lines: Some(Lines::new(source, limit, gate.clone())),
            sink: Some(sink),
            ..Tasks::default()
        };
        self.uses += 1;
        let mut lines = Conversation::Lines {
            outbox,
            gate,
            behind: false,
            used: self.uses,
            tasks: Box::new(tasks),
        };
        lines.run(session, limit, &self.events(), self.upgrade.pauses.watch());
        self.conversations.insert(session, lines);
        let said = format!("session opened id={session}");
        self.reports.log.say(Level::Debug, said);
    }

    /// Runs a request in a session of its own, which ends with it.
    pub(super) fn single(&mut self, single: Single) {
        let opened = self
            .core
            .open_single(self.clock.now(), &single.caller, entropy::random());
        let Some(session) = opened else {
            let full = Problem::of(ErrorKind::Overloaded);
            let _ = single.reply.send(Err(full));
            return;
        };
        let (reply, steps) = (Some(single.reply), single.steps);
        self.conversations
            .insert(session, Conversation::Once { reply, steps });
        let (events, wanted) = (self.events(), single.wanted);
        tokio::spawn(async move {
            let _ = wanted.await;
            let delivered = false;
            let gone = ClientEvent::OutputEnded { session, delivered };
            let _ = events.send(gone.into()).await;
        });
        self.report(CoreEvent::Ask {
            session,
            request: Box::new(single.request),
            bytes: single.bytes,
        });
    }

    pub(super) fn output_ended(&mut self, session: SessionId, delivered: bool) {
        let Some(conversation) = self.conversations.remove(&session) else {
            return;
        };
        if let Conversation::Lines { .. } = conversation {
            let said = format!("session closed id={session} delivered={delivered}");
            self.reports.log.say(Level::Debug, said);
        }
        // A call may run on after its client, which no longer holds its server back.
        for generation in self.core.workers_of(session) {
            let worker = self.workers.get(&generation);
            if let Some(Handle::Server(server)) = worker.map(|worker| &worker.handle) {
                server.set_readable(true);
            }
        }
        if !is_planted(Defect::SessionLeak) {
            self.report(CoreEvent::Gone { session });
        }
    }

    /// Closes the connection that has been idle for longest, so that its descriptors are free.
    pub(super) fn shed(&self) {
        let idle = self
            .conversations
            .iter()
            .filter(|(session, _)| self.core.is_idle_session(**session));
        let idle = idle.filter_map(|(session, conversation)| match conversation {
            Conversation::Lines { outbox, used, .. } => Some((*used, *session, outbox)),
            Conversation::Once { .. } => None,
        });
        if let Some((_, session, outbox)) = idle.min_by_key(|(used, ..)| *used) {
            // Its writer closes the socket and reports the end.
            outbox.seal();
            let said = format!("session shed id={session}");
            self.reports.log.say(Level::Debug, said);
        }
    }

    /// Closes a connection at once; what is in its outbox is not written.
    pub(super) fn drop_conversation(&mut self, session: SessionId) {
        if let Some(Conversation::Lines { outbox, gate, .. }) = self.conversations.remove(&session)
        {
            outbox.seal();
            gate.set_open(true);
        }
    }

    /// Everything is answered: the connection closes once its outbox is written.
    pub(super) fn close(&self, session: SessionId) {
        if let Some(conversation) = self.conversations.get(&session) {
            conversation.close();
        }
    }

    /// Every request is answered: clients get some time to read what is in their outboxes.
    pub(super) fn close_conversations(&mut self) {
        self.phase = Phase::Closing;
        for conversation in self.conversations.values() {
            conversation.close();
        }
        let (events, grace) = (self.events(), self.core.limits().grace_ms);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(grace)).await;
            let _ = events.send(Event::LeaveClients).await;
        });
    }

    /// Back-pressure. A client that does not read its answers is not read, and neither is its wrapped server;
    /// a server that does not read keeps its client from being read.
    pub(super) fn pace(&mut self, session: SessionId) {
        let Some(Conversation::Lines {
            outbox,
            gate,
            behind: was_behind,
            used,
            ..
        }) = self.conversations.get_mut(&session)
        else {
            return;
        };
        self.uses += 1;
        *used = self.uses;
        let behind = outbox.watch_behind() && !is_planted(Defect::GateNeverCloses);
        let gate = gate.clone();
        let changed = std::mem::replace(was_behind, behind) != behind;
        let mut stuck = false;
        // One of several servers does not hold the others back; what it is sent is bounded by its queue.
        let may_stick = self.core.has_one_server(session);
        for generation in self.core.workers_of(session) {
            let worker = self.workers.get(&generation);
            if let Some(Handle::Server(server)) = worker.map(|worker| &worker.handle) {
                let slow = server.watch_behind();
                server.set_readable(!behind && !slow);
                stuck |= slow && may_stick;
            }
        }
        if changed {
            self.report(CoreEvent::Pace { session, behind });
        }
        let open = !behind && !stuck && self.core.wants_input(session);
        if gate.is_closed() == open {
            gate.set_open(open);
        }
    }

    /// Sends a line to a client.
    pub(super) fn tell(&mut self, session: SessionId, line: &str) {
        if let Some(Conversation::Lines { outbox, .. }) = self.conversations.get(&session) {
            outbox.push(line);
            self.unpaced.insert(session);
        }
    }

    /// Delivers the one end of a request.
    pub(super) fn answer(&mut self, mut end: Box<End>, asked: Option<&Asked>) {
        self.add_last_words(&mut end);
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
                    let line = self.line_of(&end, asked);
                    output_bytes = line.len();
                    outbox.push(&line);
                    if end.attempt > 1 && is_planted(Defect::AnswerTwice) {
                        outbox.push(&line);
                    }
                }
                Some(Conversation::Once { reply: waiting, .. }) => {
                    output_bytes = length(&end.outcome);
                    reply = waiting.take();
                }
                None => {}
            }
        }
        self.unpaced.insert(end.session);
        if self.reports.recorder.ended(&end, output_bytes) {
            self.record_hot_tools();
        }
        if let Some(reply) = reply {
            self.conversations.remove(&end.session);
            let _ = reply.send(Ok(end));
        }
    }

    /// Reports progress of a call.
    pub(super) fn notify(&mut self, notice: Notice) {
        match self.conversations.get(&notice.session) {
            Some(Conversation::Once { steps, .. }) => {
                if let Some(steps) = steps {
                    let _ = steps.try_send(notice.step);
                }
            }
            _ => {
                if let Some(line) = super::encode::progress(&notice) {
                    self.tell(notice.session, &line);
                }
            }
        }
    }
}

/// The size of an outcome before it has a form.
fn length(outcome: &Outcome) -> usize {
    match outcome {
        Ok(Success::Tool(reply)) => reply.json.len(),
        Ok(Success::Members(members)) => members.len(),
        Ok(Success::Forwarded(response)) => response.line.len(),
        Err(problem) => problem.message.len(),
    }
}
