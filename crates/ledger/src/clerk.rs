//! A ledger on a thread of its own: the host never waits for a disk, and orders that come meanwhile are
//! committed together. The thread also expires old tasks.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Ledger;
use crate::error::LedgerError;
use crate::order::{Order, Reply};

/// Orders that are committed together at most.
const GROUP: usize = 256;
/// Orders that may wait; a caller that sends more is refused.
const WAITING: usize = 4096;
/// Milliseconds between two attempts to open the ledger.
const REOPEN_MS: u64 = 1_000;
/// Milliseconds between two looks for tasks whose retention is over.
const EXPIRE_MS: u64 = 60_000;
/// As [`EXPIRE_MS`], after a look that found some.
const EXPIRE_MORE_MS: u64 = 1_000;

type Answer = Box<dyn FnOnce(Result<Reply, LedgerError>) + Send>;

struct Job {
    order: Order,
    answer: Answer,
}

/// The handle of the thread. Dropping it carries out what was sent, then ends the thread.
#[derive(Debug)]
pub struct Clerk {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Clerk {
    /// Starts the thread. `open` runs on it when the first order comes, and again with a later order after it
    /// failed; `now_ms` is its clock. `unknown` is the outcome of [`Order::Expire`].
    pub fn start<L: Ledger>(
        open: impl FnMut() -> Result<L, LedgerError> + Send + 'static,
        now_ms: impl Fn() -> u64 + Send + 'static,
        unknown: String,
    ) -> std::io::Result<Self> {
        let (jobs, incoming) = mpsc::sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || work(open, now_ms, unknown, &incoming))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Sends an order. `answer` runs on the thread once the order is durable or has failed. False if too many
    /// orders wait: then `answer` never runs.
    #[must_use]
    pub fn send(
        &self,
        order: Order,
        answer: impl FnOnce(Result<Reply, LedgerError>) + Send + 'static,
    ) -> bool {
        let answer = Box::new(answer);
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.try_send(Job { order, answer }).is_ok())
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Carries out orders until the handle is dropped.
fn work<L: Ledger>(
    mut open: impl FnMut() -> Result<L, LedgerError>,
    now_ms: impl Fn() -> u64,
    outcome: String,
    incoming: &Receiver<Job>,
) {
    let expire = [Order::Expire { outcome }];
    let mut ledger: Option<L> = None;
    let mut failed: Option<(u64, LedgerError)> = None;
    let mut expire_at_ms = 0_u64;
    loop {
        let wait_ms = ledger
            .as_ref()
            .map(|_| expire_at_ms.saturating_sub(now_ms()).min(EXPIRE_MS));
        let Some(group) = next_group(incoming, wait_ms) else {
            return;
        };
        let now = now_ms();
        if ledger.is_none() {
            match failed.take() {
                Some((at_ms, error)) if now.abs_diff(at_ms) < REOPEN_MS => {
                    failed = Some((at_ms, error));
                }
                _ => match open() {
                    Ok(opened) => ledger = Some(opened),
                    Err(error) => failed = Some((now, error)),
                },
            }
        }
        let (orders, answers): (Vec<_>, Vec<_>) =
            group.into_iter().map(|job| (job.order, job.answer)).unzip();
        if let Some(ledger) = &mut ledger {
            if now >= expire_at_ms || expire_at_ms - now > EXPIRE_MS {
                let found = ledger.apply(now, &expire).pop();
                expire_at_ms = now
                    + match found {
                        Some(Ok(Reply::Pruned(1..))) => EXPIRE_MORE_MS,
                        // Old tasks that cannot be removed now are removed next time.
                        _ => EXPIRE_MS,
                    };
            }
            if !orders.is_empty() {
                let replies = ledger.apply(now, &orders);
                for (answer, reply) in answers.into_iter().zip(replies) {
                    answer(reply);
                }
            }
        } else if let Some((_, error)) = &failed {
            for answer in answers {
                answer(Err(error.clone()));
            }
        }
    }
}

/// The next orders: all that wait, up to a group. None of them if none comes for `wait_ms`; `None` if none will
/// ever come.
fn next_group(incoming: &Receiver<Job>, wait_ms: Option<u64>) -> Option<Vec<Job>> {
    let first = match wait_ms {
        Some(ms) => incoming.recv_timeout(Duration::from_millis(ms)),
        None => incoming.recv().map_err(RecvTimeoutError::from),
    };
    let mut group = match first {
        Ok(job) => vec![job],
        Err(RecvTimeoutError::Timeout) => return Some(Vec::new()),
        Err(RecvTimeoutError::Disconnected) => return None,
    };
    while group.len() < GROUP
        && let Ok(job) = incoming.try_recv()
    {
        group.push(job);
    }
    Some(group)
}
