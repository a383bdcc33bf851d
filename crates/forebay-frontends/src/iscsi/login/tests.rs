use md5::{Digest, Md5};
use sha2::Sha256;

use super::super::target::Credentials;
use super::*;

const TARGET: &str = "iqn.2026-01.x:db";
const INITIATOR: &str = "iqn.2026-01.x:host";

/// An initiator, and the login that it talks to.
struct World {
    login: Login,
    out: Vec<u8>,
}

/// An answer to a login step.
#[derive(Debug, PartialEq, Eq)]
struct Answered {
    status: u16,
    transits: bool,
    keys: Vec<(String, String)>,
}

fn target() -> Target {
    Target::new(TARGET)
}

fn with_chap(mutual: bool) -> Target {
    let credentials = |name: &str, secret: &str| {
        Some(Credentials { name: name.to_owned(), secret: secret.as_bytes().to_vec() })
    };
    Target {
        chap: credentials("user", "a secret of length"),
        mutual_chap: mutual.then(|| credentials("us", "the other secret")).flatten(),
        ..target()
    }
}

impl World {
    fn new(targets: Vec<Target>) -> World {
        let awaited = vec!["iqn.2026-01.x:to-come".to_owned()];
        let portal = Arc::new(Portal { targets, awaited });
        let address = "127.0.0.1:3260".parse().unwrap();
        World { login: Login::start(portal, address, [3; RANDOM], 77), out: Vec::new() }
    }

    fn step(&mut self, stage: u8, next: Option<u8>, keys: &[(&str, &str)]) -> (Answered, Outcome) {
        let mut data = Vec::new();
        keys.iter().for_each(|(name, value)| text::put(&mut data, name, value));
        let login = LoginRequest {
            transits: next.is_some(),
            goes_on: false,
            stage,
            next_stage: next.unwrap_or(0),
            version_min: 0,
            isid: [0x80, 0, 0, 0, 0, 1],
            tsih: 0,
            cid: 1,
        };
        self.send(login, &data)
    }

    fn send(&mut self, login: LoginRequest, data: &[u8]) -> (Answered, Outcome) {
        let bytes = pdu(Request::Login(login), true, 9, data);
        self.out.clear();
        let outcome = self.login.feed(&bytes, &mut self.out);
        let (header, data) = self.out.split_first_chunk::<HEADER>().expect("an answer");
        assert_eq!(header[0], 0x23);
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let answered = Answered {
            status: u16::from_be_bytes([header[36], header[37]]),
            transits: header[1] & 0x80 != 0,
            keys: text::keys(&data[..len]).unwrap().into_iter().map(owned).collect(),
        };
        (answered, outcome)
    }
}

