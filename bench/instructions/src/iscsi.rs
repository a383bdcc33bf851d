//! An initiator over iSCSI: READ (10) with simple tasks, no digests.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use forebay_frontends::iscsi::BLOCK as SECTOR;
use forebay_frontends::iscsi::codec::{Command, HEADER, Pdu, Request};
use forebay_frontends::iscsi::device::{Device, Unit};
use forebay_frontends::iscsi::driver::Newcomer;
use forebay_frontends::iscsi::login::Established;
use forebay_frontends::iscsi::negotiate::{Rules, SEGMENT_MAX};
use forebay_frontends::scsi::{CDB_LEN, Export, LogicalUnit, Lun, Port};

use crate::load::{self, BLOCK, Hit, SIZE, Served};
use crate::shard::{DISK, Shard};
use crate::socket::{Protocol, Socket};

const TARGET: &str = "iqn.2026-01.x:db";
const SIMPLE: u8 = 1;
const READ_10: u8 = 0x28;
/// The answer: Data-In, the last of the command, with the status.
const DATA_IN: u8 = 0x25;
const FINAL_WITH_STATUS: u8 = 0x81;

/// See the module.
pub struct Iscsi;

/// An initiator after its login, a TEST UNIT READY and a lap.
pub fn served() -> Served<Socket<Iscsi>> {
    let (mut client, socket) = Socket::pair();
    let new = Newcomer {
        socket,
        device: Arc::new(Mutex::new(device())),
        disks: vec![DISK],
        established: established(),
        targets: Vec::new(),
        port: 1,
        log: None,
    };
    let mut shard = Shard::new(load::warm_engine(), Box::new(new));
    take_attention(&mut shard, &mut client);
    Served::new(shard, client)
}

/// A target with one unit.
fn device() -> Device {
    let port = Port { relative: 1, group: 1, target: TARGET.to_owned(), portal_group: 1 };
    let export = Export { ports: vec![port], ..Export::new("db", SIZE) };
    let logical = LogicalUnit::new(export);
    Device::new(vec![Unit { lun: Lun::ZERO, logical, disk: DISK, keeper: None }])
}

/// As initiators of Linux and QEMU agree with the target.
fn established() -> Established {
    let rules = Rules { initial_r2t: false, segment_max: SEGMENT_MAX, ..Rules::default() };
    Established {
        target: 0,
        initiator: "iqn.2026-01.x:host".to_owned(),
        isid: [1; 6],
        tsih: 1,
        cid: 0,
        rules,
        exp_cmd_sn: 0,
        stat_sn: 0,
        leftover: Vec::new(),
    }
}

/// The first command of a session is answered with a unit attention.
fn take_attention(shard: &mut Shard, client: &mut Socket<Iscsi>) {
    let pdu = pdu(0, Command { reads: false, expected_len: 0, ..read(0) });
    client.stream.write_all(&pdu.encode()).expect("there is room");
    shard.turn();
    let mut answer = [0; 256];
    assert!(client.stream.read(&mut answer).expect("an answer") > HEADER, "with sense data");
}

/// A command; the number of the first is 0, and names it.
fn pdu(number: u32, command: Command) -> Pdu {
    Pdu {
        is_immediate: false,
        ahs_len: 0,
        data_len: 0,
        lun: Lun::ZERO.encode(),
        tag: number,
        cmd_sn: number,
        request: Request::Command(command),
    }
}

fn read(block: u64) -> Command {
    let mut cdb = [0; CDB_LEN];
    let sectors = BLOCK / u64::from(SECTOR);
    cdb[0] = READ_10;
    cdb[2..6].copy_from_slice(&((block * sectors) as u32).to_be_bytes());
    cdb[7..9].copy_from_slice(&(sectors as u16).to_be_bytes());
    Command {
        is_final: true,
        reads: true,
        writes: false,
        attribute: SIMPLE,
        expected_len: BLOCK as u32,
        cdb,
    }
}

impl Protocol for Iscsi {
    const REQUEST: usize = HEADER;
    const HEADER: usize = HEADER;

    fn encode(hit: &Hit, out: &mut Vec<u8>) {
        out.extend_from_slice(&pdu(1 + hit.number, read(hit.block)).encode());
    }

    fn check(header: &[u8], hit: &Hit) {
        assert_eq!((header[0], header[1], header[3]), (DATA_IN, FINAL_WITH_STATUS, 0));
        assert_eq!(header[5..8], (BLOCK as u32).to_be_bytes()[1..]);
        assert_eq!(header[16..20], (1 + hit.number).to_be_bytes());
    }
}
