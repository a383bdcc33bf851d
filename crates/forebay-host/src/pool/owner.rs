//! The thread that changes who has the segments of a pool while its disks are served: it leases them to shards and takes
//! them back, stores what frontends want to outlive a restart, and closes the records of disks that have ended. It may wait
//! for flash, shards may not.
//!
//! ```text
//!   shard ── lease, renew, free, void, reserve ──┐
//!                                                ├──► one queue ──► Pool (locked) ──► durable ──► answer (not locked)
//!   control plane ── close, cache size ──────────┘
//! ```
//! **Invariants**
//! - One queue: a disk's record is closed behind everything that its shard asked for before it told that the disk has ended.
//! - A segment is freed only under the lease that it was given out with. A lease that has ended already frees nothing and
//!   ends nobody else's; that is reported.
//! - Answers are given without the lock, and giving one does not wait.
//!
//! When the thread dies the daemon ends ([`PoolOwner::ended`]): its disks would wait for segments for ever.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_core::action::NoLease;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::Evidence;
use forebay_core::ids::Sequence;
use tokio::sync::oneshot;

use super::file::PoolFile;
use super::{Area, EndOfSession, Held, Pool, SharedPool, lock};
use crate::events::{EventSender, Severity};

/// How long a disk waits that asked for a segment when there was none.
const NONE_LEFT_PAUSE: Duration = Duration::from_millis(100);

/// Time after which an owner that nobody asks for anything sees whether others changed leases or records.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// What a disk gets: a segment with its lease, or none.
pub type Leased = Result<Held, NoLease>;

/// Takes the answer to a request for a segment; must not wait.
pub type Answer = Box<dyn FnOnce(Leased) + Send>;

/// Takes the answer whether it is durably known that a ring must not be believed; must not wait.
pub type VoidAnswer = Box<dyn FnOnce(bool) + Send>;

/// Takes the answer whether reservations are durable; must not wait. It comes also when the owner has ended: "no" then.
pub type StoredAnswer = Box<dyn FnOnce(bool) + Send>;

/// An answer that somebody waits for without a limit. A drop is a "no", so that no end of the thread swallows it.
struct Owed(Option<StoredAnswer>);

impl Owed {
    fn give(mut self, is_stored: bool) {
        if let Some(answer) = self.0.take() {
            answer(is_stored);
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer(false);
        }
    }
}

enum Wish {
    Lease(DiskNumber, Answer),
    Renew(Held, Answer),
    Free(Held),
    Void(DiskNumber, VoidAnswer),
    Reserve(DiskNumber, Vec<u8>, Owed),
    Grow(DiskNumber, Evidence, Sender<Result<()>>),
    Modified(DiskNumber, bool, Sender<Result<()>>),
    SizeCache(DiskNumber, (u64, u64), Sender<Result<Vec<Area>>>),
    Close(DiskNumber, Close, Sender<Result<bool>>),
    End,
}

/// A disk has ended so.
#[derive(Clone, Copy, Debug)]
pub struct Close {
    /// How it was left.
    pub end: EndOfSession,
    /// Nothing of it is under way on primary storage.
    pub is_quiet: bool,
    /// The last look at its primary storage.
    pub last: Option<Evidence>,
    /// The last record of its log.
    pub log_end: Option<Sequence>,
    /// Somebody else has modified its primary storage, and no administrator has dealt with that.
    pub is_modified: bool,
}

/// The way to a pool's owner. Cheap to clone, never waits.
#[derive(Clone)]
pub struct PoolHandle {
    wishes: Sender<Wish>,
    segment_size: u64,
}

/// The thread. It ends when it is joined, or all handles are gone. A file that a start made for the pool, and that no
/// disk came to use, goes when this is dropped, whoever else still has the pool.
pub struct PoolOwner {
    file: Arc<PoolFile>,
    thread: Option<JoinHandle<()>>,
    wishes: Sender<Wish>,
    ended: Option<oneshot::Receiver<()>>,
}

impl PoolHandle {
    /// Asks for a segment for the log of `disk`.
    pub fn lease(&self, disk: DiskNumber, answer: Answer) {
        // Without its owner there is nobody who would need it.
        let _ = self.wishes.send(Wish::Lease(disk, answer));
    }

    /// Asks for a segment that a log has, and does not need any more, in the place of its lease.
    pub fn renew(&self, held: Held, answer: Answer) {
        let _ = self.wishes.send(Wish::Renew(held, answer));
    }

