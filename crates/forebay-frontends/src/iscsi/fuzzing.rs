//! Bodies of the fuzz targets: hostile bytes in, promises checked. As with NBD, the targets in
//! `fuzz/` feed them inputs of libFuzzer. The tests here feed random bytes on the stable
//! toolchain. With the feature `planted-bugs` every body must fail soon.

use std::sync::Arc;

use forebay_core::action::{Buffer, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::reactor::SocketId;

use super::chap::RANDOM;
use super::codec::{HEADER, NO_TAG, padding};
use super::device::{Cause, Device, Unit};
use super::login::{Established, Login, Outcome};
use super::negotiate::{Rules, SEGMENT_MAX};
use super::session::{IMMEDIATE_MAX, Passed, Session, Start, Step, WINDOW};
use super::target::{Credentials, Portal, Target};
use super::task::Memory;
use super::text::{self, KEYS_MAX};
use crate::client::DiskId;
use crate::scsi::{Cdb, Done, Export, Initiator, LogicalUnit, Lun, Medium, Port};

const SIZE: u64 = 1 << 20;
const TARGET: &str = "iqn.2026-01.x:db";

/// Keys and values.
pub fn iscsi_text(data: &[u8]) {
    let Ok(keys) = text::keys(data) else { return };
    assert!(keys.len() <= KEYS_MAX);
    let mut rules = Rules::default();
    let mut out = Vec::new();
    for (name, value) in &keys {
        assert!(!name.is_empty() && !name.contains('='));
        rules.take(name, value, false, &mut out);
        let _ = text::binary(value);
    }
    rules.settle();
    assert!(rules.first_burst <= rules.max_burst && rules.segment_max >= 512);
    text::keys(&out).expect("answers are keys");
}

/// A login: one byte of set-up, one byte = bytes fed at a time (0: all), the rest is the initiator.
pub fn iscsi_login(data: &[u8]) {
    let [setup, piece, client @ ..] = data else { return };
    let secret = Credentials { name: "user".to_owned(), secret: b"twelve bytes or more".to_vec() };
    let wants_proof = setup & 1 == 1;
    let target = Target { chap: wants_proof.then_some(secret), ..Target::new(TARGET) };
    let portal = Arc::new(Portal { targets: vec![target], ..Portal::default() });
    let address = "127.0.0.1:3260".parse().expect("an address");
    let mut login = Login::start(portal, address, [7; RANDOM], 1);
    let mut out = Vec::new();
    let piece = if *piece == 0 { usize::MAX } else { usize::from(*piece) };
    for bytes in client.chunks(piece) {
        match login.feed(bytes, &mut out) {
            Outcome::Continue => {}
            Outcome::Session(established) => {
                assert!(!wants_proof, "nobody knows the secret");
                assert!(client.ends_with(&established.leftover) || piece < client.len());
                break;
            }
            Outcome::Close(_) | Outcome::Broken => break,
        }
    }
    check_pdus(&out, 0x23);
}

/// A session: one byte of set-up, one byte = bytes fed at a time (0: all), the rest is the initiator.
pub fn iscsi_session(data: &[u8]) {
    let [setup, piece, client @ ..] = data else { return };
    let mut world = World::new(*setup);
    let piece = if *piece == 0 { usize::MAX } else { usize::from(*piece) };
    for bytes in client.chunks(piece) {
        world.input.extend_from_slice(bytes);
        if !world.take_pdus() {
            break;
        }
    }
    world.session.end(&mut world.device);
    world.settle_aborted();
    assert_eq!(world.session.in_flight(), 0);
    world.device.leave(world.session.member());
}

/// A session, its target, and what is known of them.
struct World {
    session: Session,
    device: Device,
    input: Vec<u8>,
    out: Vec<u8>,
    /// There is no memory for every other write.
    is_short: bool,
    given: u32,
    stat_sn: u32,
    /// Another session, which clears the task set now and then; who has tasks there is answered (TAS).
    clears: Option<usize>,
    steps: u32,
}

impl World {
    fn new(setup: u8) -> World {
        let bit = |bit: u8| setup >> bit & 1 == 1;
        let port = Port { relative: 1, group: 1, target: TARGET.to_owned(), portal_group: 1 };
        let export = Export { ports: vec![port], ..Export::new("db", SIZE) };
        let unit = Unit {
            lun: Lun::new(0).expect("a number"),
            logical: LogicalUnit::new(export),
            disk: DiskId(0),
            keeper: None,
        };
        let mut device = Device::new(vec![unit]);
        let initiator = Initiator { name: "iqn.2026-01.x:host".to_owned(), isid: [1; 6] };
        let member = device.join(initiator.clone(), 1, Some(SocketId(0)));
        let rules = Rules {
            initial_r2t: bit(0),
            immediate_data: bit(1),
            outstanding_r2t: if bit(2) { 4 } else { 1 },
            max_burst: if bit(3) { 4096 } else { 1 << 20 },
            ..Rules::default()
        };
        let established = Established {
            target: 0,
            initiator: initiator.name,
            isid: initiator.isid,
            tsih: 1,
            cid: 0,
            rules,
            exp_cmd_sn: 0,
            stat_sn: 0,
            leftover: Vec::new(),
        };
        let mut targets = Vec::new();
        text::put(&mut targets, "TargetName", TARGET);
        let session = Session::new(Start { established, member, targets, log: None });
        let (input, out) = (Vec::new(), Vec::new());
        let clears = bit(5).then(|| join_another(&mut device));
        let (given, stat_sn, steps) = (0, 0, 0);
        World { session, device, input, out, is_short: bit(4), given, stat_sn, clears, steps }
    }

    /// Goes through the input; false when the connection is to be closed.
    fn take_pdus(&mut self) -> bool {
        let mut idle = 0;
        loop {
            self.steps += 1;
            if let Some(other) = self.clears.filter(|_| self.steps.is_multiple_of(5)) {
                self.device.abort_others(other, 0, Cause::Cleared);
            }
            self.session.begin(Nanos(0), &mut self.device);
            let (device, out) = (&mut self.device, &mut self.out);
            self.session.answer_late(device, out);
            let Ok((consumed, step)) = self.session.next(device, &self.input, out) else {
                return false;
            };
            assert!(consumed <= self.input.len());
            self.input.drain(..consumed);
            if consumed > 0 {
                idle = 0;
            }
            match step {
                Step::Managed => {}
                Step::Done if consumed > 0 => {}
                Step::Done => {
                    idle += 1;
                    assert!(idle < 2, "nothing happens");
                }
                Step::NeedMore(bytes) => {
                    assert!(bytes <= SEGMENT_MAX + 2048, "more is wanted than may come");
                    self.work();
                    return true;
                }
                Step::Memory(key) => self.give(key),
                Step::Payload(_, span) => {
                    let count = self.input.len().min(span.len as usize);
                    if count == 0 {
                        return true;
                    }
                    self.input.drain(..count);
                    self.session.arrived(count as u32, None);
                    idle = 0;
                }
                Step::Leave => return false,
            }
            self.work();
            assert!(self.session.in_flight() <= (WINDOW + IMMEDIATE_MAX) as usize);
        }
    }

    fn give(&mut self, key: u32) {
        self.given += 1;
        if self.is_short && self.given.is_multiple_of(2) {
            return self.session.hold(&mut self.device, key, &mut self.out);
        }
        let wanted = self.session.task(key).data.wanted;
        let span = Span { offset: 0, len: wanted };
        let buffer = Buffer { span, window: ByteRange::at(0, wanted.into()) };
        let memory = Memory { buffer, first: span, second: Span { offset: 0, len: 0 } };
        let held = self.session.give(&mut self.device, key, memory, wanted.into(), &mut self.out);
        assert!(held.len() <= wanted as usize);
    }

    /// Does what is ready, and looks at the answers.
    fn work(&mut self) {
        while let Some(key) = self.session.ready(&self.device, &Passed::default()) {
            self.session.start();
            let task = self.session.task(key);
            let medium = task.work.medium.clone().expect("it has work");
            if let Medium::Write { range, .. } = &medium {
                assert!(range.end <= SIZE && task.data.arrived == task.data.wanted);
            }
            self.session.take_buffer(key);
            let (member, device) = (self.session.member(), &mut self.device);
            if let Medium::Read { .. } = medium {
                let actual = self.session.task(key).medium_len();
                let mut piece = self.session.answer_read(device, key, actual, &mut self.out);
                while let Some(len) = self.session.next_piece(&mut piece, &mut self.out) {
                    let end = self.out.len() + len as usize + padding(len as usize);
                    self.out.resize(end, 0);
                }
            } else {
                let done = Done::Status(IoStatus::Ok);
                let response = device.medium_done(member, 0, &medium, done);
                self.session.answer(device, key, response, &mut self.out);
            }
        }
        self.settle_aborted();
        self.stat_sn = check_pdus_from(&self.out, self.stat_sn);
        self.out.clear();
    }

    fn settle_aborted(&mut self) {
        while self.session.take_released().is_some() {}
    }
}

/// A second session; tasks that it aborts are answered.
fn join_another(device: &mut Device) -> usize {
    let initiator = Initiator { name: "iqn.2026-01.x:other".to_owned(), isid: [2; 6] };
    let other = device.join(initiator, 1, Some(SocketId(1)));
    // The power on is told once.
    device.ask(other, Some(0), Cdb([0; 16]), 0, None);
    other
}

/// Answers are whole PDUs; those with a status have the next number.
fn check_pdus_from(out: &[u8], mut stat_sn: u32) -> u32 {
    let mut rest = out;
    while !rest.is_empty() {
        let header: &[u8; HEADER] = rest.first_chunk().expect("a whole header");
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four"));
        let (opcode, tag, len) = (header[0], word(16), (word(4) & 0xff_ffff) as usize);
        let has_status = match opcode {
            0x31 => false,
            0x20 => tag != NO_TAG,
            0x25 => header[1] & 1 == 1,
            _ => true,
        };
        if has_status {
            assert_eq!(word(24), stat_sn, "numbers of answers follow each other");
            stat_sn = stat_sn.wrapping_add(1);
        }
        rest = &rest[HEADER + len + padding(len)..];
    }
    stat_sn
}

/// Answers are whole PDUs of one kind.
fn check_pdus(out: &[u8], first: u8) {
    let mut rest = out;
    while !rest.is_empty() {
        let header: &[u8; HEADER] = rest.first_chunk().expect("a whole header");
        assert!(header[0] == first || [0x20, 0x24, 0x26].contains(&header[0]));
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        rest = &rest[HEADER + len + padding(len)..];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::codec::{Command, LoginRequest, Pdu, Request};
    use super::*;

    fn bytes_of(pdu: &Pdu, data: &[u8]) -> Vec<u8> {
        let mut bytes = pdu.encode().to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + padding(data.len()), 0);
        bytes
    }

    fn cdb() -> impl Strategy<Value = [u8; 16]> {
        let opcode = prop_oneof![
            Just(0x28u8),
            Just(0x2a),
            Just(0x00),
            Just(0x12),
            Just(0xa0),
            Just(0x15),
            Just(0x2f),
            Just(0x41),
            Just(0x42),
            Just(0x5f),
            Just(0x89),
            any::<u8>()
        ];
        (opcode, 0u8..4, 0u8..33, any::<[u8; 4]>()).prop_map(|(opcode, flags, blocks, rest)| {
            let mut cdb = [0; 16];
            cdb[0] = opcode;
            cdb[1] = flags << 1;
            cdb[5] = rest[0];
            cdb[8] = blocks;
            cdb[4] = rest[1] % 64;
            cdb
        })
    }

    fn request() -> impl Strategy<Value = (Request, usize)> {
        let command = (cdb(), any::<[bool; 3]>(), 0u32..40, 0usize..5).prop_map(
            |(cdb, [is_final, reads, writes], blocks, data)| {
                let expected_len = blocks * 512;
                let data = if writes { (data * 512).min(expected_len as usize) } else { 0 };
                let command = Command { is_final, reads, writes, attribute: 1, expected_len, cdb };
                (Request::Command(command), data)
            },
        );
        let data_out = (any::<bool>(), 0u32..3, 0u32..3, 0u32..12, 0usize..9).prop_map(
            |(is_final, tag, data_sn, offset, len)| {
                let transfer_tag = if tag == 0 { NO_TAG } else { tag };
                let offset = offset * 512;
                (Request::DataOut { is_final, transfer_tag, data_sn, offset }, len * 512)
            },
        );
        let text = Request::Text { is_final: true, goes_on: false, transfer_tag: NO_TAG };
        prop_oneof![
            6 => command,
            6 => data_out,
            1 => (0u8..9, 0u32..9).prop_map(|(function, referenced)| {
                (Request::TaskManagement { function, referenced, referenced_sn: 0 }, 0)
            }),
            1 => (0usize..300).prop_map(|len| (Request::NopOut { transfer_tag: NO_TAG }, len)),
            1 => Just((text, 0)),
            1 => (0u8..64).prop_map(|opcode| (Request::Unknown(opcode), 3)),
        ]
    }

    /// Requests of which most make sense, numbered as they should be, and lengths that do not.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let one = (
            request(),
            any::<bool>(),
            0u32..8,
            prop_oneof![40 => Just(0usize), 1 => any::<usize>()],
        );
        let setup = (any::<u8>(), prop_oneof![Just(0u8), any::<u8>()]);
        (setup, proptest::collection::vec(one, 0..120)).prop_map(|((setup, piece), requests)| {
            let mut bytes = vec![setup, piece];
            let mut cmd_sn = 0;
            for ((request, len), is_immediate, tag, extra) in requests {
                let numbered = !matches!(request, Request::DataOut { .. } | Request::Unknown(_));
                let data_len = if extra == 0 { len } else { extra & 0xff_ffff };
                let pdu =
                    Pdu { is_immediate, ahs_len: 0, data_len, lun: [0; 8], tag, cmd_sn, request };
                bytes.extend(bytes_of(&pdu, &vec![0; len]));
                cmd_sn += u32::from(numbered && !is_immediate);
            }
            bytes
        })
    }

    /// Few keys of any kind, or many that are in order: of many any one would spoil them all.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let names = [
            "HeaderDigest",
            "MaxBurstLength",
            "FirstBurstLength",
            "CHAP_C",
            "InitialR2T",
            "MaxRecvDataSegmentLength",
            "X",
            "",
        ];
        let value = || {
            prop_oneof![
                Just("Yes".to_owned()),
                Just("CRC32C,None".to_owned()),
                Just("0x0f".to_owned()),
                any::<u32>().prop_map(|number| number.to_string()),
            ]
        };
        let key = |(name, value): (&str, String)| format!("{name}={value}\0");
        let any_value = prop_oneof![4 => value(), 1 => ".{0,8}"];
        let any_key = (proptest::sample::select(names.to_vec()), any_value).prop_map(key);
        let good_key = (proptest::sample::select(names[..7].to_vec()), value()).prop_map(key);
        let keys = prop_oneof![
            proptest::collection::vec(any_key, 0..20),
            proptest::collection::vec(good_key, 0..200)
        ];
        keys.prop_map(|keys| keys.concat().into_bytes())
    }

    fn logins() -> impl Strategy<Value = Vec<u8>> {
        let flags = (any::<[bool; 2]>(), 0u8..4, 0u8..4);
        let step = (flags, texts()).prop_map(|(([transits, goes_on], stage, next_stage), text)| {
            let login = LoginRequest {
                transits,
                goes_on: goes_on && !transits,
                stage,
                next_stage,
                version_min: 0,
                isid: [0; 6],
                tsih: 0,
                cid: 0,
            };
            let request = Request::Login(login);
            let text =
                [format!("InitiatorName=iqn.x\0TargetName={TARGET}\0").as_bytes(), &text].concat();
            let data_len = text.len();
            let pdu = Pdu {
                is_immediate: true,
                ahs_len: 0,
                data_len,
                lun: [0; 8],
                tag: 0,
                cmd_sn: 0,
                request,
            };
            bytes_of(&pdu, &text)
        });
        (any::<[u8; 2]>(), proptest::collection::vec(step, 0..6))
            .prop_map(|(setup, steps)| [&setup[..], &steps.concat()].concat())
    }

    #[cfg(not(feature = "planted-bugs"))]
    proptest! {
        #[test]
        fn texts_keep_their_promises(data in texts()) {
            iscsi_text(&data);
        }

        #[test]
        fn the_login_keeps_its_promises(data in logins()) {
            iscsi_login(&data);
        }

        #[test]
        fn the_session_keeps_its_promises(data in stream()) {
            iscsi_session(&data);
        }

        #[test]
        fn plain_noise_is_survived(data in proptest::collection::vec(any::<u8>(), 0..400)) {
            iscsi_text(&data);
            iscsi_login(&data);
            iscsi_session(&data);
        }
    }

    /// True when some input of `inputs` makes `body` fail.
    #[cfg(feature = "planted-bugs")]
    fn finds(inputs: impl Strategy<Value = Vec<u8>>, body: fn(&[u8])) -> bool {
        use proptest::strategy::ValueTree;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        (0..256).any(|_| {
            let data = inputs.new_tree(&mut runner).unwrap().current();
            std::panic::catch_unwind(|| body(&data)).is_err()
        })
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn the_planted_bugs_are_found() {
        assert!(finds(texts(), iscsi_text));
        assert!(finds(logins(), iscsi_login));
        assert!(finds(stream(), iscsi_session));
    }
}
