//! Servers that several sessions share.

use std::collections::BTreeSet;

use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Success;
use mainstay_kernel::Core;
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use serde_json::{Value, json};

use crate::heard;
use crate::shell::{Shell, sharing};

/// A host whose clients share the servers `one` and `bare`.
fn shared() -> Shell {
    let mut shell = Shell::new(sharing());
    shell.server.capabilities["resources"] = json!({ "subscribe": true });
    shell
}

/// The processes of a server.
fn processes(shell: &Shell, key: &str) -> Vec<Generation> {
    let homes = shell.homes.iter();
    let of_server = homes
        .filter(|(generation, (home, _))| home == key && shell.workers.contains_key(generation));
    of_server.map(|(generation, _)| *generation).collect()
}

/// The only process of a server.
fn only_process(shell: &Shell, key: &str) -> Generation {
    let all = processes(shell, key);
    assert_eq!(all.len(), 1, "{key} has {all:?}");
    all[0]
}

/// A server sends a notification.
fn notify(shell: &mut Shell, by: Generation, method: &str, params: Value) {
    let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    shell.server_says(by, &line);
}

/// The methods of everything that a client got beside its answers.
fn told(shell: &Shell, session: SessionId) -> Vec<String> {
    let told = shell.told(session).into_iter();
    told.map(|line| line["method"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn sessions_share_a_declared_server_and_each_has_its_own_of_the_others() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    assert_eq!(processes(&shell, "two").len(), 2);
    let server = only_process(&shell, "one");
    let lines = &shell.workers[&server].lines;
    let opening = lines.iter().find(|line| line["method"] == "initialize");
    let opening = &opening.unwrap()["params"];
    assert_eq!(
        opening["capabilities"],
        json!({}),
        "the host offers nothing"
    );
    assert_eq!(opening["clientInfo"]["name"], "mainstay");
    // Both use the same id and the same token.
    for session in [first, second] {
        shell.call(session, 7, "one__write", json!({ "who": session.get() }));
    }
    let calls = shell.workers[&server].pending.clone();
    assert_eq!(calls.len(), 2);
    for pending in &calls {
        let who = pending.who.unwrap();
        let params = json!({ "progressToken": pending.token, "progress": who });
        notify(&mut shell, server, "notifications/progress", params);
    }
    for (pending, session) in calls.iter().rev().zip([second, first]) {
        shell.reply(
            server,
            pending,
            &json!({ "content": [], "who": pending.who }),
        );
        let Some(Ok(Success::Forwarded(answer))) = shell.outcome(session, "7") else {
            panic!("{session} has its answer");
        };
        let answer = answer.line.to_value().unwrap();
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["who"], session.get());
        let progress = shell.told(session);
        let progress: Vec<_> = progress
            .iter()
            .filter(|line| line["method"] == "notifications/progress")
            .map(|line| line["params"].clone())
            .collect();
        let wanted = json!({ "progressToken": 7, "progress": session.get() });
        assert_eq!(progress, [wanted]);
    }
}

#[test]
fn sessions_with_different_credentials_never_share_a_process() {
    let mut shell = shared();
    let ada = shell.greet_with("token:ada");
    let of_ada = only_process(&shell, "one");
    shell.greet_with("token:ada");
    assert_eq!(only_process(&shell, "one"), of_ada);
    let others = ["token:bob", "subject:ada", "uid:7", "anonymous"];
    let others = others.map(|credential| shell.greet_with(credential));
    // Clients without a credential are one, over HTTP and elsewhere.
    shell.greet();
    assert_eq!(processes(&shell, "one").len(), 5);
    for (number, session) in [ada].into_iter().chain(others).enumerate() {
        shell.call(session, 9, "one__write", json!({ "who": session.get() }));
        let asked = processes(&shell, "one").into_iter();
        let asked = asked.filter(|server| !shell.workers[server].pending.is_empty());
        assert_eq!(asked.count(), number + 1, "{session} has a process");
    }
    assert_eq!(shell.workers[&of_ada].pending.len(), 1);
    // A request without a session is one of its caller.
    let call = |name: &str| Op::CallTool {
        name: name.to_owned(),
        arguments: Json::empty_object(),
    };
    shell.ask_single("token:ada", call("one__write"));
    assert_eq!(shell.workers[&of_ada].pending.len(), 2);
    assert_eq!(processes(&shell, "one").len(), 5);
    let names = shell.core.health(shell.now).workers.into_iter();
    let names: BTreeSet<String> = names.map(|worker| worker.name).collect();
    let of_one = names.iter().filter(|name| name.starts_with("one"));
    assert_eq!(of_one.count(), 5, "each has a name of its own: {names:?}");
    let uri = || json!({ "uri": "one:a" });
    shell.ask(ada, "1", "resources/subscribe", uri());
    shell.handle(CoreEvent::Gone { session: ada });
    assert!(shell.workers[&of_ada].subscribed.is_empty());
}

#[test]
fn a_cancel_of_one_session_reaches_no_call_of_another() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    for session in [first, second] {
        shell.call(session, 7, "one__write", json!({ "who": session.get() }));
    }
    let calls = shell.workers[&server].pending.clone();
    let params = json!({ "requestId": 7 });
    let method = "notifications/cancelled";
    shell.say(
        second,
        json!({ "jsonrpc": "2.0", "method": method, "params": params }),
    );
    let cancelled: Vec<Value> = shell.workers[&server]
        .lines
        .iter()
        .filter(|line| line["method"] == method)
        .map(|line| line["params"]["requestId"].clone())
        .collect();
    assert_eq!(cancelled, [calls[1].id.clone()]);
    assert_eq!(calls[1].who, Some(second.get()));
    shell.reply(server, &calls[0], &json!({ "content": [] }));
    assert!(shell.outcome(first, "7").is_some());
}

