//! The tools.

use std::time::Duration;

use mainstay_worker::{Context, ErrorKind, Json, Porcelain, Probe, Problem, Reply, render};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::book::Book;
use crate::effect::{Effect, Transfer};

/// Pauses around an effect, so that a test can kill the worker before or after it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pauses {
    pause_ms: u64,
    pause_after_ms: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Append {
    text: String,
    #[serde(flatten)]
    pauses: Pauses,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Put {
    key: String,
    value: String,
    #[serde(flatten)]
    pauses: Pauses,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TransferArguments {
    #[serde(flatten)]
    transfer: Transfer,
    #[serde(flatten)]
    pauses: Pauses,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Get {
    key: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Wait {
    ms: u64,
    #[serde(default = "one")]
    steps: u64,
    fail: Option<Fail>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fail {
    Problem,
    Panic,
    Exit,
}

const fn one() -> u64 {
    1
}

pub(crate) fn append(book: &Book, append: Append, context: &Context) -> Result<Reply, Problem> {
    let text = append.text.clone();
    happen(
        book,
        &Effect::Append { text: append.text },
        &append.pauses,
        context,
    )?;
    Ok(Reply::json(&json!({"ok": true, "text": text}))
        .porcelain(move || Porcelain::summary("appended 1 entry").field("text", text)))
}

pub(crate) fn put(book: &Book, put: Put, context: &Context) -> Result<Reply, Problem> {
    let (key, value) = (put.key.clone(), put.value.clone());
    happen(
        book,
        &Effect::Put {
            key: put.key,
            value: put.value,
        },
        &put.pauses,
        context,
    )?;
    Ok(
        Reply::json(&json!({"ok": true, "key": key, "value": value}))
            .porcelain(move || Porcelain::summary(format!("{key} is set")).field("value", value)),
    )
}

pub(crate) fn transfer(
    book: &Book,
    arguments: TransferArguments,
    context: &Context,
) -> Result<Reply, Problem> {
    let effect = Effect::Transfer(arguments.transfer.clone());
    happen(book, &effect, &arguments.pauses, context)?;
    Ok(transferred(arguments.transfer))
}

/// The effect carries the client's id. An equal line proves that the lost attempt took effect; the
/// same id with other contents is a mistake of the caller, which the pack cannot resolve.
pub(crate) fn probe_transfer(book: &Book, arguments: &TransferArguments) -> Result<Probe, Problem> {
    Ok(match book.find_transfer(&arguments.transfer.id)? {
        None => Probe::NotApplied,
        Some(found) if found == arguments.transfer => Probe::Applied(transferred(found)),
        Some(_) => Probe::Unknown,
    })
}

pub(crate) fn get(book: &Book, get: Get) -> Result<Reply, Problem> {
    let mut state = book.state()?;
    if let Some(key) = get.key {
        if !state.values.contains_key(&key) {
            let details = Json::from(json!({"ok": false, "reason": "not_found"}));
            let message = format!("the ledger has no value for {key}");
            return Err(Problem::new(ErrorKind::NotFound, message).with_details(details));
        }
        state.values.retain(|known, _| *known == key);
    }
    let values: Vec<Value> = state
        .values
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    let balances: Vec<Value> = state
        .balances
        .iter()
        .map(|(account, balance)| json!({"account": account, "balance": balance}))
        .collect();
    let json =
        json!({"ok": true, "entries": state.entries, "values": values, "balances": balances});
    Ok(Reply::json(&json).porcelain(move || {
        let entries = usize::try_from(state.entries).unwrap_or(usize::MAX);
        Porcelain::summary(format!(
            "{}, {}, {}",
            render::count(entries, "entry", "entries"),
            render::count(state.values.len(), "value", "values"),
            render::count(state.balances.len(), "account", "accounts"),
        ))
        .section("values")
        .items(
            state
                .values
                .iter()
                .map(|(key, value)| format!("{key} = {value}")),
        )
        .section("balances")
        .items(
            state
                .balances
                .iter()
                .map(|(account, balance)| format!("{account} {balance}")),
        )
    }))
}

pub(crate) fn wait(wait: Wait, context: &Context) -> Result<Reply, Problem> {
    let steps = wait.steps.max(1);
    for step in 1..=steps {
        // Whole time divided so that the steps add up to it.
        let part = |steps_done: u64| wait.ms.saturating_mul(steps_done) / steps;
        let (until, since) = (part(step), part(step - 1));
        context.sleep(Duration::from_millis(until - since))?;
        context.step(step, steps, format!("waited {until} of {} ms", wait.ms));
    }
    if let Some(fail) = wait.fail {
        return Err(end(fail));
    }
    let ms = wait.ms;
    Ok(Reply::json(&json!({"ok": true, "ms": ms, "steps": steps}))
        .porcelain(move || Porcelain::summary(format!("waited {ms} ms")).field("steps", steps)))
}

#[expect(clippy::panic, reason = "asked for, to show what becomes of it")]
fn end(fail: Fail) -> Problem {
    match fail {
        Fail::Problem => Problem::new(ErrorKind::Unsupported, "the wait was asked to fail"),
        Fail::Panic => panic!("the wait was asked to panic"),
        Fail::Exit => std::process::exit(70),
    }
}

/// Pauses, makes the effect happen, pauses again. A cancel before the effect prevents it; after
/// it the call has happened and says so.
fn happen(book: &Book, effect: &Effect, pauses: &Pauses, context: &Context) -> Result<(), Problem> {
    context.sleep(Duration::from_millis(pauses.pause_ms))?;
    book.write(effect)?;
    context
        .cancel()
        .wait_timeout(Duration::from_millis(pauses.pause_after_ms));
    Ok(())
}

fn transferred(transfer: Transfer) -> Reply {
    let Transfer {
        id,
        from,
        to,
        amount,
    } = transfer;
    let json = json!({"ok": true, "id": id, "from": from, "to": to, "amount": amount});
    Reply::json(&json).porcelain(move || {
        Porcelain::summary(format!("moved {amount} from {from} to {to}")).field("id", id)
    })
}
