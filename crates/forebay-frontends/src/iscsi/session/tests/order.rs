use super::*;

/// A command with a task attribute.
fn attributed(pdu: Pdu, value: u8) -> Pdu {
    let Request::Command(it) = pdu.request else { unreachable!() };
    Pdu { request: Request::Command(Command { attribute: value, ..it }), ..pdu }
}

const FLUSH: u8 = 0x35;
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;

#[test]
fn an_ordered_task_waits_for_all_before_and_holds_up_all_after_of_any_session() {
    let mut world = World::new(Rules::default(), 2);
    let asked = world.send(1, command(WRITE, 1, 1, 512), &[]);
    assert!(world.send(0, attributed(command(READ, 2, 1, 512), ORDERED), &[]).is_empty());
    assert!(world.send(1, command(READ, 3, 1, 512), &[]).is_empty());
    let ready = |world: &mut World| {
        let World { sessions, device, .. } = world;
        let tag = |session: &mut Session| {
            Some(session.ready(device, &Passed::default())?).map(|key| session.task(key).tag)
        };
        [tag(&mut sessions[0]), tag(&mut sessions[1])]
    };
    assert_eq!(ready(&mut world), [None, None], "the first has no data yet");
    world.send(1, data_out(1, asked[0].word(20), 0, 0, true), &[1; 512]);
    assert_eq!(ready(&mut world), [None, Some(1)]);
    assert!(world.send(0, attributed(command(READ, 4, 1, 512), HEAD_OF_QUEUE), &[]).is_empty());
    assert_eq!(ready(&mut world), [Some(4), Some(1)]);
    world.work(0);
    assert_eq!(ready(&mut world), [None, Some(1)]);
    world.work(1);
    assert_eq!(ready(&mut world), [Some(2), None]);
    world.sessions[0].start();
    assert_eq!(ready(&mut world), [None, None], "while it is at work");
    // Also one that is aborted has to end first.
    world.send(0, manage(1, 2), &[]);
    assert_eq!(ready(&mut world), [None, None]);
    let key = (0..4).find(|key| world.sessions[0].tasks.get(*key).is_some()).unwrap();
    world.sessions[0].retire(&mut world.device, key);
    assert_eq!(ready(&mut world), [None, Some(3)]);
    world.work(1);
    assert_eq!(world.sessions[0].in_flight() + world.sessions[1].in_flight(), 0);
}

#[test]
fn a_task_that_is_answered_when_its_data_have_come_holds_up_nobody_until_then() {
    let rules = Rules { initial_r2t: false, ..Rules::default() };
    let waits_for_nobody = |world: &mut World| {
        world.send(0, command(READ, 9, 1, 512), &[]);
        let World { sessions, device, .. } = world;
        let key = sessions[0].ready(device, &Passed::default()).expect("it may begin");
        assert_eq!(sessions[0].task(key).tag, 9);
        assert_eq!(sessions[1].in_flight(), 1, "its data are to come");
    };
    // Another session aborts it.
    let mut world = World::new(rules, 2);
    world.send(1, attributed(command(WRITE, 7, 1, 512), ORDERED), &[]);
    world.send(0, manage(4, 0), &[]);
    assert!(called(&mut world, 1).is_empty());
    waits_for_nobody(&mut world);
    // In the middle of a PDU that goes to its memory.
    let mut world = World::new(rules, 2);
    let asked = world.send(1, attributed(command(WRITE, 7, 1, 512), ORDERED), &[]);
    let data = Pdu { data_len: 512, ..data_out(7, asked[0].word(20), 0, 0, true) };
    assert!(world.feed(1, &data.encode()).unwrap().is_empty());
    world.sessions[1].is_receiving_direct = true;
    world.send(0, manage(4, 0), &[]);
    assert!(called(&mut world, 1).is_empty());
    waits_for_nobody(&mut world);
    // Something is wrong with it: there is no such block.
    let mut world = World::new(rules, 2);
    let mut wrong = open(attributed(command(WRITE, 7, 1, 512), ORDERED));
    let Request::Command(it) = &mut wrong.request else { unreachable!() };
    it.cdb[2] = 0xff;
    assert!(world.send(1, wrong, &[]).is_empty());
    waits_for_nobody(&mut world);
}

