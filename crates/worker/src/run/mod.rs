//! A worker process: from the first message of the host to the last answer.
//!
//! # Theory of operation
//!
//! The host speaks first. `Start` says how many calls may run at once (the pool) and carries the
//! pack's settings; the pack is built from them and announced with `Ready`, or refused with
//! `Unable`. Then pool + 1 threads share the input:
//!
//! * Idle threads wait at the `gate`, which lets one of them through when the host has written.
//!   It takes the lock of the input and leads: it reads, and handles cancels, pings and a drain
//!   at once.
//! * When it reads a call and fewer than pool calls run, it gives the input up and runs the call
//!   itself. The call is not handed to another thread, and no other thread is woken unless there
//!   is more to read: whatever the host writes next lets another idle thread through the gate.
//!   With pool + 1 threads there always is one, so a long call blocks neither other calls, nor
//!   pings, nor its own cancel.
//! * A call of a long-running tool gets a thread of its own, up to pool of them, and takes no place
//!   in the pool.
//! * When pool calls run, the leader is the only free thread. It goes on reading and puts further
//!   calls into a queue of at most pool; beyond that they are refused as overloaded.
//! * A thread that has answered a call takes the next one from the queue, or reads what is left
//!   over, or goes back to the gate. Admission and answering go through one lock (`desk`), so a
//!   call is queued only while pool calls run, and each of those looks into the queue when it is
//!   done: no call is forgotten.
//!
//! The thread that called [`serve`] waits for the end and sends progress that is due (see
//! `progress`). It never runs a call, so it can leave while calls still run: when the input ends
//! the host has gone, every subprocess tree is killed and the process exits with whatever was
//! running. A drain refuses new calls and ends after the last answer.
//!
//! Every answer is one line in one write under one lock. An answer over the host's limit is
//! replaced by a problem that says so.

mod crew;
mod desk;
mod encode;
mod ended;
mod gate;
mod input;
mod outlet;
mod panics;
mod pipes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use mainstay_contract::rpc::{FromWorker, PROTOCOL, Ready, Start, ToWorker};

use crate::build_id::build_id;
use crate::pack::Pack;
use crate::settings::{Settings, Unable};
use crate::warning::warn;

use self::crew::Crew;
use self::input::{Incoming, Input};

pub use self::ended::Ended;
pub(crate) use self::outlet::Outlet;
pub use self::pipes::Pipes;

/// Runs a worker over standard input and output until the host ends it. `version` is that of the
/// executable's package; `pack` builds the pack from the settings that the host sends.
///
/// From here on standard output is standard error and standard input is empty, so that neither a
/// stray `println!` nor a subprocess can touch the protocol.
pub fn run(version: &str, pack: impl FnOnce(&Settings) -> Result<Pack, Unable>) -> ExitCode {
    panics::report_in_one_line();
    match Pipes::take_stdio() {
        Ok(pipes) => serve(version, pipes, pack).into(),
        Err(error) => {
            warn(
                "worker_stdio",
                &format!("cannot take over standard input and output: {error}"),
            );
            Ended::Unable.into()
        }
    }
}

/// As [`run`], over any two pipes, and returning when the worker has ended. Calls that still run
/// when the host has gone are left to their threads.
pub fn serve(
    version: &str,
    pipes: Pipes,
    pack: impl FnOnce(&Settings) -> Result<Pack, Unable>,
) -> Ended {
    let mut input = Input::new(pipes.input);
    let start = match input.first() {
        Incoming::Message(ToWorker::Start(start)) => start,
        Incoming::End => return Ended::HostGone,
        Incoming::Message(_) => return broken("the first message is not a start"),
        Incoming::Broken(detail) => return broken(&detail),
    };
    let outlet = Arc::new(Outlet::new(pipes.output, start.frame_bytes));
    let ended = build(&start, pack).and_then(|pack| {
        let ready = FromWorker::Ready(Ready {
            protocol: PROTOCOL,
            build: build_id(version),
            catalog: pack.catalog(),
            facts: pack.known_facts().clone(),
        });
        Crew::new(pack, &start, input, &outlet).work(&ready)
    });
    ended.unwrap_or_else(|unable| {
        // The host may have gone; the exit code says the same.
        let _ = outlet.send(&FromWorker::Unable {
            detail: unable.detail,
        });
        Ended::Unable
    })
}

fn build(
    start: &Start,
    pack: impl FnOnce(&Settings) -> Result<Pack, Unable>,
) -> Result<Pack, Unable> {
    if start.protocol != PROTOCOL {
        let theirs = start.protocol;
        return Err(Unable::new(format_args!(
            "the host speaks worker protocol {theirs}, this worker {PROTOCOL}; build both from one version"
        )));
    }
    let settings = Settings::new(start.settings.clone()).with_violations(start.violations);
    let pack = catch_unwind(AssertUnwindSafe(|| pack(&settings)))
        .unwrap_or_else(|_| Err(Unable::new("the pack panicked while it was loaded")))?;
    pack.check()?;
    Ok(pack)
}

fn broken(detail: &str) -> Ended {
    warn("worker_protocol", detail);
    Ended::Broken
}
