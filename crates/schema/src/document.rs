//! One schema document: its resources, its anchors, and where references lead.
//!
//! `jsonschema` resolves references for validation. We need to know where they lead
//! for three things it does not do: to bound the work of a schema before it runs, to
//! name the place of a broken reference, and to explain a failure step by step. A
//! reference that this module cannot follow is never an error here.

use std::collections::{HashMap, HashSet};

use jsonschema::{Draft, uri};
use serde_json::{Map, Value};

use crate::keywords::subschemas;

/// The URI a document without `$id` has.
const HOME: &str = "mainstay:///schema";

#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) root: &'a Value,
    pub(crate) draft: Draft,
    /// The URI of each resource, by the pointer of its root.
    bases: HashMap<String, String>,
    /// The pointer of each resource's root, by URI.
    resources: HashMap<String, String>,
    /// Pointers of anchors, by the resource's pointer and the name.
    anchors: HashMap<(String, String), String>,
}

/// A reference and the schema object that holds it.
#[derive(Debug)]
pub(crate) struct Reference<'a> {
    pub(crate) pointer: String,
    pub(crate) text: &'a str,
}

impl<'a> Document<'a> {
    pub(crate) fn new(root: &'a Value, draft: Draft) -> Self {
        let mut document = Self {
            root,
            draft,
            bases: HashMap::from([(String::new(), HOME.to_owned())]),
            resources: HashMap::from([(HOME.to_owned(), String::new())]),
            anchors: HashMap::new(),
        };
        document.index();
        document
    }

    /// Whether keywords beside a `$ref` count.
    pub(crate) fn refs_have_siblings(&self) -> bool {
        !matches!(self.draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
    }

    /// The pointer of the schema that `reference`, found at the pointer `from`, leads
    /// to, if it stays in this document.
    pub(crate) fn resolve(&self, from: &str, reference: &str) -> Option<String> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = self.resource_of(from);
        let resource = if address.is_empty() {
            resource
        } else {
            let base = uri::from_str(self.bases.get(resource)?).ok()?;
            let target = uri::resolve_against(&base.borrow(), address).ok()?;
            self.resources.get(target.as_str())?
        };
        let fragment = percent_decoded(fragment)?;
        let pointer = if fragment.is_empty() || fragment.starts_with('/') {
            format!("{resource}{fragment}")
        } else {
            self.anchors
                .get(&(resource.to_owned(), fragment))?
                .to_owned()
        };
        self.root.pointer(&pointer).map(|_| pointer)
    }

    /// The URI of the document.
    pub(crate) fn home(&self) -> &str {
        self.bases.get("").map_or(HOME, String::as_str)
    }

    /// The URI of the schema at `pointer`. It starts from the resource around it: a
    /// pointer that crosses into another resource is not portable.
    pub(crate) fn address(&self, pointer: &str) -> String {
        let resource = self.resource_of(pointer);
        let base = self.bases.get(resource).map_or(HOME, String::as_str);
        let rest = pointer.strip_prefix(resource).unwrap_or_default();
        format!("{base}#{}", fragment(rest))
    }

    /// Every schema of the document with its pointer, including those that only a
    /// reference reaches.
    pub(crate) fn schemas(&self) -> Vec<(String, &'a Map<String, Value>)> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut queue = vec![String::new()];
        while let Some(pointer) = queue.pop() {
            let Some(schema) = self.root.pointer(&pointer).and_then(Value::as_object) else {
                continue;
            };
            if !seen.insert(pointer.clone()) {
                continue;
            }
            for reference in references(&pointer, schema) {
                queue.extend(self.resolve(&pointer, reference.text));
            }
            subschemas(schema, &pointer, &mut |at, _, _| queue.push(at));
            found.push((pointer, schema));
        }
        found.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        found
    }

