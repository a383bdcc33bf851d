//! How one replay differs from another, and whether that may be chance.
//!
//! Latencies of requests that follow each other are alike. So the usual interval around a mean of
//! so many requests would be far too narrow. Here stretches of time are taken as independent, not
//! requests: **circular block bootstrap** over the slices of a replay (Politis, Romano 1992).
//! [`RESAMPLES`] times as many slices as there are, in runs of √n in a row, are drawn with
//! replacement. An interval holds the middle 95 % of these resamples. It is widened as Student's
//! distribution is wider than the normal one, with so few runs in a replay. Both replays may have
//! issued the same requests at the same times (the trace's clock, the same speed). Then the same
//! slices are drawn of both, so the trace's own demand does not count as chance. Their rate of
//! requests is the trace's. It differs only as far as that of the slices does.
//!
//! On made-up series of 100 slices without a difference, 5 % of the intervals should show one.
//! Where a slice is like the next (correlation 0.5), 4 to 8 % do. Where it is very much like it
//! (0.8), 16 % do.
//!
//! **Limits.** Where latencies drift all the time, intervals are too narrow. Slices know latencies to 6 %: intervals of percentiles come from these, placed around the exact figures. It says
//! nothing of what would be different on another day. With fewer than [`SLICES_MIN`] slices nothing is said.

use std::collections::BTreeMap;

use forebay_core::splitmix::Rng;
use serde::Serialize;

use crate::replay::{Latency, Pace, Part, Slice};
use crate::report::figures::ratio;
use crate::results::Run;

/// Resamples of an interval.
pub const RESAMPLES: usize = 1000;
/// Slices that an interval needs at least.
pub const SLICES_MIN: usize = 10;
/// Draws the resamples: the same files give the same intervals.
const SEED: u64 = 1;
/// The part that an interval leaves out at each end.
const TAIL: f64 = 0.025;
/// Steps of the latencies of a slice for each doubling.
const STEPS: f64 = 16.0;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Mean latency of reads.
    ReadMean,
    /// Median latency of reads.
    ReadP50,
    /// 99th percentile of the latency of reads.
    ReadP99,
    /// Mean latency of writes.
    WriteMean,
    /// Median latency of writes.
    WriteP50,
    /// 99th percentile of the latency of writes.
    WriteP99,
    /// Requests per second.
    Iops,
}

impl Figure {
    /// All of them.
    pub const ALL: [Figure; 7] = [
        Figure::ReadMean,
        Figure::ReadP50,
        Figure::ReadP99,
        Figure::WriteMean,
        Figure::WriteP50,
        Figure::WriteP99,
        Figure::Iops,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Figure::ReadMean => "read latency, mean",
            Figure::ReadP50 => "read latency, median",
            Figure::ReadP99 => "read latency, p99",
            Figure::WriteMean => "write latency, mean",
            Figure::WriteP50 => "write latency, median",
            Figure::WriteP99 => "write latency, p99",
            Figure::Iops => "requests per second",
        }
    }

    /// As the whole replay has it; none where nothing was measured. It can be divided by.
    pub fn of(self, run: &Run) -> Option<f64> {
        let some = |latency: &Latency, value: f64| (latency.count > 0).then_some(value);
        let (reads, writes) = (&run.outcome.reads, &run.outcome.writes);
        let value = match self {
            Figure::ReadMean => some(reads, reads.mean_ns),
            Figure::ReadP50 => some(reads, reads.p50_ns as f64),
            Figure::ReadP99 => some(reads, reads.p99_ns as f64),
            Figure::WriteMean => some(writes, writes.mean_ns),
            Figure::WriteP50 => some(writes, writes.p50_ns as f64),
            Figure::WriteP99 => some(writes, writes.p99_ns as f64),
            Figure::Iops => Some(run.outcome.iops),
        };
        value.filter(|value| *value > 0.0)
    }

    /// As some slices have it; it can be divided by, too.
    fn of_slices(self, slices: &Slices, drawn: &[usize]) -> Option<f64> {
        let (part, quantile) = match self {
            Figure::Iops => {
                let all: u64 = drawn.iter().map(|&at| slices.requests(at)).sum();
                return (all > 0).then(|| all as f64 / drawn.len() as f64);
            }
            Figure::ReadMean => (0, None),
            Figure::ReadP50 => (0, Some(0.5)),
            Figure::ReadP99 => (0, Some(0.99)),
            Figure::WriteMean => (1, None),
            Figure::WriteP50 => (1, Some(0.5)),
            Figure::WriteP99 => (1, Some(0.99)),
        };
        let value = match quantile {
            None => slices.mean(part, drawn),
            Some(quantile) => slices.quantile(part, quantile, drawn),
        };
        value.filter(|value| *value > 0.0)
    }
}

