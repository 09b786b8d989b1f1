//! One schema document: its resources, anchors and dialects, by pointer.
//!
//! `jsonschema` resolves references for validation. We need to know where they lead
//! for things it does not do: to bound the work of a schema before it runs, to name
//! the place of a broken reference, and to explain a failure step by step. This module
//! looks at one document; [`crate::world`] follows references from one to another.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{Arc, OnceLock},
};

use jsonschema::{Draft, uri};
use mainstay_contract::uri::decode;
use serde_json::{Map, Value};

use crate::{
    CompileError, Limits, bounds,
    dialect::{Dialect, MetaSchemas},
    keywords::{is_classic, join, references, subschemas},
    meta,
};

/// The URI of a document that was not loaded from anywhere and has no `$id`.
pub(crate) const HOME: &str = "mainstay:///schema";

#[derive(Debug)]
pub(crate) struct Document {
    /// Where it was loaded from.
    pub(crate) uri: String,
    pub(crate) root: Arc<Value>,
    /// Why it can never be used. Then nothing of it is known.
    pub(crate) excess: Option<CompileError>,
    /// The URI of each resource, by the pointer of its root.
    bases: HashMap<String, String>,
    /// The pointer of each resource's root, by URI.
    pub(crate) resources: BTreeMap<String, String>,
    /// The first mistake in its names.
    misnamed: Option<CompileError>,
    /// Pointers of anchors, by the resource's pointer and the name.
    anchors: HashMap<(String, String), String>,
    /// Its dynamic anchors.
    dynamic: BTreeMap<(String, String), String>,
    /// The dialect of each schema that names one.
    dialects: HashMap<String, Arc<Dialect>>,
    /// The verdict of the meta-schema, once it was asked.
    valid: OnceLock<Result<(), CompileError>>,
}

/// The resource or anchor that starts at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    Nothing,
    /// A resource in the dialect around it.
    Resource,
    /// A schema in another dialect.
    Dialect,
}

impl Document {
    pub(crate) fn new(
        uri: String,
        root: Arc<Value>,
        meta_schemas: &MetaSchemas<'_>,
        limits: &Limits,
    ) -> Self {
        let excess = bounds::check_size(&root, limits).err();
        let mut document = Self {
            bases: HashMap::from([(String::new(), uri.clone())]),
            resources: BTreeMap::from([(uri.clone(), String::new())]),
            misnamed: None,
            uri,
            excess,
            anchors: HashMap::new(),
            dynamic: BTreeMap::new(),
            dialects: HashMap::from([(String::new(), Dialect::of(&root, meta_schemas))]),
            valid: OnceLock::new(),
            root,
        };
        if document.excess.is_none() {
            let root = Arc::clone(&document.root);
            document.index(&root, meta_schemas);
        }
        document
    }

    /// Fails when the document cannot be used, whatever others say.
    pub(crate) fn check(&self) -> Result<(), CompileError> {
        if let Some(excess) = &self.excess {
            return Err(excess.clone());
        }
        match &self.misnamed {
            Some(misnamed) => Err(misnamed.clone()),
            None => self.check_against_meta_schema(),
        }
    }

    fn check_against_meta_schema(&self) -> Result<(), CompileError> {
        let check = || {
            let mut embedded: Vec<_> = self
                .dialects
                .iter()
                .filter(|(pointer, _)| !pointer.is_empty() && self.own_id(pointer).is_some())
                .map(|(pointer, dialect)| (pointer.as_str(), dialect.draft))
                .collect();
            embedded.sort_unstable();
            meta::check(&self.root, self.draft(""), &embedded)
        };
        self.valid.get_or_init(check).clone()
    }

    /// The URI of the document as a resource: its `$id`, or where it was loaded from.
    pub(crate) fn home(&self) -> &str {
        self.base("")
    }

