//! From a pattern to the trigrams that every matching line must have.
//!
//! The analysis is the well-known one: for each part of the expression the set of strings it can
//! match exactly, or what its matches can begin and end with, and a condition over trigrams. Text
//! is taken as the index takes it: ASCII letters in lower case, unless a trigram has both cases and
//! the pattern tells them apart. What the condition does not exclude is verified in the file itself.
//!
//! A pattern with a name also says which letters a word of the file has ([`Word`]).

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::limits::PLAN_STRINGS;
use crate::query::word::{Word, one_letter};
use crate::store::chunk::FOLD;

/// A condition over the trigrams of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plan {
    /// No condition: every file is a candidate.
    Any,
    Has([u8; 3]),
    /// A trigram that begins with these.
    Pair([u8; 2]),
    Word(Word),
    All(Vec<Plan>),
    One(Vec<Plan>),
}

impl Plan {
    /// The condition of a pattern.
    pub(crate) fn of(hir: &Hir) -> Self {
        let case = match tells_cases_apart(hir, 0) {
            true => Letters::Written,
            false => Letters::Lower,
        };
        let mut info = analyse(hir, case, 0);
        info.settle(true);
        let mut plan = info.plan;
        for set in [&info.prefix, &info.suffix] {
            plan = plan.and(Self::of_set(set));
        }
        match (plan, Word::of(hir)) {
            (Self::Any, _) => needed_pair(hir).map_or(Self::Any, Self::Pair),
            (plan, Some(word)) => plan.and(Self::Word(word)),
            (plan, None) => plan,
        }
    }

    /// The same condition with what all alternatives of a choice have in common taken out of it:
    /// that narrows at less cost than the choice.
    pub(crate) fn factored(self) -> Self {
        match self {
            Self::Any | Self::Has(_) | Self::Pair(_) | Self::Word(_) => self,
            Self::All(parts) => parts
                .into_iter()
                .map(Self::factored)
                .fold(Self::Any, Self::and),
            Self::One(parts) => {
                let mut parts: Vec<Vec<Self>> = parts
                    .into_iter()
                    .map(|part| match part.factored() {
                        Self::All(conditions) => conditions,
                        condition => vec![condition],
                    })
                    .collect();
                let mut common = parts.first().cloned().unwrap_or_default();
                common.retain(|condition| parts.iter().all(|part| part.contains(condition)));
                if common.is_empty() {
                    return Self::One(parts.into_iter().map(Self::all).collect());
                }
                for part in &mut parts {
                    part.retain(|condition| !common.contains(condition));
                }
                // An alternative that has nothing of its own makes the rest of the choice moot.
                let rest = match parts.iter().any(Vec::is_empty) {
                    true => Self::Any,
                    false => Self::One(parts.into_iter().map(Self::all).collect()),
                };
                Self::all(common).and(rest)
            }
        }
    }

    fn all(mut conditions: Vec<Self>) -> Self {
        match conditions.len() {
            1 => conditions.pop().unwrap_or(Self::Any),
            _ => Self::All(conditions),
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, plan) | (plan, Self::Any) => plan,
            (Self::All(mut parts), Self::All(more)) => {
                parts.extend(more);
                parts.sort_unstable();
                parts.dedup();
                Self::All(parts)
            }
            (Self::All(mut parts), part) | (part, Self::All(mut parts)) => {
                if !parts.contains(&part) {
                    parts.push(part);
                }
                Self::All(parts)
            }
            (one, two) if one == two => one,
            (one, two) => Self::All(vec![one, two]),
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => Self::Any,
            (Self::One(mut parts), Self::One(more)) => {
                parts.extend(more);
                parts.sort_unstable();
                parts.dedup();
                Self::One(parts)
            }
            (Self::One(mut parts), part) | (part, Self::One(mut parts)) => {
                if !parts.contains(&part) {
                    parts.push(part);
                }
                Self::One(parts)
            }
            (one, two) if one == two => one,
            (one, two) => Self::One(vec![one, two]),
        }
    }

    /// One of the strings must be there.
    fn of_set(strings: &Strings) -> Self {
        let mut plan: Option<Self> = None;
        if strings.is_empty() {
            return Self::Any;
        }
        for string in strings {
            if string.len() < 3 {
                return Self::Any;
            }
            let mut all = Self::Any;
            for trigram in string.windows(3) {
                if let [a, b, c] = trigram {
                    all = all.and(Self::Has(indexed([*a, *b, *c])));
                }
            }
            plan = Some(match plan {
                Some(plan) => plan.or(all),
                None => all,
            });
        }
        plan.unwrap_or(Self::Any)
    }
}

