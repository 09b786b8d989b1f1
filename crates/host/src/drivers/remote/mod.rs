//! The driver of a remote server: the core's lines become HTTP requests, and answers and events become lines.
//!
//! * [`wire`]: the state of a session and its requests;
//! * [`exchange`]: one line and everything that can go wrong with it;
//! * [`sse_transport`]: streams that the host opens; [`sse`]: events;
//! * [`queue`]: lines that wait or are under way;
//! * [`connect`], [`tls`], [`credentials`], [`refusal`]: the way to the server, and who asks.
//!
//! The core has no other picture of it than of a process: a generation opens a session, and a lost session is
//! a lost generation, whose successor gets the session state again. It must never know the meaning of a tool.

mod body;
mod connect;
mod credentials;
mod exchange;
mod message;
mod queue;
mod refusal;
mod sse;
mod sse_transport;
mod tls;
mod wire;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::limits::Limits;
use mainstay_kernel::action::Manner;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinHandle, JoinSet};

use self::exchange::{After, Exchange};
use self::message::Message;
use self::queue::Ticket;
pub(crate) use self::wire::SavedRemote;
use self::wire::{Mode, RemoteState, Wire};
use super::What;
use super::task::{LastWords, Listener, Surroundings};
use crate::remote::{Remote, RemoteTransport};
use crate::upgrade::Pause;

/// Exchanges of one session at the same time.
const STREAMS: usize = 256;
/// Time for the server to be told that the session is over.
const FAREWELL: Duration = Duration::from_secs(2);
/// In a pause of the host, time for exchanges under way to end by themselves.
const PAUSE: Duration = Duration::from_secs(1);

/// The engine's grip on a remote server.
#[derive(Debug)]
pub(crate) struct RemoteHandle {
    state: Arc<RemoteState>,
    orders: mpsc::Sender<Manner>,
    task: Option<JoinHandle<Option<mpsc::Receiver<Manner>>>>,
    /// The driver's part, while the host pauses.
    incoming: Option<mpsc::Receiver<Manner>>,
    /// Orders that were taken from the channel in a pause.
    ordered: VecDeque<Manner>,
}

/// Starts to use a remote server.
pub(crate) fn start<E: Listener>(
    remote: &Arc<Remote>,
    around: Surroundings<'_, E>,
) -> Result<RemoteHandle, String> {
    let limits = around.limits;
    let words = LastWords::new(limits.stderr_lines);
    let state = RemoteState::new(remote, limits.backlog_bytes, words)?;
    let mut handle = RemoteHandle::of(state, VecDeque::new());
    handle.run(around);
    Ok(handle)
}

impl RemoteHandle {
    fn of(state: RemoteState, ordered: VecDeque<Manner>) -> Self {
        let (orders, incoming) = mpsc::channel(2);
        Self {
            state: Arc::new(state),
            orders,
            task: None,
            incoming: Some(incoming),
            ordered,
        }
    }

    /// Hands over a line, or that of a call.
    pub(crate) fn push(&self, line: &str, call: Option<CallId>, headers: Vec<(String, String)>) {
        self.state.queue.push(line, call, headers);
    }

    pub(crate) fn stop(&self, how: Manner) {
        self.state.queue.close();
        // A full queue means that it was told already.
        let _ = self.orders.try_send(how);
    }

    pub(crate) fn set_readable(&self, readable: bool) {
        self.state
            .readable
            .send_if_modified(|was| std::mem::replace(was, readable) != readable);
    }

    pub(crate) fn seal(&self) -> Vec<CallId> {
        self.state.queue.seal()
    }

    pub(crate) fn words(&self) -> &LastWords {
        &self.state.words
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.state.queue.is_behind()
    }

    pub(crate) fn watch_behind(&self) -> bool {
        self.state.queue.watch_behind()
    }

    /// Starts the driver, unless it runs.
    pub(crate) fn run<E: Listener>(&mut self, around: Surroundings<'_, E>) {
        let Some(incoming) = self.incoming.take() else {
            return;
        };
        self.state.credentials.hide_from(around.log.redactor());
        let driver = Driver {
            wire: Arc::new(Wire {
                state: Arc::clone(&self.state),
                generation: around.generation,
                events: around.events,
                frame_bytes: around.limits.worker_frame_bytes,
            }),
            orders: incoming,
            running: JoinSet::new(),
            modern: Vec::new(),
            barrier: None,
            drained: false,
        };
        let ordered = self.ordered.drain(..).next_back();
        self.task = Some(tokio::spawn(driver.run(ordered, around.pause)));
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(crate) async fn collect(&mut self) {
        if let Some(ended) = self.task.take_if(|task| task.is_finished()) {
            self.incoming = ended.await.ok().flatten();
        }
        if let Some(incoming) = &mut self.incoming {
            while let Ok(order) = incoming.try_recv() {
                self.ordered.push_back(order);
            }
        }
    }

    pub(crate) fn save(&self) -> Option<SavedRemote> {
        self.incoming.as_ref()?;
        Some(self.state.save(self.ordered.clone()))
    }

    pub(crate) fn restore(mut saved: SavedRemote, limits: &Limits) -> io::Result<Self> {
        let ordered = std::mem::take(&mut saved.ordered);
        let words = LastWords::new(limits.stderr_lines);
        let state = RemoteState::restore(saved, limits.backlog_bytes, words);
        state
            .map(|state| Self::of(state, ordered))
            .map_err(io::Error::other)
    }
}

impl Drop for RemoteHandle {
    fn drop(&mut self) {
        self.state.queue.close();
    }
}

/// The task that takes lines and keeps their exchanges.
struct Driver<E> {
    wire: Arc<Wire<E>>,
    orders: mpsc::Receiver<Manner>,
    running: JoinSet<After>,
    /// Requests of the modern era: closing their stream is the cancel.
    modern: Vec<(RequestId, Ticket, AbortHandle)>,
    /// The exchange that the next line waits for.
    barrier: Option<Id>,
    /// No more lines will come.
    drained: bool,
}

impl<E: Listener> Driver<E> {
    /// Returns its part if the host pauses.
    async fn run(
        mut self,
        ordered: Option<Manner>,
        pause: Pause,
    ) -> Option<mpsc::Receiver<Manner>> {
        let state = Arc::clone(&self.wire.state);
        if ordered.is_some() {
            return self.end().await;
        }
        self.begin().await;
        loop {
            let may_take = self.barrier.is_none() && self.running.len() < STREAMS && !self.drained;
            tokio::select! {
                biased;
                // Without an engine there is no order, and the session ends, too.
                _ = self.orders.recv() => return self.end().await,
                () = pause.begun() => return self.pause().await,
                fault = state.failure() => {
                    self.running.shutdown().await;
                    self.wire.tell(What::Lost(fault)).await;
                    self.wire.tell(What::Reaped).await;
                    return None;
                }
                Some(joined) = self.running.join_next_with_id(), if !self.running.is_empty() => {
                    let (id, after) = match joined {
                        Ok((id, after)) => (id, after),
                        Err(error) => (error.id(), After::Nothing),
                    };
                    self.follow_up(id, after);
                }
                next = state.queue.next(), if may_take => match next {
                    Some((ticket, line)) => {
                        if state.queue.take_caught_up() {
                            self.wire.tell(What::CaughtUp).await;
                        }
                        self.take(ticket, line);
                    }
                    None => self.drained = true,
                }
            }
        }
    }

