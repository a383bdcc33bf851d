//! How large the disk is, and which parts of it are allocated.

use forebay_core::action::{Extent as State, ExtentState};
use forebay_core::geometry::ByteRange;

use super::report::data;
use super::sense::Sense;
use super::task::{Medium, Outcome};
use super::transfer::Extent;
use super::unit::{Answer, BLOCK, Call, LogicalUnit};

/// Bytes that one GET LBA STATUS looks at.
const ALLOCATION_MAX: u64 = 1 << 30;
/// Descriptors that it tells at most.
const DESCRIPTORS_MAX: u32 = 256;

pub(super) fn read_10(unit: &mut LogicalUnit, call: &Call) -> Answer {
    if !call.cdb.has(8, 0) && call.cdb.u32(2) != 0 {
        return Err(Sense::cdb_field(2, 7).into());
    }
    let last = u32::try_from(last_block(unit)).unwrap_or(u32::MAX);
    let mut bytes = last.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(BLOCK as u32).to_be_bytes());
    Ok(Outcome::Done(data(bytes, u32::MAX)))
}

pub(super) fn read_16(unit: &mut LogicalUnit, call: &Call) -> Answer {
    if !call.cdb.has(14, 0) && call.cdb.u64(2) != 0 {
        return Err(Sense::cdb_field(2, 7).into());
    }
    let mut bytes = last_block(unit).to_be_bytes().to_vec();
    bytes.extend_from_slice(&(BLOCK as u32).to_be_bytes());
    let exponent = unit.export.blocks_per_physical().trailing_zeros() as u8;
    // Provisioned by management (LBPME), and unmapped blocks read as zeroes (LBPRZ).
    bytes.extend_from_slice(&[0, exponent, 0xc0, 0]);
    bytes.resize(32, 0);
    Ok(Outcome::Done(data(bytes, call.cdb.u32(10))))
}

fn last_block(unit: &LogicalUnit) -> u64 {
    unit.export.blocks().saturating_sub(1)
}

/// GET LBA STATUS.
pub(super) fn allocation(unit: &mut LogicalUnit, call: &Call) -> Answer {
    let start = Extent::block(call.cdb.u64(2)).on(unit)?.start;
    let allocation = call.cdb.u32(10);
    let range = ByteRange::at(start, (unit.export.size - start).min(ALLOCATION_MAX));
    let extents_max = (allocation.saturating_sub(8) / 16).clamp(1, DESCRIPTORS_MAX);
    Ok(Outcome::Medium(Medium::Allocation { range, extents_max, allocation }))
}

/// What GET LBA STATUS answers. A logical block that is allocated in part is allocated.
pub(super) fn lba_status(range: ByteRange, extents: &[State]) -> Vec<u8> {
    let mut descriptors: Vec<(u64, u64, bool)> = Vec::new();
    let (mut at, mut from) = (range.start, range.start / BLOCK);
    for extent in extents {
        at = at.saturating_add(extent.len).min(range.end);
        let is_hole = extent.state == ExtentState::Hole;
        let to = if is_hole { at / BLOCK } else { at.div_ceil(BLOCK) };
        match descriptors.last_mut() {
            _ if to <= from => continue,
            Some((_, end, hole)) if *hole == is_hole => *end = to,
            _ => descriptors.push((from, to, is_hole)),
        }
        from = to;
    }
    if descriptors.is_empty() {
        // Not known: allocated.
        descriptors.push((from, from + 1, false));
    }
    descriptors.truncate(DESCRIPTORS_MAX as usize);
    let mut bytes = (4 + 16 * descriptors.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    for (start, end, is_hole) in descriptors {
        bytes.extend_from_slice(&start.to_be_bytes());
        bytes.extend_from_slice(&((end - start) as u32).to_be_bytes());
        bytes.extend_from_slice(&[u8::from(is_hole), 0, 0, 0]);
    }
    bytes
}
