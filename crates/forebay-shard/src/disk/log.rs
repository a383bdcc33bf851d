//! The write log of a disk on its shard: builds its pages in memory, writes them, notes progress.
//!
//! Segments come from the pool's owner and go back to it without the shard waiting for either.
//! Progress goes to a page of its own memory, to the two places of its page pair in turn; the engine
//! notes one at a time, so that the version before is durable.

use forebay_core::action::{Io, IoOp, LogAction, NoLease, Span};
use forebay_core::flash_pool::lease::Lease;
use forebay_core::flash_pool::progress::Progress;
use forebay_core::flash_pool::superblock::Superblock;
use forebay_core::flash_pool::{DiskNumber, PairId, pair};
use forebay_core::ids::{IoId, SegmentId, Sequence, Uuid};
use forebay_core::sealed::PAGE_LEN;
use forebay_core::status::IoStatus;
use forebay_core::write_back::format::build::{LogBuilder, LogMemory};
use forebay_core::write_back::format::group;
use forebay_io::arena::{Arena, Region};
use forebay_io::reactor::{ArenaId, Completion, Reactor};
use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_host::fence::Revoker;
use forebay_host::pool::owner::{Leased, PoolHandle};
use forebay_host::pool::staging::Staging;
use forebay_host::pool::{Held, SharedFile};

use super::device::{self, Device};
use super::registration::{RegisteredFile, Registration};
use crate::return_path::ReturnPath;
use crate::token::{Class, token};

/// A disk's part in a pool, for its log.
#[derive(Debug)]
pub struct LogShare {
    /// The pool's file or device.
    pub file: SharedFile,
    /// The pool, and how it is cut.
    pub pool: Superblock,
    /// The disk in it.
    pub number: DiskNumber,
    /// The disk.
    pub disk: Uuid,
    /// In all segments of this run.
    pub nonce: u64,
    /// The version of the progress page.
    pub progress_version: u64,
    /// The segments that it has.
    pub leases: Vec<Held>,
    /// Who leases segments.
    pub owner: PoolHandle,
    /// The staging file, locked while the disk lives.
    pub staging: Option<Staging>,
    /// Who can note that flash is dead.
    pub revoker: Option<Arc<Revoker>>,
}

/// See the module.
pub(super) struct Log {
    pub(super) device: Device,
    file: RegisteredFile,
    /// The number of the disk on this shard.
    on_shard: u32,
    of_pool: OfPool,
    groups: Groups,
    owner: PoolHandle,
    /// Under which lease each segment is held: it is given back under that one.
    leases: BTreeMap<SegmentId, Lease>,
    /// Where answers of the owner go.
    path: ReturnPath,
    staging: Option<Staging>,
    revoker: Option<Arc<Revoker>>,
    progress: ProgressPage,
}

/// The disk as its pool knows it.
struct OfPool {
    pool: Superblock,
    number: DiskNumber,
    disk: Uuid,
}

/// The groups that are built.
struct Groups {
    builder: LogBuilder,
    /// The header of the one that was sealed last.
    sealed: Option<Span>,
    /// Checksums of its data pages.
    checksums: Vec<u32>,
}

struct ProgressPage {
    memory: Arc<Arena>,
    arena: ArenaId,
    /// Durable, or on its way.
    version: u64,
    /// The note under way, and how many flushes of the file had failed before it.
    writing: Option<(IoId, u64)>,
}

impl Log {
    /// Registers everything with the shard's reactor.
    pub(super) fn new(
        share: LogShare,
        on_shard: u32,
        path: ReturnPath,
        reactor: &mut Reactor,
        registered: &mut Registration,
    ) -> std::io::Result<Log> {
        let file = registered.file(reactor, share.file)?;
        let memory = Arc::new(Arena::new(PAGE_LEN)?);
        let arena = registered.arena(reactor, memory.clone())?;
        Ok(Log {
            device: Device::from(file.clone(), 0, Class::Log, on_shard),
            file,
            on_shard,
            of_pool: OfPool { pool: share.pool, number: share.number, disk: share.disk },
            groups: Groups {
                builder: LogBuilder::new(share.disk, share.nonce),
                sealed: None,
                checksums: Vec::with_capacity(1024),
            },
            owner: share.owner,
            leases: share.leases.into_iter().collect(),
            path,
            staging: share.staging,
            revoker: share.revoker,
            progress: ProgressPage {
                memory,
                arena,
                version: share.progress_version,
                writing: None,
            },
        })
    }

    /// Starts an I/O; a status when it has ended already.
    pub(super) fn start(
        &mut self,
        io: Io,
        reactor: &mut Reactor,
        arena: ArenaId,
        memory: &Arena,
    ) -> Option<IoStatus> {
        match io.op {
            IoOp::Progress { flushed, through } => {
                self.note(io.id, flushed, through, reactor);
                None
            }
            // The summary of a segment has its own checksum.
            IoOp::Write { .. } if io.checksum_piece == 0 => {
                self.device.start(io, reactor, arena, memory)
            }
            IoOp::Write { .. } => {
                let header =
                    self.groups.sealed.take().expect("a group is sealed before it is written");
                // As its records were staged: what memory did to the data since shows when they are read.
                self.groups.checksums.clear();
                memory.look(header.offset, header.len, |page| {
                    group::checksums(page.try_into().expect("a page"), &mut self.groups.checksums);
                });
                self.device.start_with(io, Some(&self.groups.checksums), reactor, arena, memory)
            }
            IoOp::Read { .. }
            | IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Extents => self.device.start(io, reactor, arena, memory),
        }
    }

