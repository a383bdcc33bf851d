//! Runs the engine with a trace, in a setup that may be advised: in virtual time, over modelled
//! devices.

use forebay_core::config::{Config, DestageOrder, WriteLogConfig};

use super::setup::Setup;
use super::{GAIN_MIN, Settings};
use crate::error::Error;
use crate::record::Record;
use crate::what_if::{self, GivenLatencies, Models, Outcome, Survey, what_if};

/// A byte of RAM costs as much as this many of flash.
pub(super) const RAM_COST: u64 = 16;
/// Writes may become slower by so much where they go to primary storage as before, since they are kept in order there. If they become slower by
/// more, all requests together have to gain.
const SLOWER_MAX: f64 = 0.15;
/// Share of the time in which a log may slow its writers.
const THROTTLED_MAX: f64 = 0.01;
/// Times a day that flash may be written as a whole, which is what drives for mixed use are made for.
const DRIVE_WRITES_MAX: f64 = 3.0;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub setup: Setup,
    pub outcome: Outcome,
}

/// Why a setup is not advised, whatever was expected of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Flaw {
    /// Reads gain too little, or lose.
    Reads,
    /// Writes gain too little from the log, or lose.
    Writes,
    /// The log was full, or slowed its writers.
    LogFull,
    /// Requests waited longer than primary storage is given.
    Late,
}

/// The assumed primary storage and flash: as [`what_if`](mod@what_if) has them by default.
pub(super) fn models(settings: &Settings, survey: &Survey) -> Models {
    let known = &settings.known;
    let ns = |told: Option<super::Latency>| told.map(|latency| latency.mean_ns.round() as u64);
    let told = GivenLatencies {
        ram_ns: ns(known.ram),
        flash_ns: ns(known.flash),
        flash_write_ns: ns(known.flash_write),
        backend_ns: ns(known.backend),
        backend_write_ns: ns(known.backend_write),
    };
    Models::new(&told, None, survey)
}

impl Trial {
    /// Runs the trace that `open` reads from the beginning, twice.
    ///
    /// # Errors
    /// The setup cannot work, or the trace's own.
    pub fn run<R>(
        setup: Setup,
        models: Models,
        survey: &Survey,
        open: impl FnMut() -> Result<R, Error>,
    ) -> Result<Trial, Error>
    where
        R: Iterator<Item = Result<Record, Error>>,
    {
        Trial::run_with(setup, setup.config(survey.traits()), (models, survey), open)
    }

    /// The same, where there is no place for a destage journal.
    ///
    /// # Errors
    /// As of [`Trial::run`].
    pub fn run_in_strict_order<R>(
        setup: Setup,
        models: Models,
        survey: &Survey,
        open: impl FnMut() -> Result<R, Error>,
    ) -> Result<Trial, Error>
    where
        R: Iterator<Item = Result<Record, Error>>,
    {
        let config = setup.config(survey.traits());
        let order = DestageOrder::Strict;
        let write_log = config.write_log.map(|log| WriteLogConfig { order, ..log });
        Trial::run_with(setup, Config { write_log, ..config }, (models, survey), open)
    }

    fn run_with<R>(
        setup: Setup,
        config: Config,
        (models, survey): (Models, &Survey),
        open: impl FnMut() -> Result<R, Error>,
    ) -> Result<Trial, Error>
    where
        R: Iterator<Item = Result<Record, Error>>,
    {
        let settings = what_if::Settings {
            config,
            models,
            durable_writes: true,
            queue_depth: None,
            endurance: None,
        };
        Ok(Trial { setup, outcome: what_if(open, survey, &settings)? })
    }

    /// Mean of all requests in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.outcome.after.all.mean_ns as f64
    }

    /// What it takes of what there is.
    pub fn cost(&self) -> u64 {
        let Setup { ram, flash, log, .. } = self.setup;
        let ram = ram.saturating_add(self.outcome.metadata_bytes);
        ram.saturating_mul(RAM_COST).saturating_add(flash).saturating_add(log)
    }

    /// What is wrong with it.
    pub fn flaw(&self) -> Option<Flaw> {
        let Outcome { before, after, .. } = &self.outcome;
        let ratio = |after: u64, before: u64| after as f64 / before.max(1) as f64;
        if self.outcome.late > 0 {
            return Some(Flaw::Late);
        }
        if self.setup.caches()
            && after.reads.count > 0
            && ratio(after.reads.mean_ns, before.reads.mean_ns) > 1.0 - GAIN_MIN
        {
            return Some(Flaw::Reads);
        }
        let writes = ratio(after.writes.mean_ns, before.writes.mean_ns);
        if self.setup.log == 0 {
            // Twice the standard deviation of a mean of so many latencies that are spread exponentially.
            let chance = 2.0 / (after.writes.count.max(1) as f64).sqrt();
            let is_slower = after.writes.count > 0
                && writes > 1.0 + SLOWER_MAX + chance
                && ratio(after.all.mean_ns, before.all.mean_ns) > 1.0 - GAIN_MIN;
            return is_slower.then_some(Flaw::Writes);
        }
        let throttled = self.outcome.log.map_or(0.0, |log| {
            if log.times_full > 0 { 1.0 } else { ratio(log.throttled_ns, self.outcome.duration_ns) }
        });
        if throttled > THROTTLED_MAX {
            return Some(Flaw::LogFull);
        }
        let tail = ratio(after.writes.p99_ns, before.writes.p99_ns);
        (writes > 1.0 - GAIN_MIN || tail > 1.0).then_some(Flaw::Writes)
    }

    /// Times a day that a device of `flash` bytes would be written.
    pub fn drive_writes(&self, flash: u64) -> Option<f64> {
        let per_day = self.outcome.flash?.bytes_per_day?;
        Some(per_day / flash.max(1) as f64)
    }

    /// Whether it wears out a device of `flash` bytes.
    pub fn wears_out(&self, flash: u64) -> bool {
        self.drive_writes(flash).is_some_and(|times| times > DRIVE_WRITES_MAX)
    }

    /// Strict order alone did not keep up with the writes.
    pub fn uses_journal(&self) -> bool {
        self.outcome.log.is_some_and(|log| log.journal_windows > 0)
    }
}
