//! When to spin for completions before going to sleep.
//!
//! A sleep and a wake-up cost several microseconds; completions that come within a few microseconds are
//! cheaper waited for awake. But a spinning shard takes its CPU from the clients that it waits for, so it
//! spins only while that has lately paid: a running share of the waits that ended within the window must
//! be high, a spin in vain lowers it steeply, and waits that slept keep feeding it. An idle reactor has
//! only long waits and does not spin at all. With few CPUs it is off, as the clients are likely on the same ones.

/// Nanoseconds that a spin lasts at most, and within which a wait must end to count as short.
pub const WINDOW_NS: u64 = 20_000;

/// The share of short waits is kept in this many parts.
const SCALE: u32 = 1 << 12;
/// Spins from this share on.
const SHARE_MIN: u32 = SCALE * 3 / 4;
/// CPUs below which it does not pay to spin.
const CPUS_MIN: usize = 4;

/// What spinning has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinStats {
    /// Waits that began with a spin.
    pub spins: u64,
    /// Spins that found something.
    pub hits: u64,
    /// Nanoseconds spent in spins, in vain or not.
    pub spent_ns: u64,
}

/// See the module. Pure: it is told how waits went, and answers whether to spin in the next.
#[derive(Clone, Debug)]
pub(super) struct Spin {
    is_enabled: bool,
    short_share: u32,
    stats: SpinStats,
}

impl Spin {
    pub(super) fn new(cpus: usize) -> Spin {
        Spin { is_enabled: cpus >= CPUS_MIN, short_share: 0, stats: SpinStats::default() }
    }

    pub(super) fn enable(&mut self, is_enabled: bool) {
        self.is_enabled = is_enabled;
        self.short_share = 0;
    }

    /// Whether waits need to be timed at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Nanoseconds that the next wait may spin.
    pub(super) fn budget_ns(&self) -> Option<u64> {
        (self.is_enabled && self.short_share >= SHARE_MIN).then_some(WINDOW_NS)
    }

    /// A spin took `spent_ns`; whether it found something.
    pub(super) fn on_spin(&mut self, spent_ns: u64, has_found: bool) {
        self.stats.spins += 1;
        self.stats.spent_ns += spent_ns;
        if has_found {
            self.stats.hits += 1;
            self.on_wait(spent_ns);
        } else {
            self.short_share -= self.short_share / 4;
        }
    }

    /// A wait that did not spin ended after `waited_ns`.
    pub(super) fn on_wait(&mut self, waited_ns: u64) {
        self.short_share -= self.short_share / 16;
        if waited_ns <= WINDOW_NS {
            self.short_share += SCALE / 16;
        }
    }

    pub(super) fn stats(&self) -> SpinStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::{Spin, WINDOW_NS};

    fn waits(spin: &mut Spin, times: usize, waited_ns: u64) {
        for _ in 0..times {
            spin.on_wait(waited_ns);
        }
    }

    #[test]
    fn it_does_not_spin_at_first_nor_when_idle() {
        let mut spin = Spin::new(8);
        assert_eq!(spin.budget_ns(), None);
        waits(&mut spin, 100, 1_000_000);
        assert_eq!(spin.budget_ns(), None);
    }

    #[test]
    fn it_spins_once_most_waits_are_short() {
        let mut spin = Spin::new(8);
        waits(&mut spin, 50, 5_000);
        assert_eq!(spin.budget_ns(), Some(WINDOW_NS));
    }

    #[test]
    fn half_of_the_waits_being_short_is_not_enough() {
        let mut spin = Spin::new(8);
        for _ in 0..100 {
            spin.on_wait(5_000);
            spin.on_wait(50_000);
        }
        assert_eq!(spin.budget_ns(), None);
    }

    #[test]
    fn two_spins_in_vain_end_it() {
        let mut spin = Spin::new(8);
        waits(&mut spin, 100, 5_000);
        spin.on_spin(WINDOW_NS, false);
        spin.on_spin(WINDOW_NS, false);
        assert_eq!(spin.budget_ns(), None);
        assert_eq!((spin.stats().spins, spin.stats().hits), (2, 0));
        assert_eq!(spin.stats().spent_ns, 2 * WINDOW_NS);
    }

    #[test]
    fn spins_that_find_something_keep_it_going() {
        let mut spin = Spin::new(8);
        waits(&mut spin, 100, 5_000);
        for _ in 0..100 {
            assert!(spin.budget_ns().is_some());
            spin.on_spin(3_000, true);
        }
        assert_eq!(spin.stats().hits, 100);
    }

    #[test]
    fn few_cpus_turn_it_off_unless_it_is_asked_for() {
        let mut spin = Spin::new(2);
        waits(&mut spin, 100, 5_000);
        assert_eq!(spin.budget_ns(), None);
        spin.enable(true);
        waits(&mut spin, 100, 5_000);
        assert!(spin.budget_ns().is_some());
    }
}
