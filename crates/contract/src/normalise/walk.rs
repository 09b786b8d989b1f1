//! The walk over arguments and schema together.
//!
//! It follows the arguments, so it ends where they end, however the schema refers to itself.

use serde_json::{Map, Number, Value};

use super::error::NormaliseError;
use super::schema::{Kinds, Schemas, element, is_tuple, property};
use super::{PATH_FORMAT, PATH_MARKER, number, path};
use crate::uri;

/// How deep into the arguments the walk goes.
pub const DEPTH_MAX: usize = 64;

/// Normalises every value. True if one was changed.
pub(super) fn apply(arguments: &mut Value, schemas: &Schemas<'_>) -> Result<bool, NormaliseError> {
    let mut walk = Walk {
        schemas,
        depth: 0,
        changed: false,
    };
    walk.visit(arguments, &[schemas.root])?;
    Ok(walk.changed)
}

struct Walk<'w, 'a> {
    schemas: &'w Schemas<'a>,
    depth: usize,
    changed: bool,
}

impl<'a> Walk<'_, 'a> {
    fn visit(&mut self, value: &mut Value, place: &[&'a Value]) -> Result<(), NormaliseError> {
        if place.is_empty() || self.depth == DEPTH_MAX {
            return Ok(());
        }
        self.depth += 1;
        match value {
            Value::Object(fields) => self.object(fields, place)?,
            Value::Array(elements) => self.array(elements, place)?,
            Value::String(text) => {
                if let Some(better) = self.string(text, place)? {
                    (*value, self.changed) = (better, true);
                }
            }
            Value::Number(number) => {
                if let Some(whole) = self.whole(number, place) {
                    (*value, self.changed) = (whole, true);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        self.depth -= 1;
        Ok(())
    }

    fn object(
        &mut self,
        fields: &mut Map<String, Value>,
        place: &[&'a Value],
    ) -> Result<(), NormaliseError> {
        let conjuncts = self.schemas.conjuncts(place, Kinds::OBJECT);
        for (name, value) in fields.iter_mut() {
            self.visit(value, &property(&conjuncts, name))
                .map_err(|error| error.within(name))?;
        }
        Ok(())
    }

    fn array(&mut self, elements: &mut [Value], place: &[&'a Value]) -> Result<(), NormaliseError> {
        let conjuncts = self.schemas.conjuncts(place, Kinds::ARRAY);
        let tuple = conjuncts.iter().any(|object| is_tuple(object));
        let mut place = element(&conjuncts, 0);
        for (index, value) in elements.iter_mut().enumerate() {
            if tuple {
                place = element(&conjuncts, index);
            }
            self.visit(value, &place)
                .map_err(|error| error.within(&index.to_string()))?;
        }
        Ok(())
    }

    fn string(&self, text: &str, place: &[&'a Value]) -> Result<Option<Value>, NormaliseError> {
        let admits = self.schemas.admits(place);
        if admits.kinds.has(Kinds::STRING) {
            return self.path(text, place);
        }
        if admits.names_strings {
            return Ok(None);
        }
        let whole = admits
            .kinds
            .has(Kinds::INTEGER)
            .then(|| number::integer(text))
            .flatten();
        let number = whole.or_else(|| {
            let fraction = admits.kinds.has(Kinds::FRACTION);
            fraction.then(|| number::decimal(text)).flatten()
        });
        Ok(number.map(Value::Number))
    }

    /// The integer behind a number such as `5.0`, where only an integer can be valid: tools read it
    /// into a type that does not know fractions.
    fn whole(&self, number: &Number, place: &[&'a Value]) -> Option<Value> {
        let whole = number::whole(number)?;
        let kinds = self.schemas.admits(place).kinds;
        if !kinds.has(Kinds::INTEGER) || kinds.has(Kinds::FRACTION) {
            return None;
        }
        Some(Value::Number(whole))
    }

    fn path(&self, text: &str, place: &[&'a Value]) -> Result<Option<Value>, NormaliseError> {
        let conjuncts = self.schemas.conjuncts(place, Kinds::STRING);
        let listed = |object: &Map<String, Value>| {
            let values = object
                .get("enum")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            values.chain(object.get("const")).any(|value| value == text)
        };
        if !conjuncts.iter().any(|object| is_path(object)) || conjuncts.iter().any(|o| listed(o)) {
            return Ok(None);
        }
        let path = match uri::file_path(text) {
            Some(Ok(path)) => path::tidy(&path).into_owned(),
            Some(Err(problem)) => {
                let pointer = String::new();
                return Err(NormaliseError::FileUri { pointer, problem });
            }
            None => match path::tidy(text) {
                std::borrow::Cow::Borrowed(_) => return Ok(None),
                std::borrow::Cow::Owned(path) => path,
            },
        };
        Ok(Some(Value::String(path)))
    }
}

fn is_path(object: &Map<String, Value>) -> bool {
    object
        .get("format")
        .is_some_and(|format| format == PATH_FORMAT)
        || object.get(PATH_MARKER) == Some(&Value::Bool(true))
}
