//! Ripgrep's matcher, behind a search for a text that every matching line has.
//!
//! The engine looks for what a pattern begins with; a longer text further on tells more lines apart
//! at less cost. Which lines match is still the engine's word.

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures, NoError};
use grep_regex::RegexMatcher;
use memchr::memmem::Finder;
use regex_syntax::hir::{Hir, HirKind, Look};

/// What a text must weigh to be looked for.
const WEIGHT: usize = 6;

#[derive(Clone, Debug)]
pub(crate) struct LineMatcher {
    regex: RegexMatcher,
    needed: Option<Finder<'static>>,
}

impl LineMatcher {
    pub(crate) fn new(regex: RegexMatcher, hir: &Hir) -> Self {
        let looks = hir.properties().look_set();
        // Bound to more than a line, a pattern means something else in a line of its own.
        let beyond = [Look::Start, Look::End, Look::StartCRLF, Look::EndCRLF];
        let alone = matches!(hir.kind(), HirKind::Literal(_));
        let needed = match alone || beyond.into_iter().any(|look| looks.contains(look)) {
            true => None,
            false => needed(hir).filter(|text| weight(text) >= WEIGHT),
        };
        let needed = needed.map(|text| Finder::new(text).into_owned());
        Self { regex, needed }
    }
}

/// The weightiest text that every match has.
fn needed(hir: &Hir) -> Option<&[u8]> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(&literal.0),
        HirKind::Capture(capture) => needed(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => needed(&repetition.sub),
        HirKind::Concat(parts) => parts
            .iter()
            .filter_map(needed)
            .max_by_key(|text| weight(text)),
        _ => None,
    }
}

/// About how rare a text is in source code: upper-case letters are rarer than others, and blanks
/// and punctuation say little.
fn weight(text: &[u8]) -> usize {
    let weights = text.iter().map(|byte| match byte {
        b'A'..=b'Z' | 0x80.. => 3,
        b'a'..=b'z' | b'0'..=b'9' | b'_' => 2,
        _ => 1,
    });
    weights.sum()
}

impl Matcher for LineMatcher {
    type Captures = NoCaptures;
    type Error = NoError;

    fn find_at(&self, text: &[u8], at: usize) -> Result<Option<Match>, NoError> {
        self.regex.find_at(text, at)
    }

    fn new_captures(&self) -> Result<NoCaptures, NoError> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, text: &[u8], at: usize) -> Result<Option<usize>, NoError> {
        self.regex.shortest_match_at(text, at)
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.regex.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.regex.line_terminator()
    }

    fn find_candidate_line(&self, text: &[u8]) -> Result<Option<LineMatchKind>, NoError> {
        match &self.needed {
            Some(needed) => Ok(needed.find(text).map(LineMatchKind::Candidate)),
            None => self.regex.find_candidate_line(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::query::pattern::{Case, Pattern};

    fn needed(text: &str) -> Option<String> {
        let pattern = Pattern::regex(text, Case::Smart).unwrap();
        let needed = pattern.matcher.needed?;
        Some(String::from_utf8(needed.needle().to_vec()).unwrap())
    }

    #[test]
    fn only_what_every_matching_line_has_is_looked_for() {
        for (pattern, text) in [
            (r"^#define\s+PCI_DEVICE_ID_\w+", Some("PCI_DEVICE_ID_")),
            ("0x[0-9a-f]{8}UL", Some("UL")),
            ("(KERN|USER)_SPACE+", Some("_SPAC")),
            ("(?:Longer)?Text.", Some("Text")),
            ("(?:Again){2}.", Some("Again")),
            ("One|Other", None),
            ("Alone", None),
            (r"\AText.", None),
            (r"Text.\z", None),
            ("(?R)Text.$", None),
            ("in either case", None),
        ] {
            assert_eq!(needed(pattern).as_deref(), text, "{pattern}");
        }
    }
}
