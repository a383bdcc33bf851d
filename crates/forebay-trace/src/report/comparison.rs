//! The page of several replays side by side.

use maud::{Markup, html};

use super::figures::{count, percent, time};
use super::replay::{
    cdf, curve, kinds, method, notes, over_time, over_time_of, pace, rate, rate_chart, tail,
    time_chart,
};
use super::{page, table};
use crate::compare::{
    Figure, RESAMPLES, SLICES_MIN, Unit, differences, got_as_far, is_of_same_trace, is_paired,
    words,
};
use crate::results::{Run, warnings};

/// Runs beside the first in one table.
const BESIDE: usize = 2;

/// The page of runs, each held against the first.
pub fn comparison(runs: &[Run]) -> String {
    let all: Vec<&Run> = runs.iter().collect();
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let lead = html! {
        p.lead { (names.len()) " replays side by side; each is held against the first, " b { (names[0]) } "." }
        @for run in runs { @for note in notes(&run.outcome) { p.warn { b { (run.name) ": " } (note) } } }
        @for text in warnings(runs) { p.warn { (text) } }
        @for text in mismatches(runs) { p.warn { (text) } }
    };
    let sections = html! {
        h2 { "In words" }
        p.quiet { "In brackets: where the ratio lies with 95 % confidence." }
        @for run in &runs[1..] {
            h3 { (run.name) " vs. " (runs[0].name) }
            ul { @for text in words(&differences(&runs[0], run)) { li { (text) } } }
        }
        h2 { "Figures" }
        (figures(runs))
        (abouts(runs))
        h2 { "Distribution of latency" }
        @for (op, name) in kinds(&all) {
            @let curves: Vec<_> = runs.iter().map(|run| (run.name.clone(), curve(run, op))).collect();
            (cdf(&format!("Share of {name} that took at most so long"), &curves))
            (tail(&format!("Latency of {name} by percentile"), &curves))
        }
        h2 { "Over time" }
        @for (op, name) in kinds(&all) {
            @for (share, what) in [(0.5, "Median"), (0.99, "p99")] {
                @let all: Vec<_> = runs.iter().map(|run| over_time(run.name.clone(), run, over_time_of(op, share))).collect();
                (time_chart(&format!("{what} latency of {name}"), &all))
            }
        }
        (rate_chart("Requests per second", &runs.iter().map(|run| {
            rate(run, |slice| slice.reads.count + slice.writes.count, run.name.clone())
        }).collect::<Vec<_>>()))
        h2 { "How it was measured" }
        p.quiet {
            "Confidence intervals (95 %) of ratios by circular block bootstrap: " (RESAMPLES) " times as many slices of time as there are, in runs of "
            "√n slices in a row, are drawn with replacement, because latencies of requests that follow each other are not independent. "
            @if runs[1..].iter().all(|run| is_paired(&runs[0], run)) {
                "All replays issued the same requests at the same times, so that the same slices are drawn of all. "
            }
            "With fewer than " (SLICES_MIN) " whole slices nothing is said. Where latencies drift all the time intervals are too narrow. An interval tells what chance within these replays may do, not what another day would bring."
        }
        (method())
    };
    page(&format!("Comparison of {}", names.join(", ")), &lead, &sections)
}

/// Reasons why runs are hard to compare.
pub fn mismatches(runs: &[Run]) -> Vec<String> {
    let mut texts = Vec::new();
    let first = &runs[0];
    for run in &runs[1..] {
        if !is_of_same_trace(first, run) {
            texts.push(format!(
                "{} and {} are not replays of the same requests.",
                first.name, run.name
            ));
        } else if !got_as_far(first, run) {
            texts.push(format!(
                "{} got to {} of the trace, {} to {}: they are not replays of the same requests.",
                first.name,
                time(first.outcome.trace_time_ns),
                run.name,
                time(run.outcome.trace_time_ns)
            ));
        }
        if run.pace != first.pace {
            texts.push(format!(
                "{} was issued {}, {} {}.",
                first.name,
                pace(first.pace),
                run.name,
                pace(run.pace)
            ));
        }
    }
    texts
}

/// A column for each run; behind each but the first how it stands to the first. As many as fit on paper beside the first.
fn figures(runs: &[Run]) -> Markup {
    let beside: Vec<&[Run]> = runs[1..].chunks(BESIDE).collect();
    html! { @for others in beside { (figures_of(&runs[0], others)) } }
}

fn figures_of(first: &Run, others: &[Run]) -> Markup {
    let all = || std::iter::once(first).chain(others);
    let changes: Vec<String> =
        others.iter().map(|run| format!("{} vs. {}", run.name, first.name)).collect();
    let mut head = vec!["figure", first.name.as_str()];
    for (run, change) in others.iter().zip(&changes) {
        head.extend([run.name.as_str(), change.as_str()]);
    }
    let found: Vec<_> = others.iter().map(|run| differences(first, run)).collect();
    let rows = Figure::ALL.into_iter().filter(|figure| all().any(|run| figure.of(run).is_some()));
    let rows = rows.map(|figure| {
        let mut row = vec![figure.name().to_owned(), value(figure, first)];
        for (run, differences) in others.iter().zip(&found) {
            let unit = Unit::of(differences);
            let difference = differences.iter().find(|difference| difference.figure == figure);
            let change = difference.map_or("-".to_owned(), |of| of.words(unit));
            row.extend([value(figure, run), change]);
        }
        row
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    if all().any(|run| run.cache.is_some()) {
        let hits = |run: &Run| {
            run.cache.map_or("-".to_owned(), |cache| percent(cache.read_hits, cache.reads))
        };
        let ios = |run: &Run| run.cache.map_or("-".to_owned(), |cache| count(cache.backend_ios));
        rows.push(padded("read hit ratio", first, others, hits));
        rows.push(padded("I/Os of primary storage", first, others, ios));
    }
    table(&head, &rows)
}

fn padded(name: &str, first: &Run, others: &[Run], of: impl Fn(&Run) -> String) -> Vec<String> {
    let mut row = vec![name.to_owned(), of(first)];
    for run in others {
        row.extend([of(run), "-".to_owned()]);
    }
    row
}

/// A figure of a run in words.
pub fn value(figure: Figure, run: &Run) -> String {
    match (figure, figure.of(run)) {
        (_, None) => "-".to_owned(),
        (Figure::Iops, Some(value)) => count(value.round() as u64),
        (_, Some(value)) => time(value as u64),
    }
}

fn abouts(runs: &[Run]) -> Markup {
    let rows = runs.iter().map(|run| {
        let requests = count(run.outcome.reads.count + run.outcome.writes.count);
        vec![
            run.name.clone(),
            run.trace.clone(),
            run.measured().to_owned(),
            run.started.clone(),
            requests,
            time(run.outcome.elapsed_ns),
        ]
    });
    table(&["replay", "trace", "measured", "begun", "requests", "took"], &rows.collect::<Vec<_>>())
}
