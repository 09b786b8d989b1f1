//! Rollouts that operators ask for.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::control::RolledOut;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;
use mainstay_schema::lock::ReasonGiven;
use serde::{Deserialize, Serialize};

use super::Core;
use super::action::CoreAction;
use crate::call::SlotId;

/// Operators that wait for rollouts, by a number of the shell's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rollouts {
    waiters: BTreeMap<u64, Waiter>,
    /// The reasons that operators gave for changes, until the rollout ends.
    #[serde(default)]
    reasons: BTreeMap<SlotId, Vec<String>>,
    /// The differences that the successor brings, until the rollout ends.
    #[serde(default)]
    changes: BTreeMap<SlotId, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Waiter {
    waiting: Vec<SlotId>,
    /// Slots with a rollout under way, which may miss what changed since it began: another one follows.
    #[serde(default)]
    again: Vec<SlotId>,
    done: Vec<RolledOut>,
}

impl Rollouts {
    /// The reasons for changes of a pack's tools.
    pub(super) fn reasons(&self, slot: SlotId) -> &[String] {
        self.reasons.get(&slot).map_or(&[], Vec::as_slice)
    }

    /// Keeps the differences that a successor brings for the operators.
    pub(super) fn report_changes(&mut self, slot: SlotId, changes: Vec<String>) {
        self.changes.insert(slot, changes);
    }
}

impl Core {
    pub(super) fn rollout(&mut self, waiter: u64, pack: Option<&str>, reasons: &[String]) {
        let unreadable = reasons
            .iter()
            .find_map(|reason| ReasonGiven::parse(reason).err());
        if let Some(error) = unreadable {
            let reason = error.to_string();
            return self
                .out
                .push_back(CoreAction::RolloutRefused { waiter, reason });
        }
        let slots: Vec<SlotId> = self
            .kernel
            .slot_ids()
            .filter(|slot| {
                let name = self.pack_of(*slot);
                pack.is_none_or(|pack| pack == name || pack == self.name_of(*slot))
            })
            .collect();
        let servers = self.links.configs().map(|server| server.name.as_str());
        let servers: BTreeSet<&str> = servers.collect();
        let knows = |pack: &str| servers.contains(pack);
        if slots.is_empty() && !pack.map_or(!servers.is_empty(), knows) {
            let slots = self.kernel.slot_ids();
            let packs = slots.filter(|slot| self.server_of(*slot).is_none());
            let known = packs.map(|slot| self.name_of(slot)).chain(servers);
            let known: Vec<&str> = known.collect();
            let reason = match pack {
                Some(pack) => format!("there is no pack {pack:.64}; served: {}", known.join(", ")),
                None => "no pack is served".to_owned(),
            };
            return self
                .out
                .push_back(CoreAction::RolloutRefused { waiter, reason });
        }
        let under_way = slots.iter().copied();
        let under_way = under_way.filter(|slot| self.kernel.is_rolling_out(*slot));
        let added = Waiter {
            waiting: slots.clone(),
            again: under_way.collect(),
            done: Vec::new(),
        };
        self.rollouts.waiters.insert(waiter, added);
        let now = self.clock.now;
        for slot in slots {
            if !reasons.is_empty() {
                self.rollouts.reasons.insert(slot, reasons.to_vec());
            }
            self.kernel.handle_rollout(now, slot);
        }
        self.finish_rollouts();
    }

    pub(super) fn rollout_over(&mut self, slot: SlotId, result: &Result<Generation, Fault>) {
        let now = self.clock.now;
        let pack = self.name_of(slot).to_owned();
        self.log(match result {
            Ok(generation) => format!("mcp:rollout pack={pack} generation={generation}"),
            Err(fault) => format!("mcp:warning reason=rollout_failed pack={pack} {fault}"),
        });
        self.roots.settle_change(slot, result.is_ok());
        if result.is_err() {
            self.release(slot);
        }
        self.with_link(slot, |link, _| link.rollout_over(now, result));
        self.rollouts.reasons.remove(&slot);
        let changes = self.rollouts.changes.remove(&slot).unwrap_or_default();
        let mut again = false;
        for waiter in self.rollouts.waiters.values_mut() {
            if let Some(at) = waiter
                .again
                .iter()
                .position(|slot_again| *slot_again == slot)
            {
                waiter.again.swap_remove(at);
                again = true;
            } else if let Some(at) = waiter.waiting.iter().position(|waiting| *waiting == slot) {
                waiter.waiting.swap_remove(at);
                waiter.done.push(RolledOut {
                    pack: pack.clone(),
                    result: result.clone(),
                    changes: changes.clone(),
                });
            }
        }
        if again {
            self.kernel.handle_rollout(now, slot);
        }
        self.finish_rollouts();
    }

    /// Answers operators for whom nothing is left to wait for.
    fn finish_rollouts(&mut self) {
        let (over, open) = std::mem::take(&mut self.rollouts.waiters)
            .into_iter()
            .partition(|(_, waiter)| waiter.waiting.is_empty());
        self.rollouts.waiters = open;
        let over: BTreeMap<u64, Waiter> = over;
        for (waiter, Waiter { done, .. }) in over {
            self.out.push_back(CoreAction::RolledOut { waiter, done });
        }
    }
}
