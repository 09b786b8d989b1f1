//! Operators: status, metrics, stop, rollout, upgrade, and a configuration that is read again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use mainstay_contract::audit::AuditRecord;
use mainstay_contract::control::{
    CallInFlight, ControlReply, ControlRequest, HostStatus, PendingApproval, RolledOut,
};
use mainstay_contract::envelope::redact::Redactor;
use mainstay_contract::fault::Fault;
use mainstay_contract::health::Health;
use mainstay_contract::id::CallId;
use mainstay_kernel::core::action::CoreEvent;
use serde::{Deserialize, Serialize};

use super::{Engine, Event, Rereading};
use crate::config::{Changed, Found, ReadLock, Server, ServerLaunch};
use crate::control::{Control, Replier};
use crate::telemetry::show_mismatches;
use crate::upgrade::{Incoming, Outgoing, Place};

/// Operators that wait for a rollout or an upgrade.
#[derive(Debug, Default)]
pub(super) struct Operators {
    waiting: BTreeMap<u64, Replier>,
    next: u64,
}

/// [`Operators`], as they are saved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SavedOperators {
    waiting: Vec<(u64, Place)>,
    next: u64,
}

impl Operators {
    /// The connections of those that wait, for a process that continues in this one's place.
    pub(super) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> SavedOperators {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter_map(|(waiter, reply)| match reply {
            Replier::Connection(connection) => Some((*waiter, descriptors.add(connection.as_fd()))),
            Replier::Task(_) => None,
        });
        SavedOperators {
            waiting: waiting.collect(),
            next: self.next,
        }
    }

    pub(super) fn restore(
        &mut self,
        saved: SavedOperators,
        descriptors: &mut Incoming,
    ) -> io::Result<()> {
        self.next = saved.next;
        for (waiter, place) in saved.waiting {
            let connection = descriptors.take(place)?;
            self.waiting.insert(waiter, Replier::Connection(connection));
        }
        Ok(())
    }

    /// Operators of a simulated host have no connection that could be saved.
    #[cfg(feature = "simulation")]
    pub(super) fn take_over(&mut self, before: &mut Self) {
        self.waiting.append(&mut before.waiting);
    }

    /// Refuses everything that is waited for: the host ends.
    pub(super) fn refuse_all(&mut self) {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let reason = "the host is ending".to_owned();
            waiting.send(ControlReply::Refused { reason });
        }
    }

    /// A number without a waiting caller.
    const fn silent(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, reply: Replier) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, reply);
        self.next
    }

    pub(super) fn rolled_out(&mut self, waiter: u64, done: Vec<RolledOut>) {
        self.reply(waiter, ControlReply::RolledOut(done));
    }

    pub(super) fn refused(&mut self, waiter: u64, reason: String) {
        self.reply(waiter, ControlReply::Refused { reason });
    }

    pub(super) fn reply(&mut self, waiter: u64, reply: ControlReply) {
        if let Some(waiting) = self.waiting.remove(&waiter) {
            waiting.send(reply);
        }
    }
}

/// Takes secrets out of a fault, which quotes a server.
pub(super) fn clean_fault(fault: &mut Fault, redactor: &Redactor) {
    let texts = [
        Some(&mut fault.detail),
        fault.said.as_mut(),
        fault.stderr.as_mut(),
    ];
    for text in texts.into_iter().flatten() {
        if let Cow::Owned(clean) = redactor.text(text) {
            *text = clean;
        }
    }
}

