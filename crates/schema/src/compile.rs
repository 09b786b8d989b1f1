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

use serde_json::Value;

use crate::{
    CompileError, DocumentsError, Fingerprint, Limits, SchemaDocument, Violation, Violations,
    bounds,
    explain::{Explained, Explainer, Reach},
    library::{Identity, Library},
    link::Linked,
    messages,
    patterns::{self, Patterns, Ran, Undecided},
    tool_io::Tools,
    violation,
    world::World,
};

/// Compiles schemas, each only once. Share it by reference or in an `Arc`.
#[derive(Debug, Default)]
pub struct SchemaRegistry {
    pub(crate) limits: Limits,
    pub(crate) tools: Tools,
    library: Arc<Library>,
    compiled: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    known: HashMap<Identity, Validator>,
    /// Subschemas in all of them.
    weight: usize,
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
        if let Some(known) = self.cache().known.get(identity) {
            return Ok(known.clone());
        }
        let validator = Validator::new(world(), identity.0, &self.limits)?;
        let mut cache = self.cache();
        // Another thread may have been faster; then its state is the one to share.
        if let Some(known) = cache.known.get(identity) {
            return Ok(known.clone());
        }
        let weight = validator.0.weight;
        if cache.known.len() >= self.limits.cached_schemas
            || cache.weight.saturating_add(weight) > self.limits.cached_subschemas
        {
            *cache = Cache::default();
        }
        cache.weight = cache.weight.saturating_add(weight);
        cache.known.insert(identity.clone(), validator.clone());
        Ok(validator)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A compiled schema. Clones share it.
#[derive(Clone)]
pub struct Validator(Arc<Compiled>);

struct Compiled {
    fingerprint: Fingerprint,
    schema: Arc<Value>,
    world: World,
    limits: Limits,
    engine: jsonschema::Validator,
    patterns: Patterns,
    /// The most schemas in one place.
    in_place: u64,
    /// All schemas that it reaches.
    weight: usize,
    /// Made when the first value fails.
    explainer: OnceLock<Option<Explainer>>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Valid,
    /// The violations; never empty.
    Invalid(Violations),
    /// The check ended before it was decided; says where and why.
    NotChecked(Violation),
}

impl Validator {
    /// True if `value` was checked and is valid.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.0.run(value, Undecided::Fails) == Ran::Valid
    }

