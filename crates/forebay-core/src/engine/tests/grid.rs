//! The grid finds the guest's alignment.

use super::*;

fn misaligned_reads(rig: &mut Rig, from: u64, count: u64) {
    for i in from..from + count {
        rig.read(i, 3584 + i * 7 % 200 * 4096, 4096);
    }
}

#[test]
fn the_grid_moves_to_a_partition_at_sector_63_while_the_cache_is_empty() {
    let mut config = Config { grid_offset: GridOffset::Auto, ram_bytes: 64 << 20, ..config() };
    config.backend.size = 64 << 20;
    let mut rig = Rig::new(config);
    misaligned_reads(&mut rig, 0, 300);
    assert_eq!(rig.events, [Event::GridMoved { offset: 3584 }]);
    rig.settle();
    let backend = rig.backend.clone();
    for (tag, _, bytes) in &rig.replies {
        let start = 3584 + tag * 7 % 200 * 4096;
        assert_eq!(bytes[..], backend[start as usize..start as usize + 4096]);
    }
    rig.replies.clear();
    rig.read(1000, 3584, 4096);
    assert_eq!(rig.drawn(), ["R 3584+4096"], "one granule, not two");
    rig.settle();
}

#[test]
fn a_filled_cache_stays_and_the_offset_is_an_advice() {
    let mut rig = Rig::new(Config { grid_offset: GridOffset::Auto, ..config() });
    rig.read(1_000_000, 0, 128 * KIB);
    rig.settle();
    for i in 0..20 {
        misaligned_reads(&mut rig, i * 250, 250);
        rig.settle();
    }
    assert_eq!(rig.events, [Event::GridAdvice { offset: 3584 }]);
    rig.expect_bytes(0, 4096, 0);
}

#[test]
fn a_fixed_offset_serves_the_ends_of_the_disk() {
    for flash_bytes in [0, 512 * KIB] {
        let grid_offset = GridOffset::Fixed(3584);
        let ram_bytes = if flash_bytes == 0 { 256 * KIB } else { 0 };
        let flash_admission = crate::config::FlashAdmission::Always;
        let config = Config { grid_offset, ram_bytes, flash_bytes, flash_admission, ..config() };
        let mut rig = Rig::new(config);
        for _ in 0..3 {
            rig.expect_bytes(0, 3584, 0);
            rig.expect_bytes((1 << 20) - 512, 512, 255);
        }
        rig.write(1, 0, 512, 77);
        rig.write(2, (1 << 20) - 512, 512, 78);
        rig.settle();
        rig.expect_bytes(0, 512, 77);
        rig.expect_bytes((1 << 20) - 512, 512, 78);
    }
}

#[test]
fn flash_io_meets_page_boundaries_in_memory_at_the_start_of_the_disk_too() {
    let flash_admission = crate::config::FlashAdmission::Always;
    let grid_offset = GridOffset::Fixed(3584);
    let (ram_bytes, flash_bytes) = (0, 512 * KIB);
    let config = Config { grid_offset, ram_bytes, flash_bytes, flash_admission, ..config() };
    let mut rig = Rig::new(config);
    rig.read(1, 0, 16 * KIB);
    rig.settle();
    rig.read(2, 0, 16 * KIB);
    let flash_reads = rig.pending.iter().filter_map(|io| match (io.target, io.op) {
        (Target::Flash, IoOp::Read { memory }) => Some(memory.offset % PAGE),
        _ => None,
    });
    assert_eq!(flash_reads.collect::<Vec<_>>(), [0, 0, 0, 0]);
    rig.settle();
    assert_eq!(rig.replied(2).2, rig.replied(1).2);
}

#[test]
fn with_a_write_log_the_grid_stays_and_the_offset_is_an_advice() {
    for grid_offset in [GridOffset::Auto, GridOffset::Fixed(0)] {
        let mut rig = Rig::new(Config { grid_offset, ..with_log() });
        if grid_offset != GridOffset::Auto {
            rig.engine.watch_alignment();
        }
        for i in 0..20 {
            misaligned_reads(&mut rig, i * 250, 250);
            rig.settle();
        }
        let moved = rig.events.iter().any(|event| matches!(event, Event::GridMoved { .. }));
        let told = rig.events.iter().filter(|it| **it == Event::GridAdvice { offset: 3584 });
        assert!(!moved && told.count() == 1, "{:?}", rig.events);
    }
}
