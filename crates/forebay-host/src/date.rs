//! Dates as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, now.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as u64
}

/// Milliseconds since 1970 as `2026-01-31T12:34:56.789Z`.
pub fn utc(time_ms: u64) -> String {
    let (seconds, millis) = (time_ms / 1000, time_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The civil date of a day counted from 1970-01-01, by walking years and months.
fn date(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    for (index, length) in months.into_iter().enumerate() {
        if days < length {
            return (year, index + 1, days + 1);
        }
        days -= length;
    }
    unreachable!("a day lies in a month");
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(utc(1_795_276_799_999), "2026-11-21T15:59:59.999Z");
    }
}