    /// Bytes of a segment.
    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// The ring of the cache of `disk` must not be believed any more.
    pub fn void(&self, disk: DiskNumber, answer: VoidAnswer) {
        let _ = self.wishes.send(Wish::Void(disk, answer));
    }

    /// The reservations of `disk` are to outlive a restart.
    pub fn reserve(&self, disk: DiskNumber, state: Vec<u8>, answer: StoredAnswer) {
        let _ = self.wishes.send(Wish::Reserve(disk, state, Owed(Some(answer))));
    }

    /// Gives a segment back.
    pub fn free(&self, held: Held) {
        let _ = self.wishes.send(Wish::Free(held));
    }

    /// The disk has become longer, its primary storage looks so; waits until that is noted durably.
    ///
    /// # Errors
    /// The medium's, or the owner has ended.
    pub fn grow(&self, disk: DiskNumber, seen: Evidence) -> Result<()> {
        let (answer, noted) = mpsc::channel();
        let _ = self.wishes.send(Wish::Grow(disk, seen, answer));
        noted.recv().context("the thread that owns the pool has ended")?
    }

    /// Somebody else has modified the primary storage of the disk, or an administrator has dealt with that; waits until that is
    /// noted durably.
    ///
    /// # Errors
    /// The medium's, or the owner has ended.
    pub fn set_modified(&self, disk: DiskNumber, is_modified: bool) -> Result<()> {
        let (answer, noted) = mpsc::channel();
        let _ = self.wishes.send(Wish::Modified(disk, is_modified, answer));
        noted.recv().context("the thread that owns the pool has ended")?
    }

    /// A disk at work has segments for a cache of `bytes` from now on, and nothing of others may be believed; waits until
    /// that is durable. `own`: what it brings. Where they are.
    ///
    /// # Errors
    /// There are not so many, or the medium's, or the owner has ended.
    pub fn size_cache(&self, disk: DiskNumber, bytes: u64, own: u64) -> Result<Vec<Area>> {
        let (answer, sized) = mpsc::channel();
        let _ = self.wishes.send(Wish::SizeCache(disk, (bytes, own), answer));
        sized.recv().context("the thread that owns the pool has ended")?
    }

    /// The disk has ended so. Waits until that is noted, behind everything that was asked for before; false when it is not.
    ///
    /// # Errors
    /// The medium's, or the owner has ended.
    pub fn close(&self, disk: DiskNumber, close: Close) -> Result<bool> {
        let (answer, closed) = mpsc::channel();
        let _ = self.wishes.send(Wish::Close(disk, close, answer));
        closed.recv().context("the thread that owns the pool has ended")?
    }
}

impl std::fmt::Debug for PoolHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolHandle")
    }
}

impl std::fmt::Debug for PoolOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolOwner")
    }
}

