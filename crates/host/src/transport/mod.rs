//! Clients: stdio, a Unix socket, or a connected socket. A transport frames and decodes; it
//! knows nothing of tools, workers or order.

mod connection;
pub(crate) mod socket;

use std::io;
use std::os::fd::AsFd;

pub(crate) use self::connection::{Client, Gate, read_requests};
use crate::io::{Sink, Source};
use crate::outbox::Outbox;

/// Standard input and output.
pub(crate) fn stdio() -> io::Result<(Source, Sink)> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((Source::shared(stdin)?, Sink::shared(stdout)?))
}

/// Writes what an outbox holds, until it is closed and empty. False if the other side has gone.
pub(crate) async fn write_out(mut sink: Sink, outbox: Outbox) -> bool {
    let mut bytes = Vec::new();
    while let Some(taken) = outbox.take(bytes).await {
        bytes = taken;
        let mut rest: &[u8] = &bytes;
        while !rest.is_empty() {
            match sink.write(rest).await {
                Ok(count) if count > 0 => {
                    outbox.wrote(count);
                    rest = rest.get(count..).unwrap_or_default();
                }
                _ => return false,
            }
        }
    }
    true
}
