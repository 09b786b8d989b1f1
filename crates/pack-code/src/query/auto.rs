//! How `auto` reads a query: attempts in order, by the look of the query alone.
//!
//! Each attempt is a kind of search with the text it looks for, and a condition that its answer has
//! to meet. The first one that meets its condition answers. The last one, if all others fail, is a
//! ranked search whose hits are marked as guesses.
//!
//! | the query is | attempts |
//! |---|---|
//! | in quotes or backquotes | `literal` without them |
//! | a place (`a.rs:237`, `--> a.rs:2:9`, `https://host/x/a.rs#L2`) | `path`, shown at that line; `literal` |
//! | a test (`tests/a.py::A::test_b[1]`) | `symbol` of its name; `literal`; `path` of its file |
//! | a path or wildcard (`src/a.rs`, `sync/*.rs`) | `path`; `literal` |
//! | a keyword and a name (`fn spawn`) | `symbol`; `literal` |
//! | a name with its sign (`save!`, `empty?`) | `symbol`, if that very name is defined; `literal` |
//! | a qualified name (`a::b`, `A.b`, `A#b`) | `symbol` of the name in its container; `literal`; `symbol` of the name |
//! | an expression (`fn \w+`) | `literal`; `regex` |
//! | code (`Vec<u8>`, `.await?`, `f(x, y)`) | `literal`; `regex` with free blanks; `symbol` of what it declares or calls |
//! | several words | `literal` if they occur verbatim and can only be a quotation; `ranked` |
//! | a message with values (`line 7: cannot open 'x'`) | besides, `regex` of the words around the values |
//! | one letter, or a word with other signs in it (`C++`) | `literal` |
//! | one word | `ranked` |

use crate::query::pattern::{Case, Pattern};
use crate::query::place::{is_path, is_windows, of_test, of_url, place};
use crate::text::defs::{is_modifier, keyword};
use crate::text::words::is_word;

/// The kind of search that answers, `auto` resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Literal,
    Regex,
    Ranked,
    Symbol,
    Path,
    References,
    History,
}

impl Chosen {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Literal => "literal",
            Self::Regex => "regex",
            Self::Ranked => "ranked",
            Self::Symbol => "symbol",
            Self::Path => "path",
            Self::References => "references",
            Self::History => "history",
        }
    }

    /// Whether it finds lines, in the order of path and line.
    pub(crate) const fn is_exact(self) -> bool {
        matches!(self, Self::Literal | Self::Regex | Self::References)
    }

    /// Whether it needs the index.
    pub(crate) const fn needs_index(self) -> bool {
        matches!(self, Self::Ranked | Self::Symbol | Self::Path)
    }
}

/// When the answer of an attempt counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepts {
    /// It has a hit.
    Any,
    /// Its first hit fits as a whole: the very name in its container, the very path.
    Sure,
    /// The words occur as they are written, capitals included.
    Verbatim,
    /// It has a hit: the words occur, but around other values.
    Filled,
    /// Always. `ranked` says itself if a name of the query occurs nowhere.
    Always,
    /// Always, but only as guesses: the query has an exact meaning, and that was not found.
    Guess,
}

/// One way to read a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) kind: Chosen,
    pub(crate) text: String,
    pub(crate) accepts: Accepts,
}

impl Attempt {
    pub(crate) fn new(kind: Chosen, text: impl Into<String>, accepts: Accepts) -> Self {
        Self {
            kind,
            text: text.into(),
            accepts,
        }
    }
}

/// Words from which on a text that occurs verbatim can only be a quotation.
const QUOTED_WORDS: usize = 4;
/// The same in bytes.
const QUOTED_BYTES: usize = 28;

/// Whether a text begins as questions do.
pub(crate) fn is_question(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    let words = ["how", "what", "where", "why", "when", "which", "who"];
    words.iter().any(|word| first.eq_ignore_ascii_case(word))
}

