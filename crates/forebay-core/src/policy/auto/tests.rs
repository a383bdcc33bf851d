use proptest::prelude::*;

use super::*;
use crate::directory::Directory;
use crate::geometry::GranuleMask;
use crate::index::Density;
use crate::policy::PolicyKind;

/// A tier without bytes that counts.
struct Tier(Directory);

impl Tier {
    fn new(kind: PolicyKind, slots: u32) -> Tier {
        Tier(Directory::new(slots, 1, kind, Density::Fast))
    }

    /// Uses a block; true when it was there.
    fn touch(&mut self, block: u32) -> bool {
        let block = BlockIndex(block);
        if let Some(slot) = self.0.find(block) {
            self.0.hit(slot);
            return true;
        }
        let slot = self.0.take_free().unwrap_or_else(|| self.0.evict().unwrap().slot);
        self.0.insert(slot, block, GranuleMask(1));
        false
    }

    /// The share of `blocks` that it missed.
    fn misses(&mut self, blocks: impl IntoIterator<Item = u32>) -> f64 {
        let (mut all, mut missed) = (0, 0);
        for block in blocks {
            all += 1;
            missed += u32::from(!self.touch(block));
        }
        f64::from(missed) / f64::from(all)
    }
}

/// `uses` uses of a loop of `len` blocks from `first` on.
fn around(first: u32, len: u32, uses: u32) -> impl Iterator<Item = u32> {
    (0..uses).map(move |at| first + at % len)
}

/// Uses of a set of `len` blocks that moves on by a block with each use. It is like a queue: each
/// block is read once, some time after its write.
fn moving(first: u32, len: u32, uses: u32) -> impl Iterator<Item = u32> {
    (0..uses).map(move |at| if at % 2 == 0 { first + at / 2 + len } else { first + at / 2 })
}

/// Every other use of a few hot blocks, the rest of blocks that do not come again.
fn scanned(first: u32, hot: u32, uses: u32) -> impl Iterator<Item = u32> {
    (0..uses).map(move |at| match at % 2 {
        0 => first + ((u64::from(BlockIndex(at).hash() as u32) * u64::from(hot)) >> 32) as u32,
        _ => first + hot + at,
    })
}

#[test]
fn a_loop_of_any_length_leaves_a_part_of_itself() {
    for (slots, len) in [(1000, 1050), (1000, 1500), (1000, 4000), (5000, 5500), (5000, 15_000)] {
        let mut tier = Tier::new(PolicyKind::Auto, slots);
        // What was there before is in its way.
        tier.misses(scanned(0, slots / 2, 20 * slots));
        tier.misses(around(1 << 30, len, 40 * len));
        let misses = tier.misses(around(1 << 30, len, 5 * len));
        let least = 1.0 - f64::from(slots) / f64::from(len);
        assert!(misses < least + 0.1 * (1.0 - least) + 0.02, "{len} in {slots}: {misses}");
        assert_eq!(Tier::new(PolicyKind::Lru, slots).misses(around(0, len, 5 * len)), 1.0);
    }
}

#[test]
fn a_working_set_that_moves_on_is_followed() {
    let slots = 4000;
    for len in [1000, 2000, 3000] {
        let mut tier = Tier::new(PolicyKind::Auto, slots);
        tier.misses(around(1 << 30, 6000, 60_000));
        tier.misses(moving(0, len, 60_000));
        let misses = tier.misses(moving(30_000, len, 40_000));
        assert!(misses < 0.53, "{len}: {misses}, of which half are first uses");
    }
    // S3-FIFO never finds that out.
    let mut tier = Tier::new(PolicyKind::S3Fifo, slots);
    tier.misses(moving(0, 2000, 60_000));
    assert!(tier.misses(moving(30_000, 2000, 40_000)) > 0.9);
}

#[test]
fn a_scan_leaves_hot_blocks_alone() {
    let mut tier = Tier::new(PolicyKind::Auto, 1000);
    tier.misses(scanned(0, 800, 20_000));
    let misses = tier.misses(scanned(1 << 30, 0, 0).chain(scanned(0, 800, 40_000).skip(20_000)));
    assert!(misses < 0.53, "{misses}, of which half cannot hit");
}

