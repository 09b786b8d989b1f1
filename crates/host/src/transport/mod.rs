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

pub(crate) use self::connection::{Client, Gate, Lines, SavedLines, read_lines};
use crate::io::{Sink, Source};
use crate::outbox::Outbox;
use crate::upgrade::Pause;

/// Events of a connection, whatever is said on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientEvent {
    /// A client will send nothing more.
    InputEnded { session: SessionId },
    /// A client that was behind with taking its answers has caught up.
    OutputTaken { session: SessionId },
    /// A client's writer ended: everything was written, or the reader is gone.
    OutputEnded { session: SessionId, delivered: bool },
}

/// Standard input and output.
pub(crate) fn stdio() -> io::Result<(Source, Sink)> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((Source::shared(stdin)?, Sink::shared(stdout)?))
}

/// How writing ended.
#[derive(Debug)]
pub(crate) enum Wrote {
    /// Everything is written.
    All,
    /// The other side takes no more.
    Broken,
    /// The host pauses; the rest is in the outbox.
    Paused(Sink),
}

/// How writing one piece ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Done,
    Broken,
    Paused,
}

/// Writes an outbox to a worker until it is closed and empty, and sends `caught_up` when a worker
/// that was behind has caught up.
pub(crate) async fn write_out<E>(
    mut sink: Sink,
    outbox: Outbox,
    events: mpsc::Sender<E>,
    caught_up: impl Fn() -> E,
    pause: Pause,
) -> Wrote {
    let mut bytes = Vec::new();
    loop {
        let taken = tokio::select! {
            biased;
            taken = outbox.take(bytes) => taken,
            () = pause.begun() => return Wrote::Paused(sink),
        };
        let Some(taken) = taken else {
            return Wrote::All;
        };
        bytes = taken;
        match write_all(&mut sink, &outbox, &bytes, &events, &caught_up, &pause).await {
            Piece::Done => {}
            Piece::Broken => return Wrote::Broken,
            Piece::Paused => return Wrote::Paused(sink),
        }
    }
}

/// Writes an outbox to a client, and reports to the engine that the client caught up and that it
/// takes no more. Returns the sink if the host pauses.
pub(crate) async fn write_answers<E: From<ClientEvent>>(
    session: SessionId,
    mut sink: Sink,
    outbox: Outbox,
    events: mpsc::Sender<E>,
    pause: Pause,
) -> Option<Sink> {
    let caught_up = || ClientEvent::OutputTaken { session }.into();
    let mut bytes = Vec::new();
    let delivered = loop {
        let taken = tokio::select! {
            biased;
            taken = outbox.take(bytes) => taken,
            () = pause.begun() => return Some(sink),
            // A client that has gone is noticed at once, not with the next answer.
            () = sink.closed() => break false,
        };
        let Some(taken) = taken else { break true };
        bytes = taken;
        match write_all(&mut sink, &outbox, &bytes, &events, &caught_up, &pause).await {
            Piece::Done => {}
            Piece::Broken => break false,
            Piece::Paused => return Some(sink),
        }
    };
    if outbox.is_sealed() {
        // The reader holds another descriptor of the same socket.
        sink.hang_up();
    }
    let ended = ClientEvent::OutputEnded { session, delivered };
    let _ = events.send(ended.into()).await;
    None
}

async fn write_all<E>(
    sink: &mut Sink,
    outbox: &Outbox,
    bytes: &[u8],
    events: &mpsc::Sender<E>,
    caught_up: &impl Fn() -> E,
    pause: &Pause,
) -> Piece {
    let mut rest = bytes;
    while !rest.is_empty() {
        let wrote = tokio::select! {
            biased;
            wrote = write_unless_sealed(sink, outbox, rest) => wrote,
            () = pause.begun() => {
                outbox.put_back(rest);
                return Piece::Paused;
            }
        };
        let Some(wrote) = wrote else {
            return Piece::Done;
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
            _ => return Piece::Broken,
        }
    }
    Piece::Done
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
        let pauses = crate::upgrade::Pauses::default();
        let writing = write_out(sink, outbox.clone(), events, || (), pauses.watch());
        let writing = tokio::spawn(writing);
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
        assert!(matches!(writing.await.unwrap(), Wrote::All));
        let written = draining.join().unwrap().unwrap();
        assert!(written.len() < filler.len(), "{}", written.len());
    }
}
