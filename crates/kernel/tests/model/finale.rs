//! How a run is brought to its end.

use super::Finale;
use super::crew::State;
use super::script::Reply;
use super::world::World;

/// Rounds within which everything must have ended.
const ROUNDS: usize = 5000;

impl World {
    /// Brings everything to its end: first the calls, then the sessions, then the workers.
    pub fn finish(&mut self, finale: Finale) {
        if finale == Finale::Stop {
            self.stop();
        }
        for _ in 0..ROUNDS {
            if self.kernel.in_flight() == 0 {
                break;
            }
            self.settle(finale);
            let soon = self.now.plus_ms(1);
            self.tick(self.kernel.poll_timeout().unwrap_or(soon));
        }
        let open: Vec<_> = self.sessions.iter().filter(|c| !c.input_ended).collect();
        for session in open.iter().map(|client| client.id).collect::<Vec<_>>() {
            self.end_input(session);
        }
        self.stop();
        for _ in 0..ROUNDS {
            if self.kernel.is_stopped() {
                break;
            }
            self.settle(Finale::Stop);
        }
    }

    /// The host answers, and what is dead or told to end is reaped. Workers answer if they may.
    /// A host that is stopped does not find out any more who answers what.
    fn settle(&mut self, finale: Finale) {
        let answering = finale == Finale::Answers;
        while finale != Finale::Stop
            && let Some(call) = self.pick_errand(0, false)
        {
            self.route(call);
        }
        while !self.serving.is_empty() {
            self.serve(0);
        }
        while finale != Finale::Stop && !self.checking.is_empty() {
            self.check(0);
        }
        while let Some(generation) = self.pick_worker(0, |worker| {
            worker.state == State::Dead || (worker.told_to_end && worker.state != State::Reaped)
        }) {
            self.reap(generation);
        }
        while answering && let Some(generation) = self.pick_worker(0, |w| w.state == State::Spawned)
        {
            self.ready(generation);
        }
        while answering && let Some((generation, at)) = self.pick_sent(0, false) {
            self.answer(generation, at, Reply::Fitting(0), false);
        }
    }
}
