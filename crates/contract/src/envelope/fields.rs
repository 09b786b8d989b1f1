//! Reading an object strictly: known members only, each once, each of its type.

use std::fmt;

use thiserror::Error;

use crate::json::Json;
use crate::render::shorten;
use crate::scan::{self, ScanErrorKind};

/// Longest part of a sender's member name that an error repeats.
const NAME_SHOWN: usize = 64;

/// The first thing that is wrong with an envelope.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{kind}", At(.path))]
pub struct FieldError {
    /// JSON Pointer of the object or value; empty for the whole.
    pub path: String,
    pub kind: FieldErrorKind,
}

/// The mistake.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldErrorKind {
    #[error("it is not valid JSON (at byte {offset})")]
    NotJson { offset: usize },
    #[error("it is nested deeper than {limit} levels")]
    TooDeep { limit: usize },
    #[error("missing required member {0:?}")]
    Missing(&'static str),
    #[error("unknown member {0:?}")]
    Unknown(String),
    #[error("the member {0:?} is there twice")]
    Twice(String),
    #[error("expected {0}")]
    WrongType(&'static str),
    /// Of the right type, but not one of the values that are allowed.
    #[error("must be {0}")]
    WrongValue(&'static str),
    /// It says something else than another member.
    #[error("contradicts {0}")]
    Contradicts(&'static str),
}

struct At<'a>(&'a str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "{}: ", self.0)
        }
    }
}

pub(super) type Read<T> = Result<T, FieldError>;

/// The members of one object.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: String,
    values: Vec<(&'static str, &'a str)>,
}

/// One value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) raw: &'a str,
}

/// Checks that `text` is one object, and gives its text. A member twice at the top is refused here,
/// because nothing behind it can be relied on.
pub(super) fn document(text: &[u8], max_depth: usize) -> Read<&str> {
    scan::scan(text, max_depth)
        .map(|envelope| envelope.text.trim())
        .map_err(|error| FieldError {
            path: String::new(),
            kind: match error.kind {
                ScanErrorKind::BadJson => FieldErrorKind::NotJson {
                    offset: error.offset,
                },
                ScanErrorKind::NotAnObject => FieldErrorKind::WrongType("object"),
                ScanErrorKind::TooManyMembers => {
                    FieldErrorKind::WrongType("object with fewer members")
                }
                ScanErrorKind::TooDeep => FieldErrorKind::TooDeep { limit: max_depth },
                ScanErrorKind::DuplicateKey => {
                    FieldErrorKind::Twice(first_twice(text).unwrap_or_default())
                }
            },
        })
}

fn first_twice(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let mut seen = std::collections::BTreeSet::new();
    scan::members(text)
        .find(|(name, _)| !seen.insert(name.clone()))
        .map(|(name, _)| shorten(&name, NAME_SHOWN))
}

impl<'a> Fields<'a> {
    /// The members of the object `field`, of which only `known` are allowed.
    pub(super) fn of(field: &Field<'a>, known: &[&'static str]) -> Read<Self> {
        if !field.raw.starts_with('{') {
            return field.wrong_type("object");
        }
        let mut fields = Self {
            path: field.path.clone(),
            values: Vec::with_capacity(known.len()),
        };
        for (name, raw) in scan::members(field.raw) {
            let shown = || shorten(&name, NAME_SHOWN);
            let Some(known) = known.iter().find(|known| **known == name) else {
                return fields.wrong(FieldErrorKind::Unknown(shown()));
            };
            if fields.values.iter().any(|(seen, _)| seen == known) {
                return fields.wrong(FieldErrorKind::Twice(shown()));
            }
            fields.values.push((known, raw));
        }
        Ok(fields)
    }

    fn wrong<T>(&self, kind: FieldErrorKind) -> Read<T> {
        Err(FieldError {
            path: self.path.clone(),
            kind,
        })
    }

    pub(super) fn optional(&self, name: &'static str) -> Option<Field<'a>> {
        let (_, raw) = self.values.iter().find(|(known, _)| *known == name)?;
        Some(Field {
            path: format!("{}/{name}", self.path),
            raw,
        })
    }

    pub(super) fn required(&self, name: &'static str) -> Read<Field<'a>> {
        match self.optional(name) {
            Some(field) => Ok(field),
            None => self.wrong(FieldErrorKind::Missing(name)),
        }
    }
}

impl<'a> Field<'a> {
    /// The whole of a document.
    pub(super) const fn whole(raw: &'a str) -> Self {
        Self {
            path: String::new(),
            raw,
        }
    }

    pub(super) fn wrong<T>(&self, kind: FieldErrorKind) -> Read<T> {
        let path = self.path.clone();
        Err(FieldError { path, kind })
    }

    pub(super) fn wrong_type<T>(&self, wanted: &'static str) -> Read<T> {
        self.wrong(FieldErrorKind::WrongType(wanted))
    }

    pub(super) fn string(&self) -> Read<String> {
        match scan::unquote(self.raw) {
            Some(text) => Ok(text.into_owned()),
            None => self.wrong_type("string"),
        }
    }

    /// A string for which `good` holds; else it must be `wanted`.
    pub(super) fn string_that(
        &self,
        wanted: &'static str,
        good: impl FnOnce(&str) -> bool,
    ) -> Read<String> {
        let text = self.string()?;
        if good(&text) {
            Ok(text)
        } else {
            self.wrong(FieldErrorKind::WrongValue(wanted))
        }
    }

    pub(super) fn text(&self) -> Read<String> {
        self.string_that("a text that is not empty", |text| !text.is_empty())
    }

    /// A string that is one of a few words.
    pub(super) fn word<T>(
        &self,
        wanted: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Read<T> {
        match parse(&self.string()?) {
            Some(value) => Ok(value),
            None => self.wrong(FieldErrorKind::WrongValue(wanted)),
        }
    }

    pub(super) fn object(&self) -> Read<Json> {
        if self.raw.starts_with('{') {
            Ok(self.json())
        } else {
            self.wrong_type("object")
        }
    }

    /// Any JSON.
    pub(super) fn json(&self) -> Json {
        Json::from_scanned(self.raw)
    }

    /// The elements of an array.
    pub(super) fn elements(&self) -> Read<Vec<Field<'a>>> {
        // Raw elements keep their text, which is scanned already.
        let elements: Result<Vec<&'a serde_json::value::RawValue>, _> =
            serde_json::from_str(self.raw);
        match elements {
            Ok(elements) => Ok(elements
                .into_iter()
                .enumerate()
                .map(|(index, raw)| Field {
                    path: format!("{}/{index}", self.path),
                    raw: raw.get(),
                })
                .collect()),
            Err(_) => self.wrong_type("array"),
        }
    }
}
