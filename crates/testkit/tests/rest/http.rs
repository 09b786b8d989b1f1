//! A host on HTTP, and requests to it, one to a connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use mainstay_testkit::peer::PATIENCE;
use mainstay_testkit::process::{Running, Serve};
use serde_json::{Value, json};

/// A host that listens.
pub(crate) struct Host {
    running: Running,
    pub(crate) address: String,
}

/// What it answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {self:?}"))
    }
}

impl Host {
    /// A host with whatever `serve` says, on a port of the system's choice.
    pub(crate) fn start(serve: Serve) -> anyhow::Result<Self> {
        let serve = serve.argument("--http").argument("127.0.0.1:0");
        Self::of(serve.spawn()?)
    }

    /// A host that was started with `--http`.
    pub(crate) fn of(running: Running) -> anyhow::Result<Self> {
        let ready = running.wait_for_line("mcp:ready")?;
        let mut words = ready.split_whitespace();
        let address = words.find_map(|word| word.strip_prefix("address="));
        let address = address.context("no address")?.to_owned();
        Ok(Self { running, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Sends TERM and checks that it ends well.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.running.terminate()?;
        self.running.stop()
    }

    /// A connection on which a request was sent.
    pub(crate) fn send(&self, request: &str) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).context("connecting")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes()).context("sending")?;
        Ok(stream)
    }

    /// One request with these header lines.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> anyhow::Result<Answer> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.address
        );
        for header in headers {
            request += &format!("{header}\r\n");
        }
        request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let mut text = String::new();
        self.send(&request)?.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no head")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok(Answer {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.ask("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let headers = ["Content-Type: application/json"];
        self.ask("POST", path, &headers, &body.to_string())
    }

    /// Runs a tool on so many connections that stay open until they are dropped; gives them when
    /// all of these calls run or wait.
    pub(crate) fn occupy(
        &self,
        tool: &str,
        arguments: &Value,
        times: u64,
    ) -> anyhow::Result<Vec<TcpStream>> {
        let body = json!({ "arguments": arguments }).to_string();
        let request = format!(
            "POST /v1/tool/{tool} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let held = (0..times).map(|_| self.send(&request));
        let held = held.collect::<anyhow::Result<Vec<_>>>()?;
        for _ in 0..250 {
            let health = self.call("system_health", &json!({}))?.json()?;
            if busy(&health["data"]) >= times {
                return Ok(held);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        anyhow::bail!("{times} calls of {tool} are not in flight")
    }

    /// Runs a tool by its name.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> anyhow::Result<Answer> {
        let path = format!("/v1/tool/{tool}");
        self.post(&path, &json!({ "arguments": arguments }))
    }
}

/// A request envelope.
pub(crate) fn envelope(tool: &str, payload: &Value) -> Value {
    json!({
        "id": "one", "version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z",
        "tool": tool, "payload": payload,
    })
}

/// How many calls run or wait with the workers, as a host's health says.
pub(crate) fn busy(health: &Value) -> u64 {
    let workers = health["workers"].as_array().into_iter().flatten();
    let counts = workers.flat_map(|worker| [&worker["in_flight"], &worker["queue_depth"]]);
    counts.filter_map(Value::as_u64).sum()
}
