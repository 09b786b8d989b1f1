//! `--preset`: a server that `npx`, `uvx` or a virtual environment starts works in its sandbox, and gets nothing else.
//!
//! The packages come from registries of the test on loopback: those of others cannot be reached everywhere.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Launch, Running, TempDir, binary, is_root, program, tool};
use serde_json::json;

use super::{Outside, PYTHON, skip};

/// A server of JavaScript whose tool tries ways out.
const SERVER: &str = r#"#!/usr/bin/env node
const fs = require("fs"), net = require("net");
const ways = {
  read: (at) => fs.readFileSync(at, "utf8"),
  write: (at) => fs.writeFileSync(at, "escaped"),
  environment: (at) => { if (!(at in process.env)) throw new Error("not set"); return process.env[at]; },
  temporary: () => { const at = process.env.TMPDIR + "/own"; fs.writeFileSync(at, "own"); return fs.readFileSync(at, "utf8"); },
  tcp: (at) => new Promise((good, bad) => {
    const [host, port] = at.split(":");
    const socket = net.connect(Number(port), host, () => { socket.end("hello\n"); good("connected"); });
    socket.on("error", bad);
  }),
};
require("readline").createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  let result = {};
  if (method === "initialize") result = { protocolVersion: params.protocolVersion, capabilities: { tools: {} },
    serverInfo: { name: "escape", version: "1" } };
  if (method === "tools/list") result = { tools: [{ name: "attempt", inputSchema: { type: "object" } }] };
  if (method === "tools/call") {
    let text;
    try { text = "through: " + await ways[params.arguments.way](params.arguments.at); }
    catch (error) { text = "blocked: " + error.message; }
    result = { content: [{ type: "text", text }] };
  }
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
});
"#;

/// Makes a wheel of the server in Python: its code, and the names of its parts.
const WHEEL: &str = r#"
import sys, zipfile
code, path = sys.argv[1:]
about = "escape_server-1.0.dist-info"
with zipfile.ZipFile(path, "w") as wheel:
    wheel.writestr("escape_server.py", "def main():\n    exec(CODE, {'__name__': '__main__'})\nCODE = " + repr(open(code).read()))
    wheel.writestr(about + "/METADATA", "Metadata-Version: 2.1\nName: escape-server\nVersion: 1.0\n")
    wheel.writestr(about + "/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(about + "/entry_points.txt", "[console_scripts]\nescape-server = escape_server:main\n")
    wheel.writestr(about + "/RECORD", "")
"#;

/// A file of a registry: its path, its type and its content.
type Shelf = Vec<(String, &'static str, Vec<u8>)>;

/// Serves files over HTTP until the test ends.
fn registry(shelf: impl FnOnce(&str) -> anyhow::Result<Shelf>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let place = listener.local_addr()?.to_string();
    let shelf = Arc::new(shelf(&place)?);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let shelf = Arc::clone(&shelf);
            thread::spawn(move || -> std::io::Result<()> {
                let mut lines = BufReader::new(stream.try_clone()?).lines();
                let first = lines.next().transpose()?.unwrap_or_default();
                let path = first.split(' ').nth(1).unwrap_or_default();
                let found = shelf.iter().find(|(known, ..)| known == path);
                let (status, kind, body) = match found {
                    Some((_, kind, body)) => ("200 OK", *kind, body.as_slice()),
                    None => ("404 Not Found", "text/plain", &b""[..]),
                };
                while lines
                    .next()
                    .transpose()?
                    .is_some_and(|line| !line.is_empty())
                {}
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                )?;
                stream.write_all(body)
            });
        }
    });
    Ok(place)
}

/// A host with a preset, as the test's user or as an ordinary one, with a session.
fn start(words: &[&str], variables: &[(&str, &str)], ordinary: bool) -> anyhow::Result<Running> {
    let mut launch = Launch::new([binary("mainstay")?])?.words(["wrap", "--sandbox"]);
    launch = launch.words(words).env("HOST_SECRET", "do-not-read");
    let home = launch.folder().join("home");
    std::fs::create_dir(&home)?;
    std::fs::write(home.join("notes.txt"), "notes")?;
    launch = launch.env("HOME", home.clone());
    for (name, value) in variables {
        launch = launch.env(name, *value);
    }
    if ordinary {
        mainstay_testkit::process::give_away(&home)?;
        launch = launch.as_nobody()?;
    }
    let running = launch.spawn()?;
    let opened = running.client()?.open(&json!({}))?;
    ensure!(
        opened.at("/result/serverInfo/name") == "escape",
        "{opened:?}: {:#?}",
        running.stderr()
    );
    Ok(running)
}

fn attempt(running: &Running, way: &str, at: &str) -> anyhow::Result<String> {
    let answer = running
        .client()?
        .call("7", "attempt", &json!({"way": way, "at": at}))?;
    let text = answer.at("/result/content/0/text");
    let text = text.as_str().with_context(|| format!("{answer:?}"))?;
    Ok(text.to_owned())
}

/// The server has its temporary directory, and neither the files, the variables nor the network of its user.
fn is_boxed(running: &Running, outside: &Outside) -> anyhow::Result<()> {
    let home = running.folder().join("home");
    let said = attempt(running, "temporary", "")?;
    ensure!(said.starts_with("through: "), "{said}");
    let (notes, own) = (home.join("notes.txt"), home.join("own"));
    for (way, at) in [
        ("read", notes.display().to_string()),
        ("write", own.display().to_string()),
        ("read", outside.path(".ssh/id_rsa")),
        ("environment", "HOST_SECRET".to_owned()),
        ("tcp", outside.tcp.clone()),
    ] {
        let said = attempt(running, way, &at)?;
        ensure!(said.starts_with("blocked: "), "{way} {at}: {said}");
    }
    Ok(())
}

