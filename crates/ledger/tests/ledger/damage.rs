//! Torn writes, full disks and read-only disks.

use std::path::Path;
use std::process::Command;

use mainstay_ledger::{LeaseHolder, Ledger as _, LedgerError, NewTask, Order, Reply, SqliteLedger};

use crate::scratch::{ALICE, Host, NOW, SETTINGS, Scratch, id, new_task};

const DB: &str = "tasks.db";
const WAL: &str = "tasks.db-wal";

/// Tasks that were acknowledged before the write that is torn.
const ACKNOWLEDGED: u128 = 5;

/// Opens a copy of a ledger whose log is `wal` and checks what it holds.
fn check_copy(directory: &Path, db: &[u8], wal: &[u8], what: &str) -> bool {
    let _ = std::fs::remove_file(directory.join("tasks.db-shm"));
    std::fs::write(directory.join(DB), db).unwrap();
    std::fs::write(directory.join(WAL), wal).unwrap();
    let holder = LeaseHolder::from_random([9; 16]);
    let opened = SqliteLedger::open(&directory.join(DB), directory, &holder, SETTINGS);
    let mut ledger = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    let orders: Vec<Order> = (1..=ACKNOWLEDGED + 1)
        .map(|number| Order::Read {
            who: ALICE,
            id: id(number),
        })
        .collect();
    let mut tasks = ledger.apply(NOW, &orders).into_iter().map(|reply| {
        let Ok(Reply::Task(task)) = reply else {
            panic!("{what}: {reply:?}");
        };
        task
    });
    for number in 1..=ACKNOWLEDGED {
        let task = tasks.next().flatten();
        let task = task.unwrap_or_else(|| panic!("{what}: task {number} is lost"));
        assert_eq!(task.work, new_task(number).work, "{what}");
        assert_eq!(task.outcome.is_some(), number == 1, "{what}");
    }
    let last = tasks.next().flatten();
    if let Some(last) = &last {
        assert_eq!(last.work, new_task(ACKNOWLEDGED + 1).work, "{what}");
    }
    last.is_some()
}

#[test]
fn a_write_torn_at_any_byte_loses_nothing_that_was_acknowledged() {
    let scratch = Scratch::in_memory();
    let mut host = Host::start(&scratch.path().join("live"), 1);
    for number in 1..=ACKNOWLEDGED {
        host.record(new_task(number));
    }
    assert!(host.finish(id(1), "done"));
    let read = |name: &str| std::fs::read(scratch.path().join("live").join(name)).unwrap();
    let (db, before) = (read(DB), read(WAL));
    host.record(new_task(ACKNOWLEDGED + 1));
    let after = read(WAL);
    assert_eq!(read(DB), db, "no checkpoint came between");
    assert!(after.starts_with(&before) && after.len() > before.len());
    let copy = scratch.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let mut whole = 0;
    for cut in before.len()..=after.len() {
        let torn = after.get(..cut).unwrap();
        let has_last = check_copy(&copy, &db, torn, &format!("cut at {cut}"));
        assert_eq!(has_last, cut == after.len(), "half a write counts at {cut}");
        whole += u32::from(has_last);
    }
    assert_eq!(whole, 1);
    // A disk may also leave other bytes where the write did not arrive.
    for cut in (before.len()..after.len()).step_by(61) {
        let mut torn = after.clone();
        for byte in torn.iter_mut().skip(cut) {
            *byte ^= 0xa5;
        }
        let has_last = check_copy(&copy, &db, &torn, &format!("garbage from {cut}"));
        assert!(!has_last, "garbage counts at {cut}");
    }
}

/// A small file system in memory. `None`, with a line that says so, where it cannot be mounted.
struct Mounted(Scratch);

impl Mounted {
    fn small() -> Option<Self> {
        let scratch = Scratch::new();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"])
            .arg(scratch.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(scratch)),
            _ => {
                let root = rustix::process::geteuid().is_root();
                assert!(
                    !(root && std::env::var_os("CI").is_some()),
                    "a tmpfs must be mountable in CI"
                );
                println!("skipped: no tmpfs can be mounted here");
                None
            }
        }
    }

    fn remount(&self, option: &str) {
        let done = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.0.path())
            .status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_a_clear_error_and_loses_nothing() {
    let Some(disk) = Mounted::small() else { return };
    let directory = disk.0.path();
    let mut host = Host::start(directory, 1);
    let large = |number| NewTask {
        work: "x".repeat(20_000),
        ..new_task(number)
    };
    let mut accepted = 0;
    let error = loop {
        match host.order(Order::Record(Box::new(large(accepted + 1)))) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 1000, "the disk is never full");
    };
    assert!(matches!(error, LedgerError::DiskFull(_)), "{error}");
    assert!(error.to_string().contains("tasks.db is full"), "{error}");
    assert!(accepted > 0);
    let check = |host: &mut Host| {
        for number in 1..=accepted {
            let task = host.read(&ALICE, id(number)).unwrap();
            assert_eq!(task.work.len(), 20_000, "task {number}");
        }
        assert_eq!(host.read(&ALICE, id(accepted + 1)), None);
    };
    check(&mut host);
    disk.remount("size=8m");
    host.record(large(accepted + 2));
    drop(host);
    check(&mut Host::start(directory, 2));
}

#[test]
fn a_read_only_disk_is_a_clear_error_and_loses_nothing() {
    let Some(disk) = Mounted::small() else { return };
    let directory = disk.0.path();
    let mut host = Host::start(directory, 1);
    host.record(new_task(1));
    drop(host);
    disk.remount("ro");
    let error = Host::try_start(directory, 2, SETTINGS).unwrap_err();
    assert!(matches!(error, LedgerError::ReadOnly(_)), "{error}");
    assert!(error.hint().contains("MAINSTAY_STATE_DIR"));
    disk.remount("rw");
    let mut host = Host::start(directory, 3);
    assert!(host.read(&ALICE, id(1)).is_some());
    host.record(new_task(2));
}

#[test]
fn a_file_of_another_program_is_left_alone() {
    let scratch = Scratch::new();
    std::fs::write(
        scratch.path().join(DB),
        "a shopping list, certainly longer than a page head".repeat(20),
    )
    .unwrap();
    let error = Host::try_start(scratch.path(), 1, SETTINGS).unwrap_err();
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
    let text = std::fs::read_to_string(scratch.path().join(DB)).unwrap();
    assert!(text.starts_with("a shopping list"));
}
