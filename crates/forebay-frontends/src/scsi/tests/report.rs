//! Reports, and small commands.

use super::*;

fn opcodes(options: u8, code: u8, action: u8) -> [u8; 12] {
    [0xa3, 0x0c, options, code, 0, action, 0, 0, 0xff, 0xff, 0, 0]
}

#[test]
fn every_command_that_is_listed_can_be_asked_for_alone() {
    let mut world = World::of(Export { atomic_write_max: 512, ..export() });
    let all = world.data(&opcodes(0, 0, 0));
    let len = u32::from_be_bytes(all[..4].try_into().expect("four bytes"));
    assert_eq!(len as usize, all.len() - 4);
    assert!(all.len() > 4 + 8 * 50);
    for entry in all[4..].chunks(8) {
        let (code, action, has_actions) = (entry[0], entry[3], entry[5] & 1 != 0);
        let (with, without) = if has_actions { (2, 1) } else { (1, 2) };
        world.check(&opcodes(without, code, action), &[], "5/24/00 at cdb 2.2");
        for options in [with, 3] {
            let one = world.data(&opcodes(options, code, action));
            assert_eq!(one[..4], [0, 3, 0, entry[7]]);
            assert_eq!(one.len(), 4 + usize::from(entry[7]));
            assert_eq!(one[4], code);
            assert!(!has_actions || one[5] & 0x1f == action);
        }
    }
    assert_eq!(world.data(&opcodes(1, 0x02, 0)), [0, 1, 0, 0]);
    assert_eq!(world.data(&opcodes(2, 0x9e, 0x11)), [0, 1, 0, 0]);
    world.check(&opcodes(4, 0, 0), &[], "5/24/00 at cdb 2.2");
    assert_eq!(
        world.data(&opcodes(1, 0x28, 0))[4..],
        [0x28, 0x18, 255, 255, 255, 255, 0x1f, 255, 255, 4]
    );
}

#[test]
fn time_outs_are_listed_when_they_are_asked_for() {
    let mut world = World::new();
    let all = world.data(&opcodes(0x80, 0, 0));
    for entry in all[4..].chunks(20) {
        assert_eq!((entry[5] & 2, &entry[8..10]), (2, &[0, 10][..]));
    }
    let one = world.data(&opcodes(0x81, 0x28, 0));
    assert_eq!((one[1], one.len(), &one[14..16]), (0x83, 4 + 10 + 12, &[0, 10][..]));
}

#[test]
fn the_cdb_of_every_command_accepts_only_what_its_usage_says() {
    let mut world = World::of(Export { atomic_write_max: 512, ..export() });
    let all = world.data(&opcodes(0, 0, 0));
    for entry in all[4..].chunks(8) {
        let usage = world.data(&opcodes(3, entry[0], entry[3]));
        let len = usize::from(entry[7]);
        let mut bytes = vec![0; len];
        (bytes[0], bytes[1]) = (entry[0], entry[3]);
        for at in 1..len - 1 {
            for bit in (0..8).filter(|bit| usage[4 + at] >> bit & 1 == 0) {
                if at == 1 && bit < 5 && entry[5] & 1 != 0 {
                    continue;
                }
                let mut bytes = bytes.clone();
                bytes[at] |= 1 << bit;
                world.check(&bytes, &[], &format!("5/24/00 at cdb {at}.{bit}"));
            }
        }
    }
}

#[test]
fn functions_groups_and_units_are_told() {
    let mut world = World::new();
    assert_eq!(world.data(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]), [0xda, 0, 0, 0]);
    assert_eq!(world.data(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0, 0, 0, 255, 0, 0]).len(), 16);
    let group_1 = [0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    let group_2 = [0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7];
    let groups = world.data(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]);
    assert_eq!(groups, [&[0, 0, 0, 28][..], &group_1, &group_2].concat());
    let longer = world.data(&[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]);
    assert_eq!(longer, [&[0, 0, 0, 32, 0x10, 0, 0, 0][..], &group_1, &group_2].concat());
    world.check(&[0xa3, 0x4a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], &[], "5/24/00 at cdb 1.7");
    world.check(&[0xa3, 0x05, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], &[], "5/24/00 at cdb 1.4");
    let luns = |select| [0xa0, 0, select, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    for (select, count) in [(0, 1), (1, 0), (2, 1)] {
        assert_eq!(world.data(&luns(select)).len(), 8 + 8 * count);
    }
    world.check(&luns(3), &[], "5/24/00 at cdb 2.7");
}

#[test]
fn small_commands() {
    let mut world = World::new();
    for (bytes, expect) in [
        (&[0x00, 0, 0, 0, 0, 0][..], "good"),
        (&[0x1b, 0, 0, 0, 0, 0], "flush"),
        (&[0x1b, 1, 0, 0, 0x04, 0], "good"),
        (&[0x1b, 0, 0, 0, 0x01, 0], "good"),
        (&[0x1b, 1, 0, 0, 0x02, 0], "5/24/00 at cdb 4.1"),
        (&[0x1b, 0, 0, 0, 0x30, 0], "5/24/00 at cdb 4.7"),
        (&[0x1d, 0x04, 0, 0, 0, 0], "good"),
        (&[0x1d, 0x00, 0, 0, 0, 0], "5/24/00 at cdb 1.2"),
        (&[0x1e, 0, 0, 0, 1, 0], "good"),
        (&[0x1e, 0, 0, 0, 2, 0], "5/24/00 at cdb 4.1"),
        (&[0x37, 0, 0x1d, 0, 0, 0, 0, 0, 32, 0], "good 4"),
        (&[0xb7, 0x1d, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], "good 8"),
        (&[0x4d, 0, 0x40, 0, 0, 0, 0, 0, 255, 0], "good 7"),
        (&[0x4d, 0, 0x4c, 0, 0, 0, 0, 0, 255, 0], "good 4"),
        (&[0x4d, 0, 0x6f, 0, 0, 0, 0, 0, 255, 0], "good 12"),
        (&[0x4d, 0, 0x42, 0, 0, 0, 0, 0, 255, 0], "5/24/00 at cdb 2.5"),
        (&[0x4d, 0x01, 0x40, 0, 0, 0, 0, 0, 255, 0], "5/24/00 at cdb 1.0"),
    ] {
        world.check(bytes, &[], expect);
    }
}
