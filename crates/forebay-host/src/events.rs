//! The event log: what an operator wants to know, in a ring that never grows.
//!
//! Shards report through a bounded channel without ever waiting; what does not fit is counted. A task
//! of the control plane numbers the events and keeps the last [`KEPT`]; a thread writes them to standard error. If
//! whoever should read that does not, the thread alone waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something works less well than it should.
    Warning,
    /// Something does not work.
    Error,
}

/// What kind of event it is, for programs: a code keeps its meaning from version to version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventCode {
    /// The guest's requests did not fit the grid of cache blocks, and Forebay moved it.
    GridMoved,
    /// The guest's requests do not fit the grid of cache blocks, too late to move it.
    GridAdvice,
    /// The cache on flash was given up after errors of its device.
    FlashFailed,
    /// The index that keeps the cache on flash over a restart cannot be written.
    IndexFailed,
    /// The flash of a write log that had failed is dead. No later start will use the log.
    LogRevoked,
    /// The same, but Forebay cannot note beside primary storage that the log must not be used.
    LogNotRevoked,
    /// The destage journal could not be written, and is not used any more.
    JournalRevoked,
    /// The same, but Forebay cannot note beside primary storage that the journal must not be used.
    JournalNotRevoked,
    /// Forebay cannot note on flash that the index must not be used.
    IndexNotVoided,
    /// Flash failed a write of the cache.
    SlotQuarantined,
    /// Flash returned wrong bytes of the cache.
    ChecksumMismatch,
    /// Primary storage failed an I/O, and had not failed before. More failures only count.
    PrimaryFails,
    /// Primary storage works again after failures.
    PrimaryWorks,
    /// Primary storage did not answer within `backend-timeout`.
    PrimaryTimedOut,
    /// The flash of the write log failed.
    LogFailed,
    /// The write log returned wrong bytes, or none, that primary storage does not have.
    LogCorrupt,
    /// Destaging met an error that it had not met before.
    DestageFailed,
    /// Destaging was paused, and a change of mode needs it.
    DestagingResumed,
    /// The write log fills, and writers slow down.
    LogThrottles,
    /// The write log is full, and writers wait.
    LogFull,
    /// The write log has room again.
    LogHasRoom,
    /// The disk reached the mode that it was asked for.
    ModeChanged,
    /// Primary storage may have lost writes that it acknowledged and that nobody had flushed.
    UnflushedWritesAtRisk,
}

/// How much an event matters, and its code where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// How much it matters.
    pub severity: Severity,
    /// Its code.
    pub code: Option<EventCode>,
}

impl From<Severity> for EventKind {
    fn from(severity: Severity) -> EventKind {
        EventKind { severity, code: None }
    }
}

