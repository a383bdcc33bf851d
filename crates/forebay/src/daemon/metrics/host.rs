//! What a host has beside its disks: the daemon, its listeners, its flash pools.

use forebay_host::pool::report::SegmentCounts;

use super::family::{Family, Values};
use super::{Daemon, PoolMetrics};
use crate::daemon::api::{ListenerInfo, ShardLoad};
use Values::{Each, Info, One};

pub(super) const DAEMON: &[Family<Daemon>] = &[
    Family::gauge(
        "forebay_build",
        "",
        "The version of Forebay. Its value is always 1.",
        Info(&[("version", |_| env!("CARGO_PKG_VERSION").to_owned())]),
    ),
    Family::gauge(
        "forebay_daemon",
        "",
        "The name of the daemon, and the kernel interface of its shards. Its value is always 1.",
        Info(&[("name", |it| it.name.clone()), ("reactor", |it| it.reactor.clone())]),
    ),
    Family::<Daemon>::gauge(
        "forebay_start_time",
        "",
        "When the daemon started, since 1970.",
        One(|it| Some(it.started)),
    )
    .seconds(),
    Family::<Daemon>::gauge(
        "forebay_uptime",
        "",
        "How long the daemon has been running.",
        One(|it| Some(it.uptime)),
    )
    .seconds(),
    Family::gauge("forebay_shards", "", "Shard threads.", One(|it| some(it.shards as u64))),
];

pub(super) const SHARD: &[Family<ShardLoad>] = &[
    Family::gauge(
        "forebay_shard_disks",
        "shard",
        "Disks on the shard.",
        One(|it| some(it.disks as u64)),
    ),
    Family::<ShardLoad>::counter(
        "forebay_shard_cpu",
        "shard",
        "CPU time of the shard's thread. At 1 s per second the shard is busy all the time: move a disk to another one.",
        One(|it| Some(it.cpu_seconds)),
    )
    .seconds(),
];

pub(super) const LISTENER: &[Family<ListenerInfo>] = &[
    Family::gauge(
        "forebay_listener_connections",
        "listener",
        "Connections that are open, including those in handshake.",
        One(|it| some(it.connections.into())),
    ),
    Family::gauge(
        "forebay_listener_connections_limit",
        "listener",
        "Connections that may be open.",
        One(|it| some(it.connections_max.into())),
    ),
    Family::counter(
        "forebay_listener_accepted_connections",
        "listener",
        "Connections that were accepted.",
        One(|it| some(it.accepted)),
    ),
    Family::counter(
        "forebay_listener_refused_connections",
        "listener",
        "Connections that were closed at once, because too many were open.",
        One(|it| some(it.refused)),
    ),
    Family::counter(
        "forebay_listener_failed_handshakes",
        "listener",
        "Connections that ended before their handshake did.",
        One(|it| some(it.handshakes_failed)),
    ),
];

pub(super) const POOL: &[Family<PoolMetrics>] = &[
    Family::gauge(
        "forebay_pool_up",
        "pool",
        "1: the pool answered in time. 0: its figures are older.",
        One(|it| flag(it.is_up)),
    ),
    Family::gauge(
        "forebay_pool_failed",
        "pool",
        "1: the tables of the pool cannot be written, and Forebay leases nothing more from it.",
        One(|it| it.usage.and_then(|usage| flag(usage.has_failed))),
    ),
    Family::<PoolMetrics>::gauge(
        "forebay_pool_capacity",
        "pool",
        "Size of the pool.",
        One(|it| it.bytes(|segments| segments.all)),
    )
    .bytes(),
    Family::<PoolMetrics>::gauge(
        "forebay_pool_segments",
        "pool",
        "Bytes of the pool's segments, by use.",
        Each(
            "use",
            &[
                ("metadata", |it| it.bytes(|segments| segments.metadata)),
                ("log", |it| it.bytes(|segments| segments.log)),
                ("cache", |it| it.bytes(|segments| segments.cache)),
                ("free", |it| it.bytes(|segments| segments.free)),
            ],
        ),
    )
    .bytes(),
];

impl PoolMetrics {
    /// Bytes of some of its segments, if it has ever answered.
    fn bytes(&self, of: impl Fn(&SegmentCounts) -> u32) -> Option<f64> {
        let usage = self.usage?;
        some(u64::from(of(&usage.segments)) * usage.segment_size)
    }
}

pub(super) fn some(number: u64) -> Option<f64> {
    Some(number as f64)
}

pub(super) fn flag(is_so: bool) -> Option<f64> {
    Some(if is_so { 1.0 } else { 0.0 })
}
