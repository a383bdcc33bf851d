//! What a simulation tells.

use forebay_core::stats::{Counters, Latency, LatencySummary};
use forebay_timed::Written;
use serde::{Deserialize, Serialize};

use super::bare::Bare;
use super::run::{Ran, log_bytes};
use super::{Settings, Survey, slices};
use crate::record::{Op, Summary};

const SECOND: f64 = 1e9;
const DAY: f64 = 86_400.0;

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Pacing {
    /// On the trace's clock.
    Trace,
    /// So many at a time.
    Closed {
        /// How many.
        queue_depth: u32,
    },
}

/// Latencies of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Of reads.
    pub reads: LatencySummary,
    /// Of writes.
    pub writes: LatencySummary,
    /// Of all.
    pub all: LatencySummary,
}

/// The same, being counted.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    reads: Latency,
    writes: Latency,
}

impl Latencies {
    pub fn of(&mut self, op: Op) -> &mut Latency {
        match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        }
    }

    pub fn answers(&self) -> Answers {
        let mut all = self.reads.clone();
        all.merge(&self.writes);
        let [reads, writes, all] = [&self.reads, &self.writes, &all].map(Latency::summary);
        Answers { reads, writes, all }
    }
}

/// One hundredth of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// When its first request came.
    pub start_ns: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Reads that were answered while its requests came.
    pub answered: u64,
    /// Those of them for which primary storage was not asked.
    pub hits: u64,
    /// Mean latency of its reads on primary storage alone.
    pub read_ns_before: u64,
    /// With Forebay.
    pub read_ns_after: u64,
    /// Mean latency of its writes on primary storage alone.
    pub write_ns_before: u64,
    /// With Forebay.
    pub write_ns_after: u64,
    /// Dirty bytes in the write log, at most while its requests came.
    pub dirty_bytes_max: u64,
}

/// The second half of the requests, which finds in the cache what the first half has left there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Warm {
    /// Reads.
    pub reads: u64,
    /// Reads for which primary storage was not asked, of those that were answered meanwhile.
    pub hit_ratio: f64,
    /// Mean latency of its reads.
    pub read_mean_ns: u64,
    /// Writes.
    pub writes: u64,
    /// Mean latency of its writes.
    pub write_mean_ns: u64,
}

/// I/Os of primary storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ios {
    /// Number of reads.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
}

impl Ios {
    pub(super) fn add(&mut self, op: Op, len: u64) {
        let (ios, bytes) = match op {
            Op::Read => (&mut self.reads, &mut self.read_bytes),
            Op::Write => (&mut self.writes, &mut self.write_bytes),
        };
        *ios += 1;
        *bytes += len;
    }

    fn of(counters: &Counters) -> Ios {
        Ios {
            reads: counters.backend_reads,
            read_bytes: counters.backend_read_bytes,
            writes: counters.backend_writes + counters.destage_writes + counters.journal_writes,
            write_bytes: counters.backend_write_bytes
                + counters.destage_write_bytes
                + counters.journal_bytes,
        }
    }
}

/// Where reads were answered from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hits {
    /// Reads answered from RAM alone.
    pub ram: u64,
    /// Reads answered from the cache, flash taking part.
    pub flash: u64,
    /// Reads that took the bytes of an earlier one in flight.
    pub joined: u64,
    /// Reads of which a part was in the cache.
    pub partial: u64,
    /// Reads of which nothing was.
    pub missed: u64,
    /// Reads of sequential streams that left nothing behind, in these numbers, too.
    pub bypassed: u64,
    /// Reads for which primary storage was not asked, of all.
    pub ratio: f64,
}

impl Hits {
    /// Reads, hits and misses together.
    pub fn reads(&self) -> u64 {
        self.ram + self.flash + self.joined + self.partial + self.missed
    }
}

/// Blocks on their way to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fills {
    /// Blocks that got a slot.
    pub admitted: u64,
    /// Blocks that were refused, for their history or the budget.
    pub refused: u64,
    /// Fills that found no memory.
    pub skipped_staging: u64,
    /// Fills that found no slot.
    pub skipped_slots: u64,
    /// Fills of granules that were being written with older bytes.
    pub skipped_busy: u64,
}

