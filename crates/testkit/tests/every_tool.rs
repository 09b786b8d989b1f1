//! What holds for every tool there is: the host's own, the built-in packs' and the example's.
//!
//! A tool is known here by its sample call. One without a sample fails the tests, so that a new
//! tool is not forgotten.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_contract::limits::Limits;
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Running, Serve, workspace};
use serde_json::{Value, json};

/// A call that succeeds.
fn sample(tool: &str) -> anyhow::Result<Value> {
    Ok(match tool {
        "system_health" | "system_telemetry" | "list_schemas" | "list_examples" => json!({}),
        "get_schema" => json!({"name": "lamp"}),
        "get_example" => json!({"path": "lamp.json"}),
        "validate_asset" => json!({"schema": "lamp", "asset": lamp()}),
        "validate_many" => json!({"schema": "lamp", "assets": [lamp(), {}]}),
        "diff_assets" => json!({"base": {"a": 1}, "new": lamp()}),
        "populate_backend" => json!({"asset": lamp()}),
        "append" => json!({"text": "x"}),
        "put" => json!({"key": "k", "value": "v"}),
        "transfer" => json!({"id": "t-1", "from": "a", "to": "b", "amount": 1}),
        "get" => json!({}),
        "wait" => json!({"ms": 0}),
        "search" => json!({"query": "lamp", "kind": "literal"}),
        "show_file" => json!({"path": "lamp.json"}),
        "index_build" | "index_status" | "check_status" | "workspace_status" => json!({}),
        _ => anyhow::bail!("the tool {tool} has no sample call: add one to tests/every_tool.rs"),
    })
}

/// An asset that names its schema.
fn lamp() -> Value {
    json!({"$schemaRef": "lamp.schema.json", "name": "desk", "colour": "#a0b0c0"})
}

/// A backend that takes every asset.
fn backend() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A connection that fails shows in the answer of the call.
            let _ = take_asset(&stream);
        }
    });
    Ok(format!("http://{address}"))
}

fn take_asset(stream: &TcpStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut request = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        request.read_line(&mut line)?;
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    std::io::copy(&mut request.take(length), &mut std::io::sink())?;
    let body = r#"{"id": "7"}"#;
    let head = format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n", body.len());
    let mut stream = stream;
    write!(
        stream,
        "{head}Content-Type: application/json\r\nConnection: close\r\n\r\n{body}"
    )?;
    Ok(())
}

/// Every pack of this workspace behind one host.
fn host(limits: &str) -> anyhow::Result<Running> {
    let serve = Serve::stdio()?;
    let examples = serve.folder().join("examples");
    fs::create_dir(&examples)?;
    fs::write(examples.join("lamp.json"), lamp().to_string())?;
    let config = serve.folder().join("config.toml");
    let settings = format!(
        "schemas_dir = {:?}\nexamples_dir = {examples:?}\nbackend_url = {:?}",
        workspace()?.join("examples/assets/jsonschema"),
        backend()?
    );
    fs::write(
        &config,
        format!("[limits]\n{limits}\n[packs.asset.settings]\n{settings}\n"),
    )?;
    let serve = serve.pack("asset").pack("code").ledger()?;
    let serve = serve.argument("--root").argument(examples);
    serve.argument("--config").argument(config).spawn()
}

fn tools(client: &Client) -> anyhow::Result<Vec<Value>> {
    let listed = client.request("\"list\"", "tools/list", &json!({}))?;
    let tools = listed.at("/result/tools");
    let tools = tools.as_array().context("a list of tools")?;
    ensure!(tools.len() > 14, "the packs are missing: {listed:?}");
    Ok(tools.clone())
}

fn name(tool: &Value) -> anyhow::Result<&str> {
    tool.get("name").and_then(Value::as_str).context("a name")
}

/// Calls a tool with its sample and one more argument.
fn call(client: &Client, tool: &str, more: Option<(&str, Value)>) -> anyhow::Result<Message> {
    let mut arguments = sample(tool)?;
    if let Some((argument, value)) = more {
        arguments
            .as_object_mut()
            .context("arguments are an object")?
            .insert(argument.to_owned(), value);
    }
    client.call("\"call\"", tool, &arguments)
}