#[test]
fn updates_reach_subscribers_and_a_session_ends_only_its_own_subscriptions() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let update = |shell: &mut Shell| {
        let params = json!({ "uri": "one:a" });
        notify(shell, server, "notifications/resources/updated", params);
    };
    let updates = |shell: &Shell, session| {
        let told = told(shell, session).into_iter();
        told.filter(|method| method == "notifications/resources/updated")
            .count()
    };
    let uri = || json!({ "uri": "one:a" });
    shell.ask(first, "1", "resources/subscribe", uri());
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (1, 0));
    shell.ask(second, "1", "resources/subscribe", uri());
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (2, 1));
    // The host answers the first unsubscribe itself.
    shell.ask(first, "2", "resources/unsubscribe", uri());
    assert!(matches!(shell.outcome(first, "2"), Some(Ok(_))));
    assert!(shell.workers[&server].subscribed.contains("one:a"));
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (2, 2));
    // A client that does not read gets one update once it reads.
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: true,
    });
    update(&mut shell);
    update(&mut shell);
    assert_eq!(updates(&shell, second), 2);
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: false,
    });
    assert_eq!(updates(&shell, second), 3);
    shell.handle(CoreEvent::Gone { session: second });
    assert!(shell.workers[&server].subscribed.is_empty());
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (2, 3));
}

#[test]
fn a_session_that_leaves_does_not_end_the_subscription_that_another_one_asks_for() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let uri = json!({ "uri": "one:a" });
    shell.ask(first, "1", "resources/subscribe", uri.clone());
    shell.server.starts = true;
    shell.ask(second, "1", "resources/subscribe", uri.clone());
    shell.handle(CoreEvent::Gone { session: first });
    assert!(!heard(&shell, server).contains(&"resources/unsubscribe".to_owned()));
    let asked = shell.workers[&server].pending[0].clone();
    shell.reply(server, &asked, &json!({}));
    let method = "notifications/resources/updated";
    notify(&mut shell, server, method, uri);
    assert_eq!(told(&shell, second), [method]);
    // The last one ends it.
    shell.handle(CoreEvent::Gone { session: second });
    assert!(heard(&shell, server).contains(&"resources/unsubscribe".to_owned()));
}

#[test]
fn a_successor_of_a_shared_server_gets_the_subscriptions_of_all_sessions() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    for (session, uri) in [(first, "one:a"), (second, "one:b")] {
        shell.ask(session, "1", "resources/subscribe", json!({ "uri": uri }));
    }
    shell.crash(only_process(&shell, "one"));
    shell.wait(60_000);
    let successor = only_process(&shell, "one");
    let subscribed: Vec<&String> = shell.workers[&successor].subscribed.iter().collect();
    assert_eq!(subscribed, ["one:a", "one:b"]);
}

