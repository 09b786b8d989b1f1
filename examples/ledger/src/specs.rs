//! The definitions of the tools.

use mainstay_worker::{Annotations, Code, Replay, SpecBuilder, ToolSpec, tool_spec};
use serde_json::{Value, json};

/// Longest pause or wait that can be asked for.
pub(crate) const MAX_PAUSE_MS: u64 = 600_000;

fn spec(name: &str, description: &str) -> SpecBuilder {
    tool_spec(name, description).tooling_version(env!("CARGO_PKG_VERSION"))
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

/// `{"ok": true, ...}` with every property required.
fn answer(properties: &Value) -> Value {
    let mut all = json!({"ok": {"const": true}});
    let mut required = vec!["ok"];
    if let (Some(all), Some(more)) = (all.as_object_mut(), properties.as_object()) {
        all.extend(more.clone());
        required.extend(more.keys().map(String::as_str));
    }
    object(&required, &all)
}

fn name(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$", "description": description})
}

fn pause(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": MAX_PAUSE_MS, "description": description})
}

fn pause_before() -> Value {
    pause("Milliseconds between the start of the call and its effect; for fault tests.")
}

fn pause_after() -> Value {
    pause("Milliseconds between the effect and the answer; for fault tests.")
}

const EFFECT: Annotations = Annotations {
    read_only_hint: false,
    destructive_hint: false,
    idempotent_hint: false,
    open_world_hint: false,
};

pub(crate) fn append() -> ToolSpec {
    let input = json!({
        "text": {"type": "string", "maxLength": 65536, "description": "The entry."},
        "pause_ms": pause_before(), "pause_after_ms": pause_after(),
    });
    spec(
        "append",
        "Adds an entry to the ledger. Each run adds one, so it is never repeated.",
    )
    .input(object(&["text"], &input))
    .output(answer(&json!({"text": {"type": "string"}})))
    .effects(Replay::NeverReplay, EFFECT)
}

pub(crate) fn put() -> ToolSpec {
    let input = json!({
        "key": name("The key."),
        "value": {"type": "string", "maxLength": 65536, "description": "Its new value."},
        "pause_ms": pause_before(), "pause_after_ms": pause_after(),
    });
    spec(
        "put",
        "Sets the value of a key. Setting it twice is as good as once.",
    )
    .input(object(&["key", "value"], &input))
    .output(answer(
        &json!({"key": {"type": "string"}, "value": {"type": "string"}}),
    ))
    .effects(
        Replay::Convergent,
        Annotations {
            idempotent_hint: true,
            ..EFFECT
        },
    )
}

pub(crate) fn transfer() -> ToolSpec {
    let input = json!({
        "id": name("Chosen by the client, new for every transfer; tells whether it happened."),
        "from": name("Account that gives."),
        "to": name("Account that takes."),
        "amount": {"type": "integer", "minimum": 1, "maximum": u32::MAX, "description": "How much."},
        "pause_ms": pause_before(), "pause_after_ms": pause_after(),
    });
    let output = json!({
        "id": {"type": "string"}, "from": {"type": "string"}, "to": {"type": "string"},
        "amount": {"type": "integer"},
    });
    spec(
        "transfer",
        "Moves an amount between accounts. After a loss its id is looked for first.",
    )
    .input(object(&["id", "from", "to", "amount"], &input))
    .output(answer(&output))
    .effects(Replay::ProbeRequired, EFFECT)
}

pub(crate) fn get() -> ToolSpec {
    let input = json!({"key": name("Only this key; without it, all.")});
    let pairs = |value: &str| {
        let key = if value == "integer" { "account" } else { "key" };
        let member = if value == "integer" {
            "balance"
        } else {
            "value"
        };
        let item = json!({key: {"type": "string"}, member: {"type": value}});
        json!({"type": "array", "items": object(&[key, member], &item)})
    };
    let output = json!({
        "entries": {"type": "integer", "minimum": 0},
        "values": pairs("string"), "balances": pairs("integer"),
    });
    spec(
        "get",
        "Reads the ledger: values, balances and the number of entries.",
    )
    .input(object(&[], &input))
    .output(answer(&output))
    .errors(&[Code::NotFound])
    .read_only()
}

pub(crate) fn wait() -> ToolSpec {
    let input = json!({
        "ms": pause("How long to wait, in milliseconds."),
        "steps": {"type": "integer", "minimum": 1, "maximum": 1000,
            "description": "Steps to divide the time into, with progress after each; 1 by default."},
        "fail": {"type": "string", "enum": ["problem", "panic", "exit"],
            "description": "How to end instead of answering; for fault tests."},
    });
    let output = json!({"ms": {"type": "integer"}, "steps": {"type": "integer"}});
    spec(
        "wait",
        "Waits, reports progress, and stops when it is cancelled.",
    )
    .input(object(&["ms"], &input))
    .output(answer(&output))
    .read_only()
}
