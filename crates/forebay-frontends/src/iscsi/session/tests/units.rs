use super::*;

const REPORT_LUNS: u8 = 0xa0;

pub(super) fn unit(lun: u16, disk: u32) -> Unit {
    unit_of(Some([7; 16]), lun, disk)
}

/// A disk with an identity, or one that has but its name.
fn unit_of(uuid: Option<[u8; 16]>, lun: u16, disk: u32) -> Unit {
    let export = Export { ports: port(), uuid, ..Export::new("later", SIZE) };
    let logical = LogicalUnit::new(export);
    Unit { lun: Lun::new(lun).unwrap(), logical, disk: DiskId(disk), keeper: None }
}

/// The numbers that a session reports.
fn luns(world: &mut World, session: usize) -> Vec<u8> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[9]) = (REPORT_LUNS, 64);
    let request =
        Command { is_final: true, reads: true, writes: false, attribute: 1, expected_len: 64, cdb };
    let answers = world.send(session, pdu(Request::Command(request), 9), &[]);
    answers[0].data[8..].chunks(8).map(|lun| lun[1]).collect()
}

#[test]
fn sessions_are_told_of_a_unit_that_comes_later_and_have_it() {
    let mut world = World::new(Rules::default(), 2);
    world.device.add(unit(5, 7));
    world.device.add(unit(3, 8));
    assert_eq!(world.device.disks(), [DiskId(0), DiskId(7), DiskId(8)]);
    for session in 0..2 {
        let told = world.send(session, command(0, 1, 0, 0), &[]);
        assert_eq!((told[0].end().0, told[0].sense()), (2, (6, 0x3f, 0x0e)), "once");
        assert_eq!(world.send(session, command(0, 2, 0, 0), &[])[0].end().0, 0);
        assert_eq!(luns(&mut world, session), [0, 3, 5]);
        for lun in [3, 5] {
            // The power on of its own is told, and it is ready.
            let mut test = command(0, 3, 0, 0);
            test.lun = Lun::new(lun).unwrap().encode();
            assert_eq!(world.send(session, test, &[])[0].sense().0, 6);
            while world.send(session, test, &[])[0].end().0 != 0 {}
        }
    }
    // One that was ended meanwhile has nothing of it, and one that comes has all.
    world.device.end_others(0);
    world.device.add(unit(1, 9));
    let newer = begin(&mut world.device, Rules::default(), 9);
    assert!((0..4).all(|unit| world.device.nexus(newer.member(), unit).is_some()));
    assert!((0..4).all(|unit| world.device.nexus(world.sessions[1].member(), unit).is_none()));
}

#[test]
fn a_unit_whose_disk_is_not_served_is_not_there_until_it_is() {
    let mut world = World::new(Rules::default(), 1);
    world.device.add(unit(5, 7));
    while world.send(0, command(0, 1, 0, 0), &[])[0].end().0 != 0 {}
    let mut test = command(0, 3, 0, 0);
    test.lun = Lun::new(5).unwrap().encode();
    while world.send(0, test, &[])[0].end().0 != 0 {}
    for _ in 0..2 {
        let before = world.device.changes();
        world.device.show_served(|disk| disk != DiskId(7));
        world.device.show_served(|disk| disk != DiskId(7));
        assert_eq!(world.device.changes(), before + 1);
        assert_eq!(world.device.disks(), [DiskId(0)]);
        assert_eq!(luns(&mut world, 0), [0]);
        assert_eq!(world.send(0, test, &[])[0].sense(), (5, 0x25, 0), "no such unit");
        assert_eq!(world.send(0, command(0, 4, 0, 0), &[])[0].sense(), (6, 0x3f, 0x0e));
        assert_eq!(world.send(0, command(0, 4, 0, 0), &[])[0].end().0, 0);
        world.device.show_served(|_| true);
        assert_eq!(world.device.disks(), [DiskId(0), DiskId(7)]);
        assert_eq!(luns(&mut world, 0), [0, 5]);
        assert_eq!(world.send(0, test, &[])[0].end().0, 0);
        assert_eq!(world.send(0, command(0, 4, 0, 0), &[])[0].sense(), (6, 0x3f, 0x0e));
        assert_eq!(world.send(0, command(0, 4, 0, 0), &[])[0].end().0, 0);
    }
}

/// What a session is told of a unit until it is ready: the codes.
fn told(world: &mut World, session: usize, lun: u16) -> Vec<(u8, u8)> {
    let mut test = command(0, 3, 0, 0);
    test.lun = Lun::new(lun).unwrap().encode();
    let mut all = Vec::new();
    loop {
        let answers = world.send(session, test, &[]);
        if answers[0].end().0 == 0 {
            return all;
        }
        let (key, code, qualifier) = answers[0].sense();
        all.push((code, qualifier));
        if key != 6 {
            return all;
        }
    }
}

const POWER_ON: (u8, u8) = (0x29, 0);
const LUNS: (u8, u8) = (0x3f, 0x0e);
const IDENTITY: (u8, u8) = (0x3f, 0x03);

