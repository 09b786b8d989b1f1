//! The life of each call, read off a trace.

use std::collections::BTreeMap;

use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{self, Answer};
use mainstay_kernel::action::{Action, End};
use mainstay_kernel::time::Time;

use super::{Asked, Input, Trace, Wanted};

/// All that happened to one call. Numbers are those of steps.
#[derive(Clone, Debug)]
pub struct Life {
    pub asked: Asked,
    /// The kernel asked who answers it.
    pub routes: Vec<usize>,
    /// The kernel was told who answers it.
    pub routed: Option<usize>,
    pub serves: Vec<usize>,
    pub sends: Vec<Sending>,
    pub progress: Vec<(usize, Time, u64)>,
    pub ends: Vec<(usize, Time, End)>,
}

/// A call or its probe, handed to a worker.
#[derive(Clone, Debug)]
pub struct Sending {
    pub step: usize,
    pub generation: Generation,
    pub is_probe: bool,
    pub attempt: u32,
    /// The worker was lost during the call, and not one byte had been handed over.
    pub unsent: bool,
    /// The worker was given up during the call, because it was never ready.
    pub given_up: bool,
    /// The worker was reaped in this step.
    pub reaped: Option<usize>,
    /// The worker answered in this step, and the answer was to be checked.
    pub held: Option<usize>,
    /// The first answer that was not fenced off; a held one counts when it was checked.
    pub answer: Option<(usize, Answer)>,
}

impl Life {
    /// The lives of all calls of a trace.
    pub fn all(trace: &Trace) -> BTreeMap<CallId, Self> {
        let mut lives = BTreeMap::new();
        for (at, step) in trace.steps.iter().enumerate() {
            if let Input::Asked(asked) = &step.input {
                lives.insert(asked.call, Self::new(asked.clone()));
            }
            for life in lives.values_mut() {
                life.notice(at, &step.input);
            }
            for action in &step.actions {
                record(&mut lives, at, step.at, action);
            }
        }
        lives
    }

    fn new(asked: Asked) -> Self {
        Self {
            asked,
            routes: Vec::new(),
            routed: None,
            serves: Vec::new(),
            sends: Vec::new(),
            progress: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Its replay class, if it is a worker's.
    pub fn replay(&self) -> Option<Replay> {
        match self.asked.work {
            Wanted::Worker { replay, .. } => Some(replay),
            Wanted::Refusal | Wanted::Host => None,
        }
    }

    /// Times that it was really sent.
    pub fn real_sends(&self) -> usize {
        let calls = self.sends.iter().filter(|sending| !sending.is_probe);
        calls.filter(|sending| !sending.unsent).count()
    }

    fn notice(&mut self, at: usize, input: &Input) {
        let call = self.asked.call;
        if *input == (Input::Routed { call, stale: false }) {
            self.routed = Some(at);
        }
        for sending in &mut self.sends {
            match input {
                Input::Lost {
                    generation,
                    unsent,
                    unready,
                } if *generation == sending.generation => {
                    let answered = sending.answer.is_some() || sending.held.is_some();
                    let awaited = !answered && self.ends.is_empty();
                    sending.unsent |= awaited && unsent.contains(&call);
                    sending.given_up |= awaited && *unready;
                }
                Input::Reaped(generation) if *generation == sending.generation => {
                    sending.reaped = Some(at);
                }
                Input::Answered {
                    generation,
                    call: of,
                    answer,
                    fenced: false,
                } if (*generation, *of) == (sending.generation, call)
                    && sending.answer.is_none() =>
                {
                    sending.answer = Some((at, answer.clone()));
                }
                Input::Held {
                    generation,
                    call: of,
                    fenced: false,
                } if (*generation, *of) == (sending.generation, call) => {
                    sending.held = sending.held.or(Some(at));
                }
                Input::Checked { call: of, answer }
                    if *of == call && sending.held.is_some() && sending.answer.is_none() =>
                {
                    sending.answer = Some((at, answer.clone()));
                }
                _ => {}
            }
        }
    }
}

fn record(lives: &mut BTreeMap<CallId, Life>, at: usize, now: Time, action: &Action) {
    match action {
        Action::End(end) => {
            let life = lives.get_mut(&end.call).expect("only what was asked ends");
            life.ends.push((at, now, (**end).clone()));
        }
        Action::Progress(notice) => {
            let life = lives.get_mut(&notice.call).expect("progress of a request");
            life.progress.push((at, now, notice.step.step));
        }
        Action::Send { generation, call } => {
            let life = lives.get_mut(&call.call).expect("only requests are sent");
            life.sends.push(Sending {
                step: at,
                generation: *generation,
                is_probe: matches!(call.op, rpc::Op::Probe { .. }),
                attempt: call.attempt,
                unsent: false,
                given_up: false,
                reaped: None,
                held: None,
                answer: None,
            });
        }
        Action::Route { call } => {
            let life = lives.get_mut(call).expect("only requests are routed");
            life.routes.push(at);
        }
        Action::Serve { call } => {
            let life = lives.get_mut(call).expect("only requests are served");
            life.serves.push(at);
        }
        Action::Spawn { .. }
        | Action::Cancel { .. }
        | Action::Stop { .. }
        | Action::Abandon { .. }
        | Action::SessionOver { .. }
        | Action::Ping { .. }
        | Action::Look { .. }
        | Action::SlotOver { .. }
        | Action::Overdue { .. }
        | Action::RolloutOver { .. } => {}
    }
}