    /// The violations of `value`: none exactly if it was checked and is valid. Sorted by
    /// path, then by message, and bounded; the last entry counts those that are not listed.
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        match self.verdict(value) {
            Verdict::Valid => Vec::new(),
            Verdict::Invalid(violations) => violations.into_list(),
            Verdict::NotChecked(why) => vec![why],
        }
    }

    /// As [`Self::check`], but keeps a value that was not checked apart from an invalid one.
    pub fn verdict(&self, value: &Value) -> Verdict {
        let compiled = &*self.0;
        let mut undecided = Undecided::Fails;
        match compiled.run(value, undecided) {
            Ran::Valid => return Verdict::Valid,
            Ran::Invalid => {}
            Ran::OutOfSteps => return Verdict::NotChecked(whole(messages::NOT_CHECKED)),
            // Invalid only if it is also invalid with every undecided text taken for a match.
            Ran::Undecided { valid } => {
                if valid || compiled.run(value, Undecided::Passes) != Ran::Invalid {
                    return Verdict::NotChecked(compiled.undecided_place(value));
                }
                undecided = Undecided::Passes;
            }
        }
        // An explanation that runs out of steps would name texts that may be right.
        let (ran, mut explained) = compiled.explain(value, undecided);
        if explained.found.is_empty() || ran == Ran::OutOfSteps {
            explained.found = vec![whole(messages::NO_MATCH)];
        }
        let mut violations = violation::settle(explained.found, &compiled.limits);
        violations.more = match explained.reach {
            Reach::First => None,
            Reach::All => violations.more.map(|more| more + explained.unexplained),
        };
        Verdict::Invalid(violations)
    }

    /// The schema it was compiled from.
    pub fn schema(&self) -> &Value {
        &self.0.schema
    }

    /// The fingerprint of that schema.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    /// True if both are clones of one compiled state.
    pub fn shares_state_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn new(world: World, fingerprint: Fingerprint, limits: &Limits) -> Result<Self, CompileError> {
        let reach = world.reach();
        world.check(&reach)?;
        let in_place = bounds::check_work(&world, &reach, limits)?;
        let linked = Linked::new(&world, &reach).ok_or(CompileError::Internal)?;
        if linked.exceeds(&world, &reach, vec![world.root()], limits) {
            let pointer = String::new();
            return Err(CompileError::TooMuchWork { pointer });
        }
        let (engine, patterns) = contained(|| {
            if let Ok(engine) = linked.build(Patterns::Linear.options(limits)) {
                return Ok((engine, Patterns::Linear));
            }
            let patterns = Patterns::backtracking(&world, &reach, limits);
            let engine = linked.build(patterns.options(limits));
            let engine =
                engine.map_err(|error| CompileError::new(&world, &reach, &linked, &error))?;
            Ok((engine, patterns))
        })
        .unwrap_or(Err(CompileError::Internal))?;
        let schema = world.document().map(|document| Arc::clone(&document.root));
        Ok(Self(Arc::new(Compiled {
            fingerprint,
            schema: schema.unwrap_or_default(),
            world,
            limits: *limits,
            engine,
            patterns,
            in_place,
            weight: reach.schemas.len(),
            explainer: OnceLock::new(),
        })))
    }
}

/// A violation of the value as a whole.
fn whole(message: &str) -> Violation {
    Violation {
        path: String::new(),
        message: message.to_owned(),
    }
}

impl Compiled {
    fn run(&self, value: &Value, undecided: Undecided) -> Ran {
        let Patterns::Backtracking { names } = self.patterns else {
            let valid = self.engine.is_valid(value);
            return if valid { Ran::Valid } else { Ran::Invalid };
        };
        if self.long_name(value).is_some() {
            return Ran::Undecided { valid: true };
        }
        patterns::run(self.limits.pattern_steps, undecided, || {
            let names_fit = names == 0 || patterns::spend_on_names(value, names);
            names_fit && self.engine.is_valid(value)
        })
    }

    /// The place of an object with a name that is too long for the schema's patterns.
    fn long_name(&self, value: &Value) -> Option<String> {
        let hard = matches!(self.patterns, Patterns::Backtracking { names: 1.. });
        hard.then(|| patterns::long_name(value, self.limits.pattern_text))
            .flatten()
    }

    /// Where a check could not be decided.
    fn undecided_place(&self, value: &Value) -> Violation {
        if let Some(path) = self.long_name(value) {
            let message = messages::LONG_NAME.to_owned();
            return Violation { path, message };
        }
        let (_, explained) = self.explain(value, Undecided::Fails);
        let mut found = explained.found.into_iter();
        let named = found.find(|violation| violation.message == messages::UNDECIDED);
        named.unwrap_or_else(|| whole(messages::UNDECIDED))
    }

    fn explain(&self, value: &Value, undecided: Undecided) -> (Ran, Explained) {
        let explainer = self.explainer.get_or_init(|| {
            Explainer::new(&self.world, self.patterns, self.in_place, &self.limits)
        });
        let mut explained = Explained::default();
        let ran = patterns::run(self.limits.pattern_steps, undecided, || {
            if let Some(explainer) = explainer {
                explained = explainer.explain(value);
            }
            !explained.found.is_empty()
        });
        (ran, explained)
    }
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Validator")
            .field(&self.0.fingerprint)
            .finish()
    }
}

/// `None` if `work` panics: `jsonschema` has a few assertions about URIs, and foreign
/// schemas must not be able to reach the host through them.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
