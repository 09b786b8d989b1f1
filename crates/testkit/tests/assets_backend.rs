//! `populate_backend` behind a real host: one POST per call, whatever happens to the worker, and
//! no way around the configured address.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use mainstay_testkit::process::{Serve, kill, workspace};
use serde_json::{Value, json};

/// A backend that answers after a while, and counts what it was sent.
struct Backend {
    url: String,
    posts: Arc<AtomicUsize>,
}

impl Backend {
    fn start(after: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let posts = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&posts);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut input = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut length) = (String::new(), 0);
                while input.read_line(&mut line).is_ok_and(|read| read > 2) {
                    let lower = line.to_ascii_lowercase();
                    if let Some(value) = lower.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                input.read_exact(&mut body).unwrap();
                let number = seen.fetch_add(1, Ordering::SeqCst) + 1;
                thread::sleep(after);
                let body = json!({ "id": number }).to_string();
                let length = body.len();
                // The other side may be gone.
                let _ = write!(
                    stream,
                    "HTTP/1.1 201 Created\r\ncontent-length: {length}\r\n\r\n{body}"
                );
            }
        });
        Self { url, posts }
    }

    fn posts(&self) -> usize {
        self.posts.load(Ordering::SeqCst)
    }

    fn serve(&self) -> anyhow::Result<Serve> {
        let serve = Serve::stdio()?.pack("asset").env(
            "SYN_SCHEMAS_DIR",
            workspace()?.join("examples/assets/jsonschema"),
        );
        let file = serve.folder().join("asset.toml");
        let url = &self.url;
        fs::write(
            &file,
            format!("[packs.asset.settings]\nbackend_url = \"{url}\"\n"),
        )?;
        Ok(serve.argument("--config").argument(file))
    }
}

fn asset() -> Value {
    json!({"$schemaRef": "lamp", "name": "desk", "colour": "#00ff00"})
}

fn wait_for_a_post(backend: &Backend) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(120);
    while backend.posts() == 0 {
        ensure!(Instant::now() < until, "nothing was sent");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn a_stored_asset_is_a_result_in_every_dialect() -> anyhow::Result<()> {
    let backend = Backend::start(Duration::ZERO);
    // Proxies of the environment have no part in it: nobody listens there.
    let host = backend
        .serve()?
        .env("http_proxy", "http://127.0.0.1:9")
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("ALL_PROXY", "http://127.0.0.1:9")
        .spawn()?;
    let client = host.client()?;
    let direct = client.request("1", "populate_backend", &json!({"asset": asset()}))?;
    let expected = json!({"ok": true, "asset_id": "1", "backend_url": backend.url});
    ensure!(direct.at("/result") == expected, "{direct:?}");
    let legacy = client.call("2", "populate_backend", &json!({"asset": asset()}))?;
    let stored = legacy.at("/result/structuredContent");
    ensure!(stored["asset_id"] == "2", "{legacy:?}");
    let text = legacy.at("/result/content/0/text");
    ensure!(
        text.as_str()
            .is_some_and(|text| text.starts_with("stored as 2\n")),
        "{text}"
    );
    // A verdict is an answer, not an error, and nothing is sent.
    let bad = client.call(
        "3",
        "populate_backend",
        &json!({"asset": {"schema": "lamp"}}),
    )?;
    ensure!(bad.at("/result/isError") != true, "{bad:?}");
    ensure!(
        bad.at("/result/structuredContent/reason") == "validation_failed",
        "{bad:?}"
    );
    let unchecked = json!({"asset": asset(), "validate_first": false});
    let refused = client.call("4", "populate_backend", &unchecked)?;
    ensure!(refused.at("/result/isError") == true, "{refused:?}");
    ensure!(backend.posts() == 2, "{} posts", backend.posts());
    host.stop()
}

#[test]
fn a_call_that_is_lost_with_its_worker_is_not_sent_again() -> anyhow::Result<()> {
    let backend = Backend::start(Duration::from_secs(4));
    let host = backend.serve()?.spawn()?;
    let client = host.client()?;
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "populate_backend", "arguments": {"asset": asset()}}});
    client.send(&line.to_string())?;
    wait_for_a_post(&backend)?;
    let workers = host.workers("mainstay-worker");
    ensure!(workers.len() == 1, "{workers:?}");
    for worker in workers {
        kill(worker);
    }
    let lost = client.answer("1")?;
    let text = lost.at("/result/content/0/text");
    ensure!(
        text.as_str()
            .is_some_and(|text| text.contains("outcome is unknown")),
        "{lost:?}"
    );
    // The successor serves, and has not repeated it.
    let next = client.request("2", "list_schemas", &json!({}))?;
    ensure!(next.at("/result/ok") == true, "{next:?}");
    thread::sleep(Duration::from_millis(300));
    ensure!(backend.posts() == 1, "{} posts", backend.posts());
    host.stop()
}

#[test]
fn a_cancelled_call_ends_at_once_and_costs_no_worker() -> anyhow::Result<()> {
    let backend = Backend::start(Duration::from_secs(4));
    let host = backend.serve()?.spawn()?;
    let client = host.client()?;
    client.send(r#"{"jsonrpc":"2.0","id":0,"method":"list_schemas"}"#)?;
    client.answer("0")?;
    let before = host.workers("mainstay-worker");
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "populate_backend",
        "params": {"asset": asset()}});
    client.send(&line.to_string())?;
    wait_for_a_post(&backend)?;
    client.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}"#)?;
    let cancelled = client.answer("1")?;
    ensure!(
        cancelled.at("/result/reason") == "cancelled",
        "{cancelled:?}"
    );
    // Past the grace after which a deaf worker would be replaced.
    thread::sleep(Duration::from_millis(2500));
    let next = client.request("2", "list_schemas", &json!({}))?;
    ensure!(next.at("/result/ok") == true, "{next:?}");
    ensure!(
        host.workers("mainstay-worker") == before,
        "the worker was replaced"
    );
    host.stop()
}
