//! Upgrade in place: the host replaces its own executable and keeps its pid, descriptors and sessions.
//!
//! Theory of operation. The new executable first reads the state of the running host in a process of its own
//! ([`probe`]), while the host serves on. Then the host pauses its tasks ([`pause`]), writes the core and the
//! state of its shell into a sealed memory file ([`parcel`]), lets the new executable read that, too, and
//! executes it. Every descriptor stays closed on exec: the new program receives them, with the memory
//! file, through a socket that takes the place of standard input. So no number of a descriptor has a meaning, and a
//! failed exec leaves nothing behind: the host continues its tasks where they stopped.
//!
//! The state holds secrets. It is never in the environment or on a disk, and the new process is not dumpable
//! before it reads it.

mod loss;
mod parcel;
mod pause;
mod probe;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use mainstay_contract::frame::{FrameReader, Unread};
use mainstay_kernel::defect::{Defect, is_planted};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

pub(crate) use self::loss::first_loss;
pub use self::parcel::Arrival;
pub(crate) use self::parcel::{Header, seal};
pub(crate) use self::pause::{Pause, Pauses};
pub(crate) use self::probe::probe;

/// The variable whose value marks the socket that carries the state.
pub const MARKER: &str = "MAINSTAY_UPGRADE";
/// First argument of the process in which a new executable reads the state.
pub const CHECK: &str = "upgrade-check";

/// Everything that a host needs to replace its executable.
#[derive(Debug)]
pub struct UpgradeConfig {
    /// The command line of this process, with the name of the program.
    pub words: Vec<OsString>,
    pub start: Start,
    /// Version and fingerprint of this executable.
    pub build: String,
    /// A signalfd for SIGHUP, SIGINT, SIGTERM and SIGUSR2, which are blocked. Pending signals and the mask survive an
    /// exec, so none of these signals is lost.
    pub signals: OwnedFd,
    /// The state of the host that this process continues.
    pub arrival: Option<Arrival>,
}

/// The part of a state that a new program needs before it has read its command line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Start {
    /// Variables that were taken out of the environment.
    pub secrets: Vec<(OsString, OsString)>,
    /// The files of the settings, as they were when the host was started.
    pub files: Vec<SettingsFile>,
    /// The path of the executable, with the links in it: the next upgrade runs the file to which it leads then.
    pub program: OsString,
}

/// A file that a host read at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsFile {
    pub path: OsString,
    #[serde(with = "blob")]
    pub bytes: Vec<u8>,
    /// Owner and permissions.
    pub uid: u32,
    pub mode: u32,
}

impl UpgradeConfig {
    /// The line with which a process that checks a state reports that it can be read.
    pub fn approval(&self) -> Option<String> {
        let arrival = self.arrival.as_ref()?;
        Some(arrival.approval(&self.build))
    }
}

/// Opens an executable file: the file that is probed is the file that is executed.
pub(crate) fn open(path: &Path) -> Result<File, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot use {}: {why}", path.display());
    // Opening a FIFO would wait for a writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|error| failed(&error))?;
    let facts = file.metadata().map_err(|error| failed(&error))?;
    if !facts.is_file() || facts.permissions().mode() & 0o111 == 0 {
        return Err(failed(&"it is not an executable file"));
    }
    let mut start = [0; 2];
    if file.read_exact_at(&mut start, 0).is_ok() && &start == b"#!" {
        // Its interpreter could not open it: descriptors stay closed on exec.
        return Err(failed(
            &"it is a script; name the executable that it starts",
        ));
    }
    Ok(file)
}

/// The program that an open file is.
fn program(file: &File) -> Command {
    Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Executes a new program in this process. Returns only if that fails, with standard input as it was.
pub(crate) fn execute(
    file: &File,
    words: &[OsString],
    state: &OwnedFd,
    descriptors: &[BorrowedFd<'_>],
) -> io::Error {
    let stdin = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(stdin) => stdin,
        Err(error) => return error,
    };
    let all: Vec<BorrowedFd<'_>> = [stdin.as_fd()]
        .into_iter()
        .chain(descriptors.iter().copied())
        .collect();
    let error = match parcel::post(state, &all) {
        Ok((mark, socket)) => {
            let (name, rest) = words
                .split_first()
                .map_or((None, words), |(a, b)| (Some(a), b));
            let mut command = program(file);
            if let Some(name) = name {
                command.arg0(name);
            }
            command.args(rest).env(MARKER, mark).stdin(socket).exec()
        }
        Err(error) => error,
    };
    // It may have been replaced already.
    let _ = rustix::stdio::dup2_stdin(&stdin);
    error
}

/// A descriptor's place among those that travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Place(usize);

#[cfg(feature = "simulation")]
impl Place {
    /// The place of something that is not a descriptor.
    pub(crate) const fn nowhere() -> Self {
        Self(usize::MAX)
    }
}

/// Descriptors that travel.
#[derive(Debug, Default)]
pub(crate) struct Outgoing<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Outgoing<'a> {
    pub(crate) fn add(&mut self, descriptor: BorrowedFd<'a>) -> Place {
        self.0.push(descriptor);
        Place(self.0.len() - 1)
    }

    pub(crate) fn all(&self) -> &[BorrowedFd<'a>] {
        &self.0
    }
}

/// Descriptors that arrived.
#[derive(Debug, Default)]
pub(crate) struct Incoming(Vec<Option<OwnedFd>>);

impl Incoming {
    pub(crate) fn take(&mut self, place: Place) -> io::Result<OwnedFd> {
        let taken = self.0.get_mut(place.0).and_then(Option::take);
        taken.ok_or_else(|| io::Error::other("a descriptor of the saved state is missing"))
    }
}

/// The input of a reader that was not taken, as it is saved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedFrames {
    #[serde(with = "blob")]
    bytes: Vec<u8>,
    discarding: bool,
    starved: bool,
}

impl SavedFrames {
    pub(crate) fn of(frames: &FrameReader) -> Self {
        let Unread {
            bytes,
            discarding,
            starved,
        } = frames.unread();
        Self {
            bytes: match is_planted(Defect::HalfLineLost) {
                true => Vec::new(),
                false => bytes,
            },
            discarding,
            starved,
        }
    }

    pub(crate) fn restore(self, limit: usize) -> FrameReader {
        let unread = Unread {
            bytes: self.bytes,
            discarding: self.discarding,
            starved: self.starved,
        };
        FrameReader::resume(limit, unread)
    }
}

/// Bytes as base64 text.
pub(crate) mod blob {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}
