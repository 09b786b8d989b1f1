//! The gate: every tool call passes it after its arguments were checked and before a worker gets it.
//!
//! Theory of operation. A link or a pack's route puts a call into the line ([`Gates::ask`]); the core judges it by the rules
//! ([`crate::approvals`]). A call that is asked about waits without a deadline of its own and without a worker. Where the
//! host keeps an audit file, the decision about a call with effects is on the disk before the call goes on, and the
//! record of its end before its end is processed at all: the end is *parked* meanwhile, and what follows from it.
//! A host without rules and without an audit file puts no call into the line.
//!
//! The answers of people are in [`super::approvals`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mainstay_contract::audit::{AuditEvent, AuditRecord, AuditVerdict};
use mainstay_contract::dialect::{Dialect, declares_forms};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::meta;
use mainstay_contract::outcome::{Forwarded, Problem, Success};
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};

use super::Core;
use super::action::CoreAction;
use super::sessions::Front;
use super::tasks::TaskOwner;
use crate::action::{Delivery, End};
use crate::approvals::exact;
use crate::approvals::policy::{CallFacts, Hint, Hints, Judgement, judge, readable, version};
use crate::approvals::question::{self, Answered};
use crate::approvals::{Approval, Approvals, Bond, Claim, PREFIX, Policy, Ruling};
use crate::call::{SlotId, Work};
use crate::log_limit::{LogLimit, suppressed};
use crate::server::{Rules, edit};
use crate::time::Time;

/// Characters of a credential's digest in names: 128 bits.
const DIGEST_CHARS: usize = 32;
/// Bytes of the answers to a server that are kept while a person is asked.
const CARRIED: usize = 256 * 1024;
/// How long an end waits for its record to be on the disk, in milliseconds.
const AUDIT_MS: u64 = 10_000;

/// The calls at the gate, and what is known of them until they end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gates {
    /// The rules of the host for all servers and packs.
    pub(super) policy: Policy,
    /// The host keeps an audit file.
    pub(super) audits: bool,
    /// Calls that must be judged.
    line: VecDeque<Box<GateCall>>,
    passages: BTreeMap<CallId, Box<Passage>>,
    pub(super) approvals: Approvals,
    /// Clients of the legacy era that can ask their users with a form.
    pub(super) elicits: BTreeSet<SessionId>,
    tickets: BTreeMap<u64, Ticket>,
    next_ticket: u64,
    /// Sessions whose last request is parked.
    over: BTreeSet<SessionId>,
    /// For the warning that the audit file cannot be written.
    warning: LogLimit,
}

/// A call at the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GateCall {
    pub(crate) call: CallId,
    /// The link of a wrapped server; none for a pack.
    pub(crate) slot: Option<SlotId>,
    /// The server or the pack, in rules.
    pub(crate) server: String,
    /// The tool, as its server has it.
    pub(crate) tool: String,
    pub(crate) hints: Hints,
    /// The annotations are believed.
    pub(crate) trusted: bool,
    /// The rules of the server.
    pub(crate) rules: Option<Arc<Rules>>,
    pub(crate) arguments: Json,
    pub(crate) dialect: Dialect,
    pub(crate) round: Round,
}

/// The members about questions in a request of the modern era.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// It can ask its user with a form.
    elicits: bool,
    /// The approval that the request repeats a call for.
    approval: Option<String>,
    /// The user's answer.
    answer: Option<Json>,
    /// The members that continue a call of the server, which asked for input.
    #[serde(default)]
    carried: Option<Json>,
}

