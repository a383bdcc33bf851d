//! Where on the target a request of a trace goes.

use forebay_core::geometry::{ByteRange, REQUEST_MAX};

use crate::record::Record;

/// A request's place on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Whole logical blocks of the target, at most [`REQUEST_MAX`] long, not empty.
    pub(super) range: ByteRange,
    /// The trace's address lay beyond the target's end.
    pub(super) wrapped: bool,
    /// The request was grown to whole logical blocks.
    pub(super) widened: bool,
}

/// The place of `record` on a target of `size` bytes with logical blocks of `block` bytes.
/// `None`: the request is too long for the target or for a replay.
pub(super) fn place(record: &Record, size: u64, block: u64) -> Option<Placed> {
    let size = size / block * block;
    let mut start = record.offset;
    let len = u64::from(record.len);
    // A request that starts in the middle of a block may touch one block more.
    let wanted = ByteRange::at(start % block, len).align_out(block).len();
    if wanted > size.min(REQUEST_MAX) {
        return None;
    }
    let wrapped = record.end() > size;
    if wrapped {
        start %= size;
    }
    let mut range = ByteRange::at(start, len).align_out(block);
    let widened = range.len() != len;
    if range.end > size {
        range = ByteRange::at(size - range.len(), range.len());
    }
    Some(Placed { range, wrapped, widened })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Op;

    fn record(offset: u64, len: u32) -> Record {
        Record { time_ns: 0, op: Op::Read, offset, len, device: 0, latency_ns: None }
    }

    #[test]
    fn requests_fall_on_whole_blocks_within_the_target() {
        let at = |start, len, wrapped, widened| {
            Some(Placed { range: ByteRange::at(start, len), wrapped, widened })
        };
        let cases = [
            (record(512, 1024), 512, at(512, 1024, false, false)),
            (record(512, 1024), 4096, at(0, 4096, false, true)),
            (record(3584, 1024), 4096, at(0, 8192, false, true)),
            (record(100, 1), 512, at(0, 512, false, true)),
            (record(15 << 10, 1024), 512, at(15 << 10, 1024, false, false)),
            (record(16 << 10, 1024), 512, at(0, 1024, true, false)),
            (record(15 << 10, 2048), 512, at(14 << 10, 2048, true, false)),
            (record((1 << 40) + 512, 512), 512, at(512, 512, true, false)),
            (record(0, 16 << 10), 4096, at(0, 16 << 10, false, false)),
            (record(512, 16 << 10), 4096, None),
        ];
        for (record, block, expect) in cases {
            assert_eq!(place(&record, 16 << 10, block), expect, "{record:?}");
        }
    }

    proptest! {
        #[test]
        fn every_place_is_valid_for_the_target(
            offset in 0..1u64 << 62, len in 1..1u32 << 30, size in 0..1u64 << 40, block in 9..=12u32,
        ) {
            let block = 1u64 << block;
            if let Some(Placed { range, .. }) = place(&record(offset, len), size, block) {
                prop_assert!(range.is_aligned(block) && !range.is_empty());
                prop_assert!(range.end <= size && range.len() <= REQUEST_MAX);
                prop_assert!(range.len() >= u64::from(len));
            }
        }
    }
}
