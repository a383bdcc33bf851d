//! The states that a run, or many, has reached: a simulation proves nothing of a state that it
//! never reaches.

use forebay_core::action::{Event, Io, IoOp, Target};
use forebay_core::engine::Engine;
use forebay_core::geometry::PAGE;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;

macro_rules! coverage {
    ($($field:ident: $what:literal,)*) => {
        /// Sums over one run or many.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Coverage {
            $(#[doc = $what] pub $field: u64,)*
        }

        impl Coverage {
            /// Adds another run's.
            pub fn add(&mut self, other: &Coverage) {
                $(self.$field += other.$field;)*
            }

            /// Each sum with its name.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

coverage! {
    requests: "Requests made.",
    busy: "Requests refused as busy.",
    no_buffer: "Write buffers refused.",
    writes_waited: "Writes whose client waited for a buffer.",
    buffers_unused: "Write buffers given back without a write.",
    reads_from_slots: "Reads answered from slots.",
    reads_from_flash: "Reads answered from flash.",
    reads_partial: "Reads answered in part from the cache.",
    reads_missed: "Reads answered from primary storage.",
    reads_bypassed: "Reads that left nothing behind.",
    compares_written: "Compare-and-writes that wrote.",
    miscompares: "Compare-and-writes that found something else.",
    compares_late: "Comparisons that the engine was told of later.",
    requests_failed: "Requests answered with an error.",
    requests_timed_out: "Requests out of time.",
    requests_limited: "Requests that waited for the limits of their disk.",
    overlap_waits: "Requests that waited for another.",
    buffer_waits: "Requests that waited for a buffer.",
    buffers_given_back: "Memory of buffers that went back to the host.",
    flash_writes: "Writes to flash.",
    flash_refused: "Blocks that their history or the budget of writes kept off flash.",
    fills_skipped: "Fills that found no room.",
    evicted: "Blocks evicted.",
    slots_quarantined: "Flash slots set aside.",
    checksum_errors: "Wrong bytes from flash.",
    flash_failed: "Flash given up.",
    grids_moved: "Grids moved.",
    at_risk: "Losses that the engine was told of.",
    backend_errors: "I/Os on primary storage that failed.",
    ticks: "Time-outs looked at.",
    sessions_lost: "Sessions lost.",
    crashes: "Engines that died.",
    hosts_lost: "Hosts that died.",
    landed_late: "Changes that a dead process had sent, and that landed after the next start.",
    reads_unsettled: "Reads answered while such may land.",
    changes_held: "Changes that waited until none can land.",
    unsettled_deaths: "Deaths before that.",
    warm_unsettled: "Warm restarts while there is something to land.",
    crash_loops: "Crashes in a row while primary storage was dead.",
    segments_compacted: "Segments that a restart put into another one.",
    segments_summarized: "Segments that recovery read from their summaries.",
    notes_rotten: "Notes of progress that were rotten, and the one before was another one.",
    summaries_damaged: "Summaries that were torn or rotten.",
    recoveries_cut: "Recoveries that died.",
    parts_left_out: "Recoveries that left out the first part of a request whose rest was lost.",
    parts_sent: "Of these, those where that part may have been on primary storage already.",
    flushes_failed: "Flushes that failed.",
    sectors_lost: "Sectors that went back.",
    mode_changes: "Changes of the mode asked for.",
    busy_ends: "Growths that waited for what was in flight at the old end.",
    growths: "Disks that grew at work.",
    flushes_asked: "Flushes of primary storage that an administrator waited for.",
    tunings: "Changes of other settings.",
    policies_changed: "Of these, those of the policy.",
    resizes: "Changes of the size of the RAM cache.",
    shrunk: "Those to a smaller one that came to their end.",
    flash_resizes: "Changes of the size of the flash cache at work.",
    flash_shrunk: "Those to a smaller one that came to their end.",
    modes_changed: "Changes of the mode that came to their end.",
    caches_dropped: "Caches dropped with something in them.",
    drops_in_parts: "Ranges dropped from the cache a part at a time.",
    log_failed: "Logs that failed.",
    logs_died: "Crashes while the flash of the log was gone.",
    log_pages_wrong: "Pages of the log that were not what was written.",
    renewals: "Segments that a log leased anew because the pool had no other.",
    logs_revoked: "Logs on dead flash that nobody will believe any more.",
    logs_lost: "Disks that had stopped by then, because dirty bytes could not be read or noted.",
    records_recovered: "Records that recovery found.",
    records_staged: "Records that recovery took from memory.",
    log_writes: "Groups written.",
    log_writes_beside: "Groups written while another one was.",
    destage_writes: "Writes of the destager.",
    destage_errors: "Errors that the destager met.",
    acknowledgements_delayed: "Acknowledgements that were throttled.",
    trials: "Actions with a fault in their way.",
    warm_restarts: "Restarts with what was in the cache.",
    resized_warm: "Of those, with another size of flash than before.",
    restarts_in_order: "Ends in order and restarts.",
    blocks_kept: "Blocks that a restart kept.",
    granules_sampled: "Granules that the fence would compare with primary storage.",
    claims_checked: "Looks at what a ring durably says when a write reached primary storage.",
    blocks_dropped: "Blocks that it could not prove current.",
    rings_refused: "Rings that were not to be believed.",
    rings_voided: "Rings given up.",
    rings_torn: "Batches of ring pages of which power took the first one.",
    marks_waited_for: "Writes that waited for a mark.",
    ring_writes: "Batches of ring pages written.",
    ring_pages: "Their pages.",
    journal_writes: "Headers and superblocks of a journal written.",
    journal_windows: "Windows put in place from a journal.",
    windows_repaired: "Windows that a start put in place.",
    records_torn: "Records of a journal that a start found torn.",
    journals_revoked: "Journals given up.",
    stood_still: "Looks at primary storage while destaging was held and had finished.",
    ends_in_order: "Ends in order in the middle of everything.",
    ends_noted: "Of these, how many were noted as such.",
    orders_begun_anew: "Times that primary storage had all that the log had, after an accident.",
    prefix_checks: "Looks at primary storage alone.",
    words_checks: "Checks of what primary storage is after it lost something, where the engine says that it is whole.",
}

impl Coverage {
    pub(crate) fn note_event(&mut self, event: Event) {
        match event {
            Event::GridMoved { .. } => self.grids_moved += 1,
            Event::FlashFailed { .. } => self.flash_failed += 1,
            Event::UnflushedWritesAtRisk { .. } => self.at_risk += 1,
            Event::ModeChanged { .. } => self.modes_changed += 1,
            Event::RamShrunk { .. } => self.shrunk += 1,
            Event::FlashShrunk { .. } => self.flash_shrunk += 1,
            Event::LogFailed { .. } => self.log_failed += 1,
            Event::DestageFailed { .. } | Event::PrimaryFails { is_destaging: true, .. } => {
                self.destage_errors += 1
            }
            Event::LogCorrupt { .. } => self.log_pages_wrong += 1,
            Event::FormerWritesAtRisk
            | Event::DestagingResumed
            | Event::LogThrottles
            | Event::LogFull
            | Event::LogHasRoom
            | Event::RingNotVoided
            | Event::LogRevoked
            | Event::LogNotRevoked
            | Event::JournalRevoked
            | Event::JournalNotRevoked
            | Event::RingFailed { .. }
            | Event::GridAdvice { .. }
            | Event::SlotQuarantined { .. }
            | Event::ChecksumMismatch { .. }
            | Event::PrimaryFails { .. }
            | Event::PrimaryWorks { .. }
            | Event::BackendTimedOut { .. } => {}
        }
    }

    pub(crate) fn note_io(&mut self, io: &Io, status: IoStatus) {
        if !status.is_ok() && io.target == Target::Backend {
            self.backend_errors += 1;
            self.flushes_failed += u64::from(io.op == IoOp::Flush);
        }
    }

    /// Takes over what an engine counted, at the end of its life.
    pub(crate) fn note_engine(&mut self, engine: &Engine) {
        let counters = engine.statistics(Nanos(0)).counters;
        self.reads_from_slots += counters.read_hits_ram;
        self.reads_from_flash += counters.read_hits_flash;
        self.reads_partial += counters.read_hits_partial;
        self.reads_missed += counters.read_misses;
        self.reads_bypassed += counters.reads_bypassed;
        self.compares_written += counters.compare_and_writes;
        self.miscompares += counters.miscompares;
        self.requests_failed += counters.requests_failed;
        self.requests_timed_out += counters.requests_timed_out;
        self.requests_limited += counters.requests_limited;
        self.overlap_waits += counters.overlap_waits;
        self.buffer_waits += counters.buffer_waits;
        self.flash_writes += counters.flash_writes;
        self.flash_refused += counters.flash_refused;
        self.fills_skipped += counters.flash_fills_skipped() + counters.ram_fills_skipped;
        self.evicted += counters.ram_evicted + counters.flash_evicted;
        self.slots_quarantined += counters.flash_slots_quarantined;
        self.checksum_errors += counters.flash_checksum_errors;
        self.journal_windows += counters.journal_windows;
        self.log_writes += counters.log_writes;
        self.ring_writes += counters.ring_writes;
        self.ring_pages += counters.ring_write_bytes / PAGE;
        self.drops_in_parts += counters.drops_in_parts;
        self.marks_waited_for += counters.writes_waited_for_marks;
        self.destage_writes += counters.destage_writes;
        self.acknowledgements_delayed += counters.acknowledgements_delayed;
    }
}
