//! Connections over socket pairs, on the real engine and reactor.

mod moving;
mod shard;

use forebay_core::ids::Nanos;
use forebay_nbd::errno::Errno;
use forebay_nbd::flags::CommandFlags;
use forebay_nbd::request::{Command, RequestHeader};
use proptest::prelude::*;

use self::shard::{SIZE, Shard};
use super::{STALL_MAX, coming};
use crate::client::{Client as _, DiskId, Permission};
use crate::nbd::session::REQUESTS_MAX;
use crate::nbd::{Contexts, Negotiated};

fn simple() -> Negotiated {
    Negotiated::default()
}

fn structured() -> Negotiated {
    let contexts = Contexts { allocation: true, state: false };
    Negotiated { structured_replies: true, contexts }
}

fn shard() -> Shard {
    Shard::new(|_| ())
}

#[test]
fn reads_return_what_is_on_primary_storage_and_then_what_is_in_ram() {
    for negotiated in [simple(), structured()] {
        let mut shard = shard();
        let mut client = shard.connect(negotiated);
        let expected = shard.disk.backend[1024..1024 + 20480].to_vec();
        for _ in 0..3 {
            assert_eq!(client.call(&mut shard, Command::Read, 1024, 20480), expected);
        }
        shard.disk.backend.fill(0xaa);
        let expected_hit = client.call(&mut shard, Command::Read, 1024, 20480);
        assert_eq!(expected_hit, expected, "from RAM");
    }
}

#[test]
fn writes_of_all_sizes_arrive_whole() {
    let mut shard = shard();
    let mut client = shard.connect(simple());
    for len in [512, 4096, 65536, 300 << 10, 5 << 20] {
        let bytes: Vec<u8> = (0..len).map(|at: usize| (at % 253) as u8).collect();
        client.write(&mut shard, 512, &bytes);
        assert!(shard.disk.backend[512..512 + len] == bytes);
        assert!(client.call(&mut shard, Command::Read, 512, len as u32) == bytes);
    }
    for command in [Command::Flush, Command::Cache, Command::Trim, Command::WriteZeroes] {
        let len = if command == Command::Flush { 0 } else { 8192 };
        assert_eq!(client.call(&mut shard, command, 0, len), [0; 0]);
    }
    assert_eq!(client.call(&mut shard, Command::Read, 0, 8192), vec![0; 8192]);
}

#[test]
fn block_status_asks_primary_storage() {
    let mut shard = shard();
    let mut client = shard.connect(structured());
    let status = client.call(&mut shard, Command::BlockStatus, 0, 1 << 20);
    assert_eq!(status, [0, 0, 0, 1, 0, 0x10, 0, 0, 0, 0, 0, 2]);
}

#[test]
fn more_requests_than_there_are_places_are_all_answered() {
    for holding in [false, true] {
        let mut shard = Shard::new(|config| config.requests_max = 20);
        shard.disk.is_holding = holding;
        let mut client = shard.connect(structured());
        let count = 3 * REQUESTS_MAX;
        let mut input = Vec::new();
        for index in 0..count {
            let offset = u64::from(index) * 16384;
            let command = if index % 3 == 0 { Command::Write } else { Command::Read };
            input.extend_from_slice(&client.request(command, offset, 8192).to_bytes());
            if command == Command::Write {
                input.extend_from_slice(&[index as u8; 8192]);
            }
        }
        client.send(&input[..100_000]);
        shard.turn();
        assert!(shard.connections[0].in_flight() <= REQUESTS_MAX as usize);
        shard.disk.is_holding = false;
        client.send_all(&mut shard, &input[100_000..]);
        for _ in 0..count {
            let answer = client.answer(&mut shard);
            answer.data.unwrap();
        }
        assert!(client.wanted.is_empty() && shard.disk.port.engine.is_idle());
        let written = &shard.disk.backend[3 * 16384..3 * 16384 + 8192];
        assert_eq!(written, [3; 8192]);
    }
}

