//! The rules that every ledger keeps.

use mainstay_ledger::{
    Clerk, Key, Ledger as _, LedgerError, NewTask, Order, Origin, Owner, Recorded, Reply, Settings,
    Status, TaskId,
};

use crate::scratch::{ALICE, Host, NOW, SETTINGS, Scratch, id, new_task};

#[test]
fn a_task_is_read_as_it_was_recorded_by_another_host_too() {
    let scratch = Scratch::new();
    let mut first = Host::start(scratch.path(), 1);
    let mut second = Host::start(scratch.path(), 2);
    let new = new_task(1);
    let recorded = first.record(new.clone());
    assert_eq!(recorded.work, new.work);
    assert_eq!(recorded.status, Status::Working);
    assert_eq!((recorded.created_ms, recorded.ended_ms), (NOW, None));
    assert_eq!(second.read(&ALICE, id(1)), Some(recorded));
    assert_eq!(second.read(&ALICE, id(2)), None);
}

#[test]
fn the_first_outcome_counts() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    host.record(new_task(1));
    assert!(host.finish(id(1), "first"));
    assert!(!host.finish(id(1), "second"));
    let outcome = "cancelled".to_owned();
    let cancel = Order::Cancel {
        who: ALICE,
        id: id(1),
        outcome,
    };
    match host.order(cancel).unwrap() {
        Reply::Cancelled(Some((task, false))) => assert_eq!(task.status, Status::Completed),
        other => panic!("{other:?}"),
    }
    let task = host.read(&ALICE, id(1)).unwrap();
    assert_eq!(task.outcome.as_deref(), Some("first"));
}

#[test]
fn a_task_of_another_owner_looks_like_one_that_does_not_exist() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    let credential = Owner::Credential("abc".to_owned());
    let owners = [ALICE, credential.clone(), Owner::Holder];
    for (number, owner) in (1..).zip(&owners) {
        let owner = owner.clone();
        host.record(NewTask {
            owner,
            ..new_task(number)
        });
    }
    let strangers = [
        Owner::User(1001),
        Owner::Credential("abd".to_owned()),
        Owner::Holder,
    ];
    for who in strangers {
        for number in [1, 2] {
            assert_eq!(host.read(&who, id(number)), None, "{who:?}");
            let cancel = Order::Cancel {
                who: who.clone(),
                id: id(number),
                outcome: String::new(),
            };
            assert_eq!(host.order(cancel), Ok(Reply::Cancelled(None)));
        }
    }
    for who in &owners {
        assert!(host.read(who, id(3)).is_some(), "the id is the right to it");
    }
    assert!(host.read(&credential, id(2)).is_some());
    assert_eq!(host.read(&credential, id(1)), None);
    let listed = |host: &mut Host, who: Owner| match host.order(Order::List {
        who,
        before: None,
        most: 10,
    }) {
        Ok(Reply::Tasks(tasks)) => tasks.into_iter().map(|task| task.id).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(listed(&mut host, ALICE), [id(1)]);
    assert_eq!(listed(&mut host, credential), [id(2)]);
}

#[test]
fn a_listing_goes_from_the_newest_to_the_oldest_in_pages() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    for number in 1..=5 {
        host.record(new_task(number));
    }
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let order = Order::List {
            who: ALICE,
            before,
            most: 2,
        };
        let Ok(Reply::Tasks(page)) = host.order(order) else {
            panic!("no page");
        };
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        before = Some((last.created_ms, last.id));
        seen.extend(page.iter().map(|task| task.id));
    }
    assert_eq!(seen, [5, 4, 3, 2, 1].map(id));
}

