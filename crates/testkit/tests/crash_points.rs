//! A worker that dies at each point of a call, for each replay contract: the answer, the number of
//! effects, the same session afterwards, no process left.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_contract::replay::Replay;
use mainstay_testkit::oracle::{
    Answer, Attempts, Breach, Dialect, Effect, Event, Failure, History, Ledger, Recorder, check,
    read_effects, verify,
};
use mainstay_testkit::process::{Running, Serve, binary, kill};
use serde_json::json;

/// How a call ends, and how many effects it leaves.
type End = (Expect, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Success,
    Unknown,
}

use Expect::{Success, Unknown};

/// A point, and what becomes of a call that is never replayed, probed, convergent.
const TABLE: &[(&str, End, End, End)] = &[
    // Never handed over, so it is simply sent to the next worker.
    (
        "handshake --generations 2-2",
        (Success, 1),
        (Success, 1),
        (Success, 1),
    ),
    (
        "half-ready --generations 2-3",
        (Success, 1),
        (Success, 1),
        (Success, 1),
    ),
    ("before-write", (Success, 1), (Success, 1), (Success, 1)),
    // From its first byte on it may have run.
    ("after-bytes=4", (Unknown, 0), (Success, 1), (Success, 1)),
    ("after-bytes=40", (Unknown, 0), (Success, 1), (Success, 1)),
    ("before-effect", (Unknown, 0), (Success, 1), (Success, 1)),
    // It did run.
    ("after-effect", (Unknown, 1), (Success, 1), (Success, 2)),
    ("half-answer", (Unknown, 1), (Success, 1), (Success, 2)),
    // The successor dies of the repetition or of the probe, too.
    (
        "before-effect --generations 1-3",
        (Unknown, 0),
        (Success, 1),
        (Success, 1),
    ),
    (
        "after-effect --generations 1-3",
        (Unknown, 1),
        (Success, 1),
        (Success, 4),
    ),
    // Long answered when it dies.
    ("drain", (Success, 1), (Success, 1), (Success, 1)),
];

const CONTRACTS: [Replay; 3] = [
    Replay::NeverReplay,
    Replay::ProbeRequired,
    Replay::Convergent,
];

fn call(replay: Replay) -> Ledger {
    match replay {
        Replay::NeverReplay => Ledger::append("a"),
        Replay::ProbeRequired => Ledger::transfer("t", "x", "y"),
        Replay::Convergent => Ledger::put("k", "v"),
    }
}

/// One call behind a relay that kills its worker. Gives the history, and the effects of the call.
fn run(point: &str, dialect: Dialect, call: Ledger) -> anyhow::Result<(History, Vec<Effect>)> {
    let serve = Serve::stdio()?
        .crashing_ledger(point)?
        .limits("backoff_min_ms = 0, backoff_max_ms = 0")?;
    let file = serve.ledger_file();
    let mut host = serve.spawn()?;
    let client = host.take_client()?;
    let mut recorder = Recorder::new(client, 0, dialect, Instant::now());
    if !point.contains("--generations 2") {
        recorder.ask(call)?;
    } else {
        // A first worker serves and is killed; the relay is at its successors.
        recorder.ask(Ledger::get())?;
        recorder.settle()?;
        for pid in host.workers("crash-relay") {
            kill(pid);
        }
        host.wait_for_line("worker_lost")?;
        recorder.ask(call)?;
    }
    recorder.settle()?;
    let (history, client) = recorder.finish(Duration::from_millis(50))?;
    let health = client.call("\"alive\"", "system_health", &json!({}))?;
    ensure!(
        health.at("/result/structuredContent/state").is_string(),
        "the session does not live: {health:?}"
    );
    let rest = client.finish()?;
    ensure!(rest.is_empty(), "said without being asked: {rest:?}");
    ended_well(&mut host)?;
    Ok((history, read_effects(&file)?))
}

/// Exit code 0 and no process left.
fn ended_well(host: &mut Running) -> anyhow::Result<()> {
    let status = host.wait()?;
    ensure!(status.success(), "{status}: {:#?}", host.stderr());
    Ok(())
}

fn answer_of(history: &History) -> Option<Answer> {
    let mut answers = history
        .entries()
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::Answered(answer) => Some(answer.clone()),
            _ => None,
        });
    answers.next_back()
}

