//! The ring of a disk's cache on its shard: its pages go to flash, and that it is void to the pool's owner.

use forebay_core::action::{Io, Span};
use forebay_core::pool::DiskNumber;
use forebay_core::sealed::{PAGE_LEN, Page};
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, FileId, Reactor};

use super::device::Device;
use super::token::Class;
use super::{DiskHandle, RingShare};
use crate::daemon::pool::owner::PoolHandle;

/// See the module.
pub(super) struct Ring {
    pub(super) device: Device,
    number: DiskNumber,
    owner: PoolHandle,
    /// Where answers of the owner go.
    handle: DiskHandle,
}

impl Ring {
    /// The ring in `file` of disk `on_shard`.
    pub(super) fn new(share: RingShare, file: FileId, on_shard: u32, handle: DiskHandle) -> Ring {
        let RingShare { offset, number, owner } = share;
        Ring { device: Device::new(file, offset, Class::Ring, on_shard), number, owner, handle }
    }

    /// Puts pages where they are written from.
    pub(super) fn copy(pages: &[Page], to: Span, memory: &Arena) {
        memory.edit(to.offset, to.len, |bytes| {
            for (page, bytes) in pages.iter().zip(bytes.chunks_exact_mut(PAGE_LEN)) {
                bytes.copy_from_slice(page);
            }
        });
    }

    /// Starts an I/O; a status when it has ended already.
    pub(super) fn start(
        &mut self,
        io: Io,
        reactor: &mut Reactor,
        arena: ArenaId,
        memory: &Arena,
    ) -> Option<IoStatus> {
        self.device.start(io, reactor, arena, memory)
    }

    /// Has it noted that the ring must not be believed; the answer comes with [`DiskHandle::voided`].
    pub(super) fn void(&self) {
        let handle = self.handle.clone();
        self.owner.void(self.number, Box::new(move |known| handle.voided(known)));
    }
}
