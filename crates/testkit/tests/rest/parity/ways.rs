//! The ways in which a tool can be called, and what each must say of the same error.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use mainstay_contract::dialect::encode::is_of_the_message;
use mainstay_contract::error::{ErrorKind, Row, Surface};
use mainstay_testkit::http::{Connection, Request, Response, Session, modern};
use mainstay_testkit::peer::{Client, request_line};
use mainstay_testkit::process::{Running, Serve, binary};
use serde_json::{Map, Value, json};

use crate::http::{Host, busy, envelope};

/// What every form of an error ends with, where it is known.
const PARTICULARS: [&str; 5] = ["fault", "timeoutMs", "details", "stderr", "stdout"];

/// Equal hosts, each reached in its ways.
pub(crate) struct Ways {
    http: Host,
    session: Session,
    stdio: Running,
    socket: Running,
    /// The client of each, in the order of [`LINES`], with an open session.
    clients: [Client; 2],
    next_id: u64,
}

/// Hosts that speak in lines.
const LINES: [&str; 2] = ["stdio", "socket"];

/// An error as the result envelope says it; all other forms follow from it.
pub(crate) struct Said {
    error: Value,
    row: &'static Row,
}

impl Said {
    pub(crate) fn of(envelope: &Value) -> anyhow::Result<Self> {
        let error = envelope["error"].clone();
        let name = error["details"]["kind"].as_str();
        let kind = ErrorKind::ALL
            .iter()
            .find(|kind| Some(kind.row().name) == name);
        let row = kind.with_context(|| format!("no row in {envelope}"))?.row();
        let details = &error["details"];
        assert_eq!(error["code"], row.canonical.as_str(), "{error}");
        assert_eq!(details["canonical"], row.canonical.as_str(), "{error}");
        assert_eq!(details["code"], row.code.as_str(), "{error}");
        assert_eq!(details["httpStatus"], row.http, "{error}");
        assert_eq!(details["retryable"], row.retryable, "{error}");
        Ok(Self { error, row })
    }

    pub(crate) const fn kind(&self) -> ErrorKind {
        self.row.kind
    }

    fn particulars(&self, mut of: Map<String, Value>, names: &[&str]) -> Value {
        for name in names.iter().chain(&PARTICULARS) {
            if let Some(value) = self.error["details"].get(*name) {
                of.insert((*name).to_owned(), value.clone());
            }
        }
        Value::Object(of)
    }

    /// The error payload of tool results and of the command line.
    pub(crate) fn payload(&self) -> Value {
        let message = Map::from_iter([("message".to_owned(), self.error["message"].clone())]);
        self.particulars(message, &["code", "hint", "retryable"])
    }

    fn data(&self) -> Value {
        let message = Map::from_iter([("message".to_owned(), self.error["message"].clone())]);
        let names = ["canonical", "code", "httpStatus", "retryable", "hint"];
        self.particulars(message, &names)
    }

    /// Compares an answer to `tools/call`.
    pub(crate) fn is_mcp(&self, answer: &Value) -> anyhow::Result<()> {
        self.is_mcp_of(answer, self.row.jsonrpc)
    }

    fn is_mcp_of(&self, answer: &Value, code: i32) -> anyhow::Result<()> {
        if self.row.surface == Surface::Tool {
            let result = &answer["result"];
            assert_eq!(result["isError"], true, "{answer}");
            let text = result["content"][0]["text"].as_str().context("text")?;
            assert_eq!(serde_json::from_str::<Value>(text)?, self.payload());
            return Ok(());
        }
        let error = &answer["error"];
        assert_eq!(error["message"], self.error["message"], "{answer}");
        assert_eq!(error["code"], code, "{answer}");
        let fixed = matches!(
            self.row.kind,
            ErrorKind::UnsupportedVersion | ErrorKind::MissingClientCapability
        );
        match self.error["details"].get("details") {
            // MCP says what these hold.
            Some(details) if fixed => assert_eq!(error["data"], *details),
            _ => assert_eq!(error["data"], self.data()),
        }
        Ok(())
    }

