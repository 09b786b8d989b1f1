//! True if a value passes a stop.
//!
//! One validator holds all stops, so that what they share is compiled once. Which of
//! them is asked for is told beside the value, in a cell of the thread: a keyword of
//! our own reads it, and conditions halve the stops until one is left. The value
//! itself is handed over as it is, never copied.

use std::cell::Cell;

use jsonschema::{Keyword, ValidationError, ValidationOptions, paths::Location};
use serde_json::{Map, Value, json};

use super::{
    cut::Stop,
    finding::{Finding, findings},
};
use crate::{compile::contained, link::Linked};

/// The keyword that holds while a stop before its number is asked for.
const BEFORE: &str = "x-mainstay-before";

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

pub(super) struct Probe(jsonschema::Validator);

impl Probe {
    pub(super) fn new(
        linked: &Linked,
        stops: &[Stop],
        options: ValidationOptions<'_>,
    ) -> Option<Self> {
        let options = options.with_keyword(
            BEFORE,
            |_: &Map<String, Value>, number: &Value, _: Location| {
                let number = number
                    .as_u64()
                    .and_then(|number| usize::try_from(number).ok());
                Ok(Box::new(Before(number.unwrap_or_default())) as Box<dyn for<'i> Keyword<'i>>)
            },
        );
        contained(|| linked.build_beside(&halved(stops, 0), options))
            .flatten()
            .map(Self)
    }

    pub(super) fn passes(&self, stop: usize, value: &Value) -> bool {
        ASKED.set(stop);
        self.0.is_valid(value)
    }

    /// The first error of one stop, for what only the whole schema can say. Unlike
    /// the yes-or-no check it does not remember what it has seen.
    pub(super) fn first_error(&self, stop: usize, value: &Value, limit: usize) -> Vec<Finding> {
        ASKED.set(stop);
        match self.0.validate(value) {
            Ok(()) => Vec::new(),
            Err(error) => findings(&error, &Value::Null, limit),
        }
    }
}

/// A schema that is the one of the stop asked for, the first of `stops` being `first`.
fn halved(stops: &[Stop], first: usize) -> Value {
    match stops {
        [] => Value::Bool(true),
        [only] => only.schema(),
        _ => {
            let (low, high) = stops.split_at(stops.len() / 2);
            let middle = first + low.len();
            json!({
                "if": {BEFORE: middle},
                "then": halved(low, first),
                "else": halved(high, middle),
            })
        }
    }
}

struct Before(usize);

impl<'i> Keyword<'i> for Before {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            Ok(())
        } else {
            Err(ValidationError::custom("another stop"))
        }
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        ASKED.get() < self.0
    }
}
