//! I/O on flash, on a disk's share of the cache or on its log: started on the reactor, checksummed, told to the engine.
//!
//! Checksums of a write are taken before it starts, those of a read after it ended well. A short
//! transfer is an error. Places for I/Os are reused with their memory; there are as many as were ever
//! in flight at once, which the engine bounds.

use forebay_core::action::{Io, IoOp, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::IoId;
use forebay_core::status::IoStatus;
use forebay_io::arena::{Arena, Region};
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use super::registration::RegisteredFile;
use crate::token::{Class, token};

/// What a disk uses of a file or device.
#[derive(Debug)]
pub(super) struct Device {
    file: RegisteredFile,
    /// So many flushes of the file had failed when the engine was told of one, or had none to be told of.
    told: u64,
    /// Its parts, in order: where each ends among its bytes, and what is added to a place in it for that in the file.
    parts: Box<[(u64, u64)]>,
    class: Class,
    disk: u32,
    ios: Vec<DeviceIo>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct DeviceIo {
    id: IoId,
    /// What is transferred; empty for a flush.
    memory: Span,
    is_read: bool,
    makes_durable: bool,
    /// So many flushes of the file had failed when it was started.
    failed_before: u64,
    piece: u32,
    checksums: Vec<u32>,
}

impl Device {
    /// Parts of `file`, by where they begin and their lengths; its completions have tokens of `class`.
    pub(super) fn new(
        file: RegisteredFile,
        parts: &[(u64, u64)],
        class: Class,
        disk: u32,
    ) -> Device {
        let told = file.failed_flushes.count();
        let (ios, free) = (Vec::new(), Vec::new());
        let mut device = Device { file, told, parts: Box::default(), class, disk, ios, free };
        device.have(parts);
        device
    }

    /// It has these parts from now on. What I/Os under way are on lies where it did.
    pub(crate) fn have(&mut self, parts: &[(u64, u64)]) {
        let mut end: u64 = 0;
        let part = |&(offset, len): &(u64, u64)| {
            let start = end;
            end = end.saturating_add(len);
            (end, offset.wrapping_sub(start))
        };
        self.parts = parts.iter().map(part).collect();
    }

    /// The part of `file` from `base` on, whatever its length.
    pub(super) fn from(file: RegisteredFile, base: u64, class: Class, disk: u32) -> Device {
        Device::new(file, &[(base, u64::MAX)], class, disk)
    }

    /// Where a range lies in the file. It lies in one part.
    fn offset(&self, range: ByteRange) -> u64 {
        let part = self.parts.partition_point(|(end, _)| *end <= range.start);
        let (end, base) = self.parts[part];
        assert!(range.end <= end, "an I/O goes beyond its part of flash");
        range.start.wrapping_add(base)
    }

    /// Starts an I/O; a status when it has ended already.
    pub(crate) fn start(
        &mut self,
        io: Io,
        reactor: &mut Reactor,
        arena: ArenaId,
        memory: &Arena,
    ) -> Option<IoStatus> {
        self.start_with(io, None, reactor, arena, memory)
    }

    /// The same, of a write whose checksums are known when they are given.
    pub(crate) fn start_with(
        &mut self,
        io: Io,
        known: Option<&[u32]>,
        reactor: &mut Reactor,
        arena: ArenaId,
        memory: &Arena,
    ) -> Option<IoStatus> {
        let (span, is_read, is_durable) = match io.op {
            IoOp::Read { memory } => (memory, true, false),
            IoOp::Write { memory, durable } => (memory, false, durable),
            IoOp::Flush => (Span { offset: 0, len: 0 }, false, false),
            // What it reads as afterwards is undefined, so nothing need be done.
            IoOp::Discard => return Some(IoStatus::Ok),
            IoOp::WriteZeroes { .. } | IoOp::Extents | IoOp::Progress { .. } => {
                return Some(IoStatus::Unsupported);
            }
        };
        let offset = if io.op == IoOp::Flush { 0 } else { self.offset(io.range) };
        let index = self.place();
        let place = &mut self.ios[index as usize];
        place.id = io.id;
        place.memory = span;
        place.is_read = is_read;
        place.makes_durable = is_durable || io.op == IoOp::Flush;
        place.failed_before = self.file.failed_flushes.count();
        place.piece = io.checksum_piece;
        place.checksums.clear();
        let name = token(self.class, self.disk, u64::from(index));
        let region = Region { arena, offset: span.offset, len: span.len };
        match io.op {
            IoOp::Read { .. } => reactor.read(self.file.id, offset, region, name),
            IoOp::Write { .. } => {
                match known {
                    Some(checksums) => place.checksums.extend_from_slice(checksums),
                    None => checksum(memory, span, place.piece, &mut place.checksums),
                }
                match is_durable {
                    true => reactor.write_durably(self.file.id, offset, region, name),
                    false => reactor.write(self.file.id, offset, region, name),
                }
            }
            IoOp::Flush => reactor.flush(self.file.id, name),
            IoOp::Discard | IoOp::WriteZeroes { .. } | IoOp::Extents | IoOp::Progress { .. } => {
                unreachable!("ended above")
            }
        }
        None
    }

    /// Takes the completion of place `index`: the I/O, how it ended, its checksums.
    pub(crate) fn finish(
        &mut self,
        index: u64,
        completion: &Completion,
        memory: &Arena,
    ) -> (IoId, IoStatus, &[u32]) {
        let place = &mut self.ios[index as usize];
        let mut status = status_of(completion, place.memory.len);
        if place.makes_durable {
            if !status.is_ok() {
                self.file.failed_flushes.note();
            }
            // What this disk wrote may be what the flush of another one, or of another part of the disk, could not write. That may
            // be known only when a durable write has been answered already: the next one tells of it.
            let failed = self.file.failed_flushes.count();
            let told = std::mem::replace(&mut self.told, failed);
            if status.is_ok() && told.min(place.failed_before) != failed {
                status = IoStatus::IoError;
            }
        }
        if status.is_ok() && place.is_read {
            checksum(memory, place.memory, place.piece, &mut place.checksums);
        }
        if !status.is_ok() {
            place.checksums.clear();
        }
        self.free.push(index as u32);
        (place.id, status, &place.checksums)
    }

    fn place(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        self.ios.push(DeviceIo {
            id: IoId(0),
            memory: Span { offset: 0, len: 0 },
            is_read: false,
            makes_durable: false,
            failed_before: 0,
            piece: 0,
            checksums: Vec::new(),
        });
        self.ios.len() as u32 - 1
    }
}

/// How an I/O of `len` bytes ended.
pub(super) fn status_of(completion: &Completion, len: u32) -> IoStatus {
    match &completion.result {
        Ok(transferred) if *transferred == len as usize => IoStatus::Ok,
        Ok(_) => IoStatus::IoError,
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => IoStatus::NoSpace,
        Err(_) => IoStatus::IoError,
    }
}

/// Appends the CRC32C of each piece of `span`.
pub(super) fn checksum(memory: &Arena, span: Span, piece: u32, out: &mut Vec<u32>) {
    if piece == 0 {
        return;
    }
    let mut done = 0;
    while done < span.len {
        let len = piece.min(span.len - done);
        out.push(memory.crc32c(span.offset + u64::from(done), len));
        done += len;
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use forebay_core::action::Target;
    use forebay_core::sealed::PAGE_LEN;
    use forebay_host::pool::SharedFile;
    use forebay_io::reactor::ReactorKind;

    use super::super::registration::Registration;
    use super::*;

    /// How a flush of the device ends for the engine, when it ended so for the kernel.
    fn flush(
        device: &mut Device,
        reactor: &mut Reactor,
        (arena, memory): (ArenaId, &Arena),
        is_ok: bool,
    ) -> IoStatus {
        let io = Io {
            id: IoId(7),
            target: Target::Log,
            range: ByteRange::default(),
            op: IoOp::Flush,
            checksum_piece: 0,
        };
        assert_eq!(device.start(io, reactor, arena, memory), None);
        let result = if is_ok { Ok(0) } else { Err(io::ErrorKind::Other.into()) };
        let completion = Completion { token: token(device.class, 0, 0), result, buffer: None };
        device.finish(0, &completion, memory).1
    }

    #[test]
    fn a_flush_that_failed_for_somebody_else_has_failed_for_all_who_have_the_file() {
        let mut reactor = Reactor::new(8, Some(ReactorKind::Epoll)).unwrap();
        let memory = Arc::new(Arena::new(PAGE_LEN).unwrap());
        let fd = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let file = SharedFile { fd, failed_flushes: Arc::default() };
        let mut registered = Registration::default();
        let arena = registered.arena(&mut reactor, memory.clone()).unwrap();
        let mut device = |class| {
            let file = registered.file(&mut reactor, file.clone()).unwrap();
            Device::from(file, 0, class, 0)
        };
        let (mut log, mut ring) = (device(Class::Log), device(Class::Ring));
        let ends = |device: &mut Device, reactor: &mut Reactor, is_ok| {
            flush(device, reactor, (arena, &memory), is_ok).is_ok()
        };
        assert!(ends(&mut log, &mut reactor, true) && ends(&mut ring, &mut reactor, true));
        assert!(!ends(&mut ring, &mut reactor, false), "the kernel says so");
        assert!(!ends(&mut log, &mut reactor, true), "the kernel says it once");
        assert!(ends(&mut log, &mut reactor, true) && ends(&mut ring, &mut reactor, true));
        // Such as of the pool's owner, or of a page that is written durably.
        file.failed_flushes.note();
        assert!(!ends(&mut log, &mut reactor, true) && !ends(&mut ring, &mut reactor, true));
        assert!(ends(&mut log, &mut reactor, true) && ends(&mut ring, &mut reactor, true));
    }

    #[test]
    fn a_flush_that_fails_beside_a_durable_write_may_have_been_of_its_bytes() {
        let mut reactor = Reactor::new(8, Some(ReactorKind::Epoll)).unwrap();
        let memory = Arc::new(Arena::new(2 * PAGE_LEN).unwrap());
        let fd = Arc::new(std::fs::File::options().write(true).open("/dev/null").unwrap().into());
        let file = SharedFile { fd, failed_flushes: Arc::default() };
        let mut registered = Registration::default();
        let arena = registered.arena(&mut reactor, memory.clone()).unwrap();
        let of_log = registered.file(&mut reactor, file.clone()).unwrap();
        let mut log = Device::from(of_log, 0, Class::Log, 0);
        let io = |durable| Io {
            id: IoId(7),
            target: Target::Log,
            range: ByteRange::at(0, PAGE_LEN as u64),
            op: IoOp::Write { memory: Span { offset: 0, len: PAGE_LEN as u32 }, durable },
            checksum_piece: 0,
        };
        let finish = |log: &mut Device, index, result| {
            let token = token(Class::Log, 0, index);
            log.finish(index, &Completion { token, result, buffer: None }, &memory).1
        };
        let mut ends = |durable, fails: bool, result| {
            assert_eq!(log.start(io(durable), &mut reactor, arena, &memory), None);
            if fails {
                file.failed_flushes.note();
            }
            finish(&mut log, 0, result)
        };
        assert_eq!(ends(true, false, Ok(PAGE_LEN)), IoStatus::Ok);
        assert_eq!(ends(true, true, Ok(PAGE_LEN)), IoStatus::IoError);
        assert_eq!(
            ends(false, true, Ok(PAGE_LEN)),
            IoStatus::Ok,
            "the next durable I/O answers for it"
        );
        assert_eq!(ends(true, false, Ok(PAGE_LEN)), IoStatus::IoError);
        assert_eq!(ends(true, false, Ok(PAGE_LEN)), IoStatus::Ok, "it tells once");
        let full = Err(io::ErrorKind::StorageFull.into());
        assert_eq!(ends(true, false, full), IoStatus::NoSpace, "it says why");
        // Both of those that were under way beside it.
        for _ in 0..2 {
            assert_eq!(log.start(io(true), &mut reactor, arena, &memory), None);
        }
        file.failed_flushes.note();
        for index in 0..2 {
            assert_eq!(finish(&mut log, index, Ok(PAGE_LEN)), IoStatus::IoError);
        }
    }
}
