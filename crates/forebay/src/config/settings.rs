//! The settings of a disk, each by its key and as a configuration file would say it.

use std::time::Duration;

use super::values::{Flash, FlushSemantics, Size, Span, Switch};
use super::{DiskSpec, Sharing, VhostUserSpec, WriteLogSpec};

/// What a setting says that nobody gave.
pub const NONE: &str = "none";

/// What destaging does where nobody said it: primary storage decides it when the disk is opened.
const ORDER_UNSAID: &str = "journaled if the journal has a place, else strict";
const JOURNAL_UNSAID: &str = "beside an image file, else none";

/// The settings that a disk at work takes over.
const ONLINE: [&str; 17] = [
    "mode",
    "ram",
    "ram-reservation",
    "ram-limit",
    "ram-shares",
    "flash-reservation",
    "flash-shares",
    "policy",
    "flash-admission",
    "flash-dwpd",
    "bypass-sequential",
    "max-destage-rate",
    "backend-timeout",
    "on-timeout",
    "iops-limit",
    "bandwidth-limit",
    "limit-burst",
];

/// The settings that a disk has when it was opened again, beneath its clients, beside those that it could not take over
/// as they are asked for.
const OPENED_AGAIN: [&str; 20] = [
    "mode",
    "ram",
    "ram-reservation",
    "ram-limit",
    "ram-shares",
    "block-size",
    "flash",
    "flash-reservation",
    "flash-limit",
    "flash-shares",
    "write-log",
    "grid-offset",
    "metadata-limit",
    "recorder",
    "destage-order",
    "destage-journal",
    "destage-barrier",
    "flush-semantics",
    "max-dirty-age",
    "accept-data-loss",
];

