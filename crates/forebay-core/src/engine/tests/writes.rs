//! Writes, zeroes, discards, flushes: what reaches primary storage, and what the cache holds then.

use super::*;
use crate::config::{FlashAdmission, Mode};

#[test]
fn a_write_is_acknowledged_after_primary_storage_has_it_and_then_hits() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    assert!(!rig.has_reply(1));
    rig.settle();
    assert!(rig.has_reply(1));
    assert_eq!(rig.backend[..4096], [77; 4096]);
    rig.read(2, 0, 4096);
    assert_eq!(rig.replied(2).2, [77; 4096]);
    rig.sent();
}

#[test]
fn a_write_smaller_than_a_granule_updates_what_is_in_ram() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.settle();
    rig.write(2, 512, 512, 77);
    rig.settle();
    rig.read(3, 0, 4096);
    let (_, _, bytes) = rig.replied(3);
    assert_eq!((bytes[511], bytes[512], bytes[1023], bytes[1024]), (0, 77, 77, 0));
    rig.sent();
}

#[test]
fn a_write_smaller_than_a_granule_drops_it_from_flash() {
    let config = Config {
        ram_bytes: 0,
        flash_bytes: 64 * KIB,
        flash_admission: FlashAdmission::Always,
        ..config()
    };
    let mut rig = Rig::new(config);
    rig.read(1, 0, 4096);
    rig.settle();
    rig.write(2, 512, 512, 77);
    rig.settle();
    rig.read(3, 0, 1024);
    assert_eq!(rig.drawn(), ["R 0+4096"], "flash must not serve the old bytes");
    rig.settle();
    assert_eq!(rig.replied(3).2[512..], [77; 512]);
}

#[test]
fn a_whole_block_write_replaces_it_on_flash() {
    let config = Config {
        ram_bytes: 0,
        flash_bytes: 64 * KIB,
        flash_admission: FlashAdmission::Always,
        ..config()
    };
    let mut rig = Rig::new(config);
    for (tag, byte) in [(1, 70), (2, 71)] {
        rig.write(tag, 0, 4096, byte);
        rig.settle();
    }
    rig.expect_bytes(0, 4096, 71);
    assert_eq!(rig.counters().read_hits_flash, 1);
}

#[test]
fn a_write_cancels_the_old_bytes_on_their_way_to_flash() {
    let config = Config {
        ram_bytes: 0,
        flash_bytes: 64 * KIB,
        flash_admission: FlashAdmission::Always,
        ..config()
    };
    let mut rig = Rig::new(config);
    rig.read(1, 0, 4096);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["w 0+4096"], "the fill is under way");
    rig.write(2, 0, 512, 77);
    rig.complete(1, IoStatus::Ok);
    assert!(rig.has_reply(2));
    rig.complete(0, IoStatus::Ok);
    rig.expect_bytes(0, 512, 77);
}

#[test]
fn a_slot_that_a_reply_refers_to_does_not_change() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.settle();
    let request = Request {
        tag: RequestTag(2),
        range: ByteRange::at(0, 4096),
        op: Op::Read { no_admit: false },
    };
    rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
    let slice = rig.actions.slices[0];
    rig.actions.clear();
    rig.write(3, 0, 512, 77);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.slice(slice), [0; 4096], "the reply is not sent yet");
    rig.sent();
    rig.expect_bytes(0, 512, 77);
    rig.expect_bytes(512, 3584, 0);
}

#[test]
fn when_every_slot_is_pinned_a_write_drops_the_block_instead_of_changing_it() {
    let mut rig = Rig::new(Config { ram_bytes: 4 * KIB, ..config() });
    rig.read(1, 0, 4096);
    rig.settle();
    rig.read(2, 0, 4096);
    rig.write(3, 0, 512, 77);
    rig.complete(0, IoStatus::Ok);
    rig.sent();
    rig.expect_bytes(0, 512, 77);
}

