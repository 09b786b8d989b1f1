//! Resources of several servers: which server has which URI.

use mainstay_contract::id::SessionId;
use mainstay_contract::outcome::Success;
use serde_json::{Value, json};

use crate::shell::{Shell, merging};

/// A host with three servers that have resources, and a client of it.
fn merged() -> (Shell, SessionId) {
    let mut shell = Shell::new(merging());
    shell.server.capabilities["resources"] = json!({});
    let session = shell.greet();
    (shell, session)
}

/// The server `one` answers a call with links to these resources.
fn link(shell: &mut Shell, session: SessionId, id: u64, uris: impl Iterator<Item = String>) {
    shell.call(session, id, "one__write", json!({}));
    let links: Vec<Value> = uris
        .map(|uri| json!({ "type": "resource_link", "uri": uri, "name": "x" }))
        .collect();
    shell.reply_all(&json!({ "content": links }));
}

/// The server that gets a request to read a resource.
fn reader(shell: &mut Shell, session: SessionId, id: &str, uri: &str) -> String {
    let reads = |shell: &Shell| -> Vec<String> {
        let homes = shell.homes.iter();
        let lines = homes.flat_map(|(generation, (key, _))| {
            let lines = &shell.workers[generation].lines;
            lines.iter().map(move |line| (key, line))
        });
        let read =
            |line: &Value| line["method"] == "resources/read" && line["params"]["uri"] == uri;
        let reads = lines.filter(|(_, line)| read(line));
        reads.map(|(key, _)| key.clone()).collect()
    };
    let before = reads(shell).len();
    shell.ask(session, id, "resources/read", json!({ "uri": uri }));
    let readers = reads(shell);
    assert_eq!(
        readers.len(),
        before + 1,
        "{:?}",
        shell.outcome(session, id)
    );
    readers.last().unwrap().clone()
}

#[test]
fn links_of_one_server_hide_no_resource_of_another() {
    let (mut shell, session) = merged();
    for round in 0..60 {
        let uris = (0..1000).map(|number| format!("flood:{round}-{number}"));
        link(&mut shell, session, round, uris);
    }
    shell.ask(session, "\"list\"", "resources/list", json!({}));
    let Some(Ok(Success::Members(listed))) = shell.outcome(session, "\"list\"") else {
        panic!("{:?}", shell.outcome(session, "\"list\""));
    };
    for uri in ["bare:a", "one:b", "two:a"] {
        assert!(listed.as_str().contains(uri), "{uri}: {listed}");
    }
    assert_eq!(reader(&mut shell, session, "\"read\"", "two:a"), "two");
    // The latest links still lead to their server.
    assert_eq!(reader(&mut shell, session, "\"link\"", "flood:59-7"), "one");
}

#[test]
fn a_link_takes_no_resource_from_the_server_that_lists_it() {
    let (mut shell, session) = merged();
    link(&mut shell, session, 1, ["two:a".to_owned()].into_iter());
    shell.ask(session, "\"list\"", "resources/list", json!({}));
    assert_eq!(reader(&mut shell, session, "\"read\"", "two:a"), "two");
}