/// A trigram as the index has it: as it is written if it has letters of both cases.
fn indexed(trigram: [u8; 3]) -> [u8; 3] {
    match trigram.iter().any(u8::is_ascii_lowercase) {
        true => trigram,
        false => trigram.map(|byte| byte.to_ascii_lowercase()),
    }
}

pub(crate) type Strings = BTreeSet<Vec<u8>>;

/// How the letters of a pattern are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    Written,
    Lower,
}

/// Whether no class of a pattern has a letter in both cases.
fn tells_cases_apart(hir: &Hir, depth: usize) -> bool {
    if depth > DEPTH {
        return false;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Literal(_) => true,
        HirKind::Class(class) => of_class(class, Letters::Written).is_none_or(|strings| {
            let is_pair = |string: &Vec<u8>| {
                let lower = fold(string);
                lower != *string && strings.contains(&lower)
            };
            !strings.iter().any(is_pair)
        }),
        HirKind::Capture(capture) => tells_cases_apart(&capture.sub, depth + 1),
        HirKind::Repetition(repetition) => tells_cases_apart(&repetition.sub, depth + 1),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().all(|part| tells_cases_apart(part, depth + 1))
        }
    }
}

/// Two bytes in a row that every match has before at least one more, as the index has the trigrams
/// that begin with them.
fn needed_pair(hir: &Hir) -> Option<[u8; 2]> {
    let mut parts = Vec::new();
    flatten(hir, &mut parts, 0);
    let mut run: Vec<u8> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        match part.kind() {
            HirKind::Literal(literal) => run.extend_from_slice(&literal.0),
            HirKind::Class(class) => match one_letter(class).filter(u8::is_ascii) {
                Some(letter) => run.push(letter),
                None => run.clear(),
            },
            HirKind::Look(_) | HirKind::Empty => {}
            _ => run.clear(),
        }
        let rest = parts.get(at + 1..).unwrap_or_default();
        let follows = rest
            .iter()
            .any(|part| part.properties().minimum_len() > Some(0));
        if let ([.., one, two], true) = (run.as_slice(), follows) {
            let pair = [*one, *two];
            let both =
                pair.iter().any(u8::is_ascii_lowercase) && pair.iter().any(u8::is_ascii_uppercase);
            return Some(match both {
                true => pair,
                false => pair.map(|byte| byte.to_ascii_lowercase()),
            });
        }
    }
    None
}

/// The parts of a pattern that follow each other.
fn flatten<'a>(hir: &'a Hir, parts: &mut Vec<&'a Hir>, depth: usize) {
    match hir.kind() {
        HirKind::Capture(capture) if depth < DEPTH => flatten(&capture.sub, parts, depth + 1),
        HirKind::Concat(inner) if depth < DEPTH => {
            inner
                .iter()
                .for_each(|part| flatten(part, parts, depth + 1));
        }
        _ => parts.push(hir),
    }
}

/// What is known about the matches of a part.
#[derive(Clone, Debug)]
struct Info {
    can_be_empty: bool,
    exact: Option<Strings>,
    prefix: Strings,
    suffix: Strings,
    plan: Plan,
}

/// Nested parts that are analysed; deeper ones are not narrowed.
pub(crate) const DEPTH: usize = 200;
/// Characters of a class that are told apart.
const CLASS_CHARS: usize = 24;
/// Longest text that an exact set keeps before it is turned into trigrams.
const EXACT_BYTES: usize = 400;

fn anything(can_be_empty: bool) -> Info {
    Info {
        can_be_empty,
        exact: None,
        prefix: Strings::from([Vec::new()]),
        suffix: Strings::from([Vec::new()]),
        plan: Plan::Any,
    }
}

fn exactly(strings: Strings) -> Info {
    Info {
        can_be_empty: strings.contains(&Vec::new()),
        exact: Some(strings),
        prefix: Strings::new(),
        suffix: Strings::new(),
        plan: Plan::Any,
    }
}

