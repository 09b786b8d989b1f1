//! Symbols: what a file defines, by tree-sitter where there is a grammar, else by the look of its
//! lines.

mod grammars;
pub(crate) mod layer;
mod macros;
pub(crate) mod names;
pub(crate) mod roles;

use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Duration;

use grep_matcher::Matcher as _;
use streaming_iterator::StreamingIterator as _;
use tree_sitter::{Node, ParseOptions, Parser, QueryCursor, QueryCursorOptions, Tree};

use crate::limits;
use crate::query::pattern::Pattern;
use crate::query::snippet::Lines;
use crate::symbols::grammars::{Grammar, Role};
use crate::text::defs::{Kind, definition};
use crate::tree::lang::Lang;

/// One definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Symbol {
    pub(crate) start_line: u64,
    pub(crate) end_line: u64,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The type, module or function that it belongs to; empty at the top level.
    pub(crate) owner: String,
}

/// Whether there is a grammar for a file.
pub(crate) fn has_grammar(path: &str) -> bool {
    grammars::number(path).is_some()
}

/// The definitions of a text, in the order of their lines.
pub(crate) fn extract(path: &str, text: &[u8]) -> Vec<Symbol> {
    let opened = match path.ends_with(".rs") {
        true => macros::opened(text),
        false => Cow::Borrowed(text),
    };
    if text.len() <= limits::PARSE_BYTES
        && nesting(text) <= limits::PARSE_DEPTH
        && let Some(mut symbols) = parse(path, &opened)
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
    if same && kept.owner.is_empty() {
        kept.owner.clone_from(&later.owner);
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
                owner: String::new(),
            });
            if symbols.len() >= limits::FILE_SYMBOLS {
                break;
            }
        }
    }
    symbols
}

/// Like [`guess`], but only of lines in which a pattern matches.
pub(crate) fn guess_named(path: &str, text: &[u8], pattern: &Pattern) -> Vec<Symbol> {
    let lang = Lang::of_path(path);
    let mut symbols = Vec::new();
    let (mut at, mut counted, mut number) = (0, 0, 1_u64);
    while lang.is_code()
        && let Ok(Some(found)) = pattern.matcher.find_at(text, at)
        && symbols.len() < limits::FILE_SYMBOLS
    {
        let before = text.get(..found.start()).unwrap_or_default();
        let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let rest = text.get(start..).unwrap_or_default();
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let skipped = text.get(counted..start).unwrap_or_default();
        number += memchr::memchr_iter(b'\n', skipped).count() as u64;
        counted = start;
        at = start + line.len() + 1;
        if let Some(def) = definition(line, lang)
            && let Some(name) = line.get(def.name)
        {
            symbols.push(Symbol {
                start_line: number,
                end_line: number,
                name: String::from_utf8_lossy(name).into_owned(),
                kind: def.kind,
                owner: String::new(),
            });
        }
        if at >= text.len() {
            break;
        }
    }
    symbols
}

/// How a definition begins in its text, on one line: everything up to its body, shortened.
pub(crate) fn signature(lines: &Lines<'_>, symbol: &Symbol) -> String {
    let mut out = String::new();
    let last = symbol.end_line.max(symbol.start_line);
    for number in symbol.start_line..=last.min(symbol.start_line + SIGNATURE_LINES - 1) {
        let line = String::from_utf8_lossy(lines.line(number));
        let line = line.trim();
        if !out.is_empty() && !line.is_empty() {
            out.push(' ');
        }
        out.push_str(line);
        let ends = line.ends_with(['{', ';', ':']) || line.ends_with("=>") || line.contains(" {");
        let open = out.matches('(').count() > out.matches(')').count();
        if ends || !open || out.len() >= SIGNATURE_BYTES {
            break;
        }
    }
    let body = out.find(" {").unwrap_or(out.len());
    let cut = out.floor_char_boundary(body.min(SIGNATURE_BYTES));
    out.truncate(cut);
    out.truncate(out.trim_end_matches(['{', ';', ' ', ':']).len());
    out
}

