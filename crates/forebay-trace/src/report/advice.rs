//! The page of an advice: what it says, the curves that it comes from with the advised cache on them, and what else there is.

use forebay_backends::size::rounded;
use maud::{Markup, html};

use super::chart::{Axis, Line, Scale, lines};
use super::figures::{count, time, time_at_axis};
use super::{capitalised, facts, page, table};
use crate::advise::{Advice, BySize, Disk, Latency, Plan, by_size};

/// An advice for a disk, and what else there is to tell of it.
#[derive(Clone, Copy, Debug)]
pub struct DiskAdvice<'a> {
    /// What it is made of.
    pub disk: &'a Disk,
    /// The advice.
    pub advice: &'a Advice,
    /// Names and texts.
    pub notes: &'a [(&'static str, String)],
}

/// The page of advices for disks that share what there is.
pub fn advice(told: &[DiskAdvice<'_>]) -> String {
    let names: Vec<&str> = told.iter().map(|of| of.advice.name.as_str()).collect();
    let lead = html! {
        @match told {
            [one] => p.lead { (capitalised(&one.advice.sentence)) },
            _ => p.lead { (told.len()) " disks share what there is." },
        }
    };
    let sections = html! {
        @for of in told {
            @if told.len() > 1 { h2 { (of.advice.name) } p.lead { (capitalised(&of.advice.sentence)) } }
            @else { h2 { "In figures" } }
            (expected(of))
            @if !of.advice.is_empty() { (curves(of)) }
            @if of.advice.plan.is_some() { h3 { "What else there is" } (alternatives(of.advice)) }
            h3 { "What was reckoned with" }
            (latencies(of.advice))
        }
        @if told.iter().any(|of| !of.advice.is_empty()) { p.quiet {
            "The figures of the advised cache, and of those in the table, are what the engine did with the trace in virtual time. The lines of the charts are a model of the "
            "cache alone, from which the engine's trials began: what it fetches, bypasses and writes is not in them. "
            @if let Some(stretch) = told.iter().find_map(|of| of.advice.proof.as_ref()?.stretch) {
                "A long trace is run as a whole with the advised cache only: the other rows are of its last " (count(stretch.requests)) " requests. "
            }
            "The engine's run draws each latency around the means that were reckoned with, so its own means without a cache differ from these a little."
        } }
    };
    page(&format!("Advice for {}", names.join(", ")), &lead, &sections)
}

fn ns(ns: f64) -> String {
    time(ns.round() as u64)
}

fn expected(of: &DiskAdvice<'_>) -> Markup {
    let Advice { plan, before, after, options, flash_written_per_day, .. } = of.advice;
    let mut rows = Vec::new();
    if let Some(plan) = plan {
        if plan.is_steady {
            let [low, high] = plan.hit_ratio_range.map(|ratio| format!("{:.1} %", ratio * 100.0));
            rows.push(("reads that hit", format!("{low} to {high}")));
            let [fast, slow] = plan.read_mean_range_ns.map(ns);
            let uncached = ns(of.advice.uncached_read_ns());
            rows.push(("mean of reads", format!("{fast} to {slow}, instead of {uncached}")));
        } else {
            let why = "what is asked for differs too much from time to time to say how many reads will hit";
            rows.push(("how sure", why.to_owned()));
        }
        rows.push(("metadata", format!("{} of RAM", rounded(plan.metadata_bytes))));
    }
    if before != after {
        let change = |of: fn(&Latency) -> f64| format!("{} → {}", ns(of(before)), ns(of(after)));
        rows.push(("all requests, mean", change(|latency| latency.mean_ns)));
        rows.push(("all requests, p99", change(|latency| latency.p99_ns)));
    }
    if let Some(proof) = &of.advice.proof {
        rows.push(("in the trace", proof.words()));
        // Without a log they go to primary storage as before.
        if proof.after.writes.count > 0 && of.advice.writes.log_bytes() > 0 {
            let [without, with] = [proof.before, proof.after].map(|of| time(of.writes.mean_ns));
            rows.push(("mean of writes", format!("{without} → {with}")));
        }
        if let Some(log) = &proof.log {
            let filled = 100 * log.occupied_bytes_max / log.capacity_bytes.max(1);
            rows.push(("write log", format!("at most {filled} % full")));
        }
    }
    if let Some(bytes) = flash_written_per_day.filter(|&bytes| bytes > 0.0) {
        rows.push(("flash written", format!("{} a day when warm", rounded(bytes as u64))));
    }
    if !of.advice.is_empty() {
        rows.push(("to carry it out", format!("forebay run … {}", options.join(" "))));
    }
    rows.extend(of.notes.iter().cloned());
    facts(&rows)
}

/// Hit ratios and means by the size of the larger tier, a line for each block size, the advised cache as a ring.
fn curves(of: &DiskAdvice<'_>) -> Markup {
    let plan = of.advice.plan.as_ref();
    let all = by_size(of.disk, plan);
    let size =
        Axis::new("Cache size", Scale::Log2, |bytes| rounded(bytes.round() as u64).to_string());
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let ratio = Axis { reaches: Some(1.0), ..Axis::new("Reads that hit", Scale::Linear, percent) };
    let taken = Axis::new("Mean latency of reads", Scale::Linear, time_at_axis);
    let policy = all.first().map_or("", |curve| curve.policy);
    let tier = plan.map_or("cache", |plan| plan.larger().1);
    html! {
        (lines(&format!("Reads that hit, by bytes of {tier} ({policy})"), size, ratio, &drawn(&all, plan, |_, hits| hits, |plan| plan.hit_ratio)))
        (lines(&format!("Mean of reads, by bytes of {tier} ({policy})"), size, taken, &drawn(&all, plan, |mean, _| mean, |plan| plan.read.mean_ns)))
    }
}

/// A line goes on as it ends until the advised size: beyond what the trace touches nothing is gained.
fn drawn(
    all: &[BySize<'_>],
    plan: Option<&Plan>,
    of: impl Fn(f64, f64) -> f64,
    advised: impl Fn(&Plan) -> f64,
) -> Vec<Line> {
    let line = |curve: &BySize<'_>| {
        let end = curve.points.last().zip(plan.map(|plan| plan.larger().0));
        let end = end.filter(|((size, ..), advised)| advised > size);
        let end = end.map(|(&(_, hits, mean), advised)| (advised, hits, mean));
        let points = curve.points.iter().copied().chain(end);
        let points = points.map(|(size, hits, mean)| (size as f64, Some(of(mean, hits))));
        Line::new(format!("{} blocks", rounded(curve.block_size)), points)
    };
    let mut lines: Vec<Line> = all.iter().map(line).collect();
    let mark = |plan| Line::mark("advised", (Plan::larger(plan).0 as f64, advised(plan)));
    lines.extend(plan.map(mark));
    lines
}

fn alternatives(advice: &Advice) -> Markup {
    let rows = advice.by_size().into_iter().map(|(plan, is_advised)| {
        let [low, high] = plan.hit_ratio_range.map(|ratio| format!("{:.0}", ratio * 100.0));
        vec![
            if is_advised { "advised" } else { "also possible" }.to_owned(),
            rounded(plan.ram).to_string(),
            rounded(plan.flash).to_string(),
            rounded(plan.block_size).to_string(),
            format!("{:.1} %", plan.hit_ratio * 100.0),
            if plan.is_steady { format!("{low}–{high} %") } else { "–".to_owned() },
            ns(plan.read.mean_ns),
            ns(plan.read.p99_ns),
            rounded(plan.metadata_bytes).to_string(),
        ]
    });
    let head = [
        "advice",
        "RAM",
        "flash",
        "block",
        "reads hit",
        "range",
        "mean of reads",
        "p99",
        "metadata",
    ];
    table(&head, &rows.collect::<Vec<_>>())
}

fn latencies(advice: &Advice) -> Markup {
    let of = &advice.latencies;
    let mut rows = vec![
        ("a hit in RAM", of.ram),
        ("a hit on flash", of.flash),
        ("a durable write to flash", of.flash_write),
        ("a read of primary storage", of.backend),
        ("a write to primary storage", of.backend_write),
    ];
    if (of.backend_first, of.backend_again) != (of.backend, of.backend) {
        rows.insert(4, ("a read of it, first use", of.backend_first));
        rows.insert(5, ("a read of it, used before", of.backend_again));
        rows.insert(6, ("a read of it, far from those before", of.backend_far));
    }
    let row = |(name, of): (&str, Latency)| vec![name.to_owned(), ns(of.mean_ns), ns(of.p99_ns)];
    table(&["I/O", "mean", "p99"], &rows.into_iter().map(row).collect::<Vec<_>>())
}