/// Whether words that occur verbatim are a quotation and not a subject or a question.
pub(crate) fn is_quotation(text: &str) -> bool {
    if is_question(text) {
        return false;
    }
    text.len() >= QUOTED_BYTES || text.split_whitespace().count() >= QUOTED_WORDS
}

/// The ways to read a query, in their order.
pub(crate) fn attempts(query: &str) -> Vec<Attempt> {
    let text = longest_line(query);
    if text.is_empty() {
        return vec![Attempt::new(Chosen::Literal, query, Accepts::Always)];
    }
    let mut found = exact_attempts(text);
    let prose = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_-'’".contains(c);
    if found.is_empty() && !text.contains(char::is_whitespace) && !text.chars().all(prose) {
        found.push(Attempt::new(Chosen::Literal, text, Accepts::Any));
    }
    let exact = !found.is_empty();
    if !exact && !is_name(text) {
        found.push(Attempt::new(Chosen::Literal, text, Accepts::Verbatim));
    }
    if !is_expression(text) {
        found
            .extend(message(text).map(|words| Attempt::new(Chosen::Regex, words, Accepts::Filled)));
    }
    let last = if exact {
        Accepts::Guess
    } else {
        Accepts::Always
    };
    found.push(Attempt::new(Chosen::Ranked, query.trim(), last));
    found
}

/// Words and bytes that a message has around its values.
const MESSAGE_WORDS: usize = 4;
const MESSAGE_BYTES: usize = 16;

/// A message of a program as an expression for the text that it was made of: the words around what
/// can only be values, which are numbers, paths and what is in quotes. `ValueError:` and the like
/// before it are put there by others.
fn message(text: &str) -> Option<String> {
    if is_question(text) {
        return None;
    }
    let mut rest = text;
    while let Some((first, after)) = rest.split_once(": ") {
        if first.contains(char::is_whitespace) {
            break;
        }
        rest = after;
    }
    let is_end = |c: char| ":,.;!)]".contains(c);
    let mut pieces = vec![String::new()];
    let mut open: Option<char> = None;
    for word in rest.split_whitespace() {
        let core = word.trim_end_matches(is_end);
        // What stands right before a value, as in `error=7` and `(7)`, is not part of it.
        let before = match open {
            Some(_) => 0,
            None => core.rfind(['=', '(', '[', '<', '#']).map_or(0, |at| at + 1),
        };
        let value = core.get(before..)?;
        let quote = value.chars().next().filter(|c| "'\"`".contains(*c));
        let is_value = open.is_some()
            || quote.is_some()
            || value.contains(|c: char| c.is_ascii_digit() || "/\\".contains(c));
        let fixed = match is_value {
            true => word.get(..before)?,
            false => word,
        };
        let piece = pieces.last_mut()?;
        if !piece.is_empty() && !fixed.is_empty() {
            piece.push(' ');
        }
        piece.push_str(fixed);
        if !is_value {
            continue;
        }
        let closes = |quote: char| value.ends_with(quote) && (open.is_some() || value.len() > 1);
        open = open.or(quote).filter(|quote| !closes(*quote));
        // What follows the value at once is not part of it, either.
        pieces.push(word.get(core.len()..)?.to_owned());
    }
    let count = pieces.len();
    pieces.retain(|piece| piece.contains(char::is_alphanumeric));
    let words = pieces.iter().flat_map(|piece| piece.split_whitespace());
    let bytes: usize = pieces.iter().map(String::len).sum();
    // Two values leave less doubt than one.
    let enough = MESSAGE_WORDS.saturating_sub(usize::from(count > 2));
    let is_message =
        open.is_none() && count > 1 && bytes >= MESSAGE_BYTES && words.count() >= enough;
    let pieces: Vec<String> = pieces
        .iter()
        .map(|piece| regex_syntax::escape(piece))
        .collect();
    is_message.then(|| pieces.join(".{1,80}"))
}

