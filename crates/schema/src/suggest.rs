//! The known name somebody probably meant.

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
    let unknown = comparable(unknown)?;
    let allowed = (unknown.len() / 3).clamp(1, 2);
    known
        .into_iter()
        .take(CANDIDATES)
        .filter_map(|name| Some((distance(&unknown, &comparable(name)?, allowed)?, name)))
        .min()
        .map(|(_, name)| name)
}

fn comparable(name: &str) -> Option<Vec<char>> {
    let name: Vec<char> = name
        .chars()
        .flat_map(char::to_lowercase)
        .take(LONGEST + 1)
        .collect();
    (2..=LONGEST).contains(&name.len()).then_some(name)
}

/// Optimal string alignment distance, if it is at most `allowed`.
fn distance(from: &[char], to: &[char], allowed: usize) -> Option<usize> {
    if from.len().abs_diff(to.len()) > allowed {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    let mut previous = None;
    for (row, &here) in from.iter().enumerate() {
        let mut current = Vec::with_capacity(above.len());
        let mut left = row + 1;
        current.push(left);
        let mut previous_target = None;
        for (column, &target) in to.iter().enumerate() {
            let at = |cells: &[usize], index: usize| cells.get(index).copied().unwrap_or(LONGEST);
            let mut cost = (at(&above, column) + usize::from(here != target))
                .min(at(&above, column + 1) + 1)
                .min(left + 1);
            if previous == Some(target) && previous_target == Some(here) && column > 0 {
                cost = cost.min(at(&before, column - 1) + 1);
            }
            current.push(cost);
            left = cost;
            previous_target = Some(target);
        }
        // No later row can come below the least of this one.
        if current.iter().all(|cost| *cost > allowed) {
            return None;
        }
        before = std::mem::replace(&mut above, current);
        previous = Some(here);
    }
    above.last().copied().filter(|found| *found <= allowed)
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
