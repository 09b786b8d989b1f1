//! Requests of the host to a server: the script that restores a session, pings, and lists.

use std::collections::BTreeSet;

use mainstay_contract::dialect::encode;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;
use mainstay_contract::json::ObjectWriter;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::render;
use mainstay_contract::scan;

use super::activity::Activity;
use super::client::DISCOVER_MS;
use super::edit;
use super::incarnation::{Awaited, Purpose};
use super::lists::{Seen, page_request};
use super::memory::{Step, request};
use super::tools::TOOLS;
use super::{Cx, Link};
use crate::action::Sight;
use crate::core::action::CoreAction;

/// How long a server may take to answer a request of the host, in milliseconds.
const OWN_MS: u64 = 10_000;

impl Link {
    /// Sends the next steps of a server's script; after the last one the server is ready.
    pub(super) fn run_script(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        let start_ms = self.start_ms(cx.kernel.limits());
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        while let Some(step) = server.script.pop_front() {
            match step {
                Step::Say(line) => cx.say(generation, line),
                Step::Ask { id, line, purpose } => {
                    let patience_ms = match purpose {
                        Purpose::Discover => DISCOVER_MS.min(start_ms),
                        Purpose::Open | Purpose::LateDiscover | Purpose::Restore => start_ms,
                    };
                    let until = cx.now.plus_ms(patience_ms);
                    let _ = server.awaited.open(id, Awaited::Script { purpose, until });
                    return cx.say(generation, line);
                }
            }
        }
        self.script_over(cx, generation);
    }

    pub(super) fn ready(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        if let Some(server) = self.incarnations.get_mut(&generation) {
            server.ready = true;
        }
        if cx.kernel.has_answered(generation) {
            cx.out.push_back(CoreAction::WorkerReady { generation });
        }
        cx.kernel.handle_ready(cx.now, generation);
    }

    /// Another server gets requests from now on: one that became ready, or a standby.
    pub(super) fn taken_over(&mut self, cx: &mut Cx<'_>, before: Option<Generation>) {
        let Some(serving) = self.serving(cx) else {
            return;
        };
        // Deferred lines keep the client's order; the calls before them are sent by now.
        self.send_deferred(cx, serving, None);
        self.adopt_tools(cx, serving);
        let has_state = self.memory.has_session() || self.memory.modern_meta.is_some();
        let was_recalled = std::mem::take(&mut self.recall.is_active);
        if before.is_some() && has_state {
            self.report_restart(cx, serving);
        }
        if (before.is_some() || was_recalled) && has_state {
            self.compare_lists(cx, serving);
        }
        if self.tools.is_complete() {
            self.release(cx);
        } else if self.requests.holds_any() || (before.is_some() && self.tools.any()) {
            self.want_tools(cx);
        }
        self.read_wanted(cx, serving);
        if before.is_some() || was_recalled {
            self.listen(cx, serving);
        }
    }

    /// Replays a change of the client's session state to standby servers, which may take over at any time.
    pub(super) fn update_standbys(
        &mut self,
        cx: &mut Cx<'_>,
        updated: Option<Generation>,
        method: &str,
        params: Option<&str>,
    ) {
        let others: Vec<Generation> = self
            .incarnations
            .keys()
            .copied()
            .filter(|other| Some(*other) != updated && !cx.kernel.is_fenced(*other))
            .collect();
        for other in others {
            let id = self.own_id();
            let line = request(&id, method, params.unwrap_or("{}"));
            if let Some(server) = self.incarnations.get_mut(&other) {
                if server.is_scripted() {
                    let purpose = Purpose::Restore;
                    server.script.push_back(Step::Ask { id, line, purpose });
                } else {
                    let _ = server.awaited.open(id, Awaited::Ping);
                    cx.say(other, line);
                }
            }
        }
    }

    /// Asks a server for a sign of life.
    pub(crate) fn ping(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        let id = self.own_id();
        // The modern era has no ping; every server can describe itself.
        let line = match self.memory.own_meta() {
            Some(meta) => {
                let params = edit::with_member("{}", "_meta", meta.as_str());
                request(&id, Method::Discover.name(), &params)
            }
            None => request(&id, Method::Ping.name(), "{}"),
        };
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        // An earlier ping that was not answered will not be.
        server
            .awaited
            .retain(|_, awaited| !matches!(awaited, Awaited::Ping));
        let _ = server.awaited.open(id, Awaited::Ping);
        if server.has_calls() {
            let at_ping = true;
            cx.out.push_back(CoreAction::Look {
                generation,
                at_ping,
            });
        } else {
            server.looks.pinged(None);
        }
        cx.say(generation, line);
    }