#[test]
fn log_lines_of_a_shared_server_reach_the_only_session_with_a_call_or_the_hosts_log() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let log = |shell: &mut Shell, data: &str| {
        let params = json!({ "level": "info", "data": data });
        notify(shell, server, "notifications/message", params);
    };
    let logged = |shell: &Shell, text: &str| {
        shell
            .actions()
            .any(|action| matches!(action, CoreAction::Log { line, .. } if line.contains(text)))
    };
    log(&mut shell, "nobody-asked");
    assert!(logged(&shell, "nobody-asked"));
    shell.call(first, 1, "one__write", json!({ "who": first.get() }));
    log(&mut shell, "one-call");
    assert!(!logged(&shell, "one-call"));
    let message = |shell: &Shell, session| {
        let told = shell.told(session).into_iter();
        told.filter(|line| line["method"] == "notifications/message")
            .map(|line| line["params"]["data"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(message(&shell, first), ["one-call"]);
    shell.call(second, 1, "one__write", json!({ "who": second.get() }));
    log(&mut shell, "two-calls");
    assert!(logged(&shell, "two-calls"));
    shell.reply_all(&json!({ "content": [] }));
    // A session that wants errors only gets no more than those.
    shell.ask(first, "2", "logging/setLevel", json!({ "level": "error" }));
    shell.call(first, 3, "one__write", json!({ "who": first.get() }));
    log(&mut shell, "too-quiet");
    assert_eq!(message(&shell, first), ["one-call"]);
    assert!(message(&shell, second).is_empty());
}

#[test]
fn questions_of_a_shared_server_are_refused_and_no_session_gets_them() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let method = "sampling/createMessage";
    let question = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} });
    shell.server_says(server, &question);
    let answer = shell.workers[&server].lines.last().unwrap();
    assert_eq!(answer["error"]["code"], -32601);
    for session in [first, second] {
        assert!(!told(&shell, session).contains(&method.to_owned()));
    }
}

#[test]
fn changed_lists_of_a_shared_server_are_announced_to_every_session() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: true,
    });
    for _ in 0..3 {
        notify(
            &mut shell,
            server,
            "notifications/tools/list_changed",
            json!({}),
        );
    }
    let announced = |shell: &Shell, session| {
        let told = told(shell, session).into_iter();
        told.filter(|method| method == "notifications/tools/list_changed")
            .count()
    };
    assert_eq!(
        (announced(&shell, first), announced(&shell, second)),
        (3, 0)
    );
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: false,
    });
    assert_eq!(announced(&shell, second), 1);
}

#[test]
fn a_shared_server_outlives_its_sessions_until_it_was_idle_for_long() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let facts = |shell: &Shell| {
        let workers = shell.core.health(shell.now).workers;
        let worker = workers.into_iter().find(|worker| worker.name == "one");
        worker.unwrap().facts.map(|facts| facts.to_value().unwrap())
    };
    let wanted = json!({ "shared": true, "why": "declared with shared = true", "sessions": 2 });
    assert_eq!(facts(&shell), Some(wanted));
    shell.call(first, 1, "one__write", json!({ "who": first.get() }));
    shell.handle(CoreEvent::Gone { session: first });
    shell.handle(CoreEvent::Gone { session: second });
    assert_eq!(only_process(&shell, "one"), server);
    assert_eq!(processes(&shell, "two"), []);
    let third = shell.greet();
    shell.call(third, 1, "one__write", json!({}));
    assert_eq!(only_process(&shell, "one"), server);
    shell.reply_all(&json!({ "content": [] }));
    shell.handle(CoreEvent::Gone { session: third });
    shell.wait(3_600_000);
    assert_eq!(processes(&shell, "one"), []);
    shell.greet();
    assert_eq!(processes(&shell, "one").len(), 1);
}

#[test]
fn a_modern_server_that_starts_slowly_is_not_given_the_older_handshake_for_good() {
    let mut shell = shared();
    shell.server.is_modern = true;
    shell.server.starts = true;
    let session = shell.greet();
    let server = only_process(&shell, "one");
    // The host goes on to the older handshake.
    shell.wait(9_000);
    assert_eq!(heard(&shell, server), ["server/discover", "initialize"]);
    shell.server.starts = false;
    let owed = shell.workers[&server].pending.clone();
    let era = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
    shell.reply(server, &owed[0], &era);
    let error = json!({ "code": -32022, "message": "this connection is modern" });
    let refusal = json!({ "jsonrpc": "2.0", "id": owed[1].id, "error": error });
    shell.server_says(server, &refusal);
    shell.call(session, 1, "one__write", json!({}));
    shell.reply_all(&json!({ "content": [] }));
    assert!(matches!(shell.outcome(session, "1"), Some(Ok(_))));
    assert_eq!(only_process(&shell, "one"), server);
}

