//! The example ledger as a witness: what its calls do, and what its file says.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use mainstay_contract::replay::Replay;
use serde_json::{Value, json};

use super::{Asked, Effect};

/// How every line of the file begins.
const BEGINNING: &str = "{\"effect\":";

/// A call of the example ledger, or of another tool whose effects are known, with what it does.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub asked: Asked,
    pub arguments: Value,
}

impl Ledger {
    /// `append`: never replayed. The text must be unique.
    pub fn append(text: &str) -> Self {
        Self::effect(
            Replay::NeverReplay,
            &effect("append", text, ""),
            json!({ "text": text }),
        )
    }

    /// `put`: convergent. The value must be unique for its key.
    pub fn put(key: &str, value: &str) -> Self {
        let arguments = json!({ "key": key, "value": value });
        Self::effect(Replay::Convergent, &effect("put", key, value), arguments)
    }

    /// `transfer` of 1: probe required. The id must be unique.
    pub fn transfer(id: &str, from: &str, to: &str) -> Self {
        let arguments = json!({ "id": id, "from": from, "to": to, "amount": 1 });
        let effect = effect("transfer", id, &format!("{from} {to} 1"));
        Self::effect(Replay::ProbeRequired, &effect, arguments)
    }

    /// `get`: reads.
    pub fn get() -> Self {
        Self::reading("get", json!({}))
    }

    /// `wait`: reads, and takes time in steps.
    pub fn wait(ms: u64, steps: u64) -> Self {
        Self::reading("wait", json!({ "ms": ms, "steps": steps }))
    }

    /// Takes so long before and after its effect.
    #[must_use]
    pub fn pausing(mut self, before_ms: u64, after_ms: u64) -> Self {
        if let Some(arguments) = self.arguments.as_object_mut() {
            arguments.insert("pause_ms".to_owned(), before_ms.into());
            arguments.insert("pause_after_ms".to_owned(), after_ms.into());
        }
        self
    }

    fn effect(replay: Replay, effect: &Effect, arguments: Value) -> Self {
        Self {
            asked: Asked {
                tool: effect.tool.clone(),
                replay,
                effect: Some(effect.clone()),
            },
            arguments,
        }
    }

    fn reading(tool: &str, arguments: Value) -> Self {
        Self {
            asked: Asked {
                tool: tool.to_owned(),
                replay: Replay::Convergent,
                effect: None,
            },
            arguments,
        }
    }
}

fn effect(tool: &str, subject: &str, value: &str) -> Effect {
    Effect {
        tool: tool.to_owned(),
        subject: subject.to_owned(),
        value: value.to_owned(),
    }
}

/// The effects in the ledger's file, in their order. A file that is not there has none.
pub fn read_effects(file: &Path) -> anyhow::Result<Vec<Effect>> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    parse_effects(&String::from_utf8_lossy(&bytes))
}

/// The effects in the text of a ledger's file.
///
/// A kill can tear a line where it crosses a page of memory; what was torn did not happen, and the
/// next line stands behind it on the same one.
pub fn parse_effects(text: &str) -> anyhow::Result<Vec<Effect>> {
    let mut effects = Vec::new();
    for line in text.lines() {
        let whole = line.rfind(BEGINNING).and_then(|at| line.get(at..));
        let Some(Ok(tree)) = whole.map(serde_json::from_str::<Value>) else {
            continue;
        };
        effects.push(
            parse_effect(&tree).with_context(|| format!("a line that is no effect: {line}"))?,
        );
    }
    Ok(effects)
}

/// An effect as the file and the answers of the tools write it.
fn parse_effect(tree: &Value) -> Option<Effect> {
    let of = |key: &str| tree.get(key).and_then(Value::as_str);
    Some(match of("effect")? {
        "append" => effect("append", of("text")?, ""),
        "put" => effect("put", of("key")?, of("value")?),
        "transfer" => {
            let amount = tree.get("amount")?;
            let value = format!("{} {} {amount}", of("from")?, of("to")?);
            effect("transfer", of("id")?, &value)
        }
        _ => return None,
    })
}

/// What the answer of a tool says that it did.
pub(super) fn answered_effect(tool: &str, result: &Value) -> Option<Effect> {
    let mut tree = result.clone();
    let members = tree.as_object_mut()?;
    members.insert("effect".to_owned(), tool.into());
    parse_effect(&tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_line_is_no_effect_and_does_not_swallow_the_next() {
        let text = "{\"effect\":\"append\",\"text\":\"a\"}\n{\"effect\":\"append\",\"te\
                    {\"effect\":\"put\",\"key\":\"k\",\"value\":\"v\"}\n{\"effect\":\"ap";
        let effects = parse_effects(text).unwrap();
        assert_eq!(
            effects,
            [effect("append", "a", ""), effect("put", "k", "v")]
        );
    }

    #[test]
    fn what_a_call_asks_for_is_what_the_file_and_the_answer_say() {
        let call = Ledger::transfer("t1", "a", "b");
        let line = r#"{"effect":"transfer","id":"t1","from":"a","to":"b","amount":1}"#;
        assert_eq!(
            parse_effects(line).unwrap(),
            [call.asked.effect.clone().unwrap()]
        );
        let answer = json!({"ok": true, "id": "t1", "from": "a", "to": "b", "amount": 1});
        assert_eq!(answered_effect("transfer", &answer), call.asked.effect);
        assert_eq!(answered_effect("get", &answer), None);
    }
}
