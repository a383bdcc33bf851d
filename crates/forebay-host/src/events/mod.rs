//! Events: what an operator wants to know.
//!
//! ```text
//!   shard, pool owner, control plane ──EventSender, bounded──► EventLog: numbers, merges, keeps the last KEPT
//!                                                                  ├─ thread ──► standard error, the journal
//!                                                                  └─ thread ──► EventFile, in the state folder
//! ```
//! Whoever reports never waits; what does not fit is counted. If whoever should read standard error does not, or the state
//! folder hangs, its thread alone waits.
//!
//! | file | owns |
//! |---|---|
//! | `log.rs` | the last events, and those that are repeated |
//! | `file.rs` | the file that keeps them over a restart |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::mpsc;

use crate::date::now_ms;

mod file;
mod log;

pub use file::EventFile;
pub use log::{EventLog, KEPT, REPEATED_WITHIN};

/// Events that may wait for the control plane.
const WAITING_MAX: usize = 256;
/// An event has no more bytes of text.
const TEXT_BYTES_MAX: usize = 4096;

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
    /// Destaging was paused, and goes on: the mode changes, or the write log failed.
    DestagingResumed,
    /// The write log fills, and writers slow down.
    LogThrottles,
    /// The write log is full, and writers wait.
    LogFull,
    /// The write log has room again.
    LogHasRoom,
    /// The disk reached the mode that it was asked for.
    ModeChanged,
    /// The RAM cache became as small as it was to be, and gave its memory back.
    RamShrunk,
    /// The cache on flash became as small as it was to be.
    FlashShrunk,
    /// Primary storage may have lost writes that it acknowledged and that nobody had flushed.
    UnflushedWritesAtRisk,
    /// Primary storage failed the flush that a disk begins with, or the connection was lost before that had ended.
    FormerWritesAtRisk,
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
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub code: Option<EventCode>,
    /// What happened.
    pub text: String,
    /// How often it happened: a warning or an error that comes again within a minute, and was not over in between, is no event of its
    /// own.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub count: u64,
    /// Milliseconds since 1970-01-01 UTC when it happened last, if that was more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
}

/// A code; none where a later version knows one that this one does not.
fn known<'de, D: Deserializer<'de>>(code: D) -> Result<Option<EventCode>, D::Error> {
    let word = Option::<serde_json::Value>::deserialize(code)?;
    Ok(word.and_then(|word| serde_json::from_value(word).ok()))
}

fn once() -> u64 {
    1
}

fn is_once(count: &u64) -> bool {
    *count == 1
}

impl EventLine {
    fn new(time_ms: u64, disk: Option<String>, kind: EventKind, text: &str) -> EventLine {
        let EventKind { severity, code } = kind;
        let text = on_one_line(text);
        EventLine { number: 0, time_ms, disk, severity, code, text, count: 1, last_ms: None }
    }

    /// When it happened last, in milliseconds since 1970.
    pub fn last(&self) -> u64 {
        self.last_ms.unwrap_or(self.time_ms)
    }
}

/// Text that may have come from anywhere, as one line of bounded length without control characters.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for part in text.chars() {
        if line.len() > TEXT_BYTES_MAX {
            line.push('…');
            break;
        }
        match part.is_control() {
            true => line.extend(part.escape_default()),
            false => line.push(part),
        }
    }
    line
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
        let line = EventLine::new(now_ms(), disk.map(str::to_owned), kind.into(), &text);
        let count = if self.sender.try_send(line).is_ok() { &self.sent } else { &self.dropped };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
