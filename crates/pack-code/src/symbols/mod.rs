//! Symbols: what a file defines, by tree-sitter where there is a grammar, else by the look of its
//! lines.

mod grammars;
pub(crate) mod layer;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use streaming_iterator::StreamingIterator as _;
use tree_sitter::{Node, ParseOptions, Parser, QueryCursor, QueryCursorOptions};

use crate::limits;
use crate::symbols::grammars::Grammar;
use crate::text::defs::{Kind, definition};
use crate::tree::lang::Lang;

/// One definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Symbol {
    pub(crate) start_line: u64,
    pub(crate) end_line: u64,
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// Whether there is a grammar for a file.
pub(crate) fn has_grammar(path: &str) -> bool {
    grammars::number(path).is_some()
}

/// The definitions of a text, in the order of their lines.
pub(crate) fn extract(path: &str, text: &[u8]) -> Vec<Symbol> {
    if text.len() <= limits::PARSE_BYTES
        && nesting(text) <= limits::PARSE_DEPTH
        && let Some(mut symbols) = parse(path, text)
    {
        symbols.sort();
        symbols.dedup_by(|later, kept| is_same(later, kept));
        symbols.truncate(limits::FILE_SYMBOLS);
        return symbols;
    }
    guess(path, text)
}

/// Whether two captures are one definition. A method is a function, too, where a grammar does not
/// tell them apart.
fn is_same(later: &Symbol, kept: &mut Symbol) -> bool {
    let callable = |kind: Kind| matches!(kind, Kind::Function | Kind::Method);
    let place = |symbol: &Symbol| (symbol.start_line, symbol.end_line);
    let same = place(later) == place(kept)
        && later.name == kept.name
        && (later.kind == kept.kind || callable(later.kind) && callable(kept.kind));
    if same && later.kind == Kind::Method {
        kept.kind = Kind::Method;
    }
    same
}

/// The definitions of a text by the look of its lines. Where they end is not known.
pub(crate) fn guess(path: &str, text: &[u8]) -> Vec<Symbol> {
    let lang = Lang::of_path(path);
    if !lang.is_code() {
        return Vec::new();
    }
    let mut symbols = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        if let Some(def) = definition(line, lang)
            && let Some(name) = line.get(def.name)
        {
            symbols.push(Symbol {
                start_line: number,
                end_line: number,
                name: String::from_utf8_lossy(name).into_owned(),
                kind: def.kind,
            });
            if symbols.len() >= limits::FILE_SYMBOLS {
                break;
            }
        }
    }
    symbols
}

thread_local! {
    /// Parsers and compiled queries of this thread: both are costly to make and cannot be shared.
    static GRAMMARS: RefCell<BTreeMap<usize, Option<(Parser, Grammar)>>> = const { RefCell::new(BTreeMap::new()) };
}

fn parse(path: &str, text: &[u8]) -> Option<Vec<Symbol>> {
    let number = grammars::number(path)?;
    GRAMMARS.with_borrow_mut(|grammars| {
        let made = grammars.entry(number).or_insert_with(|| {
            let grammar = Grammar::compile(number)?;
            let mut parser = Parser::new();
            parser.set_language(&grammar.language).ok()?;
            Some((parser, grammar))
        });
        let (parser, grammar) = made.as_mut()?;
        walk(parser, grammar, text)
    })
}

