//! How many destage writes may be outstanding on primary storage, and when the next may start.
//!
//! Told of every destage write and of every read that went to primary storage, it answers with
//! [`DestageWindow::limit`] and [`DestageWindow::next_allowed`]. Four concerns, one file each where
//! they are more than a few lines; the strictest wins:
//! - `knee.rs`: the smallest limit that gets nearly all the throughput, and less while others load
//!   the storage;
//! - `guests.rs`: a pace at which the guest's reads stay nearly as fast as without destaging, also the slowest
//!   of them (`rate.rs`, `tail.rs`);
//! - `pace.rs`: `--max-destage-rate` (a token bucket), and that pace;
//! - errors: half as many at a time after each, and a pause from 10 ms, doubling to 1 s.
//!
//! The knee is where doubling the limit no longer lowers the time per write. That is the latency
//! gradient of TCP Vegas (Brakmo, Peterson 1995) and its descendants for limits on concurrent
//! requests. They compare with the latency of an idle system. Here limits are compared with one
//! another, by experiment (as PCC does, Dong et al. 2015). An elevator turns a longer queue into
//! throughput long after latency has begun to rise. The latency of the idle system serves to
//! notice other tenants.
//!
//! No clock, no allocation, a few additions per I/O. One window belongs to one disk; windows of
//! disks on the same storage see each other as tenants.
//!
//! # Limits
//! Slow storage is learnt slowly: a round is 128 writes, a change of level takes six comparisons,
//! at 300 writes/s about ten seconds (the first climb: two). Storage is judged by writes of one
//! kind; when their mean size changes by half it starts again from what it has.

mod guests;
mod knee;
mod pace;
mod rate;
mod tail;

use super::throttle::{Destaging, PAGE};
use crate::ids::Nanos;
use guests::Guests;
use knee::Knee;
use pace::Pace;

const WRITE_WORTH: u64 = 128 << 10;
/// An error's limit above this is none.
const OUTSTANDING_LIMIT: u32 = 2048;
/// Work that a maximal rate lets through at once after a pause.
const RATE_BURST: Nanos = Nanos::from_millis(50);
const PAUSE_MIN: Nanos = Nanos::from_millis(10);
const PAUSE_MAX: Nanos = Nanos::from_millis(1000);
/// Successes after which the limit after an error doubles.
const ERROR_FREE: u32 = 16;
/// Writes over which the latency shown is averaged.
const LATENCY_WRITES: u64 = 32;
/// The speed is sampled over this time at least, and averaged over so many samples.
const SAMPLE_TIME: Nanos = Nanos::from_millis(100);
const SAMPLE_TIME_MAX: Nanos = Nanos::from_millis(1000);
const SAMPLE_BYTES: u64 = 64 * PAGE;
const SAMPLES: u64 = 4;

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

/// Bytes that the destager could write if the window let it; only the destager knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// The log holds nothing that is not under way.
    Nothing,
    /// Only writes of later epochs, which wait for the current one to complete.
    LaterEpochs,
    /// Writes that may start now.
    Writes,
}

/// The limit of destaging, for display.
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
    knee: Knee,
    guests: Guests,
    rate: Option<Pace>,
    errors: Errors,
    meter: Meter,
}

impl DestageWindow {
    /// A window that knows nothing of its storage yet.
    pub fn new(config: WindowConfig) -> DestageWindow {
        DestageWindow {
            knee: Knee::new(config.outstanding_max),
            guests: Guests::new(),
            rate: config.bytes_per_second_max.map(|rate| Pace::new(rate, RATE_BURST)),
            errors: Errors::default(),
            meter: Meter::default(),
        }
    }

    /// How many destage writes may be outstanding now; at least 1.
    pub fn limit(&self) -> u32 {
        self.knee.limit().min(self.errors.limit)
    }

    /// When the next write may start, as far as rates are concerned; not later than now: at once.
    /// Ask again after every event; it moves in both directions.
    pub fn next_allowed(&self) -> Nanos {
        let rate = self.rate.map_or(Nanos(0), |rate| rate.next());
        rate.max(self.guests.next_allowed()).max(self.errors.paused_until)
    }

    /// A destage write of `bytes` starts.
    pub fn on_start(&mut self, now: Nanos, bytes: u64) {
        if let Some(rate) = &mut self.rate {
            rate.on_start(now, bytes);
        }
        self.meter.on_start(now);
        self.knee.on_start(now);
        self.guests.on_start(now, work(bytes), self.meter.bears);
    }

