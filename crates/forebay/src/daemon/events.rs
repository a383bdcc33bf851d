//! The event log: what an operator wants to know, in a ring that never grows.
//!
//! Shards report through a bounded channel without ever waiting; what does not fit is counted. A task
//! of the control plane numbers the events, logs them, and keeps the last [`KEPT`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

/// Events that are kept.
pub const KEPT: usize = 1000;
/// Events that may wait for the control plane.
const WAITING_MAX: usize = 256;
/// Time that anything waits for the log to take what was reported.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something works less well than it should.
    Warning,
    /// Something does not work.
    Error,
}

/// One line of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// Counts up from 1; a gap means that events were dropped from the log.
    pub number: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// The disk, where it is about one.
    pub disk: Option<String>,
    /// How much it matters.
    pub severity: Severity,
    /// What happened.
    pub text: String,
}

/// Reports events; cheap to clone, never waits.
#[derive(Clone, Debug)]
pub struct EventSender {
    sender: mpsc::Sender<EventLine>,
    sent: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

impl EventSender {
    /// A sender whose events a test reads.
    #[cfg(test)]
    pub(crate) fn for_test() -> (EventSender, mpsc::Receiver<EventLine>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (EventSender { sender, sent: Arc::default(), dropped: Arc::default() }, receiver)
    }

    /// Reports an event; when too many wait already it is only counted.
    pub fn report(&self, disk: Option<&str>, severity: Severity, text: String) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = EventLine {
            number: 0,
            time_ms: since_1970.as_millis() as u64,
            disk: disk.map(str::to_owned),
            severity,
            text,
        };
        let count = if self.sender.try_send(line).is_ok() { &self.sent } else { &self.dropped };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The kept events.
#[derive(Debug, Default)]
pub struct EventLog {
    ring: Mutex<(u64, VecDeque<EventLine>)>,
    /// Events that were logged.
    logged: watch::Sender<u64>,
}

impl EventLog {
    /// A log and the way to report to it, served by a task of the current runtime until every sender is gone.
    pub fn start() -> (Arc<EventLog>, EventSender) {
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let log = Arc::new(EventLog::default());
        let (kept, missed) = (log.clone(), dropped.clone());
        tokio::spawn(async move {
            while let Some(line) = receiver.recv().await {
                let gap = missed.swap(0, Ordering::Relaxed);
                kept.keep(line, gap);
            }
        });
        (log, EventSender { sender, sent: Arc::default(), dropped })
    }

    /// Waits until what was reported through `events` is logged: a second at most, since the log goes to somebody else's
    /// file or pipe.
    pub async fn settle(&self, events: &EventSender) {
        let sent = events.sent.load(Ordering::Relaxed);
        let mut logged = self.logged.subscribe();
        let _ = tokio::time::timeout(SETTLE_MAX, logged.wait_for(|logged| *logged >= sent)).await;
    }

    /// The kept events, oldest first; only those of `disk` when given.
    pub fn lines(&self, disk: Option<&str>) -> Vec<EventLine> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |line: &&EventLine| disk.is_none() || line.disk.as_deref() == disk;
        ring.1.iter().filter(wanted).cloned().collect()
    }

    /// Keeps a line, and only then logs it, which may take long.
    fn keep(&self, mut line: EventLine, gap: u64) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.0 += gap + 1;
        line.number = ring.0;
        if ring.1.len() == KEPT {
            ring.1.pop_front();
        }
        ring.1.push_back(line.clone());
        drop(ring);
        if gap > 0 {
            tracing::warn!("{gap} events were not recorded: too many at once");
        }
        let disk = line.disk.as_deref().unwrap_or("-");
        match line.severity {
            Severity::Info => tracing::info!(disk, "{}", line.text),
            Severity::Warning => tracing::warn!(disk, "{}", line.text),
            Severity::Error => tracing::error!(disk, "{}", line.text),
        }
        self.logged.send_modify(|logged| *logged += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> EventLine {
        EventLine {
            number: 0,
            time_ms: 0,
            disk: Some("db".into()),
            severity: Severity::Info,
            text: text.into(),
        }
    }

    #[test]
    fn the_log_keeps_the_last_events_and_numbers_them_all() {
        let log = EventLog::default();
        for i in 0..KEPT + 5 {
            log.keep(line(&i.to_string()), 0);
        }
        log.keep(line("after a gap"), 3);
        let lines = log.lines(Some("db"));
        assert_eq!(lines.len(), KEPT);
        assert_eq!(lines[0].text, "6");
        assert_eq!(lines[KEPT - 1].number, KEPT as u64 + 9);
        assert!(log.lines(Some("other")).is_empty());
    }

    #[tokio::test]
    async fn what_was_reported_is_logged_once_it_settled() {
        let (log, events) = EventLog::start();
        for round in 1..100 {
            events.report(None, Severity::Info, "x".into());
            log.settle(&events).await;
            assert_eq!(log.lines(None).len(), round);
        }
    }

    #[test]
    fn reporting_to_a_full_log_only_counts() {
        let (events, _receiver) = EventSender::for_test();
        for _ in 0..WAITING_MAX + 2 {
            events.report(None, Severity::Info, "x".into());
        }
        assert_eq!(events.dropped.load(Ordering::Relaxed), 2);
    }
}
