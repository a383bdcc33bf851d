use forebay_core::geometry::ByteRange;
use forebay_core::status::IoStatus;
use forebay_io::reactor::SocketId;

use super::super::codec::{Command, NO_TAG};
use super::super::device::Unit;
use super::super::task::Memory;
use super::*;
use crate::client::DiskId;
use crate::scsi::{Done, Export, Initiator, LogicalUnit, Lun, Medium, Port};

mod abort;
mod data;
mod link;
mod order;
mod reserve;
mod units;
mod window;

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
        let export = Export { ports: port(), ..Export::new("db", SIZE) };
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
            pdu.cmd_sn = self.sessions[session].counts.exp_cmd_sn;
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
                Step::Done | Step::Managed => {}
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
        let key = session.ready(&self.device, &Passed::default()).expect("a task is ready");
        session.start();
        session.take_buffer(key);
        let medium = session.task(key).work.medium.clone().unwrap();
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

fn port() -> Vec<Port> {
    let target = "iqn.2026-01.x:a".to_owned();
    vec![Port { relative: 1, group: 1, target, portal_group: 1 }]
}

fn begin(device: &mut Device, rules: Rules, isid: u8) -> Session {
    let initiator = Initiator { name: "iqn.2026-01.x:h".to_owned(), isid: [isid; 6] };
    let member = device.join(initiator, 1, Some(SocketId(isid.into())));
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

/// The steps of a session when it is called.
fn called(world: &mut World, session: usize) -> Vec<Answered> {
    let (session, device) = (&mut world.sessions[session], &mut world.device);
    session.begin(Nanos(0), device);
    let mut out = Vec::new();
    session.answer_late(device, &mut out);
    answers(&out)
}