    /// A destage write of `bytes` succeeded after `latency`; `outstanding` were under way when it
    /// completed, itself included.
    pub fn on_write(&mut self, now: Nanos, latency: Nanos, bytes: u64, outstanding: u32) {
        self.errors.on_success();
        let is_held = self.guests.is_binding(now) || self.rate.is_some_and(|r| r.is_binding(now));
        self.meter.on_write(now, latency, bytes, is_held);
        self.meter.outstanding =
            averaged(self.meter.outstanding, u64::from(outstanding) << 16, LATENCY_WRITES);
        self.knee.be_careful(self.guests.is_present());
        self.knee.on_write(now, latency, work(bytes), outstanding);
        self.guests.on_write(now, self.meter.bears);
    }

    /// Primary storage is to make zeroes, with nothing beside them: the time that they take tells nothing of writes. `written` bytes
    /// of them are sent, and are limited as those of writes are.
    pub fn on_zeroes(&mut self, now: Nanos, written: u64) {
        self.meter.pause(now);
        self.knee.pause(now);
        if written == 0 {
            return;
        }
        if let Some(rate) = &mut self.rate {
            rate.on_start(now, written);
        }
        self.guests.on_start(now, work(written), self.meter.bears);
    }

    /// They are there.
    pub fn on_zeroed(&mut self, now: Nanos) {
        self.errors.on_success();
        self.guests.on_write(now, self.meter.bears);
    }

    /// A read of the guest goes to the same primary storage; what is destaged now goes behind it.
    pub fn on_guest_read_start(&mut self, now: Nanos) {
        self.guests.on_read_start(now);
    }

    /// A read of the guest that went to the same primary storage completed after `latency`.
    pub fn on_guest_read(&mut self, now: Nanos, latency: Nanos) {
        self.guests.on_read(now, latency, self.meter.bears);
    }

    /// Whether writers wait for destaging, so that reads have to give way.
    pub fn on_writers(&mut self, are_waiting: bool) {
        self.guests.on_writers(are_waiting);
    }

    /// A destage write failed or timed out.
    pub fn on_error(&mut self, now: Nanos) {
        let limit = self.limit();
        self.errors.on_error(now, limit);
        self.knee.restart_round(now);
    }

    /// There is nothing left to destage, nor anything outstanding: the time until the next
    /// [`DestageWindow::on_start`] counts for no rate.
    pub fn on_idle(&mut self, now: Nanos) {
        self.meter.on_idle();
        self.knee.pause(now);
    }

    /// Changes `--max-destage-rate`. What was started and is not paid for stays so.
    pub fn limit_rate(&mut self, now: Nanos, bytes_per_second_max: Option<u64>) {
        self.rate = match (self.rate, bytes_per_second_max) {
            (Some(mut pace), Some(rate)) => {
                pace.change(now, rate);
                Some(pace)
            }
            (_, rate) => rate.map(|rate| Pace::new(rate, RATE_BURST)),
        };
    }

    /// True when more outstanding writes than [`DestageWindow::limit`] were tried, and gained nothing.
    pub fn has_found_the_knee(&self) -> bool {
        self.knee.has_climbed()
    }

    /// True when a write completed at that time or later.
    pub fn has_written_since(&self, time: u64) -> bool {
        self.meter.last_write.is_some_and(|last| last.0 >= time)
    }

    /// Writes per second that primary storage takes while it has writes: those outstanding over the latency of one, as
    /// both were lately (Little's law); zero before the first.
    pub fn writes_per_second_while_busy(&self) -> u64 {
        let outstanding = (u128::from(self.meter.outstanding) * 1_000_000_000) >> 16;
        outstanding.checked_div(u128::from(self.meter.latency_ns)).unwrap_or(0) as u64
    }

    /// Writes per second that destaging achieves, pauses between epochs included; zero before it was measured.
    pub fn writes_per_second(&self) -> u64 {
        self.meter.writes_per_second
    }

    /// The speed of destaging, for the throttle.
    pub fn destaging(&self) -> Destaging {
        Destaging { ns_per_page: self.meter.ns_per_page, latency: self.latency() }
    }

    /// Mean latency of the latest writes; zero before the first.
    pub fn latency(&self) -> Nanos {
        Nanos(self.meter.latency_ns)
    }