    /// Reports the server, or goes on after a pause.
    async fn begin(&mut self) {
        let state = Arc::clone(&self.wire.state);
        let was_started = std::mem::replace(&mut state.facts().started, true);
        if was_started {
            self.go_on();
        } else {
            let url = state.shown.clone();
            self.wire.tell(What::Connected { url }).await;
            if state.remote.transport == RemoteTransport::Sse {
                let wire = Arc::clone(&self.wire);
                let opening = self.running.spawn(async move { wire.begin_events().await });
                self.barrier = Some(opening.id());
            }
        }
    }

    fn go_on(&mut self) {
        let state = Arc::clone(&self.wire.state);
        if state.mode() == Mode::Events {
            let why = "the stream of events ended when the host was upgraded";
            let kind = mainstay_contract::error::ErrorKind::WorkerUnavailable;
            return state.fail(self.wire.fault(kind, why));
        }
        let interrupted = std::mem::take(
            &mut *state
                .interrupted
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for interrupted in interrupted {
            let exchange = Exchange {
                ticket: state.queue.resume(&interrupted),
                message: Message::read(&interrupted.line.text),
                line: interrupted.line,
            };
            let (wire, last) = (Arc::clone(&self.wire), interrupted.last_event);
            self.running
                .spawn(async move { wire.continue_exchange(exchange, last).await });
        }
        if state.facts().listening {
            let wire = Arc::clone(&self.wire);
            self.running.spawn(async move { wire.listen().await });
        }
    }

    /// Starts the exchange of a line.
    fn take(&mut self, ticket: Ticket, line: queue::QueuedLine) {
        let message = Message::read(&line.text);
        self.modern.retain(|(_, _, task)| !task.is_finished());
        if let Message::Cancelled(Some(id)) = &message {
            let place = self
                .modern
                .iter()
                .position(|(known, _, _)| known.same_value(id));
            if let Some(place) = place {
                let (_, cancelled, task) = self.modern.swap_remove(place);
                task.abort();
                self.wire.state.queue.finish(cancelled);
                return self.wire.state.queue.finish(ticket);
            }
        }
        let holds_others = message.holds_others();
        let modern = message.request().filter(|request| request.modern.is_some());
        let modern = modern.map(|request| request.id.clone());
        let wire = Arc::clone(&self.wire);
        let exchange = Exchange {
            ticket,
            line,
            message,
        };
        let task = self
            .running
            .spawn(async move { wire.exchange(exchange).await });
        if holds_others {
            self.barrier = Some(task.id());
        }
        if let Some(id) = modern {
            self.modern.push((id, ticket, task));
        }
    }

    /// An exchange is over.
    fn follow_up(&mut self, id: Id, after: After) {
        if self.barrier == Some(id) {
            self.barrier = None;
        }
        let wire = Arc::clone(&self.wire);
        match after {
            After::Nothing => {}
            After::Listen => {
                self.running.spawn(async move { wire.listen().await });
            }
            After::Events(stream) => {
                self.running
                    .spawn(async move { wire.read_all(*stream).await });
            }
        }
    }

    async fn end(mut self) -> Option<mpsc::Receiver<Manner>> {
        self.running.shutdown().await;
        let _ = tokio::time::timeout(FAREWELL, self.wire.delete()).await;
        self.wire.tell(What::Reaped).await;
        None
    }

    /// Stops every exchange. Those whose streams have numbers are resumed after the pause.
    async fn pause(mut self) -> Option<mpsc::Receiver<Manner>> {
        let state = Arc::clone(&self.wire.state);
        let listening = usize::from(state.facts().listening);
        let ending = async {
            while self.running.len() > listening {
                match self.running.join_next_with_id().await {
                    Some(Ok((id, after))) => self.follow_up(id, after),
                    Some(Err(_)) => {}
                    None => break,
                }
            }
        };
        let _ = tokio::time::timeout(PAUSE, ending).await;
        self.running.shutdown().await;
        *state
            .interrupted
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = state.queue.interrupt();
        Some(self.orders)
    }
}
