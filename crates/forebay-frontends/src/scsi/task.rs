//! One task: the command, what it needs done, and its answer.

use forebay_core::action::Extent;
use forebay_core::geometry::ByteRange;
use forebay_core::status::IoStatus;

use super::lun::Lun;
use super::opcodes::Class;
use super::sense::{Code, Key, Sense};
use super::transfer;
use super::unit::BLOCK;

/// Bytes of a command descriptor block, shorter ones filled up with zeroes.
pub const CDB_LEN: usize = 16;

/// A command descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb(pub [u8; CDB_LEN]);

impl Cdb {
    /// The operation code.
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Bytes that the command names, of one that writes the blocks which it names.
    pub fn write_len(&self) -> u64 {
        u64::from(transfer::Extent::of(self).blocks) * BLOCK
    }

    pub(super) fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    /// Bit `bit` of byte `at`.
    pub(super) fn has(&self, at: usize, bit: u8) -> bool {
        self.0[at] >> bit & 1 == 1
    }
}

/// A command as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// What to do.
    pub cdb: Cdb,
    /// Bytes of Data-Out that the initiator will send at most; 0 when it announced none.
    pub data_out: u32,
    /// The logical units that this initiator sees, in order: what REPORT LUNS tells.
    pub luns: &'a [Lun],
}

/// What a command needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: this is the answer.
    Done(Response),
    /// The parameter list: collect this many bytes of Data-Out, or as many as the initiator announced
    /// if those are fewer, then call `LogicalUnit::parameters`.
    DataOut(u32),
    /// Work on the medium, then call `LogicalUnit::medium_done`.
    Medium(Medium),
    /// These bytes are to be stored durably, in place of those before, then call `LogicalUnit::stored`.
    Store(Vec<u8>),
    /// The answer, after other things were done.
    Settle {
        /// The answer.
        response: Response,
        /// All tasks of these nexuses on this logical unit are aborted first, without answers.
        abort: Vec<super::NexusId>,
    },
}

