//! Where the time of requests goes, and why reads miss, in words.

use forebay_backends::size::rounded;
use forebay_core::stats::{MissStatistics, SlowRequest, TimeSplit};

use super::table::{count, percent, time};
use crate::messages;

/// The parts of a time, largest first; those below half a per cent are left out.
pub(super) fn parts(split: &TimeSplit) -> String {
    let whole = sum(&split.parts());
    largest_first(split.parts(), whole, |name| match name {
        "limit" => "limits of the disk",
        "primary" => "primary storage",
        "log" => "write log",
        "room" => "full log",
        "rest" => "RAM and sending",
        other => other,
    })
}

/// The largest part of a time, and its share.
pub(super) fn largest(split: &TimeSplit) -> Option<(&'static str, f64)> {
    let whole = sum(&split.parts());
    let (name, ns) = split.parts().into_iter().max_by_key(|(_, ns)| *ns)?;
    (whole > 0).then(|| (name, ns as f64 / whole as f64))
}

/// Why reads missed, most first. Without misses there is nothing to say.
pub(super) fn misses(misses: &MissStatistics) -> Option<String> {
    let whole = sum(&misses.reasons());
    (whole > 0).then(|| {
        let reasons = largest_first(misses.reasons(), whole, |name| match name {
            "not-admitted" => "not admitted",
            other => other,
        });
        format!("{} blocks: {reasons}", count(whole))
    })
}

/// A slow request in one line.
pub(super) fn slow(request: &SlowRequest) -> String {
    let SlowRequest { operation, offset, length, ago_ns, time: split } = request;
    format!(
        "{} for a {} of {} at {offset}, {} ago: {}",
        time(split.total_ns),
        messages::request(*operation),
        rounded(*length),
        time(*ago_ns),
        parts(split)
    )
}

/// Times of requests end at the largest number.
fn sum(parts: &[(&str, u64)]) -> u64 {
    parts.iter().fold(0, |sum, (_, part)| sum.saturating_add(*part))
}

fn largest_first<const N: usize>(
    mut parts: [(&'static str, u64); N],
    whole: u64,
    word: impl Fn(&'static str) -> &'static str,
) -> String {
    parts.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
    let is_shown = |part| u128::from(part) * 200 >= u128::from(whole);
    let shown = parts.iter().filter(|(_, part)| is_shown(*part) && *part > 0);
    let shown = shown.map(|(name, part)| format!("{} {}", word(name), percent(*part, whole)));
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_said_largest_first_and_small_ones_are_not() {
        let split = TimeSplit {
            total_ns: 1000,
            queue_ns: 200,
            primary_ns: 797,
            throttle_ns: 3,
            ..TimeSplit::default()
        };
        assert_eq!(parts(&split), "primary storage 79.7 %, queue 20.0 %");
        assert_eq!(largest(&split), Some(("primary", 0.797)));
        assert_eq!(
            (parts(&TimeSplit::default()), largest(&TimeSplit::default())),
            (String::new(), None)
        );
    }

    /// Those of a disk with many requests at a time get there within weeks.
    #[test]
    fn parts_of_a_time_that_is_as_long_as_can_be_are_said_as_well() {
        let longest = TimeSplit {
            queue_ns: u64::MAX,
            primary_ns: u64::MAX,
            total_ns: u64::MAX,
            ..TimeSplit::default()
        };
        assert_eq!(parts(&longest), "queue 100.0 %, primary storage 100.0 %");
        assert_eq!(largest(&longest), Some(("primary", 1.0)));
        let long = TimeSplit { primary_ns: 1 << 57, total_ns: 1 << 57, ..TimeSplit::default() };
        assert_eq!(parts(&long), "primary storage 100.0 %");
    }

    #[test]
    fn misses_are_said_by_reason() {
        assert_eq!(misses(&MissStatistics::default()), None);
        let some = MissStatistics { cold: 3000, not_admitted: 1000, ..MissStatistics::default() };
        assert_eq!(misses(&some).unwrap(), "4,000 blocks: cold 75.0 %, not admitted 25.0 %");
    }
}
