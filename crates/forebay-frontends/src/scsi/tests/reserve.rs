//! RESERVE and RELEASE, and what reservations forbid.

use super::persistent::{Action, out};
use super::*;

const READY: &[u8] = &[0; 6];
const RESERVE: &[u8] = &[0x16, 0, 0, 0, 0, 0];
const RELEASE: &[u8] = &[0x17, 0, 0, 0, 0, 0];

/// Commands by what holds them up; each with its Data-Out.
const INFORM: &[&[u8]] = &[
    &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[0x4d, 0, 0x40, 0, 0, 0, 0, 0, 255, 0],
    &[0x1b, 0, 0, 0, 1, 0],
    &[0x1e, 0, 0, 0, 0, 0],
];
const QUERY: &[&[u8]] = &[READY, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]];
const READS: &[&[u8]] = &[
    &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    &[0x2f, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    &[0x34, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    &[0x1a, 0, 0x3f, 0, 255, 0],
    &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0],
];
const WRITES: &[&[u8]] = &[
    &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    &[0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    &[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[0x15, 0x10, 0, 0, 0, 0],
    &[0x1b, 0, 0, 0, 0, 0],
    &[0x1e, 0, 0, 0, 1, 0],
];

impl World {
    /// Which groups of commands conflict: inform, query, read, write.
    fn conflicts(&mut self, from: NexusId) -> [bool; 4] {
        [INFORM, QUERY, READS, WRITES].map(|group| {
            let mut answers =
                group.iter().map(|bytes| words(&self.send(from, bytes, &[0; 512])) == "conflict");
            let first = answers.next().expect("a group is not empty");
            assert!(answers.all(|answer| answer == first), "{group:02x?}");
            first
        })
    }
}

#[test]
fn reserve_excludes_all_others_until_it_is_released() {
    for (reserve, release) in [(RESERVE, RELEASE), (&[0x56; 1], &[0x57; 1])] {
        let (reserve, release) = (padded(reserve), padded(release));
        let mut world = World::new();
        assert!(world.allows_others(true));
        world.check(&reserve, &[], "good");
        world.check(&reserve, &[], "good");
        world.check_of(world.b, &reserve, &[], "conflict");
        world.check_of(world.b, &release, &[], "good");
        assert_eq!(world.conflicts(world.a), [false; 4]);
        assert_eq!(world.conflicts(world.b), [false, true, true, true]);
        assert!(!world.allows_others(false));
        world.check_of(world.b, &[0x12, 0, 0, 0, 4, 0], &[], "good 4");
        world.check(&release, &[], "good");
        assert_eq!(world.conflicts(world.b), [false; 4]);
        assert!(world.allows_others(true));
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(if bytes[0] > 0x20 { 10 } else { 6 }, 0);
    bytes
}

#[test]
fn reserve_ends_with_its_nexus_and_with_a_reset() {
    let mut world = World::new();
    world.check(RESERVE, &[], "good");
    world.unit.detach(world.a);
    assert_eq!(world.conflicts(world.b), [false; 4]);
    world.check_of(world.b, RESERVE, &[], "good");
    world.unit.reset();
    for from in [world.b, world.c] {
        world.check_of(from, READY, &[], "6/29/00");
    }
    assert_eq!(world.conflicts(world.c), [false; 4]);
}

#[test]
fn persistent_reservations_forbid_by_type_and_standing() {
    // Inform and query are never forbidden; per type: reads and writes of a stranger, of a registrant.
    for (kind, stranger, registrant) in [
        (1, [false, true], [false, true]),
        (3, [true, true], [true, true]),
        (5, [false, true], [false, false]),
        (6, [true, true], [false, false]),
        (7, [false, true], [false, false]),
        (8, [true, true], [false, false]),
    ] {
        let mut world = World::new();
        for (from, key) in [(world.a, 1), (world.b, 2)] {
            let (cdb, list) = out(Action::RegisterAndIgnore, 0, 0, key, 0);
            world.check_of(from, &cdb, &list, "good");
        }
        let (cdb, list) = out(Action::Reserve, kind, 1, 0, 0);
        world.check(&cdb, &list, "good");
        assert_eq!(world.conflicts(world.a), [false; 4], "holder, type {kind}");
        let [read, write] = registrant;
        assert_eq!(world.conflicts(world.b), [false, false, read, write], "type {kind}");
        let [read, write] = stranger;
        assert_eq!(world.conflicts(world.c), [false, false, read, write], "type {kind}");
        assert_eq!([false, true].map(|write| !world.allows_others(write)), stranger);
    }
}

#[test]
fn the_two_kinds_of_reservations_do_not_mix() {
    let mut world = World::new();
    let register = |key| out(Action::RegisterAndIgnore, 0, 0, key, 0);
    world.check(RESERVE, &[], "good");
    let (cdb, list) = register(1);
    world.check(&cdb, &list, "conflict");
    world.check(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 255, 0], &[], "conflict");
    world.check(&[0x5e, 2, 0, 0, 0, 0, 0, 0, 255, 0], &[], "conflict");
    world.check(RELEASE, &[], "good");

    world.check(&cdb, &list, "good");
    for from in [world.a, world.b] {
        world.check_of(from, RESERVE, &[], "conflict");
        world.check_of(from, RELEASE, &[], "conflict");
    }
    let (cdb, list) = out(Action::Reserve, 5, 1, 0, 0);
    world.check(&cdb, &list, "good");
    let (cdb, list) = register(2);
    world.check_of(world.b, &cdb, &list, "good");
    for (from, expect) in [(world.a, "good"), (world.b, "good"), (world.c, "conflict")] {
        world.check_of(from, RESERVE, &[], expect);
        world.check_of(from, RELEASE, &[], expect);
    }
    assert!(world.unit.reserved.is_none());
}

#[test]
fn a_reservation_that_comes_between_command_and_parameter_list_holds() {
    let mut world = World::new();
    let select = command(&[0x15, 0x10, 0, 0, 24, 0], 24);
    assert_eq!(words(&world.unit.command(world.b, &select)), "wants 24");
    world.check(RESERVE, &[], "good");
    assert_eq!(words(&world.unit.parameters(world.b, &select, &[0; 24])), "conflict");
}
