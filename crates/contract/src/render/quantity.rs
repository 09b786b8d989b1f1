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

/// How long ago, or for how long, with the two largest units: `0 s`, `32 s`, `5 min`, `2 h 5 min`, `3 d`.
#[must_use]
pub fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let mut rest = seconds;
    let parts = units.map(|(unit, length)| {
        let n = rest / length;
        rest %= length;
        (n, unit)
    });
    let largest = parts.iter().position(|(n, _)| *n > 0).unwrap_or(3);
    let shown = parts.iter().skip(largest).take(2);
    let shown: Vec<String> = shown
        .enumerate()
        .filter(|(place, (n, _))| *place == 0 || *n > 0)
        .map(|(_, (n, unit))| format!("{n} {unit}"))
        .collect();
    shown.join(" ")
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
    fn a_time_is_shown_in_its_two_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (32, "32 s"),
            (300, "5 min"),
            (303, "5 min 3 s"),
            (7500, "2 h 5 min"),
            (3600 + 5, "1 h"),
            (86_400 * 3 + 3600 * 4 + 59, "3 d 4 h"),
        ] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
        assert_eq!(elapsed(Duration::from_millis(32_605)), "32 s");
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

    proptest! {
        #[test]
        fn sizes_never_need_more_than_eight_characters(n in any::<u64>(), shift in 0u32..64) {
            prop_assert!(bytes(n >> shift).len() <= 8);
        }
    }
}
