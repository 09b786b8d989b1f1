//! The judge of a run: the promises of the host, one by one.

use std::collections::BTreeMap;

use mainstay_contract::error::ErrorKind;

use super::book::{Asked, Book, ClientPage, Outcome, Pages, Violation};
use super::plan::{Backend, ClientPlan, Deed, Route, Scenario, Speech, Start, Step, Tool};

/// Bytes beside the answers of calls that may wait for a client: errors, progress.
const SMALL_LINES: u64 = 16 * 1024;
/// Bytes of one listing.
const LISTING: u64 = 14 * 1024;

/// Answers that only a request which reuses the id of an open call can get.
const EXTRA: [Outcome; 2] = [Outcome::Failed(ErrorKind::DuplicateId), Outcome::Done(None)];
/// Judges a run.
pub(super) fn check(scenario: &Scenario, book: &Book, backlog: &BTreeMap<u64, u64>) {
    let mut pages = book.lock();
    let mut found = Vec::new();
    for (number, page) in pages.clients.iter().enumerate() {
        let judge = Judge {
            scenario,
            pages: &pages,
            page,
            number,
        };
        judge.judge(&mut found);
    }
    for (key, times) in &pages.effects {
        if times.len() > 1 {
            found.push(Violation {
                rule: "an effect twice",
                detail: format!("{key} at {times:?}"),
            });
        }
    }
    if pages.ended_innocent && nobody_asked_for_it(scenario) {
        found.push(Violation {
            rule: "a healthy worker was ended",
            detail: String::new(),
        });
    }
    for (mark, most) in backlog.iter().filter(|(mark, _)| **mark > 0) {
        let limits = &scenario.limits;
        let answer = 2 * limits.outbox_bytes as u64 + 2048;
        // A worker that retires answers beside its successor.
        let servers = match scenario.backend {
            Backend::Pack | Backend::Server => 1,
            Backend::Several { .. } => Backend::KEYS.len() as u64,
        };
        let workers = servers * (1 + u64::from(!scenario.operator.is_empty()));
        let calls = workers * limits.pool as u64 * answer;
        let bound = mark + calls + SMALL_LINES + most_listings(scenario) * LISTING;
        if *most > bound {
            found.push(Violation {
                rule: "an outbox is over its limit",
                detail: format!("{most} bytes, at most {bound}"),
            });
        }
    }
    pages.violations.extend(found);
}

/// The most listings that one client asks for.
fn most_listings(scenario: &Scenario) -> u64 {
    let lists = |plan: &ClientPlan| {
        plan.steps
            .iter()
            .filter(|step| **step == Step::List)
            .count()
    };
    let most = scenario.clients.iter().map(lists).max();
    most.unwrap_or_default() as u64
}

/// Whether nothing in the scenario makes a host end a worker that behaves.
fn nobody_asked_for_it(scenario: &Scenario) -> bool {
    let noisy = scenario.client_noise.stall_one_in + scenario.worker_noise.stall_one_in > 0;
    // A server goes with its client.
    let shared = scenario.backend == Backend::Pack;
    let lives_on = scenario.operator.is_empty() && scenario.tasks.is_empty();
    shared && !noisy && lives_on && scenario.limits.standby == 0
}

struct Judge<'a> {
    scenario: &'a Scenario,
    pages: &'a Pages,
    page: &'a ClientPage,
    number: usize,
}

