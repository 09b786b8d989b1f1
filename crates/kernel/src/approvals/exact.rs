//! Canonical JSON of arguments that keeps every digit.
//!
//! A value keeps about 17 digits of a number, and a server may read more. So two calls with different numbers could have one
//! canonical form: a person would approve one of them, and the other would run. Here such a number stays as it is written.

use mainstay_contract::canonical::canonical_json;
use mainstay_contract::json::Json;
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde_json::{Number, Value};

use crate::server::edit;

/// Characters of a number that is not compared.
const SHORT: usize = 15;

/// The canonical form of arguments, with all digits of their numbers. Arguments that cannot be a value stay as they are written.
pub(crate) fn exact_text(arguments: &Json) -> String {
    let raw = arguments.as_str();
    match arguments.to_value() {
        Err(_) => raw.to_owned(),
        Ok(value) if keeps_numbers(raw) => canonical_json(&value),
        Ok(_) => {
            let mut text = String::with_capacity(raw.len());
            write(raw, &mut text);
            text
        }
    }
}

/// SHA-256 of the canonical form.
pub(crate) fn digest(arguments: &Json) -> String {
    let raw = arguments.as_str();
    let digest = match arguments.to_value() {
        Ok(value) if keeps_numbers(raw) && !edit::has_twice(raw) => Fingerprint::of(&value),
        _ => Fingerprint::of(&Value::from(exact_text(arguments))),
    };
    digest.to_string()
}

/// True if a value has all digits of every number.
fn keeps_numbers(raw: &str) -> bool {
    match raw.as_bytes().first() {
        Some(b'{') => scan::members(raw).all(|(_, value)| keeps_numbers(value)),
        Some(b'[') => edit::items(raw).into_iter().all(keeps_numbers),
        Some(b'-' | b'0'..=b'9') => keeps_number(raw),
        _ => true,
    }
}

fn keeps_number(raw: &str) -> bool {
    // Parsing and printing is exact for so few digits.
    if raw.len() <= SHORT && !raw.contains(['e', 'E']) {
        return true;
    }
    let kept = raw.parse::<Number>().map(|number| number.to_string());
    kept.is_ok_and(|kept| digits_of(&kept) == digits_of(raw))
}

/// A number as its sign, its digits without zeros around them, and the place of the point before them.
fn digits_of(number: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let is_negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_matches('0');
    if significant.is_empty() {
        return (is_negative, String::new(), 0);
    }
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    let length = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let point = exponent.parse().unwrap_or(i64::MAX);
    let point = point
        .saturating_add(length(whole.len()))
        .saturating_sub(length(zeros));
    (is_negative, significant.to_owned(), point)
}

fn write(raw: &str, text: &mut String) {
    match raw.as_bytes().first() {
        Some(b'{') => {
            let mut members: Vec<_> = scan::members(raw).collect();
            members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            text.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                text.push_str(&Value::from(&*name).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Some(b'[') => {
            text.push('[');
            for (at, item) in edit::items(raw).into_iter().enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                write(item, text);
            }
            text.push(']');
        }
        Some(b'-' | b'0'..=b'9') if !keeps_number(raw) => text.push_str(raw),
        _ => {
            let value: Option<Value> = serde_json::from_str(raw).ok();
            text.push_str(&value.map_or_else(|| raw.to_owned(), |value| canonical_json(&value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn numbers_that_a_value_cannot_tell_apart_have_different_digests() {
        for (one, other) in [
            ("18446744073709551617", "18446744073709551618"),
            ("-9223372036854775809", "-9223372036854775810"),
            ("0.1", "0.10000000000000000001"),
            ("1e23", "1.00000000000000000000001e23"),
            ("1.5", "1.50000000000000000000001"),
        ] {
            let of = |number: &str| json(&format!(r#"{{"to":["x",{{"n":{number}}}]}}"#));
            let (one_text, other_text) = (exact_text(&of(one)), exact_text(&of(other)));
            assert_ne!(one_text, other_text, "{one} {other}");
            assert_ne!(digest(&of(one)), digest(&of(other)), "{one} {other}");
            assert!(other_text.contains(other), "{other_text}");
        }
    }

    #[test]
    fn equal_arguments_have_one_form() {
        let one = json(r#"{ "b": 1.50, "a": [18446744073709551617, "\u0041"] }"#);
        let other = json(r#"{"a":[18446744073709551617,"A"],"b":1.5}"#);
        assert_eq!(exact_text(&one), exact_text(&other));
        assert_eq!(digest(&one), digest(&other));
        let plain = json(r#"{"b":1.0,"a":2}"#);
        let value = plain.to_value().unwrap();
        assert_eq!(exact_text(&plain), r#"{"a":2,"b":1.0}"#);
        assert_eq!(digest(&plain), Fingerprint::of(&value).to_string());
    }

    proptest! {
        #[test]
        fn numbers_are_equal_in_the_text_only_if_they_are(
            one in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?",
            other in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?",
        ) {
            let equal = digits_of(&one) == digits_of(&other);
            let texts = (exact_text(&json(&one)), exact_text(&json(&other)));
            prop_assert!(equal || texts.0 != texts.1, "{} {} {:?}", one, other, texts);
        }
    }
}
