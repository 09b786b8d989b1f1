//! Tests of each tool, resource and prompt of the ledger.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests"
)]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mainstay_worker::testing::rpc::{Answer, Op, Probed, ToWorker};
use mainstay_worker::testing::{Peer, TempDir, members, perform, probe_tool, run_tool};
use mainstay_worker::{
    Completion, CompletionTarget, ErrorKind, Json, Pack, Problem, RenderMode, Replay, Settings,
};
use serde_json::{Value, json};

struct Ledger {
    _dir: TempDir,
    file: PathBuf,
    pack: Pack,
}

impl Ledger {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("ledger.jsonl");
        let pack = ledger::pack(&Settings::default(), Some(file.clone())).unwrap();
        Self {
            _dir: dir,
            file,
            pack,
        }
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        let reply = run_tool(&self.pack, tool, arguments).unwrap();
        let answer = reply.json.to_value().unwrap();
        self.check_shape(tool, &answer);
        let text = reply.text.unwrap();
        assert!(!text.lines().next().unwrap().is_empty());
        let again = run_tool(&self.pack, "get", &json!({})).unwrap();
        assert_eq!(again, run_tool(&self.pack, "get", &json!({})).unwrap());
        answer
    }

    fn fail(&self, tool: &str, arguments: &Value) -> Problem {
        run_tool(&self.pack, tool, arguments).unwrap_err()
    }

    /// The answer has exactly the members that its output schema requires.
    fn check_shape(&self, tool: &str, answer: &Value) {
        let catalog = self.pack.catalog();
        let spec = catalog.tools.iter().find(|spec| spec.name == tool).unwrap();
        let schema = spec.output_schema.as_ref().unwrap();
        let mut required: Vec<&str> = schema["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        required.sort_unstable();
        let mut members: Vec<&str> = answer
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        members.sort_unstable();
        assert_eq!(members, required, "{tool}");
    }

    fn effects(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.file).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

// covers: append.text
#[test]
fn each_append_is_one_effect() {
    let ledger = Ledger::new();
    let answer = ledger.call("append", &json!({"text": "one"}));
    assert_eq!(answer, json!({"ok": true, "text": "one"}));
    ledger.call("append", &json!({"text": "two\nlines"}));
    assert_eq!(
        ledger.effects(),
        [
            json!({"effect": "append", "text": "one"}),
            json!({"effect": "append", "text": "two\nlines"}),
        ]
    );
}

// covers: put.key, put.value, get.key
#[test]
fn the_last_value_of_a_key_counts() {
    let ledger = Ledger::new();
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
        let answer = ledger.call("put", &json!({"key": key, "value": value}));
        assert_eq!(answer, json!({"ok": true, "key": key, "value": value}));
    }
    assert_eq!(ledger.effects().len(), 3);
    let all = ledger.call("get", &json!({}));
    assert_eq!(
        all["values"],
        json!([{"key": "a", "value": "3"}, {"key": "b", "value": "2"}])
    );
    let one = ledger.call("get", &json!({"key": "b"}));
    assert_eq!(one["values"], json!([{"key": "b", "value": "2"}]));
    let problem = ledger.fail("get", &json!({"key": "c"}));
    assert_eq!(problem.kind, ErrorKind::NotFound);
    assert_eq!(
        problem.details.unwrap().as_str(),
        r#"{"ok":false,"reason":"not_found"}"#
    );
}

// covers: transfer.id, transfer.from, transfer.to, transfer.amount
#[test]
fn a_transfer_moves_an_amount_and_its_id_proves_it() {
    let ledger = Ledger::new();
    let arguments = json!({"id": "t1", "from": "x", "to": "y", "amount": 5});
    let not_applied = Ok(Probed::NotApplied {});
    assert_eq!(
        probe_tool(&ledger.pack, "transfer", &arguments),
        not_applied
    );
    let answer = ledger.call("transfer", &arguments);
    assert_eq!(
        answer,
        json!({"ok": true, "id": "t1", "from": "x", "to": "y", "amount": 5})
    );
    let balances = ledger.call("get", &json!({}))["balances"].clone();
    let expected = json!([{"account": "x", "balance": -5}, {"account": "y", "balance": 5}]);
    assert_eq!(balances, expected);

    // What the probe gives is what the lost attempt would have answered.
    let Ok(Probed::Applied(reply)) = probe_tool(&ledger.pack, "transfer", &arguments) else {
        panic!("it was applied");
    };
    assert_eq!(reply.json.to_value().unwrap(), answer);
    assert_eq!(reply.text.as_deref(), Some("moved 5 from x to y\nid: t1"));
    let other = json!({"id": "t2", "from": "x", "to": "y", "amount": 5});
    assert_eq!(probe_tool(&ledger.pack, "transfer", &other), not_applied);
    let reused = json!({"id": "t1", "from": "x", "to": "z", "amount": 5});
    assert_eq!(
        probe_tool(&ledger.pack, "transfer", &reused),
        Ok(Probed::Unknown {})
    );
}

