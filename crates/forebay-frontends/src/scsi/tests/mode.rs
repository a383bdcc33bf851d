//! MODE SENSE and MODE SELECT.

use super::*;

const CACHING: [u8; 20] = [8, 18, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CONTROL: [u8; 12] = [10, 10, 2, 16, 0, 64, 0, 0, 0, 0, 0, 0];
const EXCEPTIONS: [u8; 12] = [28, 10, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn sense_6(page: u8) -> [u8; 6] {
    [0x1a, 0x08, page, 0, 255, 0]
}

/// Changes one byte of a page, with a short or a long command.
fn select(page: &[u8], at: usize, value: u8, is_long: bool) -> (Vec<u8>, Vec<u8>) {
    let mut list = vec![0; if is_long { 8 } else { 4 }];
    let header = list.len();
    list.extend_from_slice(page);
    list[header + at] = value;
    let len = list.len() as u8;
    let short = vec![0x15, 0x10, 0, 0, len, 0];
    let long = vec![0x55, 0x10, 0, 0, 0, 0, 0, 0, len, 0];
    (if is_long { long } else { short }, list)
}

#[test]
fn pages_are_shown_as_they_are_as_they_could_be_and_as_they_were_at_first() {
    let mut world = World::new();
    let blocks = [0, 0, 8, 3, 0, 0, 2, 0];
    let all = [&CACHING[..], &CONTROL, &EXCEPTIONS].concat();
    assert_eq!(
        world.data(&[0x1a, 0, 0x3f, 0, 255, 0]),
        [&[55, 0, 0x10, 8][..], &blocks, &all].concat()
    );
    assert_eq!(world.data(&sense_6(0x3f)), [&[47, 0, 0x10, 0][..], &all].concat());
    let long = world.data(&[0x5a, 0, 0x3f, 0, 0, 0, 0, 0, 255, 0]);
    assert_eq!(long, [&[0, 58, 0, 0x10, 0, 0, 0, 8][..], &blocks, &all].concat());
    let longer = world.data(&[0x5a, 0x10, 0x08, 0xff, 0, 0, 0, 0, 255, 0]);
    let blocks = [0, 0, 0, 0, 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 2, 0];
    assert_eq!(longer, [&[0, 42, 0, 0x10, 1, 0, 0, 16][..], &blocks, &CACHING].concat());

    assert_eq!(world.data(&sense_6(0x48))[4..8], [8, 18, 4, 0]);
    assert_eq!(world.data(&sense_6(0x4a))[4..10], [10, 10, 4, 0, 8, 0x40]);
    assert_eq!(world.data(&sense_6(0x5c))[4..8], [28, 10, 0, 0]);
    assert_eq!(world.data(&sense_6(0x88))[4..], CACHING);
    world.check(&sense_6(0xc8), &[], "5/39/00");
    world.check(&sense_6(0x05), &[], "5/24/00 at cdb 2.5");
    world.check(&[0x1a, 0, 0x0a, 1, 255, 0], &[], "5/24/00 at cdb 3.7");
    assert_eq!(world.data(&[0x1a, 0, 0x3f, 0, 4, 0]), [55, 0, 0x10, 8]);
}

#[test]
fn turning_the_write_cache_off_flushes_and_makes_writes_durable() {
    let mut world = World::new();
    for is_long in [false, true] {
        let (cdb, list) = select(&CACHING, 2, 0, is_long);
        let ended = |world: &mut World, status| {
            let response = world.unit.medium_done(world.a, &Medium::CacheOff, Done::Status(status));
            assert_eq!(response.status == Status::Good, status.is_ok());
        };
        // It is on until the flush has succeeded.
        world.check(&cdb, &list, "cache off");
        ended(&mut world, IoStatus::IoError);
        assert!(!world.unit.is_write_through());
        assert_eq!(world.data(&sense_6(0x08))[6], 4);
        world.check(&cdb, &list, "cache off");
        ended(&mut world, IoStatus::Ok);
        assert!(world.unit.is_write_through());
        // Who turns it off again is promised the same.
        world.check(&cdb, &list, "cache off");
        ended(&mut world, IoStatus::Ok);
        assert_eq!(world.data(&sense_6(0x08))[6], 0);
        world.check_of(world.b, &[0; 6], &[], "6/2a/01");
        world.check_of(world.b, &[0; 6], &[], "good");
        let (cdb, list) = select(&CACHING, 2, 4, is_long);
        world.check(&cdb, &list, "good");
        world.check_of(world.b, &[0; 6], &[], "6/2a/01");
        world.check(&cdb, &list, "good");
        world.check_of(world.b, &[0; 6], &[], "good");
    }
}

#[test]
fn write_protection_and_the_format_of_sense_data_can_be_chosen() {
    let mut world = World::new();
    let (cdb, list) = select(&CONTROL, 4, 8, false);
    world.check(&cdb, &list, "good");
    world.check(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512], "7/27/00");
    world.check(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], "read 0+1");
    assert_eq!(world.data(&sense_6(0x3f))[2], 0x90);
    let (cdb, list) = select(&CONTROL, 2, 6, false);
    world.check(&cdb, &list, "good");
    let Outcome::Done(response) = world.a(&[0x28, 0, 0, 0, 0xff, 0, 0, 0, 1, 0], &[]) else {
        panic!("an answer");
    };
    let mut bytes = Vec::new();
    response.sense.expect("sense data").write_to(&mut bytes);
    assert_eq!(bytes, [0x72, 5, 0x21, 0, 0, 0, 0, 0]);
    let Outcome::Done(response) = world.a(&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0], &[]) else {
        panic!("an answer");
    };
    let mut bytes = Vec::new();
    response.sense.expect("sense data").write_to(&mut bytes);
    assert_eq!(bytes, [0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xcd, 0, 1, 0]);
    world.unit.reset();
    world.check(&[0; 6], &[], "6/29/00");
    assert_eq!(world.data(&sense_6(0x0a))[4..], CONTROL);
}

