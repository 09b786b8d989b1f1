//! Reads the system calls of a watched server and records their paths and addresses.
//!
//! A thread that makes such a call waits until it was recorded; the kernel then carries it out. Its path is read from its
//! memory meanwhile, and the notification is checked afterwards, so that a thread that ended and whose number was given
//! away is not mistaken for another. A server that changes the path in between can only hide what it opens; it is refused
//! that under the profile.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

use mainstay_system::{Notification, Notifications};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::net::SocketType;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::calls::{self, Meaning, Name};
use super::facts::Facts;
use super::names;

/// Bytes of a path, with its end.
const PATH: usize = 4096;
const PAGE: u64 = 4096;
/// Bytes of a datagram in which a query is looked for.
const DATAGRAM: usize = 512;
/// Messages of one call that are looked at.
const MESSAGES: u64 = 16;
/// Bytes of `struct mmsghdr`.
const MESSAGE: u64 = 64;
/// Links of interpreters: a script may name another script.
const INTERPRETERS: usize = 4;

/// Records a call. Gives the error that the call fails with instead, if any.
pub(super) fn record(
    facts: &mut Facts,
    watched: &Notifications,
    one: &Notification,
) -> Option<i32> {
    let meaning = calls::meaning(one.call)?;
    let caller = Caller::of(watched, one)?;
    match meaning {
        Meaning::Open(name, flags) => caller.opens(facts, name, caller.number(flags)),
        Meaning::OpenHow(name) => {
            let flags = caller.word(caller.argument(2)).unwrap_or_default();
            caller.opens(facts, name, flags);
        }
        Meaning::Create(name) => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            caller.opens(facts, name, flags.unsigned_abs().into());
        }
        Meaning::Execute(name) => {
            if let Some(path) = caller.path(name, true) {
                executes(facts, path, 0);
            }
        }
        Meaning::Make(name) => {
            let made = caller.path(name, false);
            if let Some(path) = made.filter(|path| path.symlink_metadata().is_err()) {
                facts.changes_names(&path);
            }
        }
        Meaning::Remove(name) => caller.removes(facts, name),
        Meaning::Move(from, to) => {
            let there = |path: &PathBuf| path.symlink_metadata().is_ok();
            let from = caller.path(from, false).filter(there);
            if let (Some(from), Some(to)) = (from, caller.path(to, false)) {
                facts.changes_names(&from);
                facts.changes_names(&to);
            }
        }
        Meaning::Change(name) => {
            // Without a path the descriptor before it is meant.
            let path = match (caller.argument(name.path), name.folder) {
                (0, Some(folder)) => caller.opened(caller.argument(folder)),
                _ => caller.path(name, true),
            };
            if let Some(path) = path.filter(|path| path.exists()) {
                facts.writes(path);
            }
        }
        Meaning::ChangeOpened => {
            if let Some(path) = caller.opened(caller.argument(0)) {
                facts.writes(path);
            }
        }
        Meaning::Connect => return caller.connects(facts),
        Meaning::Bind => return caller.binds(facts),
        Meaning::Listen => caller.listens(facts),
        Meaning::Send => {
            let to = caller.address(caller.argument(4), caller.argument(5));
            caller.sends(facts, to, caller.argument(1), caller.argument(2));
        }
        Meaning::SendMessage => caller.sends_message(facts, caller.argument(1)),
        Meaning::SendMessages => {
            for index in 0..caller.argument(2).min(MESSAGES) {
                caller.sends_message(facts, caller.argument(1) + index * MESSAGE);
            }
        }
    }
    None
}

/// The thread that waits.
struct Caller<'a> {
    watched: &'a Notifications,
    one: &'a Notification,
    memory: File,
}

/// The place that an address names.
enum Place {
    Inet(SocketAddr),
    /// A path, or `@` and an abstract name.
    Unix(String),
}

impl<'a> Caller<'a> {
    fn of(watched: &'a Notifications, one: &'a Notification) -> Option<Self> {
        let memory = File::open(format!("/proc/{}/mem", one.thread)).ok()?;
        let caller = Self {
            watched,
            one,
            memory,
        };
        caller.is_there().then_some(caller)
    }

    /// True if the thread still waits, so that all that was read in `/proc` under its number was its own.
    fn is_there(&self) -> bool {
        self.watched.is_waiting(self.one)
    }

    fn argument(&self, index: usize) -> u64 {
        self.one.arguments.get(index).copied().unwrap_or_default()
    }

    /// An argument of 32 bits: the upper half of the register means nothing.
    fn number(&self, index: usize) -> u64 {
        self.argument(index) & u64::from(u32::MAX)
    }

