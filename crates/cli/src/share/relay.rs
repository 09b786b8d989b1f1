//! The relay: lines between a client's standard input and output and the share host.
//!
//! One thread reads the client, the other one the host. A lost host is replaced: the relay starts another one, opens
//! the session there ([`Session::restore`]), and the client notices nothing but errors of calls whose outcome is not known.
//!
//! A thread that writes to the host holds no lock: a host that does not read must not keep the other thread from reading.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use mainstay_contract::control::{ControlReply, ControlRequest, SharedServer};
use mainstay_contract::dialect::{Inbound, decode_oversize, encode};
use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_host::files;

use super::session::Session;
use super::socket_of;
use crate::exit::Failure;
use crate::server_file::FRAME_BYTES;
use crate::start;

/// Time for a host to start and to take a client.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for a host to reply to a client.
const REPLY: Duration = Duration::from_secs(10);
/// Pause between two attempts to reach a host.
const RETRY: Duration = Duration::from_millis(10);
/// Time after which a host is started again that does not listen.
const RESTART: Duration = Duration::from_secs(5);
/// Bytes of a reply of the host.
const REPLY_BYTES: usize = 64 * 1024;

/// A relay, for both of its threads.
struct Relay {
    server: SharedServer,
    runtime_dir: PathBuf,
    state: Mutex<State>,
}

struct State {
    session: Session,
    host: Arc<UnixStream>,
    /// The client sends nothing more.
    input_ended: bool,
}

/// The reason why no session was opened.
enum Refusal {
    /// The host ends; another one can be started.
    Later(String),
    Final(Failure),
}

/// Relays until the client leaves.
pub(super) fn run(server: SharedServer, runtime_dir: &Path) -> Result<ExitCode, Failure> {
    files::create_private(runtime_dir).map_err(Failure::input)?;
    let host = connect(runtime_dir, &server)?;
    let relay = Arc::new(Relay {
        server,
        runtime_dir: runtime_dir.to_owned(),
        state: Mutex::new(State {
            session: Session::default(),
            host: Arc::new(host),
            input_ended: false,
        }),
    });
    let reader = Arc::clone(&relay);
    std::thread::Builder::new()
        .name("client".into())
        .spawn(move || reader.read_client())
        .context("cannot start a thread")
        .map_err(Failure::fault)?;
    relay.read_hosts()?;
    Ok(ExitCode::SUCCESS)
}

impl Relay {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the lines of the client to the host.
    fn read_client(&self) {
        let mut frames = FrameReader::new(FRAME_BYTES);
        let mut input = io::stdin().lock();
        while let Ok(count) = input.read(frames.spare()) {
            if count == 0 {
                break;
            }
            frames.filled(count);
            while let Some(frame) = frames.next_frame() {
                match frame {
                    Frame::Line(line) => {
                        let host = {
                            let mut state = self.state();
                            state.session.client_line(line);
                            Arc::clone(&state.host)
                        };
                        // A host that is lost is noticed by the thread that reads from it.
                        let _ = write_line(&host, line);
                    }
                    Frame::Oversize(oversize) => {
                        let refused = decode_oversize(&oversize.head, None, FRAME_BYTES);
                        if let Inbound::Refused(refused) = refused {
                            let answer =
                                encode::answer(&refused.id, refused.form, &Err(refused.problem));
                            let _ = print_line(answer.as_bytes());
                        }
                    }
                }
            }
        }
        let mut state = self.state();
        state.input_ended = true;
        let _ = state.host.shutdown(Shutdown::Write);
    }

    /// Passes the lines of the host to the client, and replaces a host that is lost.
    fn read_hosts(&self) -> Result<(), Failure> {
        loop {
            let host = Arc::clone(&self.state().host);
            let reads = self.read_host(&host);
            let mut state = self.state();
            if reads.is_err() || state.input_ended && state.session.is_idle() {
                return Ok(());
            }
            let next = connect(&self.runtime_dir, &self.server)?;
            let restored = state.session.restore();
            for line in restored.to_host {
                let _ = write_line(&next, line.as_bytes());
            }
            if state.input_ended {
                let _ = next.shutdown(Shutdown::Write);
            }
            state.host = Arc::new(next);
            drop(state);
            for line in restored.to_client {
                if print_line(line.as_bytes()).is_err() {
                    return Ok(());
                }
            }
        }
    }

