//! Prints what the engine did in runs of every kind, for `scripts/same-traces`: a line for each run, or one run in full.
//!
//! ```text
//! traces --seeds 500                      KIND SEED STEPS HASH, and what rule was broken
//! traces --kind short --seed 17           every action of that run
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::{Parser, ValueEnum};
use forebay_sim::burst::{Experiment, Outcome};
use forebay_sim::kind::Kind;
use forebay_sim::log::{Lines, Log};

/// Prints what the engine did in runs of every kind.
#[derive(Parser)]
struct Arguments {
    /// Seeds of each kind
    #[arg(long, default_value_t = 500, conflicts_with = "seed")]
    seeds: u64,
    /// Only runs of this kind
    #[arg(long)]
    kind: Option<Kind>,
    /// Print every action of this run
    #[arg(long, requires = "kind")]
    seed: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() {
    let arguments = Arguments::parse();
    // A rule that was broken is a line of its run.
    std::panic::set_hook(Box::new(|_| {}));
    let kinds = arguments.kind.as_ref().map_or(Kind::value_variants(), std::slice::from_ref);
    if let Some(seed) = arguments.seed {
        let (_, came) = kinds[0].run(seed, &Log::new(Lines::Trace));
        println!("{came:?}");
        return;
    }
    let runs: Vec<(Kind, u64)> =
        kinds.iter().flat_map(|&kind| (0..arguments.seeds).map(move |seed| (kind, seed))).collect();
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(vec![String::new(); runs.len()]));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(&(kind, seed)) = runs.get(at)
                {
                    let line = line(kind, seed);
                    lines.lock().expect("no run panics")[at] = line;
                }
            });
        }
    });
    for line in lines.into_inner().expect("no run panics") {
        println!("{line}");
    }
    if arguments.kind.is_none() {
        bursts();
    }
}

fn line(kind: Kind, seed: u64) -> String {
    let (trace, came) = kind.run(seed, &Log::default());
    let name = kind.to_possible_value().expect("no kind is hidden");
    let broken = came.err().map_or(String::new(), |message| {
        format!(" {}", message.lines().next().unwrap_or_default())
    });
    format!("{} {seed} {} {:016x}{broken}", name.get_name(), trace.steps, trace.hash)
}

/// Timed runs have no trace: their figures stand for them.
fn bursts() {
    for (name, experiment) in Experiment::ALL {
        let outcome = Outcome { limited_by: None, ..experiment.run() };
        let figures = serde_json::to_string(&outcome).expect("figures are JSON");
        println!("burst {name}: {figures}");
    }
}
