//! A disk's destage journal on its shard: where windows are written before they go in place.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_backends::{Backend, BackendEvent, BackendIo, Context as BackendContext};
use forebay_core::action::{Io, IoOp, Span};
use forebay_core::ids::{IoId, Nanos};
use forebay_core::journal::record;
use forebay_host::fence::{Guard, Revoker};
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, Reactor};

use super::device::checksum;
use crate::JournalShare;
use crate::return_path::ReturnPath;

/// See the module.
pub(super) struct Journal {
    backend: Box<dyn Backend>,
    /// What it said, for the engine.
    pub(super) said: Vec<BackendEvent>,
    revoker: Option<Arc<Revoker>>,
    /// Keeps others from it, as long as it may be written.
    guard: Option<Guard>,
    /// Where the answer to a revocation goes.
    path: ReturnPath,
    /// Of the pieces under way, taken before each was sent.
    checksums: Vec<(IoId, Vec<u32>)>,
}

impl Journal {
    pub(super) fn new(share: JournalShare, path: ReturnPath) -> Journal {
        let JournalShare { backend, revoker, guard } = share;
        let (said, checksums) = (Vec::new(), Vec::new());
        Journal { backend, said, revoker, guard: Some(guard), path, checksums }
    }

    /// It may be another disk's, such as of the one that takes this one's place.
    pub(super) fn let_go(&mut self) {
        self.guard = None;
    }

    /// The backend, and what it is called with.
    pub(super) fn backend<'a>(
        &'a mut self,
        now: Nanos,
        reactor: &'a mut Reactor,
    ) -> (&'a mut dyn Backend, BackendContext<'a>) {
        (&mut *self.backend, BackendContext { now, reactor, events: &mut self.said })
    }

    /// When it is to be woken at the latest.
    pub(super) fn next_deadline(&self) -> Nanos {
        self.backend.next_deadline()
    }

    /// Starts an I/O.
    pub(super) fn start(
        &mut self,
        now: Nanos,
        reactor: &mut Reactor,
        io: Io,
        (arena, memory): (ArenaId, &Arena),
    ) {
        if let IoOp::Write { memory: from, .. } = io.op
            && io.checksum_piece > 0
        {
            let mut checksums = Vec::new();
            checksum(memory, from, io.checksum_piece, &mut checksums);
            self.checksums.push((io.id, checksums));
        }
        let (backend, mut cx) = self.backend(now, reactor);
        backend.submit(&mut cx, BackendIo { id: io.id, range: io.range, op: io.op, arena });
    }

    /// The checksums of an I/O that has ended.
    pub(super) fn take_checksums(&mut self, io: IoId) -> Vec<u32> {
        let place = self.checksums.iter().position(|(id, _)| *id == io);
        place.map_or(Vec::new(), |place| self.checksums.swap_remove(place).1)
    }

    /// Puts what the engine has for it into memory, dated.
    pub(super) fn copy(bytes: &[u8], to: Span, memory: &Arena) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        memory.edit(to.offset, to.len, |there| {
            there.copy_from_slice(bytes);
            record::date(there.first_chunk_mut().expect("a page"), now);
        });
    }

    /// Has it noted that the journal does not count; false when nothing can. The answer comes with
    /// [`ReturnPath::journal_revoked`], from a thread that may wait for primary storage's folder.
    pub(super) fn revoke(&self) -> bool {
        let Some(revoker) = self.revoker.clone() else { return false };
        let path = self.path.clone();
        let revoke = move || path.journal_revoked(revoker.revoke_journal());
        forebay_io::thread::start("forebay-revoke", revoke).is_ok()
    }
}
