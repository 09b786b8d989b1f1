//! Definitions by the look of a line: cheap, for every language, and wrong now and then.
//!
//! It feeds the rank layer while text is indexed, and stands in for the symbol layer until that
//! covers a file.

use std::ops::Range;

use serde::Serialize;

use crate::text::words::is_word;
use crate::tree::lang::Lang;

/// What is defined. The number is part of the index format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Function,
    Method,
    Class,
    Struct,
    Enum,
    Trait,
    Interface,
    Type,
    Module,
    Macro,
    Constant,
    Variable,
    Field,
}

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::Function,
        Self::Method,
        Self::Class,
        Self::Struct,
        Self::Enum,
        Self::Trait,
        Self::Interface,
        Self::Type,
        Self::Module,
        Self::Macro,
        Self::Constant,
        Self::Variable,
        Self::Field,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Method => "method",
            Self::Class => "class",
            Self::Struct => "struct",
            Self::Enum => "enum",
            Self::Trait => "trait",
            Self::Interface => "interface",
            Self::Type => "type",
            Self::Module => "module",
            Self::Macro => "macro",
            Self::Constant => "constant",
            Self::Variable => "variable",
            Self::Field => "field",
        }
    }

    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Self::Variable)
    }

    /// A type of some sort, as people search for it.
    pub(crate) const fn is_type(self) -> bool {
        matches!(
            self,
            Self::Class | Self::Struct | Self::Enum | Self::Trait | Self::Interface | Self::Type
        )
    }
}

/// A definition on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Def {
    /// Where the name stands in the line.
    pub(crate) name: Range<usize>,
    pub(crate) kind: Kind,
}

/// The keyword that begins a definition, in any language that has it.
pub(crate) fn keyword(word: &[u8]) -> Option<Kind> {
    Some(match word {
        b"fn" | b"func" | b"function" | b"def" | b"defp" | b"sub" | b"fun" | b"proc" => {
            Kind::Function
        }
        b"class" | b"actor" | b"object" | b"record" => Kind::Class,
        b"struct" | b"union" => Kind::Struct,
        b"enum" => Kind::Enum,
        b"trait" | b"protocol" | b"defprotocol" => Kind::Trait,
        b"interface" => Kind::Interface,
        b"type" | b"typedef" | b"newtype" | b"data" | b"typealias" | b"using" => Kind::Type,
        b"mod" | b"module" | b"namespace" | b"defmodule" | b"package" | b"extension" => {
            Kind::Module
        }
        b"macro_rules" | b"defmacro" | b"macro" => Kind::Macro,
        _ => return None,
    })
}

pub(crate) fn is_modifier(word: &[u8]) -> bool {
    matches!(
        word,
        b"pub"
            | b"public"
            | b"private"
            | b"protected"
            | b"internal"
            | b"static"
            | b"final"
            | b"abstract"
            | b"async"
            | b"export"
            | b"default"
            | b"unsafe"
            | b"extern"
            | b"inline"
            | b"virtual"
            | b"override"
            | b"sealed"
            | b"open"
            | b"fileprivate"
            | b"partial"
            | b"readonly"
            | b"declare"
            | b"crate"
            | b"mutating"
            | b"indirect"
            | b"companion"
            | b"data"
            | b"case"
            | b"template"
            | b"constexpr"
            | b"explicit"
            | b"friend"
            | b"synchronized"
            | b"native"
            | b"volatile"
            | b"ref"
            | b"new"
            | b"noinline"
            | b"suspend"
            | b"lateinit"
            | b"FMT_EXPORT"
            | b"auto"
    )
}

fn is_control(word: &[u8]) -> bool {
    matches!(
        word,
        b"if"
            | b"for"
            | b"while"
            | b"switch"
            | b"return"
            | b"else"
            | b"catch"
            | b"do"
            | b"new"
            | b"throw"
            | b"try"
            | b"match"
            | b"when"
            | b"until"
            | b"unless"
            | b"elif"
            | b"elseif"
            | b"foreach"
            | b"using"
            | b"lock"
            | b"fixed"
            | b"sizeof"
            | b"typeof"
            | b"await"
            | b"yield"
            | b"delete"
            | b"assert"
            | b"defer"
            | b"go"
            | b"select"
            | b"guard"
            | b"in"
            | b"and"
            | b"or"
            | b"not"
            | b"case"
            | b"super"
            | b"this"
            | b"import"
            | b"from"
            | b"require"
            | b"include"
            | b"print"
            | b"goto"
            | b"with"
            | b"let"
            | b"var"
            | b"const"
            | b"where"
    )
}

