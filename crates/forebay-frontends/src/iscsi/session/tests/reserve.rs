use std::sync::{Arc, Mutex};

use super::*;
use crate::client::Permission;
use crate::iscsi::device::Keeper;

#[test]
fn clients_of_other_protocols_are_told_whenever_a_reservation_changes() {
    const RESERVE: u8 = 0x16;
    const RELEASE: u8 = 0x17;
    let mut world = World::new(Rules::default(), 2);
    let told = |world: &mut World| -> Vec<Permission> {
        std::iter::from_fn(|| world.device.next_access()).map(|(_, access)| access).collect()
    };
    let reserve = |world: &mut World| {
        // A reset is told first.
        while world.send(0, command(0, 1, 0, 0), &[])[0].end().0 != 0 {}
        assert_eq!(world.send(0, command(RESERVE, 1, 0, 0), &[])[0].end().0, 0);
        assert_eq!(told(world), [Permission::Nothing]);
    };
    assert!(told(&mut world).is_empty());
    reserve(&mut world);
    world.send(0, command(0, 1, 0, 0), &[]);
    assert!(told(&mut world).is_empty(), "once");
    world.send(0, command(RELEASE, 1, 0, 0), &[]);
    assert_eq!(told(&mut world), [Permission::All]);
    for function in [5, 6] {
        reserve(&mut world);
        world.send(1, manage(function, 0), &[]);
        assert_eq!(told(&mut world), [Permission::All], "function {function}");
    }
    reserve(&mut world);
    let newer = begin(&mut world.device, Rules::default(), 0);
    assert_eq!(told(&mut world), [Permission::All], "the older session is over");
    world.device.leave(newer.member());
    // Write Exclusive, held by a registrant, who need not stay.
    let mut world = World::one(Rules::default());
    for (action, kind, keys) in [(6, 0, [0, 7]), (1, 1, [7, 0])] {
        let list = [&keys.map(u64::to_be_bytes).concat()[..], &[0; 8]].concat();
        let mut pdu = command(0x5f, 1, 0, 24);
        let Request::Command(it) = &mut pdu.request else { unreachable!() };
        (it.cdb[1], it.cdb[2], it.cdb[8]) = (action, kind, 24);
        (it.reads, it.writes) = (false, true);
        assert_eq!(world.send(0, pdu, &list)[0].end().0, 0);
    }
    assert_eq!(told(&mut world), [Permission::Reads]);
    let member = world.sessions[0].member();
    world.device.leave(member);
    assert!(told(&mut world).is_empty());
}

/// Keeps what it is given until it is asked.
#[derive(Clone, Debug, Default)]
struct Later(Arc<Mutex<Vec<Given>>>);

struct Given(Box<dyn FnOnce(bool) + Send>);

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Given")
    }
}

impl Keeper for Later {
    fn keep(&mut self, _state: Vec<u8>, answer: Box<dyn FnOnce(bool) + Send>) {
        self.0.lock().unwrap().push(Given(answer));
    }
}

impl Later {
    fn answer(&self, is_stored: bool) {
        let Given(answer) = self.0.lock().unwrap().pop().expect("something is to be stored");
        answer(is_stored);
    }
}

/// A world of two sessions whose unit can store its reservations, and the first one's REGISTER under way.
fn storing() -> (World, Later) {
    let later = Later::default();
    let mut world = World::new(Rules::default(), 2);
    let export = Export { store_max: 4008, ..world.device.units[0].logical.export().clone() };
    let members: Vec<usize> = world.sessions.iter().map(Session::member).collect();
    members.into_iter().for_each(|member| world.device.leave(member));
    world.device.units[0].logical = LogicalUnit::new(export);
    world.device.units[0].keeper = Some(Box::new(later.clone()));
    world.sessions = (0..2).map(|isid| begin(&mut world.device, Rules::default(), isid)).collect();
    for session in 0..2 {
        while world.send(session, command(0, 1, 0, 0), &[])[0].end().0 != 0 {}
    }
    let (pdu, list) = register(7, 5);
    assert!(world.send(0, pdu, &list).is_empty());
    (world, later)
}

/// REGISTER AND IGNORE EXISTING KEY, which is to outlive a restart.
fn register(tag: u32, key: u64) -> (Pdu, Vec<u8>) {
    let list = [&[0; 8][..], &key.to_be_bytes(), &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    let mut pdu = command(0x5f, tag, 0, 24);
    let Request::Command(it) = &mut pdu.request else { unreachable!() };
    (it.cdb[1], it.cdb[8], it.writes) = (6, 24, true);
    (pdu, list)
}

/// Keys that are registered, as a session sees them.
fn keys(world: &mut World, session: usize) -> usize {
    // A reset is told first.
    while world.send(session, command(0, 91, 0, 0), &[])[0].end().0 != 0 {}
    let mut pdu = command(0x5e, 90, 255, 255);
    let Request::Command(it) = &mut pdu.request else { unreachable!() };
    it.reads = true;
    (world.send(session, pdu, &[])[0].data.len() - 8) / 8
}

#[test]
fn what_is_to_outlive_a_restart_is_answered_when_it_is_stored() {
    for is_stored in [true, false] {
        let (mut world, later) = storing();
        assert_eq!(world.send(0, command(0, 8, 0, 0), &[])[0].end().0, 0, "others go on");
        let (pdu, list) = register(9, 6);
        assert_eq!(world.send(1, pdu, &list)[0].end().0, 0x08, "come again");
        assert_eq!(keys(&mut world, 1), 0);
        assert!(called(&mut world, 0).is_empty());
        later.answer(is_stored);
        // Another session finds it first.
        assert!(called(&mut world, 1).is_empty());
        let answers = called(&mut world, 0);
        assert_eq!((answers.len(), answers[0].tag()), (1, 7));
        assert_eq!(answers[0].end().0, if is_stored { 0 } else { 2 });
        assert!(is_stored || answers[0].sense() == (4, 0x44, 0));
        assert_eq!(keys(&mut world, 1), usize::from(is_stored));
        assert_eq!(world.sessions[0].in_flight(), 0);
    }
}

#[test]
fn what_was_stored_counts_without_whoever_asked_for_it() {
    // Aborted; spared by another's reset, and answered; ended by a newer session; gone, and its place taken.
    for how in 0..4 {
        let (mut world, later) = storing();
        match how {
            0 => assert_eq!(world.send(0, manage(1, 7), &[])[0].header[2], 0),
            1 => {
                later.answer(true);
                world.send(1, manage(6, 0), &[]);
            }
            2 => drop(begin(&mut world.device, Rules::default(), 0)),
            _ => {
                let member = world.sessions[0].member();
                world.device.leave(member);
                world.sessions[0] = begin(&mut world.device, Rules::default(), 7);
                while world.send(0, command(0, 1, 0, 0), &[])[0].end().0 != 0 {}
            }
        }
        if how != 1 {
            later.answer(true);
        }
        assert_eq!(called(&mut world, 0).len(), usize::from(how == 1), "{how}");
        assert_eq!(world.sessions[0].in_flight(), 0, "{how}");
        assert_eq!(keys(&mut world, 1), 1, "{how}");
    }
}

#[test]
fn the_number_of_a_unit_is_free_when_its_keeper_has_answered() {
    let (mut world, later) = storing();
    let zero = Lun::new(0).unwrap();
    world.device.leave(world.sessions[0].member());
    world.sessions[0].end(&mut world.device);
    world.device.end_disk(DiskId(0));
    assert!(!world.device.has_room_for(zero));
    later.answer(true);
    assert!(world.device.has_room_for(zero));
}
