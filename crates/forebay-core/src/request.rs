//! What a guest asks for.

use crate::action::Buffer;
use crate::geometry::ByteRange;
use crate::ids::RequestTag;

/// One request of a guest, as a frontend submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Returned unchanged in the reply.
    pub tag: RequestTag,
    /// Bytes of the disk, any multiple of 512, at most [`crate::geometry::REQUEST_MAX`] for reads and
    /// writes and [`crate::geometry::COMPARE_MAX`] for a compare-and-write; empty for a flush.
    pub range: ByteRange,
    /// What to do.
    pub op: Op,
}

/// The kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read the range.
    Read {
        /// Do not admit what is fetched (SCSI DPO, and the like).
        no_admit: bool,
    },
    /// Write the range. The bytes lie in `buffer`, obtained for exactly this range from
    /// `Engine::write_buffer`; the engine owns it from here on.
    Write {
        /// The bytes.
        buffer: Buffer,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Compare the range with what is expected, and write it only when that is what it reads as; all in one instant, as
    /// far as anybody can see. Both lie in `buffer`, obtained for exactly this range from `Engine::compare_buffer`; the
    /// engine owns it from here on. Answered with [`crate::status::IoStatus::Miscompare`] when it is something else.
    CompareAndWrite {
        /// The bytes.
        buffer: Buffer,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Make everything acknowledged before durable.
    Flush,
    /// The range is no longer needed.
    Discard {
        /// Acknowledge only when what became of it is durable.
        fua: bool,
    },
    /// The range reads as zeroes afterwards.
    WriteZeroes {
        /// False: the space must stay allocated.
        may_unmap: bool,
        /// Fail rather than be as slow as writing the zeroes.
        fast_only: bool,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Fetch the range into the cache; replies without data.
    Prefetch,
    /// Which parts of the range are allocated on primary storage.
    Allocation,
    /// Which parts of the range are cached.
    CacheState,
}

impl Op {
    /// The same, acknowledged only when it is durable.
    pub fn durable(self) -> Op {
        let fua = true;
        match self {
            Op::Write { buffer, .. } => Op::Write { buffer, fua },
            Op::CompareAndWrite { buffer, .. } => Op::CompareAndWrite { buffer, fua },
            Op::Discard { .. } => Op::Discard { fua },
            Op::WriteZeroes { may_unmap, fast_only, .. } => {
                Op::WriteZeroes { may_unmap, fast_only, fua }
            }
            Op::Read { .. } | Op::Flush | Op::Prefetch | Op::Allocation | Op::CacheState => self,
        }
    }
}

impl Op {
    /// True when it changes the disk, and may be acknowledged before it is durable.
    pub fn is_volatile(&self) -> bool {
        match *self {
            Op::Write { fua, .. }
            | Op::CompareAndWrite { fua, .. }
            | Op::Discard { fua }
            | Op::WriteZeroes { fua, .. } => !fua,
            Op::Read { .. } | Op::Flush | Op::Prefetch | Op::Allocation | Op::CacheState => false,
        }
    }

    /// The memory that comes with it.
    pub fn buffer(&self) -> Option<Buffer> {
        match *self {
            Op::Write { buffer, .. } | Op::CompareAndWrite { buffer, .. } => Some(buffer),
            Op::Read { .. }
            | Op::Flush
            | Op::Discard { .. }
            | Op::WriteZeroes { .. }
            | Op::Prefetch
            | Op::Allocation
            | Op::CacheState => None,
        }
    }
}
