//! The relay: lines between a client's standard input and output and the share host.
//!
//! A user may have dozens of relays, so a relay is small: one thread waits for the client and for the host. It keeps the
//! lines that one side does not take yet, up to [`BUFFER`] bytes, and then stops reading the other side.
//!
//! A lost host is replaced: the relay starts another one and opens the session there ([`Session::restore`]). The client
//! gets an error for each call whose outcome is not known, and notices nothing else.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use mainstay_contract::control::SharedServer;
use mainstay_contract::dialect::{Inbound, decode_oversize, encode};
use mainstay_contract::frame::{Frame, FrameReader, KEEP};
use mainstay_host::files;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio;

use super::connect::connect;
use super::session::Session;
use crate::exit::Failure;
use crate::server_file::FRAME_BYTES;

/// Bytes that wait for one side before the relay stops reading the other one. A longer line waits alone.
const BUFFER: usize = 256 * 1024;
/// Bytes that an output takes without blocking once it is ready: the least room of a pipe.
const CHUNK: usize = 4096;

/// One client, and its session on a host.
struct Relay<'a> {
    server: SharedServer,
    runtime_dir: &'a Path,
    session: Session,
    host: UnixStream,
    from_client: FrameReader,
    from_host: FrameReader,
    to_host: Lines,
    to_client: Output,
    /// The client sends nothing more.
    input_ended: bool,
    /// The host takes nothing more: it has the whole input, or it is gone.
    is_deaf: bool,
}

/// Lines that the host has not got yet. A line that it did not get whole has not reached the server.
#[derive(Default)]
struct Lines {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Bytes of the first line that were written.
    written: usize,
}

/// A line with its end.
struct Line {
    text: Vec<u8>,
    /// The id of the request in it.
    request: Option<String>,
    /// The relay wrote it, to open the session on another host.
    is_restored: bool,
}

/// Bytes for the client.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    written: usize,
}

/// The client takes nothing more.
struct ClientGone;

/// A descriptor that the relay waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Input,
    Output,
}

