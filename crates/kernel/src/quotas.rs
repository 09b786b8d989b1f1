//! Quotas of callers, and calls that a caller repeats although they fail.
//!
//! A caller is a credential over HTTP, or a session where there is none. Each caller has an account for all its tool calls
//! and one for each rule of a tool. A period of an account begins with its first call; when it has passed, the account is
//! empty again. Calls and bytes of arguments are known before a call runs, and a call that exceeds them does not run.
//! Bytes of results and the time of tools are known afterwards: they may exceed the quota by the calls in flight, and the
//! next call does not run.
//!
//! A call that failed as often as the limit says, each time with the same error, is answered with that error until the
//! window behind its last failure has passed. Other arguments are another call; a success clears the count.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::metrics::RefusalMetrics;
use mainstay_contract::outcome::{Forwarded, Outcome, Problem, Success};
use mainstay_contract::render::shorten;
use mainstay_contract::rpc::Op;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::time::Time;

/// Callers whose accounts are kept. The one that called longest ago makes way.
const CALLERS: usize = 4096;
/// Failing calls that are remembered. The one that failed longest ago makes way.
const FAILURES: usize = 1024;
/// Characters of an error that its repetition quotes.
const SHOWN: usize = 300;

/// The use that a caller is allowed within a period; an unset limit does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    pub calls: Option<u64>,
    pub bytes_in: Option<u64>,
    pub bytes_out: Option<u64>,
    /// Milliseconds.
    pub tool_ms: Option<u64>,
}

/// Quotas by tool, for each caller; `*` in a name stands for any characters.
pub type ToolQuotas = BTreeMap<String, Quota>;

/// The accounts of all callers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quotas {
    tools: ToolQuotas,
    /// By caller and rule; the rule of a caller's own account is empty.
    accounts: BTreeMap<String, BTreeMap<String, Account>>,
    failures: Vec<(Repeated, Failure)>,
    refused: RefusalMetrics,
}

/// A call, as its repetition is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Repeated {
    caller: String,
    call: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Failure {
    error: u64,
    message: String,
    count: u32,
    since: Time,
    last: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    since: Time,
    last: Time,
    calls: u64,
    bytes_in: u64,
    bytes_out: u64,
    micros: u64,
}

/// A call that was let through, until it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    caller: String,
    tool: String,
    /// When it was handed to a worker.
    pub(crate) sent: Option<Time>,
}

/// One of the measures of a quota.
#[derive(Clone, Copy)]
enum Measure {
    Calls,
    BytesIn,
    BytesOut,
    ToolMs,
}

impl Measure {
    const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::BytesIn => "bytes_in",
            Self::BytesOut => "bytes_out",
            Self::ToolMs => "tool_ms",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::BytesIn => "bytes of arguments",
            Self::BytesOut => "bytes of results",
            Self::ToolMs => "ms of tools",
        }
    }
}

/// The quota of all calls of a caller.
fn of_caller(limits: &Limits) -> Quota {
    let set = |limit: u64| (limit > 0).then_some(limit);
    Quota {
        calls: set(limits.quota_calls),
        bytes_in: set(limits.quota_bytes_in),
        bytes_out: set(limits.quota_bytes_out),
        tool_ms: set(limits.quota_tool_ms),
    }
}

