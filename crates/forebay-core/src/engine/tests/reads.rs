//! Hit, partial hit, miss, bypass, prefetch: what is fetched and from where.

use super::*;
use crate::config::{FlashAdmission, Mode, SequentialBypass};

#[test]
fn a_miss_fetches_whole_granules_once_and_then_hits() {
    let mut rig = Rig::new(config());
    rig.read(1, 4608, 512);
    assert_eq!(rig.drawn(), ["R 4096+4096"]);
    rig.settle();
    assert_eq!(rig.replied(1).2, [1; 512]);
    rig.read(2, 4096, 4096);
    assert_eq!(rig.drawn(), [] as [&str; 0]);
    assert_eq!(rig.replied(2).2, [1; 4096]);
    rig.sent();
    assert_eq!((rig.counters().read_hits_ram, rig.counters().read_misses), (1, 1));
}

#[test]
fn a_partial_hit_fetches_only_what_is_missing() {
    let mut rig = Rig::new(Config { block_size: 64 * KIB, ..config() });
    rig.read(1, 8192, 4096);
    rig.read(2, 20480, 4096);
    rig.settle();
    rig.read(3, 0, 32768);
    assert_eq!(rig.drawn(), ["R 0+8192", "R 12288+8192", "R 24576+8192"]);
    rig.settle();
    let expect: Vec<u8> = (0..32768u32).map(|i| (i / 4096) as u8).collect();
    assert_eq!(rig.replied(3).2, expect);
    assert_eq!(rig.counters().read_hits_partial, 1);
}

#[test]
fn neighbouring_missing_blocks_are_one_io() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 64 * KIB);
    assert_eq!(rig.drawn(), ["R 0+65536"]);
    rig.settle();
}

#[test]
fn a_second_miss_on_the_same_bytes_finds_what_the_first_fetched() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.read(2, 0, 512);
    assert_eq!(rig.drawn(), ["R 0+4096"]);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.pending.is_empty());
    assert!(rig.has_reply(1) && rig.has_reply(2));
    rig.settle();
}

#[test]
fn neighbours_that_share_a_granule_are_fetched_at_once_and_both_kept() {
    for first in [0, 1] {
        let mut rig = Rig::new(config());
        rig.read(1, 512, 8192);
        rig.read(2, 8704, 8192);
        assert_eq!(rig.drawn(), ["R 0+12288", "R 8192+12288"]);
        rig.complete(first, IoStatus::Ok);
        rig.complete(0, IoStatus::Ok);
        let expect: Vec<u8> = (512..16896u32).map(|i| (i / 4096) as u8).collect();
        assert_eq!([rig.replied(1).2.clone(), rig.replied(2).2.clone()].concat(), expect);
        rig.read(3, 512, 16384);
        assert_eq!(rig.replied(3).2, expect, "from RAM");
        rig.settle();
    }
}

#[test]
fn pass_through_reads_what_was_asked_for_and_keeps_nothing() {
    for mode in [Mode::PassThrough, Mode::Monitor] {
        let mut rig = Rig::new(Config { mode, ..config() });
        for tag in 0..2 {
            rig.read(tag, 512, 1024);
            assert_eq!(rig.drawn(), ["R 512+1024"]);
            rig.settle();
        }
        assert_eq!(rig.engine.statistics(rig.now).ram.slots_used, 0);
    }
}

#[test]
fn a_long_sequential_stream_is_not_admitted() {
    let mut rig =
        Rig::new(Config { sequential_bypass: SequentialBypass::Longer(16 * KIB), ..config() });
    for i in 0..16 {
        rig.read(i, i * 4096, 4096);
        rig.settle();
    }
    assert_eq!(rig.engine.statistics(rig.now).ram.slots_used, 4);
    assert_eq!(rig.counters().reads_bypassed, 12);
}

#[test]
fn a_mode_that_keeps_no_reads_passes_none_of_them_by() {
    let mut rig = Rig::new(Config { mode: Mode::WriteOnly, ram_bytes: 256 * KIB, ..with_log() });
    rig.tick(0);
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteOnly);
    rig.read(1, 0, 4096);
    rig.submit(2, 8192, 4096, Op::Prefetch);
    rig.settle();
    assert_eq!(rig.counters().reads_bypassed, 0, "they are no stream");
    rig.submit(3, 16384, 4096, Op::Read { no_admit: true });
    rig.settle();
    assert_eq!(rig.counters().reads_bypassed, 1, "it asked for that");
}

#[test]
fn a_prefetch_fills_the_cache_and_returns_nothing() {
    let mut rig = Rig::new(config());
    rig.submit(1, 0, 16 * KIB, Op::Prefetch);
    rig.settle();
    assert!(rig.replied(1).2.is_empty());
    rig.read(2, 4096, 8192);
    assert!(rig.has_reply(2));
    rig.sent();
}

