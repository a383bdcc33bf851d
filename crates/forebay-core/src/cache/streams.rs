//! Which sequential streams pass the cache by.
//!
//! ```text
//!   auto:  free slots ─► cached     full ─► do such blocks come back in time? ─┬─ 1 of 100 at least, or unknown ─► cached
//!                                                                              └─ fewer ─► passed by
//! ```
//! A stream is a run of requests, each where the one before ended, of more than [`AUTO_MIN`] bytes. A backup reads each
//! block once: in the cache it would only be in the way, and on flash it would be wear. A loop, or a file that is
//! written and read at once, is a stream as well, and worth its place. So `auto` looks at a sample of the blocks of
//! streams that were fetched or written, cached or not, and waits until they are used again, or until a cache of this
//! size would have dropped them (`returns.rs`).
//!
//! Limits: what is learned is of all streams of the disk together.

use super::Cache;
use super::directory::Evicted;
use super::returns::Returns;
use super::sequential::SequentialStreams;
use crate::config::{Config, SequentialBypass};
use crate::cx::Shared;
use crate::geometry::ByteRange;
use crate::ids::BlockIndex;
use crate::misses::Fate;

/// Bytes after which a run is a stream, where its length was not set.
const AUTO_MIN: u64 = 4 << 20;
/// Streams of which fewer blocks come back are passed by. A cache that keeps a stream for nothing loses little, since the
/// policy gives it up soon; one that passes by what comes back loses every hit of it.
const RETURNS_PERCENT: u32 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct Streams {
    under_way: SequentialStreams,
    /// Whether their blocks come back in time; none without a cache.
    returned: Option<Returns>,
}

impl Streams {
    /// For a cache of so many blocks, if there is one.
    pub(super) fn new(blocks: Option<u32>) -> Streams {
        let returned = blocks.map(|blocks| Returns::new(blocks, 1));
        Streams { under_way: SequentialStreams::default(), returned }
    }

    /// The cache has so many blocks from now on.
    pub(super) fn resize(&mut self, blocks: u32) {
        if let Some(returns) = &mut self.returned {
            returns.resize(blocks);
        }
    }

    /// Takes note of a request; the length of the run that it ends.
    #[inline]
    pub(super) fn observe(&mut self, range: ByteRange) -> u64 {
        self.under_way.observe(range)
    }

    /// A block left a tier. It has returned if it was used there.
    pub(super) fn note_left(&mut self, victim: &Evicted) {
        let key = u64::from(victim.block.0);
        if let Some(returns) = &mut self.returned
            && victim.referenced
            && returns.is_sampled(key)
        {
            returns.settle(key, true);
        }
    }
}

impl Cache {
    /// Takes note of a request; true when it belongs to a stream.
    pub(crate) fn observe_stream(&mut self, range: ByteRange, config: &Config) -> bool {
        let run = self.streams.observe(range);
        match config.sequential_bypass {
            SequentialBypass::Off => false,
            SequentialBypass::Longer(limit) => run > limit,
            SequentialBypass::Auto => run > AUTO_MIN,
        }
    }

    /// Whether streams are passed by now.
    pub(crate) fn passes_streams_by(&self, config: &Config) -> bool {
        match config.sequential_bypass {
            SequentialBypass::Off => false,
            SequentialBypass::Longer(_) => true,
            SequentialBypass::Auto => {
                let Some(returns) = &self.streams.returned else { return false };
                !self.has_free_slot() && returns.is_at_least(RETURNS_PERCENT) == Some(false)
            }
        }
    }

    /// True when a new block pushes no other one out of the larger tier.
    fn has_free_slot(&self) -> bool {
        match self.flash.as_ref().filter(|flash| flash.is_working()) {
            Some(flash) => flash.tier.has_free(),
            None => self.ram.as_ref().is_some_and(|ram| ram.dir.spare().0 > 0),
        }
    }

    /// The blocks of `range` were fetched, because they were not cached; what becomes of them.
    pub(crate) fn note_fetched(
        &mut self,
        range: ByteRange,
        is_stream: bool,
        fate: Fate,
        shared: &mut Shared,
    ) {
        let grid = shared.grid;
        self.edges.note_read(range, &grid);
        for block in grid.blocks(range) {
            let is_partial = !self.lookup(block).granules().is_empty();
            shared.misses.note(block, is_partial, fate);
            // A stream that goes on within a block has not come back to it.
            let goes_on = is_stream && range.start > grid.range_of(block).start;
            if !goes_on {
                if !is_partial {
                    self.pass_block();
                }
                self.note_some(block, is_stream, true);
            }
        }
    }

    /// `block`, which was not cached, was read or written.
    pub(super) fn note_new_block(&mut self, block: BlockIndex, is_stream: bool, is_read: bool) {
        self.pass_block();
        self.note_some(block, is_stream, is_read);
    }

    /// A block that is new comes into the cache, or would: time goes on by one.
    fn pass_block(&mut self) {
        self.edges.pass();
        if let Some(returns) = &mut self.streams.returned {
            returns.pass();
        }
    }

    /// Some of `block`, which was not cached, was read or written. A block that was written and is written again has not
    /// returned.
    fn note_some(&mut self, block: BlockIndex, is_stream: bool, is_read: bool) {
        let key = u64::from(block.0);
        let Cache { ram, flash, streams, .. } = self;
        let Some(returns) = &mut streams.returned else { return };
        if !returns.is_sampled(key) {
            return;
        }
        returns.settle(key, is_read);
        returns.expire(|key| {
            let block = BlockIndex(key as u32);
            let in_ram = ram.as_ref().is_some_and(|ram| ram.dir.was_used(block));
            in_ram || flash.as_ref().is_some_and(|flash| flash.tier.dir.was_used(block))
        });
        if is_stream {
            returns.wait_for(key);
        }
    }
}
