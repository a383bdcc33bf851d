//! RAM gets more slots, or fewer, with blocks in them.

use super::*;
use crate::policy::PolicyKind;

/// LRU in so many slots of RAM, with a place for 16, over flash of so many.
fn with_room(ram: u64, flash: u64) -> Config {
    Config { ram_room: 16 * BLOCK, policy: PolicyKind::Lru, ..config(ram, flash) }
}

impl Rig {
    /// The part of the memory that is to come.
    pub(super) fn resize(&mut self, slots: u64) -> Option<ByteRange> {
        self.shared.config.ram_bytes = slots * BLOCK;
        self.call(|cache, _, cx| cache.resize_ram(cx))
    }

    /// One tick; where the memory ends, if it became smaller.
    pub(super) fn tick(&mut self) -> Option<u64> {
        self.shared.now = self.shared.now.plus(Nanos::from_millis(1));
        self.events.clear();
        self.call(|cache, undestaged, cx| cache.change_more(undestaged, cx));
        self.events.iter().find_map(|event| match event {
            Event::RamShrunk { end } => Some(*end),
            _ => None,
        })
    }

    /// Ticks until memory is free; where it ends, and how many there were.
    fn shrink(&mut self) -> (u64, usize) {
        (1..100).find_map(|ticks| Some((self.tick()?, ticks))).expect("it comes to its end")
    }

    fn fill(&mut self, blocks: std::ops::Range<u64>) {
        for n in blocks {
            self.install(block(n), |sector| sector);
        }
    }

    fn in_ram(&self) -> Vec<u64> {
        (0..64).filter(|&n| !self.found(n)[0].is_empty()).collect()
    }

    fn expect_hits(&mut self) {
        for n in self.in_ram() {
            let slices = self.hit(block(n)).expect("a hit");
            assert_eq!(self.cells(slices[0]), (16 * n..16 * n + 16).collect::<Vec<u64>>());
        }
        self.cache.unpin();
    }

    fn slots(&self) -> (u64, u64) {
        let [ram, _] = self.cache.statistics();
        (ram.slots, ram.slots_ready)
    }
}

fn base() -> u64 {
    with_room(1, 0).buffer_bytes
}

#[test]
fn more_slots_keep_what_is_cached_in_place_and_in_order() {
    let mut rig = Rig::new(with_room(4, 0));
    rig.fill(0..4);
    rig.hit(block(0));
    rig.cache.unpin();
    let place = |rig: &Rig, n| rig.cache.lookup(BlockIndex(n)).ram.map(|(slot, _)| slot);
    let before: Vec<_> = (0..4).map(|n| place(&rig, n)).collect();
    let missing = rig.resize(6).expect("memory is to come");
    assert_eq!(missing, ByteRange::at(base() + 4 * BLOCK, 2 * BLOCK));
    assert_eq!(rig.slots(), (6, 4));
    assert_eq!((0..4).map(|n| place(&rig, n)).collect::<Vec<_>>(), before);
    // No slot is used before its memory is there.
    rig.fill(4..5);
    assert_eq!(rig.in_ram(), [0, 2, 3, 4], "the coldest one left");
    rig.cache.have_memory(missing.end);
    assert_eq!((rig.slots(), rig.resize(6)), ((6, 6), None));
    rig.fill(5..7);
    assert_eq!(rig.in_ram(), [0, 2, 3, 4, 5, 6]);
    rig.fill(7..9);
    assert_eq!(rig.in_ram(), [0, 4, 5, 6, 7, 8]);
    rig.expect_hits();
}

/// A miss may come while memory is still on its way. What fills the slots then is no scan.
#[test]
fn what_fills_slots_that_come_late_outlives_a_scan() {
    let mut rig = Rig::new(Config { policy: PolicyKind::S3Fifo, ..with_room(8, 0) });
    rig.fill(0..8);
    let missing = rig.resize(16).expect("memory is to come");
    rig.fill(8..9);
    rig.cache.have_memory(missing.end);
    rig.fill(9..17);
    rig.fill(17..60);
    let left = rig.in_ram().iter().filter(|n| (9..17).contains(*n)).count();
    assert!(left >= 6, "{left} of 8");
}

#[test]
fn of_fewer_slots_the_blocks_stay_that_were_used_last() {
    let mut rig = Rig::new(with_room(12, 0));
    rig.fill(0..12);
    for n in [1, 5, 11] {
        rig.hit(block(n));
    }
    rig.cache.unpin();
    assert_eq!(rig.resize(4), None);
    let (end, ticks) = rig.shrink();
    assert_eq!(end, base() + 4 * BLOCK);
    assert!(ticks > 1, "not all at once");
    assert_eq!(rig.slots(), (4, 4));
    assert_eq!(rig.in_ram(), [1, 5, 10, 11]);
    rig.expect_hits();
    assert_eq!(rig.cache.change_deadline(), Nanos::NEVER);
    // All were used just now, in this order.
    rig.fill(12..13);
    assert_eq!(rig.in_ram(), [5, 10, 11, 12]);
}

#[test]
fn free_slots_are_gone_at_once_when_there_are_to_be_fewer() {
    let mut rig = Rig::new(with_room(12, 0));
    rig.fill(0..3);
    rig.resize(3);
    rig.fill(3..9);
    assert_eq!(rig.in_ram(), [6, 7, 8]);
    rig.shrink();
    assert_eq!(rig.in_ram(), [6, 7, 8]);
    rig.expect_hits();
}