impl PoolOwner {
    /// Starts the owner of a pool.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(pool: SharedPool, events: EventSender) -> Result<(PoolOwner, PoolHandle)> {
        let (wishes, receiver) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let (file, segment_size) = {
            let pool = lock(&pool);
            (pool.file.clone(), pool.geometry().segment_size())
        };
        let thread =
            std::thread::Builder::new().name("forebay-pool".to_owned()).spawn(move || {
                Owner { pool, events, wishes: receiver, next: None, waiting: Vec::new() }.run();
                // Dropped without a word when the thread panics.
                let _ = end.send(());
            })?;
        let handle = PoolHandle { wishes: wishes.clone(), segment_size };
        Ok((PoolOwner { file, thread: Some(thread), wishes, ended: Some(ended) }, handle))
    }

    /// Looks whether another file, or none, is where the pool was opened; that may wait for the file system.
    pub fn has_moved(&self) -> impl FnOnce() -> bool + use<> {
        let file = self.file.clone();
        move || !file.is_at_its_path()
    }

    /// Waits for the thread to end, however it does; to be asked for once.
    pub fn ended(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.ended.take();
        async move {
            match ended {
                Some(ended) => drop(ended.await),
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until everything that was asked for is done. Whoever still has a handle, a login that never comes to its end
    /// for instance, gets no segment any more.
    pub fn join(mut self) {
        let _ = self.wishes.send(Wish::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for PoolOwner {
    fn drop(&mut self) {
        // Whoever keeps a handle does not keep the pool.
        let _ = self.wishes.send(Wish::End);
        self.file.go();
    }
}

/// What the thread has.
struct Owner {
    pool: SharedPool,
    events: EventSender,
    wishes: Receiver<Wish>,
    /// Was taken from the queue, and comes next.
    next: Option<Wish>,
    /// Disks for which there was no segment, until when they wait.
    waiting: Vec<(Instant, Answer)>,
}

impl Owner {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            for (_, answer) in self.waiting.extract_if(.., |(due, _)| *due <= now) {
                answer(Err(NoLease::Now));
            }
            let due = self.waiting.iter().map(|(due, _)| *due).min();
            let pause =
                due.map_or(IDLE_MAX, |due| due.saturating_duration_since(now).min(IDLE_MAX));
            let wish = match self.next.take().or_else(|| self.wishes.try_recv().ok()) {
                Some(wish) => Ok(wish),
                None => {
                    // Nobody waits for it.
                    lock(&self.pool).mirror();
                    self.tell_failure();
                    self.wishes.recv_timeout(pause)
                }
            };
            match wish {
                Ok(Wish::End) | Err(RecvTimeoutError::Disconnected) => {
                    lock(&self.pool).mirror();
                    return self.tell_failure();
                }
                Ok(wish) => self.carry_out(wish),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.tell_failure();
        }
    }

    fn tell_failure(&self) {
        let failure = lock(&self.pool).failure.take();
        if let Some(text) = failure {
            self.events.report(None, Severity::Error, text);
        }
    }

    /// Each statement that locks the pool lets go of it before the answer is given.
    fn carry_out(&mut self, wish: Wish) {
        match wish {
            Wish::Lease(disk, answer) => {
                let leased = lock(&self.pool).lease_log(disk);
                self.answer(leased, answer);
            }
            Wish::Renew(held, answer) => {
                let leased = lock(&self.pool).renew_log(held);
                self.answer(leased, answer);
            }
            Wish::Void(disk, answer) => {
                let is_noted = lock(&self.pool).void_ring(disk);
                answer(is_noted);
            }
            Wish::Reserve(disk, state, answer) => {
                let is_stored = lock(&self.pool).set_reservations(disk, state);
                answer.give(is_stored);
            }
            Wish::Free(held) => self.free(held),
            Wish::Grow(disk, seen, answer) => {
                let noted = lock(&self.pool).grow(disk, seen);
                let _ = answer.send(noted);
            }
            Wish::Modified(disk, is_modified, answer) => {
                let noted = lock(&self.pool).set_modified(disk, is_modified);
                let _ = answer.send(noted);
            }
            Wish::SizeCache(disk, (bytes, own), answer) => {
                let sized = lock(&self.pool).size_cache(disk, bytes, own);
                let _ = answer.send(sized);
            }
            Wish::Close(disk, close, answer) => {
                let _ = answer.send(self::close(&mut lock(&self.pool), disk, close));
            }
            Wish::End => unreachable!("the loop ends with it"),
        }
    }

    fn answer(&mut self, leased: Leased, answer: Answer) {
        match leased {
            Ok(_) | Err(NoLease::Ever) => answer(leased),
            Err(NoLease::Now) => self.waiting.push((Instant::now() + NONE_LEFT_PAUSE, answer)),
        }
    }

    /// Frees a segment, with all that are given back with it: they share a write.
    fn free(&mut self, held: Held) {
        let mut leases = vec![held];
        while let Ok(wish) = self.wishes.try_recv() {
            let Wish::Free(held) = wish else {
                self.next = Some(wish);
                break;
            };
            leases.push(held);
        }
        let refused = lock(&self.pool).free(&leases).unwrap_or_default();
        for segment in refused {
            let text = format!(
                "segment {} of the flash was given back by who does not have it; it stays whose it is",
                segment.0
            );
            self.events.report(None, Severity::Error, text);
        }
    }
}

/// Notes how a disk was left; false when the pool cannot be written.
pub(super) fn close(pool: &mut Pool, disk: DiskNumber, close: Close) -> Result<bool> {
    let Close { end, is_quiet, last, log_end, is_modified } = close;
    match (log_end, end) {
        (Some(record), EndOfSession::Clean | EndOfSession::Detached) => {
            pool.settle_up_to(disk, record)?;
        }
        (Some(record), EndOfSession::Dirty) => pool.set_log_end(disk, record)?,
        (Some(_), EndOfSession::Failed | EndOfSession::Lost) | (None, _) => {}
    }
    if end != EndOfSession::Detached {
        // Before the last look is final evidence, which takes primary storage as it is.
        let noted = pool.set_modified(disk, is_modified);
        // What cannot be noted in a pool that failed before keeps nobody from the sidecar.
        if !pool.has_failed && !matches!(end, EndOfSession::Failed | EndOfSession::Lost) {
            noted?;
        }
    }
    pool.close(disk, end, is_quiet, last)
}
