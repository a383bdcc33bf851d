//! How many uses need a cache of which size: counts by need, in steps that grow with it.
//!
//! Needs below 64 slots are counted one by one, larger ones in 32 steps to a doubling; within a
//! step uses are taken to be spread evenly. Uses are weighted, because they may stand for others
//! that were not looked at. Only the number of all uses is known exactly. The weights of the
//! sampled uses may add up to something else. That difference is in blocks that are used all the
//! time, so it hits in every cache (SHARDS-adj: Waldspurger et al., FAST '15).

/// Needs that are counted one by one.
const SINGLE: u64 = 64;
/// Steps to a doubling.
const STEPS: u64 = 32;
/// Needs from 2 to the power of this are counted as one below it.
const SHIFT_MAX: u32 = 41;
/// Number of counts.
pub(super) const COUNTS: usize = (SINGLE + (SHIFT_MAX as u64 - 6) * STEPS) as usize;

/// Which count a need belongs to.
#[inline]
pub(super) fn step_of(need: u64) -> u16 {
    if need < SINGLE {
        return need as u16;
    }
    let need = need.min((1 << SHIFT_MAX) - 1);
    let doubling = u64::from(need.ilog2());
    (SINGLE + (doubling - 6) * STEPS + (need >> (doubling - 5)) % STEPS) as u16
}

/// The needs of a count.
pub(super) fn range_of(step: usize) -> std::ops::Range<u64> {
    let step = step as u64;
    if step < SINGLE {
        return step..step + 1;
    }
    let (doubling, within) = ((step - SINGLE) / STEPS, (step - SINGLE) % STEPS);
    let width = 2 << doubling;
    let start = (STEPS + within) * width;
    start..start + width
}

/// See the module. Of uses of granules of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    weights: Box<[f64]>,
    /// Weight of all that were looked at, first uses as well.
    looked_at: f64,
    uses: u64,
}

impl Default for Curve {
    fn default() -> Self {
        Curve { weights: vec![0.0; COUNTS].into(), looked_at: 0.0, uses: 0 }
    }
}

impl Curve {
    /// `granules` are used, whether or not they are looked at.
    #[inline]
    pub(super) fn on_uses(&mut self, granules: u32) {
        self.uses += u64::from(granules);
    }

    /// A use was looked at that stands for `weight` uses and hits in a cache of more slots than the needs of `step`;
    /// `None`: it is the first.
    #[inline]
    pub(super) fn add(&mut self, step: Option<u16>, weight: f64) {
        self.looked_at += weight;
        if let Some(step) = step {
            self.weights[usize::from(step)] += weight;
        }
    }

    /// How many uses there were.
    pub fn uses(&self) -> u64 {
        self.uses
    }

    /// How many those that were looked at stand for, which should be all.
    pub fn looked_at(&self) -> f64 {
        self.looked_at
    }

    /// How many of them hit in a cache of `slots` slots, as far as is known.
    pub fn hits(&self, slots: u64) -> f64 {
        if slots == 0 {
            return 0.0;
        }
        let mut hits = self.uses as f64 - self.looked_at;
        for (step, weight) in self.weights.iter().enumerate() {
            let needs = range_of(step);
            if needs.end <= slots {
                hits += weight;
                continue;
            }
            if needs.start < slots {
                hits += weight * (slots - needs.start) as f64 / (needs.end - needs.start) as f64;
            }
            break;
        }
        hits.clamp(0.0, self.uses as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_one_another_without_a_gap() {
        for step in 1..COUNTS {
            assert_eq!(range_of(step - 1).end, range_of(step).start);
        }
        for step in 0..COUNTS {
            let Range { start, end } = range_of(step);
            assert_eq!([step_of(start), step_of(end - 1)], [step as u16; 2]);
            assert!(start < 64 || (end - start) * 32 <= start, "{start}..{end}");
        }
        assert_eq!(usize::from(step_of(u64::MAX)), COUNTS - 1);
    }

    #[test]
    fn what_was_not_looked_at_hits_in_every_cache_but_none() {
        let mut curve = Curve::default();
        for step in [None, Some(step_of(0)), Some(step_of(128))] {
            curve.add(step, 2.0);
        }
        curve.on_uses(7);
        let hits = [0, 1, 128, 130, 132, 1 << 40].map(|slots| curve.hits(slots));
        assert_eq!(hits, [0.0, 3.0, 3.0, 4.0, 5.0, 5.0]);
        assert_eq!(curve.uses(), 7);
    }

    use std::ops::Range;
}
