//! Bytes that are no HTTP, and requests that two readers would end in two places.

use std::time::Duration;

use anyhow::ensure;
use mainstay_testkit::http::{Connection, Request, Response, Session};
use serde_json::json;

use crate::victim::{KINDS, Kind, Victim, expect};

/// All answers until the connection ends or is silent.
fn answers(connection: &mut Connection) -> Vec<Response> {
    let mut answers = Vec::new();
    while let Ok(answer) = connection.response() {
        answers.push(answer);
    }
    answers
}

fn short(victim: &Victim) -> anyhow::Result<Connection> {
    Ok(victim.connect()?.with_patience(Duration::from_secs(20)))
}

#[test]
fn garbage_is_refused_or_cut_off() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let garbage: [&[u8]; 9] = [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\0\0\0\0\0\0\0\0\r\n\r\n",
            b"\xff\xfe\xfd\r\n\r\n",
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n\r\n\r\n",
            b"GET /mcp HTTP/9.9\r\nHost: localhost\r\n\r\n",
            b"GET /mcp\r\n\r\n",
            b"GET  /mcp  HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /mcp HTTP/1.1\r\nHost localhost\r\n\r\n",
        ];
        for bytes in garbage {
            let mut connection = short(&victim)?;
            connection.send(bytes)?;
            connection.half_close()?;
            for answer in answers(&mut connection) {
                expect(&answer, &[400, 403, 404, 405, 505], &format!("{bytes:?}"))?;
            }
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn garbage_behind_a_good_request_does_not_hurt_it() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        let ping = session.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let mut connection = short(&victim)?;
        connection.send(&[&ping.bytes()[..], b"\0\xffgarbage\r\n\r\n"].concat())?;
        let answers = answers(&mut connection);
        let statuses: Vec<u16> = answers.iter().map(Response::status).collect();
        ensure!(statuses.first() == Some(&200), "{statuses:?}");
        ensure!(
            statuses.get(1).is_none_or(|status| *status == 400) && statuses.len() <= 2,
            "{statuses:?}"
        );
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn pipelined_requests_are_answered_in_their_order() -> anyhow::Result<()> {
    let victim = Victim::start(Kind::Packs)?;
    let session = victim.session()?;
    let mut connection = victim.connect()?;
    for id in 0..50 {
        let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
        connection.send(&session.post(&ping).bytes())?;
    }
    for id in 0..50 {
        let answer = connection.response()?;
        let message = answer.messages()?.pop().unwrap_or_default();
        ensure!(message.get("id") == Some(&json!(id)), "{id}: {message}");
    }
    victim.survives()
}

/// A call with an effect, hidden in the body of another request.
fn hidden(session: &Session, key: &str) -> Vec<u8> {
    let params = json!({"name": "put", "arguments": {"key": key, "value": "smuggled"}});
    let call = json!({"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params});
    session.post(&call.to_string()).bytes()
}

/// Whether the hidden call took place.
fn happened(victim: &Victim, session: &Session, key: &str) -> anyhow::Result<bool> {
    let answer = match victim.kind {
        Kind::Packs => session.call("\"look\"", "get", &json!({}))?,
        Kind::Wrapped => session.call("\"look\"", "lookup", &json!({"key": key}))?,
    };
    let text = answer.to_string();
    ensure!(answer.get("result").is_some(), "{text}");
    Ok(match victim.kind {
        Kind::Packs => text.contains(key),
        Kind::Wrapped => answer.pointer("/result/structuredContent/found") == Some(&json!(true)),
    })
}

/// What is hidden below would have its effect if it were not.
#[test]
fn call_that_is_not_hidden_takes_place() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        ensure!(!happened(&victim, &session, "open")?, "too early");
        let mut connection = victim.connect()?;
        connection.send(&hidden(&session, "open"))?;
        expect(&connection.response()?, &[200], "a call")?;
        ensure!(happened(&victim, &session, "open")?, "{kind:?}: nothing");
        victim.survives()?;
    }
    Ok(())
}

/// Each shape ends where `{at}` stands for one reader and behind the hidden request for another.
#[test]
fn request_that_ends_in_two_places_is_refused() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        let shapes: [(&str, &[(&str, &str)]); 13] = [
            (
                "both",
                &[
                    ("Content-Length", "{all}"),
                    ("Transfer-Encoding", "chunked"),
                ],
            ),
            (
                "both, the other way",
                &[
                    ("Transfer-Encoding", "chunked"),
                    ("Content-Length", "{all}"),
                ],
            ),
            (
                "a short length and chunks",
                &[("Content-Length", "4"), ("Transfer-Encoding", "chunked")],
            ),
            (
                "two lengths",
                &[("Content-Length", "0"), ("Content-Length", "{all}")],
            ),
            ("two lengths in one", &[("Content-Length", "0, {all}")]),
            ("a signed length", &[("Content-Length", "+0")]),
            ("a negative length", &[("Content-Length", "-1")]),
            ("a length in hex", &[("Content-Length", "0x10")]),
            ("an unknown coding", &[("Transfer-Encoding", "xchunked")]),
            (
                "chunked and another",
                &[("Transfer-Encoding", "chunked, identity")],
            ),
            (
                "chunked twice",
                &[
                    ("Transfer-Encoding", "chunked"),
                    ("Transfer-Encoding", "identity"),
                ],
            ),
            (
                "a space before the colon",
                &[("Transfer-Encoding ", "chunked"), ("Content-Length", "0")],
            ),
            (
                "a folded header",
                &[
                    ("X", "a\r\n Transfer-Encoding: chunked"),
                    ("Content-Length", "0"),
                ],
            ),
        ];
        for (number, (what, headers)) in shapes.iter().enumerate() {
            let key = format!("hidden-{number}");
            let inner = hidden(&session, &key);
            let body = [b"0\r\n\r\n".as_slice(), &inner].concat();
            let mut request = session.post("").unmeasured();
            for (name, value) in *headers {
                request = request.header(name, &value.replace("{all}", &body.len().to_string()));
            }
            let mut connection = short(&victim)?;
            connection.send(&request.body(body).bytes())?;
            let statuses: Vec<u16> = answers(&mut connection)
                .iter()
                .map(Response::status)
                .collect();
            ensure!(statuses.len() <= 1, "{kind:?}, {what}: {statuses:?}");
            ensure!(
                statuses
                    .iter()
                    .all(|status| [400, 411, 501].contains(status)),
                "{kind:?}, {what}: {statuses:?}"
            );
            ensure!(
                !happened(&victim, &session, &key)?,
                "{kind:?}, {what}: it happened"
            );
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn chunk_sizes_that_are_none_are_refused() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        for size in [
            "-1",
            "+5",
            "0x5",
            "g",
            "",
            " ",
            "ffffffffffffffff",
            "fffffffffffffffff",
            "5 5",
        ] {
            let request = session
                .post(&format!("{size}\r\nhello\r\n0\r\n\r\n"))
                .unmeasured()
                .header("Transfer-Encoding", "chunked");
            let mut connection = short(&victim)?;
            connection.send(&request.bytes())?;
            connection.half_close()?;
            for answer in answers(&mut connection) {
                expect(&answer, &[400, 413], &format!("a chunk of {size:?}"))?;
            }
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn client_that_leaves_in_the_middle_of_a_body_has_asked_nothing() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        let whole = hidden(&session, "half");
        let half = whole.get(..whole.len() - 1).unwrap_or_default();
        let mut connection = short(&victim)?;
        connection.send(half)?;
        connection.half_close()?;
        let answered = answers(&mut connection);
        ensure!(
            answered.iter().all(|answer| answer.status() >= 400),
            "{answered:?}"
        );
        ensure!(
            !happened(&victim, &session, "half")?,
            "half a request was run"
        );
        let expecting = Request::message(victim.address, "{}").header("Expect", "200-maybe");
        expect(&victim.ask(&expecting)?, &[400, 417], "an expectation")?;
        victim.survives()?;
    }
    Ok(())
}
