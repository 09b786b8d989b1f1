//! The grammars, and for each what counts as a definition.
//!
//! Each grammar is a parser in C, compiled once; they are kept behind this one module.

use tree_sitter::{Language, Query};

use crate::text::defs::Kind;

/// A language with its compiled query.
pub(super) struct Grammar {
    pub(super) language: Language,
    pub(super) query: Query,
    /// The role of each capture of the query.
    pub(super) roles: Vec<Role>,
    /// Only what has a body is a definition.
    pub(super) bodies_only: bool,
}

/// What a capture of a query stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The name of the definition or scope.
    Name,
    /// The type that a definition outside of it belongs to: a receiver, `Type::` before a name.
    Owner,
    /// A block that owns definitions without being one: `impl Type`.
    Scope,
    /// The whole definition.
    Definition(Kind),
}

const RUST: &str = "
(impl_item type: (_) @name) @scope
(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(trait_item name: (type_identifier) @name) @trait
(type_item name: (type_identifier) @name) @type
(mod_item name: (identifier) @name) @module
(macro_definition name: (identifier) @name) @macro
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @constant
(declaration_list (function_item name: (identifier) @name) @method)
(declaration_list (function_signature_item name: (identifier) @name) @method)
(source_file (function_item name: (identifier) @name) @function)
(block (function_item name: (identifier) @name) @function)
(mod_item body: (declaration_list (function_item name: (identifier) @name) @function))
";
const PYTHON: &str = "
(class_definition name: (identifier) @name) @class
(class_definition body: (block (function_definition name: (identifier) @name) @method))
(class_definition body: (block (decorated_definition (function_definition name: (identifier) @name) @method)))
(function_definition name: (identifier) @name) @function
(module (expression_statement (assignment left: (identifier) @name) @constant))
";
const JAVASCRIPT: &str = "
(class_declaration name: (_) @name) @class
(method_definition name: (property_identifier) @name) @method
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression object: (_) @owner property: (property_identifier) @name) right: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name value: [(object) (array) (string) (number) (call_expression) (new_expression)]) @constant))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name value: [(object) (array) (string) (number) (call_expression) (new_expression)]) @constant)))
";
const TYPESCRIPT: &str = "
(abstract_class_declaration name: (type_identifier) @name) @class
(interface_declaration name: (type_identifier) @name) @interface
(type_alias_declaration name: (type_identifier) @name) @type
(enum_declaration name: (identifier) @name) @enum
(module name: (identifier) @name) @module
(internal_module name: (identifier) @name) @module
(function_signature name: (identifier) @name) @function
(abstract_method_signature name: (property_identifier) @name) @method
";
const GO: &str = "
(type_spec name: (type_identifier) @name type: (struct_type)) @struct
(type_spec name: (type_identifier) @name type: (interface_type)) @interface
(type_spec name: (type_identifier) @name type: [(type_identifier) (function_type) (map_type) (slice_type) (pointer_type) (qualified_type) (array_type) (channel_type)]) @type
(type_alias name: (type_identifier) @name) @type
(function_declaration name: (identifier) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @owner)) name: (field_identifier) @name) @method
(const_spec name: (identifier) @name) @constant
(source_file (var_declaration (var_spec name: (identifier) @name) @variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @variable)))
";
const JAVA: &str = "
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
";
const C: &str = "
(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @struct
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(enumerator name: (identifier) @name) @constant
(function_declarator declarator: (identifier) @name) @function
(type_definition declarator: (_) @name) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
";
const CPP: &str = "
(class_specifier name: (type_identifier) @name body: (_)) @class
(namespace_definition name: (namespace_identifier) @name) @module
(function_declarator declarator: (field_identifier) @name) @method
(function_declarator declarator: (qualified_identifier scope: (_) @owner name: (identifier) @name)) @method
(function_declarator declarator: (qualified_identifier name: (qualified_identifier scope: (_) @owner name: (identifier) @name))) @method
(alias_declaration name: (type_identifier) @name) @type
(concept_definition name: (identifier) @name) @type
";
const C_SHARP: &str = "
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(struct_declaration name: (identifier) @name) @struct
(interface_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(delegate_declaration name: (identifier) @name) @type
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(property_declaration name: (identifier) @name) @field
(namespace_declaration name: (identifier) @name) @module
";
const RUBY: &str = "
(module name: (constant) @name) @module
(module name: (scope_resolution name: (_) @name)) @module
(class name: (constant) @name) @class
(class name: (scope_resolution name: (_) @name)) @class
(method name: (_) @name) @method
(singleton_method name: (_) @name) @method
(program (assignment left: (constant) @name) @constant)
(body_statement (assignment left: (constant) @name) @constant)
";
const PHP: &str = "
(class_declaration name: (name) @name) @class
(interface_declaration name: (name) @name) @interface
(trait_declaration name: (name) @name) @trait
(enum_declaration name: (name) @name) @enum
(function_definition name: (name) @name) @function
(method_declaration name: (name) @name) @method
(const_element (name) @name) @constant
";
const BASH: &str = "
(function_definition name: (word) @name) @function
";

/// The number of the grammar for a file.
pub(super) fn number(path: &str) -> Option<usize> {
    let ending = path
        .rsplit('/')
        .next()?
        .rsplit_once('.')?
        .1
        .to_ascii_lowercase();
    Some(match ending.as_str() {
        "rs" => 0,
        "py" | "pyi" => 1,
        "js" | "jsx" | "mjs" | "cjs" => 2,
        "ts" | "mts" | "cts" => 3,
        "tsx" => 4,
        "go" => 5,
        "java" => 6,
        "c" => 7,
        // A header may be of either; the grammar of C++ reads both.
        "cc" | "cpp" | "cxx" | "hpp" | "hh" | "hxx" | "ipp" | "inl" => 8,
        "h" => 12,
        "cs" => 9,
        "rb" | "rake" | "gemspec" => 10,
        "php" => 11,
        "sh" | "bash" | "bats" => 13,
        _ => return None,
    })
}

impl Grammar {
    pub(super) fn compile(number: usize) -> Option<Self> {
        let (language, sources): (Language, &[&str]) = match number {
            0 => (tree_sitter_rust::LANGUAGE.into(), &[RUST]),
            1 => (tree_sitter_python::LANGUAGE.into(), &[PYTHON]),
            2 => (tree_sitter_javascript::LANGUAGE.into(), &[JAVASCRIPT]),
            3 => (
                tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
                &[JAVASCRIPT, TYPESCRIPT],
            ),
            4 => (
                tree_sitter_typescript::LANGUAGE_TSX.into(),
                &[JAVASCRIPT, TYPESCRIPT],
            ),
            5 => (tree_sitter_go::LANGUAGE.into(), &[GO]),
            6 => (tree_sitter_java::LANGUAGE.into(), &[JAVA]),
            7 | 12 => (tree_sitter_c::LANGUAGE.into(), &[C]),
            8 => (tree_sitter_cpp::LANGUAGE.into(), &[C, CPP]),
            9 => (tree_sitter_c_sharp::LANGUAGE.into(), &[C_SHARP]),
            10 => (tree_sitter_ruby::LANGUAGE.into(), &[RUBY]),
            11 => (tree_sitter_php::LANGUAGE_PHP.into(), &[PHP]),
            13 => (tree_sitter_bash::LANGUAGE.into(), &[BASH]),
            _ => return None,
        };
        let query = Query::new(&language, &sources.concat())
            .map_err(|error| mainstay_worker::warn("grammar", &format!("number={number} {error}")))
            .ok()?;
        let role = |name: &&str| {
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == *name);
            match (kind, *name) {
                (Some(kind), _) => Role::Definition(kind),
                (None, "owner") => Role::Owner,
                (None, "scope") => Role::Scope,
                (None, _) => Role::Name,
            }
        };
        let roles = query.capture_names().iter().map(role).collect();
        Some(Self {
            language,
            query,
            roles,
            bodies_only: matches!(number, 7 | 8 | 12),
        })
    }
}
