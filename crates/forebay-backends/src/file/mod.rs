//! A regular file or a block device as primary storage.
//!
//! Opened with O_DIRECT unless the URI says otherwise or the file system cannot (then through the
//! page cache), under an exclusive lock: two writers would corrupt each other. I/O runs on the
//! shard's reactor; `SEEK_HOLE` may wait for metadata, so that a helper thread does it
//! (`thread.rs`).
//!
//! | operation | file | block device |
//! |---|---|---|
//! | flush | `fdatasync` | the same |
//! | discard | `PUNCH_HOLE` | `BLKDISCARD`, on the helper thread |
//! | write zeroes, may unmap | `PUNCH_HOLE`, else `ZERO_RANGE` | `PUNCH_HOLE` |
//! | write zeroes, keep space | `ZERO_RANGE` | the same, never with `fast_only`: it may write zeroes |
//!
//! An operation that the kernel refuses as not supported is not tried again. Discards that a
//! device is too slow for are left out (`DISCARD_BEGINS_WITHIN`). A block device that the kernel
//! could only write zeroes to is said to have no other way. A file system in user space (FUSE) may
//! take a hole for advice, as nbdfuse does, and leave the old bytes there. On it zeroes are never a
//! hole.
//!
//! **Invariant:** a short read or write is continued; the end of the file inside the recorded size
//! is an error, never zeroes.

mod extents;
mod open;
#[cfg(test)]
mod tests;
mod thread;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::file::OpenFile;
use forebay_io::reactor::{Completion, FileId};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use slab::Slab;

use crate::OpenOptions;
use crate::backend::{
    Backend, BackendEvent, BackendIo, Context, Properties, TokenRange, Writes, status_of,
};
use crate::error::Error;
use crate::identity;
use crate::probe::Probe;
use crate::uri::FileUri;
use thread::{Answer, FileThread, Question};

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
/// Much shorter than the time that primary storage has for a request.
const DISCARD_BEGINS_WITHIN: Duration = Duration::from_secs(5);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

/// See the module.
#[derive(Debug)]
pub struct FileBackend {
    path: PathBuf,
    properties: Properties,
    is_block: bool,
    /// The locked file of a loop device, until it is attached.
    behind: Option<Arc<OwnedFd>>,
    is_direct: bool,
    /// Until it is attached.
    file: Option<Arc<OwnedFd>>,
    /// Only to look at it.
    looks: Option<Arc<File>>,
    attached: Option<Attached>,
    /// A device that may discard: with its lock, until that is done.
    device: Option<Device>,
    thread: Option<FileThread>,
    running: Slab<Running>,
    /// The listener for writes.
    writes: Option<Arc<dyn Writes>>,
    holes: Holes,
}

/// What can be done without writing zeroes.
#[derive(Clone, Copy, Debug)]
struct Holes {
    /// Operations that the kernel has not refused yet.
    can_punch: bool,
    can_zero: bool,
    /// Of a device.
    can_discard: bool,
    /// A hole reads as zeroes.
    are_zeroes: bool,
}

#[derive(Clone, Copy, Debug)]
struct Attached {
    file: FileId,
    tokens: TokenRange,
}

/// An I/O in flight.
#[derive(Clone, Copy, Debug)]
struct Running {
    io: BackendIo,
    /// Bytes that are transferred.
    done: u64,
    /// Of `fallocate`: what was tried.
    mode: FallocateFlags,
}

impl FileBackend {
    /// Opens a regular file.
    ///
    /// # Errors
    /// It cannot serve, or another process has it.
    pub fn open_file(uri: &FileUri, options: OpenOptions) -> Result<FileBackend, Error> {
        Ok(FileBackend::new(uri, options, open::open(uri, options, false)?, None))
    }

    /// Opens a block device.
    ///
    /// # Errors
    /// It cannot serve, or it is in use.
    pub fn open_block(uri: &FileUri, options: OpenOptions) -> Result<FileBackend, Error> {
        let device = open::open(uri, options, true)?;
        let behind = open::lock_file_of_loop(device.as_fd(), uri, options)?;
        Ok(FileBackend::new(uri, options, device, behind))
    }

    fn new(
        uri: &FileUri,
        options: OpenOptions,
        file: OpenFile,
        behind: Option<OwnedFd>,
    ) -> FileBackend {
        let is_block = file.is_block_device();
        let looks = open::reopen(file.as_fd()).map(|it| Arc::new(File::from(it)));
        let is_on_fuse = open::file_system(&file) == Some(open::FUSE);
        FileBackend {
            path: uri.path.clone(),
            properties: Properties {
                size: file.size(),
                logical_block: file.logical_block(),
                read_only: uri.read_only || options.read_only,
                discard: !is_block || identity::discards(file.as_fd()),
                write_zeroes: !is_block || identity::zeroes(file.as_fd()),
                extents: looks.is_some() && !is_block,
                host_loses: open::host_loses(&file),
            },
            is_block,
            behind: behind.map(Arc::new),
            is_direct: file.is_direct(),
            file: Some(Arc::new(file.into_fd())),
            looks,
            attached: None,
            thread: None,
            device: None,
            running: Slab::new(),
            writes: None,
            holes: Holes {
                can_punch: true,
                can_zero: true,
                can_discard: true,
                are_zeroes: is_block || !is_on_fuse,
            },
        }
    }

