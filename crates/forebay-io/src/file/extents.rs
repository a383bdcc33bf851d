//! Which parts of a file hold data and which are holes.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// A piece of a file that is all data, or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Where it begins.
    pub offset: u64,
    /// Its length in bytes, not zero.
    pub len: u64,
    /// Data, or at least not known to be a hole; a hole reads as zeroes.
    pub is_data: bool,
}

/// The extents of `offset..offset + len`, in order, at most `count_max` of them: they cover the
/// start of the range. A range of which the file system says nothing is data; beyond the end is
/// hole. Blocks, and moves the descriptor's position.
///
/// # Errors
/// The kernel's.
pub fn extents(
    file: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    count_max: usize,
) -> io::Result<Vec<FileExtent>> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    let mut extents = Vec::new();
    while at < end && extents.len() < count_max {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            Err(Errno::NXIO) => end,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        // A file that is written to at the same time may tell anything; only go forward.
        let is_data = data <= at;
        let next = if is_data {
            match seek(file, SeekFrom::Hole(at)) {
                Ok(hole) if hole > at => hole.min(end),
                Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => end,
                Err(error) => return Err(error.into()),
            }
        } else {
            data
        };
        extents.push(FileExtent { offset: at, len: next - at, is_data });
        at = next;
    }
    Ok(extents)
}
