//! Reads of bytes that an earlier read in flight fetches.

use super::*;
use crate::config::Mode;

/// Every kind of cache, and none but a buffer.
fn configurations() -> [Config; 4] {
    let (ram_bytes, flash_bytes) = (0, 256 * KIB);
    [
        config(),
        Config { ram_bytes, flash_bytes, ..config() },
        Config { flash_bytes, ..config() },
        Config { mode: Mode::PassThrough, ram_bytes, ..config() },
    ]
}

#[test]
fn a_read_takes_the_bytes_of_one_in_flight_whatever_the_cache() {
    for config in configurations() {
        for no_admit in [false, true] {
            let mut rig = Rig::new(config);
            rig.submit(1, 8192, 8192, Op::Read { no_admit });
            rig.submit(2, 12288, 4096, Op::Read { no_admit });
            rig.submit(3, 8192, 8192, Op::Read { no_admit });
            assert_eq!(rig.drawn(), ["R 8192+8192"], "{config:?}");
            rig.complete(0, IoStatus::Ok);
            assert_eq!(rig.replied(2).2, [3; 4096]);
            assert_eq!(rig.replied(3).2, rig.replied(1).2);
            assert!(!rig.drawn().iter().any(|io| io.starts_with('R')), "{:?}", rig.drawn());
            rig.settle();
            let joined = if config.mode == Mode::PassThrough { 0 } else { 2 };
            assert_eq!(rig.counters().read_hits_joined, joined);
            assert_eq!((rig.counters().reads, rig.counters().backend_reads), (3, 1));
            assert!(rig.engine.is_idle());
        }
    }
}

#[test]
fn a_read_behind_a_write_is_not_given_the_bytes_of_before() {
    for config in configurations() {
        let mut rig = Rig::new(config);
        rig.read(1, 0, 4096);
        rig.write(2, 0, 512, 77);
        rig.read(3, 0, 4096);
        rig.settle();
        assert_eq!(rig.replied(1).2, [0; 4096]);
        assert_eq!((rig.replied(3).2[0], rig.replied(3).2[512]), (77, 0), "{config:?}");
    }
}

#[test]
fn a_read_that_wants_a_sector_more_asks_for_itself() {
    for config in configurations() {
        let mut rig = Rig::new(config);
        rig.read(1, 0, 4096);
        rig.read(2, 0, 4608);
        assert_eq!(rig.drawn().iter().filter(|io| io.starts_with('R')).count(), 2);
        rig.settle();
        assert_eq!((rig.replied(2).2[0], rig.replied(2).2[4096]), (0, 1));
    }
}

#[test]
fn a_read_that_waits_for_one_that_fails_asks_for_itself() {
    for config in configurations() {
        let mut rig = Rig::new(config);
        rig.read(1, 0, 4096);
        rig.read(2, 0, 4096);
        rig.complete(0, IoStatus::IoError);
        assert_eq!(rig.replied(1).1, IoStatus::IoError);
        assert_eq!(rig.drawn(), ["R 0+4096"]);
        rig.settle();
        assert_eq!(rig.replied(2).2, [0; 4096]);
    }
}

#[test]
fn a_read_after_a_loss_of_unflushed_writes_is_not_given_what_was_there_before() {
    for config in configurations() {
        let mut rig = Rig::new(config);
        rig.write(1, 0, 4096, 77);
        rig.settle();
        rig.engine.drop_cache(rig.now, &mut rig.actions);
        rig.settle();
        rig.read(2, 0, 4096);
        assert_eq!(rig.drawn(), ["R 0+4096"]);
        rig.engine.on_session_lost(rig.now, &mut rig.actions);
        rig.read(3, 0, 4096);
        rig.complete(0, IoStatus::Ok);
        assert_eq!(rig.replied(2).2, [77; 4096]);
        rig.settle();
        assert_eq!(rig.replied(3).1, IoStatus::Ok);
        assert_eq!(rig.counters().backend_reads, 2, "{config:?}: it asked primary storage itself");
    }
}

#[test]
fn a_read_that_waits_for_one_that_hangs_has_all_of_its_time() {
    for config in configurations() {
        let mut rig = Rig::new(config);
        rig.read(1, 0, 4096);
        rig.tick(20_000);
        rig.read(2, 0, 4096);
        rig.tick(10_000);
        assert_eq!(rig.replied(1).1, IoStatus::TimedOut);
        assert_eq!(rig.drawn(), ["R 0+4096", "R 0+4096"], "the first gave its range up");
        rig.complete(1, IoStatus::Ok);
        assert_eq!(rig.replied(2).2, [0; 4096]);
        rig.settle();
        assert!(rig.engine.is_idle());
    }
}

#[test]
fn the_latency_of_a_read_that_joins_counts_for_the_source_of_the_earlier_one() {
    let (ram_bytes, flash_bytes) = (0, 256 * KIB);
    let mut rig = Rig::new(Config { ram_bytes, flash_bytes, ..config() });
    let counts = |rig: &Rig| {
        let latency = rig.engine.statistics(rig.now).latency;
        [latency.read_ram.count, latency.read_flash.count, latency.read_backend.count]
    };
    for tag in [1, 2, 3] {
        rig.read(tag, 8192, 4096);
    }
    rig.settle();
    assert_eq!((counts(&rig), rig.counters().read_hits_joined), ([0, 0, 3], 2));
    for tag in [4, 5, 6] {
        rig.read(tag, 8192, 4096);
    }
    rig.settle();
    // One that joins a read of flash is one of flash: no read counts for two sources.
    assert_eq!((counts(&rig), rig.counters().read_hits_joined), ([0, 3, 3], 2));
    assert_eq!(rig.counters().read_hits_flash, 3);
    // The log is on flash, too.
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.commit();
    for tag in [2, 3] {
        rig.read(tag, 0, 4096);
    }
    rig.settle();
    assert_eq!((counts(&rig), rig.counters().read_hits_joined), ([0, 2, 0], 0));
}
