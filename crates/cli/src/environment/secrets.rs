//! Secrets of the environment, out of reach of the processes that a host starts.
//!
//! Theory of operation. `/proc/PID/environ` shows the variables with which a program was started, whatever it does
//! with them later, to every process of the same user. So a command that finds secrets there starts itself
//! again in the same process, without them. It sends them ahead through a socket that takes the place of
//! standard input; with them travels the real standard input. The second start takes both from the socket,
//! and standard input is what it was. A process that is not dumpable, as this one is from its first moment, hides
//! its memory, too, except from a process with `CAP_SYS_PTRACE`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, anyhow};
use mainstay_contract::envelope::redact::is_secret_variable;
use mainstay_host::{Arrival, UpgradeConfig};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::DumpableBehavior;

use crate::VERSION;
use crate::exit::{Failure, eprint_line};
use crate::start;

/// Variables that are taken out of the environment at the start.
const SECRETS: [&str; 5] = [
    "MAINSTAY_TOKEN",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
];
/// Begins the names of variables with headers for a server at a URL; `adopt` writes them.
pub(crate) const HEADER: &str = "MAINSTAY_HEADER_";
/// Says that secrets come through standard input, and the bytes with which they begin.
const MARKER: &str = "MAINSTAY_SECRETS";
/// Most bytes of all secrets, which fit into a socket.
const MAX_BYTES: usize = 64 * 1024;

/// The secrets of this process.
static TAKEN: OnceLock<Vec<(OsString, OsString)>> = OnceLock::new();

/// The state of the host that this process continues, or that it checks.
static ARRIVED: Mutex<Option<Arrival>> = Mutex::new(None);

/// Variables that no worker or server inherits.
pub(crate) fn withheld() -> Vec<String> {
    let others = ["MAINSTAY_TOKEN_FILE", MARKER, mainstay_host::MARKER];
    SECRETS
        .iter()
        .chain(&others)
        .map(|name| (*name).to_owned())
        .collect()
}

/// Hides this process from others of the same user, and its secrets from everybody. To be called before
/// anything else, while there is one thread.
pub(crate) fn protect() -> Result<(), Failure> {
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Some(arrival) = get(mainstay_host::MARKER).and_then(|mark| Arrival::receive(&mark)) {
        let _ = rustix::thread::set_name(c"mainstay");
        let arrival = arrival.map_err(Failure::fault)?;
        let start = arrival
            .start()
            .map_err(|why| Failure::fault(anyhow!("{why}")))?;
        let _ = TAKEN.set(start.secrets);
        start::resume(start.files, start.program);
        *ARRIVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrival);
    } else if let Some(mark) = get(MARKER) {
        // The second start was called by the name of a link.
        let _ = rustix::thread::set_name(c"mainstay");
        if let Some(secrets) = receive(&mark) {
            let _ = TAKEN.set(secrets);
        }
    } else if !secret_names().is_empty() {
        let error = start_again();
        eprint_line(&format!(
            "mainstay: warning: secrets stay in the environment of this process: {error}"
        ));
    }
    Ok(())
}

/// Everything that a host needs to replace its executable in place. Its settings have been read.
pub(crate) fn upgrade() -> Result<UpgradeConfig, Failure> {
    let signals = mainstay_system::operator_signals().context("cannot watch for signals");
    Ok(UpgradeConfig {
        words: std::env::args_os().collect(),
        start: start::finish(TAKEN.get().cloned().unwrap_or_default()),
        build: mainstay_worker::build_id(VERSION),
        signals: signals.map_err(Failure::fault)?,
        arrival: ARRIVED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(),
    })
}

/// True if another program was executed in this process before, and left its state or its secrets.
pub(crate) fn is_second_start() -> bool {
    get(mainstay_host::MARKER).is_some() || get(MARKER).is_some()
}

/// A variable, also one that was taken out.
pub(super) fn lookup(name: &str) -> Option<OsString> {
    let taken = TAKEN.get().and_then(|taken| {
        let mut taken = taken.iter();
        taken.find(|(key, _)| key == name)
    });
    taken.map(|(_, value)| value.clone()).or_else(|| get(name))
}

/// The names of all variables that are text.
pub(super) fn names() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// The names of the secrets that are in the environment.
fn secret_names() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_secret = |name: &String| SECRETS.contains(&name.as_str()) || name.starts_with(HEADER);
    names.filter(is_secret).collect()
}