/// The definition that a line makes, if it looks like one.
pub(crate) fn definition(line: &[u8], lang: Lang) -> Option<Def> {
    let indent = line.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let first = *line.get(indent)?;
    if !(is_word(first) || matches!(first, b'#' | b'@' | b'~' | b'(')) {
        return None;
    }
    if first == b'#' {
        return hash_define(line, indent);
    }
    by_keyword(line, indent, lang).or_else(|| match lang {
        Lang::PYTHON | Lang::RUST | Lang::GO | Lang::RUBY => None,
        Lang::BASH => shell_function(line, indent),
        _ if lang.name() == "haskell" => haskell_signature(line, indent),
        _ if !lang.is_code() => None,
        _ => by_shape(line, indent, lang),
    })
}

/// `#define NAME`.
fn hash_define(line: &[u8], indent: usize) -> Option<Def> {
    let after = skip_blanks(line, indent + 1);
    let (start, end) = word_at(line, after)?;
    if line.get(start..end)? != b"define" {
        return None;
    }
    let (start, end) = word_at(line, skip_blanks(line, end))?;
    Some(Def {
        name: start..end,
        kind: Kind::Macro,
    })
}

fn by_keyword(line: &[u8], indent: usize, lang: Lang) -> Option<Def> {
    let mut at = indent;
    // Modifiers are few; a line of nothing else is no definition.
    for _ in 0..8 {
        let (start, end) = word_at(line, at)?;
        let word = line.get(start..end)?;
        let kind = keyword(word);
        if let Some(kind) = kind
            && let Some(def) = name_after(line, end, kind, indent, lang)
        {
            return Some(def);
        }
        if matches!(word, b"const" | b"let" | b"var" | b"val") {
            let top = indent == 0 || word == b"const" && lang == Lang::RUST;
            return top.then(|| constant(line, end)).flatten();
        }
        if !is_modifier(word) {
            return None;
        }
        at = skip_blanks(line, end);
        // `pub(crate)`, `extern "C"`, `template <...>`.
        match line.get(at) {
            Some(b'(') => at = skip_blanks(line, after_closing(line, at, b'(', b')')?),
            Some(b'<') => at = skip_blanks(line, after_closing(line, at, b'<', b'>')?),
            Some(b'"') => {
                at = skip_blanks(
                    line,
                    at + 1 + line.get(at + 1..)?.iter().position(|b| *b == b'"')? + 1,
                );
            }
            _ => {}
        }
    }
    None
}

fn name_after(line: &[u8], end: usize, kind: Kind, indent: usize, lang: Lang) -> Option<Def> {
    let mut at = end;
    if line.get(at) == Some(&b'!') {
        at += 1; // macro_rules!
    }
    let blanks = skip_blanks(line, at);
    if blanks == at && line.get(at) != Some(&b'*') {
        return None;
    }
    at = blanks;
    let mut kind = kind;
    if matches!(line.get(at), Some(b'*' | b'&')) {
        at = skip_blanks(line, at + 1);
    }
    if line.get(at) == Some(&b'(') && lang == Lang::GO {
        at = skip_blanks(line, after_closing(line, at, b'(', b')')?);
        kind = Kind::Method;
    }
    let (mut start, mut end) = word_at(line, at)?;
    // `enum class Name`, `type struct`, Swift's `class func`.
    while let Some(word) = line.get(start..end)
        && (keyword(word).is_some() || is_modifier(word) || word == b"rec")
    {
        match word_at(line, skip_blanks(line, end)) {
            Some(next) => (start, end) = next,
            None => break,
        }
    }
    // `struct FMT_API name {`, `class EXPORT Name : Base`: the last word before `{`, `:` or `(`.
    if matches!(lang, Lang::C | Lang::CPP) && kind != Kind::Function {
        while let Some(next) = word_at(line, skip_blanks(line, end)) {
            if line.get(next.0..next.1) == Some(b"final") {
                break;
            }
            (start, end) = next;
        }
        // A declaration of a variable or a forward declaration is no definition.
        let rest = line.get(skip_blanks(line, end)..).unwrap_or_default();
        if matches!(
            rest.first(),
            Some(b';' | b',' | b'*' | b'=' | b'(' | b')' | b'[' | b'&' | b'>')
        ) && kind != Kind::Type
        {
            return None;
        }
    }
    // `Foo.Bar`, `Foo::Bar`, `self.name`: the last part is the name.
    loop {
        let next = match (line.get(end), line.get(end + 1)) {
            (Some(b'.'), Some(_)) => end + 1,
            (Some(b':'), Some(b':')) => end + 2,
            _ => break,
        };
        match word_at(line, next) {
            Some(found) => (start, end) = found,
            None => break,
        }
    }
    let word = line.get(start..end)?;
    if is_control(word) || word.first()?.is_ascii_digit() {
        return None;
    }
    let indented = indent > 0;
    if kind == Kind::Function
        && indented
        && matches!(lang, Lang::PYTHON | Lang::RUST | Lang::RUBY | Lang::PHP)
    {
        kind = Kind::Method;
    }
    Some(Def {
        name: start..end,
        kind,
    })
}

