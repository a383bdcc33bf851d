//! The effect of a whole configuration on a trace: the real engine over modelled devices, in
//! virtual time.
//!
//! ```text
//!          ┌─► survey.rs: the disk's size, times, latencies ──► models.rs
//! trace ───┼─► bare.rs: primary storage alone ────────────────► latencies before
//! (thrice) └─► run.rs: forebay-timed's engine and devices ────► latencies after, hits, I/Os, wear ─► Outcome
//!                  ▲ arrivals.rs: on the trace's clock, or so many at a time
//! ```
//! No byte is kept, and all randomness has a seed. The same trace and settings give the same
//! outcome on every run. Memory grows with the number of cache blocks, not with their bytes.
//!
//! **Limits.** The cache is cold at the beginning of the trace. Arrivals on the trace's clock do
//! not wait for answers, as a guest's may have. A trace has no flushes: each write is durable
//! when it is answered, or none is asked to be. Further writes inside the flash device, to move
//! data about, are not known.

mod arrivals;
mod bare;
mod models;
mod outcome;
mod room;
mod run;
mod slices;
mod survey;

use forebay_core::cache_index::RingGeometry;
use forebay_core::config::{Config, DestageOrder, OnTimeout, RingConfig, WriteLogConfig};
use forebay_core::geometry::{BLOCK_MAX, BLOCK_MIN, Grid};
use forebay_core::ids::{Generation, Nanos, Uuid};
use forebay_core::journal::{JournalConfig, Owner, Shape, Superblock};

pub use models::{GivenLatencies, Models};
pub use outcome::{Answers, Fills, Hits, Ios, Log, Outcome, Pacing, Slice, Warm, Wear};
pub use survey::Survey;

use crate::error::{Error, ErrorKind};
use crate::record::Record;

/// A configuration, and what it is tried on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The configuration of the disk's engine; primary storage is as [`Survey::traits`] says.
    pub config: Config,
    /// The devices.
    pub models: Models,
    /// Each write is durable when it is answered (as with a frontend that has no write cache).
    pub durable_writes: bool,
    /// So many requests at a time, each when another one is answered; none: on the trace's clock, where it has one.
    pub queue_depth: Option<u32>,
    /// Bytes that the flash may have written to it in its life.
    pub endurance: Option<u64>,
}

/// Requests at a time, for a trace without times.
const QUEUE_DEPTH: u32 = 32;

/// Runs a trace through a configuration. `open` reads the trace from the beginning, twice.
///
/// # Errors
/// The configuration cannot work, a device or the trace takes more time than there is, or the trace's own.
pub fn what_if<R>(
    mut open: impl FnMut() -> Result<R, Error>,
    survey: &Survey,
    settings: &Settings,
) -> Result<Outcome, Error>
where
    R: Iterator<Item = Result<Record, Error>>,
{
    let pacing = match (settings.queue_depth, survey.has_times()) {
        (None, true) => Pacing::Trace,
        (depth, _) => Pacing::Closed { queue_depth: depth.unwrap_or(QUEUE_DEPTH).max(1) },
    };
    let config = completed(settings.config);
    settings.models.check()?;
    // First what may be refused.
    let after = run::WhatIfRun::new(config, survey, settings, pacing)?.run(open()?)?;
    let bare = bare::run(open()?, survey, &settings.models, pacing)?;
    Ok(Outcome::new(survey, settings, pacing, bare, after))
}

/// The configuration as a disk has it: clients wait for slow storage, flash is recorded.
fn completed(config: Config) -> Config {
    Config {
        on_timeout: OnTimeout::Wait,
        // Modelled flash may be slow, but it never fails.
        flash_timeout: Nanos::NEVER,
        recorder_bytes: 0,
        curve: false,
        ring: ring(&config),
        write_log: config.write_log.map(with_journal),
        ..config
    }
}

/// The log with the destage journal that its order needs.
fn with_journal(log: WriteLogConfig) -> WriteLogConfig {
    let pages = u64::from(log.segment_pages) * u64::from(log.segments_max);
    let owner = Owner { disk: Uuid([1; 16]), nonce: 1 };
    let superblock = Superblock::first(owner, Shape::for_log(pages));
    let journal = JournalConfig::new(superblock, log.generation);
    let is_asked = log.order == DestageOrder::Journaled;
    WriteLogConfig { journal: is_asked.then_some(journal), ..log }
}

/// The ring that keeps the cache on flash over a restart; none for a block size that is refused
/// later.
fn ring(config: &Config) -> Option<RingConfig> {
    let (block, size) = (config.block_size, config.backend.size);
    let is_possible = block.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&block);
    let slots = config.flash_bytes.checked_div(block)?;
    if !is_possible || slots == 0 || size / block >= u64::from(u32::MAX) - 1 {
        return None;
    }
    let slots = u32::try_from(slots).ok()?;
    let granules = Grid::new(size, block, 0).granules_per_block();
    let pages = RingGeometry::new(slots, granules, block, size).pages();
    Some(RingConfig::new(Uuid([1; 16]), Generation(1), 1, pages, size))
}

/// The error for a configuration that is refused.
fn refused(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, why.to_string())
}

#[cfg(test)]
mod tests;