fn analyse(hir: &Hir, letters: Letters, depth: usize) -> Info {
    if depth > DEPTH {
        return anything(true);
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => exactly(Strings::from([Vec::new()])),
        HirKind::Literal(literal) => exactly(Strings::from([letters.of(&literal.0)])),
        HirKind::Class(class) => of_class(class, letters).map_or_else(|| anything(false), exactly),
        HirKind::Capture(capture) => analyse(&capture.sub, letters, depth + 1),
        HirKind::Concat(parts) => {
            let mut parts = parts.iter().map(|part| analyse(part, letters, depth + 1));
            let first = parts.next().unwrap_or_else(|| anything(true));
            parts.fold(first, concat)
        }
        HirKind::Alternation(parts) => {
            let mut parts = parts.iter().map(|part| analyse(part, letters, depth + 1));
            let first = parts.next().unwrap_or_else(|| anything(true));
            parts.fold(first, alternate)
        }
        HirKind::Repetition(repetition) => {
            let part = analyse(&repetition.sub, letters, depth + 1);
            match (repetition.min, repetition.max) {
                (0, Some(1)) => alternate(part, exactly(Strings::from([Vec::new()]))),
                (0, _) => anything(true),
                (1, Some(1)) => part,
                (min, max) => {
                    // A few repetitions are written out; after that only the ends are known.
                    let mut whole = part.clone();
                    for _ in 1..min.min(4) {
                        whole = concat(whole, part.clone());
                    }
                    if max != Some(min) || min > 4 {
                        whole.settle(true);
                        // What follows the last known repetition may be another one.
                        let mut last = part;
                        last.settle(true);
                        whole.suffix = last.suffix;
                    }
                    whole
                }
            }
        }
    }
}

impl Letters {
    fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Written => bytes.to_vec(),
            Self::Lower => fold(bytes),
        }
    }
}

fn fold(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .map(|byte| FOLD.get(usize::from(*byte)).copied().unwrap_or(*byte))
        .collect()
}

/// The strings of a small class.
pub(crate) fn of_class(class: &Class, letters: Letters) -> Option<Strings> {
    let mut strings = Strings::new();
    match class {
        Class::Unicode(class) => {
            let mut count = 0;
            for range in class.ranges() {
                count += range.len();
                if count > CLASS_CHARS {
                    return None;
                }
                for character in range.start()..=range.end() {
                    let mut bytes = [0; 4];
                    strings.insert(letters.of(character.encode_utf8(&mut bytes).as_bytes()));
                }
            }
        }
        Class::Bytes(class) => {
            let mut count = 0;
            for range in class.ranges() {
                count += range.len();
                if count > CLASS_CHARS {
                    return None;
                }
                for byte in range.start()..=range.end() {
                    strings.insert(letters.of(&[byte]));
                }
            }
        }
    }
    // No line break is ever matched.
    strings.remove(b"\n".as_slice());
    (!strings.is_empty()).then_some(strings)
}

fn cross(one: &Strings, two: &Strings) -> Strings {
    let mut strings = Strings::new();
    for a in one {
        for b in two {
            let mut string = a.clone();
            string.extend_from_slice(b);
            strings.insert(string);
        }
    }
    strings
}

fn shortest(strings: &Strings) -> usize {
    strings.iter().map(Vec::len).min().unwrap_or(0)
}

fn concat(mut one: Info, mut two: Info) -> Info {
    if let (Some(a), Some(b)) = (&one.exact, &two.exact)
        && a.len() * b.len() <= PLAN_STRINGS
    {
        let mut whole = exactly(cross(a, b));
        whole.plan = one.plan.and(two.plan);
        whole.settle(false);
        return whole;
    }
    // Too many together: each is reduced to its ends first.
    if let (Some(a), Some(b)) = (&one.exact, &two.exact) {
        if a.len() >= b.len() {
            one.settle(true);
        } else {
            two.settle(true);
        }
    }
    let mut whole = Info {
        can_be_empty: one.can_be_empty && two.can_be_empty,
        exact: None,
        prefix: Strings::new(),
        suffix: Strings::new(),
        plan: one.plan.clone().and(two.plan.clone()),
    };
    whole.prefix = match &one.exact {
        Some(exact) => cross_or(exact, two.begins(), exact),
        None if one.can_be_empty => one.prefix.union(two.begins()).cloned().collect(),
        None => one.prefix.clone(),
    };
    whole.suffix = match &two.exact {
        Some(exact) => cross_or(one.ends(), exact, exact),
        None if two.can_be_empty => two.suffix.union(one.ends()).cloned().collect(),
        None => two.suffix.clone(),
    };
    // What stands across the seam.
    let (left, right) = (one.ends(), two.begins());
    if left.len() * right.len() <= PLAN_STRINGS && shortest(left) + shortest(right) >= 3 {
        let seam = cross(left, right);
        whole.plan = whole.plan.and(Plan::of_set(&seam));
    }
    whole.settle(false);
    whole
}

/// The product, or if that is too large what is known without it.
fn cross_or(one: &Strings, two: &Strings, known: &Strings) -> Strings {
    if one.len() * two.len() <= PLAN_STRINGS * 4 {
        cross(one, two)
    } else {
        known.clone()
    }
}

