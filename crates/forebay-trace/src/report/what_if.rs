//! The page of a configuration that was simulated.

use forebay_backends::size::rounded;
use forebay_core::stats::LatencySummary;
use maud::{Markup, html};

use super::chart::{Axis, Line, Scale, lines};
use super::figures::{bytes_at_axis, count, moment, of, percent, time, time_at_axis};
use super::{TIME, facts, page, table};
use crate::what_if::{Outcome, Slice};

/// The page of what a configuration would have done to a trace.
pub fn what_if(trace: &str, outcome: &Outcome) -> String {
    let has = |of: fn(&Slice) -> u64| outcome.slices.iter().any(|slice| of(slice) > 0);
    let lead = html! {
        p.lead {
            (outcome.mode) ", RAM " (rounded(outcome.ram_bytes)) ", flash " (rounded(outcome.flash_bytes)) ", blocks of "
            (rounded(outcome.block_size)) ", policy " (outcome.policy) ". Simulated: the engine over modelled devices."
        }
    };
    let sections = html! {
        h2 { "Latency" }
        (latencies(outcome))
        @if has(|slice| slice.reads) {
            (over_time("Mean latency of reads", &outcome.slices, |s| s.reads, |s| s.read_ns_before, |s| s.read_ns_after))
        }
        @if has(|slice| slice.writes) {
            (over_time("Mean latency of writes", &outcome.slices, |s| s.writes, |s| s.write_ns_before, |s| s.write_ns_after))
        }
        h2 { "Cache" }
        (hits(outcome))
        @if outcome.hits.ram + outcome.hits.flash > 0 { (hits_over_time(&outcome.slices)) }
        h2 { "Primary storage" }
        (storage(outcome))
        @if outcome.log.is_some() {
            h2 { "Write log" }
            (log(outcome))
            (dirty_over_time(&outcome.slices))
        }
        @if outcome.flash.is_some() {
            h2 { "Flash" }
            (wear(outcome))
        }
    };
    page(&format!("{trace} with {}", outcome.mode), &lead, &sections)
}