#[test]
fn a_task_that_waits_for_its_turn_takes_no_memory_from_those_before() {
    let mut world = World::new(Rules::default(), 2);
    world.send(0, attributed(command(READ, 1, 1, 512), ORDERED), &[]);
    let (session, device) = (&mut world.sessions[1], &mut world.device);
    let bytes = Pdu { cmd_sn: session.counts.exp_cmd_sn, ..command(WRITE, 2, 1, 512) }.encode();
    let mut out = Vec::new();
    let Ok((_, Step::Memory(key))) = session.next(device, &bytes, &mut out) else { panic!() };
    assert!(!session.may_begin(device, key));
    session.hold(device, key, &mut out);
    assert_eq!((session.wanting(device, &Passed::default()), session.has_waiting()), (None, true));
    world.work(0);
    let (session, device) = (&mut world.sessions[1], &mut world.device);
    assert_eq!(session.wanting(device, &Passed::default()), Some(key));
    // One that is aborted before its turn is in nobody's way.
    session.end(device);
    world.send(0, command(READ, 3, 1, 512), &[]);
    assert!(world.sessions[0].ready(&world.device, &Passed::default()).is_some());
}

#[test]
fn who_has_to_wait_is_passed_by_those_whose_memory_may_be_what_is_waited_for() {
    let mut world = World::one(Rules::default());
    world.send(0, command(READ, 1, 1, 512), &[]);
    world.send(0, command(WRITE, 2, 1, 512), &[7; 512]);
    world.send(0, command(READ, 3, 1, 512), &[]);
    let (session, device) = (&mut world.sessions[0], &world.device);
    let mut passed = Passed::default();
    let read = session.ready(device, &passed).unwrap();
    assert_eq!(session.task(read).tag, 1, "first come, first served");
    passed.for_room(session.task(read));
    let write = session.ready(device, &passed).unwrap();
    assert_eq!(session.task(write).tag, 2, "it has memory, and frees room");
    let mut passed = Passed::default();
    session.pass(read, &mut passed);
    assert_eq!(session.ready(device, &passed), Some(write), "its disk may wait for it");
    session.pass(write, &mut passed);
    assert_eq!(session.ready(device, &passed), None, "the unit has to wait as a whole");
    assert!(session.has_waiting());
}

#[test]
fn who_waits_for_room_goes_before_all_that_came_later() {
    let mut world = World::one(Rules::default());
    world.send(0, command(WRITE, 1, 1, 512), &[7; 512]);
    world.send(0, command(READ, 2, 4, 2048), &[]);
    world.send(0, command(READ, 3, 1, 512), &[]);
    let (session, device) = (&mut world.sessions[0], &mut world.device);
    let [write, long, short] = [1, 2, 3].map(|tag| session.tasks.find(tag).unwrap());
    session.charge(write, BYTES_MAX - 1024);
    assert!(session.has_room(short, 512), "nobody waits");
    assert!(!session.has_room(long, 2048));
    assert!(!session.has_room(short, 512), "it fits, but came later");
    // One that cannot begin for want of something else is in nobody's way.
    session.pass(long, &mut Passed::default());
    assert!(session.has_room(short, 512));
    assert!(!session.has_room(long, 2048));
    session.discharge(write);
    assert!(session.has_room(long, 2048) && session.has_room(short, 512));
    // Nor is one that is gone.
    session.charge(write, BYTES_MAX - 1024);
    assert!(!session.has_room(long, 2048) && !session.has_room(short, 512));
    session.retire(device, long);
    assert!(session.has_room(short, 512));
}