/// Attempts for what has an exact meaning; none for words.
fn exact_attempts(text: &str) -> Vec<Attempt> {
    use Accepts::{Any, Sure};
    use Chosen::{Literal, Path, Regex, Symbol};
    if let Some(inner) = quoted(text) {
        return vec![Attempt::new(Literal, inner, Any)];
    }
    let literal = || Attempt::new(Literal, text, Any);
    // No word: the ranked index has none of one letter.
    if text.chars().nth(1).is_none() {
        return vec![literal()];
    }
    if let Some(path) = of_url(text) {
        return vec![Attempt::new(Path, path, Sure), literal()];
    }
    if let Some((path, names)) = of_test(text) {
        let file = path.rsplit('/').next().unwrap_or(path);
        let stem = file.split('.').next().unwrap_or(file);
        let symbol = match names.contains("::") {
            true => names.to_owned(),
            false => format!("{stem}::{names}"),
        };
        return vec![
            Attempt::new(Symbol, symbol, Sure),
            literal(),
            Attempt::new(Path, path, Sure),
        ];
    }
    if place(text).is_some() || is_path(text) || is_windows(text) {
        let mut found = vec![Attempt::new(Path, text, Sure), literal()];
        if is_windows(text) && Pattern::regex(text, Case::Smart).is_ok() {
            found.push(Attempt::new(Regex, text, Any));
        }
        return found;
    }
    if let [word, name] = text.split_whitespace().collect::<Vec<_>>().as_slice()
        && keyword(word.as_bytes()).is_some()
        && (is_name(name) || qualified(name).is_some())
    {
        return vec![Attempt::new(Symbol, *name, Sure), literal()];
    }
    // `save!`, `empty?`: in some languages a name ends so.
    if text.strip_suffix(['!', '?']).is_some_and(is_name) {
        return vec![Attempt::new(Symbol, text, Sure), literal()];
    }
    if qualified(text).is_some() {
        let symbol = |accepts| Attempt::new(Symbol, text, accepts);
        return vec![symbol(Sure), literal(), symbol(Any)];
    }
    let mut found = Vec::new();
    let expression = is_expression(text) && Pattern::regex(text, Case::Smart).is_ok();
    if expression || is_code(text) {
        found.push(literal());
    }
    if expression {
        found.push(Attempt::new(Regex, text, Any));
    }
    if !expression && is_code(text) {
        found.extend(free_blanks(text).map(|loose| Attempt::new(Regex, loose, Any)));
        found.extend(declared(text).map(|name| Attempt::new(Symbol, name, Sure)));
    }
    found
}

/// The longest line of a text, without the blanks around it: a match lies within one line.
fn longest_line(query: &str) -> &str {
    let lines = query.lines().map(str::trim);
    // Of equal ones the first.
    lines
        .rev()
        .max_by_key(|line| line.len())
        .unwrap_or_default()
}

fn quoted(text: &str) -> Option<&str> {
    ['"', '`'].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.is_empty() && !inner.contains(quote)).then_some(inner)
    })
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(is_word) && !word.starts_with(|c: char| c.is_ascii_digit())
}

/// A qualified name: the names before the last one, and the last one. `self`, `this`, `super` and
/// `crate` qualify nothing. Go writes a method of `T` as `(*T).m` or `pkg.(*T).m(...)`.
pub(crate) fn qualified(text: &str) -> Option<(Vec<&str>, &str)> {
    let receiver = text.find("(*").unwrap_or(0);
    let behind = match text.get(receiver..)?.find(").") {
        Some(end) if text.contains("(*") => receiver + end + 1,
        _ => 0,
    };
    let called = match text.get(behind..)?.find('(') {
        Some(at) if text.ends_with(')') => text.get(..behind + at)?,
        _ => text.trim_end_matches('!'),
    };
    if called.contains(char::is_whitespace) {
        return None;
    }
    let mut parts = Vec::new();
    let mut rest = called;
    loop {
        let pointed = rest
            .strip_prefix("(*")
            .and_then(|rest| rest.split_once(')'));
        let end = rest
            .bytes()
            .position(|byte| !is_word(byte))
            .unwrap_or(rest.len());
        let (name, after) = match pointed {
            Some(pointed) => pointed,
            None => rest.split_at_checked(end)?,
        };
        if !is_name(name) {
            return None;
        }
        parts.push(name);
        rest = after;
        // `Foo<T>::bar`: the arguments of a type are not part of its name.
        if rest.starts_with('<') {
            let close = rest.find('>')?;
            rest = rest.get(close + 1..)?;
        }
        if rest.is_empty() {
            break;
        }
        rest = ["::", "->", ".", "#"]
            .iter()
            .find_map(|sign| rest.strip_prefix(sign))?;
    }
    let name = parts.pop()?;
    if matches!(parts.first(), Some(&("self" | "this" | "Self"))) {
        return None;
    }
    parts.retain(|part| !matches!(*part, "crate" | "super"));
    (!parts.is_empty()).then_some((parts, name))
}

