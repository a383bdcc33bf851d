use super::*;

#[test]
fn aborted_tasks_have_no_answer_and_give_back_what_they_have() {
    for function in [1, 2, 4, 5, 6] {
        let mut world = World::one(Rules::default());
        let asked = world.send(0, command(WRITE, 7, 4, 2048), &[]);
        let answers = world.send(0, manage(function, 7), &[]);
        assert_eq!((answers[0].opcode, answers[0].header[2], answers.len()), (0x22, 0, 1));
        assert!(world.sessions[0].take_released().is_some());
        assert!(world.send(0, data_out(7, asked[0].word(20), 0, 0, true), &[1; 2048]).is_empty());
        assert_eq!(world.sessions[0].in_flight(), 0);
    }
}

#[test]
fn a_task_that_the_engine_has_is_gone_when_it_is_answered() {
    let mut world = World::one(Rules::default());
    world.send(0, command(READ, 7, 1, 512), &[]);
    world.sessions[0].start();
    assert_eq!(world.send(0, manage(1, 7), &[])[0].header[2], 0);
    assert_eq!(world.send(0, manage(1, 7), &[])[0].header[2], 1, "it is gone for the initiator");
    // Its tag may be used again at once.
    assert!(world.send(0, command(READ, 7, 1, 512), &[]).is_empty());
    let mut out = Vec::new();
    let piece = world.sessions[0].answer_read(&mut world.device, 0, 512, &mut out);
    assert_eq!((piece.total(), out.len(), world.sessions[0].in_flight()), (0, 0, 1));
}

/// A compare and write that the engine has, of the first of some sessions.
fn comparing(sessions: u8) -> World {
    let mut world = World::new(Rules::default(), sessions);
    let mut asked = command(0x89, 7, 0, 1024);
    let Request::Command(it) = &mut asked.request else { unreachable!() };
    (it.cdb[13], it.writes) = (1, true);
    let asked = world.send(0, asked, &[]);
    world.send(0, data_out(7, asked[0].word(20), 0, 0, true), &[1; 1024]);
    world.sessions[0].ready(&world.device, &Passed::default()).expect("it is ready");
    world.sessions[0].start();
    world
}

/// The engine has done it: what its initiator hears.
fn compared(world: &mut World) -> Vec<Answered> {
    let medium = world.sessions[0].task(0).work.medium.clone().unwrap();
    world.sessions[0].take_buffer(0);
    let mut out = Vec::new();
    let response = world.device.medium_done(0, 0, &medium, Done::Status(IoStatus::Ok));
    world.sessions[0].answer(&mut world.device, 0, response, &mut out);
    answers(&out)
}

#[test]
fn a_compare_and_write_that_the_engine_has_is_answered_before_its_abort_is() {
    let mut world = comparing(1);
    assert!(world.send(0, manage(1, 7), &[]).is_empty(), "nothing is known yet");
    let answers = compared(&mut world);
    let said: Vec<_> = answers.iter().map(|it| (it.opcode, it.word(16))).collect();
    assert_eq!(said, [(0x21, 7), (0x22, 900)]);
    assert_eq!((answers[0].end().0, answers[1].header[2]), (0, 1), "it was done, and is gone");
    assert_eq!(world.sessions[0].in_flight(), 0);
}

#[test]
fn a_compare_and_write_that_the_engine_has_is_answered_whatever_other_sessions_abort() {
    for function in [4, 5, 6] {
        let mut world = comparing(2);
        assert_eq!(world.send(1, manage(function, 0), &[])[0].header[2], 0);
        assert!(called(&mut world, 0).is_empty(), "function {function}");
        assert_eq!(ends(&compared(&mut world)), [(7, 0)], "function {function}");
        assert_eq!(world.sessions[0].in_flight(), 0);
    }
}

#[test]
fn an_abort_that_is_sent_again_waits_as_well_up_to_a_limit() {
    let mut world = comparing(1);
    for _ in 0..8 {
        assert!(world.send(0, manage(1, 7), &[]).is_empty());
    }
    assert_eq!(world.send(0, manage(1, 7), &[]).len(), 1);
    assert_eq!(called(&mut world, 0).len(), 8);
}

#[test]
fn an_abort_that_waits_is_answered_when_another_function_ends_its_task() {
    for function in [2, 5] {
        let mut world = comparing(1);
        assert!(world.send(0, manage(1, 7), &[]).is_empty());
        let mut answers = world.send(0, manage(function, 7), &[]);
        answers.extend(called(&mut world, 0));
        let ends: Vec<_> = answers.iter().map(|it| (it.opcode, it.header[2])).collect();
        assert_eq!(ends, [(0x22, 0), (0x22, 0)], "function {function}");
    }
}

