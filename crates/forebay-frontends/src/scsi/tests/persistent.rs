//! PERSISTENT RESERVE IN and OUT.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Action {
    Register = 0,
    Reserve = 1,
    Release = 2,
    Clear = 3,
    Preempt = 4,
    PreemptAndAbort = 5,
    RegisterAndIgnore = 6,
}

pub(super) const APTPL: u8 = 1;
pub(super) const ALL_TG_PT: u8 = 4;
pub(super) const SPEC_I_PT: u8 = 8;

/// A PERSISTENT RESERVE OUT and its parameter list.
pub(super) fn out(
    action: Action,
    kind: u8,
    key: u64,
    new_key: u64,
    flags: u8,
) -> (Vec<u8>, Vec<u8>) {
    let mut list = [key.to_be_bytes(), new_key.to_be_bytes()].concat();
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    (vec![0x5f, action as u8, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// A REGISTER AND MOVE.
pub(super) fn move_to(key: u64, new_key: u64, flags: u8, to: &Nexus) -> (Vec<u8>, Vec<u8>) {
    let id = transport_id(&to.initiator.name, ",i,0x400000000001");
    let mut list = [key.to_be_bytes(), new_key.to_be_bytes()].concat();
    list.extend([0, flags]);
    list.extend(to.port.to_be_bytes());
    list.extend((id.len() as u32).to_be_bytes());
    list.extend(id);
    (vec![0x5f, 7, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], list)
}

fn transport_id(name: &str, isid: &str) -> Vec<u8> {
    let text = format!("{name}{isid}");
    let len = (text.len() + 1).next_multiple_of(4).max(20);
    let mut bytes = vec![0x45, 0, 0, len as u8];
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(4 + len, 0);
    bytes
}

fn with_ids(mut list: Vec<u8>, ids: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let ids = ids.concat();
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(ids);
    (vec![0x5f, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], list)
}

pub(super) fn keys(world: &mut World) -> Vec<u64> {
    let bytes = world.observe(&[0x5e, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0]);
    assert_eq!(bytes[4..8], (bytes.len() as u32 - 8).to_be_bytes());
    bytes[8..]
        .chunks(8)
        .map(|key| u64::from_be_bytes(key.try_into().expect("eight bytes")))
        .collect()
}

pub(super) fn generation(world: &mut World) -> u32 {
    let bytes = world.observe(&[0x5e, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0]);
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// Key and type of the reservation.
pub(super) fn reservation(world: &mut World) -> Option<(u64, u8)> {
    let bytes = world.observe(&[0x5e, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0]);
    assert_eq!(bytes[4..8], (bytes.len() as u32 - 8).to_be_bytes());
    let key = bytes.get(8..16)?.try_into().expect("eight bytes");
    Some((u64::from_be_bytes(key), bytes[21]))
}

impl World {
    #[track_caller]
    fn out(&mut self, from: NexusId, it: (Vec<u8>, Vec<u8>), expect: &str) {
        let (cdb, list) = it;
        self.check_of(from, &cdb, &list, expect);
    }

    /// A and B registered with keys 1 and 2, and A holds a reservation of `kind`.
    fn held(kind: u8) -> World {
        let mut world = World::new();
        world.out(world.a, out(Action::Register, 0, 0, 1, 0), "good");
        world.out(world.b, out(Action::Register, 0, 0, 2, 0), "good");
        world.out(world.a, out(Action::Reserve, kind, 1, 0, 0), "good");
        world
    }

    /// Data that another nexus is sent, which has nothing to be told first.
    fn observe(&mut self, bytes: &[u8]) -> Vec<u8> {
        let a = std::mem::replace(&mut self.a, self.unit.attach(nexus("observer", 1)));
        assert_eq!(self.attentions(self.a), ["6/29/00"]);
        let data = self.data(bytes);
        self.unit.detach(self.a);
        self.a = a;
        data
    }

    /// The unit attentions that wait for a nexus.
    pub(super) fn attentions(&mut self, of: NexusId) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            match words(&self.send(of, &[0; 6], &[])) {
                text if text == "good" => return told,
                text => told.push(text),
            }
        }
    }
}

#[test]
fn registering_needs_the_key_that_is_registered() {
    let mut world = World::new();
    let a = world.a;
    world.out(a, out(Action::Register, 0, 9, 1, 0), "conflict");
    world.out(a, out(Action::Register, 0, 0, 0, 0), "good");
    assert_eq!((keys(&mut world), generation(&mut world)), (vec![], 0));
    world.out(a, out(Action::Register, 0, 0, 1, 0), "good");
    world.out(a, out(Action::Register, 0, 0, 2, 0), "conflict");
    world.out(a, out(Action::Register, 0, 1, 2, 0), "good");
    world.out(a, out(Action::RegisterAndIgnore, 0, 77, 3, 0), "good");
    assert_eq!((keys(&mut world), generation(&mut world)), (vec![3], 3));
    world.out(world.b, out(Action::Reserve, 1, 0, 0, 0), "conflict");
    world.out(a, out(Action::Reserve, 1, 2, 0, 0), "conflict");
    world.out(a, out(Action::Register, 0, 3, 0, 0), "good");
    assert_eq!((keys(&mut world), generation(&mut world)), (vec![], 4));
}

#[test]
fn a_reservation_is_taken_once_and_released_by_its_type() {
    let mut world = World::held(1);
    let (a, b) = (world.a, world.b);
    assert_eq!(reservation(&mut world), Some((1, 1)));
    world.out(a, out(Action::Reserve, 1, 1, 0, 0), "good");
    world.out(a, out(Action::Reserve, 3, 1, 0, 0), "conflict");
    world.out(b, out(Action::Reserve, 1, 2, 0, 0), "conflict");
    world.out(b, out(Action::Release, 1, 2, 0, 0), "good");
    world.out(a, out(Action::Release, 3, 1, 0, 0), "5/26/04");
    world.out(a, out(Action::Release, 2, 1, 0, 0), "5/24/00 at cdb 2.7");
    world.out(a, out(Action::Reserve, 0x11, 1, 0, 0), "5/24/00 at cdb 2.7");
    world.out(a, out(Action::Release, 1, 1, 0, 0), "good");
    assert_eq!(reservation(&mut world), None);
    world.out(a, out(Action::Release, 1, 1, 0, 0), "good");
    assert_eq!(world.attentions(b), [""; 0]);
    // One of all registrants is held by all of them, with key 0.
    world.out(a, out(Action::Reserve, 7, 1, 0, 0), "good");
    assert_eq!(reservation(&mut world), Some((0, 7)));
    world.out(b, out(Action::Reserve, 7, 2, 0, 0), "good");
    world.out(b, out(Action::Release, 7, 2, 0, 0), "good");
    assert_eq!(world.attentions(a), ["6/2a/04"]);
}

#[test]
fn a_reservation_ends_when_who_holds_it_unregisters() {
    for (kind, expect, told) in [
        (1, None, vec![]),
        (3, None, vec![]),
        (5, None, vec!["6/2a/04"]),
        (6, None, vec!["6/2a/04"]),
        (7, Some((0, 7)), vec![]),
        (8, Some((0, 8)), vec![]),
    ] {
        let mut world = World::held(kind);
        world.out(world.a, out(Action::Register, 0, 1, 0, 0), "good");
        assert_eq!(reservation(&mut world), expect);
        assert_eq!(world.attentions(world.b), told);
        world.out(world.b, out(Action::Register, 0, 2, 0, 0), "good");
        assert_eq!(reservation(&mut world), None);
    }
}

#[test]
fn clear_takes_everything_away() {
    let mut world = World::held(5);
    world.out(world.c, out(Action::Clear, 0, 0, 0, 0), "conflict");
    world.out(world.b, out(Action::Clear, 0, 2, 0, 0), "good");
    assert_eq!((keys(&mut world), generation(&mut world)), (vec![], 3));
    assert_eq!(reservation(&mut world), None);
    assert_eq!(world.attentions(world.a), ["6/2a/03"]);
    assert_eq!(world.attentions(world.b), [""; 0]);
}

#[test]
fn preempt_takes_registrations_and_what_they_hold() {
    // Without a reservation, or of another key than the holder's: registrations alone.
    let mut world = World::held(1);
    let (a, b, c) = (world.a, world.b, world.c);
    world.out(c, out(Action::Register, 0, 0, 2, 0), "good");
    world.out(a, out(Action::Preempt, 3, 1, 2, 0), "good");
    assert_eq!((keys(&mut world), reservation(&mut world)), (vec![1], Some((1, 1))));
    assert_eq!(
        (world.attentions(b), world.attentions(c)),
        (vec!["6/2a/05".into()], vec!["6/2a/05".into()])
    );
    world.out(a, out(Action::Preempt, 3, 1, 2, 0), "conflict");
    world.out(a, out(Action::Preempt, 3, 1, 0, 0), "5/26/00 at 8");

    // Of the holder's key: the reservation, with a new type.
    let mut world = World::held(1);
    world.out(world.c, out(Action::Register, 0, 0, 3, 0), "good");
    world.out(world.b, out(Action::Preempt, 2, 2, 1, 0), "5/24/00 at cdb 2.7");
    world.out(world.b, out(Action::Preempt, 6, 2, 1, 0), "good");
    assert_eq!((keys(&mut world), reservation(&mut world)), (vec![2, 3], Some((2, 6))));
    assert_eq!(world.attentions(world.a), ["6/2a/05"]);
    assert_eq!(world.attentions(world.c), ["6/2a/04"]);

    // Of all registrants: key 0 takes it, another key does not.
    let mut world = World::held(8);
    world.out(world.c, out(Action::Register, 0, 0, 3, 0), "good");
    world.out(world.b, out(Action::Preempt, 3, 2, 3, 0), "good");
    assert_eq!((keys(&mut world), reservation(&mut world)), (vec![1, 2], Some((0, 8))));
    world.out(world.b, out(Action::Preempt, 3, 2, 0, 0), "good");
    assert_eq!((keys(&mut world), reservation(&mut world)), (vec![2], Some((2, 3))));
}

#[test]
fn preempt_and_abort_names_whose_tasks_are_to_end() {
    let mut world = World::held(1);
    let (cdb, list) = out(Action::PreemptAndAbort, 1, 2, 1, 0);
    let outcome = world.send(world.b, &cdb, &list);
    let abort = vec![world.a];
    assert_eq!(outcome, Outcome::Settle { response: Response::GOOD, abort });
    // Its own tasks go on.
    world.out(world.b, out(Action::PreemptAndAbort, 1, 2, 2, 0), "good");
    assert_eq!(reservation(&mut world), Some((2, 1)));
}

#[test]
fn all_target_ports_are_registered_at_once() {
    let mut world = World::new();
    world.out(world.a, out(Action::Register, 0, 0, 1, ALL_TG_PT), "good");
    assert_eq!(keys(&mut world), [1, 1, 1]);
    let through_7 = world.unit.attach(nexus("a", 7));
    assert_eq!(world.attentions(through_7), ["6/29/00"]);
    world.out(through_7, out(Action::Reserve, 1, 1, 0, 0), "good");
    assert_eq!(reservation(&mut world), Some((1, 1)));
    world.out(world.a, out(Action::Register, 0, 1, 0, ALL_TG_PT), "good");
    assert_eq!((keys(&mut world), reservation(&mut world)), (vec![], None));
}

#[test]
fn other_initiators_can_be_registered_by_name() {
    let mut world = World::new();
    let ids = |isid: &str| {
        let names = ["b", "d"].map(|name| format!("iqn.2026-01.example:{name}"));
        names.map(|name| transport_id(&name, isid)).to_vec()
    };
    let (_, list) = out(Action::Register, 0, 0, 5, SPEC_I_PT);
    world.out(world.a, with_ids(list.clone(), &ids("")), "5/26/00 at 28");
    world.out(world.a, with_ids(list.clone(), &ids(",i,0xzz")), "5/26/00 at 28");
    world.out(world.a, with_ids(list.clone(), &ids(",i,0x400000000001")), "good");
    assert_eq!(keys(&mut world), [5, 5, 5]);
    world.out(world.b, out(Action::Reserve, 1, 5, 0, 0), "good");
    let (_, again) = out(Action::Register, 0, 5, 6, SPEC_I_PT);
    world.out(world.a, with_ids(again, &ids(",i,0x400000000001")), "5/26/00 at 20");
    world.out(world.c, with_ids(list.clone(), &ids(",i,0x400000000001")), "good");
    assert_eq!(keys(&mut world).len(), 6);
    let (mut cdb, mut list) = with_ids(list, &ids(",i,0x400000000001"));
    list[27] += 1;
    world.out(world.a, (cdb.clone(), list.clone()), "5/1a/00");
    cdb[1] = 6;
    world.out(world.a, (cdb, list), "5/1a/00");
}

#[test]
fn a_reservation_can_be_moved_to_another_nexus() {
    let mut world = World::held(1);
    let (a, b, c) = (world.a, world.b, world.c);
    let to = nexus("c", 2);
    world.out(c, move_to(0, 3, 0, &nexus("a", 1)), "conflict");
    world.out(b, move_to(2, 3, 0, &to), "conflict");
    world.out(a, move_to(1, 0, 0, &to), "5/26/00 at 8");
    world.out(a, move_to(1, 3, 0, &nexus("a", 1)), "5/26/00 at 24");
    world.out(a, move_to(1, 3, 0, &nexus("c", 3)), "5/26/00 at 18");
    world.out(a, move_to(1, 3, 0, &to), "good");
    assert_eq!((keys(&mut world), reservation(&mut world)), (vec![1, 2, 3], Some((3, 1))));
    assert_eq!(world.unit.standing(c), super::super::nexus::Standing::Holder);
    world.out(c, move_to(3, 4, 2, &nexus("a", 1)), "good");
    assert_eq!((keys(&mut world), reservation(&mut world)), (vec![4, 2], Some((4, 1))));
    let mut world = World::held(7);
    world.out(world.a, move_to(1, 3, 0, &to), "conflict");
}

#[test]
fn capabilities_and_full_status_are_told() {
    let mut world = World::held(5);
    let capabilities = world.data(&[0x5e, 2, 0, 0, 0, 0, 0, 0, 255, 0]);
    assert_eq!(capabilities, [0, 8, 0x1d, 0x80, 0xea, 0x01, 0, 0]);
    world.out(world.a, out(Action::RegisterAndIgnore, 0, 0, 1, APTPL), "good abort 0");
    assert_eq!(world.data(&[0x5e, 2, 0, 0, 0, 0, 0, 0, 255, 0])[3], 0x81);

    let status = world.data(&[0x5e, 3, 0, 0, 0, 0, 0, 1, 255, 0]);
    let id = transport_id("iqn.2026-01.example:a", ",i,0x400000000001");
    let mut first = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 1];
    first.extend((id.len() as u32).to_be_bytes());
    first.extend(id);
    assert_eq!(status[8..8 + first.len()], first);
    assert_eq!(status.len(), 8 + 2 * first.len());
    assert_eq!(status[8 + first.len()..][..14], [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.data(&[0x5e, 3, 0, 0, 0, 0, 0, 0, 9, 0]), status[..9]);
    for action in 4..32 {
        world.check(&[0x5e, action, 0, 0, 0, 0, 0, 0, 255, 0], &[], "5/24/00 at cdb 1.4");
    }
    for action in 8..32 {
        world.check(&[0x5f, action, 0, 0, 0, 0, 0, 0, 24, 0], &[0; 24], "5/24/00 at cdb 1.4");
    }
}

#[test]
fn parameter_lists_of_the_wrong_length_are_refused() {
    let mut world = World::new();
    let (cdb, list) = out(Action::Register, 0, 0, 1, 0);
    world.check(&cdb, &list[..23], "5/1a/00");
    for len in [0, 23, 25, 255] {
        let mut cdb = cdb.clone();
        cdb[8] = len;
        world.check(&cdb, &vec![0; len.into()], "5/1a/00");
    }
    let mut world = World::of(Export { store_max: 0, ..export() });
    world.out(world.a, out(Action::Register, 0, 0, 1, APTPL), "5/26/00 at 20");
    assert_eq!(world.data(&[0x5e, 2, 0, 0, 0, 0, 0, 0, 255, 0])[2], 0x1c);
}

#[test]
fn registrations_are_bounded() {
    let mut world = World::new();
    for n in 0..super::super::persistent::REGISTRATIONS_MAX - 1 {
        let id = world.unit.attach(nexus(&format!("n{n}"), 1));
        assert_eq!(world.attentions(id), ["6/29/00"]);
        world.out(id, out(Action::Register, 0, 0, 1, 0), "good");
    }
    world.out(world.a, out(Action::Register, 0, 0, 1, ALL_TG_PT), "5/55/04");
    world.out(world.a, out(Action::Register, 0, 0, 1, 0), "good");
    world.out(world.b, out(Action::Register, 0, 0, 1, 0), "5/55/04");
    world.out(world.a, out(Action::Register, 0, 1, 2, 0), "good");
}
