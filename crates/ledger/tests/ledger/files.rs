//! The file itself: links, modes, older versions, and a file that is removed while it is open.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use mainstay_ledger::{Key, LedgerError, NewTask, Order, Recorded, Reply};
use rusqlite::Connection;

use crate::scratch::{ALICE, Host, SETTINGS, Scratch, id, new_task};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn links_on_the_way_to_the_directory_are_followed() {
    let scratch = Scratch::new();
    let real = scratch.path().join("real home");
    std::fs::create_dir(&real).unwrap();
    symlink(&real, scratch.path().join("home")).unwrap();
    let state = scratch.path().join("home").join("state");
    Host::start(&state, 1).record(new_task(1));
    assert!(real.join("state").join("tasks.db").is_file());
    let link = scratch.path().join("link");
    symlink(&state, &link).unwrap();
    assert!(Host::start(&link, 2).read(&ALICE, id(1)).is_some());
}

#[test]
fn a_link_in_place_of_the_file_is_rejected_and_its_target_is_not_made() {
    let scratch = Scratch::new();
    let victim = scratch.path().join("victim");
    symlink(&victim, scratch.path().join("tasks.db")).unwrap();
    let error = Host::try_start(scratch.path(), 1, SETTINGS).unwrap_err();
    assert!(matches!(error, LedgerError::NotPrivate { .. }), "{error}");
    assert!(error.to_string().contains("a link"), "{error}");
    assert!(!victim.exists());
}

#[test]
fn a_file_that_others_can_read_is_closed_and_a_directory_of_others_is_rejected() {
    let scratch = Scratch::new();
    Host::start(scratch.path(), 1).record(new_task(1));
    let file = scratch.path().join("tasks.db");
    set_mode(&file, 0o644);
    set_mode(scratch.path(), 0o755);
    drop(Host::start(scratch.path(), 2));
    assert_eq!(mode(&file), 0o600);
    set_mode(scratch.path(), 0o777);
    let error = Host::try_start(scratch.path(), 3, SETTINGS).unwrap_err();
    assert!(matches!(error, LedgerError::NotPrivate { .. }), "{error}");
}

/// The tables of version 1, with a task that has a key.
const VERSION_1: &str = "
CREATE TABLE task (id TEXT PRIMARY KEY, owner TEXT NOT NULL, backend TEXT NOT NULL, tool TEXT NOT NULL,
    work TEXT NOT NULL, replay TEXT NOT NULL, origin TEXT NOT NULL, limit_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, holder TEXT NOT NULL, holders INTEGER NOT NULL,
    key TEXT, arguments TEXT, status TEXT NOT NULL, ended_ms INTEGER, outcome TEXT) STRICT;
CREATE UNIQUE INDEX task_by_key ON task (owner, tool, key) WHERE key IS NOT NULL;
CREATE INDEX unfinished_task ON task (backend) WHERE ended_ms IS NULL;
CREATE INDEX task_by_owner ON task (owner, created_ms, id);
CREATE INDEX task_by_end ON task (ended_ms) WHERE ended_ms IS NOT NULL;
INSERT INTO task VALUES ('00000000000000000000000000000001', 'user:1000', 'pack:ledger@0', 'append', '{}',
    'convergent', 'key', 1000, 999000, 999000, 'gone', 1, 'order-7', 'a', 'completed', 999500, 'done');
PRAGMA user_version = 1;
PRAGMA application_id = 0x6d61696e;
";

#[test]
fn a_file_of_version_1_is_carried_and_its_keys_belong_to_their_backend() {
    let scratch = Scratch::new();
    let old = Connection::open(scratch.path().join("tasks.db")).unwrap();
    old.execute_batch(VERSION_1).unwrap();
    drop(old);
    let mut host = Host::start(scratch.path(), 1);
    let task = host.read(&ALICE, id(1)).unwrap();
    assert_eq!(task.outcome.as_deref(), Some("done"));
    let with_key = |number, backend: &str| NewTask {
        backend: backend.to_owned(),
        key: Some(Key {
            name: "order-7".to_owned(),
            arguments: "a".to_owned(),
        }),
        ..new_task(number)
    };
    let same = host.order(Order::Record(Box::new(with_key(2, "pack:ledger@0"))));
    assert_eq!(
        same,
        Ok(Reply::Recorded(Recorded::Same(Box::new(task)))),
        "the old key is known"
    );
    host.record(with_key(3, "pack:other@0"));
    drop(host);
    assert!(
        Host::start(scratch.path(), 2).read(&ALICE, id(3)).is_some(),
        "the carried file is opened again"
    );
}

#[test]
fn a_task_is_never_acknowledged_in_a_file_that_was_removed() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    host.record(new_task(1));
    let remove = || {
        for name in ["tasks.db", "tasks.db-wal", "tasks.db-shm"] {
            std::fs::remove_file(scratch.path().join(name)).unwrap();
        }
    };
    remove();
    host.record(new_task(2));
    let mut other = Host::start(scratch.path(), 2);
    assert!(other.read(&ALICE, id(2)).is_some(), "it is on the disk");
    assert!(host.finish(id(2), "done"));
    assert!(other.read(&ALICE, id(2)).unwrap().outcome.is_some());
    drop(other);
    // Without its lease the host looks dead to others, which would run its tasks, too.
    remove();
    std::fs::remove_dir_all(scratch.path().join("hosts")).unwrap();
    let error = host
        .order(Order::Record(Box::new(new_task(3))))
        .unwrap_err();
    assert!(error.to_string().contains("restart this host"), "{error}");
}
