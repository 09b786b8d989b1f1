//! Patterns in bounded time.
//!
//! A schema whose patterns all run on the `regex` engine is compiled for that engine
//! and takes linear time. Look-around and back-references, which common generators do
//! write (for e-mail addresses, say), need a backtracking engine. It has a limit on
//! its backtracks, but look-ahead alone makes it quadratic, so long texts are not
//! given to it at all.
//!
//! A text that could not be decided makes the whole run undecided, wherever it stands: as
//! "does not match" it would slip through a `not`. The keyword therefore leaves a mark
//! that [`run`] reads afterwards.
//!
//! All runs of that engine for one value share one budget of steps. Once it is spent no
//! further text is tried, and the value counts as not checked.

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
        /// Patterns for names that do too.
        names: u64,
    },
}

/// How a run of a validator ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Valid,
    Invalid,
    /// A pattern could not be decided. Taken for a failure, it makes the value valid or not.
    Undecided {
        valid: bool,
    },
    /// The budget of steps was spent before the end.
    OutOfSteps,
}

/// The result for a text that a pattern could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    Fails,
    /// It counts as a match, and the run as decided: shows what else is wrong.
    Passes,
}

/// The message of a pattern keyword's error when it could not decide. No pattern is
/// empty and fails.
const UNDECIDED: &str = "";

/// Steps of the shortest run of the backtracking engine, as bytes looked at.
const RUN_STEPS: u64 = 2_000;