/// A figure of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Which.
    pub figure: Figure,
    /// Of the first run, in ns or per second.
    pub before: f64,
    /// Of the other one.
    pub after: f64,
    /// The other one by the first.
    pub ratio: f64,
    /// Where that ratio lies with 95 % confidence; none: too short to tell.
    pub interval: Option<(f64, f64)>,
}

/// How `after` differs from `before`, figure by figure; figures that one of them does not have are left out.
pub fn differences(before: &Run, after: &Run) -> Vec<Difference> {
    let draws = Draws::of(before, after);
    let difference = |figure: Figure| {
        let (first, other) = (figure.of(before)?, figure.of(after)?);
        let ratio = other / first;
        let interval = draws.as_ref().and_then(|draws| draws.interval(figure, ratio));
        Some(Difference { figure, before: first, after: other, ratio, interval })
    };
    Figure::ALL.into_iter().filter_map(difference).collect()
}

/// Whether two runs issued the same requests at the same times.
pub fn is_paired(before: &Run, after: &Run) -> bool {
    let is_clock = before.pace == after.pace && matches!(before.pace, Pace::Clock { .. });
    is_clock && is_of_same_trace(before, after) && got_as_far(before, after)
}

/// Whether two runs replayed the same trace, as often.
pub fn is_of_same_trace(before: &Run, after: &Run) -> bool {
    before.asked == after.asked && before.passes == after.passes
}

/// Whether both got to its end, or were cut short in the same slice of time, which is left out of what is drawn.
pub fn got_as_far(before: &Run, after: &Run) -> bool {
    let speed = if let Pace::Clock { speed } = before.pace { speed } else { 1.0 };
    let [before, after] = [before, after].map(|run| &run.outcome);
    let is_cut_short = before.is_cut_short() || after.is_cut_short();
    let slice = before.slice_ns.max(after.slice_ns) as f64 * speed;
    !is_cut_short || (before.trace_time_ns.abs_diff(after.trace_time_ns) as f64) < slice
}

impl Difference {
    /// Whether it stands out from chance; none: not known.
    pub fn stands_out(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low > 1.0 || high < 1.0)
    }

    /// As one would say it of the other run, without the figure's name.
    pub fn words(&self, unit: Unit) -> String {
        let (more, less) = match self.figure {
            Figure::Iops => ("more", "fewer"),
            Figure::ReadMean
            | Figure::ReadP50
            | Figure::ReadP99
            | Figure::WriteMean
            | Figure::WriteP50
            | Figure::WriteP99 => ("longer", "shorter"),
        };
        let is_more = self.ratio >= 1.0;
        let word = if is_more { more } else { less };
        let is_known = self.stands_out();
        let interval = match (self.interval, unit) {
            (None, _) => "too short a replay to tell chance from difference".to_owned(),
            (Some((low, high)), Unit::Times) if is_known == Some(true) && !is_more => {
                format!("{} to {}", ratio(1.0 / high), ratio(1.0 / low))
            }
            (Some((low, high)), Unit::Percent) if is_known == Some(true) => {
                let [low, high] = [low, high].map(|end| (end - 1.0).abs() * 100.0);
                format!("{:.1} to {:.1}", low.min(high), low.max(high))
            }
            (Some((low, high)), Unit::Times) => format!("{} to {}", ratio(low), ratio(high)),
            (Some((low, high)), Unit::Percent) => {
                format!("{} to {} %", percent(low), percent(high))
            }
        };
        match (is_known, unit) {
            (Some(false), _) => format!("no significant difference ({interval})"),
            (_, Unit::Times) => format!("{} × {word} ({interval})", ratio(self.manifold())),
            (_, Unit::Percent) => {
                format!("{:.1} % {word} ({interval})", (self.ratio - 1.0).abs() * 100.0)
            }
        }
    }

    /// The ratio, or its inverse where the other one has less.
    fn manifold(&self) -> f64 {
        if self.ratio >= 1.0 { self.ratio } else { 1.0 / self.ratio }
    }
}