#[test]
fn writes_wait_for_memory_and_then_go_on() {
    let mut shard = Shard::new(|config| config.buffer_bytes = 36 << 20);
    shard.disk.is_holding = true;
    let mut clients: Vec<_> = (0..4).map(|_| shard.connect(simple())).collect();
    for client in &mut clients {
        client.ask(Command::Write, 0, SIZE as u32);
    }
    shard.turn();
    let waiting = |shard: &Shard| shard.connections.iter().filter(|c| c.wants_resume()).count();
    assert!(waiting(&shard) >= 1, "not all of them fit");
    shard.disk.is_holding = false;
    for (index, client) in clients.iter_mut().enumerate() {
        client.send_all(&mut shard, &vec![index as u8; SIZE as usize]);
        client.answer(&mut shard).data.unwrap();
        assert!(shard.disk.backend.iter().all(|byte| *byte == index as u8));
    }
    assert_eq!(waiting(&shard), 0);
}

#[test]
fn what_a_reservation_forbids_is_refused_and_the_rest_is_not() {
    let reads = [Command::Read, Command::Cache, Command::BlockStatus];
    let writes = [Command::Write, Command::WriteZeroes, Command::Trim];
    let mut shard = shard();
    let mut client = shard.connect(structured());
    let before = shard.disk.backend.clone();
    for (access, may_read) in [(Permission::Reads, true), (Permission::Nothing, false)] {
        shard.disk.port.access = access;
        for (command, is_allowed) in
            reads.map(|it| (it, may_read)).into_iter().chain(writes.map(|it| (it, false)))
        {
            client.ask(command, 0, 8192);
            if command == Command::Write {
                client.send(&[1; 8192]);
            }
            let data = client.answer(&mut shard).data;
            assert_eq!(data.err(), (!is_allowed).then_some(Errno::Perm), "{command:?}");
        }
        assert_eq!(client.call(&mut shard, Command::Flush, 0, 0), [0; 0]);
        assert!(shard.disk.backend == before && shard.disk.port.engine.is_idle());
    }
    shard.disk.port.access = Permission::All;
    client.write(&mut shard, 0, &[2; 8192]);
    assert_eq!(client.call(&mut shard, Command::Read, 0, 8192), [2; 8192]);
}

#[test]
fn a_write_that_waits_for_memory_or_its_payload_meets_a_reservation_that_comes_meanwhile() {
    let mut shard = Shard::new(|config| config.buffer_bytes = 36 << 20);
    let before = shard.disk.backend.clone();
    let mut clients: Vec<_> = (0..4).map(|_| shard.connect(simple())).collect();
    for client in &mut clients {
        client.ask(Command::Write, 0, SIZE as u32);
    }
    shard.turn();
    let waits = |shard: &Shard| shard.connections.iter().filter(|c| c.wants_resume()).count();
    assert!((1..4).contains(&waits(&shard)), "some wait for memory, some for their payload");
    shard.disk.port.access = Permission::Reads;
    for client in &mut clients {
        client.send_all(&mut shard, &vec![0xff; SIZE as usize]);
        assert_eq!(client.answer(&mut shard).data, Err(Errno::Perm));
    }
    assert!(shard.disk.backend == before && shard.disk.port.engine.is_idle());
}

#[test]
fn requests_that_wait_for_a_place_meet_a_reservation_that_comes_meanwhile() {
    let mut shard = Shard::new(|config| config.requests_max = 4);
    shard.disk.is_holding = true;
    let mut client = shard.connect(structured());
    for index in 0..10 {
        client.ask(Command::BlockStatus, index * 8192, 8192);
    }
    shard.run("one waits for a place", |shard| shard.connections[0].wants_resume());
    shard.disk.port.access = Permission::Nothing;
    shard.disk.is_holding = false;
    let answers: Vec<_> = (0..10).map(|_| client.answer(&mut shard).data.err()).collect();
    let refused = answers.iter().filter(|it| **it == Some(Errno::Perm)).count();
    assert_eq!((refused, answers.iter().flatten().count()), (6, 6), "{answers:?}");
}

