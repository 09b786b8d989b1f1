//! Properties of workers in every sequence of events: replay contracts, limits, fencing, the
//! takeover of state, and a stop that leaves nothing behind.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod model;

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::Order;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{Answer, Probed};
use mainstay_kernel::action::{Action, Manner};
use mainstay_kernel::time::Time;

use proptest::prelude::*;

use self::model::life::{Life, Sending};
use self::model::mirror::Mirror;
use self::model::script::{lenient_scripts, scripts};
use self::model::{Input, Step, Trace, World};

proptest! {
    #[test]
    fn a_never_replay_call_is_sent_again_only_if_nothing_was_handed_over(script in scripts()) {
        for life in of_class(&Trace::of(&script), Replay::NeverReplay) {
            prop_assert!(life.real_sends() <= 1, "{:?}", life);
            for (earlier, _) in pairs(&life) {
                prop_assert!(earlier.unsent, "{:?}", life);
            }
        }
    }

    #[test]
    fn a_probed_call_is_sent_again_only_after_a_probe_found_no_effect(script in scripts()) {
        for life in of_class(&Trace::of(&script), Replay::ProbeRequired) {
            for (earlier, later) in pairs(&life) {
                let cleared = matches!(
                    &earlier.answer,
                    Some((_, Answer::Probed(Probed::NotApplied {})))
                );
                let again = !later.is_probe && !earlier.unsent;
                prop_assert!(!again || (earlier.is_probe && cleared), "{:?}", life);
            }
        }
    }

    /// Wrapped servers in any state, given up at any time.
    #[test]
    fn a_server_that_is_looked_at_keeps_every_contract(script in lenient_scripts()) {
        let trace = Trace::of(&script);
        for life in Life::all(&trace).values() {
            prop_assert_eq!(life.ends.len(), 1, "{:?}", life);
            prop_assert!(life.real_sends() <= 1 + trace.limits.replays as usize, "{:?}", life);
            let once = life.replay() == Some(Replay::NeverReplay);
            prop_assert!(!once || life.real_sends() <= 1, "{:?}", life);
            for (earlier, later) in pairs(life) {
                let reaped = earlier.reaped.is_some_and(|reaped| reaped <= later.step);
                let free = earlier.unsent || earlier.answer.is_some();
                prop_assert!(free || reaped, "{:?}", life);
            }
        }
    }

    /// That a held answer is the end of its sending, and only its check leads to another one.
    #[test]
    fn a_call_whose_answer_is_checked_is_neither_sent_again_nor_cancelled(script in scripts()) {
        let trace = Trace::of(&script);
        let mut held = BTreeSet::new();
        for step in &trace.steps {
            match step.input {
                Input::Held { generation, call, fenced: false } => {
                    held.insert((generation, call));
                }
                Input::Checked { call, .. } => held.retain(|(_, held)| *held != call),
                _ => {}
            }
            for action in &step.actions {
                match action {
                    Action::Send { call, .. } => {
                        prop_assert!(held.iter().all(|(_, held)| *held != call.call));
                    }
                    Action::Cancel { generation, call } => {
                        prop_assert!(!held.contains(&(*generation, *call)));
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn only_probed_calls_are_probed_for(script in scripts()) {
        for life in Life::all(&Trace::of(&script)).values() {
            let probed = life.sends.iter().any(|sending| sending.is_probe);
            prop_assert!(!probed || life.replay() == Some(Replay::ProbeRequired), "{:?}", life);
        }
    }

    #[test]
    fn what_was_handed_over_is_sent_again_only_after_the_reap(script in scripts()) {
        for life in Life::all(&Trace::of(&script)).values() {
            for (earlier, later) in pairs(life) {
                if !earlier.unsent && earlier.answer.is_none() {
                    let reaped = earlier.reaped.is_some_and(|reaped| reaped <= later.step);
                    prop_assert!(reaped, "{:?}", life);
                }
            }
        }
    }

    #[test]
    fn a_call_that_may_not_have_run_does_not_outlive_a_worker_that_was_never_ready(
        script in scripts()
    ) {
        for life in of_class(&Trace::of(&script), Replay::Convergent) {
            let given_up = life.sends.iter().position(|sending| sending.given_up);
            prop_assert!(given_up.is_none_or(|at| at + 1 == life.sends.len()), "{:?}", life);
        }
    }

    #[test]
    fn attempts_count_what_was_really_sent_and_stay_within_the_replays(script in scripts()) {
        let trace = Trace::of(&script);
        for life in Life::all(&trace).values() {
            prop_assert!(life.real_sends() <= 1 + trace.limits.replays as usize, "{:?}", life);
            prop_assert_eq!(life.ends[0].2.attempt as usize, life.real_sends(), "{:?}", life);
            let mut earlier = 0;
            for sending in life.sends.iter().filter(|sending| !sending.is_probe) {
                prop_assert_eq!(sending.attempt, earlier + 1, "{:?}", life);
                earlier += u32::from(!sending.unsent);
            }
        }
    }

    #[test]
    fn nothing_grows_past_its_limit(script in scripts()) {
        let trace = Trace::of(&script);
        let limits = &trace.limits;
        let mut mirror = Mirror::new(limits);
        let mut hands = Hands::default();
        let mut depths = BTreeMap::new();
        let mut held = BTreeSet::new();
        for step in &trace.steps {
            mirror.follow(step);
            hands.follow(step);
            if let Input::Held { call, .. } = step.input {
                held.insert(call);
            }
            held.retain(|call| mirror.live.contains_key(call));
            for run in hands.0.values() {
                prop_assert!(run.len() <= limits.pool, "a worker runs at most its pool");
            }
            for (slot, (depth, _)) in step.gauges.slots.iter().enumerate() {
                // Only what a worker had comes back to a full queue.
                let before = depths.insert(slot, *depth).unwrap_or(0);
                let limit = match step.input {
                    Input::Asked(_) | Input::Routed { .. } => limits.queue.max(before),
                    _ => limits.queue + limits.pool * hands.0.len().max(1) + held.len(),
                };
                prop_assert!(*depth <= limit, "{depth} {:?}", step.input);
            }
            let mut sessions: BTreeMap<_, (usize, usize)> = BTreeMap::new();
            for live in mirror.live.values() {
                let (free, line) = sessions.entry(live.asked.session).or_default();
                match live.asked.order {
                    Order::Free => *free += 1,
                    Order::InTurn => *line += 1,
                }
            }
            for (free, line) in sessions.values() {
                prop_assert!(*free <= limits.in_flight && *line <= limits.ordered_backlog);
            }
        }
    }

    #[test]
    fn a_worker_that_does_not_let_go_in_time_gets_no_more_calls_and_is_ended(script in scripts()) {
        let trace = Trace::of(&script);
        let mut hands = Hands::default();
        let mut abandoned: BTreeMap<(Generation, CallId), Time> = BTreeMap::new();
        let mut retired = BTreeSet::new();
        let mut stopping = false;
        for step in &trace.steps {
            hands.follow(step);
            stopping |= step.input == Input::Stopped;
            for action in &step.actions {
                match action {
                    Action::Cancel { generation, call } => {
                        let until = step.at.plus_ms(trace.limits.grace_ms);
                        abandoned.insert((*generation, *call), until);
                    }
                    Action::Send { generation, .. } => {
                        prop_assert!(!retired.contains(generation), "it gets no more calls");
                    }
                    Action::Stop { generation, how } if retired.contains(generation) => {
                        prop_assert!(*how == Manner::Terminate || stopping);
                    }
                    _ => {}
                }
            }
            abandoned.retain(|(generation, call), _| hands.has(*generation, *call));
            for ((generation, _), until) in &abandoned {
                if step.input == Input::Ticked && *until <= step.at {
                    retired.insert(*generation);
                }
            }
            for generation in &retired {
                let live = |call: &&CallId| !abandoned.contains_key(&(*generation, **call));
                let run = hands.0.get(generation);
                prop_assert!(
                    run.is_none_or(|run| run.iter().any(|call| live(&call))),
                    "generation {generation} has nothing that anybody waits for, and goes on"
                );
            }
        }
    }

    /// The check itself is in [`World`]: it compares the whole kernel before and after.
    #[test]
    fn what_a_fenced_worker_says_changes_nothing(script in scripts()) {
        for step in Trace::of(&script).steps {
            if let Input::Answered { fenced: true, .. }
            | Input::Held { fenced: true, .. }
            | Input::Progressed { fenced: true, .. } = step.input
            {
                prop_assert_eq!(step.actions, []);
            }
        }
    }

    #[test]
    fn every_spawn_has_a_newer_generation(script in scripts()) {
        let mut last = 0;
        for (_, _, action) in Trace::of(&script).actions() {
            if let Action::Spawn { generation, .. } = action {
                prop_assert!(generation.get() > last);
                last = generation.get();
            }
        }
    }

    #[test]
    fn the_same_events_give_the_same_actions(script in scripts()) {
        prop_assert_eq!(Trace::of(&script), Trace::of(&script));
    }

    #[test]
    fn a_takeover_of_the_state_changes_nothing(script in scripts(), at in 0..400_usize) {
        let at = at.min(script.events.len().saturating_sub(1));
        prop_assert_eq!(World::play(&script, Some(at)), Trace::of(&script));
    }

    #[test]
    fn timers_are_bounded_by_what_is_in_flight(script in scripts(), every in 5..40_usize) {
        let mut world = World::new(script.limits.clone(), script.conduct);
        for (at, event) in script.events.iter().enumerate() {
            world.play_event(*event);
            if at % every == 0 {
                let state = world.state();
                let timers = state["timers"].as_array().unwrap().len();
                let calls = state["calls"].as_object().unwrap().len();
                let slots = state["slots"].as_object().unwrap();
                let run = |slot: &serde_json::Value| -> usize {
                    let workers = slot["workers"].as_object().unwrap().values();
                    workers.map(|worker| worker["running"].as_object().unwrap().len()).sum()
                };
                let running: usize = slots.values().map(run).sum();
                // Deadline and progress for each call, grace for each that was abandoned, two for
                // each slot (its worker and its spare), and the drain.
                prop_assert!(timers <= 2 * calls + running + 2 * slots.len() + 1, "{timers}");
            }
        }
    }

    #[test]
    fn with_its_last_call_a_host_that_is_to_stop_ends_its_workers(script in scripts()) {
        let trace = Trace::of(&script);
        let mut mirror = Mirror::new(&trace.limits);
        let mut going_on = BTreeSet::new();
        for step in &trace.steps {
            mirror.follow(step);
            if let Input::Lost { generation, .. } | Input::Reaped(generation) = &step.input {
                going_on.remove(generation);
            }
            for action in &step.actions {
                match action {
                    Action::Spawn { generation, .. } => { going_on.insert(*generation); }
                    Action::Stop { generation, .. } => { going_on.remove(generation); }
                    _ => {}
                }
            }
            let idle = mirror.stopping && mirror.live.is_empty();
            prop_assert!(!idle || going_on.is_empty(), "{:?} after {:?}", going_on, step.input);
        }
    }

    #[test]
    fn a_stopped_host_leaves_nothing_behind(script in scripts()) {
        let mut world = World::new(script.limits.clone(), script.conduct);
        for event in &script.events {
            world.play_event(*event);
        }
        world.finish(script.finale);
        prop_assert!(world.kernel.is_stopped());
        prop_assert_eq!(world.kernel.poll_timeout(), None);
        prop_assert_eq!(world.kernel.in_flight(), 0);
        let state = world.state();
        for empty in ["sessions", "calls"] {
            prop_assert_eq!(state[empty].as_object().unwrap().len(), 0, "{}", empty);
        }
        for slot in state["slots"].as_object().unwrap().values() {
            prop_assert_eq!(slot["queue"]["calls"].as_array().unwrap().len(), 0);
        }
    }
}

fn of_class(trace: &Trace, class: Replay) -> Vec<Life> {
    let lives = Life::all(trace).into_values();
    lives.filter(|life| life.replay() == Some(class)).collect()
}

/// Each sending of a call with the next one.
fn pairs(life: &Life) -> impl Iterator<Item = (&Sending, &Sending)> {
    life.sends.iter().zip(life.sends.iter().skip(1))
}

/// The open calls of each worker: sent, not answered, and the worker lives.
#[derive(Debug, Default)]
struct Hands(BTreeMap<Generation, BTreeSet<CallId>>);

impl Hands {
    fn has(&self, generation: Generation, call: CallId) -> bool {
        let run = self.0.get(&generation);
        run.is_some_and(|run| run.contains(&call))
    }

    fn follow(&mut self, step: &Step) {
        match &step.input {
            Input::Answered {
                generation, call, ..
            }
            | Input::Held {
                generation, call, ..
            } => {
                if let Some(run) = self.0.get_mut(generation) {
                    run.remove(call);
                }
            }
            Input::Lost { generation, .. } | Input::Reaped(generation) => {
                self.0.remove(generation);
            }
            _ => {}
        }
        for action in &step.actions {
            match action {
                Action::Send { generation, call } => {
                    self.0.entry(*generation).or_default().insert(call.call);
                }
                Action::Stop { generation, .. } => {
                    self.0.remove(generation);
                }
                _ => {}
            }
        }
    }
}
