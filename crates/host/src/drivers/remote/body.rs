//! Bodies of responses, read within a limit.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use mainstay_contract::frame::HEAD;

use super::connect::describe;

/// A body that was read to its end, or to the limit.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    /// It was longer than the limit; only the beginning is there.
    pub(super) oversize: bool,
}

/// The next piece of a body; `None` at its end.
pub(super) async fn next_piece(body: &mut Incoming) -> Option<Result<Bytes, String>> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(bytes)) => return Some(Ok(bytes)),
            // Trailers.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(describe(&error))),
        }
    }
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read_whole(mut body: Incoming, limit: usize) -> Result<Whole, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = next_piece(&mut body).await {
        let piece = piece?;
        if bytes.len() + piece.len() > limit {
            bytes.extend_from_slice(&piece);
            bytes.truncate(HEAD);
            return Ok(Whole {
                bytes,
                oversize: true,
            });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Whole {
        bytes,
        oversize: false,
    })
}