    /// What limits destaging now.
    pub fn limited_by(&self, now: Nanos, supply: Supply) -> Limit {
        match supply {
            Supply::Nothing => Limit::Idle,
            _ if self.errors.limit < self.knee.limit() => Limit::Errors,
            Supply::LaterEpochs => Limit::EpochBound,
            Supply::Writes if self.guests.is_binding(now) => Limit::GuestReads,
            Supply::Writes if self.rate.is_some_and(|rate| rate.is_binding(now)) => {
                Limit::RateLimit
            }
            Supply::Writes => Limit::Storage,
        }
    }
}

/// The cost of a write for the storage: its bytes, and as much as [`WRITE_WORTH`] for being one.
/// Nearly right for devices that are limited by operations and for those limited by bandwidth.
fn work(bytes: u64) -> u64 {
    bytes.saturating_add(WRITE_WORTH)
}

/// Fewer writes at a time, later, after failures.
#[derive(Clone, Copy, Debug)]
struct Errors {
    limit: u32,
    successes: u32,
    pause: Nanos,
    paused_until: Nanos,
}

impl Default for Errors {
    fn default() -> Self {
        Errors { limit: u32::MAX, successes: 0, pause: PAUSE_MIN, paused_until: Nanos(0) }
    }
}

impl Errors {
    fn on_error(&mut self, now: Nanos, limit: u32) {
        self.successes = 0;
        if now < self.paused_until {
            return; // One of those that were under way together.
        }
        self.limit = (limit / 2).max(1);
        self.paused_until = now.plus(self.pause);
        self.pause = Nanos(self.pause.0 * 2).min(PAUSE_MAX);
    }

    fn on_success(&mut self) {
        if self.limit == u32::MAX {
            return;
        }
        self.successes += 1;
        if self.successes >= ERROR_FREE.max(self.limit) {
            self.successes = 0;
            self.pause = PAUSE_MIN;
            self.limit = if self.limit >= OUTSTANDING_LIMIT { u32::MAX } else { self.limit * 2 };
        }
    }
}

/// Measures what destaging achieves, while it does.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    is_busy: bool,
    began: Nanos,
    paused_at: Option<Nanos>,
    bytes: u64,
    work: u64,
    writes: u64,
    ns_per_page: u64,
    writes_per_second: u64,
    latency_ns: u64,
    /// Writes outstanding when one completes, itself included; 16 bits behind the point.
    outstanding: u64,
    last_write: Option<Nanos>,
    /// Work per second when neither a rate limit nor reads held destaging back.
    bears: u64,
}

impl Meter {
    fn on_start(&mut self, now: Nanos) {
        if !self.is_busy {
            *self = Meter { is_busy: true, began: now, bytes: 0, work: 0, writes: 0, ..*self };
        }
        if let Some(paused_at) = self.paused_at.take() {
            self.began = self.began.plus(now.since(paused_at.max(self.began)));
        }
    }

    fn on_idle(&mut self) {
        self.is_busy = false;
    }

    /// The time until the next start does not count.
    fn pause(&mut self, now: Nanos) {
        self.paused_at.get_or_insert(now);
    }

    fn on_write(&mut self, now: Nanos, latency: Nanos, bytes: u64, is_held: bool) {
        self.latency_ns = averaged(self.latency_ns, latency.0, LATENCY_WRITES);
        self.last_write = Some(now);
        self.writes += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.work = self.work.saturating_add(work(bytes));
        let elapsed = now.since(self.began);
        let is_enough = self.bytes >= SAMPLE_BYTES || elapsed >= SAMPLE_TIME_MAX;
        if elapsed < SAMPLE_TIME || !is_enough || self.bytes == 0 {
            return;
        }
        let ns_per_page = u128::from(elapsed.0) * u128::from(PAGE) / u128::from(self.bytes);
        self.ns_per_page = averaged(self.ns_per_page, ns_per_page as u64, SAMPLES);
        let writes = u128::from(self.writes) * 1_000_000_000 / u128::from(elapsed.0);
        self.writes_per_second = averaged(self.writes_per_second, writes as u64, SAMPLES);
        if !is_held || self.bears == 0 {
            let per_second = u128::from(self.work) * 1_000_000_000 / u128::from(elapsed.0);
            self.bears = averaged(self.bears, per_second as u64, SAMPLES);
        }
        *self = Meter { began: now, bytes: 0, work: 0, writes: 0, ..*self };
    }
}

/// An exponential average in which the newest of `n` counts one part; the first counts all.
fn averaged(mean: u64, newest: u64, n: u64) -> u64 {
    if mean == 0 {
        return newest;
    }
    mean - mean / n + newest / n
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
