//! The walk over arguments and schema together.
//!
//! It follows the arguments, so it ends where they end, however the schema refers to itself.

use serde_json::{Map, Number, Value};

use super::changes::{Changes, What};
use super::error::NormaliseError;
use super::pointer::Pointer;
use super::schema::{Kinds, Schemas, element, is_tuple, property};
use super::{PATH_FORMAT, PATH_MARKER, number, path};
use crate::uri;

/// How deep into the arguments the walk goes.
pub const DEPTH_MAX: usize = 64;

pub(super) fn apply(
    arguments: &mut Value,
    schemas: &Schemas<'_>,
    changes: &mut Changes,
) -> Result<(), NormaliseError> {
    let mut walk = Walk {
        schemas,
        pointer: Pointer::default(),
        depth: 0,
        changes,
    };
    walk.visit(arguments, &[schemas.root])
}

struct Walk<'w, 'a> {
    schemas: &'w Schemas<'a>,
    pointer: Pointer,
    depth: usize,
    changes: &'w mut Changes,
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
                    *value = better;
                }
            }
            Value::Number(number) => {
                if let Some(whole) = self.whole(number, place) {
                    *value = whole;
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
            let mark = self.pointer.enter_field(name);
            self.visit(value, &property(&conjuncts, name))?;
            self.pointer.leave(mark);
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
            let mark = self.pointer.enter_index(index);
            self.visit(value, &place)?;
            self.pointer.leave(mark);
        }
        Ok(())
    }

    fn string(&mut self, text: &str, place: &[&'a Value]) -> Result<Option<Value>, NormaliseError> {
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
        Ok(number.map(|number| {
            self.changes.push(
                self.pointer.as_str(),
                What::Number {
                    from: text.to_owned(),
                },
            );
            Value::Number(number)
        }))
    }

    /// The integer behind a number such as `5.0`, where only an integer can be valid: tools read it
    /// into a type that does not know fractions.
    fn whole(&mut self, number: &Number, place: &[&'a Value]) -> Option<Value> {
        let whole = number::whole(number)?;
        let kinds = self.schemas.admits(place).kinds;
        if !kinds.has(Kinds::INTEGER) || kinds.has(Kinds::FRACTION) {
            return None;
        }
        let from = number.to_string();
        self.changes
            .push(self.pointer.as_str(), What::Number { from });
        Some(Value::Number(whole))
    }

    fn path(&mut self, text: &str, place: &[&'a Value]) -> Result<Option<Value>, NormaliseError> {
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
        let (path, what) = match uri::file_path(text) {
            Some(Ok(path)) => (path::tidy(&path).into_owned(), What::file_uri(text)),
            Some(Err(problem)) => {
                let pointer = self.pointer.as_str().to_owned();
                return Err(NormaliseError::FileUri { pointer, problem });
            }
            None => match path::tidy(text) {
                std::borrow::Cow::Borrowed(_) => return Ok(None),
                std::borrow::Cow::Owned(path) => (path, What::path_style(text)),
            },
        };
        self.changes.push(self.pointer.as_str(), what);
        Ok(Some(Value::String(path)))
    }
}

fn is_path(object: &Map<String, Value>) -> bool {
    object
        .get("format")
        .is_some_and(|format| format == PATH_FORMAT)
        || object.get(PATH_MARKER) == Some(&Value::Bool(true))
}
