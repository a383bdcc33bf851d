use std::sync::{Arc, Mutex};

use forebay_core::geometry::ByteRange;
use forebay_core::status::IoStatus;
use forebay_io::reactor::SocketId;

use super::super::codec::Command;
use super::super::device::Unit;
use super::super::task::Memory;
use super::*;
use crate::client::{Access, DiskId};
use crate::iscsi::device::Keeper;
use crate::iscsi::pdu_log::Lines;
use crate::scsi::{Done, Export, Initiator, LogicalUnit, Lun, Medium, Port};

const SIZE: u64 = 1 << 20;
const WRITE: u8 = 0x2a;
const READ: u8 = 0x28;

/// A target with one unit, and sessions of it.
struct World {
    device: Device,
    sessions: Vec<Session>,
    cmd_sn: u32,
}

/// One answer: opcode, tag, flags, status byte, data.
#[derive(Debug)]
struct Answered {
    opcode: u8,
    header: [u8; HEADER],
    data: Vec<u8>,
}

impl Answered {
    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().unwrap())
    }

    fn tag(&self) -> u32 {
        self.word(16)
    }

    /// SCSI status, flags of the residual, its count.
    fn end(&self) -> (u8, u8, u32) {
        (self.header[3], self.header[1] & 0x06, self.word(44))
    }

    fn sense(&self) -> (u8, u8, u8) {
        (self.data[4] & 15, self.data[14], self.data[15])
    }
}

impl World {
    fn new(rules: Rules, sessions: u8) -> World {
        let port =
            Port { relative: 1, group: 1, target: "iqn.2026-01.x:a".to_owned(), portal_group: 1 };
        let export = Export { ports: vec![port], ..Export::new("db", SIZE) };
        let unit = Unit {
            lun: Lun::new(0).unwrap(),
            logical: LogicalUnit::new(export),
            disk: DiskId(0),
            keeper: None,
        };
        let mut device = Device::new(vec![unit]);
        let sessions = (0..sessions).map(|isid| begin(&mut device, rules, isid)).collect();
        let mut world = World { device, sessions, cmd_sn: 0 };
        for session in 0..world.sessions.len() {
            // The power on is told once.
            world.cmd_sn = 0;
            while world.send(session, command(0, 1, 0, 0), &[])[0].end().0 != 0 {}
        }
        world
    }

    fn one(rules: Rules) -> World {
        World::new(rules, 1)
    }

    /// Sends a PDU whole; the answers. Memory is given, ready tasks are left alone.
    fn send(&mut self, session: usize, mut pdu: Pdu, data: &[u8]) -> Vec<Answered> {
        pdu.data_len = data.len();
        if !pdu.is_immediate && !matches!(pdu.request, Request::DataOut { .. }) {
            pdu.cmd_sn = self.sessions[session].exp_cmd_sn;
        }
        let mut bytes = pdu.encode().to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + padding(data.len()), 0);
        self.feed(session, &bytes).unwrap()
    }

    fn feed(&mut self, session: usize, bytes: &[u8]) -> Result<Vec<Answered>, Broken> {
        let mut out = Vec::new();
        let mut rest = bytes;
        let device = &mut self.device;
        let session = &mut self.sessions[session];
        session.begin(Nanos(0), device);
        loop {
            let (consumed, step) = session.next(device, rest, &mut out)?;
            rest = &rest[consumed..];
            match step {
                Step::NeedMore(_) | Step::Leave => break,
                Step::Done => {}
                Step::Memory(key) => {
                    let memory = memory(session.task(key).data.wanted);
                    session.give(device, key, memory, 512, &mut out);
                }
                Step::Payload(_, span) => {
                    let count = rest.len().min(span.len as usize);
                    rest = &rest[count..];
                    session.arrived(count as u32, None);
                    if count == 0 {
                        break;
                    }
                }
            }
        }
        Ok(answers(&out))
    }

    /// Carries out the next ready task of a session.
    fn work(&mut self, session: usize) -> Vec<Answered> {
        let session = &mut self.sessions[session];
        let key = session.ready(&self.device).expect("a task is ready");
        session.start();
        session.take_buffer(key);
        let medium = session.task(key).medium.clone().unwrap();
        let mut out = Vec::new();
        if let Medium::Read { range, .. } = &medium {
            let mut piece = session.answer_read(&mut self.device, key, range.len(), &mut out);
            while let Some(len) = session.next_piece(&mut piece, &mut out) {
                out.resize(out.len() + len as usize, 0);
            }
        } else {
            let member = session.member();
            let done = Done::Status(IoStatus::Ok);
            let response = self.device.medium_done(member, 0, &medium, done);
            session.answer(&mut self.device, key, response, &mut out);
        }
        answers(&out)
    }
}

