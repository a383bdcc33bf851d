//! The time that the disks and clients of a shard are told.
//!
//! A process may be stopped: by a debugger, by a freezer, by a host that has no CPU for it. What it asked of the kernel may be
//! done by then, or is done soon after, because the kernel's helpers are stopped with it. To time that at once would call a
//! device dead that is not.
//!
//! So a wait that took much longer than the shard asked for counts as one that ended a moment before that: the ends of I/O come
//! in first, and what has none after that moment is late. The rest of the wait is no time for the shard, now and
//! later. Each further one in a row counts as that moment at least, so that time goes on where every turn is slow.

use std::time::Duration;

use forebay_core::ids::Nanos;

/// Who is so late was stopped. On a host that has no CPU for a moment it may cost a timer [`GRACE`], and nothing else.
const LATE: Nanos = Nanos::from_millis(100);
/// The moment.
const GRACE: Nanos = Nanos::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(crate) struct ShardTime {
    told: Nanos,
    /// When the wait was to end at the latest.
    due: Nanos,
    /// By so much it is later by the clock.
    skipped: Nanos,
    was_late: bool,
}

impl ShardTime {
    pub(crate) fn new(clock: Nanos) -> ShardTime {
        ShardTime { told: clock, due: Nanos::NEVER, skipped: Nanos(0), was_late: false }
    }

    /// What time it is by now, in a turn. A stop within it counts as little.
    pub(crate) fn now(&self, clock: Nanos) -> Nanos {
        self.by(clock).min(self.told.plus(LATE))
    }

    fn by(&self, clock: Nanos) -> Nanos {
        clock.since(self.skipped)
    }

    /// How long the shard may wait, when there is something to do at `deadline`; `None`: for ever.
    pub(crate) fn wait(&mut self, clock: Nanos, deadline: Nanos) -> Option<Duration> {
        self.due = deadline.max(self.told);
        let left = deadline.since(self.by(clock));
        (deadline != Nanos::NEVER).then(|| Duration::from_nanos(left.0))
    }

    /// The shard has waited: what time it is, for all that it does until it waits again.
    pub(crate) fn waited(&mut self, clock: Nanos) -> Nanos {
        let now = self.by(clock);
        let is_late = now.since(self.due) > LATE;
        let counted = match (is_late, self.was_late) {
            (true, false) => self.due.since(GRACE).max(self.told),
            (true, true) => self.due.since(GRACE).max(self.told.plus(GRACE)),
            (false, _) => now,
        };
        self.told = counted.min(now);
        self.skipped = self.skipped.plus(now.since(self.told));
        self.was_late = is_late;
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn asked(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn time_is_the_clock_for_who_wakes_when_it_asked_to_or_asked_for_no_end() {
        let mut time = ShardTime::new(at(100));
        assert_eq!(time.wait(at(101), at(5_100)), asked(4_999));
        assert_eq!(time.waited(at(150)), at(150));
        assert_eq!(time.wait(at(150), at(5_150)), asked(5_000));
        assert_eq!(time.waited(at(5_250)), at(5_250), "late by less than a stop");
        assert_eq!(time.wait(at(5_250), Nanos::NEVER), None);
        assert_eq!(time.waited(at(99_000)), at(99_000));
        assert_eq!(time.wait(at(99_001), at(98_000)), asked(0), "what is due is due");
    }

    #[test]
    fn a_stop_leaves_what_was_due_within_it_a_moment_and_is_no_time_for_what_begins_then() {
        let mut time = ShardTime::new(at(100));
        assert_eq!(time.wait(at(100), at(5_100)), asked(5_000));
        assert_eq!(time.waited(at(60_100)), at(4_600));
        assert_eq!(time.now(at(60_101)), at(4_601));
        assert_eq!(time.wait(at(60_110), at(5_100)), asked(490), "what was due");
        assert_eq!(time.waited(at(60_600)), at(5_100), "and is late now");
        assert_eq!(time.wait(at(60_600), at(9_600)), asked(4_500), "what began at 4.6 s");
    }

    #[test]
    fn a_stop_during_the_turn_counts_as_one_while_waiting() {
        let mut time = ShardTime::new(at(100));
        assert_eq!(time.wait(at(7_000), at(5_100)), asked(0));
        assert_eq!(time.waited(at(7_000)), at(4_600));
    }

    #[test]
    fn a_stop_is_no_time_for_what_is_sent_after_it() {
        let mut time = ShardTime::new(at(100));
        time.wait(at(100), Nanos::NEVER);
        time.waited(at(150));
        assert_eq!(time.now(at(170)), at(170));
        assert_eq!(time.now(at(60_150)), at(250));
        time.wait(at(60_151), at(0));
        assert_eq!(time.waited(at(60_160)), at(150));
    }

    #[test]
    fn a_host_that_wakes_the_shard_late_each_time_takes_little_of_its_time() {
        let mut time = ShardTime::new(at(0));
        time.wait(at(0), at(10_000));
        assert_eq!(time.waited(at(10_200)), at(9_500));
        time.wait(at(10_200), at(10_000));
        assert_eq!(time.waited(at(10_900)), at(10_000));
        time.wait(at(10_900), at(20_000));
        assert_eq!(time.waited(at(21_100)), at(19_500));
    }

    #[test]
    fn time_never_goes_back_and_goes_on_however_late_each_turn_is() {
        let mut time = ShardTime::new(at(0));
        let mut last = at(0);
        for turn in 1..=100 {
            time.wait(at(turn * 2_000 - 1_000), at(0));
            let now = time.waited(at(turn * 2_000));
            assert!(now >= last);
            last = now;
        }
        assert_eq!(last, at(99 * 500), "all but the first");
    }
}
