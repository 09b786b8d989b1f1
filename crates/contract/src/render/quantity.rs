//! Counts, sizes and durations in words.

use std::time::Duration;

/// `1 schema`, `9 schemas`.
#[must_use]
pub fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A size in decimal units with one decimal: `999 B`, `18.2 kB`, `1.0 MB`. At most 8 characters.
#[must_use]
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if n < 1000 {
        return format!("{n} B");
    }
    // Integers throughout: rounding 999 950 up must reach the next unit, not `1000.0 kB`.
    let mut tenths = u128::from(n).saturating_add(50) / 100;
    let mut scale: u128 = 100;
    for unit in UNITS {
        if tenths < 10_000 {
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
        scale *= 1000;
        tenths = (u128::from(n) + scale / 2) / scale;
    }
    format!("{n} B")
}

/// Whole milliseconds: `12 ms`, and `<1 ms` for anything shorter than one.
#[must_use]
pub fn millis(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "<1 ms".to_owned(),
        ms => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    #[test]
    fn one_is_singular_and_everything_else_plural() {
        assert_eq!(count(0, "schema", "schemas"), "0 schemas");
        assert_eq!(count(1, "schema", "schemas"), "1 schema");
        assert_eq!(count(9, "schema", "schemas"), "9 schemas");
    }

    #[test]
    fn sizes_round_within_their_unit() {
        for (n, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (18_234, "18.2 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (1_500_000, "1.5 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn durations_are_in_milliseconds() {
        assert_eq!(millis(Duration::from_micros(400)), "<1 ms");
        assert_eq!(millis(Duration::from_secs(2)), "2000 ms");
    }

    proptest! {
        #[test]
        fn sizes_never_need_more_than_eight_characters(n in any::<u64>(), shift in 0u32..64) {
            prop_assert!(bytes(n >> shift).len() <= 8);
        }
    }
}
