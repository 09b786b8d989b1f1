//! Documents as the compiler gets them.
//!
//! `jsonschema` can follow references through many resources, but it compiles a schema
//! anew for every way of resources that leads to it, since a dynamic reference could
//! tell them apart. Over documents that refer to each other there are exponentially
//! many ways. So we follow the references and hand over as few resources as possible:
//! all schemas of one dialect become one, with nothing but pointers in it. Only where a
//! dynamic reference does tell ways apart, every resource stays one.
//!
//! A single document that is one resource is handed over as it is.

mod units;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use jsonschema::{ReferencingError, Registry, ValidationError, ValidationOptions};
use mainstay_contract::uri::encode_pointer;
use serde_json::{Value, json};

use crate::{
    Limits,
    document::Document,
    keywords::references,
    library::normal,
    ways,
    world::{At, Reached, World},
};
use units::Units;

/// The input of the compiler.
#[derive(Debug)]
pub(crate) struct Linked {
    form: Form,
    /// Meta-schemas of derived dialects, by URI, as far as the compiler reads them.
    dialects: BTreeMap<String, Value>,
    meta_schemas: bool,
}

#[derive(Debug)]
enum Form {
    /// The document as it is, under its URI.
    Document { home: String, root: Arc<Value> },
    /// The linked document, and its entry.
    Units { units: Units, root: At },
}

impl Linked {
    /// `None` only if `world` is not what `reach` came from.
    pub(crate) fn new(world: &World, reach: &Reached) -> Option<Self> {
        let document = world.document()?;
        let form = if is_plain(world, document, reach) {
            Form::Document {
                home: document.home().to_owned(),
                root: Arc::clone(&document.root),
            }
        } else {
            Form::Units {
                units: Units::new(world, reach)?,
                root: world.root(),
            }
        };
        let mut linked = Self {
            form,
            dialects: BTreeMap::new(),
            meta_schemas: reach.meta_schemas,
        };
        linked.add_dialects(world);
        Some(linked)
    }

    /// True if the compiler would do more work on the schemas at `starts` than it may.
    pub(crate) fn exceeds(
        &self,
        world: &World,
        reach: &Reached,
        starts: Vec<At>,
        limits: &Limits,
    ) -> bool {
        match &self.form {
            Form::Units { units, .. } if units.resources.len() > 1 => {
                let resource = |at: &At| units.resource(at);
                ways::exceed(world, reach, starts, resource, limits.compiled_schemas)
            }
            _ => reach.schemas.len() > limits.compiled_schemas,
        }
    }

    /// Where the schema was that the compiler finds at `pointer`, if that can be told
    /// and was elsewhere.
    pub(crate) fn origin(&self, pointer: &str) -> Option<At> {
        match &self.form {
            Form::Document { .. } => None,
            Form::Units { units, .. } => units.origin(pointer),
        }
    }

    /// The URI of the schema at `at`.
    pub(crate) fn address(&self, at: &At) -> String {
        match &self.form {
            Form::Document { home, .. } => format!("{home}#{}", encode_pointer(&at.pointer)),
            Form::Units { units, .. } => units.address(at),
        }
    }