#[test]
fn a_resource_waits_for_the_list_of_a_server_that_was_late_before() {
    let mut shell = shared();
    shell.server.opens = false;
    let client = shell.greet();
    let uri = || json!({ "uri": "one:unlisted" });
    // None of the servers lists anything within the time for a list, twice.
    for id in ["1", "2"] {
        shell.ask(client, id, "resources/subscribe", uri());
        shell.wait(9_000);
        assert!(shell.outcome(client, id).is_none(), "{id} waits for lists");
        shell.wait(4_000);
        let refused = shell.outcome(client, id).unwrap().as_ref().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::WorkerNotReady, "{refused:?}");
    }
    shell.ask(client, "3", "resources/subscribe", uri());
    shell.core = Core::restore(&shell.core.save().unwrap()).unwrap();
    // Their successors open sessions.
    shell.server.opens = true;
    for key in ["bare", "one", "two"] {
        let late = only_process(&shell, key);
        shell.crash(late);
    }
    shell.wait(5_000);
    let outcome = shell.outcome(client, "3");
    assert!(matches!(outcome, Some(Ok(_))), "{outcome:?}");
    let one = only_process(&shell, "one");
    assert!(shell.workers[&one].subscribed.contains("one:unlisted"));
}

#[test]
fn a_list_that_came_for_a_client_which_left_tells_others_who_has_a_resource() {
    let mut config = sharing();
    for server in &mut config.servers {
        server.shared = Some(true);
    }
    let mut shell = Shell::new(config);
    shell.server.capabilities["resources"] = json!({ "subscribe": true });
    let first = shell.greet();
    let uri = || json!({ "uri": "one:unlisted" });
    // The client leaves while the servers read their lists for it.
    shell.server.starts = true;
    shell.ask(first, "1", "resources/subscribe", uri());
    shell.handle(CoreEvent::Gone { session: first });
    shell.server.starts = false;
    for (generation, (key, _)) in shell.homes.clone() {
        for pending in shell.workers[&generation].pending.clone() {
            let lines = &shell.workers[&generation].lines;
            let asked = lines.iter().find(|line| line["id"] == pending.id);
            let listed = match asked.unwrap()["method"].as_str().unwrap() {
                "tools/list" => json!({ "tools": [] }),
                "resources/list" => {
                    json!({ "resources": [{ "name": "a", "uri": format!("{key}:a") }] })
                }
                _ => json!({ "resourceTemplates": [] }),
            };
            shell.reply(generation, &pending, &listed);
        }
    }
    let second = shell.greet();
    shell.core = Core::restore(&shell.core.save().unwrap()).unwrap();
    shell.ask(second, "1", "resources/subscribe", uri());
    let outcome = shell.outcome(second, "1");
    assert!(matches!(outcome, Some(Ok(_))), "{outcome:?}");
    let one = only_process(&shell, "one");
    assert!(shell.workers[&one].subscribed.contains("one:unlisted"));
}

#[test]
fn a_server_that_comes_while_others_list_gets_the_request_for_its_resource() {
    let mut shell = shared();
    shell.server.opens = false;
    let client = shell.greet();
    for _ in 0..2 {
        let one = only_process(&shell, "one");
        shell.crash(one);
        shell.wait(1_000);
    }
    // It cannot be started, so the request waits for the lists of the others alone.
    let uri = json!({ "uri": "one:unlisted" });
    shell.ask(client, "1", "resources/subscribe", uri);
    shell.server.opens = true;
    for key in ["one", "bare", "two"] {
        assert!(shell.outcome(client, "1").is_none());
        let late = only_process(&shell, key);
        shell.crash(late);
        shell.wait(1_000);
    }
    let outcome = shell.outcome(client, "1");
    assert!(matches!(outcome, Some(Ok(_))), "{outcome:?}");
    let one = only_process(&shell, "one");
    assert!(shell.workers[&one].subscribed.contains("one:unlisted"));
}
