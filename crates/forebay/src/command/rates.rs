//! What a disk did between two readings of its figures.

use std::time::Duration;

use forebay_core::stats::{LatencySummary, MissStatistics, TimeSplit};

use crate::daemon::api::DiskStats;

/// Per second, where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) destaged_bytes: u64,
    /// Reads that primary storage was not asked for, and all reads, in all.
    pub(super) hits: (u64, u64),
    /// Mean latencies in nanoseconds. `None`: there was nothing to measure.
    pub(super) guest: Option<u64>,
    pub(super) guest_reads: Option<u64>,
    pub(super) guest_writes: Option<u64>,
    /// Of the cache and of the write log, which are on flash.
    pub(super) flash: Option<u64>,
    pub(super) cache_io: Option<u64>,
    pub(super) log_io: Option<u64>,
    pub(super) primary: Option<u64>,
    /// Where the time of reads and of writes went, in all.
    pub(super) read_time: TimeSplit,
    pub(super) write_time: TimeSplit,
    /// Why reads missed, in all.
    pub(super) misses: MissStatistics,
}

impl Rates {
    /// Between `before` and `now`, which came so much later. A disk that was opened anew did nothing before.
    pub(super) fn between(before: &DiskStats, now: &DiskStats, later: Duration) -> Rates {
        let nothing = DiskStats::default();
        let before = if before.opened_ms == now.opened_ms { before } else { &nothing };
        // Figures may have waited for those of other disks. A daemon of an earlier version does not say so.
        let measured = now.elapsed_ns.saturating_sub(before.elapsed_ns);
        let later = if measured > 0 { Duration::from_nanos(measured) } else { later };
        let (b, n) = (&before.engine.counters, &now.engine.counters);
        let grown = |before: u64, now: u64| now.saturating_sub(before);
        let per_second = |before: u64, now: u64| {
            (grown(before, now) as f64 / later.as_secs_f64().max(1e-3)).round() as u64
        };
        let (bl, nl) = (&before.engine.latency, &now.engine.latency);
        Rates {
            reads: per_second(b.reads, n.reads),
            writes: per_second(b.writes, n.writes),
            flushes: per_second(b.flushes, n.flushes),
            read_bytes: per_second(b.read_bytes, n.read_bytes),
            write_bytes: per_second(b.write_bytes, n.write_bytes),
            destaged_bytes: per_second(b.destage_write_bytes, n.destage_write_bytes),
            hits: (grown(b.read_hits(), n.read_hits()), grown(b.reads, n.reads)),
            guest: mean(&[(&bl.read, &nl.read), (&bl.write, &nl.write)]),
            guest_reads: mean(&[(&bl.read, &nl.read)]),
            guest_writes: mean(&[(&bl.write, &nl.write)]),
            flash: mean(&[(&bl.flash_io, &nl.flash_io), (&bl.log_io, &nl.log_io)]),
            cache_io: mean(&[(&bl.flash_io, &nl.flash_io)]),
            log_io: mean(&[(&bl.log_io, &nl.log_io)]),
            primary: mean(&[(&bl.backend_io, &nl.backend_io)]),
            read_time: now.engine.time.read.since(&before.engine.time.read),
            write_time: now.engine.time.write.since(&before.engine.time.write),
            misses: now.engine.misses.since(&before.engine.misses),
        }
    }

    /// Reads that primary storage was not asked for, of 1.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        let (hits, reads) = self.hits;
        (reads > 0).then(|| hits as f64 / reads as f64)
    }

    /// Requests per second.
    pub(super) fn iops(&self) -> u64 {
        self.reads + self.writes
    }
}

/// The mean of what came between pairs of readings.
fn mean(pairs: &[(&LatencySummary, &LatencySummary)]) -> Option<u64> {
    let grown = |of: fn(&LatencySummary) -> u64| -> u64 {
        pairs.iter().map(|(before, now)| of(now).saturating_sub(of(before))).sum()
    };
    grown(|it| it.sum_ns).checked_div(grown(|it| it.count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_means_are_of_the_time_between_two_readings() {
        let mut before = DiskStats::default();
        before.engine.counters.reads = 1000;
        before.engine.latency.read =
            LatencySummary { count: 1000, sum_ns: 9_000, ..Default::default() };
        let mut now = before.clone();
        now.engine.counters.reads += 50;
        now.engine.counters.read_hits_ram += 40;
        now.engine.counters.write_bytes += 4096;
        now.engine.latency.read.count += 50;
        now.engine.latency.read.sum_ns += 5_000_000;
        now.engine.latency.write =
            LatencySummary { count: 50, sum_ns: 15_000_000, ..Default::default() };
        let rates = Rates::between(&before, &now, Duration::from_millis(500));
        assert_eq!((rates.reads, rates.write_bytes, rates.hits), (100, 8192, (40, 50)));
        assert_eq!((rates.guest_reads, rates.guest), (Some(100_000), Some(200_000)));
        assert_eq!((rates.primary, rates.iops()), (None, 100));
        let anew = Rates::between(&now, &DiskStats::default(), Duration::from_secs(1));
        assert_eq!(anew, Rates::default());
    }

    #[test]
    fn figures_are_of_the_time_at_which_they_were_taken() {
        let mut before =
            DiskStats { opened_ms: 7, elapsed_ns: 5_000_000_000, ..Default::default() };
        before.engine.counters.reads = 1000;
        let mut now = DiskStats { elapsed_ns: 6_000_000_000, ..before.clone() };
        now.engine.counters.reads += 50;
        // They came together, as others held up the former ones.
        assert_eq!(Rates::between(&before, &now, Duration::from_millis(2)).reads, 50);
    }

    #[test]
    fn a_disk_that_was_opened_again_did_nothing_before_however_much_it_did_since() {
        let counted = |opened_ms, reads, hits, sum_ns| {
            let mut stats =
                DiskStats { opened_ms, elapsed_ns: 2_000_000_000, ..Default::default() };
            stats.engine.counters.reads = reads;
            stats.engine.counters.read_hits_ram = hits;
            stats.engine.latency.read =
                LatencySummary { count: reads, sum_ns, ..Default::default() };
            stats
        };
        let before = counted(7, 10_000, 500, 10_000);
        let now = counted(9, 10_100, 10_000, 20_200_000);
        let rates = Rates::between(&before, &now, Duration::from_secs(60));
        assert_eq!((rates.hits, rates.reads), ((10_000, 10_100), 5050));
        assert_eq!(rates.guest_reads, Some(2000));
    }
}
