//! Arenas and descriptors registered with the ring, which saves the kernel looking them up and pinning
//! their pages for each operation. Everything works without, with more CPU time per operation.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;

use io_uring::{IoUring, types};

use super::super::shared::Piece;
use crate::arena::{Arena, Region};

/// What is registered at a time: a huge page. The kernel keeps all of it in memory from then on.
const WINDOW: u64 = 2 << 20;
/// Uses of a window before it is registered: memory that is hardly used is not worth keeping there.
const USES: u8 = 64;
/// Slots of the tables; what does not fit goes unregistered.
const BUFFERS: u16 = 1024;
const FILES: u32 = 1024;

/// A descriptor as an operation names it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Descriptor {
    Plain(types::Fd),
    Fixed(types::Fixed),
}

/// The registered files and memory, by the keys of the reactor's tables.
#[derive(Debug, Default)]
pub(super) struct Registered {
    free_buffers: Vec<u16>,
    free_files: Vec<u32>,
    arenas: Vec<Windows>,
    files: Vec<Option<u32>>,
    sockets: Vec<Option<u32>>,
}

/// An arena in windows. None of them is backed by two things: they are counted from its start, and again from its tail.
#[derive(Debug, Default)]
struct Windows {
    tail: u64,
    len: u64,
    windows: Box<[Window]>,
}

#[derive(Clone, Copy, Debug)]
enum Window {
    /// So often by now, without being registered.
    Used(u8),
    Registered(u16),
    /// The kernel does not take it, or would keep its memory when that is given back.
    Refused,
}

impl Windows {
    fn of(arena: &Arena) -> Windows {
        let (tail, len) = (arena.tail_start(), arena.len() as u64);
        let count = tail.div_ceil(WINDOW) + (len - tail).div_ceil(WINDOW);
        Windows { tail, len, windows: vec![Window::Used(0); count as usize].into() }
    }

    /// The window that a region lies in; `None`: it lies in several.
    fn of_region(&self, region: Region) -> Option<usize> {
        let in_tail = region.offset >= self.tail;
        let (base, before) = if in_tail { (self.tail, self.tail.div_ceil(WINDOW)) } else { (0, 0) };
        let number = (before + (region.offset - base) / WINDOW) as usize;
        let (_, end) = self.range(number);
        let lies_in_it =
            number < self.windows.len() && region.offset + u64::from(region.len) <= end;
        lies_in_it.then_some(number)
    }

    fn range(&self, number: usize) -> (u64, u64) {
        let before = self.tail.div_ceil(WINDOW);
        let (base, end, number) = match (number as u64).checked_sub(before) {
            Some(number) => (self.tail, self.len, number),
            None => (0, self.tail, number as u64),
        };
        let start = base + number * WINDOW;
        (start, end.min(start + WINDOW))
    }
}

impl Registered {
    /// Makes room in the ring, as far as the kernel has it.
    pub(super) fn new(ring: &IoUring) -> Registered {
        let mut registered = Registered::default();
        if ring.submitter().register_buffers_sparse(BUFFERS.into()).is_ok() {
            registered.free_buffers = (0..BUFFERS).rev().collect();
        }
        if lets_go_at_once(ring) && ring.submitter().register_files_sparse(FILES).is_ok() {
            registered.free_files = (0..FILES).rev().collect();
        }
        registered
    }

    /// Makes an arena known, of which nothing is registered by now.
    pub(super) fn add_arena(&mut self, key: usize, arena: &Arena) {
        set(&mut self.arenas, key, Windows::of(arena));
    }

    pub(super) fn remove_arena(&mut self, ring: &IoUring, key: usize) {
        let Some(windows) = self.arenas.get_mut(key) else { return };
        for window in std::mem::take(windows).windows {
            let Window::Registered(slot) = window else { continue };
            // A slot that cannot be cleared is not used again.
            if clear_buffer(ring, slot).is_ok() {
                self.free_buffers.push(slot);
            }
        }
    }

    /// Lets go of a part of an arena, which is whole windows. Where the kernel keeps the pages for longer they are not
    /// registered again: more would be kept each time.
    ///
    /// # Errors
    /// The kernel's; those windows up to one that it keeps are let go.
    pub(super) fn release(
        &mut self,
        ring: &IoUring,
        arena: usize,
        part: Range<u64>,
    ) -> io::Result<()> {
        let Some(windows) = self.arenas.get_mut(arena) else { return Ok(()) };
        let is_whole = part.start.is_multiple_of(WINDOW) && part.end.is_multiple_of(WINDOW);
        assert!(is_whole && part.end <= windows.tail, "a part of a window");
        let numbers = (part.start / WINDOW) as usize..(part.end / WINDOW) as usize;
        let lets_go_at_once = lets_go_at_once(ring);
        for window in &mut windows.windows[numbers] {
            if let Window::Registered(slot) = *window {
                clear_buffer(ring, slot)?;
                self.free_buffers.push(slot);
                *window = if lets_go_at_once { Window::Used(0) } else { Window::Refused };
            }
        }
        Ok(())
    }