/// Differences as one would say them of the other run, all in one unit.
pub fn words(differences: &[Difference]) -> Vec<String> {
    let unit = Unit::of(differences);
    let words = |of: &Difference| format!("{}: {}", of.figure.name(), of.words(unit));
    differences.iter().map(words).collect()
}

/// What ratios are told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `5.0 × shorter`.
    Times,
    /// `4.0 % shorter`.
    Percent,
}

impl Unit {
    /// The unit for a list of differences. One ratio from `MANIFOLD` on makes it times for all.
    pub fn of(differences: &[Difference]) -> Unit {
        let is_manifold = differences.iter().any(|it| it.manifold() >= MANIFOLD);
        if is_manifold { Unit::Times } else { Unit::Percent }
    }
}

/// The change in per cent, with its sign where it has one.
fn percent(ratio: f64) -> String {
    match (ratio - 1.0) * 100.0 {
        change if change.abs() < 0.05 => "0.0".to_owned(),
        change => format!("{change:+.1}").replace('-', "−"),
    }
}

/// A list with a ratio from here on tells all ratios in times, any other in per cent.
const MANIFOLD: f64 = 1.5;

/// Resamples of two runs.
struct Draws {
    slices: [Slices; 2],
    drawn: Vec<[Vec<usize>; 2]>,
    /// The same slices are drawn of both.
    is_paired: bool,
}

impl Draws {
    fn of(before: &Run, after: &Run) -> Option<Draws> {
        let is_paired = is_paired(before, after);
        let longest = before.outcome.slice_ns.max(after.outcome.slice_ns);
        let mut slices = [before, after].map(|run| Slices::of(run, is_paired.then_some(longest)));
        if is_paired {
            let both = slices[0].len().min(slices[1].len());
            slices.iter_mut().for_each(|slices| slices.truncate(both));
        }
        if slices.iter().any(|slices| slices.len() < SLICES_MIN) {
            return None;
        }
        let mut random = Rng::new(SEED);
        let mut draw = |_| {
            let first = resample(&mut random, slices[0].len());
            let other = match is_paired {
                true => first.clone(),
                false => resample(&mut random, slices[1].len()),
            };
            [first, other]
        };
        let drawn = (0..RESAMPLES).map(&mut draw).collect();
        Some(Draws { slices, drawn, is_paired })
    }

    /// Where the ratio of a figure lies that is `exact` on the whole.
    fn interval(&self, figure: Figure, exact: f64) -> Option<(f64, f64)> {
        let [first, other] = &self.slices;
        let ratio = |drawn: &[Vec<usize>; 2]| {
            Some(figure.of_slices(other, &drawn[1])? / figure.of_slices(first, &drawn[0])?)
        };
        let whole = ratio(&[first.all(), other.all()])?;
        let mut ratios: Vec<f64> = self.drawn.iter().filter_map(ratio).collect();
        if ratios.len() < RESAMPLES * 9 / 10 {
            return None;
        }
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
        let wider = widening(first.len().min(other.len()));
        let is_given = self.is_paired && figure == Figure::Iops;
        let middle = if is_given { whole } else { exact };
        let around = |found: f64| middle * (found / whole).powf(wider);
        let (low, high) = (around(at(TAIL)), around(at(1.0 - TAIL)));
        // The trace says when requests come, so that slices have the same rate in both, unless one of them falls behind. The exact
        // rates differ by their last answers besides, of which there is one: how much that varies, nobody knows.
        Some(if is_given { (low.min(exact), high.max(exact)) } else { (low, high) })
    }
}

/// As many slices as there are, in runs of √n that go round.
fn resample(random: &mut Rng, len: usize) -> Vec<usize> {
    let run = run_of(len);
    let starts = std::iter::repeat_with(|| random.below(len as u64) as usize);
    let runs = starts.flat_map(|start| (start..start + run).map(|at| at % len));
    runs.take(len).collect()
}

