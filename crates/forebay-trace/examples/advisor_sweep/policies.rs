//! What each policy misses at shares of the blocks, reads and writes, in our own implementations.

use std::collections::BTreeMap;

use forebay_trace::Error;
use forebay_trace::mrc::Sample;
use forebay_trace::record::Record;
use serde::Serialize;

use super::traces::Trace;
use super::{curve, share_of};

const PERCENTS: [u64; 5] = [1, 5, 10, 25, 50];
const CLASSICS: [&str; 6] = ["lru", "arc", "s3fifo", "sieve", "wtinylfu", "lirs"];

#[derive(Serialize)]
pub struct Row {
    trace: &'static str,
    /// Of the blocks that the trace touches.
    percent: u64,
    auto: f64,
    best: &'static str,
    /// Percentage points that `auto` misses more than the best.
    above_best: f64,
    belady: f64,
    classics: BTreeMap<&'static str, f64>,
}

pub fn rows(trace: &Trace, records: &[Record]) -> Result<Vec<Row>, Error> {
    let footprint = curve(trace, records, "lru", vec![trace.block], Sample::Exact)?.footprint;
    let sizes = PERCENTS.map(|percent| share_of(footprint, percent, trace.block));
    let misses = |policy: &str| -> Result<Vec<f64>, Error> {
        let found = curve(trace, records, policy, sizes.to_vec(), Sample::Exact)?;
        Ok(found.points.iter().map(|point| point.miss_ratio).collect())
    };
    let (auto, belady) = (misses("auto")?, misses("belady")?);
    let classics = CLASSICS.map(misses).into_iter().collect::<Result<Vec<_>, _>>()?;
    let row = |at: usize| {
        let all = CLASSICS.into_iter().zip(classics.iter().map(|of| of[at]));
        let (best, least) = all.clone().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are six");
        Row {
            trace: trace.name,
            percent: PERCENTS[at],
            auto: auto[at],
            best,
            above_best: (auto[at] - least) * 100.0,
            belady: belady[at],
            classics: all.collect(),
        }
    };
    Ok((0..PERCENTS.len()).map(row).collect())
}