/// One line of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EventLine {
    /// Counts up from 1; a gap means that events were dropped from the log.
    pub number: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// The disk. Null: it is about the daemon.
    pub disk: Option<String>,
    /// How much it matters.
    pub severity: Severity,
    /// What kind of event it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<EventCode>,
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
    pub fn report(&self, disk: Option<&str>, kind: impl Into<EventKind>, text: String) {
        let EventKind { severity, code } = kind.into();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = EventLine {
            number: 0,
            time_ms: since_1970.as_millis() as u64,
            disk: disk.map(str::to_owned),
            severity,
            code,
            text,
        };
        let count = if self.sender.try_send(line).is_ok() { &self.sent } else { &self.dropped };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The kept events.
#[derive(Debug, Default)]
pub struct EventLog {
    ring: Mutex<Ring>,
    /// An event is kept, or there will be no more.
    kept: Condvar,
    /// Events that were kept and written since, or forgotten before that.
    logged: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Events that were kept, and the number of the last one.
    kept: u64,
    number: u64,
    lines: VecDeque<EventLine>,
    has_ended: bool,
}

impl EventLog {
    /// A log and the way to report to it, served by a task of the current runtime and a thread until every sender is gone.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start() -> std::io::Result<(Arc<EventLog>, EventSender)> {
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let log = Arc::new(EventLog::default());
        let (keeper, writer, missed) = (log.clone(), log.clone(), dropped.clone());
        let thread = std::thread::Builder::new().name("events".to_owned());
        thread.spawn(move || writer.write(log_line))?;
        tokio::spawn(async move {
            while let Some(line) = receiver.recv().await {
                let gap = missed.swap(0, Ordering::Relaxed);
                keeper.keep(line, gap);
            }
            keeper.ring().has_ended = true;
            keeper.kept.notify_all();
        });
        Ok((log, EventSender { sender, sent: Arc::default(), dropped }))
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
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
        let wanted = |line: &&EventLine| disk.is_none() || line.disk.as_deref() == disk;
        self.ring().lines.iter().filter(wanted).cloned().collect()
    }

    /// Keeps a line, before which `gap` were not recorded.
    fn keep(&self, mut line: EventLine, gap: u64) {
        let mut ring = self.ring();
        ring.kept += 1;
        ring.number += gap + 1;
        line.number = ring.number;
        if ring.lines.len() == KEPT {
            ring.lines.pop_front();
        }
        ring.lines.push_back(line);
        drop(ring);
        self.kept.notify_all();
    }

    /// Writes every line that is kept, as long as any may come, with how many are missing before it. That may take
    /// long, and lines may be forgotten meanwhile.
    fn write(&self, mut line: impl FnMut(&EventLine, u64)) {
        let mut last = 0;
        loop {
            let waits = |ring: &mut Ring| ring.number == last && !ring.has_ended;
            let ring = self.kept.wait_while(self.ring(), waits);
            let ring = ring.unwrap_or_else(PoisonError::into_inner);
            let Some(index) = ring.lines.iter().position(|line| line.number > last) else { return };
            let next = ring.lines[index].clone();
            let logged = ring.kept - (ring.lines.len() - index - 1) as u64;
            drop(ring);
            line(&next, next.number - last - 1);
            last = next.number;
            self.logged.send_replace(logged);
        }
    }
}

/// To standard error, for who watches.
fn log_line(line: &EventLine, missing: u64) {
    if missing > 0 {
        tracing::warn!("{missing} events were not logged: too many at once");
    }
    let disk = line.disk.as_ref().map_or(String::new(), |disk| format!("disk {disk}: "));
    match line.severity {
        Severity::Info => tracing::info!("{disk}{}", line.text),
        Severity::Warning => tracing::warn!("{disk}{}", line.text),
        Severity::Error => tracing::error!("{disk}{}", line.text),
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
            code: None,
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

    #[test]
    fn lines_are_written_in_their_order_and_what_was_forgotten_meanwhile_is_counted() {
        let log = EventLog::default();
        log.keep(line("first"), 0);
        log.keep(line("second"), 2);
        let mut written = Vec::new();
        log.write(|line, missing| {
            written.push((line.text.clone(), missing));
            match written.len() {
                1 => assert_eq!(*log.logged.borrow(), 0),
                // Whoever reads them pauses, and more come than are kept.
                2 => (0..KEPT + 5).for_each(|i| log.keep(self::line(&i.to_string()), 0)),
                3 => log.ring().has_ended = true,
                _ => {}
            }
        });
        assert_eq!(written.len(), KEPT + 2);
        let [first, second, third, .., last] = &written[..] else { panic!("more than four") };
        assert_eq!([first, second], [&("first".into(), 0), &("second".into(), 2)]);
        assert_eq!([third, last], [&("5".into(), 5), &((KEPT + 4).to_string(), 0)]);
        assert_eq!(*log.logged.borrow(), KEPT as u64 + 7, "nobody waits for what is forgotten");
    }

    #[tokio::test]
    async fn what_was_reported_is_logged_once_it_settled() {
        let (log, events) = EventLog::start().unwrap();
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