/// As the tests' user, and as an ordinary one if that is another.
fn users() -> Vec<bool> {
    if is_root() {
        vec![false, true]
    } else {
        vec![false]
    }
}

#[test]
fn a_server_of_npx_works_under_its_preset() -> anyhow::Result<()> {
    let Some(npx) = program("npx", Path::new("/nonexistent")) else {
        return skip("there is no npx");
    };
    let folder = TempDir::new()?;
    let package = folder.join("package");
    std::fs::create_dir(&package)?;
    let about =
        json!({"name": "escape-server", "version": "1.0.0", "bin": {"escape-server": "server.js"}});
    std::fs::write(package.join("package.json"), about.to_string())?;
    std::fs::write(package.join("server.js"), SERVER)?;
    let packed = Command::new("tar")
        .args(["-czf", "package.tgz", "package"])
        .current_dir(folder.path())
        .status()?;
    ensure!(packed.success());
    let tarball = std::fs::read(folder.join("package.tgz"))?;
    let place = registry(|place| {
        let mut version = about.clone();
        version["dist"] = json!({"tarball": format!("http://{place}/escape-server.tgz")});
        let known = json!({"name": "escape-server", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}});
        Ok(vec![
            (
                "/escape-server".to_owned(),
                "application/json",
                known.to_string().into(),
            ),
            (
                "/escape-server.tgz".to_owned(),
                "application/octet-stream",
                tarball,
            ),
        ])
    })?;
    let url = format!("http://{place}/");
    let variables = [("npm_config_registry", url.as_str())];
    let outside = Outside::new()?;
    let npx = npx.display().to_string();
    for ordinary in users() {
        let words = ["--preset", "npx", "--", &npx, "-y", "escape-server"];
        let running = start(&words, &variables, ordinary)?;
        is_boxed(&running, &outside)?;
        // It is in a cache of its own, not in that of its user.
        ensure!(!running.folder().join("home/.npm/_npx").exists());
        ensure!(running.folder().join("cache/sandbox/npx").exists());
        running.stop()?;
    }
    Ok(())
}

#[test]
fn a_server_of_uvx_works_under_its_preset() -> anyhow::Result<()> {
    let Some(uvx) = tool("python-servers/bin/uvx")? else {
        return skip("uvx is not installed");
    };
    if !Path::new(PYTHON).exists() {
        return skip("there is no /usr/bin/python3");
    }
    let folder = TempDir::new()?;
    let code = super::script(folder.path())?;
    let wheel = "escape_server-1.0-py3-none-any.whl";
    let made = Command::new(PYTHON)
        .args(["-c", WHEEL])
        .arg(&code)
        .arg(folder.join(wheel))
        .status()?;
    ensure!(made.success());
    let bytes = std::fs::read(folder.join(wheel))?;
    let place = registry(|place| {
        let page =
            format!("<html><body><a href=\"http://{place}/{wheel}\">{wheel}</a></body></html>");
        Ok(vec![
            (
                "/simple/escape-server/".to_owned(),
                "text/html",
                page.into(),
            ),
            (format!("/{wheel}"), "application/octet-stream", bytes),
        ])
    })?;
    let index = format!("http://{place}/simple");
    let variables = [("UV_DEFAULT_INDEX", index.as_str()), ("UV_PYTHON", PYTHON)];
    let outside = Outside::new()?;
    let uvx = uvx.display().to_string();
    for ordinary in users() {
        let words = [
            "--preset",
            "uvx",
            "--env",
            "UV_PYTHON",
            "--",
            &uvx,
            "escape-server",
        ];
        let running = start(&words, &variables, ordinary)?;
        is_boxed(&running, &outside)?;
        ensure!(!running.folder().join("home/.cache/uv").exists());
        ensure!(running.folder().join("cache/sandbox/uvx").exists());
        running.stop()?;
    }
    Ok(())
}

#[test]
fn a_server_of_a_virtual_environment_works_under_its_preset() -> anyhow::Result<()> {
    if !Path::new(PYTHON).exists() {
        return skip("there is no /usr/bin/python3");
    }
    let folder = TempDir::new()?;
    let everyone: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everyone)?;
    let environment = folder.join("project/.venv");
    let made = Command::new(PYTHON)
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment)
        .output()?;
    if !made.status.success() {
        return skip("python3 has no module venv");
    }
    // One package is installed, another one is developed elsewhere.
    let source = folder.join("source/escape-server");
    std::fs::create_dir_all(&source)?;
    super::script(&source)?;
    let mut versions = std::fs::read_dir(environment.join("lib"))?;
    let version = versions.next().context("a version of Python")??;
    let packages = version.path().join("site-packages");
    std::fs::write(packages.join("start.py"), "import escape\n")?;
    std::fs::write(
        packages.join("escape.pth"),
        format!("{}\n", source.display()),
    )?;
    let outside = Outside::new()?;
    let python = environment.join("bin/python").display().to_string();
    for ordinary in users() {
        let words = ["--preset", "venv", "--", &python, "-m", "start"];
        let running = start(&words, &[], ordinary)?;
        is_boxed(&running, &outside)?;
        let own = packages.join("own.py").display().to_string();
        let said = attempt(&running, "write", &own)?;
        ensure!(
            said.starts_with("blocked: "),
            "it would run without a sandbox: {said}"
        );
        running.stop()?;
    }
    Ok(())
}
