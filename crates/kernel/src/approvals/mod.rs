//! Calls that wait for a person, and grants.
//!
//! Theory of operation. A call that a rule asks about becomes an [`Approval`], bound to its caller, its tool, its arguments
//! and the policy ([`Bond`]). Either the call itself waits (`call`), or its client was told to ask its user and to
//! repeat the call; then the approval waits for the repeated call. A grant lets exactly one call run: the one that waits, or
//! the first that repeats it with the same bond before it expires. Whatever the end is, the approval is removed with
//! it, so a grant cannot be used twice.
//!
//! [`policy`] decides which calls are asked about, [`question`] has the words.

pub(crate) mod exact;
pub mod policy;
pub(crate) mod question;

use std::collections::BTreeMap;

use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::policy::{ApprovalRule, ArgumentPattern, Policy, Ruling};
use crate::time::Time;

/// Approvals of one caller, so that it does not crowd out the others.
const OF_ONE_CALLER: usize = 16;

/// Before the number of an approval, in ids that clients see.
pub(crate) const PREFIX: &str = "io.mainstay/approval/";

/// The call that a grant is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// The caller: whose call it is, and for callers with a session of their own which.
    pub caller: String,
    pub server: String,
    pub tool: String,
    /// SHA-256 of the canonical JSON of the arguments, with all digits of their numbers.
    pub arguments: String,
    /// The version of the policy.
    pub policy: String,
}

/// A call that a person must approve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub bond: Bond,
    /// Who called, as people and the audit file read it.
    pub who: String,
    /// As a listing shows them, perhaps cut.
    pub arguments: String,
    pub rule: String,
    pub asked: Time,
    pub expires: Time,
    /// The call that waits; without it the client repeats the call.
    pub call: Option<CallId>,
    /// The question that the client has, if it was asked itself.
    pub question: Option<(SessionId, RequestId)>,
    /// The one who granted it before the call was repeated.
    pub granted: Option<String>,
    /// The members of a call that continue a question of its server; the repeated call gets them back.
    #[serde(default)]
    pub carried: Option<Json>,
}

/// All approvals that are open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Approvals {
    /// Random: the id of an approval must not be guessed.
    secret: String,
    next: u64,
    open: BTreeMap<String, Approval>,
}

/// No further approval can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many calls wait for an approval")]
pub struct Full;

/// An answer that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    #[error("no call waits under this id: it was answered, gave up, or its time is over")]
    Unknown,
    #[error("a caller cannot approve its own call")]
    OwnCall,
    #[error("the call is granted already and waits for its client to repeat it")]
    Granted,
}

/// The use of a grant by a call that refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The call runs. The grant is gone.
    Run { by: String },
    /// It is not granted yet, and its client has not answered either.
    Open,
    /// There is no such grant for this call.
    Refused(&'static str),
}

impl Approvals {
    /// No approvals; `secret` is random.
    pub fn new(secret: String) -> Self {
        Self {
            secret,
            ..Self::default()
        }
    }

    /// True if a caller may ask for one more.
    fn has_room(&self, caller: &str, most: usize) -> bool {
        let of_caller = self.open.values();
        let of_caller = of_caller.filter(|approval| approval.bond.caller == caller);
        self.open.len() < most && of_caller.count() < OF_ONE_CALLER
    }

    /// Adds an approval. Returns its id.
    pub fn add(&mut self, approval: Approval, most: usize) -> Result<String, Full> {
        if !self.has_room(&approval.bond.caller, most) {
            return Err(Full);
        }
        self.next += 1;
        let id = Fingerprint::of(&serde_json::json!([self.secret, self.next])).to_string();
        let id: String = id.chars().take(16).collect();
        self.open.insert(id.clone(), approval);
        Ok(id)
    }

