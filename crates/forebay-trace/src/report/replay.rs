//! The page of one replay, and the charts that it shares with a comparison.

use maud::{Markup, html};

use super::chart::{Axis, Line, Scale, lines};
use super::figures::{count, moment, number, of, percent, time, time_at_axis};
use super::histograms::families;
use super::{TIME, facts, page, table};
use crate::record::Op;
use crate::replay::{EndedBy, Latency, Outcome, Pace, Part, Slice};
use crate::results::Run;
use forebay_backends::size::rounded;

/// A replay on a clock that is so late is not the one that was asked for.
const LATE_NS: u64 = 10_000_000;

/// The page of one replay.
pub fn replay(run: &Run) -> String {
    let outcome = &run.outcome;
    let lead = html! {
        p.lead {
            (count(outcome.reads.count + outcome.writes.count)) " requests in " (time(outcome.elapsed_ns))
            @if outcome.reads.count > 0 { "; reads took " (time(outcome.reads.mean_ns as u64)) " on the mean, 99 % at most " (time(outcome.reads.p99_ns)) }
            @if outcome.writes.count > 0 { "; writes " (time(outcome.writes.mean_ns as u64)) ", 99 % at most " (time(outcome.writes.p99_ns)) }
            "."
        }
        @for note in notes(outcome) { p.warn { (note) } }
        @for warning in &run.warnings { p.warn { (warning) } }
    };
    let ops = kinds(&[run]);
    let sections = html! {
        h2 { "What was measured" }
        (latencies(run))
        (about(run))
        h2 { "Over time" }
        @for (op, name) in &ops { (latency_over_time(&format!("Latency of {name}, by slices of {}", time(outcome.slice_ns)), run, *op)) }
        (requests_over_time(run))
        h2 { "Distribution of latency" }
        (cdf("Share of requests that took at most so long", &ops.iter().map(|(op, name)| (name.to_string(), curve(run, *op))).collect::<Vec<_>>()))
        (tail("Latency by percentile", &ops.iter().map(|(op, name)| (name.to_string(), curve(run, *op))).collect::<Vec<_>>()))
        h2 { "What the target was asked" }
        p.quiet { "Counted as vscsiStats does, at the target: after folding and growing requests, with the latencies measured here." }
        (families(&outcome.histograms))
        h2 { "How it was measured" }
        (method())
    };
    page(&format!("Replay of {}", run.trace), &lead, &sections)
}

/// Warnings beside the figures; none where all is as it should be.
pub fn notes(outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    match outcome.ended_by {
        EndedBy::Trace => {}
        EndedBy::Duration => notes.push(
            "The time allowed ended it before the trace did: the figures are of fewer requests."
                .to_owned(),
        ),
        EndedBy::Interrupt => notes.push(
            "It was interrupted before the end of the trace: the figures are of fewer requests."
                .to_owned(),
        ),
    }
    let counted = [
        (outcome.errors, "requests failed on the target; they are not in the latencies"),
        (outcome.sessions_lost, "sessions of the target were lost while it was replayed"),
        (
            outcome.wrapped,
            "requests were folded back into the target, which is smaller than the trace's span",
        ),
        (outcome.widened, "requests were grown to whole logical blocks of the target"),
        (outcome.too_long, "requests were left out: too long"),
    ];
    for (number, what) in counted.into_iter().filter(|(number, _)| *number > 0) {
        notes.push(format!("{} {what}.", count(number)));
    }
    if outcome.lag.p99_ns > LATE_NS {
        notes.push(format!(
            "1 % of the requests were issued at least {} after their own time: the target, or this machine, did not keep up with the trace.",
            time(outcome.lag.p99_ns)
        ));
    }
    if let Some(found) = outcome.verified.as_ref().filter(|found| found.wrong() > 0) {
        notes.push(format!(
            "{} sectors were not what had been written. {}",
            count(found.wrong()),
            found.findings.join("; ")
        ));
    }
    notes
}

/// Reads, writes: those that there are.
pub(super) fn kinds(runs: &[&Run]) -> Vec<(Op, &'static str)> {
    let has = |op: &(Op, &str)| runs.iter().any(|run| latency(run, op.0).count > 0);
    [(Op::Read, "reads"), (Op::Write, "writes")].into_iter().filter(has).collect()
}

pub(super) fn latency(run: &Run, op: Op) -> &Latency {
    match op {
        Op::Read => &run.outcome.reads,
        Op::Write => &run.outcome.writes,
    }
}