    /// True when the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Starts what is left of an I/O.
    fn advance(&mut self, cx: &mut Context<'_>, key: usize) {
        let Attached { file, tokens } = self.attached.expect("attached before any I/O");
        let Running { io, done, mode } = self.running[key];
        let token = tokens.token(key as u64);
        let offset = io.range.start + done;
        match io.op {
            IoOp::Read { .. } => {
                let memory = io.region(done).expect("a read has memory");
                cx.reactor.read(file, offset, memory, token);
            }
            IoOp::Write { .. } => {
                let memory = io.region(done).expect("a write has memory");
                cx.reactor.write(file, offset, memory, token);
            }
            IoOp::Flush => cx.reactor.flush(file, token),
            IoOp::Discard | IoOp::WriteZeroes { .. } => {
                cx.reactor.fallocate(file, mode, offset, io.range.len(), token);
            }
            IoOp::Extents | IoOp::Progress { .. } => unreachable!("not an operation of the file"),
        }
    }

    fn start(&mut self, cx: &mut Context<'_>, io: BackendIo, mode: FallocateFlags) {
        // A thread of the reactor may carry it out before this turn of the shard has ended.
        if let Some(writes) = self.writes.as_ref().filter(|_| io.changes_data()) {
            writes.begins();
        }
        let key = self.running.insert(Running { io, done: 0, mode });
        self.advance(cx, key);
    }

    fn start_discard(&mut self, cx: &mut Context<'_>, mut io: BackendIo) {
        let can_discard = if self.is_block { self.holes.can_discard } else { self.holes.can_punch };
        if !can_discard {
            return refuse(cx, io, IoStatus::Unsupported);
        }
        // Blocks that are discarded only in part stay.
        let block = u64::from(self.properties.logical_block);
        let start = io.range.start.next_multiple_of(block);
        let end = io.range.end / block * block;
        if start >= end {
            return refuse(cx, io, IoStatus::Ok);
        }
        io.range = ByteRange::new(start, end);
        if self.is_block {
            return self.discard_on_device(cx, io);
        }
        self.start(cx, io, PUNCH);
    }

    fn discard_on_device(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        if self.thread.is_none() {
            let device = self.device.clone();
            self.thread = device.and_then(|it| FileThread::start(it, cx.reactor.waker()).ok());
        }
        let Some(thread) = &self.thread else { return refuse(cx, io, IoStatus::Unsupported) };
        if let Some(writes) = &self.writes {
            writes.begins();
        }
        let until = Instant::now() + DISCARD_BEGINS_WITHIN;
        thread.ask(io.id, Question::Discard { until }, io.range);
    }

    /// What came of a discard on a device.
    fn discarded(&mut self, done: &io::Result<()>) -> IoStatus {
        if let Some(writes) = &self.writes {
            writes.ended();
        }
        let status = done.as_ref().map_or_else(status_of_unmap, |()| IoStatus::Ok);
        self.holes.can_discard &= status != IoStatus::Unsupported;
        status
    }

    fn ask_for_extents(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        if self.thread.is_none() {
            let file = self.looks.clone().expect("refused without it");
            self.thread = FileThread::start(file, cx.reactor.waker()).ok();
        }
        match &self.thread {
            Some(thread) => thread.ask(io.id, Question::Extents, io.range),
            None => {
                let extents = extents::unknown(io.range);
                cx.events.push(BackendEvent::Extents { id: io.id, extents });
            }
        }
    }

    /// The next way to write zeroes after `tried`, if there is one.
    fn zeroes_mode(
        &self,
        range: ByteRange,
        may_unmap: bool,
        fast_only: bool,
        tried: Option<FallocateFlags>,
    ) -> Option<FallocateFlags> {
        if !range.is_aligned(self.properties.logical_block.into()) {
            return None;
        }
        // The kernel writes zeroes to a device that has no better way: what is to be unmapped would be filled.
        let writes = self.is_block && (fast_only || may_unmap);
        if may_unmap && self.holes.can_punch && self.holes.are_zeroes && tried.is_none() {
            Some(PUNCH)
        } else if self.holes.can_zero && tried != Some(ZERO) && !writes {
            Some(ZERO)
        } else {
            None
        }
    }

    /// Takes one completion of an I/O; `None`: it goes on.
    fn outcome(&mut self, key: usize, result: io::Result<usize>) -> Option<IoStatus> {
        let block = u64::from(self.properties.logical_block);
        let is_direct = self.is_direct;
        let running = &mut self.running[key];
        let moved = match result {
            Ok(moved) => moved as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return None,
            Err(error) => return self.failure(key, &error),
        };
        match running.io.op {
            IoOp::Read { .. } | IoOp::Write { .. } => {
                let total = running.io.range.len();
                if running.done + moved >= total {
                    return Some(IoStatus::Ok);
                }
                // Direct I/O goes on at a whole block. No progress: the file ends here, or the
                // device takes no more.
                let unit = if is_direct { block } else { 1 };
                let progress = moved / unit * unit;
                running.done += progress;
                (progress == 0).then_some(IoStatus::IoError)
            }
            IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Extents
            | IoOp::Progress { .. } => Some(IoStatus::Ok),
        }
    }