impl Judge<'_> {
    fn judge(&self, found: &mut Vec<Violation>) {
        let mut broken = |rule, detail: String| {
            let detail = format!("client {}: {detail}", self.number);
            found.push(Violation { rule, detail });
        };
        let page = self.page;
        for asked in &page.requests {
            if let Some((rule, detail)) = self.request(asked) {
                broken(
                    rule,
                    format!("request {} ({:?}): {detail}", asked.id, asked.tool),
                );
            }
        }
        let stays = !page.left && self.pages.stopped.is_none();
        if page.junk_answers > page.junk || stays && page.junk_answers < page.junk {
            let detail = format!("{} lines, {} answers", page.junk, page.junk_answers);
            broken("junk is answered once", detail);
        }
        if let Some(detail) = self.out_of_turn() {
            broken("answers out of turn", detail);
        }
    }

    fn request(&self, asked: &Asked) -> Option<(&'static str, String)> {
        let mut answers: Vec<_> = asked.answers.iter().collect();
        // Each request that reused the id has an answer of its own.
        for _ in 0..asked.extra {
            let sure = answers.iter().position(|answer| EXTRA.contains(answer));
            // The call itself may have failed in the same way.
            let fails = |answer: &&Outcome| matches!(answer, Outcome::Failed(_));
            let unsure = answers.iter().position(fails).filter(|_| answers.len() > 1);
            if let Some(place) = sure.or(unsure) {
                answers.remove(place);
            }
        }
        // The second answer of a server that answers twice looks like that of the request which reused the id.
        let is_ambiguous = asked.extra > 0 && self.has_deed(|deed| deed == Deed::Twice);
        if answers.len() > 1 && !is_ambiguous {
            return Some(("two answers", format!("{answers:?}")));
        }
        let Some(answer) = answers.first() else {
            let must = asked.is_open() && !self.page.left && self.pages.stopped.is_none();
            return must.then(|| ("no answer", String::new()));
        };
        self.outcome(asked, answer)
    }

    fn outcome(&self, asked: &Asked, what: &Outcome) -> Option<(&'static str, String)> {
        if let Some(kind) = asked.refused {
            let stopping = self.pages.stopped.is_some();
            let right = *what == Outcome::Failed(kind) || stopping;
            return (!right).then(|| ("a bad request is not refused", format!("{what:?}")));
        }
        let Some(tool) = asked.tool else {
            return self.excuse(asked, what);
        };
        match what {
            Outcome::Done(Some(key)) if *key == asked.key => {
                let made = tool == Tool::Get || self.pages.is_applied(key);
                (!made).then(|| ("success without effect", String::new()))
            }
            Outcome::WrongLevel(level) => {
                let detail = format!("{level} instead of {}", asked.level);
                Some(("a session is not restored", detail))
            }
            Outcome::Done(other) => Some(("an answer of another call", format!("{other:?}"))),
            Outcome::Refused => self.deed(|deed| deed == Deed::Refuse, what),
            Outcome::Failed(_) | Outcome::Odd(_) => self.excuse(asked, what),
        }
    }

    /// Whether an error has a reason in the scenario.
    fn excuse(&self, asked: &Asked, what: &Outcome) -> Option<(&'static str, String)> {
        let Outcome::Failed(kind) = what else {
            let odd = matches!(what, Outcome::Odd(_));
            return odd.then(|| ("an odd answer", format!("{what:?}")));
        };
        let scenario = self.scenario;
        let limits = &scenario.limits;
        let applied = self.pages.is_applied(&asked.key);
        let excused = match kind {
            ErrorKind::ShuttingDown => {
                self.pages.stopped.is_some() || self.pages.ended_by_upgrade && self.cannot_move()
            }
            ErrorKind::Cancelled => asked.cancelled == Some(true),
            // Refused before it was sent, so it has no effect.
            ErrorKind::Overloaded => !applied,
            ErrorKind::Timeout => scenario.can_be_slow() || limits.restarts < 100,
            ErrorKind::OutcomeUnknown => {
                let handed_over = self.pages.handed_over.contains_key(&asked.key);
                let heard = self.pages.answered.contains_key(&asked.key) && self.is_exact();
                let may_be_sent = handed_over || self.pages.torn;
                let never = asked.tool != Some(Tool::Get) && may_be_sent;
                never && !heard
            }
            ErrorKind::ReplayExhausted | ErrorKind::CallKillsWorker => {
                let deaths = self.pages.deaths.iter().filter(|at| **at >= asked.at);
                asked.tool.is_none_or(|tool| tool == Tool::Get)
                    && deaths.count() > limits.replays as usize
            }
            ErrorKind::WorkerUnavailable | ErrorKind::WorkerNotReady | ErrorKind::WorkerSetup => {
                // A pack that is not known may have the tool.
                let unknown = !scenario.built_in && !scenario.incarnations.is_empty();
                !applied && (limits.restarts < 100 || self.bad_start() || unknown)
            }
            // The server of a resource is known once it has listed its resources.
            ErrorKind::ResourceNotFound => {
                asked.tool.is_none() && (scenario.can_be_slow() || !self.pages.deaths.is_empty())
            }
            ErrorKind::Internal => scenario.check_noise.gives_up_one_in > 0,
            _ => false,
        };
        (!excused).then(|| ("an error without a reason", format!("{kind}")))
    }

    /// True if the answers of this client are not handed over at an upgrade.
    fn cannot_move(&self) -> bool {
        let plan = self.scenario.clients.get(self.number);
        plan.is_none_or(|plan| plan.speech == Speech::Modern && plan.route != Route::Pipe)
    }

    fn deed(&self, is_it: impl Fn(Deed) -> bool, what: &Outcome) -> Option<(&'static str, String)> {
        let planned = self.has_deed(is_it);
        (!planned).then(|| ("an error without a reason", format!("{what:?}")))
    }

    fn has_deed(&self, is_it: impl Fn(Deed) -> bool) -> bool {
        let mut plans = self.scenario.incarnations.iter();
        plans.any(|plan| plan.deeds.iter().any(|(_, deed)| is_it(*deed)))
    }

    fn bad_start(&self) -> bool {
        let mut plans = self.scenario.incarnations.iter();
        plans.any(|plan| plan.start != Start::Normal)
    }

    /// Whether a worker's answer was certainly in the host's reach before the worker was lost.
    fn is_exact(&self) -> bool {
        let slow = |plan: &super::plan::Incarnation| {
            let deeds = plan.deeds.iter();
            let exact = |deed: &Deed| matches!(deed, Deed::AnswerThenCrash | Deed::LastLineOpen);
            !deeds.map(|(_, deed)| deed).all(exact)
        };
        let plans = &self.scenario.incarnations;
        !plans.iter().any(slow) && !self.scenario.can_be_slow() && self.scenario.operator.is_empty()
    }

    /// Direct calls are answered in the order in which they were sent.
    fn out_of_turn(&self) -> Option<String> {
        let plan = self.scenario.clients.get(self.number)?;
        if plan.speech != Speech::Direct {
            return None;
        }
        let counts = |number: &&usize| {
            let asked = self.page.requests.get(**number);
            asked.is_some_and(|asked| {
                asked.tool.is_some() && asked.cancelled.is_none() && asked.extra == 0
            })
        };
        let order: Vec<usize> = self.page.order.iter().filter(counts).copied().collect();
        (!order.is_sorted()).then(|| format!("{order:?}"))
    }
}
