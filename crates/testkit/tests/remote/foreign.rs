//! Servers of others over HTTP, behind `mainstay wrap --url`.

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mainstay_testkit::process::{kill, tool};
use serde_json::json;

use crate::wrap;
use crate::wrapping::{stop, text};

/// Starting an interpreter on a busy machine takes a while.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server of others. Dropping it ends it.
struct Foreign {
    child: Child,
    port: u16,
}

impl Foreign {
    fn start(words: &[OsString], port: u16) -> anyhow::Result<Self> {
        let (program, arguments) = words.split_first().expect("a command");
        let child = Command::new(program)
            .args(arguments)
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self { child, port };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            anyhow::ensure!(Instant::now() < until, "the server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The program of a script, and the script, if both are installed.
fn script(interpreter: &Path, path: &str) -> anyhow::Result<Option<Vec<OsString>>> {
    let found = tool(path)?;
    Ok(found.map(|script| vec![interpreter.into(), script.into()]))
}

/// Calls a tool, ends the server, starts it again, and calls the tool again: the session goes on.
fn drive(words: &[OsString], path: &str, name: &str, expected: &str) -> anyhow::Result<()> {
    let port = free_port()?;
    let server = Foreign::start(words, port)?;
    let running = wrap(&["--url", &server.url(path)])?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let tools = client.request("1", "tools/list", &json!({}))?;
    let shown = format!("{tools:?}");
    assert!(shown.contains(&format!("\"{name}\"")), "{shown}");
    let arguments = json!({"message": "hello"});
    let answer = client.call("2", name, &arguments)?;
    assert!(text(&answer).contains(expected), "{answer:?}");
    assert!(kill(server.child.id()));
    drop(server);
    let server = Foreign::start(words, port)?;
    let answer = client.call("3", name, &arguments)?;
    assert!(text(&answer).contains(expected), "{answer:?}");
    stop(running)?;
    drop(server);
    Ok(())
}

const EVERYTHING: &str =
    "node-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

#[test]
fn the_reference_server_goes_on_after_its_restart_in_both_transports() -> anyhow::Result<()> {
    let Some(node) = mainstay_testkit::process::program("node", Path::new("/")) else {
        println!("skipped: node is not installed");
        return Ok(());
    };
    let Some(words) = script(&node, EVERYTHING)? else {
        println!("skipped: server-everything is not installed");
        return Ok(());
    };
    for (transport, path) in [("streamableHttp", "/mcp"), ("sse", "/sse")] {
        let mut words = words.clone();
        words.push(transport.into());
        drive(&words, path, "echo", "hello")?;
    }
    Ok(())
}

/// A server on PyPI's `mcp`.
const PYTHON: &str = "
import os
from mcp.server import MCPServer
server = MCPServer('py')

@server.tool()
def echo(message: str) -> str:
    return 'py ' + message

server.run(transport='streamable-http', port=int(os.environ['PORT']))
";

#[test]
fn a_server_on_the_python_sdk_goes_on_after_its_restart() -> anyhow::Result<()> {
    let Some(python) = tool("python-servers/bin/python")? else {
        println!("skipped: the Python SDK is not installed");
        return Ok(());
    };
    let words = [python.into(), OsString::from("-c"), PYTHON.into()];
    drive(&words, "/mcp", "echo", "py hello")
}
