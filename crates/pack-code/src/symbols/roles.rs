//! What a name does where it occurs: it is defined, called, imported, inherited from, used in
//! another way, or only mentioned in a comment or a string.
//!
//! The kinds of nodes are those of all grammars together: no two of them mean different things by
//! one of these names.

use std::ops::Range;

use tree_sitter::Node;

use crate::limits;
use crate::symbols::{Symbol, extract, nesting, thread_time, tree_of, with_parser};
use crate::text::defs::Kind;

/// What an occurrence of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Definition,
    Call,
    Import,
    Inherit,
    Use,
    /// In a comment or a string, or in a file without a grammar.
    Mention,
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Call => "call",
            Self::Import => "import",
            Self::Inherit => "inherit",
            Self::Use => "use",
            Self::Mention => "mention",
        }
    }
}

/// One occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occurrence {
    pub(crate) role: Role,
    /// The name follows a `.`, `->` or `::`: it belongs to something.
    pub(crate) is_member: bool,
    /// The innermost definition around it.
    pub(crate) within: Option<Symbol>,
}

/// The roles of a name at some places of a text, which are byte ranges.
pub(crate) fn roles(
    path: &str,
    text: &[u8],
    name: &str,
    places: &[(u64, Range<usize>)],
) -> Vec<Occurrence> {
    let symbols = extract(path, text);
    let within = |line: u64, at: usize| {
        let around = |symbol: &&Symbol| symbol.start_line <= line && line <= symbol.end_line;
        let mut around: Vec<&Symbol> = symbols.iter().filter(around).collect();
        around.retain(|symbol| !(symbol.start_line == line && symbol.name == name));
        // A function on a line of its own is around what stands behind its name.
        let start = memchr::memrchr(b'\n', text.get(..at).unwrap_or_default());
        let before = text
            .get(start.map_or(0, |start| start + 1)..at)
            .unwrap_or_default();
        let on_line = around.iter().filter(|symbol| {
            symbol.end_line == symbol.start_line
                && matches!(symbol.kind, Kind::Function | Kind::Method)
        });
        let named = on_line.filter_map(|symbol| {
            let at = memchr::memmem::rfind(before, symbol.name.as_bytes())?;
            Some((at, *symbol))
        });
        if let Some((_, symbol)) = named.max_by_key(|(at, _)| *at) {
            return Some(symbol.clone());
        }
        around
            .into_iter()
            .filter(|symbol| symbol.end_line > symbol.start_line)
            .max_by_key(|symbol| (symbol.start_line, std::cmp::Reverse(symbol.end_line)))
            .cloned()
    };
    let found = (text.len() <= limits::PARSE_BYTES && nesting(text) <= limits::PARSE_DEPTH)
        .then(|| parsed(path, text, places))
        .flatten();
    let found = found.unwrap_or_else(|| vec![Role::Mention; places.len()]);
    places
        .iter()
        .zip(found)
        .map(|((line, range), role)| {
            let defines = |symbol: &Symbol| symbol.start_line == *line && symbol.name == name;
            let before = text.get(..range.start).unwrap_or_default();
            Occurrence {
                role: match symbols.iter().any(defines) && role != Role::Mention {
                    true => Role::Definition,
                    false => role,
                },
                is_member: [&b"."[..], b"->", b"::"]
                    .iter()
                    .any(|sign| before.ends_with(sign)),
                within: within(*line, range.start),
            }
        })
        .collect()
}

fn parsed(path: &str, text: &[u8], places: &[(u64, Range<usize>)]) -> Option<Vec<Role>> {
    with_parser(path, |parser, _| {
        let deadline = thread_time() + limits::PARSE_TIME;
        let tree = tree_of(parser, text, || thread_time() >= deadline)?;
        let root = tree.root_node();
        let role = |(_, range): &(u64, Range<usize>)| {
            root.descendant_for_byte_range(range.start, range.end)
                .map_or(Role::Mention, role_of)
        };
        Some(places.iter().map(role).collect())
    })
}

