//! The input of one connection: replies, simple and structured.
//!
//! Read data goes straight to the memory of its request: what has already come with other bytes is
//! copied, the rest is received into its place. A server that breaks the protocol ends the session.
//!
//! ```text
//! Header ──read data──► Data ──last byte──► Header
//!    └──everything else──► Header
//! ```
//! **Invariant:** no byte is written outside the memory of a part that this connection was asked
//! for and has not answered.

use forebay_core::action::{Extent, ExtentState, IoOp};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::arena::Region;
use forebay_io::reactor::Reactor;
use forebay_nbd::errno::Errno;
use forebay_nbd::flags::{AllocationFlags, ChunkFlags};
use forebay_nbd::reply::{
    BlockStatus, ChunkHeader, ChunkKind, ErrorChunk, OffsetData, OffsetHole, ReplyHeader,
    SimpleReply,
};

use super::export::Export;
use super::requests::{Part, Requests};
use crate::backend::BackendEvent;

/// Bytes received at a time, besides payload.
const BUFFER: usize = 64 << 10;
/// Extents that are kept of one answer.
const EXTENTS_MAX: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Bytes that came and are not parsed yet; lent to the reactor while it receives.
    buffer: Vec<u8>,
    data: Option<Data>,
}

/// Read data on its way into memory.
#[derive(Clone, Copy, Debug)]
struct Data {
    part: usize,
    /// The rest of the place where it goes.
    place: Region,
    /// Nothing follows it.
    is_last: bool,
}

/// Parsing works on this besides the bytes.
pub(super) struct Sink<'a> {
    pub(super) now: Nanos,
    pub(super) connection: usize,
    pub(super) export: &'a Export,
    pub(super) reactor: &'a Reactor,
    pub(super) requests: &'a mut Requests,
    pub(super) events: &'a mut Vec<BackendEvent>,
    /// The part that is only sent in part; the server cannot have answered it.
    pub(super) unsent: Option<usize>,
    /// The server said that it shuts down: the session ends, and the next one gets what this one did not do.
    pub(super) shuts_down: bool,
}

impl Incoming {
    pub(super) fn new() -> Incoming {
        Incoming { buffer: Vec::with_capacity(BUFFER), data: None }
    }

    /// What to receive next: a place for the rest of read data, and a buffer for what follows it.
    pub(super) fn lend(&mut self) -> (Option<Region>, Vec<u8>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.capacity() - buffer.len() < BUFFER / 2 {
            buffer.reserve(BUFFER);
        }
        (self.data.map(|data| data.place), buffer)
    }

    /// Takes back a buffer whose bytes mean nothing, as nothing does that may come after them.
    pub(super) fn discard(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        *self = Incoming { buffer, data: None };
    }

