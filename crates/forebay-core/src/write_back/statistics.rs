//! What is shown of the write log and its destaging.

use super::WriteBack;
use super::destage::epochs::WithoutOrder;
use super::destage::throttle::Aim;
use crate::config::FlushSemantics;
use crate::geometry::PAGE;
use crate::ids::Nanos;
use crate::stats::{LogState, LogStatistics};

/// A rate that was measured longer ago is not shown as one.
const LATELY: Nanos = Nanos::from_millis(3_000);

impl WriteBack {
    /// The log and its destaging, as they are `now`, in a state that the disk's mode is part of.
    pub(crate) fn statistics(&self, now: Nanos, state: LogState, aim: Aim) -> LogStatistics {
        let (log, destager) = (&self.log, &self.destager);
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
        let is_clean = self.is_clean();
        LogStatistics {
            state,
            failure: log.health.failed,
            order: config.order,
            deferred_ns: deferred.0,
            capacity_bytes: segments.pages_max() * PAGE,
            leased_bytes: u64::from(segments.leased()) * segment,
            used_bytes: if is_clean { 0 } else { u64::from(segments.in_use()) * segment },
            dirty_bytes: self.dirty_bytes(),
            occupied_bytes: self.occupied_bytes(),
            primary_age_ns: match log.told.ages.oldest() {
                Some(oldest) if !is_clean => now.since(oldest).0,
                Some(_) | None => 0,
            },
            primary_age_is_at_least: !is_clean && destager.age_is_at_least(),
            primary_is_consistent: destager.is_consistent(),
            journal: destager.journal_statistics(),
            last_sequence: log.last_sequence().0,
            durable_sequence: log.durable_sequence().0,
            destaged_sequence: destager.destaged().0,
            flushed_sequence: destager.flushed().0,
            epoch: log.epoch().0,
            is_durable: log.is_durable(),
            is_clean,
            is_lost: log.health.is_lost,
            reads_failed: self.reads_failed(),
            is_paused: destager.hold.paused,
            outstanding: destager.running.outstanding,
            outstanding_limit: destager.window.limit(),
            destage_bytes_per_second: (PAGE * 1_000_000_000).checked_div(speed).unwrap_or(0),
            destage_latency_ns: destager.window.latency().0,
            epochs_per_second: if is_lately { destager.epochs.per_second() } else { 0 },
            epoch_ns: destager.epochs.took().0,
            without_order_writes_per_second: without_order.writes_per_second,
            without_order_is_at_least: without_order.is_at_least,
            limited_by: self.destage_limited_by(now),
            injected_latency_ns: self.throttle_due(now, PAGE, aim).since(now).0,
            writes_waiting: log.waiting.room.len() as u64,
        }
    }
}