impl Fills {
    fn of(counters: &Counters) -> Fills {
        Fills {
            admitted: counters.flash_admitted,
            refused: counters.flash_refused,
            skipped_staging: counters.flash_fills_skipped_staging,
            skipped_slots: counters.flash_fills_skipped_slots,
            skipped_busy: counters.flash_fills_skipped_busy,
        }
    }

    /// Those that were skipped, for any reason.
    pub fn skipped(&self) -> u64 {
        self.skipped_staging + self.skipped_slots + self.skipped_busy
    }
}

/// What is written to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wear {
    /// Bytes written to the cache.
    pub cache_bytes: u64,
    /// To the write log.
    pub log_bytes: u64,
    /// To what keeps the cache over a restart, and to notes of how far destaging is.
    pub index_bytes: u64,
    /// All of it.
    pub bytes: u64,
    /// Written in a day when the cache is warm: all requests count as those of the second half do. None: requests did not come
    /// on a clock, or for less than a second.
    pub bytes_per_day: Option<f64>,
    /// Times that all of the disk's flash is written in a day.
    pub drive_writes_per_day: Option<f64>,
    /// Days until the endurance that was given is used up.
    pub lifetime_days: Option<f64>,
}

/// The write log and destaging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Bytes that it may take.
    pub capacity_bytes: u64,
    /// Bytes of it that were taken, at most: dirty data with what describes them, data written over included.
    pub occupied_bytes_max: u64,
    /// Bytes that primary storage did not have yet, at most.
    pub dirty_bytes_max: u64,
    /// Time in which writers were slowed, or waited for room.
    pub throttled_ns: u64,
    /// Times that it was full, so that writers waited.
    pub times_full: u64,
    /// Acknowledgements that were delayed.
    pub acknowledgements_delayed: u64,
    /// By how much, all together.
    pub injected_latency_ns: u64,
    /// Writes to primary storage that destaged.
    pub destage_writes: u64,
    /// Bytes of them: less than was written where overwrites met in the log.
    pub destage_bytes: u64,
    /// Mean rate while there was something to destage.
    pub destage_bytes_per_second: u64,
    /// Windows that went through the destage journal, as strict order did not keep up.
    #[serde(default)]
    pub journal_windows: u64,
    /// From the last answer until primary storage had everything.
    pub drained_ns: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests of the trace.
    pub trace: Summary,
    /// When requests came.
    pub pacing: Pacing,
    /// Until the last answer, in virtual time.
    pub duration_ns: u64,
    /// Mode by its name.
    pub mode: String,
    /// Bytes of RAM for cached data.
    pub ram_bytes: u64,
    /// Bytes of flash for cached data.
    pub flash_bytes: u64,
    /// Bytes of a cache block.
    pub block_size: u64,
    /// Eviction policy by its name.
    pub policy: String,
    /// Byte offset of the grid at the end.
    pub grid_offset: u64,
    /// RAM for metadata.
    pub metadata_bytes: u64,
    /// Where reads were answered from.
    pub hits: Hits,
    /// What went to flash.
    pub fills: Fills,
    /// Latencies of primary storage alone.
    pub before: Answers,
    /// Latencies with Forebay.
    pub after: Answers,
    /// I/Os of primary storage without Forebay.
    pub storage_before: Ios,
    /// I/Os of primary storage with Forebay, those that destaged and filled included.
    pub storage_after: Ios,
    /// Requests that took longer than the time that primary storage is given, not for lack of room in the log.
    pub late: u64,
    /// Wear of flash; none without flash.
    pub flash: Option<Wear>,
    /// The write log; none without one.
    pub log: Option<Log>,
    /// The second half of the requests.
    pub warm: Warm,
    /// Over the trace.
    pub slices: Vec<Slice>,
}

