//! The transmission phase, without I/O: bytes become requests, answers become bytes.
//!
//! ```text
//! client's bytes ──next──► Step::Request, Step::Write ──► engine
//!                    └───► refusal, appended to `out`
//! client ◄── out, data ◄──reply── engine's answer
//! ```
//!
//! A request has a *place* in a bounded table from [`Session::next`] until its last answer. Its
//! key, the lower half of the engine's request tag, is twice its place. `BLOCK_STATUS` with both
//! contexts asks the engine twice, and the second question has the next key.
//!
//! Limits: [`REQUESTS_MAX`] requests, and reads, writes and prefetches of [`BYTES_MAX`] bytes (or one
//! request) in flight. A `BLOCK_STATUS` counts as one of 1 MiB.
//!
//! A client's error costs the request while the stream can be followed: EINVAL, ENOSPC for writes
//! beyond the end, EPERM for writes to a read-only export. Otherwise it costs the connection: a
//! wrong magic, or a write that announces more payload than [`PAYLOAD_MAX`].
//!
//! **Invariant:** every request handed out lies on the disk, and is a multiple of 512 bytes. A
//! read or a write is at most `PAYLOAD_MAX` long.

use forebay_core::action::{Extent, Reply, ReplyData, Span};
use forebay_core::geometry::{ByteRange, REQUEST_MAX, SECTOR};
use forebay_core::request::Op;
use forebay_core::status::IoStatus;
use forebay_nbd::errno::Errno;
use forebay_nbd::flags::CommandFlags;
use forebay_nbd::request::{Command, RequestHeader};
use forebay_nbd::{Invalid, PAYLOAD_MAX};
use slab::Slab;

use super::contexts::MetaContext;
use super::errno::result_of;
use super::export::Export;
use super::handshake::Negotiated;

mod encode;

/// Requests in flight per connection.
pub const REQUESTS_MAX: u32 = 128;
/// Bytes of reads, writes and prefetches in flight per connection, unless one request alone is longer.
pub const BYTES_MAX: u64 = 16 << 20;
/// What a `BLOCK_STATUS` counts as: looking its blocks up takes about as long as copying so much.
const STATUS_BYTES: u64 = 1 << 20;

const _: () = assert!(PAYLOAD_MAX as u64 == REQUEST_MAX);

/// What [`Session::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An incomplete header, or nothing: more bytes are needed.
    NeedMore,
    /// A request that was refused, or a piece of the payload of one: nothing to do.
    Refused,
    /// A request for the engine.
    Request(Submission),
    /// A write; `range.len()` bytes of payload follow.
    Write {
        /// Its key.
        key: u32,
        /// Where it goes.
        range: ByteRange,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// A limit is reached: nothing was consumed, ask again after an answer.
    Full,
    /// The client is leaving.
    Disconnect,
}

/// A request for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Its key.
    pub key: u32,
    /// Bytes of the disk.
    pub range: ByteRange,
    /// What to do.
    pub op: Op,
    /// The second question of the same request, whose key is one higher.
    pub second: Option<Op>,
}

/// A request in flight: it was taken and not answered.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The client's name of it.
    cookie: u64,
    command: Command,
    flags: CommandFlags,
    range: ByteRange,
    /// Answers of the engine that are still to come.
    awaited: u8,
    /// One of its questions was given up: it has no answer.
    is_given_up: bool,
}

/// One client in its transmission phase.
#[derive(Debug)]
pub struct Session {
    size: u64,
    read_only: bool,
    write_cache: bool,
    negotiated: Negotiated,
    /// Its memory is allocated once: it never holds more than [`REQUESTS_MAX`].
    table: Slab<Entry>,
    bytes_in_flight: u64,
    /// Payload of a refused write that has still to arrive.
    skip: usize,
}

impl Session {
    /// A client of `export`.
    pub fn new(export: &Export, negotiated: Negotiated) -> Session {
        Session {
            size: export.size,
            read_only: export.read_only,
            write_cache: export.write_cache,
            negotiated,
            table: Slab::with_capacity(REQUESTS_MAX as usize),
            bytes_in_flight: 0,
            skip: 0,
        }
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.table.len()
    }

    /// True while the payload of a refused write is being skipped.
    pub fn is_skipping(&self) -> bool {
        self.skip > 0
    }

