//! Tells code, comments and literals of a Rust file apart.
//!
//! Checks that look for words must not trip over a word in a sentence or in a
//! string, their own tables included. `split` gives two texts with the lines of
//! the original: one with the code, one with the comments; what belongs to
//! neither is blank. This is a scanner, not a parser: it knows just enough of
//! the language to find where a literal or a comment ends.

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) code: String,
    pub(crate) comments: String,
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

pub(crate) fn split(text: &str) -> Split {
    let mut scanner = Scanner {
        rest: text.chars().collect(),
        at: 0,
        split: Split::default(),
    };
    while let Some(next) = scanner.peek(0) {
        scanner.token(next);
    }
    scanner.split
}

struct Scanner {
    rest: Vec<char>,
    at: usize,
    split: Split,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    /// Moves over one character; every call of the loops below ends with one,
    /// so the scan ends with the text.
    fn take(&mut self, kind: Kind) {
        let Some(c) = self.peek(0) else { return };
        self.at += 1;
        let blank = if c == '\n' { '\n' } else { ' ' };
        let (code, comment) = match kind {
            Kind::Code => (c, blank),
            Kind::Comment => (blank, c),
            Kind::Literal => (blank, blank),
        };
        self.split.code.push(code);
        self.split.comments.push(comment);
    }

    fn token(&mut self, next: char) {
        match (next, self.peek(1)) {
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('r', Some('"' | '#')) if !self.inside_a_word() => self.raw_string(),
            ('\'', Some('\\')) => self.escaped_char(),
            ('\'', Some(_)) if self.peek(2) == Some('\'') => {
                for _ in 0..3 {
                    self.take(Kind::Literal);
                }
            }
            // Anything else, a lifetime's quote included.
            _ => self.take(Kind::Code),
        }
    }

    /// True if the `r` here ends a name; the `b` of `br"..."` is not a name.
    fn inside_a_word(&self) -> bool {
        let before = |n: usize| {
            self.at
                .checked_sub(n)
                .and_then(|at| self.rest.get(at))
                .copied()
        };
        let is_word = |c: Option<char>| c.is_some_and(is_word_char);
        match before(1) {
            Some('b' | 'c') => is_word(before(2)),
            other => is_word(other),
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.take(Kind::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0usize;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => {
                    depth += 1;
                    self.take(Kind::Comment);
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.take(Kind::Comment);
                }
                _ => {}
            }
            self.take(Kind::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(Kind::Code);
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.take(Kind::Code),
                '\\' => {
                    self.take(Kind::Literal);
                    self.take(Kind::Literal);
                }
                _ => self.take(Kind::Literal),
            }
        }
    }

    fn raw_string(&mut self) {
        self.take(Kind::Code);
        let hashes = (0..).take_while(|n| self.peek(*n) == Some('#')).count();
        if self.peek(hashes) != Some('"') {
            return; // A raw name such as `r#type`.
        }
        for _ in 0..=hashes {
            self.take(Kind::Literal);
        }
        while let Some(c) = self.peek(0) {
            let ends = c == '"' && (1..=hashes).all(|n| self.peek(n) == Some('#'));
            self.take(Kind::Literal);
            if ends {
                for _ in 0..hashes {
                    self.take(Kind::Literal);
                }
                return;
            }
        }
    }

    fn escaped_char(&mut self) {
        for _ in 0..3 {
            self.take(Kind::Literal);
        }
        while self.peek(0).is_some_and(|c| c != '\'') {
            self.take(Kind::Literal);
        }
        self.take(Kind::Literal);
    }
}

pub(crate) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::split;

    fn code(text: &str) -> String {
        split(text)
            .code
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_are_not_code() {
        let both = split("a // b\n/* c /* d */ e */ f");
        assert_eq!(both.code, "a     \n                  f");
        assert_eq!(both.comments, "  // b\n/* c /* d */ e */  ");
    }

    #[test]
    fn literals_are_neither() {
        assert_eq!(
            code(r#"x("a // \" b", 'c', '\'', '"', y)"#),
            r#"x(" ", , , , y)"#
        );
        assert_eq!(split(r#"x("// no comment")"#).comments.trim(), "");
    }

    #[test]
    fn raw_strings_end_where_their_hashes_do() {
        assert_eq!(code("a(r##\"b\"# c\"##, br\"d\\\", e)"), "a(r , br , e)");
        assert_eq!(code("r#type + for\"x\""), "r#type + for\" \"");
    }

    #[test]
    fn lifetimes_are_code() {
        assert_eq!(
            code("fn a<'b>(c: &'b str) -> 'd' {}"),
            "fn a<'b>(c: &'b str) -> {}"
        );
    }

    #[test]
    fn lines_stay_where_they_were() {
        let text = "\"a\nb\"\n// c\n'\\n'\nr\"\n\"\n";
        let both = split(text);
        assert_eq!(both.code.matches('\n').count(), text.matches('\n').count());
        assert_eq!(both.comments.lines().nth(2), Some("// c"));
    }

    #[test]
    fn an_unfinished_file_ends_the_scan() {
        for text in ["\"", "'", "'\\", "r#\"", "/*", "/* /*", "r", "/"] {
            assert_eq!(split(text).code.chars().count(), text.chars().count());
        }
    }
}