/// The headers for a server at a URL that the environment holds, by name.
pub(crate) fn headers() -> Vec<(String, String)> {
    let taken = TAKEN.get().into_iter().flatten().cloned();
    let all = taken
        .chain(std::env::vars_os())
        .filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let name = name.strip_prefix(HEADER).filter(|name| !name.is_empty())?;
            Some((name.to_owned(), value.into_string().ok()?))
        });
    let mut headers: Vec<_> = all.collect();
    headers.sort();
    headers
}

/// Every variable that a server can inherit.
pub(crate) fn inherited() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// Values of all variables whose names are those of secrets.
pub(crate) fn values() -> Vec<String> {
    let taken = TAKEN.get().into_iter().flatten().cloned();
    let named =
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_secret_variable));
    let all = taken.chain(named);
    all.filter_map(|(_, value)| value.into_string().ok())
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "a part of the one place")]
fn get(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Returns only if it fails.
fn start_again() -> io::Error {
    let stdin = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(stdin) => stdin,
        Err(error) => return error,
    };
    let error = match prepare(&stdin) {
        Ok(mut command) => command.exec(),
        Err(error) => error,
    };
    // It may have been replaced already.
    let _ = rustix::stdio::dup2_stdin(stdin);
    error
}

/// This program without secrets in its environment, and with the socket that holds them as standard input.
fn prepare(stdin: &OwnedFd) -> io::Result<Command> {
    let mut nonce = [0; 8];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    let mark = format!("{:016x}", u64::from_ne_bytes(nonce));
    let names = secret_names();
    let secrets = names
        .iter()
        .filter_map(|name| Some((name.as_str(), get(name)?)))
        .collect::<Vec<_>>();
    let theirs = send(&mark, &secrets, stdin)?;
    let mut words = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_default()).args(words);
    for name in &names {
        command.env_remove(name);
    }
    command.env(MARKER, mark).stdin(theirs);
    Ok(command)
}

/// Puts the mark, the secrets and a descriptor into a socket, and gives its other end.
fn send(mark: &str, secrets: &[(&str, OsString)], stdin: &OwnedFd) -> io::Result<OwnedFd> {
    let mut bytes = mark.as_bytes().to_vec();
    for (name, value) in secrets {
        for part in [name.as_bytes(), value.as_bytes()] {
            bytes.extend(part);
            bytes.push(0);
        }
    }
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::other("they are too long"));
    }
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("a descriptor does not fit"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::net::sendmsg(&ours, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent < bytes.len() {
        return Err(io::Error::other("they do not fit"));
    }
    Ok(theirs)
}

/// Takes the secrets and the real standard input from the socket that has its place. `None`, and nothing is
/// read, if standard input is not such a socket.
fn receive(mark: &OsStr) -> Option<Vec<(OsString, OsString)>> {
    let (secrets, stdin) = take(io::stdin().as_fd(), mark.as_bytes())?;
    rustix::stdio::dup2_stdin(stdin).ok()?;
    Some(secrets)
}

type Taken = (Vec<(OsString, OsString)>, OwnedFd);

fn take(socket: impl AsFd, mark: &[u8]) -> Option<Taken> {
    let socket = socket.as_fd();
    let mut seen = vec![0; mark.len()];
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (_, length) = rustix::net::recv(socket, &mut *seen, peek).ok()?;
    if mark.is_empty() || length != mark.len() || seen != mark {
        return None;
    }
    let mut bytes = vec![0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, &mut slices, &mut control, flags).ok()?;
    let stdin = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let parts = bytes.get(mark.len()..received.bytes)?;
    let mut parts = parts.split(|byte| *byte == 0).map(<[u8]>::to_vec);
    let mut secrets = Vec::new();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        secrets.push((OsString::from_vec(name), OsString::from_vec(value)));
    }
    Some((secrets, stdin?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_standard_input_arrive_and_nothing_else_is_read() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let secrets = [
            ("MAINSTAY_TOKEN", OsString::from("s3cret=with\nall")),
            ("OTEL_EXPORTER_OTLP_HEADERS", OsString::new()),
        ];
        let socket = send("mark", &secrets, &reader).unwrap();
        drop(reader);
        assert!(take(&socket, b"other").is_none());
        assert!(take(&socket, b"").is_none());
        let (taken, reader) = take(&socket, b"mark").unwrap();
        let expected = secrets.map(|(name, value)| (OsString::from(name), value));
        assert_eq!(taken, expected);
        rustix::io::write(&writer, b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&reader, &mut byte).unwrap(), 1);
        assert!(take(&socket, b"mark").is_none(), "only once");
        assert!(take(&reader, b"mark").is_none(), "a pipe");
        let long = [("MAINSTAY_TOKEN", OsString::from("x".repeat(MAX_BYTES)))];
        assert!(send("mark", &long, &reader).is_err());
    }
}
