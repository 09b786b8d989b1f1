//! JSON Patch (RFC 6902) as its specification says, for checking ours.
//!
//! It shares nothing with the pack: documents are read one level at a time by `serde_json`, and
//! numbers are their texts.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doc {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Doc>),
    Object(BTreeMap<String, Doc>),
}

impl Doc {
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim();
        let raws = |text| serde_json::from_str::<Vec<&RawValue>>(text).unwrap();
        match text.as_bytes()[0] {
            b'n' => Self::Null,
            b't' => Self::Bool(true),
            b'f' => Self::Bool(false),
            b'"' => Self::Text(serde_json::from_str(text).unwrap()),
            b'[' => Self::List(
                raws(text)
                    .iter()
                    .map(|raw| Self::parse(raw.get()))
                    .collect(),
            ),
            b'{' => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap();
                let members = members.into_iter();
                Self::Object(
                    members
                        .map(|(key, raw)| (key, Self::parse(raw.get())))
                        .collect(),
                )
            }
            _ => Self::Number(text.to_owned()),
        }
    }

    fn member(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(key),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of a list.
    pub(crate) fn elements(&self) -> &[Self] {
        match self {
            Self::List(elements) => elements,
            _ => &[],
        }
    }
}

/// Applies operations one after the other.
pub(crate) fn apply<'a>(
    document: &Doc,
    operations: impl IntoIterator<Item = &'a Doc>,
) -> Result<Doc, String> {
    let mut document = document.clone();
    for operation in operations {
        step(&mut document, operation)?;
    }
    Ok(document)
}

fn step(document: &mut Doc, operation: &Doc) -> Result<(), String> {
    let text = |key: &str| {
        let found = operation.member(key).and_then(Doc::text);
        found.ok_or_else(|| format!("no text {key}"))
    };
    let value = || {
        operation
            .member("value")
            .cloned()
            .ok_or("no value".to_owned())
    };
    let path = pointer(text("path")?)?;
    match text("op")? {
        "add" => add(document, &path, value()?),
        "remove" => remove(document, &path).map(|_| ()),
        "replace" => {
            *find_mut(document, &path)? = value()?;
            Ok(())
        }
        "test" => match find(document, &path)? {
            found if *found == value()? => Ok(()),
            found => Err(format!("test: {found:?}")),
        },
        "copy" => {
            let copied = find(document, &pointer(text("from")?)?)?.clone();
            add(document, &path, copied)
        }
        "move" => {
            let from = pointer(text("from")?)?;
            if path.len() > from.len() && path.starts_with(&from) {
                return Err("moved into itself".to_owned());
            }
            let moved = remove(document, &from)?;
            add(document, &path, moved)
        }
        other => Err(format!("unknown operation {other}")),
    }
}

/// The parts of a pointer.
fn pointer(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let parts = text.strip_prefix('/').ok_or("a pointer begins with /")?;
    parts
        .split('/')
        .map(|part| {
            let rest = part.replace("~0", "").replace("~1", "");
            if rest.contains('~') {
                return Err(format!("bad escape in {text}"));
            }
            Ok(part.replace("~1", "/").replace("~0", "~"))
        })
        .collect()
}

fn index(part: &str, limit: usize) -> Result<usize, String> {
    let plain = part == "0" || !part.starts_with('0');
    let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || !digits {
        return Err(format!("{part} is not an index"));
    }
    let index: usize = part.parse().map_err(|_| "too large".to_owned())?;
    (index < limit)
        .then_some(index)
        .ok_or(format!("{index} is out of bounds"))
}

fn find<'a>(document: &'a Doc, path: &[String]) -> Result<&'a Doc, String> {
    path.iter().try_fold(document, |at, part| match at {
        Doc::Object(members) => members.get(part).ok_or(format!("no member {part}")),
        Doc::List(elements) => Ok(&elements[index(part, elements.len())?]),
        _ => Err(format!("nothing below {at:?}")),
    })
}

fn find_mut<'a>(document: &'a mut Doc, path: &[String]) -> Result<&'a mut Doc, String> {
    path.iter().try_fold(document, |at, part| match at {
        Doc::Object(members) => members.get_mut(part).ok_or(format!("no member {part}")),
        Doc::List(elements) => {
            let index = index(part, elements.len())?;
            Ok(&mut elements[index])
        }
        other => Err(format!("nothing below {other:?}")),
    })
}

fn add(document: &mut Doc, path: &[String], value: Doc) -> Result<(), String> {
    let Some((last, parent)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    match find_mut(document, parent)? {
        Doc::Object(members) => {
            members.insert(last.clone(), value);
            Ok(())
        }
        Doc::List(elements) => {
            let at = match last.as_str() {
                "-" => elements.len(),
                last => index(last, elements.len() + 1)?,
            };
            elements.insert(at, value);
            Ok(())
        }
        other => Err(format!("nothing below {other:?}")),
    }
}

fn remove(document: &mut Doc, path: &[String]) -> Result<Doc, String> {
    let Some((last, parent)) = path.split_last() else {
        return Ok(std::mem::replace(document, Doc::Null));
    };
    match find_mut(document, parent)? {
        Doc::Object(members) => members.remove(last).ok_or(format!("no member {last}")),
        Doc::List(elements) => {
            let at = index(last, elements.len())?;
            Ok(elements.remove(at))
        }
        other => Err(format!("nothing below {other:?}")),
    }
}
