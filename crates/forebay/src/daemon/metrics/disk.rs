//! What a disk has: whether it is served, its state, and its figures.

use forebay_core::stats::{
    Counters, IndexState, LogStatistics, Statistics, TierState, TierStatistics,
};
use serde::Serialize;

use super::family::{Family, Values, seconds};
use super::host::{flag, some};
use super::{DiskMetrics, ServedMetrics};
use crate::daemon::api::PrimaryState;
use Values::{Each, Histogram, Histograms, One, State};

pub(super) const CONFIGURED: &[Family<DiskMetrics>] = &[
    Family::gauge(
        "forebay_disk_state",
        "disk",
        "1 for what the disk is now: starting, served, detaching, or refused.",
        State("state", |it| Some(it.state.to_owned())),
    ),
    Family::gauge(
        "forebay_disk_up",
        "disk",
        "1: the disk answered in time. 0: it is not served, cannot be opened again, or its figures are older.",
        One(|it| flag(it.is_up)),
    ),
];

/// Of disks that are served.
pub(super) const SERVED: [&[Family<ServedMetrics>]; 5] = [STATE, REQUESTS, CACHE, LOG, PRIMARY];

type Disk = ServedMetrics;

/// A sum of the engine.
macro_rules! counter {
    ($field:ident: $name:literal, $help:literal) => {
        Family::counter($name, "disk", $help, One(|it: &Disk| some(it.counters().$field)))
    };
}

/// A figure of the write log, for disks that have one.
macro_rules! of_log {
    ($field:ident: $name:literal, $help:literal) => {
        gauge($name, $help, |it| it.log().map(|log| log.$field as f64))
    };
}

const STATE: &[Family<Disk>] = &[
    gauge("forebay_disk_size", "Size of the disk.", |it| some(it.engine().disk_size)).bytes(),
    Family::gauge(
        "forebay_disk_mode_requested",
        "disk",
        "1 for the mode that was asked for.",
        State("mode", |it| Some(it.engine().mode.to_string())),
    ),
    Family::gauge(
        "forebay_disk_mode_actual",
        "disk",
        "1 for the mode that the disk is in.",
        State("mode", |it| Some(it.engine().mode_actual.to_string())),
    ),
    gauge("forebay_disk_mode_reached", "1: the disk is in the mode that was asked for.", |it| {
        flag(it.engine().mode == it.engine().mode_actual)
    }),
    gauge("forebay_disk_clients", "Clients that are attached.", |it| {
        some(it.stats.connections.into())
    }),
    gauge(
        "forebay_disk_clients_waiting",
        "Clients whose next request waits for room in the disk's tables.",
        |it| some(it.stats.connections_waiting.into()),
    ),
    gauge(
        "forebay_disk_vhost_user_connected",
        "1: a hypervisor is attached to the vhost-user-blk device. Absent: the disk has none.",
        |it| it.stats.vhost_user.as_ref().and_then(|device| flag(device.is_connected)),
    ),
];

