//! Whether a text is a `date-time` of RFC 3339, which is what the schemas' format asks for.

/// Whether `text` is a date and a time with its offset, and both exist.
pub fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = bytes else {
        return false;
    };
    let (Some(century), Some(year), Some(month), Some(day)) =
        (pair(y1, y2), pair(y3, y4), pair(m1, m2), pair(d1, d2))
    else {
        return false;
    };
    let year = century * 100 + year;
    let leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let &[h1, h2, b':', m1, m2, b':', s1, s2, ref rest @ ..] = bytes else {
        return false;
    };
    let (Some(hour), Some(minute), Some(second)) = (pair(h1, h2), pair(m1, m2), pair(s1, s2))
    else {
        return false;
    };
    let rest = match rest {
        [b'.', fraction @ ..] => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
            let digits = digits.count();
            if digits == 0 {
                return false;
            }
            fraction.get(digits..).unwrap_or_default()
        }
        rest => rest,
    };
    let Some(east) = offset_minutes(rest) else {
        return false;
    };
    // A leap second is the last one of a day in UTC.
    let utc = (hour * 60 + minute + 24 * 60 - east) % (24 * 60);
    hour < 24 && minute < 60 && (second < 60 || second == 60 && utc == 24 * 60 - 1)
}

/// Minutes that the local time is ahead of UTC, between minus one day and one day.
fn offset_minutes(text: &[u8]) -> Option<i32> {
    let (sign, h1, h2, m1, m2) = match *text {
        [b'Z' | b'z'] => return Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => (sign, h1, h2, m1, m2),
        _ => return None,
    };
    let (hours, minutes) = (pair(h1, h2)?, pair(m1, m2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let minutes = hours * 60 + minutes;
    Some(if sign == b'+' { minutes } else { -minutes })
}

fn pair(tens: u8, ones: u8) -> Option<i32> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i32::from(byte - b'0'));
    Some(digit(tens)? * 10 + digit(ones)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_that_exist_are_taken() {
        for text in [
            "2025-10-13T15:10:00Z",
            "2025-10-13t15:10:00.123456789z",
            "2024-02-29T23:59:60Z",
            "2000-02-29T00:59:60+01:00",
            "2025-01-01T18:59:60-05:00",
            "0000-01-01T00:00:00+23:59",
        ] {
            assert!(is_date_time(text), "{text}");
        }
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "",
            "2025-10-13",
            "15:10:00Z",
            "2025-10-13 15:10:00Z",
            "2025-10-13T15:10:00",
            "2025-10-13T15:10Z",
            "2025-10-13T15:10:00.Z",
            "2025-13-13T15:10:00Z",
            "2025-02-29T15:10:00Z",
            "1900-02-29T15:10:00Z",
            "2025-10-00T15:10:00Z",
            "2025-10-13T24:00:00Z",
            "2025-10-13T15:60:00Z",
            "2025-10-13T15:10:60Z",
            "2025-10-13T15:10:00+24:00",
            "2025-10-13T15:10:00+0100",
            "2025-10-13T15:10:00ZZ",
            "२०२५-10-13T15:10:00Z",
        ] {
            assert!(!is_date_time(text), "{text}");
        }
    }
}