    /// Takes what was received: `count` bytes, first those for the place, then those in the buffer.
    ///
    /// # Errors
    /// How the server broke the protocol.
    pub(super) fn received(
        &mut self,
        buffer: Vec<u8>,
        count: usize,
        sink: &mut Sink<'_>,
    ) -> Result<(), String> {
        self.buffer = buffer;
        if let Some(data) = &mut self.data {
            let placed = (data.place.len as usize).min(count);
            data.place.offset += placed as u64;
            data.place.len -= placed as u32;
            self.end_data(sink)?;
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        let mut parsed = 0;
        while self.data.is_none() {
            match self.parse(&bytes[parsed..], sink)? {
                0 => break,
                used => parsed += used,
            }
        }
        bytes.drain(..parsed);
        if bytes.is_empty() {
            bytes.shrink_to(2 * BUFFER);
        }
        self.buffer = bytes;
        Ok(())
    }

    /// Understands one reply or chunk; how many bytes it took, 0 when more are needed.
    fn parse(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<usize, String> {
        let header = ReplyHeader::decode(bytes).map_err(|error| error.to_string())?;
        match header {
            None => Ok(0),
            Some(ReplyHeader::Simple(reply)) => self.simple(reply, bytes, sink),
            Some(ReplyHeader::Chunk(chunk)) => self.chunk(chunk, bytes, sink),
        }
    }

    fn simple(
        &mut self,
        reply: SimpleReply,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<usize, String> {
        let key = sink.part(reply.cookie)?;
        let (part, request) = sink.requests.part_mut(key);
        if !part.arrived.is_empty() {
            return Err("a simple reply in the middle of a structured one".to_owned());
        }
        match (reply.result, request.io.op) {
            (Err(errno), _) => part.refuse(errno),
            (Ok(()), IoOp::Read { .. }) if sink.export.structured => {
                return Err(
                    "a simple reply to a read though structured ones were agreed".to_owned()
                );
            }
            (Ok(()), IoOp::Read { .. }) => {
                let range = part.range;
                part.arrived.add(range, range);
                let taken = self.begin_data(key, range, true, &bytes[SimpleReply::SIZE..], sink)?;
                return Ok(SimpleReply::SIZE + taken);
            }
            (Ok(()), IoOp::Extents) => return Err("a block status without extents".to_owned()),
            (
                Ok(()),
                IoOp::Write { .. }
                | IoOp::Flush
                | IoOp::Discard
                | IoOp::WriteZeroes { .. }
                | IoOp::Progress { .. },
            ) => {}
        }
        sink.end(key)?;
        Ok(SimpleReply::SIZE)
    }

    fn chunk(
        &mut self,
        chunk: ChunkHeader,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<usize, String> {
        if !sink.export.structured {
            return Err("a structured reply though simple ones were agreed".to_owned());
        }
        let key = sink.part(chunk.cookie)?;
        let is_last = chunk.flags.has(ChunkFlags::DONE);
        let payload = &bytes[ChunkHeader::SIZE..];
        if chunk.kind == ChunkKind::OffsetData {
            let Some(OffsetData { offset }) = OffsetData::decode(payload) else { return Ok(0) };
            let len = u64::from(chunk.len).saturating_sub(OffsetData::SIZE as u64);
            let range = sink.piece(key, offset, len)?;
            let taken = self.begin_data(key, range, is_last, &payload[OffsetData::SIZE..], sink)?;
            return Ok(ChunkHeader::SIZE + OffsetData::SIZE + taken);
        }
        let len = chunk.len as usize;
        let Some(payload) = payload.get(..len) else {
            return Ok(0);
        };
        match chunk.kind {
            ChunkKind::OffsetData => unreachable!("above"),
            ChunkKind::None if is_last && len == 0 => {}
            ChunkKind::None => return Err("an empty chunk that is not the last".to_owned()),
            ChunkKind::OffsetHole => {
                let hole = OffsetHole::decode(payload).map_err(|error| error.to_string())?;
                let range = sink.piece(key, hole.offset, hole.len.into())?;
                let place = sink.place(key, range);
                sink.reactor.arena(place.arena).zero(place.offset, place.len);
            }
            ChunkKind::BlockStatus => sink.take_extents(key, payload)?,
            kind @ (ChunkKind::Error | ChunkKind::ErrorOffset | ChunkKind::Other(_)) => {
                if !kind.is_error() {
                    return Err(format!("a chunk of the unknown kind {}", kind.wire()));
                }
                let error = ErrorChunk::decode(kind, payload).map_err(|error| error.to_string())?;
                sink.requests.part_mut(key).0.refuse(error.errno);
            }
        }
        if is_last {
            sink.end(key)?;
        }
        Ok(ChunkHeader::SIZE + len)
    }

    /// Takes what of the data is among `bytes`; the rest is received into its place.
    fn begin_data(
        &mut self,
        part: usize,
        range: ByteRange,
        is_last: bool,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<usize, String> {
        let mut place = sink.place(part, range);
        let here = bytes.len().min(place.len as usize);
        sink.reactor.arena(place.arena).write_at(place.offset, &bytes[..here]);
        place.offset += here as u64;
        place.len -= here as u32;
        self.data = Some(Data { part, place, is_last });
        self.end_data(sink)?;
        Ok(here)
    }

    /// Goes on with headers when the data is complete.
    fn end_data(&mut self, sink: &mut Sink<'_>) -> Result<(), String> {
        match self.data {
            Some(Data { part, place, is_last }) if place.len == 0 => {
                self.data = None;
                if is_last { sink.end(part) } else { Ok(()) }
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Sink<'_> {
    /// The part that a reply is for.
    fn part(&self, cookie: u64) -> Result<usize, String> {
        let found = self.requests.find(cookie, self.connection);
        found
            .filter(|key| self.unsent != Some(*key))
            .ok_or_else(|| format!("a reply to nothing that was asked for (cookie {cookie:#x})"))
    }

    /// Checks a piece of a structured read, and counts it.
    fn piece(&mut self, key: usize, offset: u64, len: u64) -> Result<ByteRange, String> {
        let (part, request) = self.requests.part_mut(key);
        let end = offset.checked_add(len).ok_or("a piece of data beyond all offsets")?;
        let piece = ByteRange { start: offset, end };
        if !matches!(request.io.op, IoOp::Read { .. }) {
            return Err("read data for something else than a read".to_owned());
        }
        if len == 0 || !part.range.contains(piece) {
            return Err(format!("read data that was not asked for ({len} bytes at {offset})"));
        }
        if !part.arrived.add(part.range, piece) {
            return Err(format!(
                "read data twice, or in too many pieces ({len} bytes at {offset})"
            ));
        }
        Ok(piece)
    }

    /// Where `range` of a read goes.
    fn place(&self, key: usize, range: ByteRange) -> Region {
        let (part, request) = self.requests.part(key);
        assert!(part.range.contains(range));
        let whole = request.io.region(range.start - request.io.range.start);
        Region { len: range.len() as u32, ..whole.expect("a read has memory") }
    }

    fn take_extents(&mut self, key: usize, payload: &[u8]) -> Result<(), String> {
        let allocation = self.export.allocation;
        let (part, request) = self.requests.part_mut(key);
        let status = BlockStatus::decode(payload).map_err(|error| error.to_string())?;
        if !matches!(request.io.op, IoOp::Extents) || Some(status.context) != allocation {
            return Err("a block status that was not asked for".to_owned());
        }
        if !request.extents.is_empty() {
            return Err("two block states for one request".to_owned());
        }
        // The part is the request grown to whole blocks, and its last extent may go on beyond it.
        let mut start = part.range.start;
        for extent in status.extents().take(EXTENTS_MAX) {
            let piece = ByteRange::at(start, extent.len.into());
            start = piece.end;
            let len = piece.intersect(request.io.range).len();
            if len == 0 {
                continue;
            }
            let flags = AllocationFlags(extent.flags);
            let state = match (flags.has(AllocationFlags::HOLE), flags.has(AllocationFlags::ZERO)) {
                (true, true) => ExtentState::Hole,
                (false, true) => ExtentState::Zero,
                // A hole of unknown content is no hole for us.
                (_, false) => ExtentState::Allocated,
            };
            request.extents.push(Extent { len, state });
        }
        Ok(())
    }

    /// The reply to a part is complete.
    fn end(&mut self, key: usize) -> Result<(), String> {
        let (part, request) = self.requests.part(key);
        if part.is_refused {
            self.requests.put_back(key);
            self.shuts_down = true;
            return Ok(());
        }
        let (status, range, received) = (part.status, part.range, part.arrived.bytes());
        let is_short = match request.io.op {
            IoOp::Read { .. } => received != range.len(),
            IoOp::Extents => request.extents.is_empty(),
            IoOp::Write { .. }
            | IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Progress { .. } => false,
        };
        if status.is_ok() && is_short {
            return Err(format!("a reply with {received} of {} bytes", range.len()));
        }
        self.events.extend(self.requests.end_part(key, self.now));
        Ok(())
    }
}

impl Part {
    /// Takes a server's error.
    fn refuse(&mut self, errno: Errno) {
        self.status = match errno {
            Errno::Perm => IoStatus::ReadOnly,
            Errno::Io | Errno::NoMem => IoStatus::IoError,
            Errno::Inval | Errno::Overflow => IoStatus::Invalid,
            Errno::NoSpc => IoStatus::NoSpace,
            Errno::NotSup => IoStatus::Unsupported,
            Errno::Shutdown => {
                self.is_refused = true;
                return;
            }
        };
    }
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
