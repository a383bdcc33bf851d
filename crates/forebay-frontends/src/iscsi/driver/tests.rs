//! A connection over a socket pair, on the real reactor, whose tasks come to no engine.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use forebay_io::reactor::{Reactor, Token};

use super::super::codec::{HEADER, Pdu, Request};
use super::super::device::Unit;
use super::super::login::Established;
use super::super::negotiate::Rules;
use super::*;
use crate::client::{Newcomer as _, Port, Tokens};
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

#[test]
fn a_flood_of_task_management_functions_is_taken_one_at_a_time() {
    const FUNCTIONS: usize = 100;
    let (request, tag) =
        (Request::TaskManagement { function: 6, referenced: 0, referenced_sn: 0 }, 9);
    let reset =
        Pdu { is_immediate: true, ahs_len: 0, data_len: 0, lun: [0; 8], tag, cmd_sn: 0, request };
    let established = Established {
        target: 0,
        initiator: "iqn.2026-01.x:h".to_owned(),
        isid: [1; 6],
        tsih: 1,
        cid: 0,
        rules: Rules::default(),
        exp_cmd_sn: 0,
        stat_sn: 0,
        leftover: reset.encode().repeat(FUNCTIONS),
    };
    let logical = LogicalUnit::new(Export::new("db", 1 << 20));
    let unit = Unit { lun: Lun::ZERO, logical, disk: DiskId(0), keeper: None };
    let (mut peer, socket) = UnixStream::pair().unwrap();
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
