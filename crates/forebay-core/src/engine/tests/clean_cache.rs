//! What is destaged becomes clean cache.

use super::*;
use crate::config::FlashAdmission;

/// Flash of 16 blocks without RAM, under a log.
fn with_log_and_flash() -> Config {
    // What is written once pushes nothing out.
    let flash_admission = FlashAdmission::History;
    Config { flash_bytes: 64 * KIB, flash_admission, ..with_log() }
}

impl Rig {
    /// Writes blocks that nobody asks for again, until the log has nothing of before.
    fn free_segments(&mut self) {
        for n in 0..48 {
            self.write_with(1000 + n, (64 + n) * 4096, 4096, 0xFF, true);
            self.settle_log();
        }
    }

    fn expect_from_flash(&mut self, start: u64, byte: u8) {
        self.read(2000, start, 4096);
        assert!(self.drawn()[0].starts_with("r "), "{:?}", self.drawn());
        self.settle();
        self.expect_bytes(start, 4096, byte);
    }
}

#[test]
fn what_was_destaged_twice_becomes_clean_cache() {
    let mut rig = write_back(with_log_and_flash());
    for round in 1..=2 {
        rig.write_with(round, 8192, 4096, round as u8, true);
        rig.settle_log();
        assert_eq!(rig.counters().flash_admitted, round - 1);
    }
    rig.free_segments();
    rig.expect_from_flash(8192, 2);
}

#[test]
fn a_write_cancels_destaged_bytes_on_their_way_to_flash() {
    let mut rig = write_back(with_log_and_flash());
    // It has a history.
    rig.write_with(9, 8192, 4096, 9, true);
    rig.settle_log();
    rig.write_with(1, 8192, 4096, 1, true);
    rig.log();
    rig.write_with(2, 8192, 4096, 2, true);
    rig.log();
    // The first one arrives on primary storage when the second one is in the log.
    let at = rig.find("W 8192+4096");
    rig.complete(at, IoStatus::Ok);
    assert!(!rig.drawn().iter().any(|io| io.starts_with('w')), "old bytes: {:?}", rig.drawn());
    rig.log();
    let at = rig.find("W 8192+4096");
    rig.complete(at, IoStatus::Ok);
    let fill = rig.find("w 0+4096");
    rig.write_with(3, 8192, 4096, 3, true);
    rig.log();
    rig.complete(fill, IoStatus::Ok);
    assert_eq!(rig.engine.statistics(rig.now).vfrc.num_blocks_currently_cached, 0);
    rig.settle_log();
    rig.expect_bytes(8192, 4096, 3);
}

#[test]
fn what_ram_gave_up_before_it_was_destaged_comes_to_flash_with_its_history() {
    let mut rig = write_back(Config { ram_bytes: 8 * KIB, ..with_log_and_flash() });
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.read(9, 0, 4096);
    rig.sent();
    for tag in 2..6 {
        rig.write_with(tag, tag * 4096, 4096, tag as u8, true);
        rig.log();
    }
    assert_eq!(rig.counters().flash_admitted, 0);
    rig.settle_log();
    rig.free_segments();
    rig.expect_from_flash(0, 1);
}
