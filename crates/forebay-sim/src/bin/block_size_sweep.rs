//! Prints how the block size changes mean latency, in virtual time, and writes it as JSON and as a plot.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use forebay_sim::sweep::{plot, sweep};

/// Sweeps the cache block size over a small-I/O workload on a modelled SAN.
#[derive(Parser)]
struct Arguments {
    /// Requests to measure for each block size
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the plot to this file
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let figure = sweep(arguments.requests);
    println!(
        "{:>9}  {:>9}  {:>6}  {:>13}  {:>12}",
        "block", "mean", "hits", "SAN reads", "to flash"
    );
    for point in figure.points.iter().chain([&figure.uncached]) {
        let block = match point.block_size {
            0 => "no cache".to_owned(),
            bytes => format!("{} KiB", bytes >> 10),
        };
        println!(
            "{block:>9}  {:>6.0} us  {:>5.1}%  {:>13}  {:>9.0} MB",
            point.mean_us, point.hit_percent, point.backend_reads, point.flash_written_mb
        );
    }
    if let Some(path) = arguments.json {
        let text = serde_json::to_string_pretty(&figure)?;
        std::fs::write(&path, text + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = arguments.svg {
        std::fs::write(&path, plot::svg(&figure))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
