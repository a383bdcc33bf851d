//! How far destaging is, for those who wait for it: a bar on a terminal, else a line every [`SAY_EVERY`].
//!
//! Measured by the sequence of the log's records: what is written meanwhile moves neither the goal nor what is done. The end is a
//! flush of primary storage, which comes after the last write.
//! Primary storage that takes nothing is shown as that, with the reason, not as a rate of zero.

use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use forebay_backends::size::rounded;
use forebay_core::stats::{DestageLimit, LogStatistics};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::daemon::api::{DiskStats, PrimaryState};
use crate::messages;

/// Time between two lines where there is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Destaging that got nothing done for so long is said to stand still.
const STANDS_STILL: Duration = Duration::from_secs(3);
const MOVES: &str = "{bar:30} {pos}/{len} writes, {per_sec}, {eta} left ({msg})";
const STANDS: &str = "{bar:30} {pos}/{len} writes ({msg})";

/// See the module.
pub(super) struct Progress {
    disk: String,
    /// The last record at the start, and the last on primary storage then and now, flushed or not.
    goal: u64,
    first: u64,
    destaged: u64,
    began: Instant,
    /// Destage writes that were counted last and the last record that was flushed, and since when it is so.
    counted: (u64, u64),
    since: Instant,
    dirty_bytes: u64,
    reason: String,
    bar: ProgressBar,
    is_terminal: bool,
    said: Instant,
}

impl Progress {
    /// From what the disk is now; `json`: without a bar.
    pub(super) fn new(stats: &DiskStats, json: bool, now: Instant) -> Progress {
        let log = stats.engine.log.clone().unwrap_or_default();
        let is_terminal = std::io::stderr().is_terminal() && !json;
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let first = log.destaged_sequence.min(log.last_sequence);
        let len = log.last_sequence - first;
        let mut progress = Progress {
            disk: stats.name.clone(),
            goal: log.last_sequence,
            first,
            destaged: first,
            began: now,
            counted: (0, 0),
            since: now,
            dirty_bytes: log.dirty_bytes,
            reason: String::new(),
            bar: ProgressBar::with_draw_target(Some(len), target),
            is_terminal,
            said: now,
        };
        progress.note(stats, now);
        progress
    }

    /// Everything that was in the log at the start is on primary storage.
    pub(super) fn is_reached(&self, log: &LogStatistics) -> bool {
        log.is_clean || log.flushed_sequence >= self.goal
    }

    /// The disk is so now.
    pub(super) fn note(&mut self, stats: &DiskStats, now: Instant) {
        let log = stats.engine.log.as_ref();
        let flushed = log.map_or(0, |log| log.flushed_sequence);
        let counted = (stats.engine.counters.destage_writes, flushed);
        let destaged = log.map_or(0, |log| log.destaged_sequence);
        if counted != self.counted || destaged != self.destaged {
            (self.counted, self.destaged, self.since) = (counted, destaged, now);
        }
        self.dirty_bytes = log.map_or(0, |log| log.dirty_bytes);
        self.reason = match log.filter(|log| !log.is_clean) {
            Some(log) => messages::limit(log.limited_by).to_owned(),
            None if stats.primary_storage == PrimaryState::Connected => {
                messages::limit(DestageLimit::PrimaryFlush).to_owned()
            }
            None => format!("primary storage: {}", messages::primary_storage(stats)),
        };
        self.show(now);
    }

    fn show(&mut self, now: Instant) {
        if self.is_terminal {
            let style = if self.stands_still(now).is_some() { STANDS } else { MOVES };
            self.bar
                .set_style(ProgressStyle::with_template(style).expect("a template that is right"));
            self.bar.set_position(self.done());
            self.bar.set_message(self.why(now));
        } else if now.duration_since(self.said) >= SAY_EVERY {
            self.said = now;
            let _ = writeln!(std::io::stderr(), "{}", self.line(now));
        }
    }

    /// How far it is, in a line.
    pub(super) fn line(&self, now: Instant) -> String {
        let (all, done) = (self.goal - self.first, self.done());
        let dirty = rounded(self.dirty_bytes);
        let pace = match self.per_second(now) {
            Some(rate) if self.stands_still(now).is_none() => {
                let left = Duration::from_secs_f64((all - done) as f64 / rate);
                format!(" ({rate:.0}/s, {} left)", HumanDuration(left))
            }
            Some(_) | None => String::new(),
        };
        let (disk, why) = (&self.disk, self.why(now));
        format!("disk {disk}: {done} of {all} writes done{pace}, {dirty} dirty; {why}")
    }

    /// Writes that are done, of those that were in the log at the start.
    fn done(&self) -> u64 {
        self.destaged.min(self.goal).saturating_sub(self.first)
    }

    /// Of those, on the mean.
    fn per_second(&self, now: Instant) -> Option<f64> {
        let rate = self.done() as f64 / now.duration_since(self.began).as_secs_f64();
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// What limits it, and for how long nothing was done.
    fn why(&self, now: Instant) -> String {
        match self.stands_still(now) {
            Some(seconds) => format!("no progress for {seconds} s: {}", self.reason),
            None => format!("limited by {}", self.reason),
        }
    }

    fn stands_still(&self, now: Instant) -> Option<u64> {
        let still = now.duration_since(self.since);
        (still >= STANDS_STILL).then_some(still.as_secs())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(flushed: u64, last: u64, writes: u64) -> DiskStats {
        let mut stats = DiskStats { name: "db".into(), ..DiskStats::default() };
        stats.engine.counters.destage_writes = writes;
        stats.engine.log = Some(LogStatistics {
            flushed_sequence: flushed,
            destaged_sequence: flushed,
            last_sequence: last,
            dirty_bytes: (last - flushed) * 4096,
            limited_by: DestageLimit::PrimaryLost,
            ..LogStatistics::default()
        });
        stats
    }

    #[test]
    fn what_is_written_meanwhile_moves_neither_the_goal_nor_what_is_done() {
        let began = Instant::now();
        let mut progress = Progress::new(&stats(100, 300, 7), true, began);
        let later = stats(200, 5000, 8);
        progress.note(&later, began);
        let line = progress.line(began + Duration::from_secs(2));
        assert!(line.contains("100 of 200 writes done (50/s, 2 seconds left)"), "{line}");
        assert!(!progress.is_reached(later.engine.log.as_ref().expect("a log")));
        let later = stats(300, 9000, 9);
        assert!(progress.is_reached(later.engine.log.as_ref().expect("a log")));
    }

    #[test]
    fn what_stands_still_is_said_to_with_the_reason() {
        let began = Instant::now();
        let mut progress = Progress::new(&stats(100, 300, 7), true, began);
        let later = began + Duration::from_secs(12);
        progress.note(&stats(100, 400, 7), later);
        let expect = "no progress for 12 s: primary storage is lost";
        assert!(progress.line(later).ends_with(expect), "{}", progress.line(later));
        // Nor is a flush that begins once more.
        let mut again = stats(100, 400, 7);
        again.engine.counters.backend_flushes += 1;
        progress.note(&again, later);
        assert!(progress.line(later).ends_with(expect), "{}", progress.line(later));
        // A write that is done is progress, before any flush.
        progress.note(&stats(100, 400, 8), later);
        assert!(progress.line(later).ends_with("limited by primary storage is lost"));
    }
}
