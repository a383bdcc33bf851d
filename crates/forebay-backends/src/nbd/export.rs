//! A server's offer, and what of it has to come back with a later session.
//!
//! | | in a later session |
//! |---|---|
//! | flush, and FUA writes where there is no flush | must be there, and what is new is used: durability is as this server has it |
//! | discard, write-zeroes, fast zeroes, extents | must be there; what is new is not used, since nobody counts on it |
//! | block sizes | must allow all requests of the first session, which stay the same |
//! | structured replies, number of a context, several connections | each session has its own |

use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::status::IoStatus;
use forebay_nbd::flags::TransmissionFlags;

use crate::backend::{BackendIo, HostLoses, Properties};
use crate::error::{Error, ErrorKind};

/// Longest command without a payload; a power of two that fits its 32 bits.
const LEN_MAX: u64 = 1 << 30;

/// The server's information on the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    pub(super) flags: TransmissionFlags,
    pub(super) block_min: u32,
    pub(super) block_max: u32,
    /// Reads are answered with structured replies.
    pub(super) structured: bool,
    /// Number of the context `base:allocation`.
    pub(super) allocation: Option<u32>,
}

impl Export {
    /// An export that cannot be used is refused before any I/O.
    pub(super) fn check(&self, at: &str) -> Result<(), Error> {
        let Export { size, block_min, block_max, .. } = *self;
        let fail = |why: String| Err(Error::new(ErrorKind::Unsuitable, format!("{at}: {why}")));
        if block_min > 4096 {
            return fail(format!(
                "its smallest block is {block_min} bytes; up to 4096 can be used: serve it with smaller blocks"
            ));
        }
        if block_max < block_min {
            return fail(format!(
                "its largest request of {block_max} bytes is below its block of {block_min}"
            ));
        }
        if size == 0 {
            return fail("the export is empty".to_owned());
        }
        if size % u64::from(block_min) != 0 {
            return fail(format!(
                "its size of {size} bytes is no multiple of its block of {block_min} bytes: make it longer"
            ));
        }
        Ok(())
    }

    /// What it means for who uses it.
    pub(super) fn properties(&self, read_only: bool, host_loses: HostLoses) -> Properties {
        let can = |flag| self.flags.has(flag);
        Properties {
            size: self.size,
            logical_block: self.block_min,
            read_only: read_only || can(TransmissionFlags::READ_ONLY),
            discard: can(TransmissionFlags::SEND_TRIM),
            write_zeroes: can(TransmissionFlags::SEND_WRITE_ZEROES),
            extents: self.allocation.is_some(),
            host_loses,
        }
    }

    /// Longest request: whole blocks.
    pub(super) fn len_max(&self) -> u64 {
        u64::from(self.block_max / self.block_min * self.block_min).min(LEN_MAX)
    }

    /// How an I/O ends that needs no server; a discard is cut to whole blocks.
    pub(super) fn answer_here(
        &self,
        io: &mut BackendIo,
        properties: &Properties,
    ) -> Option<IoStatus> {
        if let Some(status) = io.refusal(properties) {
            return Some(status);
        }
        let block = u64::from(properties.logical_block);
        let can = |flag| self.flags.has(flag);
        match io.op {
            IoOp::Flush if properties.read_only => Some(IoStatus::Ok),
            IoOp::Flush => (!can(TransmissionFlags::SEND_FLUSH)).then_some(IoStatus::Ok),
            IoOp::Discard => {
                // Blocks that are discarded only in part stay.
                let start = io.range.start.next_multiple_of(block);
                let end = io.range.end / block * block;
                io.range = ByteRange { start, end: end.max(start) };
                io.range.is_empty().then_some(IoStatus::Ok)
            }
            IoOp::WriteZeroes { fast_only, .. } => {
                let refused = !io.range.is_aligned(block)
                    || (fast_only && !can(TransmissionFlags::SEND_FAST_ZERO));
                refused.then_some(IoStatus::Unsupported)
            }
            IoOp::Read { .. } | IoOp::Write { .. } | IoOp::Extents | IoOp::Progress { .. } => None,
        }
    }

    /// What is used of the server's `new` offer after this one.
    ///
    /// # Errors
    /// Why it cannot take the place of this one: how it came back.
    pub(super) fn renewed(&self, new: Export, read_only: bool) -> Result<Export, &'static str> {
        let (flush, fua) = (TransmissionFlags::SEND_FLUSH, TransmissionFlags::SEND_FUA);
        let is_gone = |flag| self.flags.has(flag) && !new.flags.has(flag) && !read_only;
        let ways = [
            (new.flags.has(TransmissionFlags::READ_ONLY) && !read_only, "read-only"),
            (is_gone(flush), "without flush"),
            (is_gone(fua) && !self.flags.has(flush), "without FUA writes"),
            (is_gone(TransmissionFlags::SEND_TRIM), "without discards"),
            (is_gone(TransmissionFlags::SEND_WRITE_ZEROES), "without write-zeroes"),
            (is_gone(TransmissionFlags::SEND_FAST_ZERO), "without fast zeroes"),
            (self.allocation.is_some() && new.allocation.is_none(), "without block status"),
            (new.block_min > self.block_min, "with a larger smallest block"),
            (u64::from(new.block_max) < self.len_max(), "with a smaller largest request"),
        ];
        if let Some((_, how)) = ways.into_iter().find(|(is_so, _)| *is_so) {
            return Err(how);
        }
        let flags = [flush, fua]
            .into_iter()
            .fold(self.flags, |flags, flag| flags.with_if(new.flags.has(flag), flag));
        let Export { block_min, block_max, .. } = *self;
        Ok(Export { flags, block_min, block_max, ..new })
    }
}