#[test]
fn blocks_move_down_where_slots_are_free_and_none_leaves() {
    let mut rig = Rig::new(with_room(12, 0));
    rig.fill(0..12);
    for n in 0..6 {
        rig.call(|cache, _, cx| cache.invalidate(block(n), cx));
    }
    rig.resize(6);
    rig.shrink();
    assert_eq!(rig.in_ram(), [6, 7, 8, 9, 10, 11]);
    assert_eq!(rig.shared.counters.ram_evicted, 0);
    rig.expect_hits();
}

#[test]
fn a_slot_of_a_reply_does_not_change_while_its_block_moves_and_its_memory_stays() {
    let mut rig = Rig::new(with_room(12, 0));
    rig.fill(0..12);
    let slices = rig.hit(block(11)).expect("a hit");
    rig.resize(2);
    for _ in 0..40 {
        assert_eq!(rig.tick(), None, "a reply refers to it");
        assert_eq!(rig.cells(slices[0]), (176..192).collect::<Vec<u64>>());
    }
    rig.expect_hits();
    assert_eq!(rig.in_ram(), [10, 11]);
    rig.cache.unpin();
    assert_eq!(rig.tick(), Some(base() + 2 * BLOCK));
    rig.expect_hits();
}

#[test]
fn one_call_moves_or_drops_a_few_blocks() {
    let mut rig = Rig::new(with_room(16, 0));
    rig.fill(0..16);
    rig.resize(1);
    let mut before = rig.in_ram().len();
    let visits_max = rig.cache.visits_max() as usize;
    assert!(visits_max < 5);
    while before > 1 {
        rig.tick();
        let after = rig.in_ram().len();
        // A move that finds no place evicts as many as a fill may.
        assert!(before - after <= visits_max * 8, "{before} to {after}");
        before = after;
    }
}

#[test]
fn what_leaves_for_fewer_slots_is_offered_to_flash_as_fast_as_that_writes() {
    let mut rig = Rig::new(with_room(16, 64));
    rig.fill(0..16);
    rig.resize(4);
    rig.shrink();
    assert_eq!((rig.pending.len(), rig.in_ram().len()), (12, 4));
    rig.end_fills();
    for n in 0..12 {
        assert_eq!(rig.found(n), [GranuleMask::NONE, ALL], "block {n}");
    }
}

#[test]
fn a_change_of_mind_while_slots_are_emptied_loses_none() {
    let mut rig = Rig::new(with_room(16, 0));
    for (first, second) in [(4, 16), (4, 8), (8, 4), (2, 15), (15, 1)] {
        rig.fill(0..16);
        rig.resize(first);
        rig.tick();
        rig.resize(second);
        for _ in 0..50 {
            rig.tick();
        }
        assert_eq!(rig.slots(), (second, second));
        rig.expect_hits();
        let missing = rig.resize(16);
        missing.into_iter().for_each(|missing| rig.cache.have_memory(missing.end));
        rig.fill(16..32);
        assert_eq!(rig.in_ram(), (16..32).collect::<Vec<u64>>(), "{first}, then {second}");
        rig.expect_hits();
    }
}

#[test]
fn memory_that_is_still_to_come_is_not_waited_for_by_slots_that_go() {
    let mut rig = Rig::new(with_room(8, 0));
    rig.cache.withhold_ram();
    rig.cache.have_memory(base() + 2 * BLOCK);
    assert_eq!(rig.resize(4), Some(ByteRange::at(base() + 2 * BLOCK, 2 * BLOCK)));
    assert_eq!(rig.tick(), Some(base() + 4 * BLOCK));
    // What comes late concerns no slot.
    rig.cache.have_memory(base() + 8 * BLOCK);
    assert_eq!(rig.slots(), (4, 4));
    rig.fill(0..4);
    assert_eq!(rig.in_ram(), [0, 1, 2, 3]);
}

#[test]
fn stale_blocks_do_not_move_behind_the_sweep_that_drops_them() {
    let mut rig = Rig::new(with_room(16, 16));
    rig.fill(0..16);
    rig.call(|cache, _, cx| cache.invalidate(ByteRange::at(0, DISK), cx));
    rig.call(|cache, _, cx| cache.drop_more(cx));
    rig.resize(4);
    rig.shrink();
    for _ in 0..50 {
        rig.shared.now = rig.shared.now.plus(Nanos::from_millis(1));
        rig.call(|cache, _, cx| cache.drop_more(cx));
    }
    assert!(rig.cache.stale().is_empty());
    assert_eq!(rig.in_ram(), Vec::<u64>::new());
}

#[test]
fn every_policy_keeps_all_blocks_in_more_slots_and_as_many_as_fit_in_fewer() {
    for (policy, name) in PolicyKind::ALL {
        let mut rig = Rig::new(Config { policy, ..with_room(8, 0) });
        rig.fill(0..8);
        let missing = rig.resize(16).expect("memory is to come");
        rig.cache.have_memory(missing.end);
        rig.fill(8..16);
        assert_eq!(rig.in_ram(), (0..16).collect::<Vec<u64>>(), "{name}");
        rig.resize(5);
        rig.shrink();
        assert_eq!(rig.in_ram().len(), 5, "{name}");
        rig.expect_hits();
    }
}
