//! The seams of the simulation (`docs/simulation.md`): what replaces descriptors, processes,
//! clocks and randomness while the rest of the host runs unchanged.
//!
//! A thread enters a [`World`]. From then on every worker that the host spawns in this thread is a
//! task of the world's [`Programs`], every pipe is a [`pipe()`] in memory, and time is that of a
//! paused tokio runtime. [`Host`] starts an engine and gives it clients and operators.
//!
//! Everything here is deterministic: one thread, seeded generators, no hash map.

mod check;
mod host;
mod ledger;
mod pipe;
mod process;
mod trace;
mod upgrade;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

pub use self::check::CheckNoise;
pub(crate) use self::check::{Check, check};
pub use self::host::{Host, Over, ServerPlan, TaskSettings};
pub(crate) use self::ledger::{Clerk, backend};
pub use self::ledger::{LedgerNoise, keep_ledger, recorded};
pub use self::pipe::{Noise, PipeReader, PipeWriter, Weather, pipe};
pub use self::process::{Child, Exit, Order, Process, Spawned};
pub use self::trace::Trace;
pub use self::upgrade::{Upgraded, upgrade_one_in, upgraded};
pub(crate) use self::upgrade::{
    arrived, carry, door, ends_answers, is_upgrade_due, note_ended_answers, note_upgrade, open,
    set_closed, set_door, time_to_read,
};
use crate::config::Command;
use crate::flag::Flag;
pub use crate::http::door::{HttpDoor, HttpEvent, HttpSession, HttpStream};
use crate::process::Pipes;

/// Seconds between 1970 and the beginning of every simulated run.
const BEGINNING: u64 = 1_800_000_000;

/// Events that the loop of one run may handle: some hundred times the usual number, and more for every second that
/// passes, since an operator looks ten times in each.
const MOST_TURNS: u64 = 3_000;
const TURNS_PER_SECOND: u64 = 30;

/// The programs of a simulated machine.
pub trait Programs {
    /// Starts the program that a command names.
    fn spawn(&self, command: &Command) -> io::Result<Spawned>;
}

/// A simulated machine.
#[derive(Debug)]
struct World {
    began: Instant,
    entropy: u64,
    /// The core is saved and restored after one in so many events; 0 is never.
    swap_one_in: u32,
    checks: CheckNoise,
    /// Events that loops have handled.
    turns: u64,
    /// Events after which the host that runs crashes.
    crash_after: Option<u64>,
    /// True once the host that runs has crashed.
    crashed: Option<Arc<Flag>>,
    /// The ledger of tasks, if the world has one.
    records: Option<ledger::Records>,
    upgrades: upgrade::Upgrades,
    /// The most bytes that waited in outboxes, by their marks.
    backlog: BTreeMap<u64, u64>,
    /// The first thing that a seam found wrong.
    complaint: Option<String>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    static PROGRAMS: RefCell<Option<Arc<dyn Programs>>> = const { RefCell::new(None) };
}

/// True if this thread is a simulated machine.
pub(crate) fn is_entered() -> bool {
    WORLD.with_borrow(Option::is_some)
}

/// Leaves the world when dropped.
#[derive(Debug)]
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        WORLD.take();
        PROGRAMS.take();
    }
}

/// Makes this thread a simulated machine, inside a paused runtime.
pub fn enter(programs: Arc<dyn Programs>, seed: u64) -> Entered {
    WORLD.replace(Some(World {
        began: Instant::now(),
        entropy: seed,
        swap_one_in: 0,
        checks: CheckNoise::default(),
        turns: 0,
        crash_after: None,
        crashed: None,
        records: None,
        upgrades: upgrade::Upgrades::of(seed),
        backlog: BTreeMap::new(),
        complaint: None,
    }));
    PROGRAMS.replace(Some(programs));
    Entered(())
}

/// Makes checkers misbehave.
pub fn disturb_checks(noise: CheckNoise) {
    WORLD.with_borrow_mut(|world| {
        if let Some(world) = world {
            world.checks = noise;
        }
    });
}

fn check_noise() -> Option<CheckNoise> {
    WORLD.with_borrow(|world| world.as_ref().map(|world| world.checks))
}

