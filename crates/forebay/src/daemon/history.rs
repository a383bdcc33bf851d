//! What each disk did in each minute of the last hours, and where its time went.
//!
//! ```text
//!   every minute: figures of all disks ─► what came since the last ones ─► a ring for each disk ─► GET …/history
//! ```
//! A minute without requests is not kept, so that an idle disk costs nothing. The ring is of this run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use forebay_core::stats::Statistics;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::api::Minute;
use super::control::ControlState;

/// Minutes with requests that are kept of a disk.
const MINUTES_MAX: usize = 240;
const MINUTE: Duration = Duration::from_secs(60);

/// The past of one disk.
#[derive(Debug, Default)]
pub(super) struct History {
    /// What it counted when it was looked at last, and when that was.
    last: Option<(SystemTime, Statistics)>,
    minutes: VecDeque<Minute>,
}

impl History {
    /// The disk is so `now`.
    fn note(&mut self, now: SystemTime, statistics: Statistics) {
        if let Some((since, before)) = self.last.replace((now, statistics.clone())) {
            let minute = between((since, &before), (now, &statistics));
            if minute.reads + minute.writes > 0 {
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
    }

    fn minutes(&self) -> Vec<Minute> {
        self.minutes.iter().cloned().collect()
    }
}

fn between(before: (SystemTime, &Statistics), now: (SystemTime, &Statistics)) -> Minute {
    let ((since, b), (until, n)) = (before, now);
    let less = |now: u64, before: u64| now.saturating_sub(before);
    Minute {
        end_ms: until.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        length_ms: until.duration_since(since).unwrap_or_default().as_millis() as u64,
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
            if let Some(figures) = &known.figures {
                let statistics =
                    Statistics { slowest: Vec::new(), ..figures.status.engine.clone() };
                known.disk.history().note(SystemTime::now(), statistics);
            }
        }
    }
}

/// The minutes of a disk, oldest first.
pub(super) async fn history(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    match state.find(&name) {
        Ok(disk) => Json(disk.history().minutes()).into_response(),
        Err(refusal) => *refusal,
    }
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
        let mut now = Statistics::default();
        now.counters.reads = 1000;
        now.time.read.primary_ns = 5_000_000;
        history.note(at(10), now.clone());
        assert_eq!(history.minutes(), []);
        now.counters.reads += 60;
        now.counters.read_hits_ram += 45;
        now.time.read.primary_ns += 750;
        now.misses.evicted += 15;
        history.note(at(11), now.clone());
        history.note(at(12), now.clone());
        let minutes = history.minutes();
        let [minute] = &minutes[..] else { panic!("{minutes:?}") };
        assert_eq!((minute.end_ms, minute.length_ms), (11 * 60_000, 60_000));
        assert_eq!((minute.reads, minute.read_hits, minute.misses.evicted), (60, 45, 15));
        assert_eq!(minute.read_time.primary_ns, 750);
    }

    #[test]
    fn hours_are_kept_and_no_more() {
        let mut history = History::default();
        let mut now = Statistics::default();
        for minute in 0..=300 {
            now.counters.writes += 1;
            history.note(at(minute), now.clone());
        }
        let minutes = history.minutes();
        assert_eq!((minutes.len(), minutes[0].end_ms), (MINUTES_MAX, 61 * 60_000));
    }
}
