use super::*;

#[test]
fn a_read_ends_with_its_last_data() {
    let rules = Rules { segment_max: 1024, max_burst: 2048, ..Rules::default() };
    let mut world = World::one(rules);
    assert!(world.send(0, command(READ, 7, 8, 4096), &[]).is_empty());
    let answers = world.work(0);
    let seen: Vec<_> = answers.iter().map(|it| (it.opcode, it.header[1], it.word(40))).collect();
    // F at the end of each burst, S with the last.
    let expect = [(0x25, 0, 0), (0x25, 0x80, 1024), (0x25, 0, 2048), (0x25, 0x81, 3072)];
    assert_eq!(seen, expect);
    assert_eq!(answers[3].end(), (0, 0, 0));
    assert_eq!(world.sessions[0].in_flight(), 0);
}

#[test]
fn residuals_are_exact() {
    // opcode, blocks, expected → data, residual
    let check = |opcode, blocks, expected, len, flags, residual| {
        let mut world = World::one(Rules::default());
        let data = vec![0; if opcode == WRITE { expected as usize } else { 0 }];
        world.send(0, command(opcode, 7, blocks, expected), &data);
        let answers = world.work(0);
        let bytes: usize = answers.iter().map(|it| it.data.len()).sum();
        let last = answers.last().unwrap();
        assert_eq!(last.end(), (0, flags, residual), "{opcode:x} {blocks} {expected}");
        assert_eq!(bytes, len, "{opcode:x} {blocks} {expected}");
    };
    check(READ, 1, 512, 512, 0, 0);
    check(READ, 1, 1024, 512, 2, 512);
    check(READ, 2, 512, 512, 4, 512);
    check(READ, 1, 100, 100, 4, 412);
    check(READ, 1, 0, 0, 4, 512);
    check(WRITE, 1, 512, 0, 0, 0);
    check(WRITE, 1, 1024, 0, 2, 512);
    check(WRITE, 2, 512, 0, 4, 512);
    check(WRITE, 1, 0, 0, 4, 512);
}

/// What a list of parameters asks the medium for transfers nothing more, and nothing less.
#[test]
fn residuals_are_exact_after_parameters() {
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 0, 0, 1], &[0; 4]].concat();
    // The write cache is off from now on, so that it is flushed.
    let select = [&[0, 0, 0, 0, 0x08, 18][..], &[0; 18]].concat();
    for (opcode, list) in [(0x42, unmap), (0x15, select)] {
        let len = list.len() as u32;
        for (expected, rest) in [(len, (0, 0, 0)), (len + 8, (0, 2, 8))] {
            for comes_along in [true, false] {
                let mut world = World::one(Rules::default());
                let mut pdu = command(opcode, 7, 0, expected);
                let Request::Command(it) = &mut pdu.request else { unreachable!() };
                it.writes = true;
                match opcode {
                    0x42 => it.cdb[8] = len as u8,
                    _ => (it.cdb[1], it.cdb[4]) = (0x10, len as u8),
                }
                let mut data = list.clone();
                data.resize(expected as usize, 0);
                if comes_along {
                    world.send(0, pdu, &data);
                } else {
                    let asked = world.send(0, pdu, &[]);
                    let (transfer, wanted) = (asked[0].word(20), asked[0].word(44));
                    let rest = data_out(7, transfer, 0, 0, true);
                    world.send(0, rest, &data[..wanted as usize]);
                }
                let end = world.work(0).last().expect("it is answered").end();
                assert_eq!(end, rest, "{opcode:x} {expected} {comes_along}");
            }
        }
    }
}

#[test]
fn data_are_asked_for_when_they_do_not_come_along() {
    let rules = Rules { max_burst: 1024, outstanding_r2t: 2, ..Rules::default() };
    let mut world = World::one(rules);
    let asked = world.send(0, command(WRITE, 7, 6, 3072), &[1; 512]);
    let seen: Vec<_> = asked.iter().map(|it| (it.opcode, it.word(40), it.word(44))).collect();
    assert_eq!(seen, [(0x31, 512, 1024), (0x31, 1536, 1024)]);
    let transfer = |at: usize| asked[at].word(20);
    assert!(world.send(0, data_out(7, transfer(0), 0, 512, false), &[2; 512]).is_empty());
    let more = world.send(0, data_out(7, transfer(0), 1, 1024, true), &[2; 512]);
    assert_eq!((more[0].opcode, more[0].word(40), more[0].word(44)), (0x31, 2560, 512));
    assert!(world.send(0, data_out(7, transfer(1), 0, 1536, true), &[3; 1024]).is_empty());
    assert!(world.sessions[0].ready(&world.device, &Passed::default()).is_none());
    assert!(world.send(0, data_out(7, more[0].word(20), 0, 2560, true), &[4; 512]).is_empty());
    let answers = world.work(0);
    assert_eq!((answers[0].opcode, answers[0].end(), answers[0].word(36)), (0x21, (0, 0, 0), 3));
}

