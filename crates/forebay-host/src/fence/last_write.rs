//! When a disk wrote to primary storage last: in a small file on tmpfs that outlives the process.
//!
//! After a kill the modification time of primary storage has to lie between the last one that was seen and the
//! moment after the last write ([`forebay_core::flash_pool::fence`]). The backend notes a write before it hands it to the kernel
//! and when it has ended, at most every [`NOTE_EVERY`]; a thread of the control plane looks at primary storage
//! several times a second and notes what it sees. The file does not outlive the host, and its bytes are no format.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBTRAIL1`; of a start `FBTRSTRT`, or `FBTRWEAK` where evidence was weak |
//! | 8 | 8 | generation of the session |
//! | 16 | 8 | modification time that was seen last, seconds |
//! | 24 | 8 | nanoseconds of that |
//! | 32 | 8 | what no write of ours after that look can leave an earlier time than, seconds |
//! | 40 | 8 | nanoseconds of that |
//! | 48 | 8 | last write that was noted, nanoseconds since 1970 by the clock of primary storage; 0: none |
//!
//! The bound at 32 is the time that was seen, unless that lies in the future: the next write takes it back to the clock
//! of primary storage.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_backends::Writes;
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::fence::{self, GRACE_NS, Times, Timestamp};
use forebay_core::ids::{Generation, Nanos, Uuid};
use forebay_io::clock;
use rustix::fs::OFlags;

use super::sidecar;
use crate::pool::host;
use crate::tmpfs;

const LEN: usize = 56;
const SEEN: u64 = 16;
const WRITTEN: u64 = 48;
/// Age of the clock that a file system stamps with, at most.
const TICK_NS: u64 = 10_000_000;
/// Offsets between two clocks that differ by so much: one of them was set.
const CLOCK_SET_NS: u64 = 500_000_000;
/// Time from one measurement to the next.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// How long a write that was noted stands for those after it.
const NOTE_EVERY: Duration = Duration::from_millis(50);

/// See the module. Shared by the disk's shard and the control plane.
#[derive(Debug)]
pub struct LastWrite {
    path: PathBuf,
    file: File,
    /// How far the clock of primary storage is ahead of ours, in nanoseconds.
    ahead_ns: AtomicI64,
    /// The sidecar, beside which that can be measured.
    sidecar: Option<PathBuf>,
    /// When it was measured last, by the same clock as `noted`; 0: when the session began.
    measured: AtomicU64,
    /// When a write was noted last, by the clock of this host since it started; 0: never. The time of a shard stands still while
    /// its process is stopped, and that of primary storage does not.
    noted: AtomicU64,
    /// Writes under way.
    under_way: AtomicU32,
    /// The time that an administrator left, and when. Held while a time that was seen is noted.
    accepted: Mutex<Option<(Timestamp, Instant)>>,
}

/// What a session left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) generation: Generation,
    /// The modification time that was seen last.
    seen: Timestamp,
    /// No write of ours after that look left an earlier one,
    from: Timestamp,
    /// and none a later one.
    to: Timestamp,
    by: Writer,
}

/// The writer of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// A session that was committed.
    Session,
    /// A start, after such a session.
    Start,
    /// The same. Evidence was weak before it wrote, and stays so.
    WeakStart,
}

impl Writer {
    const ALL: [Writer; 3] = [Writer::Session, Writer::Start, Writer::WeakStart];

    fn magic(self) -> [u8; 8] {
        match self {
            Writer::Session => *b"FBTRAIL1",
            Writer::Start => *b"FBTRSTRT",
            Writer::WeakStart => *b"FBTRWEAK",
        }
    }
}

impl Left {
    /// Between which times primary storage was modified last unless somebody else did it; `is` is the time found.
    pub(super) fn times(&self, is: Option<Timestamp>) -> Times {
        match is == Some(self.seen) {
            _ if self.by == Writer::WeakStart => Times::NotBefore(Some(self.from)),
            true => Times::Between { from: self.seen, to: self.to.max(self.seen) },
            false => Times::Between { from: self.from, to: self.to },
        }
    }
}

impl LastWrite {
    /// Begins the note of a session, over the one before; `None` where no file outlives the process.
    pub(super) fn begin(
        disk: Uuid,
        generation: Generation,
        seen: Timestamp,
        ahead_ns: i64,
    ) -> io::Result<Option<LastWrite>> {
        LastWrite::begin_as(Writer::Session, disk, generation, seen, ahead_ns)
    }