#[test]
fn what_the_engine_had_before_a_reservation_is_there_before_its_holder_looks() {
    let mut shard = shard();
    shard.disk.is_holding = true;
    let [mut first, mut second, mut holder] = [(); 3].map(|()| shard.connect(simple()));
    for (client, byte) in [(&mut first, 1), (&mut second, 2)] {
        client.ask(Command::Write, 0, 4096);
        client.send(&[byte; 4096]);
    }
    shard.run("the second waits for the first", |shard| {
        shard.connections[..2].iter().all(|connection| connection.in_flight() == 1)
    });
    shard.turn();
    // From here on a reservation is held; what its holder asks for is not refused.
    holder.ask(Command::Read, 0, 4096);
    shard.run("it reads", |shard| shard.connections[2].in_flight() == 1);
    shard.disk.port.access = Permission::Nothing;
    shard.disk.is_holding = false;
    assert_eq!(holder.answer(&mut shard).data, Ok(vec![2; 4096]));
    for client in [&mut first, &mut second] {
        assert_eq!(client.answer(&mut shard).data, Ok(vec![]));
    }
    assert_eq!(shard.disk.backend[..4096], [2; 4096]);
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_write_leaves_nothing_behind() {
    for sent in [0, 1, 4096, 300 << 10] {
        let mut shard = shard();
        let before = shard.disk.backend.clone();
        let mut client = shard.connect(simple());
        client.ask(Command::Write, 0, 1 << 20);
        client.send_all(&mut shard, &vec![0xff; sent]);
        client.stream = None;
        shard.run_until_done(0);
        assert!(shard.disk.backend == before, "half a write is no write");
    }
}

#[test]
fn a_client_that_vanishes_while_primary_storage_works_is_kept_until_it_answers() {
    let mut shard = shard();
    shard.disk.is_holding = true;
    let mut client = shard.connect(structured());
    let mut other = shard.connect(simple());
    for index in 0..16 {
        client.ask(Command::Read, index << 16, 65536);
        client.ask(Command::Write, index << 16, 512);
        client.send(&[1; 512]);
    }
    // A header cut short: the end of the stream is not a good-bye.
    client.send(b"\x25\x60");
    shard.run("requests in flight", |shard| shard.connections[0].in_flight() == 32);
    client.stream = None;
    for _ in 0..5 {
        shard.turn();
    }
    assert!(!shard.connections[0].is_done());
    shard.disk.is_holding = false;
    shard.run_until_done(0);
    assert_eq!(other.call(&mut shard, Command::Read, 0, 512), [1; 512], "submitted before it left");
}

#[test]
fn a_client_that_says_good_bye_gets_its_answers_first() {
    for polite in [true, false] {
        let mut shard = shard();
        shard.disk.is_holding = true;
        let mut client = shard.connect(simple());
        for index in 0..10 {
            client.ask(Command::Read, index * 8192, 8192);
        }
        if polite {
            client.ask(Command::Disconnect, 0, 0);
            client.send(b"what comes after it is not looked at");
        } else {
            client.stream.as_ref().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
        }
        shard.run("requests in flight", |shard| shard.connections[0].in_flight() == 10);
        shard.disk.is_holding = false;
        for _ in 0..10 {
            client.answer(&mut shard).data.unwrap();
        }
        client.expect_end(&mut shard);
        shard.run_until_done(0);
    }
}

#[test]
fn close_finishes_what_is_in_flight() {
    let mut shard = shard();
    shard.disk.is_holding = true;
    let mut client = shard.connect(simple());
    let mut idle = shard.connect(simple());
    let mut writing = shard.connect(simple());
    client.ask(Command::Read, 0, 8192);
    writing.ask(Command::Write, 0, 8192);
    shard.run("in flight", |shard| shard.connections[0].in_flight() == 1);
    for connection in &mut shard.connections {
        connection.close(&mut shard.disk.cx());
    }
    idle.expect_end(&mut shard);
    writing.expect_end(&mut shard);
    shard.disk.is_holding = false;
    client.answer(&mut shard).data.unwrap();
    client.expect_end(&mut shard);
    for id in 0..3 {
        shard.run_until_done(id);
    }
}

#[test]
fn garbage_and_a_claim_of_4_gib_harm_only_their_own_connection() {
    let mut shard = shard();
    let mut good = shard.connect(structured());
    let header = RequestHeader {
        flags: CommandFlags::NONE,
        command: Command::Write.wire(),
        cookie: 1,
        offset: 0,
        len: u32::MAX,
    };
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &header.to_bytes(), &[0; 4096]] {
        let id = shard.connections.len();
        let mut bad = shard.connect(simple());
        bad.ask(Command::Read, 0, 4096);
        bad.send(bytes);
        bad.expect_end(&mut shard);
        shard.run_until_done(id);
        good.call(&mut shard, Command::Read, 0, 4096);
    }
}