fn walk(parser: &mut Parser, grammar: &Grammar, text: &[u8]) -> Option<Vec<Symbol>> {
    // The time of this thread: on a busy machine the clock says nothing about a file.
    let deadline = thread_time() + limits::PARSE_TIME;
    let is_late = || thread_time() >= deadline;
    let mut late = |_: &tree_sitter::ParseState| match is_late() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let options = ParseOptions::new().progress_callback(&mut late);
    let mut read = |at: usize, _| text.get(at..).unwrap_or_default();
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    let Some(tree) = tree else {
        parser.reset();
        return None;
    };
    let mut cursor = QueryCursor::new();
    cursor.set_match_limit(4096);
    let mut symbols = Vec::new();
    let mut late = |_: &tree_sitter::QueryCursorState| match is_late() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let options = QueryCursorOptions::new().progress_callback(&mut late);
    let mut matches = cursor.matches_with_options(&grammar.query, tree.root_node(), text, options);
    while let Some(found) = matches.next() {
        let mut name = None;
        let mut whole: Option<(Node<'_>, Kind)> = None;
        for capture in found.captures() {
            match grammar.kinds.get(capture.index as usize) {
                Some(Some(kind)) => whole = Some((capture.node, *kind)),
                Some(None) => name = Some(capture.node),
                None => {}
            }
        }
        let (Some(name), Some((whole, kind))) = (name.map(declared), whole) else {
            continue;
        };
        if grammar.bodies_only && !is_definition(whole) {
            continue;
        }
        let Some(bytes) = text.get(name.byte_range()) else {
            continue;
        };
        // A name is one word; whatever else was caught is a parse gone wrong.
        if bytes.is_empty() || bytes.len() > 200 || bytes.contains(&b'\n') {
            continue;
        }
        let outer = definition_of(whole);
        symbols.push(Symbol {
            start_line: name.start_position().row as u64 + 1,
            end_line: outer.end_position().row as u64 + 1,
            name: String::from_utf8_lossy(bytes).into_owned(),
            kind,
        });
        if symbols.len() >= limits::FILE_SYMBOLS {
            break;
        }
    }
    // A part of the symbols would pass for all of them.
    (!is_late()).then_some(symbols)
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How deep brackets are nested, about. Parsers take time and stack by it, and no person writes
/// much of it.
fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The name inside a declarator: `t` in `(*t[2])(int)`.
fn declared(node: Node<'_>) -> Node<'_> {
    let mut at = node;
    for _ in 0..16 {
        if !at.kind().ends_with("_declarator") {
            break;
        }
        let last = at.named_child_count().saturating_sub(1);
        let inner = at
            .child_by_field_name("declarator")
            .or_else(|| at.named_child(last as u32));
        match inner {
            Some(inner) => at = inner,
            None => break,
        }
    }
    at
}

/// In C a declarator may stand in a prototype, a type or a parameter; only one that leads to a body
/// defines something.
fn is_definition(node: Node<'_>) -> bool {
    node.kind() != "function_declarator" || definition_of(node).kind() == "function_definition"
}

fn definition_of(node: Node<'_>) -> Node<'_> {
    if node.kind() != "function_declarator" {
        return node;
    }
    let mut at = node;
    for _ in 0..6 {
        match at.parent() {
            Some(parent) if parent.kind() == "function_definition" => return parent,
            Some(parent) if parent.kind().ends_with("_declarator") => at = parent,
            _ => break,
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str, text: &str) -> Vec<(String, &'static str)> {
        extract(path, text.as_bytes())
            .into_iter()
            .map(|symbol| (symbol.name, symbol.kind.name()))
            .collect()
    }

    #[test]
    fn every_language_has_a_grammar_that_finds_definitions() {
        for (path, text, expected) in [
            (
                "a.rs",
                "pub struct S;\nimpl S { fn m(&self) {} }\nfn f() {}\nmacro_rules! x { () => {} }\ntrait T {}\nenum E { A }\nconst C: u8 = 1;\nmod n {}\ntype A = u8;",
                &[
                    ("S", "struct"),
                    ("m", "method"),
                    ("f", "function"),
                    ("x", "macro"),
                    ("T", "trait"),
                    ("E", "enum"),
                    ("C", "constant"),
                    ("n", "module"),
                    ("A", "type"),
                ][..],
            ),
            (
                "a.py",
                "class A:\n    def m(self): pass\ndef f():\n    @x\n    def g(): pass\nX = 1\n",
                &[
                    ("A", "class"),
                    ("m", "method"),
                    ("f", "function"),
                    ("g", "function"),
                    ("X", "constant"),
                ],
            ),
            (
                "a.js",
                "class A { m() {} }\nfunction f() {}\nconst g = () => 1;\n",
                &[
                    ("A", "class"),
                    ("m", "method"),
                    ("f", "function"),
                    ("g", "function"),
                ],
            ),
            (
                "a.ts",
                "export interface I { x: number }\ntype T = string;\nenum E { A }\nexport class C { m(): void {} }\nexport function f(): void {}\nexport const g = (x: number) => x;\n",
                &[
                    ("I", "interface"),
                    ("T", "type"),
                    ("E", "enum"),
                    ("C", "class"),
                    ("m", "method"),
                    ("f", "function"),
                    ("g", "function"),
                ],
            ),
            (
                "a.tsx",
                "export function App() { return <div/>; }\n",
                &[("App", "function")],
            ),
            (
                "a.go",
                "package p\ntype S struct{}\nfunc (s *S) M() {}\nfunc F() {}\ntype I interface{}\nconst C = 1\n",
                &[
                    ("S", "struct"),
                    ("M", "method"),
                    ("F", "function"),
                    ("I", "interface"),
                    ("C", "constant"),
                ],
            ),
            (
                "A.java",
                "class A { void m() {} A() {} }\ninterface I {}\nenum E { X }\nrecord R(int x) {}\n",
                &[
                    ("A", "class"),
                    ("m", "method"),
                    ("A", "method"),
                    ("I", "interface"),
                    ("E", "enum"),
                    ("R", "class"),
                ],
            ),
            (
                "a.c",
                "int proto(void);\nstruct s { int x; };\nstatic int *f(void) { return 0; }\n#define M 1\ntypedef int t;\nenum e { A };\n",
                &[
                    ("s", "struct"),
                    ("f", "function"),
                    ("M", "macro"),
                    ("t", "type"),
                    ("e", "enum"),
                    ("A", "constant"),
                ],
            ),
            (
                "a.cpp",
                "namespace n { class C { void m() {} }; }\nvoid C::q() {}\ntemplate <class T> struct S {};\nint f() { return 1; }\n",
                &[
                    ("n", "module"),
                    ("C", "class"),
                    ("m", "method"),
                    ("q", "method"),
                    ("S", "struct"),
                    ("f", "function"),
                ],
            ),
            (
                "a.cs",
                "namespace N { class C { void M() {} int P { get; } } interface I {} enum E { A } struct S {} }",
                &[
                    ("N", "module"),
                    ("C", "class"),
                    ("M", "method"),
                    ("P", "field"),
                    ("I", "interface"),
                    ("E", "enum"),
                    ("S", "struct"),
                ],
            ),
            (
                "a.rb",
                "module M\n  class C\n    def m; end\n    def self.s; end\n  end\nend\n",
                &[
                    ("M", "module"),
                    ("C", "class"),
                    ("m", "method"),
                    ("s", "method"),
                ],
            ),
            (
                "a.php",
                "<?php\nclass C { function m() {} }\ninterface I {}\ntrait T {}\nfunction f() {}\n",
                &[
                    ("C", "class"),
                    ("m", "method"),
                    ("I", "interface"),
                    ("T", "trait"),
                    ("f", "function"),
                ],
            ),
            (
                "a.sh",
                "f() { :; }\nfunction g { :; }\n",
                &[("f", "function"), ("g", "function")],
            ),
        ] {
            assert!(has_grammar(path), "{path}");
            let expected: Vec<(String, &str)> = expected
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), *kind))
                .collect();
            let mut found = names(path, text);
            let mut wanted = expected.clone();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{path}");
        }
    }

    #[test]
    fn every_form_of_a_typedef_defines_its_names() {
        let text = "typedef struct s { int x; } s_t, *s_p;\ntypedef char *p;\ntypedef int a[4];\ntypedef int f(int);\ntypedef void (*cb)(int);\ntypedef char *(*cbs[10])(int);\n";
        for path in ["a.c", "a.cpp"] {
            let mut types: Vec<String> = names(path, text)
                .into_iter()
                .filter_map(|(name, kind)| (kind == "type").then_some(name))
                .collect();
            types.sort();
            assert_eq!(types, ["a", "cb", "cbs", "f", "p", "s_p", "s_t"], "{path}");
        }
    }

    #[test]
    fn a_long_list_of_macros_is_taken_to_its_end() {
        let text: String = (0..60_000)
            .map(|number| format!("#define REGISTER_{number} {number:#x}\n"))
            .collect();
        let symbols = extract("registers.h", text.as_bytes());
        assert_eq!(symbols.len(), 60_000);
        assert_eq!(symbols.last().unwrap().name, "REGISTER_59999");
    }

    #[test]
    fn hostile_texts_end_within_their_time() {
        let started = std::time::Instant::now();
        extract("a.cpp", "(".repeat(400_000).as_bytes());
        extract("a.js", "[".repeat(400_000).as_bytes());
        extract("a.rs", "fn f() { if x { ".repeat(20_000).as_bytes());
        extract("a.py", &[0xff; 4096]);
        assert!(
            started.elapsed() < limits::PARSE_TIME * 100,
            "{:?}",
            started.elapsed()
        );
    }
}
