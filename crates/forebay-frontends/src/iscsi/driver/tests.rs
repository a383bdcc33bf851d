//! A connection over a socket pair, on the real reactor, whose tasks come to no engine.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use forebay_core::action::{Actions, Reply, ReplyData};
use forebay_core::config::{BackendTraits, Config};
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::RequestTag;
use forebay_core::request::{self, Op};
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::{Reactor, Token};

use super::super::codec::{Command, HEADER, Pdu, Request};
use super::super::device::{Keeper, Unit};
use super::super::login::Established;
use super::super::negotiate::Rules;
use super::*;
use crate::client::{Answer, Newcomer as _, Permission, Port, Tokens};
use crate::scsi::{Export, LogicalUnit, Lun};

struct NoDisk;

impl crate::client::Disks for NoDisk {
    fn port(&mut self, disk: DiskId) -> &mut Port {
        unreachable!("{disk:?}")
    }

    fn find_port(&mut self, _: DiskId) -> Option<&mut Port> {
        None
    }
}

/// A session that has already sent this, and what its initiator reads from.
fn session(sent: Vec<u8>) -> (UnixStream, Newcomer) {
    let established = Established {
        target: 0,
        initiator: "iqn.2026-01.x:h".to_owned(),
        isid: [1; 6],
        tsih: 1,
        cid: 0,
        rules: Rules::default(),
        exp_cmd_sn: 0,
        stat_sn: 0,
        leftover: sent,
    };
    let logical = LogicalUnit::new(Export::new("db", 16 << 20));
    let unit = Unit { lun: Lun::ZERO, logical, disk: DiskId(0), keeper: None };
    let (peer, socket) = UnixStream::pair().unwrap();
    peer.set_nonblocking(true).unwrap();
    let newcomer = Newcomer {
        socket: socket.into(),
        device: Arc::new(Mutex::new(Device::new(vec![unit]))),
        disks: vec![DiskId(0)],
        established,
        targets: Vec::new(),
        port: 1,
        log: None,
    };
    (peer, newcomer)
}

#[test]
fn a_flood_of_task_management_functions_is_taken_one_at_a_time() {
    const FUNCTIONS: usize = 100;
    let (request, tag) =
        (Request::TaskManagement { function: 6, referenced: 0, referenced_sn: 0 }, 9);
    let reset =
        Pdu { is_immediate: true, ahs_len: 0, data_len: 0, lun: [0; 8], tag, cmd_sn: 0, request };
    let (mut peer, newcomer) = session(reset.encode().repeat(FUNCTIONS));
    let mut reactor = Reactor::new(8, None).unwrap();
    let mut completions = Vec::new();
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut NoDisk };
    let tokens = Tokens { recv: Token(0), send: Token(1) };
    let mut client = Box::new(newcomer).start(&mut cx, 0, tokens).unwrap();
    let mut answers = Vec::new();
    for functions in 1..=FUNCTIONS {
        while answers.len() < functions * HEADER {
            let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut NoDisk };
            client.flush(&mut cx);
            reactor.wait(Some(Duration::ZERO), &mut completions).unwrap();
            for completion in completions.drain(..) {
                let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut NoDisk };
                client.on_completion(&mut cx, completion);
            }
            match peer.read_to_end(&mut answers) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                end => panic!("{end:?}"),
            }
        }
        assert_eq!(answers.len(), functions * HEADER, "one at a time");
        let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut NoDisk };
        assert!(client.wants_resume() && client.resume(&mut cx), "it goes on");
    }
    assert!(!client.wants_resume(), "it waits for more");
}

/// A disk of 16 MiB with 4 MiB of RAM.
fn disk(reactor: &mut Reactor) -> Port {
    let mut config = Config::for_disk(BackendTraits {
        size: 16 << 20,
        logical_block: 512,
        read_only: false,
        discard: true,
        write_zeroes: true,
        extents: false,
    });
    config.ram_bytes = 4 << 20;
    let engine = Engine::new(config).unwrap();
    let memory = Arc::new(Arena::new(engine.memory_size() as usize).unwrap());
    let arena = reactor.add_arena(memory.clone()).unwrap();
    let (access, actions) = (Permission::All, Actions::default());
    Port { engine, memory, arena, actions, access, is_held: false, has_news: false }
}

struct OneDisk(Port);

impl crate::client::Disks for OneDisk {
    fn port(&mut self, _: DiskId) -> &mut Port {
        &mut self.0
    }

