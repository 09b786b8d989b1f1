//! Why a value fails, in bounded time.
//!
//! `jsonschema` lists all errors of a value, but with every branch of every `anyOf`
//! and `oneOf`, each holding copies of the value, and it follows references without
//! remembering where it was: a recursive schema of three branches takes seconds to
//! explain a value eleven levels deep. Its yes-or-no check has no such problem.
//!
//! So the schema is cut ([`cut`]) into forms without references and alternatives; in
//! their place stands a stop. Running a form lists its own errors and the stops that
//! fail, as answered by the yes-or-no check. A failed stop is then explained by
//! running the form a reference leads to, or the best branch of an alternative
//! ([`choose`]). Each form runs at most once at each place of the value, and there is
//! a budget for all of them ([`walk`]).

mod choose;
mod cut;
mod finding;
mod walk;

use std::sync::{Arc, OnceLock};

use jsonschema::{Keyword, ValidationError, ValidationOptions, paths::Location};
use serde_json::{Map, Value, json};

pub(crate) use choose::first_finding;

use crate::{
    Limits, Violation, compile::contained, dialect::Dialect, link::Linked, patterns::Patterns,
    world::World,
};
use cut::{Cut, STOP, Stop};
use finding::{Finding, findings};

/// The cut schema of one validator.
pub(crate) struct Explainer {
    forms: Vec<Form>,
    stops: Vec<Stop>,
    probe: Arc<Probe>,
    linked: Linked,
    patterns: Patterns,
    in_place: u64,
    limits: Limits,
}

struct Form {
    schema: Value,
    dialect: Arc<Dialect>,
    validator: OnceLock<Option<jsonschema::Validator>>,
}

/// How many errors of a form are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    All,
    First,
}

impl Explainer {
    /// `None` if the schema cannot be cut within its limits.
    pub(crate) fn new(
        world: &World,
        patterns: Patterns,
        in_place: u64,
        limits: &Limits,
    ) -> Option<Self> {
        let reach = world.reach();
        let linked = Linked::new(world, &reach)?;
        let Cut { forms, stops } = cut::cut(world, &reach, &linked, limits)?;
        let starts = forms.iter().map(|form| form.at.clone()).collect();
        if linked.exceeds(world, &reach, starts, limits) {
            return None;
        }
        let probe = Arc::new(Probe::new(&linked, &stops, patterns.options(limits))?);
        let forms = forms
            .into_iter()
            .map(|form| Form {
                schema: form.schema,
                dialect: form.dialect,
                validator: OnceLock::new(),
            })
            .collect();
        Some(Self {
            forms,
            stops,
            probe,
            linked,
            patterns,
            in_place,
            limits: *limits,
        })
    }

    /// What is wrong with `instance`, unsorted. Empty if it cannot be said.
    pub(crate) fn violations(&self, instance: &Value) -> Vec<Violation> {
        walk::walk(self, instance)
    }

    /// The findings of one form about one value.
    fn run(&self, form: usize, value: &Value, reach: Reach) -> Vec<Finding> {
        let Some(form) = self.forms.get(form) else {
            return Vec::new();
        };
        let validator = form.validator.get_or_init(|| self.compile(form));
        let Some(validator) = validator else {
            return Vec::new();
        };
        match reach {
            Reach::All => validator
                .iter_errors(value)
                .flat_map(|error| findings(&error, &form.schema, self.limits.violations))
                .collect(),
            Reach::First => validator
                .validate(value)
                .err()
                .map(|error| findings(&error, &form.schema, self.limits.violations))
                .unwrap_or_default(),
        }
    }

    fn compile(&self, form: &Form) -> Option<jsonschema::Validator> {
        let probe = Arc::clone(&self.probe);
        let options = self.patterns.options(&self.limits).with_keyword(
            STOP,
            move |_: &Map<String, Value>, ids: &Value, _: Location| {
                let ids = ids.as_array().into_iter().flatten();
                Ok(Box::new(StopKeyword {
                    ids: ids.filter_map(Value::as_u64).collect(),
                    probe: Arc::clone(&probe),
                }) as Box<dyn for<'i> Keyword<'i>>)
            },
        );
        let mut schema = form.schema.clone();
        if let Value::Object(members) = &mut schema {
            members.insert("$schema".to_owned(), form.dialect.uri.as_str().into());
        }
        if form.dialect.derived {
            return contained(|| self.linked.build_beside(&schema, options)).flatten();
        }
        contained(|| options.build(&schema).ok()).flatten()
    }
}

/// Answers for each stop whether a value passes it. One validator holds all of them
/// as members of an object, so that what they share is compiled once.
struct Probe(jsonschema::Validator);

impl Probe {
    fn new(linked: &Linked, stops: &[Stop], options: ValidationOptions<'_>) -> Option<Self> {
        let members: Map<_, _> = stops
            .iter()
            .enumerate()
            .map(|(id, stop)| (id.to_string(), stop.schema()))
            .collect();
        let probe = json!({"properties": members});
        contained(|| linked.build_beside(&probe, options))
            .flatten()
            .map(Self)
    }

    fn failed(&self, ids: &[u64], value: &Value) -> Vec<u64> {
        // The value is copied once and moved from question to question.
        let mut value = value.clone();
        let mut failed = Vec::new();
        for id in ids {
            let mut question = Map::new();
            let name = id.to_string();
            question.insert(name.clone(), value);
            let mut question = Value::Object(question);
            if !self.0.is_valid(&question) {
                failed.push(*id);
            }
            value = question.get_mut(&name).map(Value::take).unwrap_or_default();
        }
        failed
    }

    /// The first error of one stop, for what only the whole schema can say. Unlike
    /// the yes-or-no check it does not remember what it has seen.
    fn first_error(&self, id: usize, value: &Value, limit: usize) -> Vec<Finding> {
        let name = id.to_string();
        let question = json!({ name: value });
        match self.0.validate(&question) {
            Ok(()) => Vec::new(),
            Err(error) => findings(&error, &Value::Null, limit),
        }
    }
}

/// Stands for what was cut out; its error names the stops that failed.
struct StopKeyword {
    ids: Vec<u64>,
    probe: Arc<Probe>,
}

impl<'i> Keyword<'i> for StopKeyword {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        let failed = self.probe.failed(&self.ids, instance);
        if failed.is_empty() {
            return Ok(());
        }
        let failed: Vec<_> = failed.iter().map(u64::to_string).collect();
        Err(ValidationError::custom(failed.join(",")))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.probe.failed(&self.ids, instance).is_empty()
    }
}
