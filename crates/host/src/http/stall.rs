//! A connection that is given up when its client takes nothing for too long, and whose end reaches its client.
//!
//! The system resets a connection that is closed with unread input. A client that is still sending its body
//! would then never read the answer that refuses it. So the connection is first closed for writing
//! only, and what the client still sends is read and dropped, within bounds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// How long a connection is read after it was closed for writing.
const LINGER: Duration = Duration::from_secs(5);
/// How many bytes of it are read.
const LINGER_BYTES: usize = 64 * 1024 * 1024;
/// Bytes that are read at once.
const PIECE: usize = 8 * 1024;

/// A stream whose writes must make progress.
#[derive(Debug)]
pub(super) struct Stall {
    stream: TcpStream,
    patience: Duration,
    /// Runs while a write waits.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Runs after the connection was closed for writing.
    linger: Option<Pin<Box<Sleep>>>,
    /// Bytes that may still be read then.
    left: usize,
    /// A request was refused whose body may not have been read.
    unread: Arc<AtomicBool>,
    /// Bytes that were read before, and that come first.
    first: Bytes,
    /// Something was written and not yet flushed.
    unflushed: Arc<AtomicBool>,
}

impl Stall {
    pub(super) const fn new(
        stream: TcpStream,
        first: Bytes,
        patience: Duration,
        unread: Arc<AtomicBool>,
        unflushed: Arc<AtomicBool>,
    ) -> Self {
        Self {
            first,
            unflushed,
            stream,
            patience,
            alarm: None,
            linger: None,
            left: LINGER_BYTES,
            unread,
        }
    }

    /// The stream, with the bytes that come first.
    pub(super) fn into_parts(self) -> (TcpStream, Bytes) {
        (self.stream, self.first)
    }

    /// Drops what the client still sends, until it ends or a bound is reached.
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let linger = self
            .linger
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if linger.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [0; PIECE];
        while self.left > 0 {
            let mut piece = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut piece) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !piece.filled().is_empty() => {
                    self.left = self.left.saturating_sub(piece.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.alarm = None;
            return written;
        }
        let patience = self.patience;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match alarm.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Stall {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let count = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first.split_to(count));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stall {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.unflushed.store(true, Ordering::Relaxed);
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.unflushed.store(true, Ordering::Relaxed);
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if flushed.is_ready() {
            this.unflushed.store(false, Ordering::Relaxed);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            match Pin::new(&mut this.stream).poll_shutdown(context) {
                Poll::Ready(Ok(())) if this.unread.load(Ordering::Relaxed) => {}
                shut => return shut,
            }
        }
        this.drain(context).map(Ok)
    }
}
