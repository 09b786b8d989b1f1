//! The checks around a call: arguments before dispatch, the answer after it.

use mainstay_contract::dialect::Dialect;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::normalise::{Aliases, Rules, normalise};
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::render::{Bounds, RenderMode, bound};
use mainstay_contract::rpc::{self, Answer};
use mainstay_contract::scan;
use mainstay_contract::telemetry::{SchemaMismatch, Side};
use mainstay_contract::tool::{RENDER_ARGUMENT, REQUIRED_MARKER, Rejections};
use mainstay_schema::{Verdict, Violation};
use serde_json::{Value, json};

use super::{Directory, Tool};

/// Arguments that may be sent.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) arguments: Json,
    pub(super) render: RenderMode,
}

/// Arguments that may not.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) problem: Problem,
    pub(super) mismatch: Option<SchemaMismatch>,
}

impl Directory {
    /// Normalises and checks a call's arguments, and takes our own argument out.
    pub(super) fn prepare(
        &self,
        tool: &Tool,
        dialect: Dialect,
        raw: &Json,
    ) -> Result<Prepared, Box<Rejected>> {
        let mut value = match tool.free.read(raw.as_str()) {
            Ok(value) => value,
            Err(error) => return Err(reject(tool, &[violation("", &error.to_string())])),
        };
        let aliases: Vec<(&str, &str)> = tool
            .spec
            .argument_aliases
            .iter()
            .map(|(alias, canonical)| (alias.as_str(), canonical.as_str()))
            .collect();
        let rules = Rules {
            aliases: Aliases { fields: &aliases },
        };
        let changes = match normalise(&mut value, &tool.full_schema, &rules) {
            Ok(changes) => changes,
            Err(error) => {
                return Err(reject(
                    tool,
                    &[violation(&error.pointer(), &error.to_string())],
                ));
            }
        };
        match tool.validators.input.verdict(&value) {
            Verdict::Valid => {}
            Verdict::Invalid(violations) => {
                let own = missing_in_own_words(&tool.full_schema, &value);
                return Err(match own {
                    Some(own) => reject(tool, &[own]),
                    None => reject(tool, &violations),
                });
            }
            Verdict::NotChecked(why) => {
                return Err(Box::new(Rejected {
                    problem: not_checked(&why),
                    mismatch: None,
                }));
            }
        }
        let render = match (value.get(RENDER_ARGUMENT).and_then(Value::as_str), dialect) {
            (Some("json"), _) | (None, Dialect::Direct | Dialect::Envelope | Dialect::Rest) => {
                RenderMode::Json
            }
            (Some(_), Dialect::Direct | Dialect::Envelope | Dialect::Rest) => {
                let said = "must be \"json\" outside MCP";
                return Err(reject(tool, &[violation("/render", said)]));
            }
            (Some(_), _) => RenderMode::Porcelain,
            (None, _) => self.render,
        };
        let has_render = value.get(RENDER_ARGUMENT).is_some();
        let arguments = if changes.is_empty() && !has_render {
            raw.clone()
        } else {
            let original = tool.free.read(raw.as_str()).unwrap_or_default();
            rewrite(raw.as_str(), &original, &value)
        };
        Ok(Prepared { arguments, render })
    }

    /// Checks and bounds an answer against the contract of the tool that gave it.
    pub(crate) fn check_answer(
        &self,
        op: &rpc::Op,
        answer: Answer,
    ) -> (Answer, Option<SchemaMismatch>) {
        let (rpc::Op::Tool { name, .. } | rpc::Op::Probe { name, .. }) = op else {
            return (answer, None);
        };
        match answer {
            Answer::Tool(reply) => match self.check_reply(name, reply) {
                Ok(reply) => (Answer::Tool(reply), None),
                Err(wrong) => {
                    let (problem, mismatch) = *wrong;
                    (Answer::Failed(problem), Some(mismatch))
                }
            },
            Answer::Probed(rpc::Probed::Applied(reply)) => match self.check_reply(name, reply) {
                Ok(reply) => (Answer::Probed(rpc::Probed::Applied(reply)), None),
                Err(wrong) => (Answer::Probed(rpc::Probed::Unknown {}), Some(wrong.1)),
            },
            other => (other, None),
        }
    }