const REQUESTS: &[Family<Disk>] = &[
    counter!(reads: "forebay_disk_reads", "Read requests that succeeded."),
    counter!(read_bytes: "forebay_disk_read", "Bytes of reads that succeeded.").bytes(),
    counter!(writes: "forebay_disk_writes", "Write requests that succeeded, without compare-and-writes."),
    counter!(write_bytes: "forebay_disk_written", "Bytes of writes that succeeded.").bytes(),
    counter!(flushes: "forebay_disk_flushes", "Flush requests that succeeded."),
    counter!(discards: "forebay_disk_discards", "Discards and writes of zeroes that succeeded."),
    counter!(compare_and_writes: "forebay_disk_compare_and_writes", "Compare-and-writes that found what they expected, and wrote."),
    counter!(requests_failed: "forebay_disk_requests_failed", "Requests that were answered with an error."),
    counter!(requests_timed_out: "forebay_disk_requests_timed_out", "Requests that took longer than backend-timeout: answered with an error, unless on-timeout is wait or it is a compare-and-write."),
    gauge("forebay_disk_requests_in_flight", "Requests in flight, including those that wait.", |it| {
        some(it.engine().requests_in_flight)
    }),
    counter!(requests_limited: "forebay_disk_requests_limited", "Requests that waited for the limits of the disk."),
    counter!(overlap_waits: "forebay_disk_overlap_waits", "Requests that waited for an overlapping one."),
    counter!(buffer_waits: "forebay_disk_buffer_waits", "Requests that waited for a buffer."),
    Family::<Disk>::gauge(
        "forebay_disk_read_latency",
        "disk",
        "What the guest waits for a read, by the slowest source of the read. `flash`: the cache or the write log there. \
         `primary`: primary storage.",
        Histograms(
            "source",
            &[
                ("ram", |it| Some(&it.latencies.read[0])),
                ("flash", |it| {
                    let has_any = it.flash().is_some() || it.log().is_some();
                    has_any.then_some(&it.latencies.read[1])
                }),
                ("primary", |it| Some(&it.latencies.read[2])),
            ],
        ),
    )
    .seconds(),
    Family::<Disk>::gauge(
        "forebay_disk_write_latency",
        "disk",
        "What the guest waits for a write.",
        Histogram(|it| Some(&it.latencies.write)),
    )
    .seconds(),
    Family::<Disk>::gauge(
        "forebay_disk_zero_latency",
        "disk",
        "What the guest waits for a discard or a write of zeroes.",
        Histogram(|it| Some(&it.latencies.zero)),
    )
    .seconds(),
    Family::<Disk>::gauge(
        "forebay_disk_flush_latency",
        "disk",
        "What the guest waits for a flush.",
        Histogram(|it| Some(&it.latencies.flush)),
    )
    .seconds(),
    Family::<Disk>::counter(
        "forebay_disk_read_time",
        "disk",
        "Where the time of reads goes. `queue`: earlier requests, buffers. `primary`: primary storage. `rest`: RAM, the engine, \
         sending.",
        Each(
            "part",
            &[
                ("limit", |it| Some(seconds(it.engine().time.read.limit_ns))),
                ("queue", |it| Some(seconds(it.engine().time.read.queue_ns))),
                ("flash", |it| Some(seconds(it.engine().time.read.flash_ns))),
                ("log", |it| Some(seconds(it.engine().time.read.log_ns))),
                ("primary", |it| Some(seconds(it.engine().time.read.primary_ns))),
                ("rest", |it| Some(seconds(it.engine().time.read.rest_ns))),
            ],
        ),
    )
    .seconds(),
    Family::<Disk>::counter(
        "forebay_disk_write_time",
        "disk",
        "Where the time of writes goes. `room`: the write log is full. `throttle`: write-back slows writers down. The rest as \
         for reads.",
        Each(
            "part",
            &[
                ("limit", |it| Some(seconds(it.engine().time.write.limit_ns))),
                ("queue", |it| Some(seconds(it.engine().time.write.queue_ns))),
                ("flash", |it| Some(seconds(it.engine().time.write.flash_ns))),
                ("log", |it| Some(seconds(it.engine().time.write.log_ns))),
                ("room", |it| Some(seconds(it.engine().time.write.room_ns))),
                ("primary", |it| Some(seconds(it.engine().time.write.primary_ns))),
                ("throttle", |it| Some(seconds(it.engine().time.write.throttle_ns))),
                ("rest", |it| Some(seconds(it.engine().time.write.rest_ns))),
            ],
        ),
    )
    .seconds(),
    Family::<Disk>::gauge(
        "forebay_disk_device_latency",
        "disk",
        "What an I/O on a device takes. `flash`: for the cache. `log`: for the write log. `primary`: primary storage.",
        Histograms(
            "device",
            &[
                ("flash", |it| it.flash().map(|_| &it.latencies.flash_io)),
                ("log", |it| it.log().map(|_| &it.latencies.log_io)),
                ("primary", |it| Some(&it.latencies.backend_io)),
            ],
        ),
    )
    .seconds(),
];

