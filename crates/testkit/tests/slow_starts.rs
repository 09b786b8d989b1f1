//! Servers that start slowly: clients get the handshake and the lists of the last start at once.
//!
//! `MAINSTAY_SLOW_START_SECONDS` sets how long the second start of a server takes at least.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that is told by its environment how long to run"
)]

mod wrapping;

use std::time::{Duration, Instant};

use anyhow::ensure;
use mainstay_testkit::peer::{Client, Message, request_line};
use mainstay_testkit::process::{Launch, MARKER, Running, TempDir, binary};
use serde_json::{Value, json};

use self::wrapping::{call, echo, stop, text};

/// A server that reads nothing while the file `gate` is there, behind `mainstay wrap` in this folder.
fn gated(folder: &TempDir, wrap: &str, options: &str) -> anyhow::Result<Running> {
    let script = "while [ -e gate ]; do sleep 0.1; done; exec \"$0\" \"$@\"";
    let launch = Launch::new(["env", "-u", MARKER, "-C"])?
        .words([folder.path().as_os_str(), binary("mainstay")?.as_os_str()])
        .words(["wrap"])
        .words(wrap.split_whitespace())
        .words(["--", "sh", "-c", script])
        .words([binary("mcp-fixture")?])
        .words(options.split_whitespace());
    launch
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"))
        .spawn()
}

#[test]
fn handshake_and_list_come_at_once_the_second_time() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let gate = folder.join("gate");
    let running = gated(&folder, "", "")?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let first = client.request("1", "tools/list", &json!({}))?;
    stop(running)?;
    // While the gate is shut the server does not begin to read: no answer can be its own.
    std::fs::write(&gate, "")?;
    let running = gated(&folder, "", "")?;
    let client = running.client()?;
    let began = Instant::now();
    client.open(&json!({}))?;
    let second = client.request("1", "tools/list", &json!({}))?;
    assert_eq!(first.at("/result"), second.at("/result"));
    println!("handshake and list after {:?}", began.elapsed());
    client.send(&call("2", "echo", &json!({"text": "waited"})))?;
    let seconds = std::env::var("MAINSTAY_SLOW_START_SECONDS").ok();
    let seconds = seconds.map_or(Ok(0), |text| text.parse())?;
    std::thread::sleep(Duration::from_secs(seconds).saturating_sub(began.elapsed()));
    std::fs::remove_file(&gate)?;
    let opened = Instant::now();
    assert_eq!(text(&client.answer("2")?), "waited");
    println!(
        "first call {:?} after the server may read",
        opened.elapsed()
    );
    stop(running)?;
    // A damaged file is ignored.
    for entry in std::fs::read_dir(folder.join("cache/wrapped"))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            std::fs::write(path, "{\"catalogs\":[")?;
        }
    }
    let running = gated(&folder, "", "")?;
    let client = running.client()?;
    client.open(&json!({}))?;
    running.wait_for_line("reason=catalog_not_remembered")?;
    echo(client, "1")?;
    stop(running)
}

/// A client of one era, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

impl Era {
    fn params(self, mut params: Value) -> Value {
        if self == Self::Modern
            && let Some(members) = params.as_object_mut()
        {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            members.insert("_meta".to_owned(), meta);
        }
        params
    }

    /// The result of the handshake.
    fn greet(self, client: &Client) -> anyhow::Result<Message> {
        match self {
            Self::Legacy => client.open(&json!({})),
            Self::Modern => client.request("\"d\"", "server/discover", &self.params(json!({}))),
        }
    }

    fn tools(self, client: &Client, id: &str) -> anyhow::Result<Vec<String>> {
        let list = client.request(id, "tools/list", &self.params(json!({})))?;
        let tools = list.at("/result/tools");
        let names = tools.as_array().into_iter().flatten();
        let names = names.filter_map(|tool| tool.get("name")?.as_str().map(str::to_owned));
        Ok(names.collect())
    }
}

/// The first start lists one tool, the second another one.
fn hears_of_the_difference(era: Era, wrap: &str, options: &str) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (gate, tools) = (folder.join("gate"), folder.join("tools.json"));
    let offer = |name: &str| {
        let tool = json!([{"name": name, "inputSchema": {"type": "object"}}]);
        std::fs::write(&tools, tool.to_string())
    };
    offer("echo")?;
    let options = format!("{options} --tools tools.json");
    let running = gated(&folder, wrap, &options)?;
    let client = running.client()?;
    let first = era.greet(client)?;
    ensure!(era.tools(client, "1")? == ["echo"]);
    stop(running)?;
    std::fs::write(&gate, "")?;
    offer("add")?;
    let running = gated(&folder, wrap, &options)?;
    let client = running.client()?;
    let second = era.greet(client)?;
    ensure!(
        first.at("/result") == second.at("/result"),
        "{first:?} {second:?}"
    );
    let declared = second.at("/result/capabilities/tools/listChanged");
    ensure!(declared == true, "{second:?}");
    ensure!(era.tools(client, "1")? == ["echo"], "the remembered one");
    if era == Era::Modern {
        let wanted = era.params(json!({"notifications": {"toolsListChanged": true}}));
        client.send(&request_line("\"l\"", "subscriptions/listen", &wanted))?;
    }
    std::fs::remove_file(&gate)?;
    if era == Era::Modern {
        client.notification("notifications/subscriptions/acknowledged")?;
    }
    let changed = client.notification("notifications/tools/list_changed")?;
    let of = changed.at("/params/_meta/io.modelcontextprotocol~1subscriptionId");
    ensure!(
        of == json!((era == Era::Modern).then_some("l")),
        "{changed:?}"
    );
    ensure!(era.tools(client, "2")? == ["add"], "the server's own list");
    stop(running)
}

#[test]
fn a_catalog_that_differs_is_announced_in_every_era() -> anyhow::Result<()> {
    hears_of_the_difference(Era::Legacy, "", "")?;
    hears_of_the_difference(Era::Modern, "", "--era modern")
}

#[test]
fn clients_of_the_other_era_get_handshake_and_list_at_once_too() -> anyhow::Result<()> {
    hears_of_the_difference(Era::Legacy, "--bridge", "--era modern")?;
    hears_of_the_difference(Era::Modern, "--bridge", "")
}
