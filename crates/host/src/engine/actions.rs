//! Carries out the actions of the core.

use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Success;
use mainstay_contract::render::RenderMode;
use mainstay_contract::telemetry::{Event as Recorded, Telemetry};
use mainstay_kernel::action::Manner;
use mainstay_kernel::call::SlotId;
use mainstay_kernel::core::action::{CoreAction, CoreEvent, LogLevel, WorkerNews};
use mainstay_kernel::defect::{Defect, is_planted};
use mainstay_kernel::system_tools;

use super::control::clean_fault;
use super::workers::Handle;
use super::{Engine, Event};
use crate::client_roots;
use crate::log::Level;
use crate::process::usage;
use crate::telemetry::show_mismatches;

impl Engine {
    pub(super) fn carry_out(&mut self, action: CoreAction) {
        match action {
            CoreAction::Tell { session, line } => self.tell(session, &line),
            CoreAction::End { end, asked } => self.answer(end, asked.as_deref()),
            CoreAction::Progress(notice) => self.notify(*notice),
            CoreAction::Close { session } => self.close(session),
            CoreAction::OwnTool { call, tool, render } => self.own_tool(call, &tool, render),
            CoreAction::Spawn {
                slot,
                generation,
                settings,
                fresh,
            } => self.spawn(slot, generation, settings, fresh),
            CoreAction::Call { generation, call } => {
                self.pack(generation, |worker| worker.send(*call));
            }
            CoreAction::Cancel { generation, call } => {
                self.pack(generation, |worker| worker.cancel(call));
            }
            CoreAction::Ping { generation } => {
                self.pack(generation, crate::drivers::WorkerHandle::ping);
            }
            CoreAction::Forward {
                generation,
                call,
                line,
                headers,
            } => self.forward(generation, call, &line, headers),
            CoreAction::Say {
                generation,
                line,
                if_room,
            } => self.say(generation, &line, if_room),
            CoreAction::Stop { generation, how } => {
                if let Some(worker) = self.workers.get(&generation) {
                    worker.handle.stop(how);
                }
            }
            CoreAction::Abandon { generation, fault } => self.abandon(generation, fault),
            CoreAction::Look {
                generation,
                at_ping,
            } => {
                let seen = self.pid(generation).and_then(usage::activity);
                self.news(generation, WorkerNews::Looked { at_ping, seen });
            }
            CoreAction::Weigh { generation } => {
                let bytes = self.pid(generation).map_or(0, usage::memory);
                self.news(generation, WorkerNews::Weighed { bytes });
            }
            CoreAction::Check { ticket, request } => {
                let until = self.clock.instant(request.until);
                #[cfg(feature = "simulation")]
                if let Some(check) = crate::sim::check(&request.definition, &request.subject, until)
                {
                    return self.simulate_check(ticket, check);
                }
                if let Some(verdict) = self.checkers.submit(ticket, &request, until) {
                    self.report(CoreEvent::Checked { ticket, verdict });
                }
            }
            CoreAction::ForgetCheck { ticket } => self.checkers.forget(ticket),
            CoreAction::Ledger { ticket, order } => {
                let events = self.events();
                if let Some(reply) = self.tasks.order(ticket, *order, events) {
                    self.report(CoreEvent::Ledger { ticket, reply });
                }
            }
            CoreAction::Audit { ticket, record } => self.audit(ticket, *record),
            CoreAction::FindRoots { question, answer } => self.find_roots(question, answer),
            CoreAction::Remember { server, memory } => {
                if let Some(file) = self.facts.remembered.get(&server) {
                    file.store(&memory, &self.reports.log);
                }
            }
            CoreAction::Log { level, line } => self.log(level, line),
            CoreAction::Ready => self.announce(),
            CoreAction::WorkerReady { generation } => {
                self.launch.programs.accept(generation);
                self.record_ready(generation);
            }
            CoreAction::WorkerLost {
                slot,
                generation,
                fault,
            } => self.record_loss(slot, generation, &fault),
            CoreAction::RolledOut { .. } if is_planted(Defect::RolloutUnreported) => {}
            CoreAction::RolledOut { waiter, done } => self.operators.rolled_out(waiter, done),
            CoreAction::RolloutRefused { waiter, reason } => {
                self.operators.refused(waiter, reason);
            }
        }
    }

