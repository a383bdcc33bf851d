//! Lengths of time as people write them: `500us`, `5ms`, `30s`, `2min`, `1h`.

use std::fmt;

use forebay_core::ids::Nanos;

/// Units from the largest down, with their nanoseconds. The first name is the one that is printed.
const UNITS: [(&[&str], u64); 6] = [
    (&["h"], 3_600_000_000_000),
    (&["min", "m"], 60_000_000_000),
    (&["s"], 1_000_000_000),
    (&["ms"], 1_000_000),
    (&["us", "µs"], 1_000),
    (&["ns"], 1),
];

/// Why a text is not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a length of time: {reason}; write such as 500us, 5ms, 0.5s, 30s, 2min, 1h"
)]
pub struct DurationError {
    text: String,
    reason: &'static str,
}

/// Parses a length of time; the unit is required.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub fn parse(text: &str) -> Result<Nanos, DurationError> {
    let fail = |reason| DurationError { text: text.to_owned(), reason };
    let trimmed = text.trim();
    let digits_end =
        trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits_end);
    let unit = unit.trim();
    if number.is_empty() {
        return Err(fail("it does not begin with a number"));
    }
    if unit.is_empty() && number != "0" {
        return Err(fail("it has no unit"));
    }
    let (_, nanos) = UNITS
        .iter()
        .find(|(names, _)| names.contains(&unit) || unit.is_empty())
        .ok_or_else(|| fail("the unit is not known"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return Err(fail("the number is malformed"));
    }
    let scale = 10u64.pow(fraction.len() as u32);
    let whole: u64 = whole.parse().map_err(|_| fail("it is too long"))?;
    let fraction: u64 = fraction.parse().map_err(|_| fail("the number is malformed"))?;
    let part = u128::from(fraction) * u128::from(*nanos) / u128::from(scale);
    whole
        .checked_mul(*nanos)
        .and_then(|total| total.checked_add(part as u64))
        .map(Nanos)
        .ok_or_else(|| fail("it is too long"))
}

/// Prints a length of time so that [`parse`] gives it back: in the largest unit that divides it.
pub fn exact(duration: Nanos) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let unit =
            UNITS.iter().find(|(_, nanos)| duration.0 != 0 && duration.0.is_multiple_of(*nanos));
        match unit {
            Some((names, nanos)) => write!(f, "{}{}", duration.0 / nanos, names[0]),
            None => write!(f, "0s"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_with_their_units() {
        let table = [
            ("0", 0),
            ("250ns", 250),
            ("500us", 500_000),
            ("5ms", 5_000_000),
            ("0.5s", 500_000_000),
            ("30s", 30_000_000_000),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
        ];
        for (text, nanos) in table {
            assert_eq!(parse(text), Ok(Nanos(nanos)), "{text}");
            assert_eq!(parse(&exact(Nanos(nanos)).to_string()), Ok(Nanos(nanos)));
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_a_reason() {
        for text in ["", "s", "5", "5 parsecs", "1.s", "-1s", "1.2.3s", "99999999999h"] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("30s"), "{error}");
        }
    }
}
