//! A connection to the host without a socket: lines in, lines out.
//!
//! To the engine an HTTP session is a client like any other; only the two ends are channels. So nothing
//! behind this file knows of HTTP.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainstay_contract::control::{ControlReply, ControlRequest};
use tokio::sync::{Notify, mpsc, oneshot};

use super::access::Credential;
use crate::control::{Control, Replier};
use crate::engine::{Event, Single};
use crate::io::{Sink, Source};
use crate::transport::Client;

/// Chunks that may wait in either direction.
pub(crate) const CHUNKS: usize = 16;

/// The host behind the front.
#[derive(Debug)]
pub(crate) struct Back {
    events: mpsc::Sender<Event>,
    /// Links ever opened.
    links: AtomicU64,
}

impl Back {
    pub(crate) const fn new(events: mpsc::Sender<Event>) -> Self {
        let links = AtomicU64::new(0);
        Self { events, links }
    }

    /// The number of the last link.
    pub(super) fn links(&self) -> u64 {
        self.links.load(Ordering::Relaxed)
    }

    pub(super) fn set_links(&self, links: u64) {
        self.links.store(links, Ordering::Relaxed);
    }

    /// Hands a client over. A host that has ended drops it, which closes the link.
    async fn connect(&self, client: Client) {
        let _ = self.events.send(client.into()).await;
    }

    /// Asks as an operator would.
    pub(super) async fn control(&self, request: ControlRequest) -> Option<ControlReply> {
        let (reply, wait) = oneshot::channel();
        let reply = Replier::Task(reply);
        self.events
            .send(
                Control {
                    request,
                    is_same_user: false,
                    reply,
                }
                .into(),
            )
            .await
            .ok()?;
        wait.await.ok()
    }

    /// Asks a single typed request.
    pub(super) async fn single(&self, single: Box<Single>) {
        let _ = self.events.send(single.into()).await;
    }
}

/// An event from the client.
#[derive(Clone, Debug)]
pub(super) struct Input(pub(super) mpsc::Sender<io::Result<Vec<u8>>>);

/// Output to the client, whole lines at a time.
pub(super) type Output = mpsc::Receiver<Vec<u8>>;

impl Input {
    /// Sends a line. False if the receiver is gone.
    pub(super) async fn say(&self, line: &[u8]) -> bool {
        self.0.send(Ok(framed(line))).await.is_ok()
    }

    /// Says a line from where nothing can wait.
    pub(super) fn say_later(&self, line: &str) {
        let framed = framed(line.as_bytes());
        if let Err(mpsc::error::TrySendError::Full(framed)) = self.0.try_send(Ok(framed)) {
            let input = self.0.clone();
            tokio::spawn(async move {
                let _ = input.send(framed).await;
            });
        }
    }
}

fn framed(line: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(line.len() + 1);
    // A body may be written over several lines; a frame is one.
    framed.extend(line.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    }));
    framed.push(b'\n');
    framed
}

/// Opens a link. Returns its number, too.
pub(super) async fn open(back: &Back, who: &Credential) -> (u64, Input, Output) {
    let link = back.links.fetch_add(1, Ordering::Relaxed) + 1;
    let (says, source) = mpsc::channel(CHUNKS);
    let (sink, hears) = mpsc::channel(CHUNKS);
    back.connect(Client {
        source: Source::chunks(source),
        sink: Sink::Chunks(sink),
        caller: Some(who.caller()),
        link: Some(link),
    })
    .await;
    (link, Input(says), hears)
}

/// End of a link, on either side.
#[derive(Debug, Default)]
pub(super) struct Ending {
    is_over: AtomicBool,
    ends: Notify,
}

impl Ending {
    /// Ends it: what it still asked for is cancelled.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.ends.notify_one();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Does something until it is done or the link is ended; the link is over then.
    pub(super) async fn until(&self, done: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = done => {}
            () = self.ends.notified() => {}
        }
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The lines of a chunk.
pub(super) fn lines(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    chunk
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}
