//! `mainstay tools`.

use std::process::ExitCode;

use mainstay_contract::meta;
use mainstay_contract::render::{Bounds, Porcelain, count, shorten, visible, visible_json};
use mainstay_host::wrap::declared_replay;
use serde_json::Value;

use crate::args::Tools;
use crate::exit::{self, Failure, eprint_line, print};
use crate::target::{Connection, ToolList};

/// Lists the tools of a target.
pub(crate) fn run(arguments: &Tools) -> Result<ExitCode, Failure> {
    let mut connection = Connection::open(&arguments.target, None)?;
    let tools = connection.tools();
    // A host that could not start says more than the connection that it closed.
    let served = connection.close()?;
    let ToolList { tools, missing } = tools?;
    crate::hidden::warn(&tools);
    let text = if arguments.json {
        visible_json(&format!("{:#}\n", Value::Array(tools))).into_owned()
    } else {
        table(&tools)
    };
    print(&text)?;
    let unknown = served.map(|served| served.unknown).unwrap_or_default();
    for (server, reason) in &missing {
        let (server, reason) = (visible(server), visible(reason));
        eprint_line(&format!(
            "mainstay: warning: the tools of the server {server} are missing: {reason}"
        ));
    }
    for (pack, fault) in &unknown {
        let reason = fault.as_ref().map(|fault| fault.cause());
        let reason = reason.as_deref().unwrap_or("it did not start in time");
        eprint_line(&format!(
            "mainstay: warning: the pack {pack} cannot start, so its tools are missing: {reason}"
        ));
    }
    Ok(ExitCode::from(
        match missing.is_empty() && unknown.is_empty() {
            true => exit::SUCCESS,
            false => exit::NO,
        },
    ))
}

fn table(tools: &[Value]) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("-").to_owned();
    let rows = tools.iter().map(|tool| {
        let contract = tool.get("_meta").and_then(|meta| meta.get(meta::CONTRACT));
        let arguments = tool
            .pointer("/inputSchema/properties")
            .and_then(Value::as_object)
            .map(|properties| {
                let names = properties.keys().filter(|name| *name != "render").cloned();
                names.collect::<Vec<_>>().join(" ")
            })
            .unwrap_or_default();
        // Somebody else's tool has the class that it would have behind `mainstay wrap`.
        let replay = match contract {
            Some(contract) => text(contract.get("replay")),
            None => declared_replay(tool).as_str().to_owned(),
        };
        vec![
            text(tool.get("name")),
            replay,
            shorten(&arguments, 40),
            shorten(&text(tool.get("description")), 70),
        ]
    });
    let mut page = Porcelain::summary(count(tools.len(), "tool", "tools"))
        .table(&["tool", "replay", "arguments", "description"], rows)
        .finish(Bounds {
            lines: 10_000,
            bytes: 1 << 22,
        });
    page.push('\n');
    page
}
