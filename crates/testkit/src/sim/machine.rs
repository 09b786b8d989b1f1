//! The simulated machine: which program a spawn starts, and with which pipes.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainstay_host::config::Command;
use mainstay_host::sim::{Noise, Programs, Spawned, Trace, Weather, pipe};

use super::body::{Body, Ends};
use super::book::Book;
use super::plan::{Backend, Incarnation};
use super::server::{Era, Mcp};
use super::worker::Rpc;

/// Number of the first process in the trace; clients come before it.
const FIRST: u64 = 100;
/// Process ids that no real process has.
const PIDS: u32 = 1 << 24;

/// The machine of one run.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) seed: u64,
    pub(super) noise: Noise,
    pub(super) incarnations: Vec<Incarnation>,
    pub(super) book: Book,
    pub(super) weather: Weather,
    pub(super) trace: Trace,
    pub(super) backend: Backend,
    pub(super) started: AtomicUsize,
}

impl Programs for Machine {
    fn spawn(&self, command: &Command) -> io::Result<Spawned> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let plan = self.incarnations.get(number).cloned();
        let plan = plan.filter(|_| !self.weather.is_calm()).unwrap_or_default();
        let peer = FIRST + number as u64;
        let make =
            |way: u64, noise| pipe(4 * peer + way, self.seed, noise, &self.weather, &self.trace);
        let (stdin, their_stdin) = make(0, self.noise);
        let (their_stdout, stdout) = make(1, self.noise);
        let (their_stderr, stderr) = make(2, Noise::none(4096));
        let (spawned, child) = Spawned::new(stdin, stdout, stderr);
        let ends = Ends {
            stdin: Some(their_stdin),
            stdout: Some(their_stdout),
            _stderr: Some(their_stderr),
        };
        let pid = PIDS + u32::try_from(number).unwrap_or(0);
        let around = (self.book.clone(), self.weather.clone());
        let process = (child, pid);
        match self.backend {
            Backend::Pack => {
                tokio::spawn(Body::new(Rpc, plan, around, process, ends).run());
            }
            Backend::Server | Backend::Several { .. } => {
                let key = command.arguments.first();
                let key = key.map(|key| key.to_string_lossy().into_owned());
                let era = match self.backend {
                    Backend::Several {
                        stateless: false, ..
                    } => Era::Legacy,
                    _ => Era::Both,
                };
                let tongue = Mcp::new(self.book.clone(), era, key);
                tokio::spawn(Body::new(tongue, plan, around, process, ends).run());
            }
        }
        Ok(spawned)
    }
}
