//! Memory for I/O: one large, page-aligned area per disk, in which memory may come part by part.
//!
//! The kernel writes to an arena while an I/O is in flight, so nothing ever holds a Rust
//! reference to its bytes. They are copied in and out, or go to the kernel by address.
//!
//! **Invariants.** The mapping lives as long as the [`Arena`]. Code that hands its address to the
//! kernel keeps the `Arc` until the kernel is done. Every access is bounds-checked, also in
//! release builds, and so is that nobody touches the part without memory (`arena/room.rs`). One copy at a time: a lock makes sharing the arena between threads sound,
//! until one owns it (`arena/lock.rs`). Bytes that the kernel writes *while* a piece is copied
//! arrive or do not. It is the engine's rule to copy no piece that a read fills. It is not
//! checked here.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use lock::{CopyLock, Copying};
use room::Room;

pub use memory::{Available, Holder, available};

mod lock;
mod memory;
mod room;
#[cfg(test)]
mod tests;

/// Size and alignment of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a line of the CPU's caches, and so many of a piece are prefetched.
const LINE: usize = 64;
const PREFETCHED: u32 = 2 * LINE as u32;

/// Flat memory outside of Rust's aliasing rules. The kernel may write to it while an I/O is in
/// flight, so it is only reached through copies, never through references.
pub struct Arena {
    base: *mut u8,
    len: usize,
    /// From here on a file backs it.
    tail: usize,
    has_whole_tail: AtomicBool,
    room: Room,
    copying: CopyLock,
}

// SAFETY: the mapping belongs to no thread; `Arena` owns it and unmaps it once, in `drop`.
unsafe impl Send for Arena {}
// SAFETY: every access through `&Arena` to the mapped bytes happens between `Arena::lock` and the drop
// of its guard, so accesses from several threads never overlap in time.
unsafe impl Sync for Arena {}

/// A piece of a registered arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The arena, as the reactor knows it.
    pub arena: super::reactor::ArenaId,
    /// Bytes from its start.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