    /// Every reference of the document, in the order of their pointers.
    pub(crate) fn references(&self) -> Vec<Reference<'a>> {
        self.schemas()
            .into_iter()
            .flat_map(|(pointer, schema)| references(&pointer, schema))
            .collect()
    }

    fn index(&mut self) {
        // From the root down, since an `$id` is relative to the one around it.
        let mut queue = vec![(String::new(), self.root)];
        while let Some((pointer, value)) = queue.pop() {
            let Some(schema) = value.as_object() else {
                continue;
            };
            self.index_schema(&pointer, schema);
            subschemas(schema, &pointer, &mut |at, value, _| {
                queue.push((at, value));
            });
        }
    }

    fn index_schema(&mut self, pointer: &str, schema: &Map<String, Value>) {
        let id = if self.draft == Draft::Draft4 {
            "id"
        } else {
            "$id"
        };
        let ignored = !self.refs_have_siblings() && schema.contains_key("$ref");
        if let Some(id) = schema.get(id).and_then(Value::as_str).filter(|_| !ignored) {
            let (address, fragment) = id.split_once('#').unwrap_or((id, ""));
            if !address.is_empty() {
                self.index_resource(pointer, address);
            }
            if !fragment.is_empty() && !self.refs_have_siblings() {
                self.index_anchor(pointer, fragment);
            }
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = schema.get(keyword).and_then(Value::as_str) {
                self.index_anchor(pointer, name);
            }
        }
    }

    fn index_resource(&mut self, pointer: &str, address: &str) {
        let base = self.bases.get(self.resource_of(pointer));
        let resolved = base
            .and_then(|base| uri::from_str(base).ok())
            .and_then(|base| uri::resolve_against(&base.borrow(), address).ok());
        if let Some(resolved) = resolved {
            self.bases
                .insert(pointer.to_owned(), resolved.as_str().to_owned());
            self.resources
                .insert(resolved.as_str().to_owned(), pointer.to_owned());
        }
    }

    fn index_anchor(&mut self, pointer: &str, name: &str) {
        let resource = self.resource_of(pointer).to_owned();
        self.anchors
            .insert((resource, name.to_owned()), pointer.to_owned());
    }

    /// The root of the innermost resource around `pointer`.
    fn resource_of<'p>(&self, pointer: &'p str) -> &'p str {
        let mut at = pointer;
        while !self.bases.contains_key(at) {
            at = at.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
        at
    }
}

fn references<'a>(pointer: &str, schema: &'a Map<String, Value>) -> Vec<Reference<'a>> {
    ["$ref", "$dynamicRef", "$recursiveRef"]
        .into_iter()
        .filter_map(|keyword| schema.get(keyword).and_then(Value::as_str))
        .map(|text| Reference {
            pointer: pointer.to_owned(),
            text,
        })
        .collect()
}

/// A pointer as the fragment of a URI.
fn fragment(pointer: &str) -> String {
    let mut encoded = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'$' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            decoded.push(u8::try_from(high << 4 | low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_lead_to_pointers_anchors_and_embedded_resources() {
        let root = json!({
            "$id": "https://example.com/a/root.json",
            "$defs": {
                "x y/z": {"$anchor": "here"},
                "inner": {
                    "$id": "inner.json",
                    "$defs": {"deep": {"$anchor": "here"}}
                }
            }
        });
        let document = Document::new(&root, Draft::Draft202012);
        let from_root = |reference| document.resolve("", reference);
        assert_eq!(from_root("#").as_deref(), Some(""));
        assert_eq!(
            from_root("#/$defs/x%20y~1z").as_deref(),
            Some("/$defs/x y~1z")
        );
        assert_eq!(from_root("#here").as_deref(), Some("/$defs/x y~1z"));
        assert_eq!(from_root("root.json#").as_deref(), Some(""));
        assert_eq!(
            from_root("https://example.com/a/inner.json#here").as_deref(),
            Some("/$defs/inner/$defs/deep")
        );
        assert_eq!(
            document
                .resolve("/$defs/inner/$defs/deep", "#/$defs/deep")
                .as_deref(),
            Some("/$defs/inner/$defs/deep")
        );
        assert_eq!(
            document.address("/$defs/x y~1z"),
            "https://example.com/a/root.json#/$defs/x%20y~1z"
        );
        assert_eq!(
            document.address("/$defs/inner/$defs/deep"),
            "https://example.com/a/inner.json#/$defs/deep"
        );
        for lost in ["#/nowhere", "#nowhere", "https://example.com/b", "#%zz"] {
            assert_eq!(from_root(lost), None, "{lost}");
        }
    }
}