#[test]
fn a_client_that_stalls_in_the_middle_of_a_header_is_closed() {
    let mut shard = shard();
    let mut client = shard.connect(simple());
    client.call(&mut shard, Command::Read, 0, 512);
    assert_eq!(shard.connections[0].next_deadline(), Nanos::NEVER, "between requests it may wait");
    client.send(&[0x25, 0x60, 0x95, 0x13, 0]);
    shard.run("deadline", |shard| shard.connections[0].next_deadline() != Nanos::NEVER);
    shard.pass(Nanos(STALL_MAX.0 - 1));
    shard.turn();
    assert!(!shard.connections[0].is_done());
    shard.pass(Nanos(1));
    client.expect_end(&mut shard);
    shard.run_until_done(0);
}

#[test]
fn a_payload_that_trickles_in_does_not_keep_its_buffer() {
    let mut shard = shard();
    let mut client = shard.connect(simple());
    client.ask(Command::Write, 0, 1 << 20);
    shard.run("deadline", |shard| shard.connections[0].next_deadline() != Nanos::NEVER);
    for _ in 0..5 {
        assert!(!shard.connections[0].is_done());
        client.send(&[1]);
        shard.turn();
        shard.pass(Nanos(STALL_MAX.0 / 5));
        shard.turn();
    }
    client.expect_end(&mut shard);
    shard.run_until_done(0);
}

#[test]
fn a_slow_reader_pins_no_slot_and_still_gets_the_bytes_of_its_time() {
    let mut shard = shard();
    let mut slow = shard.connect(simple());
    let mut other = shard.connect(simple());
    let old = other.call(&mut shard, Command::Read, 0, 2 << 20);
    for _ in 0..4 {
        slow.ask(Command::Read, 0, 2 << 20);
    }
    shard.run("answers wait", |shard| shard.connections[0].next_deadline() != Nanos::NEVER);
    // The engine asserts that a pinned slot is not written; the bytes show that they were copied.
    other.write(&mut shard, 0, &vec![0x5a; 2 << 20]);
    shard.disk.port.engine.check_invariants();
    for _ in 0..4 {
        assert!(slow.answer(&mut shard).data.unwrap() == old);
    }
    assert_eq!(shard.connections[0].next_deadline(), Nanos::NEVER);
}

#[test]
fn a_slow_reader_gives_request_buffers_back_after_a_second() {
    let mut shard = Shard::new(|config| config.ram_bytes = 0);
    let mut slow = shard.connect(simple());
    let expected = shard.disk.backend[..4 << 20].to_vec();
    for _ in 0..2 {
        slow.ask(Command::Read, 0, 4 << 20);
    }
    shard.run("answers wait", |shard| shard.connections[0].next_deadline() != Nanos::NEVER);
    shard.turn();
    assert!(!shard.disk.port.engine.is_idle(), "sent from the request buffers");
    shard.pass(Nanos::from_millis(1000));
    shard.turn();
    assert!(shard.disk.port.engine.is_idle(), "copied");
    for _ in 0..2 {
        assert!(slow.answer(&mut shard).data.unwrap() == expected);
    }
}

#[test]
fn a_client_that_reads_nothing_is_not_served_further_and_then_closed() {
    let mut shard = shard();
    let mut slow = shard.connect(structured());
    let input: Vec<u8> =
        (0..2000).flat_map(|_| slow.request(Command::Read, 0, 65536).to_bytes()).collect();
    slow.send(&input);
    for _ in 0..100 {
        shard.turn();
    }
    let unserved = shard.connections[0].next_deadline();
    assert_ne!(unserved, Nanos::NEVER);
    assert!(!shard.connections[0].wants_resume(), "no further request until it reads");
    shard.pass(STALL_MAX);
    shard.run_until_done(0);
}