/// `const NAME =`, `export const name = (`: only where it is seen from outside.
fn constant(line: &[u8], end: usize) -> Option<Def> {
    let (mut start, mut end) = word_at(line, skip_blanks(line, end))?;
    if matches!(
        line.get(start..end),
        Some(b"fn" | b"mut" | b"unsafe" | b"ref")
    ) {
        (start, end) = word_at(line, skip_blanks(line, end))?;
    }
    let rest = line.get(end..)?;
    let callable = memchr::memmem::find(rest, b"=>").is_some()
        || memchr::memmem::find(rest, b"function").is_some();
    Some(Def {
        name: start..end,
        kind: if callable {
            Kind::Function
        } else {
            Kind::Constant
        },
    })
}

/// `name() {`.
fn shell_function(line: &[u8], indent: usize) -> Option<Def> {
    let (start, end) = word_at(line, indent)?;
    let rest = line.get(end..)?;
    (rest.starts_with(b"()") || rest.starts_with(b" ()")).then_some(Def {
        name: start..end,
        kind: Kind::Function,
    })
}

/// `name :: Type` at the top level.
fn haskell_signature(line: &[u8], indent: usize) -> Option<Def> {
    let (start, end) = word_at(line, indent)?;
    let rest = line.get(skip_blanks(line, end)..)?;
    (indent == 0 && rest.starts_with(b"::")).then_some(Def {
        name: start..end,
        kind: Kind::Function,
    })
}

/// Functions that have no keyword: `type name(args) {`.
fn by_shape(line: &[u8], indent: usize, lang: Lang) -> Option<Def> {
    let open = memchr::memchr(b'(', line)?;
    let head = line.get(indent..open)?;
    if head.len() > 200
        || head.iter().any(|byte| {
            matches!(
                byte,
                b'=' | b';' | b'"' | b'\'' | b'.' | b'{' | b'}' | b'/' | b'|' | b'?'
            )
        })
    {
        return None;
    }
    let c_like = matches!(lang, Lang::C | Lang::CPP) || lang.name() == "objc";
    if c_like && indent > 0 && lang == Lang::C {
        return None;
    }
    let name_end = indent + head.iter().rposition(|byte| is_word(*byte))? + 1;
    if line.get(name_end..open)?.iter().any(|byte| *byte != b' ') {
        return None;
    }
    let name_start = indent
        + line
            .get(indent..name_end)?
            .iter()
            .rposition(|byte| !is_word(*byte))
            .map_or(0, |at| at + 1);
    let name = line.get(name_start..name_end)?;
    if is_control(name) || name.first()?.is_ascii_digit() {
        return None;
    }
    let before = line.get(indent..name_start)?;
    let first_word = word_at(line, indent)
        .and_then(|(start, end)| line.get(start..end))
        .unwrap_or_default();
    if is_control(first_word) && first_word != b"new" {
        return None;
    }
    let words_before = before
        .split(|byte| !is_word(*byte))
        .filter(|word| !word.is_empty())
        .count();
    let tail = line.trim_ascii_end();
    let (opens, ends) = (tail.ends_with(b"{"), tail.ends_with(b";"));
    let macro_like = name
        .iter()
        .all(|byte| byte.is_ascii_uppercase() || *byte == b'_' || byte.is_ascii_digit());
    let found = match lang {
        Lang::C => !ends && (words_before > 0 || !opens) && !macro_like && !tail.ends_with(b","),
        Lang::CPP => !ends && (words_before > 0 || opens) && !macro_like,
        // A method has a body that opens on its line; a call has not.
        Lang::JAVASCRIPT | Lang::TYPESCRIPT => opens && indent > 0,
        _ => words_before > 0 && (opens || !ends) && first_word != name,
    };
    // `foo(bar) && ...` and the like are expressions.
    let expression =
        memchr::memmem::find(tail, b"&&").is_some() || memchr::memmem::find(tail, b"||").is_some();
    (found && !expression).then_some(Def {
        name: name_start..name_end,
        kind: if c_like { Kind::Function } else { Kind::Method },
    })
}

