//! Sizes in bytes as people write them: IEC units, powers of 1024.
//!
//! Parsing takes plain bytes and the suffixes `B`, `K`, `M`, `G`, `T`, `P`, with or without `iB`,
//! in either case. It takes a fraction that gives whole bytes (`1.5GiB`). Decimal units (`MB`)
//! are refused: they would be a guess. [`exact`] prints a text that parses back to the same
//! number. [`rounded`] prints one that fits into a table.

use std::fmt;

/// Units from the largest down, with their power of two.
const UNITS: [(&str, u32); 5] = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a size: {reason}; write bytes or IEC units, such as 512, 4KiB, 256MiB, 1.5GiB"
)]
pub struct SizeError {
    text: String,
    reason: &'static str,
}

/// Parses a size.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let fail = |reason| SizeError { text: text.to_owned(), reason };
    let trimmed = text.trim();
    let digits_end =
        trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits_end);
    if number.is_empty() {
        return Err(fail("it does not begin with a number"));
    }
    let shift = unit_shift(unit.trim()).map_err(fail)?;
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(fail("the number is malformed"));
    }
    let whole: u64 = whole.parse().map_err(|_| fail("it is too large"))?;
    let base = whole
        .checked_mul(1 << shift)
        .filter(|bytes| bytes >> shift == whole)
        .ok_or_else(|| fail("it is too large"))?;
    let part = fraction_bytes(fraction, shift).map_err(fail)?;
    base.checked_add(part).ok_or_else(|| fail("it is too large"))
}

fn unit_shift(unit: &str) -> Result<u32, &'static str> {
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Ok(0),
        "k" | "kib" => Ok(10),
        "m" | "mib" => Ok(20),
        "g" | "gib" => Ok(30),
        "t" | "tib" => Ok(40),
        "p" | "pib" => Ok(50),
        "kb" | "mb" | "gb" | "tb" | "pb" => Err("decimal units are not taken"),
        _ => Err("the unit is not known"),
    }
}

/// `0.fraction × 2^shift`, which must be whole.
fn fraction_bytes(fraction: &str, shift: u32) -> Result<u64, &'static str> {
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return Ok(0);
    }
    if fraction.len() > 15 {
        return Err("the fraction has too many digits");
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let digits: u128 = fraction.parse().map_err(|_| "the number is malformed")?;
    let scaled = digits << shift;
    if !scaled.is_multiple_of(scale) {
        return Err("it is not a whole number of bytes");
    }
    Ok((scaled / scale) as u64)
}

/// Prints a size so that [`parse`] gives it back: in the largest unit that divides it.
pub fn exact(bytes: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let unit = UNITS.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
        match unit {
            Some((name, shift)) => write!(f, "{}{name}", bytes >> shift),
            None => write!(f, "{bytes}"),
        }
    })
}

/// Prints a size for reading: at most one decimal, a space, a unit (`1.2 GiB`, `512 B`).
pub fn rounded(bytes: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match UNITS.iter().rev().rfind(|(_, shift)| bytes >> shift != 0) {
        None => write!(f, "{bytes} B"),
        Some((name, shift)) => {
            let tenths = (u128::from(bytes) * 10 + (1 << (shift - 1))) >> shift;
            match (tenths / 10, tenths % 10) {
                (whole, 0) => write!(f, "{whole} {name}"),
                (whole, tenth) => write!(f, "{whole}.{tenth} {name}"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_in_iec_units() {
        let table = [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("4KiB", 4096),
            ("4k", 4096),
            ("512M", 512 << 20),
            ("256 MiB", 256 << 20),
            ("1G", 1 << 30),
            ("1.5GiB", 3 << 29),
            ("2.0T", 2 << 40),
            ("16383P", 16383 << 50),
        ];
        for (text, bytes) in table {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_a_reason() {
        for text in ["", "MiB", "-1", "1MB", "4Kib2", "1..5G", "1.G", ".5G", "0.3", "99999P"] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("256MiB"), "{error}");
        }
        assert!(parse("1MB").unwrap_err().to_string().contains("decimal units"));
        assert!(parse("18446744073709551616").unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn exact_form_parses_back() {
        for bytes in [0, 1, 512, 4096, 5000, 1 << 20, (1 << 20) + 512, 3 << 29, u64::MAX] {
            assert_eq!(parse(&exact(bytes).to_string()), Ok(bytes));
        }
        assert_eq!(exact(3 << 29).to_string(), "1536MiB");
    }

    #[test]
    fn rounded_form_is_short() {
        let table = [
            (0, "0 B"),
            (512, "512 B"),
            (4096, "4 KiB"),
            (1_288_490_189, "1.2 GiB"),
            (u64::MAX, "16384 PiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(rounded(bytes).to_string(), text);
        }
    }
}
