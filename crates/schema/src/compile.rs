//! From schema documents to validators.
//!
//! `jsonschema` stays behind [`Validator`]: its own type is generic and slow to
//! compile, and its errors are not ours.

use std::{
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use jsonschema::{Draft, Registry, ValidationError, ValidationOptions};
use serde_json::{Value, json};

use crate::{
    CompileError, Fingerprint, Limits, Violation, bounds,
    document::Document,
    explain::Explainer,
    messages,
    patterns::{self, Patterns},
    violation,
};

/// Compiles schemas, each only once. Share it by reference or in an `Arc`.
#[derive(Debug, Default)]
pub struct SchemaRegistry {
    limits: Limits,
    compiled: Mutex<HashMap<Fingerprint, Validator>>,
}

impl SchemaRegistry {
    /// An empty registry with the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry with other limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// The validator for `schema`. Equal schemas get the same compiled state. The
    /// draft is the one `$schema` names, 2020-12 without one.
    pub fn compile(&self, schema: &Value) -> Result<Validator, CompileError> {
        // First, since nothing else here is safe with a document of any depth.
        bounds::check_size(schema, &self.limits)?;
        let fingerprint = Fingerprint::of(schema);
        if let Some(known) = self.known().get(&fingerprint) {
            return Ok(known.clone());
        }
        let validator = Validator::new(schema, fingerprint, &self.limits)?;
        let mut known = self.known();
        if known.len() >= self.limits.cached_schemas {
            known.clear();
        }
        // Another thread may have been faster; then its state is the one to share.
        Ok(known.entry(fingerprint).or_insert(validator).clone())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Fingerprint, Validator>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A compiled schema. Clones share it.
#[derive(Clone)]
pub struct Validator(Arc<Compiled>);

struct Compiled {
    fingerprint: Fingerprint,
    schema: Value,
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

    fn new(
        schema: &Value,
        fingerprint: Fingerprint,
        limits: &Limits,
    ) -> Result<Self, CompileError> {
        let document = Document::new(schema, Draft::default().detect(schema));
        let in_place = bounds::check_work(&document, limits)?;
        let (engine, patterns) = contained(|| {
            if let Ok(engine) = build(&document, Patterns::Linear.options(limits)) {
                return Ok((engine, Patterns::Linear));
            }
            let patterns = Patterns::backtracking(&document, limits);
            build(&document, patterns.options(limits)).map(|engine| (engine, patterns))
        })
        .ok_or(CompileError::Internal)?
        .map_err(|error| CompileError::new(&document, &error))?;
        Ok(Self(Arc::new(Compiled {
            fingerprint,
            schema: schema.clone(),
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
            Explainer::new(
                &self.schema,
                self.engine.draft(),
                self.patterns,
                self.in_place,
                &self.limits,
            )
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
    document: &Document<'_>,
    options: ValidationOptions<'static>,
) -> Result<jsonschema::Validator, ValidationError<'static>> {
    let error = match options.build(document.root) {
        Ok(engine) => return Ok(engine),
        Err(error) => error,
    };
    // The registry with all meta-schemas costs more, and few schemas need it.
    match META_SCHEMAS.as_ref() {
        Some(registry) if names_meta_schema(document) => {
            options.with_registry(registry).build(document.root)
        }
        _ => Err(error),
    }
}

/// Compiles `schema`, which refers to `document`.
pub(crate) fn build_beside(
    schema: &Value,
    document: &Document<'_>,
    options: ValidationOptions<'_>,
) -> Option<jsonschema::Validator> {
    contained(|| {
        let base = META_SCHEMAS.as_ref()?;
        let registry = base
            .add(document.home(), document.root)
            .ok()?
            .prepare()
            .ok()?;
        options.with_registry(&registry).build(schema).ok()
    })
    .flatten()
}

/// All published meta-schemas. `jsonschema` brings them, but registers only those of
/// the document's own draft, unless some document is written in one of their parts.
static META_SCHEMAS: LazyLock<Option<Registry<'static>>> = LazyLock::new(|| {
    let opener = json!({"$schema": "https://json-schema.org/draft/2020-12/meta/core"});
    let registry = Registry::new().add("mainstay:///meta-schemas", opener);
    registry.ok()?.prepare().ok()
});

fn names_meta_schema(document: &Document<'_>) -> bool {
    document
        .references()
        .iter()
        .any(|reference| reference.text.contains("://json-schema.org/"))
}

/// `None` if `work` panics: `jsonschema` has a few assertions about URIs, and foreign
/// schemas must not be able to reach the host through them.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
