//! The event log: the last events, in a ring that never grows.
//!
//! **Repeated events.** A warning or an error that the same disk reports again within [`REPEATED_WITHIN`] in the same words is
//! counted with the first one. When it has not come for that long, or the daemon ends, one more event says how often it came.
//! Where the clock was set, back or forward, by more than that, what comes now is no repetition.
//! Events of severity info are an administrator's or a change of state: each stands for itself. So does what comes again after
//! one of the same disk: it was over. Of those, and of what a disk reports that is the same but for its figures, [`ALIKE_MAX`] are
//! kept within that time, and more are counted with the last one: a guest that makes errors at will leaves room for others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{EventCode, EventFile, EventKind, EventLine, EventSender, Severity, WAITING_MAX};
use crate::date::{now_ms, utc};

/// Events that are kept.
pub const KEPT: usize = 1000;
/// An event that comes again within this time is the same one.
pub const REPEATED_WITHIN: Duration = Duration::from_secs(60);
/// So many warnings or errors that are alike stand for themselves within that time.
pub(super) const ALIKE_MAX: usize = 5;
/// The same of losses of data, each of which has its range.
const LOSSES_MAX: usize = 100;
/// How the end of those that were repeated begins.
const END: &str = "this came ";
/// How often the log looks whether an event that was repeated has ended.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time that anything waits for the log to take what was reported.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// The kept events.
#[derive(Debug, Default)]
pub struct EventLog {
    ring: Mutex<Ring>,
    /// An event is kept, or there will be no more.
    kept: Condvar,
    /// How many were taken from those who reported them.
    taken: watch::Sender<u64>,
    /// The number of the last one that is on standard error.
    logged: watch::Sender<u64>,
    /// The number of the last one that is in the file.
    filed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the last event, and of the last one of another run.
    number: u64,
    number_before: u64,
    lines: VecDeque<EventLine>,
    /// The numbers of those that were repeated, and may be again, and whether with other figures.
    repeated: Vec<(u64, bool)>,
    has_ended: bool,
}

impl EventLog {
    /// A log and the way to report to it, served by a task of the current runtime and by threads until every sender is gone. A
    /// file has the events of earlier runs, and keeps those of this one.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(file: Option<EventFile>) -> std::io::Result<(Arc<EventLog>, EventSender)> {
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let log = Arc::new(EventLog::default());
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        match file {
            Some(mut file) => {
                log.recall(file.take_lines());
                let writer = log.clone();
                thread("event-file").spawn(move || {
                    writer.write(&writer.filed, |line, _| file.append(line));
                })?;
            }
            None => drop(log.filed.send_replace(u64::MAX)),
        }
        let writer = log.clone();
        thread("events").spawn(move || writer.write(&writer.logged, log_line))?;
        let (keeper, missed) = (log.clone(), dropped.clone());
        tokio::spawn(async move {
            let mut look = tokio::time::interval(LOOK_EVERY);
            loop {
                let line = tokio::select! {
                    line = receiver.recv() => line,
                    _ = look.tick() => {
                        keeper.end_repeated(now_ms(), REPEATED_WITHIN);
                        continue;
                    }
                };
                let Some(line) = line else { break };
                keeper.keep(line, missed.swap(0, Ordering::Relaxed));
                keeper.taken.send_modify(|taken| *taken += 1);
            }
            keeper.end_repeated(now_ms(), Duration::ZERO);
            keeper.end();
        });
        Ok((log, EventSender { sender, sent: Arc::default(), dropped }))
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what was reported through `events` is written: a second at most, since that goes to somebody else's file or
    /// pipe.
    pub async fn settle(&self, events: &EventSender) {
        let sent = events.sent.load(Ordering::Relaxed);
        let (mut taken, mut logged) = (self.taken.subscribe(), self.logged.subscribe());
        let mut filed = self.filed.subscribe();
        let settled = async {
            let _ = taken.wait_for(|taken| *taken >= sent).await;
            let last = self.ring().lines.back().map_or(0, |line| line.number);
            let _ = logged.wait_for(|number| *number >= last).await;
            let _ = filed.wait_for(|number| *number >= last).await;
        };
        let _ = tokio::time::timeout(SETTLE_MAX, settled).await;
    }

    /// The end of a run comes: what was repeated is told of.
    pub fn end_all_repeated(&self) {
        self.end_repeated(now_ms(), Duration::ZERO);
    }

    /// There will be no more. Whoever writes is told, as it may have written all.
    pub(super) fn end(&self) {
        self.ring().has_ended = true;
        self.kept.notify_all();
    }

    /// The kept events, oldest first; only those of `disk` when given.
    pub fn lines(&self, disk: Option<&str>) -> Vec<EventLine> {
        let wanted = |line: &&EventLine| disk.is_none() || line.disk.as_deref() == disk;
        self.ring().lines.iter().filter(wanted).cloned().collect()
    }

    /// The last events of earlier runs.
    fn recall(&self, mut lines: Vec<EventLine>) {
        let mut ring = self.ring();
        ring.number = lines.last().map_or(0, |line| line.number);
        ring.number_before = ring.number;
        ring.lines = lines.split_off(lines.len().saturating_sub(KEPT)).into();
        for written in [&self.logged, &self.filed] {
            written.send_replace(ring.number);
        }
    }