/// A setting: its key, and what it is.
pub type Setting = (&'static str, String);

impl DiskSpec {
    /// All of them. Those of the write log are there with a write log.
    pub fn settings(&self) -> Vec<Setting> {
        let DiskSpec {
            name: _,
            in_vain: _,
            backend,
            mode,
            block_size,
            ram_bytes,
            ram_sharing,
            flash_sharing,
            flash,
            unplaced: _,
            write_log,
            grid_offset,
            policy,
            flash_admission,
            flash_dwpd,
            bypass_sequential,
            iops_limit,
            bandwidth_limit,
            limit_burst,
            metadata_bytes_max,
            recorder_bytes,
            write_cache,
            write_cache_of_units,
            read_only,
            raw_anyway,
            backend_exclusive,
            take_over,
            unit_id,
            physical_block,
            backend_timeout,
            on_timeout,
            vhost_user,
        } = self;
        let write_cache = match (write_cache, write_cache_of_units) {
            (true, false) => "on; off over iSCSI".to_owned(),
            (is_on, _) => Switch(*is_on).to_string(),
        };
        let cached = self.flash_cache_bytes();
        let mut settings = vec![
            ("backend", backend.clone()),
            ("mode", mode.to_string()),
            ("block-size", size(*block_size)),
            ("ram", size(*ram_bytes)),
            ("ram-reservation", size_beside(ram_sharing.reservation, *ram_bytes, "as ram")),
            ("ram-limit", size_beside(ram_sharing.limit, *ram_bytes, "as ram")),
            ("ram-shares", ram_sharing.shares.to_string()),
            ("flash", flash.as_ref().map_or(NONE.to_owned(), Flash::to_string)),
            (
                "flash-reservation",
                size_beside(flash_sharing.reservation, cached, "as the flash cache"),
            ),
            ("flash-limit", size_beside(flash_sharing.limit, cached, "as the flash cache")),
            ("flash-shares", flash_sharing.shares.to_string()),
            ("write-log", write_log.as_ref().map_or(NONE.to_owned(), |log| size(log.bytes))),
            ("grid-offset", grid_offset.to_string()),
            ("policy", policy.to_string()),
            ("flash-admission", flash_admission.to_string()),
            ("flash-dwpd", or_none(flash_dwpd.as_ref())),
            ("bypass-sequential", bypass_sequential.to_string()),
            ("iops-limit", or_none(iops_limit.as_ref())),
            ("bandwidth-limit", or_none(bandwidth_limit.as_ref())),
            ("limit-burst", span(*limit_burst)),
            ("metadata-limit", size(*metadata_bytes_max)),
            ("recorder", size(*recorder_bytes)),
            ("write-cache", write_cache),
            ("read-only", read_only.to_string()),
            ("raw-anyway", raw_anyway.to_string()),
            ("backend-exclusive", backend_exclusive.to_string()),
            ("take-over", or_none(take_over.as_ref())),
            ("unit-id", or_none(unit_id.as_ref())),
            ("physical-block", size(*physical_block)),
            ("backend-timeout", span(*backend_timeout)),
            ("on-timeout", on_timeout.to_string()),
            ("vhost-user", or_none(vhost_user.as_ref().map(|device| &device.socket))),
        ];
        settings.extend(write_log.iter().flat_map(WriteLogSpec::settings));
        if let Some(VhostUserSpec { queues, .. }) = vhost_user {
            settings.push(("queues", queues.to_string()));
        }
        settings
    }

    /// What `other` says otherwise: what a disk at work takes over, what it has when it was opened again, and what only a
    /// start of the daemon does.
    pub fn changed(&self, other: &DiskSpec) -> [Vec<Setting>; 3] {
        let before = self.settings();
        let is_other = |(key, value): &Setting| {
            before.iter().any(|(known, before)| known == key && before != value)
        };
        let changed = other.settings().into_iter().filter(is_other);
        let is_online = |(key, _): &Setting| match *key {
            "mode" => self.can_have_mode_of(other),
            "ram" | "ram-reservation" | "ram-limit" | "ram-shares" => self.can_have_ram_of(other),
            "flash-reservation" | "flash-shares" => self.has_flash_of(other),
            key => ONLINE.contains(&key),
        };
        let (online, rest): (Vec<_>, Vec<_>) = changed.partition(is_online);
        let is_opened = |(key, _): &Setting| OPENED_AGAIN.contains(key);
        let (opened, at_start) = rest.into_iter().partition(is_opened);
        [online, opened, at_start]
    }

    /// Takes over of `other` what a disk at work does.
    pub fn take_over_online(&mut self, other: &DiskSpec) {
        if self.can_have_mode_of(other) {
            self.mode = other.mode;
        }
        if self.can_have_ram_of(other) {
            self.ram_bytes = other.ram_bytes;
            self.ram_sharing = other.ram_sharing;
        }
        if self.has_flash_of(other) {
            let limit = self.flash_sharing.limit;
            self.flash_sharing = Sharing { limit, ..other.flash_sharing };
        }
        self.policy = other.policy;
        self.flash_admission = other.flash_admission;
        self.flash_dwpd = other.flash_dwpd;
        self.bypass_sequential = other.bypass_sequential;
        self.backend_timeout = other.backend_timeout;
        self.on_timeout = other.on_timeout;
        self.iops_limit = other.iops_limit;
        self.bandwidth_limit = other.bandwidth_limit;
        self.limit_burst = other.limit_burst;
        if let (Some(log), Some(other)) = (&mut self.write_log, &other.write_log) {
            log.rate_max = other.rate_max;
        }
    }

    /// Takes over of `other` what a disk has when it was opened again.
    pub fn take_over_opened_again(&mut self, other: &DiskSpec) {
        self.take_over_online(other);
        self.mode = other.mode;
        (self.ram_bytes, self.ram_sharing) = (other.ram_bytes, other.ram_sharing);
        self.flash_sharing = other.flash_sharing;
        self.block_size = other.block_size;
        self.flash.clone_from(&other.flash);
        self.unplaced.clone_from(&other.unplaced);
        self.write_log.clone_from(&other.write_log);
        self.grid_offset = other.grid_offset;
        self.metadata_bytes_max = other.metadata_bytes_max;
        self.recorder_bytes = other.recorder_bytes;
    }

    /// To write to a log, a disk at work must have one.
    fn can_have_mode_of(&self, other: &DiskSpec) -> bool {
        self.write_log.is_some() || !other.mode.0.logs()
    }

    /// What it brings of flash for cached data stays the same.
    fn has_flash_of(&self, other: &DiskSpec) -> bool {
        self.flash == other.flash && self.flash_cache_bytes() == other.flash_cache_bytes()
    }

    /// A disk at work keeps a RAM cache, or has none.
    fn can_have_ram_of(&self, other: &DiskSpec) -> bool {
        self.ram_bytes >= self.block_size && other.ram_bytes >= self.block_size
    }
}

impl WriteLogSpec {
    fn settings(&self) -> Vec<Setting> {
        let WriteLogSpec {
            bytes: _,
            order,
            journal,
            barrier,
            rate_max,
            flush,
            dirty_age_max,
            accepts_data_loss,
        } = self;
        let FlushSemantics(is_deferred) = flush;
        let journaled = forebay_core::config::DestageOrder::Journaled;
        let place = match order.is_none_or(|order| order.0 == journaled) {
            true => JOURNAL_UNSAID,
            false => "none",
        };
        let mut settings = vec![
            ("destage-order", order.map_or(ORDER_UNSAID.to_owned(), |order| order.to_string())),
            ("destage-journal", journal.clone().unwrap_or_else(|| place.to_owned())),
            ("destage-barrier", barrier.to_string()),
            ("max-destage-rate", or_none(rate_max.map(Size).as_ref())),
            ("flush-semantics", flush.to_string()),
        ];
        if *is_deferred {
            settings.push(("max-dirty-age", span(*dirty_age_max)));
            settings.push(("accept-data-loss", accepts_data_loss.to_string()));
        }
        settings
    }
}

fn or_none(value: Option<&impl ToString>) -> String {
    value.map_or(NONE.to_owned(), ToString::to_string)
}

fn size(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// A size that follows that of the cache unless it was given.
fn size_beside(bytes: u64, cache: u64, as_cache: &str) -> String {
    if bytes == cache { as_cache.to_owned() } else { size(bytes) }
}

fn span(time: Duration) -> String {
    Span(time).to_string()
}
