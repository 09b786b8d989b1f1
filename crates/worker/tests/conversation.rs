//! The worker loop over real pipes, in process.

#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use mainstay_worker::testing::Peer;
use mainstay_worker::testing::rpc::{Answer, Call, FromWorker, Op, PROTOCOL, Start, ToWorker};
use mainstay_worker::{
    CallId, Context, Ended, ErrorKind, Json, Pack, Porcelain, RenderMode, Reply, Subprocess,
    Unable, tool_spec, typed,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Nap {
    ms: u64,
}

#[derive(Deserialize)]
struct Size {
    bytes: usize,
}

fn pack() -> Pack {
    let spec = |name| tool_spec(name, "For tests.").read_only();
    Pack::new("test")
        .tool(
            spec("echo"),
            typed(|arguments: Value, _| {
                Ok(Reply::json(&arguments).porcelain(|| Porcelain::summary("echoed")))
            }),
        )
        .tool(
            spec("nap"),
            typed(|nap: Nap, context| {
                context.sleep(Duration::from_millis(nap.ms))?;
                Ok(Reply::json(&json!({"slept": nap.ms})))
            }),
        )
        .tool(
            spec("deaf"),
            typed(|nap: Nap, _| {
                std::thread::sleep(Duration::from_millis(nap.ms));
                Ok(Reply::json(&json!({})))
            }),
        )
        .tool(
            spec("panic"),
            typed(|_: Value, _| -> Result<Reply, _> { panic!("secret of the tool") }),
        )
        .tool(
            spec("big"),
            typed(|size: Size, _| Ok(Reply::json(&json!({"x": "x".repeat(size.bytes)})))),
        )
        .tool(
            spec("chatty"),
            typed(|nap: Nap, context| {
                let end = Instant::now() + Duration::from_millis(nap.ms);
                let mut done = 0;
                while Instant::now() < end {
                    done += 1;
                    context.step(done, 0, "busy");
                }
                context.step(done + 1, 0, "last");
                context.sleep(Duration::from_millis(200))?;
                Ok(Reply::json(&json!({"reported": done})))
            }),
        )
        .tool(
            spec("trace"),
            typed(|_: Value, context| {
                let trace = context.trace().map(|trace| trace.to_string());
                Ok(Reply::json(&json!({ "trace": trace })))
            }),
        )
        .tool(spec("list"), typed(|_: Value, _| Ok(Reply::json(&[1]))))
        .tool(
            spec("shell"),
            typed(|_: Value, context| {
                Subprocess::new("/bin/sh")
                    .args(["-c", "sleep 100"])
                    .run(context)?;
                Ok(Reply::json(&json!({})))
            }),
        )
        .facts(Json::from(json!({"answer": 42})))
}

fn tool(name: &str, arguments: &Value) -> Op {
    Op::Tool {
        name: name.into(),
        arguments: Json::from_serialize(arguments),
        render: RenderMode::Json,
    }
}

fn ready() -> Peer {
    Peer::ready(pack()).unwrap().0
}

fn failure(answer: Answer) -> ErrorKind {
    match answer {
        Answer::Failed(problem) => problem.kind,
        other => panic!("expected a failure, got {other:?}"),
    }
}

fn drain(mut peer: Peer) {
    peer.send(&ToWorker::Drain {}).unwrap();
    assert_eq!(peer.receive().unwrap(), FromWorker::Drained {});
    assert_eq!(peer.end().unwrap(), Ended::Drained);
}

#[test]
fn a_worker_announces_its_catalog_build_and_facts() {
    let (peer, ready) = Peer::ready(pack()).unwrap();
    assert_eq!(ready.protocol, PROTOCOL);
    assert_eq!(ready.catalog, pack().catalog());
    assert!(ready.build.starts_with("0.0.0+"));
    assert_eq!(ready.facts.as_str(), r#"{"answer":42}"#);
    drain(peer);
}

#[test]
fn a_call_is_answered_with_the_bytes_it_was_given() {
    let mut peer = ready();
    let arguments = Json::parse(r#"{"a":1.5,"b":"\u00e9"}"#).unwrap();
    let op = Op::Tool {
        name: "echo".into(),
        arguments,
        render: RenderMode::Porcelain,
    };
    let call = peer.call(op).unwrap();
    let (answered, answer) = peer.answer().unwrap();
    assert_eq!(answered, call);
    let Answer::Tool(reply) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(reply.json.to_value().unwrap(), json!({"a": 1.5, "b": "é"}));
    assert_eq!(reply.text.as_deref(), Some("echoed"));
    drain(peer);
}

#[test]
fn a_long_call_blocks_neither_pings_nor_others_nor_its_own_cancel() {
    let mut peer = ready();
    let start = Instant::now();
    let long = peer.call(tool("nap", &json!({"ms": 600_000}))).unwrap();
    peer.send(&ToWorker::Ping { nonce: 9 }).unwrap();
    assert_eq!(peer.receive().unwrap(), FromWorker::Pong { nonce: 9 });
    let short = peer.call(tool("echo", &json!({}))).unwrap();
    assert_eq!(peer.answer().unwrap().0, short);
    peer.send(&ToWorker::Cancel { call: long }).unwrap();
    let (answered, answer) = peer.answer().unwrap();
    assert_eq!((answered, failure(answer)), (long, ErrorKind::Cancelled));
    assert!(start.elapsed() < Duration::from_secs(120));
    drain(peer);
}

#[test]
fn calls_beyond_the_pool_wait_and_beyond_the_queue_are_refused() {
    let mut peer = ready();
    let naps: Vec<CallId> = (0..2)
        .map(|_| peer.call(tool("nap", &json!({"ms": 600_000}))).unwrap())
        .collect();
    let waiting: Vec<CallId> = (0..2)
        .map(|_| peer.call(tool("echo", &json!({}))).unwrap())
        .collect();
    let refused = peer.call(tool("echo", &json!({}))).unwrap();
    let (answered, answer) = peer.answer().unwrap();
    assert_eq!(
        (answered, failure(answer)),
        (refused, ErrorKind::Overloaded)
    );
    // One that waits can be cancelled without ever starting; pings go through all the while.
    peer.send(&ToWorker::Cancel { call: waiting[1] }).unwrap();
    let (answered, answer) = peer.answer().unwrap();
    assert_eq!(
        (answered, failure(answer)),
        (waiting[1], ErrorKind::Cancelled)
    );
    peer.send(&ToWorker::Ping { nonce: 1 }).unwrap();
    assert_eq!(peer.receive().unwrap(), FromWorker::Pong { nonce: 1 });
    peer.send(&ToWorker::Cancel { call: naps[0] }).unwrap();
    let (answered, _) = peer.answer().unwrap();
    assert_eq!(answered, naps[0]);
    let (answered, answer) = peer.answer().unwrap();
    assert_eq!(answered, waiting[0]);
    assert!(matches!(answer, Answer::Tool(_)));
    peer.send(&ToWorker::Cancel { call: naps[1] }).unwrap();
    assert_eq!(peer.answer().unwrap().0, naps[1]);
    drain(peer);
}

#[test]
fn a_panic_is_one_answer_and_the_worker_lives_on() {
    let mut peer = ready();
    for _ in 0..20 {
        peer.call(tool("panic", &json!({}))).unwrap();
        let (_, answer) = peer.answer().unwrap();
        let Answer::Failed(problem) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(problem.kind, ErrorKind::ToolPanicked);
        assert!(
            !problem.payload().contains("secret"),
            "{}",
            problem.payload()
        );
    }
    peer.call(tool("echo", &json!({}))).unwrap();
    assert!(matches!(peer.answer().unwrap().1, Answer::Tool(_)));
    drain(peer);
}

#[test]
fn what_cannot_be_answered_is_a_typed_failure() {
    let mut peer = ready();
    for (op, kind) in [
        (tool("none", &json!({})), ErrorKind::UnknownTool),
        (
            tool("nap", &json!({"ms": "soon"})),
            ErrorKind::InvalidArguments,
        ),
        (tool("list", &json!({})), ErrorKind::InvalidOutput),
        (
            tool("big", &json!({"bytes": 1024 * 1024})),
            ErrorKind::AnswerTooLarge,
        ),
        (
            Op::ReadResource {
                uri: "x:///y".into(),
            },
            ErrorKind::ResourceNotFound,
        ),
        (
            Op::Prompt {
                name: "p".into(),
                arguments: Json::empty_object(),
            },
            ErrorKind::InvalidParams,
        ),
    ] {
        let call = peer.call(op).unwrap();
        let (answered, answer) = peer.answer().unwrap();
        assert_eq!((answered, failure(answer)), (call, kind));
    }
    peer.call(tool("big", &json!({"bytes": 1024 * 1024 - 200})))
        .unwrap();
    assert!(matches!(peer.answer().unwrap().1, Answer::Tool(_)));
    drain(peer);
}

#[test]
fn progress_is_limited_the_latest_wins_and_none_follows_the_answer() {
    let mut peer = ready();
    let start = Instant::now();
    let call = peer.call(tool("chatty", &json!({"ms": 300}))).unwrap();
    assert!(matches!(peer.answer().unwrap().1, Answer::Tool(_)));
    let windows = start.elapsed().as_millis() / 50 + 2;
    let progress = peer.progress();
    assert!(
        progress.len() as u128 <= windows,
        "{} in {windows} windows",
        progress.len()
    );
    assert!(progress.iter().all(|(reported, _)| *reported == call));
    // What was reported inside a window arrived although the tool said nothing more.
    assert_eq!(progress.last().unwrap().1.message, "last");
    let quiet = peer.receive_within(Duration::from_millis(120));
    assert!(quiet.is_err(), "{quiet:?}");
    drain(peer);
}

#[test]
fn no_progress_follows_a_cancel() {
    let mut peer = ready();
    let call = peer.call(tool("chatty", &json!({"ms": 3000}))).unwrap();
    assert!(matches!(
        peer.receive().unwrap(),
        FromWorker::Progress { .. }
    ));
    peer.send(&ToWorker::Cancel { call }).unwrap();
    peer.send(&ToWorker::Ping { nonce: 2 }).unwrap();
    while peer.receive().unwrap() != (FromWorker::Pong { nonce: 2 }) {}
    let (_, answer) = peer.answer().unwrap();
    assert_eq!(failure(answer), ErrorKind::Cancelled);
    assert!(peer.progress().is_empty());
    drain(peer);
}

#[test]
fn a_drain_finishes_what_runs_and_refuses_the_rest() {
    let mut peer = ready();
    let running = peer.call(tool("nap", &json!({"ms": 3000}))).unwrap();
    peer.send(&ToWorker::Drain {}).unwrap();
    let late = peer.call(tool("echo", &json!({}))).unwrap();
    let (answered, answer) = peer.answer().unwrap();
    assert_eq!((answered, failure(answer)), (late, ErrorKind::ShuttingDown));
    let (answered, answer) = peer.answer().unwrap();
    assert_eq!(answered, running);
    assert!(matches!(answer, Answer::Tool(_)));
    assert_eq!(peer.receive().unwrap(), FromWorker::Drained {});
    assert_eq!(peer.end().unwrap(), Ended::Drained);
}

#[test]
fn a_worker_whose_host_has_gone_ends_at_once_whatever_runs() {
    let mut peer = ready();
    peer.call(tool("deaf", &json!({"ms": 600_000}))).unwrap();
    peer.call(tool("shell", &json!({}))).unwrap();
    let start = Instant::now();
    peer.hang_up();
    assert_eq!(peer.end().unwrap(), Ended::HostGone);
    assert!(start.elapsed() < Duration::from_secs(120));
}

#[test]
fn a_pack_that_cannot_start_says_why() {
    let refuse = |_: &_| Err(Unable::new("set file"));
    let mut peer = Peer::start(Peer::usual_start(), refuse).unwrap();
    assert_eq!(
        peer.receive().unwrap(),
        FromWorker::Unable {
            detail: "set file".into()
        }
    );
    assert_eq!(peer.end().unwrap(), Ended::Unable);

    let explode = |_: &_| -> Result<Pack, Unable> { panic!("while loading") };
    let mut peer = Peer::start(Peer::usual_start(), explode).unwrap();
    assert!(matches!(peer.receive().unwrap(), FromWorker::Unable { .. }));
    assert_eq!(peer.end().unwrap(), Ended::Unable);
}

#[test]
fn another_protocol_is_refused_before_the_pack_is_built() {
    let built = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&built);
    let start = Start {
        protocol: PROTOCOL + 1,
        ..Peer::usual_start()
    };
    let mut peer = Peer::start(start, move |_| {
        seen.store(true, Ordering::SeqCst);
        Ok(pack())
    })
    .unwrap();
    let FromWorker::Unable { detail } = peer.receive().unwrap() else {
        panic!("expected a refusal")
    };
    assert!(detail.contains("worker protocol 2"), "{detail}");
    assert_eq!(peer.end().unwrap(), Ended::Unable);
    assert!(!built.load(Ordering::SeqCst));
}

#[test]
fn messages_longer_than_the_pipe_arrive() {
    let settings = Json::from(json!({"text": "x".repeat(300_000)}));
    let start = Start {
        settings: settings.clone(),
        ..Peer::usual_start()
    };
    let mut peer = Peer::start(start, |settings| {
        let echo = typed(|arguments: Value, _| Ok(Reply::json(&arguments)));
        let pack = Pack::new("p").tool(tool_spec("echo", "Echoes.").read_only(), echo);
        Ok(pack.facts(settings.json().clone()))
    })
    .unwrap();
    let FromWorker::Ready(ready) = peer.receive().unwrap() else {
        panic!("expected ready")
    };
    assert_eq!(ready.facts, settings);
    let long = json!({"text": "y".repeat(900_000)});
    for _ in 0..5 {
        peer.call(tool("echo", &long)).unwrap();
        let Answer::Tool(reply) = peer.answer().unwrap().1 else {
            panic!("expected a reply")
        };
        assert_eq!(reply.json.to_value().unwrap(), long);
    }
    drain(peer);
}

#[test]
fn settings_reach_the_pack() {
    let start = Start {
        settings: Json::parse(r#"{"n":7}"#).unwrap(),
        ..Peer::usual_start()
    };
    let mut peer = Peer::start(start, |settings| {
        let settings: Value = settings.parse()?;
        Ok(Pack::new("p").facts(Json::from(settings)))
    })
    .unwrap();
    let FromWorker::Ready(ready) = peer.receive().unwrap() else {
        panic!("expected ready")
    };
    assert_eq!(ready.facts.as_str(), r#"{"n":7}"#);
    drain(peer);
}

#[test]
fn as_many_calls_as_the_pool_run_at_the_same_time() {
    let together = Arc::new(Barrier::new(4));
    let count = Arc::new(AtomicU32::new(0));
    let (barrier, counter) = (Arc::clone(&together), Arc::clone(&count));
    let start = Start {
        pool: 4,
        ..Peer::usual_start()
    };
    let mut peer = Peer::start(start, move |_| {
        let meet = typed(move |_: Value, _| {
            counter.fetch_add(1, Ordering::SeqCst);
            barrier.wait();
            Ok(Reply::json(&json!({})))
        });
        Ok(Pack::new("p").tool(tool_spec("meet", "Meets.").read_only(), meet))
    })
    .unwrap();
    assert!(matches!(peer.receive().unwrap(), FromWorker::Ready(_)));
    for _ in 0..50 {
        for _ in 0..4 {
            peer.call(tool("meet", &json!({}))).unwrap();
        }
        for _ in 0..4 {
            assert!(matches!(peer.answer().unwrap().1, Answer::Tool(_)));
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 200);
    drain(peer);
}

#[test]
fn every_call_of_a_burst_is_answered_exactly_once() {
    let mut peer = ready();
    for _ in 0..200 {
        let mut open: Vec<CallId> = (0..4)
            .map(|_| peer.call(tool("echo", &json!({}))).unwrap())
            .collect();
        while !open.is_empty() {
            let (answered, answer) = peer.answer().unwrap();
            assert!(matches!(answer, Answer::Tool(_)));
            let at = open
                .iter()
                .position(|call| *call == answered)
                .expect("answered once");
            open.remove(at);
        }
    }
    drain(peer);
}

#[test]
fn a_tool_knows_the_span_that_its_work_belongs_to() {
    let (mut peer, _) = Peer::ready(pack()).unwrap();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for trace in [Some(parent), None] {
        let mut call = serde_json::to_value(ToWorker::Call(Call {
            call: CallId::new(900),
            attempt: 1,
            timeout_ms: 1000,
            trace: None,
            op: tool("trace", &json!({})),
        }))
        .unwrap();
        if let Some(trace) = trace {
            call["call"]["trace"] = json!(trace);
        }
        peer.send(&serde_json::from_value(call).unwrap()).unwrap();
        let (_, answer) = peer.answer().unwrap();
        let Answer::Tool(reply) = answer else {
            panic!("{answer:?}");
        };
        let value: Value = serde_json::from_str(reply.json.as_str()).unwrap();
        assert_eq!(value["trace"], json!(trace));
    }
}

#[test]
fn long_calls_do_not_keep_short_ones_waiting() {
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    let mut peer = Peer::start(Peer::usual_start(), move |_| {
        let wait = typed(move |_: Value, context: &Context| {
            while !seen.load(Ordering::SeqCst) {
                context.sleep(Duration::from_millis(5))?;
            }
            Ok(Reply::json(&json!({})))
        });
        let short = typed(|_: Value, _| Ok(Reply::json(&json!({}))));
        Ok(Pack::new("p")
            .tool(tool_spec("wait", "Waits.").long_running().read_only(), wait)
            .tool(tool_spec("short", "Answers.").read_only(), short))
    })
    .unwrap();
    assert!(matches!(peer.receive().unwrap(), FromWorker::Ready(_)));
    // As many long calls as the pool has places, and one more.
    for _ in 0..3 {
        peer.call(tool("wait", &json!({}))).unwrap();
    }
    for _ in 0..3 {
        let short = peer.call(tool("short", &json!({}))).unwrap();
        assert_eq!(peer.answer().unwrap().0, short);
    }
    over.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        assert!(matches!(peer.answer().unwrap().1, Answer::Tool(_)));
    }
    drain(peer);
}
