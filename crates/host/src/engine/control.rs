//! The engine's dealings with operators.

use mainstay_contract::control::{ControlReply, ControlRequest, HostStatus, RolledOut};
use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;
use mainstay_kernel::call::SlotId;
use tokio::sync::oneshot;

use super::Engine;
use crate::control::Control;

/// An operator who waits for rollouts to end.
#[derive(Debug)]
pub(super) struct Waiter {
    waiting: Vec<SlotId>,
    done: Vec<RolledOut>,
    reply: oneshot::Sender<ControlReply>,
}

impl Engine {
    pub(super) fn control(&mut self, Control { request, reply }: Control) {
        match request {
            ControlRequest::Status {} => {
                let status = ControlReply::Status(Box::new(self.status()));
                let _ = reply.send(status);
            }
            ControlRequest::Metrics {} => {
                let metrics = self.kernel.metrics(self.clock.now());
                let _ = reply.send(ControlReply::Metrics(Box::new(metrics)));
            }
            ControlRequest::Stop {} => {
                let _ = reply.send(ControlReply::Stopping {});
                self.stop();
            }
            ControlRequest::Rollout { pack } => self.rollout(pack.as_deref(), reply),
        }
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            pid: std::process::id(),
            name: self.identity.host_name.clone(),
            version: self.identity.version.clone(),
            mode: self.identity.mode.to_owned(),
            started: self.identity.started.clone(),
            health: self.health(),
            totals: self.kernel.telemetry().totals,
        }
    }

    fn rollout(&mut self, pack: Option<&str>, reply: oneshot::Sender<ControlReply>) {
        let slots: Vec<SlotId> = (0..self.packs.len())
            .map(SlotId)
            .filter(|slot| pack.is_none_or(|pack| self.directory.pack_name(*slot) == pack))
            .collect();
        if slots.is_empty() {
            let known: Vec<&str> = self.packs.iter().map(|pack| pack.name.as_str()).collect();
            let reason = match pack {
                Some(pack) => format!("there is no pack {pack:.64}; served: {}", known.join(", ")),
                None => "no pack is served".to_owned(),
            };
            let _ = reply.send(ControlReply::Refused { reason });
            return;
        }
        self.waiters.push(Waiter {
            waiting: slots.clone(),
            done: Vec::new(),
            reply,
        });
        let now = self.clock.now();
        for slot in slots {
            self.kernel.handle_rollout(now, slot);
        }
    }

    pub(super) fn rollout_over(&mut self, slot: SlotId, result: &Result<Generation, Fault>) {
        let pack = self.directory.pack_name(slot).to_owned();
        match result {
            Ok(generation) => {
                self.log
                    .line(&format!("mcp:rollout pack={pack} generation={generation}"));
            }
            Err(fault) => {
                self.log.line(&format!(
                    "mcp:warning reason=rollout_failed pack={pack} {fault}"
                ));
                self.release(slot);
            }
        }
        for waiter in &mut self.waiters {
            if waiter.waiting.contains(&slot) {
                waiter.waiting.retain(|waiting| *waiting != slot);
                let result = result.clone();
                waiter.done.push(RolledOut {
                    pack: pack.clone(),
                    result,
                });
            }
        }
        let (over, waiting) = std::mem::take(&mut self.waiters)
            .into_iter()
            .partition(|waiter| waiter.waiting.is_empty());
        self.waiters = waiting;
        for waiter in over {
            let _ = waiter.reply.send(ControlReply::RolledOut(waiter.done));
        }
    }
}
