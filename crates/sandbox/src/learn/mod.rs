//! `--sandbox=learn`: watches the file and network system calls of a server and writes a profile.
//!
//! The calls are reported by seccomp notifications, not by `ptrace`. A filter follows all processes and threads by
//! itself, so that there is no window between a `fork` and its tracing; signals, stops and exit statuses stay those of the server;
//! a report costs one round trip, not two stops; and the shim that reaps the tree needs no second kind of wait. A
//! notification comes before the call, so its result is unknown: files are looked at instead, as the server's user.
//!
//! Two processes take part. The last stage of the shim, which becomes the server, [installs](watch_this_process) the
//! filter; the shim's keeper [takes](Learner::start) its descriptor and answers from a thread. Learning restricts nothing but
//! system calls, privileges and resources, which are those of the sandbox; Unix sockets are refused as there.

mod calls;
mod facts;
mod generalise;
mod names;
mod profile;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use mainstay_system::Notifications;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use serde::{Deserialize, Serialize};

use self::facts::Facts;
use crate::confine::{self, SandboxError, failed};
use crate::filter;
use crate::policy::Policy;

/// Without a call for so long, the profile is written. It is also written when the server has ended.
const QUIET: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// Names whose addresses are looked up.
const NAMES: usize = 256;

/// Where and for whom a profile is learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learn {
    /// The profile. One that exists is added to.
    pub file: PathBuf,
    /// The server's name.
    pub name: String,
    /// The home directory, written as `~`.
    pub home: Option<PathBuf>,
    /// Names of variables that the server gets.
    pub env: Vec<String>,
    pub presets: Vec<String>,
    /// Paths that the presets let it write; not in the profile, which names the presets.
    pub private: Vec<PathBuf>,
}

/// Watches this process, which is about to execute a server, and all that it starts. `keeper` leads to the process
/// that calls [`Learner::start`].
pub fn watch_this_process(policy: &Policy, keeper: impl AsFd) -> Result<(), SandboxError> {
    confine::restrict_privileges(policy)?;
    let refused = filter::program(true);
    mainstay_system::filter_system_calls(&refused).map_err(failed("filter system calls"))?;
    let watched = Notifications::install(&calls::program());
    let watched = watched.map_err(failed("watch system calls (it needs Linux 5.19 or later)"))?;
    let number = watched.as_fd().as_raw_fd();
    // From here on calls that are watched wait for the keeper, who has no descriptor yet: the standard library would send.
    rustix::io::write(&keeper, &number.to_ne_bytes())
        .and_then(|_| rustix::io::read(&keeper, &mut [0]))
        .map_err(failed("reach the process that learns"))?;
    Ok(())
}

/// The watching side.
#[derive(Debug)]
pub struct Learner {
    policy: Policy,
    learn: Learn,
    facts: Facts,
    addresses: BTreeMap<String, Vec<IpAddr>>,
    has_saved: bool,
}

impl Learner {
    /// A learner for a server with a temporary directory. `None` if the policy does not ask for one.
    #[must_use]
    pub fn new(policy: Policy, temporary: PathBuf) -> Option<Self> {
        let learn = policy.learn.clone()?;
        let open_to_all = confine::system_paths().chain(policy.runtime.iter().cloned());
        let open_to_all = open_to_all
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        let temporary = temporary.canonicalize().unwrap_or(temporary);
        let facts = Facts {
            open_to_all,
            private: [temporary]
                .into_iter()
                .chain(learn.private.iter().cloned())
                .collect(),
            ..Facts::default()
        };
        Some(Self {
            policy,
            learn,
            facts,
            addresses: BTreeMap::new(),
            has_saved: false,
        })
    }

    /// Takes the filter's descriptor from the process `server`, and answers until the last process of its tree has ended.
    pub fn start(mut self, mut server: UnixStream, process: Pid) -> io::Result<()> {
        let mut number = [0; 4];
        server.read_exact(&mut number)?;
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
        let number = i32::from_ne_bytes(number);
        let watched = rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty())?;
        let watched = Notifications::of(watched);
        server.write_all(&[1])?;
        drop(server);
        while self.wait(&watched)? {
            let Some(one) = watched.receive()? else {
                continue;
            };
            let error = watch::record(&mut self.facts, &watched, &one);
            watched.answer(&one, error)?;
        }
        self.save();
        Ok(())
    }

    /// Waits for a call; false when there is no process left.
    fn wait(&mut self, watched: &Notifications) -> io::Result<bool> {
        loop {
            let mut polled = [PollFd::new(watched, PollFlags::IN)];
            let timeout = self.facts.is_new.then_some(&QUIET);
            match rustix::event::poll(&mut polled, timeout) {
                Ok(0) => self.save(),
                Ok(_) => {
                    let found = polled
                        .first()
                        .map(PollFd::revents)
                        .unwrap_or(PollFlags::HUP);
                    return Ok(found.contains(PollFlags::IN));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes the profile. A failure is reported; the server goes on.
    fn save(&mut self) {
        self.facts.is_new = false;
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let addresses = &mut self.addresses;
        let mut resolve = |name: &str| addresses_of(addresses, name);
        let home = self.learn.home.as_deref();
        let learned = generalise::generalise(&self.facts, home, &hosts, &mut resolve);
        let (file, said) = (self.learn.file.display(), &mut io::stderr());
        let _ = match profile::save(&self.policy, &self.learn, &learned) {
            Ok(()) if self.has_saved => Ok(()),
            Ok(()) => writeln!(
                said,
                "mainstay: the sandbox profile is in {file}; read it, then use it with --sandbox={file}"
            ),
            Err(error) => writeln!(
                said,
                "mainstay: warning: the sandbox profile {file} cannot be written: {error}"
            ),
        };
        self.has_saved = true;
    }
}

/// The addresses of a name, which is looked up once.
fn addresses_of(known: &mut BTreeMap<String, Vec<IpAddr>>, name: &str) -> Vec<IpAddr> {
    if let Some(addresses) = known.get(name) {
        return addresses.clone();
    }
    if known.len() >= NAMES {
        return Vec::new();
    }
    let found = (name, 0).to_socket_addrs();
    let found = found.map(|found| found.map(|one| one.ip().to_canonical()).collect());
    let found: Vec<IpAddr> = found.unwrap_or_default();
    known.insert(name.to_owned(), found.clone());
    found
}