#[test]
fn a_key_belongs_to_one_owner_and_one_tool_and_one_set_of_arguments() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    let with_key = |number, arguments: &str| NewTask {
        key: Some(Key {
            name: "order-7".to_owned(),
            arguments: arguments.to_owned(),
        }),
        origin: Origin::Key,
        ..new_task(number)
    };
    let record = |host: &mut Host, new: NewTask| match host.order(Order::Record(Box::new(new))) {
        Ok(Reply::Recorded(recorded)) => recorded,
        other => panic!("{other:?}"),
    };
    let first = host.record(with_key(1, "a"));
    assert_eq!(
        record(&mut host, with_key(2, "a")),
        Recorded::Same(Box::new(first))
    );
    assert_eq!(
        record(&mut host, with_key(3, "b")),
        Recorded::OtherArguments
    );
    assert_eq!(host.read(&ALICE, id(2)), None, "nothing was recorded");
    let other_tool = NewTask {
        tool: "put".to_owned(),
        ..with_key(4, "b")
    };
    let other_owner = NewTask {
        owner: Owner::Holder,
        ..with_key(5, "b")
    };
    let other_backend = NewTask {
        backend: "server:x".to_owned(),
        ..with_key(7, "b")
    };
    for other in [other_tool, other_owner, other_backend] {
        assert!(matches!(record(&mut host, other), Recorded::New(_)));
    }
    let forgotten = host.order(Order::Forget { id: id(1) });
    assert_eq!(forgotten, Ok(Reply::Done(true)));
    assert!(matches!(
        record(&mut host, with_key(6, "b")),
        Recorded::New(_)
    ));
}

#[test]
fn tasks_of_a_dead_host_go_to_one_that_has_their_backend() {
    let scratch = Scratch::new();
    let mut dead = Host::start(scratch.path(), 1);
    dead.record(new_task(1));
    dead.record(NewTask {
        backend: "pack:code@0".to_owned(),
        ..new_task(2)
    });
    dead.record(new_task(3));
    assert!(dead.finish(id(3), "done"));
    let mut heir = Host::start(scratch.path(), 2);
    assert_eq!(heir.claim("pack:ledger@0"), [], "its host lives");
    let worker = dead.lease.as_ref().unwrap().share().unwrap();
    let Host { ledger, lease } = dead;
    drop((ledger, lease));
    assert_eq!(heir.claim("pack:ledger@0"), [], "a worker of it lives");
    drop(worker);
    let claimed = heir.claim("pack:ledger@0");
    let ids: Vec<_> = claimed.iter().map(|task| task.id).collect();
    assert_eq!(
        ids,
        [id(1)],
        "not the other backend's, not the finished one"
    );
    assert_eq!(claimed[0].holders, 2);
    assert_eq!(heir.claim("pack:ledger@0"), [], "only once");
    let mut late = Host::start(scratch.path(), 3);
    assert_eq!(late.claim("pack:ledger@0"), [], "they are the heir's");
    assert!(!late.finish(id(1), "not mine"));
    assert!(heir.finish(id(1), "mine"));
}

#[test]
fn a_cancel_through_another_host_reaches_the_one_that_runs_the_task() {
    let scratch = Scratch::new();
    let mut runs = Host::start(scratch.path(), 1);
    let mut other = Host::start(scratch.path(), 2);
    runs.record(new_task(1));
    let ids = vec![id(1)];
    let cancelled = Order::Cancelled { ids };
    assert_eq!(runs.order(cancelled.clone()), Ok(Reply::Ids(Vec::new())));
    let outcome = "cancelled".to_owned();
    let cancel = Order::Cancel {
        who: ALICE,
        id: id(1),
        outcome,
    };
    // Its commit may come long after the time in it.
    match other.ledger.apply(NOW - 60_000, &[cancel]).remove(0) {
        Ok(Reply::Cancelled(Some((task, true)))) => assert_eq!(task.status, Status::Cancelled),
        reply => panic!("{reply:?}"),
    }
    assert_eq!(runs.order(cancelled), Ok(Reply::Ids(vec![id(1)])));
    assert!(!runs.finish(id(1), "too late"));
}

#[test]
fn pruning_removes_what_ended_before_a_time_and_nothing_else() {
    let scratch = Scratch::new();
    let mut host = Host::start(scratch.path(), 1);
    for number in 1..=3 {
        host.record(new_task(number));
    }
    assert!(host.finish(id(1), "done"));
    let before_ms = NOW;
    assert_eq!(host.order(Order::Prune { before_ms }), Ok(Reply::Pruned(0)));
    let before_ms = NOW + 1;
    assert_eq!(host.order(Order::Prune { before_ms }), Ok(Reply::Pruned(1)));
    assert_eq!(host.read(&ALICE, id(1)), None);
    drop(host);
    let mut other = Host::start(scratch.path(), 2);
    let before_ms = NOW + 60_001;
    let pruned = other.order(Order::Prune { before_ms });
    assert_eq!(pruned, Ok(Reply::Pruned(0)), "no outcome of them is known");
    for number in [2, 3] {
        assert!(other.read(&ALICE, id(number)).is_some());
    }
}

