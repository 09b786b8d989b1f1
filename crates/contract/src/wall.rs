//! Wall-clock time as clients read it.

use time::OffsetDateTime;

/// Milliseconds since 1970 in ISO-8601 UTC with milliseconds.
pub fn iso(unix_ms: u64) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second, millis) = at.to_hms_milli();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_across_leap_years() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(iso(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso(1_709_164_800_007), "2024-02-29T00:00:00.007Z");
        assert_eq!(iso(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }
}
