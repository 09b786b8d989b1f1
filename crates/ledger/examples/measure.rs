//! The cost of a record: one commit for each, and many tasks at a time through a clerk.
//!
//! `cargo run --release -p mainstay-ledger --example measure -- DIRECTORY`

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for developers that fails by panicking"
)]

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use mainstay_ledger::{
    Clerk, Flush, Lease, LeaseHolder, Ledger, NewTask, Order, Origin, Owner, Settings,
    SqliteLedger, Status, TaskId,
};

const TASKS: u32 = 500;
/// Tasks in flight at a time where several are.
const TOGETHER: u32 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    for (name, flush) in [("every", Flush::Every), ("checkpoints", Flush::Checkpoints)] {
        let folder = Path::new(&directory).join(format!("measure-{}", std::process::id()));
        let mut ledger = open(&folder, flush)?;
        let started = Instant::now();
        for task in 0..TASKS {
            ledger.apply(0, &[record(task)]);
            ledger.apply(0, &[finish(task)]);
        }
        report(&format!("flush {name}, one at a time"), started.elapsed());
        drop(ledger);
        std::fs::remove_dir_all(&folder)?;
        let again = folder.clone();
        let clerk = Clerk::start(
            move || Ok(open(&again, flush).unwrap()),
            now_ms,
            String::new(),
        )?;
        let started = Instant::now();
        let (done, finished) = mpsc::sync_channel(1024);
        for task in 0..TASKS {
            if task >= TOGETHER {
                finished.recv()?;
            }
            for order in [record(task), finish(task)] {
                let is_last = matches!(order, Order::Finish { .. });
                let done = done.clone();
                let sent = clerk.send(order, move |_| {
                    if is_last {
                        let _ = done.send(());
                    }
                });
                assert!(sent, "the clerk refuses an order");
            }
        }
        drop((done, clerk));
        report(
            &format!("flush {name}, {TOGETHER} in flight"),
            started.elapsed(),
        );
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

fn report(what: &str, took: Duration) {
    let each = took / TASKS;
    let rate = f64::from(TASKS) / took.as_secs_f64();
    println!("{what}: {each:?} for record and outcome, {rate:.0} tasks/s");
}

fn open(folder: &Path, flush: Flush) -> Result<SqliteLedger, Box<dyn std::error::Error>> {
    let holder = LeaseHolder::from_random([1; 16]);
    let hosts = folder.join("hosts");
    let _ = std::fs::remove_dir_all(&hosts);
    drop(Lease::take(&hosts, holder.clone())?);
    let settings = Settings {
        bytes: 256 << 20,
        flush,
        retention_ms: 60_000,
    };
    Ok(SqliteLedger::open(
        &folder.join("tasks.db"),
        &hosts,
        &holder,
        settings,
    )?)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

fn id(task: u32) -> TaskId {
    TaskId::from_random(u128::from(task).to_be_bytes())
}

fn record(task: u32) -> Order {
    Order::Record(Box::new(NewTask {
        id: id(task),
        owner: Owner::User(0),
        backend: "pack:code@0".to_owned(),
        tool: "search".to_owned(),
        work: r#"{"arguments":{"query":"fn spawn"}}"#.repeat(4),
        replay: "convergent".to_owned(),
        origin: Origin::Task,
        limit_ms: 1000,
        key: None,
    }))
}

fn finish(task: u32) -> Order {
    Order::Finish {
        id: id(task),
        status: Status::Completed,
        outcome: r#"{"ok":{"tool":{"json":{"ok":true}}}}"#.repeat(16),
    }
}
