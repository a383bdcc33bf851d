//! Prints how a write log takes bursts, in virtual time, and writes it as JSON and as a plot.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use forebay_sim::burst::{Experiment, Outcome, plot};

/// Bursts of 15,000 writes/s over a write log, on primary storage that keeps up and on storage that does not.
#[derive(Parser)]
struct Arguments {
    /// Write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the plot to this file
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    println!(
        "{:46} {:>8} {:>10} {:>10} {:>8} {:>9}  limited by",
        "", "writes", "p99 calm", "p99 burst", "gap", "recovery"
    );
    let mut panels: Vec<(&str, Outcome)> = Vec::new();
    for (title, experiment) in Experiment::ALL {
        let outcome = experiment.run();
        let recovery = outcome.recovery_ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        println!(
            "{title:46} {:>8} {:>7.0} us {:>7.0} us {:>5.1} ms {recovery:>9}  {}",
            outcome.burst_writes,
            outcome.calm_p99_us,
            outcome.burst_p99_us,
            outcome.gap_ms_max,
            outcome.limited_by.map_or("-".to_owned(), |limit| format!("{limit:?}"))
        );
        panels.push((title, outcome));
    }
    if let Some(path) = arguments.json {
        let text = serde_json::to_string_pretty(&panels)?;
        std::fs::write(&path, text + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = arguments.svg {
        let shown: Vec<_> = panels.iter().map(|(title, outcome)| (*title, outcome)).collect();
        std::fs::write(&path, plot::svg(&shown))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
