//! The value of a request id, for comparison.
//!
//! A number is read as decimal digits and the exponent of its first digit; neither is ever
//! expanded, so `1e999999999` costs as much as its text is long.

/// The value that the JSON text of an id stands for.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum IdValue<'a> {
    Number(Decimal<'a>),
    /// A string, or a number whose exponent has more digits than the host computes with.
    Text(&'a str),
}

impl<'a> IdValue<'a> {
    /// Reads an id that is well-formed.
    pub(super) fn of(raw: &'a str) -> Self {
        if raw.starts_with('"') {
            return Self::Text(raw);
        }
        Decimal::of(raw).map_or(Self::Text(raw), Self::Number)
    }
}

/// An exact decimal number: `0.DIGITS` times ten to the power of `scale`.
#[derive(Debug)]
pub(super) struct Decimal<'a> {
    negative: bool,
    /// Of zero, which has no digits, the least there is.
    scale: i128,
    /// Digits before and after the decimal point, without leading and trailing zeros.
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Decimal<'a> {
    /// Reads a number of JSON's grammar; `None` when its scale does not fit.
    fn of(raw: &'a str) -> Option<Self> {
        let (negative, raw) = match raw.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, raw),
        };
        let (digits, exponent) = raw.split_once(['e', 'E']).unwrap_or((raw, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let significant = match whole {
            "" => fraction.trim_start_matches('0'),
            _ => fraction,
        };
        if whole.is_empty() && significant.is_empty() {
            return Some(Self {
                negative: false,
                scale: i128::MIN,
                whole: "",
                fraction: "",
            });
        }
        // Digits before the point raise the scale, zeros right behind it lower it.
        let places = i128::try_from(whole.len()).ok()?;
        let zeros = i128::try_from(fraction.len() - significant.len()).ok()?;
        let exponent: i128 = exponent.parse().ok()?;
        Some(Self {
            negative,
            scale: exponent.checked_add(places)?.checked_sub(zeros)?,
            whole: match significant {
                "" => whole.trim_end_matches('0'),
                _ => whole,
            },
            fraction: significant,
        })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.negative == other.negative
            && self.scale == other.scale
            && self.digits().eq(other.digits())
    }
}

impl Eq for Decimal<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    use super::super::RequestId;

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).unwrap()
    }

    fn is_same(a: &str, b: &str) -> bool {
        let (a, b) = (id(a), id(b));
        let same = a.same_value(&b);
        assert_eq!(same, b.same_value(&a), "{a} {b}");
        same
    }

    #[test]
    fn spellings_of_one_number_are_one_id() {
        for spellings in [
            &[
                "1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "0.001e3", "1.000e00",
            ][..],
            &["100", "1e2", "100.0", "0.1e3", "10000e-2"],
            &[
                "0",
                "-0",
                "0.0",
                "-0e5",
                "0e99999999999999999999999999999999999999999999",
            ],
            &["-12.5", "-125e-1", "-0.0125e3"],
            &["1e999999999", "10e999999998", "0.1e1000000000"],
            &[
                "170141183460469231731687303715884105727",
                "1.70141183460469231731687303715884105727e38",
            ],
        ] {
            for (a, b) in spellings
                .iter()
                .flat_map(|a| spellings.iter().map(move |b| (a, b)))
            {
                assert!(is_same(a, b), "{a} {b}");
            }
        }
    }

    #[test]
    fn different_numbers_and_types_are_different_ids() {
        for (a, b) in [
            ("1", "2"),
            ("1", "-1"),
            ("1", "10"),
            ("1", "0"),
            ("1.5", "15"),
            ("101", "1.1e2"),
            // One double, two numbers.
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.1000000000000000055511151231257827"),
            ("1e999999999", "1e999999998"),
            (
                "1e99999999999999999999999999999999999999999",
                "1e99999999999999999999999999999999999999998",
            ),
            ("1", "\"1\""),
            ("1e2", "\"100\""),
            ("\"1\"", "\"1.0\""),
            ("\"1\"", r#""\u0031""#),
        ] {
            assert!(!is_same(a, b), "{a} {b}");
        }
    }

    /// An integer, and the same integer with zeros on both sides of a point that is moved back.
    fn spelled() -> impl Strategy<Value = (i64, String)> {
        (any::<i64>(), 1..40_usize, 0..40_usize).prop_map(|(number, zeros, shift)| {
            let (behind, before) = ("0".repeat(zeros), "0".repeat(shift));
            (number, format!("{number}{before}.{behind}e-{shift}"))
        })
    }

    proptest! {
        #[test]
        fn every_spelling_of_an_integer_is_that_integer((number, text) in spelled()) {
            prop_assert!(is_same(&number.to_string(), &text), "{number} {text}");
        }

        #[test]
        fn decimals_are_one_value_exactly_if_they_are_one_number(
            a in -999..999_i64, b in -999..999_i64, down in 0..4_u32, up in 0..4_u32,
        ) {
            let (left, right) = (format!("{a}e-{down}"), format!("{b}E+{up}"));
            let scaled = |number: i64, places: u32| number * 10_i64.pow(places);
            let same = scaled(a, 0) == scaled(b, up + down);
            prop_assert_eq!(is_same(&left, &right), same, "{} {}", left, right);
        }
    }
}