fn begin(device: &mut Device, rules: Rules, isid: u8) -> Session {
    let initiator = Initiator { name: "iqn.2026-01.x:h".to_owned(), isid: [isid; 6] };
    let member = device.join(initiator, 1, SocketId(isid.into()));
    let established = Established {
        target: 0,
        initiator: String::new(),
        isid: [isid; 6],
        tsih: 1,
        cid: 3,
        rules,
        exp_cmd_sn: 0,
        stat_sn: 0,
        leftover: Vec::new(),
    };
    let targets = b"TargetName=iqn.2026-01.x:a\0".to_vec();
    Session::new(Start { established, member, targets, log: None })
}

fn memory(len: u32) -> Memory {
    let span = Span { offset: 0, len };
    let buffer = Buffer { span, window: ByteRange::at(0, len.into()) };
    Memory { buffer, first: span, second: Span { offset: 0, len: 0 } }
}

fn answers(mut out: &[u8]) -> Vec<Answered> {
    let mut answers = Vec::new();
    while let Some((header, rest)) = out.split_first_chunk::<HEADER>() {
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let data = rest[..len].to_vec();
        answers.push(Answered { opcode: header[0], header: *header, data });
        out = &rest[len + padding(len)..];
    }
    answers
}

fn pdu(request: Request, tag: u32) -> Pdu {
    let is_immediate = false;
    Pdu { is_immediate, ahs_len: 0, data_len: 0, lun: [0; 8], tag, cmd_sn: 0, request }
}

/// A command of `blocks` blocks for which the initiator expects `expected_len` bytes.
fn command(opcode: u8, tag: u32, blocks: u8, expected_len: u32) -> Pdu {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[8] = blocks;
    let (reads, writes) = (opcode == READ, opcode == WRITE);
    let request = Command { is_final: true, reads, writes, attribute: 1, expected_len, cdb };
    pdu(Request::Command(request), tag)
}

fn open(mut pdu: Pdu) -> Pdu {
    if let Request::Command(command) = &mut pdu.request {
        command.is_final = false;
    }
    pdu
}

fn data_out(tag: u32, transfer_tag: u32, data_sn: u32, offset: u32, is_final: bool) -> Pdu {
    pdu(Request::DataOut { is_final, transfer_tag, data_sn, offset }, tag)
}