#[test]
fn write_around_drops_what_it_overlaps_and_keeps_nothing() {
    let mut rig = Rig::new(Config { mode: Mode::WriteAround, ..config() });
    rig.read(1, 0, 8192);
    rig.settle();
    rig.write(2, 4096, 512, 77);
    rig.write(3, 16384, 4096, 78);
    rig.settle();
    assert_eq!(rig.engine.statistics(rig.now).ram.slots_used, 1);
    rig.expect_bytes(4096, 512, 77);
    rig.expect_bytes(16384, 4096, 78);
}

#[test]
fn a_write_smaller_than_a_logical_block_keeps_its_neighbours() {
    let mut config = config();
    config.backend.logical_block = 4096;
    for mode in [Mode::WriteThrough, Mode::PassThrough] {
        let mut rig = Rig::new(Config { mode, ..config });
        rig.write(1, 4096 + 512, 512, 77);
        assert_eq!(rig.drawn(), ["R 4096+4096"]);
        rig.settle();
        rig.write(2, 3 * 4096 - 512, 2 * 4096, 78);
        assert_eq!(rig.drawn(), ["R 8192+4096", "R 16384+4096"]);
        rig.settle();
        let expect = |at: usize| match at {
            4608..5120 => 77,
            11776..19968 => 78,
            _ => (at / 4096) as u8,
        };
        assert!((0..1 << 20).all(|at| rig.backend[at] == expect(at)));
    }
}

#[test]
fn reads_of_primary_storage_for_parts_of_logical_blocks_are_counted() {
    for mode in [Mode::PassThrough, Mode::WriteBack] {
        let mut config = Config { mode, ..with_log() };
        config.backend.logical_block = 4096;
        let mut rig = Rig::new(config);
        rig.settle_log();
        rig.write(1, 4608, 512, 77);
        rig.settle_log();
        assert_eq!(rig.backend[4608], 77, "{mode:?}");
        let counters = rig.counters();
        assert_eq!((counters.backend_reads, counters.backend_read_bytes), (1, 4096), "{mode:?}");
        let op = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false };
        rig.submit(2, 8704, 4096, op);
        rig.settle_log();
        assert_eq!(rig.backend[12_799], 0, "{mode:?}");
        let counters = rig.counters();
        assert_eq!((counters.backend_reads, counters.backend_read_bytes), (3, 12_288), "{mode:?}");
    }
}

#[test]
fn zeroes_read_as_zeroes_however_they_are_made() {
    for (logical_block, write_zeroes) in [(512, true), (512, false), (4096, true), (4096, false)] {
        let mut config = config();
        config.backend.logical_block = logical_block;
        config.backend.write_zeroes = write_zeroes;
        let mut rig = Rig::new(config);
        rig.read(1, 0, 256 * KIB);
        rig.settle();
        let op = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false };
        rig.submit(2, 4608, 100 * KIB, op);
        rig.settle();
        assert_eq!(rig.replied(2).1, IoStatus::Ok);
        rig.expect_bytes(4608, 100 * KIB, 0);
        rig.expect_bytes(4096, 512, 1);
        let end = 4608 + 100 * KIB;
        rig.expect_bytes(end, 512, (end / 4096) as u8);
    }
}

#[test]
fn zeroes_that_must_be_fast_are_refused_where_they_would_be_written() {
    let mut config = config();
    config.backend.write_zeroes = false;
    let mut rig = Rig::new(config);
    let op = Op::WriteZeroes { may_unmap: true, fast_only: true, fua: false };
    rig.submit(1, 0, 4096, op);
    assert_eq!(rig.replied(1).1, IoStatus::Unsupported);
    assert_eq!(rig.counters().requests_failed, 0, "it is an answer, and no error");
}

#[test]
fn zeroes_that_the_backend_turns_out_not_to_support_are_written() {
    let mut rig = Rig::new(config());
    let op = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false };
    rig.submit(1, 4096, 4096, op);
    rig.complete(0, IoStatus::Unsupported);
    assert_eq!(rig.drawn(), ["W 4096+4096"]);
    rig.settle();
    rig.expect_bytes(4096, 4096, 0);
}

