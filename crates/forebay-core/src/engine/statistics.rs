//! What the engine tells about itself.

use crate::cache_index::CacheIndex;
use crate::config::FlushSemantics;
use crate::destage::epochs::WithoutOrder;
use crate::engine::Parts;
use crate::engine::cx::{Cx, Shared};
use crate::engine::io::{IoEntry, IoKind};
use crate::geometry::PAGE;
use crate::ids::Nanos;
use crate::stats::{LogState, LogStatistics, Statistics, TierStatistics, VfrcStatistics};
use crate::status::IoStatus;

/// A rate that was measured longer ago is not shown as one.
const LATELY: Nanos = Nanos::from_millis(3_000);

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
            requests_in_flight: self.requests.table.len() as u64,
            primary_errors: self.primary.errors.errors(),
            last_failed_request: self.requests.ledger.last_failed(),
            unflushed_bytes: self.primary.flush.unflushed_bytes(),
            metadata_bytes: ram.metadata_bytes + flash.metadata_bytes,
            buffer_bytes: u64::from(shared.buffers.pages()) * PAGE,
            buffer_bytes_free: u64::from(shared.buffers.pages_free()) * PAGE,
            vfrc: self.vfrc(&ram, &flash, shared),
            recorder: self.requests.ledger.observer.recorder.statistics(now),
            ram,
            flash,
            counters: shared.counters,
            latency: self.requests.ledger.latencies.summary(),
        }
    }

    /// The write log and its destaging, as they are `now`; `None` without a log.
    pub(in crate::engine) fn log_statistics(
        &self,
        now: Nanos,
        shared: &Shared,
    ) -> Option<LogStatistics> {
        let (log, destager) = (self.log.as_ref()?, self.destager.as_ref()?);
        let state = if log.is_lost {
            LogState::Lost
        } else if log.failed.is_some() {
            LogState::Failed
        } else if self.mode.logs() && destager.paused {
            LogState::Paused
        } else if self.is_draining(shared) {
            LogState::Draining
        } else if self.is_kept_from_log(shared) {
            LogState::WaitsForFlush
        } else if !self.mode.logs() {
            LogState::Unused
        } else if self.waits_for_room(shared) {
            LogState::Full
        } else {
            LogState::Active
        };
        let (config, segments) = (&log.config, &log.segments);
        let deferred = match config.flush {
            FlushSemantics::Honest => Nanos(0),
            FlushSemantics::Deferred { dirty_age_max } => dirty_age_max,
        };
        let segment = u64::from(config.segment_pages) * PAGE;
        let is_lately = destager.window.has_written_since(now.0.saturating_sub(LATELY.0));
        let speed = destager.window.destaging().ns_per_page;
        let speed = if is_lately { speed } else { 0 };
        let without_order = WithoutOrder::estimate(&destager.window);
        let is_clean = self.log_is_clean();
        Some(LogStatistics {
            state,
            failure: log.failed,
            order: config.order,
            deferred_ns: deferred.0,
            capacity_bytes: segments.pages_max() * PAGE,
            leased_bytes: u64::from(segments.leased()) * segment,
            used_bytes: if is_clean { 0 } else { u64::from(segments.in_use()) * segment },
            dirty_bytes: self.dirty_bytes(),
            occupied_bytes: self.occupied_bytes(),
            primary_age_ns: match log.ages.oldest() {
                Some(oldest) if !is_clean => now.since(oldest).0,
                Some(_) | None => 0,
            },
            primary_age_is_at_least: !is_clean && destager.age_is_at_least(),
            primary_is_consistent: destager.is_consistent(),
            last_sequence: log.last_sequence().0,
            durable_sequence: log.durable_sequence().0,
            destaged_sequence: destager.destaged().0,
            flushed_sequence: destager.flushed.0,
            epoch: log.epoch().0,
            is_durable: log.is_durable(),
            is_clean,
            is_lost: log.is_lost,
            reads_failed: self.log_reads_failed(),
            is_paused: destager.paused,
            outstanding: destager.outstanding,
            outstanding_limit: destager.window.limit(),
            destage_bytes_per_second: (PAGE * 1_000_000_000).checked_div(speed).unwrap_or(0),
            destage_latency_ns: destager.window.latency().0,
            epochs_per_second: if is_lately { destager.epochs.per_second() } else { 0 },
            epoch_ns: destager.epochs.took().0,
            without_order_writes_per_second: without_order.writes_per_second,
            without_order_is_at_least: without_order.is_at_least,
            limited_by: self.destage_limited_by(now),
            injected_latency_ns: self.throttle_due(now, PAGE, shared).since(now).0,
            writes_waiting: log.wait_room.len() as u64,
        })
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
        if let (IoKind::BackendRead { .. }, Some(destager)) = (entry.kind, &mut self.destager) {
            destager.note_guest_read(cx.now, latency);
        }
        match entry.kind {
            IoKind::FlashRead { .. }
            | IoKind::FlashFill { .. }
            | IoKind::Orphan { flash_slot: Some(_), .. } => {
                self.requests.ledger.latencies.flash_io.record(latency, 1);
                cx.counters.flash_errors += u64::from(!status.is_ok());
                if self.cache.note_flash_io(status) {
                    self.fail_flash(status, cx);
                }
            }
            IoKind::BackendRead { .. }
            | IoKind::EdgeRead { .. }
            | IoKind::Write { .. }
            | IoKind::Zero { .. }
            | IoKind::Extents { .. }
            | IoKind::Flush
            | IoKind::DestageBelow { .. }
            | IoKind::DestageWrite { .. }
            | IoKind::DestageZero { .. }
            | IoKind::DestageZeroEdge { .. }
            | IoKind::DestageFlush { .. }
            | IoKind::Orphan { flash_slot: None, .. } => {
                self.requests.ledger.latencies.backend_io.record(latency, 1);
                let failed = !status.is_ok() && status != IoStatus::Unsupported;
                cx.counters.backend_errors += u64::from(failed);
                self.note_primary(entry, status, cx);
            }
            IoKind::Compare { .. } => {}
            IoKind::RingFlush | IoKind::RingWrite => {
                self.requests.ledger.latencies.flash_io.record(latency, 1);
                cx.counters.flash_errors += u64::from(!status.is_ok());
            }
            IoKind::LogWrite { .. }
            | IoKind::LogSummary
            | IoKind::LogFlush
            | IoKind::LogRead { .. }
            | IoKind::LogOverlay { .. }
            | IoKind::DestageRead { .. }
            | IoKind::DestageNote => {
                self.requests.ledger.latencies.log_io.record(latency, 1);
                cx.counters.log_errors += u64::from(!status.is_ok());
            }
        }
    }
}