fn alternate(mut one: Info, mut two: Info) -> Info {
    if let (Some(a), Some(b)) = (&one.exact, &two.exact)
        && a.len() + b.len() <= PLAN_STRINGS
        && one.plan == Plan::Any
        && two.plan == Plan::Any
    {
        return exactly(a.union(b).cloned().collect());
    }
    one.settle(true);
    two.settle(true);
    let mut whole = Info {
        can_be_empty: one.can_be_empty || two.can_be_empty,
        exact: None,
        prefix: one.prefix.union(&two.prefix).cloned().collect(),
        suffix: one.suffix.union(&two.suffix).cloned().collect(),
        plan: one.plan.or(two.plan),
    };
    whole.settle(false);
    whole
}

impl Info {
    fn begins(&self) -> &Strings {
        self.exact.as_ref().unwrap_or(&self.prefix)
    }

    fn ends(&self) -> &Strings {
        self.exact.as_ref().unwrap_or(&self.suffix)
    }

    /// Turns what has grown too large, or everything when `now`, into a condition and short ends.
    fn settle(&mut self, now: bool) {
        if let Some(exact) = &self.exact {
            let bytes: usize = exact.iter().map(Vec::len).sum();
            if now || exact.len() > PLAN_STRINGS || bytes > EXACT_BYTES {
                self.plan = std::mem::replace(&mut self.plan, Plan::Any).and(Plan::of_set(exact));
                self.prefix = exact.clone();
                self.suffix = exact.clone();
                self.exact = None;
            }
        }
        if self.exact.is_none() {
            let prefix = std::mem::take(&mut self.prefix);
            self.prefix = self.shorten(prefix, |string, keep| {
                string.get(..keep).map(<[u8]>::to_vec)
            });
            let suffix = std::mem::take(&mut self.suffix);
            self.suffix = self.shorten(suffix, |string, keep| {
                string
                    .get(string.len().checked_sub(keep)?..)
                    .map(<[u8]>::to_vec)
            });
        }
    }

