//! The validators of one [`Definition`], and the rules of both owners.

use std::sync::Arc;

use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::normalise::normalise;
use mainstay_contract::render::RenderMode;
use mainstay_contract::scan;
use mainstay_contract::tool::{RENDER_ARGUMENT, REQUIRED_MARKER};
use serde_json::Value;

use super::free::Free;
use super::{Definition, Owner, Subject, Verdict, cost};
use crate::{SchemaRegistry, ToolValidators, Validator, Violation};

/// A compiled [`Definition`]. Clones share it.
#[derive(Clone, Debug)]
pub struct Compiled(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    definition: Definition,
    free: Free,
    rules: Sides,
}

#[derive(Debug)]
enum Sides {
    Pack {
        input_schema: Value,
        validators: ToolValidators,
    },
    Server {
        input: Side,
        output: Side,
    },
}

/// One schema of a server's tool.
#[derive(Debug)]
enum Side {
    /// There is none, or its check is switched off.
    Skipped,
    Checked(Validator),
    /// It does not compile.
    Broken(String),
}

impl Compiled {
    /// Compiles both schemas.
    ///
    /// # Errors
    ///
    /// The reason why a pack's tool cannot be served. A server's schema never fails: one that does
    /// not compile makes [`Compiled::run`] return [`Verdict::Unchecked`].
    pub fn compile(definition: &Definition) -> Result<Self, String> {
        // One registry for each, so that dropping the value frees everything.
        let registry = SchemaRegistry::new();
        let (free, rules) = match definition.side {
            Owner::Pack => {
                let read = |schema: &Json| schema.to_value().map_err(|error| error.to_string());
                let input_schema = definition.input.as_ref().map(read).transpose()?;
                let input_schema = input_schema.unwrap_or_default();
                let output = definition.output.as_ref().map(read).transpose()?;
                let validators = ToolValidators::compile(&registry, &input_schema, output.as_ref())
                    .map_err(|error| format!("{error}: {}", error.source))?;
                let free = Free::of(&definition.aliases, &input_schema);
                let rules = Sides::Pack {
                    input_schema,
                    validators,
                };
                (free, rules)
            }
            Owner::Server => {
                let side = |key: &str, schema: Option<&Json>| {
                    let Some(schema) = schema else {
                        return Side::Skipped;
                    };
                    let broken = |error: &dyn ToString| {
                        Side::Broken(format!("{key}: {}", error.to_string()))
                    };
                    match schema.to_value().map(|schema| registry.compile(&schema)) {
                        Ok(Ok(validator)) => Side::Checked(validator),
                        Ok(Err(error)) => broken(&error),
                        Err(error) => broken(&error),
                    }
                };
                let rules = Sides::Server {
                    input: side("inputSchema", definition.input.as_ref()),
                    output: side("outputSchema", definition.output.as_ref()),
                };
                (Free::default(), rules)
            }
        };
        Ok(Self(Arc::new(Inner {
            definition: definition.clone(),
            free,
            rules,
        })))
    }

    /// The first reason why [`Compiled::run`] skips a check: a server's schema that does not compile.
    pub fn unchecked(&self) -> Option<&str> {
        match &self.0.rules {
            Sides::Server { input, output } => input.broken().or(output.broken()),
            Sides::Pack { .. } => None,
        }
    }

    /// Checks one value.
    pub fn run(&self, subject: &Subject) -> Verdict {
        match (&self.0.rules, subject) {
            (
                Sides::Pack {
                    input_schema,
                    validators,
                },
                Subject::Arguments(raw),
            ) => self.prepare(input_schema, &validators.input, raw),
            (Sides::Pack { validators, .. }, Subject::Reply(reply)) => {
                check_reply(validators.output.as_ref(), reply)
            }
            (Sides::Pack { .. }, Subject::NoReply) => rejected("", EXPECTED_OBJECT),
            (Sides::Server { input, .. }, Subject::Arguments(value)) => input.check(Some(value)),
            (Sides::Server { output, .. }, Subject::Reply(value)) => output.check(Some(value)),
            (Sides::Server { output, .. }, Subject::NoReply) => output.check(None),
        }
    }

