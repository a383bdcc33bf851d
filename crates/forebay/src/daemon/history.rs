//! What each disk did in each minute of the last hours, and where its time went.
//!
//! ```text
//!   every minute: figures of all disks ─► what came since the last ones ─► a ring for each disk ─► GET …/history
//! ```
//! A minute in which no read or write succeeded, nothing failed and nothing waits is not kept, so that an idle disk costs
//! nothing. The ring is of this run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Path, State};
use forebay_core::stats::Statistics;
use forebay_shard::DiskStatus;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::api::Minute;
use super::control::{ControlState, Reply};

/// Minutes that are kept of a disk.
const MINUTES_MAX: usize = 240;
const MINUTE: Duration = Duration::from_secs(60);
const KEPT_MS: u64 = MINUTES_MAX as u64 * MINUTE.as_millis() as u64;

/// The past of one disk.
#[derive(Debug, Default)]
pub(super) struct History {
    /// What it counted when it was looked at last, and how long after it was opened that was.
    last: Option<(Duration, Statistics)>,
    minutes: VecDeque<Minute>,
}

impl History {
    /// The disk is so `now`, so long after it was opened: the clock may be set.
    fn note(&mut self, now: SystemTime, elapsed: Duration, status: &DiskStatus) {
        let statistics = Statistics { slowest: Vec::new(), ..status.engine.clone() };
        if let Some((since, before)) = self.last.replace((elapsed, statistics.clone())) {
            let minute = between(now, elapsed.saturating_sub(since), &before, &statistics);
            // In an outage nothing succeeds, and where clients are to wait nothing fails either. Those of a disk that is opened
            // again wait where the engine does not see them.
            let asked = minute.reads + minute.writes + minute.failed;
            let waiting = statistics.requests_in_flight + u64::from(status.connections_waiting);
            if asked + waiting > 0 {
                if self.minutes.len() == MINUTES_MAX {
                    self.minutes.pop_front();
                }
                self.minutes.push_back(minute);
            }
        }
    }

    /// Goes on from the past of the same disk before it was opened again: it counts from nothing now.
    pub(super) fn go_on_from(&mut self, before: &mut History) {
        self.minutes = std::mem::take(&mut before.minutes);
        self.last = Some((Duration::ZERO, Statistics::default()));
    }

    /// Those of the last hours, as of `now`.
    fn minutes(&self, now: SystemTime) -> Vec<Minute> {
        let is_recent = |it: &&Minute| since_1970(now).saturating_sub(it.end_ms) < KEPT_MS;
        self.minutes.iter().filter(is_recent).cloned().collect()
    }
}

fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn between(until: SystemTime, length: Duration, b: &Statistics, n: &Statistics) -> Minute {
    let less = |now: u64, before: u64| now.saturating_sub(before);
    Minute {
        end_ms: since_1970(until),
        length_ms: length.as_millis() as u64,
        reads: less(n.counters.reads, b.counters.reads),
        read_hits: less(n.counters.read_hits(), b.counters.read_hits()),
        writes: less(n.counters.writes, b.counters.writes),
        failed: less(n.counters.requests_failed, b.counters.requests_failed),
        read_time: n.time.read.since(&b.time.read),
        write_time: n.time.write.since(&b.time.write),
        misses: n.misses.since(&b.misses),
    }
}

/// Looks at every disk once a minute.
pub(super) async fn follow(state: Arc<ControlState>) {
    // The first look is what the first minute begins with.
    let mut minutes = interval_at(Instant::now(), MINUTE);
    minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        minutes.tick().await;
        for known in state.known_figures().await.iter().filter(|known| !known.is_silent) {
            if let Some((at, figures)) = &known.figures {
                let elapsed = known.disk.elapsed(*at);
                known.disk.history().note(SystemTime::now(), elapsed, &figures.status);
            }
        }
    }
}

