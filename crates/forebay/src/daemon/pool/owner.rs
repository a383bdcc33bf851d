//! The thread that leases segments to shards and takes them back, and stores what frontends want to outlive a restart: it may
//! wait for flash, they may not.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use forebay_core::ids::SegmentId;
use forebay_core::pool::DiskNumber;

use super::{SharedPool, lock};

/// How long a disk waits that asked for a segment when there was none.
const NONE_LEFT_PAUSE: Duration = Duration::from_millis(100);

/// What a disk gets: a segment with its ordinal, or none now.
pub type Leased = Option<(SegmentId, u64)>;

/// Takes the answer to a request for a segment; must not wait.
pub type Answer = Box<dyn FnOnce(Leased) + Send>;

/// Takes the answer whether it is durably known that a ring must not be believed; must not wait.
pub type VoidAnswer = Box<dyn FnOnce(bool) + Send>;

/// Takes the answer whether reservations are durable; must not wait.
pub type StoredAnswer = Box<dyn FnOnce(bool) + Send>;

enum Wish {
    Lease(DiskNumber, Answer),
    Free(SegmentId),
    Void(DiskNumber, VoidAnswer),
    Reserve(DiskNumber, Vec<u8>, StoredAnswer),
    End,
}

/// The way to a pool's owner. Cheap to clone, never waits.
#[derive(Clone)]
pub struct PoolHandle {
    wishes: Sender<Wish>,
}

/// The thread. It ends when it is joined, or all handles are gone.
pub struct PoolOwner {
    thread: Option<JoinHandle<()>>,
    wishes: Sender<Wish>,
}

impl PoolHandle {
    /// Asks for a segment for the log of `disk`.
    pub fn lease(&self, disk: DiskNumber, answer: Answer) {
        // Without its owner there is nobody who would need it.
        let _ = self.wishes.send(Wish::Lease(disk, answer));
    }

    /// The ring of the cache of `disk` must not be believed any more.
    pub fn void(&self, disk: DiskNumber, answer: VoidAnswer) {
        let _ = self.wishes.send(Wish::Void(disk, answer));
    }

    /// The reservations of `disk` are to outlive a restart.
    pub fn reserve(&self, disk: DiskNumber, state: Vec<u8>, answer: StoredAnswer) {
        let _ = self.wishes.send(Wish::Reserve(disk, state, answer));
    }

    /// Gives a segment back.
    pub fn free(&self, segment: SegmentId) {
        let _ = self.wishes.send(Wish::Free(segment));
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
    pub fn start(pool: SharedPool) -> Result<(PoolOwner, PoolHandle)> {
        let (wishes, receiver) = mpsc::channel();
        let own_wishes = wishes.clone();
        let thread = std::thread::Builder::new()
            .name("forebay-pool".to_owned())
            .spawn(move || own(&pool, &receiver))?;
        let owner = PoolOwner { thread: Some(thread), wishes: own_wishes };
        Ok((owner, PoolHandle { wishes }))
    }

    /// Waits until everything that was asked for is done. Whoever still has a handle, a login that never comes to its end
    /// for instance, is not answered any more.
    pub fn join(mut self) {
        let _ = self.wishes.send(Wish::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn own(pool: &SharedPool, wishes: &Receiver<Wish>) {
    let mut waiting: Vec<(Instant, Answer)> = Vec::new();
    let mut next = None;
    loop {
        let now = Instant::now();
        for (_, answer) in waiting.extract_if(.., |(due, _)| *due <= now) {
            answer(None);
        }
        let due = waiting.iter().map(|(due, _)| *due).min();
        let pause = due.map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(now));
        let wish = match next.take() {
            Some(wish) => Ok(wish),
            None => wishes.recv_timeout(pause),
        };
        match wish {
            Ok(Wish::Lease(disk, answer)) => match lock(pool).lease_log(disk) {
                Some(leased) => answer(Some(leased)),
                None => waiting.push((Instant::now() + NONE_LEFT_PAUSE, answer)),
            },
            Ok(Wish::Void(disk, answer)) => answer(lock(pool).void_ring(disk)),
            Ok(Wish::Reserve(disk, state, answer)) => {
                answer(lock(pool).set_reservations(disk, state));
            }
            Ok(Wish::Free(segment)) => {
                // What comes together shares a write.
                let mut segments = vec![segment];
                while let Ok(wish) = wishes.try_recv() {
                    let Wish::Free(segment) = wish else {
                        next = Some(wish);
                        break;
                    };
                    segments.push(segment);
                }
                lock(pool).free(&segments);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Wish::End) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
