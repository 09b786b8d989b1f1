//! Requests of our own: the session that a successor is told, pings, and lists.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;
use mainstay_contract::json::ObjectWriter;
use mainstay_contract::render;
use mainstay_contract::scan;
use mainstay_contract::telemetry::Event as Recorded;
use mainstay_kernel::action::Sight;
use mainstay_kernel::time::Time;

use super::activity;
use super::edit;
use super::engine::{Engine, SLOT};
use super::lists::{Kind, Seen, page_request};
use super::server::{Awaited, Server};
use super::told::{Step, request};

/// Milliseconds for a server to answer a request of our own.
const OWN_MS: u64 = 10_000;

impl Engine {
    /// Says the next step of its script to a server; after the last it is ready.
    pub(super) fn tell_on(&mut self, generation: Generation) {
        let until = self
            .clock
            .now()
            .plus_ms(self.kernel.limits().start_timeout_ms);
        let Some(server) = self.servers.get_mut(&generation) else {
            return;
        };
        while let Some(step) = server.script.pop_front() {
            match step {
                Step::Say(line) => server.handle.say(line.as_str()),
                Step::Ask { id, line, vital } => {
                    server.handle.say(line.as_str());
                    server.awaited.insert(id, Awaited::Script { vital, until });
                    return;
                }
            }
        }
        self.told_all(generation);
    }

    pub(super) fn ready(&mut self, generation: Generation) {
        let now = self.clock.now();
        let name = self.common.name.clone();
        if let Some(server) = self.servers.get(&generation) {
            self.common
                .recorder
                .worker(Recorded::WorkerReady, &name, generation, server.pid());
        }
        self.kernel.handle_ready(now, generation);
    }

    /// Another server gets requests from now on: one that is ready, or a standby.
    pub(super) fn taken_over(&mut self, before: Option<Generation>) {
        let Some(serving) = self.serving() else {
            return;
        };
        // What waited is sent in the order in which the client said it; its calls are sent by now.
        self.say_later(serving, None);
        self.meet(serving);
        if before.is_some() && (self.told.has_session() || self.meta.is_some()) {
            self.tell_restart(serving);
            self.compare_lists(serving);
        }
        if self.tools.is_complete() {
            self.release();
        } else if !self.held.is_empty() || (before.is_some() && self.tools.any()) {
            self.want_tools();
        }
    }

    /// What the client told the server that serves is told the others, too: a standby must be able
    /// to take over at any time.
    pub(super) fn retell(&mut self, told: Generation, method: &str, params: Option<&str>) {
        let others: Vec<Generation> = self
            .servers
            .keys()
            .copied()
            .filter(|other| *other != told && !self.kernel.is_fenced(*other))
            .collect();
        for other in others {
            let id = self.own_id();
            let line = request(&id, method, params.unwrap_or("{}"));
            if let Some(server) = self.servers.get_mut(&other) {
                if server.script.is_empty() {
                    server.awaited.insert(id, Awaited::Ping);
                    server.handle.say(line.as_str());
                } else {
                    let vital = false;
                    server.script.push_back(Step::Ask { id, line, vital });
                }
            }
        }
    }

    pub(super) fn ping(&mut self, generation: Generation) {
        let id = self.own_id();
        // The modern revision has no ping; every server has something to say about itself.
        let line = match (&self.meta, self.told.has_session()) {
            (Some(meta), false) => {
                let params = edit::with_member("{}", "_meta", meta.as_str());
                request(&id, "server/discover", &params)
            }
            _ => request(&id, "ping", "{}"),
        };
        if let Some(server) = self.servers.get_mut(&generation) {
            // Those before it that were not answered will not be.
            server
                .awaited
                .retain(|_, awaited| !matches!(awaited, Awaited::Ping));
            // Only then is it looked at again.
            let seen = server.has_calls().then(|| activity::of_tree(server.pid()));
            server.looks.pinged(seen.flatten());
            server.awaited.insert(id, Awaited::Ping);
            server.handle.say(line.as_str());
        }
    }

    /// Looks at a server that is silent while it should work.
    pub(super) fn look(&mut self, generation: Generation) {
        let Some(server) = self.servers.get_mut(&generation) else {
            return;
        };
        let sight = server.looks.look(activity::of_tree(server.pid()));
        if self.kernel.is_hopeless(generation, sight) {
            let detail = match sight {
                Sight::Stopped => "the server does not answer: its process is stopped",
                Sight::Still | Sight::Runs => "the server does not answer pings and stands still",
            };
            self.give_up_on(generation, Fault::new(ErrorKind::Timeout, detail));
        }
    }

    pub(super) fn unfit(&mut self, generation: Generation, detail: &str) {
        let fault = Fault::new(ErrorKind::WorkerProtocol, detail).of(generation);
        let line = format!("mcp:warning reason=worker_refused {fault}");
        self.common.log.line(&line);
        self.kernel
            .handle_unfit(self.clock.now(), generation, &fault);
    }