    /// Reads a host until it is lost. An error means that the client is gone.
    fn read_host(&self, mut host: &UnixStream) -> io::Result<()> {
        let mut frames = FrameReader::new(FRAME_BYTES);
        loop {
            match host.read(frames.spare()) {
                Ok(0) => return Ok(()),
                Ok(count) => frames.filled(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Ok(()),
            }
            while let Some(frame) = frames.next_frame() {
                // The host sends no longer line than a client of it may.
                let Frame::Line(line) = frame else { continue };
                if self.state().session.host_line(line) {
                    print_line(line)?;
                }
            }
        }
    }
}

fn write_line(mut to: &UnixStream, line: &[u8]) -> io::Result<()> {
    let mut whole = Vec::with_capacity(line.len() + 1);
    whole.extend_from_slice(line);
    whole.push(b'\n');
    to.write_all(&whole)
}

fn print_line(line: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(line)?;
    output.write_all(b"\n")?;
    output.flush()
}

/// A session of the share host, which is started if there is none. Of several hosts that are started at once the first
/// one gets the socket, and the others end.
fn connect(runtime_dir: &Path, server: &SharedServer) -> Result<UnixStream, Failure> {
    let socket = socket_of(runtime_dir);
    let until = Instant::now() + PATIENCE;
    let mut restart = Instant::now();
    loop {
        let why = match UnixStream::connect(&socket) {
            Ok(stream) => match attach(stream, server) {
                Ok(stream) => return Ok(stream),
                Err(Refusal::Final(failure)) => return Err(failure),
                Err(Refusal::Later(why)) => why,
            },
            Err(error) => {
                if Instant::now() >= restart {
                    start_host()?;
                    restart = Instant::now() + RESTART;
                }
                error.to_string()
            }
        };
        if Instant::now() >= until {
            let shown = socket.display();
            let said = anyhow!("the share host does not take this client at {shown}: {why}");
            let hint = "look at share.log beside that socket, or leave --shared out";
            return Err(Failure::fault(said).hint(hint));
        }
        std::thread::sleep(RETRY);
    }
}

/// Names the server to a host.
fn attach(stream: UnixStream, server: &SharedServer) -> Result<UnixStream, Refusal> {
    let later = |error: io::Error| Refusal::Later(error.to_string());
    let peer = rustix::net::sockopt::socket_peercred(&stream);
    let own = rustix::process::geteuid();
    if !peer.is_ok_and(|peer| peer.uid == own) {
        let said = anyhow!("the share host belongs to another user");
        return Err(Refusal::Final(Failure::input(said)));
    }
    let request = ControlRequest::Share(Box::new(server.clone()));
    let request = serde_json::to_vec(&request).map_err(|error| later(error.into()))?;
    write_line(&stream, &request).map_err(later)?;
    stream.set_read_timeout(Some(REPLY)).map_err(later)?;
    let reply = read_reply(&stream).map_err(later)?;
    stream.set_read_timeout(None).map_err(later)?;
    match serde_json::from_slice(&reply) {
        Ok(ControlReply::Shared {}) => Ok(stream),
        Ok(ControlReply::Unable { reason }) => Err(Refusal::Later(reason)),
        Ok(ControlReply::Refused { reason }) if reason.contains("stopping") => {
            Err(Refusal::Later(reason))
        }
        Ok(ControlReply::Refused { reason }) => Err(Refusal::Final(Failure::input(anyhow!(
            "the share host refused this client: {reason}"
        )))),
        Ok(_) => Err(Refusal::Later("the reply is not about sharing".to_owned())),
        Err(error) => Err(Refusal::Later(error.to_string())),
    }
}

/// One line, and not a byte of the session after it.
fn read_reply(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < REPLY_BYTES {
        stream.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return Ok(line);
        }
        line.extend_from_slice(&byte);
    }
    Err(io::Error::other("the reply is too long"))
}

/// Starts a host, which detaches itself from this process.
fn start_host() -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::fault(anyhow!(error).context("cannot start the share host"));
    let mut launcher = Command::new(start::executable())
        .args(["share", "host"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    launcher.wait().map_err(failed)?;
    Ok(())
}