#[test]
fn a_request_that_comes_as_the_disk_ends_has_no_answer_and_the_connection_closes() {
    let mut shard = shard();
    let mut client = shard.connect(simple());
    let mut cx = shard.disk.cx();
    let now = cx.now;
    let port = cx.port(DiskId(0));
    port.engine.shut_down(now, &mut port.actions);
    // Whoever comes back repeats it; an error would reach the guest.
    client.ask(Command::Read, 0, 512);
    client.ask(Command::Flush, 0, 0);
    client.sees_no_answer(&mut shard);
}

#[test]
fn a_question_of_two_that_is_given_up_leaves_the_request_without_an_answer() {
    let contexts = Contexts { allocation: true, state: true };
    let mut shard = Shard::new(|config| config.requests_max = 4);
    shard.disk.is_holding = true;
    let mut client = shard.connect(Negotiated { structured_replies: true, contexts });
    let mut other = shard.connect(simple());
    for index in 0..3 {
        other.ask(Command::Read, index * 8192, 8192);
    }
    shard.run("they have their places", |shard| shard.connections[1].in_flight() == 3);
    client.ask(Command::BlockStatus, 0, 8192);
    shard.run("the second question waits", |shard| shard.connections[0].wants_resume());
    shard.connections[0].close(&mut shard.disk.cx());
    shard.disk.is_holding = false;
    for _ in 0..3 {
        other.answer(&mut shard).data.unwrap();
    }
    client.sees_no_answer(&mut shard);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_client_sends_and_wherever_it_stops_nothing_is_left_behind(
        requests in proptest::collection::vec((0u16..9, 0u16..32, 0u64..64, 0u32..40), 0..40),
        garbage in proptest::collection::vec(any::<u8>(), 0..60),
        holding: bool,
        stop in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        for (cookie, (command, flags, offset, len)) in requests.into_iter().enumerate() {
            let flags = CommandFlags(flags);
            let (cookie, offset, len) = (cookie as u64, 512 * offset, 512 * len);
            let header = RequestHeader { flags, command, cookie, offset, len };
            bytes.extend_from_slice(&header.to_bytes());
            if command == Command::Write.wire() {
                bytes.resize(bytes.len() + len as usize, 0xee);
            }
        }
        bytes.extend_from_slice(&garbage);
        bytes.truncate(stop.index(bytes.len() + 1));
        let mut shard = shard();
        shard.disk.is_holding = holding;
        let mut client = shard.connect(structured());
        let mut rest = &bytes[..];
        for _ in 0..200 {
            use std::io::Write;
            if let Ok(count) = client.stream.as_mut().unwrap().write(rest) {
                rest = &rest[count..];
            }
            if rest.is_empty() {
                break;
            }
            shard.turn();
            client.receive();
        }
        client.stream = None;
        shard.turn();
        shard.disk.is_holding = false;
        shard.run_until_done(0);
        shard.disk.port.engine.check_invariants();
    }
}

#[test]
fn requests_that_come_are_found_behind_payloads() {
    let header = |command: Command, offset, len| {
        let (flags, command) = (CommandFlags::NONE, command.wire());
        RequestHeader { flags, command, cookie: 1, offset, len }.to_bytes()
    };
    let mut input = header(Command::Read, 4096, 512).to_vec();
    input.extend(header(Command::Write, 8192, 10));
    input.extend([0x25; 10]);
    input.extend(header(Command::Flush, 0, 0));
    input.extend(header(Command::Write, 1 << 60, u32::MAX));
    let found: Vec<_> = coming(&input).collect();
    assert_eq!(found, [(4096, 28), (8192, 66), (0, 94), (1 << 60, 122 + u32::MAX as usize)]);
    assert_eq!(coming(&input[..27]).count(), 0, "a header that is not whole");
    assert_eq!(coming(&input[56..]).count(), 0, "a payload is no header");
}