    #[cfg(feature = "simulation")]
    fn simulate_check(&mut self, ticket: u64, check: crate::sim::Check) {
        match check {
            crate::sim::Check::Now(verdict) => self.report(CoreEvent::Checked { ticket, verdict }),
            crate::sim::Check::Later(late, verdict) => {
                let events = self.events();
                // The checkers of a host end with it.
                let host = self.upgrade.alive();
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    if host.strong_count() == 0 {
                        return;
                    }
                    let checked = crate::check::Checked {
                        ticket,
                        verdict,
                        tool: None,
                    };
                    let _ = events.send(checked.into()).await;
                });
            }
        }
    }

    fn pack(&self, generation: Generation, work: impl FnOnce(&crate::drivers::WorkerHandle)) {
        let worker = self.workers.get(&generation);
        if let Some(Handle::Pack(worker)) = worker.map(|worker| &worker.handle) {
            work(worker);
        }
    }

    fn forward(
        &mut self,
        generation: Generation,
        call: CallId,
        line: &Json,
        headers: Vec<(String, String)>,
    ) {
        let worker = self.workers.get(&generation);
        if let Some(Handle::Server(server)) = worker.map(|worker| &worker.handle) {
            server.send(line.as_str(), call, headers);
            if server.is_behind() {
                self.unpaced.extend(self.core.client_of(generation));
            }
        }
    }

    fn say(&mut self, generation: Generation, line: &Json, if_room: bool) {
        let worker = self.workers.get(&generation);
        if let Some(Handle::Server(server)) = worker.map(|worker| &worker.handle)
            && !(if_room && server.is_behind())
        {
            server.say(line.as_str());
            if server.is_behind() {
                self.unpaced.extend(self.core.client_of(generation));
            }
        }
    }

    /// Ends a worker that is of no use, and reports it as lost.
    pub(super) fn abandon(&mut self, generation: Generation, fault: Fault) {
        let Some(worker) = self.workers.get(&generation) else {
            return;
        };
        let fault = match &worker.handle {
            Handle::Server(server) => server.with_last_words(fault),
            Handle::Pack(_) => fault,
        };
        let unsent = worker.handle.seal();
        worker.handle.stop(Manner::Terminate);
        self.unpaced.extend(self.core.client_of(generation));
        self.news(generation, WorkerNews::Lost { fault, unsent });
    }

    fn pid(&self, generation: Generation) -> Option<u32> {
        let worker = self.workers.get(&generation)?;
        Some(worker.pid).filter(|pid| *pid != 0)
    }

    fn find_roots(&mut self, question: u64, answer: Json) {
        self.upgrade.lookups += 1;
        let (events, named_only) = (self.events(), self.launch.named_only.clone());
        // A directory of a machine that does not answer must not stop the loop.
        tokio::task::spawn_blocking(move || {
            let found = client_roots::find(&answer, &named_only);
            let _ = events.blocking_send(Event::RootsFound { question, found });
        });
    }

    fn own_tool(&mut self, call: CallId, tool: &str, render: RenderMode) {
        let bounds = self.core.limits().text();
        let reply = if tool == system_tools::HEALTH {
            system_tools::health(&self.health(), render, bounds)
        } else {
            system_tools::telemetry(&self.telemetry(), render, bounds)
        };
        let outcome = Ok(Success::Tool(reply));
        self.report(CoreEvent::Served { call, outcome });
    }

    /// Everything that was counted.
    fn telemetry(&self) -> Telemetry {
        let mut telemetry = self.core.telemetry();
        let envelopes = &self.reports.envelopes;
        telemetry.envelopes = Some(envelopes.checks());
        telemetry.schema_mismatches.extend(envelopes.mismatches());
        let redactor = self.reports.log.redactor();
        show_mismatches(&mut telemetry.schema_mismatches, redactor);
        // Servers choose the names of their tools.
        for method in &mut telemetry.methods {
            method.method = redactor.known(&method.method).into_owned();
        }
        let faults = [&mut telemetry.last_fault, &mut telemetry.last_restart_fault];
        for fault in faults.into_iter().flatten() {
            clean_fault(fault, redactor);
        }
        telemetry
    }

    fn log(&self, level: LogLevel, line: String) {
        let log = &self.reports.log;
        match level {
            LogLevel::Debug => log.say(Level::Debug, line),
            LogLevel::Info => log.say(Level::Info, line),
            LogLevel::Warn => log.say(Level::Warn, line),
            LogLevel::Always => log.line(&line),
        }
    }

    fn record_ready(&self, generation: Generation) {
        if let Some(worker) = self.workers.get(&generation) {
            let name = self.core.name_of(worker.slot);
            let recorder = &self.reports.recorder;
            recorder.worker(Recorded::WorkerReady, name, generation, worker.pid);
        }
    }

    fn record_loss(&mut self, slot: SlotId, generation: Generation, fault: &Fault) {
        let name = self.core.name_of(slot).to_owned();
        let recorder = &self.reports.recorder;
        recorder.worker_lost(&name, generation, fault);
        self.audit_sandbox(&name, self.core.server_of(slot), fault);
        let worker = self.workers.get(&generation);
        if let Some(Handle::Server(server)) = worker.map(|worker| &worker.handle) {
            let words = server.last_words();
            self.news(generation, WorkerNews::Words(words));
        }
    }
}