    /// Writes the next version of the progress page.
    fn note(&mut self, io: IoId, flushed: Sequence, through: Sequence, reactor: &mut Reactor) {
        let page = &mut self.progress;
        assert!(page.writing.is_none(), "the version before is not durable");
        page.writing = Some((io, self.file.failed_flushes.count()));
        page.version += 1;
        let progress = Progress { disk: self.of_pool.disk, flushed, through };
        let (pool, number, version) = (self.of_pool.pool, self.of_pool.number, page.version);
        page.memory.edit(0, PAGE_LEN as u32, |bytes| {
            progress.encode(&pool, number, version, bytes.try_into().expect("a page"));
        });
        let copy = pair::copy_of(version);
        let offset = self.of_pool.pool.geometry.pair_offset(PairId::Progress(number), copy);
        let region = Region { arena: page.arena, offset: 0, len: PAGE_LEN as u32 };
        let name = token(Class::Progress, self.on_shard, 0);
        reactor.write_durably(self.file.id, offset, region, name);
    }

    /// The progress page is written, or not: which I/O that was, and how it ended.
    pub(super) fn noted(&mut self, completion: &Completion) -> (IoId, IoStatus) {
        let (io, failed_before) = self.progress.writing.take().expect("its own completion");
        let mut status = device::status_of(completion, PAGE_LEN as u32);
        if !status.is_ok() {
            // To write it durably flushes what others wrote.
            self.file.failed_flushes.note();
        } else if self.file.failed_flushes.count() != failed_before {
            // The flush of somebody else may have taken the error of this page.
            status = IoStatus::IoError;
        }
        if !status.is_ok() {
            // The same copy again: the other one is still good.
            self.progress.version -= 1;
        }
        (io, status)
    }

    /// Asks for a segment; the answer comes with [`ReturnPath::leased`].
    pub(super) fn lease(&self) {
        let path = self.path.clone();
        self.owner.lease(self.of_pool.number, Box::new(move |leased| path.leased(leased)));
    }

    /// What was asked for came: the segment and its ordinal, for the engine.
    pub(super) fn leased(&mut self, leased: Leased) -> Result<(SegmentId, u64), NoLease> {
        let (segment, lease) = leased?;
        self.leases.insert(segment, lease);
        Ok((segment, lease.ordinal))
    }

    /// Takes memory for all of the staging file.
    ///
    /// # Errors
    /// There is not that much.
    pub(super) fn grow_staging(&self) -> anyhow::Result<()> {
        self.staging.as_ref().map_or(Ok(()), Staging::grow)
    }

    /// Gives a segment back; false when it is not the disk's.
    pub(super) fn unlease(&mut self, segment: SegmentId) -> bool {
        let lease = self.leases.remove(&segment);
        if let Some(lease) = lease {
            self.owner.free((segment, lease));
        }
        lease.is_some()
    }

    /// Asks for a segment of its own in the place of its lease, which ends; the answer comes with [`ReturnPath::leased`].
    pub(super) fn renew(&mut self, segment: SegmentId) {
        let path = self.path.clone();
        let answer = Box::new(move |leased| path.leased(leased));
        match self.leases.remove(&segment) {
            Some(lease) => self.owner.renew((segment, lease), answer),
            // It goes back to the pool, or never was the disk's.
            None => self.owner.lease(self.of_pool.number, answer),
        }
    }

    /// Has it noted that no later start may go on with the log; false when nothing can. The answer comes with
    /// [`ReturnPath::revoked`], from a thread that may wait for primary storage's folder.
    pub(super) fn revoke(&self) -> bool {
        let Some(revoker) = self.revoker.clone() else { return false };
        let path = self.path.clone();
        let revoke = move || path.revoked(revoker.revoke());
        forebay_io::thread::start("forebay-revoke", revoke).is_ok()
    }

    /// Builds a piece of the log in memory.
    pub(super) fn build(&mut self, action: LogAction, memory: &Arena) {
        if let LogAction::SealGroup { memory, .. } = action {
            self.groups.sealed = Some(memory);
        }
        self.groups.builder.build(action, &mut Shared(memory));
    }
}

/// The memory of the disk, which the kernel and the guest's threads see, too.
struct Shared<'a>(&'a Arena);

impl LogMemory for Shared<'_> {
    fn look<T>(&self, at: Span, look: impl FnOnce(&[u8]) -> T) -> T {
        self.0.look(at.offset, at.len, look)
    }

    fn edit<T>(&mut self, at: Span, change: impl FnOnce(&mut [u8]) -> T) -> T {
        self.0.edit(at.offset, at.len, change)
    }
}