impl Round {
    /// Reads the parameters of a request.
    pub(crate) fn of(dialect: Dialect, params: &str, meta: Option<&str>) -> Self {
        if dialect != Dialect::Modern {
            return Self::default();
        }
        let meta = meta.filter(|meta| meta.starts_with('{'));
        let declared = meta.and_then(|meta| scan::member(meta, meta::CLIENT_CAPABILITIES));
        let state = scan::member(params, "requestState").and_then(scan::unquote);
        let approval = state.as_deref();
        let approval = approval.and_then(|state| state.strip_prefix(PREFIX).map(str::to_owned));
        let answers = scan::member(params, "inputResponses");
        let answer = answers
            .filter(|answers| answers.starts_with('{') && approval.is_some())
            .and_then(|answers| scan::member(answers, question::QUESTION));
        let is_round = approval.is_none() && (state.is_some() || answers.is_some());
        let carried = is_round.then(|| edit::filtered(params, is_of_round));
        Self {
            elicits: declared.is_some_and(declares_forms),
            answer: answer.map(Json::from_scanned),
            carried: carried.map(|carried| Json::from_scanned(&carried)),
            approval,
        }
    }

    /// The parameters for the server, if they are others than the client's: the server knows nothing of the question
    /// that the host asked, and must get what continues its own.
    pub(crate) fn params_for_server(&self, params: &str) -> Option<String> {
        self.approval.as_ref()?;
        let mut own = edit::filtered(params, |name| !is_of_round(name));
        let carried = self.carried.as_ref().map_or("{}", Json::as_str);
        for (name, value) in scan::members(carried) {
            own = edit::with_member(&own, &name, value);
        }
        Some(own)
    }
}

/// True for the members with which a client repeats a call.
fn is_of_round(name: &str) -> bool {
    matches!(name, "requestState" | "inputResponses")
}

/// A call that has been at the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Passage {
    call: GateCall,
    session: SessionId,
    who: TaskOwner,
    digest: String,
    effects: bool,
    ruling: Judgement,
    policy: String,
    /// The approval under which it runs, and the one who gave it.
    pub(super) approved: Option<(String, String)>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Judged,
    /// A person is asked.
    Asked,
    /// Its decision is being recorded.
    Recording,
    /// It may run.
    Open,
    Closed,
}

/// The step that waits for a record to be on the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ticket {
    Decision(CallId),
    End(Time, Box<End>),
}

impl Gates {
    pub(super) fn new(policy: Policy, secret: String, audits: bool) -> Self {
        Self {
            policy,
            audits,
            approvals: Approvals::new(secret),
            ..Self::default()
        }
    }

    /// True if calls of a server with these rules must pass the gate.
    pub(crate) fn concerns(&self, rules: Option<&Rules>) -> bool {
        self.audits
            || !self.policy.is_open()
            || rules.is_some_and(|rules| !rules.approvals.is_open())
    }

    /// Puts a call into the line.
    pub(crate) fn ask(&mut self, call: GateCall) {
        self.line.push_back(Box::new(call));
    }

    /// True if the present annotations of a tool still let a call run that passed the gate under others.
    pub(crate) fn still_passes(&self, call: CallId, hints: Hints) -> bool {
        let Some(passage) = self.passages.get(&call) else {
            return true;
        };
        if passage.call.hints == hints {
            return true;
        }
        let now = GateCall {
            hints,
            ..passage.call.clone()
        };
        match now.judge(&self.policy).ruling {
            Ruling::Allow => true,
            Ruling::Ask => passage.approved.is_some() || passage.ruling.ruling == Ruling::Ask,
            Ruling::Deny => false,
        }
    }

    /// A client opened a session; it can ask its user with a form, or not.
    pub(crate) fn set_elicits(&mut self, session: SessionId, elicits: bool) {
        match elicits {
            true => self.elicits.insert(session),
            false => self.elicits.remove(&session),
        };
    }

    /// The record of something that a lock withdraws, if the host keeps an audit file.
    pub(crate) fn withdrawal(&self, server: &str, line: &str) -> Option<CoreAction> {
        let why = line.strip_prefix("mcp:warning ").unwrap_or(line);
        let record = AuditRecord {
            server: Some(server.to_owned()),
            detail: Some(why.to_owned()),
            ..AuditRecord::new(AuditEvent::Withdrawn)
        };
        let (ticket, record) = (None, Box::new(record));
        self.audits.then_some(CoreAction::Audit { ticket, record })
    }