    /// Takes one thing off the front of `input`; answers what it is and how many bytes it was.
    /// After [`Step::Write`] the next bytes are payload, and not for this function.
    ///
    /// # Errors
    /// The stream cannot be followed any further.
    pub fn next(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Step), Invalid> {
        if self.skip > 0 && !input.is_empty() {
            let skipped = self.skip.min(input.len());
            self.skip -= skipped;
            return Ok((skipped, Step::Refused));
        }
        let Some(header) = RequestHeader::decode(input)? else { return Ok((0, Step::NeedMore)) };
        let command = Command::from_wire(header.command);
        let is_write = command == Some(Command::Write);
        if is_write && header.len > PAYLOAD_MAX {
            return Err(Invalid::new("length of a write", u64::from(header.len)));
        }
        if command == Some(Command::Disconnect) {
            return Ok((RequestHeader::SIZE, Step::Disconnect));
        }
        let checked = match command {
            Some(command) => self.check(command, &header).map(|range| (command, range)),
            None => Err(Errno::Inval),
        };
        let step = match checked {
            Ok((command, range)) => self.take(command, &header, range),
            Err(errno) => {
                self.skip = if is_write { header.len as usize } else { 0 };
                let chunked = self.is_chunked(command.unwrap_or(Command::Flush));
                encode::error(header.cookie, errno, chunked, true, out);
                Step::Refused
            }
        };
        let consumed = if step == Step::Full { 0 } else { RequestHeader::SIZE };
        Ok((consumed, step))
    }

    /// Gives up a request (of two questions: one of them) that the engine was not given. What the other question finds is not
    /// said: the client would take it for the whole answer.
    pub fn forget(&mut self, key: u32) {
        self.table[key as usize / 2].is_given_up = true;
        self.settle(key);
    }

    /// Appends the answer to a request, unless it has none, and says whether the reply's data follows on the wire.
    /// `slices` and `extents` are the lists that `reply.data` refers to.
    ///
    /// Panics when the lower half of the tag is not the key of a request in flight.
    pub fn reply(
        &mut self,
        reply: &Reply,
        slices: &[Span],
        extents: &[Extent],
        out: &mut Vec<u8>,
    ) -> bool {
        let key = reply.tag.0 as u32;
        let (entry, is_last) = self.settle(key);
        if entry.is_given_up {
            return false;
        }
        let mut result = result_of(reply.status);
        match entry.command {
            Command::BlockStatus => {
                self.reply_status(key, &entry, is_last, reply, extents, out);
                return false;
            }
            Command::Read if reply.status.is_ok() => {
                if data_len(&reply.data, slices) == entry.range.len() {
                    encode::read(&entry, self.negotiated.structured_replies, out);
                    return true;
                }
                debug_assert!(false, "a read was answered with the wrong amount of data");
                result = result_of(IoStatus::IoError);
            }
            Command::Read
            | Command::Write
            | Command::Disconnect
            | Command::Flush
            | Command::Trim
            | Command::Cache
            | Command::WriteZeroes => {}
        }
        match result {
            Ok(()) => encode::success(entry.cookie, out),
            Err(errno) => {
                let chunked = self.is_chunked(entry.command);
                encode::error(entry.cookie, errno, chunked, true, out);
            }
        }
        false
    }

    /// One answer of a request is no longer awaited; true when it was the last.
    fn settle(&mut self, key: u32) -> (Entry, bool) {
        let place = key as usize / 2;
        let entry = self.table.get_mut(place).expect("answers come for requests in flight only");
        entry.awaited -= 1;
        let (entry, is_last) = (*entry, entry.awaited == 0);
        if is_last {
            self.table.remove(place);
            self.bytes_in_flight -= payload(entry.command, entry.range);
        }
        (entry, is_last)
    }

    /// One chunk of the answer to `BLOCK_STATUS`.
    fn reply_status(
        &self,
        key: u32,
        entry: &Entry,
        is_last: bool,
        reply: &Reply,
        extents: &[Extent],
        out: &mut Vec<u8>,
    ) {
        let context = match (key % 2, self.negotiated.contexts.allocation) {
            (0, true) => MetaContext::Allocation,
            _ => MetaContext::State,
        };
        let extents = match reply.data {
            ReplyData::Extents { first, count } => {
                &extents[first as usize..first as usize + count as usize]
            }
            ReplyData::None
            | ReplyData::Slots { .. }
            | ReplyData::Buffer { .. }
            | ReplyData::Difference { .. } => &[],
        };
        match result_of(reply.status) {
            Ok(()) if extents.is_empty() => {
                encode::error(entry.cookie, Errno::Io, true, is_last, out);
            }
            Ok(()) => encode::block_status(entry, context, extents, is_last, out),
            Err(errno) => encode::error(entry.cookie, errno, true, is_last, out),
        }
    }

    /// True when errors of `command` are reported in a chunk.
    fn is_chunked(&self, command: Command) -> bool {
        let needs_chunks = matches!(command, Command::Read | Command::BlockStatus);
        needs_chunks && self.negotiated.structured_replies
    }

