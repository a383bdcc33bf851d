//! Figures as people read them: in text, in tables and at axes.

/// Nanoseconds with three digits and a unit: `850 ns`, `12.3 µs`, `5.04 ms`, `1.20 s`.
pub fn time(nanos: u64) -> String {
    // What rounds to a thousand of a unit is one of the next.
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..999_500 => (nanos as f64 / 1e3, "µs"),
        999_500..999_500_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    match value {
        ..9.995 => format!("{value:.2} {unit}"),
        ..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A count with its thousands apart: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// So many of something, with the word for one of them.
pub fn of(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {one}{plural}", count(number))
}

/// `part` of `whole` in per cent, `-` when there is no whole.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// A ratio with as many digits as a reader needs: `1.04`, `38.8`, `284`. Near 1 there are three
/// behind the point, so that it does not read as 1.
pub fn ratio(ratio: f64) -> String {
    match ratio {
        100.0.. => count(ratio.round() as u64),
        2.0.. => format!("{ratio:.1}"),
        0.99..1.01 => format!("{ratio:.3}"),
        0.1.. => format!("{ratio:.2}"),
        0.001.. => format!("{ratio:.3}"),
        _ => format!("{ratio:.1e}"),
    }
}

/// A time at an axis: no more digits than it has.
pub(super) fn time_at_axis(nanos: f64) -> String {
    let (value, unit) = match nanos {
        ..1e3 => (nanos, "ns"),
        ..1e6 => (nanos / 1e3, "µs"),
        ..1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    format!("{} {unit}", plain(value))
}

/// A place on a disk: exact to the MiB, `2.938 GiB`.
pub(super) fn place(bytes: u64) -> String {
    let unit = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((name, shift)) = unit.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let digits = if shift == 40 { 6 } else { 3 };
    let number = format!("{:.digits$}", bytes as f64 / (1u64 << shift) as f64);
    format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// Bytes at an axis: a quarter of a unit is not rounded away.
pub(super) fn bytes_at_axis(bytes: f64) -> String {
    place(bytes.round() as u64)
}

/// Time since the beginning, at an axis.
pub(super) fn moment(nanos: f64) -> String {
    let seconds = nanos / 1e9;
    match seconds {
        ..=0.0 => "0 s".to_owned(),
        ..1.0 => time_at_axis(nanos),
        ..120.0 => format!("{} s", plain(seconds)),
        ..7200.0 => format!("{} min", plain(seconds / 60.0)),
        _ => format!("{} h", plain(seconds / 3600.0)),
    }
}

/// A number at an axis.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        10_000.0.. => count(value.round() as u64),
        _ => plain(value),
    }
}

/// Up to three digits, without zeroes at the end.
fn plain(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let table = [
            (0, "0 ns"),
            (850, "850 ns"),
            (1_234, "1.23 µs"),
            (12_345, "12.3 µs"),
            (5_040_000, "5.04 ms"),
            (9_999, "10.0 µs"),
            (99_960, "100 µs"),
            (999_600, "1.00 ms"),
            (999_600_000, "1.00 s"),
            (123_000_000, "123 ms"),
            (1_200_000_000, "1.20 s"),
        ];
        for (nanos, expect) in table {
            assert_eq!(time(nanos), expect);
        }
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(0, 0), "-");
        let ratios = [283.7, 38.84, 5.61, 1.25, 1.004, 0.5, 0.0123];
        assert_eq!(ratios.map(ratio), ["284", "38.8", "5.6", "1.25", "1.004", "0.50", "0.012"]);
    }

    #[test]
    fn places_are_told_apart_by_the_mebibyte() {
        const MIB: u64 = 1 << 20;
        let table = [
            (0, "0 B"),
            (4096, "4 KiB"),
            (256 * MIB, "256 MiB"),
            (1792 * MIB, "1.75 GiB"),
            (20_963 * MIB, "20.472 GiB"),
            (20_964 * MIB, "20.473 GiB"),
            (3 << 40, "3 TiB"),
            ((3 << 40) + MIB, "3.000001 TiB"),
        ];
        for (bytes, expect) in table {
            assert_eq!(place(bytes), expect);
        }
    }

    #[test]
    fn axes_have_no_more_digits_than_needed() {
        assert_eq!(time_at_axis(1e6), "1 ms");
        assert_eq!(time_at_axis(2.5e3), "2.5 µs");
        assert_eq!(
            (moment(9e9), moment(900e9), moment(5400e10)),
            ("9 s".into(), "15 min".into(), "15 h".into())
        );
        let short = [0.0, 2.5e5, 1e6, 5e8, 1e9].map(moment);
        assert_eq!(short, ["0 s", "250 µs", "1 ms", "500 ms", "1 s"]);
        assert_eq!(
            (number(0.25), number(25_000.0), number(1500.0)),
            ("0.25".into(), "25,000".into(), "1500".into())
        );
    }
}
