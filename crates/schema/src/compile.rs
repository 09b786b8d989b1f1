//! From schema documents to validators.
//!
//! `jsonschema` stays behind [`Validator`]: its own type is generic and slow to
//! compile, and its errors are not ours.

use std::{
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use jsonschema::{Registry, ValidationOptions};
use serde_json::Value;

use crate::{
    CompileError, DocumentsError, Fingerprint, Limits, SchemaDocument, Violation, bounds,
    explain::Explainer,
    library::{Identity, Library},
    messages,
    patterns::{self, Patterns},
    violation,
    world::{Reached, World},
};

/// Compiles schemas, each only once. Share it by reference or in an `Arc`.
#[derive(Debug, Default)]
pub struct SchemaRegistry {
    limits: Limits,
    library: Arc<Library>,
    compiled: Mutex<HashMap<Identity, Validator>>,
}

impl SchemaRegistry {
    /// A registry without documents and with the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry without documents and with other limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// A registry whose references may lead to these documents and nowhere else. Each
    /// is known by its URI and by its own `$id`.
    ///
    /// A document with a mistake in it does no harm before it is used.
    pub fn with_documents(
        limits: Limits,
        documents: Vec<SchemaDocument>,
    ) -> Result<Self, DocumentsError> {
        Ok(Self {
            library: Arc::new(Library::new(documents, &limits)?),
            limits,
            ..Self::default()
        })
    }

    /// The validator for `schema`. Equal schemas get the same compiled state. The
    /// draft is the one `$schema` names, 2020-12 without one. References may lead to
    /// the registry's documents.
    pub fn compile(&self, schema: &Value) -> Result<Validator, CompileError> {
        // First, since nothing else here is safe with a document of any depth.
        bounds::check_size(schema, &self.limits)?;
        let identity = (Fingerprint::of(schema), None);
        self.shared(&identity, || {
            World::of_schema(&self.library, schema, &self.limits)
        })
    }

    /// The validator of a document, by its URI or its `$id`. A broken document or an
    /// unresolvable reference fails only here, when it is used; the others go on
    /// working.
    pub fn compile_document(&self, uri: &str) -> Result<Validator, CompileError> {
        let unknown = || CompileError::UnknownDocument {
            uri: uri.to_owned(),
        };
        let document = self.library.document(uri).ok_or_else(unknown)?;
        if let Some(excess) = self.library.excess(document) {
            return Err(excess.clone());
        }
        let identity = self.library.identity(document).ok_or_else(unknown)?;
        self.shared(identity, || World::of_document(&self.library, document))
    }

    fn shared(
        &self,
        identity: &Identity,
        world: impl FnOnce() -> World,
    ) -> Result<Validator, CompileError> {
        if let Some(known) = self.known().get(identity) {
            return Ok(known.clone());
        }
        let validator = Validator::new(world(), identity.0, &self.limits)?;
        let mut known = self.known();
        if known.len() >= self.limits.cached_schemas {
            known.clear();
        }
        // Another thread may have been faster; then its state is the one to share.
        Ok(known.entry(identity.clone()).or_insert(validator).clone())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Identity, Validator>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A compiled schema. Clones share it.
#[derive(Clone)]
pub struct Validator(Arc<Compiled>);

struct Compiled {
    fingerprint: Fingerprint,
    schema: Arc<Value>,
    world: Arc<World>,
    limits: Limits,
    engine: jsonschema::Validator,
    patterns: Patterns,
    /// The most schemas in one place.
    in_place: u64,
    /// Made when the first value fails.
    explainer: OnceLock<Option<Explainer>>,
}

impl Validator {
    /// Whether `value` is valid.
    pub fn is_valid(&self, value: &Value) -> bool {
        let compiled = &*self.0;
        match compiled.patterns {
            Patterns::Linear => compiled.engine.is_valid(value),
            Patterns::Backtracking { names } => {
                (!names || patterns::long_name(value, compiled.limits.pattern_text).is_none())
                    && patterns::decided(|| compiled.engine.is_valid(value))
            }
        }
    }

    /// What is wrong with `value`: nothing exactly if it is valid. Sorted by path, then
    /// by message, and bounded.
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        if self.is_valid(value) {
            return Vec::new();
        }
        let compiled = &*self.0;
        let mut violations = compiled.explain(value);
        if violations.is_empty() {
            violations.push(Violation {
                path: String::new(),
                message: messages::NO_MATCH.to_owned(),
            });
        }
        violation::settle(violations, &compiled.limits)
    }

    /// The schema it was compiled from.
    pub fn schema(&self) -> &Value {
        &self.0.schema
    }

    /// The fingerprint of that schema.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    /// Whether both are clones of one compiled state.
    pub fn shares_state_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn new(world: World, fingerprint: Fingerprint, limits: &Limits) -> Result<Self, CompileError> {
        let reach = world.reach();
        world.check(&reach)?;
        let in_place = bounds::check_work(&world, &reach, limits)?;
        let (engine, patterns) = contained(|| {
            if let Ok(engine) = build(&world, &reach, Patterns::Linear.options(limits)) {
                return Ok((engine, Patterns::Linear));
            }
            let patterns = Patterns::backtracking(&world, &reach, limits);
            let engine = build(&world, &reach, patterns.options(limits))?;
            Ok((engine, patterns))
        })
        .unwrap_or(Err(CompileError::Internal))?;
        let schema = world.document().map(|document| Arc::clone(&document.root));
        Ok(Self(Arc::new(Compiled {
            fingerprint,
            schema: schema.unwrap_or_default(),
            world: Arc::new(world),
            limits: *limits,
            engine,
            patterns,
            in_place,
            explainer: OnceLock::new(),
        })))
    }
}

impl Compiled {
    fn explain(&self, value: &Value) -> Vec<Violation> {
        if self.patterns == (Patterns::Backtracking { names: true })
            && let Some(path) = patterns::long_name(value, self.limits.pattern_text)
        {
            return vec![Violation {
                path,
                message: messages::LONG_NAME.to_owned(),
            }];
        }
        let explainer = self.explainer.get_or_init(|| {
            Explainer::new(&self.world, self.patterns, self.in_place, &self.limits)
        });
        explainer
            .as_ref()
            .map(|explainer| explainer.violations(value))
            .unwrap_or_default()
    }
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Validator")
            .field(&self.0.fingerprint)
            .finish()
    }
}

fn build(
    world: &World,
    reach: &Reached,
    options: ValidationOptions<'static>,
) -> Result<jsonschema::Validator, CompileError> {
    let document = world.document().ok_or(CompileError::Internal)?;
    let options = options.with_base_uri(document.home());
    let refused = |error| CompileError::new(world, reach, &error);
    if reach.is_closed(world) {
        return options.build(&document.linked).map_err(refused);
    }
    let library = world.registry(&reach.documents);
    let library = library.map_err(|error| CompileError::reference(world, reach, &error))?;
    let options = options.with_registry(library.get());
    options.build(&document.linked).map_err(refused)
}

/// Compiles `schema`, which refers to schemas of `world`.
pub(crate) fn build_beside(
    schema: &Value,
    world: &World,
    documents: &[usize],
    options: ValidationOptions<'_>,
) -> Option<jsonschema::Validator> {
    contained(|| {
        let document = world.document()?;
        let library = world.registry(documents).ok()?;
        let registry: Registry<'_> = library
            .get()
            .add(document.home(), &*document.linked)
            .ok()?
            .prepare()
            .ok()?;
        let options = options.with_base_uri("mainstay:///probe");
        options.with_registry(&registry).build(schema).ok()
    })
    .flatten()
}

/// `None` if `work` panics: `jsonschema` has a few assertions about URIs, and foreign
/// schemas must not be able to reach the host through them.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