fn check_len(len: usize) -> io::Result<()> {
    if len == 0 || len > isize::MAX as usize - 2 * HUGE_PAGE {
        let text = format!("memory of {len} bytes asked for: the size must be at least 1 byte");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

impl Arena {
    /// An arena of `len` bytes that are all there, so that no I/O pays for a first touch.
    ///
    /// # Errors
    /// As [`Arena::reserve`], or `OutOfMemory` when there is not that much available now.
    pub fn new(len: usize) -> io::Result<Arena> {
        check_len(len)?;
        memory::check_available(len)?;
        let arena = Arena::reserve(len)?;
        arena.populate(0, arena.len(), || true);
        Ok(arena)
    }

    /// Maps `len` bytes (rounded up to whole pages), on huge pages where there are any. The memory reads as zeroes. Each
    /// page takes memory from its first touch on, or when it is [populated](Arena::populate): who does either sees to it that
    /// there is some.
    ///
    /// # Errors
    /// `InvalidInput` for a length of zero or beyond the address space, else the kernel's.
    pub fn reserve(len: usize) -> io::Result<Arena> {
        Arena::map(len, None, None)
    }

    /// As [`Arena::reserve`], but from `tail` on (a multiple of the page size) the memory is `file`,
    /// from its start. It begins with the bytes of the file, and outlives the process. The file, on tmpfs, must have space
    /// allocated for a page before that is touched (the kernel ends the process otherwise), and nobody else may shorten it.
    ///
    /// # Errors
    /// As [`Arena::reserve`]; `InvalidInput` when the file is too short or the tail does not begin at a page.
    pub fn with_tail(len: usize, tail: usize, file: BorrowedFd<'_>) -> io::Result<Arena> {
        Arena::map(len, None, Some((tail, file)))
    }

    fn map(
        len: usize,
        spare: Option<Range<u64>>,
        tail: Option<(usize, BorrowedFd<'_>)>,
    ) -> io::Result<Arena> {
        let page = memory::page_size();
        check_len(len)?;
        let len = len.next_multiple_of(page);
        let room = Room::new(len, spare);
        let base = map_aligned(len)?;
        let mut arena = Arena {
            base,
            len,
            tail: len,
            has_whole_tail: AtomicBool::new(false),
            room,
            copying: CopyLock::new(),
        };
        let spare = arena.spare();
        arena.allow(0..spare.start)?;
        arena.allow(spare.end..len as u64)?;
        if let Some((tail, file)) = tail {
            arena.map_tail(tail, file)?;
        }
        arena.advise(0..len as u64)?;
        Ok(arena)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: an arena has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where the part begins that a file backs; the end, when there is none.
    pub fn tail_start(&self) -> u64 {
        self.tail as u64
    }

    /// The file has space for all of the tail from now on.
    pub fn have_whole_tail(&self) {
        self.has_whole_tail.store(true, Ordering::Relaxed);
    }

    /// True when the file is known to have space for all of the tail.
    pub(crate) fn has_whole_tail(&self) -> bool {
        self.has_whole_tail.load(Ordering::Relaxed)
    }

    /// Makes this thread its owner for good, which makes copies cheaper. A copy by another thread
    /// panics from then on.
    pub fn own(&self) {
        self.copying.own();
    }

    /// Bytes of it that are on huge pages, as far as the kernel tells.
    pub fn huge_bytes(&self) -> usize {
        memory::mapped("AnonHugePages:", self.base as usize, self.len)
    }

    /// Bytes of it that have memory of their own.
    #[cfg(test)]
    pub(crate) fn anonymous_bytes(&self) -> usize {
        memory::mapped("Anonymous:", self.base as usize, self.len)
    }

    /// Has the kernel give the pages of a piece their memory, from any thread. Nobody has used the piece before, nor does
    /// meanwhile: it reads as zeroes. The pages are touched one by one. So whoever maps or unmaps something waits for
    /// none of that, as for a system call that gives many.
    ///
    /// False when it ended early: part of the piece was given back meanwhile, or is not wanted any more. `is_wanted` is
    /// asked before each huge page. What makes it false has to happen before [`Arena::give_back`] of the piece, or
    /// [`Arena::make_usable`]: after these nothing more is touched.
    pub fn populate(&self, offset: u64, len: usize, is_wanted: impl Fn() -> bool) -> bool {
        let end = offset + len as u64;
        let mut at = offset;
        while at < end {
            let next = end.min((at + 1).next_multiple_of(HUGE_PAGE as u64));
            let _held = self.room.hold();
            if !is_wanted() || !self.has_memory(at, (next - at) as usize) {
                return false;
            }
            let piece = self.piece(at, (next - at) as usize);
            for page in (0..(next - at) as usize).step_by(memory::page_size()) {
                // SAFETY: the byte lies in the mapping (`piece`), which is writable there, and stays so while the room is
                // held; nobody else uses it now. It is a zero already. (An atomic `or` with zero would not do: compilers make
                // a read of it, which takes no memory.)
                unsafe { piece.add(page).write_volatile(0) };
            }
            at = next;
        }
        true
    }

    /// Gives the memory of a piece, which is whole pages, back to the kernel: it reads as zeroes from now on, and takes memory
    /// again from its first touch. Nobody uses it now: no copy, no I/O that is in flight, and no reactor keeps it in memory
    /// ([`Reactor::release`](crate::reactor::Reactor::release)).
    ///
    /// # Errors
    /// The kernel's; the memory stays where it is then.
    pub(crate) fn release(&self, offset: u64, len: usize) -> io::Result<()> {
        let at = self.piece(offset, len);
        assert!(offset + len as u64 <= self.tail_start(), "what survives the process is kept");
        let _lock = self.lock();
        // SAFETY: the piece lies in our own mapping (`piece`), before what a file backs, and no reference to its bytes exists.
        // The kernel drops the pages; nobody relies on what was in them.
        unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxDontNeed) }?;
        Ok(())
    }

    /// Copies `bytes` to `offset`. Panics when out of bounds (as all of these do).
    pub fn write_at(&self, offset: u64, bytes: &[u8]) {
        let to = self.piece(offset, bytes.len());
        let _lock = self.lock();
        // SAFETY: `piece` checked that `to..to + bytes.len()` lies in the mapping, which is writable;
        // `bytes` cannot overlap it, as no reference to the mapping exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies from `offset` into `bytes`.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) {
        let from = self.piece(offset, bytes.len());
        let _lock = self.lock();
        // SAFETY: as in `write_at`, the other way round; every bit pattern is a valid `u8`.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Has the CPU fetch the start of a piece that is read soon; it notices by itself when the rest is wanted, too. Costs
    /// little, and changes nothing but how long that takes.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u32) {
        let at = self.piece(offset, len as usize);
        for line in (0..len.min(PREFETCHED) as usize).step_by(LINE) {
            // SAFETY: the line begins in the mapping (`piece`).
            prefetch_line(unsafe { at.add(line) });
        }
    }

    /// Copies `len` bytes within the arena; the two pieces do not overlap.
    pub fn copy_within(&self, from: u64, to: u64, len: u32) {
        let source = self.piece(from, len as usize);
        let target = self.piece(to, len as usize);
        assert!(from.abs_diff(to) >= u64::from(len), "pieces of an arena overlap in a copy");
        let _lock = self.lock();
        // SAFETY: both pieces lie in the mapping (`piece`) and do not overlap (asserted above).
        unsafe { std::ptr::copy_nonoverlapping(source, target, len as usize) }
    }

    /// Fills a piece with zeroes.
    pub fn zero(&self, offset: u64, len: u32) {
        let to = self.piece(offset, len as usize);
        let _lock = self.lock();
        // SAFETY: the piece lies in the mapping, which is writable.
        unsafe { std::ptr::write_bytes(to, 0, len as usize) }
    }

    /// Lets `look` read a piece in place. No I/O into the piece may be in flight.
    pub fn look<T>(&self, offset: u64, len: u32, look: impl FnOnce(&[u8]) -> T) -> T {
        let at = self.piece(offset, len as usize);
        let _lock = self.lock();
        // SAFETY: the piece lies in the mapping and is initialised (anonymous memory reads as zeroes). The slice
        // lives only for this call; the lock keeps others of the program from writing, and the kernel does not
        // write to the piece (the rule above).
        look(unsafe { std::slice::from_raw_parts(at, len as usize) })
    }

    /// Lets `change` change a piece in place, so that each of its stores is in memory, in its order, whatever
    /// becomes of the process. No I/O into or from the piece may be in flight.
    pub fn edit<T>(&self, offset: u64, len: u32, change: impl FnOnce(&mut [u8]) -> T) -> T {
        let at = self.piece(offset, len as usize);
        let _lock = self.lock();
        // SAFETY: the piece lies in the mapping, which is writable and initialised. The slice lives only for
        // this call; the lock keeps others of the program away, also from making a second one, and the
        // kernel does not touch the piece (the rule above).
        change(unsafe { std::slice::from_raw_parts_mut(at, len as usize) })
    }

    /// CRC32C (Castagnoli) of a piece.
    pub fn crc32c(&self, offset: u64, len: u32) -> u32 {
        let from = self.piece(offset, len as usize);
        let _lock = self.lock();
        // SAFETY: the piece lies in the mapping and is initialised (anonymous memory reads as zeroes).
        // The slice lives only for this call; the lock keeps other threads of the program from writing,
        // and no I/O into this piece is in flight (the rule in the module's header). The checksum only
        // loads bytes: if that rule were broken, the sum would be of no use and nothing else.
        let bytes = unsafe { std::slice::from_raw_parts(from, len as usize) };
        crc_fast::crc32_iscsi(bytes)
    }

    /// Where two pieces of `len` bytes differ first, from their start; `None`: they are the same.
    pub fn first_difference(&self, a: u64, b: u64, len: u32) -> Option<u64> {
        let (a, b) = (self.piece(a, len as usize), self.piece(b, len as usize));
        let _lock = self.lock();
        // SAFETY: as in `crc32c`: both pieces lie in the mapping and are initialised, the slices live only for this
        // call, nobody writes to them meanwhile. They are only loaded from, so that they may overlap.
        let (a, b) = unsafe {
            let slice = |at| std::slice::from_raw_parts(at, len as usize);
            (slice(a), slice(b))
        };
        if a == b {
            return None;
        }
        a.iter().zip(b).position(|(a, b)| a != b).map(|at| at as u64)
    }

    /// Appends a piece to `out`.
    pub fn append_to(&self, offset: u64, len: u32, out: &mut Vec<u8>) {
        let len = len as usize;
        let from = self.piece(offset, len);
        out.reserve(len);
        let end = out.len();
        let _lock = self.lock();
        // SAFETY: the piece lies in the mapping; `reserve` made room for `len` bytes behind `end`, all of
        // which are written before `set_len` makes them part of the vector.
        unsafe {
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(end), len);
            out.set_len(end + len);
        }
    }

    /// The address of a piece, for the kernel. Panics when the piece is out of bounds, or has no memory.
    #[inline]
    pub(crate) fn piece(&self, offset: u64, len: usize) -> *mut u8 {
        assert!(
            self.has_memory(offset, len),
            "piece {offset}+{len} is out of bounds of an arena of {} bytes",
            self.len
        );
        // SAFETY: `offset <= len` of the mapping (asserted above), so the result stays within it or one
        // past its end.
        unsafe { self.base.add(offset as usize) }
    }

    fn lock(&self) -> Copying<'_> {
        self.copying.lock()
    }

    fn map_tail(&mut self, tail: usize, file: BorrowedFd<'_>) -> io::Result<()> {
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let len = self.len.checked_sub(tail).filter(|&len| len > 0);
        let fits = len.is_some_and(|len| len as u64 <= size);
        let Some(len) = len.filter(|_| fits && tail.is_multiple_of(memory::page_size())) else {
            let text = format!("a tail at {tail} of {} bytes in a file of {size}", self.len);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `tail + len` is the length of our own mapping, of which this replaces the end, at a page;
        // nothing refers to its bytes yet. The file is long enough not to end within.
        unsafe {
            let at = self.base.add(tail).cast();
            rustix::mm::mmap(at, len, protection, flags, file, 0)?;
        }
        self.tail = tail;
        Ok(())
    }

    fn advise(&self, part: Range<u64>) -> io::Result<()> {
        let len = (part.end - part.start) as usize;
        assert!(part.end <= self.len as u64);
        let advise = |advice| {
            // SAFETY: the range is part of our own mapping, nothing refers to its bytes yet, and none of these
            // advices changes what it reads as.
            unsafe { rustix::mm::madvise(self.base.add(part.start as usize).cast(), len, advice) }
        };
        // Kernels without huge pages refuse; the memory is as good, only slower.
        let _ = advise(Advice::LinuxHugepage);
        // A cache has no place in a core dump, and a child process must not copy what is pinned.
        let _ = advise(Advice::LinuxDontDump);
        advise(Advice::LinuxDontFork)?;
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are the mapping that `map_aligned` made, unmapped only here; no reference
        // to its bytes exists, and whoever gave its address to the kernel holds an `Arc` of this arena.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Where this CPU can be told.
#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees, and fails at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Maps `len` bytes, a multiple of the page size, at a multiple of [`HUGE_PAGE`], without access.
fn map_aligned(len: usize) -> io::Result<*mut u8> {
    let whole = len + HUGE_PAGE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let start = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags)?
    };
    let start = start.cast::<u8>();
    let before = (start as usize).next_multiple_of(HUGE_PAGE) - start as usize;
    let after = whole - before - len;
    // SAFETY: `before <= HUGE_PAGE` and `before + len + after == whole`, so all of these pieces lie in the
    // mapping just made, start at multiples of the page size, and nothing refers to them.
    unsafe {
        let base = start.add(before);
        if before > 0 {
            rustix::mm::munmap(start.cast(), before)?;
        }
        if after > 0 {
            rustix::mm::munmap(base.add(len).cast(), after)?;
        }
        Ok(base)
    }
}
