//! Reservations over a restart.

#[cfg(not(feature = "planted-bugs"))]
use proptest::prelude::*;

use super::persistent::{ALL_TG_PT, APTPL, Action, keys, out, reservation};
use super::*;

/// A unit on which A holds a reservation that outlives a restart.
fn held(kind: u8) -> World {
    let mut world = World::new();
    for (from, key) in [(world.a, 1), (world.b, 2)] {
        let (cdb, list) = out(Action::Register, 0, 0, key, APTPL | ALL_TG_PT);
        world.check_of(from, &cdb, &list, "good abort 0");
    }
    let (cdb, list) = out(Action::Reserve, kind, 1, 0, 0);
    world.check(&cdb, &list, "good abort 0");
    world
}

fn restarted(state: &[u8]) -> Result<World, InvalidState> {
    let mut unit = LogicalUnit::new(export());
    unit.restore(state)?;
    let [a, b, c] =
        [("a", 1), ("b", 1), ("c", 2)].map(|(name, port)| unit.attach(nexus(name, port)));
    let mut world = World::with(unit, [a, b, c], state.to_vec());
    for from in [a, b, c] {
        world.check_of(from, &[0; 6], &[], "6/29/00");
    }
    Ok(world)
}

#[test]
fn what_was_asked_to_outlive_a_restart_does() {
    for kind in [1, 3, 5, 6, 7, 8] {
        let mut world = held(kind);
        let mut again = restarted(&world.flash).expect("stored by itself");
        assert_eq!(keys(&mut again), keys(&mut world));
        assert_eq!(reservation(&mut again), reservation(&mut world));
        again.check_of(again.c, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512], "conflict");
        assert!(!again.allows_others(true));
    }
}

#[test]
fn what_was_not_does_not() {
    let mut world = held(1);
    // The last registration counts.
    let (cdb, list) = out(Action::Register, 0, 2, 3, 0);
    world.check_of(world.b, &cdb, &list, "good abort 0");
    assert_eq!(world.flash, [0; 0]);
    let (cdb, list) = out(Action::Release, 1, 1, 0, 0);
    world.check(&cdb, &list, "good");
    let mut again = restarted(&[]).expect("nothing");
    assert_eq!((keys(&mut again), reservation(&mut again)), (vec![], None));
}

#[test]
fn every_change_of_what_outlives_a_restart_is_to_be_stored() {
    let mut world = held(5);
    for (from, (cdb, list)) in [
        (world.a, out(Action::Release, 5, 1, 0, 0)),
        (world.b, out(Action::Reserve, 3, 2, 0, 0)),
        (world.a, out(Action::Preempt, 1, 1, 2, 0)),
        (world.a, out(Action::Clear, 0, 1, 0, 0)),
    ] {
        let before = world.flash.clone();
        world.attentions(from);
        world.check_of(from, &cdb, &list, "good abort 0");
        assert_ne!(world.flash, before);
    }
}

#[test]
fn nothing_is_stored_once_nobody_is_registered() {
    let mut world = held(5);
    let (cdb, list) = out(Action::Clear, 0, 1, 0, 0);
    world.check(&cdb, &list, "good abort 0");
    assert_eq!(world.flash, [0; 0]);
    let mut world = held(5);
    for (from, key) in [(world.b, 2), (world.a, 1)] {
        let (cdb, list) = out(Action::Register, 0, key, 0, APTPL | ALL_TG_PT);
        world.check_of(from, &cdb, &list, "good abort 0");
    }
    assert_eq!(world.flash, [0; 0]);
}

#[test]
fn a_change_is_not_in_force_until_it_is_stored() {
    let mut world = held(1);
    world.attentions(world.b);
    let before = (keys(&mut world), reservation(&mut world));
    let register = out(Action::RegisterAndIgnore, 0, 0, 9, 0);
    let (cdb, list) = out(Action::Release, 1, 1, 0, 0);
    let state = match world.begin(world.a, &cdb, &list) {
        Outcome::Store(state) => state,
        other => panic!("{other:?}"),
    };
    for _ in 0..2 {
        assert_eq!((keys(&mut world), reservation(&mut world)), before);
        world.check_of(world.c, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512], "conflict");
        assert!(!world.allows_others(true));
        // Who else would change something comes again.
        world.check_of(world.b, &register.0, &register.1, "Busy");
        for reserve in [0x16, 0x17] {
            world.check_of(world.c, &[reserve, 0, 0, 0, 0, 0], &[], "Busy");
        }
        world.unit.reset();
        for nexus in [world.a, world.b, world.c] {
            world.attentions(nexus);
        }
    }
    // Whoever asked may be gone: a restart would find it released.
    world.unit.detach(world.a);
    assert_eq!(world.unit.stored(true), (Response::GOOD, vec![]));
    world.a = world.unit.attach(nexus("a", 1));
    world.attentions(world.a);
    assert_eq!((keys(&mut world), reservation(&mut world)), (before.0, None));
    assert!(world.allows_others(true));
    let mut again = restarted(&state).expect("stored by itself");
    assert_eq!((keys(&mut again), reservation(&mut again)), (keys(&mut world), None));
}