impl Quotas {
    pub(crate) fn new(tools: ToolQuotas) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }

    pub(crate) const fn refused(&self) -> &RefusalMetrics {
        &self.refused
    }

    /// Lets a call through, or says why not.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        limits: &Limits,
        caller: &str,
        tool: &str,
        (op, bytes): (&Op, usize),
    ) -> Result<Charge, Problem> {
        if let Some(problem) = self.repeated(now, limits, caller, op) {
            self.refused.repeated_failures += 1;
            return Err(problem);
        }
        let bytes = bytes as u64;
        let rules = self.rules(limits, tool);
        for (rule, quota) in &rules {
            if let Some(problem) = self.exceeded(now, limits, (caller, rule), quota, bytes) {
                return Err(problem);
            }
        }
        for (rule, _) in rules {
            let account = self.account(now, limits, caller, &rule);
            account.calls += 1;
            account.bytes_in = account.bytes_in.saturating_add(bytes);
        }
        Ok(Charge {
            caller: caller.to_owned(),
            tool: tool.to_owned(),
            sent: None,
        })
    }

    /// A call that was let through has ended.
    pub(crate) fn ended(
        &mut self,
        now: Time,
        limits: &Limits,
        charge: &Charge,
        op: Option<&Op>,
        outcome: &Outcome,
    ) {
        let micros = charge.sent.map_or(0, |sent| now.micros_since(sent));
        let bytes = bytes_of(outcome);
        for (rule, _) in self.rules(limits, &charge.tool) {
            let account = self.account(now, limits, &charge.caller, &rule);
            account.bytes_out = account.bytes_out.saturating_add(bytes);
            account.micros = account.micros.saturating_add(micros);
        }
        if let (Some(op), true) = (op, limits.repeated_failures > 0) {
            self.note_end(now, limits, &charge.caller, op, outcome);
        }
    }

    /// The quotas that hold for a tool: that of the caller, and those whose names fit.
    fn rules(&self, limits: &Limits, tool: &str) -> Vec<(String, Quota)> {
        let own = of_caller(limits);
        let own = (own != Quota::default()).then(|| (String::new(), own));
        let fitting = self.tools.iter();
        // A server may take a name in any case for the same tool.
        let tool = tool.to_lowercase();
        let fits = |pattern: &str| crate::server::fits(&pattern.to_lowercase(), &tool);
        let fitting = fitting.filter(|(pattern, _)| fits(pattern));
        let fitting = fitting.map(|(pattern, quota)| (pattern.clone(), quota.clone()));
        own.into_iter().chain(fitting).collect()
    }

    fn exceeded(
        &mut self,
        now: Time,
        limits: &Limits,
        (caller, rule): (&str, &str),
        quota: &Quota,
        bytes: u64,
    ) -> Option<Problem> {
        let account = *self.account(now, limits, caller, rule);
        let used = [
            (Measure::Calls, quota.calls, account.calls + 1),
            (
                Measure::BytesIn,
                quota.bytes_in,
                account.bytes_in.saturating_add(bytes),
            ),
            // One more would be the first over the limit.
            (
                Measure::BytesOut,
                quota.bytes_out,
                account.bytes_out.saturating_add(1),
            ),
            (
                Measure::ToolMs,
                quota.tool_ms,
                (account.micros / 1000).saturating_add(1),
            ),
        ];
        let over = used.into_iter().find_map(|(measure, limit, used)| {
            let limit = limit?;
            (used > limit).then_some((measure, limit))
        });
        let (measure, limit) = over?;
        *match measure {
            Measure::Calls => &mut self.refused.calls,
            Measure::BytesIn => &mut self.refused.bytes_in,
            Measure::BytesOut => &mut self.refused.bytes_out,
            Measure::ToolMs => &mut self.refused.tool_ms,
        } += 1;
        let ends = account.since.plus_ms(limits.quota_period_ms);
        let wait_ms = ends.ms_since(now).max(1);
        let whose = match rule {
            "" => "of this caller".to_owned(),
            rule => format!("of this caller for the tool {rule}"),
        };
        let said = format!(
            "the quota {whose} is used up: {limit} {} within {} s; it begins anew in {} s",
            measure.unit(),
            limits.quota_period_ms.div_ceil(1000),
            wait_ms.div_ceil(1000),
        );
        let details = json!({
            "quota": measure.name(), "limit": limit, "tool": (!rule.is_empty()).then_some(rule),
            "periodMs": limits.quota_period_ms, "retryAfterMs": wait_ms,
        });
        let mut problem =
            Problem::new(ErrorKind::QuotaExceeded, said).with_details(Json::from(details));
        problem.retry_after_ms = Some(wait_ms);
        Some(problem)
    }

    /// An account within its period.
    fn account(&mut self, now: Time, limits: &Limits, caller: &str, rule: &str) -> &mut Account {
        let fresh = Account {
            since: now,
            last: now,
            calls: 0,
            bytes_in: 0,
            bytes_out: 0,
            micros: 0,
        };
        if self.accounts.len() >= CALLERS && !self.accounts.contains_key(caller) {
            let last_use = |rules: &BTreeMap<String, Account>| {
                rules.values().map(|account| account.last).max()
            };
            let oldest = self
                .accounts
                .iter()
                .min_by_key(|(_, rules)| last_use(rules));
            if let Some(oldest) = oldest.map(|(caller, _)| caller.clone()) {
                self.accounts.remove(&oldest);
            }
        }
        let rules = self.accounts.entry(caller.to_owned()).or_default();
        let account = rules.entry(rule.to_owned()).or_insert(fresh);
        if now.ms_since(account.since) >= limits.quota_period_ms {
            *account = fresh;
        }
        account.last = now;
        account
    }

    /// A session that has no credential is gone.
    pub(crate) fn forget(&mut self, caller: &str) {
        self.accounts.remove(caller);
        self.failures.retain(|(call, _)| call.caller != caller);
    }

    /// The answer to a call that has failed too often in the same way.
    fn repeated(&mut self, now: Time, limits: &Limits, caller: &str, op: &Op) -> Option<Problem> {
        let window_ms = limits.repeated_failures_ms;
        let is_over = |failure: &Failure| now.ms_since(failure.last) >= window_ms;
        let mut of_caller = self
            .failures
            .iter()
            .filter(|(call, _)| call.caller == caller);
        // Most callers have none, and need no digest.
        of_caller.next()?;
        let call = digest_of(op);
        let is_it = |repeated: &Repeated| repeated.caller == caller && repeated.call == call;
        let at = self
            .failures
            .iter()
            .position(|(repeated, _)| is_it(repeated))?;
        let (_, failure) = self.failures.get(at)?;
        if is_over(failure) {
            self.failures.remove(at);
            return None;
        }
        if limits.repeated_failures == 0 || failure.count < limits.repeated_failures {
            return None;
        }
        let wait_ms = failure.last.plus_ms(window_ms).ms_since(now).max(1);
        let said = format!(
            "this call failed {} times with the same error, and was not run again: {}",
            failure.count, failure.message
        );
        let details = json!({ "failures": failure.count, "retryAfterMs": wait_ms });
        let mut problem = Problem::new(ErrorKind::RepeatedFailure, said)
            .with_details(Json::from(details))
            .with_hint(format!(
                "change the arguments, or wait {} s",
                wait_ms.div_ceil(1000)
            ));
        problem.retry_after_ms = Some(wait_ms);
        Some(problem)
    }

    fn note_end(&mut self, now: Time, limits: &Limits, caller: &str, op: &Op, outcome: &Outcome) {
        let failed = failure_of(outcome);
        let has_any = self.failures.iter().any(|(call, _)| call.caller == caller);
        if failed.is_none() && !has_any {
            return;
        }
        let repeated = Repeated {
            caller: caller.to_owned(),
            call: digest_of(op),
        };
        let known = self.failures.iter().position(|(call, _)| *call == repeated);
        let before = known.map(|at| self.failures.remove(at).1);
        let Some((error, message)) = failed else {
            // A call that was given up says nothing about the next one.
            if outcome.is_err() {
                self.failures
                    .extend(before.map(|before| (repeated, before)));
            }
            return;
        };
        let window_ms = limits.repeated_failures_ms;
        let goes_on =
            |before: &Failure| before.error == error && now.ms_since(before.since) < window_ms;
        let failure = match before.filter(goes_on) {
            Some(before) => Failure {
                count: before.count.saturating_add(1),
                last: now,
                ..before
            },
            None => Failure {
                error,
                message,
                count: 1,
                since: now,
                last: now,
            },
        };
        if self.failures.len() >= FAILURES {
            self.failures.remove(0);
        }
        // The last one is the newest.
        self.failures.push((repeated, failure));
    }
}

