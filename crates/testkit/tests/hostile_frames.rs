//! A hundred thousand hostile frames and twenty lines of 64 MiB, then one good request.

use std::collections::{BTreeMap, VecDeque};
use std::thread;

use anyhow::{Context as _, bail, ensure};
use mainstay_testkit::hostile::{Expectation, Lane, hostile, long_lines};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::Serve;
use serde_json::json;

const SEED: u64 = 0x6d61_696e_7374_6179;
const FRAMES: u64 = 100_000;
/// What the host may take over its memory after the first good request, in KiB.
const MEMORY: u64 = 16 * 1024;
const PIECE: usize = 64 * 1024;

#[test]
fn hostile_frames_are_each_answered_as_decided_within_sixteen_mebibytes() -> anyhow::Result<()> {
    let host = Serve::stdio()?.spawn()?;
    let client = host.client()?;
    good_request(client, "\"first\"")?;
    let before = host.usage()?.resident;

    exchange_frames(client)?;
    for line in long_lines() {
        thread::scope(|scope| -> anyhow::Result<()> {
            scope.spawn(|| {
                line.pieces(PIECE)
                    .try_for_each(|piece| client.send_raw(piece))
            });
            let answer = client.next()?;
            line.expectation
                .check(&answer)
                .with_context(|| format!("{} got {answer:?}", &line.head[..60]))
        })?;
    }

    good_request(client, "\"last\"")?;
    let after = host.usage()?.peak;
    println!("resident before {before} KiB, peak {after} KiB");
    ensure!(
        after <= before + MEMORY,
        "the host took {} KiB more than after its first request",
        after - before
    );
    host.stop()
}

/// Sends all frames while reading the answers, and pairs each answer with its frame.
fn exchange_frames(client: &Client) -> anyhow::Result<()> {
    let mut owed = Owed::default();
    for frame in hostile(SEED, FRAMES) {
        owed.add(frame.kind, frame.expectation);
    }
    let total = owed.ordered.len() + owed.free.len();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut piece = Vec::with_capacity(2 * PIECE);
            for frame in hostile(SEED, FRAMES) {
                piece.extend_from_slice(&frame.bytes);
                piece.push(b'\n');
                if piece.len() >= PIECE && client.send_raw(std::mem::take(&mut piece)).is_err() {
                    return;
                }
            }
            let _ = client.send_raw(piece);
        });
        (0..total).try_for_each(|_| owed.settle(&client.next()?))
    })?;
    client.silence(std::time::Duration::from_millis(50))
}

/// Answers that have not come yet.
#[derive(Default)]
struct Owed {
    ordered: VecDeque<(&'static str, Expectation)>,
    free: BTreeMap<String, (&'static str, Expectation)>,
}

impl Owed {
    fn add(&mut self, kind: &'static str, expectation: Expectation) {
        match (expectation.lane(), expectation.id()) {
            (Some(Lane::Ordered), _) => self.ordered.push_back((kind, expectation)),
            (Some(Lane::Free), Some(id)) => {
                self.free.insert(id.to_owned(), (kind, expectation));
            }
            (Some(Lane::Free), None) | (None, _) => {}
        }
    }

    fn settle(&mut self, answer: &Message) -> anyhow::Result<()> {
        let free = answer.id().and_then(|id| self.free.remove(id));
        let Some((kind, expectation)) = free.or_else(|| self.ordered.pop_front()) else {
            bail!("nobody asked for {answer:?}");
        };
        expectation
            .check(answer)
            .with_context(|| format!("{kind}: expected {expectation:?}, got {answer:?}"))
    }
}

fn good_request(client: &Client, id: &str) -> anyhow::Result<()> {
    let answer = client.call(id, "system_health", &json!({}))?;
    let state = answer.at("/result/structuredContent/state");
    ensure!(state.is_string(), "no health in {answer:?}");
    Ok(())
}
