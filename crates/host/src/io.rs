//! Bytes in and out of descriptors without tokio's stdin and stdout, which cost a thread hop for
//! every read and write.
//!
//! A pipe is opened again through `/proc/self/fd`, which gives a description of our own that may
//! be non-blocking without changing what other processes share. A socket is read and written with
//! a per-call flag instead. Whatever can be neither (a terminal, a file) gets a thread. A client
//! that comes over HTTP has no descriptor of its own: its two ends are channels.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::upgrade::{Incoming, Outgoing, Place, blob};

/// Chunk of a read in a thread.
const CHUNK: usize = 16 * 1024;
/// Chunks that may wait between a thread and its task.
const CHUNKS: usize = 4;

/// Where bytes come from.
#[derive(Debug)]
pub(crate) enum Source {
    Pipe(AsyncFd<OwnedFd>),
    Socket(AsyncFd<OwnedFd>),
    /// A thread, or another task of ours.
    Chunks {
        chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
        rest: Vec<u8>,
        at: usize,
    },
    #[cfg(feature = "simulation")]
    Simulated(crate::sim::PipeReader),
}

/// Where bytes go.
#[derive(Debug)]
pub(crate) enum Sink {
    Pipe(AsyncFd<OwnedFd>),
    Socket(AsyncFd<OwnedFd>),
    Thread {
        chunks: mpsc::Sender<Vec<u8>>,
        written: mpsc::Receiver<io::Result<()>>,
    },
    /// Another task of ours; what is written at once stays one chunk.
    Chunks(mpsc::Sender<Vec<u8>>),
    #[cfg(feature = "simulation")]
    Simulated(crate::sim::PipeWriter),
}

/// An end of a connection, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SavedEnd {
    Pipe(Place),
    Socket(Place),
    /// A channel of the HTTP front, with the bytes that were in it.
    Link(#[serde(with = "blob")] Vec<u8>),
    #[cfg(feature = "simulation")]
    Simulated(u64),
}

impl Source {
    /// The descriptor, for a process that continues in this one's place; `None` if it cannot move.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedEnd> {
        match self {
            Self::Pipe(fd) => Some(SavedEnd::Pipe(descriptors.add(fd.get_ref().as_fd()))),
            Self::Socket(fd) => Some(SavedEnd::Socket(descriptors.add(fd.get_ref().as_fd()))),
            Self::Chunks { rest, at, .. } => {
                Some(SavedEnd::Link(rest.get(*at..).unwrap_or_default().to_vec()))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(pipe) => {
                let place = crate::sim::carry(pipe.duplicate());
                Some(SavedEnd::Simulated(place))
            }
        }
    }

    /// The end that another process saved; a link gets a new channel.
    pub(crate) fn restore(
        saved: SavedEnd,
        descriptors: &mut Incoming,
        link: Option<mpsc::Receiver<io::Result<Vec<u8>>>>,
    ) -> io::Result<Self> {
        match saved {
            SavedEnd::Pipe(place) => Self::pipe(descriptors.take(place)?),
            SavedEnd::Socket(place) => Self::socket(descriptors.take(place)?),
            SavedEnd::Link(rest) => {
                let chunks = link.ok_or_else(|| io::Error::other("a saved link is missing"))?;
                Ok(Self::Chunks {
                    chunks,
                    rest,
                    at: 0,
                })
            }
            #[cfg(feature = "simulation")]
            SavedEnd::Simulated(place) => crate::sim::arrived(place).map(Self::Simulated),
        }
    }

    /// Takes everything out of a channel, so that it can be saved.
    pub(crate) fn absorb(&mut self) {
        if let Self::Chunks { chunks, rest, at } = self {
            rest.drain(..std::mem::take(at).min(rest.len()));
            while let Ok(Ok(chunk)) = chunks.try_recv() {
                rest.extend(chunk);
            }
        }
    }

    /// True if another process can continue to read from here.
    pub(crate) const fn can_move(&self) -> bool {
        matches!(self, Self::Pipe(_) | Self::Socket(_))
    }

    /// A descriptor that may be shared with other processes, such as standard input.
    pub(crate) fn shared(fd: OwnedFd) -> io::Result<Self> {
        match Opened::of(fd, OFlags::RDONLY)? {
            Opened::Pipe(own) => Self::pipe(own),
            Opened::Socket(fd) => Self::socket(fd),
            Opened::Other(fd) => Self::thread(fd),
        }
    }

