//! Commands that move blocks, or look at them: READ, WRITE, VERIFY, ORWRITE, COMPARE AND WRITE,
//! WRITE ATOMIC, PRE-FETCH, SYNCHRONIZE CACHE.
//!
//! An initiator may announce less data than the CDB of a WRITE asks for. Then the WRITE writes
//! the whole blocks of those data, and the transport reports the rest as residual. FUA on a read
//! is taken, and means nothing: a read returns the last acknowledged bytes. WRITE AND VERIFY is a
//! write with FUA. The bytes are on the medium before the answer. Reading them back through a
//! cache would prove nothing.

use forebay_core::geometry::{ByteRange, REQUEST_MAX};

use super::sense::{Code, Sense};
use super::task::{Cdb, Medium, Outcome, Response};
use super::unit::{Answer, BLOCK, Call, LogicalUnit};

/// Blocks that one command can transfer, verify or fetch.
pub(super) const TRANSFER_MAX: u32 = (REQUEST_MAX / BLOCK) as u32;
/// Blocks of a COMPARE AND WRITE.
pub(super) const COMPARE_MAX: u8 = 128;

/// Where a command of one of the common shapes begins, and how many blocks it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub lba: u64,
    pub blocks: u32,
    /// The byte where the length stands.
    length_at: u16,
}

impl Extent {
    /// Reads the CDB: its length is in the upper three bits of the operation code.
    pub fn of(cdb: &Cdb) -> Extent {
        match cdb.opcode() >> 5 {
            0 => {
                let lba = u64::from(cdb.u32(0) & 0x1f_ffff);
                // 0 is 256 blocks.
                let blocks = (u32::from(cdb.u8(4)).wrapping_sub(1) & 0xff) + 1;
                Extent { lba, blocks, length_at: 4 }
            }
            4 => Extent { lba: cdb.u64(2), blocks: cdb.u32(10), length_at: 10 },
            5 => Extent { lba: cdb.u32(2).into(), blocks: cdb.u32(6), length_at: 6 },
            _ => Extent { lba: cdb.u32(2).into(), blocks: cdb.u16(7).into(), length_at: 7 },
        }
    }

    /// One block.
    pub fn block(lba: u64) -> Extent {
        Extent { lba, blocks: 1, length_at: 0 }
    }

    /// Reads a descriptor of UNMAP, of 16 bytes.
    pub fn of_descriptor(bytes: &[u8]) -> Extent {
        let (lba, rest) = bytes.split_first_chunk().expect("16 bytes");
        let blocks = rest.first_chunk().expect("16 bytes");
        let (lba, blocks) = (u64::from_be_bytes(*lba), u32::from_be_bytes(*blocks));
        Extent { lba, blocks, length_at: 0 }
    }

    /// No more blocks than `max`.
    pub fn at_most(self, max: u32) -> Result<Extent, Sense> {
        if self.blocks <= max { Ok(self) } else { Err(self.wrong_length()) }
    }

    /// The length is not accepted.
    pub fn wrong_length(self) -> Sense {
        Sense::cdb_field(self.length_at, 7)
    }

    /// The bytes, when they lie on the disk.
    pub fn on(self, unit: &LogicalUnit) -> Result<ByteRange, Sense> {
        let end = self.lba.checked_add(self.blocks.into());
        match end {
            Some(end) if end <= unit.export.blocks() => {
                Ok(ByteRange::new(self.lba * BLOCK, end * BLOCK))
            }
            _ => Err(Sense::illegal(Code::LBA_OUT_OF_RANGE)),
        }
    }

    /// The same where 0 blocks are all up to the end.
    pub fn to_end_on(self, unit: &LogicalUnit) -> Result<ByteRange, Sense> {
        let range = self.on(unit)?;
        let end = if self.blocks == 0 { unit.export.size } else { range.end };
        Ok(ByteRange::new(range.start, end))
    }
}

impl LogicalUnit {
    /// True when what is written is acknowledged only when it is durable, whatever a command asks for. A command that came
    /// while the write cache was on is carried out as it is now.
    pub fn is_write_through(&self) -> bool {
        !self.settings.write_cache
    }
}

const DPO: u8 = 4;
const FUA: u8 = 3;

