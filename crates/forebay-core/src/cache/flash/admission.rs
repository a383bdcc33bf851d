//! Which blocks go to flash.
//!
//! ```text
//!  a new block:
//!   destaged?     ── seen before ─► yes                    otherwise: remembered, refused
//!   history only? ── seen before, or free slots ─► yes     otherwise: remembered, refused
//!   budget?       ── more than half of the credit ► yes     some credit: as by history     none: remembered, refused
//!   neither       ─► yes: the policy decides which block leaves for it
//!  more of a block that has a place there:
//!   budget?       ── some credit ─► yes                     none: refused, it keeps its place
//! ```
//! A refusal has to be earned. The policy of the tier gives up again soon what is not used, so a block that nobody
//! comes back for pushes out nothing of value; what it costs is wear. So a block is refused only where the user asked
//! for less wear: by a budget, or by admission of what comes back alone.
//!
//! **The budget** is a rate. Credit grows with time up to [`CREDIT_SECONDS`] of it, and everything written to the disk's
//! flash is paid from it: fills, the write log, the ring. What the log writes cannot be refused, so credit may be
//! negative; then no fill begins until it is not.
//!
//! Another rate finds the credit of the one before, and a budget where there was none begins without credit: a change
//! gives nothing.
//!
//! Limits: the credit is not kept over a restart. Each start may write [`CREDIT_SECONDS`] of the budget more.

use crate::config::{Config, FlashAdmission};
use crate::ids::Nanos;
use crate::stats::Counters;

/// Credit is at most what the budget allows in this time.
const CREDIT_SECONDS: u64 = 3600;
const DAY_NS: i128 = 86_400 * 1_000_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Admission {
    by_history: bool,
    budget: Option<Budget>,
}

/// A block that is not on flash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// It was used again, or was here before.
    pub has_history: bool,
    /// No block has to leave for it.
    pub has_free_slot: bool,
    /// The destager offers it: all that is ever written passes there, most of it to be read by nobody.
    pub was_destaged: bool,
}

/// Bytes that may be written.
#[derive(Debug)]
struct Budget {
    bytes_per_day: i128,
    /// Bytes times [`DAY_NS`].
    credit: i128,
    /// Up to when credit was given, and for how many bytes it was taken.
    settled: (Nanos, u64),
}

impl Admission {
    pub(super) fn new(config: &Config) -> Admission {
        let budget = config.flash_bytes_per_day.map(|bytes_per_day| {
            let bytes_per_day = i128::from(bytes_per_day);
            Budget { bytes_per_day, credit: credit_max(bytes_per_day), settled: (Nanos(0), 0) }
        });
        Admission { by_history: config.flash_admission == FlashAdmission::History, budget }
    }

    /// Goes on as `config` says.
    pub(super) fn tune(&mut self, config: &Config, now: Nanos, counters: &Counters) {
        self.by_history = config.flash_admission == FlashAdmission::History;
        let settled = (now, written(counters));
        self.budget = config.flash_bytes_per_day.map(|bytes_per_day| {
            let bytes_per_day = i128::from(bytes_per_day);
            match self.budget.take() {
                Some(budget) => budget.changed(settled, bytes_per_day),
                None => Budget { bytes_per_day, credit: 0, settled },
            }
        });
    }

    /// Whether more of a block that has a place on flash goes there.
    pub(super) fn has_credit(&mut self, now: Nanos, counters: &Counters) -> bool {
        self.budget.as_mut().is_none_or(|budget| budget.settle(now, written(counters)) > 0)
    }

    /// Whether a block that is not on flash goes there.
    pub(super) fn admits(&mut self, now: Nanos, counters: &Counters, block: Candidate) -> bool {
        // Destaged blocks take no free slots either: reads that hit in flash began to miss then.
        let by_history = block.has_history || block.has_free_slot && !block.was_destaged;
        let needs_history = self.by_history || block.was_destaged;
        match &mut self.budget {
            None => by_history || !needs_history,
            Some(budget) => {
                let credit = budget.settle(now, written(counters));
                let is_plenty = credit * 2 >= credit_max(budget.bytes_per_day);
                credit > 0 && (by_history || is_plenty && !needs_history)
            }
        }
    }
}

impl Budget {
    /// The same credit, at another rate from now on.
    fn changed(mut self, (now, written): (Nanos, u64), bytes_per_day: i128) -> Budget {
        if bytes_per_day != self.bytes_per_day {
            self.settle(now, written);
            self.bytes_per_day = bytes_per_day;
            self.credit = self.credit.min(credit_max(bytes_per_day));
        }
        self
    }

    /// The credit by now, in bytes times [`DAY_NS`].
    fn settle(&mut self, now: Nanos, written: u64) -> i128 {
        let (then, before) = self.settled;
        let earned = i128::from(now.since(then).0) * self.bytes_per_day;
        self.credit = (self.credit + earned).min(credit_max(self.bytes_per_day));
        self.credit -= i128::from(written - before) * DAY_NS;
        self.settled = (now, written);
        self.credit
    }
}

fn credit_max(bytes_per_day: i128) -> i128 {
    bytes_per_day * i128::from(CREDIT_SECONDS) * 1_000_000_000
}

