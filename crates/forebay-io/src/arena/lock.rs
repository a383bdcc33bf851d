//! The thread that may touch the bytes of an arena now.
//!
//! ```text
//!  shared: whoever takes the lock ──[`CopyLock::own`]──► owned: one thread, for good
//! ```
//! Shared, the lock is an atomic exchange, which also waits until every store before it has left the CPU. A
//! copy into memory that is in no CPU cache leaves many, so that copies of a disk, which has one owner, would wait for each other.
//! An owner only looks at a number. Any other thread panics from then on.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The owner's number while there is none.
const NOBODY: u64 = 0;

/// See the module.
#[derive(Debug)]
pub(super) struct CopyLock {
    /// While the lock is shared, the copying thread holds it. Later its owner holds it for good,
    /// so that no other thread gets it that looked for an owner just before.
    shared: AtomicBool,
    /// Changes once.
    owner: AtomicU64,
    /// The owner is amid a copy. Nobody else looks at it.
    owner_copies: AtomicBool,
}

impl CopyLock {
    pub(super) const fn new() -> CopyLock {
        CopyLock {
            shared: AtomicBool::new(false),
            owner: AtomicU64::new(NOBODY),
            owner_copies: AtomicBool::new(false),
        }
    }

    /// From now on only this thread gets the lock.
    pub(super) fn own(&self) {
        if !self.is_owned() {
            std::mem::forget(self.lock_shared());
            self.owner.store(thread_number(), Ordering::Relaxed);
        }
    }

    /// Waits until no other thread copies. Copies are short.
    #[inline]
    pub(super) fn lock(&self) -> Copying<'_> {
        if !self.is_owned() {
            return self.lock_shared();
        }
        // Nobody else gets here, so a load and a store need not be one.
        assert!(!self.owner_copies.load(Ordering::Relaxed), "a copy within a copy");
        self.owner_copies.store(true, Ordering::Relaxed);
        Copying(&self.owner_copies)
    }

    /// By this thread.
    #[inline]
    fn is_owned(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread_number()
    }

    #[cold]
    fn lock_shared(&self) -> Copying<'_> {
        while self.shared.swap(true, Ordering::Acquire) {
            let owner = self.owner.load(Ordering::Relaxed);
            assert!(owner == NOBODY, "the arena belongs to another thread");
            std::thread::yield_now();
        }
        Copying(&self.shared)
    }
}

/// While it lives, its thread is the only one that copies.
pub(super) struct Copying<'a>(&'a AtomicBool);

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A number that no other thread of this process has, or had.
#[inline]
fn thread_number() -> u64 {
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(NOBODY) };
    }
    static LAST: AtomicU64 = AtomicU64::new(NOBODY);
    NUMBER.with(|number| {
        if number.get() == NOBODY {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}