/// A digest of the tool and the arguments of a call.
fn digest_of(op: &Op) -> u64 {
    let mut hasher = DefaultHasher::new();
    match op {
        Op::Tool {
            name, arguments, ..
        } => (name, arguments.as_str()).hash(&mut hasher),
        Op::Forward(forward) => {
            let params = scan::member(forward.line.as_str(), "params").unwrap_or_default();
            let name = scan::member(params, "name");
            (name, scan::member(params, "arguments")).hash(&mut hasher);
        }
        _ => {}
    }
    hasher.finish()
}

/// The error of a tool: its digest, and its words. What became of the call without the tool is none.
fn failure_of(outcome: &Outcome) -> Option<(u64, String)> {
    let mut hasher = DefaultHasher::new();
    let message = match outcome {
        Err(problem) if is_of_call(problem.kind) => {
            (problem.kind.row().name, &problem.message).hash(&mut hasher);
            problem.message.clone()
        }
        Ok(Success::Forwarded(Forwarded {
            line,
            is_error: true,
        })) => {
            // The whole line has the id of the request.
            let line = line.as_str();
            let error = scan::member(line, "error").or_else(|| scan::member(line, "result"));
            let error = error.unwrap_or_default();
            error.hash(&mut hasher);
            let message = scan::member(error, "message").and_then(scan::unquote);
            message.map_or_else(|| first_text(error), |message| message.to_string())
        }
        _ => return None,
    };
    Some((hasher.finish(), shorten(&message, SHOWN)))
}

/// The first text of a result.
fn first_text(result: &str) -> String {
    let result: Option<serde_json::Value> = serde_json::from_str(result).ok();
    let text = result
        .as_ref()
        .and_then(|result| result.pointer("/content/0/text"));
    let text = text.and_then(serde_json::Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// True for errors that the same call will probably meet again.
const fn is_of_call(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Cancelled
            | ErrorKind::ClientGone
            | ErrorKind::ShuttingDown
            | ErrorKind::Overloaded
            | ErrorKind::QuotaExceeded
            | ErrorKind::RepeatedFailure
            | ErrorKind::WorkerUnavailable
            | ErrorKind::WorkerNotReady
            | ErrorKind::WorkerSetup
    )
}

fn bytes_of(outcome: &Outcome) -> u64 {
    let bytes = match outcome {
        Ok(Success::Forwarded(forwarded)) => forwarded.line.len(),
        Ok(Success::Members(members)) => members.len(),
        Ok(Success::Tool(reply)) => reply.json.len() + reply.text.as_ref().map_or(0, String::len),
        Err(problem) => problem.message.len() + problem.details.as_ref().map_or(0, Json::len),
    };
    bytes as u64
}

#[cfg(test)]
mod tests;
