//! Readiness: would a call be served now?
//!
//! Packs are ready when each has a worker that gets calls. Servers that are served together do not count: one that
//! fails does not make the others less useful. A server that is wrapped alone is ready when the server that
//! was started last has answered a request with a result. A host that serves many sessions has no server
//! before its first session, so it starts one to find out and ends it after its handshake: the trial. It
//! does so again whenever a server is lost that never answered. A server that is started only on demand
//! (`lazy`) counts as ready until a start fails.

use serde::{Deserialize, Serialize};

use super::Core;
use super::action::CoreAction;
use crate::call::SlotId;
use crate::server::{Client, House};
use crate::stats::Loss;
use crate::time::Time;

/// The caller in whose name the trial opens its session.
const TRIAL: &str = "trial";

/// Knowledge about the wrapped server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Proof {
    /// No server has been started, or the first one has not answered yet.
    #[default]
    Unknown,
    /// The last one that was started has answered.
    Answers,
    /// The last one that was started was lost before it answered.
    Fails,
}

/// The state of a host's readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Readiness {
    /// The shell was told that the host is ready.
    announced: bool,
    /// The server that is started to find out if it answers.
    trial: Option<SlotId>,
    /// When a trial whose restart budget is spent goes on.
    again: Option<Time>,
    /// Random, for the ids of the trial's requests.
    nonce: u64,
}

impl Readiness {
    pub(super) fn seeded(seed: u64) -> Self {
        let mut state = seed;
        Self {
            nonce: crate::supervisor::splitmix(&mut state),
            ..Self::default()
        }
    }

    /// A number for the ids of requests in the name of the host.
    pub(super) const fn next_nonce(&mut self) -> u64 {
        self.nonce = self.nonce.wrapping_add(1);
        self.nonce
    }

    /// When [`Core::trial_due`] must be called.
    pub(super) const fn timeout(&self) -> Option<Time> {
        self.again
    }
}

impl Core {
    /// True if a call would be served now.
    pub fn is_ready(&self) -> bool {
        if !self.kernel.is_serving() {
            return false;
        }
        match self.links.wrapped() {
            Some(server) => match server.proof {
                Proof::Answers => true,
                Proof::Unknown => server.config.rules.lazy,
                Proof::Fails => false,
            },
            None => self.roots.slots().all(|slot| {
                // A pack that follows its client's roots is started when they are known.
                self.kernel.serving(slot).is_some()
                    || (self.roots.follows(slot) && self.kernel.is_cold(slot))
            }),
        }
    }

    /// Tells the shell once that the host is ready.
    pub(super) fn announce_ready(&mut self) -> bool {
        if self.readiness.announced || !self.is_ready() {
            return false;
        }
        self.readiness.announced = true;
        self.out.push_back(CoreAction::Ready);
        self.claim_tasks();
        true
    }

    /// Starts a server to find out if it answers, where no session may do so.
    pub(super) fn start_trial(&mut self) {
        let is_wanted = |server: &&crate::server::ServerConfig| server.trial && !server.rules.lazy;
        let server = self.links.wrapped().map(|server| &server.config);
        let server = server.filter(is_wanted).map(|server| server.name.clone());
        if let Some(server) = server
            && self.readiness.trial.is_none()
            && self.kernel.is_serving()
            && self.has_room_for_servers(None)
        {
            let client = Client::House(House::of(TRIAL.to_owned()));
            let nonce = self.readiness.next_nonce();
            self.readiness.trial = self.add_link(&server, client, false, nonce);
        }
    }

    /// Ends the trial when its handshake is over, or when another server has answered.
    pub(super) fn end_trial(&mut self, touched: SlotId) {
        let Some(trial) = self.readiness.trial else {
            return;
        };
        let is_over = touched != trial || self.kernel.serving(trial).is_some();
        let proof = self.links.wrapped().map(|server| server.proof);
        if proof == Some(Proof::Answers) && is_over {
            self.readiness.trial = None;
            self.readiness.again = None;
            self.kernel.close_slot(self.clock.now, trial);
        }
    }

    /// A trial whose restart budget was spent goes on.
    pub(super) fn trial_due(&mut self) {
        let now = self.clock.now;
        if self.readiness.again.is_some_and(|at| at <= now) {
            self.readiness.again = None;
            if let Some(trial) = self.readiness.trial {
                self.kernel.warm(now, trial);
            }
        }
    }

    /// A worker was lost, or must be replaced: the log and telemetry get the same reason.
    pub(super) fn report_loss(&mut self, loss: Loss) {
        let Loss {
            slot,
            generation,
            answered,
            fault,
        } = loss;
        let pack = self.pack_of(slot).to_owned();
        self.workers.count_loss(&pack);
        // A host that cannot start as it is configured ends, and the pack's reason is its last line.
        if self.workers.setup_error().is_none() {
            let name = self.name_of(slot);
            self.log(format!(
                "mcp:warning reason=worker_lost pack={name} {fault}"
            ));
        }
        self.out.push_back(CoreAction::WorkerLost {
            slot,
            generation,
            fault,
        });
        if !answered && self.is_server(slot) {
            if let Some(server) = self.links.wrapped_mut() {
                server.proof = Proof::Fails;
            }
            self.start_trial();
            let now = self.clock.now;
            if self.readiness.trial == Some(slot) && self.kernel.is_closed(now, slot) {
                let rest_ms = self.kernel.limits().rest_ms;
                self.readiness.again = Some(now.plus_ms(rest_ms));
            }
        }
    }
}
