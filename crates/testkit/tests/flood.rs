//! A thousand calls at once in one session: every one is answered, what there is no room for is
//! refused, and the host is afterwards what it was before.

use std::time::{Duration, Instant};

use anyhow::ensure;
use mainstay_testkit::oracle::{
    Answer, Attempts, Dialect, Event, Failure, History, Ledger, Recorder, read_effects, verify,
};
use mainstay_testkit::process::{Running, Serve};
use serde_json::json;

const CALLS: usize = 1000;
/// The host's memory comes back to within so much of what it was, in KiB.
const GROWTH: u64 = 8 * 1024;

struct Flooded {
    history: History,
    host: Running,
}

fn flood(dialect: Dialect) -> anyhow::Result<Flooded> {
    let serve = Serve::stdio()?.ledger()?;
    let file = serve.ledger_file();
    let mut host = serve.spawn()?;
    let client = host.take_client()?;
    let mut recorder = Recorder::new(client, 0, dialect, Instant::now());
    recorder.ask(Ledger::get())?;
    recorder.settle()?;
    let before = host.usage()?.resident;
    for number in 0..CALLS {
        let call = match (dialect, number % 7) {
            (Dialect::Direct, 3) => nonsense(),
            _ => Ledger::append(&format!("f{number}")).pausing(1, 0),
        };
        recorder.ask(call)?;
    }
    recorder.settle()?;
    // Freed memory need not be given back at once.
    let until = Instant::now() + Duration::from_secs(120);
    while host.usage()?.resident > before + GROWTH {
        ensure!(
            Instant::now() < until,
            "memory did not come back: {before} KiB before, {:?} after",
            host.usage()?
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let (history, client) = recorder.finish(Duration::from_millis(100))?;
    let after = host.usage()?;
    report(&format!(
        "{dialect:?}: {before} KiB resident before, {after:?}"
    ));
    ensure!(client.finish()?.is_empty());
    ensure!(host.wait()?.success());
    verify(&history, &read_effects(&file)?, Attempts::Last)?;
    Ok(Flooded { history, host })
}

#[expect(
    clippy::print_stdout,
    reason = "the figures of a run are worth keeping"
)]
fn report(line: &str) {
    println!("{line}");
}

/// A call that is refused before dispatch.
fn nonsense() -> Ledger {
    let mut call = Ledger::get();
    call.arguments = json!({ "no_such_argument": 1 });
    call
}

fn answers(history: &History) -> Vec<(u64, &Answer)> {
    let entries = history.entries().iter();
    entries
        .filter_map(|entry| match &entry.event {
            Event::Answered(answer) => Some((entry.id.parse().ok()?, answer)),
            _ => None,
        })
        .collect()
}

#[test]
fn thousand_parallel_mcp_calls_are_all_answered_and_the_surplus_is_refused() -> anyhow::Result<()> {
    let Flooded { history, host } = flood(Dialect::Legacy)?;
    let answers = answers(&history);
    assert_eq!(answers.len(), CALLS + 1);
    let refused = answers.iter().filter(|(_, answer)| {
        matches!(answer, Answer::Failed(Failure::Refused(code)) if code == "QUEUE_OVERLOADED")
    });
    let refused = refused.count();
    let done = answers
        .iter()
        .filter(|(_, answer)| matches!(answer, Answer::Success(_)))
        .count();
    assert_eq!(
        refused + done,
        CALLS + 1,
        "nothing but successes and refusals"
    );
    // At least what has room is done, and a thousand have not.
    assert!(done > 64 && refused > 0, "{done} done, {refused} refused");
    report(&format!("{done} done, {refused} refused"));
    drop(host);
    Ok(())
}

#[test]
fn thousand_direct_calls_are_answered_in_request_order_with_refusals_in_their_places()
-> anyhow::Result<()> {
    let Flooded { history, host } = flood(Dialect::Direct)?;
    let ids: Vec<u64> = answers(&history).iter().map(|(id, _)| *id).collect();
    let in_order: Vec<u64> = (1..=CALLS as u64 + 1).collect();
    assert_eq!(ids, in_order);
    for (id, answer) in answers(&history) {
        // The first call is not of the flood.
        let is_refused = id > 1 && (id - 2) % 7 == 3;
        assert_eq!(
            matches!(answer, Answer::Failed(_)),
            is_refused,
            "{id}: {answer:?}"
        );
    }
    drop(host);
    Ok(())
}