    /// Keeps two bytes of each string, fewer if there are too many of them.
    fn shorten(
        &mut self,
        strings: Strings,
        cut: impl Fn(&[u8], usize) -> Option<Vec<u8>>,
    ) -> Strings {
        self.plan = std::mem::replace(&mut self.plan, Plan::Any).and(Plan::of_set(&strings));
        let mut short = strings;
        for keep in (0..=2).rev() {
            short = short
                .iter()
                .map(|string| cut(string, keep).unwrap_or_else(|| string.clone()))
                .collect();
            if short.len() <= PLAN_STRINGS / 4 {
                break;
            }
        }
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::pattern::{Case, Pattern};
    use crate::text::words::{identifiers, is_irregular};

    fn plan(text: &str, case: Case) -> Plan {
        Plan::of(&Pattern::regex(text, case).unwrap().hir)
    }

    fn holds(plan: &Plan, text: &str) -> bool {
        let folded = fold(text.as_bytes());
        match plan {
            Plan::Any => true,
            Plan::Has(trigram) => {
                let written = text.as_bytes().windows(3);
                folded
                    .windows(3)
                    .chain(written)
                    .any(|window| window == trigram)
            }
            Plan::Pair(pair) => {
                let written = text.as_bytes().windows(3);
                folded
                    .windows(3)
                    .chain(written)
                    .any(|window| window.starts_with(pair))
            }
            Plan::Word(word) => identifiers(&folded).any(|(from, to)| {
                let whole = &folded[from..to];
                let letters: Vec<u8> = whole.iter().copied().filter(|b| *b != b'_').collect();
                is_irregular(whole) || word.admits(&letters)
            }),
            Plan::All(parts) => parts.iter().all(|part| holds(part, text)),
            Plan::One(parts) => parts.iter().any(|part| holds(part, text)),
        }
    }

    #[test]
    fn plans_admit_what_matches_and_exclude_what_cannot() {
        for (pattern, matching, other) in [
            ("hello", &["say hello", "HELLO"][..], &["help low"][..]),
            ("foo.*bar", &["foobar", "foo bar"], &["foo", "bar"]),
            ("(abc|def)ghi", &["abcghi", "xdefghi"], &["abc", "ghi"]),
            ("abcd?e", &["abce", "abcde"], &["ab", "bce"]),
            ("(?:abc)+d", &["abcd", "abcabcd"], &["ab"]),
            ("x{3}", &["xxx"], &["xx"]),
            ("abc[0-9]def", &["abc5def"], &["abcdef2"]),
            (r"\bspawn\s*\(", &["spawn ("], &["span"]),
            ("stra(ss|ß)e", &["strasse", "straße"], &["strae"]),
            ("[kK]elvin", &["Kelvin", "kelvin"], &["elvi"]),
        ] {
            let plan = plan(pattern, Case::Insensitive);
            for text in matching {
                assert!(holds(&plan, text), "{pattern} {text} {plan:?}");
            }
            for text in other {
                assert!(!holds(&plan, text), "{pattern} {text} {plan:?}");
            }
        }
    }

    #[test]
    fn a_pattern_that_tells_cases_apart_looks_for_both_cases_as_written() {
        let of = |text: &str| plan(text, Case::Smart);
        for (pattern, matching, other) in [
            ("maxItems", &["maxItems"][..], &["maxitems", "MAXITEMS"][..]),
            ("REG_Foo", &["REG_Foo"], &["reg_foo"]),
            ("UPPER", &["UPPER", "upper"], &["uppe"]),
            ("(?i:k)elVin", &["kelVin", "KelVin"], &[]),
            ("[Kk]elVin", &["kelVin", "KelVin"], &["kelwin"]),
            ("(?:Start|Stop)ed", &["Started", "Stoped"], &["started"]),
        ] {
            for text in matching {
                assert!(holds(&of(pattern), text), "{pattern} {text}");
            }
            for text in other {
                assert!(!holds(&of(pattern), text), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn two_letters_before_another_are_looked_for_where_there_are_no_three() {
        for (pattern, pair, matching) in [
            (r"tn\w*m\b", Some(*b"tn"), "xtnom"),
            (r"Va\w*e\b", Some(*b"Va"), "Value"),
            (r"VA\w*e\b", Some(*b"va"), "VAlue"),
            (r"(?i)ks\w+", Some(*b"ks"), "KSx"),
            (r"(a)b.", Some(*b"ab"), "ab "),
            ("ab", None, "ab"),
            (r"ab\w*", None, "ab"),
            (r"ab\b", None, "ab"),
            (r"a\w*b\w", None, "abx"),
        ] {
            let plan = plan(pattern, Case::Smart);
            assert_eq!(plan, pair.map_or(Plan::Any, Plan::Pair), "{pattern}");
            assert!(holds(&plan, matching), "{pattern}");
        }
    }

    #[test]
    fn what_alternatives_have_in_common_is_taken_out_and_means_the_same() {
        let of = |text: &str| plan(text, Case::Sensitive).factored();
        let has = |text: &[u8; 3]| Plan::Has(*text);
        let Plan::All(parts) = of("(alloc|free)_percpu") else {
            panic!("no conjunction");
        };
        for common in [b"_pe", b"per", b"erc", b"rcp", b"cpu"] {
            assert!(parts.contains(&has(common)), "{parts:?}");
        }
        assert_eq!(
            of("abcd|xabc"),
            Plan::All(vec![has(b"abc"), Plan::One(vec![has(b"bcd"), has(b"xab")]),])
        );
        assert_eq!(of("abc|abcd"), has(b"abc"));
        let texts = [
            "mutex_lock(&a->lock)",
            "mutex_unlock(&a->lock)",
            "mutex_(&->lock)",
            "unlock(&->lock)",
            "alloc_percpu",
            "free_percpu",
            "_percpu",
            "alloc",
            "abcd",
            "xabc",
            "abc",
            "bcd xab",
        ];
        for pattern in [
            r"mutex_(un)?lock\(&\w+->lock\)",
            "(alloc|free)_percpu",
            "abcd|xabc",
            "abc|abcd",
            "(abc|bcd)(x|y)?ab",
            "xab|(bcd|abc)d",
        ] {
            let plan = plan(pattern, Case::Insensitive);
            for text in texts {
                let same = plan.clone().factored();
                assert_eq!(
                    holds(&plan, text),
                    holds(&same, text),
                    "{pattern} {text} {same:?}"
                );
            }
        }
    }

    #[test]
    fn case_folding_outside_ascii_is_kept() {
        let plan = plan("kelvins", Case::Insensitive);
        assert!(holds(&plan, "\u{212a}elvin\u{17f}"), "{plan:?}");
    }

    #[test]
    fn a_pattern_without_three_letters_in_a_row_has_no_plan() {
        for pattern in ["ab", "a.b", ".*", r"\w+", "^$", "(a|bcd)*", "[a-z]{4}"] {
            assert_eq!(plan(pattern, Case::Sensitive), Plan::Any, "{pattern}");
        }
    }
}