/// Relays until the client leaves.
pub(super) fn run(server: SharedServer, runtime_dir: &Path) -> Result<ExitCode, Failure> {
    files::create_private(runtime_dir).map_err(Failure::input)?;
    let host = connect(runtime_dir, &server, Vec::new())?;
    // The start took much more memory than the relay needs.
    mainstay_system::return_free_memory();
    let mut relay = Relay {
        server,
        runtime_dir,
        session: Session::default(),
        host,
        from_client: FrameReader::new(FRAME_BYTES),
        from_host: FrameReader::new(FRAME_BYTES),
        to_host: Lines::default(),
        to_client: Output::default(),
        input_ended: false,
        is_deaf: false,
    };
    while relay.converse().is_ok() {
        if relay.input_ended && relay.session.is_idle() {
            let _ = relay.to_client.flush();
            break;
        }
        relay.replace_host()?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Relay<'_> {
    /// Relays until the host is lost.
    fn converse(&mut self) -> Result<(), ClientGone> {
        loop {
            if self.input_ended && self.to_host.lines.is_empty() && !self.is_deaf {
                let _ = self.host.shutdown(Shutdown::Write);
                self.is_deaf = true;
            }
            let ready = self.wait().map_err(|_| ClientGone)?;
            if ready.contains(&Side::Output) {
                self.to_client.write_chunk()?;
            }
            if ready.contains(&Side::Input) {
                self.read_client();
            }
            // The host may have sent answers before it was lost, so only reading shows that it is gone.
            if !self.is_deaf && self.to_host.write(&self.host, &mut self.session).is_err() {
                self.is_deaf = true;
            }
            if ready.contains(&Side::Host) && self.read_host().is_err() {
                return Ok(());
            }
        }
    }

    /// Waits until one side can go on.
    fn wait(&self) -> io::Result<Vec<Side>> {
        let (mut of_host, mut of_input) = (PollFlags::empty(), PollFlags::empty());
        let mut of_output = PollFlags::empty();
        of_host.set(PollFlags::IN, self.to_client.len() < BUFFER);
        of_host.set(
            PollFlags::OUT,
            !self.is_deaf && !self.to_host.lines.is_empty(),
        );
        of_input.set(
            PollFlags::IN,
            !self.input_ended && self.to_host.bytes < BUFFER,
        );
        of_output.set(PollFlags::OUT, self.to_client.len() > 0);
        let sides = [
            (Side::Host, self.host.as_fd(), of_host),
            (Side::Input, stdio::stdin(), of_input),
            (Side::Output, stdio::stdout(), of_output),
        ];
        // A side of which nothing is wanted would report its end again and again.
        let wanted = sides.into_iter().filter(|(.., flags)| !flags.is_empty());
        let (sides, mut polled): (Vec<Side>, Vec<PollFd<'_>>) = wanted
            .map(|(side, fd, flags)| (side, PollFd::from_borrowed_fd(fd, flags)))
            .unzip();
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sides.into_iter().zip(polled);
        let ready = ready.filter(|(_, polled)| !polled.revents().is_empty());
        Ok(ready.map(|(side, _)| side).collect())
    }

    fn read_client(&mut self) {
        match rustix::io::read(stdio::stdin(), self.from_client.spare()) {
            Ok(count) if count > 0 => self.from_client.filled(count),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(_) | Err(_) => self.input_ended = true,
        }
        while let Some(frame) = self.from_client.next_frame() {
            match frame {
                Frame::Line(line) => {
                    let request = self.session.client_line(line);
                    self.to_host.push(line, request, false);
                }
                Frame::Oversize(oversize) => {
                    let refused = decode_oversize(&oversize.head, None, FRAME_BYTES);
                    if let Inbound::Refused(refused) = refused {
                        let answer =
                            encode::answer(&refused.id, refused.form, &Err(refused.problem));
                        self.to_client.push(answer.as_bytes());
                    }
                }
            }
        }
    }

    /// Reads once. An error means that the host is lost.
    fn read_host(&mut self) -> io::Result<()> {
        match self.host.read(self.from_host.spare()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.from_host.filled(count),
            Err(error) if is_transient(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        while let Some(frame) = self.from_host.next_frame() {
            // The host sends no longer line than a client of it may.
            let Frame::Line(line) = frame else { continue };
            if self.session.host_line(line) {
                self.to_client.push(line);
            }
        }
        Ok(())
    }

    /// Opens the session on another host.
    fn replace_host(&mut self) -> Result<(), Failure> {
        self.to_host.drop_restored();
        let restored = self.session.restore();
        for line in restored.to_client {
            self.to_client.push(line.as_bytes());
        }
        self.host = connect(self.runtime_dir, &self.server, restored.unsettled)?;
        for (line, request) in restored.to_host.into_iter().rev() {
            self.to_host.push_first(&line, request);
        }
        self.from_host = FrameReader::new(FRAME_BYTES);
        self.is_deaf = false;
        Ok(())
    }
}

impl Lines {
    fn push(&mut self, line: &[u8], request: Option<String>, is_restored: bool) {
        let line = Line::new(line, request, is_restored);
        self.bytes += line.text.len();
        self.lines.push_back(line);
    }

    /// Adds a line of the relay before all others.
    fn push_first(&mut self, line: &str, request: Option<String>) {
        let line = Line::new(line.as_bytes(), request, true);
        self.bytes += line.text.len();
        self.lines.push_front(line);
    }

    /// Writes what the host takes now.
    fn write(&mut self, mut host: &UnixStream, session: &mut Session) -> io::Result<()> {
        while let Some(line) = self.lines.front() {
            let rest = line.text.get(self.written..).unwrap_or_default();
            match host.write(rest) {
                Ok(count) if count < rest.len() => self.written += count,
                Ok(_) => {
                    if let Some(request) = &line.request {
                        session.mark_sent(request);
                    }
                    self.pop();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pop(&mut self) {
        let line = self.lines.pop_front();
        self.bytes -= line.map_or(0, |line| line.text.len());
        self.written = 0;
    }

    /// Keeps the lines that the next host must get unchanged: those of the client that the lost host did not get.
    fn drop_restored(&mut self) {
        self.lines.retain(|line| !line.is_restored);
        self.bytes = self.lines.iter().map(|line| line.text.len()).sum();
        self.written = 0;
    }
}

impl Line {
    fn new(line: &[u8], request: Option<String>, is_restored: bool) -> Self {
        let mut text = Vec::with_capacity(line.len() + 1);
        text.extend_from_slice(line);
        text.push(b'\n');
        Self {
            text,
            request,
            is_restored,
        }
    }
}

impl Output {
    fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
    }

    /// Writes as much as standard output takes without blocking, once it is ready.
    fn write_chunk(&mut self) -> Result<(), ClientGone> {
        let rest = self.bytes.get(self.written..).unwrap_or_default();
        let chunk = rest.get(..CHUNK).unwrap_or(rest);
        match rustix::io::write(stdio::stdout(), chunk) {
            Ok(count) => self.written += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return Err(ClientGone),
        }
        if self.len() == 0 {
            self.bytes.clear();
            self.bytes.shrink_to(KEEP);
            self.written = 0;
        }
        Ok(())
    }

    /// Writes everything, however long the client takes.
    fn flush(&mut self) -> Result<(), ClientGone> {
        while self.len() > 0 {
            let mut polled = [PollFd::from_borrowed_fd(stdio::stdout(), PollFlags::OUT)];
            let _ = poll(&mut polled, None);
            self.write_chunk()?;
        }
        Ok(())
    }
}

/// The error says nothing about the connection.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
