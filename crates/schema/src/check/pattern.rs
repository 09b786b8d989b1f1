//! The weight of a pattern: a bound on the states of its automaton, read off its text.
//!
//! Time to compile and to match a pattern grows with its states. A repetition of a group copies the
//! group, so its count multiplies the whole weight; any other repetition copies one atom. That is
//! more than the exact number wherever groups stand side by side, and never less.
//!
//! A pattern that needs backtracking (look-around, back-references) has no weight, and neither has
//! one with flags or Unicode properties, whose automata are large.

/// The UTF-8 sequences of `.`, of a negated class, or of a range beyond ASCII, in states. A class of
/// ASCII characters is one state.
const CLASS: u64 = 8;
/// The shorthands `\w`, `\s` and the like. Some engines read them as Unicode classes.
const SHORTHAND: u64 = 32;

/// The weight of `pattern`; `None` if no bound is known.
pub(super) fn weight(pattern: &str) -> Option<u64> {
    let mut sum: u64 = 1;
    let mut factor: u64 = 1;
    // The weight of the atom that a repetition would copy; `None` after a group.
    let mut atom = Some(0);
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        match character {
            '{' => match repetition(rest.as_str()) {
                Some((count, length)) => {
                    match atom {
                        Some(atom) => sum = sum.saturating_add(count.saturating_mul(atom)),
                        None => factor = factor.saturating_mul(count.max(1)),
                    }
                    // The count of a count copies the copies.
                    atom = None;
                    rest.by_ref().take(length).for_each(drop);
                    continue;
                }
                None => atom = Some(1),
            },
            '\\' => atom = Some(escape(rest.next()?)?),
            '[' => atom = Some(class(&mut rest)?),
            '(' => {
                if let Some(group) = rest.as_str().strip_prefix('?') {
                    // Any other kind of group looks around, has a name or sets flags.
                    rest = group.strip_prefix(':')?.chars();
                }
                atom = Some(1);
            }
            ')' => {
                atom = None;
                continue;
            }
            '.' => atom = Some(CLASS),
            '*' | '+' | '?' => {
                sum = sum.saturating_add(1);
                continue;
            }
            _ => atom = Some(1),
        }
        sum = sum.saturating_add(atom.unwrap_or(1));
    }
    Some(sum.saturating_mul(factor))
}

/// The larger count of a repetition and the characters up to its end, from behind its brace.
fn repetition(text: &str) -> Option<(u64, usize)> {
    let (inside, _) = text.split_once('}')?;
    let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
    let least: u64 = least.parse().ok()?;
    let count = if most.is_empty() {
        least.saturating_add(1)
    } else {
        most.parse().ok()?
    };
    Some((count, inside.chars().count() + 1))
}

/// The weight of an escape outside a class.
fn escape(character: char) -> Option<u64> {
    match character {
        // Back-references and Unicode properties.
        '0'..='9' | 'k' | 'p' | 'P' => None,
        'w' | 'W' | 's' | 'S' | 'd' | 'D' => Some(SHORTHAND),
        _ => Some(1),
    }
}

/// The weight of a class, which is consumed to its end.
fn class(rest: &mut std::str::Chars<'_>) -> Option<u64> {
    let mut sum = 1_u64;
    loop {
        sum = sum.saturating_add(match rest.next()? {
            ']' => return Some(sum),
            '\\' => escape(rest.next()?)?,
            // Set operations of some engines.
            '[' => return None,
            character if character.is_ascii() && character != '^' => 0,
            _ => CLASS,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_ordinary_schemas_are_light() {
        for pattern in [
            "^[0-9a-fA-F]{64}$",
            "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            r"^\d{4}-\d{2}-\d{2}$",
            "^(?:a|b)*$",
            r"^[^/\\]+$",
        ] {
            assert!(weight(pattern).unwrap() < 400, "{pattern}");
        }
    }

    #[test]
    fn patterns_that_backtrack_or_cannot_be_read_have_no_weight() {
        for pattern in [
            "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", r"(a)\1", r"\k<n>", "(?<n>a)", r"\p{L}", "(?i)a",
            "[a", r"[a\", r"\", r"[\p{L}]",
        ] {
            assert_eq!(weight(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn repetitions_multiply_where_they_nest_and_add_where_they_do_not() {
        assert!(weight("a{100}b{100}").unwrap() < 300);
        assert!(weight("(a{100}){100}").unwrap() >= 10_000);
        assert!(weight("((a{100}){100}){100}").unwrap() >= 1_000_000);
        assert!(weight("a{100}{100}").unwrap() >= 10_000);
        assert!(weight("(a{9}){18446744073709551615}").unwrap() > 1_000_000);
        assert!(weight("x{,3}").unwrap() < 20, "not a repetition");
    }
}
