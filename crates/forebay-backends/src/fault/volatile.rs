//! A disk's volatile write cache, as far as a power cut shows it.
//!
//! Writes go to the inner backend at once. The old content of each logical block is kept until a
//! flush covers it. For each block, the seed decides what a power cut puts back: the newest
//! content, the flushed one, or one in between. So it leaves any mixture of unflushed writes, but
//! no torn block.
//!
//! Each block is remembered at most once per *interval* between two flushes: with its content
//! before its first write in that interval. When a flush succeeds, what belongs to the intervals
//! before it is forgotten; what was written while the flush was running stays. Discards and
//! write-zeroes are not remembered: they are never lost. When [`LIMIT`] is reached, the disk has
//! flushed by itself.

use std::collections::BTreeMap;

use forebay_core::splitmix::Rng;

/// Bytes that are kept.
pub const LIMIT: u64 = 64 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UndoLog {
    interval: u64,
    bytes: u64,
    /// Old content by position of the block and interval.
    blocks: BTreeMap<(u64, u64), Box<[u8]>>,
}

impl UndoLog {
    /// Remembers what the block at `position` holds before a write.
    pub(super) fn remember(&mut self, position: u64, old: &[u8]) {
        if self.bytes + old.len() as u64 > LIMIT {
            self.blocks.clear();
            self.bytes = 0;
        }
        self.blocks.entry((position, self.interval)).or_insert_with(|| {
            self.bytes += old.len() as u64;
            old.into()
        });
    }

    /// A flush begins; returns what [`UndoLog::flushed`] wants when it succeeded.
    pub(super) fn begin_flush(&mut self) -> u64 {
        self.interval += 1;
        self.interval
    }

    /// Everything before that flush is durable.
    pub(super) fn flushed(&mut self, interval: u64) {
        let bytes = &mut self.bytes;
        self.blocks.retain(|(_, written), old| {
            let keep = *written >= interval;
            *bytes -= if keep { 0 } else { old.len() as u64 };
            keep
        });
    }

    /// The power goes: what to put back, by position. Nothing is remembered afterwards.
    pub(super) fn cut(&mut self, rng: &mut Rng) -> Vec<(u64, Box<[u8]>)> {
        let mut versions: BTreeMap<u64, Vec<Box<[u8]>>> = BTreeMap::new();
        for ((position, _), old) in std::mem::take(&mut self.blocks) {
            versions.entry(position).or_default().push(old);
        }
        self.bytes = 0;
        let mut lost = Vec::new();
        for (position, mut olds) in versions {
            let choice = rng.below(olds.len() as u64 + 1) as usize;
            if choice < olds.len() {
                lost.push((position, olds.swap_remove(choice)));
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents that a cut puts back at block 0, over many seeds.
    fn outcomes(log: impl Fn() -> UndoLog) -> Vec<Option<u8>> {
        let mut seen: Vec<Option<u8>> = (0..64)
            .map(|seed| log().cut(&mut Rng::new(seed)).first().map(|(_, old)| old[0]))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    #[test]
    fn a_cut_can_lose_any_unflushed_version_and_none_that_was_flushed() {
        let log = || {
            let mut log = UndoLog::default();
            log.remember(0, &[1; 512]); // Written in the first interval...
            log.remember(0, &[9; 512]); // ...and again: what counts is the content before.
            let flush = log.begin_flush();
            log.remember(0, &[2; 512]); // Written while the flush runs.
            (log, flush)
        };
        assert_eq!(outcomes(|| log().0), [None, Some(1), Some(2)]);
        let flushed = || {
            let (mut log, flush) = log();
            log.flushed(flush);
            log
        };
        assert_eq!(outcomes(flushed), [None, Some(2)]);
    }
}