    /// Requests of our own that were not answered in time.
    pub(super) fn own_requests_due(&mut self, now: Time) {
        if self.held.iter().any(|(_, until)| *until <= now) {
            self.release();
            self.act();
        }
        // What servers say is not read while the client takes nothing.
        if self.client_is_behind() {
            return;
        }
        self.catalogs_due(now);
        let start_ms = self.kernel.limits().start_timeout_ms;
        let late = |server: &Server| {
            let until = server.own_deadline(start_ms);
            until.is_some_and(|until| until <= now)
        };
        let late: Vec<Generation> = self
            .servers
            .iter()
            .filter(|(_, server)| late(server))
            .map(|(generation, _)| *generation)
            .collect();
        for generation in late {
            let Some(server) = self.servers.get_mut(&generation) else {
                continue;
            };
            if server.is_never_ready(now, start_ms) {
                let detail = format!("it answered nothing within {start_ms} ms");
                self.give_up_on(generation, Fault::new(ErrorKind::WorkerNotReady, detail));
                self.act();
                continue;
            }
            let (mut tell_on, mut broken, mut listed) = (false, false, false);
            server.awaited.retain(|_, awaited| match awaited {
                Awaited::Script { vital, until } if *until <= now => {
                    broken |= *vital;
                    tell_on |= !*vital;
                    false
                }
                Awaited::List { until, .. } if *until <= now => {
                    listed = true;
                    false
                }
                _ => true,
            });
            if broken {
                self.unfit(
                    generation,
                    "the server did not open the session again in time",
                );
            } else if tell_on {
                self.tell_on(generation);
            }
            if listed {
                // Without the list calls go on unchecked, and are never repeated.
                self.release();
            }
            self.act();
        }
    }

    /// Asks for the tools, unless that is under way.
    pub(super) fn want_tools(&mut self) {
        if let Some(serving) = self.serving() {
            let under_way = self
                .servers
                .get(&serving)
                .is_none_or(|server| server.lists(Kind::Tools));
            if !under_way {
                self.fetch(
                    serving,
                    Kind::Tools,
                    None,
                    Seen::default(),
                    self.tools.epoch(),
                );
            }
        } else if self.kernel.is_closed(self.clock.now(), SLOT) {
            self.release();
        } else {
            self.kernel.warm(self.clock.now(), SLOT);
        }
    }

    pub(super) fn fetch(
        &mut self,
        generation: Generation,
        kind: Kind,
        cursor: Option<&str>,
        seen: Seen,
        epoch: u64,
    ) {
        let id = self.own_id();
        let meta = self.meta.as_ref().filter(|_| !self.told.has_session());
        let line = page_request(&id, kind, cursor, meta);
        let until = self.clock.now().plus_ms(OWN_MS);
        if let Some(server) = self.servers.get_mut(&generation) {
            let cursor = cursor.map(str::to_owned);
            let awaited = Awaited::List {
                epoch,
                kind,
                cursor,
                seen,
                until,
            };
            server.awaited.insert(id, awaited);
            server.handle.say(line.as_str());
        }
    }

    /// A page of a list that we asked for.
    pub(super) fn listed(
        &mut self,
        generation: Generation,
        kind: Kind,
        cursor: Option<&str>,
        mut seen: Seen,
        epoch: u64,
        result: Option<&str>,
    ) {
        let Some(result) = result else {
            // It has no such list.
            if kind == Kind::Tools {
                self.release();
            }
            return;
        };
        let serves = self.serving() == Some(generation);
        if !seen.page(kind, cursor, result) || !serves {
            // It does not end, or it is not the list of the one that is asked from now on.
            if kind == Kind::Tools && serves {
                self.release();
            }
            return;
        }
        if kind == Kind::Tools {
            self.learn(result);
        }
        if let Some(next) = seen.next().map(str::to_owned) {
            return self.fetch(generation, kind, Some(&next), seen, epoch);
        }
        if kind == Kind::Tools {
            self.tools_complete(epoch);
            if self.tools.epoch() == epoch {
                self.release();
            } else {
                self.want_tools();
            }
        }
        if self.comparing.remove(&kind) {
            self.compared(kind, seen);
        }
    }

    /// Looks whether a successor lists what its predecessor did, as far as the client saw that.
    pub(super) fn compare_lists(&mut self, generation: Generation) {
        for kind in Kind::ALL {
            let was_seen = self.seen.get(&kind).and_then(Seen::fingerprint).is_some();
            let is_known = kind == Kind::Tools && self.tools.is_complete();
            if was_seen && !is_known && self.is_heard(kind) {
                self.comparing.insert(kind);
                self.fetch(generation, kind, None, Seen::default(), self.tools.epoch());
            }
        }
    }

    /// The whole of a list has been seen that was begun in this epoch.
    pub(super) fn tools_complete(&mut self, begun: u64) {
        self.tools.completed(begun);
        let strange = self.tools.strange_names();
        if !strange.is_empty() {
            let (pack, names) = (&self.common.name, strange.join(" "));
            let names = render::shorten(&names, 200);
            let said = "the rules name tools that the server does not have:";
            self.common.log.line(&format!(
                "mcp:warning reason=rule_without_tool pack={pack} {said} {names}"
            ));
        }
    }

    /// Takes in the definitions of a page of tools, and says what is wrong with them.
    pub(super) fn learn(&mut self, result: &str) {
        let tools = scan::member(result, "tools").unwrap_or("[]");
        for definition in edit::items(tools) {
            if let Some(learned) = self.tools.learn(definition) {
                self.report(&learned);
            }
        }
    }

    /// The client is told that its server is another one, where its session has logging.
    pub(super) fn tell_restart(&mut self, generation: Generation) {
        if !self.common.rules.restart_note {
            return;
        }
        self.restarted = Some(generation);
        if self.told.capability("logging").is_some() {
            self.log_restart(generation);
        }
    }

    /// One line in the client's log.
    pub(super) fn log_restart(&self, generation: Generation) {
        let data = format!(
            "the server {} was started again (generation {generation}); what it kept in memory may be gone",
            render::shorten(&self.common.name, 80)
        );
        let params = ObjectWriter::with_capacity(160)
            .string("level", "warning")
            .string("logger", "mainstay")
            .string("data", &data)
            .finish();
        let line = ObjectWriter::with_capacity(params.len() + 80)
            .string("jsonrpc", "2.0")
            .string("method", "notifications/message")
            .raw("params", &params)
            .finish();
        self.tell_client(&line);
    }
}