    /// Our own end of a pipe.
    pub(crate) fn pipe(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self::Pipe(watch(fd, Interest::READABLE)?))
    }

    /// A connected stream socket.
    pub(crate) fn socket(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self::Socket(watch(fd, Interest::READABLE)?))
    }

    fn thread(fd: OwnedFd) -> io::Result<Self> {
        let (sender, chunks) = mpsc::channel(CHUNKS);
        let mut file = File::from(fd);
        std::thread::Builder::new()
            .name("stdin".into())
            .spawn(move || {
                loop {
                    let mut chunk = vec![0; CHUNK];
                    let read = match file.read(&mut chunk) {
                        Ok(count) => {
                            chunk.truncate(count);
                            Ok(chunk)
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(error) => Err(error),
                    };
                    let ends = read.as_ref().map_or(true, Vec::is_empty);
                    if sender.blocking_send(read).is_err() || ends {
                        return;
                    }
                }
            })?;
        Ok(Self::chunks(chunks))
    }

    /// Reads the chunks that another task sends.
    pub(crate) const fn chunks(chunks: mpsc::Receiver<io::Result<Vec<u8>>>) -> Self {
        Self::Chunks {
            chunks,
            rest: Vec::new(),
            at: 0,
        }
    }

    /// Reads some bytes; 0 at the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(fd) => {
                ready_read(fd, buffer, |fd, buffer| rustix::io::read(fd, buffer)).await
            }
            Self::Socket(fd) => {
                let receive = |fd: &OwnedFd, buffer: &mut [u8]| {
                    rustix::net::recv(fd, buffer, RecvFlags::DONTWAIT).map(|(count, _)| count)
                };
                ready_read(fd, buffer, receive).await
            }
            Self::Chunks { chunks, rest, at } => {
                if *at >= rest.len() {
                    *rest = match chunks.recv().await {
                        Some(chunk) => chunk?,
                        None => return Ok(0),
                    };
                    *at = 0;
                }
                let left = rest.get(*at..).unwrap_or_default();
                let count = left.len().min(buffer.len());
                if let (Some(to), Some(from)) = (buffer.get_mut(..count), left.get(..count)) {
                    to.copy_from_slice(from);
                }
                *at += count;
                if *at >= rest.len() {
                    // A chunk may be as large as a frame: it is not kept until the next one.
                    (*rest, *at) = (Vec::new(), 0);
                }
                Ok(count)
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(pipe) => Ok(pipe.read(buffer).await),
        }
    }

    /// Reads what is there without waiting; `None` when there is nothing now.
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let read = match self {
            Self::Pipe(fd) => rustix::io::read(fd.get_ref(), buffer),
            Self::Socket(fd) => {
                rustix::net::recv(fd.get_ref(), buffer, RecvFlags::DONTWAIT).map(|(count, _)| count)
            }
            Self::Chunks { .. } => return None,
            #[cfg(feature = "simulation")]
            Self::Simulated(pipe) => return pipe.read_now(buffer).map(Ok),
        };
        match read {
            Err(rustix::io::Errno::AGAIN) => None,
            read => Some(read.map_err(Into::into)),
        }
    }
}

