//! How often the bound of a sampled miss-ratio curve has the exact miss ratio in it: the trials behind docs/traces/analyse.md.
//!
//! `cargo run --release -p forebay-trace --example curve_bounds -- TRACE…`

use forebay_core::config::GridOffset;
use forebay_trace::Error;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::mrc::{Curve, Method, Sample, Settings, curves};
use forebay_trace::record::Record;

const KIB: u64 = 1 << 10;
const SAMPLES: [Sample; 4] =
    [Sample::Auto, Sample::Share(0.1), Sample::Share(0.03), Sample::Share(0.01)];

/// Points, and how they came out.
#[derive(Clone, Copy, Debug, Default)]
struct Trials {
    points: u32,
    within: u32,
    /// Sums, and the most that an error was of its bound.
    error: f64,
    bound: f64,
    worst: f64,
}

impl Trials {
    fn add(&mut self, sampled: &Curve, exact: &Curve) {
        for (point, exact) in sampled.points.iter().zip(&exact.points) {
            let Some(bound) = point.bound else { continue };
            let error = (point.miss_ratio - exact.miss_ratio).abs();
            self.points += 1;
            self.within += u32::from(error <= bound);
            self.error += error;
            self.bound += bound;
            self.worst = self.worst.max(error / bound);
        }
    }

    fn show(&self, what: &str) {
        let Trials { points, within, error, bound, worst } = *self;
        if points > 0 {
            let [share, n] = [f64::from(within) / f64::from(points), f64::from(points)];
            println!(
                "{what}: {within} of {points} ({:.1} %), error {:.4}, bound {:.4} on average, worst {worst:.2}",
                share * 100.0,
                error / n,
                bound / n
            );
        }
    }
}

fn main() -> Result<(), Error> {
    let mut all = [Trials::default(); 2];
    for file in std::env::args().skip(1) {
        let records: Vec<Record> =
            Reader::open(file.as_ref(), &Options::default())?.collect::<Result<_, _>>()?;
        let open = || Ok(records.iter().copied().map(Ok));
        let settings = |sample, block_size, cache_sizes| Settings {
            policies: ["lru", "auto", "s3fifo"].map(|name| name.parse().expect("a policy")).into(),
            block_sizes: vec![block_size],
            cache_sizes,
            sample,
            grid_offset: GridOffset::Auto,
        };
        for block_size in [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB] {
            let exact = curves(open, &settings(Sample::Exact, block_size, Vec::new()))?;
            let sizes: Vec<u64> = exact[0].points.iter().map(|point| point.cache_size).collect();
            for sample in SAMPLES {
                let sampled = curves(open, &settings(sample, block_size, sizes.clone()))?;
                let mut trials = [Trials::default(); 2];
                for (sampled, exact) in sampled.iter().zip(&exact) {
                    let kind = usize::from(sampled.method == Method::Miniature);
                    trials[kind].add(sampled, exact);
                    all[kind].add(sampled, exact);
                }
                let name = file.rsplit('/').next().unwrap_or(&file);
                let of = format!("{name} {} KiB {sample:?}", block_size / KIB);
                trials[0].show(&format!("{of} distances"));
                trials[1].show(&format!("{of} simulated"));
            }
        }
    }
    all[0].show("all, reuse distances");
    all[1].show("all, simulated");
    Ok(())
}
