//! Records for the audit file: those of the core, and those of operators.

use mainstay_contract::audit::{AuditEvent, AuditRecord};
use mainstay_contract::control::ControlRequest;
use mainstay_contract::fault::Fault;
use mainstay_kernel::core::action::CoreEvent;

use super::Engine;
use crate::config::ServerLaunch;
use crate::shim::{NOT_STARTED, UNCONFINED};

impl Engine {
    /// Appends a record of the core.
    pub(super) fn audit(&mut self, ticket: Option<u64>, record: AuditRecord) {
        let audit = &self.reports.audit;
        let Some(ticket) = ticket else {
            return audit.record(record);
        };
        match audit.record_first(record, ticket, self.events()) {
            Ok(()) => self.unrecorded += 1,
            Err(why) => {
                let written = Err(why);
                self.report(CoreEvent::Audited { ticket, written });
            }
        }
    }

    /// A record is on the disk, or could not be written.
    pub(super) fn audited(&mut self, ticket: u64, written: Result<(), String>) {
        self.unrecorded = self.unrecorded.saturating_sub(1);
        self.report(CoreEvent::Audited { ticket, written });
    }

    /// Records what an operator asks for. Answers to approvals have records of their own.
    pub(super) fn audit_command(&self, request: &ControlRequest) {
        let (command, detail) = match request {
            ControlRequest::Stop {} => ("stop", None),
            ControlRequest::Rollout { pack, reasons } => {
                let pack = pack.as_deref().unwrap_or("every pack");
                let reasons = reasons.join("; ");
                (
                    "rollout",
                    Some(format!("{pack} {reasons}").trim().to_owned()),
                )
            }
            ControlRequest::Upgrade { binary, now } => {
                let binary = binary.as_deref().unwrap_or("the same path");
                ("upgrade", Some(format!("{binary} now={now}")))
            }
            ControlRequest::CancelCall { call } => ("cancel", Some(format!("call {call}"))),
            ControlRequest::Share(client) => ("share", Some(client.server.name.clone())),
            ControlRequest::Status {}
            | ControlRequest::Metrics {}
            | ControlRequest::Approvals {}
            | ControlRequest::Calls {}
            | ControlRequest::Approve { .. } => return,
        };
        self.reports
            .audit
            .record(AuditRecord::operator(command, detail));
    }

    /// Records a server that its sandbox did not let start.
    pub(super) fn audit_sandbox(&self, server: &str, key: Option<&str>, fault: &Fault) {
        let commands = &self.launch.commands;
        let of_server = key.and_then(|key| commands.servers.get(key));
        let has_sandbox = match of_server {
            Some(ServerLaunch::Process { command, .. }) => command.sandbox.is_some(),
            Some(ServerLaunch::Remote(_)) => false,
            None => commands
                .packs
                .iter()
                .any(|pack| pack.command.sandbox.is_some()),
        };
        let refused = format!("code {UNCONFINED}");
        // A shim that starts no sandboxed worker could not set up its namespaces.
        let is_refused = fault.detail.contains(&refused) || fault.detail.contains(NOT_STARTED);
        if has_sandbox && is_refused {
            let words = fault.stderr.as_deref().unwrap_or(&fault.detail);
            self.reports.audit.record(AuditRecord {
                server: Some(server.to_owned()),
                detail: Some(words.trim().to_owned()),
                ..AuditRecord::new(AuditEvent::SandboxRefused)
            });
        }
    }
}
