//! The flash cache gets another size while the disk is at work.

use super::warm::with_ring;
use super::*;
use crate::policy::PolicyKind;

const BLOCK: u64 = 4 * KIB;

/// Flash for 16 blocks, with a place for 64 in the index.
fn with_room() -> Config {
    let Config { ring, .. } = with_ring(64);
    Config { flash_bytes: 16 * BLOCK, flash_room: 64 * BLOCK, ring, ..with_ring(16) }
}

impl Rig {
    fn resize_flash(&mut self, blocks: u64) -> Result<(), ConfigError> {
        let bytes = self.flash.len().max((blocks * BLOCK) as usize);
        self.flash.resize(bytes, 0);
        let done = self.engine.resize_flash(self.now, blocks * BLOCK, &mut self.actions);
        self.run_actions();
        self.engine.check_invariants();
        done
    }

    fn flash_slots(&self) -> (u64, u64) {
        let flash = self.engine.statistics(self.now).flash;
        (flash.slots, flash.slots_used)
    }

    /// A restart that still has all of the first size.
    fn restarted_with_all(&self) -> RestoredCache {
        let config = Config { flash_bytes: 16 * BLOCK, ..*self.engine.config() };
        self.restarted_as(config, &[]).expect("warm").1
    }

    fn has_shrunk(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::FlashShrunk { .. }))
    }
}

#[test]
fn flash_has_no_more_than_its_room_and_no_tier_comes_or_goes() {
    let mut rig = Rig::new(with_room());
    for (blocks, word) in [(65, "room"), (0, "restart")] {
        let error = rig.resize_flash(blocks).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(rig.flash_slots(), (16, 0));
    let mut without = Rig::new(config());
    assert!(without.resize_flash(8).unwrap_err().to_string().contains("restarted"));
}

#[test]
fn a_flash_cache_that_grew_keeps_what_it_had_and_a_restart_finds_all() {
    let mut rig = Rig::new(with_room());
    rig.fill(0..12);
    rig.resize_flash(40).unwrap();
    rig.fill(12..36);
    rig.settle_ring();
    assert_eq!(rig.flash_slots(), (40, 36));
    let (mut next, restored) = rig.restarted().expect("warm");
    assert_eq!((restored.found, restored.kept), (36, 36));
    for block in 0..36 {
        assert_eq!(next.source(block), "r", "block {block}");
        next.expect_bytes(block * BLOCK, BLOCK, block as u8);
    }
}

#[test]
fn flash_is_given_up_when_no_restart_finds_anything_there() {
    let mut rig = Rig::new(with_room());
    rig.fill(0..15);
    rig.settle_ring();
    rig.resize_flash(4).unwrap();
    assert!(rig.resize_flash(8).unwrap_err().to_string().contains("smaller"));
    // All blocks have left, and nothing of that is written.
    for _ in 0..10 {
        rig.tick(1);
    }
    assert!(!rig.has_shrunk() && rig.flash_slots().0 == 16);
    let before = rig.restarted_with_all();
    assert!(before.found > 4, "{before:?}");
    rig.settle_ring();
    assert!(rig.has_shrunk() && !rig.engine.is_flash_shrinking());
    assert_eq!(rig.flash_slots().0, 4);
    let after = rig.restarted_with_all();
    assert!(after.found <= 4, "{after:?}");
}

#[test]
fn a_read_under_way_keeps_the_end_of_flash_until_it_has_ended() {
    let mut rig = Rig::new(with_room());
    rig.fill(0..16);
    rig.settle_ring();
    let slots: Vec<u64> = (0..16).filter(|&block| rig.source(block) == "r").collect();
    let last = *slots.last().expect("something is cached");
    rig.read(77, last * BLOCK, BLOCK);
    rig.resize_flash(1).unwrap();
    for _ in 0..20 {
        rig.tick(1);
        while let Some(at) = rig.drawn().iter().position(|io| !io.starts_with('r')) {
            rig.complete(at, IoStatus::Ok);
        }
    }
    assert!(!rig.has_shrunk());
    rig.settle_ring();
    assert!(rig.has_shrunk());
    rig.expect_bytes(last * BLOCK, BLOCK, last as u8);
}

#[test]
fn an_index_that_is_written_no_more_keeps_the_end_of_flash() {
    let mut rig = Rig::new(with_room());
    rig.fill(0..15);
    rig.settle_ring();
    rig.resize_flash(4).unwrap();
    rig.engine.close_ring(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_ring();
    assert!(!rig.has_shrunk() && rig.engine.is_flash_shrinking());
    let said = rig.resize_flash(8).unwrap_err().to_string();
    assert!(said.contains("not written any more"), "it never becomes smaller: {said}");
    let mut closed = Rig::new(with_room());
    closed.engine.close_ring(closed.now, false, &mut closed.actions);
    closed.run_actions();
    closed.settle_ring();
    assert!(closed.resize_flash(8).unwrap_err().to_string().contains("not written any more"));
}

#[test]
fn reads_and_writes_go_on_while_flash_gets_larger_and_smaller() {
    for (policy, _) in PolicyKind::ALL {
        for ring in [with_room().ring, None] {
            let mut rig = Rig::new(Config { policy, ring, ..with_room() });
            let mut expected: Vec<u8> = (0..=255).collect();
            for (round, blocks) in [40, 8, 64, 1, 30, 20, 64, 63].into_iter().enumerate() {
                rig.resize_flash(blocks).unwrap();
                for n in 0..128u64 {
                    let block = (n * 37 + round as u64) % 256;
                    if n % 3 == 0 {
                        let byte = (round as u64 * 7 + n) as u8;
                        rig.write(10_000 + n, block * BLOCK, BLOCK, byte);
                        rig.settle_ring();
                        expected[block as usize] = byte;
                    } else {
                        rig.expect_bytes(block * BLOCK, BLOCK, expected[block as usize]);
                    }
                }
                rig.settle_ring();
                assert_eq!(rig.flash_slots().0, blocks, "{policy:?}");
                rig.replies.clear();
            }
            let shrunk = |event: &&Event| matches!(event, Event::FlashShrunk { .. });
            assert_eq!(rig.events.iter().filter(shrunk).count(), 4);
        }
    }
}