    fn bytes(&self, address: u64, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; most];
        let count = self.memory.read_at(&mut bytes, address).ok()?;
        bytes.truncate(count);
        Some(bytes)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes(address, 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The text at an address, up to its null byte. It may end on the last page of its memory.
    fn text(&self, address: u64) -> Option<PathBuf> {
        let mut text: Vec<u8> = Vec::new();
        while text.len() < PATH {
            let at = address.checked_add(text.len().try_into().ok()?)?;
            let page = usize::try_from(PAGE - at % PAGE).ok()?;
            let bytes = self.bytes(at, page).filter(|bytes| !bytes.is_empty())?;
            match bytes.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend(bytes.get(..end)?);
                    return Some(PathBuf::from(std::ffi::OsString::from_vec(text)));
                }
                None => text.extend(bytes),
            }
        }
        None
    }

    /// The file of an open descriptor.
    fn opened(&self, descriptor: u64) -> Option<PathBuf> {
        let number = descriptor & u64::from(u32::MAX);
        let path = fs::read_link(format!("/proc/{}/fd/{number}", self.one.thread)).ok()?;
        // Pipes and sockets have names that are not paths, and removed files a remark.
        let is_file = path.is_absolute() && path.symlink_metadata().is_ok();
        (is_file && self.is_there()).then_some(path)
    }

    /// The whole path that a call names. `follow` resolves a link at its end. Nothing for `/proc`, which each process has its
    /// own of, and for a process that changed its root.
    fn path(&self, name: Name, follow: bool) -> Option<PathBuf> {
        let text = self.text(self.argument(name.path))?;
        let base = match name.folder.map(|folder| self.number(folder)) {
            _ if text.is_absolute() => PathBuf::from("/"),
            Some(folder) if folder != u64::from(libc::AT_FDCWD.cast_unsigned()) => {
                self.opened(folder)?
            }
            _ => fs::read_link(format!("/proc/{}/cwd", self.one.thread)).ok()?,
        };
        let root = fs::read_link(format!("/proc/{}/root", self.one.thread)).ok()?;
        if root != Path::new("/") || (text.as_os_str().is_empty() && name.folder.is_none()) {
            return None;
        }
        let whole = base.join(text);
        let is_of_process = |path: &Path| path.starts_with("/proc") || path.starts_with("/dev/fd");
        let is_standard = |path: &Path| path.as_os_str().as_bytes().starts_with(b"/dev/std");
        if is_of_process(&whole) || is_standard(&whole) {
            return None;
        }
        let found = match whole.canonicalize() {
            Ok(found) if follow => Some(found),
            _ => resolve_parent(&whole),
        };
        found.filter(|path| !is_of_process(path) && self.is_there())
    }

    fn opens(&self, facts: &mut Facts, name: Name, flags: u64) {
        let has = |flag: i32| flags & u64::from(flag.unsigned_abs()) != 0;
        if has(libc::O_PATH) {
            return;
        }
        let stays = has(libc::O_NOFOLLOW) || (has(libc::O_CREAT) && has(libc::O_EXCL));
        let Some(path) = self.path(name, !stays) else {
            return;
        };
        let mode = flags & u64::from(libc::O_ACCMODE.unsigned_abs());
        let writes = mode != u64::from(libc::O_RDONLY.unsigned_abs()) || has(libc::O_TRUNC);
        let Ok(about) = path.metadata() else {
            if has(libc::O_CREAT) {
                facts.changes_names(&path);
            }
            return;
        };
        // `O_TMPFILE` contains the bit of `O_DIRECTORY`.
        if flags & u64::from(libc::O_TMPFILE.unsigned_abs())
            == u64::from(libc::O_TMPFILE.unsigned_abs())
        {
            facts.changes_names(&path.join("new"));
            return;
        }
        if writes && may(&path, Access::WRITE_OK) {
            facts.writes(path.clone());
        }
        if mode != u64::from(libc::O_WRONLY.unsigned_abs()) && may(&path, Access::READ_OK) {
            match about.is_dir() {
                true => facts.lists(path),
                false => facts.reads(path),
            }
        }
    }

    fn removes(&self, facts: &mut Facts, name: Name) {
        if let Some(path) = self.path(name, false)
            && path.symlink_metadata().is_ok()
        {
            facts.changes_names(&path);
        }
    }

    /// The number of the caller's process.
    fn process(&self) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.one.thread)).ok()?;
        let number = |line: &str| line.strip_prefix("Tgid:")?.trim().parse().ok();
        status.lines().find_map(number)
    }

    /// A copy of one of the caller's sockets.
    fn socket(&self) -> Option<OwnedFd> {
        let process = Pid::from_raw(self.process()?.try_into().ok()?)?;
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).ok()?;
        let number = self.number(0).try_into().ok()?;
        let socket = rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty());
        socket.ok().filter(|_| self.is_there())
    }

    fn address(&self, at: u64, length: u64) -> Option<Place> {
        let length = usize::try_from(length).ok()?.min(128);
        if at == 0 || length < 2 {
            return None;
        }
        let bytes = self.bytes(at, length)?;
        let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
        match i32::from(family) {
            libc::AF_INET => {
                let four: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                let address = IpAddr::V4(Ipv4Addr::from(four));
                Some(Place::Inet(SocketAddr::new(address, port()?)))
            }
            libc::AF_INET6 => {
                let six: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                let address = IpAddr::V6(Ipv6Addr::from(six)).to_canonical();
                Some(Place::Inet(SocketAddr::new(address, port()?)))
            }
            libc::AF_UNIX => {
                let name = bytes.get(2..)?;
                let name = match name.split_first() {
                    Some((0, abstract_name)) => [b"@", abstract_name].concat(),
                    _ => name.split(|byte| *byte == 0).next()?.to_vec(),
                };
                Some(Place::Unix(String::from_utf8_lossy(&name).into_owned()))
            }
            _ => None,
        }
    }

    /// A Unix socket fails as in the sandbox, so that a program that has another way takes it.
    fn connects(&self, facts: &mut Facts) -> Option<i32> {
        match self.address(self.argument(1), self.argument(2))? {
            Place::Unix(name) => {
                facts.connects_locally(name);
                Some(libc::EACCES)
            }
            Place::Inet(address) => {
                let kind = rustix::net::sockopt::socket_type(self.socket()?).ok()?;
                // C libraries connect datagram sockets to find out which address they would have.
                if kind == SocketType::STREAM {
                    facts.connects(self.process()?, address);
                }
                None
            }
        }
    }

    fn binds(&self, facts: &mut Facts) -> Option<i32> {
        match self.address(self.argument(1), self.argument(2))? {
            Place::Unix(name) => {
                facts.connects_locally(name);
                Some(libc::EACCES)
            }
            Place::Inet(_) => None,
        }
    }

    fn listens(&self, facts: &mut Facts) {
        let name = self
            .socket()
            .and_then(|socket| rustix::net::getsockname(socket).ok());
        if let Some(address) = name.and_then(|name| SocketAddr::try_from(name).ok()) {
            facts.listens(address);
        }
    }

    fn sends_message(&self, facts: &mut Facts, header: u64) {
        let Some(name) = self.word(header) else {
            return;
        };
        let length = self.word(header + 8).map(|word| word & u64::from(u32::MAX));
        let to = self.address(name, length.unwrap_or_default());
        let vector = self.word(header + 16).unwrap_or_default();
        let (data, count) = (self.word(vector), self.word(vector + 8));
        if let (Some(data), Some(count)) = (data, count) {
            self.sends(facts, to, data, count);
        }
    }

    fn sends(&self, facts: &mut Facts, to: Option<Place>, data: u64, count: u64) {
        let Some(socket) = self.socket() else { return };
        let is_datagram = rustix::net::sockopt::socket_type(&socket) == Ok(SocketType::DGRAM);
        if !is_datagram {
            return;
        }
        let to = match to {
            Some(Place::Unix(name)) => return facts.connects_locally(name),
            Some(Place::Inet(address)) => Some(address),
            None => {
                let peer = rustix::net::getpeername(socket).ok().flatten();
                peer.and_then(|peer| SocketAddr::try_from(peer).ok())
            }
        };
        let Some(to) = to else { return };
        if to.port() != names::PORT {
            return facts.sends_datagrams(to);
        }
        let most = usize::try_from(count).unwrap_or(DATAGRAM).min(DATAGRAM);
        let name = self.bytes(data, most).as_deref().and_then(names::queried);
        if let (Some(name), Some(process)) = (name, self.process()) {
            facts.looks_up(process, name);
        }
    }
}

/// True if the user may do that without the sandbox.
fn may(path: &Path, access: Access) -> bool {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// The path with its directory resolved. Nothing if it ends in `..` or its directory does not exist.
fn resolve_parent(path: &Path) -> Option<PathBuf> {
    match path.components().next_back()? {
        Component::Normal(name) => Some(path.parent()?.canonicalize().ok()?.join(name)),
        _ => path.canonicalize().ok(),
    }
}

/// The kernel opens the interpreter of a script itself.
fn executes(facts: &mut Facts, path: PathBuf, depth: usize) {
    let head = File::open(&path).and_then(|file| {
        let mut head = vec![0; 256];
        let count = file.read_at(&mut head, 0)?;
        head.truncate(count);
        Ok::<_, io::Error>(head)
    });
    let Ok(head) = head else { return };
    facts.reads(path);
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let interpreter = line
        .strip_prefix("#!")
        .and_then(|line| line.split_whitespace().next());
    if let Some(interpreter) = interpreter
        && depth < INTERPRETERS
        && let Ok(interpreter) = Path::new(interpreter).canonicalize()
    {
        executes(facts, interpreter, depth + 1);
    }
}
