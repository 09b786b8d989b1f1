//! The core as bytes: versions, damage, and checks that a new shell does not know of.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod shell;

use std::collections::BTreeSet;
use std::path::Path;

use mainstay_contract::dialect::Op;
use mainstay_contract::outcome::Success;
use mainstay_contract::tool::Catalog;
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use mainstay_kernel::{Core, STATE_VERSION, StateError};
use mainstay_schema::check::Verdict;
use serde_json::{Value, json};

use self::shell::{Shell, packs, sharing, wrapping};

fn busy_shell() -> Shell {
    let mut shell = Shell::new(wrapping(json!({})));
    let client = shell.greet();
    shell.call(
        client,
        1,
        "read",
        json!({ "text": "ä \u{1F980}", "n": 1.5 }),
    );
    shell
}

#[test]
fn a_state_of_another_version_is_rejected_with_its_version() {
    for shell in [busy_shell(), Shell::new(packs(&["a"]))] {
        let state = shell.core.save().unwrap();
        assert_eq!(Core::restore(&state), Ok(shell.core));
        let newer = STATE_VERSION + 1;
        let other = state.replacen(
            &format!("\"version\":{STATE_VERSION}"),
            &format!("\"version\":{newer}"),
            1,
        );
        let found = Err(StateError::Version { found: newer });
        assert_eq!(Core::restore(&other), found);
        // The version is read first: the rest of a newer state need not make sense.
        assert_eq!(
            Core::restore(&format!("{{\"version\":{newer},\"core\":7}}")),
            found
        );
    }
}

#[test]
fn nulls_of_peers_survive_a_restore() {
    let mut shell = Shell::new(wrapping(json!({})));
    shell.server.capabilities = json!(null);
    let client = shell.open();
    let line = |id: &str, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": null });
    shell.say(client, line("1", "initialize"));
    shell.say(client, line("2", "logging/setLevel"));
    let restored = Core::restore(&shell.core.save().unwrap());
    assert_eq!(restored, Ok(shell.core));
}

#[test]
fn a_damaged_state_is_rejected() {
    let state = busy_shell().core.save().unwrap();
    let no_core = format!("{{\"version\":{STATE_VERSION}}}");
    let cut = &state[..state.len() - 2];
    for broken in ["", "{}", "[]", "{\"version\":\"1\"}", &no_core, cut] {
        let restored = Core::restore(broken);
        assert!(
            matches!(restored, Err(StateError::Unreadable(_))),
            "{broken}"
        );
    }
}

#[test]
fn a_restored_core_asks_again_for_the_checks_under_way() {
    let mut shell = Shell::new(wrapping(json!({})));
    let client = shell.greet();
    shell.keeps_checks = true;
    shell.call(client, 1, "strict", json!({ "n": 1 }));
    let asked = |shell: &Shell| -> Vec<CoreAction> {
        let checks = shell
            .actions()
            .filter(|action| matches!(action, CoreAction::Check { .. }));
        checks.cloned().collect()
    };
    let before = asked(&shell);
    assert_eq!(before.len(), 1);
    shell.core = Core::restore(&shell.core.save().unwrap()).unwrap();
    shell.core.resume_checks();
    shell.wait(0);
    shell.did.clear();
    // The shell polls only after an event.
    shell.say(
        client,
        json!({ "jsonrpc": "2.0", "method": "notifications/other" }),
    );
    assert_eq!(asked(&shell), before);
    let CoreAction::Check { ticket, .. } = before[0] else {
        panic!("it is a check");
    };
    let verdict = Verdict::Passed;
    shell.handle(CoreEvent::Checked { ticket, verdict });
    shell.reply_all(&json!({ "content": [] }));
    let outcome = shell.outcome(client, "1").unwrap();
    assert!(matches!(outcome, Ok(Success::Forwarded(_))), "{outcome:?}");
}