fn text(answer: &Message) -> anyhow::Result<String> {
    ensure!(answer.at("/result/isError") != true, "{answer:?}");
    let text = answer.at("/result/content/0/text");
    Ok(text.as_str().context("a text")?.to_owned())
}

/// Where and how a call was refused, as `path: message`.
fn refusals(answer: &Message) -> anyhow::Result<Vec<String>> {
    ensure!(answer.at("/result/isError") == true, "{answer:?}");
    let payload = answer.at("/result/content/0/text");
    let payload: Value = serde_json::from_str(payload.as_str().context("a text")?)?;
    ensure!(
        payload.get("code") == Some(&json!("INVALID_REQUEST")),
        "{payload}"
    );
    let errors = payload.pointer("/details/errors");
    let errors = errors.and_then(Value::as_array).context("errors")?;
    let member =
        |error: &Value, name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
    errors
        .iter()
        .map(|error| {
            let path = member(error, "path").context("a path")?;
            let message = member(error, "msg").context("a message")?;
            Ok(format!("{path}: {message}"))
        })
        .collect()
}

#[test]
fn an_unknown_argument_is_refused_by_every_tool_and_named() -> anyhow::Result<()> {
    let host = host("")?;
    let client = host.client()?;
    for tool in tools(client)? {
        let tool = name(&tool)?;
        let answer = call(client, tool, Some(("no_such_argument", json!(1))))?;
        let refusals = refusals(&answer).with_context(|| tool.to_owned())?;
        // The path is the argument's, or that of the object that must not have it.
        let named = |refusal: &&String| {
            refusal.starts_with("/no_such_argument: ")
                || (refusal.starts_with(": ") && refusal.contains("no_such_argument"))
        };
        assert_eq!(
            refusals.iter().filter(named).count(),
            1,
            "{tool}: {refusals:?}"
        );
        assert_eq!(refusals.len(), 1, "{tool}: {refusals:?}");
    }
    host.stop()?;
    Ok(())
}

#[test]
fn render_is_porcelain_or_json_for_every_tool_and_chooses_the_text_alone() -> anyhow::Result<()> {
    let host = host("")?;
    let client = host.client()?;
    for tool in tools(client)? {
        let values = tool.pointer("/inputSchema/properties/render/enum");
        assert_eq!(values, Some(&json!(["porcelain", "json"])), "{tool}");
        let tool = name(&tool)?;
        let porcelain = call(client, tool, Some(("render", json!("porcelain"))))?;
        let json = call(client, tool, Some(("render", json!("json"))))?;
        let (lines, document) = (text(&porcelain)?, text(&json)?);
        let parsed: Value = serde_json::from_str(&document)
            .with_context(|| format!("{tool} with render json gives {document}"))?;
        assert_eq!(parsed, json.at("/result/structuredContent"), "{tool}");
        assert_ne!(parsed.get("ok"), Some(&json!(false)), "{tool}: {parsed}");
        assert!(
            porcelain.at("/result/structuredContent").is_object(),
            "{tool}"
        );
        assert!(
            serde_json::from_str::<Value>(&lines).is_err(),
            "{tool}: {lines}"
        );
        for wrong in [
            json!("xml"),
            json!(""),
            json!("JSON"),
            json!(1),
            json!(null),
        ] {
            let answer = call(client, tool, Some(("render", wrong.clone())))?;
            let refusals = refusals(&answer).with_context(|| format!("{tool} with {wrong}"))?;
            assert!(!refusals.is_empty(), "{tool} with {wrong}");
            assert!(
                refusals
                    .iter()
                    .all(|refusal| refusal.starts_with("/render: ")),
                "{tool}: {refusals:?}"
            );
        }
    }
    host.stop()?;
    Ok(())
}