#[test]
fn what_cannot_be_stored_changes_nothing() {
    let mut world = held(5);
    world.flash_fails = true;
    let before = (keys(&mut world), reservation(&mut world));
    for (from, (cdb, list)) in [
        (world.a, out(Action::Release, 5, 1, 0, 0)),
        (world.b, out(Action::PreemptAndAbort, 3, 2, 1, 0)),
        (world.c, out(Action::Register, 0, 0, 3, APTPL)),
        (world.b, out(Action::Register, 0, 2, 0, 0)),
        (world.a, out(Action::Clear, 0, 1, 0, 0)),
    ] {
        world.attentions(from);
        world.check_of(from, &cdb, &list, "4/44/00");
        assert_eq!((keys(&mut world), reservation(&mut world)), before);
        assert_eq!(world.attentions(world.b), [""; 0]);
    }
    world.flash_fails = false;
    let (cdb, list) = out(Action::Clear, 0, 1, 0, 0);
    world.check(&cdb, &list, "good abort 0");
    assert!(keys(&mut world).is_empty());
    let mut again = restarted(&world.flash).expect("stored by itself");
    assert_eq!((keys(&mut again), reservation(&mut again)), (vec![], None));
}

#[test]
fn more_registrations_than_can_be_stored_are_refused_where_they_are_to_be() {
    let mut world = World::of(Export { store_max: 100, ..export() });
    let (cdb, list) = out(Action::Register, 0, 0, 1, APTPL);
    world.check(&cdb, &list, "good abort 0");
    world.check_of(world.b, &cdb, &list, "good abort 0");
    assert!(world.flash.len() <= 100 && world.flash.len() > 60);
    world.check_of(world.c, &cdb, &list, "5/55/04");
    // The last registration counts, for all.
    let (cdb, list) = out(Action::Register, 0, 0, 1, 0);
    world.check_of(world.c, &cdb, &list, "good abort 0");
    assert_eq!((keys(&mut world), world.flash), (vec![1, 1, 1], vec![]));
}

#[test]
fn the_stored_form_is_the_documented_one() {
    let mut world = World::new();
    let (cdb, list) = out(Action::Register, 0, 0, 0x1122, APTPL);
    world.check(&cdb, &list, "good abort 0");
    let (cdb, list) = out(Action::Reserve, 3, 0x1122, 0, 0);
    world.check(&cdb, &list, "good abort 0");
    let bytes = world.flash;
    let mut expect = b"FBSCSIPR".to_vec();
    expect.extend(&bytes[8..12]);
    expect.extend([1, 0, 1, 0, 3, 0, 0, 0]);
    expect.extend([0x22, 0x11, 0, 0, 0, 0, 0, 0, 1, 0, 0x40, 0, 0, 0, 0, 1, 21]);
    expect.extend(b"iqn.2026-01.example:a");
    assert_eq!(bytes, expect);
    assert_eq!(forebay_core::sealed::crc32c(&bytes[12..]).to_le_bytes(), bytes[8..12]);
}

#[test]
fn damage_is_found_wherever_it_is() {
    let bytes = held(1).flash;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(restarted(&damaged).is_err(), "byte {at}");
        assert!(at == 0 || restarted(&bytes[..at]).is_err(), "cut at {at}");
    }
    assert!(restarted(&[&bytes[..], &[0]].concat()).is_err());
}

/// Puts the right checksum on.
#[cfg(not(feature = "planted-bugs"))]
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 12 {
        let checksum = forebay_core::sealed::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

#[cfg(not(feature = "planted-bugs"))]
proptest! {
    #[test]
    fn what_is_read_back_is_consistent_or_refused(
        changes in proptest::collection::vec((0_usize..200, any::<u8>()), 1..6),
        cut in 0_usize..400,
    ) {
        let mut bytes = held(6).flash;
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(12 + at) {
                *byte = value;
            }
        }
        bytes.truncate(cut.max(12));
        if let Ok(mut world) = restarted(&sealed(bytes)) {
            let held = world.unit.persistent.reservation.clone();
            let registrations = &world.unit.persistent.registrations;
            prop_assert!(registrations.iter().all(|it| it.key != 0));
            if let Some(held) = held {
                prop_assert_eq!(held.holder.is_none(), held.kind.is_of_all());
                prop_assert!(!registrations.is_empty());
                prop_assert!(held.holder.is_none_or(|it| registrations.iter().any(|r| r.nexus == it)));
            }
            world.data(&[0x5e, 3, 0, 0, 0, 0, 0, 0xff, 0xff, 0]);
        }
    }
}
