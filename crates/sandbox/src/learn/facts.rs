//! Facts about a watched server: files by their real paths, connections by their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Paths and addresses that are remembered.
const MOST: usize = 65_536;
/// Python keeps compiled modules there if it may, and works without.
const COMPILED: &str = "__pycache__";

/// A connection over TCP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Connection {
    pub(super) process: u32,
    pub(super) to: SocketAddr,
    /// The lookups that came before it.
    pub(super) lookups: usize,
}

#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Readable without being named: no facts.
    pub(super) open_to_all: Vec<PathBuf>,
    /// Writable without being named: no facts.
    pub(super) private: Vec<PathBuf>,
    pub(super) read: BTreeSet<PathBuf>,
    pub(super) listed: BTreeSet<PathBuf>,
    pub(super) written: BTreeSet<PathBuf>,
    /// Directories in which names were made or removed, with these.
    pub(super) names: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    pub(super) connections: BTreeSet<Connection>,
    /// Names that were looked up, and by which process.
    pub(super) lookups: Vec<(u32, String)>,
    /// Ports on which the server listens itself.
    pub(super) own_ports: BTreeSet<u16>,
    /// Those that it offers to other machines.
    pub(super) offered_ports: BTreeSet<u16>,
    pub(super) unix: BTreeSet<String>,
    pub(super) datagrams: BTreeSet<SocketAddr>,
    /// Facts beyond the limit.
    pub(super) dropped: usize,
    pub(super) count: usize,
    /// There are facts that no profile has yet.
    pub(super) is_new: bool,
}

impl Facts {
    pub(super) fn reads(&mut self, path: PathBuf) {
        if !self.is_open(&path) && !self.read.contains(&path) && self.has_room() {
            self.read.insert(path);
        }
    }

    pub(super) fn lists(&mut self, path: PathBuf) {
        if !self.is_open(&path) && !self.listed.contains(&path) && self.has_room() {
            self.listed.insert(path);
        }
    }

    pub(super) fn writes(&mut self, path: PathBuf) {
        let is_device = path.starts_with("/dev");
        if !is_device && self.counts(&path) && !self.written.contains(&path) && self.has_room() {
            self.written.insert(path);
        }
    }

    /// A name is made or removed in its directory.
    pub(super) fn changes_names(&mut self, path: &Path) {
        let Some(folder) = path.parent().filter(|_| self.counts(path)) else {
            return;
        };
        let known = self
            .names
            .get(folder)
            .is_some_and(|names| names.contains(path));
        if !known && self.has_room() {
            let names = self.names.entry(folder.to_owned()).or_default();
            names.insert(path.to_owned());
        }
    }

    pub(super) fn connects(&mut self, process: u32, to: SocketAddr) {
        // Hosts may share an address, so a connection after another lookup is another one.
        let one = Connection {
            process,
            to,
            lookups: self.lookups.len(),
        };
        if !self.connections.contains(&one) && self.has_room() {
            self.connections.insert(one);
        }
    }

    pub(super) fn looks_up(&mut self, process: u32, name: String) {
        let one = (process, name);
        // The resolver asks once for each version of addresses.
        if self.lookups.last() != Some(&one) && self.has_room() {
            self.lookups.push(one);
        }
    }

    pub(super) fn listens(&mut self, address: SocketAddr) {
        if address.port() != 0 && self.has_room() {
            self.own_ports.insert(address.port());
            if !address.ip().to_canonical().is_loopback() {
                self.offered_ports.insert(address.port());
            }
        }
    }

    pub(super) fn connects_locally(&mut self, name: String) {
        if !self.unix.contains(&name) && self.has_room() {
            self.unix.insert(name);
        }
    }

    pub(super) fn sends_datagrams(&mut self, to: SocketAddr) {
        if !self.datagrams.contains(&to) && self.has_room() {
            self.datagrams.insert(to);
        }
    }

    fn is_open(&self, path: &Path) -> bool {
        path.starts_with("/dev")
            || self.is_private(path)
            || self.open_to_all.iter().any(|open| path.starts_with(open))
    }

    fn counts(&self, path: &Path) -> bool {
        let is_compiled = path.iter().any(|name| name == COMPILED);
        !is_compiled && !self.is_private(path)
    }

    fn is_private(&self, path: &Path) -> bool {
        self.private.iter().any(|private| path.starts_with(private))
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.count < MOST;
        match has_room {
            true => self.count += 1,
            false => self.dropped += 1,
        }
        self.is_new = true;
        has_room
    }
}
