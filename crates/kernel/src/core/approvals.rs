//! Answers of people to calls that wait for an approval, and the end of the wait.

use mainstay_contract::audit::{AuditEvent, AuditRecord};
use mainstay_contract::control::PendingApproval;
use mainstay_contract::dialect::{ApprovalOp, Relayed, encode, relay};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::method::Method;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_contract::wall;
use serde_json::json;

use super::Core;
use super::action::CoreAction;
use super::gate::name_of;
use crate::approvals::policy::version;
use crate::approvals::question::{self, Answered};
use crate::approvals::{AnswerError, Approval, Policy};
use crate::time::Time;

impl Core {
    /// The calls that wait for an approval, the oldest first.
    pub fn approvals(&self) -> Vec<PendingApproval> {
        let shown = |(id, approval): (&str, &Approval)| PendingApproval {
            id: id.to_owned(),
            who: approval.who.clone(),
            server: approval.bond.server.clone(),
            tool: approval.bond.tool.clone(),
            arguments: approval.arguments.clone(),
            digest: approval.bond.arguments.clone(),
            rule: approval.rule.clone(),
            asked: self.iso(approval.asked),
            expires: self.iso(approval.expires),
            granted: approval.granted.is_some(),
        };
        self.gates.approvals.all().into_iter().map(shown).collect()
    }

    fn iso(&self, at: Time) -> String {
        wall::iso(super::wall_ms(self.clock.epoch_ms, at))
    }

    /// An operator or a credential answers. `by` is the caller; `None` is the user of the host at a command line.
    pub fn answer_approval(
        &mut self,
        now: Time,
        id: &str,
        grant: bool,
        by: Option<&str>,
    ) -> Result<(), AnswerError> {
        self.clock.now = now;
        let name = by.unwrap_or("operator").to_owned();
        match self.gates.approvals.answer(now, id, grant, by) {
            Ok(approval) => {
                self.note_answer(id, &approval, grant, &name);
                self.withdraw_question(&approval);
                self.finish_answer(id, &approval, grant, &name);
                Ok(())
            }
            Err(error) => {
                self.note_refused(id, &name, &error.to_string());
                Err(error)
            }
        }
    }

    fn finish_answer(&mut self, id: &str, approval: &Approval, grant: bool, by: &str) {
        match (approval.call, grant) {
            (Some(call), true) => self.approved(call, id, by),
            (Some(call), false) => self.close(call, Problem::of(ErrorKind::ApprovalDenied)),
            // Its client repeats the call, or does not.
            (None, _) => {}
        }
    }

    /// The answer of a client to the question about a call. False if the line is another one.
    pub(super) fn approval_answer(&mut self, session: SessionId, line: &[u8]) -> bool {
        let Ok(Relayed::Answer { id, result, .. }) = relay(line, self.kernel.limits().json_depth)
        else {
            return false;
        };
        let Some(name) = self.gates.approvals.of_question(session, &id) else {
            return false;
        };
        let grant = match question::answered(result) {
            Answered::Unasked => {
                self.gates.approvals.clear_question(&name);
                self.log(format!(
                    "mcp:warning reason=approval_unasked id={name} the client cannot ask its user; mainstay approve answers"
                ));
                return true;
            }
            Answered::Grant => true,
            Answered::Deny => false,
        };
        // An answer that comes too late counts as none.
        let now = self.clock.now;
        let is_open = |approval: &Approval| now < approval.expires;
        if self.gates.approvals.get(&name).is_some_and(is_open)
            && let Some(approval) = self.gates.approvals.take(&name)
        {
            self.note_answer(&name, &approval, grant, "client");
            self.finish_answer(&name, &approval, grant, "client");
        }
        true
    }

    /// A request of REST.
    pub(super) fn approval_op(&mut self, call: CallId, op: &ApprovalOp) -> Outcome {
        match op {
            ApprovalOp::List {} => {
                let all = ObjectWriter::with_capacity(256).value("approvals", &self.approvals());
                Ok(Success::Members(Json::from_scanned(&all.finish())))
            }
            ApprovalOp::Answer { id, grant } => {
                let by = name_of(&self.owner_of(call));
                let now = self.clock.now;
                let answered = self.answer_approval(now, id, *grant, Some(&by));
                answered.map_err(|error| {
                    let kind = match error {
                        AnswerError::Unknown => ErrorKind::NotFound,
                        AnswerError::OwnCall | AnswerError::Granted => ErrorKind::Forbidden,
                    };
                    Problem::new(kind, error.to_string())
                })?;
                let done = json!({ "id": id, "granted": grant });
                Ok(Success::Members(Json::from(done)))
            }
        }
    }

