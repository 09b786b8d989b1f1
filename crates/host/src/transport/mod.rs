//! Clients on stdio or on a Unix socket. A transport moves lines; it knows nothing of their
//! meaning.

mod connection;
pub(crate) mod socket;

use std::io;
use std::os::fd::AsFd;

use mainstay_contract::id::SessionId;
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
        if outbox.is_sealed() {
            return true;
        }
        match sink.write(rest).await {
            Ok(count) if count > 0 => {
                outbox.wrote(count);
                if outbox.take_caught_up() {
                    let _ = events.send(caught_up()).await;
                }
                rest = rest.get(count..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    true
}