    /// An operation failed; `None`: it is tried in another way.
    fn failure(&mut self, key: usize, error: &io::Error) -> Option<IoStatus> {
        let Running { io, mode, .. } = self.running[key];
        let is_unmap = self.is_block && matches!(io.op, IoOp::WriteZeroes { .. });
        let status = if is_unmap { status_of_unmap(error) } else { status_of(error) };
        if status != IoStatus::Unsupported {
            return Some(status);
        }
        let IoOp::WriteZeroes { may_unmap, fast_only } = io.op else {
            self.holes.can_punch &= !matches!(io.op, IoOp::Discard);
            return Some(status);
        };
        self.holes.can_punch &= mode != PUNCH;
        self.holes.can_zero &= mode != ZERO;
        match self.zeroes_mode(io.range, may_unmap, fast_only, Some(mode)) {
            None => Some(status),
            Some(next) => {
                self.running[key].mode = next;
                None
            }
        }
    }
}

/// The same of a device that is asked to unmap or to zero: a target may offer that, and reject it.
fn status_of_unmap(error: &io::Error) -> IoStatus {
    match Errno::from_io_error(error) {
        Some(Errno::REMOTEIO) => IoStatus::Unsupported,
        _ => status_of(error),
    }
}

fn refuse(cx: &mut Context<'_>, io: BackendIo, status: IoStatus) {
    cx.events.push(BackendEvent::Done { id: io.id, status });
}

impl Backend for FileBackend {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn lengthen(&mut self, size: u64) {
        self.properties.size = self.properties.size.max(size);
    }

    fn attach(&mut self, cx: &mut Context<'_>, tokens: TokenRange) -> io::Result<()> {
        let file = self.file.take().expect("attached once");
        let behind = self.behind.take();
        let device = || Device { fd: file.clone(), _behind: behind.clone() };
        self.device = self.is_block.then(device);
        // Others have both when nothing is under way there any more.
        let file = cx.reactor.add_file(file, behind).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })?;
        self.attached = Some(Attached { file, tokens });
        Ok(())
    }

    fn submit(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        if let Some(status) = io.refusal(&self.properties) {
            return refuse(cx, io, status);
        }
        match io.op {
            IoOp::Read { .. } | IoOp::Write { .. } => self.start(cx, io, PUNCH),
            IoOp::Flush if self.properties.read_only => refuse(cx, io, IoStatus::Ok),
            IoOp::Flush => self.start(cx, io, PUNCH),
            IoOp::Discard => self.start_discard(cx, io),
            IoOp::WriteZeroes { may_unmap, fast_only } => {
                match self.zeroes_mode(io.range, may_unmap, fast_only, None) {
                    Some(mode) => self.start(cx, io, mode),
                    None => refuse(cx, io, IoStatus::Unsupported),
                }
            }
            IoOp::Progress { .. } => unreachable!("refused"),
            IoOp::Extents => self.ask_for_extents(cx, io),
        }
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        let key = TokenRange::local(completion.token) as usize;
        match self.outcome(key, completion.result) {
            None => self.advance(cx, key),
            Some(status) => {
                let Running { io, .. } = self.running.remove(key);
                if let Some(writes) = self.writes.as_ref().filter(|_| io.changes_data()) {
                    // It may have waited, and left its time there only now.
                    writes.ended();
                }
                cx.events.push(BackendEvent::Done { id: io.id, status });
            }
        }
    }

    fn on_wake(&mut self, cx: &mut Context<'_>) {
        while let Some((id, answer)) = self.thread.as_ref().and_then(FileThread::answer) {
            let event = match answer {
                Answer::Extents(extents) => BackendEvent::Extents { id, extents },
                Answer::Discarded(done) => BackendEvent::Done { id, status: self.discarded(&done) },
            };
            cx.events.push(event);
        }
    }

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }

    fn probe(&self) -> Option<Probe> {
        let (file, looks) = (self.file.as_ref()?, self.looks.clone()?);
        let read_only = self.properties.read_only;
        match self.is_block {
            true => Some(Probe::of_device(file, looks, read_only)),
            false => Probe::of_file(file, looks, &self.path, read_only).ok(),
        }
    }

    fn tell_of_writes(&mut self, to: Arc<dyn Writes>) {
        self.writes = Some(to);
    }

    fn detach(&mut self, cx: &mut Context<'_>) {
        (self.thread, self.device) = (None, None);
        (self.looks, self.writes) = (None, None);
        if let Some(Attached { file, .. }) = self.attached.take() {
            cx.reactor.remove_file(file);
        }
    }
}

/// A block device and, where it is a loop device, the locked file behind it.
#[derive(Clone, Debug)]
struct Device {
    fd: Arc<OwnedFd>,
    _behind: Option<Arc<OwnedFd>>,
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