    /// True if no end waits for its record.
    pub(super) fn is_settled(&self) -> bool {
        self.parked().next().is_none()
    }

    /// True if no end of a session waits for its record.
    pub(super) fn is_settled_for(&self, session: SessionId) -> bool {
        self.parked().all(|(_, end)| end.session != session)
    }

    fn parked(&self) -> impl Iterator<Item = (Time, &End)> {
        self.tickets.values().filter_map(|ticket| match ticket {
            Ticket::End(until, end) => Some((*until, &**end)),
            Ticket::Decision(_) => None,
        })
    }

    /// When [`Core::gates_due`] must be called.
    pub(super) fn timeout(&self) -> Option<Time> {
        let parked = self.parked().map(|(until, _)| until);
        parked.chain(self.approvals.timeout()).min()
    }
}

impl GateCall {
    fn judge(&self, host: &Policy) -> Judgement {
        let arguments = readable(&self.arguments);
        let own = self.rules.as_ref().map(|rules| &rules.approvals);
        let facts = CallFacts {
            server: &self.server,
            tool: &self.tool,
            hints: self.hints,
            arguments: arguments.as_ref(),
        };
        judge(own, host, &facts, self.trusted)
    }
}

impl Passage {
    fn record(&self, event: AuditEvent) -> AuditRecord {
        AuditRecord {
            who: Some(name_of(&self.who)),
            session: Some(self.session.get()),
            call: Some(self.call.call.get()),
            server: Some(self.call.server.clone()),
            tool: Some(self.call.tool.clone()),
            arguments: Some(self.digest.clone()),
            effects: Some(self.effects),
            approval: self.approved.as_ref().map(|(id, _)| id.clone()),
            by: self.approved.as_ref().map(|(_, by)| by.clone()),
            ..AuditRecord::new(event)
        }
    }

    fn decision(&self, verdict: AuditVerdict) -> AuditRecord {
        AuditRecord {
            verdict: Some(verdict),
            rule: Some(self.ruling.rule.clone()),
            policy: Some(self.policy.clone()),
            ..self.record(AuditEvent::Decision)
        }
    }
}

/// A caller in rules, listings and records.
pub(in crate::core) fn name_of(owner: &TaskOwner) -> String {
    match owner {
        TaskOwner::User => "user".to_owned(),
        TaskOwner::Peer(uid) => format!("uid:{uid}"),
        // A digest behind the word token would look like a secret to the redaction of logs.
        TaskOwner::Credential(caller) => {
            let digest = caller
                .split_once(':')
                .map_or(caller.as_str(), |(_, digest)| digest);
            format!(
                "caller:{}",
                digest.chars().take(DIGEST_CHARS).collect::<String>()
            )
        }
        TaskOwner::Holder => "anonymous".to_owned(),
    }
}

impl Core {
    /// Judges the next call in the line. False if there is none.
    pub(super) fn judge_next(&mut self) -> bool {
        let Some(call) = self.gates.line.pop_front() else {
            return false;
        };
        self.judge_call(*call);
        true
    }

