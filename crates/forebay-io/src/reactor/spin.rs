//! When to spin for completions before going to sleep.
//!
//! A sleep and a wake-up cost several microseconds. For completions that come within a few
//! microseconds it is cheaper to wait awake. But a spinning shard takes its CPU from the clients
//! that it waits for. So it spins only while that has lately paid: a running share of the waits
//! that ended within the window must be high. If spins are still in vain, because the client
//! cannot run meanwhile, the pauses between them grow. An idle reactor has only long waits, and
//! does not spin at all. With few CPUs spinning is off, as the clients are likely on the same
//! ones. It stays on where the reactor has a place to look at: that spares a guest the signal.

/// Nanoseconds that a spin lasts at most, and within which a wait must end to count as short.
pub const WINDOW_NS: u64 = 20_000;

/// The share of short waits is kept in this many parts.
const SCALE: u32 = 1 << 12;
/// Spins from this share on.
const SHARE_MIN: u32 = SCALE * 3 / 4;
/// Waits without a spin after one in vain: this many at first, twice as many after the next, …
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;
/// CPUs below which it does not pay to spin.
const CPUS_MIN: usize = 4;

/// The effect of spinning so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinStats {
    /// Waits that began with a spin.
    pub spins: u64,
    /// Spins that found something.
    pub hits: u64,
    /// Nanoseconds spent in spins, in vain or not.
    pub spent_ns: u64,
}

/// See the module. Pure: its input is how waits went, its output whether to spin in the next.
#[derive(Clone, Debug)]
pub(super) struct Spin {
    is_enabled: bool,
    /// The same, where there is a place to be looked at.
    looks: bool,
    short_share: u32,
    /// Waits that are still to pass without a spin.
    pause: u32,
    /// How long the next pause is.
    pause_next: u32,
    stats: SpinStats,
}

impl Spin {
    pub(super) fn new(cpus: usize) -> Spin {
        Spin {
            is_enabled: cpus >= CPUS_MIN,
            looks: cpus > 1,
            short_share: 0,
            pause: 0,
            pause_next: PAUSE_MIN,
            stats: SpinStats::default(),
        }
    }

    pub(super) fn enable(&mut self, is_enabled: bool) {
        (self.is_enabled, self.looks) = (is_enabled, is_enabled);
        self.short_share = 0;
    }

    /// Whether waits need to be timed at all. `looks`: there is a place to be looked at.
    pub(super) fn is_enabled(&self, looks: bool) -> bool {
        self.is_enabled || looks && self.looks
    }

    /// Nanoseconds that the next wait may spin.
    pub(super) fn budget_ns(&self, looks: bool) -> Option<u64> {
        let pays = self.is_enabled(looks) && self.pause == 0 && self.short_share >= SHARE_MIN;
        pays.then_some(WINDOW_NS)
    }

    /// A spin took `spent_ns`; whether it found something.
    pub(super) fn on_spin(&mut self, spent_ns: u64, has_found: bool) {
        self.stats.spins += 1;
        self.stats.spent_ns += spent_ns;
        if has_found {
            self.stats.hits += 1;
            self.pause_next = (self.pause_next - self.pause_next / 8).max(PAUSE_MIN);
            self.on_wait(spent_ns);
        } else {
            self.pause = self.pause_next;
            self.pause_next = (self.pause_next * 2).min(PAUSE_MAX);
        }
    }

    /// A wait that did not spin, or whose spin was in vain, ended after `waited_ns`.
    pub(super) fn on_wait(&mut self, waited_ns: u64) {
        self.pause = self.pause.saturating_sub(1);
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
        assert_eq!(spin.budget_ns(false), None);
        waits(&mut spin, 100, 1_000_000);
        assert_eq!(spin.budget_ns(false), None);
    }

    #[test]
    fn it_spins_once_most_waits_are_short() {
        let mut spin = Spin::new(8);
        waits(&mut spin, 50, 5_000);
        assert_eq!(spin.budget_ns(false), Some(WINDOW_NS));
    }

    #[test]
    fn half_of_the_waits_being_short_is_not_enough() {
        let mut spin = Spin::new(8);
        for _ in 0..100 {
            spin.on_wait(5_000);
            spin.on_wait(50_000);
        }
        assert_eq!(spin.budget_ns(false), None);
    }

    #[test]
    fn spins_in_vain_become_rare_although_waits_are_short() {
        let mut spin = Spin::new(8);
        for _ in 0..10_000 {
            if spin.budget_ns(false).is_some() {
                spin.on_spin(WINDOW_NS, false);
            }
            spin.on_wait(5_000);
        }
        let stats = spin.stats();
        assert!((5..20).contains(&stats.spins), "{stats:?}");
        assert_eq!((stats.hits, stats.spent_ns), (0, stats.spins * WINDOW_NS));
    }

    #[test]
    fn spins_that_find_something_keep_it_going() {
        let mut spin = Spin::new(8);
        waits(&mut spin, 100, 5_000);
        for _ in 0..100 {
            assert!(spin.budget_ns(false).is_some());
            spin.on_spin(3_000, true);
        }
        assert_eq!(spin.stats().hits, 100);
    }

    #[test]
    fn few_cpus_turn_it_off_unless_it_is_asked_for() {
        let mut spin = Spin::new(2);
        waits(&mut spin, 100, 5_000);
        assert_eq!(spin.budget_ns(false), None);
        assert!(spin.budget_ns(true).is_some(), "where there is something to be looked at");
        assert_eq!(Spin::new(1).budget_ns(true), None);
        spin.enable(true);
        waits(&mut spin, 100, 5_000);
        assert!(spin.budget_ns(false).is_some());
    }
}