thread_local! {
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
    static UNDECIDED_COUNTS: Cell<Undecided> = const { Cell::new(Undecided::Fails) };
    /// The budget left for the current value; `None` once it is spent.
    static STEPS_LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

impl Patterns {
    /// The backtracking pattern, if the linear engine rejected it.
    pub(crate) fn backtracking(world: &World, reach: &Reached, limits: &Limits) -> Self {
        let names = reach.schemas.iter().map(|at| {
            let schema = world.schema(at);
            let members = schema.and_then(|schema| schema.get("patternProperties")?.as_object());
            let members = members.into_iter().flatten();
            let hard = members.filter(|(pattern, _)| {
                let options = linear(limits);
                options.build(&json!({"pattern": pattern})).is_err()
            });
            hard.count() as u64
        });
        Self::Backtracking { names: names.sum() }
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

/// Runs `check` with a budget of steps.
pub(crate) fn run(steps: u64, undecided: Undecided, check: impl FnOnce() -> bool) -> Ran {
    GAVE_UP.set(false);
    UNDECIDED_COUNTS.set(undecided);
    STEPS_LEFT.set(Some(steps));
    let valid = check();
    UNDECIDED_COUNTS.set(Undecided::Fails);
    match STEPS_LEFT.get() {
        None => Ran::OutOfSteps,
        Some(_) if GAVE_UP.get() => Ran::Undecided { valid },
        Some(_) if valid => Ran::Valid,
        Some(_) => Ran::Invalid,
    }
}

/// Takes the steps of `runs` runs over a text from the budget. False if that spends it; from then
/// on always.
fn spend(length: usize, runs: u64) -> bool {
    let length = length as u64;
    let cost = length
        .saturating_mul(length)
        .saturating_add(RUN_STEPS)
        .saturating_mul(runs);
    let left = STEPS_LEFT.get().and_then(|left| left.checked_sub(cost));
    STEPS_LEFT.set(left);
    #[cfg(test)]
    tests::RUNS.set(tests::RUNS.get() + u64::from(left.is_some()) * runs);
    left.is_some()
}

/// Takes the steps of `patterns` patterns on every name in `value` from the budget. False if that
/// spends it.
pub(crate) fn spend_on_names(value: &Value, patterns: u64) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .all(|(name, member)| spend(name.len(), patterns) && spend_on_names(member, patterns)),
        Value::Array(items) => items.iter().all(|item| spend_on_names(item, patterns)),
        _ => true,
    }
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

impl PatternKeyword {
    /// True if the engine may be run on a text; its steps are spent then.
    fn may_see(&self, text: &str) -> bool {
        let is_linear = self.longest == usize::MAX;
        is_linear || (text.len() <= self.longest && spend(text.len(), 1))
    }
}

impl<'i> Keyword<'i> for PatternKeyword {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        let error = match instance.as_str() {
            Some(text) if self.may_see(text) => match self.engine.validate(instance) {
                Ok(()) => return Ok(()),
                Err(error) => Some(error),
            },
            Some(_) => None,
            None => return Ok(()),
        };
        if error.is_some_and(|error| matches!(error.kind(), Kind::Pattern { .. })) {
            return Err(ValidationError::custom(self.pattern.as_str()));
        }
        if UNDECIDED_COUNTS.get() == Undecided::Passes {
            return Ok(());
        }
        GAVE_UP.set(true);
        Err(ValidationError::custom(UNDECIDED))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        // A match is the common case, and cheaper this way.
        match instance.as_str() {
            Some(text) if self.may_see(text) && self.engine.is_valid(instance) => true,
            Some(_) => self.validate(instance).is_ok(),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SchemaRegistry, Validator, Verdict};

    thread_local! {
        /// Runs of the backtracking engine that were allowed.
        pub(super) static RUNS: Cell<u64> = const { Cell::new(0) };
    }

    fn compile(schema: &Value, steps: u64) -> Validator {
        let mut limits = Limits::DEFAULT;
        limits.pattern_steps = steps;
        let registry = SchemaRegistry::with_limits(limits);
        registry.compile(schema).unwrap()
    }

    /// The verdict, and the runs that it took.
    fn judged(validator: &Validator, value: &Value) -> (Verdict, u64) {
        RUNS.set(0);
        let verdict = validator.verdict(value);
        (verdict, RUNS.get())
    }

    #[test]
    fn many_texts_and_many_patterns_share_one_budget() {
        let patterns: Vec<Value> = (0..50)
            .map(|number| json!({"pattern": format!("(?=a)a*bz|c{number}$")}))
            .collect();
        let texts = vec!["aaaaaaaaaa"; 20_000];
        let most = Limits::DEFAULT.pattern_steps / RUN_STEPS;
        for form in ["allOf", "anyOf"] {
            let schema = json!({"items": {form: patterns}});
            let validator = compile(&schema, Limits::DEFAULT.pattern_steps);
            let all = json!([texts.as_slice(), &["c0", "b"]].concat());
            let (verdict, runs) = judged(&validator, &all);
            assert!(runs <= 2 * most, "{form}: {runs}");
            assert_ne!(verdict, Verdict::Valid);
        }
        let never = compile(
            &json!({"items": {"not": {"anyOf": patterns}}}),
            Limits::DEFAULT.pattern_steps,
        );
        let (verdict, runs) = judged(&never, &json!(texts));
        assert!(runs <= most, "{runs}");
        assert!(matches!(verdict, Verdict::NotChecked(_)), "{verdict:?}");
        assert!(!never.is_valid(&json!(texts)));
        assert_eq!(never.check(&json!(texts)).len(), 1);
    }

    #[test]
    fn exactly_the_budget_is_enough() {
        let schema = json!({"items": {"pattern": "^(?=a)a*$"}});
        let texts = json!(["aaa", "aaa"]);
        let cost = 2 * (RUN_STEPS + 9);
        assert_eq!(judged(&compile(&schema, cost), &texts), (Verdict::Valid, 2));
        let (verdict, runs) = judged(&compile(&schema, cost - 1), &texts);
        assert!(matches!(verdict, Verdict::NotChecked(_)), "{verdict:?}");
        assert_eq!(runs, 1);
        let next = judged(&compile(&schema, cost), &texts);
        assert_eq!(next.0, Verdict::Valid, "each value has a budget of its own");
    }

    #[test]
    fn names_count_as_texts() {
        let schema = json!({"patternProperties": {"^(?=a)a*$": {"type": "null"}}});
        let value = json!({"a": null, "b": {"a": 1}});
        let cost = 3 * (RUN_STEPS + 1);
        assert_eq!(judged(&compile(&schema, cost), &value).0, Verdict::Valid);
        let (verdict, _) = judged(&compile(&schema, cost - 1), &value);
        assert!(matches!(verdict, Verdict::NotChecked(_)), "{verdict:?}");
    }
}