fn latencies(outcome: &Outcome) -> Markup {
    let row = |(name, of): (&str, &LatencySummary)| {
        let times = [of.mean_ns, of.p50_ns, of.p99_ns, of.max_ns].map(time);
        [name.to_owned(), count(of.count)].into_iter().chain(times).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = [
        ("reads without Forebay", &outcome.before.reads),
        ("reads with it", &outcome.after.reads),
        ("writes without Forebay", &outcome.before.writes),
        ("writes with it", &outcome.after.writes),
    ]
    .into_iter()
    .filter(|(_, of)| of.count > 0)
    .map(row)
    .collect();
    table(&["latency of", "requests", "mean", "p50", "p99", "longest"], &rows)
}

/// A line without and one with Forebay, over those slices that have any.
fn over_time(
    title: &str,
    slices: &[Slice],
    number: fn(&Slice) -> u64,
    before: fn(&Slice) -> u64,
    after: fn(&Slice) -> u64,
) -> Markup {
    let line = |name: &str, of: fn(&Slice) -> u64| {
        let known = |slice: &Slice| (number(slice) > 0).then(|| of(slice) as f64);
        let points = slices.iter().map(|slice| (slice.start_ns as f64, known(slice)));
        Line::new(name.to_owned(), points)
    };
    let both = [line("without Forebay", before), line("with Forebay", after)];
    lines(
        title,
        Axis::new(TIME, Scale::Moments, moment),
        Axis::new("Mean latency", Scale::Log, time_at_axis),
        &both,
    )
}

fn hits_over_time(slices: &[Slice]) -> Markup {
    let points = slices.iter().map(|slice| {
        let share = 100.0 * slice.hits as f64 / slice.answered.max(1) as f64;
        (slice.start_ns as f64, (slice.answered > 0).then_some(share))
    });
    let line = Line::new("reads answered from the cache".to_owned(), points);
    let share = Axis {
        reaches: Some(100.0),
        ..Axis::new("Hit ratio", Scale::Linear, |p| format!("{p:.0} %"))
    };
    lines("Hit ratio", Axis::new(TIME, Scale::Moments, moment), share, &[line])
}

fn dirty_over_time(slices: &[Slice]) -> Markup {
    let points =
        slices.iter().map(|slice| (slice.start_ns as f64, Some(slice.dirty_bytes_max as f64)));
    let line = Line::new("dirty at most".to_owned(), points);
    let bytes = Axis::new("Dirty bytes", Scale::Bytes, bytes_at_axis);
    lines("Dirty bytes in the write log", Axis::new(TIME, Scale::Moments, moment), bytes, &[line])
}

fn hits(outcome: &Outcome) -> Markup {
    let hits = &outcome.hits;
    let reads = hits.reads();
    facts(&[
        ("reads from RAM", percent(hits.ram, reads)),
        ("from flash", percent(hits.flash, reads)),
        ("from reads in flight", percent(hits.joined, reads)),
        ("in part from the cache", percent(hits.partial, reads)),
        ("from primary storage alone", percent(hits.missed, reads)),
        ("bypassed the cache", percent(hits.bypassed, reads)),
        ("RAM for metadata", rounded(outcome.metadata_bytes).to_string()),
    ])
}

fn storage(outcome: &Outcome) -> Markup {
    let (before, after) = (&outcome.storage_before, &outcome.storage_after);
    let row = |name: &str, ios: [u64; 2], bytes: [u64; 2]| {
        let bytes = bytes.map(|bytes| rounded(bytes).to_string());
        [vec![name.to_owned()], ios.map(count).to_vec(), bytes.to_vec()].concat()
    };
    let rows = [
        row("reads", [before.reads, after.reads], [before.read_bytes, after.read_bytes]),
        row("writes", [before.writes, after.writes], [before.write_bytes, after.write_bytes]),
    ];
    table(
        &["I/O", "I/Os without Forebay", "I/Os with it", "bytes without Forebay", "bytes with it"],
        &rows,
    )
}

fn log(outcome: &Outcome) -> Markup {
    let Some(log) = &outcome.log else { return Markup::default() };
    facts(&[
        ("size", rounded(log.capacity_bytes).to_string()),
        ("occupied at most", rounded(log.occupied_bytes_max).to_string()),
        ("dirty at most", rounded(log.dirty_bytes_max).to_string()),
        ("injected latency, in all", time(log.injected_latency_ns)),
        ("acknowledgements that had some", count(log.acknowledgements_delayed)),
        ("time in which writers were slowed", time(log.throttled_ns)),
        ("times full", count(log.times_full)),
        (
            "destaged",
            format!("{} in {}", rounded(log.destage_bytes), of(log.destage_writes, "write")),
        ),
        (
            "rate while there was something to destage",
            format!("{}/s", rounded(log.destage_bytes_per_second)),
        ),
        ("done after the last answer", time(log.drained_ns)),
    ])
}

fn wear(outcome: &Outcome) -> Markup {
    let Some(wear) = &outcome.flash else { return Markup::default() };
    let mut rows = vec![
        ("written to the cache", rounded(wear.cache_bytes).to_string()),
        ("to the write log", rounded(wear.log_bytes).to_string()),
        ("to the index", rounded(wear.index_bytes).to_string()),
    ];
    if let (Some(per_day), Some(drive)) = (wear.bytes_per_day, wear.drive_writes_per_day) {
        rows.push(("in a day when warm", rounded(per_day as u64).to_string()));
        rows.push(("drive writes a day", format!("{drive:.2}")));
    }
    if let Some(days) = wear.lifetime_days {
        rows.push(("lasts", format!("{days:.0} days")));
    }
    facts(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_an_axis_have_all_their_digits() {
        let slice = |n: u64| Slice {
            start_ns: n * 100_000,
            dirty_bytes_max: n * (3 << 18),
            ..Slice::default()
        };
        let chart = dirty_over_time(&[slice(0), slice(1), slice(2)]).into_string();
        for figure in ["1.25 MiB", "50 µs", "100 µs"] {
            assert!(chart.contains(&format!("\n{figure}\n")), "{figure}: {chart}");
        }
        assert!(!chart.contains("1.3 MiB"), "{chart}");
    }
}