#[test]
fn what_a_task_management_function_ends_of_other_sessions() {
    let check = |function: u8, is_hit: bool| {
        let mut world = World::new(Rules::default(), 2);
        leave_aborted_unanswered(&mut world);
        let theirs = world.send(1, command(WRITE, 7, 1, 512), &[]);
        assert_eq!(world.send(0, manage(function, 0), &[])[0].header[2], 0);
        let answers = world.send(1, data_out(7, theirs[0].word(20), 0, 0, true), &[1; 512]);
        assert!(answers.is_empty());
        assert_eq!(
            world.sessions[1].ready(&world.device, &Passed::default()).is_none(),
            is_hit,
            "function {function}"
        );
    };
    check(2, false);
    check(4, true);
    check(5, true);
    check(6, true);
}

/// Tasks that another session aborts get no answer (TAS), as every session knows.
fn leave_aborted_unanswered(world: &mut World) {
    let list = [&[0, 0, 0, 0, 0x0a, 10, 2, 16, 0, 0][..], &[0; 6]].concat();
    let mut pdu = command(0x15, 1, 0, list.len() as u32);
    let Request::Command(it) = &mut pdu.request else { unreachable!() };
    (it.cdb[1], it.cdb[4], it.writes) = (0x10, list.len() as u8, true);
    assert_eq!(world.send(0, pdu, &list)[0].end().0, 0);
    for session in 1..world.sessions.len() {
        assert_eq!(world.send(session, command(0, 1, 0, 0), &[])[0].end().0, 2);
    }
}

/// Tags and statuses of the answers.
fn ends(answers: &[Answered]) -> Vec<(u32, u8)> {
    answers.iter().map(|it| (it.tag(), it.end().0)).collect()
}

#[test]
fn who_has_tasks_that_another_session_clears_is_told_or_answered_and_nobody_else() {
    const CLEARED: (u8, u8, u8) = (6, 0x2f, 0);
    for answers in [false, true] {
        let mut world = World::new(Rules::default(), 3);
        if !answers {
            leave_aborted_unanswered(&mut world);
        }
        world.send(1, command(READ, 7, 1, 512), &[]);
        world.sessions[1].start();
        world.send(1, command(WRITE, 8, 1, 512), &[1; 512]);
        world.send(0, command(READ, 9, 1, 512), &[]);
        assert_eq!(world.send(0, manage(4, 0), &[])[0].header[2], 0);
        assert_eq!(world.sessions[0].in_flight(), 0, "one's own go unseen");
        let told = ends(&called(&mut world, 1));
        assert_eq!(told, if answers { vec![(7, 0x40), (8, 0x40)] } else { vec![] });
        let first = &world.send(1, command(0, 1, 0, 0), &[])[0];
        assert_eq!(first.end().0 == 2, !answers);
        assert!(answers || first.sense() == CLEARED);
        for session in [0, 2] {
            assert_eq!(world.send(session, command(0, 1, 0, 0), &[])[0].end().0, 0, "{session}");
        }
    }
}

#[test]
fn a_reset_is_told_to_all_and_only_that_of_a_unit_is_answered_to_who_has_tasks() {
    for (answers, function, is_answered) in
        [(true, 5, true), (true, 6, false), (false, 5, false), (false, 6, false)]
    {
        let mut world = World::new(Rules::default(), 3);
        if !answers {
            leave_aborted_unanswered(&mut world);
        }
        world.send(1, command(READ, 7, 1, 512), &[]);
        world.sessions[1].start();
        world.send(1, command(WRITE, 8, 1, 512), &[1; 512]);
        world.send(0, command(READ, 9, 1, 512), &[]);
        let own = world.send(0, manage(function, 0), &[]);
        assert_eq!((own.len(), own[0].header[2]), (1, 0), "one's own go unseen");
        let told = ends(&called(&mut world, 1));
        let expect = if is_answered { vec![(7, 0x40), (8, 0x40)] } else { vec![] };
        assert_eq!(told, expect, "TAS {answers}, function {function}");
        for session in 0..3 {
            assert_eq!(world.send(session, command(0, 1, 0, 0), &[])[0].sense(), (6, 0x29, 0));
        }
    }
}