    fn check_reply(
        &self,
        name: &str,
        mut reply: ToolReply,
    ) -> Result<ToolReply, Box<(Problem, SchemaMismatch)>> {
        let wrong = |violation: Violation| {
            let message = format!(
                "{}: {} {}",
                ErrorKind::InvalidOutput.row().message,
                violation.path,
                violation.message
            );
            let problem = Problem::new(ErrorKind::InvalidOutput, message);
            Box::new((problem, mismatch(name, Side::Output, &violation)))
        };
        let value = match reply.json.to_value() {
            Ok(value) if value.is_object() => value,
            Ok(_) => return Err(wrong(violation("", "expected object"))),
            Err(error) => return Err(wrong(violation("", &error.to_string()))),
        };
        let output = self
            .tools
            .get(name)
            .and_then(|tool| tool.validators.output.as_ref());
        // A result that was not checked may be right.
        if let Some(output) = output
            && let Verdict::Invalid(violations) = output.verdict(&value)
            && let Some(first) = violations.into_iter().next()
        {
            return Err(wrong(first));
        }
        if let Some(text) = reply.text.take() {
            let bounds = Bounds {
                lines: self.limits.porcelain_lines,
                bytes: self.limits.porcelain_bytes,
            };
            reply.text = Some(bound(&text, bounds).text);
        }
        Ok(reply)
    }
}

/// The rejection of arguments whose check did not end.
pub(crate) fn not_checked(why: &Violation) -> Problem {
    let problem = Problem::new(
        ErrorKind::Unsupported,
        format!("the arguments: {}", why.message),
    );
    problem.with_hint("send fewer or shorter texts in one call")
}

fn reject(tool: &Tool, violations: &[Violation]) -> Box<Rejected> {
    let first = violations
        .first()
        .map(|violation| mismatch(&tool.spec.name, Side::Input, violation));
    let said = match violations.first() {
        Some(Violation { path, message }) if path.is_empty() => format!(": {message}"),
        Some(Violation { path, message }) => format!(": {path} {message}"),
        None => String::new(),
    };
    let kind = ErrorKind::InvalidArguments;
    let problem = Problem::new(kind, format!("{}{said}", kind.row().message));
    let mut own = json!({ "ok": false, "reason": kind.row().reason, "errors": violations });
    if let (Rejections::Coded, Some(own)) = (tool.spec.rejections, own.as_object_mut()) {
        own.insert("code".to_owned(), json!(kind.row().code.as_str()));
        own.insert("message".to_owned(), json!(problem.sentence()));
        own.extend(
            problem
                .hint
                .iter()
                .map(|hint| ("hint".to_owned(), json!(hint))),
        );
    }
    Box::new(Rejected {
        problem: problem.with_details(own.into()),
        mismatch: first,
    })
}

/// The first argument that is missing or empty and whose schema says what to tell then.
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

fn violation(path: &str, message: &str) -> Violation {
    Violation {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}

fn mismatch(tool: &str, side: Side, violation: &Violation) -> SchemaMismatch {
    SchemaMismatch {
        tool: tool.to_owned(),
        side,
        path: violation.path.clone(),
        message: violation.message.clone(),
    }
}

/// The arguments as they are sent: members that normalisation did not touch stay byte for byte.
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
    use super::*;

    #[test]
    fn a_missing_or_empty_argument_is_told_in_the_schemas_own_words() {
        let schema = json!({"properties": {
            "asset": {}, "schema": {"type": "string", REQUIRED_MARKER: "say which"}}});
        let told = |arguments: Value| missing_in_own_words(&schema, &arguments);
        let own = Some(violation("/schema", "say which"));
        assert_eq!(told(json!({"asset": 1})), own);
        assert_eq!(told(json!({"schema": ""})), own);
        assert_eq!(told(json!({})), own);
        assert_eq!(told(json!({"schema": 7})), None);
        assert_eq!(told(json!({"schema": "x"})), None);
    }
}
