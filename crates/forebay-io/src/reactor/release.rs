//! Memory that goes back to the kernel while its arena stays.

use std::io;

use super::Reactor;
use crate::arena::Region;

impl Reactor {
    /// Gives the memory of a region back to the kernel. It is whole huge pages of 2 MiB from the start of the arena, and
    /// no operation on it is in flight. It reads as zeroes from then on, and takes memory again when it is used.
    ///
    /// Memory that is registered with the ring would be kept, and I/O would go there while the program sees other pages. So it
    /// is unregistered before.
    ///
    /// # Errors
    /// The kernel's; the memory stays where it is then. Panics when the arena was removed.
    pub fn release(&mut self, region: Region) -> io::Result<()> {
        let Region { arena, offset, len } = region;
        let arena_held = self.arena(arena).clone();
        self.driver_mut().on_release(arena.0.into(), offset..offset + u64::from(len))?;
        arena_held.release(offset, len as usize)
    }
}
