//! Running one seed, and telling what happened when it fails.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::coverage::Coverage;
use crate::log::{Lines, Log};
use crate::planted::Planted;
use crate::setup;
use crate::trace::TraceHash;
use crate::world;

/// Lines of a failing run that are shown.
const TAIL: usize = 60;

/// A run without a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Stands for everything that the engine did.
    pub trace_hash: TraceHash,
    /// What was exercised.
    pub coverage: Coverage,
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Which rule.
    pub message: String,
    /// The setup, then the last lines of its log.
    pub lines: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.message)?;
        write!(
            f,
            "replay: cargo run --release -p forebay-sim --bin soak -- --seed {} --verbose",
            self.seed
        )
    }
}

impl std::error::Error for Failure {}

/// Runs one seed. A failing one is run again to keep its log.
///
/// # Errors
/// A rule was broken.
pub fn run_seed(seed: u64, planted: Planted) -> Result<Outcome, Box<Failure>> {
    let log = Log::default();
    match attempt(seed, planted, &log) {
        Ok(coverage) => Ok(Outcome { trace_hash: log.trace_hash(), coverage }),
        Err(message) => {
            let log = Log::new(Lines::Kept);
            let again = attempt(seed, planted, &log).err();
            let mut lines = vec![format!("{:#?}", setup::of_seed(seed).0)];
            lines.extend(log.tail(TAIL));
            if again.as_ref() != Some(&message) {
                lines.push(format!("run again, it ended otherwise: {again:?}"));
            }
            Err(Box::new(Failure { seed, message, lines }))
        }
    }
}

/// Runs one seed and prints everything.
///
/// # Errors
/// A rule was broken.
pub fn run_verbosely(seed: u64) -> Result<Outcome, Box<Failure>> {
    let log = Log::new(Lines::Printed);
    match attempt(seed, Planted::Nothing, &log) {
        Ok(coverage) => Ok(Outcome { trace_hash: log.trace_hash(), coverage }),
        Err(message) => Err(Box::new(Failure { seed, message, lines: Vec::new() })),
    }
}

fn attempt(seed: u64, planted: Planted, log: &Log) -> Result<Coverage, String> {
    caught(|| world::run(seed, planted, log))
}

/// The result of `work`, or its message when it panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(message)
}

/// What a panic said.
fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or("a panic", |text| text).to_owned(),
    }
}