impl Answered {
    fn value(&self, name: &str) -> &str {
        self.keys.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

fn pdu(request: Request, is_immediate: bool, tag: u32, data: &[u8]) -> Vec<u8> {
    let data_len = data.len();
    let lun = [0; 8];
    let pdu = Pdu { is_immediate, ahs_len: 0, data_len, lun, tag, cmd_sn: 5, request };
    let mut bytes = pdu.encode().to_vec();
    if let Request::Login(login) = request {
        bytes[8..14].copy_from_slice(&login.isid);
    }
    put_data(data, &mut bytes);
    bytes
}

fn names() -> Vec<(&'static str, &'static str)> {
    vec![("InitiatorName", INITIATOR), ("SessionType", "Normal"), ("TargetName", TARGET)]
}

#[test]
fn for_whom_there_is_no_room_is_told_so() {
    let mut world = World::new(vec![target()]);
    world.login = Login::turn_away("127.0.0.1:3260".parse().unwrap());
    let (answer, outcome) = world.step(OPERATIONAL, Some(FULL_FEATURE), &names());
    assert_eq!((answer.status, answer.transits, answer.keys.len()), (0x0302, false, 0));
    assert!(matches!(outcome, Outcome::Close(Some(Refusal::OutOfResources))));
}

#[test]
fn an_initiator_without_secrets_is_through_in_two_steps() {
    let mut world = World::new(vec![target()]);
    let keys = [names(), vec![("AuthMethod", "CHAP,None")]].concat();
    let (answer, _) = world.step(SECURITY, Some(OPERATIONAL), &keys);
    assert_eq!((answer.status, answer.transits), (0, true));
    assert_eq!(answer.value("AuthMethod"), "None");
    assert_eq!(answer.value("TargetPortalGroupTag"), "1");
    let keys = [
        ("HeaderDigest", "CRC32C,None"),
        ("DataDigest", "None"),
        ("InitialR2T", "No"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("X-org.example.key", "1"),
    ];
    let (answer, outcome) = world.step(OPERATIONAL, Some(FULL_FEATURE), &keys);
    assert_eq!(answer.value("HeaderDigest"), "CRC32C");
    assert_eq!(answer.value("MaxRecvDataSegmentLength"), SEGMENT_MAX.to_string());
    assert_eq!(answer.value("X-org.example.key"), "NotUnderstood");
    let Outcome::Session(established) = outcome else { panic!("{outcome:?}") };
    assert_eq!((established.tsih, established.exp_cmd_sn, established.target), (77, 5, 0));
    assert!(established.rules.header_digest && !established.rules.data_digest);
    assert!(!established.rules.initial_r2t);
    assert_eq!(established.rules.segment_max, 65536);
    assert_eq!(established.initiator, INITIATOR);
}

#[test]
fn a_login_may_be_one_step() {
    // QEMU takes the name of the virtual machine, whatever is in it.
    for name in [INITIATOR, "iqn.2008-11.org.linux-kvm:My VM_1", "EUI.02004567A425678D"] {
        let mut world = World::new(vec![target()]);
        let keys = [("InitiatorName", name), ("SessionType", "Normal"), ("TargetName", TARGET)];
        let (answer, outcome) = world.step(OPERATIONAL, Some(FULL_FEATURE), &keys);
        assert_eq!(answer.status, 0, "{name}");
        assert!(matches!(outcome, Outcome::Session(_)));
    }
}

#[test]
fn logins_are_refused_with_the_status_for_it() {
    let check = |target: Target, keys: &[(&str, &str)], stage, next, expect: Refusal| {
        let mut world = World::new(vec![target]);
        let (answer, outcome) = world.step(stage, next, keys);
        assert_eq!(answer.status, expect as u16, "{keys:?}");
        assert!(matches!(outcome, Outcome::Close(Some(refusal)) if refusal == expect));
    };
    let operational = (OPERATIONAL, Some(FULL_FEATURE));
    let go = |target, keys: &[(&str, &str)], expect| {
        check(target, keys, operational.0, operational.1, expect);
    };
    go(target(), &[("TargetName", TARGET)], Refusal::MissingKey);
    go(target(), &[("InitiatorName", INITIATOR)], Refusal::MissingKey);
    go(target(), &[("InitiatorName", INITIATOR), ("TargetName", "iqn.x")], Refusal::NotFound);
    let to_come = [("InitiatorName", INITIATOR), ("TargetName", "iqn.2026-01.x:TO-come")];
    go(target(), &to_come, Refusal::Unavailable);
    go(target(), &[("InitiatorName", INITIATOR), ("SessionType", "x")], Refusal::SessionType);
    // What would begin a line of its own in a log.
    for name in ["", "iqn.x:a\niqn.x:b", "iqn.x:\u{85}", "iqn.x:\u{7f}"] {
        let keys = [("InitiatorName", name), ("TargetName", TARGET)];
        go(target(), &keys, Refusal::Malformed);
    }
    let private = Target { initiators: vec!["iqn.2026-01.x:other".to_owned()], ..target() };
    go(private, &names(), Refusal::Forbidden);
    #[cfg(not(feature = "planted-bugs"))]
    go(with_chap(false), &names(), Refusal::Authentication);
    check(target(), &names(), FULL_FEATURE, None, Refusal::Malformed);
    check(target(), &names(), OPERATIONAL, Some(SECURITY), Refusal::Malformed);
    check(with_chap(false), &names(), SECURITY, Some(OPERATIONAL), Refusal::Authentication);
    check(with_chap(false), &names(), SECURITY, Some(FULL_FEATURE), Refusal::Authentication);
    let none = [names(), vec![("AuthMethod", "None")]].concat();
    check(with_chap(false), &none, SECURITY, Some(OPERATIONAL), Refusal::Authentication);
    let only = [names(), vec![("AuthMethod", "CHAP")]].concat();
    check(target(), &only, SECURITY, Some(OPERATIONAL), Refusal::Authentication);
    let early = [names(), vec![("CHAP_N", "user"), ("CHAP_R", "0x00")]].concat();
    check(with_chap(false), &early, SECURITY, None, Refusal::Malformed);
}

#[test]
fn other_versions_and_other_sessions_are_refused() {
    let check = |version_min, tsih, expect: Refusal| {
        let mut world = World::new(vec![target()]);
        let login = LoginRequest {
            transits: false,
            goes_on: false,
            stage: SECURITY,
            next_stage: 0,
            version_min,
            isid: [0; 6],
            tsih,
            cid: 0,
        };
        assert_eq!(world.send(login, b"").0.status, expect as u16);
    };
    check(1, 0, Refusal::Version);
    check(0, 9, Refusal::NoSuchSession);
}

/// An initiator's CHAP, with what the target is asked in return.
fn chap(algorithm: &str, secret: &str, asked: Option<&str>, target: Target) -> (Answered, bool) {
    let mut world = World::new(vec![target]);
    let keys = [names(), vec![("AuthMethod", "CHAP,None")]].concat();
    // Asking for the next stage at once does not help.
    let (answer, _) = world.step(SECURITY, Some(OPERATIONAL), &keys);
    assert_eq!((answer.status, answer.transits), (0, false));
    assert_eq!(answer.value("AuthMethod"), "CHAP");
    let (answer, _) = world.step(SECURITY, None, &[("CHAP_A", algorithm)]);
    let challenge = text::binary(answer.value("CHAP_C")).unwrap();
    let input = [&[3], secret.as_bytes(), &challenge].concat();
    let response = match answer.value("CHAP_A") {
        "5" => text::hex(&Md5::digest(&input)),
        "7" => text::hex(&Sha256::digest(&input)),
        other => panic!("{other}"),
    };
    assert_eq!(answer.value("CHAP_I"), "3");
    let mut keys = vec![("CHAP_N", "user"), ("CHAP_R", &response)];
    if let Some(asked) = asked {
        keys.extend([("CHAP_I", "4"), ("CHAP_C", asked)]);
    }
    let (answer, _) = world.step(SECURITY, Some(OPERATIONAL), &keys);
    if answer.status != 0 {
        return (answer, false);
    }
    let (_, outcome) = world.step(OPERATIONAL, Some(FULL_FEATURE), &[]);
    (answer, matches!(outcome, Outcome::Session(_)))
}

#[test]
fn initiators_prove_who_they_are() {
    for algorithm in ["5", "7", "5,7"] {
        assert!(chap(algorithm, "a secret of length", None, with_chap(false)).1);
        let (answer, is_through) = chap(algorithm, "another", None, with_chap(false));
        assert_eq!((answer.status, is_through), (0x0201, false));
    }
}

#[test]
fn targets_prove_who_they_are() {
    let (answer, is_through) = chap("7", "a secret of length", Some("0x0102"), with_chap(true));
    assert!(is_through);
    let input = [&[4], &b"the other secret"[..], &[1, 2]].concat();
    assert_eq!(answer.value("CHAP_N"), "us");
    assert_eq!(answer.value("CHAP_R"), text::hex(&Sha256::digest(&input)));
    let refused = chap("7", "a secret of length", Some("0x0102"), with_chap(false));
    assert_eq!(refused.0.status, 0x0201);
    let reflected = text::hex(&[3; 32]);
    let refused = chap("7", "a secret of length", Some(&reflected), with_chap(true));
    assert_eq!(refused.0.status, 0x0201);
}

#[test]
fn a_text_may_come_in_pieces_and_bytes_one_by_one() {
    let mut world = World::new(vec![target()]);
    let mut data = Vec::new();
    names().iter().for_each(|(name, value)| text::put(&mut data, name, value));
    let login = |goes_on: bool| LoginRequest {
        transits: !goes_on,
        goes_on,
        stage: OPERATIONAL,
        next_stage: if goes_on { 0 } else { FULL_FEATURE },
        version_min: 0,
        isid: [0; 6],
        tsih: 0,
        cid: 0,
    };
    let (first, second) = data.split_at(20);
    let (answer, _) = world.send(login(true), first);
    assert_eq!((answer.status, answer.transits, answer.keys.len()), (0, false, 0));
    let bytes = [pdu(Request::Login(login(false)), true, 9, second), b"rest".to_vec()].concat();
    let (last, others) = bytes.split_last().unwrap();
    for byte in &others[..others.len() - 3] {
        let outcome = world.login.feed(&[*byte], &mut world.out);
        if let Outcome::Session(established) = outcome {
            assert_eq!(established.leftover, b"");
            return;
        }
    }
    panic!("not through before {last}");
}

#[test]
fn discovery_lists_targets_until_the_initiator_leaves() {
    let mut world = World::new(vec![target(), Target::new("iqn.2026-01.x:other")]);
    let keys = [
        ("InitiatorName", INITIATOR),
        ("SessionType", "Discovery"),
        ("HeaderDigest", "CRC32C,None"),
    ];
    let (answer, outcome) = world.step(OPERATIONAL, Some(FULL_FEATURE), &keys);
    assert!(matches!(outcome, Outcome::Continue) && world.login.is_discovering());
    assert_eq!(answer.value("HeaderDigest"), "None");
    let text = Request::Text { is_final: true, goes_on: false, transfer_tag: NO_TAG };
    world.out.clear();
    let outcome = world.login.feed(&pdu(text, false, 1, b"SendTargets=All\0"), &mut world.out);
    assert!(matches!(outcome, Outcome::Continue));
    let list = String::from_utf8_lossy(&world.out[HEADER..]);
    assert!(list.contains("TargetName=iqn.2026-01.x:db\0TargetAddress=127.0.0.1:3260,1\0"));
    assert!(list.contains("iqn.2026-01.x:other"));
    let logout = Request::Logout { reason: 0, cid: 1 };
    let outcome = world.login.feed(&pdu(logout, true, 2, b""), &mut world.out);
    assert!(matches!(outcome, Outcome::Close(None)));
}

#[test]
fn what_is_no_login_ends_the_connection() {
    let check = |bytes: &[u8]| {
        let mut world = World::new(vec![target()]);
        assert!(matches!(world.login.feed(bytes, &mut world.out), Outcome::Broken));
        assert!(world.out.is_empty());
    };
    check(&pdu(Request::NopOut { transfer_tag: 1 }, true, 1, b""));
    check(b"GET / HTTP/1.1\r\nHost: somewhere.example.org\r\n\r\n    ");
    let mut long = pdu(Request::NopOut { transfer_tag: 1 }, true, 1, b"");
    long[0] = 0x43;
    long[5] = 1;
    check(&long);
}

#[test]
fn a_login_that_never_ends_is_ended() {
    let mut world = World::new(vec![target()]);
    let login = LoginRequest {
        transits: false,
        goes_on: true,
        stage: OPERATIONAL,
        next_stage: 0,
        version_min: 0,
        isid: [0; 6],
        tsih: 0,
        cid: 0,
    };
    let bytes = pdu(Request::Login(login), true, 1, b"");
    let ends = (0..1000).find(|_| {
        matches!(world.login.feed(&bytes, &mut world.out), Outcome::Broken | Outcome::Close(_))
    });
    assert_eq!(ends, Some(STEPS_MAX as usize));
}
