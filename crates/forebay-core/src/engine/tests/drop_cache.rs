//! The cache is dropped with requests under way, after somebody else has written to primary storage.

use super::*;
use crate::config::FlashAdmission;

/// RAM of four blocks over flash of 16.
fn tiers() -> Config {
    Config {
        ram_bytes: 16 * KIB,
        flash_bytes: 64 * KIB,
        flash_admission: FlashAdmission::Always,
        ..config()
    }
}

impl Rig {
    fn drop_cache(&mut self) -> u64 {
        self.engine.drop_cache(self.now, &mut self.actions);
        self.run_actions();
        self.sweep()
    }

    /// Ticks until everything is dropped.
    fn sweep(&mut self) -> u64 {
        for _ in 0..100 {
            if let Some(blocks) = self.engine.dropped() {
                return blocks;
            }
            self.now = self.now.max(self.engine.next_deadline());
            self.tick(0);
        }
        panic!("the cache is not dropped");
    }
}

pub(super) fn blocks_cached(rig: &Rig) -> u64 {
    rig.engine.statistics(rig.now).vfrc.num_blocks_currently_cached
}

#[test]
fn after_the_cache_was_dropped_reads_find_what_somebody_else_wrote() {
    let mut rig = Rig::new(tiers());
    for block in 0..12 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    assert!(blocks_cached(&rig) >= 12);
    rig.backend.fill(0xAB);
    rig.expect_bytes(0, 4096, 0);
    assert!(rig.drop_cache() >= 12);
    assert_eq!(blocks_cached(&rig), 0);
    for block in 0..12 {
        rig.expect_bytes(block * 4096, 4096, 0xAB);
    }
    // And it is filled again.
    assert!(blocks_cached(&rig) > 0);
}

#[test]
fn what_is_read_while_writes_of_a_former_process_may_land_is_not_kept() {
    let mut rig = Rig::new(tiers());
    rig.engine.set_unsettled(true);
    for block in 0..4 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    assert_eq!(blocks_cached(&rig), 0);
    // They land.
    rig.backend.fill(0xAB);
    rig.engine.set_unsettled(false);
    rig.settle();
    for _ in 0..2 {
        for block in 0..4 {
            rig.expect_bytes(block * 4096, 4096, 0xAB);
        }
    }
    assert_eq!(blocks_cached(&rig), 4);
}

#[test]
fn what_was_under_way_when_the_cache_was_dropped_is_not_kept() {
    let mut rig = Rig::new(tiers());
    for block in 0..8 {
        rig.read(block, block * 4096, 4096);
        while rig.drawn().iter().any(|io| io.starts_with('R')) {
            rig.complete(0, IoStatus::Ok);
        }
        rig.sent();
    }
    assert!(rig.drawn().iter().any(|io| io.starts_with('w')), "fills of flash are under way");
    // One has fetched its bytes and waits for more, one waits for its range.
    rig.read(100, 32768, 8192);
    rig.read(101, 32768, 4096);
    let fetch = rig.find("R 32768+8192");
    let io = rig.pending[fetch];
    rig.drop_cache();
    rig.backend.fill(0xAB);
    // The old bytes arrive after all.
    let IoOp::Read { memory } = io.op else { unreachable!("a read") };
    rig.pending.remove(fetch);
    rig.slice(memory).fill(8);
    rig.engine.complete(rig.now, io.id, IoStatus::Ok, &[], &mut rig.actions);
    rig.run_actions();
    rig.settle();
    assert_eq!(rig.replied(100).1, IoStatus::Ok);
    assert_eq!(blocks_cached(&rig), 0, "nothing of before came back");
    for block in 0..10 {
        rig.expect_bytes(block * 4096, 4096, 0xAB);
    }
}

#[test]
fn a_read_that_came_after_the_drop_is_not_given_what_was_fetched_before() {
    for ram_bytes in [tiers().ram_bytes, 0] {
        let mut rig = Rig::new(Config { ram_bytes, ..tiers() });
        rig.read(100, 32768, 8192);
        let fetch = rig.find("R 32768+8192");
        let io = rig.pending.remove(fetch);
        rig.drop_cache();
        rig.backend.fill(0xAB);
        rig.read(101, 32768, 4096);
        // The old bytes arrive after all.
        let IoOp::Read { memory } = io.op else { unreachable!("a read") };
        rig.slice(memory).fill(8);
        rig.engine.complete(rig.now, io.id, IoStatus::Ok, &[], &mut rig.actions);
        rig.run_actions();
        rig.settle();
        assert_eq!(rig.replied(100).1, IoStatus::Ok);
        assert!(rig.replied(101).2.iter().all(|&byte| byte == 0xAB));
        rig.expect_bytes(32768, 8192, 0xAB);
    }
}

#[test]
fn a_slot_that_a_reply_refers_to_outlives_the_drop_until_it_is_sent() {
    let mut rig = Rig::new(tiers());
    rig.expect_bytes(0, 4096, 0);
    rig.read(1, 0, 4096);
    rig.drop_cache();
    rig.write(2, 0, 4096, 0x77);
    rig.settle();
    assert_eq!(rig.replied(1).2, [0; 4096]);
    rig.expect_bytes(0, 4096, 0x77);
}

#[test]
fn dirty_bytes_are_not_dropped() {
    let mut rig = Rig::new(Config { ram_bytes: 64 * KIB, ..with_log() });
    rig.settle_log();
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.run_actions();
    rig.write(1, 0, 4096, 0x55);
    rig.settle_log();
    rig.drop_cache();
    assert_eq!(blocks_cached(&rig), 0);
    rig.expect_bytes(0, 4096, 0x55);
    assert_ne!(rig.backend[0], 0x55);
}

#[test]
fn while_the_cache_is_dropped_nothing_of_it_is_read_or_kept() {
    let mut rig = Rig::new(tiers());
    for block in 0..12 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    rig.engine.drop_cache(rig.now, &mut rig.actions);
    rig.run_actions();
    let cached = blocks_cached(&rig);
    assert!(cached >= 12, "it takes several ticks");
    rig.backend.fill(0xAB);
    for block in 0..16 {
        rig.expect_bytes(block * 4096, 4096, 0xAB);
        rig.write(100 + block, block * 4096, 4096, 0xCD);
        rig.settle();
        rig.expect_bytes(block * 4096, 4096, 0xCD);
    }
    assert!(rig.engine.dropped().is_none() && blocks_cached(&rig) <= cached);
    rig.sweep();
    assert_eq!(blocks_cached(&rig), 0);
    for block in 0..16 {
        rig.expect_bytes(block * 4096, 4096, 0xCD);
    }
}

#[test]
fn a_tick_drops_a_part_of_a_large_cache() {
    let mut rig = Rig::new(Config { ram_bytes: 0, flash_bytes: 1 << 20, ..tiers() });
    let block = |n: u64| n % 256 * 4096;
    for n in 0..256 {
        rig.expect_bytes(block(n), 4096, n as u8);
    }
    let all = blocks_cached(&rig);
    rig.engine.drop_cache(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.tick(0);
    let left = blocks_cached(&rig);
    assert!(left < all && left >= all / 2, "{left} of {all}");
    assert_eq!(rig.sweep(), all);
}
