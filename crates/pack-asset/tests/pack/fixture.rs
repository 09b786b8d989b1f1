//! A little world of assets, and calls into it.
//!
//! Every answer goes through the check that the host would make: a tool that breaks its own output
//! schema fails whatever test called it.

use std::fs;
use std::path::PathBuf;

use mainstay_pack_asset::{AssetSettings, pack};
use mainstay_schema::SchemaRegistry;
use mainstay_worker::testing::rpc::{Answer, Op};
use mainstay_worker::testing::{TempDir, perform};
use mainstay_worker::{ErrorKind, Json, Pack, Problem, RenderMode};
use serde_json::{Value, json};

/// A colour, a lamp that has one, and the canonical schema of nested assets.
pub(crate) const SCHEMAS: [(&str, &str); 3] = [
    (
        "colour.schema.json",
        r#"{"$id": "https://x.example/colour.schema.json", "version": "1.1",
            "type": "object", "required": ["hue"], "additionalProperties": false,
            "properties": {"hue": {"type": "number", "minimum": 0, "maximum": 360}}}"#,
    ),
    (
        "lamp.schema.json",
        r#"{"$id": "https://x.example/lamp.schema.json", "version": "2.0",
            "type": "object", "required": ["name"], "additionalProperties": false,
            "properties": {"name": {"type": "string", "minLength": 1},
                           "colour": {"$ref": "colour.schema.json"}}}"#,
    ),
    (
        "synesthetic-asset.schema.json",
        r#"{"type": "object", "required": ["title"], "additionalProperties": false,
            "properties": {"title": {"type": "string"}, "lamp": {"$ref": "https://x.example/lamp.schema.json"}}}"#,
    ),
];

/// One example for every rule by which a schema is found, and two that are not valid.
pub(crate) const EXAMPLES: [(&str, &str); 7] = [
    (
        "Lamp_Example.json",
        "{\n  \"$schemaRef\": \"jsonschema/lamp.schema.json\",\r\n  \"name\": \"desk\",\n  \"colour\": {\"hue\": 1.50}\n}\n",
    ),
    ("Colour_Example2.json", r#"{"hue": 7}"#),
    (
        "SynestheticAsset_Example1.json",
        r#"{"title": "t", "lamp": {"name": "l"}}"#,
    ),
    ("deep/er/Lamp_Example.json", r#"{"name": "nested"}"#),
    ("Odd.v2.json", r#"{"schema": "colour", "hue": 1}"#),
    (
        "Lamp_Bad.json",
        r#"{"$schemaRef": "lamp", "name": "", "extra": 1}"#,
    ),
    ("Ghost_Example.json", r#"{"hue": 7}"#),
];

/// Two roots in a folder of their own.
pub(crate) struct World {
    dir: TempDir,
    pub(crate) settings: AssetSettings,
}

impl World {
    /// The schemas and examples above.
    pub(crate) fn new() -> Self {
        let world = Self::empty();
        for (name, text) in SCHEMAS {
            world.write(&format!("schemas/{name}"), text);
        }
        for (name, text) in EXAMPLES {
            world.write(&format!("examples/{name}"), text);
        }
        world
    }

    /// Two empty roots.
    pub(crate) fn empty() -> Self {
        let dir = TempDir::new().unwrap();
        let [schemas, examples] = ["schemas", "examples"].map(|name| dir.path().join(name));
        fs::create_dir(&schemas).unwrap();
        fs::create_dir(&examples).unwrap();
        let settings = AssetSettings {
            schemas_dir: Some(schemas),
            examples_dir: Some(examples),
            ..AssetSettings::default()
        };
        Self { dir, settings }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn pack(&self) -> Pack {
        pack(&self.settings, "1.0.0").unwrap()
    }
}

/// Result of a call: the tool's own JSON, and its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) json: Json,
    pub(crate) text: String,
}

impl Given {
    pub(crate) fn value(&self) -> Value {
        self.json.to_value().unwrap()
    }
}

/// Calls a tool with arguments as they are written.
pub(crate) fn call_raw(pack: &Pack, tool: &str, arguments: &str) -> Result<Given, Problem> {
    let op = Op::Tool {
        name: tool.to_owned(),
        arguments: Json::parse(arguments).unwrap(),
        render: RenderMode::Porcelain,
    };
    match perform(pack, &op) {
        Answer::Tool(reply) => {
            let value = reply.json.to_value().unwrap();
            let broken = output_violations(pack, tool, &value);
            assert!(
                broken.is_empty(),
                "{tool} {arguments}: {value} breaks {broken:?}"
            );
            let text = reply.text.expect("every tool has porcelain");
            Ok(Given {
                json: reply.json,
                text,
            })
        }
        Answer::Failed(problem) => Err(problem),
        other => panic!("{other:?}"),
    }
}

/// Calls a tool.
pub(crate) fn call(pack: &Pack, tool: &str, arguments: &Value) -> Result<Given, Problem> {
    call_raw(pack, tool, &arguments.to_string())
}

/// The answer of a call that must succeed.
pub(crate) fn answer(pack: &Pack, tool: &str, arguments: &Value) -> Value {
    call(pack, tool, arguments).unwrap().value()
}

/// The kind and the tool's own JSON of a call that must fail.
pub(crate) fn refusal(pack: &Pack, tool: &str, arguments: &Value) -> (ErrorKind, Value) {
    let problem = match call(pack, tool, arguments) {
        Err(problem) => problem,
        Ok(given) => panic!("{tool} {arguments} is answered with {given:?}"),
    };
    let details = problem.details.expect("a tool's refusal has its own JSON");
    (problem.kind, details.to_value().unwrap())
}

/// Checks an answer as the host would.
pub(crate) fn output_violations(pack: &Pack, tool: &str, value: &Value) -> Vec<String> {
    let catalog = pack.catalog();
    let spec = catalog.tools.iter().find(|spec| spec.name == tool).unwrap();
    let schema = spec.output_schema.as_ref().expect("every tool has one");
    let validator = SchemaRegistry::new().compile(schema).unwrap();
    let violations = validator.check(value);
    violations
        .into_iter()
        .map(|found| format!("{found:?}"))
        .collect()
}

/// `{"ok": false, "reason": "validation_failed", "errors": [...]}`.
pub(crate) fn failed(errors: &[(&str, &str)]) -> Value {
    let errors: Vec<Value> = errors
        .iter()
        .map(|(path, msg)| json!({"path": path, "msg": msg}))
        .collect();
    json!({"ok": false, "reason": "validation_failed", "errors": errors})
}
