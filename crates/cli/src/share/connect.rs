//! A relay's connection to the share host of its user.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use mainstay_contract::control::{ControlReply, ControlRequest, SharedClient, SharedServer};
use mainstay_contract::id::RequestId;

use super::socket_of;
use crate::exit::Failure;
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

/// The reason why no session was opened.
enum Refusal {
    /// The host ends; another one can be started.
    Later(String),
    Final(Failure),
}

/// A session of the share host, which is started if there is none. Of several hosts that are started at once the first
/// one gets the socket, and the others end. `unsettled` are requests that a lost host may have sent to the server.
pub(super) fn connect(
    runtime_dir: &Path,
    server: &SharedServer,
    unsettled: Vec<RequestId>,
) -> Result<UnixStream, Failure> {
    let socket = socket_of(runtime_dir);
    let client = SharedClient {
        server: server.clone(),
        unsettled,
    };
    let request = ControlRequest::Share(Box::new(client));
    let mut request = serde_json::to_vec(&request).map_err(Failure::fault)?;
    request.push(b'\n');
    let until = Instant::now() + PATIENCE;
    let mut restart = Instant::now();
    loop {
        let why = match UnixStream::connect(&socket) {
            Ok(stream) => match attach(stream, &request) {
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

/// Names the server to a host. The connection is then one that does not block.
fn attach(mut stream: UnixStream, request: &[u8]) -> Result<UnixStream, Refusal> {
    let later = |error: io::Error| Refusal::Later(error.to_string());
    let peer = rustix::net::sockopt::socket_peercred(&stream);
    let own = rustix::process::geteuid();
    if !peer.is_ok_and(|peer| peer.uid == own) {
        let said = anyhow!("the share host belongs to another user");
        return Err(Refusal::Final(Failure::input(said)));
    }
    stream.set_write_timeout(Some(REPLY)).map_err(later)?;
    stream.write_all(request).map_err(later)?;
    stream.set_read_timeout(Some(REPLY)).map_err(later)?;
    let reply = read_reply(&stream).map_err(later)?;
    stream.set_nonblocking(true).map_err(later)?;
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
