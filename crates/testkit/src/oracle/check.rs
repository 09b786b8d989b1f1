//! The promises, checked.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::bail;
use mainstay_contract::replay::Replay;

use super::{Answer, Asked, CancelKind, Effect, Event, Failure, History};

/// Whether a call may have used up its attempts. With many attempts and few kills it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    Last,
    MayEnd,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The history or the list of effects cannot be judged: two calls of the same id or effect.
    Ambiguous { what: String },
    /// A call without its answer.
    Unanswered { call: String },
    /// A call with more than one answer.
    AnsweredTwice { call: String, answers: usize },
    /// An answer or progress for a call that nobody made.
    AnsweredNobody { call: String },
    /// Progress after the answer.
    LateProgress { call: String },
    /// An effect that no call describes.
    NobodysEffect { effect: Effect },
    /// A success that speaks of another call's effect.
    WrongAnswer { call: String, said: Effect },
    /// A success without its effect.
    NoEffect { call: String },
    /// An effect more often than its contract allows.
    Repeated { call: String, effects: usize },
    /// An effect of a call that was refused before dispatch.
    RefusedButDone { call: String, why: String },
    /// A cancelled answer for a call that nobody cancelled.
    CancelledByNobody { call: String },
    /// A call that could have been repeated or probed, and was given up.
    Lost { call: String, failure: Failure },
    /// An effect of an answered call after an effect of a later call on the same subject.
    Stale { call: String, after: String },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambiguous { what } => write!(f, "cannot be judged: {what}"),
            Self::Unanswered { call } => write!(f, "{call}: no answer"),
            Self::AnsweredTwice { call, answers } => write!(f, "{call}: {answers} answers"),
            Self::AnsweredNobody { call } => write!(f, "{call}: an answer, but no such call"),
            Self::LateProgress { call } => write!(f, "{call}: progress after the answer"),
            Self::NobodysEffect { effect } => write!(f, "an effect of no call: {effect:?}"),
            Self::WrongAnswer { call, said } => {
                write!(f, "{call}: the answer speaks of another effect: {said:?}")
            }
            Self::NoEffect { call } => write!(f, "{call}: success, but no effect"),
            Self::Repeated { call, effects } => write!(f, "{call}: {effects} effects"),
            Self::RefusedButDone { call, why } => {
                write!(f, "{call}: refused ({why}), but its effect took place")
            }
            Self::CancelledByNobody { call } => write!(f, "{call}: cancelled by nobody"),
            Self::Lost { call, failure } => {
                write!(f, "{call}: given up while attempts last: {failure:?}")
            }
            Self::Stale { call, after } => {
                write!(
                    f,
                    "{call}: its effect came again after that of the later {after}"
                )
            }
        }
    }
}

/// How many calls ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub calls: usize,
    pub successes: usize,
    pub unknown: usize,
    pub exhausted: usize,
    pub refused: usize,
    pub unavailable: usize,
    pub cancelled: usize,
    pub timeouts: usize,
    pub tool_failures: usize,
    /// Cancelled by notification and rightly never answered.
    pub silent: usize,
    pub effects: usize,
}

/// One call with everything that is known about it.
#[derive(Debug, Default)]
struct Record<'a> {
    name: String,
    asked: Option<(u64, &'a Asked)>,
    answers: Vec<(u64, &'a Answer)>,
    cancel: Option<CancelKind>,
    was_cancelled: bool,
    late_progress: bool,
    /// Places in the list of effects.
    effects: Vec<usize>,
}

/// Judges a history, and gives every breach of the promises.
pub fn check(history: &History, effects: &[Effect], attempts: Attempts) -> (Summary, Vec<Breach>) {
    let mut breaches = Vec::new();
    let mut records = gather(history, &mut breaches);
    assign(&mut records, effects, &mut breaches);
    let mut summary = Summary {
        effects: effects.len(),
        ..Summary::default()
    };
    for record in &records {
        judge(record, attempts, &mut summary, &mut breaches);
    }
    order(&records, effects, &mut breaches);
    (summary, breaches)
}

/// As [`check`], but any breach is an error that names them all, up to a bound.
pub fn verify(
    history: &History,
    effects: &[Effect],
    attempts: Attempts,
) -> anyhow::Result<Summary> {
    const SHOWN: usize = 20;
    let (summary, breaches) = check(history, effects, attempts);
    if breaches.is_empty() {
        return Ok(summary);
    }
    let lines: Vec<String> = breaches
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect();
    bail!(
        "{} breaches in {summary:?}:\n  {}",
        breaches.len(),
        lines.join("\n  ")
    )
}

fn gather<'a>(history: &'a History, breaches: &mut Vec<Breach>) -> Vec<Record<'a>> {
    let mut places = BTreeMap::new();
    let mut records: Vec<Record<'a>> = Vec::new();
    for entry in history.entries() {
        let place = *places
            .entry((entry.client, entry.id.as_str()))
            .or_insert_with(|| {
                records.push(Record {
                    name: format!("client {} call {}", entry.client, entry.id),
                    ..Record::default()
                });
                records.len() - 1
            });
        let Some(record) = records.get_mut(place) else {
            continue;
        };
        match &entry.event {
            Event::Asked(asked) => {
                if record.asked.is_some() {
                    let what = format!("{} was asked twice", record.name);
                    breaches.push(Breach::Ambiguous { what });
                }
                record.name = format!("{} {}", record.name, asked.tool);
                record.asked = Some((entry.at, asked));
            }
            Event::Cancelled(kind) => {
                // The first cancel counts.
                record.cancel.get_or_insert(*kind);
                record.was_cancelled = true;
            }
            Event::Progress => record.late_progress |= !record.answers.is_empty(),
            Event::Answered(answer) => record.answers.push((entry.at, answer)),
        }
    }
    records
}