    fn find_port(&mut self, _: DiskId) -> Option<&mut Port> {
        Some(&mut self.0)
    }
}

/// The bytes of a command that brings `data` with it.
fn command(cmd_sn: u32, cdb: [u8; 16], data: &[u8]) -> Vec<u8> {
    let (is_final, reads, writes, attribute) = (true, false, !data.is_empty(), 1);
    let expected_len = data.len() as u32;
    let command = Command { is_final, reads, writes, attribute, expected_len, cdb };
    let (tag, request, data_len) = (cmd_sn, Request::Command(command), data.len());
    let pdu = Pdu { is_immediate: false, ahs_len: 0, data_len, lun: [0; 8], tag, cmd_sn, request };
    [&pdu.encode()[..], data].concat()
}

#[test]
fn a_part_whose_disk_ends_while_it_is_held_does_not_keep_a_session_that_its_initiator_left() {
    // TEST UNIT READY is told of the unit attention. VERIFY of 4 MiB is read in parts of 1 MiB.
    let verify = [0x2f, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0];
    let (peer, newcomer) = session([command(0, [0; 16], &[]), command(1, verify, &[])].concat());
    let mut reactor = Reactor::new(8, None).unwrap();
    let mut disk = OneDisk(disk(&mut reactor));
    let tokens = Tokens { recv: Token(0), send: Token(1) };
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
    let mut client = Box::new(newcomer).start(&mut cx, 0, tokens).unwrap();
    // The initiator leaves after the first part was asked for.
    peer.shutdown(Shutdown::Write).unwrap();
    let mut completions = Vec::new();
    while completions.is_empty() {
        let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
        client.flush(&mut cx);
        reactor.wait(None, &mut completions).unwrap();
    }
    disk.0.is_held = true;
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
    for completion in completions.drain(..) {
        client.on_completion(&mut cx, completion);
    }
    assert!(!client.wants_resume(), "the first part is with the engine");
    let (tag, submitted) = (RequestTag(0), Nanos(0));
    let reply = Reply { tag, status: IoStatus::Ok, submitted, data: ReplyData::None };
    let answer = Answer { disk: DiskId(0), reply: &reply, slices: &[], extents: &[] };
    client.on_reply(&mut cx, answer);
    client.flush(&mut cx);
    assert!(client.wants_resume() && !client.resume(&mut cx), "the second part waits");
    client.give_up(&mut cx);
    assert!(!client.is_done(), "the disk has not ended");
    client.close(&mut cx);
    client.flush(&mut cx);
    assert!(client.is_done(), "the disk takes no further part");
}

