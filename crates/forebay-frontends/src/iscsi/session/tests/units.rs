use super::*;

const REPORT_LUNS: u8 = 0xa0;

fn unit(lun: u16, disk: u32) -> Unit {
    let export = Export { ports: port(), ..Export::new("later", SIZE) };
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