impl Engine {
    pub(super) fn control(&mut self, control: Control) {
        let Control {
            request,
            is_same_user,
            reply,
        } = control;
        self.audit_command(&request);
        let answer = match request {
            ControlRequest::Approvals {} => ControlReply::Approvals(self.approvals()),
            ControlRequest::Approve { id, grant } => {
                let now = self.clock.now();
                let answered = self.guarded(|core| core.answer_approval(now, &id, grant, None));
                match answered {
                    Some(Ok(())) => ControlReply::Answered {},
                    Some(Err(error)) => ControlReply::Refused {
                        reason: error.to_string(),
                    },
                    None => ControlReply::Refused {
                        reason: "an internal error".to_owned(),
                    },
                }
            }
            ControlRequest::Calls {} => ControlReply::Calls(self.calls()),
            ControlRequest::CancelCall { call } => {
                let now = self.clock.now();
                match self.guarded(|core| core.cancel_call(now, CallId::new(call))) {
                    Some(true) => ControlReply::Answered {},
                    Some(false) => ControlReply::Refused {
                        reason: "no such call is in flight; it may have ended".to_owned(),
                    },
                    None => ControlReply::Refused {
                        reason: "an internal error".to_owned(),
                    },
                }
            }
            ControlRequest::Share(client) => return self.share(*client, is_same_user, reply),
            ControlRequest::Status {} => ControlReply::Status(Box::new(self.status())),
            ControlRequest::Metrics {} => {
                let mut metrics = self.core.metrics(self.clock.now());
                let redactor = self.reports.log.redactor();
                show_mismatches(&mut metrics.schema_mismatches, redactor);
                let tools = metrics.methods.iter_mut();
                for tool in tools.filter_map(|method| method.tool.as_mut()) {
                    *tool = redactor.known(tool).into_owned();
                }
                ControlReply::Metrics(Box::new(metrics))
            }
            ControlRequest::Stop {} => {
                self.report(CoreEvent::Stop);
                ControlReply::Stopping {}
            }
            ControlRequest::Rollout { pack, reasons } => {
                self.read_lock();
                let waiter = self.operators.add(reply);
                return self.report(CoreEvent::Rollout {
                    waiter,
                    pack,
                    reasons,
                });
            }
            ControlRequest::Upgrade { binary, now } => {
                let waiter = self.operators.add(reply);
                return self.begin_upgrade(Some(waiter), binary.map(Into::into), now);
            }
        };
        reply.send(answer);
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            pid: std::process::id(),
            name: self.facts.name.clone(),
            version: self.facts.version.clone(),
            build: self.upgrade.build().to_owned(),
            mode: self.facts.mode.to_owned(),
            started: self.facts.started.clone(),
            health: self.health(),
            totals: self.core.telemetry().totals,
        }
    }

    /// The calls that wait for an approval, without the secrets that the host knows.
    fn approvals(&self) -> Vec<PendingApproval> {
        let redactor = self.reports.log.redactor();
        let mut all = self.core.approvals();
        for approval in &mut all {
            approval.arguments = redactor.text(&approval.arguments).into_owned();
        }
        all
    }

    /// The tool calls in flight, without the secrets that the host knows: a client may call a tool by any name.
    fn calls(&self) -> Vec<CallInFlight> {
        let redactor = self.reports.log.redactor();
        let mut all = self.core.calls_in_flight(self.clock.now());
        for tool in all.iter_mut().filter_map(|call| call.tool.as_mut()) {
            *tool = redactor.known(tool).into_owned();
        }
        all
    }

    /// Health of the host, without the secrets that it knows: faults quote servers.
    pub(super) fn health(&self) -> Health {
        let mut health = self.core.health(self.clock.now());
        let redactor = self.reports.log.redactor();
        for fault in health.faults_mut() {
            clean_fault(fault, redactor);
        }
        // What packs and servers say about themselves.
        for facts in health
            .workers
            .iter_mut()
            .filter_map(|worker| worker.facts.as_mut())
        {
            *facts = redactor.json(facts);
        }
        health
    }

    /// Reads the lock again. A lock that cannot be read changes nothing.
    fn read_lock(&mut self) {
        match self.facts.read_lock.as_ref().map(ReadLock::read) {
            None => {}
            Some(Ok(locked)) => self.report(CoreEvent::Lock(Arc::new(locked))),
            Some(Err(why)) => {
                let why = why.replace('\n', " ");
                let log = &self.reports.log;
                log.line(&format!("mcp:error reason=lock_refused {why}"));
            }
        }
    }

    /// Reads the configuration again. A file that cannot be read changes nothing.
    pub(super) fn reread(&mut self) {
        self.read_lock();
        let Some(reread) = self.facts.reread.clone() else {
            return;
        };
        if self.facts.rereading != Rereading::No {
            self.facts.rereading = Rereading::Again;
            return;
        }
        self.facts.rereading = Rereading::Once;
        self.upgrade.lookups += 1;
        // Commands that print secrets may take long.
        let events = self.events();
        tokio::task::spawn_blocking(move || {
            let found = reread.read().map(Box::new);
            let _ = events.blocking_send(Event::Found(found));
        });
    }

    /// Applies a configuration that was read again.
    pub(super) fn apply_found(&mut self, found: Result<Box<Found>, String>) {
        self.upgrade.lookups -= 1;
        let is_old = std::mem::take(&mut self.facts.rereading) == Rereading::Again;
        if is_old {
            return self.reread();
        }
        let log = &self.reports.log;
        let found = match found {
            Ok(found) => *found,
            Err(why) => {
                let why = why.replace('\n', " ");
                return log.line(&format!("mcp:error reason=config_refused {why}"));
            }
        };
        log.redactor().learn(found.secrets);
        for what in &found.later {
            log.line(&format!("mcp:warning reason=needs_restart what={what}"));
        }
        log.line(&format!("mcp:config reread name={}", self.facts.name));
        self.reports
            .audit
            .record(AuditRecord::operator("reload", None));
        match found.changed {
            Changed::Wrapped { rules, launch } => {
                self.report(CoreEvent::Rules(rules));
                if let Some(launch) = launch {
                    self.change_wrapped(*launch);
                }
            }
            Changed::Served {
                settings,
                servers,
                approvals,
            } => {
                self.report(CoreEvent::Settings(settings));
                self.report(CoreEvent::Policy(approvals));
                self.change_servers(&servers);
            }
        }
    }

    /// Starts the wrapped server with other secrets from now on.
    fn change_wrapped(&mut self, launch: ServerLaunch) {
        let servers = &mut self.launch.commands.servers;
        let changed = servers.iter_mut().find(|(_, before)| **before != launch);
        let Some((name, before)) = changed else {
            return;
        };
        let (files, log) = (&mut self.facts.remembered, &self.reports.log);
        files.open(name, &launch, log);
        log.line(&format!("mcp:config changed server={name}"));
        *before = launch;
        let waiter = self.operators.silent();
        self.report(CoreEvent::Rollout {
            waiter,
            pack: None,
            reasons: Vec::new(),
        });
    }

    /// Applies changed servers. One with another command is rolled out; the others go on.
    fn change_servers(&mut self, servers: &[Server]) {
        let commands = &mut self.launch.commands.servers;
        let (mut restart, mut configs) = (Vec::new(), Vec::new());
        for server in servers {
            let (name, launch) = (server.name.clone(), server.launch.clone());
            let mut config = server.config(&self.facts.version);
            // Commands of removed servers stay: their last processes may be starting.
            let before = commands.insert(name.clone(), launch.clone());
            if before.as_ref() != Some(&launch) {
                let (files, log) = (&mut self.facts.remembered, &self.reports.log);
                config.memory = files.open(&name, &launch, log);
            }
            if before.is_some_and(|before| before != launch) {
                restart.push(name);
            }
            configs.push(config);
        }
        let servers = configs;
        self.report(CoreEvent::Servers { servers, restart });
    }
}
