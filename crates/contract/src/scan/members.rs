//! Looking into JSON text that has been scanned: members of objects, content of strings.

use std::borrow::Cow;

use super::lexer::{Key, Lexer};

/// The members of an object, in their order, duplicates included. See [`members`].
#[derive(Clone, Debug)]
pub struct Members<'a> {
    lexer: Lexer<'a>,
    next: Option<Key<'a>>,
}

/// The members of an object: each key decoded, each value as its JSON text without surrounding
/// space.
///
/// Text that was not scanned is harmless: the members end where it stops being JSON, and there are
/// none if it is not an object.
pub fn members(raw_object: &str) -> Members<'_> {
    let mut lexer = Lexer::lenient(raw_object, usize::MAX);
    lexer.space();
    let next = lexer.first_key().unwrap_or(None);
    Members { lexer, next }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.next.take()?.name().ok()?;
        let start = self.lexer.position();
        self.lexer.value().ok()?;
        let value = self.lexer.since(start);
        self.next = self.lexer.next_key().unwrap_or(None);
        Some((key, value))
    }
}

impl std::iter::FusedIterator for Members<'_> {}

/// The value of one member, as its JSON text; of several with the same key the last, as
/// `serde_json` has it.
pub fn member<'a>(raw_object: &'a str, key: &str) -> Option<&'a str> {
    members(raw_object)
        .filter(|(name, _)| name == key)
        .last()
        .map(|(_, value)| value)
}

/// The content of a JSON string given with its quotes; borrowed if it has no escapes, `None` if it
/// is anything else than one string.
pub fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let mut lexer = Lexer::new(raw, 0);
    let text = lexer.text().ok()?;
    lexer.at_end().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(raw: &str) -> Vec<(String, &str)> {
        members(raw)
            .map(|(key, value)| (key.into_owned(), value))
            .collect()
    }

    #[test]
    fn members_come_in_order_with_trimmed_values() {
        let raw = " { \"a\" : [1, {\"b\":2}] ,\"\\u0062\":\t\"x\" , \"a\": null } ";
        let expected = [("a", "[1, {\"b\":2}]"), ("b", "\"x\""), ("a", "null")];
        assert_eq!(
            listed(raw),
            expected.map(|(key, value)| (key.to_owned(), value))
        );
    }

    #[test]
    fn last_of_several_members_wins() {
        assert_eq!(member(r#"{"a":1,"\u0061":2,"b":3}"#, "a"), Some("2"));
        assert_eq!(member(r#"{"a":1}"#, "c"), None);
    }

    #[test]
    fn members_end_where_the_text_is_no_longer_json() {
        assert_eq!(listed(r#"{"a":1,"b":tru,"c":2}"#), [("a".to_owned(), "1")]);
        for raw in ["", "[]", "null", "{", "{,}", "\"{}\"", "{\"a\"}", "{}"] {
            assert_eq!(listed(raw), [], "{raw}");
        }
    }

    #[test]
    fn unquote_decodes_one_whole_string() {
        assert!(matches!(
            unquote("\"plain é\""),
            Some(Cow::Borrowed("plain é"))
        ));
        assert_eq!(unquote(r#""\ud83d\ude00\/\n""#).as_deref(), Some("😀/\n"));
        for raw in [
            "",
            "\"",
            "a",
            "\"a\" ",
            " \"a\"",
            "\"a\"\"",
            "1",
            r#""\ud800""#,
            "\"\\\"",
        ] {
            assert_eq!(unquote(raw), None, "{raw}");
        }
    }
}
