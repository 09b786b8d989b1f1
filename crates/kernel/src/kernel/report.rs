//! The health payload, as far as the kernel knows it.

use mainstay_contract::health::{Health, Lifecycle, Rollout, StandbyHealth, WorkerHealth};
use mainstay_contract::id::Generation;

use super::{Conduct, Kernel};
use crate::slot::{self, Phase, Slot, Spare};
use crate::supervisor::State;
use crate::time::Time;

impl Kernel {
    /// Health of the host and of each slot. Restarts and failures of removed slots stay counted.
    /// The driver fills in process ids, builds and facts of packs.
    pub fn health(&self, now: Time) -> Health {
        let workers: Vec<_> = self
            .slots
            .values()
            .map(|slot| worker_health(slot, now))
            .collect();
        Health {
            ready: self.is_serving(),
            state: workers
                .iter()
                .map(|worker| worker.state)
                .max()
                .unwrap_or(Lifecycle::Ready),
            generation: self.last_generation,
            uptime_ms: now.as_micros() / 1000,
            consecutive_failures: self
                .slots
                .values()
                .fold(self.past_failures(now), |sum, slot| {
                    sum.saturating_add(slot.supervisor.consecutive_failures(now))
                }),
            restart_count: self.slots.values().fold(self.past_restarts, |sum, slot| {
                sum + slot.supervisor.restart_count()
            }),
            rollout: workers
                .iter()
                .map(|worker| worker.rollout)
                .max()
                .unwrap_or(Rollout::Stable),
            last_fault: self.stats.last_fault().cloned(),
            queue_depth: self.slots.values().map(|slot| slot.queue.len()).sum(),
            in_flight: self.calls.len(),
            sessions: self.sessions.len(),
            workers,
        }
    }
}

fn worker_health(slot: &Slot, now: Time) -> WorkerHealth {
    let answered = |generation| {
        let worker = slot.workers.get(generation);
        worker.and_then(|worker| worker.answered)
    };
    let mut state = slot.supervisor.lifecycle();
    let (generation, uptime_ms) = match slot.supervisor.state() {
        State::Starting { generation, .. } => (generation, None),
        // A server gets its client's handshake as soon as it runs, and is ready when it has answered.
        State::Ready { generation, .. } if slot.conduct == Conduct::Lenient => {
            let since = answered(&generation);
            if since.is_none() {
                state = match slot.supervisor.consecutive_failures(now) {
                    0 => Lifecycle::Starting,
                    _ => Lifecycle::Recovering,
                };
            }
            (generation, since.map(|since| now.ms_since(since)))
        }
        State::Ready { generation, since } => (generation, Some(now.ms_since(since))),
        State::Cold | State::Waiting { .. } | State::Exhausted { .. } | State::Stopped => (
            slot.workers
                .keys()
                .last()
                .copied()
                .unwrap_or(Generation::new(0)),
            None,
        ),
    };
    let retiring = slot
        .workers
        .values()
        .any(|worker| worker.phase == Phase::Retiring);
    let rollout = match slot.rollout {
        slot::Rollout::Pending => Rollout::Pending,
        slot::Rollout::Stable if retiring => Rollout::Draining,
        slot::Rollout::Stable => Rollout::Stable,
    };
    WorkerHealth {
        name: slot.name.clone(),
        state,
        generation,
        pid: None,
        build: None,
        uptime_ms,
        consecutive_failures: slot.supervisor.consecutive_failures(now),
        restart_count: slot.supervisor.restart_count(),
        rollout,
        last_fault: slot.supervisor.last_fault().cloned(),
        queue_depth: slot.queue.len(),
        in_flight: slot.running(),
        tree_kill: None,
        facts: None,
        standby: standby_health(slot),
    }
}

fn standby_health(slot: &Slot) -> Option<StandbyHealth> {
    let (generation, state) = match slot.spare {
        Spare::None | Spare::Waiting { .. } => return None,
        Spare::Starting { generation, .. } => (generation, Lifecycle::Starting),
        Spare::Ready { generation } => (generation, Lifecycle::Ready),
    };
    Some(StandbyHealth {
        state,
        generation,
        pid: None,
    })
}
