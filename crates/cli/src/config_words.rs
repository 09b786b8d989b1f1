//! Mistakes in configuration files, in the words of those who write them.
//!
//! The parsers name the types of this program, and list every key where one is unknown.

use anyhow::anyhow;
use mainstay_contract::normalise::{Resolution, resolve_method};

/// Types as the parsers name them, and what a file has in their place.
const TYPES: [(&str, &str); 13] = [
    ("expected usize", "expected a whole number"),
    ("expected u64", "expected a whole number"),
    ("expected u32", "expected a whole number"),
    ("expected u16", "expected a whole number"),
    ("expected u8", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected a table"),
    ("expected a string", "expected a text in quotes"),
    ("expected a boolean", "expected true or false"),
    ("expected path string", "expected a path in quotes"),
    ("unknown variant", "unknown value"),
];
const STRUCT: &str = "expected struct ";
const UNKNOWN: &str = "unknown field `";

/// The error of a parser in plain words.
pub(crate) fn explain(error: &anyhow::Error) -> anyhow::Error {
    let mut text = format!("{error:#}");
    for (of_parser, of_file) in TYPES {
        text = text.replace(of_parser, of_file);
    }
    anyhow!("{}", name_key(&name_table(&text)))
}

/// Takes out the name of a type of this program.
fn name_table(text: &str) -> String {
    let Some((before, after)) = text.split_once(STRUCT) else {
        return text.to_owned();
    };
    let rest = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    format!("{before}expected a table{rest}")
}

/// Names the key that was probably meant in the place of a list of all.
fn name_key(text: &str) -> String {
    let Some((before, after)) = text.split_once(UNKNOWN) else {
        return text.to_owned();
    };
    let Some((unknown, after)) = after.split_once('`') else {
        return text.to_owned();
    };
    let names = after.strip_prefix(", expected one of ").unwrap_or_default();
    let known: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
    // The text behind the list: the place of the mistake.
    let place = names.rsplit('`').next().unwrap_or_default();
    match resolve_method(unknown, &known, &[]) {
        Resolution::Unknown { nearest: None } => format!("{before}unknown key `{unknown}`{after}"),
        Resolution::Unknown {
            nearest: Some(nearest),
        }
        | Resolution::Named(nearest)
        | Resolution::Alias(nearest) => {
            format!("{before}unknown key `{unknown}`{place}; did you mean `{nearest}`?")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        explain(&anyhow!("{}", text.to_owned())).to_string()
    }

    #[test]
    fn types_are_named_as_in_a_file() {
        let text = "invalid type: string \"x\", expected struct JsonFile at line 1 column 3";
        let expected = "invalid type: string \"x\", expected a table at line 1 column 3";
        assert_eq!(said(text), expected);
        assert_eq!(said("expected usize"), "expected a whole number");
        assert_eq!(said("expected path string"), "expected a path in quotes");
    }

    #[test]
    fn a_key_that_is_close_is_named_alone() {
        let list = "expected one of `queue`, `pool` at line 2";
        let expected = "unknown key `quue` at line 2; did you mean `queue`?";
        assert_eq!(said(&format!("unknown field `quue`, {list}")), expected);
        let other = format!("unknown key `colour`, {list}");
        assert_eq!(said(&format!("unknown field `colour`, {list}")), other);
    }
}
