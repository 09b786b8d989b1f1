//! Recognises a `date-time` of RFC 3339, the format that the schemas demand.

use std::borrow::Cow;

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

/// Bytes of a date, of the separator and of the seconds.
const SEPARATOR: usize = 10;
const SECONDS: std::ops::Range<usize> = 17..19;

/// True if `text` is a date and a time with its offset, and both exist.
pub fn is_date_time(text: &str) -> bool {
    // The parser accepts any separator.
    if !matches!(text.as_bytes().get(SEPARATOR), Some(b'T' | b't')) {
        return false;
    }
    // The parser accepts a leap second only at the end of a month; the schemas' format accepts it
    // as the last second of any day in UTC.
    let leap = text.get(SECONDS) == Some("60");
    let text = match (text.get(..SECONDS.start), text.get(SECONDS.end..)) {
        (Some(before), Some(after)) if leap => Cow::Owned(format!("{before}59{after}")),
        _ => Cow::Borrowed(text),
    };
    OffsetDateTime::parse(&text, &Rfc3339).is_ok_and(|at| {
        let utc = || at.checked_to_offset(UtcOffset::UTC);
        !leap || utc().is_some_and(|utc| (utc.hour(), utc.minute()) == (23, 59))
    })
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
