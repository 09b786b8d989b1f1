//! The asset pack behind a real host: the same answers on every transport and in every dialect,
//! and the regressions that its specification names.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

use std::fs;
use std::thread;

use anyhow::{Context as _, bail, ensure};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Running, Serve, Transport, workspace};
use serde_json::{Value, json};

const TRANSPORTS: [Transport; 2] = [Transport::Stdio, Transport::Socket];
const LIMIT: usize = 1024 * 1024;

/// A dialect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Direct,
    Legacy,
    Modern,
}

const WAYS: [Way; 3] = [Way::Direct, Way::Legacy, Way::Modern];

impl Way {
    fn line(self, id: usize, tool: &str, arguments: &Value) -> String {
        let (method, params) = match self {
            Self::Direct => (tool, arguments.clone()),
            Self::Legacy => ("tools/call", json!({"name": tool, "arguments": arguments})),
            Self::Modern => (
                "tools/call",
                json!({"name": tool, "arguments": arguments, "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {}}}),
            ),
        };
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    }

    /// The tool's own JSON in an answer, and whether the answer is an error.
    fn own(self, answer: &Message) -> anyhow::Result<(Option<bool>, Value)> {
        if self == Self::Direct {
            return Ok((None, answer.at("/result")));
        }
        if answer.at("/result/isError") != true {
            let own = answer.at("/result/structuredContent");
            ensure!(own.is_object(), "no structured content: {answer:?}");
            return Ok((Some(false), own));
        }
        let text = answer.at("/result/content/0/text");
        let payload: Value = serde_json::from_str(text.as_str().context("no text")?)?;
        Ok((Some(true), payload["details"].clone()))
    }

    fn call(
        self,
        client: &Client,
        id: usize,
        tool: &str,
        arguments: &Value,
    ) -> anyhow::Result<Value> {
        client.send(&self.line(id, tool, arguments))?;
        Ok(self.own(&client.answer(&id.to_string())?)?.1)
    }
}

/// The roots of the examples folder, and the settings of a test.
fn serve(transport: Transport, settings: &str) -> anyhow::Result<Serve> {
    let assets = workspace()?.join("examples/assets");
    let serve = Serve::new(transport)?
        .pack("asset")
        .env("SYN_SCHEMAS_DIR", assets.join("jsonschema"))
        .env("SYN_EXAMPLES_DIR", assets.join("examples"));
    let file = serve.folder().join("asset.toml");
    fs::write(&file, format!("[packs.asset.settings]\n{settings}\n"))?;
    Ok(serve.argument("--config").argument(file))
}

fn start(transport: Transport) -> anyhow::Result<(Running, Client)> {
    let mut host = serve(transport, "")?.spawn()?;
    let client = host.take_client()?;
    Ok((host, client))
}

fn end(host: Running, client: Client) -> anyhow::Result<Vec<String>> {
    ensure!(client.finish()?.is_empty(), "something nobody asked for");
    drop(client);
    Ok(host.finish()?.1)
}

fn lamp(name: &str) -> Value {
    json!({"name": name, "colour": {"hue": 7, "warmth": 0.5}})
}

fn failed(path: &str, msg: &str) -> Value {
    json!({"ok": false, "reason": "validation_failed", "errors": [{"path": path, "msg": msg}]})
}

/// Calls of all tools, and for each whether MCP must call its answer an error.
fn calls() -> Vec<(&'static str, Value, bool)> {
    let bad = json!({"colour": "red", "x": 1});
    vec![
        ("list_schemas", json!({}), false),
        ("get_schema", json!({"name": "lamp"}), false),
        ("get_schema", json!({"name": "none"}), true),
        ("get_schema", json!({"name": "../lamp"}), true),
        ("list_examples", json!({}), false),
        ("list_examples", json!({"component": "Lamp_Example"}), false),
        ("get_example", json!({"path": "Lamp_Example.json"}), false),
        ("get_example", json!({"path": "none.json"}), true),
        ("get_example", json!({"path": "/etc/passwd"}), true),
        (
            "validate_asset",
            json!({"asset": lamp("a"), "schema": "lamp"}),
            false,
        ),
        (
            "validate_asset",
            json!({"asset": bad, "schema": "lamp"}),
            false,
        ),
        (
            "validate_asset",
            json!({"asset": bad, "schema": "none"}),
            true,
        ),
        ("validate_asset", json!({"asset": bad}), true),
        ("validate_asset", json!({"asset": bad, "schema": ""}), true),
        (
            "validate_asset",
            json!({"asset": bad, "schema": "lamp", "extra": 1}),
            true,
        ),
        (
            "validate",
            json!({"asset": lamp("a"), "schema": "lamp"}),
            false,
        ),
        ("validate", json!({"asset": bad}), true),
        (
            "validate_many",
            json!({"assets": [lamp("a"), bad, 7], "schema": "lamp"}),
            false,
        ),
        (
            "validate_many",
            json!({"assets": vec![json!(1); 101], "schema": "lamp"}),
            true,
        ),
        ("validate_many", json!({"assets": [], "schema": ""}), true),
        ("diff_assets", json!({"base": lamp("a"), "new": bad}), false),
        ("diff_assets", json!({"base": lamp("a")}), true),
        ("populate_backend", json!({"asset": lamp("a")}), true),
    ]
}

#[test]
fn every_tool_answers_the_same_on_every_transport_and_in_every_dialect() -> anyhow::Result<()> {
    let mut seen: Vec<Option<Value>> = vec![None; calls().len()];
    for transport in TRANSPORTS {
        let (host, client) = start(transport)?;
        for way in WAYS {
            for (index, (tool, arguments, is_error)) in calls().iter().enumerate() {
                client.send(&way.line(index, tool, arguments))?;
                let answer = client.answer(&index.to_string())?;
                let (error, own) = way.own(&answer)?;
                let about = format!("{transport:?} {way:?} {tool} {arguments}: {answer:?}");
                ensure!(error.is_none_or(|error| error == *is_error), "{about}");
                ensure!(own["ok"].is_boolean(), "{about}");
                let first = seen[index].get_or_insert_with(|| own.clone());
                ensure!(*first == own, "{about}, elsewhere {first}");
            }
        }
        end(host, client)?;
    }
    Ok(())
}

#[test]
fn a_missing_schema_is_told_at_once_and_in_the_words_of_the_specification() -> anyhow::Result<()> {
    let expected = failed("/schema", "schema param is required");
    for transport in TRANSPORTS {
        let (host, client) = start(transport)?;
        for way in WAYS {
            for (tool, arguments) in [
                ("validate_asset", json!({"asset": {}})),
                ("validate_asset", json!({"asset": {}, "schema": ""})),
                ("validate_asset", json!({})),
                ("validate", json!({"asset": {}})),
                ("validate_many", json!({"assets": []})),
                ("validate_many", json!({"assets": 7, "schema": ""})),
            ] {
                let own = way.call(&client, 1, tool, &arguments)?;
                ensure!(own == expected, "{way:?} {tool} {arguments}: {own}");
            }
        }
        end(host, client)?;
    }
    Ok(())
}

#[test]
fn traversal_is_rejected_over_every_transport() -> anyhow::Result<()> {
    for transport in TRANSPORTS {
        let (host, client) = start(transport)?;
        for way in WAYS {
            for path in [
                "../jsonschema/lamp.schema.json",
                "..",
                "x/../../jsonschema/lamp.schema.json",
                "/etc/passwd",
                "..\\jsonschema\\lamp.schema.json",
                "Lamp_Example.json\0",
                "%2e%2e/jsonschema/lamp.schema.json",
                "..%2fjsonschema%2flamp.schema.json",
            ] {
                let own = way.call(&client, 1, "get_example", &json!({"path": path}))?;
                ensure!(
                    own == failed("/path", "invalid_path"),
                    "{way:?} {path:?}: {own}"
                );
                let own = way.call(&client, 2, "get_schema", &json!({"name": path}))?;
                ensure!(
                    own == failed("/name", "invalid_path"),
                    "{way:?} {path:?}: {own}"
                );
            }
        }
        for uri in [
            "example:///../jsonschema/lamp.schema.json",
            "schema:///..%2flamp",
        ] {
            let answer = client.request("3", "resources/read", &json!({"uri": uri}))?;
            ensure!(answer.at("/error/code") == -32602, "{uri}: {answer:?}");
            let details = answer.at("/error/data/details");
            ensure!(
                details == failed("/uri", "invalid_path"),
                "{uri}: {answer:?}"
            );
        }
        end(host, client)?;
    }
    Ok(())
}

#[test]
fn the_alias_is_accepted_everywhere_warned_about_each_time_and_never_listed() -> anyhow::Result<()>
{
    for transport in TRANSPORTS {
        let (host, client) = start(transport)?;
        let arguments = json!({"asset": lamp("a"), "schema": "lamp"});
        for way in WAYS {
            for tool in ["validate", "validate_asset"] {
                let own = way.call(&client, 1, tool, &arguments)?;
                ensure!(own == json!({"ok": true}), "{way:?}: {own}");
            }
        }
        let listed = client.request("2", "tools/list", &json!({}))?;
        let tools = listed.at("/result/tools");
        let names: Vec<&str> = tools
            .as_array()
            .context("no tools")?
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        ensure!(
            names.contains(&"validate_asset") && !names.contains(&"validate"),
            "{names:?}"
        );
        let stderr = end(host, client)?;
        let warning = "mcp:warning reason=deprecated_alias method=validate";
        let warnings = stderr.iter().filter(|line| line.ends_with(warning)).count();
        ensure!(warnings == WAYS.len(), "{warnings} warnings: {stderr:#?}");
    }
    Ok(())
}

#[test]
fn a_batch_over_its_limit_is_unsupported_over_every_transport() -> anyhow::Result<()> {
    for transport in TRANSPORTS {
        let mut host = serve(transport, "max_batch = 3")?.spawn()?;
        let client = host.take_client()?;
        for way in WAYS {
            let batch = |number| json!({"assets": vec![lamp("a"); number], "schema": "lamp"});
            let full = way.call(&client, 1, "validate_many", &batch(3))?;
            ensure!(
                full["results"] == json!(vec![json!({"ok": true}); 3]),
                "{full}"
            );
            let over = way.call(&client, 2, "validate_many", &batch(4))?;
            let expected = json!({"ok": false, "reason": "unsupported",
                "detail": "batch_too_large", "limit": 3});
            ensure!(over == expected, "{way:?}: {over}");
        }
        end(host, client)?;
    }
    Ok(())
}

/// A request of exactly so many bytes, by the length of a name in its last asset.
fn request_of(bytes: usize, tool: &str) -> String {
    let line = |name: &str| {
        let asset = lamp(name);
        let arguments = match tool {
            "validate_many" => json!({"assets": [lamp("first"), asset], "schema": "lamp"}),
            "diff_assets" => json!({"base": {}, "new": asset}),
            "populate_backend" => json!({"asset": asset}),
            _ => json!({"asset": asset, "schema": "lamp"}),
        };
        Way::Direct.line(7, tool, &arguments)
    };
    line(&"x".repeat(bytes - line("").len()))
}

#[test]
fn a_payload_over_the_limit_is_refused_for_every_tool_and_the_connection_lives_on()
-> anyhow::Result<()> {
    let too_large = failed("", "payload_too_large");
    for transport in TRANSPORTS {
        let (host, client) = start(transport)?;
        for tool in [
            "validate_asset",
            "validate",
            "validate_many",
            "diff_assets",
            "populate_backend",
        ] {
            client.send(&request_of(LIMIT + 1, tool))?;
            let refused = client.answer("7")?;
            ensure!(refused.at("/result") == too_large, "{tool}: {refused:?}");
            client.send(&request_of(LIMIT, tool))?;
            let answer = client.answer("7")?;
            ensure!(answer.at("/result") != too_large, "{tool}: {answer:?}");
            let ok = answer.at("/result/ok") == true;
            ensure!(ok != (tool == "populate_backend"), "{tool}: {answer:?}");
        }
        // In MCP it is an error of the message.
        let arguments = json!({"asset": lamp(&"x".repeat(LIMIT)), "schema": "lamp"});
        client.send(&Way::Legacy.line(8, "validate_asset", &arguments))?;
        let refused = client.answer("8")?;
        ensure!(refused.at("/error/code") == -31413, "{refused:?}");
        let own = Way::Direct.call(&client, 9, "list_schemas", &json!({}))?;
        ensure!(own["ok"] == true, "{own}");
        end(host, client)?;
    }
    Ok(())
}

#[test]
fn many_clients_get_their_own_answers_in_the_order_of_their_requests() -> anyhow::Result<()> {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 60;
    let host = serve(Transport::Socket, "")?.spawn()?;
    let talk = |number: usize, client: Client| -> anyhow::Result<()> {
        let request = |id: usize| {
            let name = format!("{number}-{id}");
            match id % 4 {
                0 => ("diff_assets", json!({"base": {}, "new": {"name": name}})),
                1 => (
                    "validate_asset",
                    json!({"asset": {"name": name, &name: 1}, "schema": "lamp"}),
                ),
                2 => (
                    "validate_many",
                    json!({"assets": vec![json!({&name: 1}); id], "schema": "lamp"}),
                ),
                _ => ("get_schema", json!({"name": name})),
            }
        };
        for id in 0..REQUESTS {
            let (tool, arguments) = request(id);
            client.send(&Way::Direct.line(id, tool, &arguments))?;
        }
        for id in 0..REQUESTS {
            let answer = client.next()?;
            ensure!(
                answer.id() == Some(id.to_string().as_str()),
                "{number}/{id}: {answer:?}"
            );
            let own = answer.at("/result");
            let name = format!("{number}-{id}");
            let is_own = match id % 4 {
                0 => own["patch"][0]["value"] == name,
                1 => own["errors"]
                    .to_string()
                    .contains(&format!("\\\"{name}\\\"")),
                2 => own["results"].as_array().is_some_and(|results| {
                    let last = results.last().unwrap_or(&Value::Null).to_string();
                    results.len() == id && last.contains(&name)
                }),
                _ => own == json!({"ok": false, "reason": "not_found"}),
            };
            ensure!(is_own, "{name} got {answer:?}");
        }
        ensure!(client.finish()?.is_empty(), "something nobody asked for");
        Ok(())
    };
    thread::scope(|scope| {
        let talks: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = host.connect();
                scope.spawn(move || talk(number, client?))
            })
            .collect();
        for talk in talks {
            match talk.join() {
                Ok(result) => result?,
                Err(_) => bail!("a client panicked"),
            }
        }
        anyhow::Ok(())
    })?;
    host.stop()
}

