//! A ledger on a thread of its own: the host never waits for a disk, and orders that come meanwhile are
//! committed together.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use crate::Ledger;
use crate::error::LedgerError;
use crate::order::{Order, Reply};

/// Orders that are committed together at most.
const GROUP: usize = 256;
/// Orders that may wait; a caller that sends more is refused.
const WAITING: usize = 4096;

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
    /// Starts the thread. `open` runs on it when the first order comes, and again after it failed; `now_ms` is
    /// its clock.
    pub fn start<L: Ledger>(
        mut open: impl FnMut() -> Result<L, LedgerError> + Send + 'static,
        now_ms: impl Fn() -> u64 + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, incoming) = mpsc::sync_channel(WAITING);
        let work = move || {
            let mut ledger = None;
            while let Some(group) = next_group(&incoming) {
                let (orders, answers): (Vec<_>, Vec<_>) =
                    group.into_iter().map(|job| (job.order, job.answer)).unzip();
                let opened = match ledger.take() {
                    Some(ledger) => Ok(ledger),
                    None => open(),
                };
                match opened {
                    Ok(mut opened) => {
                        let replies = opened.apply(now_ms(), &orders);
                        for (answer, reply) in answers.into_iter().zip(replies) {
                            answer(reply);
                        }
                        ledger = Some(opened);
                    }
                    Err(error) => {
                        for answer in answers {
                            answer(Err(error.clone()));
                        }
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(work)?;
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

/// The next orders: all that wait, up to a group.
fn next_group(incoming: &Receiver<Job>) -> Option<Vec<Job>> {
    let first = incoming.recv().ok()?;
    let mut group = vec![first];
    while group.len() < GROUP
        && let Ok(job) = incoming.try_recv()
    {
        group.push(job);
    }
    Some(group)
}
