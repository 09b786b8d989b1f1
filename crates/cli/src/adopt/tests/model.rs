//! Made-up configuration files: what they say, apart from how it is written.

use proptest::collection::{btree_map, vec};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use serde_json::{Map, Value, json};

/// What is written around the values: a stream of choices, taken one by one.
#[derive(Clone, Debug)]
pub(super) struct Style {
    choices: Vec<u8>,
    next: usize,
}

impl Style {
    /// One of `options`.
    pub(super) fn pick<'o>(&mut self, options: &[&'o str]) -> &'o str {
        options[self.number(options.len())]
    }

    pub(super) fn chance(&mut self) -> bool {
        self.number(2) == 1
    }

    fn number(&mut self, below: usize) -> usize {
        let choice = self.choices[self.next % self.choices.len()];
        self.next += 1;
        usize::from(choice) % below
    }
}

pub(super) fn style() -> impl Strategy<Value = Style> {
    vec(any::<u8>(), 1..200).prop_map(|choices| Style { choices, next: 0 })
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,6}",
        "[ -~]{1,8}",
        "\\PC{1,4}",
        Just("wrap".to_owned()),
        Just("--".to_owned()),
        Just("command".to_owned()),
        Just("args".to_owned()),
        Just("mainstay".to_owned()),
    ]
}

/// A server that is started by a command, one that is not, or one that nobody can start.
fn server() -> impl Strategy<Value = Value> {
    let more = btree_map(
        prop_oneof![Just("env"), Just("cwd"), Just("disabled"), Just("x-y")],
        prop_oneof![
            Just(json!({"A": "1", "command": "no"})),
            Just(json!(true)),
            Just(json!([1, {"args": []}])),
            Just(json!("text")),
        ],
        0..3,
    );
    let started = (
        word(),
        proptest::option::of(vec(word(), 0..4)),
        more.clone(),
    );
    let started = started.prop_map(|(command, args, more)| {
        let mut entry = json!({ "command": command });
        if let Some(args) = args {
            entry["args"] = json!(args);
        }
        extend(entry, more)
    });
    prop_oneof![
        6 => started,
        1 => more.clone().prop_map(|more| extend(json!({"url": "https://x"}), more)),
        1 => more.prop_map(|more| extend(json!({"command": 7}), more)),
    ]
}

fn extend(mut entry: Value, more: std::collections::BTreeMap<&'static str, Value>) -> Value {
    for (name, value) in more {
        entry[name] = value;
    }
    entry
}

/// Servers by name.
pub(super) fn servers() -> impl Strategy<Value = Value> {
    btree_map(word(), server(), 0..4)
        .prop_map(|servers| Value::Object(servers.into_iter().collect()))
}

/// The same servers, each wrapped as it should be. A server at a URL in an unusual form is left alone, so
/// `is_wrapped` says whether it was.
pub(super) fn wrapped(servers: &Value, binary: &str, is_wrapped: impl Fn(&str) -> bool) -> Value {
    let servers = servers.as_object().unwrap().iter();
    let wrapped = servers.map(|(name, entry)| {
        let mut entry = entry.clone();
        let program = entry["command"].as_str().map(str::to_owned);
        let args: Vec<String> = serde_json::from_value(entry["args"].clone()).unwrap_or_default();
        if entry["args"].is_null() {
            entry.as_object_mut().unwrap().remove("args");
        }
        let is_wrap = args.first().is_some_and(|first| first == "wrap");
        let own_name = match name.as_str() {
            "" => vec![],
            name if name.starts_with('-') => vec![format!("--name={name}")],
            name => vec!["--name".to_owned(), name.to_owned()],
        };
        if let Some(url) = entry["url"].as_str().map(str::to_owned)
            && program.is_none()
            && is_wrapped(name)
        {
            assert!(entry.get("env").is_none(), "{entry}");
            let [wrap, option] = ["wrap", "--url"].map(|word| vec![word.to_owned()]);
            let entry = entry.as_object_mut().unwrap();
            entry.remove("url");
            entry.remove("command");
            entry.insert("command".to_owned(), json!(binary));
            let args = [wrap, own_name.clone(), option, vec![url]].concat();
            entry.insert("args".to_owned(), json!(args));
        }
        if entry["url"].is_null() {
            entry.as_object_mut().unwrap().remove("url");
        }
        if entry["command"].is_null() {
            entry.as_object_mut().unwrap().remove("command");
        }
        if let Some(program) = program
            && !(is_wrap && program.rsplit('/').next().unwrap().starts_with("mainstay"))
        {
            entry["command"] = json!(binary);
            let [wrap, dashes] = ["wrap", "--"].map(|word| vec![word.to_owned()]);
            entry["args"] = json!([wrap, own_name, dashes, vec![program], args].concat());
        }
        (name.clone(), entry)
    });
    Value::Object(wrapped.collect::<Map<_, _>>())
}
