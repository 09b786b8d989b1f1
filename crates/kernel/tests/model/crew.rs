//! The simulated workers: what they were sent, and who is picked to do something.

use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::rpc;
use mainstay_kernel::action::Action;
use mainstay_kernel::call::SlotId;

use super::world::{Client, SlotState, World};

/// A simulated worker.
#[derive(Debug)]
pub struct Worker {
    pub slot: SlotId,
    pub state: State,
    pub told_to_end: bool,
    pub sent: Vec<Sent>,
}

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Spawned,
    Ready,
    Dead,
    Reaped,
}

/// A call or probe that it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub call: CallId,
    pub is_probe: bool,
    /// The worker spoke about it, so it arrived.
    pub heard: bool,
    pub answered: bool,
}

impl Worker {
    /// True if its end was not noticed yet.
    pub fn lives(&self) -> bool {
        matches!(self.state, State::Spawned | State::Ready)
    }
}

impl World {
    /// Does what the kernel wants, and checks that it may be wanted.
    pub(super) fn obey(&mut self, action: &Action) {
        match action {
            Action::Route { call } => self.note_route(*call),
            Action::Serve { call } => self.serving.push(*call),
            Action::Spawn { slot, generation } => {
                assert_eq!(
                    self.slots[slot.0],
                    SlotState::Open,
                    "a closed slot is left alone"
                );
                let worker = Worker {
                    slot: *slot,
                    state: State::Spawned,
                    told_to_end: false,
                    sent: Vec::new(),
                };
                let old = self.workers.insert(*generation, worker);
                assert!(old.is_none(), "a generation is spawned once");
            }
            Action::Send { generation, call } => {
                let worker = self.worker(*generation);
                assert_eq!(worker.state, State::Ready, "only ready workers get calls");
                assert!(!worker.told_to_end, "a worker told to end gets no calls");
                worker.sent.push(Sent {
                    call: call.call,
                    is_probe: matches!(call.op, rpc::Op::Probe { .. }),
                    heard: false,
                    answered: false,
                });
            }
            Action::Stop { generation, .. } => {
                // Both may be due at the same moment.
                let abandoned = self.abandoned.contains(generation);
                let worker = self.worker(*generation);
                assert!(!worker.told_to_end || abandoned, "a worker is ended once");
                worker.told_to_end = true;
            }
            Action::SessionOver { session } => {
                let client = self.client(*session);
                assert!(!client.over, "a session is over once");
                client.over = true;
            }
            Action::Abandon { generation, .. } => {
                self.worker(*generation).told_to_end = true;
                self.abandoned.push_back(*generation);
            }
            Action::Look { generation } => self.to_look_at.push_back(*generation),
            Action::End(end) => self.forget_route(end.call),
            Action::SlotOver { slot } => {
                assert_eq!(
                    self.slots[slot.0],
                    SlotState::Closing,
                    "a slot is over once"
                );
                self.slots[slot.0] = SlotState::Over;
            }
            Action::Progress(_)
            | Action::Cancel { .. }
            | Action::Ping { .. }
            | Action::Overdue { .. }
            | Action::RolloutOver { .. } => {}
        }
    }

    /// A slot that is closed is there for exactly as long as a worker of it is not reaped.
    pub(super) fn check_slots(&self) {
        for (index, state) in self.slots.iter().enumerate() {
            let slot = SlotId(index);
            let of_slot = |worker: &&Worker| worker.slot == slot && worker.state != State::Reaped;
            let workers = self.workers.values().filter(of_slot).count();
            assert_eq!(self.kernel.workers_of(slot).count(), workers);
            match state {
                SlotState::Open => assert!(self.kernel.slot_name(slot).is_some()),
                SlotState::Closing => assert!(workers > 0, "it should be over"),
                SlotState::Over => assert_eq!((workers, self.kernel.slot_name(slot)), (0, None)),
            }
        }
    }

    /// Of what the workers of a closed slot were sent, only answers that are checked are open.
    pub(super) fn check_closed(&self, slot: SlotId) {
        let workers = self.workers.values().filter(|worker| worker.slot == slot);
        for sent in workers.flat_map(|worker| &worker.sent) {
            let checked = self.checking.iter().any(|(call, _)| *call == sent.call);
            assert!(checked || self.kernel.request_of(sent.call).is_none());
        }
    }

    pub(super) fn is_fenced(&self, generation: Generation, at: usize) -> bool {
        let worker = &self.workers[&generation];
        worker.told_to_end || !worker.lives() || worker.sent[at].answered
    }

    pub(super) fn client(&mut self, session: SessionId) -> &mut Client {
        self.sessions
            .iter_mut()
            .find(|client| client.id == session)
            .unwrap()
    }

    pub(super) fn worker(&mut self, generation: Generation) -> &mut Worker {
        self.workers.get_mut(&generation).unwrap()
    }

    pub(super) fn pick_session(
        &self,
        pick: u8,
        filter: impl Fn(&Client) -> bool,
    ) -> Option<SessionId> {
        let all = self.sessions.iter().filter(|client| filter(client));
        choose(all.map(|client| client.id).collect(), pick.into())
    }

    pub(super) fn pick_worker(
        &self,
        pick: u8,
        filter: impl Fn(&Worker) -> bool,
    ) -> Option<Generation> {
        let all = self.workers.iter().filter(|(_, worker)| filter(worker));
        choose(all.map(|(id, _)| *id).collect(), pick.into())
    }

    pub(super) fn pick_sent(&self, pick: u16, anything: bool) -> Option<(Generation, usize)> {
        let mut all = Vec::new();
        for (generation, worker) in &self.workers {
            for (at, sent) in worker.sent.iter().enumerate() {
                let awaited = !sent.answered && worker.lives();
                // Calls are told apart by their number only: while one is awaited, whatever its
                // worker says about that number is its answer.
                let repeats = |other: &Sent| other.call == sent.call && !other.answered;
                let fenced = !worker.lives() || !worker.sent.iter().any(repeats);
                if awaited || (anything && fenced) {
                    all.push((*generation, at));
                }
            }
        }
        choose(all, pick.into())
    }
}

pub(super) fn choose<T>(mut all: Vec<T>, pick: usize) -> Option<T> {
    (!all.is_empty()).then(|| all.swap_remove(pick % all.len()))
}
