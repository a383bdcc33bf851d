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

use crate::cache::returns::Returns;
use crate::config::SequentialBypass;
use crate::directory::Evicted;
use crate::engine::Parts;
use crate::engine::cx::{Cx, Shared};
use crate::geometry::ByteRange;
use crate::ids::BlockIndex;

/// Bytes after which a run is a stream, where its length was not set.
const AUTO_MIN: u64 = 4 << 20;
/// Streams of which fewer blocks come back are passed by. A cache that keeps a stream for nothing loses little, since the
/// policy gives it up soon; one that passes by what comes back loses every hit of it.
const RETURNS_PERCENT: u32 = 1;

impl Parts {
    /// Whether a request that ends a run of so many bytes belongs to a stream.
    pub(super) fn is_stream(&self, run: u64, shared: &Shared) -> bool {
        match shared.config.sequential_bypass {
            SequentialBypass::Off => false,
            SequentialBypass::Longer(limit) => run > limit,
            SequentialBypass::Auto => run > AUTO_MIN,
        }
    }

    /// Whether streams are passed by now.
    pub(super) fn passes_streams_by(&mut self, cx: &mut Cx<'_>) -> bool {
        match cx.config.sequential_bypass {
            SequentialBypass::Off => false,
            SequentialBypass::Longer(_) => true,
            SequentialBypass::Auto => {
                let Some(returns) = &self.cache.streams_returned else { return false };
                !self.has_free_slot() && returns.is_at_least(RETURNS_PERCENT) == Some(false)
            }
        }
    }

    /// True when a new block pushes no other one out of the larger tier.
    fn has_free_slot(&self) -> bool {
        match self.cache.flash.as_ref().filter(|flash| flash.failed.is_none()) {
            Some(flash) => flash.has_free(),
            None => self.cache.ram.as_ref().is_some_and(|ram| ram.dir.spare().0 > 0),
        }
    }

    /// The blocks of `range` were fetched, because they were not cached.
    pub(super) fn note_fetched(&mut self, range: ByteRange, is_stream: bool, cx: &mut Cx<'_>) {
        self.note_edges_read(range, cx);
        for block in cx.grid.blocks(range) {
            self.note_new_block(block, is_stream, true);
        }
    }

    /// `block`, which was not cached, was read or written. A block that was written and is written again has not returned.
    pub(super) fn note_new_block(&mut self, block: BlockIndex, is_stream: bool, is_read: bool) {
        let key = u64::from(block.0);
        if let Some(returns) = &mut self.cache.edges_returned {
            returns.pass();
        }
        let Some(returns) = &mut self.cache.streams_returned else { return };
        returns.pass();
        if !returns.is_sampled(key) {
            return;
        }
        let (ram, flash) = (&self.cache.ram, &self.cache.flash);
        returns.settle(key, is_read);
        returns.expire(|key| {
            let block = BlockIndex(key as u32);
            let in_ram = ram.as_ref().is_some_and(|tier| tier.dir.was_used(block));
            in_ram || flash.as_ref().is_some_and(|tier| tier.dir.was_used(block))
        });
        if is_stream {
            returns.wait_for(key);
        }
    }
}

/// A block left a tier. It has returned if it was used there.
pub(super) fn note_left(returns: &mut Option<Returns>, victim: &Evicted) {
    let key = u64::from(victim.block.0);
    if let Some(returns) = returns
        && victim.referenced
        && returns.is_sampled(key)
    {
        returns.settle(key, true);
    }
}
