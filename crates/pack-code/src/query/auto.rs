//! What `auto` means: one stated rule, by the look of the query alone.
//!
//! 1. In double quotes or backquotes: `literal`, without them. Nothing but blanks: `literal`.
//! 2. A keyword of definition and a name (`fn spawn`, `class Foo`): `symbol`.
//! 3. A path: a slash or a wildcard in one word that is otherwise made of names, or a file name
//!    with a known ending: `path`.
//! 4. An expression: it has `\b`, `.*`, `[...]`, `(...|...)`, `^` at its beginning or the like, and
//!    compiles: `regex`.
//! 5. Punctuation that prose does not have (`::`, `->`, `(`, `=`, `{`, `;`, `.name`): `literal`.
//! 6. Everything else: `ranked`.

use crate::query::pattern::{Case, Pattern};
use crate::text::defs::keyword;
use crate::text::words::is_word;
use crate::tree::lang::Lang;

/// The `kind` argument, `auto` resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Literal,
    Regex,
    Ranked,
    Symbol,
    Path,
}

impl Chosen {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Literal => "literal",
            Self::Regex => "regex",
            Self::Ranked => "ranked",
            Self::Symbol => "symbol",
            Self::Path => "path",
        }
    }
}

/// The kind of a query, and the query without what only said its kind.
pub(crate) fn choose(query: &str) -> (Chosen, String) {
    let text = query.trim();
    if text.is_empty() {
        return (Chosen::Literal, query.to_owned());
    }
    for quote in ['"', '`'] {
        let inner = text
            .strip_prefix(quote)
            .and_then(|text| text.strip_suffix(quote));
        if let Some(inner) = inner
            && !inner.is_empty()
            && !inner.contains(quote)
        {
            return (Chosen::Literal, inner.to_owned());
        }
    }
    if let [word, name] = text.split_whitespace().collect::<Vec<_>>().as_slice()
        && keyword(word.as_bytes()).is_some()
        && is_name(name)
    {
        return (Chosen::Symbol, (*name).to_owned());
    }
    if is_path(text) {
        return (Chosen::Path, text.to_owned());
    }
    if is_expression(text) && Pattern::regex(text, Case::Smart).is_ok() {
        return (Chosen::Regex, text.to_owned());
    }
    if is_code(text) {
        return (Chosen::Literal, text.to_owned());
    }
    (Chosen::Ranked, text.to_owned())
}

fn is_name(word: &str) -> bool {
    word.bytes().all(is_word) && !word.starts_with(|c: char| c.is_ascii_digit())
}

fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-./*?+@".contains(c);
    if text.contains(char::is_whitespace) || !text.chars().all(plain) {
        return false;
    }
    let last = text.rsplit('/').next().unwrap_or(text);
    let file = last
        .rsplit_once('.')
        .is_some_and(|(stem, _)| !stem.is_empty() && Lang::of_path(last) != Lang::TEXT);
    let slashes = text.contains('/') && !text.contains("//");
    slashes || file && !text.contains("..") || text.starts_with("*.") || text.starts_with("**")
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
        "/>", "#[", "@",
    ];
    let called = text.find('(').is_some_and(|at| {
        at > 0
            && text
                .as_bytes()
                .get(at - 1)
                .is_some_and(|byte| is_word(*byte))
    });
    let assigned = text.contains(" = ") || text.contains(":=");
    // `self.name`, `a.b.c`: dots between names in a single word.
    let dotted = !text.contains(char::is_whitespace)
        && text.contains('.')
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(is_word));
    signs.iter().any(|sign| text.contains(sign)) || called || assigned || dotted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_what_it_says() {
        for (query, kind) in [
            ("\"exact words\"", Chosen::Literal),
            ("  ", Chosen::Literal),
            ("fn spawn", Chosen::Symbol),
            ("class ClientSession", Chosen::Symbol),
            ("src/main.rs", Chosen::Path),
            ("*.toml", Chosen::Path),
            ("router.go", Chosen::Path),
            (r"fn \w+_test", Chosen::Regex),
            ("foo|bar", Chosen::Regex),
            ("[a-z]+_id", Chosen::Regex),
            ("tokio::spawn", Chosen::Literal),
            ("self.close()", Chosen::Literal),
            ("os.path.join", Chosen::Literal),
            ("Router", Chosen::Ranked),
            ("how does routing work", Chosen::Ranked),
            ("HTTP/2 stream (reset) handling", Chosen::Ranked),
            ("what happens on e.g. timeout?", Chosen::Ranked),
            ("read/write locks", Chosen::Ranked),
        ] {
            assert_eq!(choose(query).0, kind, "{query}");
        }
        assert_eq!(choose("fn spawn").1, "spawn");
        assert_eq!(choose("`a b`").1, "a b");
        assert_eq!(choose("  ").1, "  ");
    }
}
