//! A connection to the host without a socket: lines in, lines out.
//!
//! To an engine an HTTP session is a client like any other; only the two ends are channels. So
//! nothing behind this file knows of HTTP.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_contract::control::{ControlReply, ControlRequest};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::control::Control;
use crate::engine::Single;
use crate::io::{Sink, Source};
use crate::transport::Client;

/// Chunks that may wait in either direction.
const CHUNKS: usize = 16;

/// Who answers: the engine of the packs, or the hub of wrapped servers.
pub(crate) trait Back: Send + Sync {
    /// Hands a client over.
    fn connect(&self, client: Client) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Asks as an operator would.
    fn control(
        &self,
        request: ControlRequest,
    ) -> Pin<Box<dyn Future<Output = Option<ControlReply>> + Send + '_>>;

    /// Asks for one thing; nobody replies where only sessions are served.
    fn single(&self, single: Box<Single>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Everything that a front can make happen.
pub(crate) trait Happens:
    From<Client> + From<Control> + TryFrom<Box<Single>> + Send + 'static
{
}

impl<E: From<Client> + From<Control> + TryFrom<Box<Single>> + Send + 'static> Happens for E {}

impl<E: Happens> Back for mpsc::Sender<E> {
    fn connect(&self, client: Client) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // An engine that has gone drops the client, which closes the link.
            let _ = self.send(client.into()).await;
        })
    }

    fn control(
        &self,
        request: ControlRequest,
    ) -> Pin<Box<dyn Future<Output = Option<ControlReply>> + Send + '_>> {
        Box::pin(async move {
            let (reply, wait) = oneshot::channel();
            self.send(Control { request, reply }.into()).await.ok()?;
            wait.await.ok()
        })
    }

    fn single(&self, single: Box<Single>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let event = E::try_from(single).ok();
            if let Some(event) = event {
                let _ = self.send(event).await;
            }
        })
    }
}

/// What a client says.
#[derive(Clone, Debug)]
pub(super) struct Input(mpsc::Sender<io::Result<Vec<u8>>>);

/// What it is told, whole lines at a time.
pub(super) type Output = mpsc::Receiver<Vec<u8>>;

impl Input {
    /// Says a line. False if nobody listens any more.
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

/// Opens a link.
pub(super) async fn open(back: &dyn Back) -> (Input, Output) {
    let (says, source) = mpsc::channel(CHUNKS);
    let (sink, hears) = mpsc::channel(CHUNKS);
    back.connect(Client {
        source: Source::chunks(source),
        sink: Sink::Chunks(sink),
    })
    .await;
    (Input(says), hears)
}

/// Whether a link is over, on either side.
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