    fn judge_call(&mut self, call: GateCall) {
        let id = call.call;
        let Some(session) = self.kernel.session_of(id) else {
            return;
        };
        let run = self.task_of_session(session);
        let who = match &run {
            Some((_, owner, _)) => owner.clone(),
            None => self.owner_of(id),
        };
        let approved = self.gates.passages.remove(&id);
        let approved = approved.and_then(|passage| passage.approved);
        let ruling = match &run {
            // It was judged before it was recorded.
            Some((task, _, false)) => Judgement {
                ruling: Ruling::Allow,
                rule: format!("task {task}"),
            },
            _ => call.judge(&self.gates.policy),
        };
        let own = call.rules.as_ref().map(|rules| &rules.approvals);
        let passage = Passage {
            session,
            who,
            digest: exact::digest(&call.arguments),
            effects: !(call.trusted && call.hints.holds(Hint::ReadOnly)),
            policy: version(own, &self.gates.policy),
            ruling,
            approved,
            stage: Stage::Judged,
            call,
        };
        let ruling = passage.ruling.ruling;
        let is_approved = passage.approved.is_some();
        self.gates.passages.insert(id, Box::new(passage));
        match ruling {
            Ruling::Deny => {
                let tool = self.passage_tool(id);
                let said = format!("the operator's rules do not permit this call of {tool}");
                let problem = Problem::new(ErrorKind::Forbidden, said)
                    .with_hint("change the arguments, or ask the operator of this host");
                self.close(id, problem);
            }
            Ruling::Ask if !is_approved => self.ask_person(id),
            Ruling::Ask | Ruling::Allow => self.decided(id),
        }
    }

    fn passage_tool(&self, call: CallId) -> String {
        let passage = self.gates.passages.get(&call);
        passage.map_or_else(String::new, |passage| passage.call.tool.clone())
    }

    /// A call must be approved. A repeated call may be already.
    fn ask_person(&mut self, call: CallId) {
        let Some(passage) = self.gates.passages.get(&call) else {
            return;
        };
        if readable(&passage.call.arguments).is_none() {
            let said = "the arguments have a member twice or a number that is out of range, so a person cannot approve them";
            let problem = Problem::new(ErrorKind::InvalidArguments, said);
            return self.close(call, problem);
        }
        let bond = self.bond(passage);
        let round = passage.call.round.clone();
        if let Some(id) = &round.approval {
            return self.repeat(call, id, &bond, round.answer.as_ref());
        }
        let now = self.clock.now;
        let wait_ms = self.kernel.limits().approval_ms;
        let is_repeated = round.elicits && passage.call.dialect == Dialect::Modern;
        let arguments = exact::exact_text(&passage.call.arguments);
        let approval = Approval {
            who: name_of(&passage.who),
            arguments: question::listed(&arguments),
            rule: passage.ruling.rule.clone(),
            asked: now,
            expires: now.plus_ms(wait_ms),
            call: (!is_repeated).then_some(call),
            question: None,
            granted: None,
            carried: round.carried.filter(|_| is_repeated),
            bond,
        };
        if approval
            .carried
            .as_ref()
            .is_some_and(|carried| carried.len() > CARRIED)
        {
            let said = format!(
                "the answers to the server are longer than {CARRIED} bytes and cannot be kept while a person is asked"
            );
            return self.close(call, Problem::new(ErrorKind::InvalidArguments, said));
        }
        let most = self.kernel.limits().approvals;
        let shown = question::params(&approval.bond, &arguments, wait_ms);
        let (session, dialect) = (passage.session, passage.call.dialect);
        let mut record = passage.record(AuditEvent::Asked);
        record.rule = Some(approval.rule.clone());
        let (who, server, tool) = (
            approval.who.clone(),
            passage.call.server.clone(),
            approval.bond.tool.clone(),
        );
        let Ok(id) = self.gates.approvals.add(approval, most) else {
            let said = "too many calls wait for an approval; this one was not started";
            return self.close(call, Problem::new(ErrorKind::Overloaded, said));
        };
        let tool = mainstay_contract::render::visible(&tool).into_owned();
        self.log(format!(
            "mcp:approval asked id={id} server={server} tool={tool} who={who}"
        ));
        record.approval = Some(id.clone());
        self.record(record);
        self.kernel.stop_clock(call);
        if let Some(passage) = self.gates.passages.get_mut(&call) {
            passage.stage = Stage::Asked;
        }
        if is_repeated {
            let result = question::input_required(&format!("{PREFIX}{id}"), &shown);
            return self.end_with(call, &result);
        }
        let has_line = matches!(
            self.sessions.get(&session),
            Some(Front::Packs { .. } | Front::Link(_))
        );
        if dialect == Dialect::Legacy && has_line && self.gates.elicits.contains(&session) {
            let name = format!("{PREFIX}{id}");
            let line = question::line(&name, &shown);
            let asked = RequestId::from_text(&name);
            self.gates.approvals.set_question(&id, session, asked);
            self.out.push_back(CoreAction::Tell { session, line });
        }
    }

