//! Scenarios with several servers of a file, which clients share or not.

use super::plan::{Backend, Route, Scenario, Speech, Step, Tool, one_in};
use crate::hostile::Rng;

impl Backend {
    /// The keys of the servers of a file.
    pub const KEYS: [&str; 2] = ["first", "second"];

    /// The server of a file that gets a request with this number.
    pub const fn key_of(number: u64) -> &'static str {
        let [first, second] = Self::KEYS;
        if number.is_multiple_of(2) {
            first
        } else {
            second
        }
    }

    /// The name of a tool in a request with this number.
    pub fn name_of(self, tool: Tool, number: u64) -> String {
        match self {
            Self::Pack | Self::Server => tool.name().to_owned(),
            Self::Several { .. } => format!("{}__{}", Self::key_of(number), tool.name()),
        }
    }
}

impl Scenario {
    /// Lets some seeds serve two servers of a file, which clients share or not.
    pub(super) fn give_servers(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x3c6e_f372_fe94_f82b);
        let rng = &mut rng;
        if !one_in(rng, 4) || !self.tasks.is_empty() {
            return;
        }
        let shared = [one_in(rng, 2), one_in(rng, 2)];
        let stateless = one_in(rng, 3);
        self.backend = Backend::Several { shared, stateless };
        for client in &mut self.clients {
            if client.speech == Speech::Direct {
                client.speech = Speech::Legacy;
            }
            let subscribes =
                client.speech == Speech::Legacy && client.route == Route::Pipe && !stateless;
            for step in &mut client.steps {
                *step = match *step {
                    Step::SetLevel => Step::List,
                    Step::List if subscribes => Step::Subscribe,
                    other => other,
                };
            }
            if subscribes && one_in(rng, 2) {
                client.steps.insert(0, Step::Subscribe);
            }
        }
    }
}
