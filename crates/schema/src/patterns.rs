//! Patterns in bounded time.
//!
//! A schema whose patterns all run on the `regex` engine is compiled for that engine
//! and takes linear time. Look-around and back-references, which common generators do
//! write (for e-mail addresses, say), need a backtracking engine. It has a limit on
//! its backtracks, but look-ahead alone makes it quadratic, so long texts are not
//! given to it at all.
//!
//! A text that could not be decided makes the value invalid, wherever it stands: as
//! "does not match" it would slip through a `not`. The keyword therefore leaves a mark
//! that [`decided`] reads after the run.

use std::cell::Cell;

use jsonschema::{
    Keyword, PatternOptions, ValidationError, ValidationOptions,
    error::ValidationErrorKind as Kind, paths::Location,
};
use serde_json::{Map, Value, json};

use crate::{
    Limits,
    world::{Reached, World},
};

/// Which engine the patterns of a schema need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patterns {
    Linear,
    Backtracking {
        /// Some pattern for names does too.
        names: bool,
    },
}

/// The message of a pattern keyword's error when it could not decide. No pattern is
/// empty and fails.
const UNDECIDED: &str = "";

thread_local! {
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
}

impl Patterns {
    /// What the schema needs, if the linear engine did not take it.
    pub(crate) fn backtracking(world: &World, reach: &Reached, limits: &Limits) -> Self {
        let names = reach.schemas.iter().any(|at| {
            let schema = world.schema(at);
            let members = schema.and_then(|schema| schema.get("patternProperties")?.as_object());
            let mut members = members.into_iter().flatten();
            members.any(|(pattern, _)| {
                let options = linear(limits);
                options.build(&json!({"pattern": pattern})).is_err()
            })
        });
        Self::Backtracking { names }
    }

    /// How every schema is compiled.
    pub(crate) fn options(self, limits: &Limits) -> ValidationOptions<'static> {
        match self {
            Self::Linear => linear(limits),
            Self::Backtracking { .. } => {
                let limits = *limits;
                backtracking(&limits).with_keyword(
                    "pattern",
                    move |_: &Map<String, Value>, pattern: &Value, _: Location| {
                        PatternKeyword::compile(pattern, &limits)
                    },
                )
            }
        }
    }
}

/// Runs `check`; false also if a pattern in it could not be decided.
pub(crate) fn decided(check: impl FnOnce() -> bool) -> bool {
    GAVE_UP.set(false);
    check() && !GAVE_UP.get()
}

/// The pattern an error of our keyword is about; `None` if it could not decide.
pub(crate) fn broken(message: &str) -> Option<&str> {
    (message != UNDECIDED).then_some(message)
}

/// The place of the first object with a name of more than `limit` bytes.
pub(crate) fn long_name(value: &Value, limit: usize) -> Option<String> {
    match value {
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            if name.len() > limit {
                return Some(String::new());
            }
            long_name(member, limit).map(|rest| crate::keywords::join("", name) + &rest)
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| Some(format!("/{index}{}", long_name(item, limit)?))),
        _ => None,
    }
}

fn linear(limits: &Limits) -> ValidationOptions<'static> {
    jsonschema::options().offline().with_pattern_options(
        PatternOptions::regex()
            .size_limit(limits.pattern_bytes)
            .dfa_size_limit(limits.pattern_bytes),
    )
}

fn backtracking(limits: &Limits) -> ValidationOptions<'static> {
    jsonschema::options().offline().with_pattern_options(
        PatternOptions::fancy_regex()
            .backtrack_limit(limits.pattern_backtracks)
            .size_limit(limits.pattern_bytes)
            .dfa_size_limit(limits.pattern_bytes),
    )
}

/// `pattern` in a schema that needs the backtracking engine for some pattern.
struct PatternKeyword {
    pattern: String,
    engine: jsonschema::Validator,
    /// Bytes of the longest text this pattern may see.
    longest: usize,
}

impl PatternKeyword {
    fn compile<'a>(
        pattern: &'a Value,
        limits: &Limits,
    ) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
        let schema = json!({"pattern": pattern});
        let (engine, longest) = match linear(limits).build(&schema) {
            Ok(engine) => (engine, usize::MAX),
            Err(_) => (backtracking(limits).build(&schema)?, limits.pattern_text),
        };
        Ok(Box::new(Self {
            pattern: pattern.as_str().unwrap_or_default().to_owned(),
            engine,
            longest,
        }))
    }
}

impl<'i> Keyword<'i> for PatternKeyword {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        let error = match instance.as_str() {
            Some(text) if text.len() <= self.longest => match self.engine.validate(instance) {
                Ok(()) => return Ok(()),
                Err(error) => Some(error),
            },
            Some(_) => None,
            None => return Ok(()),
        };
        if error.is_some_and(|error| matches!(error.kind(), Kind::Pattern { .. })) {
            return Err(ValidationError::custom(self.pattern.as_str()));
        }
        GAVE_UP.set(true);
        Err(ValidationError::custom(UNDECIDED))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        // A match is the common case, and cheaper this way.
        match instance.as_str() {
            Some(text) if text.len() <= self.longest && self.engine.is_valid(instance) => true,
            Some(_) => self.validate(instance).is_ok(),
            None => true,
        }
    }
}