    /// Ends a call with a result of the host in the form of its server's.
    fn end_with(&mut self, call: CallId, result: &Json) {
        let Some((_, id)) = self.kernel.request_of(call) else {
            return;
        };
        let line = crate::server::response(id, result.as_str());
        let is_error = false;
        let success = Success::Forwarded(Forwarded { line, is_error });
        let tool = self.passage_tool(call);
        self.kernel
            .end_routing(self.clock.now, call, Some(tool), Ok(success));
    }

    /// A client repeats a call that it was told to ask its user about.
    fn repeat(&mut self, call: CallId, id: &str, bond: &Bond, answer: Option<&Json>) {
        let asked = self.gates.approvals.get(id);
        let carried = asked.and_then(|approval| approval.carried.clone());
        let claim = self.gates.approvals.claim(self.clock.now, id, bond);
        let answer = answer.map(|answer| question::answered(Some(answer.as_str())));
        let (by, is_granted) = match (claim, answer) {
            (Claim::Refused(why), _) => {
                self.note_refused(id, &name_of_bond(bond), why);
                let said = format!("the call is not approved: {why}");
                let problem = Problem::new(ErrorKind::ApprovalExpired, said)
                    .with_hint("repeat the call without requestState, which asks again");
                return self.close(call, problem);
            }
            (Claim::Run { by }, answer) => (by, answer != Some(Answered::Deny)),
            (Claim::Open, Some(Answered::Grant)) => ("client".to_owned(), true),
            (Claim::Open, _) => ("client".to_owned(), false),
        };
        let approval = self.gates.approvals.take(id);
        if let Some(approval) = approval {
            self.note_answer(id, &approval, is_granted, &by);
        }
        if !is_granted {
            return self.close(call, Problem::of(ErrorKind::ApprovalDenied));
        }
        if let Some(passage) = self.gates.passages.get_mut(&call) {
            passage.approved = Some((id.to_owned(), by));
            passage.call.round.carried = carried;
        }
        self.decided(call);
    }

    fn bond(&self, passage: &Passage) -> Bond {
        let who = name_of(&passage.who);
        Bond {
            // Credentials over HTTP have no session in the modern era; others have one each.
            caller: match passage.who {
                TaskOwner::User | TaskOwner::Peer(_) => {
                    format!("{who} session {}", passage.session)
                }
                TaskOwner::Credential(_) | TaskOwner::Holder => who,
            },
            server: passage.call.server.clone(),
            tool: passage.call.tool.clone(),
            arguments: passage.digest.clone(),
            policy: passage.policy.clone(),
        }
    }

    /// A person granted the call that waits.
    pub(super) fn approved(&mut self, call: CallId, id: &str, by: &str) {
        let Some(passage) = self.gates.passages.get_mut(&call) else {
            return;
        };
        passage.approved = Some((id.to_owned(), by.to_owned()));
        match passage.call.slot {
            // Its server may have changed meanwhile: the call is looked at again, from its tool on.
            Some(slot) => {
                self.with_link(slot, |link, cx| link.decide(cx, call));
            }
            None => self.decided(call),
        }
    }