    /// The range of a request that makes sense on this export.
    fn check(&self, command: Command, header: &RequestHeader) -> Result<ByteRange, Errno> {
        if !self.allowed_flags(command).has(header.flags) {
            return Err(Errno::Inval);
        }
        let (writes, has_range) = match command {
            Command::Flush => (false, false),
            Command::Write | Command::WriteZeroes | Command::Trim => (true, true),
            Command::Read | Command::Cache | Command::BlockStatus | Command::Disconnect => {
                (false, true)
            }
        };
        if !has_range {
            return Ok(ByteRange::at(0, 0));
        }
        if writes && self.read_only {
            return Err(Errno::Perm);
        }
        if command == Command::BlockStatus && !self.has_contexts() {
            return Err(Errno::Inval);
        }
        if header.len == 0 || (command == Command::Read && header.len > PAYLOAD_MAX) {
            return Err(Errno::Inval);
        }
        let beyond = if writes && command != Command::Trim { Errno::NoSpc } else { Errno::Inval };
        let end = header.offset.checked_add(u64::from(header.len)).ok_or(beyond)?;
        // Planted: a trim may reach beyond the end.
        let is_exempt = cfg!(feature = "planted-bugs") && command == Command::Trim;
        if end > self.size && !is_exempt {
            return Err(beyond);
        }
        let range = ByteRange::new(header.offset, end);
        if range.is_aligned(SECTOR) { Ok(range) } else { Err(Errno::Inval) }
    }

    /// The flags that `command` may carry. FUA is valid everywhere, and ignored where it has no
    /// meaning.
    fn allowed_flags(&self, command: Command) -> CommandFlags {
        let fua = CommandFlags::FUA;
        match command {
            Command::Read => fua.with_if(self.negotiated.structured_replies, CommandFlags::DF),
            Command::WriteZeroes => fua.with(CommandFlags::NO_HOLE).with(CommandFlags::FAST_ZERO),
            Command::BlockStatus => fua.with(CommandFlags::REQ_ONE),
            Command::Write
            | Command::Disconnect
            | Command::Flush
            | Command::Trim
            | Command::Cache => fua,
        }
    }

    fn has_contexts(&self) -> bool {
        MetaContext::ALL.iter().any(|context| self.negotiated.contexts.has(*context))
    }

    /// Gives a checked request its place.
    fn take(&mut self, command: Command, header: &RequestHeader, range: ByteRange) -> Step {
        let bytes = payload(command, range);
        let too_much = self.bytes_in_flight + bytes > BYTES_MAX && self.bytes_in_flight > 0;
        if self.table.len() == REQUESTS_MAX as usize || (bytes > 0 && too_much) {
            return Step::Full;
        }
        let fua = header.flags.has(CommandFlags::FUA) || !self.write_cache;
        let (op, second) = match command {
            Command::Read | Command::Write => (Op::Read { no_admit: false }, None),
            Command::Flush => (Op::Flush, None),
            Command::Trim => (Op::Discard { fua }, None),
            Command::Cache => (Op::Prefetch, None),
            Command::WriteZeroes => {
                let may_unmap = !header.flags.has(CommandFlags::NO_HOLE);
                let fast_only = header.flags.has(CommandFlags::FAST_ZERO);
                (Op::WriteZeroes { may_unmap, fast_only, fua }, None)
            }
            Command::BlockStatus => self.questions(),
            Command::Disconnect => unreachable!("a disconnect takes no place"),
        };
        let awaited = 1 + u8::from(second.is_some());
        let (cookie, flags, is_given_up) = (header.cookie, header.flags, false);
        let entry = Entry { cookie, command, flags, range, awaited, is_given_up };
        let key = 2 * self.table.insert(entry) as u32;
        self.bytes_in_flight += bytes;
        match command {
            Command::Write => Step::Write { key, range, fua },
            _ => Step::Request(Submission { key, range, op, second }),
        }
    }

    /// The engine's request for a `BLOCK_STATUS`.
    fn questions(&self) -> (Op, Option<Op>) {
        let mut wanted =
            MetaContext::ALL.into_iter().filter(|context| self.negotiated.contexts.has(*context));
        let first = wanted.next().expect("checked before: there is a context");
        (first.op(), wanted.next().map(MetaContext::op))
    }
}

/// Bytes that count against [`BYTES_MAX`]: those that need memory of the disk, sent to the client or not, or as much time
/// of the shard.
fn payload(command: Command, range: ByteRange) -> u64 {
    match command {
        Command::Read | Command::Write => range.len(),
        // The engine cuts a longer one.
        Command::Cache => range.len().min(REQUEST_MAX),
        Command::BlockStatus => STATUS_BYTES,
        Command::Disconnect | Command::Flush | Command::Trim | Command::WriteZeroes => 0,
    }
}

/// Bytes of a reply's data.
fn data_len(data: &ReplyData, slices: &[Span]) -> u64 {
    match *data {
        ReplyData::Slots { first, count } => slices[first as usize..][..count as usize]
            .iter()
            .map(|slice| u64::from(slice.len))
            .sum(),
        ReplyData::Buffer { data, .. } => u64::from(data.len),
        ReplyData::None | ReplyData::Extents { .. } | ReplyData::Difference { .. } => 0,
    }
}

#[cfg(test)]
mod tests;