#[test]
fn zeroes_that_must_be_fast_are_refused_before_any_of_them_is_there_or_not_at_all() {
    const PIECE: u64 = 64 << 20;
    for refused in 0..2 {
        let mut config = config();
        config.backend.size = 2 * PIECE;
        config.backend.write_zeroes = true;
        let mut rig = Rig::new(config);
        let op = Op::WriteZeroes { may_unmap: false, fast_only: true, fua: false };
        rig.submit(1, 0, PIECE + 4096, op);
        for piece in 0..=refused {
            let status = if piece == refused { IoStatus::Unsupported } else { IoStatus::Ok };
            rig.complete(0, status);
        }
        rig.settle();
        let expect = [IoStatus::Unsupported, IoStatus::Ok][refused];
        assert_eq!(rig.replied(1).1, expect);
        assert_eq!(rig.counters().requests_failed, 0);
        let is_zeroed = rig.backend[..PIECE as usize + 4096].iter().all(|byte| *byte == 0);
        assert_eq!(is_zeroed, refused == 1);
    }
}

#[test]
fn a_discard_drops_whole_logical_blocks_from_the_cache() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 8192);
    rig.settle();
    rig.submit(2, 0, 4096, Op::Discard { fua: false });
    rig.settle();
    rig.expect_bytes(0, 4096, 0);
    assert_eq!(rig.counters().read_hits_ram, 0);
}

#[test]
fn fua_is_acknowledged_after_a_flush_that_started_after_the_write() {
    let mut rig = Rig::new(config());
    rig.write_with(1, 0, 4096, 77, true);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    assert!(!rig.has_reply(1));
    rig.settle();
    assert!(rig.has_reply(1));
}

#[test]
fn a_discard_with_fua_is_acknowledged_after_a_flush_even_where_nobody_can_follow_it() {
    for (discard, range, asked) in
        [(true, (0, 4096), true), (false, (0, 4096), false), (true, (512, 512), false)]
    {
        let mut config = config();
        config.backend.discard = discard;
        config.backend.logical_block = 4096;
        let mut rig = Rig::new(config);
        rig.submit(1, range.0, range.1, Op::Discard { fua: true });
        if asked {
            assert_eq!(rig.drawn(), ["D 0+4096"]);
            rig.complete(0, IoStatus::Ok);
        }
        assert_eq!(rig.drawn(), ["F 0+0"]);
        assert!(!rig.has_reply(1));
        rig.settle();
        assert_eq!(rig.replied(1).1, IoStatus::Ok);
        rig.submit(2, range.0, range.1, Op::Discard { fua: false });
        rig.settle();
        assert_eq!(rig.counters().discards, 2);
        assert_eq!(rig.counters().backend_flushes, 1);
    }
}

#[test]
fn flushes_share_the_next_flush_but_not_the_one_in_flight() {
    let mut rig = Rig::new(config());
    rig.submit(1, 0, 0, Op::Flush);
    rig.submit(2, 0, 0, Op::Flush);
    rig.submit(3, 0, 0, Op::Flush);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(1) && !rig.has_reply(2) && !rig.has_reply(3));
    assert_eq!(rig.drawn(), ["F 0+0"]);
    rig.settle();
    assert!(rig.has_reply(2) && rig.has_reply(3));
    assert_eq!(rig.counters().backend_flushes, 2);
}

#[test]
fn a_pinned_block_that_loses_granules_gives_its_slot_back() {
    let mut rig = Rig::new(Config { mode: Mode::WriteAround, ram_bytes: 8 * KIB, ..config() });
    for round in 0..10 {
        rig.read(round * 10, 0, 4096);
        rig.settle();
        // A hit, pinned until it is sent, and a write under it.
        rig.read(round * 10 + 1, 0, 512);
        rig.write(round * 10 + 2, 0, 512, 77);
        rig.complete(0, IoStatus::Ok);
        rig.sent();
    }
    rig.engine.check_invariants();
    assert_eq!(rig.counters().ram_fills_skipped, 0);
}
