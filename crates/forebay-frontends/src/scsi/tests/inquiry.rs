//! INQUIRY, VPD pages, READ CAPACITY, and what there is where there is no unit.

use super::*;

fn vpd(world: &mut World, page: u8) -> Vec<u8> {
    let bytes = world.data(&[0x12, 1, page, 0xff, 0xff, 0]);
    assert_eq!(bytes[..2], [0, page]);
    assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len() - 4);
    bytes[4..].to_vec()
}

#[test]
fn standard_data_is_that_of_a_disk() {
    let mut world = World::new();
    let bytes = world.data(&[0x12, 0, 0, 1, 0, 0]);
    assert_eq!(bytes.len(), 96);
    assert_eq!(bytes[..8], [0, 0, 6, 0x12, 91, 0x10, 0x10, 2]);
    assert_eq!(&bytes[8..36], b"FOREBAY Virtual disk    1   ");
    assert_eq!(bytes[58..66], [0, 0xa0, 4, 0x60, 4, 0xc0, 9, 0x60]);
    assert_eq!(world.data(&[0x12, 0, 0, 0, 5, 0]), bytes[..5]);
    assert_eq!(world.data(&[0x12, 0, 0, 0, 0, 0]), [0; 0]);
    world.check(&[0x12, 0, 0x80, 0, 255, 0], &[], "5/24/00 at cdb 2.7");
    world.check(&[0x12, 2, 0, 0, 255, 0], &[], "5/24/00 at cdb 1.1");
    world.check(&[0x12, 1, 0xb5, 0, 255, 0], &[], "5/24/00 at cdb 2.7");
}

#[test]
fn every_page_that_is_listed_can_be_read() {
    let mut world = World::new();
    let pages = vpd(&mut world, 0);
    assert_eq!(pages, [0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0xb0, 0xb1, 0xb2]);
    for page in pages {
        assert!(!vpd(&mut world, page).is_empty());
    }
}

#[test]
fn every_task_attribute_that_is_kept_is_promised() {
    // Simple, ordered, head of queue; then that there is a volatile cache, and that I_T nexus losses clear attentions.
    assert_eq!(vpd(&mut World::new(), 0x86)[1..4], [0b111, 1, 1]);
}

#[test]
fn the_disk_is_named_the_same_through_every_port() {
    let mut world = World::new();
    let first = vpd(&mut world, 0x83);
    world.a = world.c;
    let second = vpd(&mut world, 0x83);
    // The designators of the logical unit are the same, those of the port are not.
    let unit = 4 + 16 + 4 + 8 + 32;
    assert_eq!(first[..unit], second[..unit]);
    assert_eq!(first[..8], [0x01, 0x03, 0, 16, 0x60, 0x24, 0x64, 0x20 | first[7] & 0x0f]);
    assert_eq!(&first[24..32], b"FOREBAY ");
    assert_eq!(first[unit..][..8], [0x51, 0x94, 0, 4, 0, 0, 0, 1]);
    assert_eq!(second[unit..][..8], [0x51, 0x94, 0, 4, 0, 0, 0, 2]);
    let name = "iqn.2026-01.example:db,t,0x0002\0";
    assert!(second.windows(name.len()).any(|window| window == name.as_bytes()));
    assert_eq!(vpd(&mut world, 0x80), b"30313233343536373839616263646566");
}

#[test]
fn block_limits_are_those_that_commands_are_held_to() {
    let mut world = World::new();
    let page = vpd(&mut world, 0xb0);
    assert_eq!(page.len(), 0x3c);
    let number = |at: usize| u32::from_be_bytes(page[at - 4..at].try_into().expect("four bytes"));
    assert_eq!(page[..4], [1, 128, 0, 8]);
    let limits: Vec<u32> = (8..=60).step_by(4).map(number).collect();
    let (max, unmap) = (65536, 1 << 20);
    assert_eq!(limits, [max, 2048, max, unmap, 256, 8, 1 << 31, 0, 8 << 20, 0, 0, 0, 0, 0]);
    assert_eq!(vpd(&mut world, 0xb2), [0, 0xe6, 2, 0]);
    assert_eq!(vpd(&mut world, 0xb1)[..2], [0, 1]);

    let mut world = World::of(Export { atomic_write_max: 1 << 20, ..export() });
    assert_eq!(vpd(&mut world, 0xb0)[40..52], [0, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn capacity_is_told_short_and_long() {
    let mut world = World::new();
    assert_eq!(world.data(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]), [0, 0, 8, 2, 0, 0, 2, 0]);
    world.check(&[0x25, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[], "5/24/00 at cdb 2.7");
    let long = |len| [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, len, 0, 0];
    let mut expect = vec![0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 2, 0, 0, 3, 0xc0, 0];
    expect.resize(32, 0);
    assert_eq!(world.data(&long(255)), expect);
    assert_eq!(world.data(&long(15)), expect[..15]);
    world.check(
        &[0x9e, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
        &[],
        "5/24/00 at cdb 1.4",
    );

    let mut world = World::of(Export { size: 1 << 50, physical_block: 512, ..export() });
    let short = world.data(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(short, [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
    assert_eq!(world.data(&long(14)), [0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn where_there_is_no_unit_a_target_still_says_what_it_has() {
    let luns = [Lun::new(1), Lun::new(300)].map(|lun| lun.expect("in range"));
    let ask = |bytes: &[u8]| absent(&Command { cdb: cdb(bytes), data_out: 0, luns: &luns });
    assert_eq!(ask(&[0x12, 0, 0, 0, 36, 0]).data[0], 0x7f);
    let list = ask(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0]).data;
    assert_eq!(list[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
    assert_eq!(list[8..], [0, 1, 0, 0, 0, 0, 0, 0, 0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask(&[0x03, 0, 0, 0, 18, 0]).data[2], 5);
    assert_eq!(response_words(&ask(&[0, 0, 0, 0, 0, 0])), "5/25/00");
    assert_eq!(response_words(&ask(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0])), "5/25/00");
}
