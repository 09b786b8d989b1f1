//! Patterns: ripgrep's own matcher, and the case that `smart` means.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use grep_regex::RegexMatcherBuilder;
use mainstay_worker::{ErrorKind, Problem};
use regex_syntax::ast::{self, Ast, Visitor};
use regex_syntax::hir::Hir;
use serde::Deserialize;

use crate::limits;
use crate::query::matcher::LineMatcher;

/// The `case` argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    #[default]
    Smart,
    Sensitive,
    Insensitive,
}

/// The patterns that were compiled last: pages of one query come one after the other.
#[derive(Debug, Default)]
pub(crate) struct Patterns(Mutex<VecDeque<(String, Case, Arc<Pattern>)>>);

impl Patterns {
    /// The pattern of a text that stands for itself.
    pub(crate) fn literal(&self, text: &str, case: Case) -> Result<Arc<Pattern>, Problem> {
        self.regex(&Pattern::escaped(text)?, case)
    }

    /// The pattern of a regular expression, compiled now or before.
    pub(crate) fn regex(&self, text: &str, case: Case) -> Result<Arc<Pattern>, Problem> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |(known, of, _): &&(String, Case, Arc<Pattern>)| known == text && *of == case;
        if let Some((_, _, pattern)) = lock().iter().find(known) {
            return Ok(Arc::clone(pattern));
        }
        let pattern = Arc::new(Pattern::regex(text, case)?);
        let mut kept = lock();
        kept.push_back((text.to_owned(), case, Arc::clone(&pattern)));
        if kept.len() > limits::PATTERNS {
            kept.pop_front();
        }
        Ok(pattern)
    }
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) matcher: LineMatcher,
    pub(crate) hir: Hir,
    /// Whether letters match in either case.
    pub(crate) insensitive: bool,
}

impl Pattern {
    pub(crate) fn literal(text: &str, case: Case) -> Result<Self, Problem> {
        Self::regex(&Self::escaped(text)?, case)
    }

    fn escaped(text: &str) -> Result<String, Problem> {
        if text.contains('\n') {
            return Err(invalid(
                "the query has a line break; a match lies within one line",
            ));
        }
        Ok(regex_syntax::escape(text))
    }

    pub(crate) fn regex(text: &str, case: Case) -> Result<Self, Problem> {
        let parsed = ast::parse::ParserBuilder::new()
            .build()
            .parse_with_comments(text)
            .map_err(|error| invalid(&first_line(&error.to_string())))?;
        let insensitive = match case {
            Case::Sensitive => false,
            Case::Insensitive => true,
            Case::Smart => is_smart_insensitive(&parsed.ast)?,
        };
        // The matcher puts the pattern into a group, whose end a comment of `(?x)` would swallow.
        let open = parsed
            .comments
            .last()
            .is_some_and(|comment| comment.span.end.offset == text.len());
        let text = &if open {
            format!("{text}\n")
        } else {
            text.to_owned()
        };
        let matcher = RegexMatcherBuilder::new()
            .multi_line(true)
            .unicode(true)
            .octal(false)
            .case_insensitive(insensitive)
            .line_terminator(Some(b'\n'))
            .size_limit(limits::REGEX_BYTES)
            .dfa_size_limit(limits::REGEX_BYTES)
            .build(text)
            .map_err(|error| invalid(&first_line(&error.to_string())))?;
        let hir = regex_syntax::ParserBuilder::new()
            .utf8(false)
            .unicode(true)
            .multi_line(true)
            .case_insensitive(insensitive)
            .build()
            .parse(text)
            .map_err(|error| invalid(&first_line(&error.to_string())))?;
        Ok(Self {
            matcher: LineMatcher::new(matcher, &hir),
            hir,
            insensitive,
        })
    }
}

fn invalid(message: &str) -> Problem {
    Problem::new(
        ErrorKind::InvalidArguments,
        format!("the pattern cannot be used: {message}"),
    )
    .with_hint("escape special characters with \\, or use kind \"literal\"")
}

fn first_line(text: &str) -> String {
    // The errors of the parser draw the pattern and point at the mistake; the last line says it.
    let said = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or(text);
    said.trim().trim_start_matches("error: ").to_owned()
}

/// Smart case as in ripgrep: either case, if the pattern has letters to match and none of them is
/// upper-case.
fn is_smart_insensitive(ast: &Ast) -> Result<bool, Problem> {
    ast::visit(ast, Literals::default())
        .map(|found| found.any && !found.upper)
        .map_err(|()| invalid("it cannot be analysed"))
}

#[derive(Clone, Copy, Debug, Default)]
struct Literals {
    any: bool,
    upper: bool,
}

impl Literals {
    fn add(&mut self, literal: &ast::Literal) {
        self.any = true;
        self.upper |= literal.c.is_uppercase();
    }
}

impl Visitor for Literals {
    type Output = Self;
    type Err = ();

    fn finish(self) -> Result<Self, ()> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ()> {
        if let Ast::Literal(literal) = ast {
            self.add(literal);
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), ()> {
        match item {
            ast::ClassSetItem::Literal(literal) => self.add(literal),
            ast::ClassSetItem::Range(range) => {
                self.add(&range.start);
                self.add(&range.end);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smart_case_looks_at_letters_only() {
        let smart = |text: &str| Pattern::regex(text, Case::Smart).unwrap().insensitive;
        assert!(smart("foo"));
        assert!(!smart("Foo"));
        assert!(smart(r"foo\S\W\pL"));
        assert!(!smart("[A-Z]foo"));
        assert!(!smart(r"\w+"));
        assert!(
            !Pattern::literal("foo", Case::Sensitive)
                .unwrap()
                .insensitive
        );
    }

    #[test]
    fn a_comment_of_a_verbose_pattern_may_end_it() {
        use grep_matcher::Matcher as _;
        for text in [
            "(?x) out put # c",
            "(?x) out (?:put # c\n) # d",
            "(?x)output#",
        ] {
            for case in [Case::Smart, Case::Sensitive, Case::Insensitive] {
                let pattern = Pattern::regex(text, case).unwrap();
                assert!(pattern.matcher.is_match(b"an output").unwrap(), "{text}");
                assert!(!pattern.matcher.is_match(b"out put").unwrap(), "{text}");
            }
        }
        assert!(Pattern::regex("(?x) a # c)", Case::Smart).is_ok());
        assert!(Pattern::regex("(?x) (a # c)", Case::Smart).is_err());
        assert!(Pattern::regex("a) (?x:b # c", Case::Smart).is_err());
    }

    #[test]
    fn a_bad_pattern_says_what_is_wrong() {
        let problem = Pattern::regex("foo(", Case::Smart).unwrap_err();
        assert!(
            problem.message.contains("unclosed group"),
            "{}",
            problem.message
        );
        assert!(Pattern::literal("a\nb", Case::Smart).is_err());
        assert!(Pattern::regex("a\\nb", Case::Smart).is_err());
    }
}