#[test]
fn a_task_is_answered_as_aborted_after_the_data_that_its_initiator_owes() {
    let rules =
        Rules { initial_r2t: false, max_burst: 1024, outstanding_r2t: 2, ..Rules::default() };
    let begun = || World::new(rules, 2);
    let clear = |world: &mut World| {
        assert_eq!(world.send(0, manage(4, 0), &[])[0].header[2], 0);
        assert!(called(world, 1).is_empty(), "not yet");
        assert!(world.sessions[1].take_released().is_some(), "its memory is free at once");
    };
    let is_aborted = |world: &World, answers: &[Answered], residual: u32| {
        let seen: Vec<_> = answers.iter().map(|it| (it.opcode, it.tag(), it.end())).collect();
        assert_eq!(seen, [(0x21, 7, (0x40, 4, residual))]);
        assert_eq!(world.sessions[1].in_flight(), 0);
    };
    // The last PDU has begun.
    let mut world = begun();
    let asked = world.send(1, command(WRITE, 7, 2, 512), &[]);
    let last = Pdu { data_len: 512, ..data_out(7, asked[0].word(20), 0, 0, true) };
    assert!(world.feed(1, &last.encode()).unwrap().is_empty());
    clear(&mut world);
    let answers = world.feed(1, &[1; 512]).unwrap();
    is_aborted(&world, &answers, 512);
    // Data that come unsolicited, in the middle of a PDU and before the last one.
    for cut in [HEADER, HEADER + 100, HEADER + 512] {
        let mut world = begun();
        assert!(world.send(1, open(command(WRITE, 7, 4, 1536)), &[1; 512]).is_empty());
        let first = Pdu { data_len: 512, ..data_out(7, NO_TAG, 0, 512, false) };
        let first = [&first.encode()[..], &[1; 512]].concat();
        assert!(world.feed(1, &first[..cut]).unwrap().is_empty());
        clear(&mut world);
        assert!(world.feed(1, &first[cut..]).unwrap().is_empty());
        // Its tag is in use until then.
        assert_eq!(world.send(1, command(READ, 7, 1, 512), &[])[0].opcode, 0x3f);
        let answers = world.send(1, data_out(7, NO_TAG, 1, 1024, true), &[1; 512]);
        is_aborted(&world, &answers, 512);
    }
    // Two R2Ts that are not answered: nothing more is asked for.
    let mut world = begun();
    let asked = world.send(1, command(WRITE, 7, 6, 2560), &[]);
    clear(&mut world);
    assert!(world.send(1, data_out(7, asked[0].word(20), 0, 0, false), &[1; 512]).is_empty());
    assert!(world.send(1, data_out(7, asked[0].word(20), 1, 512, true), &[1; 512]).is_empty());
    let answers = world.send(1, data_out(7, asked[1].word(20), 0, 1024, true), &[1; 1024]);
    is_aborted(&world, &answers, 512);
    // It may still be aborted by its own session, without an answer.
    let mut world = begun();
    world.send(1, command(WRITE, 7, 1, 512), &[]);
    clear(&mut world);
    let answers = world.send(1, manage(1, 7), &[]);
    assert_eq!((answers[0].opcode, answers[0].header[2], answers.len()), (0x22, 0, 1));
    assert_eq!(world.sessions[1].in_flight(), 0);
}

#[test]
fn data_of_an_aborted_task_that_are_being_received_go_to_memory_that_is_not_given_back_yet() {
    let mut world = World::new(Rules { initial_r2t: false, ..Rules::default() }, 2);
    let asked = world.send(1, command(WRITE, 7, 1, 512), &[]);
    let data = Pdu { data_len: 512, ..data_out(7, asked[0].word(20), 0, 0, true) };
    assert!(world.feed(1, &data.encode()).unwrap().is_empty());
    world.sessions[1].is_receiving_direct = true;
    assert_eq!(world.send(0, manage(4, 0), &[])[0].header[2], 0);
    assert!(called(&mut world, 1).is_empty());
    assert!(world.sessions[1].take_released().is_none());
    world.sessions[1].arrived(512, None);
    world.sessions[1].receive_ended(&mut world.device);
    let answers = world.feed(1, &[]).unwrap();
    assert_eq!((answers[0].tag(), answers[0].end().0), (7, 0x40));
    assert!(world.sessions[1].take_released().is_some());
}

#[test]
fn functions_that_there_are_not_are_told_so() {
    let mut world = World::one(Rules::default());
    let mut check = |pdu: Pdu, expect| assert_eq!(world.send(0, pdu, &[])[0].header[2], expect);
    check(manage(3, 0), 5);
    check(manage(8, 0), 4);
    check(manage(9, 0), 5);
    check(Pdu { lun: [0, 9, 0, 0, 0, 0, 0, 0], ..manage(5, 0) }, 2);
    check(manage(1, 4711), 1);
}
