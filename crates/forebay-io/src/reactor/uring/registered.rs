//! Arenas and descriptors registered with the ring, which saves the kernel looking them up and pinning
//! their pages for each operation. Everything works without, with more CPU time per operation.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, types};

use super::super::shared::Piece;
use crate::arena::{Arena, Region};

/// The kernel takes at most this much in one registered buffer.
const BUFFER_MAX: u64 = 1 << 30;
/// Slots of the tables; what does not fit goes unregistered.
const BUFFERS: u32 = 1024;
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
    free_buffers: Vec<u32>,
    free_files: Vec<u32>,
    /// Per arena: where the pieces that are registered begin and end, and their slots.
    arenas: Vec<Vec<(u64, u64, u32)>>,
    files: Vec<Option<u32>>,
    sockets: Vec<Option<u32>>,
}

impl Registered {
    /// Makes room in the ring, as far as the kernel has it.
    pub(super) fn new(ring: &IoUring) -> Registered {
        let mut registered = Registered::default();
        if ring.submitter().register_buffers_sparse(BUFFERS).is_ok() {
            registered.free_buffers = (0..BUFFERS).rev().collect();
        }
        if ring.submitter().register_files_sparse(FILES).is_ok() {
            registered.free_files = (0..FILES).rev().collect();
        }
        registered
    }

    /// Registers an arena, as far as the kernel takes it: in pieces, because of its limit and since no piece
    /// may be backed by two things.
    pub(super) fn add_arena(&mut self, ring: &IoUring, key: usize, arena: &Arena) {
        let (tail, len) = (arena.tail_start(), arena.len() as u64);
        let mut pieces = Vec::new();
        for (from, to) in [(0, tail), (tail, len)] {
            for start in (from..to).step_by(BUFFER_MAX as usize) {
                let end = to.min(start + BUFFER_MAX);
                let len = (end - start) as usize;
                let base = arena.piece(start, len);
                let Some(slot) = self.free_buffers.pop() else { continue };
                match set_buffer(ring, slot, Piece { base, len }) {
                    Ok(()) => pieces.push((start, end, slot)),
                    Err(_) => self.free_buffers.push(slot),
                }
            }
        }
        set(&mut self.arenas, key, pieces);
    }

    pub(super) fn remove_arena(&mut self, ring: &IoUring, key: usize) {
        let Some(pieces) = self.arenas.get_mut(key) else { return };
        for (.., slot) in std::mem::take(pieces) {
            let nothing = Piece { base: std::ptr::null_mut(), len: 0 };
            // A slot that cannot be cleared is not used again.
            if set_buffer(ring, slot, nothing).is_ok() {
                self.free_buffers.push(slot);
            }
        }
    }

    /// The slot of a region that lies in one registered buffer.
    pub(super) fn buffer(&self, region: Region) -> Option<u16> {
        let end = region.offset + u64::from(region.len);
        let pieces = self.arenas.get(usize::from(region.arena.0))?;
        let mut holders = pieces.iter().filter(|piece| piece.0 <= region.offset && end <= piece.1);
        holders.next().and_then(|&(.., slot)| u16::try_from(slot).ok())
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

fn set_buffer(ring: &IoUring, slot: u32, piece: Piece) -> io::Result<()> {
    let vector = libc::iovec { iov_base: piece.base.cast(), iov_len: piece.len };
    // SAFETY: the piece is empty, or lies in an arena which the reactor's table keeps alive until after
    // `remove_arena` cleared this slot, or for ever when the reactor cannot stop; when the ring goes first, the
    // kernel unregisters by itself. It pins the pages, so that it never follows an address that is gone.
    unsafe { ring.submitter().register_buffers_update(slot, &[vector], None) }
}
