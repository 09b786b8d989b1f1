//! Every bound of this crate, in one type.

/// How large a schema may be, and how much work one check may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Nesting of a schema document.
    pub schema_depth: usize,
    /// JSON values in a schema document.
    pub schema_values: usize,
    /// Documents of a registry.
    pub documents: usize,
    /// JSON values in all of them together.
    pub document_values: usize,
    /// Subschemas that apply to one place of a value, references followed.
    pub in_place_schemas: u64,
    /// The longest chain of subschemas that apply to one place of a value. Times the
    /// depth of a value it bounds the stack a check needs.
    pub in_place_depth: usize,
    /// Subschemas that are compiled for one schema. A dynamic reference or a mixture of
    /// drafts can make it necessary to compile one several times.
    pub compiled_schemas: usize,
    /// Backtracks of a pattern with look-around or back-references. All other
    /// patterns run in linear time.
    pub pattern_backtracks: usize,
    /// Bytes of a text that such a pattern is tried on; a value with a longer one is not checked.
    pub pattern_text: usize,
    /// Steps that all such patterns together may take on all texts of one value. A text costs
    /// a fixed amount and the square of its length; past the limit the value is not checked.
    pub pattern_steps: u64,
    /// Bytes of a compiled pattern.
    pub pattern_bytes: usize,
    /// Compiled schemas kept; past it the registry starts anew.
    pub cached_schemas: usize,
    /// Subschemas in them together; past it likewise.
    pub cached_subschemas: usize,
    /// Tools registered by name.
    pub tools: usize,
    /// Violations reported of one value.
    pub violations: usize,
    /// Bytes of all reported paths and messages together (one is always reported).
    pub violation_bytes: usize,
    /// JSON values up to which every violation is looked for. In a larger value only
    /// the first one is, and alternatives are not compared.
    pub explained_values: usize,
    /// Subschemas run to explain one failed value.
    pub explained_forms: usize,
    /// Steps that finding unevaluated members may take at worst: the most schemas in
    /// one place to the power of the value's depth.
    pub explained_steps: u64,
}

impl Limits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        schema_depth: 128,
        schema_values: 100_000,
        documents: 10_000,
        document_values: 2_000_000,
        in_place_schemas: 10_000,
        in_place_depth: 64,
        compiled_schemas: 250_000,
        pattern_backtracks: 20_000,
        pattern_text: 4_096,
        pattern_steps: 256_000_000,
        pattern_bytes: 1 << 20,
        cached_schemas: 4_096,
        cached_subschemas: 1_000_000,
        tools: 10_000,
        violations: 100,
        violation_bytes: 64 * 1024,
        explained_values: 100_000,
        explained_forms: 2_000,
        explained_steps: 4_000_000,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bounds within which compiling a schema and checking a value are quick enough to run between two
/// other requests.
///
/// They are above the tools of ordinary servers. At the bounds, adversarial schemas and values take
/// up to 10 ms to compile and up to 20 ms to reject in a release build; explaining thousands of
/// violations is the slowest part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cheap {
    /// Bytes of a schema. The largest one of our own tools has 8 KiB.
    pub schema_bytes: usize,
    /// Subschemas that a schema reaches. Each is compiled once, and again to explain a failure.
    pub subschemas: usize,
    /// JSON values of a schema in which every reference is replaced by its target.
    pub expanded_values: u64,
    /// The longest chain of subschemas and references, and the nesting of a value.
    pub depth: usize,
    /// Weight of one pattern: about the states of its automaton.
    pub pattern_weight: u64,
    /// Weight of all patterns of a schema together; compiling them takes time in proportion.
    pub patterns_weight: u64,
    /// Bytes of a value, arguments without rules included. They are scanned and parsed once.
    pub value_bytes: usize,
    /// JSON values in it, arguments without rules excluded. Each takes memory in a tree.
    pub values: u64,
    /// Keyword evaluations over all places of a value.
    pub evaluations: u64,
    /// Bytes of text times the weight of the patterns that read them.
    pub matching: u64,
}

impl Cheap {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        schema_bytes: 64 * 1024,
        subschemas: 400,
        expanded_values: 20_000,
        depth: 32,
        pattern_weight: 500,
        patterns_weight: 2_000,
        value_bytes: 1024 * 1024,
        values: 8_000,
        evaluations: 100_000,
        matching: 2_000_000,
    };
}