#[test]
fn documents_of_the_greatest_depth_come_back_and_deeper_ones_are_refused() -> anyhow::Result<()> {
    let (host, client) = start(Transport::Stdio)?;
    let nested =
        |depth: usize| -> Value { (0..depth).fold(json!(1), |inner, _| json!({"a": inner})) };
    for way in WAYS {
        let arguments = json!({"base": 1, "new": nested(100)});
        let own = way.call(&client, 1, "diff_assets", &arguments)?;
        ensure!(own["patch"][0]["value"] == nested(100), "{way:?}: {own}");
        let deeper = json!({"base": 1, "new": nested(101)});
        let own = way.call(&client, 2, "diff_assets", &deeper)?;
        ensure!(
            own["errors"][0]["path"] == format!("/new{}", "/a".repeat(100)),
            "{own}"
        );
    }
    end(host, client)?;
    Ok(())
}

#[test]
fn broken_files_are_warned_about_once_and_the_rest_is_served() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.pack("asset");
    let (schemas, examples) = (serve.folder().join("s"), serve.folder().join("e"));
    fs::create_dir(&schemas)?;
    fs::create_dir(&examples)?;
    fs::write(schemas.join("good.schema.json"), r#"{"type": "object"}"#)?;
    fs::write(schemas.join("torn.schema.json"), "{")?;
    fs::write(schemas.join("lost.schema.json"), r#"{"$ref": "gone.json"}"#)?;
    let outside = serve.folder().join("outside.json");
    fs::write(&outside, "{}")?;
    std::os::unix::fs::symlink(&outside, schemas.join("link.schema.json"))?;
    fs::write(examples.join("Good.json"), "{}")?;
    fs::write(examples.join("Torn.json"), "{")?;
    let mut host = serve
        .env("SYN_SCHEMAS_DIR", &schemas)
        .env("SYN_EXAMPLES_DIR", &examples)
        .spawn()?;
    let client = host.take_client()?;
    let given = Way::Direct.call(&client, 1, "get_example", &json!({"path": "Good.json"}))?;
    ensure!(given["validated"] == true, "{given}");
    let lost = json!({"asset": {}, "schema": "lost"});
    let refused = Way::Direct.call(&client, 2, "validate_asset", &lost)?;
    let said = refused["errors"][0]["msg"].as_str().unwrap_or_default();
    ensure!(said.contains("gone.json"), "{refused}");
    for (reason, path) in [
        ("broken_schema", "torn.schema.json"),
        ("broken_schema", "lost.schema.json"),
        ("broken_example", "Torn.json"),
        ("unusable_link", "link.schema.json"),
    ] {
        let line = format!("mcp:warning reason={reason} path={path} ");
        host.wait_for_line(&line)?;
        let lines = host.stderr();
        let number = lines.iter().filter(|found| found.contains(&line)).count();
        ensure!(number == 1, "{number} lines: {lines:#?}");
    }
    end(host, client)?;
    Ok(())
}

#[test]
fn files_and_folders_that_may_not_be_read_are_warned_about_by_name() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use mainstay_testkit::process::{TempDir, binary};

    let folder = TempDir::new()?;
    let schemas = folder.join("schemas");
    let hide =
        |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o000));
    fs::create_dir_all(schemas.join("closed"))?;
    fs::write(schemas.join("lamp.schema.json"), "{}")?;
    fs::write(schemas.join("secret.schema.json"), "{}")?;
    hide(&schemas.join("secret.schema.json"))?;
    hide(&schemas.join("closed"))?;
    let (program, is_root) = (binary("mainstay")?, rustix::process::geteuid().is_root());
    let command = || {
        let mut command = Command::new(&program);
        command
            .env("SYN_SCHEMAS_DIR", &schemas)
            .env("XDG_RUNTIME_DIR", folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null());
        // Modes do not keep the superuser out.
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        command
    };
    if is_root {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    }
    let output = command().args(["serve", "--pack", "asset"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    for named in ["path=secret.schema.json", "path=closed/ cannot be read"] {
        ensure!(said.contains(named), "{named}: {said}");
    }
    // A command that runs a host for one call is silent but for these.
    let (mut one_off, mut few_lines) = (command(), command());
    one_off.args(["call", "list_schemas", "--pack", "asset"]);
    few_lines.args(["serve", "--pack", "asset", "--log", "warn"]);
    for command in [&mut one_off, &mut few_lines] {
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        ensure!(said.contains("path=secret.schema.json"), "{said}");
    }
    fs::set_permissions(schemas.join("closed"), fs::Permissions::from_mode(0o700))?;
    Ok(())
}