const CACHE: &[Family<Disk>] = &[
    Family::counter(
        "forebay_disk_read_hits",
        "disk",
        "Reads that primary storage was not asked for. `flash`: flash took part. `joined`: from an earlier read of primary storage in flight.",
        Each(
            "tier",
            &[
                ("ram", |it| some(it.counters().read_hits_ram)),
                ("flash", |it| some(it.counters().read_hits_flash)),
                ("joined", |it| some(it.counters().read_hits_joined)),
            ],
        ),
    ),
    counter!(read_hits_partial: "forebay_disk_read_partial_hits", "Reads that found a part in the cache."),
    counter!(read_misses: "forebay_disk_read_misses", "Reads that found nothing in the cache."),
    Family::counter(
        "forebay_disk_missed_blocks",
        "disk",
        "Cache blocks that reads asked primary storage for, by reason; estimates on disks with many blocks.",
        Each(
            "reason",
            &[
                ("cold", |it| some(it.engine().misses.cold)),
                ("evicted", |it| some(it.engine().misses.evicted)),
                ("bypassed", |it| some(it.engine().misses.bypassed)),
                ("not-admitted", |it| some(it.engine().misses.not_admitted)),
                ("partial", |it| some(it.engine().misses.partial)),
                ("invalidated", |it| some(it.engine().misses.invalidated)),
            ],
        ),
    ),
    Family::counter(
        "forebay_disk_bypassed",
        "disk",
        "Requests that put nothing into the cache, because they belong to a sequential stream or asked for it.",
        Each(
            "direction",
            &[
                ("read", |it| some(it.counters().reads_bypassed)),
                ("write", |it| some(it.counters().writes_bypassed)),
            ],
        ),
    ),
    Family::<Disk>::gauge(
        "forebay_disk_cache_capacity",
        "disk",
        "What the tier can hold.",
        Each(
            "tier",
            &[
                ("ram", |it| it.ram().and_then(|tier| some(it.blocks(tier.slots)))),
                ("flash", |it| it.flash().and_then(|tier| some(it.blocks(tier.slots)))),
            ],
        ),
    )
    .bytes(),
    Family::<Disk>::gauge(
        "forebay_disk_cache_used",
        "disk",
        "What the tier holds, in whole cache blocks.",
        Each(
            "tier",
            &[
                ("ram", |it| it.ram().and_then(|tier| some(it.blocks(tier.slots_used)))),
                ("flash", |it| it.flash().and_then(|tier| some(it.blocks(tier.slots_used)))),
            ],
        ),
    )
    .bytes(),
    gauge("forebay_disk_cache_metadata", "RAM for the metadata of the cache, both tiers.", |it| {
        some(it.engine().metadata_bytes)
    })
    .bytes(),
    Family::counter(
        "forebay_disk_cache_admitted_blocks",
        "disk",
        "Cache blocks that were put into the tier.",
        Each(
            "tier",
            &[
                ("ram", |it| some(it.counters().ram_filled)),
                ("flash", |it| some(it.counters().flash_admitted)),
            ],
        ),
    ),
    Family::counter(
        "forebay_disk_cache_skipped_blocks",
        "disk",
        "Cache blocks that the tier did not take, because slots or memory were in use.",
        Each(
            "tier",
            &[
                ("ram", |it| some(it.counters().ram_fills_skipped)),
                ("flash", |it| some(it.counters().flash_fills_skipped())),
            ],
        ),
    ),
    counter!(flash_refused: "forebay_disk_cache_refused_blocks", "Cache blocks that flash refused, for their history or for the budget of writes."),
    Family::counter(
        "forebay_disk_cache_evicted_blocks",
        "disk",
        "Cache blocks that the tier evicted.",
        Each(
            "tier",
            &[
                ("ram", |it| some(it.counters().ram_evicted)),
                ("flash", |it| some(it.counters().flash_evicted)),
            ],
        ),
    ),
    gauge(
        "forebay_disk_flash_failed",
        "1: the cache on flash was given up after errors. Absent: the disk has none.",
        |it| it.flash().and_then(|tier| flag(tier.state == TierState::Failed)),
    ),
    gauge(
        "forebay_disk_cache_index_given_up",
        "1: the index of the cache on flash cannot be written. The next start begins with an empty cache. Absent: the disk \
         has none.",
        |it| it.engine().ring.as_ref().and_then(|ring| flag(ring.state == IndexState::GivenUp)),
    ),
    counter!(flash_checksum_errors: "forebay_disk_flash_checksum_errors", "Reads of the cache on flash that returned wrong bytes. Each became a miss."),
    counter!(flash_errors: "forebay_disk_flash_errors", "I/Os of the cache on flash that failed."),
    counter!(flash_slots_quarantined: "forebay_disk_flash_quarantined_slots", "Slots of the cache on flash that are out of use after a failed write."),
    counter!(flash_read_bytes: "forebay_disk_flash_read", "Bytes read from the cache on flash.")
        .bytes(),
    Family::<Disk>::counter(
        "forebay_disk_flash_written",
        "disk",
        "Bytes written to flash, which wear it, by use.",
        Each(
            "use",
            &[
                ("cache", |it| some(it.counters().flash_write_bytes)),
                ("log", |it| some(it.counters().log_write_bytes)),
                ("notes", |it| some(it.counters().note_write_bytes)),
                ("index", |it| some(it.counters().ring_write_bytes)),
            ],
        ),
    )
    .bytes(),
    gauge(
        "forebay_disk_flash_written_budget_bytes_per_day",
        "Bytes that `flash-dwpd` lets Forebay write to flash in a day. Absent: there is no limit.",
        |it| it.flash_bytes_per_day.and_then(some),
    ),
];

