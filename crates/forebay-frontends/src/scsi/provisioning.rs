//! UNMAP and WRITE SAME. Unmapped blocks read as zeroes.
//!
//! ```text
//! parameter list of UNMAP
//!  0  2  bytes that follow
//!  2  2  bytes of descriptors
//!  8  …  descriptors of 16 bytes: LBA (8), blocks (4), reserved (4)
//! ```
//! With ANCHOR the zeroes are written instead, so that the space stays allocated.
//!
//! A WRITE SAME of no blocks, which would go up to the end of the disk, is not taken, and page B0 says so (WSNZ): nobody
//! means that. With UNMAP a block that is not all zeroes is written, since unmapped blocks read as zeroes.

use forebay_core::geometry::ByteRange;

use super::sense::{Code, Sense};
use super::task::{Medium, Outcome, Response};
use super::transfer::Extent;
use super::unit::{Answer, BLOCK, Call, LogicalUnit};

/// Blocks that one UNMAP can name.
pub(super) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Descriptors of one UNMAP.
pub(super) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Blocks of one WRITE SAME: 4 GiB.
pub(super) const SAME_MAX: u32 = 8 << 20;

const HEADER: usize = 8;
const DESCRIPTOR: usize = 16;

pub(super) fn unmap(_: &mut LogicalUnit, call: &Call) -> Answer {
    match call.cdb.u16(7) {
        0 => Ok(Outcome::Done(Response::GOOD)),
        len => Ok(Outcome::DataOut(len.into())),
    }
}

pub(super) fn take_unmap(unit: &mut LogicalUnit, call: &Call, list: &[u8]) -> Answer {
    let too_short = Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR);
    if list.len() < HEADER || list.len() < call.cdb.u16(7).into() {
        return Err(too_short.into());
    }
    let len = usize::from(u16::from_be_bytes([list[2], list[3]]));
    let descriptors = list[HEADER..].get(..len).ok_or(too_short)?.chunks_exact(DESCRIPTOR);
    if descriptors.len() > UNMAP_DESCRIPTORS_MAX as usize {
        return Err(Sense::parameter(2).into());
    }
    let mut ranges = Vec::with_capacity(descriptors.len());
    let mut blocks = 0_u64;
    for (at, descriptor) in descriptors.enumerate() {
        let extent = Extent::of_descriptor(descriptor);
        // Planted: a descriptor may reach beyond the end.
        let range = match extent.on(unit) {
            Err(_) if cfg!(feature = "planted-bugs") && extent.lba < unit.export.blocks() => {
                ByteRange::at(extent.lba * BLOCK, u64::from(extent.blocks) * BLOCK)
            }
            range => range?,
        };
        blocks += u64::from(extent.blocks);
        if blocks > UNMAP_BLOCKS_MAX.into() {
            return Err(Sense::parameter((HEADER + at * DESCRIPTOR + 8) as u16).into());
        }
        if !range.is_empty() {
            ranges.push(range);
        }
    }
    if ranges.is_empty() {
        return Ok(Outcome::Done(Response::GOOD));
    }
    let may_unmap = !call.cdb.has(1, 0);
    Ok(Outcome::Medium(Medium::Unmap { ranges, may_unmap }))
}

pub(super) fn write_same(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let (anchor, unmap) = (call.cdb.has(1, 4), call.cdb.has(1, 3));
    if anchor && !unmap {
        return Err(Sense::cdb_field(1, 4).into());
    }
    let extent = Extent::of(&call.cdb);
    let range = extent.on(unit)?;
    if extent.blocks == 0 {
        return Err(extent.wrong_length().into());
    }
    extent.at_most(SAME_MAX)?;
    let may_unmap = unmap && !anchor;
    let has_data = !(call.cdb.opcode() == 0x93 && call.cdb.has(1, 0));
    if has_data && u64::from(call.data_out) != BLOCK {
        return Err(Sense::illegal(Code::INVALID_FIELD_IN_CDB).into());
    }
    Ok(Outcome::Medium(match has_data {
        true => Medium::WriteSame { range, may_unmap },
        false => Medium::Zero { range, may_unmap },
    }))
}
