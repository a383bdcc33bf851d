//! A part of an arena without memory: room for more of what lies before it.
//!
//! ```text
//!   |  buffers, cached blocks  |  spare: no access, no memory  |  the rest  |
//!                              start ──make_usable──►          end
//!                                    ◄──give_back──
//! ```
//! A mapping without access takes the place of what is spare. So it holds no memory, and counts in no limit of memory that
//! is promised. Whoever touches it panics before the CPU would refuse it.
//!
//! **Invariants.** Only `start` moves, and only with the room held. Whoever populates holds it, too, huge page by huge page.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::{Arena, memory};

/// Where the spare part is, in bytes from the start of the arena.
#[derive(Debug)]
pub(super) struct Room {
    /// The end of the arena when nothing is spare: one comparison then says that a piece is in bounds.
    start: AtomicU64,
    end: u64,
    held: Mutex<()>,
}

impl Room {
    /// For an arena of `len` bytes, of which `spare` is, as far as it is whole pages.
    pub(super) fn new(len: usize, spare: Option<Range<u64>>) -> Room {
        let (len, page) = (len as u64, memory::page_size() as u64);
        let pages =
            |part: Range<u64>| part.start.next_multiple_of(page)..part.end.min(len) / page * page;
        let spare = spare.map(pages).filter(|spare| spare.start < spare.end).unwrap_or(len..len);
        Room { start: AtomicU64::new(spare.start), end: spare.end, held: Mutex::new(()) }
    }

    /// Until this is dropped the spare part stays as it is.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spare(&self) -> Range<u64> {
        self.start.load(Ordering::Relaxed)..self.end
    }
}

impl Arena {
    /// As [`Arena::reserve`], or [`Arena::with_tail`] with a tail, but for `spare`, which lies before the tail: it has no
    /// memory, and must not be touched, until it is made usable from its start on.
    ///
    /// # Errors
    /// As of these, for the length without what is spare.
    pub fn with_room(
        len: usize,
        spare: Range<u64>,
        tail: Option<(usize, BorrowedFd<'_>)>,
    ) -> io::Result<Arena> {
        if tail.is_some_and(|(tail, _)| (tail as u64) < spare.end) {
            let text = format!("room for memory up to {} beyond the start of the tail", spare.end);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Arena::map(len, Some(spare), tail)
    }

    /// The part without memory; empty when there is none.
    pub fn spare(&self) -> Range<u64> {
        self.room.spare()
    }

    /// True when a piece is in bounds and has memory.
    #[inline]
    pub(crate) fn has_memory(&self, offset: u64, len: usize) -> bool {
        let Some(end) = offset.checked_add(len as u64) else { return false };
        let start = self.room.start.load(Ordering::Relaxed);
        end <= start || offset >= self.room.end && end <= self.len as u64
    }

    /// What is spare before `end` takes memory from its first touch on, or when it is populated: it reads as zeroes.
    ///
    /// # Errors
    /// `OutOfMemory` when there is not that much available now; `InvalidInput` when `end` is beyond the room; else the
    /// kernel's. Nothing has changed.
    pub fn make_usable(&self, end: u64) -> io::Result<()> {
        let _held = self.room.hold();
        let spare = self.spare();
        let end = end.next_multiple_of(memory::page_size() as u64);
        if end <= spare.start {
            return Ok(());
        }
        if end > spare.end {
            let text = format!("memory up to {end} wanted, and there is room up to {}", spare.end);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let len = (end - spare.start) as usize;
        memory::check_available(len)?;
        self.advise(spare.start..end)?;
        self.allow(spare.start..end)?;
        self.room.start.store(end, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the memory from `start` up to the end of the room back to the kernel, at most so many bytes of it; whether
    /// there is more. Nobody uses it any more: no copy, and no I/O that is in flight.
    ///
    /// # Errors
    /// The kernel's; the memory stays where it is then.
    pub fn give_back(&self, start: u64, at_most: u64) -> io::Result<bool> {
        let _held = self.room.hold();
        let spare = self.spare();
        let first = start.next_multiple_of(memory::page_size() as u64);
        if first >= spare.start {
            return Ok(false);
        }
        let start = first.max(spare.start.saturating_sub(at_most));
        let start = start / memory::page_size() as u64 * memory::page_size() as u64;
        self.room.start.store(start, Ordering::Relaxed);
        if let Err(error) = self.empty(start..spare.start) {
            self.room.start.store(spare.start, Ordering::Relaxed);
            return Err(error);
        }
        Ok(start > first)
    }

    /// A part can be read and written from now on.
    pub(super) fn allow(&self, part: Range<u64>) -> io::Result<()> {
        let len = part.end.saturating_sub(part.start) as usize;
        if len == 0 {
            return Ok(());
        }
        assert!(part.end <= self.len as u64);
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the part lies in our own mapping (asserted), at page boundaries, and nobody uses it by now.
        unsafe {
            let at = self.base.add(part.start as usize).cast();
            rustix::mm::mprotect(at, len, protection)?;
        }
        Ok(())
    }

    /// A mapping without access takes the place of a part.
    pub(super) fn empty(&self, part: Range<u64>) -> io::Result<()> {
        let len = part.end.saturating_sub(part.start) as usize;
        if len == 0 {
            return Ok(());
        }
        assert!(part.end <= self.len as u64);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the part lies in our own mapping (asserted), at page boundaries, and nothing refers to its bytes: `piece`
        // gives out no address in it from now on.
        unsafe {
            let at = self.base.add(part.start as usize).cast();
            rustix::mm::mmap_anonymous(at, len, ProtFlags::empty(), flags)?;
        }
        // It is empty, whether the kernel takes the advice or not.
        let _ = self.advise(part);
        Ok(())
    }
}
