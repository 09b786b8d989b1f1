//! Suggests the known name that was probably meant.

/// Longer names are not compared.
const LONGEST: usize = 64;
/// Known names looked at.
const CANDIDATES: usize = 256;

/// The name nearest to `unknown`, if one is near: at most one edit per three
/// characters, up to two, where swapping neighbours is one edit and case is none.
pub(crate) fn nearest<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let (unknown, length) = comparable(unknown)?;
    let allowed = (length / 3).clamp(1, 2);
    known
        .into_iter()
        .take(CANDIDATES)
        .filter_map(|name| Some((comparable(name)?, name)))
        // Each character more or less is an edit, so most names need no table.
        .filter(|((_, other), _)| length.abs_diff(*other) <= allowed)
        .map(|((text, _), name)| (strsim::osa_distance(&unknown, &text), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// A name in lower case, and its length in characters; `None` if it is too short or too long.
fn comparable(name: &str) -> Option<(String, usize)> {
    let name: String = name
        .chars()
        .flat_map(char::to_lowercase)
        .take(LONGEST + 1)
        .collect();
    let length = name.chars().count();
    (2..=LONGEST).contains(&length).then_some((name, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_found() {
        let known = ["name", "schema", "path", "limit"];
        assert_eq!(nearest("nmae", known), Some("name"));
        assert_eq!(nearest("Name", known), Some("name"));
        assert_eq!(nearest("schmea", known), Some("schema"));
        assert_eq!(nearest("schemata", known), Some("schema"));
        assert_eq!(nearest("paths", known), Some("path"));
    }

    #[test]
    fn a_far_a_short_or_a_long_name_is_not_guessed() {
        assert_eq!(nearest("query", ["name", "path"]), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest(&"a".repeat(100_000), ["a"]), None);
        assert_eq!(nearest("foo", []), None);
    }

    #[test]
    fn of_equally_near_names_the_first_by_alphabet_is_taken() {
        assert_eq!(nearest("cat", ["rat", "bat"]), Some("bat"));
    }
}