// covers: append.pause_ms, put.pause_ms, transfer.pause_ms
// covers: append.pause_after_ms, put.pause_after_ms, transfer.pause_after_ms
#[test]
fn a_cancel_before_the_effect_prevents_it_and_after_it_does_not() {
    for (tool, mut arguments) in [
        ("append", json!({"text": "x"})),
        ("put", json!({"key": "k", "value": "v"})),
        (
            "transfer",
            json!({"id": "t", "from": "a", "to": "b", "amount": 1}),
        ),
    ] {
        let ledger = Ledger::new();
        let file = ledger.file.clone();
        let (mut peer, _) = Peer::ready(ledger.pack).unwrap();
        arguments["pause_ms"] = json!(600_000);
        let call = peer.call(op(tool, &arguments)).unwrap();
        peer.send(&ToWorker::Cancel { call }).unwrap();
        let (_, answer) = peer.answer().unwrap();
        assert!(matches!(answer, Answer::Failed(problem) if problem.kind == ErrorKind::Cancelled));
        assert_eq!(fs::read_to_string(&file).unwrap(), "");

        arguments["pause_ms"] = json!(0);
        arguments["pause_after_ms"] = json!(600_000);
        let call = peer.call(op(tool, &arguments)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while fs::read_to_string(&file).unwrap().is_empty() {
            assert!(Instant::now() < deadline, "{tool} has no effect");
            std::thread::sleep(Duration::from_millis(1));
        }
        peer.send(&ToWorker::Cancel { call }).unwrap();
        assert!(matches!(peer.answer().unwrap().1, Answer::Tool(_)));
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1);
    }
}

// covers: wait.ms, wait.steps
#[test]
fn a_wait_takes_its_time_and_reports_its_steps() {
    let ledger = Ledger::new();
    let start = Instant::now();
    let answer = ledger.call("wait", &json!({"ms": 30}));
    assert_eq!(answer, json!({"ok": true, "ms": 30, "steps": 1}));
    assert!(start.elapsed() >= Duration::from_millis(30));

    let (mut peer, _) = Peer::ready(ledger.pack).unwrap();
    peer.call(op("wait", &json!({"ms": 300, "steps": 3})))
        .unwrap();
    assert!(matches!(peer.answer().unwrap().1, Answer::Tool(_)));
    let seen: Vec<_> = peer
        .progress()
        .iter()
        .map(|(_, p)| (p.done, p.total))
        .collect();
    assert!(
        seen.starts_with(&[(Some(1), Some(3)), (Some(2), Some(3))]),
        "{seen:?}"
    );
}

// covers: wait.fail
#[test]
fn a_wait_fails_as_it_is_told() {
    let ledger = Ledger::new();
    let problem = ledger.fail("wait", &json!({"ms": 0, "fail": "problem"}));
    assert_eq!(problem.kind, ErrorKind::Unsupported);
    let problem = ledger.fail("wait", &json!({"ms": 0, "fail": "panic"}));
    assert_eq!(problem.kind, ErrorKind::ToolPanicked);
    let problem = ledger.fail("wait", &json!({"ms": 0, "fail": "otherwise"}));
    assert_eq!(problem.kind, ErrorKind::InvalidArguments);
}

#[test]
fn a_torn_line_is_skipped() {
    let ledger = Ledger::new();
    ledger.call("append", &json!({"text": "one"}));
    let mut text = fs::read_to_string(&ledger.file).unwrap();
    text.push_str("{\"effect\":\"appe\n");
    fs::write(&ledger.file, text).unwrap();
    ledger.call("append", &json!({"text": "two"}));
    assert_eq!(ledger.call("get", &json!({}))["entries"], 2);
}