#[test]
fn a_change_of_the_workload_and_back_is_followed_each_time() {
    let mut tier = Tier::new(PolicyKind::Auto, 4000);
    for round in 0..3 {
        // What the moving set leaves behind goes by strays only: thirty rounds.
        tier.misses(around(1 << 30, 8000, 240_000));
        let misses = tier.misses(around(1 << 30, 8000, 40_000));
        assert!(misses < 0.6, "loop of twice the cache, round {round}: {misses}");
        tier.misses(moving(round << 24, 3000, 80_000));
        let misses = tier.misses(moving((round << 24) + 40_000, 3000, 40_000));
        assert!(misses < 0.55, "moving set, round {round}: {misses}");
    }
}

#[test]
fn the_shadows_see_their_part_of_the_blocks() {
    for slots in [1, 100, 2048, 2049, 10_000, 1 << 20] {
        let auto = Auto::new(slots);
        let seen = (0..200_000).filter(|&block| auto.is_sampled(BlockIndex(block))).count();
        let expect = 200_000.0 * f64::from(slots.min(SHADOW_SLOTS)) / f64::from(slots);
        assert!((seen as f64 - expect).abs() <= 0.05 * expect + 10.0, "{slots}: {seen}, {expect}");
    }
}

#[test]
fn what_is_forgotten_is_as_if_it_had_not_been() {
    let run = |tier: &mut Tier| tier.misses(moving(0, 150, 4000).chain(around(0, 300, 3000)));
    let mut used = Tier::new(PolicyKind::Auto, 200);
    used.misses(around(0, 250, 5000));
    used.0.clear();
    assert_eq!(run(&mut used), run(&mut Tier::new(PolicyKind::Auto, 200)));
}

#[test]
fn neighbours_need_the_share_between_them_and_others_more() {
    let mut auto = Auto::new(1000);
    assert_eq!(auto.lead(FIRST), 0);
    assert_eq!(auto.lead(FIRST + 1), -MISS * 1000 * 4 / 500);
    assert_eq!(auto.lead(FIRST + 2), -MISS * 1000 * 22 / 500);
    assert_eq!(auto.lead(FIRST + 3), -MISS * 1000 * 72 * 2 / 500);
    // The hand is no cheaper way to others.
    auto.plan = FIRST + 1;
    assert_eq!(auto.lead(FIRST + 3), -MISS * 1000 * (72 * 2 + 4) / 500);
    auto.plan = FIRST;
    // Blocks that come once are missed by all, so nothing changes.
    (0..50_000).for_each(|block| auto.show(BlockIndex(block), true));
    assert_eq!(auto.plan, FIRST);
}

#[test]
fn each_change_makes_the_next_one_dearer_and_that_fades() {
    let mut auto = Auto::new(1000);
    let price = auto.lead(FIRST + 2);
    auto.changes.add();
    assert_eq!(auto.lead(FIRST + 2), price + price / 5);
    auto.changes.add();
    assert_eq!(auto.lead(FIRST + 2), price + price / 5 * 2);
    // Its own rules cost nothing.
    assert_eq!(auto.lead(FIRST), 0);
    // After 24 uses a slot about a third is left.
    (0..24_000).for_each(|_| auto.changes.fade(1000));
    let left = (auto.lead(FIRST + 2) - price) as f64 / (price * 2 / 5) as f64;
    assert!((left - 0.37).abs() < 0.01, "{left}");
    auto.forget();
    assert_eq!(auto.lead(FIRST + 2), price);
}

proptest! {
    #[test]
    fn its_parts_hold_together_whatever_is_used(
        slots in 1..60u32,
        blocks in prop::collection::vec((0..20u8, 0..200u32), 0..1500),
    ) {
        let mut tier = Tier::new(PolicyKind::Auto, slots);
        for (what, block) in blocks {
            match (what, tier.0.find(BlockIndex(block))) {
                (0, Some(slot)) => {
                    tier.0.remove(slot);
                    tier.0.release(slot);
                }
                (1, _) => tier.0.clear(),
                _ => {
                    // Loops, so that plans change.
                    (block / 2..block).for_each(|block| {
                        tier.touch(block);
                    });
                }
            }
            tier.0.check_invariants();
        }
    }
}