const LOG: &[Family<Disk>] = &[
    Family::gauge(
        "forebay_disk_log_state",
        "disk",
        "1 for the state of the write log. Absent: the disk has none.",
        State("state", |it| it.log().map(|log| code(&log.state))),
    ),
    Family::gauge(
        "forebay_disk_destage_limit",
        "disk",
        "1 for what limits destaging now.",
        State("limit", |it| it.log().map(|log| code(&log.limited_by))),
    ),
    of_log!(capacity_bytes: "forebay_disk_log_capacity", "Bytes that the write log may take.").bytes(),
    of_log!(occupied_bytes: "forebay_disk_log_occupied", "Bytes that dirty data take in the write log. As they near the capacity, writers slow down.")
    .bytes(),
    of_log!(dirty_bytes: "forebay_disk_dirty", "Bytes that primary storage does not have yet, about.").bytes(),
    gauge(
        "forebay_disk_dirty_age",
        "How long the oldest write that is not destaged has been waiting.",
        |it| it.log().map(|log| seconds(log.primary_age_ns)),
    )
    .seconds(),
    of_log!(writes_waiting: "forebay_disk_log_writes_waiting", "Writes and zeroes that wait for room in the write log."),
    gauge(
        "forebay_disk_injected_latency",
        "What delays each acknowledgement of a write now.",
        |it| it.log().map(|log| seconds(log.injected_latency_ns)),
    )
    .seconds(),
    Family::<Disk>::counter(
        "forebay_disk_injected_delay",
        "disk",
        "Time by which the throttle delayed acknowledgements, in all.",
        One(|it| Some(seconds(it.counters().injected_latency_ns))),
    )
    .seconds(),
    counter!(destage_writes: "forebay_disk_destage_writes", "Writes of destaging that are on primary storage."),
    counter!(destage_write_bytes: "forebay_disk_destaged", "Bytes that were destaged to primary storage.")
        .bytes(),
    counter!(destage_errors: "forebay_disk_destage_errors", "I/Os of destaging that failed. Each is tried again."),
    of_log!(outstanding: "forebay_disk_destage_writes_in_flight", "Destage writes under way."),
    counter!(log_errors: "forebay_disk_log_errors", "I/Os of the write log that failed or returned wrong bytes."),
    gauge(
        "forebay_disk_primary_consistent",
        "1: primary storage alone is a crash-consistent image now. Absent: the disk has no write log.",
        |it| it.log().and_then(|log| flag(log.primary_is_consistent)),
    ),
];

const PRIMARY: &[Family<Disk>] = &[
    Family::gauge(
        "forebay_disk_primary_state",
        "disk",
        "1 for the state of primary storage.",
        State("state", |it| Some(code(&it.stats.primary_storage))),
    ),
    gauge("forebay_disk_primary_up", "1: primary storage serves, without errors.", |it| {
        flag(matches!(it.stats.primary_storage, PrimaryState::Connected | PrimaryState::HoldsWrites))
    }),
    gauge("forebay_disk_primary_changed", "1: somebody changed, moved or removed primary storage under the disk.", |it| {
        flag(it.stats.storage_changed.is_some())
    }),
    counter!(backend_reads: "forebay_disk_primary_reads", "Reads of primary storage."),
    counter!(backend_read_bytes: "forebay_disk_primary_read", "Bytes read from primary storage.").bytes(),
    counter!(backend_writes: "forebay_disk_primary_writes", "Writes to primary storage, without destaging."),
    counter!(backend_write_bytes: "forebay_disk_primary_written", "Bytes written to primary storage, without destaging.")
    .bytes(),
    counter!(backend_flushes: "forebay_disk_primary_flushes", "Flushes of primary storage."),
    counter!(backend_errors: "forebay_disk_primary_errors", "I/Os on primary storage that failed."),
    Family::counter(
        "forebay_disk_primary_sessions_lost",
        "disk",
        "Sessions with primary storage that were lost.",
        One(|it| some(it.stats.sessions_lost)),
    ),
    gauge(
        "forebay_disk_unflushed",
        "Bytes written to primary storage since its last flush, at most.",
        |it| some(it.engine().unflushed_bytes),
    )
    .bytes(),
];

const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&Disk) -> Option<f64>,
) -> Family<Disk> {
    Family::gauge(name, "disk", help, One(value))
}

impl ServedMetrics {
    fn engine(&self) -> &Statistics {
        &self.stats.engine
    }

    fn counters(&self) -> &Counters {
        &self.engine().counters
    }

    fn log(&self) -> Option<&LogStatistics> {
        self.engine().log.as_ref()
    }

    fn ram(&self) -> Option<&TierStatistics> {
        Some(&self.engine().ram).filter(|tier| tier.state != TierState::None)
    }

    fn flash(&self) -> Option<&TierStatistics> {
        Some(&self.engine().flash).filter(|tier| tier.state != TierState::None)
    }

    /// Bytes of so many cache blocks.
    fn blocks(&self, number: u64) -> u64 {
        number * self.engine().block_size
    }
}

/// A state as JSON has it.
fn code(state: &impl Serialize) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(code)) => code,
        _ => unreachable!("a state is a word"),
    }
}