/// Lines that a signature may take, and bytes of it that are shown.
const SIGNATURE_LINES: u64 = 4;
const SIGNATURE_BYTES: usize = 160;

thread_local! {
    /// Parsers and compiled queries of this thread: both are costly to make and cannot be shared.
    static GRAMMARS: RefCell<BTreeMap<usize, Option<(Parser, Grammar)>>> = const { RefCell::new(BTreeMap::new()) };
}

fn parse(path: &str, text: &[u8]) -> Option<Vec<Symbol>> {
    with_parser(path, |parser, grammar| walk(parser, grammar, text))
}

/// Calls `work` with the parser and the grammar of a file, if there is one.
fn with_parser<R>(path: &str, work: impl FnOnce(&mut Parser, &Grammar) -> Option<R>) -> Option<R> {
    let number = grammars::number(path)?;
    GRAMMARS.with_borrow_mut(|grammars| {
        let made = grammars.entry(number).or_insert_with(|| {
            let grammar = Grammar::compile(number)?;
            let mut parser = Parser::new();
            parser.set_language(&grammar.language).ok()?;
            Some((parser, grammar))
        });
        let (parser, grammar) = made.as_mut()?;
        work(parser, grammar)
    })
}

/// The tree of a text; nothing if that takes longer than `is_late` allows.
fn tree_of(parser: &mut Parser, text: &[u8], is_late: impl Fn() -> bool) -> Option<Tree> {
    let mut late = |_: &tree_sitter::ParseState| match is_late() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let options = ParseOptions::new().progress_callback(&mut late);
    let mut read = |at: usize, _| text.get(at..).unwrap_or_default();
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    if tree.is_none() {
        parser.reset();
    }
    tree
}