    /// The shell looked at a server's processes.
    pub(crate) fn looked(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        at_ping: bool,
        seen: Option<Activity>,
    ) {
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        if at_ping {
            return server.looks.pinged(seen);
        }
        let sight = server.looks.look(seen);
        if cx.kernel.is_hopeless(generation, sight) {
            let detail = match sight {
                Sight::Stopped => "the server does not answer: its process is stopped",
                Sight::Still | Sight::Runs => "the server does not answer pings and stands still",
            };
            let fault = Fault::unresponsive(detail).of(generation);
            cx.out.push_back(CoreAction::Abandon { generation, fault });
        }
    }

    pub(super) fn unfit(&mut self, cx: &mut Cx<'_>, generation: Generation, detail: &str) {
        let fault = Fault::new(ErrorKind::WorkerProtocol, detail).of(generation);
        cx.log(format!("mcp:warning reason=worker_refused {fault}"));
        cx.kernel.handle_unfit(cx.now, generation, &fault);
    }

    /// Gives up requests of the host that were not answered in time.
    pub(super) fn own_requests_due(&mut self, cx: &mut Cx<'_>) {
        if self
            .requests
            .held_until()
            .is_some_and(|until| until <= cx.now)
        {
            self.lists.unlistable = self.serving(cx);
            self.release(cx);
        }
        // Servers are not read while the client does not read.
        if self.client_is_behind(cx) {
            return;
        }
        self.catalogs_due(cx);
        let start_ms = self.start_ms(cx.kernel.limits());
        let now = cx.now;
        let late: Vec<Generation> = self
            .incarnations
            .iter()
            .filter(|(_, server)| {
                server
                    .own_deadline(start_ms)
                    .is_some_and(|until| until <= now)
            })
            .map(|(generation, _)| *generation)
            .collect();
        for generation in late {
            self.own_request_due(cx, generation, start_ms);
        }
    }

    fn own_request_due(&mut self, cx: &mut Cx<'_>, generation: Generation, start_ms: u64) {
        let now = cx.now;
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        if server.is_never_ready(now, start_ms) {
            server.start = super::incarnation::Start::Over;
            let detail = format!("it answered nothing within {start_ms} ms");
            let fault = Fault::new(ErrorKind::WorkerNotReady, detail).of(generation);
            return cx.out.push_back(CoreAction::Abandon { generation, fault });
        }
        let (mut overdue, mut listed) = (None, BTreeSet::new());
        server.awaited.retain(|_, awaited| match awaited {
            Awaited::Script { purpose, until } if *until <= now => {
                overdue = Some(*purpose);
                let is_kept = *purpose == Purpose::Discover;
                (*purpose, *until) = (Purpose::LateDiscover, now.plus_ms(start_ms));
                is_kept
            }
            Awaited::List { until, kind, .. } if *until <= now => {
                listed.insert(*kind);
                false
            }
            _ => true,
        });
        match overdue {
            Some(Purpose::Open) => {
                let detail = "the server did not open the session again in time";
                self.unfit(cx, generation, detail);
            }
            Some(Purpose::Discover | Purpose::Restore) => self.run_script(cx, generation),
            Some(Purpose::LateDiscover) | None => {}
        }
        for kind in &listed {
            self.list_failed(*kind);
        }
        if !listed.is_empty() {
            self.lists.unlistable = Some(generation);
            // Without the list calls are sent unchecked, and never repeated.
            self.release(cx);
        }
    }

    /// Reads the list of tools, unless it is being read.
    pub(super) fn want_tools(&mut self, cx: &mut Cx<'_>) {
        if let Some(serving) = self.serving(cx) {
            let server = self.incarnations.get(&serving);
            let is_read = server.is_none_or(|server| server.lists(ListKind::Tools));
            if !is_read {
                let epoch = self.tools.epoch();
                self.fetch(cx, serving, ListKind::Tools, Seen::default(), epoch);
            }
        } else if cx.kernel.is_closed(cx.now, self.slot) {
            self.release(cx);
        } else {
            cx.kernel.warm(cx.now, self.slot);
        }
    }

