//! An upgrade of a simulated host: the pause, the saved text and the restored parts of a real one. No program is
//! executed: a second engine continues in the place of the first.

use mainstay_kernel::Core;

use super::clients::{Conversation, Links};
use super::upgrade::Resumed;
use super::{Announcement, Engine, Reports, Setup, Upgrades};
use crate::check::{CheckLimits, Checkers};
use crate::config::{EnvelopeMode, IdSource};
use crate::envelopes::Envelopes;
use crate::sim;
use crate::upgrade::{Incoming, Outgoing};

impl Engine {
    /// Replaces the host by one that continues its saved state, if that is due and possible.
    pub(super) async fn upgraded(self) -> Self {
        if !sim::is_upgrade_due() || !self.core.is_serving() {
            return self;
        }
        sim::set_closed(true);
        let host = self.upgraded_behind_doors().await;
        sim::set_closed(false);
        host
    }

    async fn upgraded_behind_doors(mut self) -> Self {
        // Requests that came in before.
        while let Ok(event) = self.queue.incoming.try_recv() {
            self.handle(event);
        }
        // As over HTTP: answers that cannot move end first.
        let mut conversations = self.conversations.values();
        if conversations.any(|conversation| matches!(conversation, Conversation::Once { .. })) {
            return self;
        }
        let front = match sim::door().map(|door| door.keep_closed()) {
            Some(None) => return self,
            front => front.flatten(),
        };
        let saved = match self.pause().await {
            Ok(()) => self.state(None, true, &mut Outgoing::default()),
            Err(reason) => Err(reason),
        };
        let Ok((core, shell)) = saved else {
            sim::note_upgrade(false);
            self.go_on().await;
            self.act();
            return self;
        };
        let continued = self.successor(&core, &shell).and_then(|(next, links)| {
            if let Some(front) = front {
                front.replace(links).map_err(|error| error.to_string())?;
            }
            Ok(next)
        });
        sim::note_upgrade(true);
        match continued {
            Ok(mut next) => {
                next.act();
                next
            }
            Err(why) => sim::give_up(&format!("the saved state cannot be continued: {why}")),
        }
    }

    /// The engine that the saved text describes. Of this one it gets only what a new program would get otherwise.
    fn successor(self, core: &str, shell: &str) -> Result<(Self, Links), String> {
        let core = Core::restore(core).map_err(|error| error.to_string())?;
        let resumed = Resumed {
            from: String::new(),
            shell: serde_json::from_str(shell).map_err(|error| error.to_string())?,
            descriptors: Incoming::default(),
        };
        let (log, limits) = (self.reports.log, core.limits());
        let events = self.queue.sender();
        let envelopes = Envelopes::new(
            EnvelopeMode::Off,
            IdSource::Deterministic,
            limits.diagnostics,
            &log,
        );
        let mut operators = self.operators;
        let mut next = Self::new(Setup {
            checkers: Checkers::new(&self.launch.shim, CheckLimits::DEFAULT, events),
            core,
            launch: self.launch,
            reports: Reports {
                log,
                recorder: self.reports.recorder,
                audit: self.reports.audit,
                envelopes,
                watchdog: self.reports.watchdog,
            },
            facts: self.facts,
            announcement: Announcement::default(),
            queue: self.queue,
            closing: self.closing,
            tasks: self.tasks,
            upgrade: Upgrades::default(),
        });
        let links = next.resume(resumed).map_err(|error| error.to_string())?;
        next.operators.take_over(&mut operators);
        Ok((next, links))
    }
}
