//! Text tables and figures for people.

use std::fmt::Write as _;

/// A table whose columns are as wide as their widest cell; the first column is aligned to the left,
/// the others to the right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Table {
        Table { rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()] }
    }

    /// Appends a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text, each line indented by `indent` spaces.
    pub(crate) fn text(&self, indent: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let _ = match column {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Nanoseconds with three digits and a unit: `850 ns`, `12.3 µs`, `5.04 ms`, `1.20 s`.
pub(crate) fn time(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        ..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A count with its thousands apart: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
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

/// `part` of `whole` in per cent, `-` when there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
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
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["", "mean", "p99"]);
        table.row(vec!["read".into(), "5.04 ms".into(), "9 ms".into()]);
        assert_eq!(table.text(1), "          mean   p99\n read  5.04 ms  9 ms\n");
    }
}
