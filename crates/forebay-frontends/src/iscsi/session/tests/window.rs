use super::*;

#[test]
fn the_window_closes_and_opens() {
    let mut world = World::one(Rules::default());
    let first = world.sessions[0].counts.exp_cmd_sn;
    for tag in 0..WINDOW {
        assert!(world.send(0, command(READ, tag, 1, 512), &[]).is_empty());
    }
    let numbers = world.sessions[0].numbers();
    assert_eq!(numbers.max_cmd_sn, numbers.exp_cmd_sn.wrapping_sub(1));
    assert_eq!(numbers.exp_cmd_sn, first + WINDOW);
    // Beyond the window: ignored, with its data.
    assert!(world.send(0, command(WRITE, 500, 1, 512), &[0; 512]).is_empty());
    assert_eq!(world.sessions[0].in_flight(), WINDOW as usize);
    let answers = world.work(0);
    assert_eq!(answers[0].word(32), first + WINDOW);
    // A task management function is immediate and always taken.
    assert_eq!(world.send(0, manage(2, 0), &[])[0].header[2], 0);
    assert_eq!(world.sessions[0].in_flight(), 0);
}

#[test]
fn a_window_that_was_full_of_aborted_tasks_is_told_to_be_open_again() {
    let mut world = World::one(Rules::default());
    for tag in 0..WINDOW {
        world.send(0, command(READ, tag, 1, 512), &[]);
        world.sessions[0].start();
    }
    let told = world.send(0, manage(2, 0), &[]);
    assert_eq!(told[0].word(32), told[0].word(28).wrapping_sub(1), "the engine has them all");
    let retire = |world: &mut World, key| {
        let mut out = Vec::new();
        world.sessions[0].retire_aborted(&mut world.device, key, &mut out);
        answers(&out)
    };
    let told = retire(&mut world, 0);
    assert_eq!((told[0].opcode, told[0].tag(), told[0].word(20)), (0x20, NO_TAG, NO_TAG));
    assert_eq!(told[0].word(32), told[0].word(28), "one command");
    assert!(retire(&mut world, 1).is_empty(), "once");
}

#[test]
fn numbers_outside_of_the_window_are_ignored_and_gaps_end_the_connection() {
    let mut world = World::one(Rules::default());
    let next = world.sessions[0].counts.exp_cmd_sn;
    let mut check = |sn: u32, expect: Result<usize, ()>| {
        let pdu = Pdu { cmd_sn: sn, ..command(0, 5, 0, 0) };
        let result = world.feed(0, &pdu.encode());
        assert_eq!(result.map(|it| it.len()).map_err(|_| ()), expect, "{sn}");
    };
    check(next.wrapping_sub(1), Ok(0));
    check(next + WINDOW, Ok(0));
    check(next + 1, Err(()));
    check(next, Ok(1));
}

#[test]
fn a_tag_in_use_is_rejected() {
    let mut world = World::one(Rules::default());
    world.send(0, command(READ, 7, 1, 512), &[]);
    let answers = world.send(0, command(READ, 7, 1, 512), &[]);
    assert_eq!((answers[0].opcode, answers[0].header[2]), (0x3f, answer::TASK_IN_PROGRESS));
    assert_eq!(answers[0].data.len(), HEADER);
}

#[test]
fn pdus_that_are_not_taken_are_rejected_and_skipped() {
    let mut world = World::one(Rules::default());
    for (opcode, reason) in [(0x10, answer::SNACK_REJECT), (0x1c, answer::NOT_SUPPORTED)] {
        let answers = world.send(0, pdu(Request::Unknown(opcode), 1), b"data");
        assert_eq!((answers[0].opcode, answers[0].header[2]), (0x3f, reason));
    }
    let mut long = pdu(Request::NopOut { transfer_tag: NO_TAG }, 1);
    long.data_len = SEGMENT_MAX + 1;
    #[cfg(not(feature = "planted-bugs"))]
    assert!(world.feed(0, &long.encode()).is_err());
}

#[test]
fn a_window_that_another_session_emptied_is_told_to_be_open_again() {
    let mut world = World::new(Rules::default(), 2);
    for tag in 0..WINDOW {
        world.send(1, command(READ, tag, 1, 512), &[]);
    }
    world.send(0, manage(6, 0), &[]);
    assert_eq!(world.device.take_noted(), Some(DiskId(0)), "its initiator may say nothing more");
    let told = called(&mut world, 1);
    assert_eq!((told[0].opcode, told[0].tag(), told[0].word(20)), (0x20, NO_TAG, NO_TAG));
    assert_eq!(told[0].word(32), told[0].word(28).wrapping_add(WINDOW - 1), "all of it");
    assert!(called(&mut world, 1).is_empty(), "once");
}

#[test]
fn a_window_that_opens_when_a_receive_has_ended_is_told_to_be_open_again() {
    let mut world = World::new(Rules { initial_r2t: false, ..Rules::default() }, 2);
    for tag in 0..WINDOW - 1 {
        world.send(1, command(READ, tag, 1, 512), &[]);
        world.sessions[1].start();
    }
    // The engine has them, and the last command has data that go straight to memory.
    let asked = world.send(1, command(WRITE, 500, 1, 512), &[]);
    let data = Pdu { data_len: 512, ..data_out(500, asked[0].word(20), 0, 0, true) };
    assert!(world.feed(1, &data.encode()).unwrap().is_empty());
    world.sessions[1].is_receiving_direct = true;
    world.send(0, manage(6, 0), &[]);
    assert!(called(&mut world, 1).is_empty(), "nothing is gone yet");
    world.sessions[1].arrived(512, None);
    world.sessions[1].receive_ended(&mut world.device);
    let told = called(&mut world, 1);
    assert_eq!((told[0].opcode, told[0].tag(), told[0].word(20)), (0x20, NO_TAG, NO_TAG));
    assert_eq!(told[0].word(32), told[0].word(28), "one command");
    assert!(called(&mut world, 1).is_empty(), "once");
}