    /// Compares an answer of the direct dialect.
    fn is_direct(&self, answer: &Value) {
        if is_of_the_message(self.row.kind) {
            assert_eq!(answer["error"]["code"], self.row.jsonrpc, "{answer}");
            assert_eq!(answer["error"]["data"], self.data());
            return;
        }
        let result = &answer["result"];
        // A tool's own JSON is its whole answer there; rejected arguments have words of their own.
        if let Some(details) = self.error["details"].get("details") {
            assert_eq!(result, details);
            return;
        }
        assert_eq!(result["ok"], false, "{answer}");
        assert_eq!(result["reason"], self.row.reason, "{answer}");
        match self.row.kind {
            ErrorKind::FrameTooLarge => assert_eq!(result["errors"][0]["msg"], self.row.message),
            ErrorKind::UnknownTool => assert_eq!(result["detail"], self.row.message),
            _ => {
                let Value::Object(payload) = self.payload() else {
                    return;
                };
                for (name, value) in &payload {
                    assert_eq!(result[name], *value, "{name} in {answer}");
                }
            }
        }
    }

    /// Compares what a command printed.
    pub(crate) fn is_printed(&self, mut command: Command) -> anyhow::Result<()> {
        let output = command.output().context("running mainstay call")?;
        ensure!(!output.status.success(), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let payload: Value = serde_json::from_slice(&output.stdout).context(stderr)?;
        assert_eq!(payload, self.payload());
        Ok(())
    }
}

/// `mainstay call TOOL ARGUMENTS` with more words.
pub(crate) fn call(
    tool: &str,
    arguments: &Value,
    more: impl IntoIterator<Item = OsString>,
) -> anyhow::Result<Command> {
    let mut command = Command::new(binary("mainstay")?);
    command.arg("call").arg(tool).arg(arguments.to_string());
    command.args(more);
    Ok(command)
}

impl Ways {
    /// Starts a host for each transport.
    pub(crate) fn start(packs: impl Fn(Serve) -> anyhow::Result<Serve>) -> anyhow::Result<Self> {
        let http = Host::start(packs(Serve::stdio()?)?)?;
        let address: SocketAddr = http.address.parse()?;
        let (mut stdio, socket) = (
            packs(Serve::stdio()?)?.spawn()?,
            packs(Serve::socket()?)?.spawn()?,
        );
        let clients = [stdio.take_client()?, socket.connect()?];
        for client in &clients {
            client.open(&json!({}))?;
        }
        Ok(Self {
            session: Session::open(address)?,
            http,
            stdio,
            socket,
            clients,
            next_id: 0,
        })
    }

