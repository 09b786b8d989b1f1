//! How far apart two names are.

/// The number of insertions, deletions and replacements between `a` and `b`, if at most `limit`.
///
/// Works on bytes: names are ASCII in practice, and a hint need not be exact elsewhere.
pub(super) fn within(a: &str, b: &str, limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (above, x) in (1..).zip(a.bytes()) {
        let mut left = above;
        let mut diagonal = above - 1;
        let mut least = left;
        if let Some(first) = row.first_mut() {
            *first = above;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            least = least.min(left);
            *cell = left;
        }
        if least > limit {
            return None;
        }
    }
    row.last().copied().filter(|&distance| distance <= limit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn known_distances() {
        for (a, b, distance) in [
            ("", "", 0),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
            ("", "abc", 3),
        ] {
            assert_eq!(within(a, b, 3), Some(distance));
        }
        assert_eq!(within("kitten", "sitting", 2), None);
    }

    proptest! {
        #[test]
        fn distance_is_symmetric_and_zero_only_for_equals(a in "[ab]{0,8}", b in "[ab]{0,8}") {
            prop_assert_eq!(within(&a, &b, 8), within(&b, &a, 8));
            prop_assert_eq!(within(&a, &b, 8) == Some(0), a == b);
        }
    }
}
