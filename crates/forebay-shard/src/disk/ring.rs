//! The ring of a disk's cache on its shard: its pages go to flash, and that it is void to the pool's owner.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_core::action::{Io, Span, Voided};
use forebay_core::flash_pool::DiskNumber;
use forebay_core::sealed::{PAGE_LEN, Page};
use forebay_core::status::IoStatus;
use forebay_host::fence::Revoker;
use forebay_host::pool::owner::{PoolHandle, VoidAnswer};
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, Reactor};

use super::device::Device;
use super::registration::RegisteredFile;
use crate::RingShare;
use crate::return_path::ReturnPath;
use crate::token::Class;

/// See the module.
pub(super) struct Ring {
    pub(super) device: Device,
    number: DiskNumber,
    owner: PoolHandle,
    revoker: Option<Arc<Revoker>>,
    /// Where answers of the owner go.
    path: ReturnPath,
}

impl Ring {
    /// The ring in `file` of disk `on_shard`.
    pub(super) fn new(
        share: RingShare,
        file: RegisteredFile,
        on_shard: u32,
        path: ReturnPath,
    ) -> Ring {
        let RingShare { offset, number, owner, revoker } = share;
        let device = Device::from(file, offset, Class::Ring, on_shard);
        Ring { device, number, owner, revoker, path }
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

    /// Has it noted that the ring must not be believed, in the pool, or beside primary storage when flash is dead, then
    /// of the log as well; the answer comes with [`ReturnPath::voided`]. `patience`: how long flash may take, which hangs
    /// perhaps, when there is nothing in the log that would be given up with it.
    pub(super) fn void(&self, patience: Option<Duration>) {
        let (answer, answered) = mpsc::channel();
        let (path, revoker) = (self.path.clone(), self.revoker.clone());
        let wait = move || {
            let is_noted = match patience.filter(|_| revoker.is_some()) {
                Some(patience) => answered.recv_timeout(patience).unwrap_or(false),
                None => answered.recv().unwrap_or(false),
            };
            path.voided(match revoker {
                _ if is_noted => Voided::InPool,
                Some(revoker) if revoker.revoke() => Voided::WithLog,
                Some(_) | None => Voided::Nowhere,
            });
        };
        let path = self.path.clone();
        let answer: VoidAnswer = match forebay_io::thread::start("forebay-void", wait) {
            // Nobody hears it who has given up waiting.
            Ok(_) => Box::new(move |is_noted| answer.send(is_noted).unwrap_or_default()),
            Err(_) => Box::new(move |is_noted| {
                path.voided(if is_noted { Voided::InPool } else { Voided::Nowhere });
            }),
        };
        self.owner.void(self.number, answer);
    }
}
