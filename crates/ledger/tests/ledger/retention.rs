//! Outcomes are kept for their retention and no longer; an outcome is decided before it is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;

use mainstay_ledger::{Clerk, Key, LedgerError, NewTask, Order, Reply, Settings, Status};
use rusqlite::Connection;

use crate::scratch::{ALICE, Host, NOW, RETENTION_MS, SETTINGS, Scratch, id, new_task};

/// A time at which the retention of what ended at [`NOW`] is over.
const LATER: u64 = NOW + RETENTION_MS + 1;

fn with_key(number: u128) -> NewTask {
    NewTask {
        key: Some(Key {
            name: "order-7".to_owned(),
            arguments: "a".to_owned(),
        }),
        ..new_task(number)
    }
}

fn expire() -> Order {
    Order::Expire {
        outcome: "unknown".to_owned(),
    }
}

#[test]
fn a_task_whose_retention_is_over_is_unknown_before_it_is_removed() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    host.record(with_key(1));
    assert!(host.finish(id(1), "done"));
    assert!(host.read_at(LATER - 1, &ALICE, id(1)).is_some());
    assert_eq!(host.read_at(LATER, &ALICE, id(1)), None);
    let list = Order::List {
        who: ALICE,
        before: None,
        most: 10,
    };
    assert_eq!(host.order_at(LATER, list), Ok(Reply::Tasks(Vec::new())));
    let cancel = Order::Cancel {
        who: ALICE,
        id: id(1),
        outcome: String::new(),
    };
    assert_eq!(host.order_at(LATER, cancel), Ok(Reply::Cancelled(None)));
    let again = host.order_at(LATER, Order::Record(Box::new(with_key(2))));
    assert!(matches!(again, Ok(Reply::Recorded(_))), "{again:?}");
    assert!(
        host.read_at(LATER, &ALICE, id(2)).is_some(),
        "the key is free"
    );
}

#[test]
fn the_host_that_records_a_task_decides_how_long_it_is_kept() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    host.record(new_task(1));
    assert!(host.finish(id(1), "done"));
    let hasty = Settings {
        retention_ms: 0,
        ..SETTINGS
    };
    let mut hasty = Host::try_start(scratch.path(), 2, hasty).unwrap();
    assert_eq!(hasty.order_at(LATER - 1, expire()), Ok(Reply::Pruned(0)));
    assert_eq!(hasty.order_at(LATER, expire()), Ok(Reply::Pruned(1)));
}

#[test]
fn an_unfinished_task_ends_as_unknown_before_it_is_forgotten() {
    let scratch = Scratch::new();
    let mut dead = Host::start(scratch.path(), 1);
    dead.record(with_key(1));
    let mut other = Host::start(scratch.path(), 2);
    let late = NOW + 60_000 + RETENTION_MS + 1;
    assert_eq!(
        other.order_at(late, expire()),
        Ok(Reply::Pruned(0)),
        "its host lives"
    );
    drop(dead);
    assert_eq!(other.order_at(late - 1, expire()), Ok(Reply::Pruned(0)));
    assert_eq!(other.order_at(late, expire()), Ok(Reply::Pruned(1)));
    let task = other.read_at(late, &ALICE, id(1)).unwrap();
    assert_eq!(task.status, Status::Failed);
    assert_eq!(task.outcome.as_deref(), Some("unknown"));
    let again = late + RETENTION_MS;
    assert_eq!(other.order_at(again, expire()), Ok(Reply::Pruned(0)));
    assert_eq!(other.order_at(again + 1, expire()), Ok(Reply::Pruned(1)));
    assert_eq!(other.read_at(again + 1, &ALICE, id(1)), None);
}

/// Sends an order and waits for its reply.
fn ask(clerk: &Clerk, order: Order) -> Result<Reply, LedgerError> {
    let (send, receive) = mpsc::channel();
    assert!(clerk.send(order, move |reply| send.send(reply).unwrap()));
    receive.recv().unwrap()
}

#[test]
fn a_clerk_expires_tasks_while_its_host_runs() {
    let scratch = Scratch::new();
    let directory = scratch.path().to_owned();
    let clock = Arc::new(AtomicU64::new(NOW));
    let now_ms = {
        let clock = Arc::clone(&clock);
        move || clock.load(Ordering::Relaxed)
    };
    let open = move || Ok(Host::start(&directory, 1).ledger);
    let clerk = Clerk::start(open, now_ms, "unknown".to_owned()).unwrap();
    ask(&clerk, Order::Record(Box::new(new_task(1)))).unwrap();
    let finish = Order::Finish {
        id: id(1),
        status: Status::Completed,
        outcome: "done".to_owned(),
    };
    ask(&clerk, finish).unwrap();
    clock.store(LATER, Ordering::Relaxed);
    let read = Order::Read {
        who: ALICE,
        id: id(1),
    };
    assert_eq!(ask(&clerk, read), Ok(Reply::Task(None)));
    drop(clerk);
    let file = Connection::open(scratch.path().join("tasks.db")).unwrap();
    let count = file.query_row("SELECT count(*) FROM task", [], |row| row.get::<_, u64>(0));
    assert_eq!(count, Ok(0), "its row is gone, too");
}

#[test]
fn a_clerk_opens_the_ledger_again_and_not_more_than_once_a_second() {
    let scratch = Scratch::new();
    let directory = scratch.path().to_owned();
    let clock = Arc::new(AtomicU64::new(NOW));
    let opens = Arc::new(AtomicU32::new(0));
    let now_ms = {
        let clock = Arc::clone(&clock);
        move || clock.load(Ordering::Relaxed)
    };
    let open = {
        let opens = Arc::clone(&opens);
        move || match opens.fetch_add(1, Ordering::Relaxed) {
            0 => Err(LedgerError::ReadOnly(directory.clone())),
            _ => Ok(Host::start(&directory, 1).ledger),
        }
    };
    let clerk = Clerk::start(open, now_ms, String::new()).unwrap();
    let read = Order::Read {
        who: ALICE,
        id: id(1),
    };
    for _ in 0..3 {
        ask(&clerk, read.clone()).unwrap_err();
    }
    clock.store(NOW + 999, Ordering::Relaxed);
    ask(&clerk, read.clone()).unwrap_err();
    assert_eq!(opens.load(Ordering::Relaxed), 1);
    clock.store(NOW + 1000, Ordering::Relaxed);
    assert_eq!(ask(&clerk, read), Ok(Reply::Task(None)));
    assert_eq!(opens.load(Ordering::Relaxed), 2);
}
