//! The oracle of random runs for cross-talk: each message reaches the session and the server that it belongs to.

use std::collections::BTreeSet;

use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::outcome::Success;
use mainstay_contract::rpc;
use mainstay_kernel::core::action::CoreAction;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Run, ends};

impl Run {
    /// Servers still report changes of every resource that a client has subscribed to.
    pub fn check_subscriptions(&self) {
        for ((session, uri), asked) in &self.subscriptions {
            let is_here = self.shell.core.wants_input(*session);
            let last = asked.last().filter(|(.., ends)| is_here && !ends);
            let Some((id, nth, _)) = last else { continue };
            let places = ends(&self.shell, (*session, *id));
            let end = places.get(*nth).map(|place| &self.shell.did[*place].1);
            let is_agreed = match end {
                Some(CoreAction::End { end, .. }) => {
                    matches!(&end.outcome, Ok(Success::Forwarded(line)) if !line.is_error)
                }
                _ => false,
            };
            let key = uri.split(':').next().unwrap();
            let homes = self.shell.homes.iter();
            let mut of_server = homes.filter(|(generation, (home, owner))| {
                let is_its = match key {
                    "two" => *owner == Some(*session),
                    _ => owner.is_none(),
                };
                home == key && is_its && self.shell.workers.contains_key(generation)
            });
            let watched = |(generation, _): (&Generation, &(String, Option<SessionId>))| {
                self.shell.workers[generation].subscribed.contains(uri)
            };
            assert!(
                !is_agreed || of_server.all(watched),
                "{session} {uri} is not watched"
            );
        }
    }
}

/// No message reaches another session or another server than the one that it is for.
pub fn check_crosstalk(run: &Run) -> Result<(), TestCaseError> {
    let shell = &run.shell;
    let mut calls: BTreeSet<(Generation, SessionId, u64)> = BTreeSet::new();
    for action in shell.actions() {
        match action {
            CoreAction::Forward {
                generation, line, ..
            } => {
                let line = line.to_value().unwrap();
                let (key, session) = &shell.homes[generation];
                let arguments = &line["params"]["arguments"];
                if let Some(to) = arguments["to"].as_str() {
                    prop_assert_eq!(to, key, "{}", line);
                }
                // A shared server belongs to no session.
                if let (Some(who), Some(session)) = (arguments["who"].as_u64(), session) {
                    prop_assert_eq!(who, session.get(), "{}", line);
                }
                if session.is_none() {
                    let id = line["id"].as_str().unwrap_or_default();
                    prop_assert!(id.starts_with("io.mainstay/"), "{}", line);
                }
                let token = line["params"]["_meta"]["progressToken"].as_u64();
                calls.extend(
                    session
                        .zip(token)
                        .map(|(session, id)| (*generation, session, id)),
                );
            }
            CoreAction::Call { call, .. } => {
                if let rpc::Op::Tool { arguments, .. } = &call.op {
                    let arguments = arguments.to_value().unwrap();
                    prop_assert!(arguments["to"].is_null(), "{:?}", call);
                }
            }
            CoreAction::Tell { session, line } => {
                let line: Value = serde_json::from_str(line).unwrap();
                let params = &line["params"];
                let by = match line["method"].as_str() {
                    Some("roots/list") => params["by"].as_u64(),
                    Some("notifications/progress") => {
                        let (by, who) =
                            params["message"].as_str().unwrap().split_once('/').unwrap();
                        let (by, who): (u64, u64) = (by.parse().unwrap(), who.parse().unwrap());
                        prop_assert!(who == 0 || who == session.get(), "not its call: {}", line);
                        let token = params["progressToken"].as_u64().unwrap();
                        let call = (Generation::new(by), *session, token);
                        let is_shared = shell.homes[&Generation::new(by)].1.is_none();
                        prop_assert!(is_shared || calls.contains(&call), "not its call: {}", line);
                        Some(by)
                    }
                    Some("notifications/message") if !params["data"]["by"].is_null() => {
                        let data = &params["data"];
                        let by = data["by"].as_u64().unwrap();
                        let is_shared = shell.homes[&Generation::new(by)].1.is_none();
                        let whos = data["whos"].as_array().unwrap();
                        let is_its = whos.contains(&json!(session.get()));
                        prop_assert!(!is_shared || is_its, "{}", line);
                        Some(by)
                    }
                    Some("notifications/resources/updated") => {
                        let uri = params["uri"].as_str().unwrap().to_owned();
                        let asked = run.subscriptions.get(&(*session, uri));
                        prop_assert!(asked.is_some(), "{} did not subscribe: {}", session, line);
                        None
                    }
                    _ => None,
                };
                if let Some(by) = by {
                    let (_, home) = &shell.homes[&Generation::new(by)];
                    let is_question = line["method"] == "roots/list";
                    let is_its = *home == Some(*session) || home.is_none() && !is_question;
                    prop_assert!(is_its, "{}", line);
                }
            }
            CoreAction::End { end, .. } => {
                if let Ok(Success::Forwarded(answer)) = &end.outcome {
                    let answer = answer.line.to_value().unwrap();
                    let who = answer["result"]["who"].as_u64();
                    let is_its = who.is_none_or(|who| who == end.session.get());
                    prop_assert!(is_its, "{} for {}", answer, end.session);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
