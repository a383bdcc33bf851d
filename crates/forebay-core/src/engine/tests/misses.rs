//! Why reads miss.

use super::*;
use crate::config::FlashAdmission;
use crate::stats::MissStatistics;

const NONE: MissStatistics = MissStatistics {
    cold: 0,
    evicted: 0,
    bypassed: 0,
    not_admitted: 0,
    partial: 0,
    invalidated: 0,
};

impl Rig {
    /// Reads, and says why that missed.
    fn missed(&mut self, start: u64, len: u64) -> MissStatistics {
        let before = self.engine.statistics(self.now).misses;
        let tag = 2_000_000 + self.replies.len() as u64;
        self.read(tag, start, len);
        self.settle();
        self.engine.statistics(self.now).misses.since(&before)
    }
}

#[test]
fn a_block_that_comes_back_was_evicted_or_dropped_or_made_wrong() {
    let mut config = config();
    config.ram_bytes = 16 * KIB;
    let mut rig = Rig::new(config);
    assert_eq!(rig.missed(0, 8192), MissStatistics { cold: 2, ..NONE });
    assert_eq!(rig.missed(0, 8192), NONE);
    (2..20).for_each(|block| _ = rig.missed(block * 4096, 4096));
    assert_eq!(rig.missed(0, 4096), MissStatistics { evicted: 1, ..NONE });
    rig.engine.drop_cache(rig.now, &mut rig.actions);
    rig.run_actions();
    (0..10).for_each(|_| rig.tick(1000));
    assert_eq!(rig.missed(0, 4096), MissStatistics { invalidated: 1, ..NONE });
    rig.engine.set_mode(rig.now, Mode::WriteAround, &mut rig.actions).expect("possible");
    rig.write(1, 0, 4096, 7);
    rig.settle();
    assert_eq!(rig.missed(0, 4096), MissStatistics { invalidated: 1, ..NONE });
}

#[test]
fn a_request_that_needs_more_of_a_block_than_is_cached_is_partial() {
    let mut config = config();
    config.block_size = 64 * KIB;
    let mut rig = Rig::new(config);
    assert_eq!(rig.missed(0, 4096), MissStatistics { cold: 1, ..NONE });
    assert_eq!(rig.missed(0, 8192), MissStatistics { partial: 1, ..NONE });
}

#[test]
fn a_read_that_asks_not_to_be_cached_passes_by() {
    let mut rig = Rig::new(config());
    for _ in 0..2 {
        rig.submit(1, 0, 4096, Op::Read { no_admit: true });
        rig.settle();
    }
    let expect = MissStatistics { cold: 1, bypassed: 1, ..NONE };
    assert_eq!(rig.engine.statistics(rig.now).misses, expect);
}

#[test]
fn a_block_that_finds_no_memory_passes_by() {
    let mut rig = Rig::new(config());
    let memory = rig.engine.withhold_ram().unwrap();
    assert_eq!(rig.missed(0, 4096), MissStatistics { cold: 1, ..NONE });
    rig.write(1, 4096, 4096, 7);
    rig.settle();
    assert_eq!(rig.missed(0, 8192), MissStatistics { bypassed: 2, ..NONE });
    rig.engine.have_memory(memory.end);
    assert_eq!(rig.missed(0, 8192), MissStatistics { bypassed: 2, ..NONE });
    assert_eq!(rig.missed(0, 8192), NONE);
}

#[test]
fn a_block_that_a_write_left_out_of_the_cache_passes_by() {
    let around = Config { mode: Mode::WriteAround, ..config() };
    let stream = Config { sequential_bypass: SequentialBypass::Longer(0), ..config() };
    for config in [around, stream] {
        let mut rig = Rig::new(config);
        rig.write(1, 0, 4096, 7);
        rig.settle();
        assert_eq!(rig.missed(0, 4096), MissStatistics { bypassed: 1, ..NONE }, "{config:?}");
    }
}

#[test]
fn a_block_that_was_written_in_part_passes_by_unless_the_rest_is_fetched() {
    let mut rig = Rig::new(Config { ram_bytes: 16 * KIB, ..config() });
    for (block, fetched) in [(1, IoStatus::IoError), (2, IoStatus::Ok)] {
        rig.write(block, block * 4096, 512, 7);
        rig.complete(0, IoStatus::Ok);
        rig.complete(0, fetched);
    }
    assert_eq!(rig.missed(4096, 4096), MissStatistics { bypassed: 1, ..NONE });
    (10..30).for_each(|block| _ = rig.missed(block * 4096, 4096));
    assert_eq!(rig.missed(8192, 4096), MissStatistics { evicted: 1, ..NONE });
}

#[test]
fn a_block_that_flash_does_not_take_is_not_admitted() {
    let mut config = config();
    (config.ram_bytes, config.flash_bytes) = (0, 8 * KIB);
    config.flash_admission = FlashAdmission::History;
    let mut rig = Rig::new(config);
    (0..4).for_each(|block| _ = rig.missed(block * 4096, 4096));
    let missed = rig.missed(3 * 4096, 4096);
    assert_eq!(missed, MissStatistics { not_admitted: 1, ..NONE });
}