fn skip_blanks(line: &[u8], at: usize) -> usize {
    let rest = line.get(at..).unwrap_or_default();
    at + rest
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t'))
        .unwrap_or(rest.len())
}

fn word_at(line: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = line.get(at..)?;
    let length = rest
        .iter()
        .position(|byte| !is_word(*byte))
        .unwrap_or(rest.len());
    (length > 0).then_some((at, at + length))
}

/// The place after the bracket that closes the one at `at`.
fn after_closing(line: &[u8], at: usize, open: u8, close: u8) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in line.get(at..)?.iter().enumerate() {
        if *byte == open {
            depth += 1;
        } else if *byte == close {
            depth -= 1;
            if depth == 0 {
                return Some(at + offset + 1);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lang: &str, line: &str) -> Option<(String, Kind)> {
        let def = definition(line.as_bytes(), Lang::named(lang).unwrap())?;
        Some((line[def.name].to_owned(), def.kind))
    }

    #[test]
    fn definitions_are_seen_in_every_language() {
        for (lang, line, name, kind) in [
            (
                "rust",
                "pub(crate) async fn spawn<T>(x: T) {",
                "spawn",
                Kind::Function,
            ),
            ("rust", "    fn poll(&mut self)", "poll", Kind::Method),
            ("rust", "pub struct JoinSet<T> {", "JoinSet", Kind::Struct),
            ("rust", "macro_rules! pin {", "pin", Kind::Macro),
            (
                "python",
                "    async def close(self):",
                "close",
                Kind::Method,
            ),
            (
                "python",
                "class ClientSession:",
                "ClientSession",
                Kind::Class,
            ),
            (
                "go",
                "func (c *Context) JSON(code int) {",
                "JSON",
                Kind::Method,
            ),
            ("go", "type Engine struct {", "Engine", Kind::Type),
            (
                "typescript",
                "export default function createStore<",
                "createStore",
                Kind::Function,
            ),
            (
                "typescript",
                "export const foo = async () => {",
                "foo",
                Kind::Function,
            ),
            (
                "java",
                "  public static <T> TypeToken<T> get(Class<T> type) {",
                "get",
                Kind::Method,
            ),
            ("java", "public final class Gson {", "Gson", Kind::Class),
            (
                "c",
                "int uv_run(uv_loop_t* loop, uv_run_mode mode) {",
                "uv_run",
                Kind::Function,
            ),
            ("c", "struct uv_loop_s {", "uv_loop_s", Kind::Struct),
            ("c", "#define UV_EOF 1", "UV_EOF", Kind::Macro),
            (
                "cpp",
                "template <typename T> class basic_memory_buffer : public buffer<T> {",
                "basic_memory_buffer",
                Kind::Class,
            ),
            (
                "csharp",
                "        public static string SerializeObject(object? value)",
                "SerializeObject",
                Kind::Method,
            ),
            ("ruby", "  def self.call(env)", "call", Kind::Method),
            (
                "php",
                "    public function addRecord(int $level): bool",
                "addRecord",
                Kind::Method,
            ),
            ("bash", "bats_run() {", "bats_run", Kind::Function),
            ("elixir", "defmodule Plug.Conn do", "Conn", Kind::Module),
            (
                "swift",
                "open class Session: @unchecked Sendable {",
                "Session",
                Kind::Class,
            ),
            (
                "haskell",
                "windows :: (WindowSet -> WindowSet) -> X ()",
                "windows",
                Kind::Function,
            ),
        ] {
            assert_eq!(found(lang, line), Some((name.to_owned(), kind)), "{line}");
        }
    }

    #[test]
    fn uses_are_not_definitions() {
        for (lang, line) in [
            ("c", "  uv_run(loop, mode);"),
            ("c", "struct foo *bar;"),
            ("c", "static struct foo x = {"),
            ("javascript", "  if (a) {"),
            ("javascript", "  foo(bar);"),
            ("java", "    return foo(bar);"),
            ("java", "    new Foo(bar);"),
            ("rust", "    let x = spawn(y);"),
            ("python", "    x = foo(y)"),
        ] {
            assert_eq!(found(lang, line), None, "{line}");
        }
    }
}
