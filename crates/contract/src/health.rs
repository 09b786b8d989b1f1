//! The health payload: the common core of `libmcp.md`, and what a host of ours adds.

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::id::Generation;
use crate::json::Json;

words! {
    /// Lifecycle of a worker, or of the whole host (the worst of its workers).
    pub enum Lifecycle {
        Ready = "ready",
        /// Not started yet: a call will start it.
        Cold = "cold",
        Starting = "starting",
        /// Lost; a successor is on its way.
        Recovering = "recovering",
        /// The restart budget is spent.
        Failed = "failed",
    }
}

/// Where a replacement of a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollout {
    Stable,
    /// A successor is starting beside the incumbent.
    Pending,
    /// The incumbent finishes its calls.
    Draining,
}

/// The answer of `system_health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// True if the host would serve a call now.
    pub ready: bool,
    pub state: Lifecycle,
    /// The newest generation of any worker.
    pub generation: Generation,
    pub uptime_ms: u64,
    pub consecutive_failures: u32,
    pub restart_count: u64,
    pub rollout: Rollout,
    pub last_fault: Option<Fault>,
    pub queue_depth: usize,
    pub in_flight: usize,
    pub sessions: usize,
    pub workers: Vec<WorkerHealth>,
}

impl Health {
    /// Every fault that is shown.
    pub fn faults_mut(&mut self) -> impl Iterator<Item = &mut Fault> {
        let workers = self.workers.iter_mut();
        let workers = workers.filter_map(|worker| worker.last_fault.as_mut());
        workers.chain(self.last_fault.as_mut())
    }
}

/// One worker in the health payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerHealth {
    pub name: String,
    pub state: Lifecycle,
    pub generation: Generation,
    pub pid: Option<u32>,
    pub build: Option<String>,
    /// Time since this generation became ready.
    pub uptime_ms: Option<u64>,
    pub consecutive_failures: u32,
    pub restart_count: u64,
    pub rollout: Rollout,
    pub last_fault: Option<Fault>,
    pub queue_depth: usize,
    pub in_flight: usize,
    /// How the process tree is killed.
    pub tree_kill: Option<String>,
    /// Facts that the pack itself reports.
    pub facts: Option<Json>,
    /// The worker that takes over when this one is lost, or the successor of a rollout.
    pub standby: Option<StandbyHealth>,
}

impl WorkerHealth {
    /// A server that no client needs yet.
    pub fn cold(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: Lifecycle::Cold,
            generation: Generation::new(0),
            pid: None,
            build: None,
            uptime_ms: None,
            consecutive_failures: 0,
            restart_count: 0,
            rollout: Rollout::Stable,
            last_fault: None,
            queue_depth: 0,
            in_flight: 0,
            tree_kill: None,
            facts: None,
            standby: None,
        }
    }
}

/// A worker beside the one that serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyHealth {
    pub state: Lifecycle,
    pub generation: Generation,
    pub pid: Option<u32>,
}