#[test]
fn a_full_ledger_refuses_new_tasks_and_takes_the_outcome_of_every_task_it_has() {
    let scratch = Scratch::in_memory();
    let settings = Settings {
        bytes: 1 << 20,
        ..SETTINGS
    };
    let mut host = Host::try_start(scratch.path(), 1, settings).unwrap();
    let large = |number| NewTask {
        work: "x".repeat(60_000),
        ..new_task(number)
    };
    let mut accepted = 0;
    let refused = loop {
        match host.order(Order::Record(Box::new(large(accepted + 1)))) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, LedgerError::TooLarge { .. }), "{refused}");
    assert!(
        refused.to_string().contains("limit of 1048576 bytes"),
        "{refused}"
    );
    assert!(accepted > 10);
    let bytes = std::fs::metadata(scratch.path().join("tasks.db")).unwrap();
    assert!(bytes.len() < 1 << 20);
    for number in 1..=accepted {
        assert!(
            host.finish(id(number), &"y".repeat(60_000)),
            "the outcome of {number}"
        );
    }
    let one_more = host.order(Order::Record(Box::new(large(accepted + 1))));
    assert!(one_more.is_err(), "the outcomes count");
    let before_ms = NOW + 1;
    let pruned = u64::try_from(accepted).unwrap();
    assert_eq!(
        host.order(Order::Prune { before_ms }),
        Ok(Reply::Pruned(pruned))
    );
    host.record(large(accepted + 1));
}

#[test]
fn every_accepted_task_has_room_for_an_outcome_within_the_limit() {
    let scratch = Scratch::in_memory();
    let bytes = 1 << 20;
    let settings = Settings { bytes, ..SETTINGS };
    let mut host = Host::try_start(scratch.path(), 1, settings).unwrap();
    let mut accepted = 0;
    while host
        .order(Order::Record(Box::new(new_task(accepted + 1))))
        .is_ok()
    {
        accepted += 1;
    }
    assert!(accepted > 10);
    for number in 1..=accepted {
        assert!(host.finish(id(number), &"y".repeat(12_000)));
    }
    drop(host);
    let file = std::fs::metadata(scratch.path().join("tasks.db")).unwrap();
    assert!(file.len() <= bytes, "{} bytes", file.len());
}

#[test]
fn ids_have_128_bits_and_one_text_form() {
    let bits = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128;
    let text = id(bits).to_string();
    assert_eq!(text, "0123456789abcdef0123456789abcdef");
    assert_eq!(TaskId::parse(&text), Some(id(bits)));
    for bad in [
        "",
        "0123",
        &text.to_uppercase(),
        &format!("{text}0"),
        "+123456789abcdef0123456789abcdef",
    ] {
        assert_eq!(TaskId::parse(bad), None, "{bad}");
    }
}

#[test]
fn the_file_is_the_users_own() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    let directory = scratch.path().join("state");
    let mut host = Host::start(&directory, 1);
    host.record(new_task(1));
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for name in ["tasks.db", "tasks.db-wal", "tasks.db-shm"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
}

#[test]
fn a_clerk_commits_together_and_answers_each() {
    let scratch = Scratch::new();
    let directory = scratch.path().to_owned();
    let open = move || Ok(Host::start(&directory, 1).ledger);
    let clerk = Clerk::start(open, || NOW, String::new()).unwrap();
    let (replies, incoming) = std::sync::mpsc::channel();
    for number in 1..=500 {
        let replies = replies.clone();
        let order = Order::Record(Box::new(new_task(number % 400)));
        let sent = clerk.send(order, move |reply| {
            let _ = replies.send((number, reply));
        });
        assert!(sent);
    }
    drop(replies);
    drop(clerk);
    let mut answered = 0;
    for (number, reply) in incoming {
        answered += 1;
        // An id that is there already fails alone.
        assert_eq!(reply.is_ok(), number <= 400, "{number}: {reply:?}");
    }
    assert_eq!(answered, 500);
}