/// The blocks of a command that reads or writes.
fn range(unit: &LogicalUnit, call: &Call) -> Result<ByteRange, Sense> {
    let extent = Extent::of(&call.cdb);
    let range = extent.on(unit)?;
    extent.at_most(TRANSFER_MAX)?;
    Ok(range)
}

/// As much of `range` as the initiator will send whole blocks of.
fn sent(range: ByteRange, call: &Call) -> ByteRange {
    let len = u64::from(call.data_out) / BLOCK * BLOCK;
    ByteRange::at(range.start, range.len().min(len))
}

fn on_medium(medium: Medium) -> Answer {
    Ok(Outcome::Medium(medium))
}

pub(super) fn read(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let no_admit = call.cdb.opcode() != 0x08 && call.cdb.has(1, DPO);
    on_medium(Medium::Read { range: range(unit, call)?, no_admit })
}

pub(super) fn write(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let range = sent(range(unit, call)?, call);
    let asked = call.cdb.opcode() != 0x0a && call.cdb.has(1, FUA);
    on_medium(Medium::Write { range, fua: asked })
}

pub(super) fn or_write(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let range = sent(range(unit, call)?, call);
    on_medium(Medium::OrWrite { range, fua: call.cdb.has(1, FUA) })
}

pub(super) fn write_and_verify(unit: &mut LogicalUnit, call: &Call) -> Answer {
    if call.cdb.has(1, 2) {
        return Err(Sense::cdb_field(1, 2).into());
    }
    on_medium(Medium::Write { range: sent(range(unit, call)?, call), fua: true })
}

pub(super) fn verify(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let range = range(unit, call)?;
    let no_admit = call.cdb.has(1, DPO);
    let compare = |pattern| {
        let medium = Medium::Compare { range, pattern };
        if medium.data_out(BLOCK as u32) > call.data_out.into() {
            return Err(Sense::cdb_field(1, 2).into());
        }
        on_medium(medium)
    };
    match call.cdb.u8(1) >> 1 & 3 {
        0 => on_medium(Medium::Verify { range, no_admit }),
        1 => compare(false),
        3 => compare(true),
        _ => Err(Sense::cdb_field(1, 2).into()),
    }
}

pub(super) fn compare_and_write(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let blocks = call.cdb.u8(13);
    let range = Extent { lba: call.cdb.u64(2), blocks: blocks.into(), length_at: 13 }.on(unit)?;
    let medium = Medium::CompareAndWrite { range, fua: call.cdb.has(1, FUA) };
    if blocks > COMPARE_MAX || medium.data_out(BLOCK as u32) != u64::from(call.data_out) {
        return Err(Sense::cdb_field(13, 7).into());
    }
    on_medium(medium)
}

pub(super) fn write_atomic(unit: &mut LogicalUnit, call: &Call) -> Answer {
    // Twelve and thirteen are the length; ten and eleven a boundary, which is not offered.
    let blocks = call.cdb.u16(12).into();
    if call.cdb.u16(10) != 0 {
        return Err(Sense::cdb_field(10, 7).into());
    }
    let extent = Extent { lba: call.cdb.u64(2), blocks, length_at: 12 };
    let range = extent.on(unit)?;
    extent.at_most(unit.export.atomic_write_max / BLOCK as u32)?;
    if u64::from(call.data_out) < range.len() {
        return Err(Sense::cdb_field(12, 7).into());
    }
    on_medium(Medium::Write { range, fua: call.cdb.has(1, FUA) })
}

pub(super) fn prefetch(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let extent = Extent::of(&call.cdb);
    let range = extent.to_end_on(unit)?;
    extent.at_most(TRANSFER_MAX)?;
    let range = ByteRange::at(range.start, range.len().min(REQUEST_MAX));
    if range.is_empty() {
        return Ok(Outcome::Done(Response::GOOD));
    }
    on_medium(Medium::Prefetch { range, immediate: call.cdb.has(1, 1) })
}

/// Everything is flushed, whatever the range: the engine knows no less. IMMED is not made use of.
pub(super) fn synchronize(unit: &mut LogicalUnit, call: &Call) -> Answer {
    Extent::of(&call.cdb).to_end_on(unit)?;
    on_medium(Medium::Flush)
}
