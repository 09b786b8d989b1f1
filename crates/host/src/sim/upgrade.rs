//! Upgrades of a simulated host: when they are due, and what travels to the successor beside the saved text.
//!
//! In the place of descriptors the ends of simulated pipes and processes travel: [`carry`] gives one a place, from which
//! the successor takes it with [`arrived`].

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{HttpDoor, PipeReader, PipeWriter, Process, WORLD};
use crate::flag::Flag;

/// The longest time that a new executable takes to read a state, in milliseconds.
const LONGEST_READ_MS: u64 = 400;

/// How often the host of a world was replaced by one that continued its saved state, and how often that was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upgraded {
    pub done: u64,
    pub refused: u64,
    /// How often open answers were ended with an error for it.
    pub ended: u64,
}

/// The upgrades of a world.
#[derive(Debug)]
pub(super) struct Upgrades {
    /// An upgrade is due after one in so many events; 0 is never.
    one_in: u32,
    /// Apart from the other numbers of the seed, which stay the same with and without upgrades.
    random: u64,
    is_due: bool,
    /// Callers over HTTP wait outside, as their connections wait in the backlog.
    closed: Arc<Flag>,
    seen: Upgraded,
    door: Option<HttpDoor>,
    on_the_way: BTreeMap<u64, Carried>,
    next: u64,
}

impl Upgrades {
    pub(super) fn of(seed: u64) -> Self {
        Self {
            one_in: 0,
            random: seed,
            is_due: false,
            closed: Arc::default(),
            seen: Upgraded::default(),
            door: None,
            on_the_way: BTreeMap::new(),
            next: 0,
        }
    }

    /// A host starts. The one before may have crashed in the middle of an upgrade.
    pub(super) fn reopen(&mut self) {
        self.closed.set(false);
    }

    /// Decides after an event if an upgrade is due.
    pub(super) fn draw(&mut self) {
        if self.one_in == 0 {
            return;
        }
        self.is_due |= self.next_random().is_multiple_of(u64::from(self.one_in));
    }

    const fn next_random(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }
}

/// Something that travels.
#[derive(Debug)]
pub(crate) enum Carried {
    Reader(PipeReader),
    Writer(PipeWriter),
    Process(Process),
}

impl From<PipeReader> for Carried {
    fn from(reader: PipeReader) -> Self {
        Self::Reader(reader)
    }
}

impl From<PipeWriter> for Carried {
    fn from(writer: PipeWriter) -> Self {
        Self::Writer(writer)
    }
}

impl From<Process> for Carried {
    fn from(process: Process) -> Self {
        Self::Process(process)
    }
}

impl TryFrom<Carried> for PipeReader {
    type Error = ();

    fn try_from(carried: Carried) -> Result<Self, ()> {
        match carried {
            Carried::Reader(reader) => Ok(reader),
            Carried::Writer(_) | Carried::Process(_) => Err(()),
        }
    }
}

impl TryFrom<Carried> for PipeWriter {
    type Error = ();

    fn try_from(carried: Carried) -> Result<Self, ()> {
        match carried {
            Carried::Writer(writer) => Ok(writer),
            Carried::Reader(_) | Carried::Process(_) => Err(()),
        }
    }
}

impl TryFrom<Carried> for Process {
    type Error = ();

    fn try_from(carried: Carried) -> Result<Self, ()> {
        match carried {
            Carried::Process(process) => Ok(process),
            Carried::Reader(_) | Carried::Writer(_) => Err(()),
        }
    }
}

fn with<R>(work: impl FnOnce(&mut Upgrades) -> R) -> Option<R> {
    WORLD.with_borrow_mut(|world| world.as_mut().map(|world| work(&mut world.upgrades)))
}

/// Upgrades the host after one in so many events; 0 is never.
pub fn upgrade_one_in(events: u32) {
    with(|upgrades| upgrades.one_in = events);
}

/// The upgrades of the world so far.
pub fn upgraded() -> Upgraded {
    with(|upgrades| upgrades.seen).unwrap_or_default()
}

/// True once an upgrade is due, until one is noted.
pub(crate) fn is_upgrade_due() -> bool {
    with(|upgrades| upgrades.is_due).unwrap_or(false)
}

/// Decides if an upgrade ends answers that are still open at its limit.
pub(crate) fn ends_answers() -> bool {
    with(|upgrades| upgrades.next_random().is_multiple_of(2)).unwrap_or(false)
}

/// Open answers were ended for an upgrade.
pub(crate) fn note_ended_answers() {
    with(|upgrades| upgrades.seen.ended += 1);
}

/// How long a new executable takes to read a state.
pub(crate) fn time_to_read() -> Duration {
    let drawn = with(|upgrades| {
        // Shorter in a run of many upgrades: the sum counts against the deadlines of calls.
        let longest_ms = LONGEST_READ_MS.min(20 * u64::from(upgrades.one_in.max(1)));
        let ms = upgrades.next_random() % longest_ms;
        // Mostly at once.
        match upgrades.next_random() % 4 {
            0 => ms,
            _ => 0,
        }
    });
    Duration::from_millis(drawn.unwrap_or_default())
}

/// Keeps callers over HTTP outside, or lets them in.
pub(crate) fn set_closed(is_closed: bool) {
    let closed = with(|upgrades| Arc::clone(&upgrades.closed));
    if let Some(closed) = closed {
        closed.set(is_closed);
    }
}

/// Waits while callers over HTTP are kept outside.
pub(crate) async fn open() {
    let closed = with(|upgrades| Arc::clone(&upgrades.closed));
    if let Some(closed) = closed {
        closed.is(false).await;
    }
}

/// An upgrade was done, or refused. What travelled and was not taken goes.
pub(crate) fn note_upgrade(is_done: bool) {
    let left = with(|upgrades| {
        upgrades.is_due = false;
        upgrades.seen.done += u64::from(is_done);
        upgrades.seen.refused += u64::from(!is_done);
        std::mem::take(&mut upgrades.on_the_way)
    });
    drop(left);
}

/// Gives something that travels a place.
pub(crate) fn carry(what: impl Into<Carried>) -> u64 {
    let what = what.into();
    let place = with(|upgrades| {
        upgrades.next += 1;
        upgrades.on_the_way.insert(upgrades.next, what);
        upgrades.next
    });
    place.unwrap_or_default()
}

/// Takes something that has travelled from its place.
pub(crate) fn arrived<T: TryFrom<Carried>>(place: u64) -> io::Result<T> {
    let carried = with(|upgrades| upgrades.on_the_way.remove(&place)).flatten();
    let carried = carried.and_then(|carried| T::try_from(carried).ok());
    carried.ok_or_else(|| io::Error::other("an end of a simulated pipe is missing"))
}

/// The HTTP front of the host, if it has one.
pub(crate) fn door() -> Option<HttpDoor> {
    with(|upgrades| upgrades.door.clone()).flatten()
}

pub(crate) fn set_door(door: HttpDoor) {
    with(|upgrades| upgrades.door = Some(door));
}
