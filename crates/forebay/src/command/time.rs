//! Where the time of requests goes, and why reads miss, in words.

use forebay_backends::size::rounded;
use forebay_core::stats::{MissStatistics, SlowRequest, TimeSplit};

use super::table::{count, percent, time};
use crate::messages;

/// The parts of a time, largest first; those below half a per cent are left out.
pub(super) fn parts(split: &TimeSplit) -> String {
    let whole: u64 = split.parts().iter().map(|(_, ns)| ns).sum();
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
    let whole: u64 = split.parts().iter().map(|(_, ns)| ns).sum();
    let (name, ns) = split.parts().into_iter().max_by_key(|(_, ns)| *ns)?;
    (whole > 0).then(|| (name, ns as f64 / whole as f64))
}

/// Why reads missed, most first. Without misses there is nothing to say.
pub(super) fn misses(misses: &MissStatistics) -> Option<String> {
    let whole: u64 = misses.reasons().iter().map(|(_, blocks)| blocks).sum();
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

fn largest_first<const N: usize>(
    mut parts: [(&'static str, u64); N],
    whole: u64,
    word: impl Fn(&'static str) -> &'static str,
) -> String {
    parts.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
    let shown = parts.iter().filter(|(_, part)| part * 200 >= whole && *part > 0);
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

    #[test]
    fn misses_are_said_by_reason() {
        assert_eq!(misses(&MissStatistics::default()), None);
        let some = MissStatistics { cold: 3000, not_admitted: 1000, ..MissStatistics::default() };
        assert_eq!(misses(&some).unwrap(), "4,000 blocks: cold 75.0 %, not admitted 25.0 %");
    }
}
