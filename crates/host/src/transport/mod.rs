//! Clients on stdio or on a Unix socket. A transport moves lines; it knows nothing of their
//! meaning.

mod connection;
pub(crate) mod socket;

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::Poll;

use mainstay_contract::id::SessionId;
use mainstay_kernel::defect::{Defect, is_planted};
use tokio::sync::mpsc;

pub(crate) use self::connection::{Client, Gate, read_lines};
use crate::io::{Sink, Source};
use crate::outbox::Outbox;

/// What happens to a connection, whatever is said on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientEvent {
    /// A client will send nothing more.
    InputEnded { session: SessionId },
    /// A client that was behind with taking its answers has caught up.
    OutputTaken { session: SessionId },
    /// A client's writer ended: everything was written, or nobody reads any more.
    OutputEnded { session: SessionId, delivered: bool },
}

/// Standard input and output.
pub(crate) fn stdio() -> io::Result<(Source, Sink)> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((Source::shared(stdin)?, Sink::shared(stdout)?))
}

/// Writes an outbox to a worker until it is closed and empty, and sends `caught_up` when a worker
/// that was behind has caught up. False if the worker takes no more.
pub(crate) async fn write_out<E>(
    mut sink: Sink,
    outbox: Outbox,
    events: mpsc::Sender<E>,
    caught_up: impl Fn() -> E,
) -> bool {
    let mut bytes = Vec::new();
    while let Some(taken) = outbox.take(bytes).await {
        bytes = taken;
        if !write_all(&mut sink, &outbox, &bytes, &events, &caught_up).await {
            return false;
        }
    }
    true
}

/// Writes an outbox to a client, and reports to the engine that the client caught up and that it
/// takes no more.
pub(crate) async fn write_answers<E: From<ClientEvent>>(
    session: SessionId,
    mut sink: Sink,
    outbox: Outbox,
    events: mpsc::Sender<E>,
) {
    let caught_up = || ClientEvent::OutputTaken { session }.into();
    let mut bytes = Vec::new();
    let delivered = loop {
        let taken = tokio::select! {
            biased;
            taken = outbox.take(bytes) => taken,
            // A client that has gone is noticed at once, not with the next answer.
            () = sink.closed() => break false,
        };
        let Some(taken) = taken else { break true };
        bytes = taken;
        if !write_all(&mut sink, &outbox, &bytes, &events, &caught_up).await {
            break false;
        }
    };
    if outbox.is_sealed() {
        // The reader holds another descriptor of the same socket.
        sink.hang_up();
    }
    let ended = ClientEvent::OutputEnded { session, delivered };
    let _ = events.send(ended.into()).await;
}

async fn write_all<E>(
    sink: &mut Sink,
    outbox: &Outbox,
    bytes: &[u8],
    events: &mpsc::Sender<E>,
    caught_up: &impl Fn() -> E,
) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(wrote) = write_unless_sealed(sink, outbox, rest).await else {
            return true;
        };
        match wrote {
            Ok(count) if count > 0 => {
                outbox.wrote(count);
                if outbox.take_caught_up() {
                    let _ = events.send(caught_up()).await;
                }
                let count = if is_planted(Defect::ShortWrite) {
                    rest.len()
                } else {
                    count
                };
                rest = rest.get(count..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    true
}

/// Writes some bytes, or nothing once the outbox is sealed. A write that waits for room must see
/// the seal, too: the calls in it were reported as unsent, and a successor runs them.
async fn write_unless_sealed(
    sink: &mut Sink,
    outbox: &Outbox,
    bytes: &[u8],
) -> Option<io::Result<usize>> {
    let mut write = pin!(sink.write(bytes));
    poll_fn(|context| {
        if outbox.is_sealed() {
            Poll::Ready(None)
        } else {
            write.as_mut().poll(context).map(Some)
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use mainstay_contract::id::CallId;

    use super::*;

    #[tokio::test]
    async fn a_write_that_waits_for_room_stops_when_its_outbox_is_sealed() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut reader = std::fs::File::from(reader);
        let outbox = Outbox::default();
        let filler = "x".repeat(1 << 20);
        outbox.push(&filler);
        let (events, _incoming) = mpsc::channel::<()>(1);
        let sink = Sink::pipe(writer).unwrap();
        let writing = tokio::spawn(write_out(sink, outbox.clone(), events, || ()));
        // The writer fills the pipe, then waits for room.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        outbox.push_call("{}", CallId::new(1));
        assert_eq!(outbox.seal(), [CallId::new(1)]);
        let draining = std::thread::spawn(move || {
            let mut written = Vec::new();
            reader.read_to_end(&mut written).map(|_| written)
        });
        assert!(writing.await.unwrap());
        let written = draining.join().unwrap().unwrap();
        assert!(written.len() < filler.len(), "{}", written.len());
    }
}