/// Saves and restores the core after one in so many events; 0 is never.
pub fn swap_one_in(events: u32) {
    WORLD.with_borrow_mut(|world| {
        if let Some(world) = world {
            world.swap_one_in = events;
        }
    });
}

/// Lets the next host, or the one that runs, crash before it handles another event than so many; `None` is never.
pub fn crash_after(events: Option<u64>) {
    WORLD.with_borrow_mut(|world| {
        if let Some(world) = world {
            world.crash_after = events;
        }
    });
}

/// A host starts, whose processes are killed when it crashes.
fn set_host(crashed: Arc<Flag>) {
    WORLD.with_borrow_mut(|world| {
        if let Some(world) = world {
            world.crashed = Some(crashed);
            world.upgrades.reopen();
        }
    });
}

/// True once the host that runs has crashed, for a process that it starts.
fn crashed() -> Option<Arc<Flag>> {
    WORLD.with_borrow(|world| world.as_ref()?.crashed.clone())
}

/// The loop handles an event. A loop that never rests is ended, since no time passes for it.
pub(crate) fn turn(label: &str) {
    let (is_busy, crashes) = WORLD.with_borrow_mut(|world| {
        let Some(world) = world else {
            return (false, false);
        };
        world.turns += 1;
        let most = MOST_TURNS + TURNS_PER_SECOND * world.began.elapsed().as_secs();
        world.upgrades.draw();
        let crashes = world.crash_after == Some(0);
        world.crash_after = world.crash_after.and_then(|left| left.checked_sub(1));
        (world.turns > most, crashes)
    });
    if crashes {
        // The end of the host's task, without the report of a panic.
        std::panic::resume_unwind(Box::new("the host crashes"));
    }
    if is_busy {
        give_up(&format!("the loop never rests; it handles {label}"));
    }
}

/// A seam found something after which the host cannot continue.
#[expect(clippy::panic, reason = "the run is over, and its report says why")]
pub(crate) fn give_up(words: &str) -> ! {
    complain(words);
    panic!("{words}");
}

/// True if the core is to be saved and restored now.
pub(crate) fn swaps_now() -> bool {
    let one_in = WORLD.with_borrow(|world| world.as_ref().map_or(0, |world| world.swap_one_in));
    one_in > 0 && entropy().is_some_and(|number| number % u64::from(one_in) == 0)
}

/// The most bytes that ever waited in an outbox, by the outbox's mark.
pub fn backlog() -> BTreeMap<u64, u64> {
    WORLD.with_borrow(|world| {
        world
            .as_ref()
            .map(|w| w.backlog.clone())
            .unwrap_or_default()
    })
}

/// The first thing that a seam found wrong.
pub fn complaint() -> Option<String> {
    WORLD.with_borrow(|world| world.as_ref()?.complaint.clone())
}

/// A seam found something wrong.
pub(crate) fn complain(words: &str) {
    WORLD.with_borrow_mut(|world| {
        if let Some(world) = world {
            world.complaint.get_or_insert_with(|| words.to_owned());
        }
    });
}

/// So many bytes wait in an outbox.
pub(crate) fn note_backlog(mark: u64, bytes: u64) {
    WORLD.with_borrow_mut(|world| {
        if let Some(world) = world {
            let most = world.backlog.entry(mark).or_default();
            *most = (*most).max(bytes);
        }
    });
}

/// The time of the simulated world.
pub(crate) fn wall() -> Option<SystemTime> {
    WORLD.with_borrow(|world| {
        let began = world.as_ref()?.began;
        Some(UNIX_EPOCH + Duration::from_secs(BEGINNING) + began.elapsed())
    })
}

/// The next number of the world's seed.
pub(crate) fn entropy() -> Option<u64> {
    WORLD.with_borrow_mut(|world| {
        let world = world.as_mut()?;
        world.entropy = world
            .entropy
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        Some(world.entropy >> 16)
    })
}

/// Starts a simulated program; `None` outside a world.
pub(crate) fn spawn(command: &Command) -> Option<io::Result<(Process, Pipes)>> {
    let programs = PROGRAMS.with_borrow(Option::clone)?;
    Some(programs.spawn(command).map(Spawned::into_parts))
}