#[test]
fn a_number_goes_to_another_disk_when_its_own_has_ended_and_whoever_comes_hears_of_it() {
    let mut world = World::new(Rules::default(), 1);
    let five = Lun::new(5).unwrap();
    let (old, new) = (Some([1; 16]), Some([2; 16]));
    world.device.add(unit_of(old, 5, 7));
    assert!(!world.device.has_room_for(five) && world.device.has_room_for(Lun::new(6).unwrap()));
    // It is detached: one that comes meanwhile does not see it.
    world.device.show_served(|disk| disk != DiskId(7));
    world.sessions[0] = begin(&mut world.device, Rules::default(), 0);
    assert_eq!(told(&mut world, 0, 0), [POWER_ON]);
    assert_eq!(told(&mut world, 0, 5), [(0x25, 0)]);
    assert!(!world.device.has_room_for(five), "its detach may be cancelled");
    world.device.end_disk(DiskId(7));
    // Nor does it come back.
    world.device.show_served(|_| true);
    assert_eq!(luns(&mut world, 0), [0]);
    // The same disk, as initiators know it, then another one, and the first one once more.
    for (identity, disk, expect) in [
        (old, 8, &[POWER_ON][..]),
        (new, 9, &[POWER_ON, IDENTITY]),
        (new, 10, &[POWER_ON, IDENTITY]),
        (old, 11, &[POWER_ON, IDENTITY]),
    ] {
        assert!(world.device.has_room_for(five));
        world.device.add(unit_of(identity, 5, disk));
        assert_eq!(world.device.units.len(), 2, "in the place of the one before");
        assert_eq!(world.device.disks(), [DiskId(0), DiskId(disk)]);
        assert_eq!(luns(&mut world, 0), [0, 5]);
        assert_eq!(told(&mut world, 0, 0), [LUNS]);
        assert_eq!(told(&mut world, 0, 5), expect, "{disk}");
        world.sessions[0] = begin(&mut world.device, Rules::default(), 0);
        assert_eq!(told(&mut world, 0, 5), expect, "{disk}");
        assert_eq!(told(&mut world, 0, 0), [POWER_ON]);
        world.device.end_disk(DiskId(disk));
        assert_eq!(told(&mut world, 0, 0), [LUNS]);
        assert_eq!(told(&mut world, 0, 5), [(0x25, 0)]);
    }
}

#[test]
fn a_target_serves_thousands_of_disks_one_after_the_other() {
    let mut world = World::new(Rules::default(), 1);
    for disk in 1..5_000 {
        let lun = 1 + disk % 255;
        assert!(world.device.has_room_for(Lun::new(lun as u16).unwrap()));
        world.device.add(unit_of(None, lun as u16, disk));
        let identity: &[_] = if disk > 255 { &[IDENTITY] } else { &[] };
        assert_eq!(told(&mut world, 0, lun as u16), [&[POWER_ON], identity].concat());
        world.device.end_disk(DiskId(disk));
    }
    assert_eq!(world.device.units.len(), 256);
    assert_eq!(world.device.disks(), [DiskId(0)]);
}

#[test]
fn a_number_is_not_free_while_a_task_of_its_disk_is_under_way() {
    let mut world = World::new(Rules::default(), 1);
    let zero = Lun::new(0).unwrap();
    world.device.add(unit(5, 7));
    told(&mut world, 0, 0);
    assert!(world.send(0, command(READ, 7, 1, 512), &[]).is_empty());
    world.device.end_disk(DiskId(0));
    assert!(!world.device.has_room_for(zero));
    let session = &mut world.sessions[0];
    session.end(&mut world.device);
    assert!(world.device.has_room_for(zero));
}

#[test]
fn a_number_is_not_free_while_an_initiator_that_was_cut_off_may_have_writes_for_the_disk() {
    let mut device = Device::new(vec![unit(5, 7)]);
    let initiator = |isid| Initiator { name: "iqn.x:a".to_owned(), isid: [isid; 6] };
    let leave = |device: &mut Device, session, logs_out: bool| {
        if logs_out {
            device.log_out(session);
        }
        device.leave(session);
    };
    // One logs out, one is cut off, and one comes back over its old session.
    let sessions = [1, 2, 3, 3].map(|isid| device.join(initiator(isid), 1, None));
    for (session, logs_out) in sessions.into_iter().zip([true, false, false, true]) {
        leave(&mut device, session, logs_out);
    }
    device.end_disk(DiskId(7));
    assert!(device.cut_off_from(&unit(5, 8)).is_empty(), "the same disk");
    device.add(unit(5, 8));
    device.end_disk(DiskId(8));
    let is_free = |device: &Device| device.cut_off_from(&unit_of(None, 5, 8)).is_empty();
    assert_eq!(device.cut_off_from(&unit_of(None, 5, 8)), [initiator(2)]);
    let other = device.join(initiator(9), 1, None);
    assert!(!is_free(&device), "that is another one");
    let back = device.join(initiator(2), 1, None);
    assert!(is_free(&device), "it has seen that the unit is gone");
    for session in [other, back] {
        leave(&mut device, session, false);
    }
    assert!(is_free(&device), "nobody was cut off from a unit that had ended");
}

#[test]
fn an_initiator_waits_for_a_unit_that_is_to_come() {
    let mut world = World::new(Rules::default(), 1);
    world.device.set_awaited([0, 4]);
    let mut test = command(0, 3, 0, 0);
    let mut status = |world: &mut World, lun| {
        test.lun = Lun::new(lun).unwrap().encode();
        world.send(0, test, &[])[0].end().0
    };
    assert_eq!(status(&mut world, 4), Status::Busy as u8);
    assert_eq!(status(&mut world, 5), Status::CheckCondition as u8, "no such unit");
    assert_eq!(luns(&mut world, 0), [0]);
    world.device.add(unit(4, 7));
    world.device.end_disk(DiskId(7));
    assert_eq!(status(&mut world, 4), Status::CheckCondition as u8, "it has gone");
}
