//! Whether what is let into a cache, or kept out of it, is used again before a cache of its size would have dropped it.
//!
//! ```text
//!   seen ──in the sample?──► pending ──used again──► returned
//!                               └──── as many blocks later as the cache has ──► gone
//! ```
//! It looks at a sample of the keys (numbers of blocks or granules), at most [`PENDING_MAX`] at a
//! time. It measures time in blocks that came into the cache, or would have. Old outcomes count
//! the less the more new ones there are, so that a change is followed.
//!
//! Memory: 16 bytes for each pending key, 8 KiB in all.

use std::collections::VecDeque;

/// Keys that are waited for at most.
const PENDING_MAX: u32 = 512;
/// Outcomes at which all of them are halved.
const OUTCOMES_MAX: u32 = 256;
/// Fewer outcomes say nothing.
const OUTCOMES_MIN: u32 = 32;

#[derive(Clone, Copy, Debug)]
struct Pending {
    key: u64,
    since: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Returns {
    /// How many blocks the cache holds.
    blocks: u64,
    /// One key in so many is looked at, so that those of a whole cache have room among the pending ones.
    one_in: u64,
    one_in_min: u64,
    now: u64,
    pending: VecDeque<Pending>,
    returned: u32,
    gone: u32,
}

impl Returns {
    /// For a cache of `blocks` blocks. One key in `one_in_min` is looked at, or fewer.
    pub fn new(blocks: u32, one_in_min: u64) -> Returns {
        Returns {
            blocks: blocks.into(),
            one_in: one_in(blocks, one_in_min),
            one_in_min,
            now: 0,
            pending: VecDeque::with_capacity(PENDING_MAX as usize),
            returned: 0,
            gone: 0,
        }
    }

    /// The cache holds so many blocks from now on. What was learned stays.
    pub fn resize(&mut self, blocks: u32) {
        (self.blocks, self.one_in) = (blocks.into(), one_in(blocks, self.one_in_min));
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|pending| self.is_sampled(pending.key));
        self.pending = pending;
    }

    /// Whether `key` is looked at.
    pub fn is_sampled(&self, key: u64) -> bool {
        // Another mix than those by which ghosts and policies choose.
        let hash = (key ^ key >> 29).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93).is_multiple_of(self.one_in)
    }

    /// A block came into the cache, or would have.
    pub fn pass(&mut self) {
        self.now += 1;
    }

    /// Waits for a sampled key from now on.
    pub fn wait_for(&mut self, key: u64) {
        if self.pending.len() == PENDING_MAX as usize {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending { key, since: self.now });
    }

    /// True when something is waited for.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A sampled key was used again, or became of no use; nothing happens when it is not waited for.
    pub fn settle(&mut self, key: u64, has_returned: bool) {
        if let Some(place) = self.pending.iter().position(|pending| pending.key == key) {
            self.pending.remove(place);
            self.count(has_returned);
        }
    }

    /// Ends the wait for what a cache would have dropped by now. `was_used`: although nobody settled it.
    pub fn expire(&mut self, was_used: impl Fn(u64) -> bool) {
        while let Some(&oldest) = self.pending.front()
            && self.now - oldest.since > self.blocks
        {
            self.pending.pop_front();
            self.count(was_used(oldest.key));
        }
    }

    /// Whether at least `percent` of the outcomes were returns; `None`: too few are known.
    pub fn is_at_least(&self, percent: u32) -> Option<bool> {
        let outcomes = self.returned + self.gone;
        (outcomes >= OUTCOMES_MIN).then(|| self.returned * 100 >= outcomes * percent)
    }

    fn count(&mut self, has_returned: bool) {
        if self.returned + self.gone >= OUTCOMES_MAX {
            self.returned /= 2;
            self.gone /= 2;
        }
        let outcome = if has_returned { &mut self.returned } else { &mut self.gone };
        *outcome += 1;
    }
}

/// A power of two: a cache that grows looks at fewer of the same keys.
fn one_in(blocks: u32, min: u64) -> u64 {
    u64::from(blocks.div_ceil(PENDING_MAX)).next_power_of_two().max(min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of 100 blocks, of which every key is looked at.
    fn returns() -> Returns {
        Returns::new(100, 1)
    }

    #[test]
    fn what_comes_back_in_time_has_returned_and_what_comes_later_is_gone() {
        for (distance, is_return) in [(1, true), (100, true), (101, false)] {
            let mut returns = returns();
            for key in 0..40 {
                returns.wait_for(key);
                (0..distance).for_each(|_| returns.pass());
                returns.expire(|_| false);
                returns.settle(key, true);
            }
            assert_eq!(returns.is_at_least(50), Some(is_return), "{distance} blocks later");
        }
    }

    #[test]
    fn a_cache_that_has_grown_learns_what_it_may_keep_by_now() {
        let mut returns = Returns::new(1024, 1);
        let scan = |returns: &mut Returns| {
            for key in 0..3072 {
                returns.pass();
                if returns.is_sampled(key) {
                    returns.settle(key, true);
                    returns.expire(|_| false);
                    returns.wait_for(key);
                }
            }
        };
        (0..2).for_each(|_| scan(&mut returns));
        assert_eq!(returns.is_at_least(1), Some(false));
        returns.resize(8192);
        (0..10).for_each(|_| scan(&mut returns));
        assert_eq!(returns.is_at_least(50), Some(true));
    }

    #[test]
    fn few_outcomes_say_nothing() {
        let mut returns = returns();
        for key in 0..u64::from(OUTCOMES_MIN) {
            assert_eq!(returns.is_at_least(1), None);
            returns.wait_for(key);
            returns.settle(key, true);
        }
        assert_eq!(returns.is_at_least(100), Some(true));
    }

    #[test]
    fn a_change_is_followed() {
        let mut returns = returns();
        let mut settle = |has_returned| {
            for key in 0..1000 {
                returns.wait_for(key);
                returns.settle(key, has_returned);
            }
            returns.is_at_least(50)
        };
        assert_eq!(
            [settle(true), settle(false), settle(true)],
            [Some(true), Some(false), Some(true)]
        );
    }

    #[test]
    fn a_large_cache_is_looked_at_through_a_sample_that_fits() {
        let returns = Returns::new(1 << 20, 1);
        let sampled = (0..1 << 20).filter(|&key| returns.is_sampled(key)).count();
        assert!((400..620).contains(&sampled), "{sampled}");
    }
}