/// Slices in a row that are drawn together.
fn run_of(len: usize) -> usize {
    (len as f64).sqrt().round() as usize
}

/// How much wider an interval is because there are few runs in `len` slices. It is Student's 97.5
/// % over the normal one (Cornish and Fisher), and makes up for the spread lost by drawing from
/// the same few.
fn widening(len: usize) -> f64 {
    let runs = len as f64 / run_of(len) as f64;
    let freedom = (runs - 1.0).max(1.0);
    let z = 1.959_964_f64;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let student = z + (z.powi(3) + z) / 4.0 / freedom + second / freedom.powi(2);
    student / z * (runs / freedom).sqrt()
}

/// Slices of a run, as the resamples need them.
struct Slices {
    slices: Vec<[Counted; 2]>,
    /// Upper bounds of latencies, in order.
    bounds: Vec<u64>,
}

/// Requests of one kind in one slice: how many, their latencies together, and how many are in each bucket.
#[derive(Clone, Default)]
struct Counted {
    count: u64,
    sum_ns: u64,
    buckets: Vec<(usize, u64)>,
}

impl Slices {
    /// Of slices that are `width_ns` long, if that is given. The last slice, which is not whole, is left out.
    fn of(run: &Run, width_ns: Option<u64>) -> Slices {
        let outcome = &run.outcome;
        let whole = &outcome.slices[..outcome.slices.len().saturating_sub(1)];
        let times = width_ns.map_or(1, |width| (width / outcome.slice_ns.max(1)).max(1)) as usize;
        let of = |slice: &Slice| [slice.reads.clone(), slice.writes.clone()];
        let bounds: Vec<u64> = {
            let parts = whole.iter().flat_map(of);
            let all = parts.flat_map(|part| part.buckets).map(|(bound, _)| (bound, ()));
            all.collect::<BTreeMap<_, _>>().into_keys().collect()
        };
        let joined = whole.chunks_exact(times).map(|some| {
            [0, 1]
                .map(|kind| Counted::of(some.iter().map(|slice| of(slice)[kind].clone()), &bounds))
        });
        Slices { slices: joined.collect(), bounds }
    }

    fn len(&self) -> usize {
        self.slices.len()
    }

    fn truncate(&mut self, len: usize) {
        self.slices.truncate(len);
    }

    fn all(&self) -> Vec<usize> {
        (0..self.len()).collect()
    }

    fn requests(&self, at: usize) -> u64 {
        self.slices[at].iter().map(|part| part.count).sum()
    }

    fn mean(&self, part: usize, drawn: &[usize]) -> Option<f64> {
        let parts = || drawn.iter().map(|&at| &self.slices[at][part]);
        let count: u64 = parts().map(|part| part.count).sum();
        let sum: f64 = parts().map(|part| part.sum_ns as f64).sum();
        (count > 0).then(|| sum / count as f64)
    }

    /// Within its bucket evenly on the scale of doublings.
    fn quantile(&self, part: usize, quantile: f64, drawn: &[usize]) -> Option<f64> {
        let mut counts = vec![0u64; self.bounds.len()];
        for &at in drawn {
            for &(bucket, count) in &self.slices[at][part].buckets {
                counts[bucket] += count;
            }
        }
        let all: u64 = counts.iter().sum();
        let wanted = all as f64 * quantile;
        let mut below = 0.0;
        for (&bound, &count) in self.bounds.iter().zip(&counts).filter(|(_, count)| **count > 0) {
            let within = (wanted - below) / count as f64;
            if within <= 1.0 {
                return Some(bound as f64 * ((within - 1.0) / STEPS).exp2());
            }
            below += count as f64;
        }
        None
    }
}

impl Counted {
    fn of(parts: impl Iterator<Item = Part>, bounds: &[u64]) -> Counted {
        let mut counted = Counted::default();
        for part in parts {
            counted.count += part.count;
            counted.sum_ns += part.sum_ns;
            let place = |bound: u64| bounds.partition_point(|other| *other < bound);
            counted.buckets.extend(part.buckets.iter().map(|&(bound, n)| (place(bound), n)));
        }
        counted
    }
}

#[cfg(test)]
mod tests;