#[test]
fn unsolicited_data_are_taken_where_they_were_agreed_on() {
    let rules = Rules { initial_r2t: false, ..Rules::default() };
    let mut world = World::one(rules);
    assert!(world.send(0, open(command(WRITE, 7, 4, 2048)), &[1; 512]).is_empty());
    assert!(world.send(0, data_out(7, NO_TAG, 0, 512, false), &[1; 512]).is_empty());
    let asked = world.send(0, data_out(7, NO_TAG, 1, 1024, true), &[1; 512]);
    assert_eq!((asked[0].opcode, asked[0].word(40), asked[0].word(44)), (0x31, 1536, 512));
    // Not agreed on: the command fails when all has come that was announced.
    let mut world = World::one(Rules::default());
    assert!(world.send(0, open(command(WRITE, 7, 4, 2048)), &[]).is_empty());
    let answers = world.send(0, data_out(7, NO_TAG, 0, 0, true), &[1; 512]);
    assert_eq!((answers[0].opcode, answers[0].end().0), (0x21, 2));
    assert_eq!(answers[0].sense(), (0x0b, 0x0c, 0x0c));
}

#[test]
fn data_out_of_order_fail_the_command_alone() {
    let mut world = World::one(Rules::default());
    let asked = world.send(0, command(WRITE, 7, 4, 2048), &[]);
    let answers = world.send(0, data_out(7, asked[0].word(20), 27, 0, true), &[1; 2048]);
    assert_eq!((answers[0].end().0, answers[0].sense()), (2, (0x0b, 0x0c, 0x0d)));
    assert!(world.sessions[0].take_released().is_some(), "its memory is given back");
    // What still comes for it is skipped.
    assert!(world.send(0, data_out(7, asked[0].word(20), 1, 512, true), &[1; 512]).is_empty());
    assert_eq!(world.send(0, command(0, 8, 0, 0), &[])[0].end().0, 0);
}

#[test]
fn without_memory_data_wait_and_are_not_asked_for() {
    let mut world = World::one(Rules::default());
    let mut command = command(WRITE, 7, 4, 2048);
    command.data_len = 512;
    command.cmd_sn = world.sessions[0].counts.exp_cmd_sn;
    let bytes = [&command.encode()[..], &[9; 512]].concat();
    let (session, device) = (&mut world.sessions[0], &mut world.device);
    let mut out = Vec::new();
    let (consumed, step) = session.next(device, &bytes, &mut out).unwrap();
    assert_eq!(step, Step::Memory(0));
    session.hold(device, 0, &mut out);
    let (taken, _) = session.next(device, &bytes[consumed..], &mut out).unwrap();
    assert_eq!((taken, session.wanting(device, &Passed::default())), (512, Some(0)));
    session.next(device, &[], &mut out).unwrap();
    assert!(out.is_empty());
    let held = session.give(device, 0, memory(2048), 2048, &mut out);
    assert_eq!((held, session.wanting(device, &Passed::default())), (vec![9; 512], None));
    assert_eq!(answers(&out)[0].word(40), 512);
}

#[test]
fn blocks_to_compare_with_are_taken_as_far_as_the_heap_has_room_for_them() {
    let mut world = World::one(Rules::default());
    // 1 MiB each, none of which comes.
    let mut verify = command(0x2f, 0, 0, SIZE as u32);
    let Request::Command(it) = &mut verify.request else { unreachable!() };
    (it.cdb[1], it.cdb[7], it.writes) = (0x02, 8, true);
    let mut ask = |tag| world.send(0, Pdu { tag, ..verify }, &[]);
    for tag in 1..=32 {
        assert_eq!(ask(tag)[0].opcode, 0x31, "its data are asked for");
    }
    assert_eq!(ask(33)[0].end().0, 0x08, "the unit is busy");
    // MODE SELECT with 24 bytes of parameters.
    let mut select = command(0x15, 35, 0, 24);
    let Request::Command(it) = &mut select.request else { unreachable!() };
    (it.cdb[1], it.cdb[4], it.writes) = (0x10, 24, true);
    assert_eq!(world.send(0, select, &[])[0].opcode, 0x31, "there is room for parameters");
    world.send(0, manage(1, 35), &[]);
    let session = &mut world.sessions[0];
    let first = session.tasks.find(1).unwrap();
    session.retire(&mut world.device, first);
    assert_eq!(world.send(0, Pdu { tag: 34, ..verify }, &[])[0].opcode, 0x31);
    let mut long = command(0x55, 36, 0, 65535);
    let Request::Command(it) = &mut long.request else { unreachable!() };
    (it.cdb[1], it.cdb[7], it.cdb[8], it.writes) = (0x10, 0xff, 0xff, true);
    let lists =
        (36..72).take_while(|tag| world.send(0, Pdu { tag: *tag, ..long }, &[])[0].opcode == 0x31);
    assert_eq!(lists.count(), 32, "2 MiB of it");
}
