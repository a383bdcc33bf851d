//! How many flush epochs are destaged, how long each takes, and what destaging without their order would achieve.
//!
//! In `strict` order an epoch starts when the one before has completed, so primary storage gets
//! no more at once than an epoch has. How fast it would be with more is known as far as it had
//! more: the writes that were outstanding over the latency of one (Little's law). The limit of
//! the window proves nothing: storage that is limited by operations answers the later the more it
//! has. So little is promised: where all epochs are small, nothing.

use super::window::DestageWindow;
use crate::ids::Nanos;

/// Epochs over which is averaged.
const EPOCHS: u64 = 16;
const SECOND: u64 = 1_000_000_000;
/// Less than this much faster, in percent, is no reason to give up the order.
const WORTH_PERCENT: u64 = 130;

/// Measures epochs, while there are any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epochs {
    ended: Nanos,
    /// Mean time of one, and between the ends of two.
    took_ns: u64,
    apart_ns: u64,
}

impl Epochs {
    /// Every write of an epoch (or of a part of one, when it is long) that began then has completed.
    pub fn on_end(&mut self, now: Nanos, began: Nanos) {
        self.took_ns = averaged(self.took_ns, now.since(began).0);
        if self.ended > Nanos(0) {
            self.apart_ns = averaged(self.apart_ns, now.since(self.ended).0);
        }
        self.ended = now;
    }

    /// Mean time of an epoch; zero before the first.
    pub fn took(&self) -> Nanos {
        Nanos(self.took_ns)
    }

    /// Epochs per second, lately.
    pub fn per_second(&self) -> u64 {
        SECOND.checked_div(self.apart_ns).unwrap_or(0)
    }
}

/// Writes per second that destaging would achieve if no epoch waited for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutOrder {
    /// Writes per second, none of them coalesced.
    pub writes_per_second: u64,
    /// Primary storage was never given as much as it can take: it may be faster.
    pub is_at_least: bool,
}

impl WithoutOrder {
    /// As far as is known; nothing where that is not clearly more than what is achieved with order.
    pub fn estimate(window: &DestageWindow) -> WithoutOrder {
        let (without, with) = (window.writes_per_second_while_busy(), window.writes_per_second());
        let is_worth_it = with > 0 && without >= with.saturating_mul(WORTH_PERCENT) / 100;
        WithoutOrder {
            writes_per_second: if is_worth_it { without } else { 0 },
            is_at_least: !window.has_found_the_knee(),
        }
    }
}

/// An exponential average; the first counts all.
fn averaged(mean: u64, newest: u64) -> u64 {
    if mean == 0 { newest } else { mean - mean / EPOCHS + newest / EPOCHS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_counted_and_timed() {
        let mut epochs = Epochs::default();
        assert_eq!((epochs.per_second(), epochs.took()), (0, Nanos(0)));
        for n in 1..100 {
            let end = Nanos::from_millis(5 * n);
            epochs.on_end(end, Nanos(end.0 - 4_000_000));
        }
        assert_eq!(epochs.per_second(), 200);
        assert_eq!(epochs.took(), Nanos::from_millis(4));
    }
}