    /// True if [`Compiled::run`] is proven to be quick for this value: `cost` lists the conditions.
    pub fn is_cheap(&self, subject: &Subject) -> bool {
        let reads = match (&self.0.rules, subject) {
            (_, Subject::NoReply) => false,
            (Sides::Pack { .. }, _) => true,
            (Sides::Server { input, .. }, Subject::Arguments(_)) => input.is_checked(),
            (Sides::Server { output, .. }, Subject::Reply(_)) => output.is_checked(),
        };
        if !reads {
            return true;
        }
        let Some(profiles) = self.0.definition.profiles() else {
            return false;
        };
        match subject {
            Subject::Arguments(value) => {
                cost::is_cheap(profiles.input.as_ref(), &self.0.free, value)
            }
            Subject::Reply(value) => {
                cost::is_cheap(profiles.output.as_ref(), &Free::default(), value)
            }
            Subject::NoReply => true,
        }
    }

    /// Normalises and checks a pack's arguments, and takes `render` out of them.
    fn prepare(&self, schema: &Value, validator: &Validator, raw: &Json) -> Verdict {
        let free = &self.0.free;
        let mut value = match free.read(raw.as_str()) {
            Ok(value) => value,
            Err((path, message)) => return rejected(&path, &message),
        };
        let aliases: Vec<(&str, &str)> = self
            .0
            .definition
            .aliases
            .iter()
            .map(|(alias, canonical)| (alias.as_str(), canonical.as_str()))
            .collect();
        let changed = match normalise(&mut value, schema, &aliases) {
            Ok(changed) => changed,
            Err(error) => return rejected(&error.pointer(), &error.to_string()),
        };
        let violations = validator.check(&value);
        if !violations.is_empty() {
            let violations = match missing_in_own_words(schema, &value) {
                Some(own) => vec![own],
                None => violations,
            };
            return Verdict::Rejected { violations };
        }
        let given = value.get(RENDER_ARGUMENT);
        let render = given.and_then(Value::as_str).and_then(RenderMode::parse);
        let arguments = if !changed && given.is_none() {
            raw.clone()
        } else {
            let original = free.read(raw.as_str()).unwrap_or_default();
            rewrite(raw.as_str(), &original, &value)
        };
        Verdict::Prepared { arguments, render }
    }
}

const EXPECTED_OBJECT: &str = "expected object";

impl Side {
    /// Checks a server's value; `None` is a result without `structuredContent`.
    fn check(&self, value: Option<&Json>) -> Verdict {
        let validator = match self {
            Self::Skipped => return Verdict::Passed,
            Self::Broken(reason) => {
                return Verdict::Unchecked {
                    reason: reason.clone(),
                };
            }
            Self::Checked(validator) => validator,
        };
        let Some(value) = value else {
            return rejected("", "structuredContent is missing");
        };
        // A tree cannot hold every JSON text (1e400). The server decides about such a value.
        let Ok(value) = value.to_value() else {
            return Verdict::Passed;
        };
        verdict(validator.check(&value))
    }

    const fn is_checked(&self) -> bool {
        matches!(self, Self::Checked(_))
    }

    fn broken(&self) -> Option<&str> {
        match self {
            Self::Broken(reason) => Some(reason),
            Self::Skipped | Self::Checked(_) => None,
        }
    }
}

fn check_reply(validator: Option<&Validator>, reply: &Json) -> Verdict {
    let value = match reply.to_value() {
        Ok(value) if value.is_object() => value,
        Ok(_) => return rejected("", EXPECTED_OBJECT),
        Err(error) => return rejected("", &format!("it cannot be read ({error})")),
    };
    verdict(validator.map_or_else(Vec::new, |validator| validator.check(&value)))
}

fn verdict(violations: Vec<Violation>) -> Verdict {
    if violations.is_empty() {
        Verdict::Passed
    } else {
        Verdict::Rejected { violations }
    }
}

fn rejected(path: &str, message: &str) -> Verdict {
    Verdict::Rejected {
        violations: vec![violation(path, message)],
    }
}