async fn ready_read(
    fd: &AsyncFd<OwnedFd>,
    buffer: &mut [u8],
    read: impl Fn(&OwnedFd, &mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    loop {
        let mut guard = fd.readable().await?;
        match read(guard.get_inner(), buffer) {
            Ok(count) => {
                // A short read emptied it: without this the next read would only find that out.
                // Bytes that arrive from here on raise a new edge.
                if count < buffer.len() {
                    guard.clear_ready();
                }
                return Ok(count);
            }
            Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Sink {
    /// The descriptor, for a process that continues in this one's place; `None` if it cannot move.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedEnd> {
        match self {
            Self::Pipe(fd) => Some(SavedEnd::Pipe(descriptors.add(fd.get_ref().as_fd()))),
            Self::Socket(fd) => Some(SavedEnd::Socket(descriptors.add(fd.get_ref().as_fd()))),
            Self::Chunks(_) => Some(SavedEnd::Link(Vec::new())),
            Self::Thread { .. } => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(pipe) => {
                let place = crate::sim::carry(pipe.duplicate());
                Some(SavedEnd::Simulated(place))
            }
        }
    }

    /// The end that another process saved; a link gets a new channel.
    pub(crate) fn restore(
        saved: &SavedEnd,
        descriptors: &mut Incoming,
        link: Option<mpsc::Sender<Vec<u8>>>,
    ) -> io::Result<Self> {
        match saved {
            SavedEnd::Pipe(place) => Self::pipe(descriptors.take(*place)?),
            SavedEnd::Socket(place) => Self::socket(descriptors.take(*place)?),
            SavedEnd::Link(_) => {
                let chunks = link.ok_or_else(|| io::Error::other("a saved link is missing"))?;
                Ok(Self::Chunks(chunks))
            }
            #[cfg(feature = "simulation")]
            SavedEnd::Simulated(place) => crate::sim::arrived(*place).map(Self::Simulated),
        }
    }

    /// True if another process can continue to write here.
    pub(crate) const fn can_move(&self) -> bool {
        matches!(self, Self::Pipe(_) | Self::Socket(_))
    }

    /// True if nothing is on its way in a channel.
    pub(crate) fn is_taken(&self) -> bool {
        match self {
            Self::Chunks(chunks) => chunks.capacity() == chunks.max_capacity(),
            _ => true,
        }
    }

    /// A descriptor that may be shared with other processes, such as standard output.
    pub(crate) fn shared(fd: OwnedFd) -> io::Result<Self> {
        match Opened::of(fd, OFlags::WRONLY)? {
            Opened::Pipe(own) => Self::pipe(own),
            Opened::Socket(fd) => Self::socket(fd),
            Opened::Other(fd) => Self::thread(fd),
        }
    }

    /// Our own end of a pipe.
    pub(crate) fn pipe(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self::Pipe(watch(fd, Interest::WRITABLE)?))
    }

    /// A connected stream socket.
    pub(crate) fn socket(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self::Socket(watch(fd, Interest::WRITABLE)?))
    }

    fn thread(fd: OwnedFd) -> io::Result<Self> {
        let (chunks, mut incoming) = mpsc::channel::<Vec<u8>>(1);
        let (done, written) = mpsc::channel(1);
        let mut file = File::from(fd);
        std::thread::Builder::new()
            .name("stdout".into())
            .spawn(move || {
                while let Some(chunk) = incoming.blocking_recv() {
                    if done.blocking_send(file.write_all(&chunk)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self::Thread { chunks, written })
    }

    /// Ends the connection in both directions, for every descriptor of it.
    pub(crate) fn hang_up(&self) {
        if let Self::Socket(fd) = self {
            let _ = rustix::net::shutdown(fd.get_ref(), rustix::net::Shutdown::Both);
        }
    }

    /// Waits until the reader of this output is gone.
    pub(crate) async fn closed(&self) {
        let fd = match self {
            Self::Pipe(fd) | Self::Socket(fd) => fd,
            Self::Chunks(chunks) => return chunks.closed().await,
            #[cfg(feature = "simulation")]
            Self::Simulated(pipe) => return pipe.closed().await,
            Self::Thread { .. } => return std::future::pending().await,
        };
        while let Ok(mut guard) = fd.writable().await {
            if guard.ready().is_write_closed() {
                return;
            }
            guard.clear_ready();
        }
    }

    /// Writes some bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(fd) => {
                ready_write(fd, bytes, |fd, bytes| rustix::io::write(fd, bytes)).await
            }
            Self::Socket(fd) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                ready_write(fd, bytes, |fd, bytes| rustix::net::send(fd, bytes, flags)).await
            }
            Self::Thread { chunks, written } => {
                let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
                chunks.send(bytes.to_vec()).await.map_err(|_| gone())?;
                written.recv().await.ok_or_else(gone)??;
                Ok(bytes.len())
            }
            Self::Chunks(chunks) => match chunks.send(bytes.to_vec()).await {
                Ok(()) => Ok(bytes.len()),
                Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
            },
            #[cfg(feature = "simulation")]
            Self::Simulated(pipe) => pipe.write(bytes).await,
        }
    }
}

/// Tries first and waits only when there is no room: [`Sink::closed`] may have taken the readiness
/// away, but never the edge that follows a full pipe.
async fn ready_write(
    fd: &AsyncFd<OwnedFd>,
    bytes: &[u8],
    write: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match write(fd.get_ref(), bytes) {
            Ok(count) => return Ok(count),
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        // Readiness from before the pipe was full says nothing; only what comes now does.
        let mut guard = fd.writable().await?;
        guard.clear_ready();
    }
}

/// Registers a descriptor with the runtime.
///
/// The constructor was deprecated because a type may close its descriptor behind the runtime's
/// back; an `OwnedFd` that only we hold cannot, and the replacement is `unsafe`.
#[expect(
    deprecated,
    reason = "sound for an OwnedFd, and the replacement is unsafe"
)]
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// Kind of a shared descriptor, which decides how to use it without a thread.
enum Opened {
    /// A description of our own of the same pipe.
    Pipe(OwnedFd),
    Socket(OwnedFd),
    Other(OwnedFd),
}

impl Opened {
    fn of(fd: OwnedFd, access: OFlags) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        Ok(match kind {
            FileType::Fifo => match reopen(&fd, access) {
                Ok(own) => Self::Pipe(own),
                Err(_) => Self::Other(fd),
            },
            FileType::Socket => Self::Socket(fd),
            _ => Self::Other(fd),
        })
    }
}

/// Opens the pipe again, with a description of our own.
fn reopen(fd: &OwnedFd, access: OFlags) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