fn manage(function: u8, referenced: u32) -> Pdu {
    let request = Request::TaskManagement { function, referenced, referenced_sn: 0 };
    Pdu { is_immediate: true, ..pdu(request, 900) }
}

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
    assert!(world.sessions[0].ready(&world.device).is_none());
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
fn the_window_closes_and_opens() {
    let mut world = World::one(Rules::default());
    let first = world.sessions[0].exp_cmd_sn;
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
fn numbers_outside_of_the_window_are_ignored_and_gaps_end_the_connection() {
    let mut world = World::one(Rules::default());
    let next = world.sessions[0].exp_cmd_sn;
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
fn without_memory_data_wait_and_are_not_asked_for() {
    let mut world = World::one(Rules::default());
    let mut command = command(WRITE, 7, 4, 2048);
    command.data_len = 512;
    command.cmd_sn = world.sessions[0].exp_cmd_sn;
    let bytes = [&command.encode()[..], &[9; 512]].concat();
    let (session, device) = (&mut world.sessions[0], &mut world.device);
    let mut out = Vec::new();
    let (consumed, step) = session.next(device, &bytes, &mut out).unwrap();
    assert_eq!(step, Step::Memory(0));
    session.hold(device, 0, &mut out);
    let (taken, _) = session.next(device, &bytes[consumed..], &mut out).unwrap();
    assert_eq!((taken, session.wanting(device)), (512, Some(0)));
    session.next(device, &[], &mut out).unwrap();
    assert!(out.is_empty());
    let held = session.give(device, 0, memory(2048), 2048, &mut out);
    assert_eq!((held, session.wanting(device)), (vec![9; 512], None));
    assert_eq!(answers(&out)[0].word(40), 512);
}

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

#[test]
fn what_a_task_management_function_ends_of_other_sessions() {
    let check = |function: u8, is_hit: bool| {
        let mut world = World::new(Rules::default(), 2);
        let theirs = world.send(1, command(WRITE, 7, 1, 512), &[]);
        assert_eq!(world.send(0, manage(function, 0), &[])[0].header[2], 0);
        let answers = world.send(1, data_out(7, theirs[0].word(20), 0, 0, true), &[1; 512]);
        assert!(answers.is_empty());
        assert_eq!(world.sessions[1].ready(&world.device).is_none(), is_hit, "function {function}");
    };
    check(2, false);
    check(4, true);
    check(5, true);
    check(6, true);
}

#[test]
fn clients_of_other_protocols_are_told_whenever_a_reservation_changes() {
    const RESERVE: u8 = 0x16;
    const RELEASE: u8 = 0x17;
    let mut world = World::new(Rules::default(), 2);
    let told = |world: &mut World| -> Vec<Access> {
        std::iter::from_fn(|| world.device.next_access()).map(|(_, access)| access).collect()
    };
    let reserve = |world: &mut World| {
        // A reset is told first.
        while world.send(0, command(0, 1, 0, 0), &[])[0].end().0 != 0 {}
        assert_eq!(world.send(0, command(RESERVE, 1, 0, 0), &[])[0].end().0, 0);
        assert_eq!(told(world), [Access::Nothing]);
    };
    assert!(told(&mut world).is_empty());
    reserve(&mut world);
    world.send(0, command(0, 1, 0, 0), &[]);
    assert!(told(&mut world).is_empty(), "once");
    world.send(0, command(RELEASE, 1, 0, 0), &[]);
    assert_eq!(told(&mut world), [Access::All]);
    for function in [5, 6] {
        reserve(&mut world);
        world.send(1, manage(function, 0), &[]);
        assert_eq!(told(&mut world), [Access::All], "function {function}");
    }
    reserve(&mut world);
    let newer = begin(&mut world.device, Rules::default(), 0);
    assert_eq!(told(&mut world), [Access::All], "the older session is over");
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
    assert_eq!(told(&mut world), [Access::Reads]);
    let member = world.sessions[0].member();
    world.device.leave(member);
    assert!(told(&mut world).is_empty());
}

/// A command with a task attribute.
fn attributed(pdu: Pdu, value: u8) -> Pdu {
    let Request::Command(it) = pdu.request else { unreachable!() };
    Pdu { request: Request::Command(Command { attribute: value, ..it }), ..pdu }
}

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
        let tag =
            |session: &mut Session| Some(session.ready(device)?).map(|key| session.task(key).tag);
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
    let key = (0..4).find(|key| world.sessions[0].tasks[*key].is_some()).unwrap();
    world.sessions[0].retire(&mut world.device, key as u32);
    assert_eq!(ready(&mut world), [None, Some(3)]);
    world.work(1);
    assert_eq!(world.sessions[0].in_flight() + world.sessions[1].in_flight(), 0);
}

#[test]
fn a_task_that_waits_for_its_turn_takes_no_memory_from_those_before() {
    let mut world = World::new(Rules::default(), 2);
    world.send(0, attributed(command(READ, 1, 1, 512), ORDERED), &[]);
    let (session, device) = (&mut world.sessions[1], &mut world.device);
    let bytes = Pdu { cmd_sn: session.exp_cmd_sn, ..command(WRITE, 2, 1, 512) }.encode();
    let mut out = Vec::new();
    let Ok((_, Step::Memory(key))) = session.next(device, &bytes, &mut out) else { panic!() };
    assert!(!session.may_begin(device, key));
    session.hold(device, key, &mut out);
    assert_eq!((session.wanting(device), session.has_waiting()), (None, true));
    world.work(0);
    let (session, device) = (&mut world.sessions[1], &mut world.device);
    assert_eq!(session.wanting(device), Some(key));
    // One that is aborted before its turn is in nobody's way.
    session.end(device);
    world.send(0, command(READ, 3, 1, 512), &[]);
    assert!(world.sessions[0].ready(&world.device).is_some());
}

/// Tasks that another session aborts are answered (TAS), as every session knows.
fn answer_aborted(world: &mut World) {
    let list = [&[0, 0, 0, 0, 0x0a, 10, 2, 16, 0, 0x40][..], &[0; 6]].concat();
    let mut pdu = command(0x15, 1, 0, list.len() as u32);
    let Request::Command(it) = &mut pdu.request else { unreachable!() };
    (it.cdb[1], it.cdb[4], it.writes) = (0x10, list.len() as u8, true);
    assert_eq!(world.send(0, pdu, &list)[0].end().0, 0);
    for session in 1..world.sessions.len() {
        assert_eq!(world.send(session, command(0, 1, 0, 0), &[])[0].end().0, 2);
    }
}

#[test]
fn who_has_tasks_that_another_session_clears_is_told_or_answered_and_nobody_else() {
    const CLEARED: (u8, u8, u8) = (6, 0x2f, 0);
    for answers in [false, true] {
        let mut world = World::new(Rules::default(), 3);
        if answers {
            answer_aborted(&mut world);
        }
        world.send(1, command(READ, 7, 1, 512), &[]);
        world.sessions[1].start();
        world.send(1, command(WRITE, 8, 1, 512), &[1; 512]);
        world.send(0, command(READ, 9, 1, 512), &[]);
        assert_eq!(world.send(0, manage(4, 0), &[])[0].header[2], 0);
        assert_eq!(world.sessions[0].in_flight(), 0, "one's own go unseen");
        let told = called(&mut world, 1);
        let tags: Vec<(u32, u8)> = told.iter().map(|it| (it.tag(), it.end().0)).collect();
        assert_eq!(tags, if answers { vec![(7, 0x40), (8, 0x40)] } else { vec![] });
        let first = &world.send(1, command(0, 1, 0, 0), &[])[0];
        assert_eq!(first.end().0 == 2, !answers);
        assert!(answers || first.sense() == CLEARED);
        for session in [0, 2] {
            assert_eq!(world.send(session, command(0, 1, 0, 0), &[])[0].end().0, 0, "{session}");
        }
        // A reset is told to all, and answered to nobody.
        world.send(1, command(READ, 10, 1, 512), &[]);
        world.send(0, manage(5, 0), &[]);
        assert!(called(&mut world, 1).is_empty());
        for session in 0..3 {
            assert_eq!(world.send(session, command(0, 1, 0, 0), &[])[0].sense(), (6, 0x29, 0));
        }
    }
}

#[test]
fn a_task_is_answered_as_aborted_after_the_data_that_its_initiator_owes() {
    let rules =
        Rules { initial_r2t: false, max_burst: 1024, outstanding_r2t: 2, ..Rules::default() };
    let begun = || {
        let mut world = World::new(rules, 2);
        answer_aborted(&mut world);
        world
    };
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
    answer_aborted(&mut world);
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

/// What a session says when it is called.
fn called(world: &mut World, session: usize) -> Vec<Answered> {
    let (session, device) = (&mut world.sessions[session], &mut world.device);
    session.begin(Nanos(0), device);
    let mut out = Vec::new();
    session.answer_late(device, &mut out);
    answers(&out)
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
    // Aborted; aborted in the same moment; ended by a newer session; gone, and its place taken.
    for how in 0..4 {
        let (mut world, later) = storing();
        match how {
            0 => assert_eq!(world.send(0, manage(1, 7), &[])[0].header[2], 0),
            1 => {
                later.answer(true);
                world.send(1, manage(5, 0), &[]);
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
        assert!(called(&mut world, 0).is_empty(), "{how}");
        assert_eq!(world.sessions[0].in_flight(), 0, "{how}");
        assert_eq!(keys(&mut world, 1), 1, "{how}");
    }
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

#[test]
fn a_newer_session_of_the_same_port_ends_the_older() {
    let mut world = World::one(Rules::default());
    world.send(0, command(WRITE, 7, 1, 512), &[]);
    let newer = begin(&mut world.device, Rules::default(), 0);
    assert_eq!(world.device.take_ended(), Some(SocketId(0)));
    let device = &mut world.device;
    world.sessions[0].begin(Nanos(0), device);
    assert!(world.sessions[0].is_over() && world.sessions[0].in_flight() == 0);
    device.leave(world.sessions[0].member());
    // A third finds the second, not what is left of the first.
    let third = begin(device, Rules::default(), 0);
    assert_eq!(device.take_ended(), Some(SocketId(0)));
    assert_eq!(device.sessions().count(), 2);
    device.leave(newer.member());
    device.leave(third.member());
}

#[test]
fn pings_are_answered_and_counted() {
    let mut world = World::one(Rules::default());
    let nop = pdu(Request::NopOut { transfer_tag: NO_TAG }, 5);
    let before = world.sessions[0].stat_sn;
    let answers = world.send(0, nop, b"hello");
    assert_eq!(
        (answers[0].opcode, answers[0].tag(), &answers[0].data[..]),
        (0x20, 5, &b"hello"[..])
    );
    assert_eq!(world.sessions[0].stat_sn, before + 1);
    let mut out = Vec::new();
    world.sessions[0].ping(&mut out);
    assert!(world.sessions[0].pinged().is_some());
    let pong = Pdu { is_immediate: true, ..pdu(Request::NopOut { transfer_tag: 0 }, NO_TAG) };
    assert!(world.send(0, pong, &[]).is_empty());
    assert_eq!(world.sessions[0].stat_sn, before + 1, "our own pings use up no number");
}

#[test]
fn an_initiator_leaves() {
    let check = |reason, cid, expect, in_flight| {
        let mut world = World::one(Rules::default());
        world.send(0, command(READ, 7, 1, 512), &[]);
        let logout = Pdu { is_immediate: true, ..pdu(Request::Logout { reason, cid }, 9) };
        let answers = world.send(0, logout, &[]);
        assert_eq!((answers[0].opcode, answers[0].header[2]), (0x26, expect));
        assert_eq!(world.sessions[0].in_flight(), in_flight);
    };
    check(0, 9, 0, 0);
    check(1, 3, 0, 0);
    check(1, 9, 1, 1);
    check(2, 3, 2, 1);
}

#[derive(Debug, Default)]
struct Said(Mutex<Vec<String>>);

impl Lines for Said {
    fn line(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn the_log_has_each_header_once_and_no_data() {
    let said = Arc::new(Said::default());
    let mut world = World::one(Rules::default());
    let initiator = Initiator { name: "iqn.2026-01.x:h".to_owned(), isid: [1; 6] };
    world.sessions[0].log = Some(PduLog::new(said.clone(), &initiator));
    let asked = world.send(0, command(WRITE, 7, 2, 1024), &[0xa5; 512]);
    world.send(0, data_out(7, asked[0].word(20), 0, 512, true), &[0xa5; 512]);
    world.work(0);
    // In pieces: it is taken when it is whole.
    let nop = pdu(Request::NopOut { transfer_tag: NO_TAG }, 5);
    let nop = Pdu { data_len: 8, is_immediate: true, ..nop };
    let bytes = [&nop.encode()[..], &[0xa5; 8]].concat();
    let mut out = Vec::new();
    for len in [48, 50, 56] {
        world.sessions[0].next(&mut world.device, &bytes[..len], &mut out).unwrap();
    }
    let said = said.0.lock().unwrap();
    let words: Vec<&str> = said.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(words, ["Command", "R2T", "Data-Out", "Response", "NOP-Out", "NOP-In"]);
    let first = "iqn.2026-01.x:h,010101010101 > Command tag 7 lun 0 data 512 01a1";
    assert!(said[0].starts_with(first), "{}", said[0]);
    assert!(said.iter().all(|line| !line.contains("a5a5") && line.len() < 200), "{said:?}");
}

#[test]
fn digests_are_made_and_checked() {
    let rules = Rules { header_digest: true, data_digest: true, ..Rules::default() };
    let mut device = World::new(Rules::default(), 0).device;
    let mut session = begin(&mut device, rules, 9);
    let nop = |spoil: Option<usize>| {
        let pdu = Pdu {
            data_len: 5,
            is_immediate: true,
            ..pdu(Request::NopOut { transfer_tag: NO_TAG }, 5)
        };
        let mut bytes = pdu.encode().to_vec();
        bytes.extend(digest::sum(&bytes).to_le_bytes());
        bytes.extend(b"hello\0\0\0");
        let sum = digest::sum(&bytes[HEADER + DIGEST..]);
        bytes.extend(sum.to_le_bytes());
        if let Some(at) = spoil {
            bytes[at] ^= 1;
        }
        bytes
    };
    let mut out = Vec::new();
    let (consumed, _) = session.next(&mut device, &nop(None), &mut out).unwrap();
    assert_eq!((consumed, out.len()), (64, 64));
    assert!(digest::is_right(&out[..HEADER], &out[HEADER..]));
    assert!(digest::is_right(&out[52..60], &out[60..]));
    for spoiled in [20, 50, 53, 59, 62] {
        assert!(session.next(&mut device, &nop(Some(spoiled)), &mut out).is_err(), "{spoiled}");
    }
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