/// The minutes of a disk, oldest first.
pub(super) async fn history(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<Vec<Minute>> {
    Ok(Json(state.find(&name)?.history().minutes(SystemTime::now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> SystemTime {
        UNIX_EPOCH + MINUTE * minutes as u32
    }

    #[test]
    fn a_minute_has_what_came_in_it_and_one_without_requests_is_left_out() {
        let mut history = History::default();
        let mut now = DiskStatus::default();
        now.engine.counters.reads = 1000;
        now.engine.time.read.primary_ns = 5_000_000;
        history.note(at(10), MINUTE * 7, &now);
        assert_eq!(history.minutes(at(10)), []);
        now.engine.counters.reads += 60;
        now.engine.counters.read_hits_ram += 45;
        now.engine.time.read.primary_ns += 750;
        now.engine.misses.evicted += 15;
        // Somebody has set the clock back.
        history.note(at(5), MINUTE * 8, &now);
        history.note(at(6), MINUTE * 9, &now);
        let minutes = history.minutes(at(6));
        let [minute] = &minutes[..] else { panic!("{minutes:?}") };
        assert_eq!((minute.end_ms, minute.length_ms), (5 * 60_000, 60_000));
        assert_eq!((minute.reads, minute.read_hits, minute.misses.evicted), (60, 45, 15));
        assert_eq!(minute.read_time.primary_ns, 750);
    }

    #[test]
    fn a_minute_of_an_outage_is_kept_whether_requests_fail_or_wait() {
        let mut history = History::default();
        let mut now = DiskStatus::default();
        now.engine.counters.requests_failed = 2;
        history.note(at(1), MINUTE, &now);
        now.engine.counters.requests_failed += 7;
        history.note(at(2), MINUTE * 2, &now);
        now.engine.requests_in_flight = 1;
        history.note(at(3), MINUTE * 3, &now);
        now.engine.requests_in_flight = 0;
        now.connections_waiting = 1;
        history.note(at(4), MINUTE * 4, &now);
        now.connections_waiting = 0;
        history.note(at(5), MINUTE * 5, &now);
        let minutes = history.minutes(at(5));
        let failed: Vec<_> = minutes.iter().map(|it| (it.end_ms, it.failed)).collect();
        assert_eq!(failed, [(2 * 60_000, 7), (3 * 60_000, 0), (4 * 60_000, 0)]);
    }

    #[test]
    fn hours_are_kept_and_no_more() {
        let mut history = History::default();
        let mut now = DiskStatus::default();
        for minute in 0..=300 {
            now.engine.counters.writes += 1;
            history.note(at(minute), MINUTE * minute as u32, &now);
        }
        let minutes = history.minutes(at(300));
        assert_eq!((minutes.len(), minutes[0].end_ms), (MINUTES_MAX, 61 * 60_000));
    }

    #[test]
    fn a_minute_of_yesterday_is_not_shown_as_one_of_the_last_hours() {
        let mut history = History::default();
        let mut now = DiskStatus::default();
        let day = 24 * 60;
        for minute in [0, 1, day, day + 1, day + 239] {
            now.engine.counters.writes += 1;
            history.note(at(minute), MINUTE * minute as u32, &now);
        }
        let ends = |minute| -> Vec<u64> {
            history.minutes(at(minute)).iter().map(|it| it.end_ms / 60_000).collect()
        };
        assert_eq!(ends(day + 239), [day, day + 1, day + 239]);
        assert_eq!(ends(day + 241), [day + 239], "no minute has to come for that");
    }

    #[test]
    fn a_disk_that_was_opened_again_goes_on_with_all_that_it_counts() {
        let (mut before, mut now) = (History::default(), DiskStatus::default());
        before.note(at(1), MINUTE, &now);
        now.engine.counters.reads = 10;
        before.note(at(2), MINUTE * 2, &now);
        let mut history = History::default();
        history.go_on_from(&mut before);
        now.engine.counters.reads = 4;
        history.note(at(3), MINUTE / 2, &now);
        let minutes = history.minutes(at(3));
        let told: Vec<_> = minutes.iter().map(|it| (it.reads, it.length_ms)).collect();
        assert_eq!(told, [(10, 60_000), (4, 30_000)]);
    }
}