fn is_expression(text: &str) -> bool {
    let signs = [
        "\\b", "\\w", "\\s", "\\d", "\\S", "\\(", "\\.", "\\[", "\\{", ".*", ".+", "[^", "(?",
        "\\W", "\\B",
    ];
    let alternation = text.contains('|') && text.contains('(') && text.contains(')')
        || text.contains('|') && !text.contains(' ') && !text.contains("||");
    let class = text.find('[').is_some_and(|open| {
        let rest = text.get(open + 1..).unwrap_or_default();
        rest.find(']')
            .is_some_and(|close| rest.get(..close).is_some_and(|inner| inner.contains('-')))
    });
    signs.iter().any(|sign| text.contains(sign))
        || alternation
        || class
        || text.starts_with('^')
        || text.ends_with('$') && text.len() > 1
}

fn is_code(text: &str) -> bool {
    let signs = [
        "::", "->", "=>", "()", "!=", "==", "&&", "||", "{", "}", ";", "<<", ">>", "+=", "</",
        "/>", "#[", "@", "[]", "&self", "*/", "/*", "//", ":=", "\\n", "%s", "%d",
    ];
    let byte_at = |at: usize| text.as_bytes().get(at).copied();
    let after_word = |at: usize| at > 0 && byte_at(at - 1).is_some_and(is_word);
    // `f(`, `Vec<`, `a[`: a bracket right behind a name.
    let bracket = text
        .char_indices()
        .any(|(at, c)| matches!(c, '(' | '<' | '[') && after_word(at));
    // `.await?`, `#define`, `$name`, `&x`, `*p`: a sign right before a name.
    let prefix = text.starts_with(['.', '#', '$', '&', '*', '%', '-', '<', '(', '['])
        && byte_at(1).is_some_and(|byte| is_word(byte) || byte == b'-' || byte == b'*');
    // `'static`: a sign that does not close again.
    let lifetime = text.strip_prefix('\'').is_some_and(is_name);
    // `func (c *Context) JSON`, `class A(B):`: a keyword, and signs behind it.
    let first = text.split_whitespace().next().unwrap_or_default();
    let declares = text.contains(['(', '*', '&', '<', ':'])
        && (keyword(first.as_bytes()).is_some() || is_modifier(first.as_bytes()));
    let assigned = text.contains(" = ") || text.ends_with(" =");
    // `a.b.c`: dots between names in a single word.
    let dotted = !text.contains(char::is_whitespace)
        && text.contains('.')
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(is_word));
    signs.iter().any(|sign| text.contains(sign))
        || bracket
        || prefix
        || lifetime
        || declares
        || assigned
        || dotted
}

/// Code as an expression that does not care about the blanks between its signs.
fn free_blanks(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut before = None;
    for c in text.chars() {
        if c.is_whitespace() {
            if before != Some(' ') {
                before = Some(' ');
            }
            continue;
        }
        let word = |c: char| c.is_alphanumeric() || c == '_';
        match before {
            None => {}
            Some(' ') => {
                let last = out.chars().next_back();
                let joins = last.is_some_and(word) && word(c);
                out.push_str(if joins { r"\s+" } else { r"\s*" });
            }
            Some(last) if word(last) && word(c) => {}
            Some(_) => out.push_str(r"\s*"),
        }
        out.push_str(&regex_syntax::escape(&c.to_string()));
        before = Some(c);
    }
    (out != regex_syntax::escape(text)).then_some(out)
}

