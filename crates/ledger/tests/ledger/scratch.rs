//! Directories, ledgers and tasks for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_ledger::{
    Flush, Lease, LeaseHolder, Ledger, LedgerError, NewTask, Order, Origin, Owner, Recorded, Reply,
    Settings, SqliteLedger, Status, Task, TaskId,
};

pub(crate) const SETTINGS: Settings = Settings {
    bytes: 64 << 20,
    flush: Flush::Every,
    retention_ms: RETENTION_MS,
};
/// How long outcomes are kept.
pub(crate) const RETENTION_MS: u64 = 600_000;
/// The time of every order that does not care.
pub(crate) const NOW: u64 = 1_000_000;

/// A directory that is removed with the test.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// In memory, where there is such a file system.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        match memory.is_dir() {
            true => Self::below(memory),
            false => Self::new(),
        }
    }

    fn below(base: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("mainstay-ledger-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A host as far as the ledger knows it: a lease and an open ledger.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) ledger: SqliteLedger,
    pub(crate) lease: Option<Lease>,
}

impl Host {
    pub(crate) fn start(directory: &Path, number: u8) -> Self {
        Self::try_start(directory, number, SETTINGS).unwrap()
    }

    pub(crate) fn try_start(
        directory: &Path,
        number: u8,
        settings: Settings,
    ) -> Result<Self, LedgerError> {
        let leases = directory.join("hosts");
        let holder = LeaseHolder::from_random([number; 16]);
        let lease = Lease::take(&leases, holder.clone()).ok();
        let path = directory.join("tasks.db");
        let ledger = SqliteLedger::open(&path, &leases, &holder, settings)?;
        Ok(Self { ledger, lease })
    }

    /// Carries out one order.
    pub(crate) fn order(&mut self, order: Order) -> Result<Reply, LedgerError> {
        self.order_at(NOW, order)
    }

    pub(crate) fn order_at(&mut self, now_ms: u64, order: Order) -> Result<Reply, LedgerError> {
        let mut replies = self.ledger.apply(now_ms, &[order]);
        assert_eq!(replies.len(), 1);
        replies.remove(0)
    }

    pub(crate) fn record(&mut self, new: NewTask) -> Task {
        match self.order(Order::Record(Box::new(new))).unwrap() {
            Reply::Recorded(Recorded::New(task)) => *task,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&mut self, who: &Owner, id: TaskId) -> Option<Task> {
        self.read_at(NOW, who, id)
    }

    pub(crate) fn read_at(&mut self, now_ms: u64, who: &Owner, id: TaskId) -> Option<Task> {
        let who = who.clone();
        match self.order_at(now_ms, Order::Read { who, id }).unwrap() {
            Reply::Task(task) => task.map(|task| *task),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn claim(&mut self, backend: &str) -> Vec<Task> {
        let backends = vec![backend.to_owned()];
        match self.order(Order::Claim { backends }).unwrap() {
            Reply::Claimed { tasks, .. } => tasks,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn finish(&mut self, id: TaskId, outcome: &str) -> bool {
        let outcome = outcome.to_owned();
        let status = Status::Completed;
        let order = Order::Finish {
            id,
            status,
            outcome,
        };
        match self.order(order).unwrap() {
            Reply::Done(done) => done,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) const ALICE: Owner = Owner::User(1000);

pub(crate) fn id(number: u128) -> TaskId {
    TaskId::from_random(number.to_be_bytes())
}

pub(crate) fn new_task(number: u128) -> NewTask {
    NewTask {
        id: id(number),
        owner: ALICE,
        backend: "pack:ledger@0".to_owned(),
        tool: "append".to_owned(),
        work: format!(r#"{{"arguments":{{"text":"{number}"}}}}"#),
        replay: "never_replay".to_owned(),
        origin: Origin::Task,
        limit_ms: 60_000,
        key: None,
    }
}
