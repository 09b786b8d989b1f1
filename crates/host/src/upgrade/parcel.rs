//! The state of a host on its way into another program: a sealed memory file, and descriptors in a socket.
//!
//! The file has three lines of JSON: a [`Header`], the core, and the shell. The first message in the socket is a
//! mark, the number of descriptors, and the memory file; the others carry descriptors.

use std::ffi::OsStr;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use mainstay_contract::rpc::PROTOCOL;
use mainstay_kernel::STATE_VERSION;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

use super::{Incoming, Start};

/// Version of the shell's part of the state. A change of any saved type of `host` raises it.
pub(super) const SHELL_VERSION: u32 = 3;
/// The versions that this executable reads and writes, behind a mark. They are data, so that a test gets an executable of
/// another version from a copy of this one.
static VERSIONS: [u64; 5] = [
    u64::from_le_bytes(*b"mainstay"),
    u64::from_le_bytes(*b"-state-\0"),
    SHELL_VERSION as u64,
    STATE_VERSION as u64,
    PROTOCOL as u64,
];
/// Largest state.
const STATE_BYTES: usize = 1 << 30;
/// Descriptors in one message; the system's limit is 253.
const PER_MESSAGE: usize = 250;
/// Longest first message.
const FIRST: usize = 64;

/// Facts that a reader needs before it reads the rest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    shell: u64,
    core: u64,
    /// Version of the protocol that running workers speak.
    protocol: u64,
    /// The build of the host that wrote it.
    pub(crate) build: String,
    start: Start,
}

impl Header {
    pub(crate) fn new(build: &str, start: Start) -> Self {
        let [_, _, shell, core, protocol] = *black_box(&VERSIONS);
        Self {
            shell,
            core,
            protocol,
            build: build.to_owned(),
            start,
        }
    }

    /// Rejects a state of another version.
    fn check(&self) -> Result<(), String> {
        let [_, _, shell, core, protocol] = *black_box(&VERSIONS);
        let versions = [
            ("shell state", self.shell, shell),
            ("core state", self.core, core),
            ("worker protocol", self.protocol, protocol),
        ];
        let other = versions.into_iter().find(|(_, found, own)| found != own);
        match other {
            Some((what, found, own)) => Err(format!(
                "the running host has {what} version {found}, this executable {own}; \
                 restart the host instead"
            )),
            None => Ok(()),
        }
    }
}