/// The name that a line of code declares (`func (c *Context) JSON`), with its receiver where it has
/// one, or the one that it calls.
fn declared(text: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let word = rest.get(..end.unwrap_or(rest.len()))?;
        let after = rest.get(word.len()..)?.trim_start();
        if keyword(word.as_bytes()).is_some() {
            let (owner, after) = match after
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
            {
                Some((receiver, after)) => (last_name(receiver), after.trim_start()),
                None => (None, after),
            };
            let name = after
                .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next()?;
            return is_name(name).then(|| match owner {
                Some(owner) => format!("{owner}.{name}"),
                None => name.to_owned(),
            });
        }
        if !is_modifier(word.as_bytes()) || after.len() == rest.len() {
            break;
        }
        rest = after;
    }
    let call = text.split('(').next()?;
    (call.len() < text.len())
        .then(|| last_name(call))
        .flatten()
        .map(str::to_owned)
}

/// The name that a query is about: it is one, it has a keyword before it, or it is the one that a
/// piece of code declares or calls. A sentence is about none.
pub(crate) fn subject(query: &str) -> Option<String> {
    let text = longest_line(query);
    let text = quoted(text).unwrap_or(text);
    let of_word = |word: &str| {
        let word = word.strip_suffix("()").unwrap_or(word);
        let name = qualified(word).map_or(word, |(_, name)| name);
        name.bytes().all(is_word).then(|| name.to_owned())
    };
    let named = match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        [name] => of_word(name),
        ["#define", name] => of_word(name),
        [word, name] if keyword(word.as_bytes()).is_some() => of_word(name),
        _ => None,
    };
    let in_code = || {
        let name = declared(text).filter(|_| is_code(text))?;
        name.rsplit('.').next().map(str::to_owned)
    };
    named.or_else(in_code)
}