/// The host's own tools tell of time and counts, which go on; everything around the figures must
/// stand still.
fn without_figures(tool: &str, text: &str) -> String {
    if !tool.starts_with("system_") {
        return text.to_owned();
    }
    let masked: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_digit() || c == '.' {
                '0'
            } else {
                c
            }
        })
        .collect();
    let lines = masked.lines().map(|line| {
        let words = line.split_whitespace().map(|word| {
            let is_figure = word.chars().all(|c| c == '0');
            if is_figure { "0" } else { word }
        });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The tools of the code pack.
const CODE: [&str; 6] = [
    "check_status",
    "index_build",
    "index_status",
    "search",
    "show_file",
    "workspace_status",
];

#[test]
fn porcelain_is_stable_bounded_and_begins_with_its_summary_for_every_tool() -> anyhow::Result<()> {
    let usual = Limits::default();
    let usual = (usual.porcelain_lines, usual.porcelain_bytes);
    let small = Limits::KEYS
        .iter()
        .filter(|key| key.key.starts_with("porcelain"));
    let small: Vec<usize> = small
        .map(|key| key.min)
        .map(usize::try_from)
        .collect::<Result<_, _>>()?;
    let small = (
        *small.first().context("lines")?,
        *small.last().context("bytes")?,
    );
    for (lines, bytes) in [usual, small] {
        let host = host(&format!(
            "porcelain_lines = {lines}\nporcelain_bytes = {bytes}"
        ))?;
        let client = host.client()?;
        for tool in tools(client)? {
            let tool = name(&tool)?;
            // The first call may be the first of its kind, which telemetry then tells.
            text(&call(client, tool, None)?)?;
            let mut first = text(&call(client, tool, None)?)?;
            let mut second = text(&call(client, tool, None)?)?;
            // An index goes on behind the calls; once it is complete it stands still.
            let until = Instant::now() + Duration::from_secs(120);
            while CODE.contains(&tool) && first != second && Instant::now() < until {
                thread::sleep(Duration::from_millis(100));
                first = text(&call(client, tool, None)?)?;
                second = text(&call(client, tool, None)?)?;
            }
            assert_eq!(
                without_figures(tool, &first),
                without_figures(tool, &second),
                "{tool}"
            );
            assert!(first.len() <= bytes, "{tool}: {} bytes", first.len());
            assert!(first.lines().count() <= lines, "{tool}: {first}");
            let summary = first.lines().next().unwrap_or_default();
            let is_other = ["- ", " ", "note: ", "hint: ", "warning: "]
                .iter()
                .any(|other| summary.starts_with(other));
            assert!(!summary.is_empty() && !is_other, "{tool}: {first}");
        }
        host.stop()?;
    }
    Ok(())
}

#[test]
fn the_size_of_texts_is_decided_once_and_what_is_missing_is_counted() -> anyhow::Result<()> {
    const EXAMPLES: usize = 503;
    for lines in [10, 1000] {
        let serve = Serve::stdio()?;
        let examples = serve.folder().join("examples");
        fs::create_dir(&examples)?;
        for number in 0..EXAMPLES {
            fs::write(examples.join(format!("lamp{number}.json")), "{}")?;
        }
        let config = serve.folder().join("config.toml");
        let limits = format!("[limits]\nporcelain_lines = {lines}\nporcelain_bytes = 50000");
        let settings = format!("[packs.asset.settings]\nexamples_dir = {examples:?}");
        fs::write(&config, format!("{limits}\n{settings}\n"))?;
        let serve = serve.pack("asset").misbehaving("honest")?;
        let host = serve.argument("--config").argument(config).spawn()?;
        let client = host.client()?;
        let listed = text(&client.call("1", "list_examples", &json!({}))?)?;
        assert!(listed.lines().count() <= lines, "{listed}");
        let items = listed.lines().filter(|line| line.starts_with("- ")).count();
        let left = listed.lines().find_map(|line| {
            let note = line.strip_prefix("note: ")?;
            assert!(note.ends_with("render \"json\" shows all of it"), "{note}");
            note.split(' ').next()?.parse::<usize>().ok()
        });
        assert_eq!(items + left.unwrap_or(0), EXAMPLES, "{lines}: {listed}");
        assert_eq!(left.is_some(), lines < EXAMPLES);
        let whole = client.call("2", "list_examples", &json!({"render": "json"}))?;
        let whole: Value = serde_json::from_str(&text(&whole)?)?;
        assert_eq!(whole["examples"].as_array().map(Vec::len), Some(EXAMPLES));
        // A tool without a text of its own.
        let padding = json!({"padding": "x".repeat(93_000)});
        let echoed = text(&client.call("3", "again", &padding)?)?;
        assert!(echoed.len() <= 50_000, "{}", echoed.len());
        let note = echoed.lines().last().unwrap_or_default();
        assert!(
            note.ends_with("not shown; render \"json\" shows all of it"),
            "{note}"
        );
        host.stop()?;
    }
    Ok(())
}