    pub(super) fn fetch(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        kind: ListKind,
        seen: Seen,
        epoch: u64,
    ) {
        let id = self.own_id();
        let line = page_request(&id, kind, seen.next(), self.memory.own_meta());
        let until = cx.now.plus_ms(OWN_MS);
        if let Some(server) = self.incarnations.get_mut(&generation) {
            let awaited = Awaited::List {
                epoch,
                kind,
                seen,
                until,
            };
            let _ = server.awaited.open(id, awaited);
            cx.say(generation, line);
        }
    }

    /// A page of a list arrived that the host asked for.
    pub(super) fn listed(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        kind: ListKind,
        mut seen: Seen,
        epoch: u64,
        result: Option<&str>,
    ) {
        let is_tools = kind == ListKind::Tools;
        let Some(result) = result else {
            self.list_refused(kind);
            // The server has no such list.
            if is_tools {
                self.lists.unlistable = Some(generation);
                self.release(cx);
            }
            return;
        };
        let serves = self.serving(cx) == Some(generation);
        let is_first = seen.next().is_none();
        if !seen.next_page(kind, result) || !serves {
            // The list does not end, or another server serves by now.
            if serves {
                self.list_failed(kind);
            }
            if is_tools && serves {
                self.lists.unlistable = Some(generation);
                self.release(cx);
            }
            return;
        }
        self.record_page(cx, kind, is_first, result);
        if is_tools {
            self.learn(cx, result);
        } else {
            self.shelve_page(cx, kind, result);
        }
        if seen.next().is_some() {
            return self.fetch(cx, generation, kind, seen, epoch);
        }
        if is_tools {
            self.tools_complete(cx, epoch);
            if self.tools.epoch() == epoch {
                self.release(cx);
            } else {
                self.want_tools(cx);
            }
        }
        if !is_tools || self.tools.is_complete() {
            self.list_read(kind, &seen);
        }
        if self.lists.comparing.remove(&kind) {
            self.compared(cx, kind, seen);
        }
    }

    /// Reads the lists that the client has seen, to notice what a successor lists differently.
    fn compare_lists(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        for kind in ListKind::ALL {
            let was_seen = self.lists.fingerprint(kind).is_some();
            let is_known = kind == ListKind::Tools && self.tools.is_complete();
            if was_seen && !is_known && self.reports_changes(kind) {
                self.lists.comparing.insert(kind);
                let epoch = self.tools.epoch();
                self.fetch(cx, generation, kind, Seen::default(), epoch);
            }
        }
    }

    /// Records that the whole list of tools was seen, begun in this epoch.
    pub(super) fn tools_complete(&mut self, cx: &mut Cx<'_>, begun: u64) {
        self.tools.completed(begun);
        self.lists.unlistable = None;
        let left_out = self.tools.take_left_out();
        if left_out > 0 {
            let pack = &self.name;
            cx.log(format!(
                "mcp:warning reason=list_too_long pack={pack} tools={left_out} beyond the first {TOOLS} are not served"
            ));
        }
        let strange = self.tools.strange_names();
        if !strange.is_empty() {
            let (pack, names) = (&self.name, strange.join(" "));
            let names = render::shorten(&names, 200);
            let said = "the rules name tools that the server does not have:";
            cx.log(format!(
                "mcp:warning reason=rule_without_tool pack={pack} {said} {names}"
            ));
        }
    }

    /// Learns the definitions of a page of tools, and reports suspicious ones.
    pub(super) fn learn(&mut self, cx: &mut Cx<'_>, result: &str) {
        let tools = scan::member(result, "tools").unwrap_or("[]");
        for definition in edit::items(tools) {
            if let Some(learned) = self.tools.learn(definition) {
                self.report_definition(cx, &learned);
            }
        }
    }

    /// Tells the client that its server was replaced, if its session has logging.
    fn report_restart(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        if !self.rules().restart_note || self.is_mute() {
            return;
        }
        self.handover.restarted = Some(generation);
        if self.memory.capability("logging").is_some() && !self.serves_modern() {
            self.log_restart(cx, generation);
        }
    }

    /// Sends one log message to the client.
    pub(super) fn log_restart(&self, cx: &mut Cx<'_>, generation: Generation) {
        let name = render::shorten(&self.name, 80);
        let data = format!(
            "the server {name} was started again (generation {generation}); what it kept in memory may be gone"
        );
        let params = ObjectWriter::with_capacity(160)
            .string("level", "warning")
            .string("logger", "mainstay")
            .string("data", &data)
            .finish();
        self.tell_client(cx, encode::notification(Method::LogMessage, Some(&params)));
    }
}
