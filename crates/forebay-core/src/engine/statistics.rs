//! What the engine tells about itself.

use crate::cache_index::CacheIndex;
use crate::cx::io::{IoEntry, IoKind, RequestIo};
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::engine::flow::mode::ModeChange;
use crate::geometry::PAGE;
use crate::ids::Nanos;
use crate::stats::{LogState, LogStatistics, Statistics, TierStatistics, VfrcStatistics};
use crate::status::IoStatus;
use crate::write_back::DestageIo;

impl Parts {
    /// A snapshot of everything that is shown of the disk, as it is `now`: that may be long after the last call.
    pub(in crate::engine) fn statistics(&self, now: Nanos, shared: &Shared) -> Statistics {
        let [ram, flash] = self.cache.statistics();
        Statistics {
            mode: shared.config.mode,
            mode_actual: self.mode,
            log: self.log_statistics(now, shared),
            ring: self.cache_index.as_ref().map(CacheIndex::statistics),
            block_size: shared.config.block_size,
            granule_size: shared.grid.granule_size(),
            grid_offset: shared.grid.offset(),
            disk_size: shared.config.backend.size,
            policy: shared.config.policy.name().into(),
            flash_admission: shared.config.flash_admission.name().into(),
            bypass_sequential: shared.config.sequential_bypass.to_string(),
            requests_in_flight: self.requests.taken() as u64,
            primary_errors: self.primary.errors.now(),
            last_failed_request: self.requests.ledger.last_failed(),
            unflushed_bytes: self.primary.unflushed_bytes(),
            metadata_bytes: ram.metadata_bytes + flash.metadata_bytes,
            buffer_bytes: u64::from(shared.buffers.pages()) * PAGE,
            buffer_bytes_free: u64::from(shared.buffers.pages_free()) * PAGE,
            vfrc: self.vfrc(&ram, &flash, shared),
            recorder: self.requests.ledger.observer.recorder.statistics(now),
            ram,
            flash,
            counters: shared.counters,
            latency: self.requests.ledger.latencies.summary(),
            time: self.requests.ledger.time(),
            misses: shared.misses.counted(),
            slowest: self.requests.ledger.slowest(now),
        }
    }

    /// The write log and its destaging, as they are `now`; `None` without a log.
    pub(super) fn log_statistics(&self, now: Nanos, shared: &Shared) -> Option<LogStatistics> {
        let write_back = self.write_back.as_ref()?;
        let change = self.mode_change(shared);
        let waits_for_flush =
            matches!(change, ModeChange::Blocked { .. } | ModeChange::Entering { again: true });
        let state = if write_back.is_lost() {
            LogState::Lost
        } else if write_back.failed().is_some() {
            LogState::Failed
        } else if self.mode.logs() && write_back.is_paused() {
            LogState::Paused
        } else if change == ModeChange::Draining {
            LogState::Draining
        } else if waits_for_flush {
            LogState::WaitsForFlush
        } else if !self.mode.logs() {
            LogState::Unused
        } else if self.waits_for_room(shared) {
            LogState::Full
        } else {
            LogState::Active
        };
        Some(write_back.statistics(now, state, self.aim(shared)))
    }

    fn vfrc(
        &self,
        ram: &TierStatistics,
        flash: &TierStatistics,
        shared: &Shared,
    ) -> VfrcStatistics {
        let c = shared.counters;
        let per = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        VfrcStatistics {
            num_blocks: ram.slots + flash.slots,
            num_blocks_currently_cached: ram.slots_used + flash.slots_used,
            evict_avg_num_blocks_per_op: per(c.ram_evicted + c.flash_evicted, c.evict_ops),
            cache_hit_percentage: 100.0 * per(c.read_hits(), c.reads),
        }
    }

    /// Counts how an I/O ended, and gives flash up when it fails too often.
    pub(super) fn note_io(&mut self, entry: &IoEntry, status: IoStatus, cx: &mut Cx<'_>) {
        let latency = cx.now.since(entry.issued);
        match entry.kind {
            IoKind::Request(_, RequestIo::Compare { .. }) => {}
            IoKind::Request(_, RequestIo::Flash { .. })
            | IoKind::Fill { .. }
            | IoKind::Orphan { flash_slot: Some(_), .. } => {
                self.requests.ledger.latencies.flash_io.record(latency, 1);
                cx.counters.flash_errors += u64::from(!status.is_ok());
                if self.cache.note_flash_io(status) {
                    self.fail_flash(status, cx);
                }
            }
            IoKind::Index => {
                self.requests.ledger.latencies.flash_io.record(latency, 1);
                cx.counters.flash_errors += u64::from(!status.is_ok());
            }
            IoKind::Request(_, RequestIo::Log { .. } | RequestIo::Overlay { .. })
            | IoKind::Log(_)
            | IoKind::Destager(DestageIo::Read { .. } | DestageIo::Note)
            | IoKind::Orphan { log_place: Some(_), .. } => {
                self.requests.ledger.latencies.log_io.record(latency, 1);
                cx.counters.log_errors += u64::from(!status.is_ok());
            }
            IoKind::Request(_, RequestIo::Fetch) => {
                if let Some(log) = &mut self.write_back {
                    log.note_guest_read(cx.now, latency);
                }
                self.note_primary_io(entry, latency, status, cx);
            }
            // The journal may be anywhere, and who writes it tells of its errors.
            IoKind::Destager(DestageIo::Piece { .. } | DestageIo::Journal) => {}
            IoKind::Request(..)
            | IoKind::Destager(_)
            | IoKind::PrimaryFlush
            | IoKind::Orphan { flash_slot: None, log_place: None, .. } => {
                self.note_primary_io(entry, latency, status, cx);
            }
        }
    }

    /// Counts how an I/O on primary storage ended.
    fn note_primary_io(
        &mut self,
        entry: &IoEntry,
        latency: Nanos,
        status: IoStatus,
        cx: &mut Cx<'_>,
    ) {
        self.requests.ledger.latencies.backend_io.record(latency, 1);
        let failed = !status.is_ok() && status != IoStatus::Unsupported;
        cx.counters.backend_errors += u64::from(failed);
        self.primary.errors.note_io(entry, status, cx);
    }
}