/// Gives each effect to its call.
fn assign(records: &mut [Record<'_>], effects: &[Effect], breaches: &mut Vec<Breach>) {
    let mut owners: BTreeMap<&Effect, usize> = BTreeMap::new();
    for (place, record) in records.iter().enumerate() {
        let Some(effect) = record.asked.and_then(|(_, asked)| asked.effect.as_ref()) else {
            continue;
        };
        if owners.insert(effect, place).is_some() {
            let what = format!("two calls describe {effect:?}");
            breaches.push(Breach::Ambiguous { what });
        }
    }
    for (place, effect) in effects.iter().enumerate() {
        let owner = owners.get(effect).and_then(|owner| records.get_mut(*owner));
        match owner {
            Some(record) => record.effects.push(place),
            None => breaches.push(Breach::NobodysEffect {
                effect: effect.clone(),
            }),
        }
    }
}

fn judge(
    record: &Record<'_>,
    attempts: Attempts,
    summary: &mut Summary,
    breaches: &mut Vec<Breach>,
) {
    let call = || record.name.clone();
    let Some((_, asked)) = record.asked else {
        breaches.push(Breach::AnsweredNobody { call: call() });
        return;
    };
    summary.calls += 1;
    if record.late_progress {
        breaches.push(Breach::LateProgress { call: call() });
    }
    let answer = match record.answers.as_slice() {
        [] if record.cancel == Some(CancelKind::Silent) => {
            summary.silent += 1;
            None
        }
        [] => {
            breaches.push(Breach::Unanswered { call: call() });
            None
        }
        [(_, answer)] => Some(*answer),
        [(_, answer), ..] => {
            let answers = record.answers.len();
            breaches.push(Breach::AnsweredTwice {
                call: call(),
                answers,
            });
            Some(*answer)
        }
    };
    let done = record.effects.len();
    if asked.replay != Replay::Convergent && done > 1 {
        breaches.push(Breach::Repeated {
            call: call(),
            effects: done,
        });
    }
    match answer {
        None => {}
        Some(Answer::Success(said)) => {
            summary.successes += 1;
            if asked.effect.is_some() && done == 0 {
                breaches.push(Breach::NoEffect { call: call() });
            }
            if let Some(said) = said
                && asked.effect.as_ref() != Some(said)
            {
                let said = said.clone();
                breaches.push(Breach::WrongAnswer { call: call(), said });
            }
        }
        Some(Answer::Failed(failure)) => {
            count(failure, summary);
            let refusal = match failure {
                Failure::Refused(why) => Some(why),
                Failure::Unavailable(why) if asked.replay != Replay::Convergent => Some(why),
                _ => None,
            };
            if let Some(why) = refusal
                && done > 0
            {
                let why = why.clone();
                breaches.push(Breach::RefusedButDone { call: call(), why });
            }
            if *failure == Failure::Cancelled && !record.was_cancelled {
                breaches.push(Breach::CancelledByNobody { call: call() });
            }
            if is_loss(asked.replay, failure, attempts) {
                let failure = failure.clone();
                breaches.push(Breach::Lost {
                    call: call(),
                    failure,
                });
            }
        }
    }
}

/// Whether a call with this contract must not end like this.
fn is_loss(replay: Replay, failure: &Failure, attempts: Attempts) -> bool {
    match (failure, replay) {
        // Only what is repeated can use up its attempts.
        (Failure::Exhausted, Replay::ProbeRequired | Replay::NeverReplay) => true,
        (Failure::OutcomeUnknown, Replay::ProbeRequired | Replay::Convergent)
        | (Failure::Exhausted, Replay::Convergent) => attempts == Attempts::Last,
        _ => false,
    }
}

const fn count(failure: &Failure, summary: &mut Summary) {
    *match failure {
        Failure::Refused(_) => &mut summary.refused,
        Failure::Unavailable(_) => &mut summary.unavailable,
        Failure::OutcomeUnknown => &mut summary.unknown,
        Failure::Exhausted => &mut summary.exhausted,
        Failure::Timeout => &mut summary.timeouts,
        Failure::Cancelled => &mut summary.cancelled,
        Failure::Tool(_) => &mut summary.tool_failures,
    } += 1;
}

/// On each subject the last value counts: once a call has succeeded, nothing of it may come after
/// an effect of a call that was asked later. That is what the fence is for.
fn order(records: &[Record<'_>], effects: &[Effect], breaches: &mut Vec<Breach>) {
    let mut owners: Vec<Option<&Record<'_>>> = vec![None; effects.len()];
    for record in records {
        for place in &record.effects {
            if let Some(owner) = owners.get_mut(*place) {
                *owner = Some(record);
            }
        }
    }
    // For each subject, the call asked last among those whose effect was seen already.
    let mut latest: BTreeMap<(&str, &str), (u64, &Record<'_>)> = BTreeMap::new();
    for (effect, owner) in effects.iter().zip(owners) {
        let Some((record, asked_at)) = owner.and_then(|r| Some((r, r.asked?.0))) else {
            continue;
        };
        let subject = (effect.tool.as_str(), effect.subject.as_str());
        let succeeded_at = record.answers.iter().find_map(|(at, answer)| match answer {
            Answer::Success(_) => Some(*at),
            Answer::Failed(_) => None,
        });
        match (latest.get(&subject), succeeded_at) {
            (Some((later, other)), Some(answered)) if *later > answered => {
                breaches.push(Breach::Stale {
                    call: record.name.clone(),
                    after: other.name.clone(),
                });
            }
            (Some((later, _)), _) if *later >= asked_at => {}
            _ => {
                latest.insert(subject, (asked_at, record));
            }
        }
    }
}