    pub fn get(&self, id: &str) -> Option<&Approval> {
        self.open.get(id)
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<(&str, &Approval)> {
        let open = self.open.iter();
        let mut all: Vec<_> = open.map(|(id, approval)| (id.as_str(), approval)).collect();
        all.sort_by_key(|(_, approval)| approval.asked);
        all
    }

    /// The approval that a client was asked about under this id.
    pub(crate) fn of_question(&self, session: SessionId, question: &RequestId) -> Option<String> {
        let mut open = self.open.iter();
        let found = open.find(|(_, approval)| {
            let asked = approval.question.as_ref();
            asked.is_some_and(|(of, id)| *of == session && id.same_value(question))
        });
        found.map(|(id, _)| id.clone())
    }

    /// True if a client has a question about a call.
    pub(crate) fn asks(&self, session: SessionId) -> bool {
        let mut open = self.open.values();
        open.any(|approval| {
            let asked = approval.question.as_ref();
            asked.is_some_and(|(of, _)| *of == session)
        })
    }

    /// The client was asked under this id.
    pub(crate) fn set_question(&mut self, id: &str, session: SessionId, question: RequestId) {
        if let Some(approval) = self.open.get_mut(id) {
            approval.question = Some((session, question));
        }
    }

    /// The client cannot ask its user: others may still answer.
    pub(crate) fn clear_question(&mut self, id: &str) {
        if let Some(approval) = self.open.get_mut(id) {
            approval.question = None;
        }
    }

    /// A person other than the client's own answers. `by` is the one who does, in the form of [`Bond::caller`]'s first
    /// part; `None` is the user of the host at a command line. A grant whose call waits ends the approval, as every
    /// denial does.
    pub fn answer(
        &mut self,
        now: Time,
        id: &str,
        grant: bool,
        by: Option<&str>,
    ) -> Result<Approval, AnswerError> {
        let approval = self.open.get_mut(id);
        let approval = approval.filter(|approval| now < approval.expires);
        let approval = approval.ok_or(AnswerError::Unknown)?;
        if by.is_some_and(|by| by == approval.who) {
            return Err(AnswerError::OwnCall);
        }
        if approval.granted.is_some() && grant {
            return Err(AnswerError::Granted);
        }
        if grant && approval.call.is_none() {
            approval.granted = Some(by.unwrap_or("operator").to_owned());
            return Ok(approval.clone());
        }
        self.open.remove(id).ok_or(AnswerError::Unknown)
    }

    /// Ends an approval in another way.
    pub fn take(&mut self, id: &str) -> Option<Approval> {
        self.open.remove(id)
    }

    /// A call refers to an approval: it repeats the call that was asked about. A call that does not fit leaves the approval as
    /// it is, for the one that does.
    pub fn claim(&mut self, now: Time, id: &str, bond: &Bond) -> Claim {
        let Some(approval) = self.open.get(id).filter(|approval| now < approval.expires) else {
            return Claim::Refused("its approval was used, denied, or its time is over");
        };
        if approval.bond.caller != bond.caller {
            return Claim::Refused("its approval is for another caller");
        }
        if approval.bond.policy != bond.policy {
            return Claim::Refused("the rules changed since it was asked about");
        }
        if approval.bond != *bond {
            return Claim::Refused("its approval is for another tool or other arguments");
        }
        if approval.call.is_some() {
            return Claim::Refused("another call waits for this approval");
        }
        match approval.granted.clone() {
            None => Claim::Open,
            Some(by) => {
                self.open.remove(id);
                Claim::Run { by }
            }
        }
    }

    /// The approval that a call waits for.
    pub fn of_call(&self, call: CallId) -> Option<&str> {
        let mut open = self.open.iter();
        let found = open.find(|(_, approval)| approval.call == Some(call));
        found.map(|(id, _)| id.as_str())
    }

    /// When the first of them expires.
    pub fn timeout(&self) -> Option<Time> {
        self.open.values().map(|approval| approval.expires).min()
    }

    /// Removes those whose time is over, and those of calls of `server` that were asked about under another policy.
    pub fn expire(&mut self, now: Time) -> Vec<(String, Approval)> {
        self.remove(|approval| approval.expires <= now)
    }

    /// Removes those for which `is_over` holds.
    pub fn remove(&mut self, is_over: impl Fn(&Approval) -> bool) -> Vec<(String, Approval)> {
        let (over, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|(_, approval)| is_over(approval));
        self.open = open;
        let over: BTreeMap<_, _> = over;
        over.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 6;
    const LIFE_MS: u64 = 10;

    #[derive(Clone, Debug)]
    enum Step {
        Ask { bond: u8, waits: bool },
        Answer { which: usize, grant: bool, by: u8 },
        Claim { which: usize, bond: u8 },
        End(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let some = 0..8_usize;
        prop_oneof![
            4 => (0..16_u8, any::<bool>()).prop_map(|(bond, waits)| Step::Ask { bond, waits }),
            4 => (some.clone(), any::<bool>(), 0..4_u8)
                .prop_map(|(which, grant, by)| Step::Answer { which, grant, by }),
            4 => (some.clone(), 0..16_u8).prop_map(|(which, bond)| Step::Claim { which, bond }),
            1 => some.prop_map(Step::End),
            2 => (1..7_u64).prop_map(Step::Pass),
        ]
    }

    /// Two callers, two tools, two sets of arguments, two policies.
    fn bond(number: u8) -> Bond {
        let bit = |at: u8| (number >> at & 1).to_string();
        Bond {
            caller: format!("caller{}", bit(0)),
            server: "s".to_owned(),
            tool: bit(1),
            arguments: bit(2),
            policy: bit(3),
        }
    }

    /// An approval, as the model knows it.
    #[derive(Clone, Debug)]
    struct Known {
        id: String,
        bond: Bond,
        waits: bool,
        expires: u64,
        granted: bool,
        open: bool,
    }

    proptest! {
        #[test]
        fn a_call_runs_only_for_a_grant_of_another_that_fits_and_only_once(
            steps in proptest::collection::vec(step(), 0..80),
        ) {
            let mut approvals = Approvals::new("secret".to_owned());
            let mut known: Vec<Known> = Vec::new();
            let mut now = 0_u64;
            for step in steps {
                let at = Time::from_ms(now);
                match step {
                    Step::Ask { bond: number, waits } => {
                        let bond = bond(number);
                        let approval = Approval {
                            who: bond.caller.clone(),
                            bond: bond.clone(),
                            arguments: String::new(),
                            rule: String::new(),
                            asked: at,
                            expires: Time::from_ms(now + LIFE_MS),
                            call: waits.then(|| CallId::new(known.len() as u64 + 1)),
                            question: None,
                            granted: None,
                            carried: None,
                        };
                        let open = known.iter().filter(|known| known.open).count();
                        match approvals.add(approval, MOST) {
                            Err(Full) => prop_assert_eq!(open, MOST),
                            Ok(id) => {
                                prop_assert!(open < MOST);
                                prop_assert!(known.iter().all(|known| known.id != id));
                                let (granted, expires) = (false, now + LIFE_MS);
                                known.push(Known { id, bond, waits, expires, granted, open: true });
                            }
                        }
                    }
                    Step::Answer { which, grant, by } if !known.is_empty() => {
                        let count = known.len();
                        let model = &mut known[which % count];
                        let by = (by < 3).then(|| format!("caller{by}"));
                        let done = approvals.answer(at, &model.id, grant, by.as_deref());
                        let is_own = by.as_ref() == Some(&model.bond.caller);
                        let alive = model.open && now < model.expires;
                        let accepted = alive && !is_own && !(grant && model.granted);
                        prop_assert_eq!(done.is_ok(), accepted, "{:?} {:?}", model, done);
                        if accepted {
                            model.granted |= grant;
                            model.open = grant && !model.waits;
                        }
                    }
                    Step::Claim { which, bond: number } if !known.is_empty() => {
                        let count = known.len();
                        let model = &mut known[which % count];
                        let bond = bond(number);
                        let claim = approvals.claim(at, &model.id, &bond);
                        let fits = model.open && now < model.expires && !model.waits && model.bond == bond;
                        match claim {
                            Claim::Run { .. } => {
                                prop_assert!(fits && model.granted);
                                model.open = false;
                            }
                            Claim::Open => prop_assert!(fits && !model.granted),
                            Claim::Refused(_) => prop_assert!(!fits),
                        }
                    }
                    Step::End(which) if !known.is_empty() => {
                        let count = known.len();
                        let model = &mut known[which % count];
                        prop_assert_eq!(approvals.take(&model.id).is_some(), model.open);
                        model.open = false;
                    }
                    Step::Answer { .. } | Step::Claim { .. } | Step::End(_) => {}
                    Step::Pass(ms) => {
                        now += ms;
                        approvals.expire(Time::from_ms(now));
                        for model in &mut known {
                            model.open &= now < model.expires;
                        }
                    }
                }
                let open = known.iter().filter(|known| known.open).count();
                prop_assert_eq!(approvals.all().len(), open);
            }
        }
    }
}