/// How far up a node's surroundings are looked at.
const HEIGHT: usize = 12;

fn role_of(node: Node<'_>) -> Role {
    if is_text(node.kind()) {
        return Role::Mention;
    }
    // `a.b.name`, `a::name<T>`: the whole expression is called or imported.
    let mut whole = node;
    for _ in 0..HEIGHT {
        match whole.parent() {
            Some(parent) if joins(parent.kind()) && ends_with(parent, whole) => whole = parent,
            _ => break,
        }
    }
    if let Some(parent) = whole.parent()
        && calls(parent.kind())
    {
        let called = ["function", "name", "constructor", "type", "macro", "method"]
            .iter()
            .filter_map(|field| parent.child_by_field_name(field))
            .any(|child| child == whole);
        let unnamed = parent.kind().contains("creation") && parent.named_child(0) == Some(whole);
        if called || unnamed {
            return Role::Call;
        }
    }
    let mut at = node;
    for _ in 0..HEIGHT {
        let Some(parent) = at.parent() else { break };
        let kind = parent.kind();
        if imports(kind) {
            return Role::Import;
        }
        if inherits(kind) {
            return Role::Inherit;
        }
        match kind {
            // `class A(B)` in Python, `impl B for A` in Rust.
            "argument_list"
                if parent
                    .parent()
                    .is_some_and(|class| class.kind() == "class_definition") =>
            {
                return Role::Inherit;
            }
            "impl_item" if parent.child_by_field_name("body") != Some(at) => return Role::Inherit,
            _ if is_body(kind) => break,
            _ => at = parent,
        }
    }
    Role::Use
}

fn is_text(kind: &str) -> bool {
    kind.contains("comment")
        || kind.contains("string") && kind != "string_interpolation"
        || matches!(kind, "char_literal" | "heredoc_body" | "text" | "regex")
}

/// Nodes that join a name to what it belongs to.
fn joins(kind: &str) -> bool {
    matches!(
        kind,
        "attribute"
            | "member_expression"
            | "field_expression"
            | "selector_expression"
            | "scoped_identifier"
            | "scoped_type_identifier"
            | "qualified_identifier"
            | "qualified_name"
            | "qualified_type"
            | "generic_function"
            | "generic_type"
            | "generic_name"
            | "member_access_expression"
            | "nested_identifier"
            | "scope_resolution"
            | "template_function"
            | "command_name"
            | "template_type"
    )
}

/// Whether a name stands for the whole of what joins it: it is the last name, or the generic one.
fn ends_with(parent: Node<'_>, child: Node<'_>) -> bool {
    if parent.kind().starts_with("generic") || parent.kind().starts_with("template") {
        return parent.named_child(0) == Some(child);
    }
    parent.end_byte() == child.end_byte()
}

fn calls(kind: &str) -> bool {
    matches!(
        kind,
        "call"
            | "call_expression"
            | "method_invocation"
            | "invocation_expression"
            | "object_creation_expression"
            | "new_expression"
            | "macro_invocation"
            | "function_call_expression"
            | "member_call_expression"
            | "nullsafe_member_call_expression"
            | "scoped_call_expression"
            | "command"
            | "decorator"
    )
}

fn imports(kind: &str) -> bool {
    matches!(
        kind,
        "use_declaration"
            | "extern_crate_declaration"
            | "import_statement"
            | "import_from_statement"
            | "future_import_statement"
            | "import_declaration"
            | "import_spec"
            | "import_specifier"
            | "export_specifier"
            | "preproc_include"
            | "using_directive"
            | "using_declaration"
            | "namespace_use_declaration"
    )
}

fn inherits(kind: &str) -> bool {
    matches!(
        kind,
        "class_heritage"
            | "extends_clause"
            | "implements_clause"
            | "extends_type_clause"
            | "super_interfaces"
            | "extends_interfaces"
            | "superclass"
            | "base_clause"
            | "base_class_clause"
            | "base_list"
            | "class_interface_clause"
            | "trait_bounds"
    )
}