    /// A call may run, once that is recorded.
    fn decided(&mut self, call: CallId) {
        let Some(passage) = self.gates.passages.get_mut(&call) else {
            return;
        };
        let verdict = match passage.ruling.ruling {
            Ruling::Ask => AuditVerdict::Ask,
            _ => AuditVerdict::Allow,
        };
        let record = passage.decision(verdict);
        let waits = self.gates.audits && passage.effects;
        passage.stage = match waits {
            true => Stage::Recording,
            false => Stage::Open,
        };
        if waits {
            return self.record_first(record, Ticket::Decision(call));
        }
        self.record(record);
        self.let_through(call, None);
    }

    /// A call must not run.
    pub(super) fn close(&mut self, call: CallId, problem: Problem) {
        let Some(passage) = self.gates.passages.get_mut(&call) else {
            return;
        };
        passage.stage = Stage::Closed;
        let record = AuditRecord {
            outcome: Some(problem.kind.row().name.to_owned()),
            ..passage.decision(AuditVerdict::Deny)
        };
        self.record(record);
        self.let_through(call, Some(problem));
    }

    /// Sends a call on its way, or refuses it.
    fn let_through(&mut self, call: CallId, problem: Option<Problem>) {
        let Some(passage) = self.gates.passages.get(&call) else {
            return;
        };
        if let Some(slot) = passage.call.slot {
            let round = passage.call.round.clone();
            self.with_link(slot, |link, cx| {
                link.leave_gate(cx, call, problem, &round);
            });
            return;
        }
        let tool = passage.call.tool.clone();
        let held = self.requests.get_mut(&call);
        let held = held.and_then(|pending| pending.held.take());
        let work = match (problem, held) {
            (Some(problem), _) => Work::Refused(problem),
            (None, Some(work)) => self.as_task(call, &tool, *work),
            (None, None) => return,
        };
        self.kernel
            .handle_routed(self.clock.now, call, Some(tool), work);
    }

    /// Puts a call of a pack into the line. Returns the work if it need not wait.
    pub(super) fn gate_pack(&mut self, call: CallId, tool: &str, work: Work) -> Option<Work> {
        let Work::Worker(task) = &work else {
            return Some(work);
        };
        if !self.gates.concerns(None) {
            return Some(work);
        }
        let Some(pending) = self.requests.get_mut(&call) else {
            return Some(work);
        };
        let arguments = match &task.op {
            mainstay_contract::rpc::Op::Tool { arguments, .. } => arguments.clone(),
            _ => return Some(work),
        };
        let server = self.catalog.pack_name(task.slot).to_owned();
        let round = pending.round.as_deref().cloned();
        let dialect = pending.dialect;
        pending.held = Some(Box::new(work));
        self.gates.ask(GateCall {
            call,
            slot: None,
            server,
            tool: tool.to_owned(),
            hints: self.catalog.hints_of(tool),
            trusted: true,
            rules: None,
            arguments,
            dialect,
            round: round.unwrap_or_default(),
        });
        None
    }

    /// Writes a record, if the host keeps an audit file.
    pub(super) fn record(&mut self, record: AuditRecord) {
        if self.gates.audits {
            let (ticket, record) = (None, Box::new(record));
            self.out.push_back(CoreAction::Audit { ticket, record });
        }
    }

    /// Writes a record; what waits goes on when it is on the disk.
    fn record_first(&mut self, record: AuditRecord, waits: Ticket) {
        self.gates.next_ticket += 1;
        let ticket = self.gates.next_ticket;
        self.gates.tickets.insert(ticket, waits);
        let (ticket, record) = (Some(ticket), Box::new(record));
        self.out.push_back(CoreAction::Audit { ticket, record });
    }