#[test]
fn what_ram_evicts_and_was_used_goes_to_flash_and_is_served_from_there() {
    let flash_admission = FlashAdmission::History;
    let config = Config { ram_bytes: 8 * KIB, flash_bytes: 8 * KIB, flash_admission, ..config() };
    let mut rig = Rig::new(config);
    for block in 10..14 {
        rig.read(30 + block, block * 4096, 4096);
        rig.settle();
    }
    assert_eq!(rig.counters().flash_admitted, 2, "there were two free slots");
    rig.read(1, 0, 4096);
    rig.settle();
    rig.read(2, 0, 4096);
    rig.settle();
    for block in 1..4 {
        rig.read(10 + block, block * 4096, 4096);
        rig.settle();
    }
    assert_eq!(rig.counters().flash_admitted, 3, "blocks that were read once push nothing out");
    rig.backend[..4096].fill(99);
    rig.read(20, 0, 4096);
    assert_eq!(rig.drawn(), ["r 0+4096"]);
    rig.settle();
    assert_eq!(rig.replied(20).2, [0; 4096]);
    assert_eq!(rig.counters().read_hits_flash, 1);
}

#[test]
fn by_history_a_block_that_comes_back_pushes_another_one_out_of_flash() {
    let flash_admission = FlashAdmission::History;
    let config = Config { ram_bytes: 0, flash_bytes: 8 * KIB, flash_admission, ..config() };
    let mut rig = Rig::new(config);
    for (tag, block) in [(10, 10), (11, 11), (0, 0), (1, 0)] {
        rig.read(tag, block * 4096, 4096);
        rig.settle();
    }
    assert_eq!((rig.counters().flash_refused, rig.counters().flash_admitted), (1, 3));
    rig.read(3, 0, 4096);
    assert_eq!(rig.drawn(), ["r 0+4096"]);
    rig.settle();
    assert_eq!(rig.replied(3).2, [0; 4096]);
}

#[test]
fn cache_state_tells_cached_from_uncached_bytes() {
    let mut rig = Rig::new(Config { block_size: 16 * KIB, ..config() });
    rig.read(1, 4096, 8192);
    rig.settle();
    let range = ByteRange::at(512, 64 * KIB);
    let request = Request { tag: RequestTag(2), range, op: Op::CacheState };
    rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
    use crate::action::ExtentState::{Clean, Uncached};
    let extents: Vec<_> = rig.actions.extents.iter().map(|e| (e.len, e.state)).collect();
    assert_eq!(extents, [(3584, Uncached), (8192, Clean), (64 * KIB + 512 - 12288, Uncached)]);
}

#[test]
fn cache_state_is_told_of_so_many_blocks_as_take_little_time() {
    let of_all = |rig: &mut Rig| {
        let range = ByteRange::at(0, 16 << 20);
        let request = Request { tag: RequestTag(9), range, op: Op::CacheState };
        rig.actions.extents.clear();
        rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
        rig.actions.extents.iter().map(|extent| extent.len).sum::<u64>()
    };
    let mut config = Config { block_size: 16 * KIB, ..with_log() };
    config.backend.size = 16 << 20;
    let mut rig = write_back(config);
    assert_eq!(of_all(&mut rig), 512 * 16 * KIB, "blocks");
    rig.write(1, 0, 4096, 7);
    assert_eq!(of_all(&mut rig), 1024 * 4096, "granules that were looked up in the log");
}

#[test]
fn a_disk_without_a_log_changes_its_mode_with_reads_under_way_and_without() {
    let mut rig = Rig::new(config());
    rig.expect_bytes(0, 4096, 0);
    let set = |rig: &mut Rig, mode| {
        rig.engine.set_mode(rig.now, mode, &mut rig.actions).expect("possible");
        rig.run_actions();
        assert_eq!(rig.engine.mode(), mode, "nothing is waited for");
        assert_eq!(rig.events.last(), Some(&Event::ModeChanged { mode }));
    };
    rig.read(1, 8192, 4096);
    set(&mut rig, Mode::PassThrough);
    rig.backend.fill(0xAB);
    rig.complete(0, IoStatus::Ok);
    // It is swept bit by bit.
    (0..20).for_each(|_| rig.tick(100));
    // Nothing of before is believed any more.
    set(&mut rig, Mode::WriteThrough);
    rig.expect_bytes(0, 4096, 0xAB);
    rig.expect_bytes(8192, 4096, 0xAB);
    let hits = rig.counters().read_hits_ram;
    rig.expect_bytes(8192, 4096, 0xAB);
    assert!(rig.counters().read_hits_ram > hits, "it caches");
}

#[test]
fn looking_ahead_changes_nothing_whatever_position_a_client_names() {
    for (grid_offset, write_log) in [(0, None), (3584, None), (0, with_log().write_log)] {
        let grid_offset = GridOffset::Fixed(grid_offset);
        let mut rig = Rig::new(Config { grid_offset, write_log, ..config() });
        rig.read(1, 4096, 4096);
        rig.settle();
        rig.sent();
        let before = format!("{:?}", rig.counters());
        let size = rig.engine.config().backend.size;
        rig.engine.look_ahead([0, 4096, size - 1, size, u64::MAX].into_iter());
        assert_eq!(format!("{:?}", rig.counters()), before);
        assert_eq!(rig.drawn(), [] as [&str; 0]);
    }
}