    /// Keeps a line, before which `gap` were not recorded, or counts it with the one that it repeats.
    pub(super) fn keep(&self, line: EventLine, gap: u64) {
        let mut ring = self.ring();
        ring.number += gap;
        if line.severity != Severity::Info && ring.has_counted(&line) {
            return;
        }
        ring.push(line);
        drop(ring);
        self.kept.notify_all();
    }

    /// Tells of those that were repeated, and have not come for so long.
    pub(super) fn end_repeated(&self, now_ms: u64, quiet: Duration) {
        let mut ring = self.ring();
        for line in ring.take_ended(now_ms, quiet) {
            ring.push(line);
        }
        drop(ring);
        self.kept.notify_all();
    }

    /// Writes every line of this run that is kept, as long as any may come, with how many are missing before it. That may
    /// take long, and lines may be forgotten meanwhile.
    pub(super) fn write(
        &self,
        written: &watch::Sender<u64>,
        mut line: impl FnMut(&EventLine, u64),
    ) {
        let mut last = self.ring().number_before;
        loop {
            // Numbers also go up where an event is missing.
            let is_written = |ring: &Ring| ring.lines.back().is_none_or(|line| line.number <= last);
            let waits = |ring: &mut Ring| is_written(ring) && !ring.has_ended;
            let ring = self.kept.wait_while(self.ring(), waits);
            let ring = ring.unwrap_or_else(PoisonError::into_inner);
            let Some(next) = ring.lines.iter().find(|line| line.number > last).cloned() else {
                return;
            };
            drop(ring);
            line(&next, next.number - last - 1);
            last = next.number;
            written.send_replace(last);
        }
    }
}

/// Whether two texts are the same but for their figures.
fn are_alike(one: &str, other: &str) -> bool {
    fn words(text: &str) -> impl Iterator<Item = &str> {
        let has_figure = |word: &str| word.contains(|letter: char| letter.is_ascii_digit());
        text.split(' ').map(move |word| if has_figure(word) { "" } else { word })
    }
    words(one).eq(words(other))
}

impl Ring {
    fn push(&mut self, mut line: EventLine) {
        self.number += 1;
        line.number = self.number;
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Counts a line with one that it repeats, if there is one.
    fn has_counted(&mut self, line: &EventLine) -> bool {
        let within = REPEATED_WITHIN.as_millis() as u64;
        // What one of these tells is told nowhere else, and there may be one for each read.
        let is_loss =
            matches!(line.code, Some(EventCode::LogCorrupt | EventCode::UnflushedWritesAtRisk));
        let has_figures = line.disk.is_some();
        let alike_max = if is_loss { LOSSES_MAX } else { ALIKE_MAX };
        let is_alike = |known: &EventLine| {
            line.time_ms.abs_diff(known.last()) < within
                && known.severity == line.severity
                && known.code == line.code
                && known.disk == line.disk
                && (known.text == line.text || has_figures && are_alike(&known.text, &line.text))
        };
        let first = self.lines.partition_point(|known| known.number <= self.number_before);
        let of_this_run = self.lines.range(first..);
        let same = of_this_run.clone().rposition(|it| is_alike(it) && it.text == line.text);
        let is_change = |known: &EventLine| {
            known.severity == Severity::Info
                && known.disk == line.disk
                && !known.text.starts_with(END)
        };
        let goes_on = same.filter(|same| !self.lines.range(first + same..).any(is_change));
        let alike = || of_this_run.clone().filter(|known| is_alike(known)).count();
        let with = match goes_on {
            None if alike() < alike_max => return false,
            None => same.or_else(|| of_this_run.clone().rposition(is_alike)),
            goes_on => goes_on,
        };
        let Some(with) = with else { return false };
        let known = &mut self.lines[first + with];
        known.count += 1;
        known.last_ms = Some(line.time_ms);
        let (number, differs) = (known.number, known.text != line.text);
        match self.repeated.iter_mut().find(|(of, _)| *of == number) {
            Some((_, with_others)) => *with_others |= differs,
            None => self.repeated.push((number, differs)),
        }
        true
    }

    /// What is to be said of those that have ended.
    fn take_ended(&mut self, now_ms: u64, quiet: Duration) -> Vec<EventLine> {
        let Ring { lines, repeated, .. } = self;
        let quiet = quiet.as_millis() as u64;
        let mut ended = Vec::new();
        repeated.retain(|(number, with_others)| {
            // One that is forgotten by now is not told of either.
            let Some(line) = lines.iter().find(|line| line.number == *number) else { return false };
            if now_ms.abs_diff(line.last()) < quiet {
                return true;
            }
            let others = if *with_others { ", also with other figures" } else { "" };
            let text = format!(
                "{END}{} times{others}, first at {}, last at {}: {}",
                line.count,
                utc(line.time_ms),
                utc(line.last()),
                line.text
            );
            let kind = EventKind { severity: Severity::Info, code: line.code };
            ended.push(EventLine::new(now_ms, line.disk.clone(), kind, &text));
            false
        });
        ended
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
