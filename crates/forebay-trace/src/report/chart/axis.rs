//! Axes: their scales, their ends and the round figures on them.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// How the places of an axis lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Scale {
    /// Evenly, from 0.
    Linear,
    /// The same for bytes: in steps that are powers of two.
    Bytes,
    /// The same for times since a beginning, in ns: in steps that clocks have.
    Moments,
    /// The same for percentiles: 1 is 90 %, 2 is 99 %.
    Nines,
    /// Each step ten times the one before.
    Log,
    /// Each step twice the one before.
    Log2,
}

/// One axis.
#[derive(Clone, Copy)]
pub(in crate::report) struct Axis {
    /// The quantity. Its unit is in the figures, or here where they have none.
    pub title: &'static str,
    pub scale: Scale,
    /// Its figures in words.
    pub words: fn(f64) -> String,
    /// Where it ends at least.
    pub reaches: Option<f64>,
}

impl Axis {
    pub(in crate::report) fn new(
        title: &'static str,
        scale: Scale,
        words: fn(f64) -> String,
    ) -> Axis {
        Axis { title, scale, words, reaches: None }
    }

    /// From the least to the greatest of what is shown, to round figures.
    pub(super) fn range(&self, values: impl Iterator<Item = f64>) -> Range<f64> {
        let is_linear =
            matches!(self.scale, Scale::Linear | Scale::Bytes | Scale::Moments | Scale::Nines);
        let (mut low, mut high) = (f64::INFINITY, self.reaches.unwrap_or(0.0));
        for value in values.filter(|value| *value > 0.0 || is_linear) {
            (low, high) = (low.min(value), high.max(value));
        }
        match self.scale {
            Scale::Linear | Scale::Bytes | Scale::Moments | Scale::Nines if high <= 0.0 => 0.0..1.0,
            Scale::Linear if self.reaches.is_some_and(|reaches| reaches >= high) => 0.0..high,
            Scale::Linear | Scale::Bytes | Scale::Moments | Scale::Nines => 0.0..high * 1.05,
            Scale::Log | Scale::Log2 if !low.is_finite() => 1.0..10.0,
            Scale::Log => {
                10f64.powf(low.log10().floor())
                    ..10f64.powf(high.log10().ceil().max(low.log10().floor() + 1.0))
            }
            Scale::Log2 => low.min(high / 2.0)..high,
        }
    }
}

/// An axis in a chart: linear or not, which plotters has as different types.
#[derive(Clone)]
pub(in crate::report) struct Places {
    pub range: Range<f64>,
    pub scale: Scale,
}

impl Places {
    /// Where a value lies between the ends, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        match self.scale {
            Scale::Linear | Scale::Bytes | Scale::Moments | Scale::Nines => {
                (value - start) / (end - start)
            }
            Scale::Log | Scale::Log2 => (value.max(start) / start).ln() / (end / start).ln(),
        }
    }
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * self.share(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let Range { start, end } = self.range;
        let most = hint.max_num_points();
        if most == 0 {
            return Vec::new();
        }
        let base: f64 = match self.scale {
            Scale::Moments => return moments(end, most),
            Scale::Linear => return round_steps(end, most),
            Scale::Nines => return steps(1.0, end),
            Scale::Bytes => return steps((end / most as f64).log2().ceil().exp2(), end),
            Scale::Log => 10.0,
            Scale::Log2 => 2.0,
        };
        let first = (start.log(base) - 1e-9).ceil() as i32;
        let last = (end.log(base) + 1e-9).floor() as i32;
        let step = (last - first + 1).max(1).unsigned_abs().div_ceil(most as u32).max(1);
        (first..=last).step_by(step as usize).map(|power| base.powi(power)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Steps of 1, 2 or 5 times a power of ten from 0 to `end`, at most so many.
fn round_steps(end: f64, most: usize) -> Vec<f64> {
    let rough = end / most as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    steps(step, end)
}

/// Seconds below a minute in round steps, then what clocks have, from 0 to `end` ns.
fn moments(end: f64, most: usize) -> Vec<f64> {
    const SECONDS: [f64; 15] = [
        15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0,
        86_400.0, 172_800.0, 604_800.0,
    ];
    let rough = end / most as f64;
    let clock = SECONDS.into_iter().map(|seconds| seconds * 1e9).find(|step| *step >= rough);
    match clock {
        Some(step) if rough > 10e9 => steps(step, end),
        _ => round_steps(end, most),
    }
}

fn steps(step: f64, end: f64) -> Vec<f64> {
    (0..).map(|n| f64::from(n) * step).take_while(|at| *at <= end * 1.000_001).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_figures() {
        assert_eq!(round_steps(10.5, 6), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(round_steps(1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(moments(7200e9, 9).len(), 9);
        assert_eq!(moments(7200e9, 9)[1], 900e9);
        assert_eq!(moments(9e9, 9)[1], 1e9);
        let day = 86_400e9;
        for (days, step) in [(7.0, 1.0), (14.0, 2.0), (30.0, 7.0)] {
            assert_eq!(moments(days * day, 9)[1], step * day, "{days} days");
        }
        let log = Axis::new("", Scale::Log, |_| String::new());
        assert_eq!(log.range([3e4, 2e6].into_iter()), 1e4..1e7);
        assert_eq!(log.range([1e4].into_iter()), 1e4..1e5);
        assert_eq!(log.range(std::iter::empty()), 1.0..10.0);
    }
}
