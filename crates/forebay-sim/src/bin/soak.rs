//! Runs seeds:
//! - `soak` runs without end: all kinds of runs in turn, with seeds that no earlier start had.
//! - `soak --seeds A..B` runs these. Each kind has seeds of its own (`setup::KINDS`).
//! - `soak --seed N --verbose` runs one, and shows it in full.
//! - `soak --short --seeds A..B` does short runs, each crashed at every point. `--short --seed N`
//!   is one of them.
//! - `soak --actions --seeds A..B` does what an administrator does, with each I/O failing.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Parser;
use forebay_sim::actions::{self, Action};
use forebay_sim::log::{Lines, Log};
use forebay_sim::setup::KINDS;
use forebay_sim::{Coverage, Planted, run, run_seed, short};

/// Simulates the engine under faults, seed by seed, until one breaks a rule.
#[derive(Parser)]
struct Arguments {
    /// Run these seeds (FIRST..END, END not included), then stop
    #[arg(long, value_parser = parse_range, conflicts_with = "seed")]
    seeds: Option<Range<u64>>,
    /// Run this seed only
    #[arg(long)]
    seed: Option<u64>,
    /// Print everything that happens (with --seed)
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// Run without end (the default)
    #[arg(long, conflicts_with_all = ["seeds", "seed"])]
    forever: bool,
    /// Short runs, crashed at each of their points
    #[arg(long)]
    short: bool,
    /// Management actions with each of their I/Os failing
    #[arg(long, conflicts_with = "short")]
    actions: bool,
    /// With --short and --verbose: only this crash, POINT:process or POINT:power, then ,STEP:… for the recovery
    #[arg(long, requires = "verbose", value_parser = parse_crash)]
    crash: Option<short::Crash>,
    /// Go on after a failure, and print one line for each
    #[arg(long)]
    keep_going: bool,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

fn parse_range(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once("..").context("use FIRST..END, for example 0..1000")?;
    let range = first.parse()?..end.parse()?;
    if range.is_empty() {
        bail!("no seeds in {text}: use FIRST..END with FIRST below END");
    }
    Ok(range)
}

fn parse_crash(text: &str) -> Result<short::Crash> {
    let death = |text: &str| -> Result<(u64, bool)> {
        let (at, kind) = text.split_once(':').context("use NUMBER:process or NUMBER:power")?;
        match kind {
            "process" | "power" => Ok((at.parse()?, kind == "power")),
            other => bail!("{other} is no death: use process or power"),
        }
    };
    let (first, again) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
    let (point, power) = death(first)?;
    Ok(short::Crash { point, power, again: again.map(death).transpose()? })
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<()> {
    let arguments = Arguments::parse();
    // Failures are printed whole at the end, not as panics.
    std::panic::set_hook(Box::new(|_| {}));
    if let (true, Some(seed)) = (arguments.short, arguments.seed) {
        let lines = if arguments.verbose { Lines::Printed } else { Lines::None };
        let log = Log::new(lines);
        if arguments.verbose {
            short::run(seed, arguments.crash.as_ref(), Planted::Nothing, &log)?;
        } else {
            short::sweep(seed, 1, 1, Planted::Nothing)?;
        }
        return Ok(());
    }
    if let Some(seed) = arguments.seed {
        let outcome = if arguments.verbose {
            run::run_verbosely(seed)
        } else {
            run_seed(seed, Planted::Nothing)
        };
        let outcome = outcome.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        println!("seed {seed}: trace hash {:#018x}", outcome.trace_hash.hash);
        return Ok(());
    }
    soak(arguments)
}

/// Runs seeds on all threads until one fails.
fn soak(arguments: Arguments) -> Result<()> {
    let is_endless = arguments.seeds.is_none();
    let range = arguments.seeds.unwrap_or(0..u64::MAX);
    let base = if is_endless { fresh_seed()? } else { 0 };
    let (threads, keep_going) = (arguments.threads.max(1), arguments.keep_going);
    let Arguments { short, actions, .. } = arguments;
    let next = AtomicU64::new(range.start);
    let failed = AtomicBool::new(false);
    let began = Instant::now();
    let work = |reports: bool| {
        let mut coverage = Coverage::default();
        let mut shown = Instant::now();
        while keep_going || !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= range.end {
                break;
            }
            let kinds = if short || actions { 1 } else { KINDS.len() as u64 };
            let seed = match is_endless {
                true => KINDS[(number % kinds) as usize] + base + number / kinds,
                false => number,
            };
            match attempt(seed, short, actions) {
                Ok(found) => coverage.add(&found),
                Err((line, _)) if keep_going => {
                    failed.store(true, Ordering::Relaxed);
                    println!("{line}");
                }
                Err((_, whole)) => {
                    failed.store(true, Ordering::Relaxed);
                    println!("{whole}");
                }
            }
            if reports && shown.elapsed().as_secs() >= 10 {
                shown = Instant::now();
                report(number - range.start, began);
            }
        }
        coverage
    };
    let mut coverage = Coverage::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let work = &work;
                scope.spawn(move || work(i == 0))
            })
            .collect();
        for worker in workers {
            coverage.add(&worker.join().unwrap_or_default());
        }
    });
    report(next.load(Ordering::Relaxed).min(range.end) - range.start, began);
    for (name, count) in coverage.rows() {
        println!("{count:>12}  {name}");
    }
    if failed.into_inner() {
        bail!("a rule was broken");
    }
    Ok(())
}

/// Runs a seed; a failure in one line, and in full.
fn attempt(seed: u64, short: bool, actions: bool) -> Result<Coverage, (String, String)> {
    let both = |text: String| (text.clone(), text);
    if actions {
        let mut coverage = Coverage::default();
        for action in Action::ALL {
            let targets = [actions::DURABLE, actions::CACHE].concat();
            let found = actions::sweep(seed, action, &targets, Planted::Nothing);
            coverage.add(&found.map_err(|failure| both(failure.to_string()))?);
        }
        return Ok(coverage);
    }
    if short {
        let found = short::sweep(seed, 1, 4, Planted::Nothing);
        return found.map_err(|failure| both(failure.to_string()));
    }
    let outcome = run_seed(seed, Planted::Nothing);
    outcome.map(|outcome| outcome.coverage).map_err(|failure| {
        (format!("seed {}: {}", failure.seed, failure.message), failure.to_string())
    })
}

/// Where a start without seeds begins, within each kind.
fn fresh_seed() -> Result<u64> {
    let seed = (SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64) & ((1 << 38) - 1);
    println!("seeds from {seed} on, in each kind of run");
    Ok(seed)
}

fn report(seeds: u64, began: Instant) {
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!("{seeds} seeds, {:.0} seeds/minute", seeds as f64 / minutes);
}
