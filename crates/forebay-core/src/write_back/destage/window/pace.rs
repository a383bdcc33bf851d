//! A rate as spacing between starts (the generic cell rate algorithm: a token bucket that needs no
//! refilling, only the time at which it would be full again).

use crate::ids::Nanos;

const SECOND: u128 = 1_000_000_000;

/// A rate in units per second; the unit is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    per_second: u64,
    /// Work that may be started at once after a pause.
    burst: Nanos,
    /// When all that was started has been paid for.
    paid_at: Nanos,
}

impl Pace {
    pub(super) fn new(per_second: u64, burst: Nanos) -> Pace {
        Pace { per_second: per_second.max(1), burst, paid_at: Nanos(0) }
    }

    pub(super) fn per_second(&self) -> u64 {
        self.per_second
    }

    pub(super) fn change(&mut self, now: Nanos, per_second: u64) {
        let per_second = per_second.max(1);
        let debt = u128::from(self.paid_at.since(now).0);
        let debt = debt * u128::from(self.per_second) / u128::from(per_second);
        self.paid_at = now.plus(Nanos(u64::try_from(debt).unwrap_or(u64::MAX)));
        self.per_second = per_second;
    }

    pub(super) fn allow_burst(&mut self, burst: Nanos) {
        self.burst = burst;
    }

    pub(super) fn next(&self) -> Nanos {
        Nanos(self.paid_at.0.saturating_sub(self.burst.0))
    }

    /// True when starts come as fast as the rate allows.
    pub(super) fn is_binding(&self, now: Nanos) -> bool {
        self.paid_at > now
    }

    /// The time between two starts of so many units.
    pub(super) fn cost(&self, units: u64) -> Nanos {
        let cost = u128::from(units) * SECOND / u128::from(self.per_second);
        Nanos(u64::try_from(cost).unwrap_or(u64::MAX))
    }

    pub(super) fn on_start(&mut self, now: Nanos, units: u64) {
        self.paid_at = self.paid_at.max(now).plus(self.cost(units));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_holds_its_rate_and_allows_one_burst() {
        let mut pace = Pace::new(1000, Nanos::from_millis(10));
        let mut started = Vec::new();
        let mut now = Nanos(0);
        while now < Nanos::from_millis(1000) {
            now = now.max(pace.next());
            pace.on_start(now, 1);
            started.push(now);
        }
        assert_eq!(started.iter().filter(|at| at.0 == 0).count(), 11);
        assert!((1000..=1012).contains(&started.len()), "{}", started.len());
    }

    #[test]
    fn a_change_of_rate_converts_the_debt() {
        let mut pace = Pace::new(10, Nanos(0));
        pace.on_start(Nanos(0), 10);
        assert_eq!(pace.next(), Nanos::from_millis(1000));
        pace.change(Nanos(0), 100);
        assert_eq!(pace.next(), Nanos::from_millis(100));
        assert!(pace.is_binding(Nanos(0)) && !pace.is_binding(Nanos::from_millis(100)));
    }
}
