//! Dates as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last millisecond of the year 9999, which is the last one with four digits.
const LAST_MS: u64 = 253_402_300_799_999;

/// Milliseconds since 1970, now.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as u64
}

/// Milliseconds since 1970 as `2026-01-31T12:34:56.789Z`.
pub fn utc(time_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(time_ms.min(LAST_MS));
    humantime::format_rfc3339_millis(time).to_string()
}

/// The milliseconds since 1970 of a date like `2026-01-31T12:34:56Z` or `2026-01-31 12:34:56`, in UTC; `None` for other text.
pub fn parse(text: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339_weak(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::{parse, utc};

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(utc(1_795_276_799_999), "2026-11-21T15:59:59.999Z");
        assert_eq!(parse("2000-02-29T00:00:00.123Z"), Some(951_782_400_123));
        assert_eq!(parse("2000-02-29 00:00:00"), Some(951_782_400_000));
        assert_eq!(parse("2h"), None);
        assert_eq!(utc(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
