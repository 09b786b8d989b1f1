//! `mainstay approve`: the calls of running hosts that wait for a person.

use std::process::ExitCode;

use anyhow::anyhow;
use mainstay_contract::control::{ControlReply, ControlRequest, PendingApproval};
use mainstay_contract::render::{Bounds, Porcelain, count, visible, visible_json};

use crate::args::{ApproveCommand, Chosen};
use crate::exit::{self, Failure, print};
use crate::operate::{self, Operated};

/// Lists, shows, grants or denies.
pub(crate) fn run(command: &ApproveCommand) -> Result<ExitCode, Failure> {
    match command {
        ApproveCommand::List { chosen, json } => list(chosen, *json),
        ApproveCommand::Show { id, chosen } => show(chosen, id),
        ApproveCommand::Grant { id, chosen } => answer(chosen, id, true),
        ApproveCommand::Deny { id, chosen } => answer(chosen, id, false),
    }
}

/// The calls that wait in each host.
fn waiting(chosen: &Chosen) -> Result<Vec<(Operated, Vec<PendingApproval>)>, Failure> {
    let mut all = Vec::new();
    for host in operate::hosts(chosen)? {
        match host.ask(&ControlRequest::Approvals {})? {
            ControlReply::Approvals(approvals) => all.push((host, approvals)),
            ControlReply::Refused { reason } => return Err(Failure::input(anyhow!("{reason}"))),
            _ => {}
        }
    }
    Ok(all)
}

fn list(chosen: &Chosen, json: bool) -> Result<ExitCode, Failure> {
    let all = waiting(chosen)?;
    if json {
        let all = all.iter().flat_map(|(host, approvals)| {
            approvals.iter().map(|approval| {
                let mut value = serde_json::to_value(approval).unwrap_or_default();
                if let Some(members) = value.as_object_mut() {
                    members.insert("pid".to_owned(), host.pid().into());
                }
                value
            })
        });
        let text = format!("{:#}\n", serde_json::Value::from(all.collect::<Vec<_>>()));
        print(&visible_json(&text))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = all.iter().flat_map(|(host, approvals)| {
        approvals.iter().map(|approval| {
            vec![
                approval.id.clone(),
                host.pid().to_string(),
                approval.server.clone(),
                approval.tool.clone(),
                approval.who.clone(),
                approval.expires.clone(),
                match approval.granted {
                    true => "granted, not yet repeated".to_owned(),
                    false => "waits".to_owned(),
                },
            ]
        })
    });
    let number = all.iter().map(|(_, approvals)| approvals.len()).sum();
    let headers = ["id", "pid", "server", "tool", "who", "expires", "state"];
    let text = Porcelain::summary(count(number, "call waits", "calls wait")).table(&headers, rows);
    print(&format!("{}\n", text.finish(Bounds::PORCELAIN)))?;
    Ok(ExitCode::SUCCESS)
}

fn show(chosen: &Chosen, id: &str) -> Result<ExitCode, Failure> {
    for (host, approvals) in waiting(chosen)? {
        if let Some(approval) = approvals.into_iter().find(|approval| approval.id == id) {
            let lines = [
                ("id", &approval.id),
                ("host", &format!("{} (pid {})", host.name(), host.pid())),
                ("who", &approval.who),
                ("server", &approval.server),
                ("tool", &approval.tool),
                ("rule", &approval.rule),
                ("asked", &approval.asked),
                ("expires", &approval.expires),
                ("digest", &approval.digest),
                ("arguments", &approval.arguments),
            ];
            let lines = lines.map(|(label, text)| format!("{label}: {}\n", visible(text)));
            print(&lines.concat())?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    Err(unknown(id))
}

fn unknown(id: &str) -> Failure {
    let id = visible(id).into_owned();
    let mut failure = Failure::input(anyhow!(
        "no call waits under {id}: it was answered, gave up, or its time is over"
    ))
    .hint("mainstay approve list shows the calls that wait");
    failure.code = exit::NO;
    failure
}

fn answer(chosen: &Chosen, id: &str, grant: bool) -> Result<ExitCode, Failure> {
    for (host, approvals) in waiting(chosen)? {
        let Some(approval) = approvals.iter().find(|approval| approval.id == id) else {
            continue;
        };
        let id = id.to_owned();
        return match host.ask(&ControlRequest::Approve { id, grant })? {
            ControlReply::Answered {} => {
                let word = if grant { "granted" } else { "denied" };
                let (server, tool) = (visible(&approval.server), visible(&approval.tool));
                print(&format!("{word}: {tool} of {server}\n"))?;
                Ok(ExitCode::SUCCESS)
            }
            ControlReply::Refused { reason } => {
                let mut failure = Failure::input(anyhow!("{}", visible(&reason)));
                failure.code = exit::NO;
                Err(failure)
            }
            other => Err(operate::unexpected(&other)),
        };
    }
    Err(unknown(id))
}
