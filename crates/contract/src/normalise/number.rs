//! Strings that are the canonical spelling of a number.
//!
//! Canonical means that writing the number gives the string back, except that a decimal may end in
//! zeros. So no leading zeros (`00713` is a code, not a number), no `+`, no exponent, no blanks, no
//! `-0`, and no digits that a 64-bit number would lose.

use serde_json::Number;

/// Longer strings are not looked at: no canonical 64-bit integer needs as many.
const MAX_BYTES: usize = 40;

/// An integer in the range of `i64` or `u64`.
pub(super) fn integer(text: &str) -> Option<Number> {
    if text.len() > MAX_BYTES || !is_whole(text.strip_prefix('-').unwrap_or(text)) || text == "-0" {
        return None;
    }
    let signed = text.parse::<i64>().map(Number::from);
    signed
        .or_else(|_| text.parse::<u64>().map(Number::from))
        .ok()
}

/// A decimal such as `1.5`, if a double holds all its digits.
pub(super) fn decimal(text: &str) -> Option<Number> {
    let (whole, fraction) = text.strip_prefix('-').unwrap_or(text).split_once('.')?;
    if text.len() > MAX_BYTES || !is_whole(whole) || !is_digits(fraction) {
        return None;
    }
    let number = text.parse::<f64>().ok()?;
    let significant = text.trim_end_matches('0').trim_end_matches('.');
    // `Display` gives the shortest decimal that reads back as the same double.
    if significant == "-0" || number.to_string() != significant {
        return None;
    }
    Number::from_f64(number)
}

/// Past it not every integer is a double.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The integer that a fraction such as `5.0` or `1e3` is equal to, if it is one.
#[expect(clippy::cast_possible_truncation, reason = "bounded just before")]
pub(super) fn whole(number: &Number) -> Option<Number> {
    let double = number.as_f64().filter(|_| number.is_f64())?;
    let is_exact = double.fract() == 0.0 && double.abs() <= EXACT_MAX;
    is_exact.then(|| Number::from(double as i64))
}

fn is_whole(text: &str) -> bool {
    is_digits(text) && (text == "0" || !text.starts_with('0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn canonical_integers_are_read() {
        for (text, value) in [("12", json!(12)), ("-3", json!(-3)), ("0", json!(0))] {
            assert_eq!(integer(text).map(Value::Number), Some(value));
        }
        assert_eq!(integer("18446744073709551615"), Some(u64::MAX.into()));
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN.into()));
    }

    #[test]
    fn everything_else_is_not_an_integer() {
        for text in [
            "",
            "-",
            "00713",
            "-01",
            "-0",
            "+5",
            "1e3",
            " 1",
            "1 ",
            "0x10",
            "1_000",
            "1,000",
            "1.0",
            "18446744073709551616",
            "-9223372036854775809",
            "١٢",
            "NaN",
            "1\n",
        ] {
            assert_eq!(integer(text), None, "{text:?}");
        }
    }

    #[test]
    fn canonical_decimals_are_read() {
        for (text, value) in [
            ("1.5", 1.5),
            ("-0.25", -0.25),
            ("1.50", 1.5),
            ("100.0", 100.0),
        ] {
            assert_eq!(decimal(text), Number::from_f64(value));
        }
    }

    #[test]
    fn lossy_or_odd_decimals_are_not_read() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "01.5",
            "+1.5",
            "1.5e3",
            "1.2.3",
            "-0.0",
            " 1.5",
            "inf",
            "1,5",
            "0.12345678901234567890",
            "9007199254740993.0",
        ] {
            assert_eq!(decimal(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_writes_back_the_same(text in "-?[0-9]{0,21}|.*", n in any::<i64>()) {
            if let Some(number) = integer(&text) {
                prop_assert_eq!(number.to_string(), text);
            }
            prop_assert_eq!(integer(&n.to_string()), Some(n.into()));
        }
    }
}