/// Work on the medium. Ranges are in bytes, on the disk, in whole logical blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Data-In is the range.
    Read {
        /// What to read; may be empty.
        range: ByteRange,
        /// Do not admit (DPO).
        no_admit: bool,
    },
    /// The range is to be read and thrown away; no Data-In.
    Verify {
        /// What to read; may be empty.
        range: ByteRange,
        /// Do not admit (DPO).
        no_admit: bool,
    },
    /// Data-Out is to be compared with the range.
    Compare {
        /// What to compare with; may be empty.
        range: ByteRange,
        /// Data-Out is one logical block, which is compared with each of the range; otherwise it is as
        /// long as the range.
        pattern: bool,
    },
    /// Data-Out replaces the range.
    Write {
        /// Where to; may be empty.
        range: ByteRange,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Data-Out is combined with the range by OR, atomically against other accesses.
    OrWrite {
        /// Where; may be empty.
        range: ByteRange,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Data-Out is two times the range: what is expected there, and what replaces it if that is what is there.
    CompareAndWrite {
        /// Where; may be empty.
        range: ByteRange,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Data-Out is one logical block, repeated over the range. (When it is all zeroes: as `Zero`.)
    WriteSame {
        /// Where, at most 4 GiB; not empty.
        range: ByteRange,
        /// Zeroes may be written by unmapping.
        may_unmap: bool,
    },
    /// The range reads as zeroes afterwards; no Data-Out.
    Zero {
        /// Where, at most 4 GiB; not empty.
        range: ByteRange,
        /// May be done by unmapping.
        may_unmap: bool,
    },
    /// The ranges are no longer needed, and read as zeroes afterwards.
    Unmap {
        /// Where, none of them empty; they may overlap.
        ranges: Vec<ByteRange>,
        /// False: zeroes are to be written (ANCHOR).
        may_unmap: bool,
    },
    /// Make everything acknowledged before durable.
    Flush,
    /// The same, and then the write cache is off: from its arrival on no write is to be begun that is acknowledged before it is
    /// durable, and none may be under way when the flush begins.
    CacheOff,
    /// Fetch the range into the cache.
    Prefetch {
        /// What.
        range: ByteRange,
        /// Answer at once, without waiting (IMMED).
        immediate: bool,
    },
    /// Which parts of the range are allocated.
    Allocation {
        /// What is asked for; not empty.
        range: ByteRange,
        /// How many extents fit into the answer, at least 1; more are left out.
        extents_max: u32,
        /// Allocation length.
        allocation: u32,
    },
}

impl Medium {
    /// What a reservation that came meanwhile holds up of it. A flush makes durable what was acknowledged before: it is not
    /// held up any more.
    pub(super) fn class(&self) -> Class {
        match self {
            Medium::Flush | Medium::CacheOff => Class::Inform,
            _ if self.writes() => Class::Write,
            _ => Class::Read,
        }
    }

    /// True when it changes the medium, or makes changes durable.
    pub(super) fn writes(&self) -> bool {
        match self {
            Medium::Write { .. }
            | Medium::OrWrite { .. }
            | Medium::CompareAndWrite { .. }
            | Medium::WriteSame { .. }
            | Medium::Zero { .. }
            | Medium::Unmap { .. }
            | Medium::Flush
            | Medium::CacheOff => true,
            Medium::Read { .. }
            | Medium::Verify { .. }
            | Medium::Compare { .. }
            | Medium::Prefetch { .. }
            | Medium::Allocation { .. } => false,
        }
    }

    /// Bytes of Data-Out that it needs.
    pub fn data_out(&self, block: u32) -> u64 {
        match *self {
            Medium::Compare { range, pattern } if pattern && !range.is_empty() => block.into(),
            Medium::Compare { range, .. }
            | Medium::Write { range, .. }
            | Medium::OrWrite { range, .. } => range.len(),
            Medium::CompareAndWrite { range, .. } => 2 * range.len(),
            Medium::WriteSame { .. } => block.into(),
            Medium::Read { .. }
            | Medium::Verify { .. }
            | Medium::Zero { .. }
            | Medium::Unmap { .. }
            | Medium::Flush
            | Medium::CacheOff
            | Medium::Prefetch { .. }
            | Medium::Allocation { .. } => 0,
        }
    }
}

/// How work on the medium ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done<'a> {
    /// The engine's word; of several requests the first that failed.
    Status(IoStatus),
    /// `Compare`, `CompareAndWrite`: offset of the first byte of Data-Out that differs.
    Miscompare(u64),
    /// `Allocation`: what the engine said, from the start of the range.
    Extents(&'a [Extent]),
}

/// Status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Good = 0x00,
    /// Not done; the sense data says why.
    CheckCondition = 0x02,
    /// PRE-FETCH: the blocks are in the cache.
    ConditionMet = 0x04,
    /// Not now.
    Busy = 0x08,
    /// A reservation of somebody else forbids it.
    ReservationConflict = 0x18,
    /// Aborted by another initiator.
    TaskAborted = 0x40,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// How it ended.
    pub status: Status,
    /// Why, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Data-In, cut to the allocation length of the CDB. Empty for `Medium::Read`, whose data is the
    /// engine's.
    pub data: Vec<u8>,
}

impl Response {
    /// GOOD without data.
    pub const GOOD: Response = Response::of(Status::Good);
    /// RESERVATION CONFLICT.
    pub const CONFLICT: Response = Response::of(Status::ReservationConflict);

    /// A status without data.
    pub const fn of(status: Status) -> Response {
        Response { status, sense: None, data: Vec::new() }
    }

    /// GOOD with data.
    pub fn data(data: Vec<u8>) -> Response {
        Response { data, ..Response::GOOD }
    }

    /// CHECK CONDITION.
    pub fn check(sense: Sense) -> Response {
        Response { sense: Some(sense), ..Response::of(Status::CheckCondition) }
    }

    /// The one place where the outcome of a request becomes a SCSI status. `writes`: of a request
    /// that writes.
    pub fn from_status(status: IoStatus, writes: bool) -> Response {
        let error = if writes { Code::WRITE_ERROR } else { Code::UNRECOVERED_READ_ERROR };
        let sense = match status {
            IoStatus::Ok => return Response::GOOD,
            IoStatus::TimedOut | IoStatus::ShuttingDown => return Response::of(Status::Busy),
            IoStatus::Reserved => return Response::CONFLICT,
            IoStatus::IoError => Sense::new(Key::MediumError, error),
            // Where it differs is in the reply's data.
            IoStatus::Miscompare => Sense::new(Key::Miscompare, Code::MISCOMPARE_DURING_VERIFY),
            IoStatus::NoSpace => Sense::new(Key::DataProtect, Code::SPACE_ALLOCATION_FAILED),
            IoStatus::ReadOnly => Sense::new(Key::DataProtect, Code::WRITE_PROTECTED),
            IoStatus::Unsupported | IoStatus::Invalid => {
                Sense::new(Key::HardwareError, Code::INTERNAL_TARGET_FAILURE)
            }
        };
        Response::check(sense)
    }
}
