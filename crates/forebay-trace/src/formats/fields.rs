//! Numbers in the columns of text traces, with errors that name the column.

use crate::record::Op;

/// Bytes of a sector, the unit of most addresses.
pub(super) const SECTOR: u64 = 512;
/// How much of a bad field or line an error shows.
const SHOWN_MAX: usize = 80;

/// The fields of a line, exactly `N` of them.
pub(super) fn exactly<'a, const N: usize>(
    fields: impl Iterator<Item = &'a str>,
    columns: &str,
) -> Result<[&'a str; N], String> {
    let mut found = [""; N];
    let mut count = 0;
    for field in fields {
        if let Some(place) = found.get_mut(count) {
            *place = field.trim();
        }
        count += 1;
    }
    if count != N {
        return Err(format!("{count} fields, not {N} ({columns})"));
    }
    Ok(found)
}

/// A whole number.
pub(super) fn number(field: &str, column: &str) -> Result<u64, String> {
    // `parse` alone would take a plus sign.
    if field.starts_with('+') {
        return Err(format!("{column} \"{}\" is not a whole number", shown(field)));
    }
    field.parse().map_err(|_| format!("{column} \"{}\" is not a whole number", shown(field)))
}

/// A whole number of things of `unit` bytes, in bytes.
pub(super) fn bytes(field: &str, unit: u64, column: &str) -> Result<u64, String> {
    let count = number(field, column)?;
    count.checked_mul(unit).ok_or_else(|| format!("{column} {count} is too large"))
}

/// A decimal number of units of `unit_ns` nanoseconds, in nanoseconds, the rest cut off.
pub(super) fn decimal_ns(field: &str, unit_ns: u64, column: &str) -> Result<u64, String> {
    let bad = || format!("{column} \"{}\" is not a time", shown(field));
    let (whole, fraction) = field.split_once('.').unwrap_or((field, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !digits(whole) || !digits(fraction) {
        return Err(bad());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad())? };
    // Nine digits of a second are nanoseconds; more cannot matter.
    let fraction = &fraction[..fraction.len().min(9)];
    let parts: u64 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| bad())? };
    let part_ns = parts * unit_ns / 10u64.pow(fraction.len() as u32);
    whole.checked_mul(unit_ns).and_then(|ns| ns.checked_add(part_ns)).ok_or_else(bad)
}

/// `R` or `W`, in any case.
pub(super) fn op(field: &str) -> Option<Op> {
    match field {
        "R" | "r" => Some(Op::Read),
        "W" | "w" => Some(Op::Write),
        _ => None,
    }
}

/// The start of a field, for an error.
pub(super) fn shown(field: &str) -> String {
    let mut text: String = field.chars().take(SHOWN_MAX).flat_map(char::escape_default).collect();
    if field.chars().nth(SHOWN_MAX).is_some() {
        text.push('…');
    }
    text
}
