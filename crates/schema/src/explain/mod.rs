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
mod noted;
mod probe;
mod walk;

use std::sync::{Arc, OnceLock};

use jsonschema::{Keyword, ValidationError, paths::Location};
use serde_json::{Map, Value};

pub(crate) use choose::first_finding;

use crate::{
    Limits, Violation, compile::contained, dialect::Dialect, link::Linked, patterns::Patterns,
    world::World,
};
use cut::{Cut, STOP, Stop};
use finding::{Finding, findings};
use probe::Probe;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    All,
    First,
}

/// The findings of an explanation, unsorted.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    /// Empty if it cannot be said.
    pub(crate) found: Vec<Violation>,
    /// Further places that fail for a reason that is not known.
    pub(crate) unexplained: usize,
    pub(crate) reach: Reach,
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

    /// The violations of `instance`.
    pub(crate) fn explain(&self, instance: &Value) -> Explained {
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
        let told = |error: &ValidationError<'_>| {
            findings(error, &form.schema, self.limits.explained_values)
        };
        let all = || -> Vec<Finding> {
            let errors = validator.iter_errors(value);
            errors.flat_map(|error| told(&error)).collect()
        };
        match reach {
            Reach::All => noted::noting(value, all).unwrap_or_else(all),
            Reach::First => {
                let first = validator.validate(value).err();
                first.map(|error| told(&error)).unwrap_or_default()
            }
        }
    }

    fn compile(&self, form: &Form) -> Option<jsonschema::Validator> {
        let probe = Arc::clone(&self.probe);
        let options = self.patterns.options(&self.limits).with_keyword(
            STOP,
            move |_: &Map<String, Value>, ids: &Value, _: Location| {
                let ids = ids.as_array().into_iter().flatten();
                Ok(Box::new(StopKeyword {
                    ids: ids
                        .filter_map(Value::as_u64)
                        .filter_map(|id| usize::try_from(id).ok())
                        .collect(),
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

/// Stands for what was cut out; its error names the stops that failed.
struct StopKeyword {
    ids: Vec<usize>,
    probe: Arc<Probe>,
}

impl StopKeyword {
    fn failed(&self, instance: &Value) -> impl Iterator<Item = usize> {
        let ids = self.ids.iter().copied();
        ids.filter(|id| !self.probe.passes(*id, instance))
    }
}

impl<'i> Keyword<'i> for StopKeyword {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if noted::note(instance, || self.failed(instance)) {
            return Ok(());
        }
        let failed: Vec<_> = self.failed(instance).map(|id| id.to_string()).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(ValidationError::custom(failed.join(",")))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.failed(instance).next().is_none()
    }
}
