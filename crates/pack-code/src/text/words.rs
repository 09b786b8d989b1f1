//! Identifiers and the terms they give.
//!
//! An identifier is a run of letters, digits, `_` and bytes outside ASCII. Its terms are its parts
//! (split by case and underscore, lower-case, stemmed) and, when there are several, the whole
//! without underscores, so that `combine_reducers` and `combineReducers` meet.

use crate::text::stem::stem;

/// Longest identifier that gives terms; longer ones are data.
const LONGEST: usize = 80;
/// Longest run of digits that is a term.
const LONGEST_NUMBER: usize = 4;

/// Whether a byte belongs to an identifier.
#[expect(clippy::indexing_slicing, reason = "there is a place for every byte")]
pub(crate) const fn is_word(byte: u8) -> bool {
    WORD[byte as usize]
}

#[expect(
    clippy::indexing_slicing,
    reason = "there is a place for every byte, and this runs when the crate is compiled"
)]
const WORD: [bool; 256] = {
    let mut word = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        word[byte] = value.is_ascii_alphanumeric() || value == b'_' || value >= 0x80;
        byte += 1;
    }
    word
};

/// The byte ranges of the identifiers of a text.
pub(crate) fn identifiers(text: &[u8]) -> Identifiers<'_> {
    Identifiers { text, at: 0 }
}

#[derive(Clone, Debug)]
pub(crate) struct Identifiers<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Identifiers<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let rest = self.text.get(self.at..)?;
        let start = self.at + rest.iter().position(|byte| is_word(*byte))?;
        let word = self.text.get(start..)?;
        let end = start
            + word
                .iter()
                .position(|byte| !is_word(*byte))
                .unwrap_or(word.len());
        self.at = end;
        Some((start, end))
    }
}

/// Whether the terms of an identifier do not tell its letters: it gives none, or it has a letter
/// outside ASCII that a search in either case takes for `s` or `k`.
pub(crate) fn is_irregular(identifier: &[u8]) -> bool {
    let has = |letter: &[u8]| memchr::memmem::find(identifier, letter).is_some();
    identifier.len() > LONGEST
        || !identifier.is_ascii() && (has("\u{17f}".as_bytes()) || has("\u{212a}".as_bytes()))
}

/// Calls `each` with every term of an identifier. The whole comes last.
pub(crate) fn terms(identifier: &[u8], scratch: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    if identifier.len() < 2 || identifier.len() > LONGEST {
        return;
    }
    let mut parts = 0;
    parts_of(identifier, |part| {
        parts += 1;
        let number = part.iter().all(u8::is_ascii_digit);
        if part.len() < 2 || number && part.len() > LONGEST_NUMBER {
            return;
        }
        scratch.clear();
        scratch.extend(part.iter().map(u8::to_ascii_lowercase));
        stem(scratch);
        each(scratch);
    });
    if parts > 1 {
        scratch.clear();
        scratch.extend(
            identifier
                .iter()
                .filter(|byte| **byte != b'_')
                .map(u8::to_ascii_lowercase),
        );
        if scratch.len() > 2 && !scratch.iter().all(u8::is_ascii_digit) {
            each(scratch);
        }
    }
}

/// An identifier of one part in lower case, if its term is another: then no term has all its
/// letters.
pub(crate) fn unstemmed<'a>(identifier: &[u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let (mut parts, mut changed) = (0, false);
    parts_of(identifier, |part| {
        parts += 1;
        if parts == 1 {
            scratch.clear();
            scratch.extend(part.iter().map(u8::to_ascii_lowercase));
            stem(scratch);
            changed = !part.eq_ignore_ascii_case(scratch);
            scratch.clear();
            scratch.extend(part.iter().map(u8::to_ascii_lowercase));
        }
    });
    (parts == 1 && changed && identifier.len() <= LONGEST).then_some(scratch)
}