fn violation(path: &str, message: &str) -> Violation {
    Violation {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}

/// The first argument that is missing or empty and whose schema has its own sentence for that.
fn missing_in_own_words(schema: &Value, arguments: &Value) -> Option<Violation> {
    let properties = schema.get("properties")?.as_object()?;
    let is_missing = |name: &str| match arguments.get(name) {
        None => true,
        Some(given) => given.as_str().is_some_and(str::is_empty),
    };
    properties
        .iter()
        .filter(|(name, _)| is_missing(name))
        .find_map(|(name, property)| {
            let words = property.get(REQUIRED_MARKER)?.as_str()?;
            Some(violation(&format!("/{name}"), words))
        })
}

/// The arguments to send: members that normalisation did not touch keep every byte.
fn rewrite(raw: &str, original: &Value, normalised: &Value) -> Json {
    let mut object = ObjectWriter::with_capacity(raw.len());
    for (key, value) in normalised.as_object().into_iter().flatten() {
        if key == RENDER_ARGUMENT {
            continue;
        }
        let untouched = (original.get(key) == Some(value))
            .then(|| scan::member(raw, key))
            .flatten();
        object = match untouched {
            Some(text) => object.raw(key, text),
            None => object.value(key, value),
        };
    }
    Json::from_scanned(&object.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Parts;
    use super::*;

    fn pack(input: &Value, output: Option<&Value>, aliases: &[(&str, &str)]) -> Compiled {
        let owned = |(alias, name): &(&str, &str)| ((*alias).to_owned(), (*name).to_owned());
        let definition = Definition::new(Parts {
            name: "t".to_owned(),
            input: Some(Json::from_serialize(input)),
            output: output.map(Json::from_serialize),
            aliases: aliases.iter().map(owned).collect(),
            side: Owner::Pack,
        });
        Compiled::compile(&definition).unwrap()
    }

    fn server(definition: &Value) -> Compiled {
        Compiled::compile(&Definition::of_server("t", definition, true, true)).unwrap()
    }

    fn arguments(text: &str) -> Subject {
        Subject::Arguments(Json::parse(text).unwrap())
    }

    fn reply(text: &str) -> Subject {
        Subject::Reply(Json::parse(text).unwrap())
    }

    fn first(verdict: Verdict) -> (String, String) {
        match verdict {
            Verdict::Rejected { violations } => {
                let first = violations.into_iter().next().unwrap();
                (first.path, first.message)
            }
            other => panic!("{other:?} is not a rejection"),
        }
    }

    fn prepared(text: &str, render: Option<RenderMode>) -> Verdict {
        Verdict::Prepared {
            arguments: Json::parse(text).unwrap(),
            render,
        }
    }

    #[test]
    fn a_missing_or_empty_argument_is_rejected_in_the_schemas_own_words() {
        let tool = pack(
            &json!({"type": "object", "required": ["asset", "schema"], "properties": {
                "asset": {},
                "schema": {"type": "string", "minLength": 1, REQUIRED_MARKER: "say which"}}}),
            None,
            &[],
        );
        let own = ("/schema".to_owned(), "say which".to_owned());
        for text in [r#"{"asset":1}"#, r#"{"schema":"","asset":1}"#, "{}"] {
            assert_eq!(first(tool.run(&arguments(text))), own, "{text}");
        }
        assert_eq!(
            first(tool.run(&arguments(r#"{"schema":7,"asset":1}"#))).0,
            "/schema"
        );
        let fits = r#"{"schema":"x","asset":1}"#;
        assert_eq!(tool.run(&arguments(fits)), prepared(fits, None));
    }

    #[test]
    fn untouched_arguments_keep_every_byte() {
        let input = json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "free": {}, "render": {"enum": ["porcelain", "json"]}}});
        let tool = pack(&input, None, &[("count", "n")]);
        let as_given = r#"{"free":{"a": 1.00, "\u0061":2},  "n":3}"#;
        assert_eq!(tool.run(&arguments(as_given)), prepared(as_given, None));
        let aliased = r#"{"free":[1.00, "\u0061"], "count":"7", "render":"json"}"#;
        let sent = r#"{"free":[1.00, "\u0061"],"n":7}"#;
        assert_eq!(
            tool.run(&arguments(aliased)),
            prepared(sent, Some(RenderMode::Json))
        );
        let porcelain = r#"{"render":"porcelain"}"#;
        assert_eq!(
            tool.run(&arguments(porcelain)),
            prepared("{}", Some(RenderMode::Porcelain))
        );
        let twice = first(tool.run(&arguments(r#"{"n":1,"count":2}"#)));
        assert!(!twice.1.is_empty());
        let huge = r#"{"free":1e400}"#;
        assert_eq!(
            tool.run(&arguments(huge)),
            Verdict::Prepared {
                arguments: Json::parse(huge).unwrap(),
                render: None
            }
        );
        let (path, message) = first(tool.run(&arguments(r#"{"n":1e400}"#)));
        assert_eq!(
            (path.as_str(), message.as_str()),
            ("/n", "number is out of range")
        );
    }

    #[test]
    fn a_packs_reply_is_an_object_that_fits_its_schema() {
        let input = json!({"type": "object"});
        let output = json!({"type": "object", "required": ["n"]});
        let typed = pack(&input, Some(&output), &[]);
        let untyped = pack(&input, None, &[]);
        assert_eq!(typed.run(&reply(r#"{"n":1}"#)), Verdict::Passed);
        assert_eq!(untyped.run(&reply("{}")), Verdict::Passed);
        assert_ne!(typed.run(&reply("{}")), Verdict::Passed);
        let expected = (String::new(), "expected object".to_owned());
        for tool in [&typed, &untyped] {
            assert_eq!(first(tool.run(&reply("[1]"))), expected);
            assert_eq!(first(tool.run(&Subject::NoReply)), expected);
        }
    }

    #[test]
    fn a_pack_with_a_broken_schema_does_not_compile() {
        for (input, output) in [
            (json!({"type": "objekt"}), None),
            (json!({}), None),
            (json!({"type": "object"}), Some(json!({"type": "text"}))),
        ] {
            let definition = Definition::new(Parts {
                name: "t".to_owned(),
                input: Some(Json::from_serialize(&input)),
                output: output.as_ref().map(Json::from_serialize),
                aliases: Vec::new(),
                side: Owner::Pack,
            });
            let reason = Compiled::compile(&definition).unwrap_err();
            assert!(reason.contains("schema cannot be used"), "{reason}");
        }
    }

    #[test]
    fn a_servers_arguments_are_checked_where_the_schema_compiles() {
        let tool = server(&json!({"inputSchema": {"type": "object",
            "properties": {"n": {"type": "integer"}}, "required": ["n"]}}));
        assert_eq!(tool.run(&arguments(r#"{"n":1}"#)), Verdict::Passed);
        assert_eq!(first(tool.run(&arguments(r#"{"n":"00713"}"#))).0, "/n");
        assert_ne!(tool.run(&arguments("{}")), Verdict::Passed);
        assert_eq!(tool.run(&arguments(r#"{"n":1e400}"#)), Verdict::Passed);
        let broken = server(&json!({"inputSchema": {"type": "objekt"}, "outputSchema": {}}));
        let Verdict::Unchecked { reason } = broken.run(&arguments("{}")) else {
            panic!("a broken schema was used");
        };
        assert!(reason.starts_with("inputSchema: "), "{reason}");
        assert_eq!(broken.unchecked(), Some(reason.as_str()));
        assert_eq!(broken.run(&reply("7")), Verdict::Passed);
    }

    #[test]
    fn a_servers_result_must_have_structured_content_if_it_promises_some() {
        let typed = server(&json!({"outputSchema": {"type": "object", "required": ["n"]}}));
        let missing = (String::new(), "structuredContent is missing".to_owned());
        assert_eq!(first(typed.run(&Subject::NoReply)), missing);
        assert_eq!(typed.run(&reply(r#"{"n":1}"#)), Verdict::Passed);
        assert_ne!(typed.run(&reply("{}")), Verdict::Passed);
        let untyped = server(&json!({}));
        assert_eq!(untyped.run(&Subject::NoReply), Verdict::Passed);
        assert_eq!(untyped.run(&arguments("[]")), Verdict::Passed);
    }
}