fn last_name(text: &str) -> Option<&str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .rfind(|word| is_name(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(query: &str) -> Vec<&'static str> {
        attempts(query)
            .iter()
            .map(|attempt| attempt.kind.name())
            .collect()
    }

    #[test]
    fn the_rule_is_what_it_says() {
        for (query, expected) in [
            ("\"exact words\"", &["literal", "ranked"][..]),
            ("  ", &["literal"]),
            ("fn spawn", &["symbol", "literal", "ranked"]),
            ("x", &["literal", "ranked"]),
            ("'static", &["literal", "regex", "ranked"]),
            ("class ClientSession", &["symbol", "literal", "ranked"]),
            ("src/main.rs", &["path", "literal", "ranked"]),
            ("src/main.rs:237", &["path", "literal", "ranked"]),
            ("main.rs#L237", &["path", "literal", "ranked"]),
            ("--> src/main.rs:237:9", &["path", "literal", "ranked"]),
            (r"src\main.rs:237", &["path", "literal", "ranked"]),
            (r"src\main.rs", &["path", "literal", "ranked"]),
            ("sync/*.rs", &["path", "literal", "ranked"]),
            ("*.toml", &["path", "literal", "ranked"]),
            ("router.go", &["path", "literal", "ranked"]),
            (r"fn \w+_test", &["literal", "regex", "ranked"]),
            ("foo|bar", &["literal", "regex", "ranked"]),
            ("[a-z]+_id", &["literal", "regex", "ranked"]),
            ("tokio::spawn", &["symbol", "literal", "symbol", "ranked"]),
            ("Flask.run", &["symbol", "literal", "symbol", "ranked"]),
            ("Array#each", &["symbol", "literal", "symbol", "ranked"]),
            ("os.path.join", &["symbol", "literal", "symbol", "ranked"]),
            ("Foo<T>::bar()", &["symbol", "literal", "symbol", "ranked"]),
            ("self.routes.push", &["literal", "regex", "ranked"]),
            (".await?", &["literal", "regex", "ranked"]),
            ("Vec<u8>", &["literal", "regex", "ranked"]),
            (
                "func (c *Context) JSON",
                &["literal", "regex", "symbol", "ranked"],
            ),
            ("spawn(task)", &["literal", "regex", "symbol", "ranked"]),
            ("Router", &["ranked"]),
            ("C++", &["literal", "ranked"]),
            ("rate-limit", &["literal", "ranked"]),
            ("how does routing work", &["literal", "ranked"]),
            ("HTTP/2 stream (reset) handling", &["literal", "ranked"]),
            ("what happens on e.g. timeout?", &["literal", "ranked"]),
            ("read/write locks", &["literal", "ranked"]),
        ] {
            assert_eq!(kinds(query), expected, "{query}");
        }
        assert!(is_quotation("cannot open the second door"));
        assert!(!is_quotation("where is the second door opened"));
        let first = |query: &str| attempts(query).swap_remove(0).text;
        assert_eq!(first("fn spawn"), "spawn");
        assert_eq!(first("`a b`"), "a b");
        assert_eq!(first("  "), "  ");
        assert_eq!(first("one\n  let x = two(3);\n"), "let x = two(3);");
    }

    #[test]
    fn qualified_names_are_taken_apart() {
        assert_eq!(qualified("a::B::c()"), Some((vec!["a", "B"], "c")));
        assert_eq!(qualified("crate::a::b"), Some((vec!["a"], "b")));
        for text in ["(*Server).Serve", "(*Server).Serve(0x1, {0x2, 0x3})"] {
            assert_eq!(qualified(text), Some((vec!["Server"], "Serve")), "{text}");
        }
        assert_eq!(
            qualified("http.(*Server).Serve(...)"),
            Some((vec!["http", "Server"], "Serve"))
        );
        assert_eq!(qualified("f(*p)"), None);
        assert_eq!(qualified("println!"), None);
        assert_eq!(qualified("self.close()"), None);
        assert_eq!(qualified("e.g. this"), None);
        assert_eq!(
            declared("func (c *Context) JSON"),
            Some("Context.JSON".to_owned())
        );
        assert_eq!(declared("pub async fn run(x: u8)"), Some("run".to_owned()));
    }

    #[test]
    fn a_message_is_looked_for_by_the_words_around_its_values() {
        for (query, expression) in [
            (
                "cannot connect to broker at 7: connection refused",
                Some("cannot connect to broker at.{1,80}: connection refused"),
            ),
            (
                "ValueError: config file 'a b.toml' is not readable",
                Some("config file.{1,80}is not readable"),
            ),
            (
                "main: error: line 3, column 9: no such file or directory",
                Some("line.{1,80}, column.{1,80}: no such file or directory"),
            ),
            (
                "stat /srv/a/b: permission denied for this user",
                Some("stat.{1,80}: permission denied for this user"),
            ),
            (
                "cannot add more than ten permits ('one two')",
                Some(r"cannot add more than ten permits \("),
            ),
            (
                "failed to read from socket; error=/srv/x",
                Some("failed to read from socket; error="),
            ),
            ("7 bytes received from 'egret'", Some("bytes received from")),
            ("no such file or directory", None),
            ("HTTP/2 stream (reset) handling", None),
            ("where is error 404 made from the page", None),
            ("it isn't 'closed in this query 7", None),
        ] {
            assert_eq!(message(query).as_deref(), expression, "{query}");
        }
    }

    #[test]
    fn blanks_are_free_only_between_signs() {
        let matches = |query: &str, line: &str| {
            use grep_matcher::Matcher as _;
            let expression = free_blanks(query).unwrap();
            let pattern = Pattern::regex(&expression, Case::Smart).unwrap();
            pattern.matcher.is_match(line.as_bytes()).unwrap()
        };
        assert!(matches("f(a,b)", "x = f(a, b);"));
        assert!(matches("Map< String,u8 >", "Map<String, u8>"));
        assert!(!matches("return x;", "returnx;"));
    }
}
