//! RAM gets another size while the disk is at work.

use super::*;
use crate::policy::PolicyKind;

const BLOCK: u64 = 4 * KIB;

/// 16 blocks of RAM, with a place for 64.
fn with_room() -> Config {
    Config { ram_bytes: 16 * BLOCK, ram_room: 64 * BLOCK, ..config() }
}

impl Rig {
    fn resize(&mut self, blocks: u64) -> Result<Option<ByteRange>, ConfigError> {
        let missing = self.engine.resize_ram(self.now, blocks * BLOCK, &mut self.actions);
        self.run_actions();
        self.engine.check_invariants();
        missing
    }

    fn slots(&self) -> (u64, u64) {
        let ram = self.engine.statistics(self.now).ram;
        (ram.slots, ram.slots_ready)
    }

    /// What is beyond the end of the slots is gone.
    fn forget_spare(&mut self) {
        if let Some(spare) = self.engine.ram_spare() {
            self.memory[spare.start as usize..spare.end as usize].fill(0xEE);
        }
    }
}

#[test]
fn ram_has_no_more_than_its_room_and_no_tier_comes_or_goes() {
    let mut rig = Rig::new(with_room());
    let room = rig.engine.ram_room().unwrap();
    assert_eq!((room.start, room.len()), (config().buffer_bytes, 64 * BLOCK));
    assert_eq!(rig.engine.ram_spare().unwrap().start, room.start + 16 * BLOCK);
    assert_eq!(rig.engine.check_ram(64 * BLOCK), Ok(room));
    for (blocks, word) in [(65, "room"), (0, "restart")] {
        let error = rig.resize(blocks).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(rig.slots(), (16, 16));
    let mut without = Rig::new(Config { ram_bytes: 0, ..with_room() });
    assert_eq!(without.engine.ram_room(), None);
    assert!(without.resize(8).unwrap_err().to_string().contains("restarted"));
    assert_eq!(without.resize(0), Ok(None));
}

#[test]
fn metadata_keep_to_their_limit_when_ram_grows() {
    let limit = super::super::metadata_bytes(&Config { ram_bytes: 32 * BLOCK, ..with_room() });
    let mut rig = Rig::new(Config { metadata_bytes_max: limit, ..with_room() });
    assert!(rig.resize(64).unwrap_err().to_string().contains("metadata"));
    assert!(rig.resize(32).is_ok());
}

#[test]
fn the_same_size_again_does_nothing() {
    let mut rig = Rig::new(with_room());
    rig.engine.proceed(rig.now, &mut rig.actions);
    assert_eq!(rig.engine.resize_ram(rig.now, 16 * BLOCK, &mut rig.actions), Ok(None));
    assert!(!rig.engine.wants_to_proceed() && rig.actions.list.is_empty());
}

#[test]
fn reads_and_writes_go_on_while_ram_gets_larger_and_smaller() {
    for (policy, _) in PolicyKind::ALL {
        let mut rig = Rig::new(Config { policy, ..with_room() });
        let mut expected: Vec<u8> = (0..=255).collect();
        for (round, blocks) in [40, 8, 64, 1, 30, 20, 64, 63].into_iter().enumerate() {
            let missing = rig.resize(blocks).unwrap();
            if let Some(missing) = missing {
                assert_eq!(rig.slots().1, (missing.start - config().buffer_bytes) / BLOCK);
                rig.engine.have_memory(missing.end);
            }
            for n in 0..128u64 {
                let block = (n * 37 + round as u64) % 256;
                if n % 3 == 0 {
                    let byte = (round as u64 * 7 + n) as u8;
                    rig.write(10_000 + n, block * BLOCK, BLOCK, byte);
                    rig.settle();
                    expected[block as usize] = byte;
                } else {
                    rig.expect_bytes(block * BLOCK, BLOCK, expected[block as usize]);
                }
                if n % 2 == 0 {
                    rig.tick(1);
                    rig.forget_spare();
                }
            }
            assert_eq!(rig.slots(), (blocks, blocks));
            rig.replies.clear();
        }
        let shrunk = |event: &&Event| matches!(event, Event::RamShrunk { .. });
        assert_eq!(rig.events.iter().filter(shrunk).count(), 4);
        assert_eq!(rig.engine.next_deadline(), Nanos::NEVER);
    }
}