    /// The slot of a region that lies in one registered window of its arena. Counts the use: a window that is used often
    /// is registered.
    pub(super) fn buffer(&mut self, ring: &IoUring, region: Region, arena: &Arena) -> Option<u16> {
        let windows = self.arenas.get_mut(usize::from(region.arena.0))?;
        let number = windows.of_region(region)?;
        let uses = match windows.windows[number] {
            Window::Registered(slot) => return Some(slot),
            Window::Refused => return None,
            Window::Used(uses) => uses + 1,
        };
        let (start, end) = windows.range(number);
        // To keep what is not there would take it.
        if uses == USES && start >= windows.tail && !arena.has_whole_tail() {
            return None;
        }
        windows.windows[number] = Window::Used(uses);
        if uses < USES {
            return None;
        }
        let len = (end - start) as usize;
        let has_memory = arena.has_memory(start, len);
        let Some(slot) = self.free_buffers.pop_if(|_| has_memory) else {
            // Both may be there by the time that it was used as often again.
            windows.windows[number] = Window::Used(0);
            return None;
        };
        let piece = Piece { base: arena.piece(start, len), len };
        if set_buffer(ring, slot.into(), piece).is_err() {
            self.free_buffers.push(slot);
            windows.windows[number] = Window::Refused;
            return None;
        }
        windows.windows[number] = Window::Registered(slot);
        Some(slot)
    }

    pub(super) fn add_file(&mut self, ring: &IoUring, key: usize, fd: RawFd) {
        let slot = self.fix(ring, fd);
        set(&mut self.files, key, slot);
    }

    pub(super) fn add_socket(&mut self, ring: &IoUring, key: usize, fd: RawFd) {
        let slot = self.fix(ring, fd);
        set(&mut self.sockets, key, slot);
    }

    pub(super) fn remove_file(&mut self, ring: &IoUring, key: usize) {
        let slot = self.files.get_mut(key).and_then(Option::take);
        self.unfix(ring, slot);
    }

    pub(super) fn remove_socket(&mut self, ring: &IoUring, key: usize) {
        let slot = self.sockets.get_mut(key).and_then(Option::take);
        self.unfix(ring, slot);
    }

    pub(super) fn file(&self, key: usize, fd: RawFd) -> Descriptor {
        descriptor(&self.files, key, fd)
    }

    pub(super) fn socket(&self, key: usize, fd: RawFd) -> Descriptor {
        descriptor(&self.sockets, key, fd)
    }

    fn fix(&mut self, ring: &IoUring, fd: RawFd) -> Option<u32> {
        let slot = self.free_files.pop()?;
        if ring.submitter().register_files_update(slot, &[fd]).is_ok_and(|updated| updated == 1) {
            return Some(slot);
        }
        self.free_files.push(slot);
        None
    }

    fn unfix(&mut self, ring: &IoUring, slot: Option<u32>) {
        let Some(slot) = slot else { return };
        // A slot that cannot be cleared is not used again.
        if ring.submitter().register_files_update(slot, &[-1]).is_ok() {
            self.free_files.push(slot);
        }
    }
}

/// Older kernels (5.19 to 6.12 at least) keep what is taken out of a ring until all requests of before have ended, which those
/// on an idle socket may never do. A file would keep its lock meanwhile, and a socket its connection: files are not registered
/// there at all. The feature came with 6.15, and says nothing else here.
fn lets_go_at_once(ring: &IoUring) -> bool {
    ring.params().is_feature_no_iowait()
}

fn descriptor(slots: &[Option<u32>], key: usize, fd: RawFd) -> Descriptor {
    match slots.get(key).copied().flatten() {
        Some(slot) => Descriptor::Fixed(types::Fixed(slot)),
        None => Descriptor::Plain(types::Fd(fd)),
    }
}

fn set<T: Default>(things: &mut Vec<T>, key: usize, thing: T) {
    if things.len() <= key {
        things.resize_with(key + 1, T::default);
    }
    things[key] = thing;
}

fn clear_buffer(ring: &IoUring, slot: u16) -> io::Result<()> {
    set_buffer(ring, slot.into(), Piece { base: std::ptr::null_mut(), len: 0 })
}

fn set_buffer(ring: &IoUring, slot: u32, piece: Piece) -> io::Result<()> {
    let vector = libc::iovec { iov_base: piece.base.cast(), iov_len: piece.len };
    // SAFETY: the piece is empty, or lies in an arena which the reactor's table keeps alive until after
    // `remove_arena` or `release` cleared this slot, or for ever when the reactor cannot stop; when the ring goes first, the
    // kernel unregisters by itself. It pins the pages, so that it never follows an address that is gone.
    unsafe { ring.submitter().register_buffers_update(slot, &[vector], None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::ArenaId;

    #[test]
    fn a_window_that_found_no_slot_gets_one_that_becomes_free() {
        let Ok(ring) = super::super::setup::ring(8) else { return };
        let mut registered = Registered::new(&ring);
        registered.free_buffers.truncate(1);
        let arenas = [(); 2].map(|()| Arena::new(WINDOW as usize).unwrap());
        let slots_of_uses = |registered: &mut Registered, key: usize| {
            let region = Region { arena: ArenaId(key as u16), offset: 4096, len: 4096 };
            let uses = 0..USES;
            uses.filter_map(|_| registered.buffer(&ring, region, &arenas[key])).count()
        };
        for (key, arena) in arenas.iter().enumerate() {
            registered.add_arena(key, arena);
        }
        assert_eq!(slots_of_uses(&mut registered, 0), 1, "the last use registers it");
        assert_eq!(slots_of_uses(&mut registered, 1), 0);
        registered.remove_arena(&ring, 0);
        assert_eq!(slots_of_uses(&mut registered, 1), 1);
    }
}
