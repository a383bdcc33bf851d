//! Granules that a write covers in part.

use super::*;
use crate::config::Mode;

fn tiers() -> [Config; 2] {
    [config(), Config { ram_bytes: 0, flash_bytes: 256 * KIB, ..config() }]
}

/// A granule that is not in the sample.
const EDGE: u64 = 4096;

#[test]
fn the_edges_of_a_write_are_read_without_primary_storage() {
    for config in tiers() {
        let mut rig = Rig::new(config);
        rig.write(1, EDGE + 512, 4096, 77);
        rig.settle();
        assert_eq!(rig.counters().edges_fetched, 2, "its head and its tail");
        rig.read(2, EDGE, 8192);
        assert!(!rig.drawn().iter().any(|io| io.starts_with('R')), "{:?}", rig.drawn());
        rig.settle();
        let bytes = &rig.replied(2).2;
        assert_eq!((bytes[511], bytes[512], bytes[4607], bytes[4608]), (1, 77, 77, 2));
        assert!(rig.engine.is_idle());
    }
}

#[test]
fn a_write_does_not_wait_for_the_fetch_of_an_edge_and_makes_it_void() {
    for config in tiers() {
        let mut rig = Rig::new(config);
        rig.write(1, EDGE, 512, 77);
        rig.complete(0, IoStatus::Ok);
        assert!(rig.has_reply(1));
        assert_eq!(rig.drawn(), ["R 4096+4096"], "the edge");
        // The next write is sent at once.
        rig.write(2, EDGE + 512, 512, 88);
        assert_eq!(rig.drawn(), ["R 4096+4096", "W 4608+512"]);
        // The edge arrives as it was before, and must not be kept.
        rig.complete(0, IoStatus::Ok);
        rig.complete(0, IoStatus::Ok);
        assert!(rig.has_reply(2));
        rig.settle();
        rig.expect_bytes(EDGE, 512, 77);
        rig.expect_bytes(EDGE + 512, 512, 88);
    }
}

#[test]
fn a_fetch_of_an_edge_that_hangs_is_answered_to_nobody() {
    for config in tiers() {
        let mut rig = Rig::new(config);
        rig.write(1, EDGE, 512, 77);
        rig.complete(0, IoStatus::Ok);
        rig.tick(30_000);
        assert_eq!(rig.replies.len(), 1, "that of the write");
        assert!(!rig.engine.is_idle(), "the I/O owns its buffer");
        rig.complete(0, IoStatus::Ok);
        assert!(rig.engine.is_idle());
        // Nor is one that fails.
        rig.write(2, 2 * EDGE, 512, 77);
        rig.complete(0, IoStatus::Ok);
        rig.complete(0, IoStatus::IoError);
        assert_eq!(rig.replies.len(), 2);
        assert!(rig.engine.is_idle());
    }
}

#[test]
fn edges_that_nobody_reads_are_not_fetched_any_more() {
    let mut rig = Rig::new(config());
    // A log that is written sector by sector, round and round, longer than the cache.
    let mut fetched = Vec::new();
    for n in 0..12_000u64 {
        rig.write(n, n * 512 % (1 << 20), 512, n as u8);
        rig.settle();
        rig.replies.clear();
        if n % 4_000 == 3_999 {
            fetched.push(rig.counters().edges_fetched);
        }
    }
    assert!(fetched[0] > 100 && fetched[1] == fetched[2], "{fetched:?}");
}

#[test]
fn whole_granules_and_modes_that_keep_no_writes_fetch_nothing() {
    let mut rig = Rig::new(config());
    rig.write(1, EDGE, 8192, 77);
    assert_eq!(rig.drawn(), ["W 4096+8192"]);
    rig.settle();
    let mut rig = Rig::new(Config { mode: Mode::WriteAround, ..config() });
    rig.write(1, EDGE, 512, 77);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), [] as [&str; 0]);
}

#[test]
fn zeroes_with_unaligned_ends_are_written_there_and_asked_for_between() {
    let mut config = config();
    config.backend.logical_block = 4096;
    let mut rig = Rig::new(config);
    rig.backend[..32768].fill(9);
    rig.submit(1, 512, 20480, Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false });
    let mut drawn = Vec::new();
    while !rig.has_reply(1) {
        drawn.extend(rig.drawn());
        rig.complete(0, IoStatus::Ok);
    }
    assert_eq!(drawn, ["R 0+4096", "W 0+4096", "Z 4096+16384", "R 20480+4096", "W 20480+4096"]);
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    assert!(rig.backend[..512].iter().all(|it| *it == 9));
    assert!(rig.backend[512..20992].iter().all(|it| *it == 0));
    assert!(rig.backend[20992..32768].iter().all(|it| *it == 9));
    // Within one block, and one that begins aligned.
    for (tag, start, block) in [(2, 512, 0), (3, 4096, 4096)] {
        rig.submit(
            tag,
            start,
            512,
            Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false },
        );
        let mut drawn = Vec::new();
        while !rig.has_reply(tag) {
            drawn.extend(rig.drawn());
            rig.complete(0, IoStatus::Ok);
        }
        assert_eq!(drawn, [format!("R {block}+4096"), format!("W {block}+4096")]);
    }
}