/// Bytes written to the disk's flash.
fn written(counters: &Counters) -> u64 {
    let log = counters.log_write_bytes + counters.note_write_bytes;
    counters.flash_write_bytes + counters.ring_write_bytes + log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BackendTraits;

    const GIB: u64 = 1 << 30;

    fn config(flash_admission: FlashAdmission, bytes_per_day: Option<u64>) -> Config {
        let backend = BackendTraits {
            size: GIB,
            logical_block: 512,
            read_only: false,
            discard: false,
            write_zeroes: false,
            extents: false,
        };
        let flash_bytes_per_day = bytes_per_day;
        Config { flash_admission, flash_bytes_per_day, ..Config::for_disk(backend) }
    }

    fn admission(flash_admission: FlashAdmission, bytes_per_day: Option<u64>) -> Admission {
        Admission::new(&config(flash_admission, bytes_per_day))
    }

    /// Bytes of credit after a change of the budget, at this second, with so many bytes written.
    fn tuned(admission: &mut Admission, second: u64, bytes: u64, per_day: u64) -> Option<i128> {
        let now = Nanos::from_millis(second * 1000);
        let config = config(FlashAdmission::Always, (per_day > 0).then_some(per_day));
        admission.tune(&config, now, &written(bytes));
        admission.budget.as_ref().map(|budget| budget.credit / DAY_NS)
    }

    #[test]
    fn a_change_of_the_budget_gives_no_credit() {
        // One GiB an hour, of which a quarter is left, then twice as much.
        let gib = i128::from(GIB);
        let mut admission = admission(FlashAdmission::Always, Some(24 * GIB));
        assert_eq!(tuned(&mut admission, 0, GIB * 3 / 4, 48 * GIB), Some(gib / 4));
        // An hour at that rate fills it; half a GiB an hour has room for half a GiB.
        assert_eq!(tuned(&mut admission, 3600, GIB * 3 / 4, 12 * GIB), Some(gib / 2));
        // The same again changes nothing.
        assert_eq!(tuned(&mut admission, 7200, GIB * 3 / 4, 12 * GIB), Some(gib / 2));
        // A debt stays one.
        assert_eq!(tuned(&mut admission, 7200, GIB * 9 / 4, 96 * GIB), Some(-gib));
        // None, and one again: what was written meanwhile is not charged, and nothing is given.
        assert_eq!(tuned(&mut admission, 7200, GIB * 9 / 4, 0), None);
        assert!(admission.admits(Nanos(0), &written(GIB * 5), candidate(false, false)));
        assert_eq!(tuned(&mut admission, 9000, GIB * 8, 24 * GIB), Some(0));
        let (now, written) = (Nanos::from_millis(9_000_000), written(GIB * 8));
        assert!(!admission.admits(now, &written, candidate(true, true)));
        let later = Nanos::from_millis(9_060_000);
        assert!(admission.admits(later, &written, candidate(true, true)));
    }

    #[test]
    fn admission_by_history_can_be_turned_on_and_off() {
        let mut admission = admission(FlashAdmission::Always, None);
        let (now, counters) = (Nanos(0), Counters::default());
        admission.tune(&config(FlashAdmission::History, None), now, &counters);
        assert!(!admission.admits(now, &counters, candidate(false, false)));
        admission.tune(&config(FlashAdmission::Always, None), now, &counters);
        assert!(admission.admits(now, &counters, candidate(false, false)));
    }

    fn written(bytes: u64) -> Counters {
        Counters { flash_write_bytes: bytes, ..Counters::default() }
    }

    fn candidate(has_history: bool, has_free_slot: bool) -> Candidate {
        Candidate { has_history, has_free_slot, was_destaged: false }
    }

    #[test]
    fn without_a_budget_everything_is_admitted() {
        let mut admission = admission(FlashAdmission::Always, None);
        assert!(admission.admits(Nanos(0), &written(u64::MAX), candidate(false, false)));
    }

    #[test]
    fn what_is_destaged_is_admitted_when_it_comes_back() {
        let mut admission = admission(FlashAdmission::Always, None);
        let mut admits = |has_history, has_free_slot| {
            let block = Candidate { has_history, has_free_slot, was_destaged: true };
            admission.admits(Nanos(0), &Counters::default(), block)
        };
        assert!(admits(true, false));
        assert_eq!([admits(false, true), admits(false, false)], [false, false]);
    }

    #[test]
    fn by_history_a_new_block_takes_a_free_slot_but_pushes_nothing_out() {
        let mut admission = admission(FlashAdmission::History, None);
        let mut admits = |has_history, has_free_slot| {
            let block = candidate(has_history, has_free_slot);
            admission.admits(Nanos(0), &Counters::default(), block)
        };
        assert_eq!([admits(false, true), admits(true, false)], [true, true]);
        assert!(!admits(false, false));
    }

    #[test]
    fn a_budget_admits_what_comes_back_when_it_runs_short_and_nothing_when_it_is_spent() {
        // One GiB an hour.
        let mut admission = admission(FlashAdmission::Always, Some(24 * GIB));
        let mut admits = |seconds: u64, bytes, has_history| {
            let now = Nanos::from_millis(seconds * 1000);
            admission.admits(now, &written(bytes), candidate(has_history, false))
        };
        assert!(admits(0, GIB / 4, false));
        assert_eq!([admits(0, GIB * 3 / 4, false), admits(0, GIB * 3 / 4, true)], [false, true]);
        assert_eq!([admits(0, GIB, false), admits(0, GIB, true)], [false, false]);
        assert!(admits(60, GIB, true), "a minute gives credit again");
        assert!(admits(3600, GIB, false));
    }

    #[test]
    fn no_more_than_the_budget_is_written_in_the_long_run() {
        let mut admission = admission(FlashAdmission::Always, Some(24 * GIB));
        let mut bytes = 0;
        for second in 0..24 * 3600 {
            let now = Nanos::from_millis(second * 1000);
            for _ in 0..16 {
                if admission.admits(now, &written(bytes), candidate(true, true)) {
                    bytes += 1 << 20;
                }
            }
        }
        assert!((24 * GIB..25 * GIB + (1 << 20)).contains(&bytes), "{bytes}");
    }
}