#[test]
fn a_compare_and_write_waits_for_no_room_that_others_have_or_wait_for() {
    let mut world = World::one(Rules::default());
    world.send(0, command(WRITE, 1, 1, 512), &[7; 512]);
    world.send(0, command(READ, 2, 4, 2048), &[]);
    let compare = |tag| {
        let mut asked = command(0x89, tag, 0, 1024);
        let Request::Command(it) = &mut asked.request else { unreachable!() };
        (it.cdb[13], it.writes) = (1, true);
        asked
    };
    world.send(0, compare(7), &[]);
    world.send(0, compare(8), &[]);
    let session = &mut world.sessions[0];
    let [write, read, first, second] = [1, 2, 7, 8].map(|tag| session.tasks.find(tag).unwrap());
    session.charge(write, 2 * BYTES_MAX);
    assert!(!session.has_room(read, 2048));
    assert!(session.has_room(first, 1024));
    let mut passed = Passed::default();
    passed.for_room(session.task(read));
    assert!(!passed.has(session.task(first)) && passed.has(session.task(read)));
    // They have an end, too. Who looks for one that may begin passes those that have to wait.
    session.charge(first, 1 << 20);
    assert!(!session.has_room(second, 1024));
    passed.for_room(session.task(second));
    assert!(passed.has(session.task(second)));
    session.discharge(first);
    assert!(session.has_room(second, 1024));
    assert!(!session.task(second).waits_for_room);
}

#[test]
fn a_read_at_the_head_of_the_queue_lets_one_that_came_before_have_the_room() {
    let mut world = World::one(Rules::default());
    world.send(0, command(WRITE, 1, 1, 512), &[7; 512]);
    world.send(0, command(READ, 2, 4, 2048), &[]);
    let session = &mut world.sessions[0];
    let [write, read] = [1, 2].map(|tag| session.tasks.find(tag).unwrap());
    session.charge(write, BYTES_MAX - 1024);
    assert!(!session.has_room(read, 2048));
    world.send(0, attributed(command(READ, 3, 1, 512), HEAD_OF_QUEUE), &[]);
    let (session, device) = (&mut world.sessions[0], &world.device);
    session.discharge(write);
    let mut passed = Passed::default();
    let head = session.ready(device, &passed).unwrap();
    assert_eq!((session.task(head).tag, session.has_room(head, 512)), (3, false));
    passed.for_room(session.task(head));
    assert_eq!(session.ready(device, &passed), Some(write));
    session.start();
    assert_eq!(session.ready(device, &passed), Some(read));
    assert!(session.has_room(read, 2048) && session.has_room(head, 512));
}