#[test]
fn a_worker_that_dies_at_any_point_gives_the_answer_and_the_effects_of_the_contract()
-> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for (point, never, probed, convergent) in TABLE {
        for (replay, (expected, effects)) in CONTRACTS.into_iter().zip([never, probed, convergent])
        {
            for dialect in [Dialect::Legacy, Dialect::Direct] {
                let name = format!("{point}, {replay:?}, {dialect:?}");
                let (history, happened) =
                    run(point, dialect, call(replay)).with_context(|| name.clone())?;
                verify(&history, &happened, Attempts::Last).with_context(|| name.clone())?;
                let answer = answer_of(&history);
                let ended = match &answer {
                    Some(Answer::Success(Some(_))) => Some(Success),
                    Some(Answer::Failed(Failure::OutcomeUnknown)) => Some(Unknown),
                    _ => None,
                };
                if ended != Some(*expected) || happened.len() != *effects {
                    wrong.push(format!("{name}: {answer:?} and {} effects", happened.len()));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn a_first_worker_that_dies_in_its_handshake_costs_the_client_nothing_but_time()
-> anyhow::Result<()> {
    for point in ["handshake", "half-ready"] {
        let host = Serve::stdio()?
            .crashing_ledger(point)?
            .limits("backoff_min_ms = 0, backoff_max_ms = 0")?
            .spawn()?;
        let client = host.client()?;
        // Nobody knows its tools yet; the call waits for the successor.
        let answer = client.call("1", "get", &json!({}))?;
        ensure!(
            answer.at("/result/structuredContent/ok") == true,
            "{point}: {answer:?}"
        );
        host.stop().context(point)?;
    }
    Ok(())
}

#[test]
fn a_long_call_cut_in_the_middle_counts_as_sent() -> anyhow::Result<()> {
    // Longer than a pipe holds, so the host itself gets rid of only a part of it.
    let text = "x".repeat(65_536);
    for (call, expected, effects) in [
        (Ledger::append(&text), Unknown, 0),
        (Ledger::put("k", &text), Success, 1),
    ] {
        let (history, happened) = run("after-bytes=1000", Dialect::Legacy, call)?;
        verify(&history, &happened, Attempts::Last)?;
        let is_success = matches!(answer_of(&history), Some(Answer::Success(_)));
        assert_eq!((is_success, happened.len()), (expected == Success, effects));
    }
    Ok(())
}

#[test]
fn a_worker_that_is_given_up_but_lives_is_gone_before_its_call_runs_again() -> anyhow::Result<()> {
    // It ignores TERM and makes its effect 300 ms after the host gave it up, long before the grace
    // is over: a repetition or a probe that did not wait for its end would not see that effect.
    let relay = binary("crash-relay")?;
    let ledger = binary("ledger")?;
    for (call, next, effects) in [
        (Ledger::put("k", "1"), Ledger::put("k", "2"), 3),
        (Ledger::transfer("t", "x", "y"), Ledger::get(), 1),
        (Ledger::append("a"), Ledger::get(), 1),
    ] {
        let serve =
            Serve::stdio()?.limits("backoff_min_ms = 0, backoff_max_ms = 0, grace_ms = 800")?;
        let file = serve.ledger_file();
        let command = format!(
            "ledger=sh -c 'trap \"\" TERM; exec \"$0\" \"$@\"' {} mute -- {} --file {}",
            relay.display(),
            ledger.display(),
            file.display()
        );
        let mut host = serve.pack(command).spawn()?;
        let client = host.take_client()?;
        let mut recorder = Recorder::new(client, 0, Dialect::Legacy, Instant::now());
        let tool = call.asked.tool.clone();
        recorder.ask(call.pausing(300, 0))?;
        recorder.settle()?;
        recorder.ask(next)?;
        recorder.settle()?;
        let (history, client) = recorder.finish(Duration::from_millis(1000))?;
        ensure!(client.finish()?.is_empty());
        ended_well(&mut host)?;
        let happened = read_effects(&file)?;
        verify(&history, &happened, Attempts::Last).with_context(|| tool.clone())?;
        assert_eq!(happened.len(), effects, "{tool}: {happened:?}");
    }
    Ok(())
}

#[test]
fn the_oracle_finds_a_real_repetition_when_the_contract_is_flipped() -> anyhow::Result<()> {
    for replay in [Replay::NeverReplay, Replay::ProbeRequired] {
        let mut call = call(Replay::Convergent);
        call.asked.replay = replay;
        let (history, happened) = run("after-effect", Dialect::Legacy, call)?;
        let (_, breaches) = check(&history, &happened, Attempts::Last);
        assert!(
            matches!(breaches.as_slice(), [Breach::Repeated { effects: 2, .. }]),
            "{breaches:?}"
        );
    }
    Ok(())
}

#[test]
fn the_oracle_finds_a_real_loss_when_the_contract_is_flipped() -> anyhow::Result<()> {
    let mut call = call(Replay::NeverReplay);
    call.asked.replay = Replay::Convergent;
    let (history, happened) = run("before-effect", Dialect::Legacy, call)?;
    let (_, breaches) = check(&history, &happened, Attempts::Last);
    assert!(
        matches!(breaches.as_slice(), [Breach::Lost { .. }]),
        "{breaches:?}"
    );
    Ok(())
}