/// Calls `each` with the parts of an identifier, as they are written.
pub(crate) fn parts_of(identifier: &[u8], mut each: impl FnMut(&[u8])) {
    for piece in identifier.split(|byte| *byte == b'_') {
        let mut start = 0;
        for at in 1..piece.len() {
            let (Some(before), Some(here)) = (piece.get(at - 1), piece.get(at)) else {
                break;
            };
            let after = piece.get(at + 1);
            let rises = !before.is_ascii_uppercase() && here.is_ascii_uppercase();
            // `HTTPServer`: the last capital begins the next part.
            let acronym_ends = before.is_ascii_uppercase()
                && here.is_ascii_uppercase()
                && after.is_some_and(u8::is_ascii_lowercase);
            if rises || acronym_ends {
                each(piece.get(start..at).unwrap_or_default());
                start = at;
            }
        }
        if let Some(last) = piece.get(start..)
            && !last.is_empty()
        {
            each(last);
        }
    }
}

/// Calls `each` with the sub-tokens of an identifier, as they are written: its parts, digits apart
/// from letters. The vectors of ranked search are of these, so their training cuts alike.
pub(crate) fn subtokens(identifier: &[u8], mut each: impl FnMut(&[u8])) {
    parts_of(identifier, |part| {
        let mut rest = part;
        while let Some(first) = rest.first() {
            let same = |byte: &u8| match first.is_ascii_digit() {
                true => byte.is_ascii_digit(),
                false => byte.is_ascii_alphabetic(),
            };
            let length = rest.iter().take_while(|byte| same(byte)).count();
            let (token, after) = rest.split_at(length.max(1));
            if length > 0 {
                each(token);
            }
            rest = after;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(identifier: &str) -> Vec<String> {
        let mut found = Vec::new();
        terms(identifier.as_bytes(), &mut Vec::new(), |term| {
            found.push(String::from_utf8(term.to_vec()).unwrap());
        });
        found
    }

    #[test]
    fn identifiers_split_by_case_and_underscore() {
        assert_eq!(
            of("combineReducers"),
            ["combin", "reduc", "combinereducers"]
        );
        assert_eq!(
            of("combine_reducers"),
            ["combin", "reduc", "combinereducers"]
        );
        assert_eq!(of("HTTPServer2"), ["http", "server2", "httpserver2"]);
        assert_eq!(of("Router"), ["rout"]);
        assert_eq!(of("base64Encode"), ["base64", "encod", "base64encode"]);
        assert_eq!(of("x"), [""; 0]);
        assert_eq!(of("123456"), [""; 0]);
    }

    #[test]
    fn a_word_whose_term_is_a_stem_is_known_as_it_is() {
        let of = |word: &str| {
            let mut scratch = Vec::new();
            let found = unstemmed(word.as_bytes(), &mut scratch);
            found.map(|word| String::from_utf8(word.to_vec()).unwrap())
        };
        assert_eq!(of("Detailed").as_deref(), Some("detailed"));
        assert_eq!(of("_routes_").as_deref(), Some("routes"));
        for word in ["map", "combine_reducers", "base64", "123456", "x", ""] {
            assert_eq!(of(word), None, "{word}");
        }
        assert!(is_irregular("x".repeat(81).as_bytes()));
        assert!(is_irregular("\u{17f}".as_bytes()) && is_irregular("a\u{212a}".as_bytes()));
        assert!(!is_irregular("größe".as_bytes()));
    }

    #[test]
    fn subtokens_have_letters_or_digits() {
        let of = |identifier: &str| {
            let mut found = Vec::new();
            subtokens(identifier.as_bytes(), |token| {
                found.push(String::from_utf8(token.to_vec()).unwrap());
            });
            found
        };
        assert_eq!(
            of("HTTPServer2x_base64"),
            ["HTTP", "Server", "2", "x", "base", "64"]
        );
        assert_eq!(of("größe"), ["gr", "e"]);
    }

    #[test]
    fn identifiers_are_found_with_their_places() {
        let text = "fn größe_1(x)";
        let found: Vec<&str> = identifiers(text.as_bytes())
            .map(|(a, b)| &text[a..b])
            .collect();
        assert_eq!(found, ["fn", "größe_1", "x"]);
    }
}