#[test]
fn an_or_write_that_has_read_waits_for_memory_without_another_read() {
    const BLOCKS: [u8; 4096] = [5; 4096];
    let or_write = [0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
    let (_peer, newcomer) =
        session([command(0, [0; 16], &[]), command(1, or_write, &BLOCKS)].concat());
    let mut reactor = Reactor::new(8, None).unwrap();
    let mut disk = OneDisk(disk(&mut reactor));
    let tokens = Tokens { recv: Token(0), send: Token(1) };
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
    let mut client = Box::new(newcomer).start(&mut cx, 0, tokens).unwrap();
    client.flush(&mut cx);
    assert!(!client.wants_resume(), "the read is with the engine");
    // Others have all of the memory when it is answered.
    let range = ByteRange::at(1 << 20, 4096);
    let taken: Vec<_> = std::iter::from_fn(|| cx.write_buffer(DiskId(0), range)).collect();
    let (tag, submitted) = (RequestTag(0), Nanos(0));
    let data = ReplyData::Slots { first: 0, count: 1 };
    let reply = Reply { tag, status: IoStatus::Ok, submitted, data };
    let found = Span { offset: taken[0].span.offset, len: 4096 };
    cx.port(DiskId(0)).memory.write_at(found.offset, &[0x30; 4096]);
    let answer = Answer { disk: DiskId(0), reply: &reply, slices: &[found], extents: &[] };
    client.on_reply(&mut cx, answer);
    for _ in 0..2 {
        assert!(client.wants_resume() && !client.resume(&mut cx), "it waits");
    }
    for buffer in taken {
        cx.release(DiskId(0), buffer);
    }
    while client.wants_resume() {
        let port = cx.port(DiskId(0));
        port.engine.proceed(Nanos(0), &mut port.actions);
        client.resume(&mut cx);
    }
    // What it read is replaced, if it is still there, by that with its own bits.
    let reply = Reply { tag, status: IoStatus::Miscompare, submitted, data: ReplyData::None };
    let answer = Answer { disk: DiskId(0), reply: &reply, slices: &[], extents: &[] };
    client.on_reply(&mut cx, answer);
    assert!(!client.wants_resume(), "it reads anew, since somebody came between");
}

#[test]
fn a_write_same_that_finds_no_place_waits_and_gives_the_engine_nothing_to_do() {
    const BLOCK: [u8; 512] = [7; 512];
    let write_same = [0x41, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
    let (_peer, newcomer) =
        session([command(0, [0; 16], &[]), command(1, write_same, &BLOCK)].concat());
    let mut reactor = Reactor::new(8, None).unwrap();
    let mut disk = OneDisk(disk(&mut reactor));
    let port = &mut disk.0;
    let read = |at: u64| request::Request {
        tag: RequestTag(u64::MAX),
        range: ByteRange::at((at << 12) % (16 << 20), 4096),
        op: Op::Read { no_admit: false },
    };
    let places =
        (0..).take_while(|at| port.engine.submit(Nanos(0), read(*at), &mut port.actions).is_ok());
    assert!(places.count() > 1);
    port.engine.proceed(Nanos(0), &mut port.actions);
    let tokens = Tokens { recv: Token(0), send: Token(1) };
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
    let mut client = Box::new(newcomer).start(&mut cx, 0, tokens).unwrap();
    let mut completions = Vec::new();
    while !client.wants_resume() {
        let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
        client.flush(&mut cx);
        reactor.wait(Some(Duration::ZERO), &mut completions).unwrap();
        let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
        completions.drain(..).for_each(|completion| client.on_completion(&mut cx, completion));
    }
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
    assert!(!client.resume(&mut cx), "it waits");
    assert!(!disk.0.engine.wants_to_proceed(), "nothing has changed");
}

type Answered = Box<dyn FnOnce(bool) + Send>;

/// Hands on whom to answer.
#[derive(Debug)]
struct Later(mpsc::Sender<Answered>);

impl Keeper for Later {
    fn keep(&mut self, _state: Vec<u8>, answer: Answered) {
        self.0.send(answer).unwrap();
    }
}

#[test]
fn a_change_that_is_stored_when_no_session_is_left_is_in_force_for_other_clients() {
    // REGISTER AND IGNORE EXISTING KEY, and RESERVE of Write Exclusive, which are to outlive a restart.
    let reserve_out = |cmd_sn, action, kind, keys: [u64; 2]| {
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
        let list = [&keys.map(u64::to_be_bytes).concat()[..], &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
        command(cmd_sn, cdb, &list)
    };
    let register = reserve_out(1, 6, 0, [0, 7]);
    let (mut peer, newcomer) = session([command(0, [0; 16], &[]), register].concat());
    let (sender, answers) = mpsc::channel();
    let device = newcomer.device.clone();
    let export = Export { store_max: 4008, ..Export::new("db", 16 << 20) };
    lock(&device).units[0].logical = LogicalUnit::new(export);
    lock(&device).units[0].keeper = Some(Box::new(Later(sender)));
    let mut reactor = Reactor::new(8, None).unwrap();
    let mut disk = OneDisk(disk(&mut reactor));
    let tokens = Tokens { recv: Token(0), send: Token(1) };
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
    let mut client = Box::new(newcomer).start(&mut cx, 0, tokens).unwrap();
    answers.try_recv().unwrap()(true);
    settle(&device, DiskId(0), &mut disk.0);
    assert!(std::mem::take(&mut disk.0.has_news) && disk.0.access == Permission::All);
    let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
    client.wake(&mut cx);
    // The initiator leaves before the second change is stored.
    peer.write_all(&reserve_out(2, 1, 1, [7, 0])).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let mut completions = Vec::new();
    while !client.is_done() {
        let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
        client.flush(&mut cx);
        reactor.wait(None, &mut completions).unwrap();
        let mut cx = Context { now: Nanos(0), reactor: &mut reactor, disks: &mut disk };
        completions.drain(..).for_each(|completion| client.on_completion(&mut cx, completion));
        client.flush(&mut cx);
    }
    drop(client);
    answers.try_recv().unwrap()(true);
    assert_eq!(disk.0.access, Permission::All);
    settle(&device, DiskId(0), &mut disk.0);
    assert_eq!(disk.0.access, Permission::Reads);
    assert_eq!(lock(&device).next_access(), None, "what is told once is compared with later");
}
