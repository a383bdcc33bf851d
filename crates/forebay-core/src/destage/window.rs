//! How many destage writes may be outstanding on primary storage, and when the next may start.

use super::throttle::Destaging;
use crate::ids::Nanos;

/// Settings of a [`DestageWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Never more writes outstanding than this.
    pub outstanding_max: u32,
    /// `--max-destage-rate`, in bytes per second.
    pub bytes_per_second_max: Option<u64>,
}

impl Default for WindowConfig {
    fn default() -> Self {
        WindowConfig { outstanding_max: 128, bytes_per_second_max: None }
    }
}

/// What the destager could write if the window let it; only the destager knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// The log holds nothing that is not under way.
    Nothing,
    /// Only writes of later epochs, which wait for the current one to complete.
    LaterEpochs,
    /// Writes that may start now.
    Writes,
}

/// What limits destaging, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Nothing to destage.
    Idle,
    /// The order between epochs: what is outstanding is all that the order allows.
    EpochBound,
    /// Primary storage: more outstanding writes would not make it faster.
    Storage,
    /// The guest's own reads of primary storage, which destaging must not slow down.
    GuestReads,
    /// `--max-destage-rate`.
    RateLimit,
    /// Writes that failed a moment ago.
    Errors,
}

/// The window of one disk. A destage write may start when fewer than [`DestageWindow::limit`] are
/// outstanding and [`DestageWindow::next_allowed`] has come.
#[derive(Clone, Debug)]
pub struct DestageWindow {
    config: WindowConfig,
}

impl DestageWindow {
    /// A window that knows nothing of its storage yet.
    pub fn new(config: WindowConfig) -> DestageWindow {
        DestageWindow { config }
    }

    /// How many destage writes may be outstanding now; at least 1.
    pub fn limit(&self) -> u32 {
        1
    }

    /// When the next write may start, as far as rates are concerned; not later than `now`: at once.
    /// Ask again after every event; it moves in both directions.
    pub fn next_allowed(&self, now: Nanos) -> Nanos {
        now
    }

    /// A destage write of `bytes` starts.
    pub fn on_start(&mut self, now: Nanos, bytes: u64) {
        let _ = (now, bytes);
    }

    /// A destage write of `bytes` succeeded after `latency`; `outstanding` were under way when it
    /// completed, itself included.
    pub fn on_write(&mut self, now: Nanos, latency: Nanos, bytes: u64, outstanding: u32) {
        let _ = (now, latency, bytes, outstanding);
    }

    /// A read of the guest that went to the same primary storage completed after `latency`.
    pub fn on_guest_read(&mut self, now: Nanos, latency: Nanos) {
        let _ = (now, latency);
    }

    /// A destage write failed or timed out.
    pub fn on_error(&mut self, now: Nanos) {
        let _ = now;
    }

    /// There is nothing left to destage, nor anything outstanding: the time until the next
    /// [`DestageWindow::on_start`] counts for no rate.
    pub fn on_idle(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Changes `--max-destage-rate`.
    pub fn limit_rate(&mut self, bytes_per_second_max: Option<u64>) {
        self.config.bytes_per_second_max = bytes_per_second_max;
    }

    /// What destaging achieves, for the throttle.
    pub fn destaging(&self) -> Destaging {
        Destaging { ns_per_page: 0, latency: Nanos(0) }
    }

    /// Latency of a write on unloaded storage, as far as known; zero before the first.
    pub fn baseline_latency(&self) -> Nanos {
        Nanos(0)
    }

    /// Mean latency of the latest writes; zero before the first.
    pub fn latency(&self) -> Nanos {
        Nanos(0)
    }

    /// What limits destaging now.
    pub fn limited_by(&self, now: Nanos, supply: Supply) -> Limit {
        let _ = now;
        match supply {
            Supply::Nothing => Limit::Idle,
            Supply::LaterEpochs => Limit::EpochBound,
            Supply::Writes => Limit::Storage,
        }
    }
}
