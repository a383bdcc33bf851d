//! The default policy and sampled curves on real traces, as JSON: `advisor_sweep [FOLDER] [WORDS]`.
//!
//! ```text
//! policies  what `auto` misses beside the classics and the optimum, at shares of the footprint
//! sampled   how far curves from a sample are from exact ones
//! ```
//! Of the project's own recordings always, and of the traces in FOLDER, which the project does not keep (`FOREBAY_TRACES` names it, too). WORDS: only
//! traces with one of these in their names. Everything repeats exactly. How far it is goes to standard error.
//!
//! `bench/run.py advisor` runs it, keeps the figures and makes the tables of docs/benchmarks/policy.md.

mod policies;
mod sampled;
mod traces;

use forebay_core::config::GridOffset;
use forebay_trace::Error;
use forebay_trace::mrc::{self, Curve, Sample};
use forebay_trace::record::Record;
use traces::Trace;

fn main() -> Result<(), Error> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let folder = match words.first().is_some_and(|word| std::path::Path::new(word).is_dir()) {
        true => Some(words.remove(0).into()),
        false => std::env::var_os("FOREBAY_TRACES"),
    };
    let (mut policies, mut sampled) = (Vec::new(), Vec::new());
    for trace in traces::all(folder.as_deref().map(std::path::Path::new)) {
        if !words.is_empty() && !words.iter().any(|word| trace.name.contains(word.as_str())) {
            continue;
        }
        let records = trace.read()?;
        eprintln!("{}: {} requests", trace.name, records.len());
        policies.extend(policies::rows(&trace, &records)?);
        sampled.extend(sampled::rows(&trace, &records)?);
    }
    let all = serde_json::json!({ "policies": policies, "sampled": sampled });
    println!("{all}");
    Ok(())
}

/// Records as a trace gives them.
fn of(records: &[Record]) -> impl Iterator<Item = Result<Record, Error>> {
    records.iter().copied().map(Ok)
}

/// A curve of blocks of `trace`'s size.
fn curve(
    trace: &Trace,
    records: &[Record],
    policy: &str,
    cache_sizes: Vec<u64>,
    sample: Sample,
) -> Result<Curve, Error> {
    let settings = mrc::Settings {
        policies: vec![policy.parse()?],
        block_sizes: vec![trace.block],
        cache_sizes,
        sample,
        grid_offset: GridOffset::Fixed(0),
    };
    Ok(mrc::curves(|| Ok(of(records)), &settings)?.remove(0))
}

/// Bytes of `percent` of the blocks of a trace.
fn share_of(footprint: u64, percent: u64, block: u64) -> u64 {
    (footprint / block * percent / 100).max(1) * block
}
