//! How far the miss ratios of a sample (`--sample auto`) are from exact ones, at twelve sizes.

use forebay_trace::Error;
use forebay_trace::mrc::Sample;
use forebay_trace::record::Record;
use serde::Serialize;

use super::traces::Trace;
use super::{curve, share_of};

const PERCENTS: [u64; 12] = [1, 2, 5, 10, 20, 25, 30, 40, 50, 60, 75, 90];
const POLICIES: [&str; 3] = ["lru", "s3fifo", "auto"];

#[derive(Serialize)]
pub struct Row {
    trace: &'static str,
    requests: usize,
    policy: &'static str,
    /// Of the blocks, that was looked at.
    share: f64,
    /// Of the differences of miss ratios.
    mean: f64,
    most: f64,
}

pub fn rows(trace: &Trace, records: &[Record]) -> Result<Vec<Row>, Error> {
    let footprint = curve(trace, records, "lru", vec![trace.block], Sample::Exact)?.footprint;
    let sizes: Vec<u64> =
        PERCENTS.into_iter().map(|percent| share_of(footprint, percent, trace.block)).collect();
    let row = |policy| {
        let exact = curve(trace, records, policy, sizes.clone(), Sample::Exact)?;
        let sampled = curve(trace, records, policy, sizes.clone(), Sample::Auto)?;
        let both = exact.points.iter().zip(&sampled.points);
        let all: Vec<f64> = both.map(|(a, b)| (a.miss_ratio - b.miss_ratio).abs()).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let most = all.into_iter().fold(0.0, f64::max);
        Ok(Row {
            trace: trace.name,
            requests: records.len(),
            policy,
            share: sampled.share,
            mean,
            most,
        })
    };
    POLICIES.into_iter().map(row).collect()
}