/// Writes a state into a memory file that nothing can change any more.
pub(crate) fn seal(header: &Header, core: &str, shell: &str) -> io::Result<OwnedFd> {
    let header = serde_json::to_string(header)?;
    if core.len().saturating_add(shell.len()) > STATE_BYTES {
        return Err(io::Error::other("the state is larger than 1 GiB"));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("mainstay-state", flags)?);
    for line in [&header, core, shell] {
        file.write_all(line.as_bytes())?;
        file.write_all(b"\n")?;
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// Puts a state and descriptors into a socket. Returns the mark, and the end from which they can be read.
pub(super) fn post(
    state: &OwnedFd,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<(String, OwnedFd)> {
    let mut nonce = [0; 8];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    let mark = format!("{:016x}", u64::from_ne_bytes(nonce));
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
    let first = format!("{mark} {}", descriptors.len());
    send(&ours, first.as_bytes(), &[state.as_fd()])?;
    for some in descriptors.chunks(PER_MESSAGE) {
        send(&ours, b"+", some)?;
    }
    Ok((mark, theirs))
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("the descriptors do not fit"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// The next message of a socket, at most `most` bytes.
fn receive(socket: BorrowedFd<'_>, most: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; most];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_MESSAGE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, &mut slices, &mut control, flags)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "descriptors of the saved state are missing",
        ));
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

/// A state that arrived.
#[derive(Debug)]
pub struct Arrival {
    state: File,
    pub(super) descriptors: Incoming,
    mark: String,
}

impl Arrival {
    /// Takes a state, its descriptors and the real standard input from the socket that has the place of standard
    /// input. `None`, and nothing is read, if standard input is not such a socket.
    pub fn receive(mark: &OsStr) -> Option<io::Result<Self>> {
        let stdin = io::stdin();
        let mut seen = vec![0; mark.len()];
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, length) = rustix::net::recv(&stdin, &mut *seen, peek).ok()?;
        if mark.is_empty() || length != mark.len() || seen != mark.as_bytes() {
            return None;
        }
        Some(Self::take(stdin.as_fd(), mark))
    }

    fn take(socket: BorrowedFd<'_>, mark: &OsStr) -> io::Result<Self> {
        let damaged = || io::Error::other("the message with the saved state is damaged");
        let (first, state) = receive(socket, FIRST)?;
        let text = String::from_utf8(first).map_err(|_| damaged())?;
        let (mark, count) = text
            .split_once(' ')
            .filter(|(found, _)| *found == mark)
            .ok_or_else(damaged)?;
        let count: usize = count.parse().map_err(|_| damaged())?;
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            let (_, some) = receive(socket, 1)?;
            if some.is_empty() {
                return Err(damaged());
            }
            descriptors.extend(some.into_iter().map(Some));
        }
        let mut incoming = descriptors.split_off(count.min(1));
        if let Some(stdin) = descriptors.into_iter().flatten().next() {
            rustix::stdio::dup2_stdin(stdin)?;
        }
        incoming.shrink_to_fit();
        Ok(Self {
            state: File::from(state.into_iter().next().ok_or_else(damaged)?),
            descriptors: Incoming(incoming),
            mark: mark.to_owned(),
        })
    }

    /// The part that is needed before the command line is read.
    pub fn start(&self) -> Result<Start, String> {
        let (header, ..) = self.read()?;
        Ok(header.start)
    }

    /// The line with which a process that checks a state reports that it can be read.
    pub(super) fn approval(&self, build: &str) -> String {
        approval(&self.mark, build)
    }

    /// The header, the core and the shell.
    pub(crate) fn read(&self) -> Result<(Header, String, String), String> {
        let unreadable = |why: &dyn std::fmt::Display| format!("the state cannot be read: {why}");
        let mut text = String::new();
        // The offset is shared with the process that wrote it.
        let mut file = &self.state;
        file.rewind()
            .and_then(|()| file.take(2 * STATE_BYTES as u64).read_to_string(&mut text))
            .map_err(|error| unreadable(&error))?;
        let mut lines = text.lines();
        let (Some(header), Some(core), Some(shell)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(unreadable(&"it is not complete"));
        };
        let header: Header = serde_json::from_str(header).map_err(|error| unreadable(&error))?;
        header.check()?;
        Ok((header, core.to_owned(), shell.to_owned()))
    }

    pub(crate) fn take_descriptors(&mut self) -> Incoming {
        std::mem::take(&mut self.descriptors)
    }
}

/// See [`Arrival::approval`].
pub(super) fn approval(mark: &str, build: &str) -> String {
    format!("mainstay-upgrade {mark} {build}")
}

#[cfg(test)]
mod tests {
    use super::super::SettingsFile;
    use super::*;

    fn start() -> Start {
        Start {
            secrets: vec![("NAME".into(), "value".into())],
            files: vec![SettingsFile {
                path: OsStr::from_bytes(b"\xff.toml").to_owned(),
                bytes: vec![0, 0xff],
                uid: 1,
                mode: 0o600,
            }],
            program: "/bin/mainstay".into(),
        }
    }

    fn sealed() -> OwnedFd {
        seal(&Header::new("1+a", start()), "{}", "[1]").unwrap()
    }

    #[test]
    fn a_state_and_many_descriptors_arrive_in_order_and_only_once() {
        let (one, other) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        let stdin = io::stdin().as_fd().try_clone_to_owned().unwrap();
        // More than one message; the first descriptor becomes standard input.
        let mut all = vec![one.0.as_fd(); 2 * PER_MESSAGE];
        all.insert(0, stdin.as_fd());
        all.push(other.0.as_fd());
        let (mark, socket) = post(&sealed(), &all).unwrap();
        let mut arrival = Arrival::take(socket.as_fd(), OsStr::new(&mark)).unwrap();
        let mut descriptors = arrival.take_descriptors();
        assert_eq!(descriptors.0.len(), 2 * PER_MESSAGE + 1);
        let last = super::super::Place(2 * PER_MESSAGE);
        rustix::io::write(&other.1, b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(descriptors.take(last).unwrap(), &mut byte).unwrap();
        assert_eq!(&byte, b"x");
        assert!(descriptors.take(last).is_err());
        let rest = receive(socket.as_fd(), 1);
        assert!(rest.is_ok_and(|(bytes, more)| bytes.is_empty() && more.is_empty()));
        for _ in 0..2 {
            let (header, core, shell) = arrival.read().unwrap();
            assert_eq!(
                (header.build.as_str(), &*core, &*shell),
                ("1+a", "{}", "[1]")
            );
        }
        let (arrived, sent) = (arrival.start().unwrap(), start());
        assert_eq!(
            (arrived.secrets, arrived.files, arrived.program),
            (sent.secrets, sent.files, sent.program)
        );
    }

    #[test]
    fn a_state_cannot_be_changed_and_another_version_is_rejected() {
        let state = sealed();
        assert!(rustix::io::write(&state, b"x").is_err());
        assert!(rustix::fs::ftruncate(&state, 0).is_err());
        let mut header = Header::new("1+a", Start::default());
        header.shell += 1;
        let state = seal(&header, "{}", "{}").unwrap();
        let (mark, socket) = post(&state, &[]).unwrap();
        let arrival = Arrival::take(socket.as_fd(), OsStr::new(&mark)).unwrap();
        let said = arrival.read().unwrap_err();
        assert!(said.contains("restart the host instead"), "{said}");
    }
}