    /// A record is on the disk, or could not be written.
    pub(super) fn audited(&mut self, ticket: u64, written: Result<(), String>) {
        match self.gates.tickets.remove(&ticket) {
            None => {}
            Some(Ticket::Decision(call)) => {
                let passage = self.gates.passages.get_mut(&call);
                let Some(passage) = passage.filter(|passage| passage.stage == Stage::Recording)
                else {
                    return;
                };
                match written {
                    Ok(()) => {
                        passage.stage = Stage::Open;
                        self.let_through(call, None);
                    }
                    Err(why) => {
                        passage.stage = Stage::Closed;
                        let problem = Problem::of(ErrorKind::AuditUnavailable);
                        self.warn_audit(&why);
                        self.let_through(call, Some(problem));
                    }
                }
            }
            Some(Ticket::End(_, mut end)) => {
                if let Err(why) = written {
                    self.warn_audit(&why);
                    fail_unrecorded(&mut end);
                }
                self.end_parked(end);
            }
        }
    }

    fn warn_audit(&mut self, why: &str) {
        if let Some(more) = self.gates.warning.admit(self.clock.now) {
            let more = suppressed(more);
            self.log(format!("mcp:error reason=audit_unavailable {why}{more}"));
        }
    }

    /// The one end of a request. That of a call with effects waits for its record.
    pub(super) fn end_gated(&mut self, end: Box<End>) {
        let is_over = self.kernel.session_of(end.call).is_none();
        let passage = match is_over {
            true => self.gates.passages.remove(&end.call),
            // Its client has an answer, and the call runs on.
            false => self.gates.passages.get(&end.call).cloned(),
        };
        let Some(passage) = passage else {
            return self.ended(end);
        };
        self.drop_approval(end.call);
        let record = AuditRecord {
            outcome: Some(outcome_of(&end)),
            detail: (!is_over).then(|| "the call runs on".to_owned()),
            ..passage.record(AuditEvent::Ended)
        };
        let is_task = self.sessions.get(&end.session) == Some(&Front::Task);
        let is_heard = end.delivery == Delivery::Send || is_task;
        if self.gates.audits && passage.effects && passage.stage == Stage::Open && is_heard {
            let until = self.clock.now.plus_ms(AUDIT_MS);
            return self.record_first(record, Ticket::End(until, end));
        }
        if matches!(passage.stage, Stage::Open | Stage::Recording) {
            self.record(record);
        }
        self.ended(end);
    }

    fn end_parked(&mut self, end: Box<End>) {
        let session = end.session;
        self.ended(end);
        if self.gates.is_settled_for(session) && self.gates.over.remove(&session) {
            self.session_over(session);
        }
    }

    /// A session is over, once its last end is processed.
    pub(super) fn session_over_gated(&mut self, session: SessionId) {
        match self.gates.is_settled_for(session) {
            true => self.session_over(session),
            false => {
                self.gates.over.insert(session);
            }
        }
    }

    /// Does what is due.
    pub(super) fn gates_due(&mut self) {
        let now = self.clock.now;
        for (id, approval) in self.gates.approvals.expire(now) {
            self.expired(&id, &approval, "no answer came in time");
        }
        let late = self.gates.tickets.iter();
        let late =
            late.filter(|(_, ticket)| matches!(ticket, Ticket::End(until, _) if *until <= now));
        let late: Vec<u64> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            let why = format!("the disk took longer than {} s", AUDIT_MS / 1000);
            self.audited(ticket, Err(why));
        }
    }
}

/// The caller of a bond, without its session.
fn name_of_bond(bond: &Bond) -> String {
    let mut parts = bond.caller.split(' ');
    parts.next().unwrap_or_default().to_owned()
}

/// The error of a call that ran and whose end could not be recorded.
fn fail_unrecorded(end: &mut End) {
    let said = "the call ended, but its end could not be recorded in the audit file, so its result is withheld";
    let problem = Problem::new(ErrorKind::AuditUnavailable, said)
        .with_hint("do not repeat the call before you know what it did; the operator must correct the audit file");
    end.outcome = Err(problem);
}

/// The outcome of a call in its record.
fn outcome_of(end: &End) -> String {
    match &end.outcome {
        Ok(_) if end.said_no() => "tool_error",
        Ok(_) => "ok",
        Err(problem) => problem.kind.row().name,
    }
    .to_owned()
}
