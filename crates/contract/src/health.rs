//! The health payload: the common core of `libmcp.md`, and what a host of ours adds.

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::id::Generation;
use crate::json::Json;

/// Lifecycle of a worker, or of the whole host (the worst of its workers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifecycle {
    Ready,
    /// Not started yet: a call will start it.
    Cold,
    Starting,
    /// Lost; a successor is on its way.
    Recovering,
    /// The restart budget is spent.
    Failed,
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
    /// Two parts of one host as a whole.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.state = self.state.max(other.state);
        self.generation = self.generation.max(other.generation);
        self.uptime_ms = self.uptime_ms.max(other.uptime_ms);
        self.consecutive_failures += other.consecutive_failures;
        self.restart_count += other.restart_count;
        self.rollout = self.rollout.max(other.rollout);
        self.last_fault = self.last_fault.or(other.last_fault);
        self.queue_depth += other.queue_depth;
        self.in_flight += other.in_flight;
        self.sessions += other.sessions;
        self.workers.extend(other.workers);
        self
    }

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
    /// What the pack itself wants to be seen.
    pub facts: Option<Json>,
}
