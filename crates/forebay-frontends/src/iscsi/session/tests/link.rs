use std::sync::{Arc, Mutex};

use super::*;
use crate::iscsi::pdu_log::Lines;

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
    let before = world.sessions[0].counts.stat_sn;
    let answers = world.send(0, nop, b"hello");
    assert_eq!(
        (answers[0].opcode, answers[0].tag(), &answers[0].data[..]),
        (0x20, 5, &b"hello"[..])
    );
    assert_eq!(world.sessions[0].counts.stat_sn, before + 1);
    let mut out = Vec::new();
    world.sessions[0].ping(&mut out);
    assert!(world.sessions[0].pinged().is_some());
    let pong = Pdu { is_immediate: true, ..pdu(Request::NopOut { transfer_tag: 0 }, NO_TAG) };
    assert!(world.send(0, pong, &[]).is_empty());
    assert_eq!(world.sessions[0].counts.stat_sn, before + 1, "our own pings use up no number");
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
    let initiator = Initiator { name: "iqn.2026-01.x:h\u{2028}1".to_owned(), isid: [1; 6] };
    world.sessions[0].terms.log = Some(PduLog::new(said.clone(), &initiator));
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
    let first = "iqn.2026-01.x:h_1,010101010101 > Command tag 7 lun 0 data 512 01a1";
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