#[test]
fn a_list_that_is_wrong_anywhere_changes_nothing() {
    let mut world = World::new();
    let (cdb, list) = select(&CACHING, 2, 0, false);
    let whole = |list: &[u8]| vec![0x15, 0x10, 0, 0, list.len() as u8, 0];
    let with = |at: usize, value: u8| {
        let mut list = list.clone();
        list[at] = value;
        list
    };
    let followed_by = |page: &[u8]| [&list[..], page].concat();
    for (list, expect) in [
        (with(1, 1), "5/26/00 at 1"),
        (with(3, 4), "5/26/00 at 3"),
        (with(4, 0x48), "5/26/00 at 4"),
        (with(4, 0x05), "5/26/00 at 4"),
        (with(5, 17), "5/26/00 at 5"),
        (with(6, 1), "5/26/00 at 6"),
        (followed_by(&[10]), "5/1a/00"),
        (followed_by(&[10, 10, 2]), "5/1a/00"),
        (followed_by(&[10, 10, 2, 0, 0, 64, 0, 0, 0, 0, 0, 0]), "5/26/00 at 27"),
        (list[..3].to_vec(), "5/1a/00"),
    ] {
        world.check(&whole(&list), &list, expect);
    }
    world.check(&cdb, &list[..20], "5/1a/00");
    world.check(&[0x15, 0x11, 0, 0, 24, 0], &list, "5/24/00 at cdb 1.0");
    world.check(&[0x15, 0x00, 0, 0, 24, 0], &list, "5/24/00 at cdb 1.4");
    world.check(&[0x15, 0x10, 0, 0, 0, 0], &[], "good");
    assert_eq!(world.data(&sense_6(0x08))[4..], CACHING);
    // A block descriptor may repeat what is so.
    let descriptor = |bytes: [u8; 8]| [&[0, 0, 0, 8][..], &bytes, &CACHING].concat();
    for (bytes, expect) in [
        ([0, 0, 8, 3, 0, 0, 2, 0], "good"),
        ([0, 0, 0, 0, 0, 0, 2, 0], "good"),
        ([0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0], "good"),
        ([0, 0, 8, 2, 0, 0, 2, 0], "5/26/00 at 4"),
        ([0, 0, 8, 3, 0, 0, 16, 0], "5/26/00 at 4"),
    ] {
        let list = descriptor(bytes);
        world.check(&whole(&list), &list, expect);
    }
}

#[test]
fn a_read_only_disk_has_no_write_cache_to_turn_on() {
    let mut world = World::of(Export { read_only: true, ..export() });
    assert_eq!(world.data(&sense_6(0x08))[2], 0x90);
    assert_eq!(world.data(&sense_6(0x08))[6], 0);
    assert_eq!(world.data(&sense_6(0x48))[6], 0);
    let (cdb, list) = select(&CACHING, 2, 4, false);
    world.check(&cdb, &list, "5/26/00 at 6");
}