impl Outcome {
    pub(super) fn new(
        survey: &Survey,
        settings: &Settings,
        pacing: Pacing,
        bare: Bare,
        ran: Ran,
    ) -> Outcome {
        let statistics = &ran.statistics;
        let counters = &statistics.counters;
        let slices = slices::of(&bare.parts, &ran.parts, reads_answered(counters));
        Outcome {
            trace: survey.summary,
            pacing,
            duration_ns: ran.duration.0,
            mode: statistics.mode.to_string(),
            ram_bytes: statistics.ram.slots * statistics.block_size,
            flash_bytes: statistics.flash.slots * statistics.block_size,
            block_size: statistics.block_size,
            policy: statistics.policy.clone(),
            grid_offset: statistics.grid_offset,
            metadata_bytes: statistics.metadata_bytes,
            fills: Fills::of(counters),
            hits: Hits {
                ram: counters.read_hits_ram,
                flash: counters.read_hits_flash,
                partial: counters.read_hits_partial,
                missed: counters.read_misses,
                bypassed: counters.reads_bypassed,
                joined: counters.read_hits_joined,
                ratio: counters.read_hits() as f64 / counters.reads.max(1) as f64,
            },
            before: bare.answers,
            after: ran.answers,
            storage_before: bare.ios,
            storage_after: Ios::of(counters),
            late: ran.late.max(counters.requests_timed_out),
            flash: wear(survey, settings, pacing, &ran),
            log: log(settings, &ran),
            warm: slices::warm(&slices),
            slices,
        }
    }
}

/// Reads that were answered, and those from the cache.
pub(super) fn reads_answered(counters: &Counters) -> (u64, u64) {
    (counters.reads, counters.read_hits())
}

/// Bytes that were written to the cache on flash and to its index.
pub(super) fn cache_bytes(written: &Written) -> u64 {
    written.cache + written.ring
}

fn wear(survey: &Survey, settings: &Settings, pacing: Pacing, ran: &Ran) -> Option<Wear> {
    let size = settings.config.flash_bytes + log_bytes(&settings.config);
    if size == 0 {
        return None;
    }
    let written = &ran.written;
    let seconds = survey.summary.duration_ns as f64 / SECOND;
    let is_on_clock = pacing == Pacing::Trace && seconds >= 1.0;
    let warm = ran.parts.warm().filter(|_| is_on_clock);
    let per_day = warm.map(|(part, share)| {
        // What fills the cache is written once, so each request counts as those of the second half do. The time is all of the
        // trace's: half of its requests may come in a batch, and the hours of that half tell nothing of a day.
        let as_when_warm = (cache_bytes(written) - part.cached) as f64 / share;
        // The first half may write more than the second one. Nothing but what the cache holds can be its fill.
        let beyond_fill = written.cache.saturating_sub(settings.config.flash_bytes) as f64;
        // The log is written alike whether the cache is cold or warm.
        let logged = (written.log + written.notes) as f64;
        (as_when_warm.max(beyond_fill) + logged) * DAY / seconds
    });
    Some(Wear {
        cache_bytes: written.cache,
        log_bytes: written.log,
        index_bytes: written.ring + written.notes,
        bytes: cache_bytes(written) + written.log + written.notes,
        bytes_per_day: per_day,
        drive_writes_per_day: per_day.map(|per_day| per_day / size as f64),
        lifetime_days: settings
            .endurance
            .zip(per_day.filter(|per_day| *per_day > 0.0))
            .map(|(endurance, per_day)| endurance as f64 / per_day),
    })
}

fn log(settings: &Settings, ran: &Ran) -> Option<Log> {
    settings.config.write_log?;
    let counters = &ran.statistics.counters;
    let per_second = counters.destage_write_bytes as f64 * SECOND / ran.filled.dirty_ns as f64;
    Some(Log {
        capacity_bytes: log_bytes(&settings.config),
        occupied_bytes_max: ran.filled.occupied_max,
        dirty_bytes_max: ran.filled.dirty_max,
        throttled_ns: ran.filled.throttled_ns,
        times_full: ran.filled.times_full,
        acknowledgements_delayed: counters.acknowledgements_delayed,
        injected_latency_ns: counters.injected_latency_ns,
        destage_writes: counters.destage_writes,
        destage_bytes: counters.destage_write_bytes,
        destage_bytes_per_second: if ran.filled.dirty_ns > 0 { per_second as u64 } else { 0 },
        journal_windows: counters.journal_windows,
        drained_ns: ran.drained.0,
    })
}