fn is_body(kind: &str) -> bool {
    matches!(
        kind,
        "block"
            | "statement_block"
            | "compound_statement"
            | "declaration_list"
            | "class_body"
            | "body_statement"
            | "arguments"
            | "argument_list"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str, name: &str) -> Vec<&'static str> {
        let mut places = Vec::new();
        for (at, _) in text.match_indices(name) {
            let line = text[..at].matches('\n').count() as u64 + 1;
            places.push((line, at..at + name.len()));
        }
        let found = roles(path, text.as_bytes(), name, &places);
        found.iter().map(|found| found.role.name()).collect()
    }

    #[test]
    fn every_language_tells_calls_imports_and_bases_apart() {
        for (path, text, name, expected) in [
            (
                "a.py",
                "from m import Foo\nclass B(Foo): pass\nx = Foo()\ny: Foo = x.Foo(1)\n# Foo\ns = 'Foo'\n",
                "Foo",
                &[
                    "import", "inherit", "call", "use", "call", "mention", "mention",
                ][..],
            ),
            (
                "a.py",
                "def go():\n    pass\ngo()\n",
                "go",
                &["definition", "call"],
            ),
            (
                "a.rs",
                "use a::Foo;\nimpl Tr for Foo {}\nfn f(x: Foo) { Foo::new(); b::Foo(1); foo!(Foo); }\n// Foo\n",
                "Foo",
                &["import", "inherit", "use", "use", "call", "use", "mention"],
            ),
            (
                "a.ts",
                "import { Foo } from './m';\nclass B extends Foo implements I {}\nconst x: Foo = new Foo();\nx.Foo();\n",
                "Foo",
                &["import", "inherit", "use", "call", "call"],
            ),
            (
                "a.js",
                "const a = foo(1);\nfunction foo() {}\n`text ${foo}`;\n",
                "foo",
                &["call", "definition", "use"],
            ),
            (
                "a.go",
                "package p\nfunc Run() {}\nfunc g() { Run(); x.Run() }\n",
                "Run",
                &["definition", "call", "call"],
            ),
            (
                "A.java",
                "class A extends Foo { Foo f = new Foo(); void m() { f.Foo(); } }\n",
                "Foo",
                &["inherit", "use", "call", "call"],
            ),
            (
                "a.c",
                "int run(void) { return 0; }\nint main(void) { int (*p)(void) = run; return run(); }\n",
                "run",
                &["definition", "use", "call"],
            ),
            (
                "a.cpp",
                "class B : public Foo { };\nvoid f() { n::Foo(1); Foo x; }\n",
                "Foo",
                &["inherit", "call", "use"],
            ),
            (
                "a.cs",
                "class B : Foo { void M() { new Foo(); Foo(); } }\n",
                "Foo",
                &["inherit", "call", "call"],
            ),
            (
                "a.rb",
                "class B < Foo\n  def m; Foo.new; end\nend\n",
                "Foo",
                &["inherit", "use"],
            ),
            (
                "a.php",
                "<?php\nuse N\\Foo;\nclass B extends Foo { function m() { new Foo(); $x->Foo(); } }\n",
                "Foo",
                &["import", "inherit", "call", "call"],
            ),
            (
                "a.sh",
                "go() { :; }\ngo now\n",
                "go",
                &["definition", "call"],
            ),
            ("a.lua", "foo()\n", "foo", &["mention"]),
        ] {
            assert_eq!(of(path, text, name), expected, "{path}: {text}");
        }
    }

    #[test]
    fn an_occurrence_knows_the_definition_around_it() {
        let text = "fn outer() {\n    inner();\n}\n";
        let found = roles("a.rs", text.as_bytes(), "inner", &[(2, 17..22)]);
        let found = found.first().unwrap();
        assert_eq!(found.within.as_ref().unwrap().name, "outer");
        assert!(!found.is_member);
    }
}