pub(super) fn curve(run: &Run, op: Op) -> &[(u64, f64)] {
    match op {
        Op::Read => &run.outcome.read_cdf,
        Op::Write => &run.outcome.write_cdf,
    }
}

fn part(slice: &Slice, op: Op) -> &Part {
    match op {
        Op::Read => &slice.reads,
        Op::Write => &slice.writes,
    }
}

/// The latency that a share of the requests of a slice took at most.
pub(super) fn quantile(part: &Part, share: f64) -> Option<f64> {
    let wanted = (part.count as f64 * share).ceil() as u64;
    let mut seen = 0;
    let mut reached = part.buckets.iter().filter(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    reached.next().map(|&(bound, _)| bound.min(part.max_ns.max(1)) as f64)
}

fn latencies(run: &Run) -> Markup {
    let row = |name: &str, of: &Latency| {
        let mut row = vec![name.to_owned(), count(of.count), time(of.mean_ns as u64)];
        row.extend([of.min_ns, of.p50_ns, of.p90_ns, of.p99_ns, of.p999_ns, of.max_ns].map(time));
        row
    };
    let outcome = &run.outcome;
    let rows =
        [("reads", &outcome.reads), ("writes", &outcome.writes), ("issued late", &outcome.lag)];
    let rows = rows.into_iter().filter(|(_, of)| of.count > 0).map(|(name, of)| row(name, of));
    let head =
        ["latency of", "count", "mean", "least", "median", "90 %", "99 %", "99.9 %", "greatest"];
    html! {
        (table(&head, &rows.collect::<Vec<_>>()))
        @if outcome.lag.count > 0 {
            p.quiet { "Issued late: how long after its own time a request was issued. Latencies count from the issue." }
        }
    }
}

pub(super) fn pace(pace: Pace) -> String {
    match pace {
        Pace::Clock { speed: 1.0 } => "on the trace's clock".to_owned(),
        Pace::Clock { speed } => format!("on the trace's clock, {} times as fast", number(speed)),
        Pace::Closed { queue_depth } => format!("as fast as possible, {queue_depth} outstanding"),
        Pace::Dependent { speed: Some(1.0) } => {
            "each request after those that had ended before it, and the guest's own time".to_owned()
        }
        Pace::Dependent { speed: Some(speed) } => {
            format!(
                "each request after those that had ended before it, and the guest's own time divided by {}",
                number(speed)
            )
        }
        Pace::Dependent { speed: None } => {
            "each request after those that had ended before it".to_owned()
        }
    }
}

fn about(run: &Run) -> Markup {
    let Run { outcome, asked, .. } = run;
    let requests = asked.reads + asked.writes;
    let mut rows = vec![
        ("trace", run.trace.clone()),
        ("target", run.measured().to_owned()),
        ("begun", run.started.clone()),
        ("issued", pace(run.pace)),
        (
            "the trace asks for",
            format!(
                "{}, {} of them reads, {} read, {} written, span {}, {}",
                of(requests, "request"),
                percent(asked.reads, requests),
                rounded(asked.read_bytes),
                rounded(asked.written_bytes),
                rounded(asked.span_bytes),
                time(asked.duration_ns)
            ),
        ),
        (
            "done",
            format!(
                "{} and {} per second, at most {} outstanding",
                of(outcome.iops.round() as u64, "request"),
                rounded(per_second(outcome.read_bytes + outcome.written_bytes, outcome.elapsed_ns)),
                outcome.in_flight_max
            ),
        ),
    ];
    if run.passes > 1 {
        rows.push(("in a row", format!("{} times", run.passes)));
    }
    rows.extend(cache(run).map(|text| ("cache", text)));
    if let Some(found) = &outcome.verified {
        let text = format!(
            "{} sectors looked at, {} wrong; {}",
            count(found.checked),
            count(found.wrong()),
            found.read_back()
        );
        rows.push(("verified", text));
    }
    facts(&rows)
}

/// The effect of a cache, where that is known.
pub(super) fn cache(run: &Run) -> Option<String> {
    let cache = run.cache?;
    Some(format!(
        "{} of {} reads hit ({}); {} reads and writes of primary storage",
        count(cache.read_hits),
        count(cache.reads),
        percent(cache.read_hits, cache.reads),
        count(cache.backend_ios)
    ))
}

fn per_second(bytes: u64, elapsed_ns: u64) -> u64 {
    (bytes as f64 * 1e9 / elapsed_ns.max(1) as f64) as u64
}

/// Latency at the middle of each slice.
pub(super) fn over_time(
    name: impl Into<String>,
    run: &Run,
    value: impl Fn(&Slice) -> Option<f64>,
) -> Line {
    let middle = run.outcome.slice_ns as f64 / 2.0;
    Line::new(
        name,
        run.outcome.slices.iter().map(|slice| (slice.start_ns as f64 + middle, value(slice))),
    )
}

pub(super) fn over_time_of(op: Op, share: f64) -> impl Fn(&Slice) -> Option<f64> {
    move |slice| quantile(part(slice, op), share)
}

fn latency_over_time(title: &str, run: &Run, op: Op) -> Markup {
    let greatest = |slice: &Slice| {
        Some(part(slice, op)).filter(|part| part.count > 0).map(|part| part.max_ns.max(1) as f64)
    };
    let all = [
        over_time("greatest", run, greatest),
        over_time("99 %", run, over_time_of(op, 0.99)),
        over_time("median", run, over_time_of(op, 0.5)),
    ];
    time_chart(title, &all)
}

/// Latencies over time.
pub(super) fn time_chart(title: &str, all: &[Line]) -> Markup {
    lines(
        title,
        Axis::new(TIME, Scale::Moments, moment),
        Axis::new("Latency", Scale::Log, time_at_axis),
        all,
    )
}

pub(super) fn rate(run: &Run, of: impl Fn(&Slice) -> u64, name: impl Into<String>) -> Line {
    let seconds = run.outcome.slice_ns.max(1) as f64 / 1e9;
    // The last slice is not whole.
    let last = run.outcome.slices.len().saturating_sub(1) as u64 * run.outcome.slice_ns;
    over_time(name, run, move |slice| {
        (slice.start_ns < last || last == 0).then(|| of(slice) as f64 / seconds)
    })
}

fn requests_over_time(run: &Run) -> Markup {
    let both = kinds(&[run]);
    let requests: Vec<Line> = both
        .iter()
        .map(|&(op, name)| rate(run, move |slice| part(slice, op).count, name))
        .collect();
    let bytes: Vec<Line> = both
        .iter()
        .map(|&(op, name)| rate(run, move |slice| part(slice, op).bytes >> 10, name))
        .collect();
    html! {
        (rate_chart("Requests per second", &requests))
        (rate_chart("KiB per second", &bytes))
    }
}

pub(super) fn rate_chart(title: &'static str, all: &[Line]) -> Markup {
    let rate = Axis::new(title, Scale::Linear, number);
    lines(title, Axis::new(TIME, Scale::Moments, moment), rate, all)
}

/// Distributions over latency.
pub(super) fn cdf(title: &str, curves: &[(String, &[(u64, f64)])]) -> Markup {
    let line = |(name, curve): &(String, &[(u64, f64)])| {
        Line::new(name.clone(), curve.iter().map(|&(ns, share)| (ns.max(1) as f64, Some(share))))
    };
    let all: Vec<Line> = curves.iter().map(line).collect();
    let share = Axis {
        reaches: Some(1.0),
        ..Axis::new("Share of requests", Scale::Linear, |share| format!("{:.0} %", share * 100.0))
    };
    lines(title, Axis::new("Latency", Scale::Log, time_at_axis), share, &all)
}

/// Latency over the share that took less, finer towards all.
pub(super) fn tail(title: &str, curves: &[(String, &[(u64, f64)])]) -> Markup {
    let nines = |share: f64| -(1.0 - share).max(1e-9).log10();
    let line = |(name, curve): &(String, &[(u64, f64)])| {
        let below_all = curve.iter().filter(|(_, share)| *share < 1.0);
        Line::new(
            name.clone(),
            below_all.map(move |&(ns, share)| (nines(share), Some(ns.max(1) as f64))),
        )
    };
    let all: Vec<Line> = curves.iter().map(line).collect();
    let words = |at: f64| {
        let digits = (at.ceil() as usize).saturating_sub(2);
        format!("{:.digits$} %", 100.0 - 10f64.powf(2.0 - at))
    };
    lines(
        title,
        Axis::new("Percentile", Scale::Nines, words),
        Axis::new("Latency", Scale::Log, time_at_axis),
        &all,
    )
}

pub(super) fn method() -> Markup {
    html! {
        p.quiet {
            "Requests that failed are not in the latencies. Percentiles of the whole replay are exact to 0.1 %, those of slices to 6 %. "
            "A request belongs to the slice in which it was issued. What the replay does before its first request and after its last "
            "(looking whether the target is empty, the flush at the end, reading back) is not part of the figures."
        }
    }
}
