//! What a chain asks for.
//!
//! ```text
//!   readable:  type u32 | reserved u32 | sector u64 | data of a write
//!   writable:  data of a read | status u8
//! ```
//! The split into descriptors does not matter (virtio 1.2, section 5.2.6). A chain without room for header and
//! status breaks its ring; what can be answered is answered: [`Asked::Refused`].

use forebay_core::geometry::{ByteRange, SECTOR};
use forebay_core::status::IoStatus;
use virtio_bindings::virtio_blk as blk;
use vm_memory::GuestAddress;

use super::chain::{self, Broken, Pieces};
use super::memory::GuestMap;

/// Sectors of one discard, or of one write of zeroes, at most.
pub const SPACE_SECTORS_MAX: u32 = 1 << 21;

/// Bytes of data of one chain, at most: with header and status no more than the 4 GiB that virtio allows (1.2, section
/// 2.7.5). Firmware reads a kernel or an initial RAM disk with one request.
pub const DATA_MAX: u64 = (1 << 32) - 2 * SECTOR;

/// Bytes of the description of a discard.
const SPACE_BYTES: usize = 16;
/// Its flag: the space may be given back.
const UNMAP: u32 = 1;

/// The status byte of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = blk::VIRTIO_BLK_S_OK as u8,
    /// It failed.
    Error = blk::VIRTIO_BLK_S_IOERR as u8,
    /// Nothing that this device does.
    Unsupported = blk::VIRTIO_BLK_S_UNSUPP as u8,
}

impl From<IoStatus> for Status {
    fn from(status: IoStatus) -> Status {
        match status {
            IoStatus::Ok => Status::Ok,
            IoStatus::Unsupported => Status::Unsupported,
            IoStatus::IoError
            | IoStatus::TimedOut
            | IoStatus::NoSpace
            | IoStatus::ReadOnly
            | IoStatus::Invalid
            | IoStatus::Miscompare
            | IoStatus::Reserved
            | IoStatus::ShuttingDown => Status::Error,
        }
    }
}

/// Which commands that give space back were agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards {
    /// DISCARD.
    pub discard: bool,
    /// WRITE ZEROES.
    pub write_zeroes: bool,
}

/// What a chain asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Read into all writable pieces.
    Read(ByteRange),
    /// Write all readable pieces.
    Write(ByteRange),
    /// Make everything answered before durable.
    Flush,
    /// The serial number, into the writable pieces.
    Serial,
    /// The range is no longer needed.
    Discard(ByteRange),
    /// The range reads as zeroes afterwards.
    WriteZeroes {
        /// Which.
        range: ByteRange,
        /// Its space may be given back.
        may_unmap: bool,
    },
    /// To be answered at once.
    Refused(Status),
}

impl Asked {
    /// Bytes that are copied to or from the guest's memory.
    pub fn data_len(&self) -> u64 {
        match self {
            Asked::Read(range) | Asked::Write(range) => range.len(),
            Asked::Flush
            | Asked::Serial
            | Asked::Discard(_)
            | Asked::WriteZeroes { .. }
            | Asked::Refused(_) => 0,
        }
    }
}

/// Takes header and status off the pieces of a chain: what is left of them is data.
///
/// # Errors
/// There is no room for one of them.
pub fn parse(
    map: &GuestMap,
    discards: Discards,
    pieces: &mut Pieces,
) -> Result<(Asked, GuestAddress), Broken> {
    let header: [u8; 16] = chain::take_first(map, &mut pieces.readable).ok_or(Broken::Header)?;
    let status = chain::take_last(&mut pieces.writable).ok_or(Broken::Status)?;
    let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
    let sector = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
    let asked = match kind {
        blk::VIRTIO_BLK_T_IN => data(sector, chain::len(&pieces.writable), Asked::Read),
        blk::VIRTIO_BLK_T_OUT => data(sector, chain::len(&pieces.readable), Asked::Write),
        blk::VIRTIO_BLK_T_FLUSH => Asked::Flush,
        blk::VIRTIO_BLK_T_GET_ID => Asked::Serial,
        blk::VIRTIO_BLK_T_DISCARD if discards.discard => space(map, pieces, false),
        blk::VIRTIO_BLK_T_WRITE_ZEROES if discards.write_zeroes => space(map, pieces, true),
        _ => Asked::Refused(Status::Unsupported),
    };
    Ok((asked, status))
}

/// A transfer of `len` bytes from `sector` on.
fn data(sector: u64, len: u64, asked: impl Fn(ByteRange) -> Asked) -> Asked {
    match range(sector, len) {
        Some(range) if len <= DATA_MAX => asked(range),
        Some(_) | None => Asked::Refused(Status::Error),
    }
}

/// A discard, or a write of zeroes.
fn space(map: &GuestMap, pieces: &mut Pieces, zeroes: bool) -> Asked {
    // One range, as the configuration space says.
    if chain::len(&pieces.readable) != SPACE_BYTES as u64 {
        return Asked::Refused(Status::Error);
    }
    let Some(bytes) = chain::take_first::<SPACE_BYTES>(map, &mut pieces.readable) else {
        return Asked::Refused(Status::Error);
    };
    let sector = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let sectors = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    let flags = u32::from_le_bytes(bytes[12..].try_into().expect("four bytes"));
    if flags & !UNMAP != 0 || (!zeroes && flags != 0) {
        return Asked::Refused(Status::Unsupported);
    }
    match range(sector, u64::from(sectors) * SECTOR) {
        Some(_) if sectors > SPACE_SECTORS_MAX => Asked::Refused(Status::Error),
        Some(range) if zeroes => Asked::WriteZeroes { range, may_unmap: flags & UNMAP != 0 },
        Some(range) => Asked::Discard(range),
        None => Asked::Refused(Status::Error),
    }
}

/// Whole sectors, at least one, that a disk could have; whether this one has them the engine knows.
fn range(sector: u64, len: u64) -> Option<ByteRange> {
    let start = sector.checked_mul(SECTOR)?;
    start.checked_add(len)?;
    (len > 0 && len.is_multiple_of(SECTOR)).then(|| ByteRange::at(start, len))
}

#[cfg(test)]
mod tests;
