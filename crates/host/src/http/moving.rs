//! The front in an upgrade in place: answers end, connections come to rest, sessions move.
//!
//! While the front drains, every answer closes its connection and new connections wait in the backlog. Streams
//! that no answer ends are closed at the hand-over, and those of sessions can be resumed. Then only connections
//! without a request are left. They move with their descriptors, so that no client loses a request that it sends
//! just then.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};

use super::body::lock;
use super::listen::Ends;
use super::table::SavedTable;
use super::{Front, Idle};
use crate::engine::Links;
use crate::upgrade::{Incoming, Outgoing, Place, blob};

/// The listener and all connections, while the host pauses.
#[derive(Debug)]
pub(crate) struct Moved {
    listener: Arc<TcpListener>,
    idle: Vec<Idle>,
}

/// A front, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedFront {
    listener: Place,
    connections: Vec<SavedConnection>,
    table: SavedTable,
    counts: Vec<u64>,
    /// The number of the last link.
    links: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedConnection {
    stream: Place,
    #[serde(with = "blob")]
    unread: Vec<u8>,
}

impl SavedFront {
    /// The listener, its address, and the connections.
    pub(crate) fn open(
        &mut self,
        descriptors: &mut Incoming,
    ) -> io::Result<(Arc<TcpListener>, SocketAddr, Vec<Idle>)> {
        let listener = std::net::TcpListener::from(descriptors.take(self.listener)?);
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let connections = std::mem::take(&mut self.connections).into_iter();
        let idle = connections.map(|saved| {
            let stream = std::net::TcpStream::from(descriptors.take(saved.stream)?);
            Ok(Idle {
                stream: TcpStream::from_std(stream)?,
                unread: Bytes::from(saved.unread),
            })
        });
        let idle = idle.collect::<io::Result<_>>()?;
        Ok((Arc::new(listener), address, idle))
    }
}

impl Front {
    /// Begins or ends to drain.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.send_replace(draining);
        self.table.set_closed(draining);
    }

    /// True while an answer that has an end is not finished.
    pub(crate) fn is_answering(&self) -> bool {
        let connections = lock(&self.connections);
        let mut connections = connections.values();
        connections.any(|connection| connection.has(|ends| ends != Ends::Reopened))
    }

    /// The requests whose answers cannot continue after an upgrade: all but those of sessions, and subscriptions.
    pub(crate) fn open_answers(&self) -> Vec<String> {
        let connections = lock(&self.connections);
        let open = connections.values();
        open.filter(|connection| connection.has(|ends| ends == Ends::ByAnswer))
            .map(|connection| connection.describe())
            .collect()
    }

    /// Closes the connections of such answers, if `all`, and of streams that their clients do not read.
    pub(crate) fn close_open(&self, all: bool) {
        let connections = lock(&self.connections);
        for connection in connections.values() {
            if connection.has(|ends| all || ends != Ends::ByAnswer) {
                connection.leave();
            }
        }
    }

    /// Ends the modern ones with an error.
    pub(crate) fn end_answers(&self) {
        self.table.end_answers();
    }

    /// Closes the streams that clients open again.
    pub(crate) fn release_streams(&self) {
        self.table.release();
    }

    /// Takes all connections, which are idle.
    pub(super) fn park(&self, idle: Vec<Idle>) {
        *lock(&self.parked) = Some(idle);
    }

    /// Gives them back.
    pub(super) fn unpark(&self) -> Vec<Idle> {
        lock(&self.parked).take().unwrap_or_default()
    }

    /// True if all connections are parked.
    pub(crate) fn is_moved(&self) -> bool {
        lock(&self.parked).is_some()
    }

    pub(crate) fn take_moved(&self) -> Option<Moved> {
        let listener = self.listener.upgrade()?;
        let idle = lock(&self.parked).take()?;
        Some(Moved { listener, idle })
    }

    /// The host continues without an upgrade.
    pub(crate) fn put_back(&self, moved: Moved) {
        self.park(moved.idle);
    }

    pub(crate) fn save<'a>(&self, moved: &'a Moved, descriptors: &mut Outgoing<'a>) -> SavedFront {
        let connections = moved.idle.iter().map(|idle| SavedConnection {
            stream: descriptors.add(idle.stream.as_fd()),
            unread: idle.unread.to_vec(),
        });
        SavedFront {
            connections: connections.collect(),
            listener: descriptors.add(moved.listener.as_fd()),
            table: self.table.save(),
            counts: self.counts.save(),
            links: self.back.links(),
        }
    }

    /// Continues the sessions of another program.
    pub(crate) fn restore(&self, saved: SavedFront, links: &mut Links) {
        self.back.set_links(saved.links);
        self.counts.restore(&saved.counts);
        self.table.restore(saved.table, links, &self.limits);
    }
}
