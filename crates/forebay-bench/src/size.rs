//! Sizes on the command line: `8KiB`, `256MiB`, `512`.

/// Parses a number of bytes with an optional IEC unit.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        unit => return Err(format!("unit {unit:?}: not one of B, KiB, MiB, GiB, TiB")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a size like 8KiB"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} does not fit 64 bits"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn iec_units_multiply_and_others_are_named() {
        assert_eq!(super::parse("8KiB"), Ok(8192));
        assert_eq!(super::parse("512"), Ok(512));
        assert!(super::parse("8KB").unwrap_err().contains("KB"));
        assert!(super::parse("99999999999TiB").is_err());
        assert!(super::parse("").is_err());
    }
}