#[test]
fn there_is_a_tool_of_every_replay_class() {
    let catalog = Ledger::new().pack.catalog();
    let classes: Vec<_> = catalog
        .tools
        .iter()
        .map(|t| (t.name.as_str(), t.replay))
        .collect();
    assert_eq!(
        classes,
        [
            ("append", Replay::NeverReplay),
            ("get", Replay::Convergent),
            ("put", Replay::Convergent),
            ("transfer", Replay::ProbeRequired),
            ("wait", Replay::Convergent),
        ]
    );
}

#[test]
fn the_log_and_the_entries_are_resources() {
    let ledger = Ledger::new();
    ledger.call("put", &json!({"key": "k", "value": "v"}));
    let Answer::Resources(list) = perform(&ledger.pack, &Op::ListResources {}) else {
        panic!("expected a listing");
    };
    let uris: Vec<_> = list.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris, ["ledger:///log", "ledger:///entry/k"]);
    let read = |uri: &str| members(&ledger.pack, &Op::ReadResource { uri: uri.into() });
    let entry = read("ledger:///entry/k").unwrap();
    let expected =
        json!({"contents": [{"uri": "ledger:///entry/k", "mimeType": "text/plain", "text": "v"}]});
    assert_eq!(entry, expected);
    let log = read("ledger:///log").unwrap();
    assert_eq!(
        log["contents"][0]["text"],
        fs::read_to_string(&ledger.file).unwrap()
    );
    for uri in ["ledger:///entry/none", "ledger:///", "other:///log"] {
        assert_eq!(read(uri).unwrap_err().kind, ErrorKind::ResourceNotFound);
    }
}

#[test]
fn the_prompt_speaks_about_its_key() {
    let ledger = Ledger::new();
    ledger.call("put", &json!({"key": "k", "value": "v"}));
    let prompt = |arguments: Value| {
        let op = Op::Prompt {
            name: "reconcile".into(),
            arguments: Json::from(arguments),
        };
        members(&ledger.pack, &op)
    };
    let prompted = prompt(json!({"key": "k"})).unwrap();
    assert_eq!(prompted["messages"][0]["role"], "user");
    let text = prompted["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("The ledger holds `v` for `k`."), "{text}");
    assert_eq!(
        prompt(json!({})).unwrap_err().kind,
        ErrorKind::InvalidParams
    );
    assert_eq!(
        prompt(json!({"key": "k", "x": "y"})).unwrap_err().kind,
        ErrorKind::InvalidParams
    );
}

#[test]
fn keys_complete_for_the_prompt_and_the_template() {
    let ledger = Ledger::new();
    for key in ["beta", "alpha", "alps"] {
        ledger.call("put", &json!({"key": key, "value": "v"}));
    }
    let complete = |of: CompletionTarget, argument: &str, value: &str| {
        let request = Completion {
            of,
            argument: argument.into(),
            value: value.into(),
            context: Json::empty_object(),
        };
        members(&ledger.pack, &Op::Complete(request)).unwrap()["completion"]["values"].clone()
    };
    let prompt = || CompletionTarget::Prompt("reconcile".into());
    let template = CompletionTarget::Resource("ledger:///entry/{key}".into());
    assert_eq!(complete(prompt(), "key", "al"), json!(["alpha", "alps"]));
    assert_eq!(
        complete(template, "key", ""),
        json!(["alpha", "alps", "beta"])
    );
    assert_eq!(complete(prompt(), "other", ""), json!([]));
}

#[test]
fn the_file_comes_from_the_command_line_or_the_settings() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("from-settings");
    let settings = Settings::new(Json::from(json!({"file": file})));
    let _ = ledger::pack(&settings, None).unwrap();
    assert!(file.exists());
    let named = dir.path().join("named");
    let _ = ledger::pack(&settings, Some(named.clone())).unwrap();
    assert!(named.exists());
    let unable = ledger::pack(&Settings::default(), None).unwrap_err();
    assert!(unable.detail.contains("--file PATH"), "{unable}");
    let nowhere = Some(dir.path().join("no/such/dir"));
    let unable = ledger::pack(&Settings::default(), nowhere).unwrap_err();
    assert!(unable.detail.contains("no/such/dir"), "{unable}");
}

fn op(name: &str, arguments: &Value) -> Op {
    Op::Tool {
        name: name.to_owned(),
        arguments: Json::from_serialize(arguments),
        render: RenderMode::Porcelain,
    }
}
