//! `/metrics`: what a monitoring system reads, in the OpenMetrics format or in that of Prometheus before it.
//!
//! ```text
//!   GET /metrics ──► texts.rs ──► collect.rs ──► Scrape ──families (host.rs, disk.rs)──► text
//!                                                               └──► docs/reference/metrics.md
//! ```
//! A metric is a row of a table: name, unit, help, labels and how it is read from a [`Scrape`]. The reference has the same rows.
//! Names and units stay from version to version. The values of a label come from the configuration, or are a fixed set of
//! words: clients and time make no new ones.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;

mod collect;
mod disk;
mod family;
mod host;
#[cfg(test)]
mod tests;
mod texts;

pub(super) use collect::Memory;
pub(crate) use family::describe;
pub(super) use texts::shared;

use collect::collect;

use super::api::{DiskStats, ListenerInfo, ShardLoad};
use forebay_core::stats::LatenciesInSteps;
use forebay_host::pool::report::PoolUsage;

/// What a daemon is at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrape {
    daemon: Daemon,
    shards: Vec<ShardLoad>,
    listeners: Vec<ListenerInfo>,
    pools: Vec<PoolMetrics>,
    disks: Vec<DiskMetrics>,
    /// Those of the disks that are served, and have answered once at least.
    served: Vec<ServedMetrics>,
}

#[derive(Clone, Debug, Default)]
struct Daemon {
    name: String,
    reactor: String,
    shards: usize,
    /// In seconds since 1970.
    started: f64,
    uptime: f64,
}

#[derive(Clone, Debug, Default)]
struct PoolMetrics {
    path: String,
    /// It answered in time.
    is_up: bool,
    /// None: it has never answered.
    usage: Option<PoolUsage>,
}

/// A disk of the configuration.
#[derive(Clone, Debug, Default)]
struct DiskMetrics {
    name: String,
    state: &'static str,
    /// It answered in time.
    is_up: bool,
}

#[derive(Clone, Debug, Default)]
struct ServedMetrics {
    stats: DiskStats,
    latencies: LatenciesInSteps,
    /// Bytes that may be written to its flash in a day.
    flash_bytes_per_day: Option<u64>,
}

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl Format {
    /// What a client accepts that sends this header: OpenMetrics, unless it asks for the other alone.
    pub(super) fn accepted(header: &str) -> Format {
        let is_old = header.contains("text/plain") && !header.contains("application/openmetrics");
        if is_old { Format::Prometheus } else { Format::OpenMetrics }
    }

    /// Its media type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

impl Scrape {
    /// Its text.
    pub(super) fn text(self, format: Format) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        let written = match format {
            Format::OpenMetrics => text::encode(&mut out, &registry),
            Format::Prometheus => prometheus_text::encode(&mut out, &registry),
        };
        written.expect("a string takes everything");
        out
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut encoder;
        host::DAEMON.iter().try_for_each(|it| it.encode(to, &[], &[&self.daemon]))?;
        let shards: Vec<_> = self.shards.iter().collect();
        let names: Vec<_> = (0..shards.len()).map(|shard| shard.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        host::SHARD.iter().try_for_each(|it| it.encode(to, &names, &shards))?;
        let disks: Vec<_> = self.disks.iter().collect();
        let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
        disk::CONFIGURED.iter().try_for_each(|it| it.encode(to, &names, &disks))?;
        let served: Vec<_> = self.served.iter().collect();
        let names: Vec<_> = served.iter().map(|disk| disk.stats.name.as_str()).collect();
        for part in disk::SERVED {
            part.iter().try_for_each(|it| it.encode(to, &names, &served))?;
        }
        let listeners: Vec<_> = self.listeners.iter().collect();
        let names: Vec<_> = listeners.iter().map(|it| it.address.as_str()).collect();
        host::LISTENER.iter().try_for_each(|it| it.encode(to, &names, &listeners))?;
        let pools: Vec<_> = self.pools.iter().collect();
        let names: Vec<_> = pools.iter().map(|pool| pool.path.as_str()).collect();
        host::POOL.iter().try_for_each(|it| it.encode(to, &names, &pools))
    }
}
