//! Holes of a file.
//!
//! A range that cannot be found out counts as allocated, and so does what a file lost that somebody cut short: its reads
//! fail, and whoever skips its holes must not take that for one.

use std::os::fd::BorrowedFd;

use forebay_core::action::{Extent, ExtentState};
use forebay_core::geometry::ByteRange;
use forebay_io::file::{self, FileExtent};

/// Extents of one answer, at most; the asker asks again from where they end.
const EXTENTS_MAX: usize = 1024;

/// What is said of a range where nobody can find out.
pub(super) fn unknown(range: ByteRange) -> Vec<Extent> {
    vec![Extent { len: range.len(), state: ExtentState::Allocated }]
}

/// Asks the file system, which may have to wait for it.
pub(super) fn find(file: BorrowedFd<'_>, range: ByteRange) -> Vec<Extent> {
    let state = |it: &FileExtent| match it.is_data {
        true => ExtentState::Allocated,
        false => ExtentState::Hole,
    };
    let Ok(size) = file::size(file) else { return unknown(range) };
    let there = size.clamp(range.start, range.end) - range.start;
    let Ok(found) = file::extents(file, range.start, there, EXTENTS_MAX) else {
        return unknown(range);
    };
    let extent = |it: &FileExtent| Extent { len: it.len, state: state(it) };
    let mut told: Vec<Extent> = found.iter().map(extent).collect();
    let is_all = told.iter().map(|it| it.len).sum::<u64>() == there;
    if is_all && there < range.len() {
        told.extend(unknown(ByteRange { start: range.start + there, end: range.end }));
    }
    told
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_a_file_lost_that_was_cut_short_is_no_hole() {
        const MIB: u64 = 1 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * MIB).unwrap();
        let found = |start, len| {
            let extents = find(file.as_fd(), ByteRange::at(start, len)).into_iter();
            extents.map(|it| (it.len, it.state)).collect::<Vec<_>>()
        };
        let (hole, data) = (ExtentState::Hole, ExtentState::Allocated);
        assert_eq!(found(0, 2 * MIB), [(2 * MIB, hole)]);
        assert_eq!(found(MIB, 3 * MIB), [(MIB, hole), (2 * MIB, data)]);
        assert_eq!(found(3 * MIB, MIB), [(MIB, data)]);
    }
}
