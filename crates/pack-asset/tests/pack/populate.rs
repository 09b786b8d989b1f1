//! `populate_backend` against a real server.

use std::io::Write as _;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use mainstay_worker::testing::rpc::{Answer, Op};
use mainstay_worker::testing::{context, perform_in};
use mainstay_worker::{CancelToken, ErrorKind, Json, Pack, RenderMode};
use serde_json::{Value, json};

use crate::fixture::{World, answer, call, call_raw, failed, refusal};
use crate::http::{Server, closed_port, reply};

/// Time for what must not wait: shorter than any wait that would be a mistake.
const SOON: Duration = Duration::from_secs(60);
/// Numbers, escapes and order that a parse and a print would change.
const ASSET: &str =
    r#"{"name": "\u0064esk", "colour": {"hue": 1.50}, "$schemaRef": "x/lamp.schema.json"}"#;

pub(crate) fn world(url: &str) -> World {
    let mut world = World::new();
    world.settings.backend_url = Some(url.to_owned());
    world
}

fn pack(url: &str) -> Pack {
    world(url).pack()
}

pub(crate) fn populate() -> String {
    format!(r#"{{"asset":{ASSET}}}"#)
}

/// Status and detail of a backend error.
pub(crate) fn backend_error(pack: &Pack) -> (u16, String) {
    let problem = call_raw(pack, "populate_backend", &populate()).unwrap_err();
    assert_eq!(problem.kind, ErrorKind::BackendError, "{problem:?}");
    let details = problem.details.unwrap().to_value().unwrap();
    assert_eq!(details["ok"], false);
    assert_eq!(details["reason"], "backend_error");
    assert_eq!(details.as_object().unwrap().len(), 4, "{details}");
    let status = u16::try_from(details["status"].as_u64().unwrap()).unwrap();
    (status, details["detail"].as_str().unwrap().to_owned())
}

// covers: populate_backend.asset
#[test]
fn an_asset_is_posted_once_and_as_given() {
    let server = Server::answering(reply(201, r#"{"id":"a-1","more":[1]}"#));
    let pack = pack(&server.url());
    let given = call_raw(&pack, "populate_backend", &populate()).unwrap();
    let expected = json!({"ok": true, "asset_id": "a-1", "backend_url": server.url()});
    assert_eq!(given.value(), expected);
    assert_eq!(
        given.text,
        format!("stored as a-1\nbackend: {}", server.url())
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line, "POST /synesthetic-assets/ HTTP/1.1");
    assert_eq!(requests[0].body, ASSET);
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    let agent = requests[0].header("user-agent").unwrap();
    assert!(agent.starts_with("mainstay/"), "{agent}");
}

#[test]
fn the_path_is_below_the_base() {
    let server = Server::answering(reply(200, r#"{"id":"a"}"#));
    for (base, path, line) in [
        ("", "/other", "POST /other HTTP/1.1"),
        ("/", "other/", "POST /other/ HTTP/1.1"),
        (
            "/api/",
            "/v1/assets?draft=1",
            "POST /api/v1/assets?draft=1 HTTP/1.1",
        ),
    ] {
        let mut world = world(&format!("{}{base}", server.url()));
        path.clone_into(&mut world.settings.backend_assets_path);
        let given = call_raw(&world.pack(), "populate_backend", &populate()).unwrap();
        assert_eq!(
            given.value()["backend_url"],
            format!("{}{base}", server.url())
        );
        assert_eq!(server.requests().last().unwrap().line, line);
    }
}

#[test]
fn an_id_that_is_a_number_is_given_as_text() {
    let server = Server::answering(reply(200, r#"{"id": 12345678901234567890123}"#));
    let given = call_raw(&pack(&server.url()), "populate_backend", &populate()).unwrap();
    assert_eq!(given.value()["asset_id"], "12345678901234567890123");
}

#[test]
fn a_chunked_answer_is_read() {
    let server = Server::answering(
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n5;x=y\r\n:\"c\"}\r\n0\r\n\r\n",
    );
    let given = call_raw(&pack(&server.url()), "populate_backend", &populate()).unwrap();
    assert_eq!(given.value()["asset_id"], "c");
}

#[test]
fn an_answer_without_length_ends_with_its_connection() {
    let server = Server::answering("HTTP/1.1 200 OK\r\n\r\n{\"id\":\"until the end\"}");
    let given = call_raw(&pack(&server.url()), "populate_backend", &populate()).unwrap();
    assert_eq!(given.value()["asset_id"], "until the end");
}

#[test]
fn what_the_backend_refuses_keeps_its_status_and_words() {
    for (status, body, detail) in [
        (400, r#"{"detail":"bad lamp"}"#, "bad lamp"),
        (404, "", "not found"),
        (409, r#"{"message":"exists"}"#, "exists"),
        (
            422,
            r#"{"detail":[{"msg":"field required"}]}"#,
            r#"[{"msg":"field required"}]"#,
        ),
        (500, r#"{"detail":"internal error"}"#, "internal error"),
        (502, "<html>nginx</html>", "bad gateway"),
        (503, "try later\nstack trace", "try later"),
    ] {
        let server = Server::answering(reply(status, body));
        let found = backend_error(&pack(&server.url()));
        assert_eq!(found, (status, detail.to_owned()));
        assert_eq!(server.requests().len(), 1, "no retries");
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let target = Server::answering(reply(201, r#"{"id":"wrong"}"#));
    for (status, detail) in [
        (301, "moved permanently"),
        (302, "found"),
        (303, "see other"),
        (307, "temporary redirect"),
        (308, "permanent redirect"),
    ] {
        let to = target.url();
        let server = Server::answering(format!(
            "HTTP/1.1 {status} Moved\r\nlocation: {to}/x\r\ncontent-length: 0\r\n\r\n"
        ));
        assert_eq!(
            backend_error(&pack(&server.url())),
            (status, detail.to_owned())
        );
    }
    assert!(target.requests().is_empty());
}

#[test]
fn an_answer_that_says_nothing_useful_is_an_error_with_its_own_status() {
    for (body, detail) in [
        ("", "the backend's answer is not a JSON object"),
        ("stored!", "the backend's answer is not a JSON object"),
        ("[\"id\"]", "the backend's answer is not a JSON object"),
        ("{\"id\":\"x\"", "the backend's answer is not a JSON object"),
        ("{}", "the backend's answer has no id"),
        ("{\"id\":null}", "the backend's answer has no id"),
        ("{\"id\":[1]}", "the backend's answer has no id"),
    ] {
        let server = Server::answering(reply(201, body));
        assert_eq!(
            backend_error(&pack(&server.url())),
            (201, detail.to_owned()),
            "{body}"
        );
    }
    let server = Server::answering("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(backend_error(&pack(&server.url())).0, 204);
    let bytes =
        Server::answering(&b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\xff\xfe\x00\x01"[..]);
    assert_eq!(backend_error(&pack(&bytes.url())).0, 200);
}

#[test]
fn a_huge_answer_is_cut_off() {
    let (sender, hung_up) = sync_channel(1);
    let server = Server::new(move |mut stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"x\":\"";
        let _ = stream.write_all(head.as_bytes());
        let chunk = vec![b'x'; 1 << 16];
        // Without an end: the other side must hang up.
        while stream.write_all(&chunk).is_ok() {}
        let _ = sender.try_send(());
    });
    let (status, detail) = backend_error(&pack(&server.url()));
    assert_eq!(status, 200);
    assert!(detail.contains("more than 262144 bytes"), "{detail}");
    hung_up.recv_timeout(SOON).unwrap();
    let long_head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n{{}}", "x".repeat(100_000));
    let server = Server::answering(long_head);
    assert_eq!(backend_error(&pack(&server.url())).0, 502);
}

#[test]
fn an_answer_that_breaks_off_is_told_apart_from_none() {
    for half in [
        "",
        "HTTP/1.1 20",
        "HTTP/1.1 201 Created\r\ncontent-length: 50\r\n\r\n{\"id\":\"a\"",
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"i",
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
    ] {
        let server = Server::answering(half);
        let problem = call_raw(&pack(&server.url()), "populate_backend", &populate()).unwrap_err();
        let details = problem.details.unwrap().to_value().unwrap();
        assert_eq!(
            (&details["status"], &details["detail"]),
            (&json!(502), &json!("incomplete_answer")),
            "{half:?}"
        );
        assert!(problem.hint.unwrap().contains("may have been stored"));
    }
}

#[test]
fn nobody_there_is_network_unreachable() {
    let found = backend_error(&pack(&closed_port()));
    assert_eq!(found, (503, "network_unreachable".to_owned()));
}

#[test]
fn a_slow_backend_is_a_timeout_after_five_seconds_in_all() {
    // Silent, and one byte at a time: a clock that starts anew with every byte would never end.
    let silent = Server::new(|stream| {
        thread::sleep(10 * SOON);
        drop(stream);
    });
    let dripping = Server::new(|mut stream| {
        for byte in "HTTP/1.1 200 OK\r\n\r\n".bytes().chain([b' '; 2000]) {
            thread::sleep(Duration::from_millis(300));
            if stream.write_all(&[byte]).is_err() {
                return;
            }
        }
    });
    let ask = |server: &Server| {
        let pack = pack(&server.url());
        thread::spawn(move || {
            let started = Instant::now();
            (backend_error(&pack), started.elapsed())
        })
    };
    for asking in [ask(&silent), ask(&dripping)] {
        let (found, elapsed) = asking.join().unwrap();
        assert_eq!(found, (504, "timeout".to_owned()));
        let bounds = Duration::from_millis(4900)..SOON;
        assert!(bounds.contains(&elapsed), "{elapsed:?}");
    }
}

#[test]
fn a_cancelled_call_does_not_wait_for_the_backend() {
    let (sender, receiver) = sync_channel(1);
    let server = Server::new(move |stream| {
        let _ = sender.try_send(());
        thread::sleep(10 * SOON);
        drop(stream);
    });
    let pack = pack(&server.url());
    let token = CancelToken::new();
    let context = context(token.clone());
    thread::spawn(move || {
        receiver.recv_timeout(SOON).unwrap();
        token.cancel();
    });
    let op = Op::Tool {
        name: "populate_backend".to_owned(),
        arguments: Json::parse(&populate()).unwrap(),
        render: RenderMode::Json,
    };
    match perform_in(&pack, &op, &context) {
        Answer::Failed(problem) => assert_eq!(problem.kind, ErrorKind::Cancelled),
        other => panic!("{other:?}"),
    }
    // One that is cancelled before it begins is not sent at all.
    assert!(matches!(
        perform_in(&pack, &op, &context),
        Answer::Failed(_)
    ));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn nothing_invalid_is_sent() {
    let server = Server::answering(reply(201, r#"{"id":"a"}"#));
    let pack = pack(&server.url());
    let send = |asset: &Value| answer(&pack, "populate_backend", &json!({"asset": asset}));
    let bad = json!({"$schemaRef": "lamp", "name": "", "x": 1});
    let alone = answer(
        &pack,
        "validate_asset",
        &json!({"asset": bad, "schema": "lamp"}),
    );
    assert_eq!(send(&bad), alone);
    for nameless in [
        json!({}),
        json!({"name": "l"}),
        json!({"schema": "none", "name": "l"}),
        json!({"$schemaRef": 7, "name": "l"}),
    ] {
        assert_eq!(send(&nameless), failed(&[("/schema", "schema_not_found")]));
    }
    // A second reader might take the other one of the two.
    let twice = r#"{"asset":{"$schemaRef":"lamp","name":"l","name":7}}"#;
    let given = call_raw(&pack, "populate_backend", twice).unwrap();
    assert_eq!(
        given.value(),
        failed(&[("", "member \"name\" is given twice")])
    );
    assert!(given.text.starts_with("not sent: "), "{}", given.text);
    assert!(server.requests().is_empty());
    let nested = json!({"schema": "nested-synesthetic-asset", "title": "t"});
    assert_eq!(
        send(&nested)["errors"][0]["path"],
        "",
        "the member itself is not allowed"
    );
}

// covers: populate_backend.validate_first
#[test]
fn sending_unchecked_needs_the_operators_word() {
    let server = Server::answering(reply(201, r#"{"id":"a"}"#));
    let mut world = world(&server.url());
    let unchecked = json!({"asset": {"anything": 1}, "validate_first": false});
    let checked = json!({"asset": {"anything": 1}, "validate_first": true});
    let (kind, details) = refusal(&world.pack(), "populate_backend", &unchecked);
    assert_eq!(kind, ErrorKind::Unsupported);
    let expected = json!({"ok": false, "reason": "unsupported",
        "detail": "validate_first is required"});
    assert_eq!(details, expected);
    assert!(server.requests().is_empty());
    world.settings.allow_unvalidated = true;
    let pack = world.pack();
    assert_eq!(
        answer(&pack, "populate_backend", &unchecked)["asset_id"],
        "a"
    );
    assert_eq!(server.requests()[0].body, r#"{"anything":1}"#);
    assert_eq!(answer(&pack, "populate_backend", &checked)["ok"], false);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn without_a_backend_the_tool_is_unsupported() {
    let pack = World::new().pack();
    for arguments in [
        json!({"asset": {}}),
        json!({"asset": {"schema": "lamp", "name": "l"}, "validate_first": false}),
    ] {
        let (kind, details) = refusal(&pack, "populate_backend", &arguments);
        assert_eq!(kind, ErrorKind::Unsupported);
        let expected = json!({"ok": false, "reason": "unsupported", "detail": "backend disabled"});
        assert_eq!(details, expected);
    }
}

#[test]
fn a_backend_url_that_cannot_be_used_is_a_reason_not_to_start() {
    for url in [
        "",
        "localhost:8000",
        "ftp://h/",
        "http://u:hunter2@h/",
        "http://h/?q",
    ] {
        let unable = mainstay_pack_asset::pack(&world(url).settings, "1.0.0").unwrap_err();
        assert!(unable.detail.contains("SYN_BACKEND_URL"), "{unable}");
        assert!(!unable.detail.contains("hunter2"), "{unable}");
    }
    let mut world = world("http://h");
    "a path".clone_into(&mut world.settings.backend_assets_path);
    let unable = mainstay_pack_asset::pack(&world.settings, "1.0.0").unwrap_err();
    assert!(
        unable.detail.contains("SYN_BACKEND_ASSETS_PATH"),
        "{unable}"
    );
}

#[test]
fn several_calls_may_be_under_way_and_each_gets_its_own_answer() {
    let server = Server::answering(reply(201, r#"{"id":"a"}"#));
    let pack = pack(&server.url());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let given = call(
                    &pack,
                    "populate_backend",
                    &json!({"asset": {"schema": "x"}}),
                );
                assert_eq!(given.unwrap().value()["ok"], false);
                let given = call_raw(&pack, "populate_backend", &populate()).unwrap();
                assert_eq!(given.value()["asset_id"], "a");
            });
        }
    });
    assert_eq!(server.requests().len(), 4);
}