    fn begin_as(
        by: Writer,
        disk: Uuid,
        generation: Generation,
        seen: Timestamp,
        ahead_ns: i64,
    ) -> io::Result<Option<LastWrite>> {
        let Some(folder) = tmpfs::folder() else { return Ok(None) };
        let path = path_in(&folder, disk);
        let file = tmpfs::open(&path, OFlags::RDWR | OFlags::CREATE)?;
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&by.magic());
        bytes[8..16].copy_from_slice(&generation.0.to_le_bytes());
        bytes[16..48].copy_from_slice(&seen_bytes(seen, ahead_ns));
        // One call: a process that dies has left all of it or nothing.
        file.write_all_at(&bytes, 0)?;
        Ok(Some(LastWrite {
            path,
            file,
            ahead_ns: AtomicI64::new(ahead_ns),
            sidecar: None,
            measured: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
            accepted: Mutex::default(),
        }))
    }

    /// Notes that primary storage is written to. Never waits.
    pub(crate) fn note_write(&self) {
        self.note_at(Nanos(clock::coarse_nanos()));
    }

    fn note_at(&self, at: Nanos) {
        let noted = self.noted.load(Ordering::Relaxed);
        if noted != 0 && at.since(Nanos(noted)).0 < NOTE_EVERY.as_nanos() as u64 {
            return;
        }
        let there = now_there(self.ahead_ns()).max(1);
        // Without it the next start has weaker evidence; nothing else depends on it.
        let _ = self.file.write_all_at(&there.to_le_bytes(), WRITTEN);
        self.noted.store(at.0.max(1), Ordering::Relaxed);
    }

    fn ahead_ns(&self) -> i64 {
        self.ahead_ns.load(Ordering::Relaxed)
    }

    /// The clock of primary storage is the one of the file system with this sidecar.
    pub(super) fn beside(self, sidecar: Option<&Path>) -> LastWrite {
        LastWrite { sidecar: sidecar.map(Path::to_owned), ..self }
    }

    /// Looks whether one of the two clocks was set since the offset between them was measured, and goes on with the one of
    /// now; false when it is the same, or cannot be measured. Waits for primary storage.
    pub fn clock_was_set(&self) -> bool {
        let Some(sidecar) = &self.sidecar else { return false };
        let now = clock::coarse_nanos().max(1);
        let before = self.measured.load(Ordering::Relaxed);
        if before != 0 && now.saturating_sub(before) < MEASURE_EVERY.as_nanos() as u64 {
            return false;
        }
        let Ok(Some(ahead_ns)) = sidecar::clock_ahead(sidecar) else { return false };
        self.measured.store(now, Ordering::Relaxed);
        self.set_clock(ahead_ns)
    }

    /// The same as [`LastWrite::note_seen`], for who looks once: asks first whether a clock was set. Waits for primary storage.
    pub fn explains(&self, seen: Timestamp, looked: Instant) -> bool {
        if self.is_beyond(seen) {
            self.clock_was_set();
        }
        self.note_seen(seen, looked)
    }

    /// True when only a write that is under way explains this modification time, or none does.
    pub fn is_beyond(&self, seen: Timestamp) -> bool {
        let mut bytes = [0; LEN];
        let left = self.file.read_exact_at(&mut bytes, 0).ok().and_then(|()| decode(&bytes));
        left.is_some_and(|left| seen != left.seen && seen > left.to)
    }

    fn set_clock(&self, ahead_ns: i64) -> bool {
        let by = ahead_ns.saturating_sub(self.ahead_ns());
        if by.unsigned_abs() < CLOCK_SET_NS {
            return false;
        }
        self.ahead_ns.store(ahead_ns, Ordering::Relaxed);
        let noted = self.noted.load(Ordering::Relaxed);
        if noted != 0 {
            // By the clock that nobody sets: what was noted may be of before this host's clock was set, or of after.
            let age = clock::coarse_nanos().saturating_sub(noted);
            let there = now_there(ahead_ns).saturating_sub(age).max(1);
            let _ = self.file.write_all_at(&there.to_le_bytes(), WRITTEN);
        }
        if self.noted.load(Ordering::Relaxed) != noted {
            // A write was noted meanwhile, and that may have been written over.
            let there = now_there(ahead_ns).max(1);
            let _ = self.file.write_all_at(&there.to_le_bytes(), WRITTEN);
        }
        true
    }

    /// Notes the modification time as it was seen by a look that began at `looked`; false when none of our writes explains it.
    pub fn note_seen(&self, seen: Timestamp, looked: Instant) -> bool {
        let accepted = self.accepted();
        if accepted.is_some_and(|(accepted, at)| seen < accepted && looked < at) {
            // It was seen before that one.
            return true;
        }
        // Before what was noted is read: a write is noted before it is under way no more.
        let is_under_way = self.under_way.load(Ordering::SeqCst) > 0;
        let mut bytes = [0; LEN];
        let Ok(left) = self.file.read_exact_at(&mut bytes, 0).map(|()| decode(&bytes)) else {
            return true;
        };
        let Some(left) = left else { return true };
        if seen == left.seen {
            return true;
        }
        if seen > left.to && !is_under_way {
            return false;
        }
        let _ = self.file.write_all_at(&seen_bytes(seen, self.ahead_ns()), SEEN);
        true
    }

    /// Notes the modification time that an administrator has left, as it was seen at `looked`.
    pub fn accept(&self, seen: Timestamp, looked: Instant) {
        let mut accepted = self.accepted();
        *accepted = Some((seen, looked));
        let _ = self.file.write_all_at(&seen_bytes(seen, self.ahead_ns()), SEEN);
    }

    fn accepted(&self) -> MutexGuard<'_, Option<(Timestamp, Instant)>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody needs it any more.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Writes for LastWrite {
    fn begins(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        self.note_write();
    }

    fn ended(&self) {
        self.note_write();
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The note of a session that has ended, for a start that writes to primary storage before it has a session of its own. It is
/// begun with the first of these writes: a start that writes nothing changes no evidence.
#[derive(Debug)]
pub struct StartNote {
    disk: Uuid,
    generation: Generation,
    seen: Timestamp,
    is_weak: bool,
    note: OnceLock<Option<LastWrite>>,
}

impl StartNote {
    /// Primary storage looks `seen`. `is_weak`: evidence is, and has to be so for the next start.
    pub(super) fn new(
        disk: Uuid,
        generation: Generation,
        seen: Timestamp,
        is_weak: bool,
    ) -> StartNote {
        StartNote { disk, generation, seen, is_weak, note: OnceLock::new() }
    }

    /// Primary storage is about to be written to.
    pub(crate) fn note_write(&self) {
        let by = if self.is_weak { Writer::WeakStart } else { Writer::Start };
        let begin = || LastWrite::begin_as(by, self.disk, self.generation, self.seen, 0);
        // Without it the next start may refuse the log, and nothing is lost.
        if let Some(note) = self.note.get_or_init(|| begin().ok().flatten()) {
            note.note_write();
        }
    }

    /// What was written is durable: its file system may have stamped it by then only.
    pub(crate) fn note_flush(&self) {
        if let Some(note) = self.begun() {
            note.note_write();
        }
    }

    /// Primary storage looks so after all writes.
    pub(super) fn accept(&self, seen: Timestamp) {
        if let Some(note) = self.begun() {
            note.accept(seen, Instant::now());
        }
    }

    fn begun(&self) -> Option<&LastWrite> {
        self.note.get()?.as_ref()
    }
}

/// Times of primary storage as the pool and tmpfs remember them; `modified` is the time found.
pub(super) fn times(record: &DiskRecord, modified: Option<Timestamp>) -> Times {
    let noted = fence::times_of(&record.evidence);
    let left = left(record.uuid).filter(|left| left.generation == record.committed);
    match (noted, left) {
        (Times::NotBefore(_), Some(left)) if record.boot == host::boot() => left.times(modified),
        // It was of this boot, as all on tmpfs is.
        (Times::Final { .. }, Some(left)) if left.by != Writer::Session => left.times(modified),
        (noted, _) => noted,
    }
}

/// True when a start has written to primary storage since the last session was committed: no sample of its end counts.
pub(super) fn start_has_written(record: &DiskRecord) -> bool {
    left(record.uuid)
        .is_some_and(|left| left.generation == record.committed && left.by != Writer::Session)
}

/// An administrator has decided what primary storage is: what was noted of it before does not count.
pub(super) fn forget(disk: Uuid) {
    if let Some(folder) = tmpfs::folder() {
        let _ = std::fs::remove_file(path_in(&folder, disk));
    }
}

/// What the last session of a disk left, if it is still there.
pub(super) fn left(disk: Uuid) -> Option<Left> {
    let file = tmpfs::open(&path_in(&tmpfs::folder()?, disk), OFlags::RDONLY).ok()?;
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    decode(&bytes)
}

fn decode(bytes: &[u8; LEN]) -> Option<Left> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let time = |at: usize| Some((word(at) as i64, u32::try_from(word(at + 8)).ok()?));
    let by = Writer::ALL.into_iter().find(|by| bytes[..8] == by.magic())?;
    let (seen, from) = (time(16)?, time(32)?);
    let to = match word(WRITTEN as usize) {
        0 => from,
        written => {
            let after = NOTE_EVERY.as_nanos() as u64 + GRACE_NS;
            timestamp(written.saturating_add(after)).max(from)
        }
    };
    Some(Left { generation: Generation(word(8)), seen, from, to, by })
}

/// What was seen, and the bound that follows.
fn seen_bytes(seen: Timestamp, ahead_ns: i64) -> [u8; 32] {
    let from = not_ahead(seen, ahead_ns);
    let mut bytes = [0; 32];
    for (word, value) in bytes.chunks_exact_mut(8).zip([seen, from].into_iter().flat_map(words)) {
        word.copy_from_slice(&value);
    }
    bytes
}

fn words((seconds, nanos): Timestamp) -> [[u8; 8]; 2] {
    [seconds.to_le_bytes(), u64::from(nanos).to_le_bytes()]
}

/// `seen`, or the time of the clock of primary storage if that is earlier.
pub(super) fn not_ahead(seen: Timestamp, ahead_ns: i64) -> Timestamp {
    // Its file system may stamp with a tick that is up to 10 ms old.
    seen.min(timestamp(now_there(ahead_ns).saturating_sub(TICK_NS)))
}

fn now_there(ahead_ns: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).saturating_add_signed(ahead_ns)
}

fn timestamp(ns: u64) -> Timestamp {
    ((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32)
}

fn path_in(folder: &Path, disk: Uuid) -> PathBuf {
    tmpfs::place(folder, &format!("forebay-{disk}.trail"))
}

#[cfg(test)]
mod tests;
