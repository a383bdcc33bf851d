//! One window: advised from its first part, judged on its second one.

use forebay_core::config::{FlashAdmission, SequentialBypass};
use forebay_core::policy::PolicyKind;
use forebay_trace::Error;
use forebay_trace::advise::{self, Advice, Setup, Verdict};
use forebay_trace::record::{Op, Record};
use forebay_trace::what_if::{self, GivenLatencies, Models, Outcome, Survey, what_if};
use serde::Serialize;

use super::Load;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// A log, and flash besides.
const LOG: u64 = 64 * MIB;

#[derive(Clone, Serialize)]
pub struct Row {
    trace: String,
    is_tuned: bool,
    window: usize,
    requests: usize,
    /// Of RAM and of flash.
    limits: (u64, u64),
    verdict: Verdict,
    options: String,
    sentence: String,
    /// None: no cache.
    expected: Option<Expected>,
    /// Reads that hit in the next part; of no cache none.
    hit_ratio: f64,
    read_mean_ns: u64,
    /// Means of all requests of the next part: as advised, without Forebay, and with the best setup that was tried for it.
    mean_ns: f64,
    without_ns: f64,
    best_ns: f64,
    best: String,
}

#[derive(Clone, Serialize)]
struct Expected {
    hit_ratio_range: [f64; 2],
    read_mean_range_ns: [f64; 2],
    is_steady: bool,
    /// Reads and hits of each hundredth of the window, with the same setup.
    parts: Vec<(u64, u64)>,
}

/// With a quarter of what it touches as flash, with RAM over flash, and with flash enough for a log as well.
pub fn rows(
    load: &Load,
    at: usize,
    (window, next): (&[Record], &[Record]),
) -> Result<Vec<Row>, Error> {
    let touched = touched(window);
    let limits = [(0, touched / 4), (touched / 20, touched / 2), (0, touched + 4 * LOG)];
    let mut rows = Vec::new();
    for (ram, flash) in limits {
        let settings = advise::Settings { ram, flash, ..advise::Settings::default() };
        let open = || Ok(of(window));
        let disk = advise::study(&load.name, open, &settings)?;
        let proposed = advise::advise(std::slice::from_ref(&disk), &settings)?.remove(0);
        let advice = advise::prove(&disk, proposed, &settings, open, &|| ())?;
        rows.push(judged(load, at, (window, next), (ram, flash), &advice)?);
    }
    Ok(rows)
}

fn judged(
    load: &Load,
    window: usize,
    (before, next): (&[Record], &[Record]),
    limits: (u64, u64),
    advice: &Advice,
) -> Result<Row, Error> {
    let models = Models::new(&GivenLatencies::default(), None, &Survey::of(of(before))?);
    let both = || of(before).chain(of(next));
    let survey = Survey::of(both())?;
    let run = |setup: &Setup| what_if(|| Ok(both()), &survey, &settings(setup, &survey, models));
    let has_something = |setup: &Setup| setup.caches() || setup.log > 0;
    let mut best: Option<(f64, String)> = None;
    let mut without_ns = 0.0;
    let mut chosen: Option<Outcome> = None;
    for setup in
        grid(advice, limits, next).iter().chain([&advice.setup]).filter(|of| has_something(of))
    {
        // What cannot be, such as a log without room, is no choice.
        let Ok(outcome) = run(setup) else { continue };
        let mean = mean_ns(&outcome, true);
        without_ns = mean_ns(&outcome, false);
        if best.as_ref().is_none_or(|(least, _)| mean < *least) {
            best = Some((mean, setup.options().join(" ")));
        }
        if *setup == advice.setup {
            chosen = Some(outcome);
        }
    }
    let (best_ns, best) =
        best.filter(|(mean, _)| *mean < without_ns).unwrap_or((without_ns, String::new()));
    let own = match has_something(&advice.setup) {
        true => {
            let survey = Survey::of(of(before))?;
            let settings = settings(&advice.setup, &survey, models);
            what_if(|| Ok(of(before)), &survey, &settings)?.slices
        }
        false => Vec::new(),
    };
    let expected = advice.plan.as_ref().map(|plan| Expected {
        hit_ratio_range: plan.hit_ratio_range,
        read_mean_range_ns: plan.read_mean_range_ns,
        is_steady: plan.is_steady,
        parts: own.iter().map(|slice| (slice.answered, slice.hits)).collect(),
    });
    Ok(Row {
        trace: load.name.clone(),
        is_tuned: load.is_tuned,
        window,
        requests: before.len(),
        limits,
        verdict: advice.verdict,
        options: advice.options.join(" "),
        sentence: advice.sentence.clone(),
        expected,
        hit_ratio: chosen.as_ref().map_or(0.0, |of| of.warm.hit_ratio),
        read_mean_ns: chosen.as_ref().map_or(0, |of| of.warm.read_mean_ns),
        mean_ns: chosen.as_ref().map_or(without_ns, |of| mean_ns(of, true)),
        without_ns,
        best_ns,
        best,
    })
}

/// Setups to choose from when one knows what comes.
fn grid(advice: &Advice, (ram, flash): (u64, u64), next: &[Record]) -> Vec<Setup> {
    let whole = |bytes: u64| bytes / (64 << 10) * (64 << 10);
    let base = Setup {
        ram: 0,
        flash: 0,
        log: 0,
        block_size: PAGE,
        grid_offset: advice.setup.grid_offset,
        policy: PolicyKind::Auto,
        admission: FlashAdmission::Always,
        bypass: SequentialBypass::Auto,
    };
    let writes = next.iter().any(|record| record.op == Op::Write);
    let logs: &[u64] = if writes && flash >= 2 * LOG { &[0, LOG] } else { &[0] };
    let mut all = Vec::new();
    for &log in logs {
        if log > 0 {
            all.push(Setup { log, ..base });
        }
        for policy in [PolicyKind::Auto, PolicyKind::Lru] {
            for block_size in [PAGE, 16 << 10, 64 << 10] {
                for parts in [1, 2] {
                    let (ram, flash) = (whole(ram / parts), whole((flash - log) / parts));
                    all.push(Setup { ram, flash, log, block_size, policy, ..base });
                }
            }
        }
    }
    all.dedup();
    all
}

fn settings(setup: &Setup, survey: &Survey, models: Models) -> what_if::Settings {
    what_if::Settings {
        config: setup.config(survey.traits()),
        models,
        durable_writes: true,
        queue_depth: None,
        endurance: None,
    }
}

/// Of all requests of the second half.
fn mean_ns(outcome: &Outcome, with: bool) -> f64 {
    let (mut requests, mut sum) = (0, 0.0);
    for slice in &outcome.slices[outcome.slices.len() / 2..] {
        let (read, write) = match with {
            true => (slice.read_ns_after, slice.write_ns_after),
            false => (slice.read_ns_before, slice.write_ns_before),
        };
        requests += slice.reads + slice.writes;
        sum += slice.reads as f64 * read as f64 + slice.writes as f64 * write as f64;
    }
    sum / requests.max(1) as f64
}

/// Bytes of the distinct pages.
fn touched(records: &[Record]) -> u64 {
    let pages = |record: &Record| {
        let device = u64::from(record.device) << 48;
        (record.offset / PAGE..record.end().div_ceil(PAGE)).map(move |page| device | page)
    };
    let mut all: Vec<u64> = records.iter().flat_map(pages).collect();
    all.sort_unstable();
    all.dedup();
    all.len() as u64 * PAGE
}

fn of(records: &[Record]) -> impl Iterator<Item = Result<Record, Error>> + use<'_> {
    records.iter().copied().map(Ok)
}