    /// The compiled schema.
    pub(crate) fn build(
        &self,
        options: ValidationOptions<'_>,
    ) -> Result<jsonschema::Validator, ValidationError<'static>> {
        match &self.form {
            Form::Document { home, root } => {
                let options = options.with_base_uri(home);
                match META_SCHEMAS.as_ref() {
                    Some(meta_schemas) if self.meta_schemas => {
                        options.with_registry(meta_schemas).build(root)
                    }
                    _ => options.build(root),
                }
            }
            Form::Units { root, .. } => {
                let entry = json!({"$ref": self.address(root)});
                let registry = self.registry()?;
                let options = options.with_base_uri(ENTRY);
                options.with_registry(&registry).build(&entry)
            }
        }
    }

    /// Compiles `schema`, which refers to schemas by their addresses.
    pub(crate) fn build_beside(
        &self,
        schema: &Value,
        options: ValidationOptions<'_>,
    ) -> Option<jsonschema::Validator> {
        let registry = self.registry().ok()?;
        let options = options.with_base_uri(ENTRY).with_registry(&registry);
        options.build(schema).ok()
    }

    fn registry(&self) -> Result<Registry<'_>, ReferencingError> {
        let mut builder = match META_SCHEMAS.as_ref() {
            Some(meta_schemas) => meta_schemas.extend(&self.dialects)?,
            None => Registry::new().extend(&self.dialects)?,
        };
        match &self.form {
            Form::Document { home, root } => builder = builder.add(home, &**root)?,
            Form::Units { units, .. } => {
                for (number, resource) in units.resources.iter().enumerate() {
                    // Said, since the compiler takes every derived dialect for the latest.
                    let draft = resource.dialect.draft;
                    let schema = draft.create_resource_ref(&resource.schema);
                    builder = builder.add(uri(number), schema)?;
                }
            }
        }
        builder.prepare()
    }

    /// Of a derived dialect the compiler reads which vocabularies it has, and what it
    /// is derived from.
    fn add_dialects(&mut self, world: &World) {
        let used: Vec<_> = match &self.form {
            Form::Document { .. } => Vec::new(),
            Form::Units { units, .. } => units
                .resources
                .iter()
                .filter(|resource| resource.dialect.derived)
                .map(|resource| resource.dialect.uri.clone())
                .collect(),
        };
        for named in used {
            let mut next = normal(&named);
            while let Some(uri) = next.take_if(|uri| !self.dialects.contains_key(uri)) {
                let Some(meta_schema) = world.root_by_uri(&uri) else {
                    break;
                };
                let known = ["$schema", "$vocabulary"].into_iter();
                let known = known.filter_map(|keyword| {
                    Some((keyword.to_owned(), meta_schema.get(keyword)?.clone()))
                });
                let base = meta_schema.get("$schema").and_then(Value::as_str);
                self.dialects.insert(uri, Value::Object(known.collect()));
                next = base.and_then(normal);
            }
        }
    }
}

/// Where a schema that is made up here stands.
const ENTRY: &str = "mainstay:///entry";

/// Where references lead that lead to no document.
const LOST: &str = "mainstay:///lost";

/// All published meta-schemas. `jsonschema` brings them, but registers only those of
/// the document's own draft, unless some document is written in one of their parts.
static META_SCHEMAS: LazyLock<Option<Registry<'static>>> = LazyLock::new(|| {
    let opener = json!({"$schema": "https://json-schema.org/draft/2020-12/meta/core"});
    let registry = Registry::new().add("mainstay:///meta-schemas", opener);
    registry.ok()?.prepare().ok()
});

/// True if the document with this URI is a published meta-schema.
pub(crate) fn is_bundled(uri: &str) -> bool {
    META_SCHEMAS
        .as_ref()
        .is_some_and(|registry| registry.contains_resource(uri))
}

fn uri(resource: usize) -> String {
    format!("mainstay:///linked/{resource}")
}

/// True if the compiler needs no help with the document.
fn is_plain(world: &World, document: &Document, reach: &Reached) -> bool {
    let root = world.root();
    let own = |at: &At| {
        let schema = world.schema(at).and_then(Value::as_object);
        let draft = world.draft(at);
        schema.is_none_or(|schema| {
            references(schema, draft).all(|(_, text)| {
                let target = document.target(&at.pointer, text);
                target.is_some_and(|(uri, _)| {
                    uri.is_none_or(|uri| uri == document.home() || is_bundled(&uri))
                })
            })
        })
    };
    document.is_uniform()
        && !document.dialect("").derived
        && document.has_absolute_home()
        && reach
            .schemas
            .iter()
            .all(|at| at.document == root.document && own(at))
}