#[test]
fn a_disk_that_does_not_answer_keeps_no_room_from_other_units() {
    let mut world = World::one(Rules::default());
    world.device.add(super::units::unit(5, 7));
    let other = |pdu: Pdu| Pdu { lun: Lun::new(5).unwrap().encode(), ..pdu };
    for test in [command(0, 9, 0, 0), other(command(0, 9, 0, 0))] {
        while world.send(0, test, &[])[0].end().0 != 0 {}
    }
    world.send(0, command(READ, 1, 1, 512), &[]);
    world.send(0, command(READ, 2, 1, 512), &[]);
    world.send(0, other(command(READ, 3, 1, 512)), &[]);
    world.send(0, other(command(READ, 4, 1, 512)), &[]);
    let (session, device) = (&mut world.sessions[0], &mut world.device);
    let [hung, behind, first, second] = [1, 2, 3, 4].map(|tag| session.tasks.find(tag).unwrap());
    session.charge(hung, BYTES_MAX);
    session.ready(device, &Passed::default());
    session.start();
    let mut passed = Passed::default();
    assert_eq!(session.ready(device, &passed), Some(behind));
    assert!(!session.has_room(behind, 512));
    passed.for_room(session.task(behind));
    assert_eq!(session.ready(device, &passed), Some(first), "its unit has nothing");
    assert!(!session.has_room(first, WITH_OTHERS_MAX - BYTES_MAX + 512));
    assert!(session.has_room(first, REQUEST_MAX));
    session.charge(first, 512);
    session.start();
    assert_eq!(session.ready(device, &passed), Some(second));
    assert!(!session.has_room(second, 512), "one at a time");
    passed.for_room(session.task(second));
    assert_eq!(session.ready(device, &passed), None);
    // Writes that wait for memory wait for their own unit as well.
    let mut out = Vec::new();
    let [write, of_other] =
        [command(WRITE, 5, 1, 512), other(command(WRITE, 6, 1, 512))].map(|it| {
            let bytes = Pdu { cmd_sn: session.counts.exp_cmd_sn, ..it }.encode();
            let Ok((_, Step::Memory(key))) = session.next(device, &bytes, &mut out) else {
                panic!()
            };
            assert!(!session.has_room(key, 512));
            session.hold(device, key, &mut out);
            key
        });
    session.discharge(first);
    assert!(!session.has_room(of_other, 512), "a read of its unit came before");
    assert!(session.has_room(second, 512));
    let mut passed = Passed::default();
    assert_eq!(session.wanting(device, &passed), Some(write));
    assert!(!session.has_room(write, 512));
    passed.for_room(session.task(write));
    assert_eq!(session.wanting(device, &passed), Some(of_other));
    assert!(session.has_room(of_other, 512));
    // It answers: all is as before.
    session.discharge(hung);
    assert!(session.has_room(behind, 512) && session.has_room(write, 512));
}

/// MODE SELECT that turns the write cache off.
fn turn_cache_off(world: &mut World, session: usize, tag: u32) -> Vec<Answered> {
    let list = [&[0, 0, 0, 0, 8, 18][..], &[0; 18]].concat();
    let mut pdu = command(0x15, tag, 0, list.len() as u32);
    let Request::Command(it) = &mut pdu.request else { unreachable!() };
    (it.cdb[1], it.cdb[4], it.writes) = (0x10, list.len() as u8, true);
    world.send(session, pdu, &list)
}

#[test]
fn the_write_cache_is_off_when_a_flush_after_all_cached_writes_has_succeeded() {
    let mut world = World::new(Rules::default(), 2);
    let tag = |world: &mut World, of: usize| {
        let World { sessions, device, .. } = world;
        let key = sessions[of].ready(device, &Passed::default())?;
        Some(sessions[of].task(key).tag)
    };
    // The engine has a write of another session.
    world.device.begin_cached(0);
    world.send(0, command(FLUSH, 1, 0, 0), &[]);
    assert_eq!(tag(&mut world, 0), Some(1), "with the cache on, only what has ended is flushed");
    world.work(0);
    // Two that do not come to their end: aborted, and cut off.
    for is_aborted in [true, false] {
        assert!(turn_cache_off(&mut world, 0, 2).is_empty());
        assert!(world.device.is_write_through(0), "writes that begin now are not flushed by it");
        match is_aborted {
            true => assert_eq!(world.send(0, manage(1, 2), &[])[0].header[2], 0),
            false => world.sessions[0].abort_unstarted(&mut world.device),
        }
        assert!(!world.device.is_write_through(0), "nothing was flushed");
    }
    assert!(turn_cache_off(&mut world, 0, 2).is_empty());
    assert_eq!(tag(&mut world, 0), None, "the write may end after a flush that begins now");
    world.send(0, command(READ, 3, 1, 512), &[]);
    assert_eq!(tag(&mut world, 0), Some(3), "others go on");
    world.work(0);
    world.device.end_cached(0);
    assert_eq!(tag(&mut world, 0), Some(2));
    assert_eq!(world.work(0)[0].end().0, 0);
    assert!(world.device.is_write_through(0));
}