    /// Calls a tool once on each host, whatever comes of it.
    pub(crate) fn everywhere(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<()> {
        self.http.call(tool, arguments)?;
        for index in 0..LINES.len() {
            self.invoke(index, tool, arguments)?;
        }
        Ok(())
    }

    /// Compares everything that a program can say; gives what they all said.
    pub(crate) fn programs(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<Said> {
        let answer = self.http.call(tool, arguments)?;
        let said = Said::of(&answer.json()?)?;
        assert_eq!(answer.status, said.row.http);
        let retry = answer.header("retry-after").is_some();
        let wants_retry = matches!(answer.status, 429 | 503) && said.row.retryable;
        assert_eq!(retry, wants_retry, "{answer:?}");

        let response = self.http.post("/v1/invoke", &envelope(tool, arguments))?;
        assert_eq!(response.status, answer.status, "{response:?}");
        let response = response.json()?;
        assert_eq!(response["status"]["http"], said.row.http);
        assert_eq!(response["status"]["code"], said.row.invocation_status());
        let first = &response["errors"][0];
        assert_eq!(first["message"], said.error["message"]);
        assert_eq!(first["detail"], said.error["details"]);
        assert_eq!(first["code"], said.row.code.as_str());

        said.is_mcp(&self.legacy(tool, arguments)?)
            .context("a session over HTTP")?;
        let code = match said.row.kind {
            // The modern revision has retired the code of the legacy one.
            ErrorKind::ResourceNotFound => ErrorKind::InvalidParams.row().jsonrpc,
            _ => said.row.jsonrpc,
        };
        said.is_mcp_of(&self.modern(tool, arguments)?, code)
            .context("one request over HTTP")?;
        self.lines(&said, tool, arguments)?;
        Ok(said)
    }

    /// Compares everything that a program can say on connections that it had before its host began to stop.
    pub(crate) fn programs_that_stayed(
        &mut self,
        kept: &mut Connection,
        tool: &str,
        arguments: &Value,
    ) -> anyhow::Result<Said> {
        let address: SocketAddr = self.http.address.parse()?;
        let body = json!({ "arguments": arguments }).to_string();
        let request = Request::to(address, "POST", &format!("/v1/tool/{tool}"));
        let request = request.header("Content-Type", "application/json");
        let answer = kept.ask(&request.body(body))?;
        let said = Said::of(&answer.json()?)?;
        assert_eq!(answer.status(), said.row.http);
        let params = json!({ "name": tool, "arguments": arguments });
        let line = request_line("2", "tools/call", &params);
        said.is_mcp(&message(&kept.ask(&self.session.post(&line))?)?)
            .context("a session over HTTP")?;
        self.lines(&said, tool, arguments)?;
        Ok(said)
    }

    /// Compares what the hosts that speak in lines say.
    fn lines(&mut self, said: &Said, tool: &str, arguments: &Value) -> anyhow::Result<()> {
        for (index, name) in LINES.iter().enumerate() {
            let invoked = self.invoke(index, tool, arguments)?;
            if is_of_the_message(said.row.kind) {
                assert_eq!(invoked["error"]["data"], said.data(), "{name}");
            } else {
                assert_eq!(invoked["result"]["error"], said.error, "{name}");
            }
            let params = json!({ "name": tool, "arguments": arguments });
            let mcp = self.line(index, "tools/call", &params)?;
            said.is_mcp(&mcp).with_context(|| format!("MCP, {name}"))?;
            said.is_direct(&self.line(index, tool, arguments)?);
        }
        Ok(())
    }

    /// Compares what the command line prints when it asks one of the hosts.
    pub(crate) fn commands(
        &self,
        said: &Said,
        tool: &str,
        arguments: &Value,
    ) -> anyhow::Result<()> {
        let url = ["--url".into(), self.http.url().into()];
        said.is_printed(call(tool, arguments, url)?)
            .context("--url")?;
        let path = self.socket.folder().join("sock");
        let socket = ["--socket".into(), path.into_os_string()];
        said.is_printed(call(tool, arguments, socket)?)
            .context("--socket")
    }

    /// Runs a tool so many times on each host, and waits until all of these calls run or wait. Those
    /// over HTTP end with the connections that this gives.
    pub(crate) fn occupy(
        &mut self,
        tool: &str,
        arguments: &Value,
        times: u64,
    ) -> anyhow::Result<Vec<TcpStream>> {
        let params = json!({ "name": tool, "arguments": arguments });
        for index in 0..LINES.len() {
            for number in 0..times {
                let id = format!("\"held {number}\"");
                self.clients[index].send(&request_line(&id, "tools/call", &params))?;
            }
            while busy(&self.invoke(index, "system_health", &json!({}))?["result"]["data"]) < times
            {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.http.occupy(tool, arguments, times)
    }

    /// Tells all hosts to stop, and waits until they take no more calls and no more clients. Gives a connection
    /// over HTTP from before.
    pub(crate) fn begin_to_stop(&mut self) -> anyhow::Result<Connection> {
        let address: SocketAddr = self.http.address.parse()?;
        let mut kept = Connection::open(address)?;
        kept.ask(&Request::to(address, "GET", "/v1/tools"))?;
        for host in [self.http.running(), &self.stdio, &self.socket] {
            host.terminate()?;
        }
        for index in 0..LINES.len() {
            while self.invoke(index, "system_health", &json!({}))?["result"]["ok"] == true {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let socket = self.socket.folder().join("sock");
        while TcpStream::connect(address).is_ok() || socket.exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(kept)
    }

    pub(crate) fn stop(self) -> anyhow::Result<()> {
        drop(self.clients);
        self.http.stop()?;
        self.stdio.stop()?;
        self.socket.stop()
    }

    fn legacy(&self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        let line = request_line("2", "tools/call", &params);
        message(&self.session.ask(&self.session.post(&line))?)
    }

    fn modern(&self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        let address: SocketAddr = self.http.address.parse()?;
        let params = json!({ "name": tool, "arguments": arguments });
        let request = modern(address, "2", "tools/call", &params);
        message(&Connection::open(address)?.ask(&request)?)
    }

    fn invoke(&mut self, index: usize, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        let params = json!({ "toolId": format!("mcp.tool:{tool}"), "arguments": arguments });
        self.line(index, "mcp.tool.invoke", &params)
    }

    /// Asks on one of the hosts that speak in lines.
    fn line(&mut self, index: usize, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.next_id += 1;
        let client = &self.clients[index];
        let answer = client.request(&self.next_id.to_string(), method, params)?;
        Ok(answer.value())
    }
}

/// The only message of an answer, whatever its status.
fn message(answer: &Response) -> anyhow::Result<Value> {
    match answer.messages()?.into_iter().next_back() {
        Some(message) => Ok(message),
        None => bail!("no message: {} {}", answer.status(), answer.text()),
    }
}