fn walk(parser: &mut Parser, grammar: &Grammar, text: &[u8]) -> Option<Vec<Symbol>> {
    // The time of this thread: on a busy machine the clock says nothing about a file.
    let deadline = thread_time() + limits::PARSE_TIME;
    let is_late = || thread_time() >= deadline;
    let tree = tree_of(parser, text, is_late)?;
    let mut cursor = QueryCursor::new();
    cursor.set_match_limit(4096);
    let mut blocks = Vec::new();
    let mut late = |_: &tree_sitter::QueryCursorState| match is_late() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let options = QueryCursorOptions::new().progress_callback(&mut late);
    let mut matches = cursor.matches_with_options(&grammar.query, tree.root_node(), text, options);
    while let Some(found) = matches.next() {
        let (mut name, mut owner, mut whole) = (None, None, None);
        for capture in found.captures() {
            match grammar.roles.get(capture.index as usize) {
                Some(Role::Definition(kind)) => whole = Some((capture.node, Some(*kind))),
                Some(Role::Scope) => whole = Some((capture.node, None)),
                Some(Role::Name) => name = Some(capture.node),
                Some(Role::Owner) => owner = Some(capture.node),
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
        if kind.is_some() && (bytes.is_empty() || bytes.len() > 200 || bytes.contains(&b'\n')) {
            continue;
        }
        let outer = definition_of(whole);
        blocks.push(Block {
            bytes: outer.byte_range(),
            kind,
            symbol: Symbol {
                start_line: name.start_position().row as u64 + 1,
                end_line: outer.end_position().row as u64 + 1,
                name: match kind {
                    Some(_) => String::from_utf8_lossy(bytes).into_owned(),
                    None => type_name(bytes),
                },
                kind: kind.unwrap_or(Kind::Type),
                owner: owner
                    .and_then(|owner| text.get(owner.byte_range()))
                    .map(type_name)
                    .unwrap_or_default(),
            },
        });
        if blocks.len() >= limits::FILE_SYMBOLS {
            break;
        }
    }
    // A part of the symbols would pass for all of them.
    (!is_late()).then(|| owned(blocks))
}

/// A definition or a scope with the bytes it covers.
struct Block {
    bytes: Range<usize>,
    /// `None` for a scope.
    kind: Option<Kind>,
    symbol: Symbol,
}

/// The definitions, each with the innermost block around it as its owner.
fn owned(mut blocks: Vec<Block>) -> Vec<Symbol> {
    blocks.sort_by_key(|block| (block.bytes.start, Reverse(block.bytes.end)));
    let mut symbols = Vec::new();
    let mut around: Vec<(Range<usize>, String)> = Vec::new();
    for Block {
        bytes,
        kind,
        mut symbol,
    } in blocks
    {
        while around
            .last()
            .is_some_and(|(outer, _)| outer.end < bytes.end)
        {
            around.pop();
        }
        let outer = around.iter().rev().find(|(outer, _)| *outer != bytes);
        if let (true, Some((_, name))) = (symbol.owner.is_empty(), outer) {
            symbol.owner.clone_from(name);
        }
        around.push((bytes, symbol.name.clone()));
        if kind.is_some() {
            symbols.push(symbol);
        }
    }
    symbols
}

/// The name of a type as it is written in code: `Context` for `*Context`, `a::Context<T>` and
/// `Context.prototype`.
fn type_name(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = text
        .split(['<', '[', '('])
        .find(|part| part.contains(char::is_alphanumeric));
    let plain = plain.unwrap_or_default().trim_end_matches(".prototype");
    plain
        .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
        .find(|word| !word.is_empty())
        .unwrap_or_default()
        .to_owned()
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
    fn a_definition_knows_its_owner() {
        for (path, text, name, owner) in [
            ("a.rs", "impl<T> a::Foo<T> { fn m(&self) {} }", "m", "Foo"),
            ("a.rs", "impl Tr for Foo { fn m(&self) {} }", "m", "Foo"),
            ("a.rs", "trait Tr { fn m(&self); }", "m", "Tr"),
            ("a.rs", "fn f() {}", "f", ""),
            (
                "a.py",
                "class A:\n    class B:\n        def m(self): pass",
                "m",
                "B",
            ),
            (
                "a.go",
                "func (c *Context) JSON(code int) {}",
                "JSON",
                "Context",
            ),
            ("a.go", "func (s Set[T]) Add(x T) {}", "Add", "Set"),
            ("a.js", "Foo.prototype.bar = function () {}", "bar", "Foo"),
            ("a.js", "const app = { use() {} }", "use", "app"),
            ("a.ts", "export class C { m(): void {} }", "m", "C"),
            ("A.java", "class A { class B { void m() {} } }", "m", "B"),
            ("a.cpp", "void n::C::q() {}", "q", "C"),
            (
                "a.cpp",
                "namespace n { class C { void m() {} }; }",
                "m",
                "C",
            ),
            ("a.cs", "namespace N { class C { void M() {} } }", "M", "C"),
            (
                "a.rb",
                "module M\n  class C\n    def m; end\n  end\nend",
                "m",
                "C",
            ),
            ("a.php", "<?php\nclass C { function m() {} }", "m", "C"),
        ] {
            let symbols = extract(path, text.as_bytes());
            let found = symbols.iter().find(|symbol| symbol.name == name).unwrap();
            assert_eq!(found.owner, owner, "{text}");
        }
    }

    #[test]
    fn a_signature_ends_where_the_body_begins() {
        for (path, text, name, signature) in [
            (
                "a.rs",
                "pub fn f(\n    a: u8,\n) -> u8 {\n    a\n}\n",
                "f",
                "pub fn f( a: u8, ) -> u8",
            ),
            ("a.py", "class A(B):\n    pass\n", "A", "class A(B)"),
            (
                "a.go",
                "func (c *Context) JSON(code int) { x() }\n",
                "JSON",
                "func (c *Context) JSON(code int)",
            ),
            ("a.rs", "const A: u8 = 1;\n", "A", "const A: u8 = 1"),
        ] {
            let symbols = extract(path, text.as_bytes());
            let found = symbols.iter().find(|symbol| symbol.name == name).unwrap();
            assert_eq!(
                super::signature(&Lines::new(text.as_bytes()), found),
                signature
            );
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
