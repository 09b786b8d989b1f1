//! One error of a form, in our words.

use std::sync::Arc;

use jsonschema::{JsonType, JsonTypeSet, ValidationError, error::ValidationErrorKind as Kind};
use serde_json::{Map, Value};

use super::cut::STOP;
use crate::messages;

/// Something wrong at a place, the place relative to the value a form ran on.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A violation.
    Says { message: String, class: Class },
    /// A stop that failed.
    Stop(usize),
}

/// Evidence of a violation for the branch that was meant.
#[derive(Clone, Debug)]
pub(crate) enum Class {
    /// The value has another type.
    Types(JsonTypeSet),
    /// The value is not this one.
    Constant(Arc<Value>),
    /// The value is none of these.
    Enum(Arc<Value>),
    /// Members or items that nothing in a whole schema accounts for.
    Unevaluated,
    Other,
}

impl Class {
    /// The only values allowed, if the violation was about that.
    pub(crate) fn fixed(&self) -> Option<&[Value]> {
        match self {
            Self::Constant(value) => Some(std::slice::from_ref(value)),
            Self::Enum(values) => values.as_array().map(Vec::as_slice),
            Self::Types(_) | Self::Unevaluated | Self::Other => None,
        }
    }
}

/// `error`, raised by `schema`, as findings: one, or one for each failed stop, or
/// for each of the first `limit` unknown members.
pub(crate) fn findings(error: &ValidationError<'_>, schema: &Value, limit: usize) -> Vec<Finding> {
    let at = |what| Finding {
        path: error.instance_path().as_str().to_owned(),
        what,
    };
    if let Kind::Custom { keyword, message } = error.kind()
        && keyword == STOP
    {
        let stops = message.split(',').filter_map(|id| id.parse().ok());
        return stops.map(|id| at(What::Stop(id))).collect();
    }
    let class = match error.kind() {
        Kind::Type { kind } => Class::Types(messages::types(kind)),
        Kind::Constant { expected_value } => Class::Constant(Arc::clone(expected_value)),
        Kind::Enum { options } => Class::Enum(Arc::clone(options)),
        Kind::UnevaluatedItems { .. } | Kind::UnevaluatedProperties { .. } => Class::Unevaluated,
        _ => Class::Other,
    };
    messages::describe(error.kind(), holder(error, schema), limit)
        .into_iter()
        .map(|message| {
            at(What::Says {
                message,
                class: class.clone(),
            })
        })
        .collect()
}

/// The type of a value, as schemas name it.
pub(crate) fn type_of(value: &Value) -> JsonType {
    match value {
        Value::Null => JsonType::Null,
        Value::Bool(_) => JsonType::Boolean,
        Value::Number(number) if number.is_f64() => JsonType::Number,
        Value::Number(_) => JsonType::Integer,
        Value::String(_) => JsonType::String,
        Value::Array(_) => JsonType::Array,
        Value::Object(_) => JsonType::Object,
    }
}

/// The schema object that holds the keyword which raised `error`.
fn holder<'a>(error: &ValidationError<'_>, schema: &'a Value) -> Option<&'a Map<String, Value>> {
    let (holder, _) = error.schema_path().as_str().rsplit_once('/')?;
    schema.pointer(holder)?.as_object()
}