    /// Records an answer that counts.
    pub(super) fn note_answer(&mut self, id: &str, approval: &Approval, grant: bool, by: &str) {
        let (event, word) = match grant {
            true => (AuditEvent::Granted, "granted"),
            false => (AuditEvent::Denied, "denied"),
        };
        self.log(format!("mcp:approval {word} id={id} by={by}"));
        let record = AuditRecord {
            by: Some(by.to_owned()),
            ..of_approval(event, id, approval)
        };
        self.record(record);
    }

    /// Records an answer, or the use of one, that is not accepted.
    pub(super) fn note_refused(&mut self, id: &str, by: &str, why: &str) {
        let id: String = id.chars().take(32).collect();
        let id = mainstay_contract::render::visible(&id).into_owned();
        self.log(format!(
            "mcp:warning reason=approval_refused id={id} by={by} {why}"
        ));
        let record = AuditRecord {
            approval: Some(id),
            by: Some(by.to_owned()),
            detail: Some(why.to_owned()),
            ..AuditRecord::new(AuditEvent::Refused)
        };
        self.record(record);
    }

    /// The time for an answer passed, or no answer can count any more.
    pub(super) fn expired(&mut self, id: &str, approval: &Approval, why: &str) {
        self.log(format!("mcp:approval expired id={id} {why}"));
        let record = AuditRecord {
            detail: Some(why.to_owned()),
            ..of_approval(AuditEvent::Expired, id, approval)
        };
        self.record(record);
        self.withdraw_question(approval);
        if let Some(call) = approval.call {
            let said = format!("the call needs an approval and got none: {why}");
            let mut problem = Problem::new(ErrorKind::ApprovalExpired, said);
            problem.timeout_ms = Some(approval.expires.ms_since(approval.asked));
            self.close(call, problem);
        }
    }

    /// A call ended that waited for an approval.
    pub(super) fn drop_approval(&mut self, call: CallId) {
        let Some(id) = self.gates.approvals.of_call(call).map(str::to_owned) else {
            return;
        };
        if let Some(approval) = self.gates.approvals.take(&id) {
            self.log(format!(
                "mcp:approval dropped id={id} the call was given up"
            ));
            self.record(of_approval(AuditEvent::Dropped, &id, &approval));
            self.withdraw_question(&approval);
        }
    }

    /// The client need not ask its user any more.
    fn withdraw_question(&mut self, approval: &Approval) {
        let Some((session, question)) = &approval.question else {
            return;
        };
        if !self.sessions.contains_key(session) {
            return;
        }
        let params = ObjectWriter::with_capacity(96)
            .raw("requestId", question.as_raw())
            .string(
                "reason",
                "the call was decided about elsewhere, or has ended",
            );
        let line = encode::notification(Method::Cancelled, Some(&params.finish()));
        let session = *session;
        self.out.push_back(CoreAction::Tell { session, line });
    }

    /// The rules changed: what was asked about under others must be asked about again.
    pub(super) fn recheck_approvals(&mut self) {
        let host = self.gates.policy.clone();
        let own: std::collections::BTreeMap<String, Policy> = self
            .links
            .configs()
            .map(|server| (server.name.clone(), server.rules.approvals.clone()))
            .collect();
        let is_old = |approval: &Approval| {
            let own = own.get(&approval.bond.server);
            approval.bond.policy != version(own, &host)
        };
        for (id, approval) in self.gates.approvals.remove(is_old) {
            self.expired(&id, &approval, "the rules changed while it waited");
        }
    }

    /// The operator changed the rules of the host.
    pub(super) fn apply_policy(&mut self, policy: Policy) {
        if self.gates.policy != policy {
            self.gates.policy = policy;
            self.recheck_approvals();
        }
    }
}

fn of_approval(event: AuditEvent, id: &str, approval: &Approval) -> AuditRecord {
    AuditRecord {
        who: Some(approval.who.clone()),
        call: approval.call.map(|call| call.get()),
        server: Some(approval.bond.server.clone()),
        tool: Some(approval.bond.tool.clone()),
        arguments: Some(approval.bond.arguments.clone()),
        policy: Some(approval.bond.policy.clone()),
        rule: Some(approval.rule.clone()),
        approval: Some(id.to_owned()),
        ..AuditRecord::new(event)
    }
}