#[test]
fn the_next_worker_of_an_upgraded_pack_may_announce_another_catalog_once() {
    let mut config = packs(&["a"]);
    config.packs[0].expected = Some((Catalog::default(), "0".to_owned()));
    let mut shell = Shell::new(config);
    let roll_out = |shell: &mut Shell| {
        let (waiter, pack) = (1, None);
        shell.handle(CoreEvent::Rollout {
            waiter,
            pack,
            reasons: Vec::new(),
        });
        shell.core.offered().tools.len()
    };
    assert_eq!(roll_out(&mut shell), 0, "its worker is of build 1");
    let restored = |shell: &Shell| Core::restore(&shell.core.save().unwrap()).unwrap();
    shell.core = restored(&shell);
    assert!(shell.core.adopt("2", &[]).is_err(), "the pack is missing");
    let builds = [("a".to_owned(), "1".to_owned())];
    shell.core.adopt("2", &builds).unwrap();
    assert_eq!(roll_out(&mut shell), 2);
    shell.core = restored(&shell);
    shell.core.adopt("2", &builds).unwrap();
    assert_eq!(roll_out(&mut shell), 2);
    // Its tools change with the host: they need no bump, and nothing is left to do.
    let other = [("a".to_owned(), "0".to_owned())];
    shell.core.adopt("3", &other).unwrap();
    shell.core.adopt("3", &builds).unwrap();
    shell.build.change(false);
    shell.did.clear();
    assert_eq!(roll_out(&mut shell), 2);
    let done = shell.actions().find_map(|action| match action {
        CoreAction::RolledOut { done, .. } => done.first(),
        _ => None,
    });
    let done = done.unwrap();
    assert!(done.result.is_ok(), "{done:?}");
    let changes = done.changes.join("; ");
    assert!(changes.contains("type of an argument changed"), "{changes}");
    assert!(!changes.contains("to do"), "{changes}");
}

/// Hosts in the middle of their work, with as many kinds of state as a test can bring about.
fn busy_hosts() -> Vec<Shell> {
    let mut alone = busy_shell();
    alone.server.opens = false;
    let first = alone.newest();
    alone.crash(first);
    alone.wait(50);
    let mut packs = Shell::new(packs(&["a", "b"]));
    let client = packs.greet();
    packs.call(client, 1, "write", json!({}));
    let mut config = sharing();
    config.limits.standby = 1;
    let mut shared = Shell::new(config);
    shared.server.capabilities["resources"] = json!({ "subscribe": true });
    let (ada, bob) = (shared.greet_with("token:ada"), shared.greet());
    for (session, uri) in [(ada, "one:a"), (bob, "two:a")] {
        shared.ask(session, "1", "tools/list", json!({}));
        shared.ask(session, "2", "resources/list", json!({}));
        shared.ask(session, "3", "resources/subscribe", json!({ "uri": uri }));
        shared.ask(session, "4", "logging/setLevel", json!({ "level": "info" }));
        for (id, tool) in [(5, "one__write"), (6, "second__once"), (7, "read")] {
            shared.call(session, id, tool, json!({ "who": session.get() }));
        }
    }
    let name = "one__write".to_owned();
    let arguments = json!({}).into();
    shared.ask_single("token:bob", Op::CallTool { name, arguments });
    // It waits for a list.
    shared.server.answers_lists = false;
    shared.ask(bob, "8", "tools/list", json!({}));
    vec![alone, packs, shared]
}

/// The kind of a value. For an object a line with the kinds of its members is added to `shape`.
fn kind_of(value: &Value, shape: &mut BTreeSet<String>) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(items) => {
            for item in items {
                kind_of(item, shape);
            }
            "list"
        }
        Value::Object(members) => {
            let mut kinds = BTreeSet::new();
            for (name, member) in members {
                let is_number = name.parse::<u64>().is_ok();
                let name = if is_number { "N" } else { name };
                kinds.insert(format!("{name}:{}", kind_of(member, shape)));
            }
            shape.insert(kinds.into_iter().collect::<Vec<_>>().join(" "));
            "object"
        }
    }
}

#[test]
fn the_saved_state_changes_its_shape_only_with_its_version() {
    let mut shape = BTreeSet::new();
    for host in busy_hosts() {
        let state = host.core.save().unwrap();
        assert_eq!(Core::restore(&state), Ok(host.core));
        let state: Value = serde_json::from_str(&state).unwrap();
        kind_of(&state["core"], &mut shape);
    }
    let kept = include_str!("data/state-shape.txt");
    let kept: BTreeSet<String> = kept.lines().map(str::to_owned).collect();
    shape.insert(format!("version {STATE_VERSION}"));
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("state-shape.txt");
    let lines: Vec<&str> = shape.iter().map(String::as_str).collect();
    std::fs::write(&fresh, lines.join("\n") + "\n").unwrap();
    let less: Vec<_> = kept.difference(&shape).take(20).collect();
    let more: Vec<_> = shape.difference(&kept).take(20).collect();
    assert!(
        less.is_empty() && more.is_empty(),
        "the shape of the saved state has changed: {less:#?} became {more:#?}; raise STATE_VERSION, so that hosts of \
         earlier builds are refused by name at an upgrade, then replace tests/data/state-shape.txt by {}",
        fresh.display()
    );
}
