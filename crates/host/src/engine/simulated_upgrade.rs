//! An upgrade of a simulated host: the pause, the saved text and the restored parts of a real one. No program is
//! executed: a second engine continues in the place of the first.

use std::time::Duration;

use mainstay_kernel::Core;
use tokio::time::Instant;

use super::clients::{Conversation, Links};
use super::upgrade::{FAREWELL, Resumed};
use super::{Announcement, Engine, Reports, Setup, Upgrades};
use crate::check::{CheckLimits, Checkers};
use crate::config::{EnvelopeMode, IdSource};
use crate::envelopes::Envelopes;
use crate::http::door::ClosedDoor;
use crate::sim;
use crate::upgrade::{Incoming, Outgoing};

impl Engine {
    /// Replaces the host by one that continues its saved state, if that is possible.
    pub(super) async fn upgraded(self) -> Self {
        let door = sim::door();
        sim::set_closed(true);
        if let Some(door) = &door {
            door.set_closed(true).await;
        }
        let host = self.upgraded_behind_doors().await;
        if let Some(door) = &door {
            door.set_closed(false).await;
        }
        sim::set_closed(false);
        host
    }

    async fn upgraded_behind_doors(mut self) -> Self {
        let Ok((front, (core, shell))) = self.hand_over_simulated().await else {
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
                next.catch_up().await;
                next
            }
            Err(why) => sim::give_up(&format!("the saved state cannot be continued: {why}")),
        }
    }

    /// Every step of a hand-over but the last: what is saved, and the front that keeps requests out.
    async fn hand_over_simulated(
        &mut self,
    ) -> Result<(Option<ClosedDoor>, (String, String)), String> {
        let front = self.drain_simulated(sim::ends_answers()).await?;
        self.pause().await?;
        // The new executable reads the state. Events may arrive meanwhile.
        tokio::time::sleep(sim::time_to_read()).await;
        self.pause().await?;
        let saved = self.state(None, true, &mut Outgoing::default())?;
        Ok((front, saved))
    }

    /// As over HTTP: answers that cannot move end first. `None` for a host without an HTTP front.
    async fn drain_simulated(&mut self, now: bool) -> Result<Option<ClosedDoor>, String> {
        let limit = Duration::from_millis(self.core.limits().drain_ms);
        let (door, mut until, mut ended) = (sim::door(), Instant::now() + limit, false);
        loop {
            // Requests that came in before.
            while let Ok(event) = self.queue.incoming.try_recv() {
                self.handle(event);
            }
            let mut conversations = self.conversations.values();
            let is_answering =
                conversations.any(|conversation| matches!(conversation, Conversation::Once { .. }));
            if !is_answering {
                let Some(door) = &door else {
                    return Ok(None);
                };
                if let Some(closed) = door.keep_closed() {
                    return Ok(Some(closed));
                }
            }
            if Instant::now() >= until {
                if ended || !now {
                    return Err("answers are still open".to_owned());
                }
                self.end_singles();
                if let Some(door) = &door {
                    door.end_answers().await;
                }
                sim::note_ended_answers();
                (until, ended) = (Instant::now() + FAREWELL, true);
            }
            self.step().await;
            if !self.core.is_serving() {
                return Err("the host is stopping".to_owned());
            }
        }
    }

    /// The engine that the saved text describes. Of this one it gets only what a new program would get otherwise.
    fn successor(self, core: &str, shell: &str) -> Result<(Self, Links), String> {
        let core = Core::restore(core).map_err(|error| error.to_string())?;
        if core != self.core {
            return Err("the core is another one".to_owned());
        }
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