    /// The dialect of the schema at `pointer`.
    pub(crate) fn dialect(&self, pointer: &str) -> &Arc<Dialect> {
        let at = innermost(pointer, |at| self.dialects.contains_key(at));
        #[expect(
            clippy::indexing_slicing,
            reason = "`innermost` ends at the root, which always has a dialect"
        )]
        &self.dialects[at]
    }

    pub(crate) fn draft(&self, pointer: &str) -> Draft {
        self.dialect(pointer).draft
    }

    /// Where `reference`, found at the pointer `from`, points: the URI of a resource,
    /// `None` for the one around `from`, and the decoded fragment.
    pub(crate) fn target(&self, from: &str, reference: &str) -> Option<(Option<String>, String)> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = decode(fragment)?.into_owned();
        if address.is_empty() {
            return Some((None, fragment));
        }
        let target = absolute(self.base(self.resource_of(from)), address)?;
        Some((Some(target), fragment))
    }

    /// The pointer that `fragment` means in the resource at the pointer `resource`.
    pub(crate) fn find(&self, resource: &str, fragment: &str) -> Option<String> {
        let pointer = if fragment.is_empty() || fragment.starts_with('/') {
            format!("{resource}{fragment}")
        } else {
            let name = (resource.to_owned(), fragment.to_owned());
            self.anchors.get(&name)?.clone()
        };
        self.root.pointer(&pointer).map(|_| pointer)
    }

    /// The root of the innermost resource around `pointer`.
    pub(crate) fn resource_of<'p>(&self, pointer: &'p str) -> &'p str {
        innermost(pointer, |at| self.bases.contains_key(at))
    }

    /// The URI of the resource whose root is at `pointer`.
    pub(crate) fn base(&self, pointer: &str) -> &str {
        self.bases.get(pointer).map_or(&self.uri, String::as_str)
    }

    /// The pointers of all dynamic anchors of that name.
    pub(crate) fn dynamic_anchors(&self, name: &str) -> impl Iterator<Item = &str> {
        self.dynamic
            .iter()
            .filter(move |((_, known), _)| known == name)
            .map(|(_, pointer)| pointer.as_str())
    }

    /// The pointer of the dynamic anchor of that name in the resource at `resource`.
    pub(crate) fn dynamic_anchor(&self, resource: &str, name: &str) -> Option<&str> {
        let name = (resource.to_owned(), name.to_owned());
        self.dynamic.get(&name).map(String::as_str)
    }

    /// True if all of it is one resource in one dialect.
    pub(crate) fn is_uniform(&self) -> bool {
        self.bases.len() == 1 && self.dialects.len() == 1
    }

    /// True if it has no `$id`, or one that stands for itself.
    pub(crate) fn has_absolute_home(&self) -> bool {
        let id = self.own_id("").filter(|id| !id.starts_with('#'));
        id.is_none_or(is_absolute)
    }

    /// True if a resource or another dialect starts at `pointer`.
    pub(crate) fn starts(&self, pointer: &str) -> Start {
        let resource = self.bases.contains_key(pointer);
        let dialect = match pointer.rsplit_once('/') {
            None => true,
            Some((parent, _)) => self.dialect(parent) != self.dialect(pointer),
        };
        match (resource, dialect) {
            (_, true) => Start::Dialect,
            (true, false) => Start::Resource,
            (false, false) => Start::Nothing,
        }
    }

    /// Every schema of the document, by pointer, including those that only a reference
    /// within it reaches.
    pub(crate) fn schemas(&self) -> BTreeMap<String, &Map<String, Value>> {
        let mut found = BTreeMap::new();
        if self.excess.is_some() {
            return found;
        }
        let mut queue = vec![String::new()];
        while let Some(pointer) = queue.pop() {
            let Some(schema) = self.root.pointer(&pointer).and_then(Value::as_object) else {
                continue;
            };
            if found.contains_key(&pointer) {
                continue;
            }
            let draft = self.draft(&pointer);
            for (_, text) in references(schema, draft) {
                queue.extend(self.resolve_inside(&pointer, text));
            }
            subschemas(schema, &pointer, draft, &mut |at, _, _| queue.push(at));
            found.insert(pointer, schema);
        }
        found
    }

    /// True if what the document says depends on where it was loaded from.
    pub(crate) fn depends_on_uri(&self) -> bool {
        if !self.has_absolute_home() {
            return true;
        }
        match self.own_id("").filter(|id| !id.starts_with('#')) {
            Some(_) => false,
            None => self.schemas().iter().any(|(pointer, schema)| {
                let relative = |text: &str| !text.starts_with('#') && !is_absolute(text);
                let mut references = references(schema, self.draft(pointer));
                references.any(|(_, text)| relative(text))
                    || self.own_id(pointer).is_some_and(relative)
            }),
        }
    }

    /// The `$id` the schema at `pointer` gives itself.
    pub(crate) fn own_id(&self, pointer: &str) -> Option<&str> {
        let schema = self.root.pointer(pointer)?.as_object()?;
        let draft = self.draft(pointer);
        if is_classic(draft) && schema.contains_key("$ref") {
            return None;
        }
        schema.get(draft.id_keyword())?.as_str()
    }

    fn resolve_inside(&self, from: &str, reference: &str) -> Option<String> {
        match self.target(from, reference)? {
            (None, fragment) => self.find(self.resource_of(from), &fragment),
            (Some(uri), fragment) => self.find(self.resources.get(&uri)?, &fragment),
        }
    }

    fn index(&mut self, root: &Value, meta_schemas: &MetaSchemas<'_>) {
        let mut seen = HashSet::new();
        if self.own_id("").is_none() {
            seen.insert(self.uri.clone());
        }
        // From the root down, since an `$id` is relative to the one around it.
        let mut queue = VecDeque::from([(String::new(), root)]);
        while let Some((pointer, value)) = queue.pop_front() {
            let Some(schema) = value.as_object() else {
                continue;
            };
            if schema.contains_key("$schema") && !pointer.is_empty() {
                let dialect = Dialect::of(value, meta_schemas);
                self.dialects.insert(pointer.clone(), dialect);
            }
            self.index_schema(&pointer, schema, &mut seen);
            let draft = self.draft(&pointer);
            subschemas(schema, &pointer, draft, &mut |at, value, _| {
                queue.push_back((at, value));
            });
        }
    }

    fn index_schema(
        &mut self,
        pointer: &str,
        schema: &Map<String, Value>,
        seen: &mut HashSet<String>,
    ) {
        let draft = self.draft(pointer);
        if let Some(id) = self.own_id(pointer).map(str::to_owned) {
            let (address, fragment) = id.split_once('#').unwrap_or((&id, ""));
            if !address.is_empty() {
                self.index_resource(pointer, address, seen);
            }
            if !fragment.is_empty() && is_classic(draft) {
                self.index_anchor(pointer, fragment);
            }
        }
        if is_classic(draft) {
            return;
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            let Some(name) = schema.get(keyword).and_then(Value::as_str) else {
                continue;
            };
            self.index_anchor(pointer, name);
            if keyword == "$dynamicAnchor" {
                let resource = self.resource_of(pointer).to_owned();
                self.dynamic
                    .insert((resource, name.to_owned()), pointer.to_owned());
            }
        }
    }

    fn index_resource(&mut self, pointer: &str, address: &str, seen: &mut HashSet<String>) {
        let Some(uri) = absolute(self.base(self.resource_of(pointer)), address) else {
            let place = join(pointer, self.draft(pointer).id_keyword());
            self.misnamed.get_or_insert(CompileError::Invalid {
                pointer: place,
                message: "is not a URI".to_owned(),
            });
            return;
        };
        if !seen.insert(uri.clone()) {
            self.misnamed
                .get_or_insert_with(|| CompileError::DuplicateId {
                    id: uri.clone(),
                    pointer: pointer.to_owned(),
                });
        }
        self.bases.insert(pointer.to_owned(), uri.clone());
        self.resources.insert(uri, pointer.to_owned());
    }

    fn index_anchor(&mut self, pointer: &str, name: &str) {
        let resource = self.resource_of(pointer).to_owned();
        self.anchors
            .insert((resource, name.to_owned()), pointer.to_owned());
    }
}

/// `address` seen from `base`, in its normal form.
pub(crate) fn absolute(base: &str, address: &str) -> Option<String> {
    let base = uri::from_str(base).ok()?;
    let resolved = uri::resolve_against(&base.borrow(), address).ok()?;
    Some(resolved.as_str().to_owned())
}

/// True if `text` starts with a scheme.
pub(crate) fn is_absolute(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// `pointer`, or the nearest place around it that is `known`; at last the root.
fn innermost(pointer: &str, known: impl Fn(&str) -> bool) -> &str {
    let mut at = pointer;
    while !at.is_empty() && !known(at) {
        at = at.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    at
}
