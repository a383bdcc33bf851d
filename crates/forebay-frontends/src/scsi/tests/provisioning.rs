//! UNMAP, WRITE SAME, GET LBA STATUS.

use forebay_core::action::{Extent, ExtentState};

use super::*;

fn unmap(descriptors: &[(u64, u32)]) -> (Vec<u8>, Vec<u8>) {
    let len = descriptors.len() as u16 * 16;
    let mut list = (len + 6).to_be_bytes().to_vec();
    list.extend(len.to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in descriptors {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let [high, low] = (list.len() as u16).to_be_bytes();
    (vec![0x42, 0, 0, 0, 0, 0, 0, high, low, 0], list)
}

#[test]
fn unmap_takes_many_ranges_within_its_limits() {
    let mut world = World::of(Export { size: 1 << 40, ..export() });
    let blocks = (1 << 40) / 512;
    let many = |count| vec![(0, 1); count];
    for (descriptors, expect) in [
        (vec![], "good"),
        (vec![(5, 0)], "good"),
        (vec![(blocks, 0)], "good"),
        (vec![(blocks + 1, 0)], "5/21/00"),
        (vec![(u64::MAX, u32::MAX)], "5/21/00"),
        (vec![(8, 8), (0, 0), (64, 1)], "unmap 8+8 64+1"),
        (vec![(0, 1 << 20)], "unmap 0+1048576"),
        (vec![(0, 1 << 19), (0, 1 << 19), (0, 1)], "5/26/00 at 48"),
        (many(257), "5/26/00 at 2"),
    ] {
        let (cdb, list) = unmap(&descriptors);
        world.check(&cdb, &list, expect);
    }
    let (cdb, list) = unmap(&many(256));
    assert!(words(&world.a(&cdb, &list)).starts_with("unmap 0+1 0+1"));
}

#[test]
fn an_unmap_that_is_cut_short_is_refused() {
    let mut world = World::new();
    let (mut cdb, list) = unmap(&[(8, 8)]);
    world.check(&cdb, &list[..23], "5/1a/00");
    cdb[8] = 7;
    world.check(&cdb, &list, "5/1a/00");
    cdb[8] = 20;
    world.check(&cdb, &list[..20], "5/1a/00");
    cdb[8] = 0;
    world.check(&cdb, &[], "good");
    let (mut cdb, list) = unmap(&[(8, 8)]);
    cdb[1] = 1;
    world.check(&cdb, &list, "unmap 8+8 anchor");
}

#[test]
fn write_same_repeats_one_block() {
    let mut world = World::new();
    let same_10 = |flags, blocks| [0x41, flags, 0, 0, 0, 7, 0, 0, blocks, 0];
    world.check(&same_10(0, 3), &[0; 512], "same 7+3");
    world.check(&same_10(0x08, 3), &[0; 512], "same 7+3 unmap");
    world.check(&same_10(0x18, 3), &[0; 512], "same 7+3");
    world.check(&same_10(0x10, 3), &[0; 512], "5/24/00 at cdb 1.4");
    world.check(&same_10(0x01, 3), &[0; 512], "5/24/00 at cdb 1.0");
    world.check(&same_10(0, 0), &[0; 512], "5/24/00 at cdb 7.7");
    for len in [0, 256, 1024] {
        world.check(&same_10(0x08, 1), &vec![0; len], "5/24/00");
    }
    let mut same_16 = [0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0];
    world.check(&same_16, &[], "zero 7+3 unmap");
    same_16[1] = 0x01;
    world.check(&same_16, &[], "zero 7+3");
    same_16[13] = 0;
    world.check(&same_16, &[], "5/24/00 at cdb 10.7");

    let mut world = World::of(Export { size: 4097 << 20, ..export() });
    let mut same_16 = [0x93, 0x01, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0x80, 0, 0, 0, 0];
    world.check(&same_16, &[], "zero 2048+8388608");
    same_16[8] = 0;
    same_16[13] = 1;
    world.check(&same_16, &[], "5/24/00 at cdb 10.7");
    same_16[8] = 8;
    world.check(&same_16, &[], "5/21/00");
}

#[test]
fn allocation_is_told_in_whole_blocks_that_follow_each_other() {
    let mut world = World::new();
    let mut cdb = [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 56, 0, 0];
    let Outcome::Medium(medium) = world.a(&cdb, &[]) else { panic!("work on the medium") };
    assert_eq!(medium_words(&medium), "map 8+2043 3");
    let extent = |len, state| Extent { len, state };
    let extents = [
        extent(1000, ExtentState::Allocated),
        extent(24, ExtentState::Zero),
        extent(2000, ExtentState::Hole),
        extent(10, ExtentState::Hole),
        extent(u64::MAX, ExtentState::Dirty),
    ];
    let response = world.unit.medium_done(world.a, &medium, Done::Extents(&extents));
    let mut expect = vec![0, 0, 0, 52, 0, 0, 0, 0];
    for (lba, blocks, state) in [(8_u64, 2_u32, 0), (10, 3, 1), (13, 2038, 0)] {
        expect.extend(lba.to_be_bytes());
        expect.extend(blocks.to_be_bytes());
        expect.extend([state, 0, 0, 0]);
    }
    assert_eq!(response.data, expect);

    let nothing = world.unit.medium_done(world.a, &medium, Done::Extents(&[]));
    assert_eq!(nothing.data[8..], [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0]);
    cdb[8] = 8;
    cdb[9] = 3;
    world.check(&cdb, &[], "5/21/00");
    cdb[9] = 2;
    cdb[13] = 0;
    world.check(&cdb, &[], "map 2050+1 1");
}
